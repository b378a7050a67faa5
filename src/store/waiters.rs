//! Who wants to be woken when a task changes.
//!
//! Wakers are taken under the task's lock and woken after it is released: whoever registered
//! before a change is woken by it, once. A waker whose owner has left is never told to us. So when
//! newcomers outnumber those who are known to be there, all are woken, and who is there registers
//! again: a list holds at most about twice the living, at two wake-ups for a newcomer.

use std::{collections::HashSet, task::Waker};

use smallvec::SmallVec;

/// Entries that a registration compares itself with.
const COMPARED: usize = 8;

/// Newcomers that are always let in.
const SPARE: usize = 16;

/// The wakers of one task.
#[derive(Default)]
pub(super) struct Waiters {
    list: SmallVec<[Waker; 2]>,
    /// How many of them were there before and came back: they live.
    returned: usize,
    /// How many were woken by a change; as many may come back.
    changed: usize,
    /// Who was woken to see who lives, by address.
    called: HashSet<usize>,
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
        let is_back = self.changed > 0 || self.called.remove(&wake.data().addr());
        self.changed = self.changed.saturating_sub(1);
        if is_back {
            self.returned += 1;
        } else if self.list.len() >= 2 * self.returned + SPARE {
            self.called = self.list.iter().map(|waker| waker.data().addr()).collect();
            self.returned = 0;
            wakes.0.extend(self.list.drain(..));
        }
        self.list.push(wake.clone());
    }

    /// Moves all wakers to `wakes`: the task has changed.
    pub fn take(&mut self, wakes: &mut Wakes) {
        (self.returned, self.changed) = (0, self.list.len());
        self.called = HashSet::new();
        wakes.0.extend(self.list.drain(..));
    }
}

/// Wakers to wake when this is dropped: declare it before the lock, so that it goes after.
#[derive(Default)]
pub(super) struct Wakes(SmallVec<[Waker; 4]>);

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

    fn some(count: usize) -> (Vec<Arc<Counter>>, Vec<Waker>) {
        let counters: Vec<Arc<Counter>> = (0..count).map(|_| Arc::default()).collect();
        let wakers = counters.iter().map(|counter| Waker::from(Arc::clone(counter))).collect();
        (counters, wakers)
    }

    /// Registers, and lets those who are alive answer every call, as connections do.
    fn register(waiters: &mut Waiters, newcomer: &Waker, alive: &[Waker]) -> usize {
        let mut queue = vec![newcomer.clone()];
        let mut wakeups = 0;
        while let Some(waker) = queue.pop() {
            let mut wakes = Wakes::default();
            waiters.register(&waker, &mut wakes);
            wakeups += wakes.0.len();
            for woken in wakes.0.drain(..) {
                if alive.iter().any(|waker| waker.will_wake(&woken)) {
                    queue.insert(0, woken);
                }
            }
        }
        wakeups
    }

    #[test]
    fn a_change_wakes_each_waiter_once() {
        let (counters, wakers) = some(100);
        let mut waiters = Waiters::default();
        for round in 0..3 {
            for waker in &wakers {
                register(&mut waiters, waker, &wakers);
            }
            assert_eq!(waiters.len(), 100, "round {round}");
            counters.iter().for_each(|c| c.0.store(0, Relaxed));
            waiters.take(&mut Wakes::default());
            assert!(counters.iter().all(|c| c.0.load(Relaxed) == 1) && waiters.len() == 0);
        }
    }

    #[test]
    fn many_newcomers_cost_few_wake_ups() {
        let (_, wakers) = some(1000);
        let mut waiters = Waiters::default();
        let wakeups: usize =
            (0..1000).map(|n| register(&mut waiters, &wakers[n], &wakers[..n])).sum();
        assert_eq!(waiters.len(), 1000);
        assert!(wakeups < 3000, "{wakeups}");
    }

    #[test]
    fn those_who_left_are_found_out() {
        let (_, alive) = some(20);
        let mut waiters = Waiters::default();
        for waker in &alive {
            register(&mut waiters, waker, &alive);
        }
        let mut wakeups = 0;
        for _ in 0..10_000 {
            let gone = Waker::from(Arc::<Counter>::default());
            wakeups += register(&mut waiters, &gone, &alive);
            assert!(waiters.len() <= 2 * 20 + SPARE + 1, "{}", waiters.len());
        }
        assert!(wakeups < 30_000, "{wakeups}");
        let lost = alive.iter().filter(|a| !waiters.list.iter().any(|w| w.will_wake(a))).count();
        assert_eq!(lost, 0);
    }
}
