//! Slots in the order of their stamps: append at the new end, remove anywhere, count and walk.
//!
//! Entries lie in chunks; a removed entry leaves a tombstone, an empty chunk goes, a sparse one is
//! squeezed and joined with its neighbour. So a chunk holds 16 live entries on average or more, and
//! everything but [`Order::since`] is O(log n); that is O(chunks) from the nearer end.

use std::collections::VecDeque;

const CHUNK: usize = 128;
const DEAD: u32 = u32::MAX;

/// 12 bytes: a stamp in two halves and its slot.
#[derive(Clone, Copy)]
struct Entry {
    high: u32,
    low: u32,
    slot: u32,
}

impl Entry {
    fn new(stamp: u64, slot: u32) -> Entry {
        Entry { high: (stamp >> 32) as u32, low: stamp as u32, slot }
    }

    fn stamp(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

/// Never empty of live entries.
struct Chunk {
    entries: Vec<Entry>,
    live: u32,
}

impl Chunk {
    fn first(&self) -> u64 {
        self.entries.first().map_or(0, Entry::stamp)
    }

    fn squeeze(&mut self) {
        self.entries.retain(|entry| entry.slot != DEAD);
    }
}

/// An ordered set of slots.
#[derive(Default)]
pub(super) struct Order {
    chunks: VecDeque<Chunk>,
    live: usize,
}

impl Order {
    /// Number of slots.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Appends a slot; `stamp` must be above all stamps before it.
    pub fn push(&mut self, stamp: u64, slot: u32) {
        let is_first = self.chunks.is_empty();
        let last = match self.chunks.back_mut() {
            Some(last) if last.entries.len() < CHUNK => last,
            Some(_) | None => {
                // Most (agent, state) pairs of a shard never see many tasks.
                let capacity = if is_first { 4 } else { CHUNK };
                self.chunks.push_back(Chunk { entries: Vec::with_capacity(capacity), live: 0 });
                let end = self.chunks.len() - 1;
                &mut self.chunks[end]
            }
        };
        debug_assert!(last.entries.last().is_none_or(|entry| entry.stamp() < stamp));
        last.entries.push(Entry::new(stamp, slot));
        last.live += 1;
        self.live += 1;
    }

    /// Removes the slot with this stamp; false when there is none.
    pub fn remove(&mut self, stamp: u64) -> bool {
        let Some(at) = self.chunk_of(stamp) else { return false };
        let chunk = &mut self.chunks[at];
        let Ok(index) = chunk.entries.binary_search_by_key(&stamp, Entry::stamp) else {
            return false;
        };
        if chunk.entries[index].slot == DEAD {
            return false;
        }
        chunk.entries[index].slot = DEAD;
        chunk.live -= 1;
        self.live -= 1;
        let (live, length) = (chunk.live as usize, chunk.entries.len());
        if live == 0 {
            self.chunks.remove(at);
        } else if live * 4 < length {
            self.chunks[at].squeeze();
            self.join(at);
        }
        true
    }

    /// Joins a chunk that was just squeezed with a neighbour, if both are small.
    fn join(&mut self, at: usize) {
        let fits = |a: &Chunk, b: &Chunk| (a.live + b.live) as usize <= CHUNK / 2;
        let left = match at.checked_sub(1) {
            Some(left) if fits(&self.chunks[left], &self.chunks[at]) => left,
            // The newest chunk still grows by itself.
            Some(_) | None
                if at + 2 < self.chunks.len() && fits(&self.chunks[at], &self.chunks[at + 1]) =>
            {
                at
            }
            Some(_) | None => {
                if at + 1 < self.chunks.len() {
                    self.chunks[at].entries.shrink_to_fit();
                }
                return;
            }
        };
        if let Some(mut right) = self.chunks.remove(left + 1) {
            right.squeeze();
            let joined = &mut self.chunks[left];
            joined.squeeze();
            joined.entries.extend_from_slice(&right.entries);
            joined.live += right.live;
        }
    }

    /// Index of the chunk that holds `stamp` if any does.
    fn chunk_of(&self, stamp: u64) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.first() <= stamp).checked_sub(1)
    }

    /// Number of slots whose stamp is `floor` or above.
    pub fn since(&self, floor: u64) -> usize {
        let Some(at) = self.chunk_of(floor) else { return self.live };
        let count = |chunks: &mut dyn Iterator<Item = &Chunk>| -> usize {
            chunks.map(|chunk| chunk.live as usize).sum()
        };
        let older = self.chunks[at].entries.iter();
        let older = older.take_while(|entry| entry.stamp() < floor);
        let older = older.filter(|entry| entry.slot != DEAD).count();
        let newer = if at > self.chunks.len() / 2 {
            count(&mut self.chunks.range(at..))
        } else {
            self.live - count(&mut self.chunks.range(..at))
        };
        newer - older
    }

    /// The slots with stamps below `below`, newest first.
    pub fn newest(&self, below: u64) -> impl Iterator<Item = (u64, u32)> {
        let chunks = self.chunks.partition_point(|chunk| chunk.first() < below);
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

    /// A generator good enough to mix a test.
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
        assert!(order.chunks.iter().all(|c| c.live > 0 && c.entries.len() <= CHUNK));
        assert!(order.chunks.len() <= twin.len() / 16 + 2);
    }

    #[test]
    fn an_order_is_a_sorted_map() {
        for (seed, keep) in [(1, 3), (2, 10), (3, 100), (4, 2)] {
            let (mut lcg, mut order) = (Lcg(seed), Order::default());
            let (mut twin, mut stamp) = (BTreeMap::new(), 1 << 40);
            for round in 0..6_000u32 {
                stamp += 1 + lcg.next(3);
                order.push(stamp, round);
                twin.insert(stamp, round);
                // Some live long, most go soon, some go from the old end.
                let gone = match lcg.next(keep) {
                    0 => twin.range(stamp - lcg.next(600)..).next().map(|e| *e.0),
                    1 => twin.keys().next().copied(),
                    _ => twin.range(stamp - lcg.next(9)..).next().map(|e| *e.0),
                };
                if let Some(gone) = gone {
                    assert!(order.remove(gone));
                    assert!(!order.remove(gone));
                    twin.remove(&gone);
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
    fn a_few_that_stay_among_many_that_go_share_chunks() {
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
