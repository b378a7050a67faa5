//! The wakers of a task, called when it changes.
//!
//! Wakers are collected under the task's lock and woken after its release. A change wakes each
//! waker that was registered before it, once. Abandoned wakers are dropped when the list has
//! doubled, so the list holds at most about twice as many wakers as are awaited.

use std::{sync::Arc, task::Waker};

use smallvec::SmallVec;

use crate::{
    service::quota::RunningPermit,
    waiter::{SharedWaker, Waiter},
    watch::TaskWatch,
};

/// Wakers that a list may hold beyond twice the awaited ones before abandoned ones are dropped.
const SPARE: usize = 8;

/// The wakers of one task.
#[derive(Default)]
pub(super) struct Waiters {
    wakers: SmallVec<[Arc<SharedWaker>; 2]>,
    /// Awaited wakers when abandoned ones were last dropped.
    awaited: usize,
    /// The agent's private bytes, until the task is evicted.
    pub private_bytes: Box<[u8]>,
    /// A running slot of a caller without an owner number: returned when the task or its
    /// reservation ends.
    pub running: Option<RunningPermit>,
    /// A running slot of the tenant, returned at the same time.
    pub of_tenant: Option<Box<RunningPermit>>,
}

impl Waiters {
    /// Number of wakers.
    pub fn len(&self) -> usize {
        self.wakers.len()
    }

    /// Arms the waker of `waiter`, and registers a new waker.
    pub fn register(&mut self, waiter: &mut Waiter, wake: &Waker) {
        let Some(waker) = waiter.arm(wake) else { return };
        if self.wakers.len() >= 2 * self.awaited + SPARE {
            self.wakers.retain(|waker| waker.is_awaited());
            self.awaited = self.wakers.len();
        }
        self.wakers.push(waker);
    }

    /// Drops all but the agent's private bytes, after the end of the task.
    pub fn end(&mut self) {
        (self.wakers, self.awaited) = (SmallVec::new(), 0);
        (self.running, self.of_tenant) = (None, None);
    }

    /// Moves the armed wakers to `wakes`.
    pub fn wake(&self, wakes: &mut Wakes) {
        let wakes = wakes.0.get_or_insert_default();
        wakes.reserve(self.wakers.len());
        wakes.extend(self.wakers.iter().filter_map(|waker| waker.take()));
    }
}

/// Wakers that are woken when this list is dropped. Declare the list before the lock guard, so that
/// it is dropped after the guard.
///
/// Most changes wake no waker: then nothing is allocated.
#[derive(Default)]
pub(super) struct Wakes(Option<SmallVec<[Waker; 4]>>);

impl Wakes {
    /// Adds the watch of a task to the wake-ups.
    #[cold]
    pub fn add(&mut self, watch: &Arc<TaskWatch>) {
        self.0.get_or_insert_default().push(Waker::from(Arc::clone(watch)));
    }
}

impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if let Some(wakers) = self.0.take() {
            wake_all(wakers);
        }
    }
}

#[cold]
fn wake_all(wakers: SmallVec<[Waker; 4]>) {
    for waker in wakers {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_change_wakes_each_waiter_once() {
        let counters: Vec<Arc<Counter>> = (0..100).map(|_| Arc::default()).collect();
        let mut waiting: Vec<Waiter> = counters.iter().map(|_| Waiter::default()).collect();
        let mut waiters = Waiters::default();
        for round in 1..4 {
            for (waiter, counter) in waiting.iter_mut().zip(&counters) {
                let waker = Waker::from(Arc::clone(counter));
                for _ in 0..2 {
                    waiters.register(waiter, &waker);
                }
            }
            assert_eq!(waiters.len(), 100);
            for _ in 0..2 {
                waiters.wake(&mut Wakes::default());
            }
            assert!(counters.iter().all(|c| c.0.load(Relaxed) == round));
        }
    }

    #[test]
    fn abandoned_wakers_are_dropped() {
        let mut alive: Vec<Waiter> = (0..20).map(|_| Waiter::default()).collect();
        let mut waiters = Waiters::default();
        for waiter in &mut alive {
            waiters.register(waiter, Waker::noop());
        }
        for _ in 0..10_000 {
            waiters.register(&mut Waiter::default(), Waker::noop());
            assert!(waiters.len() <= 2 * 20 + SPARE, "{}", waiters.len());
        }
    }
}
