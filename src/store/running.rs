//! How many tasks of each owner are in no terminal state, those included for which there is only
//! room.

use super::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::service::OwnerIndex;

/// A number for each owner; nobody in particular, who has the first index, is not counted.
pub(super) struct RunningTasks(Box<[AtomicU32]>);

impl RunningTasks {
    /// For owners up to this index.
    pub fn new(owners_max: usize) -> RunningTasks {
        RunningTasks((0..=owners_max).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts one more of an owner, who may have so many; false: it has them.
    pub fn take(&self, owner: OwnerIndex, most: u32) -> bool {
        let Some(count) = self.of(owner) else { return true };
        let more = |running: u32| (running < most).then(|| running + 1);
        count.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Counts one of an owner no more.
    pub fn give_back(&self, owner: OwnerIndex) {
        if let Some(count) = self.of(owner) {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// How many an owner has.
    #[cfg(test)]
    pub fn count(&self, owner: OwnerIndex) -> u32 {
        self.of(owner).map_or(0, |count| count.load(Relaxed))
    }

    fn of(&self, owner: OwnerIndex) -> Option<&AtomicU32> {
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
                        took.fetch_add(running.take(owner, 500).into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!((took.into_inner(), running.count(owner)), (500, 500));
        assert!(running.take(OwnerIndex(3), 1) && !running.take(OwnerIndex(3), 1));
        running.give_back(owner);
        assert!(running.take(owner, 500) && !running.take(owner, 500));
        // Nobody in particular is not counted.
        assert!((0..3).all(|_| running.take(OwnerIndex(0), 1)));
    }
}
