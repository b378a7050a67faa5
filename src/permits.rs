//! Permits for concurrent items of one kind, such as open streams or waiting calls, over all
//! workers.
//!
//! Invariant: each free permit is in the pool or with a worker, and is taken before use, so the
//! limit is never exceeded, even for a moment. A worker takes portions from the pool and returns
//! portions, so workers seldom write shared memory. No call is refused while another worker has
//! free permits.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crossbeam_utils::CachePadded;

/// All workers together cache at most 2 / `PORTIONS` of the permits.
const PORTIONS: usize = 32;

/// The permits of one kind.
pub struct Permits {
    workers: Box<[Arc<CachePadded<WorkerPermits>>]>,
    most: usize,
}

/// Permits that a worker has taken from the pool and does not use.
struct WorkerPermits {
    free: AtomicUsize,
    middle: Arc<Middle>,
}

/// Permits in the pool.
struct Middle {
    free: CachePadded<AtomicUsize>,
    /// Permits that a worker takes beyond its need, and caches on return; 0 if the limit is too
    /// small for caches.
    portion: usize,
}

/// One permit, returned on drop.
pub struct Permit(Arc<CachePadded<WorkerPermits>>);

impl Permits {
    /// At most `most` permits for `workers` workers.
    pub fn new(most: usize, workers: usize) -> Permits {
        let workers = workers.max(1);
        let free = CachePadded::new(AtomicUsize::new(most));
        let middle = Arc::new(Middle { free, portion: most / workers / PORTIONS });
        let of_worker = || WorkerPermits { free: AtomicUsize::new(0), middle: Arc::clone(&middle) };
        let workers = (0..workers).map(|_| Arc::new(CachePadded::new(of_worker()))).collect();
        Permits { workers, most }
    }

    /// A permit for this worker; `None`: all are in use.
    #[inline]
    pub fn permit(&self, worker: usize) -> Option<Permit> {
        self.take(worker).then(|| Permit(Arc::clone(self.of(worker))))
    }

    /// Takes a permit for this worker, to be returned by [`Permits::release`]; false: all are in
    /// use.
    #[inline]
    pub fn take(&self, worker: usize) -> bool {
        let own = self.of(worker);
        own.take_free() || own.lend() || self.workers.iter().any(|other| other.take_free())
    }

    /// Returns `count` permits of this worker.
    pub fn release(&self, worker: usize, count: usize) {
        self.of(worker).release(count);
    }

    /// Permits in use, approximately: workers take and return permits meanwhile.
    pub fn count(&self) -> usize {
        let retained: usize = self.workers.iter().map(|worker| worker.free.load(Relaxed)).sum();
        let free = self.workers[0].middle.free.load(Relaxed);
        self.most.saturating_sub(retained + free)
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

    /// Takes a permit from the pool, and up to `portion` more, which stay free for this worker.
    #[inline(never)]
    fn lend(&self) -> bool {
        let Middle { free, portion } = &*self.middle;
        let wanted = |free: usize| free.min(1 + portion);
        let remaining = |free: usize| (free > 0).then(|| free - wanted(free));
        let Ok(before) = free.fetch_update(Relaxed, Relaxed, remaining) else { return false };
        self.free.fetch_add(wanted(before) - 1, Relaxed);
        true
    }

    #[inline]
    fn release(&self, count: usize) {
        if self.free.fetch_add(count, Relaxed) + count > 2 * self.middle.portion {
            self.return_surplus();
        }
    }

    /// Returns a worker's surplus to the pool.
    #[inline(never)]
    fn return_surplus(&self) {
        let Middle { free, portion } = &*self.middle;
        let retained = |free: usize| (free > 2 * portion).then_some(*portion);
        if let Ok(before) = self.free.fetch_update(Relaxed, Relaxed, retained) {
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

    /// All permits that one worker can get.
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
    fn no_call_is_refused_while_another_worker_caches_permits() {
        let permits = Permits::new(6_400, 2);
        // Each worker caches the surplus of its portion.
        let first = [permits.permit(0), permits.permit(1)];
        assert!(permits.workers.iter().all(|worker| worker.free.load(Relaxed) == 100));
        let rest = all(&permits, 1);
        assert_eq!((rest.len(), permits.count()), (6_398, 6_400));
        drop((first, rest));
        assert_eq!(permits.count(), 0);
        assert!(permits.workers.iter().all(|worker| worker.free.load(Relaxed) <= 200));
    }

    #[test]
    fn worker_reuses_cached_permits_without_writing_the_pool() {
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
    fn permit_limit_holds_under_concurrent_use() {
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
