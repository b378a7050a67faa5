//! The queues of the schedule.
//!
//! An owner queue contains the webhooks of one owner at one origin. Failed webhooks and untried
//! webhooks have separate owner queues. Invariants:
//!
//! - An owner queue with a waiting webhook has exactly one turn, in the queue of its origin or of
//!   its owner.
//! - It waits in the queue of its origin only while the origin or the host has no free slot, and in
//!   the queue of its owner only while the owner has no free slot. While the host has no free slot,
//!   owner and origin are also in the queue of the host.
//! - Code that frees a slot serves the next owner queues until the slot is taken, so no owner queue
//!   waits only for a slot that is free. Exception: an origin that has become the only one of its
//!   host uses the slots of the others only from the end of its next delivery.
//! - Each turn starts one delivery; an owner queue with more webhooks then goes to the end.
//! - If the owner has no free slot at a turn, the last slot of the origin is reserved for the owner
//!   queue, so that it gets both slots. Every second free slot of the owner goes to an owner queue
//!   with such a reservation.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

use foldhash::fast::RandomState;

use super::{
    OpenPost, PostStage, SPARE, Schedule, Timer, WebhookSlot, is_at,
    origins::{Circuit, PostOrigin},
};

/// The key of an owner queue: an owner at an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub origin: u32,
    pub owner: u32,
    /// Whether the webhooks have failed since their last successful delivery.
    pub is_tried: bool,
}

/// The waiting webhooks, the longest wait first. Some may be deleted.
#[derive(Default)]
pub(super) struct OwnerQueue {
    pub slots: VecDeque<WebhookSlot>,
    /// The number of webhooks that wait.
    pub ready: usize,
    /// Whether the turn is in the queue of the owner; false: in that of the origin.
    waits_for_owner: bool,
    /// The ticket of the current turn.
    ticket: u32,
}

/// All owner queues.
pub(super) type OwnerQueues = HashMap<QueueKey, OwnerQueue, RandomState>;

/// The turn of an owner queue; stale if the owner queue has another ticket.
#[derive(Clone, Copy)]
pub(super) struct QueueTurn {
    pub(super) queue: QueueKey,
    ticket: u32,
}

/// A queue of owner queues. Some of the turns may be stale.
#[derive(Default)]
pub(super) struct QueueLine {
    pub turns: VecDeque<QueueTurn>,
    /// The length above which stale turns are swept.
    most: usize,
}

impl QueueLine {
    /// Sweeps stale turns if they may be the majority.
    pub(super) fn tidy(&mut self, queues: &OwnerQueues) {
        if self.turns.len() > self.most.max(SPARE) {
            self.turns
                .retain(|turn| queues.get(&turn.queue).is_some_and(|queue| turn.is_of(queue)));
            self.most = 2 * self.turns.len();
        }
    }
}

impl<T> Schedule<T> {
    /// Grants slots to a webhook if they are free, or else appends it to its owner queue.
    pub(super) fn make_ready(&mut self, slot: WebhookSlot) {
        if self.grant_at_once(slot).is_some() {
            return;
        }
        if let Some((key, 1)) = self.enter_queue(slot, VecDeque::push_back) {
            self.take_turn(key, VecDeque::push_back);
            self.open_origin(key.origin);
        }
    }

    /// Takes free slots. If an origin and an owner have free slots, no owner queue waits for them.
    fn grant_at_once(&mut self, slot: WebhookSlot) -> Option<()> {
        let entry = self.entries.get_mut(slot.index as usize)?.as_mut()?;
        let entry = Some(entry).filter(|entry| entry.check == slot.check)?;
        let most = self.pace.posts_of_owner(entry.owner, self.granted);
        let owner = self.owners.entry(entry.owner).or_default();
        if owner.posting >= most {
            return None;
        }
        if !self.origins.take_if_free(entry.queue(), slot, &self.pace, owner) {
            return None;
        }
        entry.stage = PostStage::Granted;
        self.granted += 1;
        Some(())
    }

