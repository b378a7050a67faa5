//! The outcomes of deliveries and their effect on the schedule.

use std::cmp::Reverse;

use super::{
    FailureKind, Fate, OpenPost, PostStage, Schedule, Timer, WebhookSlot, is_at, origins::Circuit,
    turns::QueueKey,
};

impl<T> Schedule<T> {
    /// Handles a delivery that has arrived; `has_more`: its webhook has newer events.
    pub fn delivered(&mut self, slot: WebhookSlot, now_ms: u64, has_more: bool) {
        let Some(post) = self.in_flight.remove(&slot) else { return };
        self.note_life(post.queue);
        if let Some(entry) = self.entry(slot) {
            entry.is_limited = false;
        }
        self.reschedule(slot, now_ms, has_more);
        self.end(post, now_ms);
    }

    /// Handles a webhook that had nothing to post, which implies nothing about its origin.
    pub fn passed_over(&mut self, slot: WebhookSlot, now_ms: u64, has_more: bool) {
        let Some(post) = self.in_flight.remove(&slot) else { return };
        self.give_back_rate(slot);
        self.reschedule(slot, now_ms, has_more);
        self.end(post, now_ms);
    }

    /// Lets the next delivery use the count in the rate, because this one was not sent.
    fn give_back_rate(&mut self, slot: WebhookSlot) {
        if let Some(entry) = self.entry(slot) {
            entry.is_paid = entry.url != 0;
        }
    }

    /// Handles an unanswered challenge: the webhook's events are posted as before.
    pub fn unanswered(&mut self, slot: WebhookSlot, now_ms: u64) {
        let Some(post) = self.in_flight.remove(&slot) else { return };
        if let Some(entry) = self.entry(slot) {
            entry.since_ms = now_ms;
            self.make_ready(slot);
        }
        self.end(post, now_ms);
    }

    /// Defers a delivery, which implies nothing about its origin; false: its webhook was deleted.
    pub fn defer(&mut self, slot: WebhookSlot, now_ms: u64) -> bool {
        let Some(post) = self.in_flight.remove(&slot) else { return false };
        self.give_back_rate(slot);
        let entry = self.entry(slot).map(|entry| entry.stage = PostStage::Deferred);
        self.end(post, now_ms);
        entry.is_some()
    }

    /// Whether a webhook is deferred by [`Schedule::defer`].
    pub fn is_deferred(&self, slot: WebhookSlot) -> bool {
        is_at(&self.entries, slot, PostStage::Deferred)
    }

    /// Whether a delivery is in flight, or waits only for the end of others.
    pub fn is_near(&self, slot: WebhookSlot) -> bool {
        let entry = self.entries.get(slot.index as usize).and_then(Option::as_ref);
        entry.filter(|entry| entry.check == slot.check).is_some_and(|entry| match entry.stage {
            PostStage::Granted | PostStage::Posting(_) => true,
            PostStage::Ready => {
                let origin = self.origins.get(entry.origin);
                origin.is_some_and(|origin| origin.circuit == Circuit::Closed)
            }
            PostStage::Idle
            | PostStage::Blocked
            | PostStage::Deferred
            | PostStage::Paused
            | PostStage::Stopped => false,
        })
    }

    /// Schedules a deferred webhook.
    pub fn resume_deferred(&mut self, slot: WebhookSlot) {
        if self.is_deferred(slot) {
            self.make_ready(slot);
        }
    }

    /// Handles a failed delivery. `retry_after_ms`: the receiver's `Retry-After`; `random`: fresh
    /// bits.
    pub fn failed(
        &mut self,
        slot: WebhookSlot,
        kind: FailureKind,
        now_ms: u64,
        retry_after_ms: Option<u64>,
        random: u64,
    ) -> Fate {
        let Some(post) = self.in_flight.remove(&slot) else { return Fate::Repeated };
        let rest_ms_max = match kind {
            FailureKind::Refused => None,
            FailureKind::Unwell => Some(self.pace.rest_ms_max),
            FailureKind::NoAnswer => Some(self.pace.pause_ms_max),
        };
        let is_open = match rest_ms_max {
            Some(most_ms) => self.note_failure(post.queue, slot, now_ms, most_ms, random),
            None => {
                self.note_life(post.queue);
                false
            }
        };
        let fate = self.repeat(slot, is_open, now_ms, retry_after_ms, random);
        self.end(post, now_ms);
        fate
    }

