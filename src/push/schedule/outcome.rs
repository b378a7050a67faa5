//! What becomes of posts, and what follows from it.

use std::cmp::Reverse;

use super::{Fate, HostRest, PostPlace, PostStage, Schedule, Timer, is_ready};

impl<T> Schedule<T> {
    /// A post has arrived; `has_more`: there is something behind it already.
    pub fn delivered(&mut self, place: PostPlace, now_ms: u64, has_more: bool) {
        let Some((number, is_news)) = self.end_post(place) else { return };
        self.note_life(number);
        self.go_on((place, number), now_ms, has_more || is_news);
    }

    /// There was nothing to post; whether its host is there is as unknown as before.
    pub fn passed_over(&mut self, place: PostPlace, now_ms: u64, has_more: bool) {
        if let Some((number, is_news)) = self.end_post(place) {
            self.go_on((place, number), now_ms, has_more || is_news);
        }
    }

    fn go_on(&mut self, (place, number): (PostPlace, u32), now_ms: u64, has_more: bool) {
        if let Some(entry) = self.entry(place) {
            (entry.failures, entry.since_ms) = (0, now_ms);
        }
        match has_more {
            true => self.make_ready(place.index),
            false => self.list(number),
        }
    }

    /// A post has not arrived. `retry_after_ms`: the receiver has said when to come again;
    /// `random`: fresh bits.
    pub fn failed(
        &mut self,
        place: PostPlace,
        now_ms: u64,
        retry_after_ms: Option<u64>,
        random: u64,
    ) -> Fate {
        let Some((number, _)) = self.end_post(place) else { return Fate::Repeated };
        let is_resting = self.note_failure(number, now_ms, random);
        self.repeat((place, number, is_resting), now_ms, retry_after_ms, random)
    }

    /// The same for a post that its receiver has refused: its host is there, for all others.
    pub fn refused(
        &mut self,
        place: PostPlace,
        now_ms: u64,
        retry_after_ms: Option<u64>,
        random: u64,
    ) -> Fate {
        let Some((number, _)) = self.end_post(place) else { return Fate::Repeated };
        self.note_life(number);
        self.repeat((place, number, false), now_ms, retry_after_ms, random)
    }

    /// A host has answered.
    fn note_life(&mut self, number: u32) {
        if let Some(host) = &mut self.hosts[number as usize] {
            (host.failures, host.rest) = (0, HostRest::None);
        }
    }

    /// Has one that has failed wait, or stop.
    fn repeat(
        &mut self,
        (place, number, is_resting): (PostPlace, u32, bool),
        now_ms: u64,
        retry_after_ms: Option<u64>,
        random: u64,
    ) -> Fate {
        let pace = self.pace;
        let Some(entry) = self.entry(place) else { return Fate::Repeated };
        entry.failures = entry.failures.saturating_add(1);
        if now_ms.saturating_sub(entry.since_ms) >= pace.give_up_ms {
            entry.stage = PostStage::Stopped;
            self.list(number);
            return Fate::GivenUp;
        }
        match retry_after_ms {
            // Behind all others that wait for the host.
            None if is_resting => self.make_ready(place.index),
            retry_after_ms => {
                let own_ms = pace.pause_ms(entry.failures, random.rotate_left(32));
                let pause_ms = retry_after_ms.map_or(own_ms, |ms| ms.clamp(1, pace.pause_ms_max));
                let due_ms = now_ms.saturating_add(pause_ms);
                (entry.due_ms, entry.stage) = (due_ms, PostStage::Paused);
                self.timers.push(Reverse((due_ms, Timer::Pause(place.index, place.check))));
                self.tidy_timers();
                self.list(number);
            }
        }
        Fate::Repeated
    }

    /// Counts a failure of a host; true: it has a rest.
    fn note_failure(&mut self, number: u32, now_ms: u64, random: u64) -> bool {
        let pace = self.pace;
        let Some(host) = &mut self.hosts[number as usize] else { return false };
        host.failures = host.failures.saturating_add(1);
        let Some(beyond) = (host.failures + 1).checked_sub(pace.rest_after).filter(|n| *n > 0)
        else {
            return false;
        };
        // Those that were under way when the rest began do not make it longer.
        if host.rest != HostRest::Now {
            host.rest = HostRest::Now;
            host.rests_until_ms = now_ms.saturating_add(pace.pause_ms(beyond, random));
            self.timers.push(Reverse((host.rests_until_ms, Timer::Rest(number))));
        }
        if host.is_listed {
            host.is_listed = false;
            self.line.retain(|listed| *listed != number);
        }
        true
    }

    /// Ends what is under way; its host, and whether there is something new.
    fn end_post(&mut self, place: PostPlace) -> Option<(u32, bool)> {
        let entry = self.entry(place)?;
        let PostStage::Posting(is_news) = entry.stage else { return None };
        entry.stage = PostStage::Idle;
        let (number, owner) = (entry.host, entry.owner);
        self.count_end(number, owner);
        Some((number, is_news))
    }

    /// One post of a host and of an owner less is under way.
    pub(super) fn count_end(&mut self, number: u32, owner: u32) {
        if let Some(host) = &mut self.hosts[number as usize] {
            host.posting -= 1;
        }
        self.posting -= 1;
        let entries = &self.entries;
        let Some(next) = self.owners.end(owner, |place| is_ready(entries, place)) else { return };
        let Some(waits_for) = self.entry(next).map(|entry| entry.host) else { return };
        if let Some(host) = &mut self.hosts[waits_for as usize] {
            host.line.push_front(next);
        }
        self.list(waits_for);
    }
}
