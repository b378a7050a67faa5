//! The tasks of all scopes, for the operator: in pages, or one task by its id.
//!
//! Pages have the order of a scope's pages (`page.rs`), the newest status change first; no scope's
//! list accepts their tokens. Only the admin interface uses this module.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use super::{
    Store, TaskKey,
    id::SlotAt,
    page::{Best, Filter, PAGE_MAX, PageToken, best_of_orders},
    spaces::ScopeNames,
};
use crate::{
    fault::Fault,
    model::TaskState,
    service::{AgentIndex, OwnerIndex, Scope, TenantIndex},
};

/// The scope of page tokens for all scopes: no real scope has these numbers.
const ALL: Scope = Scope {
    agent: AgentIndex(u16::MAX),
    tenant: TenantIndex(u16::MAX),
    owner: OwnerIndex(u32::MAX),
};

/// The operator's filter for tasks; `None`: any value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SurveyFilter<'a> {
    /// Only tasks of owners with this name ([`is_owner_named`]); empty: tasks without an owner.
    ///
    /// [`is_owner_named`]: crate::service::principal::is_owner_named
    pub owner: Option<&'a str>,
    /// Only tasks of this agent.
    pub agent: Option<AgentIndex>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
}

/// A task without its content.
pub struct SurveyedTask {
    /// Its id in JSON form.
    pub id: Box<[u8]>,
    /// The id of its context in JSON form.
    pub context_id: Box<[u8]>,
    /// Its state.
    pub state: TaskState,
    /// When its state was entered, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Its agent.
    pub agent: AgentIndex,
    /// Its tenant and its owner.
    pub names: ScopeNames,
    /// Bytes that it holds.
    pub bytes: usize,
}

/// A page of tasks.
pub struct SurveyPage {
    /// The tasks, the newest status change first.
    pub tasks: Vec<SurveyedTask>,
    /// Token of the next page.
    pub next: PageToken,
    /// Matching tasks.
    pub total: u64,
}

/// The result of a search for an id in all scopes.
pub enum AnyTask {
    /// No task.
    None,
    /// One task, and its scope.
    One(TaskKey, Scope),
    /// Several tasks: clients of several scopes have chosen this id.
    Several,
}

impl Store {
    /// One page of the matching tasks, at most [`PAGE_MAX`]. Shards are read one after another: the
    /// total is not a snapshot.
    ///
    /// # Errors
    /// Invalid parameters when the token is not from this store's pages of all scopes.
    pub fn survey(&self, wanted: SurveyFilter<'_>, page_token: &[u8]) -> Result<SurveyPage, Fault> {
        let below = match page_token {
            b"" => u64::MAX,
            token => self.read_token(ALL, token)?,
        };
        let filter = Filter { scope: ALL, status: wanted.state, floor: 0, below };
        let most = PAGE_MAX as usize + 1;
        let mut best = Best { heap: BinaryHeap::with_capacity(most), most };
        let is_wanted = self.scopes_of(wanted);
        let mut total = 0;
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            for (scope, orders) in shard.scopes.each() {
                if is_wanted(scope) {
                    total += best_of_orders(at, orders, &filter, &mut best);
                }
            }
        }
        let mut found = best.heap.into_sorted_vec();
        let is_more = found.len() > PAGE_MAX as usize;
        found.truncate(PAGE_MAX as usize);
        let next = match found.last() {
            Some(Reverse((stamp, ..))) if is_more => self.token(ALL, *stamp),
            Some(_) | None => PageToken::END,
        };
        let task = |Reverse((_, at, index)): Reverse<(u64, u32, u32)>| {
            let shard = self.lock(at as usize);
            // After its shard was read, the task may have a new status, or may be evicted.
            let scope = shard.slab.slot(index).map(|slot| slot.scope)?;
            let task = shard.slab.stored(index)?;
            let matches = wanted.state.is_none_or(|state| state == task.state());
            (matches && is_wanted(scope)).then(|| SurveyedTask {
                id: task.id().into(),
                context_id: task.context_id().into(),
                state: task.state(),
                since_unix_ms: task.updated_ms(),
                agent: scope.agent,
                names: self.spaces.names(scope),
                bytes: task.heap_bytes(),
            })
        };
        let tasks = found.into_iter().filter_map(task).collect();
        Ok(SurveyPage { tasks, next, total })
    }

    /// The task with this raw id in any matching scope.
    pub fn find_anywhere(&self, id: &[u8], wanted: SurveyFilter<'_>) -> AnyTask {
        let is_wanted = self.scopes_of(wanted);
        if let Some(position) = self.keys.position(id) {
            let SlotAt { at, index } = self.sharding.split(position);
            let shard = self.lock(at);
            if let Some(slot) = shard.slab.slot(index).filter(|slot| is_wanted(slot.scope))
                && shard.slab.stored(index).is_some_and(|task| task.id() == id)
            {
                return AnyTask::One(TaskKey { position, check: slot.check }, slot.scope);
            }
        }
        // Clients have chosen the id: each scope may have a task with it.
        let mut scopes = Vec::new();
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            let here = shard.scopes.each().map(|(scope, _)| scope);
            scopes.extend(here.filter(|scope| is_wanted(*scope)));
        }
        scopes.sort_unstable_by_key(|scope| scope.bits());
        scopes.dedup();
        let found = |scope: &Scope| Some((self.find(*scope, id)?, *scope));
        let mut found = scopes.iter().filter_map(found);
        match (found.next(), found.next()) {
            (None, _) => AnyTask::None,
            (Some((key, scope)), None) => AnyTask::One(key, scope),
            (Some(_), Some(_)) => AnyTask::Several,
        }
    }

    /// A test whether a scope matches the operator's filter.
    fn scopes_of(&self, wanted: SurveyFilter<'_>) -> impl Fn(Scope) -> bool + use<> {
        let owners = wanted.owner.map(|name| match name {
            "" => BTreeSet::from([0]),
            name => self.spaces.owners_named(name),
        });
        let agent = wanted.agent;
        move |scope: Scope| {
            agent.is_none_or(|agent| agent == scope.agent)
                && owners.as_ref().is_none_or(|owners| owners.contains(&scope.owner.0))
        }
    }
}
