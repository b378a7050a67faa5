//! Stopped webhooks: their dead letters, and their replay.

use super::{PushState, Webhooks};
use crate::{
    push::{
        dead::{DeadLetter, WhyDead},
        schedule::WebhookSlot,
        webhook::NewLetter,
    },
    service::Now,
    shares::Holder,
};

/// The outcome of the replay of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The webhook resumes.
    Resumed,
    /// The configuration is deleted, or neither the task nor a retained copy exists.
    Gone,
    /// No letter has this number.
    Unknown,
}

impl Webhooks {
    /// Handles a delivery of an evicted task, for which nothing can be posted. Undelivered events
    /// become a dead letter.
    pub fn task_left(&self, slot: WebhookSlot, now: Now) {
        let mut state = self.lock();
        let settled = state.schedule.successor(slot).unwrap_or(slot);
        state.schedule.passed_over(slot, now.mono_ms, false);
        let Some(key) = state.schedule.get(settled).map(|webhook| webhook.task) else { return };
        if let Some(task) = state.tasks.get(&key).filter(|task| task.watch.left().is_none()) {
            // The store has not reported the last event.
            task.watch.leave(u64::MAX);
        }
        state.end_evicted(key, now.unix_ms);
        drop(state);
        self.changes.wake();
    }

    /// Stops webhooks that wait for unreachable hosts and have reached their retry deadline.
    pub fn give_up(&self, now: Now) {
        let mut state = self.lock();
        let given_up = state.schedule.give_up(now.mono_ms);
        given_up.iter().for_each(|at| state.bury(*at, WhyDead::GivenUp, now.unix_ms));
        // After all letters are written, because an evicted task is removed with its stopped
        // webhooks.
        given_up.iter().for_each(|at| state.settle_slot(*at, now));
    }

    /// Sets the function that is called with each letter when its webhook stops. It is called with
    /// the lock held.
    pub fn set_letter_listener(&self, listener: fn(&DeadLetter)) {
        self.lock().listener = Some(listener);
    }

    /// Dead letters, the oldest first.
    pub fn dead(&self, mut each: impl FnMut(&DeadLetter)) {
        let state = self.lock();
        state.dead.iter().for_each(|letter| each(&state.shown(letter)));
    }

    /// The dead letter with this number.
    pub fn dead_letter(&self, number: u64) -> Option<DeadLetter> {
        let state = self.lock();
        state.dead.find(number).map(|letter| state.shown(letter))
    }

    /// Resumes the webhook of a dead letter where it stopped; see [`ReplayOutcome`].
    pub fn replay(&self, number: u64, now_ms: u64) -> ReplayOutcome {
        let outcome = self.lock().replay(number, now_ms);
        if outcome == ReplayOutcome::Resumed {
            self.changes.wake();
        }
        outcome
    }

    /// Replays all dead letters; returns how many webhooks resume, and how many letters cannot be
    /// replayed and remain.
    pub fn replay_all(&self, now_ms: u64) -> (usize, usize) {
        let mut state = self.lock();
        let numbers: Vec<u64> = state.dead.iter().map(|letter| letter.number).collect();
        let (mut resumed, mut remaining) = (0, 0);
        for number in numbers {
            match state.replay(number, now_ms) {
                ReplayOutcome::Resumed => resumed += 1,
                ReplayOutcome::Gone => remaining += 1,
                ReplayOutcome::Unknown => {}
            }
        }
        drop(state);
        self.changes.wake();
        (resumed, remaining)
    }

    /// Removes a dead letter; false: no letter has this number.
    pub fn drop_dead(&self, number: u64) -> bool {
        let mut state = self.lock();
        let Some(letter) = state.dead.remove(number) else { return false };
        state.release(&letter);
        true
    }

    /// Removes all dead letters; returns their number.
    pub fn drop_all_dead(&self) -> usize {
        let mut state = self.lock();
        let letters = state.dead.clear();
        letters.iter().for_each(|letter| state.release(letter));
        letters.len()
    }
}

