//! The agent that a worker calls, in case that it takes long.

use super::AgentIndex;

/// Which agent a worker has called last, and when: so that a long turn can be attributed.
#[derive(Clone, Copy, Debug)]
pub struct LastCall {
    /// The agent.
    pub agent: AgentIndex,
    /// The time as the worker has read it last before, on the monotonic clock.
    pub at_ms: u64,
}
