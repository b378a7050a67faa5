//! The agent that a worker is calling, to attribute a slow call.

use super::AgentIndex;

/// The agent that a worker called last, and when, so that a long call can be attributed.
#[derive(Clone, Copy, Debug)]
pub struct LastCall {
    /// The agent.
    pub agent: AgentIndex,
    /// The worker's last reading of the monotonic clock before it.
    pub at_ms: u64,
}
