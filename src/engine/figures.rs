//! What an engine reports to metrics.

use super::Engine;
#[cfg(feature = "metrics")]
use crate::service::AgentIndex;
use crate::service::ServiceStats;

impl Engine {
    /// What the service keeps, if it says so.
    pub fn stats(&self) -> Option<ServiceStats> {
        self.service().stats()
    }

    /// What an agent is called.
    #[cfg(feature = "metrics")]
    pub(crate) fn agent_name(&self, agent: AgentIndex) -> Option<String> {
        self.service().profile(agent).map(|profile| profile.name.clone())
    }

    /// When the server started, in seconds since the Unix epoch.
    #[cfg(feature = "metrics")]
    pub(crate) fn started_s(&self) -> u64 {
        self.config.started_s
    }
}
