//! The finished tasks of a shard, in the order of their ends: the candidates for eviction.
//!
//! Invariants: to make room, [`super::evict`] may choose any finished task. An expired task is
//! evicted unless a webhook needs it: then it is spared until no webhook needs it. A bounded number
//! of spared tasks is examined at a time. Each task is spared once.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use super::slab::{NONE, Slab};

/// Finished tasks in the order of their ends: first the spared ones, then the others in a list
/// through their slots.
pub(super) struct FinishedTasks {
    oldest: u32,
    youngest: u32,
    /// The spared tasks by their stamps.
    spared: BTreeMap<u64, u32>,
    /// The stamp of the spared task that was examined last.
    looked: u64,
}

impl FinishedTasks {
    pub fn new() -> FinishedTasks {
        FinishedTasks { oldest: NONE, youngest: NONE, spared: BTreeMap::new(), looked: 0 }
    }

    /// Adds a task that has just ended.
    #[inline]
    pub fn push(&mut self, slab: &mut Slab, index: u32) {
        match self.youngest {
            NONE => self.oldest = index,
            youngest => slab[youngest].next = index,
        }
        slab[index].before = self.youngest;
        self.youngest = index;
    }

    /// Removes a task.
    #[inline]
    pub fn remove(&mut self, slab: &mut Slab, index: u32) {
        if self.spared.is_empty() || !self.remove_spared(slab[index].stamp, index) {
            self.unlink(slab, index);
        }
    }

    #[cold]
    fn remove_spared(&mut self, stamp: u64, index: u32) -> bool {
        self.spared.get(&stamp) == Some(&index) && self.spared.remove(&stamp).is_some()
    }

    fn unlink(&mut self, slab: &mut Slab, index: u32) {
        let slot = &mut slab[index];
        let before = std::mem::replace(&mut slot.before, NONE);
        let next = std::mem::replace(&mut slot.next, NONE);
        match before {
            NONE => self.oldest = next,
            before => slab[before].next = next,
        }
        match next {
            NONE => self.youngest = before,
            next => slab[next].before = before,
        }
    }

    fn take_listed(&mut self, slab: &mut Slab) -> Option<u32> {
        let index = self.oldest;
        slab.slot(index)?;
        self.unlink(slab, index);
        Some(index)
    }

    /// True when there is an expired task that was not spared, by the monotonic clock.
    #[inline]
    pub fn has_expired(&self, slab: &Slab, ttl_ms: u64, mono_ms: u64) -> bool {
        let oldest = slab.slot(self.oldest);
        oldest.is_some_and(|slot| mono_ms.saturating_sub(slot.event_ms) > ttl_ms)
    }

    /// Removes the first expired task; `None`: it is now spared, because a watcher needs it.
    pub fn take_expired(&mut self, slab: &mut Slab) -> Option<u32> {
        let index = self.take_listed(slab)?;
        let slot = &slab[index];
        if slot.is_held() {
            self.spared.insert(slot.stamp, index);
            return None;
        }
        Some(index)
    }

    /// Removes a spared task that is not needed any more, after at most `looks` examinations; the
    /// next call continues after it.
    pub fn take_released(&mut self, slab: &Slab, looks: &mut usize) -> Option<u32> {
        while *looks > 0 {
            let mut after = self.spared.range((Excluded(self.looked), Unbounded));
            let Some((stamp, index)) = after.next().map(|(stamp, index)| (*stamp, *index)) else {
                (self.looked, *looks) = (0, 0);
                return None;
            };
            *looks -= 1;
            self.looked = stamp;
            if !slab[index].is_held() {
                self.spared.remove(&stamp);
                return Some(index);
            }
        }
        None
    }
}
