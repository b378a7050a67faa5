//! Making room: which finished task leaves, and when.
//!
//! Room is made before it is used, and for the group of the shard where it is needed. Of a group's
//! shards the task that ended first goes first. Other groups are looked at now and then: where a
//! task ended [`LEAD_MS`] before any of this group's, or this group has none, what others have and
//! do not use is taken, and then the oldest of all goes.

use std::sync::{PoisonError, TryLockError};

use super::{
    Refused, Store,
    budget::{SharedLimit, Spare},
    group::{Eviction, floor_of},
    id::{GROUP, group_of},
    shard::Shard,
    slab::CHUNK,
    sync::{MutexGuard, atomic::Ordering::Relaxed},
    waiters::Wakes,
};
use crate::service::Now;

/// Finished tasks that one [`Store::sweep`] evicts from one shard at most.
const SWEEP: usize = 64;

/// Spared tasks of a shard that one sweep looks at: hosts that are away for a day may spare many.
const SPARED_LOOKS: usize = 64;

/// How much earlier a task of another group must have ended to go before those of this one.
const LEAD_MS: u64 = 1_000;

/// Who makes room for what.
struct Need<'n> {
    /// The group that it is for.
    group: usize,
    /// The shard whose lock the caller has.
    held: Option<(usize, &'n mut Shard)>,
    why: Eviction,
    wakes: &'n mut Wakes,
}

impl Store {
    /// Evicts finished tasks whose time is over; true when it should be called again soon.
    ///
    /// One call evicts at most 1,024 tasks of each worker.
    #[cfg(any(test, feature = "internals"))]
    pub fn sweep(&self, now: Now) -> bool {
        (0..self.workers).fold(false, |is_more, worker| self.sweep_of(worker, now) | is_more)
    }

    /// Evicts finished tasks of one worker whose time is over, at most 1,024; true when it should
    /// be called again soon. Call it about once a second.
    pub fn sweep_of(&self, worker: usize, now: Now) -> bool {
        self.budget.note_sweep(now.mono_ms);
        let latest = self.groups.iter().map(|group| group.last_stamp()).max().unwrap_or(0);
        let mut is_more = false;
        for number in (worker..self.groups.len()).step_by(self.workers) {
            let group = &self.groups[number];
            // A wall clock that was set back would make some groups' tasks look older than others'.
            group.catch_up(latest);
            for at in (number * GROUP..).take(GROUP) {
                if group.has_no_finished(at) {
                    continue;
                }
                let mut wakes = Wakes::default();
                let mut shard = self.lock(at);
                self.expire(at, &mut shard, now, &mut wakes, SWEEP);
                self.evict_released(at, &mut shard, &mut wakes);
                let Shard { finished, slab, .. } = &*shard;
                is_more |= finished.has_expired(slab, self.budget.ttl_ms, now.mono_ms);
            }
        }
        is_more
    }

    /// Evicts at most `most` tasks of a shard whose time is over.
    pub(super) fn expire(
        &self,
        at: usize,
        shard: &mut Shard,
        now: Now,
        wakes: &mut Wakes,
        most: usize,
    ) {
        for _ in 0..most {
            let Shard { finished, slab, .. } = &*shard;
            if !finished.has_expired(slab, self.budget.ttl_ms, now.mono_ms) {
                break;
            }
            self.expire_one(at, shard, wakes);
        }
    }

    /// Evicts the task of a shard whose time is over, unless it is spared.
    #[cold]
    fn expire_one(&self, at: usize, shard: &mut Shard, wakes: &mut Wakes) {
        if let Some(index) = shard.finished.take_expired(&mut shard.slab) {
            self.evict_task((at, index), shard, group_of(at), Eviction::Ttl, wakes);
        }
    }

    /// Evicts tasks of a shard that were spared and are needed no more, after so many looks.
    fn evict_released(&self, at: usize, shard: &mut Shard, wakes: &mut Wakes) {
        let mut looks = SPARED_LOOKS;
        while let Some(index) = shard.finished.take_released(&shard.slab, &mut looks) {
            self.evict_task((at, index), shard, group_of(at), Eviction::Ttl, wakes);
        }
    }

    /// Takes room for one more task of a shard of which there is none without an eviction.
    #[inline(never)]
    pub(super) fn make_task_room(&self, at: usize, wakes: &mut Wakes) -> Result<(), Refused> {
        let need = Need { group: group_of(at), held: None, why: Eviction::Count, wakes };
        let spare = |group: usize| &self.groups[group].tasks;
        self.make_room(need, &self.budget.tasks, spare, 1).ok_or(Refused::Full)
    }

    /// Takes room for `wanted` bytes more of a shard, of which there are none without an eviction;
    /// `held` is the shard, if the caller has its lock.
    #[inline(never)]
    pub(super) fn make_byte_room(
        &self,
        wanted: usize,
        at: usize,
        held: Option<&mut Shard>,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        let bytes = &self.budget.bytes;
        if !bytes.could_hold(wanted) {
            return Err(Refused::OutOfBytes);
        }
        let held = held.map(|shard| (at, shard));
        let need = Need { group: group_of(at), held, why: Eviction::Bytes, wakes };
        let spare = |group: usize| &self.groups[group].bytes;
        self.make_room(need, bytes, spare, wanted).ok_or(Refused::OutOfBytes)
    }

