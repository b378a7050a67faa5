//! What is done now and then: those who have left are forgotten, and those who were tried for too
//! long are given up.

use std::cmp::Reverse;

use super::{HostRest, PostPlace, PostStage, SPARE, Schedule, Timer, is_ready};

impl<T> Schedule<T> {
    /// Takes those out of a host's line that have left, when they are more than the others.
    pub(super) fn tidy_line(&mut self, number: u32) {
        let Some(host) = &mut self.hosts[number as usize] else { return };
        if host.line.len() > 2 * host.entries as usize + SPARE {
            let entries = &self.entries;
            host.line.retain(|place| is_ready(entries, *place));
        }
    }

    /// The same for timers.
    pub(super) fn tidy_timers(&mut self) {
        let (entries, hosts) = self.len();
        if self.timers.len() > 2 * (entries + hosts) + SPARE {
            let entries = &self.entries;
            self.timers.retain(|Reverse((due_ms, timer))| match *timer {
                Timer::Pause(index, check) => {
                    let entry = entries.get(index as usize).and_then(Option::as_ref);
                    entry.is_some_and(|entry| entry.check == check && entry.due_ms == *due_ms)
                }
                Timer::Rest(number) => {
                    let host = self.hosts.get(number as usize).and_then(Option::as_ref);
                    host.is_some_and(|host| host.rests_until_ms == *due_ms)
                }
            });
        }
    }

    /// Those in the line of a resting host that were tried for as long as they may be, of all hosts
    /// that have a rest: they stop.
    pub fn give_up(&mut self, now_ms: u64) -> Vec<PostPlace> {
        let (mut given_up, give_up_ms) = (Vec::new(), self.pace.give_up_ms);
        let entries = &mut self.entries;
        for host in self.hosts.iter_mut().flatten().filter(|host| host.rest != HostRest::None) {
            host.line.retain(|place| {
                if !is_ready(entries, *place) {
                    return false;
                }
                let Some(entry) = &mut entries[place.index as usize] else { return false };
                let is_over = now_ms.saturating_sub(entry.since_ms) >= give_up_ms;
                if is_over {
                    entry.stage = PostStage::Stopped;
                    given_up.push(*place);
                }
                !is_over
            });
        }
        given_up
    }
}