impl PushState {
    fn replay(&mut self, number: u64, now_ms: u64) -> ReplayOutcome {
        let Some(letter) = self.dead.find(number) else { return ReplayOutcome::Unknown };
        let (slot, task) = (letter.slot, letter.task);
        if !self.is_replayable(letter) {
            return ReplayOutcome::Gone;
        }
        if self.is_evicted(task)
            && let Some(webhook) = self.schedule.get_mut(slot)
        {
            webhook.set_replayed();
        }
        self.dead.remove(number);
        self.schedule.resume(slot, now_ms);
        self.settle(task);
        ReplayOutcome::Resumed
    }

    /// A letter with its current state.
    fn shown(&self, letter: &DeadLetter) -> DeadLetter {
        DeadLetter { is_replayable: self.is_replayable(letter), ..letter.clone() }
    }

    /// Whether the webhook of a letter exists, and the task of the webhook.
    fn is_replayable(&self, letter: &DeadLetter) -> bool {
        self.schedule.is_stopped(letter.slot)
            && (!self.is_evicted(letter.task) || self.changes.left.has(letter.task))
    }

    fn is_evicted(&self, task: u64) -> bool {
        self.tasks.get(&task).is_none_or(|task| task.watch.left().is_some())
    }

    /// Removes the webhook of an owner's oldest letter with an evicted task. The letter remains,
    /// but cannot be replayed. False: no such letter.
    pub(super) fn free_dead(&mut self, holder: Holder) -> bool {
        let is_its = |letter: &&DeadLetter| {
            letter.holder == holder
                && self.schedule.is_stopped(letter.slot)
                && self.is_evicted(letter.task)
        };
        let found = self.dead.iter().find(is_its).map(|letter| (letter.task, letter.slot));
        if let Some((task, slot)) = found {
            self.remove(task, slot);
        }
        found.is_some()
    }

    /// After a letter was removed: removes its webhook, too, if the task was evicted.
    fn release(&mut self, letter: &DeadLetter) {
        if self.schedule.is_stopped(letter.slot) && self.is_evicted(letter.task) {
            self.remove(letter.task, letter.slot);
        }
    }

    /// Removes the webhooks of an evicted task, unless the task is retained for them. A webhook
    /// with undelivered events stops and gets a dead letter. A webhook remains until its delivery
    /// in flight, or the delivery that it waits for, has an outcome.
    pub(super) fn end_evicted(&mut self, key: u64, unix_ms: u64) {
        let last = self.tasks.get(&key).and_then(|task| task.watch.left());
        let Some(last_seq) = last else { return };
        let is_retained = self.changes.left.has(key);
        for slot in self.slots(key) {
            if self.schedule.is_posting(slot) || self.schedule.is_blocked(slot) {
                continue;
            }
            // The webhook may have been removed together with an evicted letter.
            let Some(webhook) = self.schedule.get(slot) else { continue };
            let (lacks, is_replayed) = (webhook.lacks(last_seq), webhook.is_replayed());
            let is_stopped = self.schedule.is_stopped(slot);
            if lacks && is_retained {
                if !is_stopped
                    && !is_replayed
                    && let Some(slot) = self.stop(key, slot)
                {
                    self.bury(slot, WhyDead::TaskLeft, unix_ms);
                }
                continue;
            }
            // A webhook that was already stopped has a letter.
            if lacks && !is_stopped {
                self.bury(slot, WhyDead::TaskLeft, unix_ms);
            }
            self.remove(key, slot);
        }
    }

