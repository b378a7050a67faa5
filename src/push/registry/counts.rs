//! What is counted of webhooks, for the operator.
//!
//! Invariant: counting takes no lock of its own. What can be seen of the webhooks is looked at when
//! it is asked for, and no id and no host is told.

use super::{PushState, Webhooks};
use crate::push::dead::WhyDead;

/// What came of posts, and which webhooks have stopped, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOutcomes {
    /// They have arrived.
    pub delivered: u64,
    /// They have not, each attempt by itself.
    pub failed: u64,
    /// Their receivers want no more of them.
    pub gone: u64,
    /// Webhooks that were tried for as long as they may be.
    pub given_up: u64,
    /// Webhooks of which the task has left before everything was posted.
    pub task_left: u64,
    /// Webhooks whose owner has no valid credential any more.
    pub credential_withdrawn: u64,
    /// Tasks that the webhook of their scope does not cover, since a limit was reached.
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

    /// Posts by what came of them.
    pub const fn posts(self) -> [(&'static str, u64); 3] {
        [("delivered", self.delivered), ("failed", self.failed), ("gone", self.gone)]
    }

    /// Webhooks that have stopped, by the reason.
    pub const fn stopped(self) -> [(&'static str, u64); 3] {
        [
            (WhyDead::GivenUp.name(), self.given_up),
            (WhyDead::TaskLeft.name(), self.task_left),
            (WhyDead::CredentialWithdrawn.name(), self.credential_withdrawn),
        ]
    }
}

/// Webhooks as they are now, and what came of posts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Configurations.
    pub configs: usize,
    /// Their bytes and those of their hosts, as `push_bytes_max` counts them.
    pub config_bytes: usize,
    /// Those with something that was not posted, which go on.
    pub pending: usize,
    /// For how long the one among them has waited that has waited longest, in ms.
    pub oldest_pending_ms: u64,
    /// How many events of its task the one among them has not got that is furthest behind.
    pub lag_events: u64,
    /// Posts under way.
    pub in_flight: usize,
    /// Dead letters that are kept.
    pub dead_letters: usize,
    /// What came of posts, and which webhooks have stopped.
    pub outcomes: PushOutcomes,
}

impl Webhooks {
    /// A task is made without the webhook of its scope.
    pub fn count_left_out(&self) {
        self.lock().outcomes.left_out += 1;
    }

    /// Looks at all webhooks once.
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
            while let Some((place, webhook)) = at.and_then(|at| Some((at, self.schedule.get(at)?)))
            {
                if self.schedule.is_busy(place) {
                    most = most.max(webhook.lag(task.watch.seq()));
                }
                at = webhook.next();
            }
        }
        most
    }
}
