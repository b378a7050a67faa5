//! The agents of a core, by index and by name: they come, change and go while it runs.
//!
//! Law: an index names one agent for ever. What a call needs of its agent lies in a list of its
//! worker's, which is as new as the last change: on the way of a call nothing is written that other
//! workers write. A program is dropped when no worker's list and no turn has it any more.

use std::{
    ops::Deref,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;

use crate::{
    agent::{Agent, Turn},
    model::{Profile, is_agent_name},
    op::{AgentError, names::Names},
    service::AgentIndex,
};

/// A program that answers for an agent, and what its card says.
pub(super) struct RegisteredAgent {
    pub profile: Arc<Profile>,
    pub agent: Arc<dyn Agent>,
    /// Which of the programs that have answered for the agent: 0 for the first, counted up.
    pub incarnation: u32,
    /// True: nobody answers for it any more.
    pub is_removed: bool,
    /// True when every media type is welcome, which spares the look at each part.
    pub any_media: bool,
    /// True when clients must know an extension, which spares the look at what they name.
    pub needs_extension: bool,
}

/// What answers for an agent that was removed: nothing.
struct Removed;

impl Agent for Removed {
    fn start(&self, _turn: Turn<'_>) {}
}

impl RegisteredAgent {
    fn new(profile: Profile, agent: Arc<dyn Agent>, incarnation: u32) -> RegisteredAgent {
        let any_media = profile.input_modes.iter().any(|mode| mode == "*/*");
        let needs_extension = profile.extensions.iter().any(|extension| extension.required);
        let (profile, is_removed) = (Arc::new(profile), false);
        RegisteredAgent { profile, agent, incarnation, is_removed, any_media, needs_extension }
    }

    /// The same agent, with nobody who answers for it.
    fn removed(&self) -> RegisteredAgent {
        RegisteredAgent {
            profile: Arc::clone(&self.profile),
            agent: Arc::new(Removed),
            incarnation: self.incarnation.wrapping_add(1),
            is_removed: true,
            any_media: true,
            needs_extension: false,
        }
    }
}

/// All agents of a core.
pub(super) struct AllAgents {
    names: Names,
    /// By index; whoever changes an agent holds it.
    listed: RwLock<Vec<Arc<RegisteredAgent>>>,
    /// How often one was added, replaced or removed; changes with `listed`.
    changes: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<RwLock<WorkerList>>]>,
}

/// The agents as one worker knows them.
#[derive(Default)]
pub(super) struct WorkerList {
    /// The change after which they were like this.
    changes: u64,
    agents: Vec<Arc<RegisteredAgent>>,
}

/// The program that answers for an agent now; it stays alive as long as this.
pub(super) enum CurrentAgent<'a> {
    /// In the list of the worker, which stays as it is meanwhile.
    Listed(RwLockReadGuard<'a, WorkerList>, usize),
    /// Not in that list: there was a change, and a turn of the same worker is not over.
    Unlisted(Arc<RegisteredAgent>),
}

impl Deref for CurrentAgent<'_> {
    type Target = RegisteredAgent;

    #[inline]
    fn deref(&self) -> &RegisteredAgent {
        match self {
            CurrentAgent::Listed(list, at) => &list.agents[*at],
            CurrentAgent::Unlisted(registered) => registered,
        }
    }
}

impl AllAgents {
    /// These agents, of whom the first answers at the root; at most `most` names ever. Their names
    /// are known to differ.
    pub fn new(
        agents: Vec<(Profile, Arc<dyn Agent>)>,
        (workers, most): (usize, usize),
        secret: u128,
    ) -> AllAgents {
        let names = Names::new(most.max(agents.len()), secret);
        let listed = agents.into_iter().map(|(profile, agent)| {
            names.add(&profile.name);
            Arc::new(RegisteredAgent::new(profile, agent, 0))
        });
        let listed = listed.collect();
        let all = AllAgents {
            names,
            listed: RwLock::new(listed),
            changes: CachePadded::new(AtomicU64::new(1)),
            workers: (0..workers.max(1)).map(|_| CachePadded::default()).collect(),
        };
        (0..all.workers.len()).for_each(|worker| all.refresh(worker));
        all
    }

