//! The shards of one worker, and their shared state: room, a clock, the charges of holders with
//! tasks in these shards.
//!
//! Invariant: apart from its shard, a call writes only to its group. Only one worker uses a group,
//! unless clients choose context ids. The state of all groups is read occasionally and written
//! rarely.

use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::{
    budget::Spare,
    charges::{Charges, Resource},
    id::GROUP,
    shard::Shard,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Why a finished task was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// `task_ttl_ms` after it ended.
    Ttl = 0,
    /// Its room was needed when `tasks_max` was reached.
    Count = 1,
    /// Its room was needed when `store_bytes_max` was reached.
    Bytes = 2,
    /// Its owner's name was displaced when `owners_max` was reached.
    Owners = 3,
}

impl Eviction {
    /// Number of reasons.
    pub const COUNT: usize = 4;
}

/// Bits of a stamp below its milliseconds: they order status changes within one millisecond, and
/// contain the group.
const TIE_BITS: u32 = 20;

/// The lower bound of the stamps of `unix_ms` and later.
pub(super) fn floor_of(unix_ms: u64) -> u64 {
    if unix_ms >> (u64::BITS - TIE_BITS) == 0 { unix_ms << TIE_BITS } else { u64::MAX }
}

/// [`GROUP`] shards, and their shared state.
pub(super) struct Group {
    pub shards: [CachePadded<Mutex<Shard>>; GROUP],
    pub tasks: Spare,
    pub bytes: Spare,
    pub slots: Spare,
    /// Its number, and the number of groups: no two groups create the same stamp.
    number: u64,
    groups: u64,
    stamp: AtomicU64,
    evicted: [AtomicU64; Eviction::COUNT],
    pub charges: Charges,
}

impl Group {
    /// Group `number` of `groups`; a shard has at most `index_max` slots, and `capacity` is each
    /// group's part of `tasks_max` and of `store_bytes_max`.
    pub fn new(number: usize, groups: usize, index_max: u32, capacity: [usize; 2]) -> Group {
        Group {
            shards: [(); GROUP].map(|()| CachePadded::new(Mutex::new(Shard::new(index_max)))),
            tasks: Spare::default(),
            bytes: Spare::default(),
            slots: Spare::default(),
            number: number as u64,
            groups: groups as u64,
            // All stamps of a group are equal modulo the number of groups.
            stamp: AtomicU64::new(number as u64),
            evicted: [const { AtomicU64::new(0) }; Eviction::COUNT],
            charges: Charges::new(capacity),
        }
    }

    /// A panic under the lock is a caller's bug; the tasks are intact and other calls continue.
    #[inline]
    pub fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard % GROUP].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stamp above all earlier stamps of the group. Its time is `unix_ms`, or that of the last
    /// stamp if that is later.
    ///
    /// A stamp created under a shard's lock keeps the shard's orders sorted without a comparison.
    pub fn stamp(&self, unix_ms: u64) -> u64 {
        let now = floor_of(unix_ms.min(u64::MAX >> (TIE_BITS + 1))) | self.number;
        let next = |last: u64| Some(now.max(last + self.groups));
        match self.stamp.fetch_update(Relaxed, Relaxed, next) {
            Ok(last) | Err(last) => now.max(last + self.groups),
        }
    }

    /// The time of the group's last stamp.
    pub fn last_ms(&self) -> u64 {
        self.last_stamp() >> TIE_BITS
    }

    /// The group's last stamp.
    pub fn last_stamp(&self) -> u64 {
        self.stamp.load(Relaxed)
    }

    /// Prevents later stamps before the millisecond of `stamp`.
    pub fn catch_up(&self, stamp: u64) {
        self.stamp.fetch_max(stamp >> TIE_BITS << TIE_BITS | self.number, Relaxed);
    }

    /// The unused amount that the group has taken of a limit.
    pub fn spare(&self, resource: Resource) -> &Spare {
        match resource {
            Resource::Tasks => &self.tasks,
            Resource::Bytes => &self.bytes,
        }
    }

    pub fn count(&self, why: Eviction) {
        self.evicted[why as usize].fetch_add(1, Relaxed);
    }

    pub fn evicted(&self) -> [u64; Eviction::COUNT] {
        std::array::from_fn(|why| self.evicted[why].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms_of(stamp: u64) -> u64 {
        stamp >> TIE_BITS
    }

    #[test]
    fn stamps_increase_and_follow_the_clock() {
        for (number, groups) in [(0, 1), (0, 2), (1, 2), (63, 64)] {
            let group = Group::new(number, groups, 1, [1; 2]);
            let first = group.stamp(5);
            let second = group.stamp(5);
            let back = group.stamp(4);
            assert!(first < second && second < back);
            assert_eq!((ms_of(first), ms_of(back)), (5, 5));
            assert_eq!(ms_of(group.stamp(6)), 6);
            assert!(first >= floor_of(5) && back < floor_of(6));
            assert_eq!(floor_of(u64::MAX), u64::MAX);
            let end = group.stamp(u64::MAX);
            assert!(group.stamp(0) > end);
        }
    }

    #[test]
    fn groups_never_create_equal_stamps() {
        let groups = [0, 1, 2, 3].map(|number| Group::new(number, 4, 1, [1; 2]));
        let mut seen = std::collections::HashSet::new();
        for round in 0..1_000u64 {
            let group = &groups[(round * 7 % 11 % 4) as usize];
            if round % 100 == 0 {
                group.catch_up(groups[3].last_stamp());
            }
            assert!(seen.insert(group.stamp(round / 50)));
        }
    }

    #[test]
    fn lagging_group_clock_catches_up() {
        let [ahead, lagging] = [0, 1].map(|number| Group::new(number, 2, 1, [1; 2]));
        let far = ahead.stamp(9_000);
        lagging.catch_up(far);
        assert_eq!(ms_of(lagging.stamp(1_000)), 9_000);
        // A clock that is ahead does not move back.
        ahead.catch_up(floor_of(5));
        assert!(ahead.stamp(1_000) > far);
    }
}
