//! Where posts go: how many are under way to each host, and whether it is well.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{Pace, PostPlace, turns::LaneLine};

/// Whether posts go to a host: its circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// As many as may be at a time.
    Closed,
    /// None until its timer rings: it has failed often in a row.
    Open,
    /// One finds out whether it is back.
    HalfOpen,
}

/// Where posts go: scheme, host and port.
pub(super) struct PostHost {
    pub origin: Box<str>,
    /// Who has named it first, and counts for it until nobody's webhook goes there; 0: nobody.
    payer: u32,
    /// Webhooks that go there.
    entries: u32,
    /// Posts that are under way or granted.
    pub posting: u32,
    /// Owners that wait for the host, in turns.
    pub line: LaneLine,
    /// Those whose turn has come, which wait for a place among the posts of all hosts.
    granted: VecDeque<PostPlace>,
    pub circuit: Circuit,
    /// In a row.
    pub failures: u32,
    /// The one that has failed last.
    pub failed: PostPlace,
    /// Until when the circuit is open.
    pub open_until_ms: u64,
}

impl PostHost {
    fn new(origin: &str, payer: u32) -> PostHost {
        PostHost {
            origin: origin.into(),
            payer,
            entries: 0,
            posting: 0,
            line: LaneLine::default(),
            granted: VecDeque::new(),
            circuit: Circuit::Closed,
            failures: 0,
            failed: PostPlace::NONE,
            open_until_ms: 0,
        }
    }

    /// Whether it may have another post.
    pub fn has_place(&self, pace: &Pace) -> bool {
        match self.circuit {
            Circuit::Closed => self.posting < pace.per_host,
            Circuit::Open => false,
            Circuit::HalfOpen => self.posting == 0,
        }
    }

    /// Whether one that was granted may be posted: a circuit may have opened since.
    pub fn lets_through(&self) -> bool {
        match self.circuit {
            Circuit::Closed => true,
            Circuit::Open => false,
            Circuit::HalfOpen => self.posting <= 1,
        }
    }
}

/// What a host takes beside its origin: its entry, its shares of two maps, and its timer.
const HOST_BYTES: usize = 400;

/// What is counted for a host of that origin, which is written at three places.
pub(in crate::push) fn host_bytes(origin: &str) -> usize {
    HOST_BYTES + 3 * origin.len()
}

/// All hosts, by number.
#[derive(Default)]
pub(super) struct PostHosts {
    hosts: Vec<Option<PostHost>>,
    free: Vec<u32>,
    by_origin: HashMap<Box<str>, u32, RandomState>,
    /// Those that have granted a post, in turns.
    line: VecDeque<u32>,
    /// Of all, by [`host_bytes`].
    bytes: usize,
    /// Of those that each has named first.
    bytes_by_payer: HashMap<u32, usize, RandomState>,
}

impl PostHosts {
    pub fn get(&self, number: u32) -> Option<&PostHost> {
        self.hosts.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut PostHost> {
        self.hosts.get_mut(number as usize)?.as_mut()
    }

    pub fn number(&self, origin: &str) -> Option<u32> {
        self.by_origin.get(origin).copied()
    }

    pub fn len(&self) -> usize {
        self.by_origin.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of those that one has named first.
    pub fn bytes_of(&self, payer: u32) -> usize {
        self.bytes_by_payer.get(&payer).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &PostHost> {
        self.hosts.iter().flatten()
    }

    /// Counts a webhook of an origin, which an owner has named; the number of the host.
    pub fn enter(&mut self, origin: &str, owner: u32) -> u32 {
        let number = self.number(origin);
        let number = number.unwrap_or_else(|| self.add(PostHost::new(origin, owner)));
        if let Some(host) = self.get_mut(number) {
            host.entries += 1;
        }
        number
    }

    fn add(&mut self, host: PostHost) -> u32 {
        let origin = host.origin.clone();
        self.bytes += host_bytes(&origin);
        *self.bytes_by_payer.entry(host.payer).or_default() += host_bytes(&origin);
        let number = match self.free.pop() {
            Some(number) => {
                self.hosts[number as usize] = Some(host);
                number
            }
            None => {
                self.hosts.push(Some(host));
                (self.hosts.len() - 1) as u32
            }
        };
        self.by_origin.insert(origin, number);
        number
    }

    /// A webhook less goes there.
    pub fn leave(&mut self, number: u32) {
        if let Some(host) = self.get_mut(number) {
            host.entries -= 1;
        }
        self.forget_unused(number);
    }

    /// Keeps a post of a host until its turn among those of all hosts.
    pub fn grant(&mut self, number: u32, place: PostPlace) {
        let Some(host) = self.get_mut(number) else { return };
        host.granted.push_back(place);
        if host.granted.len() == 1 {
            self.line.push_back(number);
        }
    }

    /// One of those has left.
    pub fn withdraw(&mut self, number: u32, place: PostPlace) {
        let Some(host) = self.get_mut(number) else { return };
        host.granted.retain(|granted| *granted != place);
        if host.granted.is_empty() {
            self.line.retain(|listed| *listed != number);
        }
    }

    /// The next one of those.
    pub fn next_granted(&mut self) -> Option<PostPlace> {
        let number = self.line.pop_front()?;
        let host = self.get_mut(number)?;
        let place = host.granted.pop_front();
        if !host.granted.is_empty() {
            self.line.push_back(number);
        }
        place
    }

    /// Lets a host go that has no webhook, when no post to it is under way.
    pub fn forget_unused(&mut self, number: u32) {
        let is_unused = |host: &mut PostHost| host.entries == 0 && host.posting == 0;
        let host = self.hosts.get_mut(number as usize);
        if let Some(host) = host.and_then(|host| host.take_if(is_unused)) {
            self.bytes -= host_bytes(&host.origin);
            self.release_payer(&host);
            self.by_origin.remove(&host.origin);
            self.free.push(number);
        }
    }

    /// A host is gone for which somebody counted.
    fn release_payer(&mut self, host: &PostHost) {
        if let Some(bytes) = self.bytes_by_payer.get_mut(&host.payer) {
            *bytes -= host_bytes(&host.origin);
            if *bytes == 0 {
                self.bytes_by_payer.remove(&host.payer);
            }
        }
    }
}
