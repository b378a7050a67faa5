//! Wake-ups of waiting calls and streams, and detection of abandoned waits.
//!
//! The waiting side owns a [`Waiter`]; the awaited side holds the [`SharedWaker`] and wakes it.
//! When the waiter is dropped, the awaited side is the only owner of its waker, and can drop it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

/// Bytes that a waiter costs the awaited side: the shared waker, and entries in lists.
pub const WAITER_BYTES: usize = 64;

/// The waiting side, with at most one waker.
#[derive(Debug, Default)]
pub struct Waiter(Option<Arc<SharedWaker>>);

/// The waker of a waiter, for the awaited side.
#[derive(Debug)]
pub struct SharedWaker(Mutex<Option<Waker>>);

impl Waiter {
    /// Registers `wake` for the next change. The first call returns the shared waker; the awaited
    /// side stores it as long as it may call it.
    pub fn arm(&mut self, wake: &Waker) -> Option<Arc<SharedWaker>> {
        if let Some(shared) = &self.0 {
            let mut armed = shared.lock();
            if !armed.as_ref().is_some_and(|armed| armed.will_wake(wake)) {
                *armed = Some(wake.clone());
            }
            return None;
        }
        let shared = Arc::new(SharedWaker(Mutex::new(Some(wake.clone()))));
        self.0 = Some(Arc::clone(&shared));
        Some(shared)
    }
}

impl Clone for Waiter {
    /// A copy waits for nothing yet.
    fn clone(&self) -> Waiter {
        Waiter(None)
    }
}

impl SharedWaker {
    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the waker to call; `None` until the waiter is armed again.
    pub fn take(&self) -> Option<Waker> {
        self.lock().take()
    }

    /// False after the waiter was dropped.
    pub fn is_awaited(self: &Arc<SharedWaker>) -> bool {
        Arc::strong_count(self) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn armed_waker_is_taken_only_once() {
        let mut waiter = Waiter::default();
        let shared = waiter.arm(Waker::noop()).expect("a new waker");
        assert!(shared.take().is_some() && shared.take().is_none());
        assert!(waiter.arm(Waker::noop()).is_none() && shared.take().is_some());
    }

    #[test]
    fn dropped_waiter_is_detected() {
        let mut waiter = Waiter::default();
        let shared = waiter.arm(Waker::noop()).expect("a new waker");
        assert!(shared.is_awaited());
        assert!(waiter.clone().arm(Waker::noop()).is_some());
        drop(waiter);
        assert!(!shared.is_awaited());
    }
}
