//! Displacement of names: when all owner numbers are in use, a new owner takes the number of an
//! owner that has only finished tasks, the least recently used one first.
//!
//! Invariants: an owner with a running or waiting task, a reservation, or a call in flight keeps
//! its number. A number is reassigned only when nothing is charged to it: its tasks were evicted,
//! and other modules have dropped their records for it.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Store,
    group::Eviction,
    id::{GROUP, SlotAt},
    names::NumberSet,
    waiters::Wakes,
};
use crate::{service::OwnerIndex, shares::Holder};

/// Maximum finished tasks that are evicted for one new owner: the table of names is locked
/// meanwhile.
const EVICTIONS_MAX: usize = 4_096;

/// A search collects 1 / `PART` of all numbers: the least recently used idle ones.
const PART: usize = 16;

/// A search collects at least this many idle numbers, if they exist.
const GATHERED_MIN: usize = 16;

/// A number to which only finished tasks refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleNumber {
    pub number: u32,
    /// The stamp of its newest finished task.
    pub end: u64,
}

/// The outcome of an attempt to release a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Nothing refers to it any more.
    Done,
    /// Some of its tasks were evicted; others remain.
    Partial,
    /// It is in use.
    InUse,
}

/// The references to the numbers of one kind of names.
pub(super) trait NumberUses {
    /// Adds the referenced numbers to `used`; returns those that may be displaced, the least
    /// recently used one first. Numbers that calls use are in `used` already.
    fn note(&mut self, used: &mut NumberSet) -> VecDeque<IdleNumber>;

    /// Removes all references to a number that no call uses.
    fn release(&mut self, idle: IdleNumber) -> Release;
}

/// References to names that are never displaced; the function adds the referenced numbers.
pub(super) struct NeverDisplaced<F>(pub F);

impl<F: FnMut(&mut NumberSet)> NumberUses for NeverDisplaced<F> {
    fn note(&mut self, used: &mut NumberSet) -> VecDeque<IdleNumber> {
        self.0(used);
        VecDeque::new()
    }

    fn release(&mut self, _: IdleNumber) -> Release {
        Release::InUse
    }
}

/// The idle numbers of the last search, the least recently used one first.
#[derive(Default)]
pub(super) struct IdleNumbers {
    pub queue: VecDeque<IdleNumber>,
    /// True: the search found enough to justify another one.
    is_many: bool,
}

impl IdleNumbers {
    /// The result of a search among `numbers` numbers.
    pub fn new(queue: VecDeque<IdleNumber>, numbers: u32) -> IdleNumbers {
        let is_many = !queue.is_empty() && queue.len().saturating_mul(PART) >= numbers as usize;
        IdleNumbers { queue, is_many }
    }

    /// Whether the search found many idle numbers and all are used up: then another search costs
    /// little per new name.
    pub fn are_spent(&self) -> bool {
        self.is_many && self.queue.is_empty()
    }
}

/// The references to the numbers of owners.
pub(super) struct OwnerUses<'s> {
    pub store: &'s Store,
    /// The maximum number of owners.
    pub owners_max: usize,
    /// Called with the previous holder of a number before the number is reassigned.
    pub forget: &'s dyn Fn(Holder),
    /// Woken after the table of names is unlocked.
    pub wakes: &'s mut Wakes,
}

impl NumberUses for OwnerUses<'_> {
    /// Every owner with a task or a reservation has a charge in a shard.
    #[cold]
    fn note(&mut self, used: &mut NumberSet) -> VecDeque<IdleNumber> {
        // The newest end of each owner; `None`: it has an unfinished task.
        let mut ends = BTreeMap::<u32, Option<u64>>::new();
        for at in 0..self.store.sharding.shards() {
            let shard = self.store.lock(at);
            for (holder, end) in shard.charged.ends(&shard.slab) {
                let newest = ends.entry(holder.number()).or_insert(Some(0));
                *newest = newest.zip(end).map(|(newest, end)| newest.max(end));
            }
        }
        ends.remove(&0);
        // An agent may still run a call after its task was evicted.
        self.store.spaces.running.each_counted(|number| _ = ends.insert(number, None));
        let mut idle = Vec::new();
        for (number, end) in ends {
            if let Some(end) = end.filter(|_| !used.contains(number)) {
                idle.push(IdleNumber { number, end });
            }
            used.insert(number);
        }
        idle.sort_unstable_by_key(|idle| idle.end);
        idle.truncate((self.owners_max / PART).max(GATHERED_MIN));
        idle.shrink_to_fit();
        idle.into()
    }

    #[cold]
    fn release(&mut self, idle: IdleNumber) -> Release {
        let (store, holder) = (self.store, Holder::owner(idle.number));
        if store.spaces.running.is_counted(OwnerIndex(idle.number)) {
            return Release::InUse;
        }
        // The owner may have been active since the search.
        if store.newest_end(holder).is_none_or(|end| end > idle.end) {
            return Release::InUse;
        }
        if !store.evict_all_of(holder, EVICTIONS_MAX, self.wakes) {
            return Release::Partial;
        }
        (self.forget)(holder);
        Release::Done
    }
}

impl Store {
    /// The stamp of a holder's newest finished task, 0 without any; `None`: the holder has an
    /// unfinished task, or a shard with only reservations.
    fn newest_end(&self, holder: Holder) -> Option<u64> {
        let mut newest = 0;
        for at in self.shards_of(holder) {
            let shard = self.lock(at);
            if let Some(end) = shard.charged.end_of(&shard.slab, holder) {
                newest = newest.max(end?);
            }
        }
        Some(newest)
    }

    /// Evicts at most `most` finished tasks of a holder; true: all were evicted.
    fn evict_all_of(&self, holder: Holder, mut most: usize, wakes: &mut Wakes) -> bool {
        for at in self.shards_of(holder) {
            let mut shard = self.lock(at);
            while let Some(index) = shard.first_finished_of(holder) {
                if most == 0 {
                    return false;
                }
                most -= 1;
                self.evict_finished(SlotAt { at, index }, &mut shard, Eviction::Owners, wakes);
            }
        }
        true
    }

    /// The shards of the groups in which a holder has a charge.
    fn shards_of(&self, holder: Holder) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().zip(0..);
        let groups = groups.filter(move |(group, _)| group.charges.find(holder).is_some());
        groups.flat_map(|(_, number)| number * GROUP..(number + 1) * GROUP)
    }
}
