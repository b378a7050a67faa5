//! The order of deliveries: which webhooks are ready, which wait after a failure, and which origins
//! rest.
//!
//! Invariants: a webhook has at most one delivery in flight, so its events arrive in order; a
//! webhook that replaces it waits until that delivery has ended. A host and an owner have a bounded
//! number of concurrent deliveries, and a delivery counts until it has ended, even if its webhook
//! is deleted. Owners take turns at a host, and so do the origins of each owner and the owners of
//! an origin, so a slow or failing webhook delays no other webhook. If an origin fails repeatedly,
//! one delivery at a time probes it; all others wait in its queue without a timer.

mod host_line;
mod hosts;
mod origins;
mod outcome;
mod owners;
mod pace;
mod pending;
mod shares;
mod turns;
mod upkeep;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use foldhash::fast::RandomState;

use self::{
    origins::PostOrigins,
    owners::OwnerPosts,
    turns::{OwnerQueues, QueueKey},
};
use crate::shares::Holder;

pub use self::pace::{Pace, WebhookSlot};
pub(super) use self::{hosts::host_name, origins::origin_bytes};

/// Number of stale entries of deleted webhooks that queues and timers may have before they are
/// swept.
const SPARE: usize = 64;

/// The result of a failed delivery for its webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The webhook will retry it.
    Repeated,
    /// The webhook has stopped after retries for [`Pace::give_up_ms`].
    GivenUp,
}

/// Why a delivery has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The receiver refused it; the origin responds, so other webhooks of the origin are not
    /// affected.
    Refused,
    /// The origin responded with a temporary error.
    Unwell,
    /// The origin did not answer.
    NoAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostStage {
    /// Everything was delivered.
    Idle,
    /// Waits in its owner queue, a queue per owner and origin.
    Ready,
    /// Has a slot of its host and its owner, and waits for a slot of all deliveries.
    Granted,
    /// In flight; true: new events have arrived since the delivery began.
    Posting(bool),
    /// Waits until the delivery of the webhook that it replaces has ended.
    Blocked,
    /// Deferred until there is memory for its large request.
    Deferred,
    /// Waits for the end of its pause.
    Paused,
    /// Stopped until it is resumed.
    Stopped,
}

/// A scheduled webhook.
struct Scheduled<T> {
    value: T,
    origin: u32,
    /// The owner of the webhook; 0: all anonymous callers.
    owner: u32,
    check: u32,
    stage: PostStage,
    failures: u32,
    /// When the oldest undelivered event occurred.
    since_ms: u64,
    /// The end of the pause.
    due_ms: u64,
    /// A hash of the URL if deliveries are rate limited; 0: no rate limit.
    url: u32,
    /// True: the next delivery was already counted in the rate.
    is_paid: bool,
    /// True: the rate has delayed a delivery since the last one that arrived.
    is_limited: bool,
}

impl<T> Scheduled<T> {
    /// The owner queue of the webhook.
    fn queue(&self) -> QueueKey {
        QueueKey { origin: self.origin, owner: self.owner, is_tried: self.failures > 0 }
    }
}

/// A delivery in flight; its webhook may have been deleted.
struct OpenPost {
    queue: QueueKey,
    /// The webhook that replaces this delivery's webhook and waits for the end of the delivery.
    successor: Option<WebhookSlot>,
}

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pause(u32, u32),
    /// The circuit of an origin lets one delivery through.
    Probe(u32),
}

/// The schedule, see the module. `T` is the value stored for each webhook.
pub struct Schedule<T> {
    pace: Pace,
    entries: Vec<Option<Scheduled<T>>>,
    free: Vec<u32>,
    checks: u32,
    origins: PostOrigins,
    /// Owners with a delivery in flight, now or until the last sweep.
    owners: HashMap<u32, OwnerPosts, RandomState>,
    /// The queue of each owner at each origin.
    queues: OwnerQueues,
    tickets: u32,
    in_flight: HashMap<WebhookSlot, OpenPost, RandomState>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// Slots in use, over all owners.
    granted: u32,
}

impl<T> Schedule<T> {
    /// Bytes of an entry.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = size_of::<Option<Scheduled<T>>>();

    /// An empty schedule.
    pub fn new(pace: Pace) -> Schedule<T> {
        Schedule {
            pace,
            entries: Vec::new(),
            free: Vec::new(),
            checks: 0,
            origins: PostOrigins::default(),
            owners: HashMap::default(),
            queues: HashMap::default(),
            tickets: 0,
            in_flight: HashMap::default(),
            timers: BinaryHeap::new(),
            granted: 0,
        }
    }

