//! The running tasks of each owner and their bytes, reservations included. A task that waits for
//! its client does not run: it is not counted here until a message or its agent continues it.
//!
//! Invariants: bytes are taken from a share before they are taken from the store, since a caller at
//! its share must not evict tasks of others. The bytes counted for a running task are at least its
//! size, and equal to it between two edits. A share is never exceeded, except after a reload has
//! reduced it.
//!
//! The groups of shards hold the taken part of a share. A group takes a portion more than it needs
//! and returns its surplus, so workers that serve the same owner seldom write shared memory.

use super::{
    Refused,
    slab::Slot,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};
use crate::service::{OwnerIndex, RunningShare, quota::RunningPermit};

/// Maximum tasks and bytes that a group takes at a time beyond its need.
const PORTION_TASKS: u64 = 64;
const PORTION_BYTES: u64 = 256 * 1024;

/// How often a call gathers the groups' caches before it is refused.
const ROUNDS: usize = 8;

/// All groups together cache at most this fraction of a share.
const PORTIONS: u64 = 32;

/// The counts of each owner; index 0 belongs to no owner and is not counted.
pub(super) struct RunningTasks {
    owners: Box<[RunningOfOwner]>,
    /// The cache of each group for each owner: all owners of a group are contiguous, group by
    /// group.
    spares: Box<[SpareOfOwner]>,
    groups: usize,
    /// A portion is a share shifted right by this number of bits, so that a share has [`PORTIONS`]
    /// portions per group.
    portion_bits: u32,
}

/// The unit of a count: tasks, or bytes.
#[derive(Clone, Copy)]
enum ShareUnit {
    Tasks = 0,
    Bytes = 1,
}

/// The amounts that all groups have taken for one owner, used or not.
struct RunningOfOwner {
    /// By [`ShareUnit`].
    acquired: [AtomicU64; 2],
    /// The `own_most` and the `kib_max` of the share of the owner's last new task.
    own_most: AtomicU32,
    kib_max: AtomicU32,
}

/// The amounts that one group caches for one owner.
#[derive(Default)]
struct SpareOfOwner(
    /// By [`ShareUnit`].
    [AtomicU64; 2],
);

impl Default for RunningOfOwner {
    fn default() -> RunningOfOwner {
        let any = || AtomicU32::new(RunningShare::ANY);
        RunningOfOwner { acquired: Default::default(), own_most: any(), kib_max: any() }
    }
}

/// Tasks or bytes of one owner.
struct Count<'r> {
    /// Taken by all groups.
    acquired: &'r AtomicU64,
    of: &'r RunningTasks,
    owner: usize,
    kind: ShareUnit,
}

impl<'r> Count<'r> {
    fn spare(&self, group: usize) -> &'r AtomicU64 {
        let of_group = group * self.of.owners.len();
        &self.of.spares[of_group + self.owner].0[self.kind as usize]
    }

    /// The amount that a group takes of a share of this size beyond its need.
    fn portion(&self, most: u64) -> u64 {
        let portion_max = match self.kind {
            ShareUnit::Tasks => PORTION_TASKS,
            ShareUnit::Bytes => PORTION_BYTES,
        };
        portion_max.min(most >> self.of.portion_bits)
    }

    /// Takes `wanted` for a group; false: the use would exceed `most`.
    #[inline]
    fn take(&self, group: usize, wanted: u64, most: u64) -> bool {
        let less = |free: u64| free.checked_sub(wanted);
        // The group's cache counts as taken. While the taken amount is within the share, so is any
        // use of the cache.
        let is_within = self.acquired.load(Relaxed) <= most;
        (is_within && self.spare(group).fetch_update(Relaxed, Relaxed, less).is_ok())
            || self.take_more(group, wanted, most)
    }

    #[inline(never)]
    fn take_more(&self, group: usize, wanted: u64, most: u64) -> bool {
        let portion = self.portion(most);
        if self.take_within(wanted.saturating_add(portion), most) {
            self.spare(group).fetch_add(portion, Relaxed);
            return true;
        }
        // Near the end of a share the caches are collected, so that no group caches what another
        // could use. Other threads may take portions meanwhile, so a few rounds are needed.
        for _ in 0..ROUNDS {
            let mut gathered = 0;
            for of_group in 0..self.of.groups {
                let cached = self.spare(of_group).swap(0, Relaxed);
                self.acquired.fetch_sub(cached, Relaxed);
                gathered += cached;
            }
            if self.take_within(wanted, most) {
                return true;
            }
            if gathered == 0 {
                return false;
            }
        }
        false
    }

    fn take_within(&self, wanted: u64, most: u64) -> bool {
        let more =
            |acquired: u64| acquired.checked_add(wanted).filter(|acquired| *acquired <= most);
        self.acquired.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Returns an unused amount of a group; `most` is the owner's share.
    #[inline]
    fn give_back(&self, group: usize, amount: u64, most: u64) {
        let portion = self.portion(most);
        let spare = self.spare(group);
        if spare.fetch_add(amount, Relaxed) + amount > 2 * portion {
            let retained = |free: u64| (free > 2 * portion).then_some(portion);
            if let Ok(free) = spare.fetch_update(Relaxed, Relaxed, retained) {
                self.acquired.fetch_sub(free - portion, Relaxed);
            }
        }
    }

    /// The used amount.
    fn used(&self) -> u64 {
        // In this order, an amount that is taken from a cache between the two reads counts as used.
        let acquired = self.acquired.load(Relaxed);
        let cached = (0..self.of.groups).map(|group| self.spare(group).load(Relaxed));
        acquired.saturating_sub(cached.sum())
    }
}

