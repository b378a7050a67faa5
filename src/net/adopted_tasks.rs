//! Tasks that a remote agent continues after its configuration was changed. A change is made
//! outside of the workers, so these tasks have a thread of their own, which ends after the agent
//! and the last of its tasks.

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

/// Makes the future that continues one task, on the thread.
type AdoptedWork = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The sender to the thread; `None`: the thread is not started yet.
#[derive(Default)]
pub(super) struct AdoptedTasks(Mutex<Option<UnboundedSender<AdoptedWork>>>);

impl AdoptedTasks {
    /// Runs the future of `work` on the thread. Without a thread, `work` is dropped with its task,
    /// which fails.
    pub fn run<F: Future<Output = ()> + 'static>(&self, work: impl FnOnce() -> F + Send + 'static) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            // The queue holds tasks of the store, so the store's limits bound it.
            let (to_thread, waiting) = unbounded_channel();
            let thread = std::thread::Builder::new().name("peregrine-adopted".to_owned());
            *sender = thread.spawn(move || run_all(waiting)).ok().map(|_| to_thread);
        }
        if let Some(sender) = &*sender {
            // A thread that has ended drops it.
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
