//! Webhooks with a next delivery that is too large for now and therefore deferred.
//!
//! Invariant: owners take turns, and so do the webhooks of each owner; but the first webhook that
//! waits for free bytes stays the first.

use super::{PushState, Webhooks};
use crate::{
    push::{
        large::{LargePosts, PostRoom, PostSize},
        owner_line::OwnerLine,
        schedule::WebhookSlot,
    },
    service::Now,
};

/// Maximum number of deliveries that are resumed at a time.
const RESUMED_MAX: usize = 8;

/// Maximum number of deferred webhooks that are examined at a time; one without room goes to the
/// end.
const LOOKS_MAX: usize = 256;

/// Webhooks that wait until their deliveries have room.
pub(super) type DeferredWebhooks = OwnerLine<(WebhookSlot, PostSize)>;

impl Webhooks {
    /// Defers a delivery that was prepared but not sent: its webhook waits for room for its bytes,
    /// without delaying others.
    pub fn defer(&self, slot: WebhookSlot, size: PostSize, now: Now) {
        let mut state = self.lock();
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        if state.schedule.defer(slot, now.mono_ms) {
            state.deferred.push_back(size.owner, (slot, size));
            state.tidy_deferred();
        }
        state.settle_slot(settled, now);
    }

    /// Resumes some of the deferred webhooks that have room now; returns their number.
    pub fn resume_deferred(&self, large: &mut LargePosts) -> usize {
        let mut state = self.lock();
        large.review(|slot| state.schedule.is_near(slot));
        let (mut looks, mut resumed, mut first) = (0, 0, None);
        for _ in 0..state.deferred.len() {
            if looks == LOOKS_MAX || resumed == RESUMED_MAX {
                break;
            }
            let Some((owner, (slot, size))) = state.deferred.pop_front() else { break };
            if !state.schedule.is_deferred(slot) {
                continue;
            }
            looks += 1;
            match large.room(&size) {
                PostRoom::Free => {
                    state.schedule.resume_deferred(slot);
                    large.promise(slot, size);
                    resumed += 1;
                }
                PostRoom::AllHeld if first.is_none() => {
                    large.wait(&size);
                    first = Some((owner, (slot, size)));
                }
                PostRoom::AllHeld | PostRoom::ShareHeld => {
                    state.deferred.push_back(owner, (slot, size));
                }
            }
        }
        if let Some((owner, waits)) = first {
            state.deferred.push_front(owner, waits);
        }
        drop(state);
        if resumed > 0 {
            self.changes.wake();
        }
        resumed
    }
}

impl PushState {
    /// Sweeps deleted webhooks if they may be the majority.
    fn tidy_deferred(&mut self) {
        if self.deferred.len() > 2 * self.schedule.len().0 + LOOKS_MAX {
            let schedule = &self.schedule;
            self.deferred.retain(|_, (slot, _)| schedule.is_deferred(*slot));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::{
        model::PushConfig,
        push::{
            Pace, Post,
            outbox::PostRequest,
            registry::{
                PushBounds,
                tests::{BOUNDS, at, next, set},
            },
        },
    };

    fn large() -> PostSize {
        let request = PostRequest { body: vec![0; 100], ..PostRequest::default() };
        LargePosts::new(2, 1).size(&request).unwrap()
    }

    #[test]
    fn deferred_webhooks_are_bounded_and_all_are_delivered() {
        let most = 10 * LOOKS_MAX;
        let bounds = PushBounds { per_host: most, bytes_max: 1 << 30, ..BOUNDS };
        let pace = Pace { posts_burst: u32::MAX, ..Pace::default() };
        let webhooks = Webhooks::new(bounds, pace);
        let defer = |task: usize| {
            set(&webhooks, task as u64, 0, "a", "https://h.example/").unwrap();
            webhooks.note(task as u64);
            webhooks.defer(next(&webhooks, 0).unwrap().slot, large(), at(0));
        };
        // Each webhook replaces the previous one.
        (0..most).for_each(|_| defer(0));
        assert!(webhooks.lock().deferred.len() <= LOOKS_MAX + 2);
        (1..most).for_each(defer);
        // The deliveries to one host have a share.
        let mut posts = LargePosts::new(800, 1);
        let slot = WebhookSlot::NONE;
        assert!(posts.begin(slot, &large()));
        assert_eq!(webhooks.resume_deferred(&mut posts), 0);
        posts.leave(&large());
        // In the end all deliveries arrive.
        let mut posted = 0;
        while webhooks.resume_deferred(&mut posts) > 0 {
            let post = next(&webhooks, 0).unwrap();
            assert!(posts.begin(post.slot, &large()));
            webhooks.delivered(post.slot, 9, at(0), false);
            posts.leave(&large());
            posted += 1;
        }
        assert_eq!((posted, webhooks.lock().deferred.len()), (most, 0));
    }

    #[test]
    fn large_delivery_is_not_starved_by_smaller_ones() {
        let bounds = PushBounds { per_owner: 64, bytes_max: 1 << 30, ..BOUNDS };
        let webhooks = Webhooks::new(bounds, Pace::default());
        let put = |task: u64, owner, host: u64| {
            set(&webhooks, task, owner, "a", &format!("https://h{host}.example/")).unwrap();
            webhooks.note(task);
        };
        // Three deliveries of each of two owners are always in flight; the delivery of the third
        // owner is larger.
        let mut posts = LargePosts::new(32_000, 8);
        (0..64).for_each(|task| put(task, 2 + task as u32 % 2, task));
        let of = |post: &Post| {
            let (owner, bytes) = (post.owner, if post.owner == 1 { 6_000 } else { 2_100 });
            let url = PushConfig(&post.config).url().to_string();
            PostRequest { owner, url, body: vec![0; bytes], ..PostRequest::default() }
        };
        let mut in_flight = VecDeque::new();
        for round in 0..200 {
            while let Some(post) = next(&webhooks, 0) {
                let size = posts.size(&of(&post)).unwrap();
                if !posts.begin(post.slot, &size) {
                    webhooks.defer(post.slot, size, at(0));
                } else if post.owner == 1 {
                    assert!((50..70).contains(&round), "{round}");
                    return;
                } else {
                    in_flight.push_back((post.slot, size));
                }
            }
            if round == 50 {
                put(100, 1, 100);
                continue;
            }
            let (slot, size) = in_flight.pop_front().unwrap();
            webhooks.delivered(slot, 9, at(0), true);
            posts.leave(&size);
            webhooks.resume_deferred(&mut posts);
        }
        panic!("the deferred delivery never started");
    }
}
