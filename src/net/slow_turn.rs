//! Agents that hold up their worker: how they are reported, and how often.
//!
//! Invariant: there is one report a minute at most, on the thread of a worker that was held up.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{engine::Engine, service::AgentIndex};

/// Milliseconds between two reports.
const EVERY_MS: u64 = 60_000;

/// An agent that has held up its worker for more than 50 ms, by a turn, another call of its, or a
/// future: that worker served no other call meanwhile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowTurn {
    /// The name of the agent; of several that were called meanwhile, of the last one.
    pub agent: String,
    /// For how many milliseconds.
    pub ms: u64,
}

/// The report.
pub(super) type SlowTurnListener = Box<dyn Fn(&SlowTurn) + Send + Sync>;

/// The report of the workers of a server, and when the next is due.
pub(super) struct SlowTurns {
    listener: Option<SlowTurnListener>,
    due_ms: AtomicU64,
}

impl SlowTurns {
    pub(super) fn new(listener: Option<SlowTurnListener>) -> SlowTurns {
        SlowTurns { listener, due_ms: AtomicU64::new(0) }
    }

    /// Tells of an agent, unless there was a report less than a minute ago.
    pub(super) fn tell(&self, engine: &Engine, (agent, ms): (AgentIndex, u64), now_ms: u64) {
        let Some(listener) = &self.listener else { return };
        let next = |due_ms| (now_ms >= due_ms).then(|| now_ms.saturating_add(EVERY_MS));
        if self.due_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            let profile = engine.service().profile(agent);
            let agent = profile.map(|profile| profile.name.clone()).unwrap_or_default();
            listener(&SlowTurn { agent, ms });
        }
    }
}

thread_local! {
    /// A future of an agent that has held up this worker.
    static SLOW_FUTURE: Cell<Option<(AgentIndex, u64)>> = const { Cell::new(None) };
}

/// Notes for the worker of this thread that a future of an agent has held it up.
pub(super) fn note_future(agent: AgentIndex, ms: u64) {
    SLOW_FUTURE.set(Some((agent, ms)));
}

/// The last one that was noted, once.
pub(super) fn slow_future() -> Option<(AgentIndex, u64)> {
    SLOW_FUTURE.take()
}