    /// The hash of a webhook's URL if its deliveries are rate limited; 0: no rate limit.
    pub fn limit_of(&self, slot: WebhookSlot) -> u32 {
        let entry = self.entries.get(slot.index as usize).and_then(Option::as_ref);
        entry.filter(|entry| entry.check == slot.check).map_or(0, |entry| entry.url)
    }

    /// Limits the rate of a webhook's deliveries by the hash of its URL; 0: no limit.
    pub fn limit(&mut self, slot: WebhookSlot, url: u32) {
        if let Some(entry) = self.entry(slot) {
            entry.url = url;
        }
    }

    /// Whether the rate has delayed a delivery of a webhook since the last one that arrived.
    pub fn is_limited(&self, slot: WebhookSlot) -> bool {
        let entry = self.entries.get(slot.index as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.check == slot.check && entry.is_limited)
    }

    /// Whether a webhook is rate limited, and a challenge may be sent to its unconfirmed URL.
    pub fn may_challenge(&mut self, slot: WebhookSlot, now_ms: u64) -> bool {
        let Some((url, queue)) = self.limited(slot) else { return false };
        let share = self.origins.share(queue);
        share.is_some_and(|share| !share.is_confirmed(url) && share.may_challenge(now_ms))
    }

    /// Records that a challenge is sent to the URL of a webhook.
    pub fn challenged(&mut self, slot: WebhookSlot, now_ms: u64) {
        let pace = self.pace;
        if let Some((_, queue)) = self.limited(slot)
            && let Some(share) = self.origins.share(queue)
        {
            share.challenged(&pace, now_ms);
        }
    }

    /// Records that the URL of a webhook has answered its challenge.
    pub fn confirm(&mut self, slot: WebhookSlot) {
        if let Some((url, queue)) = self.limited(slot)
            && let Some(share) = self.origins.share(queue)
        {
            share.confirm(url);
        }
    }

    fn limited(&mut self, slot: WebhookSlot) -> Option<(u32, QueueKey)> {
        let entry = self.entry(slot).filter(|entry| entry.url != 0)?;
        Some((entry.url, entry.queue()))
    }

    /// The origin of a webhook; `None`: it was deleted.
    pub fn origin(&self, slot: WebhookSlot) -> Option<&str> {
        let entry = self.entries.get(slot.index as usize)?.as_ref();
        let origin = entry.filter(|entry| entry.check == slot.check)?.origin;
        self.origins.get(origin).map(|origin| &*origin.text)
    }

    /// Whether an origin has webhooks.
    pub fn has_origin(&self, origin: &str) -> bool {
        self.origins.number(origin).is_some()
    }

    /// The number of webhooks of a host, over all schemes and ports.
    pub fn entries_of_host(&self, name: &str) -> usize {
        self.origins.entries_of_host(name)
    }

    /// Bytes of all origins.
    pub fn origin_bytes(&self) -> usize {
        self.origins.bytes()
    }

    /// Bytes of the origins that a holder was the first to register.
    pub fn origin_bytes_of(&self, holder: Holder) -> usize {
        self.origins.bytes_of(holder)
    }

    /// Bytes of the origins that anonymous callers were the first to register.
    pub fn origin_bytes_of_anonymous(&self) -> usize {
        self.origins.bytes_of_anonymous()
    }

