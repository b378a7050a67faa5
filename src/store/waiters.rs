//! Who wants to be woken when a task changes.
//!
//! Wakers are taken under the task's lock and woken after it is released: whoever registered
//! before a change is woken by it, once. A waker whose owner has left is never told to us, so a
//! list that grows beyond what it last held probes: two old entries are woken for each new one,
//! and who is still there registers again. The list stays within about twice the living.

use std::task::Waker;

use smallvec::SmallVec;

/// Entries that a registration compares itself with.
const COMPARED: usize = 8;

/// The wakers of one task.
#[derive(Default)]
pub(super) struct Waiters {
    list: SmallVec<[Waker; 2]>,
    /// How many there were at the last change.
    expected: usize,
    /// Where probing goes on.
    hand: usize,
    /// Who was probed, by address; one that comes back is not taken for a newcomer.
    probed: [usize; 2],
}

impl Waiters {
    /// Number of wakers.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds `wake` unless it was one of the last to come.
    pub fn register(&mut self, wake: &Waker, wakes: &mut Wakes) {
        if self.list.iter().rev().take(COMPARED).any(|other| other.will_wake(wake)) {
            return;
        }
        let address = wake.data().addr();
        if let Some(probed) = self.probed.iter_mut().find(|probed| **probed == address) {
            *probed = 0;
        } else if self.list.len() >= self.expected.max(COMPARED) {
            self.probed = [0, 1].map(|_| {
                self.hand = if self.hand < self.list.len() { self.hand } else { 0 };
                let old = self.list.swap_remove(self.hand);
                self.hand += 1;
                let address = old.data().addr();
                wakes.push(old);
                address
            });
        }
        self.list.push(wake.clone());
    }

    /// Moves all wakers to `wakes`.
    pub fn take(&mut self, wakes: &mut Wakes) {
        self.expected = self.list.len();
        self.hand = 0;
        self.probed = [0; 2];
        wakes.0.extend(self.list.drain(..));
    }
}

/// Wakers to wake when this is dropped: declare it before the lock, so that it goes after.
#[derive(Default)]
pub(super) struct Wakes(SmallVec<[Waker; 4]>);

impl Wakes {
    fn push(&mut self, waker: Waker) {
        self.0.push(waker);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
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
        let mut waiters = Waiters::default();
        for round in 0..3 {
            for counter in &counters {
                let waker = Waker::from(Arc::clone(counter));
                for _ in 0..2 {
                    waiters.register(&waker, &mut Wakes::default());
                }
            }
            counters.iter().for_each(|c| c.0.store(0, Relaxed));
            let probed = if round == 0 { waiters.len() } else { 100 };
            assert_eq!(waiters.len(), probed);
            waiters.expected = 100;
            waiters.take(&mut Wakes::default());
            let woken: usize = counters.iter().map(|c| c.0.load(Relaxed)).sum();
            assert_eq!((woken, waiters.len()), (probed, 0));
            waiters.expected = 100;
        }
    }

    #[test]
    fn those_who_left_are_found_out() {
        let alive: Vec<Waker> = (0..20).map(|_| Waker::from(Arc::<Counter>::default())).collect();
        let mut waiters = Waiters::default();
        for _ in 0..10_000 {
            let gone = Waker::from(Arc::<Counter>::default());
            let mut wakes = Wakes::default();
            waiters.register(&gone, &mut wakes);
            // The living answer a probe, which probes nobody else.
            for woken in std::mem::take(&mut wakes.0) {
                if alive.iter().any(|waker| waker.will_wake(&woken)) {
                    waiters.register(&woken, &mut wakes);
                }
            }
            assert!(wakes.0.is_empty());
            for waker in &alive {
                if !waiters.list.iter().any(|other| other.will_wake(waker)) {
                    waiters.register(waker, &mut wakes);
                }
            }
            wakes.0.clear();
            assert!(waiters.len() < 100, "{}", waiters.len());
        }
    }
}