    /// Adds a dead letter for a webhook that stops.
    pub(super) fn bury(&mut self, slot: WebhookSlot, why: WhyDead, unix_ms: u64) {
        let Some(webhook) = self.schedule.get(slot) else { return };
        self.outcomes.count_dead(why);
        let task = self.tasks.get(&webhook.task);
        let (task_id, holder) =
            task.map(|task| (task.watch.task_id(), task.watch.holder())).unwrap_or_default();
        let number = self.dead.number();
        let letter = webhook.letter(NewLetter { number, slot, task_id, holder, why, unix_ms });
        if let Some(listener) = self.listener {
            listener(&letter);
        }
        if let Some(evicted) = self.dead.push(letter) {
            self.release(&evicted);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        task::Wake,
    };

    use super::*;
    use crate::{
        model::{FirstMessage, Generation, MessageBuf, PartsBuf, Task},
        push::{
            FailedPost, FailureKind, Fate, Pace, Post, PushOutcomes,
            registry::tests::{BOUNDS, at, next, set, webhooks},
        },
    };

    const HOUR: u64 = 60 * 60 * 1_000;
    const URL: &str = "https://hooks.example/secret?token=1";
    const FAILED: FailedPost<'_> = FailedPost {
        slot: WebhookSlot::NONE,
        why: "",
        retry_after_ms: None,
        kind: FailureKind::NoAnswer,
        random: 0,
    };

    /// Fails a delivery after the retry deadline.
    fn fail(webhooks: &Webhooks, post: &Post, why: &str, now_ms: u64) {
        let failed = FailedPost { slot: post.slot, why, ..FAILED };
        assert_eq!(webhooks.failed(&failed, at(now_ms)), Fate::GivenUp);
    }

    /// A task's webhook that is stopped after failures.
    fn given_up(webhooks: &Webhooks, task: u64) -> Box<Post> {
        set(webhooks, task, 0, "a", URL).unwrap();
        webhooks.note(task);
        let post = next(webhooks, 0).unwrap();
        fail(webhooks, &post, "connection refused", 25 * HOUR);
        post
    }

    /// Evicts a task with this last event.
    fn leave(webhooks: &Webhooks, task: u64, seq: u64) {
        webhooks.lock().tasks[&task].watch.leave(seq);
        webhooks.note(task);
        assert!(next(webhooks, 0).is_none());
    }

    /// Evicts a task that its webhooks still need.
    fn leave_needed(webhooks: &Webhooks, task: u64) {
        let watch = Arc::clone(&webhooks.lock().tasks[&task].watch);
        let message = MessageBuf::user(&PartsBuf::new().text("x"));
        let first = FirstMessage { message: message.view(), at_ms: 0 };
        let one = Task::submitted(b"id", b"context", Generation::V1, first, 0);
        watch.keep(Some(one));
        leave(webhooks, task, 9);
    }

    fn letters(webhooks: &Webhooks) -> Vec<(u64, WhyDead)> {
        let mut all = Vec::new();
        webhooks.dead(|letter| all.push((letter.number, letter.why)));
        all
    }

    #[test]
    fn listener_is_called_with_each_new_letter() {
        static NUMBERS: Mutex<Vec<(u64, WhyDead)>> = Mutex::new(Vec::new());
        let webhooks = webhooks();
        webhooks.set_letter_listener(|letter| {
            NUMBERS.lock().unwrap().push((letter.number, letter.why))
        });
        given_up(&webhooks, 7);
        given_up(&webhooks, 8);
        set(&webhooks, 9, 0, "a", URL).unwrap();
        webhooks.note(9);
        let post = next(&webhooks, 0).unwrap();
        webhooks.task_left(post.slot, at(0));
        let (given_up, evicted) = (WhyDead::GivenUp, WhyDead::TaskLeft);
        assert_eq!(*NUMBERS.lock().unwrap(), [(1, given_up), (2, given_up), (3, evicted)]);
    }

    #[test]
    fn stopped_webhook_leaves_a_letter_without_secrets() {
        let webhooks = webhooks();
        given_up(&webhooks, 7);
        let letter = webhooks.dead_letter(1).unwrap();
        assert_eq!((&*letter.task_id, &*letter.config_id), (&b"t7"[..], &b"a"[..]));
        assert_eq!((&*letter.origin, letter.seq), ("https://hooks.example", 1));
        assert_eq!((&*letter.error, letter.why), ("connection refused", WhyDead::GivenUp));
        assert_eq!(letter.unix_ms, 1_000_000 + 25 * HOUR);
        assert!(webhooks.dead_letter(2).is_none());
        let stats = webhooks.stats(0);
        assert_eq!((stats.pending, stats.in_flight, stats.dead_letters), (0, 0, 1));
        let counted = PushOutcomes { failed: 1, given_up: 1, ..PushOutcomes::default() };
        assert_eq!(stats.outcomes, counted);
        // Later events are not posted.
        webhooks.note(7);
        assert!(next(&webhooks, 26 * HOUR).is_none());
    }

