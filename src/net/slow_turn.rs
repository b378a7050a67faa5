//! Reports of agents that block their worker, and their rate.
//!
//! Invariant: there is one report a minute at most, on the thread of the blocked worker.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{engine::Engine, service::AgentIndex};

/// Milliseconds between two reports.
const EVERY_MS: u64 = 60_000;

/// An agent that has blocked its worker for more than 50 ms, by a turn, another call, or a future:
/// the worker served no other call during this time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowTurn {
    /// The name of the agent; if several were called in this time, the last one.
    pub agent: String,
    /// The duration in milliseconds.
    pub ms: u64,
}

/// The receiver of reports.
pub(super) type SlowTurnListener = Box<dyn Fn(&SlowTurn) + Send + Sync>;

/// The reports of a server's workers, and the earliest time of the next report.
pub(super) struct SlowTurns {
    listener: Option<SlowTurnListener>,
    due_ms: AtomicU64,
}

impl SlowTurns {
    pub(super) fn new(listener: Option<SlowTurnListener>) -> SlowTurns {
        SlowTurns { listener, due_ms: AtomicU64::new(0) }
    }

    /// Reports an agent, unless there was a report less than a minute ago.
    pub(super) fn report(&self, engine: &Engine, agent: AgentIndex, ms: u64, now_ms: u64) {
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
    /// A future of an agent that has blocked this worker.
    static SLOW_FUTURE: Cell<Option<(AgentIndex, u64)>> = const { Cell::new(None) };
}

/// Notes that a future of an agent has blocked the worker of this thread.
pub(super) fn note_future(agent: AgentIndex, ms: u64) {
    SLOW_FUTURE.set(Some((agent, ms)));
}

/// Takes the last noted future.
pub(super) fn slow_future() -> Option<(AgentIndex, u64)> {
    SLOW_FUTURE.take()
}
