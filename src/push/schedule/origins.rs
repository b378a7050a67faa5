//! The origins of webhooks: deliveries in flight to each, and its circuit breaker.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{
    Pace, WebhookSlot,
    hosts::{PostHost, PostHosts, host_name},
    owners::OwnerPosts,
    shares::HostShare,
    turns::{OwnerQueues, QueueKey, QueueLine, QueueTurn},
};
use crate::shares::Holder;

/// The circuit breaker of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// No limit except the slots.
    Closed,
    /// No delivery until the timer fires, because the origin has failed repeatedly.
    Open,
    /// One delivery probes the origin.
    HalfOpen,
}

/// The origin of a webhook URL: scheme, host and port.
pub(super) struct PostOrigin {
    pub text: Box<str>,
    /// The number of the host.
    host: u32,
    /// The first holder to register the origin; it is charged until the last webhook is deleted.
    payer: Holder,
    /// The number of webhooks.
    entries: u32,
    /// The number of deliveries in flight or granted.
    pub posting: u32,
    /// Owner queues that wait for the origin: untried ones, and failed ones.
    pub lines: [QueueLine; 2],
    /// Which of the two queues is next; true: the failed one.
    is_tried_next: bool,
    /// Granted deliveries, which wait for a slot of all deliveries.
    granted: VecDeque<WebhookSlot>,
    pub circuit: Circuit,
    /// Consecutive failures.
    pub failures: u32,
    /// The webhook that failed last.
    pub failed: WebhookSlot,
    /// The time until which the circuit is open.
    pub open_until_ms: u64,
}

impl PostOrigin {
    fn new(origin: &str, host: u32, payer: Holder) -> PostOrigin {
        PostOrigin {
            text: origin.into(),
            host,
            payer,
            entries: 0,
            posting: 0,
            lines: Default::default(),
            is_tried_next: false,
            granted: VecDeque::new(),
            circuit: Circuit::Closed,
            failures: 0,
            failed: WebhookSlot::NONE,
            open_until_ms: 0,
        }
    }

    /// Whether the origin itself has a free slot; its host has `origins` origins.
    fn has_permit(&self, pace: &Pace, origins: u32) -> bool {
        match self.circuit {
            Circuit::Closed => self.posting < pace.posts_of_origin(origins),
            Circuit::Open => false,
            Circuit::HalfOpen => self.posting == 0,
        }
    }

    /// Whether its queues have turns, valid or stale.
    pub fn has_turns(&self) -> bool {
        self.lines.iter().any(|line| !line.turns.is_empty())
    }

    /// Removes and returns the next valid turn; the two queues alternate. `is_its` rejects stale
    /// turns.
    pub fn next_turn(&mut self, is_its: impl Fn(&QueueTurn) -> bool) -> Option<QueueTurn> {
        let first = self.is_tried_next;
        [first, !first].into_iter().find_map(|is_tried| {
            let line = &mut self.lines[usize::from(is_tried)];
            let turn = std::iter::from_fn(|| line.turns.pop_front()).find(&is_its)?;
            self.is_tried_next = !is_tried;
            Some(turn)
        })
    }

    /// The next owner queue of each of the two queues; the turns remain. `is_its` rejects stale
    /// turns.
    pub fn fronts(&mut self, is_its: impl Fn(&QueueTurn) -> bool) -> [Option<QueueKey>; 2] {
        let first = self.is_tried_next;
        [first, !first].map(|is_tried| {
            let turns = &mut self.lines[usize::from(is_tried)].turns;
            while turns.front().is_some_and(|turn| !is_its(turn)) {
                turns.pop_front();
            }
            turns.front().map(|turn| turn.queue)
        })
    }

    /// Sets which of the two queues is next.
    pub fn prefer(&mut self, is_tried: bool) {
        self.is_tried_next = is_tried;
    }

    /// Whether a granted delivery may start: the circuit may have opened since.
    pub fn may_start(&self) -> bool {
        match self.circuit {
            Circuit::Closed => true,
            Circuit::Open => false,
            Circuit::HalfOpen => self.posting <= 1,
        }
    }
}

/// Bytes of an origin in addition to its text: its entry and that of its host, their shares of
/// maps, and a timer.
const ORIGIN_BYTES: usize = 700;

/// Bytes charged for an origin, which stores its text three times.
pub(in crate::push) fn origin_bytes(origin: &str) -> usize {
    ORIGIN_BYTES + 3 * origin.len()
}

/// All origins, by number.
#[derive(Default)]
pub(super) struct PostOrigins {
    origins: Vec<Option<PostOrigin>>,
    free: Vec<u32>,
    by_origin: HashMap<Box<str>, u32, RandomState>,
    hosts: PostHosts,
    /// Origins with granted deliveries, which take turns.
    line: VecDeque<u32>,
    /// Bytes of all origins, by [`origin_bytes`].
    bytes: usize,
    /// Bytes of the origins that each holder was the first to register.
    bytes_by_payer: HashMap<Holder, usize, RandomState>,
    /// Bytes of the origins that anonymous callers registered first, if other callers are
    /// authenticated.
    bytes_of_anonymous: usize,
}

