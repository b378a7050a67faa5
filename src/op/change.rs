//! Adds, replaces and removes agents while their server runs.

use std::sync::Arc;

use crate::{
    agent::Agent, limits::AGENT_FIELDS_MAX, model::Profile, op::Core, service::AgentIndex,
};

/// The agents of a local core, from any thread.
///
/// A change takes effect for all callers at once: a call that begins after the function has
/// returned uses the changed agents. A turn that began earlier finishes with the old program, which
/// is not dropped before.
///
/// A change affects the unfinished tasks of an agent as follows:
///
/// - A replaced agent: the new program is asked to adopt each task that does not wait for its
///   client ([`Agent::adopt`]), on the calling thread, before `replace` returns; a task that is
///   not adopted fails. A task that waits for its client does not change, and its next message
///   goes to the new program.
/// - A removed agent: all of its tasks fail.
/// - A renewed agent ([`AgentChange::Renew`]): its tasks continue with the program that they began
///   with.
///
/// Except after a renewal, the [`Job`](crate::agent::Job)s of the old program are closed and its
/// resume timers are dropped.
#[derive(Clone)]
pub struct Agents(pub(super) Arc<Core>);

#[cfg(feature = "push")]
impl Agents {
    /// The core that the agents run in.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

/// A change of one agent, named by its profile or by a name.
pub enum AgentChange {
    /// See [`Agents::add`].
    Add(Profile, Arc<dyn Agent>),
    /// See [`Agents::replace`].
    Replace(Profile, Arc<dyn Agent>),
    /// The program answers for new tasks and the card shows this profile, both from the same
    /// moment. Unfinished tasks continue with the program that they began with: it also receives
    /// their next messages, and is dropped when they have ended. At most
    /// [`OLDER_PROGRAMS_MAX`](crate::limits::OLDER_PROGRAMS_MAX) earlier programs are retained; the
    /// tasks of a dropped one are then treated as after a replacement.
    Renew(Profile, Arc<dyn Agent>),
    /// The card shows this profile from then on. The program and its tasks do not change.
    Describe(Profile),
    /// See [`Agents::remove`].
    Remove(String),
}

impl AgentChange {
    /// The name of the changed agent.
    pub fn name(&self) -> &str {
        match self {
            AgentChange::Add(profile, _)
            | AgentChange::Replace(profile, _)
            | AgentChange::Renew(profile, _)
            | AgentChange::Describe(profile) => &profile.name,
            AgentChange::Remove(name) => name,
        }
    }

    /// The profile on the agent's card after the change.
    pub(super) fn profile(&self) -> Option<&Profile> {
        match self {
            AgentChange::Add(profile, _)
            | AgentChange::Replace(profile, _)
            | AgentChange::Renew(profile, _)
            | AgentChange::Describe(profile) => Some(profile),
            AgentChange::Remove(_) => None,
        }
    }
}

/// Why an agent could not be added, replaced or removed; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentError {
    /// The name is not valid in a path.
    Name(String),
    /// The profile requests a header field that is not allowed, or too many.
    Field(String),
    /// The profile defines a security scheme twice, or requires an undefined one.
    Security(String),
    /// An agent already has this name.
    Taken(String),
    /// A tenant has this name: [`Agents::end_tenant`] ends it.
    Tenant {
        /// The name.
        name: String,
        /// The number of its tasks; 0: a call that names the tenant is running or deferred.
        tasks: usize,
        /// The number of its unfinished tasks.
        unfinished: usize,
    },
    /// No agent has this name.
    Unknown(String),
    /// The agent answers at the root: it can be replaced, but not removed.
    Default(String),
    /// All `agents_max` names have been used.
    TooMany,
}

impl std::fmt::Display for AgentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentError::Name(name) => {
                write!(f, "the agent name {name:?} may only have letters, digits, '-', '_', '.'")
            }
            AgentError::Field(name) => {
                write!(f, "the agent cannot receive the header field {name:?}: it is not a ")?;
                write!(f, "request header, or the agent has more than {AGENT_FIELDS_MAX} of them")
            }
            AgentError::Security(name) => {
                write!(f, "the security scheme {name:?} must be declared exactly once: it is ")?;
                write!(f, "declared twice, or required without a declaration")
            }
            AgentError::Taken(name) => write!(f, "the agent name {name:?} is already in use"),
            AgentError::Tenant { name, tasks, unfinished } => {
                write!(f, "the tenant {name:?} has {tasks} tasks, {unfinished} of them ")?;
                write!(f, "unfinished: Agents::end_tenant ends them, and the name is free when ")?;
                write!(f, "they are evicted (task_ttl_ms); --tenants (Setup::tenants) ")?;
                write!(f, "defines which names tenants may have")
            }
            AgentError::Unknown(name) => write!(f, "no agent is called {name:?}"),
            AgentError::Default(name) => {
                write!(f, "the agent {name:?} answers at the root and can only be replaced")
            }
            AgentError::TooMany => write!(f, "too many agents (agents_max)"),
        }
    }
}

impl std::error::Error for AgentError {}

impl Agents {
    /// Stores the time for jobs, which have no monotonic clock.
    #[cfg(feature = "embed")]
    pub(crate) fn note_time(&self, now: crate::service::Now) {
        self.0.store.note_time(now);
    }

