//! Deadlines of a worker's connections, in slots of [`TICK_MS`].
//!
//! Every connection has at most one entry, linked in place: no deadline allocates. A later deadline
//! does not move the entry until the entry fires, an earlier one moves it at once. An entry never
//! fires early, and at most one slot late.

use std::{num::NonZeroU32, task::Waker};

/// Width of a slot in milliseconds: the resolution of every timeout.
pub(super) const TICK_MS: u64 = 64;
/// Number of slots; deadlines beyond `TICK_MS * BUCKETS` (65 s) are checked again in between.
const BUCKETS: usize = 1024;
/// No entry.
const NONE: u32 = u32::MAX;
/// No deadline.
pub(super) const NEVER: u64 = u64::MAX;

/// Identifies a connection in the wheel of its worker. The number is the index plus one, so that an
/// optional slot has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerSlot(NonZeroU32);

impl TimerSlot {
    fn at(index: u32) -> TimerSlot {
        TimerSlot(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

struct TimerEntry {
    waker: Option<Waker>,
    due_ms: u64,
    /// The number of the slot since the start while the entry is linked, [`NEVER`] otherwise.
    tick: u64,
    next: u32,
    prev: u32,
}

/// The wheel.
pub(super) struct Wheel {
    entries: Vec<TimerEntry>,
    free: u32,
    heads: Vec<u32>,
    /// Slots up to and including this one have fired.
    cursor: u64,
}

impl Wheel {
    /// An empty wheel at `now_ms`.
    pub(super) fn new(now_ms: u64) -> Wheel {
        Wheel {
            entries: Vec::new(),
            free: NONE,
            heads: vec![NONE; BUCKETS],
            cursor: now_ms / TICK_MS,
        }
    }

    /// Adds a connection, without a deadline.
    pub(super) fn insert(&mut self, waker: Waker) -> TimerSlot {
        let entry =
            TimerEntry { waker: Some(waker), due_ms: NEVER, tick: NEVER, next: NONE, prev: NONE };
        if self.free != NONE {
            let index = self.free;
            let old = &mut self.entries[index as usize];
            self.free = old.next;
            *old = entry;
            return TimerSlot::at(index);
        }
        let index = self.entries.len() as u32;
        self.entries.push(entry);
        TimerSlot::at(index)
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, slot: TimerSlot) {
        self.unlink(slot.index());
        let entry = &mut self.entries[slot.index() as usize];
        entry.waker = None;
        entry.next = self.free;
        self.free = slot.index();
    }

    /// Sets the deadline of a connection; true if its entry was linked or moved to an earlier slot.
    pub(super) fn set(&mut self, slot: TimerSlot, due_ms: u64) -> bool {
        let entry = &mut self.entries[slot.index() as usize];
        entry.due_ms = due_ms;
        // `NEVER / TICK_MS` is below `NEVER`: an entry without deadline stays unlinked.
        if due_ms == NEVER || entry.tick <= due_ms.div_ceil(TICK_MS) {
            return false;
        }
        self.unlink(slot.index());
        self.link(slot.index());
        true
    }

    /// Fires due entries, and moves the other entries of the same slots.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let end = now_ms / TICK_MS;
        let first = (self.cursor + 1).max(end.saturating_sub(BUCKETS as u64 - 1));
        for tick in first..=end {
            self.cursor = tick;
            let mut index = std::mem::replace(&mut self.heads[tick as usize % BUCKETS], NONE);
            while index != NONE {
                let entry = &mut self.entries[index as usize];
                let next = entry.next;
                (entry.tick, entry.next, entry.prev) = (NEVER, NONE, NONE);
                if entry.due_ms <= now_ms {
                    if let Some(waker) = &entry.waker {
                        waker.wake_by_ref();
                    }
                } else if entry.due_ms != NEVER {
                    self.link(index);
                }
                index = next;
            }
        }
    }

    /// The time of the next entry that [`Wheel::expire`] checks.
    pub(super) fn next_ms(&self) -> Option<u64> {
        (self.cursor + 1..self.cursor + BUCKETS as u64)
            .find(|tick| self.heads[*tick as usize % BUCKETS] != NONE)
            .map(|tick| tick * TICK_MS)
    }

    /// Wakes every connection.
    pub(super) fn wake_all(&self) {
        self.entries.iter().filter_map(|entry| entry.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    fn link(&mut self, index: u32) {
        let due = self.entries[index as usize].due_ms.div_ceil(TICK_MS);
        let tick = due.clamp(self.cursor + 1, self.cursor + BUCKETS as u64 - 1);
        let bucket = tick as usize % BUCKETS;
        let next = std::mem::replace(&mut self.heads[bucket], index);
        if next != NONE {
            self.entries[next as usize].prev = index;
        }
        let entry = &mut self.entries[index as usize];
        (entry.tick, entry.next, entry.prev) = (tick, next, NONE);
    }

    fn unlink(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if entry.tick == NEVER {
            return;
        }
        let (tick, next, prev) = (entry.tick, entry.next, entry.prev);
        (entry.tick, entry.next, entry.prev) = (NEVER, NONE, NONE);
        if next != NONE {
            self.entries[next as usize].prev = prev;
        }
        if prev == NONE {
            self.heads[tick as usize % BUCKETS] = next;
        } else {
            self.entries[prev as usize].next = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn entry(wheel: &mut Wheel) -> (TimerSlot, Arc<WakeCount>) {
        let count = Arc::new(WakeCount::default());
        (wheel.insert(Arc::clone(&count).into()), count)
    }

    fn fired(count: &WakeCount) -> usize {
        count.0.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn a_deadline_fires_once_never_early_and_one_slot_late_at_most() {
        let mut wheel = Wheel::new(1_000);
        let (slot, count) = entry(&mut wheel);
        assert!(wheel.set(slot, 3_001));
        wheel.expire(3_000);
        assert_eq!(fired(&count), 0);
        wheel.expire(3_001 + TICK_MS);
        assert_eq!(fired(&count), 1);
        wheel.expire(90_000);
        assert_eq!((fired(&count), wheel.next_ms()), (0, None));
    }

    #[test]
    fn a_later_deadline_moves_nothing_until_the_entry_fires() {
        let mut wheel = Wheel::new(0);
        let (slot, count) = entry(&mut wheel);
        assert!(wheel.set(slot, 640));
        assert!(!wheel.set(slot, 100_000));
        assert_eq!(wheel.next_ms(), Some(640));
        wheel.expire(640);
        assert_eq!(fired(&count), 0);
        assert!(!wheel.set(slot, NEVER));
        wheel.expire(200_000);
        assert_eq!((fired(&count), wheel.next_ms()), (0, None));
    }

    #[test]
    fn an_earlier_deadline_moves_the_only_entry() {
        let mut wheel = Wheel::new(0);
        let (slot, count) = entry(&mut wheel);
        assert!(wheel.set(slot, 75_000));
        assert!(wheel.set(slot, 10_000));
        wheel.expire(10_048);
        assert_eq!((fired(&count), wheel.next_ms()), (1, None));
    }

    #[test]
    fn deadline_beyond_the_horizon_fires_at_its_time() {
        let mut wheel = Wheel::new(0);
        let (slot, count) = entry(&mut wheel);
        wheel.set(slot, 10 * TICK_MS * BUCKETS as u64);
        let mut now = 0;
        while let Some(next) = wheel.next_ms() {
            assert!(next > now && fired(&count) == 0);
            now = next;
            wheel.expire(now);
        }
        assert_eq!((fired(&count), now), (1, 10 * TICK_MS * BUCKETS as u64));
    }

    #[test]
    fn random_deadlines_fire_once_and_at_most_one_slot_late() {
        let mut wheel = Wheel::new(0);
        let mut live = Vec::new();
        let (mut now, mut seed) = (0, 7_u64);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = seed >> 33;
            match random % 5 {
                0 if live.len() < 50 => {
                    let (slot, count) = entry(&mut wheel);
                    live.push((slot, count, NEVER));
                }
                1 if !live.is_empty() => {
                    let at = random as usize / 5 % live.len();
                    wheel.remove(live.swap_remove(at).0);
                }
                2 | 3 if !live.is_empty() => {
                    let at = random as usize / 5 % live.len();
                    live[at].2 = now + random % 200_000;
                    wheel.set(live[at].0, live[at].2);
                }
                _ => {
                    now += random % 3_000;
                    wheel.expire(now);
                    for (_, count, due) in &mut live {
                        let fired = fired(count);
                        assert!(fired <= 1 && (fired == 0 || *due <= now));
                        assert!(fired == 1 || *due > now.saturating_sub(TICK_MS));
                        if fired == 1 {
                            *due = NEVER;
                        }
                    }
                }
            }
        }
    }
}