/// The account in which a task counts as running.
#[derive(Clone, Copy)]
pub(super) enum CountedFor<'s> {
    /// The account of its owner.
    Owner(OwnerIndex),
    /// The account of a caller without an owner number.
    Permit(&'s RunningPermit),
}

impl Slot {
    /// The account in which the slot's task counts as running; `None`: it does not count.
    #[inline]
    pub fn counted_for(&self) -> Option<CountedFor<'_>> {
        match self.scope.owner {
            OwnerIndex(0) => {
                let permit = self.waiters.as_ref().and_then(|waiters| waiters.running.as_ref());
                permit.map(CountedFor::Permit)
            }
            owner => Some(CountedFor::Owner(owner)),
        }
    }
}

fn bytes_of(kib_max: u32) -> u64 {
    if kib_max == RunningShare::ANY { u64::MAX } else { u64::from(kib_max) * 1024 }
}

fn tasks_of(most: u32) -> u64 {
    if most == RunningShare::ANY { u64::MAX } else { u64::from(most) }
}

impl RunningTasks {
    /// Counts for owners up to this index, in `groups` groups of shards.
    pub fn new(owners_max: usize, groups: usize) -> RunningTasks {
        let spares = (owners_max + 1) * groups;
        RunningTasks {
            owners: (0..=owners_max).map(|_| RunningOfOwner::default()).collect(),
            spares: (0..spares).map(|_| SpareOfOwner::default()).collect(),
            groups,
            portion_bits: (groups.next_power_of_two() as u64 * PORTIONS).ilog2(),
        }
    }

    /// Counts a task of an owner with this share, in a group.
    ///
    /// # Errors
    /// [`Refused::ShareExhausted`], [`Refused::ShareBytesExhausted`].
    pub fn take(
        &self,
        group: usize,
        owner: OwnerIndex,
        share: Option<&RunningShare>,
    ) -> Result<(), Refused> {
        let Some(of_owner) = self.of(owner) else { return Ok(()) };
        let any = RunningShare::of_owner(RunningShare::ANY);
        let RunningShare { most, own_most, begin_kib_max, kib_max, .. } = *share.unwrap_or(&any);
        for (stored, of_share) in [(&of_owner.own_most, own_most), (&of_owner.kib_max, kib_max)] {
            if stored.load(Relaxed) != of_share {
                stored.store(of_share, Relaxed);
            }
        }
        let begin_max = bytes_of(begin_kib_max);
        let bytes = self.bytes(owner);
        if bytes.acquired.load(Relaxed) >= begin_max && bytes.used() >= begin_max {
            return Err(Refused::ShareBytesExhausted(begin_kib_max));
        }
        match self.tasks(owner).take(group, 1, tasks_of(most)) {
            true => Ok(()),
            false => Err(Refused::ShareExhausted(most)),
        }
    }

