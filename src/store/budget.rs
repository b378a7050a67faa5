//! The limits of the whole store: an amount is counted before it is used.
//!
//! Invariant: each free unit of a limit is in the pool or with one group of shards, and is taken
//! before use, so no limit is exceeded, even for a moment. A group takes portions from the pool and
//! returns portions, so workers seldom write shared memory.

use crossbeam_utils::CachePadded;

use super::{
    FINAL_STATUS_BYTES,
    id::Sharding,
    slab::{CHUNK, SPARE_CHUNKS},
    sync::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed},
};
use crate::limits::Limits;

/// With several groups, a portion is at most 1 / `PORTIONS` of a group's equal part of a limit.
const PORTIONS: usize = 32;
/// Maximum tasks and bytes in a portion.
const PORTION_TASKS: usize = 64;
const PORTION_BYTES: usize = 256 * 1024;

/// The limits of a store, and the last known time for code without a clock.
pub(super) struct Budget {
    pub tasks: SharedLimit,
    pub bytes: SharedLimit,
    /// Slots in memory, taken or free.
    pub slots: SharedLimit,
    pub ttl_ms: u64,
    /// The monotonic clock at the last sweep.
    swept_ms: AtomicU64,
}

/// A limit, with its pool.
pub(super) struct SharedLimit {
    free: CachePadded<AtomicIsize>,
    most: isize,
    /// The amount that a group takes beyond its need, and caches on return; 0 if the limit is too
    /// small for caches.
    portion: isize,
}

/// The unused amount that a group has taken of a limit. Negative while final statuses hold bytes
/// that were not taken.
#[derive(Default)]
pub(super) struct Spare(AtomicIsize);

impl Budget {
    pub fn new(limits: &Limits, sharding: Sharding) -> Budget {
        // Bytes reserved for the final statuses of tasks that reach a limit. One task at a time in
        // each shard can use them: this task has finished and can be evicted.
        let reserved = (sharding.shards() * FINAL_STATUS_BYTES).min(limits.store_bytes_max / 2);
        let groups = sharding.groups();
        Budget {
            tasks: SharedLimit::new(limits.tasks_max, groups, PORTION_TASKS),
            bytes: SharedLimit::new(limits.store_bytes_max - reserved, groups, PORTION_BYTES),
            slots: SharedLimit::new(slots_max(limits, sharding), groups, PORTION_TASKS),
            ttl_ms: limits.task_ttl_ms,
            swept_ms: AtomicU64::new(0),
        }
    }

    /// The monotonic clock for code without one: it advances with each sweep.
    pub fn swept_ms(&self) -> u64 {
        self.swept_ms.load(Relaxed)
    }

    pub fn note_sweep(&self, mono_ms: u64) {
        self.swept_ms.fetch_max(mono_ms, Relaxed);
    }
}

/// Maximum slots of a store: one and a half times the tasks, since one task keeps its whole chunk
/// allocated, and the spare chunks of each shard. `limits/memory.rs` counts them.
pub(super) fn slots_max(limits: &Limits, sharding: Sharding) -> usize {
    let tasks = limits.tasks_max.saturating_add(limits.tasks_max / 2);
    tasks.saturating_add(sharding.shards() * CHUNK * (SPARE_CHUNKS as usize + 1))
}

impl SharedLimit {
    fn new(most: usize, groups: usize, portion_max: usize) -> SharedLimit {
        let portion = if groups == 1 { most } else { portion_max.min(most / groups / PORTIONS) };
        let signed = |count: usize| isize::try_from(count).unwrap_or(isize::MAX / 4);
        let free = CachePadded::new(AtomicIsize::new(signed(most)));
        SharedLimit { free, most: signed(most), portion: signed(portion) }
    }

    /// The limit.
    pub fn most(&self) -> usize {
        self.most as usize
    }

    /// The amount that a group takes beyond its need; the whole limit if there is only one group.
    pub fn portion(&self) -> usize {
        self.portion as usize
    }

