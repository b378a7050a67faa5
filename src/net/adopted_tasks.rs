//! Tasks that a remote agent continues after its configuration was changed. The change happens
//! outside of the workers, so these tasks run on a separate thread, which ends after the agent and
//! the last of its tasks.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
};

use tokio::{
    runtime::Builder,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{LocalSet, spawn_local},
};

/// Creates, on the thread, the future that continues one task.
type AdoptedWork = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The sender to the thread; `None`: the thread is not started yet.
#[derive(Default)]
pub(super) struct AdoptedTasks(Mutex<Option<UnboundedSender<AdoptedWork>>>);

impl AdoptedTasks {
    /// Runs the future of `work` on the thread. If no thread can be started, `work` is dropped and
    /// its task fails.
    pub fn run<F: Future<Output = ()> + 'static>(&self, work: impl FnOnce() -> F + Send + 'static) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            // The queue holds tasks of the store, so the store's limits bound it.
            let (to_thread, waiting) = unbounded_channel();
            let thread = std::thread::Builder::new().name("peregrine-adopted".to_owned());
            *sender = thread.spawn(move || run_all(waiting)).ok().map(|_| to_thread);
        }
        if let Some(sender) = &*sender {
            // If the thread has ended, this drops the work.
            let _ = sender.send(Box::new(|| Box::pin(work())));
        }
    }
}

fn run_all(mut waiting: UnboundedReceiver<AdoptedWork>) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let running = LocalSet::new();
    running.block_on(&runtime, async {
        while let Some(work) = waiting.recv().await {
            spawn_local(work());
        }
    });
    runtime.block_on(running);
}