    /// Makes a slot of a shard free that has none: there is a chunk more, or a finished task less.
    #[inline(never)]
    pub(super) fn make_slot(&self, at: usize, shard: &mut Shard, wakes: &mut Wakes) -> bool {
        let (number, slots) = (group_of(at), &self.budget.slots);
        let spare = |group: usize| &self.groups[group].slots;
        if !slots.take(spare(number), CHUNK) {
            slots.gather(spare(number), (0..self.groups.len()).map(spare));
            if !slots.take(spare(number), CHUNK) {
                return self.evict_from(at, shard, number, Eviction::Count, wakes);
            }
        }
        let is_grown = shard.slab.grow();
        if !is_grown {
            slots.release(spare(number), CHUNK);
        }
        is_grown
    }

    /// Evicts until `wanted` could be taken; `None`: no task is left that can go.
    fn make_room<'s>(
        &'s self,
        mut need: Need<'_>,
        limit: &SharedLimit,
        spare: impl Fn(usize) -> &'s Spare,
        wanted: usize,
    ) -> Option<()> {
        let mut has_gathered = false;
        loop {
            let goes_first = self.goes_first(need.group);
            if !(goes_first && self.evict_of(need.group, &mut need)) {
                // What others do not use comes before what they store.
                if !std::mem::replace(&mut has_gathered, true) {
                    limit.gather(spare(need.group), (0..self.groups.len()).map(&spare));
                } else if !self.evict_oldest(&mut need) {
                    return None;
                }
            }
            if limit.take(spare(need.group), wanted) {
                return Some(());
            }
        }
    }

    /// True when the tasks of a group are to go before those of others, as far as is known since
    /// the last look.
    fn goes_first(&self, number: usize) -> bool {
        let group = &self.groups[number];
        let unlooked = group.unlooked.load(Relaxed);
        if unlooked > 0 {
            group.unlooked.store(unlooked - 1, Relaxed);
            return true;
        }
        let stamp =
            |group: usize| self.groups[group].oldest(0).map_or(u64::MAX, |(stamp, _)| stamp);
        let others = (0..self.groups.len()).map(stamp).min().unwrap_or(u64::MAX);
        let goes_first = stamp(number) <= others.saturating_add(floor_of(LEAD_MS));
        if goes_first {
            let portion = u32::try_from(self.budget.tasks.portion()).unwrap_or(u32::MAX);
            group.unlooked.store(portion, Relaxed);
        }
        goes_first
    }

    /// Evicts the task that ended first of those of all groups.
    fn evict_oldest(&self, need: &mut Need<'_>) -> bool {
        let mut skipped = 0u64;
        loop {
            let groups = self.groups.iter().enumerate();
            let groups = groups.filter(|(number, _)| skipped >> number & 1 == 0);
            let stamps = groups.filter_map(|(number, group)| Some((group.oldest(0)?.0, number)));
            let Some((_, number)) = stamps.min() else { return false };
            if self.evict_of(number, need) {
                return true;
            }
            skipped |= 1 << number;
        }
    }

    /// Evicts the task of a group that ended first.
    fn evict_of(&self, number: usize, need: &mut Need<'_>) -> bool {
        let mut skipped = 0u32;
        while let Some((_, at)) = self.groups[number].oldest(skipped) {
            skipped |= 1 << at;
            let at = number * GROUP + at;
            let mut evict =
                |shard: &mut Shard| self.evict_from(at, shard, need.group, need.why, need.wakes);
            let is_done = match &mut need.held {
                Some((held_at, shard)) if *held_at == at => evict(shard),
                // Two that hold a shard each must not wait for one another.
                Some(_) => self.try_lock(at).is_some_and(|mut shard| evict(&mut shard)),
                None => evict(&mut self.lock(at)),
            };
            if is_done {
                return true;
            }
        }
        false
    }

    fn try_lock(&self, at: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.group(at).shards[at % GROUP].try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poison)) => Some(PoisonError::into_inner(poison)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Evicts the task of a shard that ended first, and gives its room to a group.
    fn evict_from(
        &self,
        at: usize,
        shard: &mut Shard,
        group: usize,
        why: Eviction,
        wakes: &mut Wakes,
    ) -> bool {
        let index = shard.finished.take_first(&mut shard.slab);
        if let Some(index) = index {
            self.evict_task((at, index), shard, group, why, wakes);
        } else {
            self.group(at).note_oldest(at, shard.oldest_stamp());
        }
        index.is_some()
    }

    /// Evicts a task that was taken out of the finished ones, and gives its room to a group.
    #[inline(never)]
    fn evict_task(
        &self,
        (at, index): (usize, u32),
        shard: &mut Shard,
        group: usize,
        why: Eviction,
        wakes: &mut Wakes,
    ) {
        let evicted = shard.evict(index, at, &self.door, wakes);
        self.group(at).note_oldest(at, shard.oldest_stamp());
        let group = &self.groups[group];
        self.budget.bytes.release(&group.bytes, evicted.bytes);
        self.budget.tasks.release(&group.tasks, 1);
        self.budget.slots.release(&group.slots, evicted.slots);
        group.count(why);
        if let Some((scope, task)) = &evicted.chosen {
            self.unchoose(self.chosen_hash(*scope, task.id()));
        }
    }
}
