//! Agents that are added, replaced and removed while their server runs.

use std::sync::Arc;

use crate::{
    agent::Agent, limits::AGENT_FIELDS_MAX, model::Profile, op::Core, service::AgentIndex,
};

/// The agents of a local core, from any thread.
///
/// Whatever changes does so for all callers at once: a call that begins after a function has
/// returned meets the agents as they are then. A turn that has begun before ends as it began, and
/// keeps its agent alive until then.
///
/// What becomes of unfinished tasks, of which an agent has those that it is at work at and those
/// that wait for their client:
///
/// - The new program of an agent that was replaced is asked for each that does not wait for its
///   client ([`Agent::adopt`]), on the calling thread, before `replace` returns; one that it does
///   not take fails. Those that wait for their client stay as they are, and the next message goes
///   to the new program.
/// - All of an agent that was removed fail.
/// - All of an agent that was renewed ([`AgentChange::Renew`]) go on with the program that they
///   began with.
///
/// Otherwise [`Job`](crate::agent::Job)s of the program before are closed, and what it wanted to be
/// called again for is forgotten.
#[derive(Clone)]
pub struct Agents(pub(super) Arc<Core>);

#[cfg(feature = "push")]
impl Agents {
    /// The core that they run in.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

/// A change of one agent, which its profile or a name says.
pub enum AgentChange {
    /// As [`Agents::add`] has it.
    Add(Profile, Arc<dyn Agent>),
    /// As [`Agents::replace`] has it.
    Replace(Profile, Arc<dyn Agent>),
    /// The program answers for new tasks, and the card shows this profile, both at once. Unfinished
    /// tasks go on with the program that they began with, their next messages included: it stays
    /// until they have ended. [`OLDER_PROGRAMS_MAX`](crate::limits::OLDER_PROGRAMS_MAX) of them
    /// stay; the tasks of the oldest are then treated as after a replacement.
    Renew(Profile, Arc<dyn Agent>),
    /// The card shows this profile from now on. The same program answers, and goes on with its
    /// tasks.
    Describe(Profile),
    /// As [`Agents::remove`] has it.
    Remove(String),
}

impl AgentChange {
    /// The agent that it is about.
    pub fn name(&self) -> &str {
        match self {
            AgentChange::Add(profile, _)
            | AgentChange::Replace(profile, _)
            | AgentChange::Renew(profile, _)
            | AgentChange::Describe(profile) => &profile.name,
            AgentChange::Remove(name) => name,
        }
    }

    /// What its card says from then on.
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

/// Why an agent could not be added, replaced or removed; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentError {
    /// The name does not fit into a path.
    Name(String),
    /// The profile asks for a header field that it cannot have, or for too many.
    Field(String),
    /// The profile has a scheme of security twice, or asks for one that it has not.
    Security(String),
    /// There is an agent of this name.
    Taken(String),
    /// There is a tenant of this name: [`Agents::end_tenant`] ends it.
    Tenant {
        /// The name.
        name: String,
        /// How many tasks it has; 0: a call that names it runs, or an agent says later what comes
        /// of one.
        tasks: usize,
        /// How many of them are unfinished.
        unfinished: usize,
    },
    /// There is no agent of this name.
    Unknown(String),
    /// The agent answers at the root; it can be replaced.
    Default(String),
    /// There have been as many names as `agents_max`.
    TooMany,
}

impl std::fmt::Display for AgentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AgentError::Name(name) => {
                write!(f, "the agent name {name:?} may only have letters, digits, '-', '_', '.'")
            }
            AgentError::Field(name) => {
                write!(f, "the agent cannot receive the header field {name:?}: ")?;
                write!(f, "it must be a request header, and one of at most {AGENT_FIELDS_MAX}")
            }
            AgentError::Security(name) => {
                write!(
                    f,
                    "the security scheme {name:?} is declared twice, or required and not declared"
                )
            }
            AgentError::Taken(name) => write!(f, "an agent is already called {name:?}"),
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
            AgentError::TooMany => write!(f, "agents_max agents were already added"),
        }
    }
}

impl std::error::Error for AgentError {}

impl Agents {
    /// The name of an agent, unless it was removed.
    #[cfg(feature = "net")]
    pub(crate) fn name_of(&self, agent: AgentIndex) -> Option<String> {
        self.0.agents.profile(agent).map(|profile| profile.name.clone())
    }

    /// Adds an agent under the name of its profile, at `/agents/{name}`. If one of this name was
    /// removed before, it gets that one's place, and finds its tasks.
    ///
    /// A server with one agent lets its clients name any tenant, unless it was told otherwise
    /// ([`Setup::tenants`](crate::engine::Setup::tenants)): one of them may have the name.
    ///
    /// # Errors
    /// [`AgentError::Name`], [`AgentError::Field`], [`AgentError::Taken`],
    /// [`AgentError::Tenant`], [`AgentError::TooMany`].
    pub fn add(&self, profile: Profile, agent: Arc<dyn Agent>) -> Result<AgentIndex, AgentError> {
        self.change_one(AgentChange::Add(profile, agent))
    }

    /// Lets another program answer for the agent that has the profile's name, and its card show
    /// this profile, both at once.
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

    /// Removes an agent. Its card is gone at once. Its place refuses messages with
    /// `UnsupportedOperation`, and answers requests for its tasks, until these have left the
    /// store; then there is nothing at its place. The first agent answers at the root and stays.
    ///
    /// # Errors
    /// [`AgentError::Unknown`], [`AgentError::Default`].
    pub fn remove(&self, name: &str) -> Result<(), AgentError> {
        self.change_one(AgentChange::Remove(name.to_owned())).map(drop)
    }

    /// Makes all of these changes at once, each about another agent, or none of them.
    ///
    /// # Errors
    /// Every [`AgentError`], for the first change that cannot be made; [`AgentError::Taken`] also
    /// where two are about one agent. Nothing has changed then.
    pub fn change(&self, changes: Vec<AgentChange>) -> Result<(), AgentError> {
        self.change_all(changes, || ()).map(drop)
    }

    /// The same; `first` is called when it is certain that all of them can be made, and before any
    /// of them is: it releases the callers that must not see what comes. It must not ask these
    /// agents.
    ///
    /// # Errors
    /// As [`Agents::change`]; `first` was not called then.
    pub fn change_after(
        &self,
        changes: Vec<AgentChange>,
        first: impl FnOnce(),
    ) -> Result<(), AgentError> {
        self.change_all(changes, first).map(drop)
    }

    fn change_one(&self, change: AgentChange) -> Result<AgentIndex, AgentError> {
        let indexes = self.change_all(vec![change], || ())?;
        // There is one for each change.
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
            // From here on no call makes it a tenant's, also one that was decoded before.
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

    /// Ends a tenant, so that an agent can have its name: its unfinished tasks fail, and no others
    /// are made, since no tenant has this name from now on. Its tasks can be read until they leave
    /// the store, after `task_ttl_ms` at the latest; then [`Agents::add`] takes the name. Says how
    /// many there are.
    ///
    /// A call that names it and has begun before may still make a task, which the next `end_tenant`
    /// ends.
    pub fn end_tenant(&self, name: &str) -> usize {
        self.0.end_tenant(name)
    }

    /// The names of the agents that there are, the first one first.
    pub fn names(&self) -> Vec<String> {
        self.0.agents.names()
    }
}
