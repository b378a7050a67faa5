//! The scope of a task, the key of all stored data.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Index of an agent in its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentIndex(pub u16);

/// Index of a tenant of an agent; 0: no tenant was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TenantIndex(pub u16);

/// Index of an owner of tasks; 0: an anonymous caller. Unique for each principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerIndex(pub u32);

/// The scope of a task, the key of all stored data. Tasks in other scopes are invisible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The agent at the path of the request.
    pub agent: AgentIndex,
    /// The tenant that the caller named.
    pub tenant: TenantIndex,
    /// The caller.
    pub owner: OwnerIndex,
}

impl Scope {
    /// All tasks of an agent without an owner.
    pub const fn of(agent: AgentIndex) -> Scope {
        Scope { agent, tenant: TenantIndex(0), owner: OwnerIndex(0) }
    }

    /// True when neither a tenant nor an owner was named.
    pub const fn is_plain(self) -> bool {
        self.tenant.0 == 0 && self.owner.0 == 0
    }

    /// The scope as a unique number.
    pub const fn bits(self) -> u64 {
        (self.owner.0 as u64) << 32 | (self.tenant.0 as u64) << 16 | self.agent.0 as u64
    }
}

/// The number that a service has assigned to a name, cached with the name and with the generation
/// of the service's numbers. Each service uses other generations.
#[derive(Debug, Default)]
pub struct NumberHint(AtomicU64);

impl NumberHint {
    /// The generation and the number, which is never 0; `None`: nothing is cached.
    #[inline]
    pub fn get(&self) -> Option<(u32, u32)> {
        let bits = self.0.load(Ordering::Relaxed);
        (bits as u32 != 0).then_some(((bits >> 32) as u32, bits as u32))
    }

    /// A generation that no service in this process has used.
    pub fn next_generation() -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Caches the number of a name in a generation.
    pub fn set(&self, generation: u32, number: u32) {
        self.0.store(u64::from(generation) << 32 | u64::from(number), Ordering::Relaxed);
    }
}

impl Clone for NumberHint {
    /// Returns an empty cache: a clone may get another name.
    fn clone(&self) -> NumberHint {
        NumberHint::default()
    }
}

impl PartialEq for NumberHint {
    /// The cache does not affect equality.
    fn eq(&self, _other: &NumberHint) -> bool {
        true
    }
}

impl Eq for NumberHint {}
