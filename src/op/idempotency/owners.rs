//! The holders of the sends in one shard: the entries of each, and the choice of the one to evict
//! from.
//!
//! Invariants: an owner within its share never loses an entry to another owner. A holder without
//! entries has no slot here.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::shares::{Holder, Holders};

/// The entries of one holder.
#[derive(Clone, Copy, Default)]
pub(super) struct SendOwner {
    pub holder: Holder,
    /// The number of its entries, and how many of them are undecided and cannot be evicted.
    pub held: u32,
    pub undecided: u32,
    /// The ends of the list of its entries; 0: empty.
    pub oldest: u32,
    pub newest: u32,
    /// Bytes of its direct messages.
    pub message_bytes: usize,
}

/// All holders of a shard.
#[derive(Default)]
pub(super) struct SendOwners {
    all: Vec<SendOwner>,
    slots: HashMap<Holder, u32, RandomState>,
    free: Vec<u32>,
    counts: Holders,
    /// The slot of the last lookup: the next send is usually of the same holder.
    last: u32,
    /// The slot of the holder with the most entries, as last computed.
    largest: u32,
}

impl SendOwners {
    /// The slot of a holder; allocates one if necessary.
    #[inline(always)]
    pub fn enter(&mut self, holder: Holder) -> u32 {
        match self.all.get(self.last as usize) {
            Some(last) if last.holder == holder && last.held > 0 => self.last,
            _ => self.enter_other(holder),
        }
    }

    #[inline(never)]
    fn enter_other(&mut self, holder: Holder) -> u32 {
        if let Some(slot) = self.slots.get(&holder) {
            self.last = *slot;
            return *slot;
        }
        let slot = self.free.pop().unwrap_or(self.all.len() as u32);
        if slot as usize == self.all.len() {
            self.all.push(SendOwner::default());
        }
        self.all[slot as usize] = SendOwner { holder, ..SendOwner::default() };
        self.slots.insert(holder, slot);
        match holder.is_stranger() {
            true => self.counts.strangers += 1,
            false => self.counts.owners += 1,
        }
        self.last = slot;
        slot
    }

    /// The slot of a holder that has entries.
    pub fn find(&self, holder: Holder) -> Option<u32> {
        self.slots.get(&holder).copied()
    }

    #[inline(always)]
    pub fn get_mut(&mut self, slot: u32) -> &mut SendOwner {
        &mut self.all[slot as usize]
    }

    pub fn get(&self, slot: u32) -> &SendOwner {
        &self.all[slot as usize]
    }

    /// Adds an undecided entry to a holder.
    #[inline(always)]
    pub fn count(&mut self, slot: u32) {
        let owner = &mut self.all[slot as usize];
        (owner.held, owner.undecided) = (owner.held + 1, owner.undecided + 1);
        self.counts.held_by_strangers += usize::from(owner.holder.is_stranger());
        if owner.held > self.all[self.largest as usize].held {
            self.largest = slot;
        }
    }

    /// Removes an entry of a holder; removing the last one frees the slot.
    #[inline(always)]
    pub fn discount(&mut self, slot: u32) {
        let owner = &mut self.all[slot as usize];
        owner.held -= 1;
        self.counts.held_by_strangers -= usize::from(owner.holder.is_stranger());
        if owner.held == 0 {
            self.leave_if_empty(slot);
        }
    }

    /// Frees the slot of a holder that has no entries.
    #[cold]
    pub fn leave_if_empty(&mut self, slot: u32) {
        let SendOwner { holder, held: 0, .. } = self.all[slot as usize] else { return };
        if self.slots.remove(&holder).is_none() {
            return;
        }
        match holder.is_stranger() {
            true => self.counts.strangers -= 1,
            false => self.counts.owners -= 1,
        }
        self.all[slot as usize].holder = Holder::default();
        self.free.push(slot);
    }

    /// Whether a new entry of this holder must evict an entry of an anonymous caller.
    #[inline(always)]
    pub fn strangers_full(&self, slot: u32, most: usize) -> bool {
        self.counts.strangers_full(self.all[slot as usize].holder, 1, most)
    }

    /// The holder that loses an entry to a new entry of `newcomer`, possibly `newcomer` itself;
    /// `None`: no decided entry can be evicted.
    #[inline(always)]
    pub fn victim(&mut self, newcomer: u32, most: usize) -> Option<u32> {
        let are_strangers_alone = self.strangers_full(newcomer, most);
        let share = self.counts.share(most);
        let largest = &self.all[self.largest as usize];
        let is_above = largest.held as usize > share.of(largest.holder);
        let may_leave = largest.held > largest.undecided;
        match is_above && may_leave && (largest.holder.is_stranger() || !are_strangers_alone) {
            true => Some(self.largest),
            false => self.other_victim(newcomer, most, are_strangers_alone),
        }
    }

    /// The holder that exceeds its share by the most.
    #[cold]
    #[inline(never)]
    fn other_victim(&mut self, newcomer: u32, most: usize, strangers_alone: bool) -> Option<u32> {
        let share = self.counts.share(most);
        let candidates = (0..).zip(&self.all).filter(|(_, owner)| {
            owner.held > owner.undecided && (owner.holder.is_stranger() || !strangers_alone)
        });
        let excess = |(slot, owner): &(u32, &SendOwner)| {
            let held = i64::from(owner.held) + i64::from(*slot == newcomer);
            (held - share.of(owner.holder) as i64, *slot == newcomer)
        };
        let (slot, owner) = candidates.max_by_key(excess)?;
        let is_above = owner.held as usize > share.of(owner.holder);
        (is_above || slot == newcomer).then(|| {
            self.largest = slot;
            slot
        })
    }

    /// The holder that loses stored messages to make room for `more` bytes of `newcomer`; `most`:
    /// the limit for all holders together.
    #[cold]
    pub fn message_victim(&self, newcomer: u32, more: usize, most: usize) -> Option<Holder> {
        let held = self.all.iter().filter(|owner| owner.message_bytes > 0);
        let held = held.map(|owner| (owner.holder, owner.message_bytes));
        let holder = self.all[newcomer as usize].holder;
        crate::shares::Newcomer { holder, more, most }.victim(held)
    }

    /// Bytes of the messages of anonymous callers.
    pub fn stranger_bytes(&self) -> usize {
        let strangers = self.all.iter().filter(|owner| owner.holder.is_stranger());
        strangers.map(|owner| owner.message_bytes).sum()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}
