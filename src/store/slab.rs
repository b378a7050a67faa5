//! Slots in chunks of 64: growth copies nothing, a place never moves.

use std::ops::{Index, IndexMut};

use super::waiters::Waiters;
use crate::{
    model::{Task, TaskState},
    service::AgentIndex,
};

/// Few enough that a chunk is still in the cache when its slots are taken.
const CHUNK: usize = 64;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// One place for a task, and its links in the shard's indexes.
pub(super) struct Slot {
    /// `None` when free, and while reserved or being changed.
    pub task: Option<Task>,
    /// Place in the order of status changes.
    pub stamp: u64,
    /// When the task ended, in milliseconds of the monotonic clock; 0 before.
    pub ended_ms: u64,
    /// Keyed hash of the context id.
    pub context: u64,
    /// The slot of this shard that the context id names; [`NONE`] if it names none.
    pub context_slot: u32,
    /// True: the only task of a context that was made with it, which no map knows.
    pub is_only_task: bool,
    /// True: a client chose the id, and a map knows it.
    pub is_chosen: bool,
    pub waiters: Option<Box<Waiters>>,
    /// Neighbours among the tasks of the context.
    pub newer: u32,
    pub older: u32,
    /// How many tasks the context has, if this is its newest.
    pub context_len: u32,
    /// The next finished task or the next free slot.
    pub next: u32,
    /// Changes whenever the slot is freed.
    pub check: u32,
    pub agent: AgentIndex,
    /// The state under which the task is listed.
    pub listed: Option<TaskState>,
}

impl Slot {
    fn free() -> Slot {
        Slot {
            task: None,
            stamp: 0,
            ended_ms: 0,
            context: 0,
            context_slot: NONE,
            is_only_task: false,
            is_chosen: false,
            waiters: None,
            newer: NONE,
            older: NONE,
            context_len: 0,
            next: NONE,
            check: 0,
            agent: AgentIndex(0),
            listed: None,
        }
    }
}

/// The slots of one shard.
pub(super) struct Slab {
    chunks: Vec<Box<[Slot]>>,
    free: u32,
    used: u32,
    index_max: u32,
}

impl Slab {
    /// An empty slab for at most `index_max` slots.
    pub fn new(index_max: u32) -> Slab {
        Slab { chunks: Vec::new(), free: NONE, used: 0, index_max }
    }

    /// Takes a free slot, the last one freed first, and says its check; `None` when there can be
    /// no more.
    pub fn take(&mut self) -> Option<(u32, u32)> {
        if self.free != NONE {
            let index = self.free;
            self.free = self[index].next;
            self[index].next = NONE;
            return Some((index, self[index].check));
        }
        let index = self.used;
        if index >= self.index_max {
            return None;
        }
        if index as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| Slot::free()).collect());
        }
        self.used += 1;
        // It is not looked at: its memory may be far away.
        Some((index, Slot::free().check))
    }

    /// Frees a slot: keys to it are void from now on.
    pub fn release(&mut self, index: u32) {
        let (check, next) = (self[index].check.wrapping_add(1), self.free);
        self[index] = Slot { check, next, ..Slot::free() };
        self.free = index;
    }

    /// The slot, if there is one.
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }
}

impl Index<u32> for Slab {
    type Output = Slot;

    fn index(&self, index: u32) -> &Slot {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

impl IndexMut<u32> for Slab {
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_used_again_under_another_check() {
        let mut slab = Slab::new(300);
        let taken: Vec<u32> = std::iter::from_fn(|| slab.take()).map(|(index, _)| index).collect();
        assert_eq!(taken, (0..300).collect::<Vec<_>>());
        let check = slab[7].check;
        slab.release(7);
        assert_ne!(slab[7].check, check);
        let again = Some((7, slab[7].check));
        assert_eq!((slab.take(), slab.take()), (again, None));
        assert!(slab.slot(299).is_some() && slab.slot(512).is_none());
    }

    #[test]
    fn a_slot_is_small() {
        // A chunk of them then fills what an allocator hands out in powers of two and quarters.
        assert!(size_of::<Slot>() <= 160, "{}", size_of::<Slot>());
    }
}
