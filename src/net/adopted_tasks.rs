//! Tasks that a remote agent goes on with after its configuration was changed. A change is made on
//! a thread that is no worker's, so they have a thread of their own, which ends after the agent and
//! the last of its tasks.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
};

use tokio::{
    runtime::Builder,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{LocalSet, spawn_local},
};

use super::owner_permits::OwnerPermit;
use crate::agent::Adopted;

/// A task, and its permit among the streams of its agent.
type AdoptedTask = (Adopted, OwnerPermit);

/// The way to the thread; `None`: there is none yet.
#[derive(Default)]
pub(super) struct AdoptedTasks(Mutex<Option<UnboundedSender<AdoptedTask>>>);

impl AdoptedTasks {
    /// Gives a task to the thread, which runs the future that `run` makes of it. `run` is that of
    /// the first task for all of them. Where the system gives no thread the task fails.
    pub fn add<F: Future<Output = ()> + 'static>(
        &self,
        task: AdoptedTask,
        run: impl Fn(AdoptedTask) -> F + Send + 'static,
    ) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            // Tasks that wait are of the store, and as bounded as it is.
            let (to_thread, tasks) = unbounded_channel();
            let thread = std::thread::Builder::new().name("peregrine-adopted".to_owned());
            match thread.spawn(move || work(tasks, run)) {
                Ok(_) => *sender = Some(to_thread),
                Err(_) => return drop(task),
            }
        }
        if let Some(sender) = &*sender {
            // A thread that has ended drops the task, which fails.
            let _ = sender.send(task);
        }
    }
}

fn work<F: Future<Output = ()> + 'static>(
    mut tasks: UnboundedReceiver<AdoptedTask>,
    run: impl Fn(AdoptedTask) -> F,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let running = LocalSet::new();
    running.block_on(&runtime, async {
        while let Some(task) = tasks.recv().await {
            spawn_local(run(task));
        }
    });
    runtime.block_on(running);
}
