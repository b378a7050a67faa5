//! Periodic work: sweeps deleted webhooks, and stops webhooks at their retry deadline.

use std::cmp::Reverse;

use super::{PostStage, SPARE, Schedule, Timer, WebhookSlot, is_at, origins::Circuit};

impl<T> Schedule<T> {
    /// Sweeps the timers of deleted webhooks if they are the majority.
    pub(super) fn tidy_timers(&mut self) {
        let (webhooks, origins) = self.len();
        if self.timers.len() > 2 * (webhooks + origins) + SPARE {
            let (entries, origins) = (&self.entries, &self.origins);
            self.timers.retain(|Reverse((due_ms, timer))| match *timer {
                Timer::Pause(index, check) => {
                    let entry = entries.get(index as usize).and_then(Option::as_ref);
                    entry.is_some_and(|entry| entry.check == check && entry.due_ms == *due_ms)
                }
                Timer::Probe(number) => {
                    origins.get(number).is_some_and(|origin| origin.open_until_ms == *due_ms)
                }
            });
        }
    }

    /// Stops the webhooks that wait for resting origins and have reached their retry deadline.
    /// Examines all webhooks that wait there, and drops idle owners.
    pub fn give_up(&mut self, now_ms: u64) -> Vec<WebhookSlot> {
        self.owners.retain(|_, owner| !owner.is_idle());
        self.origins.tidy_shares(now_ms);
        let (mut given_up, give_up_ms) = (Vec::new(), self.pace.give_up_ms);
        let (entries, origins) = (&mut self.entries, &self.origins);
        self.queues.retain(|key, queue| {
            if origins.get(key.origin).is_none_or(|origin| origin.circuit == Circuit::Closed) {
                return true;
            }
            queue.slots.retain(|slot| {
                if !is_at(entries, *slot, PostStage::Ready) {
                    return false;
                }
                let Some(entry) = &mut entries[slot.index as usize] else { return false };
                let is_over = now_ms.saturating_sub(entry.since_ms) >= give_up_ms;
                if is_over {
                    entry.stage = PostStage::Stopped;
                    given_up.push(*slot);
                }
                !is_over
            });
            queue.ready = queue.slots.len();
            queue.ready > 0
        });
        given_up
    }
}
