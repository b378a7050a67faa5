//! How many webhooks there are, and their bytes: of all, of each owner, and of each host.

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
    /// Configurations of each host, whatever its ports.
    pub by_host: HashMap<Box<str>, usize, RandomState>,
}

impl PushCounts {
    /// Counts a configuration.
    pub fn enter(&mut self, owner: u32, bytes: usize, host: &str) {
        self.bytes += bytes;
        let of_owner = self.by_owner.entry(owner).or_default();
        (of_owner.configs, of_owner.bytes) = (of_owner.configs + 1, of_owner.bytes + bytes);
        match self.by_host.get_mut(host) {
            Some(count) => *count += 1,
            None => drop(self.by_host.insert(host.into(), 1)),
        }
    }

    /// One of an owner less.
    pub fn leave_owner(&mut self, owner: u32, bytes: usize) {
        self.bytes -= bytes;
        let Some(of_owner) = self.by_owner.get_mut(&owner) else { return };
        (of_owner.configs, of_owner.bytes) = (of_owner.configs - 1, of_owner.bytes - bytes);
        if of_owner.configs == 0 {
            self.by_owner.remove(&owner);
        }
    }

    /// One of a host less.
    pub fn leave_host(&mut self, host: &str) {
        let Some(count) = self.by_host.get_mut(host) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_host.remove(host);
        }
    }
}

impl PushState {
    /// What all configurations take, and the hosts that they name.
    pub(super) fn bytes(&self) -> usize {
        self.counted.bytes + self.schedule.host_bytes()
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

/// The host of an origin like `https://a.example:443`.
pub(super) fn host_name(origin: &str) -> &str {
    let name = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    name.rsplit_once(':').map_or(name, |(name, _)| name)
}