    /// Puts a webhook before all others of its origin, and probes the origin at once.
    pub(super) fn make_first(&mut self, slot: WebhookSlot) {
        let Some(number) = self.entry(slot).map(|entry| entry.origin) else { return };
        if let Some(origin) = self.origins.get_mut(number)
            && origin.circuit == Circuit::Open
        {
            origin.circuit = Circuit::HalfOpen;
        }
        if let Some(queue) = self.put_back(slot)
            && let Some(origin) = self.origins.get_mut(number)
        {
            origin.prefer(queue.is_tried);
        }
        self.open_origin(number);
    }

    /// Puts a webhook at the head of its owner queue, and the owner queue at the head of its
    /// origin's queue.
    fn put_back(&mut self, slot: WebhookSlot) -> Option<QueueKey> {
        let (key, _) = self.enter_queue(slot, VecDeque::push_front)?;
        self.take_turn(key, VecDeque::push_front);
        Some(key)
    }

    /// Adds a webhook to its owner queue; returns the owner queue and its number of waiting
    /// webhooks.
    fn enter_queue(
        &mut self,
        slot: WebhookSlot,
        put: fn(&mut VecDeque<WebhookSlot>, WebhookSlot),
    ) -> Option<(QueueKey, usize)> {
        let entry = self.entry(slot)?;
        entry.stage = PostStage::Ready;
        let key = entry.queue();
        let queue = self.queues.entry(key).or_default();
        put(&mut queue.slots, slot);
        queue.ready += 1;
        Some((key, queue.ready))
    }

    /// Adds a turn of an owner queue to the queue of its origin; the earlier turn becomes stale.
    fn take_turn(&mut self, queue: QueueKey, put: fn(&mut VecDeque<QueueTurn>, QueueTurn)) {
        let turn = self.new_turn(queue, false);
        self.wait_for_origin(turn, put);
    }

    fn wait_for_origin(&mut self, turn: QueueTurn, put: fn(&mut VecDeque<QueueTurn>, QueueTurn)) {
        let queue = turn.queue;
        self.origins.wait_for_host(queue, &self.queues);
        if let Some(origin) = self.origins.get_mut(queue.origin) {
            let line = &mut origin.lines[usize::from(queue.is_tried)];
            put(&mut line.turns, turn);
            line.tidy(&self.queues);
        }
    }

    /// Adds a turn of an owner queue to the queue of its owner; `is_reserved`: a slot of the origin
    /// is reserved.
    fn wait_for_owner(&mut self, queue: QueueKey, is_reserved: bool) {
        let turn = self.new_turn(queue, true);
        self.owners.entry(queue.owner).or_default().wait(turn, is_reserved, &self.queues);
    }

    fn new_turn(&mut self, key: QueueKey, waits_for_owner: bool) -> QueueTurn {
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = self.tickets;
        if let Some(queue) = self.queues.get_mut(&key) {
            (queue.ticket, queue.waits_for_owner) = (ticket, waits_for_owner);
        }
        QueueTurn { queue: key, ticket }
    }

    /// Removes one waiting webhook from the count of its owner queue.
    pub(super) fn leave_queue(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        queue.ready -= 1;
        if queue.ready == 0 {
            self.queues.remove(&key);
            if self.origins.unreserve(key) {
                self.open_origin(key.origin);
            }
        } else if queue.slots.len() > 2 * queue.ready + SPARE {
            let entries = &self.entries;
            queue.slots.retain(|slot| is_at(entries, *slot, PostStage::Ready));
        }
    }

    /// Serves the owner queues that wait for an origin or its host, while both have free slots:
    /// owners take turns, and so do the origins of each owner.
    pub(super) fn open_origin(&mut self, number: u32) {
        self.list(number);
        while let Some((owner, at)) = self.origins.next_in_line(number, &self.pace) {
            if let Some(queue) = self.next_queue(at, owner) {
                self.serve(queue);
            }
            self.list(at);
        }
    }

