//! Fails unfinished tasks that had no event for too long.
//!
//! Each slot stores the time of its task's last event, which costs one write per call. Once a
//! second each worker sweeps a bounded number of slots in each of its shards; the next sweep
//! continues after them. So a full store is examined within two minutes, a small store every
//! second.

use crossbeam_utils::CachePadded;

use super::{
    Edit, Store,
    id::{GROUP, SlotAt},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    waiters::Wakes,
};
use crate::{
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskState},
    service::Now,
};

/// Slots of one shard that one sweep examines.
const LOOKS: u32 = 1_024;

/// Tasks of one shard that one sweep ends.
const ENDS: u32 = 64;

/// Milliseconds between sweeps.
const SWEEP_EVERY_MS: u64 = 1_000;

/// Why the store ended a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was submitted or working for `unfinished_idle_ms` without an event.
    UnfinishedIdle = 0,
    /// It was in input-required or auth-required for `input_required_ttl_ms` without an event.
    InputRequired = 1,
    /// The owner of the task, or an owner below its share, needed the room.
    OwnerShare = 2,
}

impl EndReason {
    /// Number of reasons.
    pub const COUNT: usize = 3;

    /// The corresponding limit.
    fn limit(self) -> &'static str {
        match self {
            EndReason::UnfinishedIdle => "unfinished_idle_ms",
            EndReason::InputRequired => "input_required_ttl_ms",
            EndReason::OwnerShare => "owner_share",
        }
    }
}

/// Maximum milliseconds without an event for an agent's unfinished tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimes {
    /// While a task is submitted or working.
    pub unfinished_idle_ms: u64,
    /// While a task is in input-required or auth-required.
    pub input_required_ttl_ms: u64,
}

impl IdleTimes {
    /// The idle times in the limits of the server.
    pub fn of(limits: &Limits) -> IdleTimes {
        let Limits { unfinished_idle_ms, input_required_ttl_ms, .. } = *limits;
        IdleTimes { unfinished_idle_ms, input_required_ttl_ms }
    }

    /// The maximum idle time in a state, in milliseconds, and the reason for its end; `None`: a
    /// terminal state.
    fn of_state(&self, state: TaskState) -> Option<(EndReason, u64)> {
        if state.is_terminal() {
            return None;
        }
        Some(match state.is_interrupted() {
            true => (EndReason::InputRequired, self.input_required_ttl_ms),
            false => (EndReason::UnfinishedIdle, self.unfinished_idle_ms),
        })
    }
}

/// The state of one group's sweeps.
#[derive(Default)]
pub(super) struct IdleSweep {
    /// When the next sweep is due, by the monotonic clock.
    due_ms: AtomicU64,
    /// Tasks that the store ended, by reason.
    ended: [AtomicU64; EndReason::COUNT],
}

/// The sweeps of all groups.
pub(super) type IdleSweeps = Box<[CachePadded<IdleSweep>]>;

impl Store {
    /// Ends unfinished tasks of one worker that were idle for too long, at most 1,024 of each of
    /// its groups; true when it should be called again soon. Call it about once a second. `times`
    /// returns the idle times by agent index; further agents have those of the limits.
    pub fn end_idle(
        &self,
        worker: usize,
        now: Now,
        times: impl FnOnce() -> Vec<IdleTimes>,
    ) -> bool {
        let Some(first) = self.idle.get(worker) else { return false };
        if first.due_ms.load(Relaxed) > now.mono_ms {
            return false;
        }
        let times = times();
        let mut is_more = false;
        for number in (worker..self.groups.len()).step_by(self.workers) {
            for at in (number * GROUP..).take(GROUP) {
                is_more |= self.end_idle_in(at, now, &times);
            }
        }
        let pause_ms = if is_more { 0 } else { SWEEP_EVERY_MS };
        first.due_ms.store(now.mono_ms.saturating_add(pause_ms), Relaxed);
        is_more
    }

    /// Ends idle tasks of one shard; true when it has ended [`ENDS`] of them.
    fn end_idle_in(&self, at: usize, now: Now, times: &[IdleTimes]) -> bool {
        let mut wakes = Wakes::default();
        let mut shard = self.lock(at);
        if shard.unfinished == 0 {
            return false;
        }
        let (slots, mut ends) = (shard.slab.len(), ENDS);
        for _ in 0..slots.min(LOOKS) {
            let index = if shard.idle_next < slots { shard.idle_next } else { 0 };
            shard.idle_next = index + 1;
            let Some(slot) = shard.slab.slot(index) else { continue };
            let Some(task) = slot.task.get() else { continue };
            let times = times.get(usize::from(slot.scope.agent.0)).unwrap_or(&self.idle_times);
            let Some((reason, most_ms)) = times.of_state(task.state()) else { continue };
            if now.mono_ms.saturating_sub(slot.event_ms) < most_ms {
                continue;
            }
            let edit = Edit::open(self, &mut shard, SlotAt { at, index }, now, &mut wakes);
            edit.into_iter().for_each(|mut edit| edit.end(&final_message(reason, most_ms)));
            self.count_end(at, reason);
            ends -= 1;
            if ends == 0 {
                return true;
            }
        }
        false
    }

    /// Counts a task of a shard that the store ended.
    pub(super) fn count_end(&self, at: usize, reason: EndReason) {
        let sweep = &self.idle[super::id::group_of(at)];
        sweep.ended[reason as usize].fetch_add(1, Relaxed);
    }

    /// Tasks that the store has ended, in the order of [`EndReason`].
    pub(super) fn ended(&self) -> [u64; EndReason::COUNT] {
        let sum = |reason: usize| self.idle.iter().map(|of| of.ended[reason].load(Relaxed)).sum();
        std::array::from_fn(sum)
    }
}

/// The message of a task that fails after being idle for this long.
fn final_message(reason: EndReason, most_ms: u64) -> MessageBuf {
    let time = match most_ms % 1_000 {
        0 => format!("{} s", most_ms / 1_000),
        _ => format!("{most_ms} ms"),
    };
    let text = format!("failed: no event for {time} ({})", reason.limit());
    MessageBuf::agent(&PartsBuf::new().text(&text)).id("task-idle")
}
