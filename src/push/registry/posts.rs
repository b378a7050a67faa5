//! What became of posts.

use super::Webhooks;
use crate::{
    push::{
        dead::WhyDead,
        schedule::{Fate, PostPlace},
    },
    service::Now,
};

/// A post that has not arrived.
#[derive(Clone, Copy, Debug)]
pub struct FailedPost<'a> {
    /// The webhook.
    pub place: PostPlace,
    /// Why, in one line.
    pub why: &'a str,
    /// When the receiver wants to be asked again.
    pub retry_after_ms: Option<u64>,
    /// Fresh bits.
    pub random: u64,
}

impl Webhooks {
    /// A post has arrived, up to an event; `has_more`: there are others behind it.
    pub fn delivered(&self, place: PostPlace, upto: Option<u64>, now_ms: u64, has_more: bool) {
        self.advance(place, (upto, true), now_ms, has_more);
    }

    /// There was nothing to post up to an event; see [`Webhooks::delivered`].
    pub fn passed_over(&self, place: PostPlace, upto: u64, now_ms: u64, has_more: bool) {
        self.advance(place, (Some(upto), false), now_ms, has_more);
    }

    fn advance(
        &self,
        place: PostPlace,
        (upto, is_posted): (Option<u64>, bool),
        now_ms: u64,
        has_more: bool,
    ) {
        let mut state = self.lock();
        state.outcomes.delivered += u64::from(is_posted);
        let mut task = None;
        if let Some(webhook) = state.schedule.get_mut(place) {
            task = Some(webhook.task);
            if let Some(seq) = upto {
                webhook.posted(seq);
            }
        }
        state.schedule.delivered(place, now_ms, has_more);
        task.into_iter().for_each(|task| state.settle(task));
        drop(state);
        self.changes.wake();
    }

    /// A post has not arrived; see [`Schedule::failed`].
    pub fn failed(&self, failed: &FailedPost<'_>, now: Now) -> Fate {
        let FailedPost { place, why, retry_after_ms, random } = *failed;
        let mut state = self.lock();
        state.outcomes.failed += 1;
        let fate = state.schedule.failed(place, now.mono_ms, retry_after_ms, random);
        if let Some(webhook) = state.schedule.get_mut(place) {
            webhook.set_error(why);
            let task = webhook.task;
            if fate == Fate::GivenUp {
                state.bury(place, WhyDead::GivenUp, now.unix_ms);
                state.settle(task);
            }
        }
        drop(state);
        self.changes.wake();
        fate
    }

    /// Lets one go that its receiver does not want any more.
    pub fn gone(&self, place: PostPlace) {
        let mut state = self.lock();
        state.outcomes.gone += 1;
        if let Some(task) = state.schedule.get(place).map(|webhook| webhook.task) {
            state.remove(task, place);
            state.settle(task);
        }
        drop(state);
        self.changes.wake();
    }
}
