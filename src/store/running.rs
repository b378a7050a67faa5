//! How many tasks of each owner are in no terminal state.

use super::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::service::OwnerIndex;

/// A number for each owner; nobody in particular, who has the first index, is not counted.
pub(super) struct RunningTasks(Box<[AtomicU32]>);

impl RunningTasks {
    /// For owners up to this index.
    pub fn new(owners_max: usize) -> RunningTasks {
        RunningTasks((0..=owners_max).map(|_| AtomicU32::new(0)).collect())
    }

    /// Notes that a task of an owner runs, or that it did and does no longer.
    #[inline]
    pub fn note(&self, owner: OwnerIndex, did_run: bool, runs: bool) {
        if owner.0 == 0 || did_run == runs {
            return;
        }
        if let Some(count) = self.0.get(owner.0 as usize) {
            match runs {
                true => _ = count.fetch_add(1, Relaxed),
                false => _ = count.fetch_sub(1, Relaxed),
            }
        }
    }

    /// How many run of an owner.
    pub fn of(&self, owner: OwnerIndex) -> u32 {
        self.0.get(owner.0 as usize).map_or(0, |count| count.load(Relaxed))
    }
}
