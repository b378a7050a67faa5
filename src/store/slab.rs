//! Slots in chunks: growth copies nothing, a slot never moves, and free chunks are released.
//!
//! Invariant: a chunk stays allocated while one of its slots is taken, and a few free chunks are
//! retained for new tasks. A slot's check is above all earlier checks of the same slot, even if its
//! chunk was released in between.

use std::{
    ops::{Deref, Index, IndexMut},
    sync::Arc,
};

use super::{
    door::TaskInSlot,
    waiters::{Waiters, Wakes},
};
use crate::{
    model::{Task, TaskState},
    service::{AgentIndex, Scope},
    watch::TaskWatch,
};

/// Slots that are allocated and released together: one remaining task keeps this many allocated.
pub(super) const CHUNK: usize = 32;
/// Free chunks that a shard retains.
pub(super) const SPARE_CHUNKS: u32 = 2;

/// The index that stands for no slot, or no chunk.
pub(super) const NONE: u32 = u32::MAX;

/// A slot for a task, and its links in the shard's indexes.
pub(super) struct Slot {
    /// `None` while the slot is free or reserved.
    pub task: TaskInSlot,
    /// Position in the order of status changes.
    pub stamp: u64,
    /// When the task had its last event, in milliseconds of the monotonic clock; after its end, the
    /// time of the end.
    pub event_ms: u64,
    /// Keyed hash of the context id.
    pub context: u64,
    /// The slot of this shard in the context id; [`NONE`] if the context id contains none.
    pub context_slot: u32,
    /// True: the task is the only one of the context that was created with it. Such a context is
    /// not in a map.
    pub is_only_task: bool,
    /// True: a client chose the id of the task. Such an id is in a map.
    pub is_chosen: bool,
    /// The wakers of the task, and the agent's private bytes.
    pub waiters: Option<Box<Waiters>>,
    /// The watch of the task until it is evicted.
    pub watch: Option<Arc<TaskWatch>>,
    /// Neighbours among the tasks of the context.
    pub newer: u32,
    pub older: u32,
    /// Number of tasks of the context, if this task is its newest.
    pub context_len: u32,
    /// Neighbours in the list of finished tasks. In a free slot, `next` is the next free slot of
    /// the chunk.
    pub next: u32,
    pub before: u32,
    /// The index of its charge in the shard, and its neighbours in a list of that charge.
    pub charge: u32,
    pub charge_next: u32,
    pub charge_before: u32,
    /// Changes whenever the slot is freed.
    pub check: u32,
    pub scope: Scope,
    /// The incarnation of its agent that the task belongs to.
    pub incarnation: u32,
    /// Turns of its agent in progress that began after the task was stored.
    pub turns: u8,
    /// The state under which the task is listed.
    pub listed: Option<TaskState>,
}

impl Slot {
    /// The agent's private bytes.
    pub fn private_bytes(&self) -> &[u8] {
        self.waiters.as_ref().map_or(&[], |waiters| &waiters.private_bytes)
    }

    /// Memory of the agent's private bytes.
    #[inline]
    pub fn private_heap_bytes(&self) -> usize {
        self.waiters.as_ref().map_or(0, |waiters| private_heap_bytes(&waiters.private_bytes))
    }

    /// Whether a watcher needs the task.
    pub fn is_held(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_needed())
    }

    /// Whether a stream, a call or a webhook waits for changes of the task.
    pub fn is_listened_to(&self) -> bool {
        let is_watched = self.watch.as_ref().is_some_and(|watch| !watch.is_over());
        is_watched || self.waiters.as_ref().is_some_and(|waiters| waiters.len() > 0)
    }

    /// Adds the watch of the task to the wake-ups.
    pub fn wake_watch(&self, wakes: &mut Wakes) {
        if let Some(watch) = &self.watch {
            watch.reach(self.task.get().map_or(0, Task::seq));
            wakes.add(watch);
        }
    }

    fn free(check: u32, next: u32) -> Slot {
        Slot {
            task: TaskInSlot::default(),
            stamp: 0,
            event_ms: 0,
            context: 0,
            context_slot: NONE,
            is_only_task: false,
            is_chosen: false,
            waiters: None,
            watch: None,
            newer: NONE,
            older: NONE,
            context_len: 0,
            next,
            before: NONE,
            charge: NONE,
            charge_next: NONE,
            charge_before: NONE,
            check,
            scope: Scope::of(AgentIndex(0)),
            incarnation: 0,
            turns: 0,
            listed: None,
        }
    }
}

