//! The dialect and the agent at the path of a request.

use crate::{
    dialect::{self, Dialect},
    service::AgentIndex,
};

/// A dialect and an agent: every served path leads to one such pair.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// The dialect.
    pub dialect: &'static Dialect,
    /// The agent.
    pub agent: AgentIndex,
    /// True: the path is this agent's own; false: it belongs to no agent, and a tenant may name
    /// another agent.
    pub is_own: bool,
}

impl Endpoint {
    /// The specification's own dialect and the default agent.
    pub const DEFAULT: Endpoint = Endpoint::root(&dialect::STANDARD);

    /// A path where the default agent answers, unless the request names another one.
    pub const fn root(dialect: &'static Dialect) -> Endpoint {
        Endpoint { dialect, agent: AgentIndex(0), is_own: false }
    }

    /// A path of this agent's own.
    pub const fn own(dialect: &'static Dialect, agent: AgentIndex) -> Endpoint {
        Endpoint { dialect, agent, is_own: true }
    }
}
