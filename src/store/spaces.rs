//! Tenants and owners by their names: the scope of a call.
//!
//! Invariants: only a call that may create a task assigns a number to a name. A name without a
//! number has no tasks.

#[cfg(feature = "net")]
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Store, TaskKey,
    displace::{NeverDisplaced, OwnerUses},
    names::{NoNumber, Number, NumberSet, RequestedName, SpaceNames},
    running::RunningTasks,
    waiters::Wakes,
};
#[cfg(feature = "net")]
use crate::service::principal::is_owner_named;
use crate::{
    fault::{Fault, FaultKind},
    limits::Limits,
    model::TaskState,
    service::{Now, NumberHint, OwnerIndex, Scope, TenantIndex},
    shares::Holder,
};

/// Numbers that are never assigned: their scopes have no tasks.
const NO_TENANT: TenantIndex = TenantIndex(u16::MAX);
const NO_OWNER: OwnerIndex = OwnerIndex(u32::MAX);

/// The names of all tenants and owners.
pub(super) struct Spaces {
    tenants: SpaceNames,
    owners: SpaceNames,
    /// The running tasks of each owner, and their bytes.
    pub running: RunningTasks,
}

impl Spaces {
    pub fn new(limits: &Limits, workers: usize, groups: usize) -> Spaces {
        Spaces {
            tenants: SpaceNames::new(limits.tenants_max.min(usize::from(NO_TENANT.0) - 1), workers),
            owners: SpaceNames::new(limits.owners_max, workers),
            running: RunningTasks::new(limits.owners_max, groups),
        }
    }
}

/// The names of the numbers in a scope.
#[derive(Default)]
pub struct ScopeNames {
    /// The name of the tenant.
    pub tenant: Option<Arc<str>>,
    /// The name of the owner.
    pub owner: Option<Arc<str>>,
}

impl Spaces {
    /// The numbers of all owners with a name as the operator writes it: callers with the same name
    /// are several owners if their kinds of credentials or their issuers differ.
    #[cfg(feature = "net")]
    pub fn owners_named(&self, name: &str) -> BTreeSet<u32> {
        self.owners.numbers_of(|owner| is_owner_named(owner, name))
    }

    /// The names of the scope of a stored task or a reservation.
    pub fn names(&self, scope: Scope) -> ScopeNames {
        if scope.is_plain() {
            return ScopeNames::default();
        }
        let tenant = self.tenants.name(u32::from(scope.tenant.0));
        ScopeNames { tenant, owner: self.owners.name(scope.owner.0) }
    }
}

/// The names in a call.
#[derive(Clone, Copy)]
pub struct SpaceName<'a> {
    /// The scope of a call without names.
    pub scope: Scope,
    /// The name of a tenant.
    pub tenant: Option<&'a str>,
    /// The name of an owner.
    pub owner: Option<&'a str>,
    /// The hint of the owner's name.
    pub owner_hint: Option<&'a NumberHint>,
    /// True: the server authenticates callers, so a call without an owner is from an anonymous
    /// caller.
    pub authenticates_callers: bool,
}

impl<'a> SpaceName<'a> {
    fn tenant(&self) -> Option<RequestedName<'a>> {
        self.tenant.map(|name| RequestedName { maker: self.maker(), ..RequestedName::plain(name) })
    }

    /// The creator of the tenant's name. All anonymous callers are one creator, under a name that
    /// no owner has, so that they cannot create more than half of the names.
    fn maker(&self) -> Option<&'a str> {
        self.owner.or(self.authenticates_callers.then_some(""))
    }

    fn owner(&self) -> Option<RequestedName<'a>> {
        self.owner.map(|name| RequestedName { hint: self.owner_hint, ..RequestedName::plain(name) })
    }
}

/// A scope with numbers that are not reassigned while this value exists.
pub struct Space<'s> {
    /// The scope.
    pub scope: Scope,
    _numbers: [Option<Number<'s>>; 2],
}

/// The number of an owner, which is not reassigned while this value exists.
pub struct OwnerNumber<'s>(Number<'s>);

impl OwnerNumber<'_> {
    /// The number.
    #[inline]
    pub fn owner(&self) -> OwnerIndex {
        OwnerIndex(self.0.get())
    }
}

impl Store {
    /// The names of the scope of a stored task.
    #[cfg(feature = "net")]
    pub fn names_of(&self, scope: Scope) -> ScopeNames {
        self.spaces.names(scope)
    }

