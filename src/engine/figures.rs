//! Values of an engine for metrics.

#[cfg(feature = "metrics")]
use std::sync::Arc;

use super::Engine;
use crate::service::ServiceStats;
#[cfg(feature = "metrics")]
use crate::service::{AgentIndex, upstream::UpstreamMeter};

impl Engine {
    /// Counters of the service, if it has any.
    pub fn stats(&self) -> Option<ServiceStats> {
        self.service().stats()
    }

    /// The name of an agent.
    #[cfg(feature = "metrics")]
    pub(crate) fn agent_name(&self, agent: AgentIndex) -> Option<String> {
        self.service().profile(agent).map(|profile| profile.name.clone())
    }

    /// The meters of the agents' upstreams, by the names of the agents.
    #[cfg(feature = "metrics")]
    pub(crate) fn upstreams(&self) -> Vec<(String, Arc<UpstreamMeter>)> {
        let named = |(agent, meter)| Some((self.agent_name(agent)?, meter));
        self.service().upstreams().into_iter().filter_map(named).collect()
    }

    /// When the server started, in seconds since the Unix epoch.
    #[cfg(feature = "metrics")]
    pub(crate) fn started_s(&self) -> u64 {
        self.config.started_s
    }
}
