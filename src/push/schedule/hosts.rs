//! The hosts of origins, over all schemes and ports, and the deliveries in flight to each.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use super::{host_line::HostLine, shares::HostShare, turns::QueueKey};

/// A host.
#[derive(Default)]
pub(super) struct PostHost {
    /// The number of its origins with webhooks or deliveries in flight.
    pub origins: u32,
    /// The number of its webhooks.
    pub entries: u32,
    /// The number of deliveries in flight or granted.
    pub posting: u32,
    /// The owners that wait for a slot.
    pub line: HostLine,
    /// The shares of owners, by owner number.
    pub shares: BTreeMap<u32, HostShare>,
    /// The owner queue for which a slot is reserved.
    pub reserved: Option<QueueKey>,
}

/// All hosts, by number.
#[derive(Default)]
pub(super) struct PostHosts {
    hosts: Vec<PostHost>,
    free: Vec<u32>,
    by_name: HashMap<Box<str>, u32, RandomState>,
}

impl PostHosts {
    pub fn get(&self, number: u32) -> Option<&PostHost> {
        self.hosts.get(number as usize)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut PostHost> {
        self.hosts.get_mut(number as usize)
    }

    /// The number of webhooks of the host with this name.
    pub fn entries(&self, name: &str) -> usize {
        let number = self.by_name.get(name).copied();
        number.and_then(|number| self.get(number)).map_or(0, |host| host.entries as usize)
    }

    /// Counts an origin at the host with this name; returns the number of the host.
    pub fn enter(&mut self, name: &str) -> u32 {
        let number = match self.by_name.get(name) {
            Some(number) => *number,
            None => self.add(name),
        };
        if let Some(host) = self.get_mut(number) {
            host.origins += 1;
        }
        number
    }

    fn add(&mut self, name: &str) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.hosts.push(PostHost::default());
            (self.hosts.len() - 1) as u32
        });
        self.by_name.insert(name.into(), number);
        number
    }

    /// Removes an origin of the host with this name.
    pub fn leave(&mut self, number: u32, name: &str) {
        let Some(host) = self.get_mut(number) else { return };
        host.origins -= 1;
        if host.origins == 0 {
            *host = PostHost::default();
            self.by_name.remove(name);
            self.free.push(number);
        }
    }

    /// Drops shares without effect.
    pub fn tidy_shares(&mut self, now_ms: u64) {
        for host in &mut self.hosts {
            host.shares.retain(|_, share| !share.is_idle(now_ms));
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &PostHost> {
        self.hosts.iter()
    }
}

/// The host of an origin such as `https://a.example:443` or `https://[::1]`.
pub(in crate::push) fn host_name(origin: &str) -> &str {
    let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::host_name;

    #[test]
    fn hosts_are_named_without_schemes_and_ports() {
        for (origin, name) in [
            ("https://a.example:443", "a.example"),
            ("http://a.example", "a.example"),
            ("https://[::1]:8443", "[::1]"),
            ("https://[::1]", "[::1]"),
            ("http://127.0.0.1:80", "127.0.0.1"),
        ] {
            assert_eq!(host_name(origin), name);
        }
    }
}
