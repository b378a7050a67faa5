//! The tasks of one shard by scope: in orders, and counted where the scope names a tenant or an
//! owner.
//!
//! Law: such a scope is here as long as it has a task here, or there is room taken for one.

use super::shard::{HashedMap, Orders, remove, spread};
use crate::service::{AgentIndex, Scope, TenantIndex};

/// The scopes that have tasks in a shard.
#[derive(Default)]
pub(super) struct Scopes {
    /// The orders of agents, for callers who named no other scope.
    plain: Vec<Option<Box<Orders>>>,
    /// Each other scope.
    named: HashedMap<Box<NamedScope>>,
}

/// What a scope has here that names a tenant or an owner.
struct NamedScope {
    scope: Scope,
    /// How many tasks there are, those included for which there is only room; never 0.
    tasks: u32,
    orders: Orders,
}

impl Scopes {
    /// The orders of one scope.
    pub fn orders(&self, scope: Scope) -> Option<&Orders> {
        match scope.is_plain() {
            true => self.plain.get(usize::from(scope.agent.0))?.as_deref(),
            false => self.named.get(&spread(scope)).map(|named| &named.orders),
        }
    }

    /// The orders of a scope, which are made if there are none.
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
    pub fn each(&self) -> impl Iterator<Item = (Scope, &Orders)> {
        let plain = (0..).map(AgentIndex).zip(&self.plain);
        let plain =
            plain.filter_map(|(agent, orders)| Some((Scope::of(agent), &**orders.as_ref()?)));
        plain.chain(self.named.values().map(|named| (named.scope, &named.orders)))
    }

    /// The scopes that name a tenant or an owner.
    pub fn with_names(&self) -> impl Iterator<Item = Scope> {
        self.named.values().map(|named| named.scope)
    }

    /// The orders of the scopes of a tenant.
    pub fn of_tenant(&self, tenant: TenantIndex) -> impl Iterator<Item = &Orders> {
        let named = self.named.values().filter(move |named| named.scope.tenant == tenant);
        named.map(|named| &named.orders)
    }

    /// Notes that there is room for one more task of a scope.
    #[inline]
    pub fn join(&mut self, scope: Scope) {
        if !scope.is_plain() {
            self.named(scope).tasks += 1;
        }
    }

    /// Notes that a task of a scope, or the room for it, is gone. Agents are few and come back; who
    /// has named a scope may not.
    #[inline]
    pub fn leave(&mut self, scope: Scope) {
        if !scope.is_plain() {
            let named = self.named(scope);
            named.tasks = named.tasks.saturating_sub(1);
            if named.tasks == 0 {
                remove(&mut self.named, spread(scope));
            }
        }
    }

    fn named(&mut self, scope: Scope) -> &mut NamedScope {
        let make = || Box::new(NamedScope { scope, tasks: 0, orders: Orders::default() });
        self.named.entry(spread(scope)).or_insert_with(make)
    }
}