    /// If the origin has a free slot, adds its next failed and its next untried owner queue to the
    /// queue of its host; an owner queue that got no slot at its turn has left that queue.
    fn list(&mut self, number: u32) {
        let waits = self.origins.get(number).is_some_and(PostOrigin::has_turns);
        if !waits || !self.origins.is_open(number, &self.pace) {
            return;
        }
        let queues = &self.queues;
        let is_its =
            |turn: &QueueTurn| queues.get(&turn.queue).is_some_and(|queue| turn.is_of(queue));
        let Some(origin) = self.origins.get_mut(number) else { return };
        let fronts = origin.fronts(is_its);
        for queue in fronts.into_iter().flatten() {
            self.origins.wait_for_host(queue, &self.queues);
        }
    }

    /// The next owner queue of this owner at an origin with a free slot; if the delivery probes the
    /// origin, the next owner queue of any owner.
    fn next_queue(&mut self, number: u32, owner: u32) -> Option<QueueKey> {
        if !self.origins.has_permit(number, &self.pace) {
            return None;
        }
        if self.origins.get(number)?.circuit == Circuit::Closed {
            return self.waiting_queue(number, owner);
        }
        let (origin, queues) = (self.origins.get_mut(number)?, &self.queues);
        let is_its =
            |turn: &QueueTurn| queues.get(&turn.queue).is_some_and(|queue| turn.is_of(queue));
        origin.next_turn(is_its).map(|turn| turn.queue)
    }

    /// The owner queue of an owner, failed or untried, that has waited longer for an origin.
    fn waiting_queue(&mut self, number: u32, owner: u32) -> Option<QueueKey> {
        let origin = self.origins.get_mut(number)?;
        let key = |is_tried| QueueKey { origin: number, owner, is_tried };
        let waits = |is_tried| {
            let queue = self.queues.get(&key(is_tried)).filter(|queue| !queue.waits_for_owner)?;
            Some(queue.ticket)
        };
        let is_tried = match (waits(false), waits(true)) {
            (Some(untried), Some(tried)) => (tried.wrapping_sub(untried) as i32) < 0,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => return None,
        };
        let key = key(is_tried);
        origin.prefer(!is_tried);
        // Usually the owner queue is also the first of this queue, where its turn is now stale.
        origin.lines[usize::from(is_tried)].turns.pop_front_if(|turn| turn.queue == key);
        Some(key)
    }

    /// Serves the owner queues that wait for an owner while the owner has free slots.
    fn open_owner(&mut self, number: u32) {
        loop {
            let most = self.pace.posts_of_owner(number, self.granted);
            let Some(owner) = self.owners.get_mut(&number) else { return };
            if owner.posting >= most {
                return;
            }
            let Some(QueueTurn { queue: key, ticket }) = owner.next_turn() else { return };
            if self.queues.get(&key).is_none_or(|queue| queue.ticket != ticket) {
                continue;
            }
            self.origins.unreserve(key);
            if self.origins.has_permit(key.origin, &self.pace) {
                self.serve(key);
                // The origin may have more slots; the owner queue may have another turn there.
                self.open_origin(key.origin);
            } else {
                self.take_turn(key, VecDeque::push_back);
                self.open_origin(key.origin);
            }
        }
    }

