//! Slots in the order of their stamps: append at the new end, remove anywhere, count and iterate.
//!
//! Entries are in chunks. A removed entry leaves a tombstone, an empty chunk is dropped, a sparse
//! chunk is compacted and joined with a neighbour. So chunks hold at least 16 live entries on
//! average, and all operations are O(log n), except [`Order::since`], which sums one small number
//! per chunk.

use std::collections::VecDeque;

const CHUNK: usize = 128;
const DEAD: u32 = u32::MAX;
/// Chunks up to which an order releases no memory.
const CHUNKS_RETAINED: usize = 4;

/// 12 bytes: a stamp in two halves and its slot.
#[derive(Clone, Copy)]
struct OrderEntry {
    high: u32,
    low: u32,
    slot: u32,
}

impl OrderEntry {
    fn new(stamp: u64, slot: u32) -> OrderEntry {
        OrderEntry { high: (stamp >> 32) as u32, low: stamp as u32, slot }
    }

    fn stamp(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

/// Entries with adjacent stamps, at least one of them live.
struct OrderChunk {
    /// The first stamp that the chunk ever had; all stamps of the preceding chunk are lower.
    first: u64,
    entries: Vec<OrderEntry>,
}

impl OrderChunk {
    fn compact(&mut self) {
        self.entries.retain(|entry| entry.slot != DEAD);
    }
}

/// An ordered set of slots.
#[derive(Default)]
pub(super) struct Order {
    chunks: VecDeque<OrderChunk>,
    /// Live entries of each chunk, contiguous for fast sums.
    lives: VecDeque<u32>,
    live: usize,
}

impl Order {
    /// Number of slots.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Appends a slot; `stamp` must be above all earlier stamps.
    pub fn push(&mut self, stamp: u64, slot: u32) {
        if self.chunks.back().is_none_or(|last| last.entries.len() >= CHUNK) {
            self.add_chunk(stamp);
        }
        if let (Some(last), Some(live)) = (self.chunks.back_mut(), self.lives.back_mut()) {
            debug_assert!(last.entries.last().is_none_or(|entry| entry.stamp() < stamp));
            last.entries.push(OrderEntry::new(stamp, slot));
            *live += 1;
            self.live += 1;
        }
    }

    /// Adds an empty chunk with this first stamp.
    #[cold]
    #[inline(never)]
    fn add_chunk(&mut self, stamp: u64) {
        // Most (agent, state) pairs of a shard never have many tasks.
        let capacity = if self.chunks.is_empty() { 4 } else { CHUNK };
        self.chunks.push_back(OrderChunk { first: stamp, entries: Vec::with_capacity(capacity) });
        self.lives.push_back(0);
    }

    /// Removes the slot with this stamp; false: no slot has it.
    pub fn remove(&mut self, stamp: u64) -> bool {
        let Some(at) = self.chunk_of(stamp) else { return false };
        let chunk = &mut self.chunks[at];
        let found = chunk.entries.binary_search_by_key(&stamp, OrderEntry::stamp);
        let Some(entry) = found.ok().and_then(|found| chunk.entries.get_mut(found)) else {
            return false;
        };
        if std::mem::replace(&mut entry.slot, DEAD) == DEAD {
            return false;
        }
        self.lives[at] -= 1;
        self.live -= 1;
        let (live, length) = (self.lives[at] as usize, self.chunks[at].entries.len());
        if live == 0 {
            self.chunks.remove(at);
            self.lives.remove(at);
            self.shrink();
        } else if live * 4 < length {
            self.chunks[at].compact();
            self.join(at);
        }
        true
    }

    /// Joins a chunk that was just compacted with a neighbour, if both are small.
    fn join(&mut self, at: usize) {
        let fits = |left: usize| (self.lives[left] + self.lives[left + 1]) as usize <= CHUNK / 2;
        let left = if at > 0 && fits(at - 1) {
            at - 1
        } else if at + 2 < self.chunks.len() && fits(at) {
            // Never with the newest chunk, which still grows.
            at
        } else {
            let is_newest = at + 1 == self.chunks.len();
            let entries = &mut self.chunks[at].entries;
            if !is_newest {
                entries.shrink_to_fit();
            } else if entries.capacity() > 8 * entries.len() {
                entries.shrink_to(2 * entries.len());
            }
            return;
        };
        if let (Some(mut right), Some(live)) =
            (self.chunks.remove(left + 1), self.lives.remove(left + 1))
        {
            right.compact();
            let joined = &mut self.chunks[left].entries;
            joined.retain(|entry| entry.slot != DEAD);
            joined.append(&mut right.entries);
            self.lives[left] += live;
        }
        self.shrink();
    }

    /// Releases the memory of removed chunks.
    #[inline]
    fn shrink(&mut self) {
        let (count, room) = (self.chunks.len(), self.chunks.capacity());
        if room > CHUNKS_RETAINED && count < room / 4 {
            self.chunks.shrink_to(2 * count);
            self.lives.shrink_to(2 * count);
        }
    }

    /// Heap bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        let entries = self.chunks.iter().map(|chunk| chunk.entries.capacity());
        entries.sum::<usize>() * size_of::<OrderEntry>()
            + self.chunks.capacity() * size_of::<OrderChunk>()
            + self.lives.capacity() * size_of::<u32>()
    }

    /// Index of the only chunk that may hold `stamp`.
    fn chunk_of(&self, stamp: u64) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.first <= stamp).checked_sub(1)
    }

    /// Number of slots with stamps of `floor` or above.
    pub fn since(&self, floor: u64) -> usize {
        let Some(at) = self.chunk_of(floor) else { return self.live };
        let older = self.chunks[at].entries.iter();
        let older = older.take_while(|entry| entry.stamp() < floor);
        let older = older.filter(|entry| entry.slot != DEAD).count();
        let newer: u32 = self.lives.range(at..).sum();
        newer as usize - older
    }

    /// The slots with stamps below `below`, newest first.
    pub fn newest(&self, below: u64) -> impl Iterator<Item = (u64, u32)> {
        let chunks = self.chunks.partition_point(|chunk| chunk.first < below);
        let entries = chunks.checked_sub(1).map_or(0, |last| {
            self.chunks[last].entries.partition_point(|entry| entry.stamp() < below)
        });
        let whole = self.chunks.range(..chunks.saturating_sub(1)).rev();
        let part = chunks.checked_sub(1).map(|last| &self.chunks[last].entries[..entries]);
        let slices = part.into_iter().chain(whole.map(|chunk| &chunk.entries[..]));
        slices
            .flat_map(|entries| entries.iter().rev())
            .filter(|entry| entry.slot != DEAD)
            .map(|entry| (entry.stamp(), entry.slot))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A pseudo-random generator, good enough for tests.
    struct Lcg(u64);

    impl Lcg {
        fn next(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % below
        }
    }

    fn agree(order: &Order, twin: &BTreeMap<u64, u32>, at: u64) {
        assert_eq!(order.len(), twin.len());
        assert_eq!(order.since(at), twin.range(at..).count());
        assert!(order.newest(at).eq(twin.range(..at).rev().map(|(s, v)| (*s, *v))));
        assert!(order.chunks.iter().all(|chunk| chunk.entries.len() <= CHUNK));
        assert_eq!(order.chunks.len(), order.lives.len());
        assert!(order.lives.iter().all(|live| *live > 0));
        assert!(order.chunks.len() <= twin.len() / 16 + 2);
    }

    #[test]
    fn order_behaves_like_a_sorted_map() {
        for (seed, keep) in [(1, 3), (2, 10), (3, 100), (4, 2)] {
            let (mut lcg, mut order) = (Lcg(seed), Order::default());
            let (mut twin, mut stamp) = (BTreeMap::new(), 1 << 40);
            for round in 0..6_000u32 {
                stamp += 1 + lcg.next(3);
                order.push(stamp, round);
                twin.insert(stamp, round);
                // Some entries stay long, most are removed soon, some are removed at the old end.
                let removed = match lcg.next(keep) {
                    0 => twin.range(stamp - lcg.next(600)..).next().map(|e| *e.0),
                    1 => twin.keys().next().copied(),
                    _ => twin.range(stamp - lcg.next(9)..).next().map(|e| *e.0),
                };
                if let Some(removed) = removed {
                    assert!(order.remove(removed));
                    assert!(!order.remove(removed));
                    twin.remove(&removed);
                }
                if round % 97 == 0 {
                    agree(&order, &twin, stamp - lcg.next(8_000));
                }
            }
            agree(&order, &twin, u64::MAX);
            agree(&order, &twin, 0);
            while let Some(stamp) = twin.keys().nth(twin.len() / 2).copied() {
                assert!(order.remove(stamp));
                twin.remove(&stamp);
            }
            assert!(order.chunks.is_empty());
        }
    }

    #[test]
    fn sparse_entries_share_chunks() {
        let mut order = Order::default();
        for stamp in 1..=100_000u64 {
            order.push(stamp, stamp as u32);
            if stamp > 50 && (stamp - 50) % 100 != 0 {
                order.remove(stamp - 50);
            }
        }
        assert!(order.len() > 1_000);
        assert!(order.chunks.len() <= order.len() / 16 + 2, "{}", order.chunks.len());
    }
}
