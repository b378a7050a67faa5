//! How many webhooks there are, and their bytes: of all, of each holder, and of all strangers.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{PushBounds, PushState};
use crate::shares::Holder;

/// What is counted of one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HolderCount {
    pub configs: usize,
    pub bytes: usize,
}

/// What is counted of all.
#[derive(Default)]
pub(super) struct PushCounts {
    /// Of all configurations.
    pub bytes: usize,
    /// Of those of strangers.
    of_strangers: usize,
    pub by_holder: HashMap<Holder, HolderCount, RandomState>,
}

impl PushCounts {
    /// The configurations of one holder.
    pub fn of(&self, holder: Holder) -> HolderCount {
        self.by_holder.get(&holder).copied().unwrap_or_default()
    }

    /// Counts a configuration.
    pub fn enter(&mut self, holder: Holder, bytes: usize) {
        self.bytes += bytes;
        if holder.is_stranger() {
            self.of_strangers += bytes;
        }
        let held = self.by_holder.entry(holder).or_default();
        (held.configs, held.bytes) = (held.configs + 1, held.bytes + bytes);
    }

    /// Gives one back.
    pub fn leave(&mut self, holder: Holder, bytes: usize) {
        self.bytes -= bytes;
        if holder.is_stranger() {
            self.of_strangers -= bytes;
        }
        let Some(held) = self.by_holder.get_mut(&holder) else { return };
        (held.configs, held.bytes) = (held.configs - 1, held.bytes - bytes);
        if held.configs == 0 {
            self.by_holder.remove(&holder);
        }
    }
}

impl PushState {
    /// What all configurations take, the origins that they name, and the names of their owners.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes + self.schedule.origin_bytes() + self.owners.bytes()
    }

    /// The part of it that strangers hold.
    pub(super) fn stranger_bytes(&self) -> usize {
        self.counted.of_strangers + self.schedule.origin_bytes_of_strangers()
    }
}

impl PushBounds {
    /// Bytes of one holder: half of all for an address where no caller is authenticated (behind a
    /// proxy all callers may have the same), else a quarter.
    pub(super) fn holder_bytes_max(&self, holder: Holder) -> usize {
        let is_lone_peer = holder.is_peer() && !holder.is_stranger();
        self.bytes_max / if is_lone_peer { 2 } else { 4 }
    }
}