    /// Counts a task that its agent continues without a message, within the share of the owner's
    /// last new task.
    ///
    /// # Errors
    /// [`Refused::ShareExhausted`].
    pub fn take_again(&self, group: usize, owner: OwnerIndex) -> Result<(), Refused> {
        let Some(of_owner) = self.of(owner) else { return Ok(()) };
        let most = of_owner.own_most.load(Relaxed);
        match self.tasks(owner).take(group, 1, tasks_of(most)) {
            true => Ok(()),
            false => Err(Refused::ShareExhausted(most)),
        }
    }

    /// Subtracts a task of an owner.
    pub fn give_back(&self, group: usize, owner: OwnerIndex) {
        if let Some(of_owner) = self.of(owner) {
            let most = tasks_of(of_owner.own_most.load(Relaxed));
            self.tasks(owner).give_back(group, 1, most);
        }
    }

    /// Takes bytes for a running task of a group.
    ///
    /// # Errors
    /// [`Refused::ShareBytesExhausted`].
    #[inline(never)]
    pub fn take_bytes(
        &self,
        group: usize,
        counted_for: CountedFor<'_>,
        bytes: usize,
    ) -> Result<(), Refused> {
        let (is_acquired, kib_max) = match counted_for {
            CountedFor::Owner(owner) => {
                let Some(of_owner) = self.of(owner) else { return Ok(()) };
                let kib_max = of_owner.kib_max.load(Relaxed);
                (self.bytes(owner).take(group, bytes as u64, bytes_of(kib_max)), kib_max)
            }
            CountedFor::Permit(permit) => {
                let (held, kib_max) = permit.bytes();
                (held.take(bytes, kib_max), kib_max)
            }
        };
        if is_acquired { Ok(()) } else { Err(Refused::ShareBytesExhausted(kib_max)) }
    }

    /// Returns bytes of a task to a group.
    #[inline(never)]
    pub fn give_back_bytes(&self, group: usize, counted_for: CountedFor<'_>, bytes: usize) {
        match counted_for {
            CountedFor::Owner(owner) => {
                if let Some(of_owner) = self.of(owner) {
                    let most = bytes_of(of_owner.kib_max.load(Relaxed));
                    self.bytes(owner).give_back(group, bytes as u64, most);
                }
            }
            CountedFor::Permit(permit) => permit.bytes().0.give_back(bytes),
        }
    }

    /// Calls `each` with the number of each owner with a count above 0. An owner counted meanwhile
    /// may be missed, but then a task or a call protects its number.
    pub fn each_counted(&self, mut each: impl FnMut(u32)) {
        (1..self.owners.len() as u32)
            .filter(|number| self.is_counted(OwnerIndex(*number)))
            .for_each(&mut each);
    }

    /// Whether an owner has a count above 0.
    pub fn is_counted(&self, owner: OwnerIndex) -> bool {
        self.of(owner).is_some_and(|of_owner| {
            let has_acquired = of_owner.acquired.iter().any(|acquired| acquired.load(Relaxed) > 0);
            let used = |kind| self.counted(owner, kind).used();
            has_acquired && (used(ShareUnit::Tasks) > 0 || used(ShareUnit::Bytes) > 0)
        })
    }

    /// The running tasks of an owner.
    #[cfg(test)]
    pub fn count(&self, owner: OwnerIndex) -> u64 {
        self.tasks(owner).used()
    }

    /// The bytes of an owner's running tasks.
    #[cfg(test)]
    pub fn count_bytes(&self, owner: OwnerIndex) -> u64 {
        self.bytes(owner).used()
    }

