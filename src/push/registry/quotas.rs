//! The number and the bytes of webhooks: for all, for each holder, and for all anonymous callers.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{PushBounds, PushState};
use crate::shares::Holder;

/// The counts of one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HolderCount {
    pub configs: usize,
    pub bytes: usize,
}

/// The counts of all webhooks.
#[derive(Default)]
pub(super) struct PushCounts {
    /// Bytes of all configurations.
    pub bytes: usize,
    /// Bytes of the configurations of anonymous callers.
    of_anonymous: usize,
    pub by_holder: HashMap<Holder, HolderCount, RandomState>,
}

impl PushCounts {
    /// The counts of one holder.
    pub fn of(&self, holder: Holder) -> HolderCount {
        self.by_holder.get(&holder).copied().unwrap_or_default()
    }

    /// Counts a configuration.
    pub fn enter(&mut self, holder: Holder, bytes: usize) {
        self.bytes += bytes;
        if holder.is_stranger() {
            self.of_anonymous += bytes;
        }
        let held = self.by_holder.entry(holder).or_default();
        (held.configs, held.bytes) = (held.configs + 1, held.bytes + bytes);
    }

    /// Removes a configuration.
    pub fn leave(&mut self, holder: Holder, bytes: usize) {
        self.bytes -= bytes;
        if holder.is_stranger() {
            self.of_anonymous -= bytes;
        }
        let Some(held) = self.by_holder.get_mut(&holder) else { return };
        (held.configs, held.bytes) = (held.configs - 1, held.bytes - bytes);
        if held.configs == 0 {
            self.by_holder.remove(&holder);
        }
    }
}

impl PushState {
    /// Bytes of all configurations, their origins, and the names of their owners.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes + self.schedule.origin_bytes() + self.owners.bytes()
    }

    /// The bytes of anonymous callers, with their origins.
    pub(super) fn anonymous_bytes(&self) -> usize {
        self.counted.of_anonymous + self.schedule.origin_bytes_of_anonymous()
    }
}

impl PushBounds {
    /// The maximum bytes of one holder: half of all for an address if no caller is authenticated
    /// (all callers behind a proxy may have the same address), otherwise a quarter.
    pub(super) fn holder_bytes_max(&self, holder: Holder) -> usize {
        let is_lone_peer = holder.is_peer() && !holder.is_stranger();
        self.bytes_max / if is_lone_peer { 2 } else { 4 }
    }
}
