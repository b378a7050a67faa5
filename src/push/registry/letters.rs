//! Webhooks that stop: what is known of them, and how they go on.

use super::{PushState, Webhooks};
use crate::{
    push::{
        dead::{DeadLetter, WhyDead},
        schedule::PostPlace,
    },
    service::Now,
};

/// What became of a dead letter that somebody wanted to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// It goes on.
    Resumed,
    /// Its task, or its configuration, is not there any more.
    Gone,
    /// There is none of this number.
    Unknown,
}

impl Webhooks {
    /// A task has left: what was not posted of it becomes dead letters.
    pub fn task_left(&self, task: u64, unix_ms: u64) {
        let mut state = self.lock();
        for place in state.places(task) {
            if state.schedule.is_busy(place) {
                state.bury(place, WhyDead::TaskLeft, unix_ms);
            }
        }
        state.remove_all(task);
        drop(state);
        self.changes.wake();
    }

    /// Lets those stop that wait for hosts that are away, and were tried for as long as they may
    /// be.
    pub fn give_up(&self, now: Now) {
        let mut state = self.lock();
        for place in state.schedule.give_up(now.mono_ms) {
            state.bury(place, WhyDead::GivenUp, now.unix_ms);
            let task = state.schedule.get(place).map(|webhook| webhook.task);
            task.into_iter().for_each(|task| state.settle(task));
        }
    }

    /// Dead letters, the oldest first.
    pub fn dead(&self, mut each: impl FnMut(&DeadLetter)) {
        self.lock().dead.iter().for_each(&mut each);
    }

    /// Has the webhook of a dead letter go on where it has stopped; see [`ReplayOutcome`].
    pub fn replay(&self, number: u64, now_ms: u64) -> ReplayOutcome {
        let mut state = self.lock();
        let Some(letter) = state.dead.find(number) else { return ReplayOutcome::Unknown };
        let place = letter.place;
        if letter.why == WhyDead::TaskLeft || state.schedule.get(place).is_none() {
            return ReplayOutcome::Gone;
        }
        state.dead.remove(number);
        state.schedule.resume(place, now_ms);
        let task = state.schedule.get(place).map(|webhook| webhook.task);
        task.into_iter().for_each(|task| state.settle(task));
        drop(state);
        self.changes.wake();
        ReplayOutcome::Resumed
    }

    /// Forgets a dead letter; false: there is none of this number.
    pub fn drop_dead(&self, number: u64) -> bool {
        self.lock().dead.remove(number)
    }
}

impl PushState {
    /// Keeps what is known of a webhook that does not go on.
    pub(super) fn bury(&mut self, place: PostPlace, why: WhyDead, unix_ms: u64) {
        let Some(webhook) = self.schedule.get(place) else { return };
        let task = self.tasks.get(&webhook.task);
        let task_id = task.map(|task| task.watch.task_id()).unwrap_or_default();
        self.dead.push(webhook.letter(place, task_id, why, unix_ms));
    }
}