    /// The agent of this name, unless it was removed and its tasks are gone.
    #[inline]
    pub fn find(&self, name: &str) -> Option<AgentIndex> {
        self.names.find(name)
    }

    /// True when an agent was ever given this name.
    pub fn had(&self, name: &str) -> bool {
        self.names.find_ever(name).is_some()
    }

    /// True when only one of them was not removed.
    #[cold]
    pub fn is_one(&self) -> bool {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.iter().filter(|agent| !agent.is_removed).count() == 1
    }

    /// The program that answers for an agent, as a worker finds it on the way of a call.
    #[inline]
    pub fn of_worker(&self, worker: usize, agent: AgentIndex) -> Option<CurrentAgent<'_>> {
        // Without a division.
        let list = self.workers.get(worker).unwrap_or(&self.workers[0]);
        // Nobody waits to write it (`refresh`), so that a turn may read it that a turn has begun.
        let list = list.read().unwrap_or_else(PoisonError::into_inner);
        let at = usize::from(agent.0);
        if list.changes == self.changes.load(Ordering::Acquire) && at < list.agents.len() {
            return Some(CurrentAgent::Listed(list, at));
        }
        drop(list);
        self.of_changed(worker, agent)
    }

    #[cold]
    fn of_changed(&self, worker: usize, agent: AgentIndex) -> Option<CurrentAgent<'_>> {
        self.refresh(worker);
        self.current(agent).map(CurrentAgent::Unlisted)
    }

    /// The program that answers for an agent.
    pub fn current(&self, agent: AgentIndex) -> Option<Arc<RegisteredAgent>> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.get(usize::from(agent.0)).cloned()
    }

    /// What the card of an agent says, unless it was removed.
    pub fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let current = listed.get(usize::from(agent.0)).filter(|current| !current.is_removed)?;
        Some(Arc::clone(&current.profile))
    }

    /// True when another program than this may answer for its agent by now.
    #[inline]
    pub fn has_changed(&self, current: &CurrentAgent<'_>) -> bool {
        match current {
            CurrentAgent::Listed(list, _) => list.changes != self.changes.load(Ordering::Acquire),
            CurrentAgent::Unlisted(_) => true,
        }
    }

    /// Lets a worker's list be as new as the last change, unless a turn is at work in it.
    pub fn refresh(&self, worker: usize) {
        let list = self.workers.get(worker).unwrap_or(&self.workers[0]);
        let is_new = |list: &WorkerList| list.changes == self.changes.load(Ordering::Acquire);
        if list.try_read().is_ok_and(|list| is_new(&list)) {
            return;
        }
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let changes = self.changes.load(Ordering::Acquire);
        let mut fresh = WorkerList { changes, agents: listed.clone() };
        drop(listed);
        if let Ok(mut list) = list.try_write()
            && list.changes < changes
        {
            std::mem::swap(&mut *list, &mut fresh);
        }
        // Programs that are dropped here are dropped without any lock.
        drop(fresh);
    }

    /// Adds an agent, or one again that was removed.
    ///
    /// # Errors
    /// [`AgentError`]; nothing has changed then.
    pub fn add(&self, profile: Profile, agent: Arc<dyn Agent>) -> Result<AgentIndex, AgentError> {
        if !is_agent_name(&profile.name) {
            return Err(AgentError::Name(profile.name));
        }
        check_fields(&profile)?;
        // One that is refused is dropped without any lock.
        let _dropped_last = Arc::clone(&agent);
        self.change(|listed| {
            let Some(index) = self.names.find_ever(&profile.name) else {
                let index = self.names.add(&profile.name).ok_or(AgentError::TooMany)?;
                listed.push(Arc::new(RegisteredAgent::new(profile, agent, 0)));
                return Ok((index, None));
            };
            let before = &mut listed[usize::from(index.0)];
            if !before.is_removed {
                return Err(AgentError::Taken(profile.name));
            }
            self.names.set_gone(index, false);
            let next = RegisteredAgent::new(profile, agent, before.incarnation.wrapping_add(1));
            Ok((index, Some(std::mem::replace(before, Arc::new(next)))))
        })
    }

    /// Lets another program answer for the agent with the profile's name.
    ///
    /// # Errors
    /// [`AgentError::Field`], [`AgentError::Unknown`].
    pub fn replace(
        &self,
        profile: Profile,
        agent: Arc<dyn Agent>,
    ) -> Result<AgentIndex, AgentError> {
        check_fields(&profile)?;
        let (name, _dropped_last) = (profile.name.clone(), Arc::clone(&agent));
        self.change_one(&name, |_, before| {
            Ok(RegisteredAgent::new(profile, agent, before.incarnation.wrapping_add(1)))
        })
    }

    /// Lets nobody answer for an agent any more.
    ///
    /// # Errors
    /// [`AgentError::Unknown`], [`AgentError::Default`].
    pub fn remove(&self, name: &str) -> Result<AgentIndex, AgentError> {
        self.change_one(name, |index, before| match index {
            AgentIndex(0) => Err(AgentError::Default(name.to_owned())),
            AgentIndex(_) => Ok(before.removed()),
        })
    }

    fn change_one(
        &self,
        name: &str,
        next: impl FnOnce(AgentIndex, &RegisteredAgent) -> Result<RegisteredAgent, AgentError>,
    ) -> Result<AgentIndex, AgentError> {
        self.change(|listed| {
            let unknown = || AgentError::Unknown(name.to_owned());
            let index = self.names.find_ever(name).ok_or_else(unknown)?;
            let before = &mut listed[usize::from(index.0)];
            if before.is_removed {
                return Err(unknown());
            }
            let next = Arc::new(next(index, before)?);
            Ok((index, Some(std::mem::replace(before, next))))
        })
    }

    /// Changes the agents, and lets every worker know that is at work in none of them; what was
    /// replaced is dropped last.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Arc<RegisteredAgent>>) -> Result<Changed, AgentError>,
    ) -> Result<AgentIndex, AgentError> {
        let mut listed = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        let (index, _replaced) = change(&mut listed)?;
        self.changes.fetch_add(1, Ordering::Release);
        drop(listed);
        (0..self.workers.len()).for_each(|worker| self.refresh(worker));
        Ok(index)
    }

    /// Names that lead to agents which were removed, and which still have tasks as far as is known.
    pub fn leaving(&self) -> Vec<AgentIndex> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let agents = (0..=u16::MAX).map(AgentIndex).zip(&*listed);
        let removed = agents.filter(|(index, one)| one.is_removed && !self.names.is_gone(*index));
        removed.map(|(index, _)| index).collect()
    }

    /// Forgets the name of a removed agent, whose tasks are gone, until it is added again.
    pub fn set_gone(&self, agent: AgentIndex, is_gone: bool) {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        if listed.get(usize::from(agent.0)).is_some_and(|one| one.is_removed) {
            self.names.set_gone(agent, is_gone);
        }
    }

    /// The names of the agents that somebody answers for, the first one first.
    pub fn names(&self) -> Vec<String> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let present = listed.iter().filter(|one| !one.is_removed);
        present.map(|one| one.profile.name.clone()).collect()
    }
}

/// Which agent has changed, and what is not needed any more.
type Changed = (AgentIndex, Option<Arc<RegisteredAgent>>);

fn check_fields(profile: &Profile) -> Result<(), AgentError> {
    if let Some(name) = profile.wrong_security(None) {
        return Err(AgentError::Security(name.to_owned()));
    }
    match profile.wrong_field() {
        Some(name) => Err(AgentError::Field(name.to_owned())),
        None => Ok(()),
    }
}
