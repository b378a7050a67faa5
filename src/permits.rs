//! How many of a kind there are at a time, in all: open streams, waiting calls.
//!
//! Invariant: what is free lies in the middle or with one worker, and is taken before it is used:
//! the limit is not exceeded even for a moment. A worker takes from the middle, and gives back to
//! it, a portion at a time, so that workers seldom write what others write. No call is refused
//! while another worker keeps what is free.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crossbeam_utils::CachePadded;

/// All workers together keep at most one of so many permits, twice, without using them.
const PORTIONS: usize = 32;

/// The permits of one kind.
pub struct Permits {
    workers: Box<[Arc<CachePadded<WorkerPermits>>]>,
    most: usize,
}

/// What a worker has taken from the middle and does not use.
struct WorkerPermits {
    free: AtomicUsize,
    middle: Arc<Middle>,
}

/// What no worker has taken.
struct Middle {
    free: CachePadded<AtomicUsize>,
    /// What a worker takes beyond its need, and keeps when it gives back; 0 where the limit is so
    /// small that no worker may keep any.
    portion: usize,
}

/// One permit, for as long as it lives.
pub struct Permit(Arc<CachePadded<WorkerPermits>>);

impl Permits {
    /// At most `most`, for so many workers.
    pub fn new(most: usize, workers: usize) -> Permits {
        let workers = workers.max(1);
        let free = CachePadded::new(AtomicUsize::new(most));
        let middle = Arc::new(Middle { free, portion: most / workers / PORTIONS });
        let of_worker = || WorkerPermits { free: AtomicUsize::new(0), middle: Arc::clone(&middle) };
        let workers = (0..workers).map(|_| Arc::new(CachePadded::new(of_worker()))).collect();
        Permits { workers, most }
    }

    /// A permit for this worker; `None`: all of them are out.
    #[inline]
    pub fn permit(&self, worker: usize) -> Option<Permit> {
        self.take(worker).then(|| Permit(Arc::clone(self.of(worker))))
    }

    /// Takes one for this worker, which gives it back by [`Permits::release`]; false: all are out.
    #[inline]
    pub fn take(&self, worker: usize) -> bool {
        let own = self.of(worker);
        own.take_free() || own.lend() || self.workers.iter().any(|other| other.take_free())
    }

    /// Gives back so many that this worker took.
    pub fn release(&self, worker: usize, count: usize) {
        self.of(worker).release(count);
    }

    /// How many are out, or were just now: workers take and give back meanwhile.
    pub fn count(&self) -> usize {
        let kept: usize = self.workers.iter().map(|worker| worker.free.load(Relaxed)).sum();
        let free = self.workers[0].middle.free.load(Relaxed);
        self.most.saturating_sub(kept + free)
    }

    fn of(&self, worker: usize) -> &Arc<CachePadded<WorkerPermits>> {
        &self.workers[worker % self.workers.len()]
    }
}

impl WorkerPermits {
    #[inline]
    fn take_free(&self) -> bool {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    /// Takes one from the middle, and a portion more if there is as much.
    #[inline(never)]
    fn lend(&self) -> bool {
        let Middle { free, portion } = &*self.middle;
        let wanted = |free: usize| free.min(1 + portion);
        let left = |free: usize| (free > 0).then(|| free - wanted(free));
        let Ok(before) = free.fetch_update(Relaxed, Relaxed, left) else { return false };
        self.free.fetch_add(wanted(before) - 1, Relaxed);
        true
    }

    #[inline]
    fn release(&self, count: usize) {
        if self.free.fetch_add(count, Relaxed) + count > 2 * self.middle.portion {
            self.return_surplus();
        }
    }

    /// Gives the middle what a worker should not keep.
    #[inline(never)]
    fn return_surplus(&self) {
        let Middle { free, portion } = &*self.middle;
        let kept = |free: usize| (free > 2 * portion).then_some(*portion);
        if let Ok(before) = self.free.fetch_update(Relaxed, Relaxed, kept) {
            free.fetch_add(before - portion, Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many permits as one worker gets.
    fn all(permits: &Permits, worker: usize) -> Vec<Permit> {
        std::iter::from_fn(|| permits.permit(worker)).collect()
    }

    #[test]
    fn permits_are_counted_and_bounded() {
        for (most, workers) in [(0, 1), (1, 1), (1, 3), (63, 2), (1_000, 1), (10_000, 4)] {
            let permits = Permits::new(most, workers);
            for worker in 0..2 * workers {
                let held = all(&permits, worker);
                assert_eq!((held.len(), permits.count()), (most, most));
                assert!((0..workers).all(|other| permits.permit(other).is_none()));
                drop(held);
                assert_eq!(permits.count(), 0);
            }
        }
    }

    #[test]
    fn nobody_is_refused_while_others_keep_some() {
        let permits = Permits::new(6_400, 2);
        // Each worker keeps what it was lent beyond its need.
        let first = [permits.permit(0), permits.permit(1)];
        assert!(permits.workers.iter().all(|worker| worker.free.load(Relaxed) == 100));
        let rest = all(&permits, 1);
        assert_eq!((rest.len(), permits.count()), (6_398, 6_400));
        drop((first, rest));
        assert_eq!(permits.count(), 0);
        assert!(permits.workers.iter().all(|worker| worker.free.load(Relaxed) <= 200));
    }

    #[test]
    fn what_one_worker_takes_and_gives_back_is_written_by_it_alone() {
        let permits = Permits::new(6_400, 2);
        let middle = || permits.workers[0].middle.free.load(Relaxed);
        drop(permits.permit(0));
        let before = middle();
        for _ in 0..1_000 {
            let held: Vec<_> = (0..50).map(|_| permits.permit(0)).collect();
            assert!(held.iter().all(Option::is_some) && middle() == before);
        }
    }

    #[test]
    fn the_limit_holds_while_threads_take_and_give_back() {
        const MOST: usize = 640;
        let (permits, out) = (Permits::new(MOST, 4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (permits, out) = (&permits, &out);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let held: Vec<_> =
                            (0..round % 300).map_while(|_| permits.permit(worker)).collect();
                        let all = out.fetch_add(held.len(), Relaxed) + held.len();
                        assert!(all <= MOST, "{all}");
                        out.fetch_sub(held.len(), Relaxed);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(permits.count(), 0);
    }
}