impl PostOrigins {
    pub fn get(&self, number: u32) -> Option<&PostOrigin> {
        self.origins.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut PostOrigin> {
        self.origins.get_mut(number as usize)?.as_mut()
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

    /// Bytes of the origins that a holder was the first to register.
    pub fn bytes_of(&self, payer: Holder) -> usize {
        self.bytes_by_payer.get(&payer).copied().unwrap_or(0)
    }

    /// Bytes of the origins that anonymous callers were the first to register.
    pub fn bytes_of_anonymous(&self) -> usize {
        self.bytes_of_anonymous
    }

    #[cfg(test)]
    pub fn hosts(&self) -> &PostHosts {
        &self.hosts
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &PostOrigin> {
        self.origins.iter().flatten()
    }

    /// The number of webhooks of a host, over all schemes and ports.
    pub fn entries_of_host(&self, name: &str) -> usize {
        self.hosts.entries(name)
    }

    /// Counts a webhook of an origin, and charges the origin to this holder if it is new; returns
    /// the number of the origin.
    pub fn enter(&mut self, text: &str, holder: Holder) -> u32 {
        let number = self.number(text).unwrap_or_else(|| self.add(text, holder));
        self.count_entry(number, 1);
        number
    }

    fn add(&mut self, text: &str, payer: Holder) -> u32 {
        let host = self.hosts.enter(host_name(text));
        self.bytes += origin_bytes(text);
        *self.bytes_by_payer.entry(payer).or_default() += origin_bytes(text);
        if payer.is_stranger() {
            self.bytes_of_anonymous += origin_bytes(text);
        }
        let origin = Some(PostOrigin::new(text, host, payer));
        let number = match self.free.pop() {
            Some(number) => {
                self.origins[number as usize] = origin;
                number
            }
            None => {
                self.origins.push(origin);
                (self.origins.len() - 1) as u32
            }
        };
        self.by_origin.insert(text.into(), number);
        number
    }

    /// Removes a webhook of an origin from the counts.
    pub fn leave(&mut self, number: u32) {
        self.count_entry(number, -1);
        self.forget_unused(number);
    }

    fn count_entry(&mut self, number: u32, change: i32) {
        let Some(Some(origin)) = self.origins.get_mut(number as usize) else { return };
        origin.entries = origin.entries.wrapping_add_signed(change);
        if let Some(host) = self.hosts.get_mut(origin.host) {
            host.entries = host.entries.wrapping_add_signed(change);
        }
    }

    /// Whether an origin may start another delivery, without regard to the limit of its host.
    pub fn is_open(&self, number: u32, pace: &Pace) -> bool {
        let Some(origin) = self.get(number) else { return false };
        let host = self.hosts.get(origin.host);
        host.is_some_and(|host| origin.has_permit(pace, host.origins))
    }

    /// Whether an origin may start another delivery.
    pub fn has_permit(&self, number: u32, pace: &Pace) -> bool {
        let Some(origin) = self.get(number) else { return false };
        let host = self.hosts.get(origin.host);
        host.is_some_and(|host| {
            host.posting < pace.per_host && origin.has_permit(pace, host.origins)
        })
    }

    /// Takes slots for a delivery, as [`PostOrigins::take`], if its origin and host have free
    /// slots. A host has additional slots for owners without a delivery to it, so that hanging
    /// deliveries of others do not delay an owner's first delivery.
    pub fn take_if_free(
        &mut self,
        queue: QueueKey,
        slot: WebhookSlot,
        pace: &Pace,
        owner: &mut OwnerPosts,
    ) -> bool {
        let Some(origin) = self.get(queue.origin) else { return false };
        let Some(host) = self.hosts.get(origin.host) else { return false };
        let has_permit = host.posting < pace.per_host && origin.has_permit(pace, host.origins);
        let has_first_permit = || {
            pace.first_posts > 0
                && origin.circuit == Circuit::Closed
                && host.posting < pace.per_host.saturating_add(pace.first_posts)
                && !owner.posts_to(origin.host)
        };
        let is_free = has_permit || has_first_permit();
        if is_free {
            self.take(queue, slot, owner);
        }
        is_free
    }

    /// Takes a slot of an origin, its host and an owner for a delivery, which then waits for a slot
    /// of all deliveries.
    #[inline]
    pub fn take(&mut self, queue: QueueKey, slot: WebhookSlot, owner: &mut OwnerPosts) {
        let Some(Some(origin)) = self.origins.get_mut(queue.origin as usize) else { return };
        owner.begin(origin.host);
        origin.posting += 1;
        if let Some(host) = self.hosts.get_mut(origin.host) {
            host.posting += 1;
        }
        origin.granted.push_back(slot);
        if origin.granted.len() == 1 {
            self.line.push_back(queue.origin);
        }
    }

    /// Frees a slot.
    pub fn give_back(&mut self, queue: QueueKey, owner: &mut OwnerPosts) {
        let Some(Some(origin)) = self.origins.get_mut(queue.origin as usize) else { return };
        owner.end(origin.host);
        origin.posting -= 1;
        if let Some(host) = self.hosts.get_mut(origin.host) {
            host.posting -= 1;
        }
    }

    /// The share of an owner at the host of an origin.
    pub fn share(&mut self, queue: QueueKey) -> Option<&mut HostShare> {
        let number = self.get(queue.origin)?.host;
        Some(self.hosts.get_mut(number)?.shares.entry(queue.owner).or_default())
    }

    /// Drops shares without effect.
    pub fn tidy_shares(&mut self, now_ms: u64) {
        self.hosts.tidy_shares(now_ms);
    }

    fn count_post(&mut self, number: u32, change: i32) {
        let Some(Some(origin)) = self.origins.get_mut(number as usize) else { return };
        origin.posting = origin.posting.wrapping_add_signed(change);
        if let Some(host) = self.hosts.get_mut(origin.host) {
            host.posting = host.posting.wrapping_add_signed(change);
        }
    }

    /// Adds the owner and the origin of an owner queue to the queue of its host.
    pub fn wait_for_host(&mut self, queue: QueueKey, queues: &OwnerQueues) {
        let host = self.get(queue.origin).map(|origin| origin.host);
        if let Some(host) = host.and_then(|host| self.hosts.get_mut(host)) {
            host.line.enter(queue.owner, queue.origin, queues);
        }
    }

    /// Reserves the last slot of an origin and its host for an owner queue if its owner has no free
    /// slot, so that it gets both at the same time. A host has at most one reserved slot, and none
    /// for a probe. Returns whether a slot was reserved.
    pub fn reserve(&mut self, queue: QueueKey, pace: &Pace) -> bool {
        let Some(origin) = self.get(queue.origin).filter(|at| at.circuit == Circuit::Closed) else {
            return false;
        };
        let (number, posting) = (origin.host, origin.posting);
        let Some(host) = self.hosts.get_mut(number).filter(|host| host.reserved.is_none()) else {
            return false;
        };
        let is_last =
            host.posting + 1 >= pace.per_host || posting + 1 >= pace.posts_of_origin(host.origins);
        if is_last && pace.per_host > 1 {
            host.reserved = Some(queue);
            self.count_post(queue.origin, 1);
        }
        is_last && pace.per_host > 1
    }

    /// Frees the slot that is reserved for an owner queue; false: no slot is reserved for it.
    pub fn unreserve(&mut self, queue: QueueKey) -> bool {
        let Some(number) = self.get(queue.origin).map(|origin| origin.host) else { return false };
        let host = self.hosts.get_mut(number);
        let is_its = |host: &&mut PostHost| host.reserved == Some(queue);
        let Some(host) = host.filter(is_its) else { return false };
        host.reserved = None;
        self.count_post(queue.origin, -1);
        true
    }

    /// Frees the reserved slot of an origin when its circuit opens.
    pub fn unreserve_all(&mut self, number: u32) {
        let host = self.get(number).and_then(|origin| self.hosts.get(origin.host));
        let reserved = host.and_then(|host| host.reserved);
        if let Some(queue) = reserved.filter(|queue| queue.origin == number) {
            self.unreserve(queue);
        }
    }

    /// The next owner in the queue of an origin's host, with its origin, if the host has a free
    /// slot.
    pub fn next_in_line(&mut self, number: u32, pace: &Pace) -> Option<(u32, u32)> {
        let host = self.get(number)?.host;
        let host = self.hosts.get_mut(host).filter(|host| host.posting < pace.per_host)?;
        host.line.next()
    }

    /// Removes a granted delivery.
    pub fn withdraw(&mut self, number: u32, slot: WebhookSlot) {
        let Some(origin) = self.get_mut(number) else { return };
        origin.granted.retain(|granted| *granted != slot);
        if origin.granted.is_empty() {
            self.line.retain(|listed| *listed != number);
        }
    }

    /// The next granted delivery.
    pub fn next_granted(&mut self) -> Option<WebhookSlot> {
        let number = self.line.pop_front()?;
        let origin = self.get_mut(number)?;
        let slot = origin.granted.pop_front();
        if !origin.granted.is_empty() {
            self.line.push_back(number);
        }
        slot
    }

    /// Removes an origin that has neither webhooks nor deliveries in flight.
    pub fn forget_unused(&mut self, number: u32) {
        let is_unused = |origin: &mut PostOrigin| origin.entries == 0 && origin.posting == 0;
        let origin = self.origins.get_mut(number as usize);
        if let Some(origin) = origin.and_then(|origin| origin.take_if(is_unused)) {
            self.bytes -= origin_bytes(&origin.text);
            self.release_payer(&origin);
            self.by_origin.remove(&origin.text);
            self.hosts.leave(origin.host, host_name(&origin.text));
            self.free.push(number);
        }
    }

    /// Refunds the charge of a removed origin.
    fn release_payer(&mut self, origin: &PostOrigin) {
        if origin.payer.is_stranger() {
            self.bytes_of_anonymous -= origin_bytes(&origin.text);
        }
        if let Some(bytes) = self.bytes_by_payer.get_mut(&origin.payer) {
            *bytes -= origin_bytes(&origin.text);
            if *bytes == 0 {
                self.bytes_by_payer.remove(&origin.payer);
            }
        }
    }
}