/// Memory of an agent's private bytes, with the [`Waiters`] that hold them: after the end of the
/// task these hold nothing else.
pub(super) fn private_heap_bytes(private_bytes: &[u8]) -> usize {
    // Two allocated blocks, each with 16 bytes of the allocator.
    if private_bytes.is_empty() { 0 } else { private_bytes.len() + size_of::<Waiters>() + 32 }
}

/// A task under its shard's lock, with the number of its last record.
#[derive(Clone, Copy)]
pub struct StoredTask<'s> {
    task: &'s Task,
    record: u64,
}

impl StoredTask<'_> {
    /// The number of its last record; 0: there is no journal.
    #[inline]
    pub fn record(&self) -> u64 {
        self.record
    }
}

impl Deref for StoredTask<'_> {
    type Target = Task;

    #[inline]
    fn deref(&self) -> &Task {
        self.task
    }
}

/// The number of the last record of each slot's task in a chunk.
type RecordNumbers = [u64; CHUNK];

/// Slots in one allocation.
struct Chunk {
    slots: [Slot; CHUNK],
    /// The first free slot.
    free: u32,
    used: u32,
    /// Neighbours among the chunks with a free slot.
    before: u32,
    after: u32,
    /// `None`: the store has no tap.
    records: Option<Box<RecordNumbers>>,
}

/// The slots of one shard.
pub(super) struct Slab {
    chunks: Vec<Option<Box<Chunk>>>,
    /// The first chunk with a free slot: the one with the most recently freed slot.
    open: u32,
    /// Number of chunks without a taken slot.
    spare: u32,
    /// All chunks below this index exist.
    first_gap: usize,
    /// The check of new slots: above the checks in all keys to released slots.
    check: u32,
    index_max: u32,
}

impl Slab {
    /// An empty slab for at most `index_max` slots.
    pub fn new(index_max: u32) -> Slab {
        Slab { chunks: Vec::new(), open: NONE, spare: 0, first_gap: 0, check: 0, index_max }
    }

    /// True when a slot can be taken without [`Slab::grow`].
    #[inline]
    pub fn has_free(&self) -> bool {
        self.open != NONE
    }

    /// Adds a chunk of free slots; false: the slab has its maximum of slots.
    #[inline(never)]
    pub fn grow(&mut self) -> bool {
        let mut chunks = self.chunks.iter().enumerate().skip(self.first_gap);
        let gap = chunks.find_map(|(number, chunk)| chunk.is_none().then_some(number));
        let number = gap.unwrap_or(self.chunks.len());
        let (first, check) = ((number * CHUNK) as u32, self.check);
        let Some(last) = self.index_max.checked_sub(1).filter(|last| first <= *last) else {
            return false;
        };
        let next =
            |at: u32| if at == last || at + 1 == first + CHUNK as u32 { NONE } else { at + 1 };
        let slots = std::array::from_fn(|at| Slot::free(check, next(first + at as u32)));
        let (before, after) = (NONE, NONE);
        let chunk = Chunk { slots, free: first, used: 0, before, after, records: None };
        if gap.is_none() {
            if self.chunks.len() == self.chunks.capacity() {
                // Only by a sixteenth: the list shrinks only when three quarters of it are unused.
                self.chunks.reserve_exact(self.chunks.len() / 16 + 8);
            }
            self.chunks.push(None);
        }
        self.chunks[number] = Some(Box::new(chunk));
        self.first_gap = number + 1;
        self.spare += 1;
        self.link(number as u32);
        true
    }