    /// The name of an agent, unless the agent was removed.
    #[cfg(feature = "net")]
    pub(crate) fn name_of(&self, agent: AgentIndex) -> Option<String> {
        self.0.agents.profile(agent).map(|profile| profile.name.clone())
    }

    /// Adds an agent under the name of its profile, at `/agents/{name}`. If a removed agent had
    /// this name, the new one takes over its index and tasks.
    ///
    /// A server with one agent accepts any tenant name by default
    /// ([`Setup::tenants`](crate::engine::Setup::tenants)), so a tenant may already have the name.
    ///
    /// # Errors
    /// [`AgentError::Name`], [`AgentError::Field`], [`AgentError::Taken`], [`AgentError::Tenant`],
    /// [`AgentError::TooMany`].
    pub fn add(&self, profile: Profile, agent: Arc<dyn Agent>) -> Result<AgentIndex, AgentError> {
        self.change_one(AgentChange::Add(profile, agent))
    }

    /// Replaces the program and the profile of the agent with the profile's name, both at once.
    ///
    /// # Errors
    /// [`AgentError::Field`], [`AgentError::Unknown`].
    pub fn replace(
        &self,
        profile: Profile,
        agent: Arc<dyn Agent>,
    ) -> Result<AgentIndex, AgentError> {
        self.change_one(AgentChange::Replace(profile, agent))
    }

    /// Removes an agent. Its card is gone at once. Its path rejects messages with
    /// `UnsupportedOperation` and serves its tasks until all are evicted; then the path returns
    /// 404. The first agent answers at the root and cannot be removed.
    ///
    /// # Errors
    /// [`AgentError::Unknown`], [`AgentError::Default`].
    pub fn remove(&self, name: &str) -> Result<(), AgentError> {
        self.change_one(AgentChange::Remove(name.to_owned())).map(drop)
    }

    /// Applies all of these changes at once, each to a different agent, or none of them.
    ///
    /// # Errors
    /// Any [`AgentError`], for the first change that cannot be applied; [`AgentError::Taken`] also
    /// if two changes name the same agent. Nothing has changed.
    pub fn change(&self, changes: Vec<AgentChange>) -> Result<(), AgentError> {
        self.change_all(changes, || ()).map(drop)
    }

    /// As [`Agents::change`]. `first` is called after all checks, before the first change is
    /// applied: it releases the callers that must not see the new agents. `first` must not use
    /// these agents.
    ///
    /// # Errors
    /// As [`Agents::change`]; `first` was not called.
    pub fn change_after(
        &self,
        changes: Vec<AgentChange>,
        first: impl FnOnce(),
    ) -> Result<(), AgentError> {
        self.change_all(changes, first).map(drop)
    }

    fn change_one(&self, change: AgentChange) -> Result<AgentIndex, AgentError> {
        let indexes = self.change_all(vec![change], || ())?;
        // `change_all` returns one index for each change.
        indexes.first().copied().ok_or(AgentError::TooMany)
    }

    fn change_all(
        &self,
        changes: Vec<AgentChange>,
        first: impl FnOnce(),
    ) -> Result<Vec<AgentIndex>, AgentError> {
        let added = changes.iter().filter(|change| matches!(change, AgentChange::Add(..)));
        let added: Vec<String> = added.map(|change| change.name().to_owned()).collect();
        let unclaim = |names: &[String]| {
            let never = names.iter().filter(|name| !self.0.agents.had(name));
            never.for_each(|name| self.0.unclaim_name(name));
        };
        for (at, name) in added.iter().enumerate() {
            // From here on no call can use the name for a tenant, not even a call that was decoded
            // before.
            if !self.0.claim_name(name) {
                unclaim(&added[..at]);
                let ((tasks, unfinished), name) = (self.0.tasks_of_tenant(name), name.clone());
                return Err(AgentError::Tenant { name, tasks, unfinished });
            }
        }
        let is_other = |change: &AgentChange| match change {
            AgentChange::Replace(..) | AgentChange::Renew(..) | AgentChange::Remove(_) => true,
            AgentChange::Add(..) | AgentChange::Describe(_) => false,
        };
        let renewed = changes.iter().filter(|change| matches!(change, AgentChange::Renew(..)));
        renewed.for_each(|change| self.0.forget_older_programs(change.name()));
        let is_handed_over: Vec<bool> = changes.iter().map(is_other).collect();
        let indexes = self.0.agents.change(changes, first).inspect_err(|_| unclaim(&added))?;
        let with_others = indexes.iter().zip(is_handed_over).filter(|(_, is_other)| *is_other);
        with_others.for_each(|(index, _)| self.0.hand_over_all(*index));
        Ok(indexes)
    }

    /// Ends a tenant, so that an agent can have its name. The unfinished tasks of the tenant fail,
    /// and new ones are rejected, since no tenant may have this name from now on. The tasks can be
    /// read until they are evicted, after `task_ttl_ms` at the latest; then [`Agents::add`] accepts
    /// the name. Returns the number of tasks that are still stored.
    ///
    /// A call that names the tenant and began earlier may still create a task; the next
    /// `end_tenant` ends that task.
    pub fn end_tenant(&self, name: &str) -> usize {
        self.0.end_tenant(name)
    }

    /// The names of the agents that are not removed, in order of their index.
    pub fn names(&self) -> Vec<String> {
        self.0.agents.names()
    }
}
