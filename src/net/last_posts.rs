//! Webhooks of tasks that are ended by the end of the server, and deliveries that wait then.
//!
//! A drain waits for tasks with webhooks within its time; then they fail, and their deliveries have
//! the rest of `drain_ms`. One check by any worker serves all of them.

use std::sync::{Mutex, PoisonError};

use super::server_state::ServerState;
use crate::service::Now;

/// Milliseconds between two checks.
const LOOK_MS: u64 = 50;

/// Consecutive checks without a delivery: between two deliveries of a webhook one check may find
/// none.
const QUIET_LOOKS: u32 = 2;

/// The last deliveries get this fraction of `drain_ms`.
const POSTS_PART: u64 = 4;

/// The state of this phase.
#[derive(Default)]
pub(super) struct LastPosts(Mutex<Looks>);

#[derive(Default)]
struct Looks {
    next_ms: u64,
    have_ended: bool,
    quiet: u32,
}

/// When calls and streams are cut, and how long the drain is in all.
#[derive(Clone, Copy)]
pub(super) struct DrainTimes {
    pub cut_ms: u64,
    pub drain_ms: u64,
}

impl ServerState {
    /// When a draining worker checks again whether it has to wait for webhooks; `None`: it need
    /// not.
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
