//! What the whole store may hold, counted before it is held; the clock of status changes.
//!
//! Tasks and bytes are taken first and filled then, so no limit is exceeded even for a moment.

use super::{
    LAST_WORDS,
    id::SHARDS,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};
use crate::limits::Limits;

/// Bytes for the last words of tasks that reach a limit. One at a time in each shard can use them:
/// it has finished then and can be evicted.
const KEPT_BACK: usize = SHARDS * LAST_WORDS;

/// Why a finished task left the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// `task_ttl_ms` after it ended.
    Ttl = 0,
    /// It was the oldest of `tasks_max`.
    Count = 1,
    /// It was the oldest when `store_bytes_max` was reached.
    Bytes = 2,
}

/// Bits of a stamp below its milliseconds: status changes that one millisecond can tell apart.
const TIE_BITS: u32 = 20;

/// The stamp below which nothing of `unix_ms` or later lies.
pub(super) fn floor_of(unix_ms: u64) -> u64 {
    if unix_ms >> (u64::BITS - TIE_BITS) == 0 { unix_ms << TIE_BITS } else { u64::MAX }
}

/// Counters and limits shared by all shards.
pub(super) struct Room {
    tasks: AtomicUsize,
    bytes: AtomicUsize,
    evicted: [AtomicU64; 3],
    stamp: AtomicU64,
    /// The monotonic clock when somebody swept last.
    swept_ms: AtomicU64,
    tasks_max: usize,
    bytes_max: usize,
    pub ttl_ms: u64,
}

impl Room {
    pub fn new(limits: &Limits) -> Room {
        Room {
            tasks: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            evicted: [const { AtomicU64::new(0) }; 3],
            stamp: AtomicU64::new(0),
            swept_ms: AtomicU64::new(0),
            tasks_max: limits.tasks_max,
            bytes_max: limits.store_bytes_max - KEPT_BACK.min(limits.store_bytes_max / 2),
            ttl_ms: limits.task_ttl_ms,
        }
    }

    /// Takes room for one task; false when there is none.
    pub fn take_task(&self) -> bool {
        take(&self.tasks, 1, self.tasks_max)
    }

    pub fn give_task(&self) {
        self.tasks.fetch_sub(1, Relaxed);
    }

    /// Takes room for `bytes`; false when there is none.
    pub fn take_bytes(&self, bytes: usize) -> bool {
        take(&self.bytes, bytes, self.bytes_max)
    }

    pub fn give_bytes(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// Corrects what was taken to what is held; the last words of a task are taken only here.
    pub fn settle_bytes(&self, taken: usize, held: usize) {
        self.give_bytes(taken.saturating_sub(held));
        if held > taken {
            self.bytes.fetch_add(held - taken, Relaxed);
        }
    }

    /// True when `bytes` would fit into an empty store.
    pub fn could_hold(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max
    }

    pub fn count(&self, why: Eviction) {
        self.evicted[why as usize].fetch_add(1, Relaxed);
    }

    pub fn tasks(&self) -> usize {
        self.tasks.load(Relaxed)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The monotonic clock for those who have none: it goes on with each sweep.
    pub fn swept_ms(&self) -> u64 {
        self.swept_ms.load(Relaxed)
    }

    pub fn note_sweep(&self, mono_ms: u64) {
        self.swept_ms.store(mono_ms, Relaxed);
    }

    pub fn evicted(&self) -> [u64; 3] {
        [0, 1, 2].map(|why| self.evicted[why].load(Relaxed))
    }

    /// A stamp above all stamps before it, of `unix_ms` or, if that has been passed, close to it.
    ///
    /// Taken under a shard's lock it keeps the shard's orders sorted without a look at them.
    pub fn stamp(&self, unix_ms: u64) -> u64 {
        let now = floor_of(unix_ms.min(u64::MAX >> (TIE_BITS + 1)));
        let next = |last: u64| Some(now.max(last + 1));
        match self.stamp.fetch_update(Relaxed, Relaxed, next) {
            Ok(last) | Err(last) => now.max(last + 1),
        }
    }
}

fn take(count: &AtomicUsize, more: usize, most: usize) -> bool {
    let taken = |now: usize| now.checked_add(more).filter(|sum| *sum <= most);
    count.fetch_update(Relaxed, Relaxed, taken).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms_of(stamp: u64) -> u64 {
        stamp >> TIE_BITS
    }

    #[test]
    fn stamps_rise_and_keep_to_the_clock() {
        let room = Room::new(&Limits::default());
        let first = room.stamp(5);
        let second = room.stamp(5);
        let back = room.stamp(4);
        assert!(first < second && second < back);
        assert_eq!((ms_of(first), ms_of(back)), (5, 5));
        assert_eq!(ms_of(room.stamp(6)), 6);
        assert!(first >= floor_of(5) && back < floor_of(6));
        assert_eq!(floor_of(u64::MAX), u64::MAX);
        let end = room.stamp(u64::MAX);
        assert!(room.stamp(0) > end);
    }

    #[test]
    fn room_is_never_overdrawn() {
        let limits = Limits { tasks_max: 2, store_bytes_max: 20, ..Limits::default() };
        let room = Room::new(&limits);
        assert!(room.take_task() && room.take_task() && !room.take_task());
        room.give_task();
        assert!(room.take_task());
        assert!(room.take_bytes(10) && !room.take_bytes(1) && !room.take_bytes(usize::MAX));
        assert_eq!((room.tasks(), room.bytes()), (2, 10));
    }
}
