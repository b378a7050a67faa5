//! Bells: how a waiting call or stream is woken, and how a store learns that nobody waits any more.
//!
//! The one who waits owns a [`Waiter`]; what it waits for keeps the [`Bell`] and rings it. When the
//! waiter is dropped its bell has one owner left and can be taken down.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

/// The side that waits; it hangs up at most one bell.
#[derive(Debug, Default)]
pub struct Waiter(Option<Arc<Bell>>);

/// The side that rings.
#[derive(Debug)]
pub struct Bell(Mutex<Option<Waker>>);

impl Waiter {
    /// From now on `wake` is woken by the next ring. The first time this returns the bell, which
    /// the caller keeps for as long as it may ring.
    pub fn arm(&mut self, wake: &Waker) -> Option<Arc<Bell>> {
        if let Some(bell) = &self.0 {
            let mut armed = bell.lock();
            if !armed.as_ref().is_some_and(|armed| armed.will_wake(wake)) {
                *armed = Some(wake.clone());
            }
            return None;
        }
        let bell = Arc::new(Bell(Mutex::new(Some(wake.clone()))));
        self.0 = Some(Arc::clone(&bell));
        Some(bell)
    }
}

impl Clone for Waiter {
    /// A copy waits for nothing yet.
    fn clone(&self) -> Waiter {
        Waiter(None)
    }
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is to be woken; nobody until the bell is armed again.
    pub fn ring(&self) -> Option<Waker> {
        self.lock().take()
    }

    /// False when the waiter is gone.
    pub fn is_heard(self: &Arc<Bell>) -> bool {
        Arc::strong_count(self) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_once_for_each_time_it_is_armed() {
        let mut waiter = Waiter::default();
        let bell = waiter.arm(Waker::noop()).expect("a new bell");
        assert!(bell.ring().is_some() && bell.ring().is_none());
        assert!(waiter.arm(Waker::noop()).is_none() && bell.ring().is_some());
    }

    #[test]
    fn a_dropped_waiter_hears_nothing() {
        let mut waiter = Waiter::default();
        let bell = waiter.arm(Waker::noop()).expect("a new bell");
        assert!(bell.is_heard());
        assert!(waiter.clone().arm(Waker::noop()).is_some());
        drop(waiter);
        assert!(!bell.is_heard());
    }
}
