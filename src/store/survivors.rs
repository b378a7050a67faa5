//! Unfinished tasks keep no memory but their own.
//!
//! An allocator gives out memory by the page, and a page comes back when all on it are gone. Of the
//! tasks that were stored together the finished ones leave together; one that still runs would keep
//! their page for itself. So whenever a finished task leaves, unfinished ones that are older are
//! moved, each to a page of what is stored now: once in the time in which the store is filled anew.

use std::collections::VecDeque;

use super::{shard::KEPT, slab::Slab};

/// Tasks that one eviction moves at most.
const MOVES: usize = 8;
/// Bytes after which an eviction moves no more.
const MOVED_BYTES: usize = 256 * 1024;

/// A task that was not finished when it was stored.
struct Survivor {
    index: u32,
    /// That of its slot, which changes when the slot is freed.
    check: u32,
    /// What was stored with it has stamps up to this one.
    stamp: u64,
}

/// The unfinished tasks of a shard, in the order in which they were moved, or stored.
#[derive(Default)]
pub(super) struct Survivors {
    queue: VecDeque<Survivor>,
    newest: u64,
}

impl Survivors {
    /// Notes a task that was listed at `stamp`, as unfinished for the first time or not.
    #[inline]
    pub fn listed(&mut self, is_unfinished: bool, slab: &Slab, index: u32, stamp: u64) {
        self.newest = stamp;
        if is_unfinished {
            self.queue.push_back(Survivor { index, check: slab[index].check, stamp });
        }
    }

    /// Notes that a task of `stamp` has left.
    #[inline]
    pub fn left(&mut self, slab: &mut Slab, stamp: u64) {
        if self.queue.front().is_some_and(|first| first.stamp < stamp) {
            self.move_some(slab, stamp);
            if self.queue.capacity() > KEPT && self.queue.len() < self.queue.capacity() / 8 {
                self.queue.shrink_to(2 * self.queue.len());
            }
        }
    }

    #[cold]
    fn move_some(&mut self, slab: &mut Slab, stamp: u64) {
        let mut moved = 0;
        for _ in 0..MOVES {
            let Some(first) = self.queue.pop_front_if(|first| first.stamp < stamp) else { return };
            let slot = slab.slot_mut(first.index).filter(|slot| slot.check == first.check);
            let Some(slot) = slot else { continue };
            if slot.task.get().is_some_and(|task| task.state().is_terminal()) {
                continue;
            }
            moved += slot.task.relocate();
            self.queue.push_back(Survivor { stamp: self.newest, ..first });
            if moved > MOVED_BYTES {
                return;
            }
        }
    }
}
