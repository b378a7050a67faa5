//! How many tasks of each owner run, those included for which there is only room, and what they
//! hold; and whose bytes those of a task are. A task that waits for its client does not run: it has
//! no place and no bytes here until a message or its agent continues it.
//!
//! Law: bytes are taken of a share before they are taken of the store, since who has no share left
//! makes nobody else's tasks leave. What is counted for an unfinished task is at least what it
//! holds, and exactly that between two edits. Nothing is
//! taken beyond a share; one that a reload made smaller may be exceeded by what was taken before.

use super::{
    Refused,
    slab::Slot,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use crate::service::{
    OwnerIndex, RunningShare,
    quota::{RunningBytes, RunningPlace},
};

/// What each owner has; nobody in particular, who has the first index, is not counted.
pub(super) struct RunningTasks(Box<[RunningOfOwner]>);

/// What one owner has.
struct RunningOfOwner {
    tasks: AtomicU32,
    /// The `own_most` and the `kib_max` of the share with which the owner's last task began.
    own_most: AtomicU32,
    kib_max: AtomicU32,
    bytes: RunningBytes,
}

impl Default for RunningOfOwner {
    fn default() -> RunningOfOwner {
        let any = || AtomicU32::new(RunningShare::ANY);
        let (tasks, bytes) = (AtomicU32::new(0), RunningBytes::default());
        RunningOfOwner { tasks, own_most: any(), kib_max: any(), bytes }
    }
}

/// Among whose unfinished tasks a task counts.
#[derive(Clone, Copy)]
pub(super) enum CountedFor<'s> {
    /// Its owner's.
    Owner(OwnerIndex),
    /// Those of a caller that owns none.
    Place(&'s RunningPlace),
}

impl Slot {
    /// Among whose unfinished tasks that of the slot counts; `None`: nobody's.
    #[inline]
    pub fn counted_for(&self) -> Option<CountedFor<'_>> {
        match self.scope.owner {
            OwnerIndex(0) => {
                let place = self.waiters.as_ref().and_then(|waiters| waiters.running.as_ref());
                place.map(CountedFor::Place)
            }
            owner => Some(CountedFor::Owner(owner)),
        }
    }
}

impl RunningTasks {
    /// For owners up to this index.
    pub fn new(owners_max: usize) -> RunningTasks {
        RunningTasks((0..=owners_max).map(|_| RunningOfOwner::default()).collect())
    }

    /// Counts one more of an owner, who has this share.
    ///
    /// # Errors
    /// [`Refused::ShareTaken`], [`Refused::ShareBytesTaken`].
    pub fn take(&self, owner: OwnerIndex, share: Option<&RunningShare>) -> Result<(), Refused> {
        let Some(of_owner) = self.of(owner) else { return Ok(()) };
        let any = RunningShare::of_owner(RunningShare::ANY);
        let RunningShare { most, own_most, begin_kib_max, kib_max, .. } = *share.unwrap_or(&any);
        for (known, of_share) in [(&of_owner.own_most, own_most), (&of_owner.kib_max, kib_max)] {
            if known.load(Relaxed) != of_share {
                known.store(of_share, Relaxed);
            }
        }
        if !of_owner.bytes.has_room(begin_kib_max) {
            return Err(Refused::ShareBytesTaken(begin_kib_max));
        }
        let more = |running: u32| (running < most).then(|| running + 1);
        let taken = of_owner.tasks.fetch_update(Relaxed, Relaxed, more);
        taken.map(drop).map_err(|_| Refused::ShareTaken(most))
    }

    /// Counts one more of an owner, whose agent continues it without a message: by the share with
    /// which the owner's last task began.
    ///
    /// # Errors
    /// [`Refused::ShareTaken`].
    pub fn take_again(&self, owner: OwnerIndex) -> Result<(), Refused> {
        let Some(of_owner) = self.of(owner) else { return Ok(()) };
        let most = of_owner.own_most.load(Relaxed);
        let more = |running: u32| (running < most).then(|| running + 1);
        let taken = of_owner.tasks.fetch_update(Relaxed, Relaxed, more);
        taken.map(drop).map_err(|_| Refused::ShareTaken(most))
    }

    /// Counts one of an owner no more.
    pub fn give_back(&self, owner: OwnerIndex) {
        if let Some(of_owner) = self.of(owner) {
            of_owner.tasks.fetch_sub(1, Relaxed);
        }
    }

    /// Takes bytes for an unfinished task.
    ///
    /// # Errors
    /// [`Refused::ShareBytesTaken`].
    #[inline(never)]
    pub fn take_bytes(&self, counted_for: CountedFor<'_>, bytes: usize) -> Result<(), Refused> {
        let Some((held, kib_max)) = self.bytes(counted_for) else { return Ok(()) };
        match held.take(bytes, kib_max) {
            true => Ok(()),
            false => Err(Refused::ShareBytesTaken(kib_max)),
        }
    }

    /// Gives bytes back that were taken.
    #[inline(never)]
    pub fn give_back_bytes(&self, counted_for: CountedFor<'_>, bytes: usize) {
        if let Some((held, _)) = self.bytes(counted_for) {
            held.give_back(bytes);
        }
    }

    /// The bytes of whoever has a task, and how many KiB those may be.
    fn bytes<'s>(&'s self, counted_for: CountedFor<'s>) -> Option<(&'s RunningBytes, u32)> {
        match counted_for {
            CountedFor::Owner(owner) => {
                let of_owner = self.of(owner)?;
                Some((&of_owner.bytes, of_owner.kib_max.load(Relaxed)))
            }
            CountedFor::Place(place) => Some(place.bytes()),
        }
    }

    /// Calls `each` with the number of each owner for whom something is counted.
    pub fn each_counted(&self, mut each: impl FnMut(u32)) {
        for (of_owner, number) in self.0.iter().zip(0..) {
            if of_owner.tasks.load(Relaxed) > 0 || of_owner.bytes.count() > 0 {
                each(number);
            }
        }
    }

    /// How many an owner has.
    #[cfg(test)]
    pub fn count(&self, owner: OwnerIndex) -> u32 {
        self.of(owner).map_or(0, |of_owner| of_owner.tasks.load(Relaxed))
    }

    /// What they hold.
    #[cfg(test)]
    pub fn count_bytes(&self, owner: OwnerIndex) -> u64 {
        self.of(owner).map_or(0, |of_owner| of_owner.bytes.count())
    }

    fn of(&self, owner: OwnerIndex) -> Option<&RunningOfOwner> {
        self.0.get(owner.0 as usize).filter(|_| owner.0 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_no_more_than_there_is() {
        let (running, owner) = (RunningTasks::new(3), OwnerIndex(2));
        let took = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let taken = running.take(owner, Some(&RunningShare::of_owner(500)));
                        took.fetch_add(taken.is_ok().into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!((took.into_inner(), running.count(owner)), (500, 500));
        let take = |owner, most| running.take(owner, Some(&RunningShare::of_owner(most)));
        assert_eq!(take(OwnerIndex(3), 1), Ok(()));
        assert_eq!(take(OwnerIndex(3), 1), Err(Refused::ShareTaken(1)));
        running.give_back(owner);
        assert!(take(owner, 500).is_ok() && take(owner, 500).is_err());
        // Nobody in particular is not counted.
        assert!((0..3).all(|_| take(OwnerIndex(0), 1).is_ok()));
    }
}