    /// Takes a free slot, the last freed first; returns its index and check. `None`: no slot is
    /// free.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u32)> {
        let number = self.open;
        let chunk = self.chunks.get_mut(number as usize)?.as_mut()?;
        let index = chunk.free;
        let slot = &mut chunk.slots[index as usize % CHUNK];
        let check = slot.check;
        chunk.free = std::mem::replace(&mut slot.next, NONE);
        self.spare -= u32::from(chunk.used == 0);
        chunk.used += 1;
        if chunk.free == NONE {
            self.unlink(number);
        }
        Some((index, check))
    }

    /// Frees a slot: keys to it become invalid. Returns the number of slots released from memory.
    #[inline]
    pub fn release(&mut self, index: u32) -> usize {
        let number = index / CHUNK as u32;
        let Some(Some(chunk)) = self.chunks.get_mut(number as usize) else { return 0 };
        let slot = &mut chunk.slots[index as usize % CHUNK];
        let was_full = chunk.free == NONE;
        *slot = Slot::free(slot.check.wrapping_add(1), std::mem::replace(&mut chunk.free, index));
        chunk.used -= 1;
        let is_spare = chunk.used == 0;
        if was_full {
            self.link(number);
        }
        if is_spare { self.shrink(number) } else { 0 }
    }

    /// Releases a chunk of free slots if enough other free chunks remain.
    #[inline(never)]
    fn shrink(&mut self, number: u32) -> usize {
        if self.spare < SPARE_CHUNKS {
            self.spare += 1;
            return 0;
        }
        self.unlink(number);
        let chunk = self.chunks.get_mut(number as usize).and_then(Option::take);
        self.first_gap = self.first_gap.min(number as usize);
        for slot in chunk.iter().flat_map(|chunk| &chunk.slots) {
            // Each check was increased when its slot was freed: no key has it.
            self.check = self.check.max(slot.check);
        }
        while self.chunks.pop_if(|last| last.is_none()).is_some() {}
        if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        CHUNK
    }

    /// Moves a chunk to the front of the chunks with a free slot.
    fn link(&mut self, number: u32) {
        let after = std::mem::replace(&mut self.open, number);
        if let Some(Some(chunk)) = self.chunks.get_mut(after as usize) {
            chunk.before = number;
        }
        if let Some(Some(chunk)) = self.chunks.get_mut(number as usize) {
            (chunk.before, chunk.after) = (NONE, after);
        }
    }

    fn unlink(&mut self, number: u32) {
        let Some(Some(chunk)) = self.chunks.get(number as usize) else { return };
        let (before, after) = (chunk.before, chunk.after);
        match self.chunks.get_mut(before as usize) {
            Some(Some(chunk)) => chunk.after = after,
            Some(None) | None => self.open = after,
        }
        if let Some(Some(chunk)) = self.chunks.get_mut(after as usize) {
            chunk.before = before;
        }
    }

    /// The slot with an index, if its chunk exists.
    #[inline]
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.as_ref()?;
        Some(&chunk.slots[index as usize % CHUNK])
    }

    /// As [`Slab::slot`], mutable.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> Option<&mut Slot> {
        let chunk = self.chunks.get_mut(index as usize / CHUNK)?.as_mut()?;
        Some(&mut chunk.slots[index as usize % CHUNK])
    }

    /// The task in a slot with its last record, if there is one.
    #[inline]
    pub fn stored(&self, index: u32) -> Option<StoredTask<'_>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.as_ref()?;
        let at = index as usize % CHUNK;
        let task = chunk.slots[at].task.get()?;
        let record = chunk.records.as_ref().map_or(0, |records| records[at]);
        Some(StoredTask { task, record })
    }

    /// Notes the number of the last record of the task in a slot.
    pub fn note_record(&mut self, index: u32, number: u64) {
        let chunk = self.chunks.get_mut(index as usize / CHUNK);
        if let Some(Some(chunk)) = chunk {
            let records = chunk.records.get_or_insert_with(|| Box::new([0; CHUNK]));
            records[index as usize % CHUNK] = number;
        }
    }

    /// The number of slots up to the last chunk.
    pub fn len(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Slots in memory, taken and free.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.chunks.iter().flatten().count() * CHUNK
    }
}