    /// Ends a delivery: frees its slots and schedules the webhook that waits for its end.
    fn end(&mut self, post: OpenPost, now_ms: u64) {
        if let Some(slot) = post.successor
            && let Some(entry) = self.entry(slot)
            && entry.stage == PostStage::Blocked
        {
            entry.since_ms = now_ms;
            self.make_ready(slot);
        }
        self.release(post.queue);
    }

    fn reschedule(&mut self, slot: WebhookSlot, now_ms: u64, has_more: bool) {
        let Some(entry) = self.entry(slot) else { return };
        (entry.failures, entry.since_ms) = (0, now_ms);
        match has_more || entry.stage == PostStage::Posting(true) {
            true => self.make_ready(slot),
            false => entry.stage = PostStage::Idle,
        }
    }

    /// Records that an origin has responded.
    fn note_life(&mut self, queue: QueueKey) {
        if let Some(origin) = self.origins.get_mut(queue.origin) {
            (origin.failures, origin.failed) = (0, WebhookSlot::NONE);
            origin.circuit = Circuit::Closed;
        }
    }

    /// Pauses a webhook after a failure, or stops it.
    fn repeat(
        &mut self,
        slot: WebhookSlot,
        is_open: bool,
        now_ms: u64,
        retry_after_ms: Option<u64>,
        random: u64,
    ) -> Fate {
        let pace = self.pace;
        let Some(entry) = self.entry(slot) else { return Fate::Repeated };
        entry.failures = entry.failures.saturating_add(1);
        if now_ms.saturating_sub(entry.since_ms) >= pace.give_up_ms {
            entry.stage = PostStage::Stopped;
            return Fate::GivenUp;
        }
        match retry_after_ms {
            // The webhook queues after all other webhooks of its owner that wait for the origin.
            None if is_open => self.make_ready(slot),
            retry_after_ms => {
                let bits = random.rotate_left(32);
                let own_ms = pace.pause_ms(entry.failures, pace.pause_ms_max, bits);
                let pause_ms = retry_after_ms.map_or(own_ms, |ms| ms.clamp(1, pace.pause_ms_max));
                self.pause(slot, now_ms.saturating_add(pause_ms));
            }
        }
        Fate::Repeated
    }

    /// Pauses a webhook until `due_ms`.
    pub(super) fn pause(&mut self, slot: WebhookSlot, due_ms: u64) {
        let Some(entry) = self.entry(slot) else { return };
        (entry.due_ms, entry.stage) = (due_ms, PostStage::Paused);
        self.timers.push(Reverse((due_ms, Timer::Pause(slot.index, slot.check))));
        self.tidy_timers();
    }

    /// Counts a failure of an origin and limits its rest to `most_ms`; returns true if its circuit
    /// is not closed.
    fn note_failure(
        &mut self,
        queue: QueueKey,
        slot: WebhookSlot,
        now_ms: u64,
        most_ms: u64,
        random: u64,
    ) -> bool {
        let pace = self.pace;
        let Some(origin) = self.origins.get_mut(queue.origin) else { return false };
        // Failures of only one webhook imply nothing about its origin; the webhook has its own
        // pauses.
        if origin.circuit == Circuit::Closed && origin.failed == slot {
            return false;
        }
        origin.failed = slot;
        origin.failures = origin.failures.saturating_add(1);
        let Some(beyond) = (origin.failures + 1).checked_sub(pace.rest_after).filter(|n| *n > 0)
        else {
            return false;
        };
        // Deliveries that were in flight when the circuit opened do not extend its rest.
        if origin.circuit != Circuit::Open {
            origin.circuit = Circuit::Open;
            origin.open_until_ms = now_ms.saturating_add(pace.pause_ms(beyond, most_ms, random));
            self.timers.push(Reverse((origin.open_until_ms, Timer::Probe(queue.origin))));
            self.origins.unreserve_all(queue.origin);
        }
        true
    }
}
