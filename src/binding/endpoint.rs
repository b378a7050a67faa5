//! The dialect and the agent at the path of a request.

use crate::{
    dialect::{self, Dialect},
    service::AgentIndex,
};

/// A dialect and an agent, to which a served path leads.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// The dialect.
    pub dialect: &'static Dialect,
    /// The agent.
    pub agent: AgentIndex,
    /// True: the path belongs to this agent alone; false: a tenant in the request may name another
    /// agent.
    pub is_own: bool,
}

impl Endpoint {
    /// The dialect of the specification, and the default agent.
    pub const DEFAULT: Endpoint = Endpoint::root(&dialect::STANDARD);

    /// A path at which the default agent answers, unless the request names another agent.
    pub const fn root(dialect: &'static Dialect) -> Endpoint {
        Endpoint { dialect, agent: AgentIndex(0), is_own: false }
    }

    /// A path that belongs to this agent alone.
    pub const fn own(dialect: &'static Dialect, agent: AgentIndex) -> Endpoint {
        Endpoint { dialect, agent, is_own: true }
    }
}
