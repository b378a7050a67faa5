//! What one connection holds: its calls, their answers, and what of them waits in h2.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use crate::net::{local::Shared, share::Share};

/// The share of a connection, to which bytes are added in several places.
pub(super) struct Account {
    shared: Arc<Shared>,
    share: Mutex<Share>,
    waker: Waker,
}

impl Account {
    /// Of a connection that `waker` wakes.
    pub(super) fn new(shared: &Arc<Shared>, waker: Waker) -> Account {
        Account { shared: Arc::clone(shared), share: Mutex::default(), waker }
    }

    /// Counts `held` bytes of one of its parts instead of `before`; false: that part must go, and
    /// the connection with it if it is cut.
    #[must_use]
    pub(super) fn charge(&self, before: usize, held: usize) -> bool {
        let mut share = self.lock();
        let all = share.held() + held - before;
        self.shared.buffers.charge(&mut share, all, &self.waker)
    }

    /// Counts `before` bytes no longer.
    pub(super) fn give_back(&self, before: usize) {
        // What shrinks has room; a connection that was cut learns it where it is driven.
        let _ = before == 0 || self.charge(before, 0);
    }

    /// True: the connection held most and must go.
    pub(super) fn is_cut(&self) -> bool {
        self.lock().is_cut()
    }

    fn lock(&self) -> MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let share = self.share.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.buffers.release(share);
    }
}