    fn tasks(&self, owner: OwnerIndex) -> Count<'_> {
        self.counted(owner, ShareUnit::Tasks)
    }

    fn bytes(&self, owner: OwnerIndex) -> Count<'_> {
        self.counted(owner, ShareUnit::Bytes)
    }

    /// The count of an existing owner in one unit.
    #[inline]
    fn counted(&self, owner: OwnerIndex, kind: ShareUnit) -> Count<'_> {
        let owner = owner.0 as usize;
        let acquired = &self.owners[owner].acquired[kind as usize];
        Count { acquired, of: self, owner, kind }
    }

    fn of(&self, owner: OwnerIndex) -> Option<&RunningOfOwner> {
        self.owners.get(owner.0 as usize).filter(|_| owner.0 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(most: u32) -> RunningShare {
        RunningShare::of_owner(most)
    }

    #[test]
    fn concurrent_threads_cannot_exceed_the_task_share() {
        for (most, groups) in [(500, 1), (500, 4), (4_000, 4), (3, 2)] {
            let (running, owner) = (RunningTasks::new(3, groups), OwnerIndex(2));
            let held = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for group in 0..4 {
                    let (running, held) = (&running, &held);
                    scope.spawn(move || {
                        for round in 0..2_000 {
                            let outcome = running.take(group % groups, owner, Some(&share(most)));
                            if outcome.is_ok() && round % 3 == 0 {
                                running.give_back(group % groups, owner);
                            } else if outcome.is_ok() {
                                held.fetch_add(1, Relaxed);
                            }
                            assert!(held.load(Relaxed) <= most);
                        }
                    });
                }
            });
            let held = held.into_inner();
            assert_eq!(running.count(owner), u64::from(held));
            // The caches of other groups do not cause a refusal.
            let remaining =
                (0..).take_while(|_| running.take(0, owner, Some(&share(most))).is_ok());
            assert_eq!(remaining.count() as u32, most - held);
            let refused = running.take(groups - 1, owner, Some(&share(most)));
            assert_eq!(refused, Err(Refused::ShareExhausted(most)));
            (0..most).for_each(|_| running.give_back(groups - 1, owner));
            assert_eq!(running.count(owner), 0);
            let mut counted = Vec::new();
            running.each_counted(|number| counted.push(number));
            assert!(counted.is_empty(), "{counted:?}");
        }
    }

    #[test]
    fn smaller_agent_share_ignores_cached_portions() {
        let (running, owner) = (RunningTasks::new(3, 4), OwnerIndex(3));
        let few = RunningShare { most: 2, ..share(10_000) };
        running.take(0, owner, Some(&share(10_000))).unwrap();
        // The first group caches a portion, which counts as unused.
        assert_eq!(running.take(3, owner, Some(&few)), Ok(()));
        assert_eq!(running.take(0, owner, Some(&few)), Err(Refused::ShareExhausted(2)));
        assert_eq!(running.take(0, owner, Some(&share(10_000))), Ok(()));
        assert_eq!(running.count(owner), 3);
        // Tasks without an owner are not counted.
        assert!((0..3).all(|_| running.take(0, OwnerIndex(0), Some(&share(1))).is_ok()));
    }

    #[test]
    fn owner_byte_limit_applies_over_all_groups() {
        let (running, owner) = (RunningTasks::new(3, 2), OwnerIndex(1));
        let of_kib = |kib_max| RunningShare { begin_kib_max: kib_max, kib_max, ..share(100) };
        running.take(0, owner, Some(&of_kib(1_024))).unwrap();
        let take = |group, bytes| running.take_bytes(group, CountedFor::Owner(owner), bytes);
        let (half, refused) = (512 * 1024, Err(Refused::ShareBytesExhausted(1_024)));
        assert_eq!((take(0, half), take(1, half), take(0, 1)), (Ok(()), Ok(()), refused));
        assert_eq!(running.take(1, owner, Some(&of_kib(1_024))), refused);
        running.give_back_bytes(1, CountedFor::Owner(owner), half);
        assert_eq!(running.count_bytes(owner), half as u64);
        assert_eq!((take(0, half), take(0, 1)), (Ok(()), refused));
    }

    #[test]
    fn running_owner_records_fit_their_counted_bytes() {
        use crate::limits::{RUNNING_GROUP_BYTES, RUNNING_OWNER_BYTES};

        assert!(size_of::<RunningOfOwner>() as u64 <= RUNNING_OWNER_BYTES);
        assert!(size_of::<SpareOfOwner>() as u64 <= RUNNING_GROUP_BYTES);
    }
}
