//! The withdrawable grant by which a caller was admitted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

/// The withdrawable basis of a principal: a key in the configuration, the key of an issuer, or the
/// authorities of certificates.
#[derive(Debug, Default)]
pub struct Grant {
    withdrawn: AtomicBool,
    watchers: Mutex<Watchers>,
}

#[derive(Debug, Default)]
struct Watchers {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Grant {
    /// Ends the grant: it admits no more callers. The streams, WebSockets and waiting calls of its
    /// callers are woken, and end.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        let watchers = std::mem::take(&mut self.watchers().wakers);
        watchers.into_values().for_each(Waker::wake);
    }

    /// True after [`Grant::withdraw`].
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a waker when its grant is withdrawn; dropping the watch ends this.
#[derive(Debug)]
pub(crate) struct GrantWatch {
    grant: Arc<Grant>,
    number: u64,
    waker: Waker,
}

impl GrantWatch {
    /// Wakes `waker` when `grant` is withdrawn. Check [`Grant::is_withdrawn`] after this call.
    pub fn new(grant: &Arc<Grant>, waker: &Waker) -> GrantWatch {
        let mut watchers = grant.watchers();
        let number = watchers.next;
        watchers.next += 1;
        watchers.wakers.insert(number, waker.clone());
        drop(watchers);
        GrantWatch { grant: Arc::clone(grant), number, waker: waker.clone() }
    }

    /// Whether it would wake the same task as `waker`.
    pub fn will_wake(&self, waker: &Waker) -> bool {
        self.waker.will_wake(waker)
    }
}

impl Drop for GrantWatch {
    fn drop(&mut self) {
        self.grant.watchers().wakers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, task::Wake};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn grant_withdrawal_wakes_each_watcher_once() {
        let grant = Arc::new(Grant::default());
        let counts: [Arc<Count>; 3] = Default::default();
        let mut watches: Vec<GrantWatch> = counts
            .iter()
            .map(|count| GrantWatch::new(&grant, &Waker::from(Arc::clone(count))))
            .collect();
        watches.pop();
        assert_eq!(grant.watchers().wakers.len(), 2);
        grant.withdraw();
        grant.withdraw();
        let woken = counts.map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1, 0]);
        assert!(grant.is_withdrawn() && grant.watchers().wakers.is_empty());
    }
}
