//! A client for each worker, since a connection belongs to the runtime that opened it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

/// The clients of one upstream, one for each worker that has called it.
pub(super) struct WorkerClients<C>(Mutex<Vec<(ThreadId, C)>>);

impl<C> Default for WorkerClients<C> {
    fn default() -> WorkerClients<C> {
        WorkerClients(Mutex::default())
    }
}

impl<C: Clone> WorkerClients<C> {
    /// The client of this worker.
    pub fn own(&self) -> Option<C> {
        let own = thread::current().id();
        let clients = self.lock();
        clients.iter().find(|(thread, _)| *thread == own).map(|(_, client)| client.clone())
    }

    /// Stores a client for this worker, instead of its previous client.
    pub fn keep(&self, client: C) {
        let own = thread::current().id();
        let mut clients = self.lock();
        match clients.iter_mut().find(|(thread, _)| *thread == own) {
            Some((_, before)) => *before = client,
            None => clients.push((own, client)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ThreadId, C)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
