//! The agent that a worker has called last, to attribute slow calls.

use super::AgentIndex;

/// The agent that a worker has called last, and the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct LastCall {
    /// The agent.
    pub agent: AgentIndex,
    /// The worker's last reading of the monotonic clock before the call.
    pub at_ms: u64,
}