    #[test]
    fn replayed_webhook_resumes_at_the_event_it_stopped_at() {
        let webhooks = webhooks();
        let before = given_up(&webhooks, 7);
        webhooks.note(7);
        assert_eq!(webhooks.replay(1, 30 * HOUR), ReplayOutcome::Resumed);
        assert_eq!(webhooks.replay(1, 30 * HOUR), ReplayOutcome::Unknown);
        let again = next(&webhooks, 30 * HOUR).unwrap();
        assert_eq!((again.slot, again.start), (before.slot, before.start));
        webhooks.delivered(again.slot, 5, at(30 * HOUR), false);
        assert!(letters(&webhooks).is_empty());
        assert_eq!(webhooks.stats(30 * HOUR).outcomes.delivered, 1);
        // The retry deadline starts anew.
        webhooks.note(7);
        let post = next(&webhooks, 31 * HOUR).unwrap();
        let failed = FailedPost { slot: post.slot, ..FAILED };
        assert_eq!(webhooks.failed(&failed, at(32 * HOUR)), Fate::Repeated);
        let stats = webhooks.stats(33 * HOUR);
        assert_eq!((stats.pending, stats.oldest_pending_ms), (1, 2 * HOUR));
    }

    #[test]
    fn eviction_creates_dead_letters_for_undelivered_events() {
        let webhooks = webhooks();
        for id in ["a", "b"] {
            set(&webhooks, 7, 0, id, URL).unwrap();
        }
        webhooks.note(7);
        let posted = next(&webhooks, 0).unwrap();
        webhooks.delivered(posted.slot, 9, at(0), false);
        leave(&webhooks, 7, 9);
        assert_eq!(letters(&webhooks), [(1, WhyDead::TaskLeft)]);
        assert_eq!(&*webhooks.dead_letter(1).unwrap().config_id, b"b");
        assert_eq!(webhooks.replay(1, 0), ReplayOutcome::Gone);
        assert_eq!(webhooks.replay_all(0), (0, 1));
        assert_eq!((webhooks.counted(), webhooks.stats(0).outcomes.task_left), ((0, 0), 1));
        assert!(webhooks.drop_dead(1) && !webhooks.drop_dead(1));
        assert!(letters(&webhooks).is_empty());
    }

    #[test]
    fn letter_of_a_retained_task_is_replayed() {
        let webhooks = webhooks();
        let retained_bytes = || webhooks.lock().changes.left.bytes();
        // One webhook waits when its task is evicted, another was stopped earlier.
        set(&webhooks, 7, 0, "waits", URL).unwrap();
        set(&webhooks, 7, 0, "b", URL).unwrap();
        webhooks.note(7);
        let [waits, stops] = [(); 2].map(|()| next(&webhooks, 0).unwrap());
        let failed = FailedPost { slot: waits.slot, ..FAILED };
        assert_eq!(webhooks.failed(&failed, at(0)), Fate::Repeated);
        fail(&webhooks, &stops, "refused", 25 * HOUR);
        leave_needed(&webhooks, 7);
        assert_eq!(letters(&webhooks), [(1, WhyDead::GivenUp), (2, WhyDead::TaskLeft)]);
        assert!(retained_bytes() > 0 && webhooks.counted().0 == 2);
        for (number, before) in [(2, &waits), (1, &stops)] {
            assert!(webhooks.dead_letter(number).unwrap().is_replayable);
            assert_eq!(webhooks.replay(number, 30 * HOUR), ReplayOutcome::Resumed);
            let post = next(&webhooks, 30 * HOUR).unwrap();
            assert_eq!((post.start, &post.config), (before.start, &before.config));
            // It resumes, although later events are undelivered.
            webhooks.delivered(post.slot, 5, at(30 * HOUR), true);
            let post = next(&webhooks, 30 * HOUR).unwrap();
            webhooks.delivered(post.slot, 9, at(30 * HOUR), false);
        }
        let counts = (letters(&webhooks).len(), webhooks.counted(), retained_bytes());
        assert_eq!(counts, (0, (0, 0), 0));
    }

