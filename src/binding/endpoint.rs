//! Who speaks and who answers at the path of a request.

use crate::{
    dialect::{self, Dialect},
    service::AgentIndex,
};

/// A dialect and an agent: every path that is served leads to one pair of them.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// Who speaks.
    pub dialect: &'static Dialect,
    /// Who answers.
    pub agent: AgentIndex,
}

impl Endpoint {
    /// The specification's own dialect and the default agent.
    pub const DEFAULT: Endpoint = Endpoint::standard(AgentIndex(0));

    /// The specification's own dialect, spoken by `agent`.
    pub const fn standard(agent: AgentIndex) -> Endpoint {
        Endpoint { dialect: &dialect::STANDARD, agent }
    }
}
