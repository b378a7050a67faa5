//! The tasks of one shard by scope: sorted in orders; for a scope with a tenant or an owner they
//! are also counted.
//!
//! Invariants: a scope with a tenant or an owner has an entry while it has a task or a reservation
//! in the shard. The entry holds [`SCOPE_BYTES`] of `store_bytes_max` from the first task of the
//! scope in the shard to the last.

use super::shard::{HashedMap, Orders, remove, spread};
#[cfg(feature = "net")]
use crate::service::AgentIndex;
use crate::{
    limits::SCOPE_BYTES,
    service::{Scope, TenantIndex},
};

/// The scopes with tasks in a shard.
#[derive(Default)]
pub(super) struct Scopes {
    /// The orders of agents, for scopes without names.
    plain: Vec<Option<Box<Orders>>>,
    /// The other scopes.
    named: HashedMap<Box<NamedScope>>,
}

/// The entry of a scope with a tenant or an owner.
struct NamedScope {
    scope: Scope,
    /// Tasks, reservations included; never 0.
    tasks: u32,
    /// Whether bytes of the store were taken for it.
    is_charged: bool,
    orders: Orders,
}

impl NamedScope {
    #[cold]
    fn new(scope: Scope) -> Box<NamedScope> {
        let orders = Orders::default();
        Box::new(NamedScope { scope, tasks: 0, is_charged: false, orders })
    }
}

impl Scopes {
    /// The orders of one scope.
    pub fn orders(&self, scope: Scope) -> Option<&Orders> {
        match scope.is_plain() {
            true => self.plain.get(usize::from(scope.agent.0))?.as_deref(),
            false => self.named.get(&spread(scope)).map(|named| &named.orders),
        }
    }

    /// The orders of a scope, created if there are none.
    #[inline]
    pub fn orders_mut(&mut self, scope: Scope) -> &mut Orders {
        if !scope.is_plain() {
            return &mut self.named(scope).orders;
        }
        let agent = usize::from(scope.agent.0);
        if agent >= self.plain.len() {
            self.plain.resize_with(agent + 1, || None);
        }
        self.plain[agent].get_or_insert_default()
    }

    /// The orders of all scopes.
    pub fn all_orders(&self) -> impl Iterator<Item = &Orders> {
        let plain = self.plain.iter().filter_map(Option::as_deref);
        plain.chain(self.named.values().map(|named| &named.orders))
    }

    /// Each scope with its orders.
    #[cfg(feature = "net")]
    pub fn each(&self) -> impl Iterator<Item = (Scope, &Orders)> {
        let plain = (0..).map(AgentIndex).zip(&self.plain);
        let plain =
            plain.filter_map(|(agent, orders)| Some((Scope::of(agent), &**orders.as_ref()?)));
        plain.chain(self.named.values().map(|named| (named.scope, &named.orders)))
    }

    /// The scopes with a tenant or an owner.
    pub fn with_names(&self) -> impl Iterator<Item = Scope> {
        self.named.values().map(|named| named.scope)
    }

    /// The orders of the scopes of a tenant.
    pub fn of_tenant(&self, tenant: TenantIndex) -> impl Iterator<Item = &Orders> {
        let named = self.named.values().filter(move |named| named.scope.tenant == tenant);
        named.map(|named| &named.orders)
    }

    /// Counts a reservation of a scope; true: bytes of the store must be taken for the scope
    /// ([`Scopes::charge`]).
    #[inline]
    pub fn join(&mut self, scope: Scope) -> bool {
        !scope.is_plain() && {
            let named = self.named(scope);
            named.tasks += 1;
            !named.is_charged
        }
    }

    /// Notes that bytes of the store were taken for a scope; false: they were taken before.
    pub fn charge(&mut self, scope: Scope) -> bool {
        !std::mem::replace(&mut self.named(scope).is_charged, true)
    }

    /// Subtracts a task or a reservation of a scope; returns the bytes of the store that the scope
    /// frees. The orders of a scope without names stay, since its callers return.
    #[inline]
    pub fn leave(&mut self, scope: Scope) -> usize {
        if scope.is_plain() {
            return 0;
        }
        let named = self.named(scope);
        named.tasks = named.tasks.saturating_sub(1);
        let is_charged = named.is_charged;
        if named.tasks > 0 {
            return 0;
        }
        remove(&mut self.named, spread(scope));
        if is_charged { SCOPE_BYTES } else { 0 }
    }

    #[inline]
    fn named(&mut self, scope: Scope) -> &mut NamedScope {
        self.named.entry(spread(scope)).or_insert_with(|| NamedScope::new(scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_memory_fits_its_charge() {
        let mut orders = Orders::default();
        // Each state has had many tasks; one task remains, in one state.
        for (state, order) in orders.iter_mut().enumerate() {
            (1..=5_000).for_each(|stamp| order.push(stamp, 7));
            (1..5_000).rev().for_each(|stamp| assert!(order.remove(stamp)));
            assert!(state == 0 || order.remove(5_000));
        }
        let heap: usize = orders.iter().map(|order| order.heap_bytes()).sum();
        // Two slots of the map, with a key, a pointer and a byte each.
        let bytes = size_of::<NamedScope>() + heap + 2 * (8 + 8 + 1);
        assert!(bytes <= SCOPE_BYTES, "{bytes}");
    }
}
