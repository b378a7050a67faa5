//! How many webhooks there are, and their bytes: of all, and of each owner.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{PushBounds, PushState};

/// What is counted of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerCount {
    pub configs: usize,
    pub bytes: usize,
}

/// What is counted of all.
#[derive(Default)]
pub(super) struct PushCounts {
    /// Of all configurations.
    pub bytes: usize,
    pub by_owner: HashMap<u32, OwnerCount, RandomState>,
}

impl PushCounts {
    /// Counts a configuration.
    pub fn enter(&mut self, owner: u32, bytes: usize) {
        self.bytes += bytes;
        let of_owner = self.by_owner.entry(owner).or_default();
        (of_owner.configs, of_owner.bytes) = (of_owner.configs + 1, of_owner.bytes + bytes);
    }

    /// One less.
    pub fn leave(&mut self, owner: u32, bytes: usize) {
        self.bytes -= bytes;
        let Some(of_owner) = self.by_owner.get_mut(&owner) else { return };
        (of_owner.configs, of_owner.bytes) = (of_owner.configs - 1, of_owner.bytes - bytes);
        if of_owner.configs == 0 {
            self.by_owner.remove(&owner);
        }
    }
}

impl PushState {
    /// What all configurations take, and the origins that they name.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes + self.schedule.origin_bytes()
    }
}

impl PushBounds {
    /// Bytes of the configurations of one owner. Nobody in particular leaves a share for one who
    /// is known.
    pub(super) fn owner_bytes_max(&self, owner: u32) -> usize {
        let share = self.bytes_max / 4;
        if owner == 0 { self.bytes_max - share } else { share }
    }
}
