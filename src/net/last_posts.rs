//! Webhooks in a drain: the tasks that the server ends, and their last deliveries.
//!
//! A drain waits for tasks with webhooks until a part of `drain_ms` remains; then the tasks fail,
//! and the rest of the time is for their deliveries. A check by one worker is valid for all.

use std::sync::{Mutex, PoisonError};

use super::server_state::ServerState;
use crate::service::Now;

/// Milliseconds between two checks.
const LOOK_MS: u64 = 50;

/// Consecutive checks without a delivery until the wait ends: a single check may fall between two
/// deliveries of a webhook.
const QUIET_LOOKS: u32 = 2;

/// The last deliveries get `drain_ms` divided by this.
const POSTS_PART: u64 = 4;

/// The state of the wait for webhooks.
#[derive(Default)]
pub(super) struct LastPosts(Mutex<Looks>);

#[derive(Default)]
struct Looks {
    next_ms: u64,
    have_ended: bool,
    quiet: u32,
}

/// When calls and streams are ended, and the duration of the whole drain.
#[derive(Clone, Copy)]
pub(super) struct DrainTimes {
    pub cut_ms: u64,
    pub drain_ms: u64,
}

impl ServerState {
    /// Returns when a draining worker must check the webhooks again; `None`: it need not wait for
    /// webhooks.
    pub(super) fn stays_for_webhooks(&self, now: Now, times: DrainTimes) -> Option<u64> {
        let webhooks = self.engine.webhooks()?;
        let mut looks = self.last_posts.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Looks { next_ms, have_ended, quiet } = &mut *looks;
        if *quiet >= QUIET_LOOKS {
            return None;
        }
        if now.mono_ms < *next_ms {
            return Some(*next_ms);
        }
        *next_ms = now.mono_ms + LOOK_MS;
        if !*have_ended {
            let posts_ms = times.cut_ms.saturating_sub(times.drain_ms / POSTS_PART);
            let has_time = now.mono_ms < posts_ms;
            if has_time && (self.connections.count() > 0 || self.engine.works_for_webhooks()) {
                return Some(*next_ms);
            }
            *have_ended = true;
            super::report::ended_for_webhooks(self.engine.end_watched_tasks());
        }
        let is_quiet = !webhooks.posts_before(times.cut_ms);
        *quiet = if is_quiet { *quiet + 1 } else { 0 };
        (*quiet < QUIET_LOOKS).then_some(*next_ms)
    }
}