    /// The owner's number in a hint, if it is still valid.
    #[inline]
    pub fn recall_owner(
        &self,
        worker: usize,
        hint: Option<&NumberHint>,
    ) -> Option<OwnerNumber<'_>> {
        self.spaces.owners.recall(worker, hint).map(OwnerNumber)
    }

    /// The scope for a call of `worker` that creates no task.
    pub fn find_space(&self, worker: usize, named: SpaceName<'_>) -> Space<'_> {
        let Spaces { tenants, owners, .. } = &self.spaces;
        let tenant = named.tenant().map(|named| tenants.find(worker, named));
        let owner = named.owner().map(|named| owners.find(worker, named));
        let mut scope = named.scope;
        if let Some(None) = tenant {
            scope.tenant = NO_TENANT;
        }
        if let Some(None) = owner {
            scope.owner = NO_OWNER;
        }
        space(scope, tenant.flatten(), owner.flatten())
    }

    /// The scope for a call of `worker` that may create a task.
    ///
    /// A new owner may displace an owner that has only finished tasks: these tasks are evicted, and
    /// `forget` is called with their holder.
    ///
    /// # Errors
    /// `Overloaded` when `tenants_max` tenants have tasks, or `owners_max` owners unfinished tasks;
    /// `RateLimited` when the owner, or all anonymous callers together, created half of the
    /// tenants; invalid parameters when the name of the tenant is claimed, see
    /// [`Store::claim_tenant`].
    pub fn enter_space(
        &self,
        worker: usize,
        named: SpaceName<'_>,
        now: Now,
        forget: &dyn Fn(Holder),
    ) -> Result<Space<'_>, Fault> {
        let (mut tenant, mut owner) = (None, None);
        if let Some(name) = named.tenant() {
            let note = |set: &mut NumberSet| self.note_tenants(set);
            let entered = self.spaces.tenants.enter(worker, name, now, NeverDisplaced(note));
            tenant = Some(entered.map_err(|why| match why {
                NoNumber::Full => Fault::at_limit("tenants_max"),
                NoNumber::Claimed => Fault::param("tenant", "is reserved for an agent"),
                NoNumber::ShareExhausted(most) => share_exhausted(named.owner, most),
            })?);
        }
        if let Some(named) = named.owner() {
            let (owners, wakes) = (&self.spaces.owners, &mut Wakes::default());
            let owners_max = owners.most();
            let entered = owners.enter(
                worker,
                named,
                now,
                OwnerUses { store: self, owners_max, forget, wakes },
            );
            owner = Some(entered.map_err(|_| Fault::at_limit("owners_max"))?);
        }
        Ok(space(named.scope, tenant, owner))
    }

    /// Reserves a name, so that no tenant can have it; false: a tenant with this name has tasks, or
    /// is in use by a call.
    pub fn claim_tenant(&self, name: &str) -> bool {
        self.spaces.tenants.claim(name, |set| self.note_tenants(set))
    }

    /// Allows tenants to have a claimed name again.
    pub fn unclaim_tenant(&self, name: &str) {
        self.spaces.tenants.unclaim(name);
    }

    /// The numbers of a tenant's tasks and of its unfinished tasks.
    pub fn tasks_of_tenant(&self, name: &str) -> (usize, usize) {
        let Some(number) = self.spaces.tenants.number(name) else { return (0, 0) };
        let (mut tasks, mut unfinished) = (0, 0);
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            for orders in shard.scopes.of_tenant(TenantIndex(number as u16)) {
                for (state, order) in TaskState::ALL.iter().zip(orders) {
                    tasks += order.len();
                    unfinished += if state.is_terminal() { 0 } else { order.len() };
                }
            }
        }
        (tasks, unfinished)
    }

    /// Prevents new tasks of a tenant, and calls `each` with each of its unfinished tasks. `each`
    /// may call the store.
    pub fn close_tenant(&self, name: &str, each: impl FnMut(TaskKey)) {
        if let Some(number) = self.spaces.tenants.close(name) {
            let tenant = TenantIndex(number as u16);
            self.each_unfinished(|scope| scope.tenant == tenant, each);
        }
    }

    /// Notes the numbers of tenants with tasks or reservations.
    #[cold]
    fn note_tenants(&self, set: &mut NumberSet) {
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            let tenants = shard.scopes.with_names().map(|scope| u32::from(scope.tenant.0));
            tenants.for_each(|number| set.insert(number));
        }
    }
}

/// The error for an owner that created half of the tenants; `None`: for anonymous callers.
#[cold]
fn share_exhausted(owner: Option<&str>, most: u32) -> Fault {
    let holder = owner.map_or("anonymous callers have", |_| "the caller has");
    let detail = format!("{holder} named too many tenants that have tasks ({most})");
    Fault::because(FaultKind::RateLimited, detail).of_limit("tenants_max")
}

fn space<'s>(mut scope: Scope, tenant: Option<Number<'s>>, owner: Option<Number<'s>>) -> Space<'s> {
    if let Some(tenant) = &tenant {
        // The numbers are limited to this range.
        scope.tenant = TenantIndex(tenant.get() as u16);
    }
    if let Some(owner) = &owner {
        scope.owner = OwnerIndex(owner.get());
    }
    Space { scope, _numbers: [tenant, owner] }
}
