//! A client for each worker, since a connection belongs to the runtime that opened it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

/// The clients of one upstream, one for each worker that has called it.
pub(super) struct WorkerClients<C>(Mutex<HashMap<ThreadId, C>>);

impl<C> Default for WorkerClients<C> {
    fn default() -> WorkerClients<C> {
        WorkerClients(Mutex::default())
    }
}

impl<C: Clone> WorkerClients<C> {
    /// The client of this worker.
    pub fn own(&self) -> Option<C> {
        self.lock().get(&thread::current().id()).cloned()
    }

    /// Keeps a client for this worker, in place of the one that it has.
    pub fn keep(&self, client: C) {
        self.lock().insert(thread::current().id(), client);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
