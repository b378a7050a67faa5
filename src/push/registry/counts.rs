//! Counts of webhooks for the operator.
//!
//! Invariant: counting needs no additional lock. The webhooks are counted on request, and the
//! counts contain no id and no host.

use super::{PushState, Webhooks};
use crate::push::dead::WhyDead;

/// Outcomes of deliveries and stopped webhooks since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOutcomes {
    /// Successful deliveries.
    pub delivered: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Receivers that wanted no more deliveries.
    pub gone: u64,
    /// Webhooks that were retried up to their deadline.
    pub given_up: u64,
    /// Webhooks of tasks that were evicted before everything was delivered.
    pub task_left: u64,
    /// Webhooks of owners with no valid credential any more.
    pub credential_withdrawn: u64,
    /// Tasks without the webhook of their scope, because a limit was reached.
    pub left_out: u64,
}

impl PushOutcomes {
    pub(super) fn count_dead(&mut self, why: WhyDead) {
        match why {
            WhyDead::GivenUp => self.given_up += 1,
            WhyDead::TaskLeft => self.task_left += 1,
            WhyDead::CredentialWithdrawn => self.credential_withdrawn += 1,
        }
    }

    /// Deliveries by outcome.
    pub const fn posts(self) -> [(&'static str, u64); 3] {
        [("delivered", self.delivered), ("failed", self.failed), ("gone", self.gone)]
    }

    /// Stopped webhooks, by reason.
    pub const fn stopped(self) -> [(&'static str, u64); 3] {
        [
            (WhyDead::GivenUp.name(), self.given_up),
            (WhyDead::TaskLeft.name(), self.task_left),
            (WhyDead::CredentialWithdrawn.name(), self.credential_withdrawn),
        ]
    }
}

/// The current webhooks, and the outcomes of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// The number of configurations.
    pub configs: usize,
    /// Bytes of configurations and their hosts, as `push_bytes_max` counts them.
    pub config_bytes: usize,
    /// Webhooks with undelivered events that are not stopped.
    pub pending: usize,
    /// The longest wait of a pending webhook, in ms.
    pub oldest_pending_ms: u64,
    /// The largest number of undelivered events of a pending webhook.
    pub lag_events: u64,
    /// Deliveries in flight.
    pub in_flight: usize,
    /// Retained dead letters.
    pub dead_letters: usize,
    /// Outcomes of deliveries, and stopped webhooks.
    pub outcomes: PushOutcomes,
}

impl Webhooks {
    /// Counts a task that is created without the webhook of its scope.
    pub fn count_left_out(&self) {
        self.lock().outcomes.left_out += 1;
    }

    /// Counts all webhooks.
    pub fn stats(&self, now_ms: u64) -> PushStats {
        let state = self.lock();
        let (pending, oldest_ms) = state.schedule.pending();
        PushStats {
            configs: state.schedule.len().0,
            config_bytes: state.bytes(),
            pending,
            oldest_pending_ms: oldest_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms)),
            lag_events: state.lag_events(),
            in_flight: state.schedule.posting() as usize,
            dead_letters: state.dead.len(),
            outcomes: state.outcomes,
        }
    }
}

impl PushState {
    fn lag_events(&self) -> u64 {
        let mut most = 0;
        for task in self.tasks.values().filter(|task| task.watch.left().is_none()) {
            let mut at = task.first;
            while let Some((slot, webhook)) = at.and_then(|at| Some((at, self.schedule.get(at)?))) {
                if self.schedule.is_busy(slot) {
                    most = most.max(webhook.lag(task.watch.seq()));
                }
                at = webhook.next();
            }
        }
        most
    }
}
