//! Who wants to be woken when a task changes: a list of bells.
//!
//! Bells are rung under the task's lock and their owners woken after it is released: whoever
//! registered before a change is woken by it, once. Bells that nobody hears are taken down when
//! the list has doubled, so it holds at most about twice the living.

use std::{sync::Arc, task::Waker};

use smallvec::SmallVec;

use crate::waiter::{Bell, Waiter};

/// Bells that hang without anybody looking whether they are heard.
const SPARE: usize = 8;

/// The bells of one task.
#[derive(Default)]
pub(super) struct Waiters {
    bells: SmallVec<[Arc<Bell>; 2]>,
    /// Bells that were heard at the last look.
    heard: usize,
}

impl Waiters {
    /// Number of bells.
    pub fn len(&self) -> usize {
        self.bells.len()
    }

    /// Arms the bell of `waiter`, and hangs it up if it is new.
    pub fn register(&mut self, waiter: &mut Waiter, wake: &Waker) {
        let Some(bell) = waiter.arm(wake) else { return };
        if self.bells.len() >= 2 * self.heard + SPARE {
            self.bells.retain(|bell| bell.is_heard());
            self.heard = self.bells.len();
        }
        self.bells.push(bell);
    }

    /// Moves the armed wakers to `wakes`.
    pub fn ring(&self, wakes: &mut Wakes) {
        wakes.0.reserve(self.bells.len());
        wakes.0.extend(self.bells.iter().filter_map(|bell| bell.ring()));
    }
}

/// Wakers to wake when this is dropped: declare it before the lock, so that it goes after.
#[derive(Default)]
pub(super) struct Wakes(SmallVec<[Waker; 4]>);

impl Drop for Wakes {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.wake();
        }
    }
}

impl Wakes {
    #[cold]
    fn wake(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
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
                waiters.ring(&mut Wakes::default());
            }
            assert!(counters.iter().all(|c| c.0.load(Relaxed) == round));
        }
    }

    #[test]
    fn those_who_left_are_found_out() {
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
