//! The outcomes of deliveries.

use super::{PushState, Webhooks};
use crate::{
    push::{
        dead::WhyDead,
        schedule::{FailureKind, Fate, WebhookSlot},
    },
    service::Now,
};

/// A failed delivery.
#[derive(Clone, Copy, Debug)]
pub struct FailedPost<'a> {
    /// The webhook.
    pub slot: WebhookSlot,
    /// The reason, in one line.
    pub why: &'a str,
    /// The delay in the receiver's `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// What the failure implies for the origin, which other webhooks may share.
    pub kind: FailureKind,
    /// Fresh bits.
    pub random: u64,
}

impl Webhooks {
    /// Handles a delivery that has arrived, up to an event; `has_more`: later events exist.
    pub fn delivered(&self, slot: WebhookSlot, upto: u64, now: Now, has_more: bool) {
        let mut state = self.lock();
        state.outcomes.delivered += 1;
        state.advance(slot, upto);
        let successor = state.schedule.successor(slot);
        state.schedule.delivered(slot, now.mono_ms, has_more);
        if let Some(successor) = successor {
            state.advance_successor(successor, upto);
        }
        state.settle_slot(successor.unwrap_or(slot), now);
        drop(state);
        self.changes.wake();
    }

    /// Handles an answered challenge: the events of the webhook are delivered from now on.
    pub fn proven(&self, slot: WebhookSlot, now: Now) {
        let mut state = self.lock();
        if let Some(webhook) = state.schedule.get_mut(slot) {
            webhook.prove();
        }
        state.schedule.confirm(slot);
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        state.schedule.delivered(slot, now.mono_ms, true);
        state.settle_slot(settled, now);
        drop(state);
        self.changes.wake();
    }

    /// Records that a challenge is sent to the URL, which delays the next challenge.
    pub fn challenged(&self, slot: WebhookSlot, now: Now) {
        self.lock().schedule.challenged(slot, now.mono_ms);
    }

    /// Handles an unanswered challenge: the deliveries continue as before.
    pub fn unanswered(&self, slot: WebhookSlot, now: Now) {
        let mut state = self.lock();
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        state.schedule.unanswered(slot, now.mono_ms);
        state.settle_slot(settled, now);
        drop(state);
        self.changes.wake();
    }

    /// Handles a turn without content up to an event, which implies nothing about the host.
    pub fn passed_over(&self, slot: WebhookSlot, upto: u64, now: Now, has_more: bool) {
        let mut state = self.lock();
        state.advance(slot, upto);
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        state.schedule.passed_over(slot, now.mono_ms, has_more);
        state.settle_slot(settled, now);
    }

    /// Handles a failed delivery; see `Schedule::failed`.
    pub fn failed(&self, failed: &FailedPost<'_>, now: Now) -> Fate {
        let FailedPost { slot, why, retry_after_ms, kind, random } = *failed;
        let mut state = self.lock();
        state.outcomes.failed += 1;
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        let fate = state.schedule.failed(slot, kind, now.mono_ms, retry_after_ms, random);
        if let Some(webhook) = state.schedule.get_mut(slot) {
            webhook.set_error(why);
        }
        if fate == Fate::GivenUp {
            state.bury(slot, WhyDead::GivenUp, now.unix_ms);
        }
        state.settle_slot(settled, now);
        drop(state);
        self.changes.wake();
        fate
    }

    /// Handles a receiver that wants no more deliveries: removes the webhook and returns its
    /// configuration.
    pub fn gone(&self, slot: WebhookSlot, now: Now) -> Option<Box<[u8]>> {
        let mut state = self.lock();
        state.outcomes.gone += 1;
        let config = state.schedule.get(slot).map(|webhook| webhook.config().0.into());
        let successor = state.schedule.successor(slot);
        state.schedule.delivered(slot, now.mono_ms, false);
        if let Some(task) = state.schedule.get(slot).map(|webhook| webhook.task) {
            state.remove(task, slot);
            state.settle_task(task, now);
        }
        successor.into_iter().for_each(|at| state.settle_slot(at, now));
        drop(state);
        self.changes.wake();
        config
    }
}

impl PushState {
    /// Moves a webhook's position to an event.
    fn advance(&mut self, slot: WebhookSlot, upto: u64) {
        if let Some(webhook) = self.schedule.get_mut(slot) {
            webhook.posted(upto);
        }
    }

    /// The same for the webhook that has replaced it during the delivery, if both have the same
    /// receiver.
    fn advance_successor(&mut self, successor: WebhookSlot, upto: u64) {
        if let Some(webhook) = self.schedule.get_mut(successor)
            && webhook.is_same_receiver()
        {
            webhook.posted(upto);
        }
    }

    /// As `settle_task`, for the task of a webhook.
    pub(super) fn settle_slot(&mut self, slot: WebhookSlot, now: Now) {
        if let Some(task) = self.schedule.get(slot).map(|webhook| webhook.task) {
            self.settle_task(task, now);
        }
    }

    /// Updates whether webhooks still need a task. If the task was evicted, removes the webhooks
    /// that have waited for the end of a delivery.
    fn settle_task(&mut self, task: u64, now: Now) {
        match self.tasks.get(&task).is_some_and(|task| task.watch.left().is_some()) {
            true => self.end_evicted(task, now.unix_ms),
            false => self.settle(task),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Wake, Waker},
    };

    use crate::push::{
        NextPost, Pace, Post, PushBounds, Webhooks,
        registry::tests::{BOUNDS, at, set},
    };

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn deletion_frees_a_reserved_slot_and_wakes_the_worker() {
        let bounds = PushBounds { per_host: 100, bytes_max: 1 << 30, ..BOUNDS };
        let pace = Pace { per_host: 2, per_owner: 1, posts_max: 16, ..Pace::default() };
        let webhooks = Webhooks::new(bounds, pace);
        let woken = Arc::new(Woken::default());
        let webhook_worker = Waker::from(Arc::clone(&woken));
        let next = || -> Option<Box<Post>> {
            match webhooks.next(at(0), &webhook_worker) {
                NextPost::Post(post) => Some(post),
                NextPost::At(_) | NextPost::Never => None,
            }
        };
        let put = |task, owner, url| {
            set(&webhooks, task, owner, "a", url).unwrap();
            webhooks.note(task);
        };
        put(1, 0, "https://h.example/");
        put(2, 0, "https://h.example/");
        put(3, 7, "https://g.example/");
        let posts = [(); 3].map(|()| next().unwrap());
        put(4, 7, "https://h.example/");
        put(5, 0, "https://h.example/");
        let first = posts.iter().find(|post| post.task == 1).unwrap();
        webhooks.delivered(first.slot, 9, at(0), false);
        assert!(next().is_none(), "the permit is reserved for an owner without a delivery");
        let before = woken.0.load(Ordering::Relaxed);
        webhooks.delete(4, None);
        assert_eq!(woken.0.load(Ordering::Relaxed), before + 1);
        assert_eq!(next().unwrap().task, 5);
    }
}