    /// Serves an owner queue; its origin must have a free slot.
    fn serve(&mut self, key: QueueKey) {
        let most = self.pace.posts_of_owner(key.owner, self.granted);
        let owner = self.owners.entry(key.owner).or_default();
        self.origins.unreserve(key);
        if owner.posting >= most {
            let is_reserved = self.origins.reserve(key, &self.pace);
            return self.wait_for_owner(key, is_reserved);
        }
        let Some(queue) = self.queues.get_mut(&key) else { return };
        let entries = &mut self.entries;
        let mut waiting = std::iter::from_fn(|| queue.slots.pop_front());
        let next = waiting.find(|slot| is_at(entries, *slot, PostStage::Ready));
        if let Some(slot) = next
            && let Some(entry) = &mut entries[slot.index as usize]
        {
            entry.stage = PostStage::Granted;
            queue.ready -= 1;
            self.granted += 1;
            self.origins.take(key, slot, owner);
        }
        if queue.ready == 0 {
            self.queues.remove(&key);
            return;
        }
        self.tickets = self.tickets.wrapping_add(1);
        (queue.ticket, queue.waits_for_owner) = (self.tickets, false);
        let turn = QueueTurn { queue: key, ticket: queue.ticket };
        self.wait_for_origin(turn, VecDeque::push_back);
    }

    /// Frees a slot of an origin, its host and an owner.
    pub(super) fn release(&mut self, key: QueueKey) {
        if let Some(owner) = self.owners.get_mut(&key.owner) {
            self.origins.give_back(key, owner);
            self.granted -= 1;
            if owner.has_turns() {
                self.open_owner(key.owner);
            }
        }
        self.open_origin(key.origin);
        self.origins.forget_unused(key.origin);
    }

    /// The next webhook to post to; its delivery is in flight from now on.
    pub fn next(&mut self, now_ms: u64) -> Option<WebhookSlot> {
        self.ring(now_ms);
        while self.posting() < self.pace.posts_max {
            let slot = self.origins.next_granted()?;
            let Some(entry) = self.entry(slot) else { continue };
            entry.stage = PostStage::Posting(false);
            let (queue, has_rate) = (entry.queue(), entry.url != 0);
            if has_rate && let Some(due_ms) = self.wait_for_rate(slot, now_ms) {
                self.pause(slot, due_ms);
                self.release(queue);
                continue;
            }
            if self.origins.get(queue.origin).is_some_and(PostOrigin::may_start) {
                self.in_flight.insert(slot, OpenPost { queue, successor: None });
                return Some(slot);
            }
            self.put_back(slot);
            self.release(queue);
        }
        None
    }

    /// Counts a delivery in the rate of its owner at its host; returns when it may start; `None`:
    /// at once. A delivery that has waited until this time is not counted again.
    fn wait_for_rate(&mut self, slot: WebhookSlot, now_ms: u64) -> Option<u64> {
        let entry = self.entry(slot)?;
        let (url, queue) = (entry.url, entry.queue());
        if std::mem::take(&mut entry.is_paid) {
            return None;
        }
        let pace = self.pace;
        let due_ms = self.origins.share(queue)?.take(url, &pace, now_ms)?;
        let entry = self.entry(slot)?;
        (entry.is_paid, entry.is_limited) = (true, true);
        Some(due_ms)
    }

    /// Schedules the webhooks and probes with timers that are due.
    fn ring(&mut self, now_ms: u64) {
        while let Some(Reverse((due_ms, timer))) = self.timers.peek().copied() {
            if due_ms > now_ms {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Pause(index, check) => {
                    let slot = WebhookSlot { index, check };
                    let Some(entry) = self.entry(slot) else { continue };
                    if entry.stage == PostStage::Paused && entry.due_ms <= now_ms {
                        self.make_ready(slot);
                    }
                }
                Timer::Probe(number) => {
                    let Some(origin) = self.origins.get_mut(number) else { continue };
                    // The number may belong to another origin now, which is not failing.
                    if origin.circuit == Circuit::Open && origin.open_until_ms <= now_ms {
                        origin.circuit = Circuit::HalfOpen;
                        self.open_origin(number);
                    }
                }
            }
        }
    }
}

impl QueueTurn {
    pub(super) fn is_of(self, queue: &OwnerQueue) -> bool {
        queue.ticket == self.ticket
    }
}