    /// Adds a webhook without undelivered events, at an origin such as `https://a.example:443`,
    /// charged to a holder. All anonymous holders take turns as one owner, 0.
    pub fn add(&mut self, origin: &str, holder: Holder, value: T) -> WebhookSlot {
        let origin = self.origins.enter(origin, holder);
        let owner = holder.number();
        self.checks = self.checks.wrapping_add(1);
        let check = self.checks;
        let stage = PostStage::Idle;
        let entry = Some(Scheduled {
            value,
            origin,
            owner,
            check,
            stage,
            failures: 0,
            since_ms: 0,
            due_ms: 0,
            url: 0,
            is_paid: false,
            is_limited: false,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        WebhookSlot { index, check }
    }

    /// Adds a webhook that replaces another one, which the caller removes next. The new webhook
    /// waits while a delivery of the other one is in flight.
    pub fn add_replacement(
        &mut self,
        before: WebhookSlot,
        origin: &str,
        holder: Holder,
        value: T,
    ) -> WebhookSlot {
        let slot = self.add(origin, holder, value);
        let since_ms = self.entry(before).map(|entry| entry.since_ms);
        let is_its = |(of, post): &(&WebhookSlot, &mut OpenPost)| {
            **of == before || post.successor == Some(before)
        };
        if let (Some(since_ms), Some((_, post))) =
            (since_ms, self.in_flight.iter_mut().find(is_its))
        {
            post.successor = Some(slot);
            if let Some(entry) = self.entry(slot) {
                (entry.stage, entry.since_ms) = (PostStage::Blocked, since_ms);
            }
        }
        slot
    }

    /// Removes a webhook in any stage. Its delivery in flight counts until the delivery has ended.
    pub fn remove(&mut self, slot: WebhookSlot) -> Option<T> {
        self.entry(slot)?;
        let entry = self.entries[slot.index as usize].take()?;
        self.free.push(slot.index);
        let queue = entry.queue();
        match entry.stage {
            PostStage::Ready => self.leave_queue(queue),
            PostStage::Granted => {
                self.origins.withdraw(queue.origin, slot);
                self.release(queue);
            }
            _ => {}
        }
        self.origins.leave(entry.origin);
        Some(entry.value)
    }

    /// The value of a webhook; `None`: it was deleted.
    pub fn get(&self, slot: WebhookSlot) -> Option<&T> {
        let entry = self.entries.get(slot.index as usize)?.as_ref()?;
        (entry.check == slot.check).then_some(&entry.value)
    }

    /// The value of a webhook, to change it; `None`: the webhook was deleted.
    pub fn get_mut(&mut self, slot: WebhookSlot) -> Option<&mut T> {
        self.entry(slot).map(|entry| &mut entry.value)
    }

    fn entry(&mut self, slot: WebhookSlot) -> Option<&mut Scheduled<T>> {
        let entry = self.entries.get_mut(slot.index as usize)?.as_mut()?;
        (entry.check == slot.check).then_some(entry)
    }

    /// Whether a webhook has undelivered events and is not stopped.
    pub fn is_busy(&self, slot: WebhookSlot) -> bool {
        let entry = self.entries.get(slot.index as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| entry.check == slot.check);
        entry.is_some_and(|entry| !matches!(entry.stage, PostStage::Idle | PostStage::Stopped))
    }

    /// Whether a delivery of a webhook is in flight.
    pub fn is_posting(&self, slot: WebhookSlot) -> bool {
        self.get(slot).is_some() && self.in_flight.contains_key(&slot)
    }

    /// Whether a webhook waits for the last delivery of the webhook that it replaces.
    pub fn is_blocked(&self, slot: WebhookSlot) -> bool {
        is_at(&self.entries, slot, PostStage::Blocked)
    }

    /// The replacement of a deleted webhook, while a delivery of the deleted one is in flight.
    pub fn successor(&self, slot: WebhookSlot) -> Option<WebhookSlot> {
        match self.get(slot) {
            Some(_) => None,
            None => self.in_flight.get(&slot)?.successor,
        }
    }

    /// Whether a webhook is stopped.
    pub fn is_stopped(&self, slot: WebhookSlot) -> bool {
        is_at(&self.entries, slot, PostStage::Stopped)
    }

    /// Records that a webhook has new events.
    pub fn note(&mut self, slot: WebhookSlot, now_ms: u64) {
        let Some(entry) = self.entry(slot) else { return };
        match entry.stage {
            PostStage::Idle => {
                entry.since_ms = now_ms;
                self.make_ready(slot);
            }
            PostStage::Posting(_) => entry.stage = PostStage::Posting(true),
            // The next delivery includes all events that exist when it begins.
            PostStage::Ready
            | PostStage::Granted
            | PostStage::Blocked
            | PostStage::Deferred
            | PostStage::Paused
            | PostStage::Stopped => {}
        }
    }

    /// Schedules a stopped or waiting webhook at once; if its origin rests, its delivery probes the
    /// origin.
    pub fn resume(&mut self, slot: WebhookSlot, now_ms: u64) {
        let Some(entry) = self.entry(slot) else { return };
        if matches!(entry.stage, PostStage::Idle | PostStage::Paused | PostStage::Stopped) {
            (entry.failures, entry.since_ms) = (0, now_ms);
            self.make_first(slot);
        }
    }

    /// Stops a webhook without undelivered events, until [`Schedule::resume`].
    pub fn stop(&mut self, slot: WebhookSlot) {
        if let Some(entry) = self.entry(slot).filter(|entry| entry.stage == PostStage::Idle) {
            entry.stage = PostStage::Stopped;
        }
    }

    /// When [`Schedule::next`] may return a webhook, unless another event occurs first.
    pub fn due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// The number of deliveries in flight.
    pub fn posting(&self) -> u32 {
        self.in_flight.len() as u32
    }

    /// The numbers of webhooks and of origins.
    pub fn len(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.origins.len())
    }
}

/// Whether a webhook is in a stage.
fn is_at<T>(entries: &[Option<Scheduled<T>>], slot: WebhookSlot, stage: PostStage) -> bool {
    let entry = entries.get(slot.index as usize).and_then(Option::as_ref);
    entry.is_some_and(|entry| entry.check == slot.check && entry.stage == stage)
}

#[cfg(test)]
mod tests;
