//! Names that are displaced: when all owner numbers are given out, an owner that has only finished
//! tasks gives its number up to a newcomer, the least recently used one first.
//!
//! Invariants: an owner with a running or waiting task, with room taken for one, or with a call in
//! flight keeps its number. A number is given to another name when nothing is left that is charged
//! to it: its tasks were evicted, and what others have recorded under it was forgotten.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Store,
    group::Eviction,
    id::{GROUP, SlotAt},
    names::NumberSet,
    waiters::Wakes,
};
use crate::{service::OwnerIndex, shares::Holder};

/// Finished tasks that one newcomer evicts at most: the table of names is locked meanwhile.
const EVICTIONS_MAX: usize = 4_096;

/// Numbers of which a look gathers one in so many, the least recently used ones.
const PART: usize = 16;

/// Idle numbers that a look gathers, however few numbers there are.
const GATHERED_MIN: usize = 16;

/// A number to which nothing but finished tasks refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleNumber {
    pub number: u32,
    /// The stamp of its newest finished task.
    pub end: u64,
}

/// What became of the attempt to release a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Nothing refers to it any more.
    Done,
    /// Some of its tasks were evicted, and others are left.
    Partial,
    /// It is in use.
    InUse,
}

/// What the numbers of a kind of names are used for.
pub(super) trait NumberUses {
    /// Adds the numbers that something refers to; returns those that may be displaced, the least
    /// recently used one first. Numbers that calls use are in the set already.
    fn note(&mut self, used: &mut NumberSet) -> VecDeque<IdleNumber>;

    /// Removes all that refers to a number, which no call uses.
    fn release(&mut self, idle: IdleNumber) -> Release;
}

/// The uses of names of which none is displaced: it adds the numbers that something refers to.
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

/// The idle numbers that the last look has gathered, the least recently used one first.
#[derive(Default)]
pub(super) struct IdleNumbers {
    pub queue: VecDeque<IdleNumber>,
    /// True: there were enough to pay for another look.
    is_many: bool,
}

impl IdleNumbers {
    /// Those of a look among so many numbers.
    pub fn new(queue: VecDeque<IdleNumber>, numbers: u32) -> IdleNumbers {
        let is_many = !queue.is_empty() && queue.len().saturating_mul(PART) >= numbers as usize;
        IdleNumbers { queue, is_many }
    }

    /// Whether there were many, and all were taken: another look costs each newcomer little.
    pub fn are_spent(&self) -> bool {
        self.is_many && self.queue.is_empty()
    }
}

/// What the numbers of owners are used for.
pub(super) struct OwnerUses<'s> {
    pub store: &'s Store,
    /// How many numbers there are.
    pub owners_max: usize,
    /// Called with the holder that a number stood for, before another name gets the number.
    pub forget: &'s dyn Fn(Holder),
    /// Woken after the table of names is unlocked.
    pub wakes: &'s mut Wakes,
}

impl NumberUses for OwnerUses<'_> {
    /// Every owner with a task, or with room for one, is charged for it in a shard.
    #[cold]
    fn note(&mut self, used: &mut NumberSet) -> VecDeque<IdleNumber> {
        // The newest end of each; `None`: it has an unfinished task.
        let mut ends = BTreeMap::<u32, Option<u64>>::new();
        for at in 0..self.store.sharding.shards() {
            let shard = self.store.lock(at);
            for (holder, end) in shard.charged.ends(&shard.slab) {
                let newest = ends.entry(holder.number()).or_insert(Some(0));
                *newest = newest.zip(end).map(|(newest, end)| newest.max(end));
            }
        }
        ends.remove(&0);
        // An agent may still have a call whose task has left.
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
        // It may have been used since the look.
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
    /// The newest stamp of the finished tasks of a holder, 0 without any; `None`: it has a task
    /// that is not finished, or room for one.
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

    /// Evicts the finished tasks of a holder, at most so many; true: all were evicted.
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

    /// The shards of the groups in which something is charged to a holder.
    fn shards_of(&self, holder: Holder) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().zip(0..);
        let groups = groups.filter(move |(group, _)| group.charges.find(holder).is_some());
        groups.flat_map(|(_, number)| number * GROUP..(number + 1) * GROUP)
    }
}
