//! Whose tasks: the key of everything that is stored.

/// Index of an agent in its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentIndex(pub u16);

/// Index of a space of tasks beside others of the same agent; 0: none was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TenantIndex(pub u16);

/// Index of who owns tasks; 0: nobody in particular. No two principals have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerIndex(pub u32);

/// Whose tasks: the key of everything that is stored. What is in another scope is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The agent behind the path.
    pub agent: AgentIndex,
    /// The space of tasks that the caller named.
    pub tenant: TenantIndex,
    /// Who calls.
    pub owner: OwnerIndex,
}

impl Scope {
    /// All tasks of an agent that belong to nobody in particular.
    pub const fn of(agent: AgentIndex) -> Scope {
        Scope { agent, tenant: TenantIndex(0), owner: OwnerIndex(0) }
    }

    /// True when neither a tenant nor an owner was named.
    pub const fn is_plain(self) -> bool {
        self.tenant.0 == 0 && self.owner.0 == 0
    }

    /// A number that no other scope has.
    pub const fn bits(self) -> u64 {
        (self.owner.0 as u64) << 32 | (self.tenant.0 as u64) << 16 | self.agent.0 as u64
    }
}