/// The slot must be taken, so its chunk exists.
impl Index<u32> for Slab {
    type Output = Slot;

    #[inline]
    fn index(&self, index: u32) -> &Slot {
        match self.slot(index) {
            Some(slot) => slot,
            None => unreachable!("the slot is taken, so its chunk exists"),
        }
    }
}

impl IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        match self.slot_mut(index) {
            Some(slot) => slot,
            None => unreachable!("the slot is taken, so its chunk exists"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::limits::{RECORD_NUMBER_BYTES, SLOT_BYTES};

    /// Takes a slot, adding a chunk if necessary.
    fn take(slab: &mut Slab) -> Option<(u32, u32)> {
        (slab.has_free() || slab.grow()).then(|| slab.take()).flatten()
    }

    #[test]
    fn freed_slot_is_reused_with_a_new_check() {
        let mut slab = Slab::new(300);
        let indexes: Vec<u32> =
            std::iter::from_fn(|| take(&mut slab)).map(|(index, _)| index).collect();
        assert_eq!(indexes, (0..300).collect::<Vec<_>>());
        let check = slab[7].check;
        slab.release(7);
        assert_ne!(slab[7].check, check);
        let again = Some((7, slab[7].check));
        assert_eq!((take(&mut slab), take(&mut slab)), (again, None));
        assert!(slab.slot(299).is_some() && slab.slot(512).is_none() && slab.slot(NONE).is_none());
    }

    #[test]
    fn free_chunks_are_released_and_keys_never_repeat() {
        let (mut slab, mut random) = (Slab::new(2_000), 1u64);
        let (mut used, mut keys) = (HashMap::new(), HashSet::new());
        let mut counted = 0;
        for round in 0..40_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The slab fills, empties, and fills again.
            let is_filling = (random >> 33) % 10 < if round / 4_000 % 2 == 0 { 8 } else { 2 };
            if is_filling {
                counted += if slab.has_free() || !slab.grow() { 0 } else { CHUNK };
                let Some((index, check)) = slab.take() else { continue };
                assert!(keys.insert((index, check)) && used.insert(index, check).is_none());
                assert_eq!(slab[index].check, check);
            } else if let Some(index) = used.keys().nth((random >> 40) as usize % 64).copied() {
                used.remove(&index);
                counted -= slab.release(index);
            }
            if round % 16 > 0 {
                continue;
            }
            assert_eq!(slab.slots(), counted);
            let chunks: HashSet<u32> = used.keys().map(|index| index / CHUNK as u32).collect();
            assert!(slab.slots() <= (chunks.len() + SPARE_CHUNKS as usize) * CHUNK);
            assert!(slab.chunks.last().is_none_or(Option::is_some));
            assert!(slab.chunks.iter().take(slab.first_gap).all(Option::is_some));
        }
        for index in used.into_keys() {
            slab.release(index);
        }
        assert!(slab.slots() == SPARE_CHUNKS as usize * CHUNK);
    }

    #[test]
    fn slot_and_record_number_fit_their_counted_bytes() {
        assert!(size_of::<Slot>() as u64 <= SLOT_BYTES, "{}", size_of::<Slot>());
        let numbers = size_of::<RecordNumbers>() / CHUNK;
        assert!(numbers as u64 <= RECORD_NUMBER_BYTES, "{numbers}");
    }
}