    /// Takes `wanted` for a group; false when neither the group nor the pool has enough.
    #[inline]
    pub fn take(&self, spare: &Spare, wanted: usize) -> bool {
        let Ok(wanted) = isize::try_from(wanted) else { return false };
        let mut free = spare.0.load(Relaxed);
        loop {
            if free < wanted {
                if !self.lend(spare, wanted - free) {
                    return false;
                }
                free = spare.0.load(Relaxed);
                continue;
            }
            match spare.0.compare_exchange_weak(free, free - wanted, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
    }

    /// Moves the missing amount from the pool to a group, and up to a portion more.
    #[inline(never)]
    fn lend(&self, spare: &Spare, need: isize) -> bool {
        let wanted = need.saturating_add(self.portion);
        let remaining = |free: isize| (free >= need).then(|| free - wanted.min(free));
        let Ok(free) = self.free.fetch_update(Relaxed, Relaxed, remaining) else { return false };
        spare.0.fetch_add(wanted.min(free), Relaxed);
        true
    }

    /// Returns an unused amount to a group, and the group's surplus to the pool.
    #[inline]
    pub fn release(&self, spare: &Spare, amount: usize) {
        if amount == 0 {
            return;
        }
        let amount = amount as isize;
        if spare.0.fetch_add(amount, Relaxed) + amount > 2 * self.portion {
            self.take_back(spare);
        }
    }

    #[inline(never)]
    fn take_back(&self, spare: &Spare) {
        let retained = |free: isize| (free > 2 * self.portion).then_some(self.portion);
        if let Ok(free) = spare.0.fetch_update(Relaxed, Relaxed, retained) {
            self.free.fetch_add(free - self.portion, Relaxed);
        }
    }

    /// Moves the unused amounts of all other groups to one group.
    #[cold]
    pub fn gather<'s>(&self, spare: &Spare, others: impl Iterator<Item = &'s Spare>) {
        for other in others {
            let all = |free: isize| (free > 0).then_some(0);
            if let Ok(free) = other.0.fetch_update(Relaxed, Relaxed, all) {
                spare.0.fetch_add(free, Relaxed);
            }
        }
    }

    /// Corrects the acquired amount to the held amount. Only bytes of final statuses are held
    /// without being acquired.
    #[inline]
    pub fn settle(&self, spare: &Spare, acquired: usize, held: usize) {
        if held > acquired {
            spare.0.fetch_sub((held - acquired) as isize, Relaxed);
        } else {
            self.release(spare, acquired - held);
        }
    }

    /// True when `wanted` would fit into an empty store.
    pub fn could_hold(&self, wanted: usize) -> bool {
        isize::try_from(wanted).is_ok_and(|wanted| wanted <= self.most)
    }

    /// The used part of the limit.
    pub fn used<'s>(&self, spares: impl Iterator<Item = &'s Spare>) -> u64 {
        let free: isize = spares.map(|spare| spare.0.load(Relaxed)).sum();
        let used = self.most - self.free.load(Relaxed) - free;
        used.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_never_overdrawn_and_can_be_fully_taken() {
        for (most, groups) in [(2, 1), (2, 4), (20, 1), (1_000, 2), (70_000, 8), (1 << 40, 64)] {
            let pool = SharedLimit::new(most, groups, PORTION_TASKS);
            let spares: Vec<Spare> = (0..groups).map(|_| Spare::default()).collect();
            let used = || pool.used(spares.iter());
            assert!(!pool.take(&spares[0], most + 1) && !pool.take(&spares[0], usize::MAX));
            assert_eq!(
                (used(), pool.could_hold(most), pool.could_hold(most + 1)),
                (0, true, false)
            );
            // The groups take in turns until only their caches remain.
            let mut acquired = 0;
            for spare in spares.iter().cycle().take(3 * groups) {
                if pool.take(spare, most / groups / 3 + 1) {
                    acquired += most / groups / 3 + 1;
                }
                assert_eq!(used(), acquired as u64);
            }
            assert!(acquired <= most && most - acquired <= most / 3 + most / groups + groups);
            // A group that needs the rest gets the caches of the other groups.
            pool.gather(&spares[0], spares[1..].iter());
            assert!(pool.take(&spares[0], most - acquired));
            assert!(spares.iter().all(|spare| !pool.take(spare, 1)));
            assert_eq!(used(), most as u64);
            pool.release(&spares[groups - 1], most);
            assert!(
                used() == 0
                    && pool
                        .take(&spares[0], most - 2 * pool.portion.min(most as isize / 2) as usize)
            );
        }
    }

    #[test]
    fn groups_cache_only_a_small_portion_of_the_pool() {
        let pool = SharedLimit::new(64_000, 8, PORTION_TASKS);
        let spares = [const { Spare(AtomicIsize::new(0)) }; 8];
        for spare in &spares {
            assert!(pool.take(spare, 1));
            pool.release(spare, 1);
        }
        assert!(pool.take(&spares[0], 64_000 - 8 * PORTION_TASKS - 8));
        pool.release(&spares[0], 50_000);
        assert!(pool.take(&spares[1], 50_000));
    }

    #[test]
    fn final_status_may_overdraw_the_pool_until_bytes_are_freed() {
        let (pool, spare) = (SharedLimit::new(100, 1, 1), Spare::default());
        assert!(pool.take(&spare, 100));
        pool.settle(&spare, 100, 130);
        assert_eq!(pool.used([&spare].into_iter()), 130);
        pool.release(&spare, 30);
        assert!(!pool.take(&spare, 1));
        pool.settle(&spare, 100, 99);
        assert!(pool.take(&spare, 1) && !pool.take(&spare, 1));
    }
}
