//! A separate thread for work that mostly waits. The thread ends with its owner and drops
//! unfinished work.

use std::{
    future::Future,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    thread::JoinHandle,
};

/// A thread with a runtime. Dropping it stops the work and waits for the thread.
pub(crate) struct BackgroundThread {
    state: Arc<BackgroundState>,
    thread: Option<JoinHandle<()>>,
}

/// The state that a thread and its owner share.
#[derive(Default)]
pub(crate) struct BackgroundState {
    is_stopped: AtomicBool,
    /// The waker of the thread's work.
    waker: Mutex<Option<Waker>>,
}

impl BackgroundState {
    /// True after the owner was dropped; the work must then end.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Sets the waker.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// Wakes the work once; the next poll of the work sets the waker again.
    pub fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl BackgroundThread {
    /// Starts a thread with this name. The work must set its waker at each poll, and must end when
    /// [`BackgroundState::is_stopped`] is true.
    ///
    /// # Errors
    /// The system provides no runtime or no thread.
    pub fn start<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        work: impl FnOnce(Arc<BackgroundState>) -> F + Send + 'static,
    ) -> io::Result<BackgroundThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Arc::<BackgroundState>::default();
        let shared = Arc::clone(&state);
        let run = move || {
            // A spawned task, because waking the future of `block_on` would also poll the sockets.
            let work = runtime.spawn(work(shared));
            let _ = runtime.block_on(work);
            // Does not wait for a name resolution in progress.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(BackgroundThread { state, thread: Some(thread) })
    }
}

#[cfg(feature = "cli")]
impl BackgroundThread {
    /// Starts a thread with this name; dropping the owner drops the work at its current `await`.
    ///
    /// # Errors
    /// The system provides no runtime or no thread.
    pub fn start_droppable(
        name: &str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<BackgroundThread> {
        use std::{future::poll_fn, pin::pin, task::Poll};

        BackgroundThread::start(name, |state| async move {
            let mut work = pin!(work);
            poll_fn(|cx| {
                state.set_waker(cx.waker());
                match state.is_stopped() {
                    true => Poll::Ready(()),
                    false => work.as_mut().poll(cx),
                }
            })
            .await;
        })
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Release);
        self.state.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
