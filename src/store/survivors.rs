//! Relocation of unfinished tasks, so that none of them holds memory of evicted tasks.
//!
//! An allocator can reuse a page when all of its blocks are free. Tasks that were stored together
//! share pages. Their finished tasks are evicted together, but one remaining unfinished task would
//! hold a whole page. So each eviction of a finished task moves older unfinished tasks to a page
//! that is being filled: each task once per refill of the store.

use std::collections::VecDeque;

use super::{shard::RETAINED_CAPACITY, slab::Slab};

/// Maximum tasks that one eviction moves.
const MOVES: usize = 8;
/// Bytes after which an eviction stops moving tasks.
const MOVED_BYTES: usize = 256 * 1024;

/// A task that was unfinished when it was stored.
struct Survivor {
    index: u32,
    /// The check of its slot, which changes when the slot is freed.
    check: u32,
    /// Tasks stored with it have stamps up to this one.
    stamp: u64,
}

/// The unfinished tasks of a shard, in the order of their storage or last move.
#[derive(Default)]
pub(super) struct Survivors {
    queue: VecDeque<Survivor>,
    newest: u64,
}

impl Survivors {
    /// Notes a task that was listed at `stamp`; `is_unfinished`: the task is new and unfinished.
    #[inline]
    pub fn listed(&mut self, is_unfinished: bool, slab: &Slab, index: u32, stamp: u64) {
        self.newest = stamp;
        if is_unfinished {
            self.queue.push_back(Survivor { index, check: slab[index].check, stamp });
        }
    }

    /// Moves older unfinished tasks after a task with this stamp was evicted.
    #[inline]
    pub fn evicted(&mut self, slab: &mut Slab, stamp: u64) {
        if self.queue.front().is_some_and(|first| first.stamp < stamp) {
            self.move_some(slab, stamp);
            if self.queue.capacity() > RETAINED_CAPACITY
                && self.queue.len() < self.queue.capacity() / 8
            {
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