    #[test]
    fn dropping_a_letter_releases_its_retained_task() {
        let webhooks = webhooks();
        for task in 1..=3 {
            set(&webhooks, task, 0, "a", URL).unwrap();
            webhooks.note(task);
            assert!(webhooks.lock().tasks[&task].watch.is_needed());
            leave_needed(&webhooks, task);
        }
        assert_eq!((letters(&webhooks).len(), webhooks.counted().0), (3, 3));
        assert!(webhooks.drop_dead(2) && webhooks.retained_task(2).is_none());
        assert!(webhooks.retained_task(1).is_some());
        assert_eq!(webhooks.drop_all_dead(), 2);
        assert_eq!((webhooks.counted(), webhooks.lock().changes.left.bytes()), ((0, 0), 0));
        // A task that no webhook needs is not retained.
        let watch = set(&webhooks, 4, 0, "a", URL).unwrap();
        leave_needed(&webhooks, 4);
        assert!(watch.is_over() && webhooks.retained_task(4).is_none());
    }

    #[test]
    fn letter_flood_evicts_only_letters_of_the_flooding_owner() {
        let webhooks = webhooks();
        let give_up = |task, owner| {
            set(&webhooks, task, owner, "a", URL).unwrap();
            webhooks.note(task);
            let post = next(&webhooks, 0).unwrap();
            fail(&webhooks, &post, "", 25 * HOUR);
            webhooks.delete_all(task);
        };
        give_up(1, 2);
        (2..10).for_each(|task| give_up(task, 1));
        let numbers: Vec<u64> = letters(&webhooks).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 8, 9]);
    }

    #[test]
    fn letter_without_its_task_or_config_is_not_replayed() {
        let webhooks = webhooks();
        for task in 1..=3 {
            given_up(&webhooks, task);
        }
        leave(&webhooks, 1, 9);
        set(&webhooks, 2, 0, "a", URL).unwrap();
        assert_eq!(webhooks.replay(1, 0), ReplayOutcome::Gone);
        assert_eq!(webhooks.replay(2, 0), ReplayOutcome::Gone);
        assert_eq!(webhooks.replay_all(0), (1, 2));
        assert_eq!(letters(&webhooks).len(), 2);
        assert_eq!((webhooks.drop_all_dead(), webhooks.drop_all_dead()), (2, 0));
    }

    #[test]
    fn oldest_letter_is_evicted_above_the_limit() {
        let webhooks = webhooks();
        let count = BOUNDS.dead_max as u64 + 2;
        for task in 1..=count {
            given_up(&webhooks, task);
        }
        let numbers: Vec<u64> = letters(&webhooks).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 4, 5]);
        assert_eq!(webhooks.replay(2, 0), ReplayOutcome::Unknown);
        assert_eq!(webhooks.stats(0).outcomes.given_up, count);
        // A removed letter does not change the other numbers.
        assert!(webhooks.drop_dead(4) && webhooks.dead_letter(4).is_none());
        assert_eq!(webhooks.dead_letter(5).unwrap().number, 5);
    }

    #[test]
    fn deliveries_in_flight_at_eviction_get_letters_only_if_failed() {
        let webhooks = webhooks();
        for id in ["idle", "late", "lost"] {
            set(&webhooks, 7, 0, id, &format!("https://{id}.example/")).unwrap();
        }
        webhooks.note(7);
        let posts = [(); 3].map(|()| next(&webhooks, 0).unwrap());
        webhooks.delivered(posts[0].slot, 4, at(0), false);
        leave(&webhooks, 7, 4);
        assert!(letters(&webhooks).is_empty());
        assert_eq!(webhooks.counted().0, 2);
        webhooks.delivered(posts[1].slot, 4, at(0), false);
        assert!(letters(&webhooks).is_empty());
        let failed = FailedPost { slot: posts[2].slot, why: "it is away", ..FAILED };
        webhooks.failed(&failed, at(0));
        assert_eq!(letters(&webhooks), [(1, WhyDead::TaskLeft)]);
        assert_eq!(&*webhooks.dead_letter(1).unwrap().error, "it is away");
        assert_eq!(webhooks.counted(), (0, 0));
        assert!(next(&webhooks, HOUR).is_none());
    }

    #[test]
    fn new_webhook_during_eviction_loses_no_dead_letters() {
        let webhooks = webhooks();
        set(&webhooks, 7, 0, "late", URL).unwrap();
        set(&webhooks, 7, 0, "posting", URL).unwrap();
        webhooks.note(7);
        let late = next(&webhooks, 0).unwrap();
        let posting = next(&webhooks, 0).unwrap();
        let failed = FailedPost { slot: late.slot, retry_after_ms: Some(HOUR), ..FAILED };
        webhooks.failed(&failed, at(0));
        let watch = set(&webhooks, 7, 0, "new", URL).unwrap();
        watch.leave(2);
        webhooks.note(7);
        webhooks.unwatched(7, &watch);
        assert!(next(&webhooks, 0).is_none());
        assert_eq!(letters(&webhooks).len(), 2);
        assert_eq!(&*webhooks.dead_letter(1).unwrap().config_id, b"late");
        // A webhook set after that is removed at the end of the delivery in flight.
        set(&webhooks, 7, 0, "last", URL).unwrap();
        webhooks.unwatched(7, &watch);
        webhooks.gone(posting.slot, at(0));
        assert_eq!(webhooks.counted(), (0, 0));
        // Without an eviction notice in the watch, the task never existed.
        let watch = set(&webhooks, 8, 0, "a", URL).unwrap();
        webhooks.unwatched(8, &watch);
        assert_eq!(webhooks.counted(), (0, 0));
    }

    #[test]
    fn paused_webhook_gets_its_letter_at_the_eviction() {
        let webhooks = webhooks();
        set(&webhooks, 7, 0, "a", URL).unwrap();
        webhooks.note(7);
        let post = next(&webhooks, 0).unwrap();
        let failed = FailedPost { slot: post.slot, retry_after_ms: Some(HOUR), why: "", ..FAILED };
        assert_eq!(webhooks.failed(&failed, at(0)), Fate::Repeated);
        leave(&webhooks, 7, 4);
        assert_eq!(letters(&webhooks), [(1, WhyDead::TaskLeft)]);
        // Without an eviction notice, the eviction is detected when the webhook's turn comes.
        set(&webhooks, 8, 0, "a", URL).unwrap();
        webhooks.note(8);
        let post = next(&webhooks, 0).unwrap();
        webhooks.task_left(post.slot, at(0));
        assert_eq!(letters(&webhooks).len(), 2);
        // A stopped webhook already has a letter.
        given_up(&webhooks, 9);
        leave(&webhooks, 9, 4);
        assert_eq!(letters(&webhooks).len(), 3);
        assert_eq!(webhooks.counted(), (0, 0));
    }

    #[test]
    fn lag_is_the_largest_of_all_webhooks_that_are_not_stopped() {
        let webhooks = webhooks();
        let lag = || webhooks.stats(0).lag_events;
        for (task, seq) in [(7, 5), (8, 9), (9, 40)] {
            let watch = set(&webhooks, task, 0, "a", URL).unwrap();
            watch.reach(seq);
            watch.wake();
        }
        assert_eq!(lag(), 0, "the webhook worker has not taken a delivery yet");
        let posts = [(); 3].map(|()| next(&webhooks, 0).unwrap());
        assert_eq!(lag(), 39);
        fail(&webhooks, &posts[2], "", 25 * HOUR);
        assert_eq!(lag(), 8);
        webhooks.delivered(posts[1].slot, 9, at(0), false);
        assert_eq!(lag(), 4);
        webhooks.delivered(posts[0].slot, 4, at(0), true);
        assert_eq!(lag(), 1);
    }

    #[test]
    fn webhooks_stopped_together_each_get_a_letter() {
        let webhooks =
            Webhooks::new(BOUNDS, Pace { rest_after: 1, give_up_ms: 9, ..Pace::default() });
        let set = |id| set(&webhooks, 7, 0, id, "https://h.example/").unwrap();
        let [watch, ..] = ["x", "y", "z"].map(set);
        watch.reach(2);
        Arc::clone(&watch).wake();
        while let Some(post) = next(&webhooks, 0) {
            webhooks.failed(&FailedPost { slot: post.slot, ..FAILED }, at(0));
        }
        watch.leave(2);
        Arc::clone(&watch).wake();
        // This is before the task is examined.
        webhooks.give_up(at(9));
        assert_eq!(webhooks.stats(0).outcomes.given_up, 3);
        assert!(next(&webhooks, 9).is_none());
        let stats = webhooks.stats(0);
        assert_eq!((stats.configs, stats.dead_letters, stats.outcomes.task_left), (0, 3, 0));
    }

    #[test]
    fn replacement_does_not_repeat_delivered_events() {
        let webhooks = webhooks();
        let put = |url: &str| set(&webhooks, 7, 0, "a", url).unwrap();
        let begin = |seq| {
            let watch = put("https://h.example/x");
            watch.reach(seq);
            Arc::clone(&watch).wake();
            (watch, next(&webhooks, 0).unwrap())
        };
        // Two replacements while its delivery is in flight.
        let (_, post) = begin(2);
        put("https://h.example/x");
        put("https://h.example/x");
        webhooks.delivered(post.slot, 2, at(0), false);
        let post = next(&webhooks, 0).unwrap();
        assert_eq!(post.start.seq, 2);
        webhooks.passed_over(post.slot, 2, at(0), false);
        // Its task is evicted meanwhile.
        let (watch, post) = begin(3);
        put("https://h.example/x");
        watch.leave(3);
        Arc::clone(&watch).wake();
        assert!(next(&webhooks, 0).is_none());
        webhooks.delivered(post.slot, 3, at(0), false);
        assert_eq!((webhooks.counted(), webhooks.stats(0).dead_letters), ((0, 0), 0));
        // Undelivered events become a letter, also for a replaced webhook.
        let (watch, post) = begin(3);
        put("https://h.example/x");
        watch.leave(3);
        Arc::clone(&watch).wake();
        assert!(next(&webhooks, 0).is_none());
        webhooks.failed(&FailedPost { slot: post.slot, ..FAILED }, at(0));
        assert_eq!((webhooks.counted(), webhooks.stats(0).dead_letters), ((0, 0), 1));
        // A different receiver has not received the events.
        let (_, post) = begin(4);
        put("https://h.example/y");
        put("https://h.example/x");
        webhooks.delivered(post.slot, 4, at(0), false);
        assert_eq!(next(&webhooks, 0).unwrap().start.seq, 1);
    }

    #[test]
    fn task_is_needed_until_webhooks_are_up_to_date_or_stopped() {
        let webhooks = webhooks();
        let watch = set(&webhooks, 7, 0, "a", URL).unwrap();
        assert!(!watch.is_needed());
        watch.wake_by_ref();
        assert!(watch.is_needed());
        let post = next(&webhooks, 0).unwrap();
        webhooks.delivered(post.slot, 4, at(0), false);
        assert!(!watch.is_needed());
        watch.wake_by_ref();
        let post = next(&webhooks, 0).unwrap();
        assert!(watch.is_needed());
        fail(&webhooks, &post, "", 25 * HOUR);
        assert!(!watch.is_needed());
        watch.wake_by_ref();
        assert!(next(&webhooks, 26 * HOUR).is_none() && !watch.is_needed());
    }
}
