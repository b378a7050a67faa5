//! The agents of a core, by index and by name. Agents are added, replaced and removed at run time.
//!
//! Invariant: an index belongs to the same agent for ever. Each worker has its own copy of the
//! list, updated after each change, so a call writes no memory that other workers write. A program
//! is dropped when no worker's list and no turn refers to it.

use std::{
    collections::HashSet,
    ops::Deref,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;

use crate::{
    agent::{Agent, TracedAgent, Turn},
    limits::{Limits, OLDER_PROGRAMS_MAX},
    model::{Profile, is_agent_name},
    op::{AgentChange, AgentError, names::Names},
    service::{
        AgentIndex, RequiredScopes, principal::ScopeSet, trace::Tracer, upstream::UpstreamMeter,
    },
    store::IdleTimes,
};

/// A program that answers for an agent, and the agent's profile.
pub(super) struct RegisteredAgent {
    pub profile: Arc<Profile>,
    pub agent: Arc<dyn Agent>,
    /// The number of this program among the programs of its agent, from 0.
    pub incarnation: u32,
    /// True: the agent was removed.
    pub is_removed: bool,
    /// True: every media type is accepted, so the parts are not checked.
    pub any_media: bool,
    /// True: clients must support an extension, so the list of their extensions is checked.
    pub needs_extension: bool,
    /// Earlier programs, oldest first, which continue their unfinished tasks.
    older: Vec<Arc<RegisteredAgent>>,
}

/// The program of a removed agent; it does nothing.
struct Removed;

impl Agent for Removed {
    fn start(&self, _turn: Turn<'_>) {}
}

impl RegisteredAgent {
    fn new(profile: Profile, agent: Arc<dyn Agent>, incarnation: u32) -> RegisteredAgent {
        let any_media = profile.input_modes.iter().any(|mode| mode == "*/*");
        let needs_extension = profile.extensions.iter().any(|extension| extension.required);
        RegisteredAgent {
            profile: Arc::new(profile),
            agent,
            incarnation,
            is_removed: false,
            any_media,
            needs_extension,
            older: Vec::new(),
        }
    }

    /// The earlier program of this incarnation, if it still continues its tasks.
    pub fn older(&self, incarnation: u32) -> Option<&Arc<RegisteredAgent>> {
        self.older.iter().find(|one| one.incarnation == incarnation)
    }

    /// True when earlier programs continue tasks.
    #[inline]
    pub fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    /// The same program, with the earlier programs for which `is_retained` returns true.
    fn with_older(&self, is_retained: impl Fn(u32) -> bool) -> RegisteredAgent {
        let older = self.older.iter().filter(|one| is_retained(one.incarnation)).cloned().collect();
        RegisteredAgent {
            profile: Arc::clone(&self.profile),
            agent: Arc::clone(&self.agent),
            older,
            ..*self
        }
    }

    /// The earlier programs of this program's successor; the oldest ones are dropped.
    fn older_of_next(&self) -> Vec<Arc<RegisteredAgent>> {
        let skipped = (self.older.len() + 1).saturating_sub(OLDER_PROGRAMS_MAX);
        let retained = self.older.iter().skip(skipped).cloned();
        retained.chain([Arc::new(self.with_older(|_| false))]).collect()
    }

    /// The same agent, marked as removed.
    fn removed(&self) -> RegisteredAgent {
        RegisteredAgent {
            profile: Arc::clone(&self.profile),
            agent: Arc::new(Removed),
            incarnation: self.incarnation.wrapping_add(1),
            is_removed: true,
            any_media: true,
            needs_extension: false,
            older: Vec::new(),
        }
    }
}

/// All agents of a core.
pub(super) struct AllAgents {
    names: Names,
    /// By index; held while an agent is changed.
    listed: RwLock<Vec<Arc<RegisteredAgent>>>,
    /// The number of additions, replacements and removals; changes with `listed`.
    changes: CachePadded<AtomicU64>,
    workers: Box<[CachePadded<RwLock<WorkerList>>]>,
    /// Records the spans of the turns, if spans are recorded.
    tracer: OnceLock<Arc<dyn Tracer>>,
    /// True: some agent, now or earlier, required scopes of its own.
    have_own_scopes: AtomicBool,
    /// The scopes that all agents require; updated with `changes`.
    scopes: RwLock<Arc<RequiredScopes>>,
}

/// One worker's copy of the list of agents.
#[derive(Default)]
pub(super) struct WorkerList {
    /// The number of changes that this copy includes.
    changes: u64,
    agents: Vec<Arc<RegisteredAgent>>,
}

/// The program that answers for an agent now; this value keeps it alive.
pub(super) enum CurrentAgent<'a> {
    /// An entry of the worker's list, which does not change meanwhile.
    Listed(RwLockReadGuard<'a, WorkerList>, usize),
    /// Not in that list: an agent was changed during a turn of the same worker.
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
    /// The core's agents; the first one answers at the root. `most`: the maximum number of names
    /// over the life of the core. The caller has checked that the names differ.
    pub fn new(
        agents: Vec<(Profile, Arc<dyn Agent>)>,
        workers: usize,
        most: usize,
        secret: u128,
    ) -> AllAgents {
        let names = Names::new(most.max(agents.len()), secret);
        let have_own_scopes = agents.iter().any(|(profile, _)| !profile.scopes.is_empty());
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
            tracer: OnceLock::new(),
            have_own_scopes: AtomicBool::new(have_own_scopes),
            scopes: RwLock::default(),
        };
        all.note_scopes(&all.listed.read().unwrap_or_else(PoisonError::into_inner), 1);
        (0..all.workers.len()).for_each(|worker| all.refresh(worker));
        all
    }

    /// Traces the turns of these agents and of later ones.
    pub fn trace(&self, tracer: Arc<dyn Tracer>) {
        let mut listed = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        // Fails only if a tracer is already set.
        let _ = self.tracer.set(tracer);
        for one in listed.iter_mut() {
            let (profile, agent) = (Profile::clone(&one.profile), Arc::clone(&one.agent));
            let agent = self.traced(&profile, agent);
            *one = Arc::new(RegisteredAgent::new(profile, agent, one.incarnation));
        }
        let number = self.changes.load(Ordering::Relaxed) + 1;
        self.note_scopes(&listed, number);
        self.changes.store(number, Ordering::Release);
        drop(listed);
        (0..self.workers.len()).for_each(|worker| self.refresh(worker));
    }

    /// The agent, wrapped to trace its turns if spans are recorded.
    fn traced(&self, profile: &Profile, agent: Arc<dyn Agent>) -> Arc<dyn Agent> {
        match self.tracer.get() {
            Some(tracer) => Arc::new(TracedAgent::new(agent, &profile.name, Arc::clone(tracer))),
            None => agent,
        }
    }

    /// The agent of this name, unless the agent was removed and has no tasks.
    #[inline]
    pub fn find(&self, name: &str) -> Option<AgentIndex> {
        self.names.find(name)
    }

    /// True if any agent, present or removed, has this name.
    pub fn had(&self, name: &str) -> bool {
        self.names.find_ever(name).is_some()
    }

    /// False if no agent has ever required scopes of its own.
    #[inline]
    pub fn have_own_scopes(&self) -> bool {
        self.have_own_scopes.load(Ordering::Acquire)
    }

    /// The scopes that all agents and their skills require.
    pub fn required_scopes(&self) -> Arc<RequiredScopes> {
        Arc::clone(&self.scopes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of changes that [`AllAgents::required_scopes`] includes.
    #[inline]
    pub fn scopes_number(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_scopes(&self, listed: &[Arc<RegisteredAgent>], number: u64) {
        let profiles = || listed.iter().filter(|one| !one.is_removed).map(|one| &one.profile);
        let of_skills = profiles().flat_map(|profile| &profile.skills);
        let of_skills = of_skills.flat_map(|skill| &skill.scopes);
        let all = profiles().flat_map(|profile| &profile.scopes).chain(of_skills);
        let own = [ScopeSet::READ, ScopeSet::SEND, ScopeSet::CANCEL, ScopeSet::ADMIN];
        let names = ScopeSet::new(own.into_iter().chain(all.map(String::as_str)));
        let all = profiles().any(|profile| profile.reads_all_scopes);
        let required = Arc::new(RequiredScopes { number, names, all });
        *self.scopes.write().unwrap_or_else(PoisonError::into_inner) = required;
    }

    /// True if exactly one agent is not removed.
    #[cold]
    pub fn is_one(&self) -> bool {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.iter().filter(|agent| !agent.is_removed).count() == 1
    }

    /// The program that answers for an agent, from the worker's list.
    #[inline]
    pub fn of_worker(&self, worker: usize, agent: AgentIndex) -> Option<CurrentAgent<'_>> {
        // Avoids the division of `worker % workers`.
        let list = self.workers.get(worker).unwrap_or(&self.workers[0]);
        // `refresh` never waits for the write lock, so a turn within a turn can take this read
        // lock.
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

    /// The earlier program of an agent with this incarnation, if it still continues its tasks.
    #[cold]
    pub fn older(&self, agent: AgentIndex, incarnation: u32) -> Option<CurrentAgent<'static>> {
        let older = self.current(agent)?.older(incarnation).cloned();
        older.map(CurrentAgent::Unlisted)
    }

    /// Drops an agent's earlier programs, except those with the incarnations in `used`.
    pub fn forget_older(&self, agent: AgentIndex, used: &HashSet<u32>) {
        let mut listed = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = listed.get_mut(usize::from(agent.0)).filter(|one| one.has_older()) else {
            return;
        };
        let next = Arc::new(one.with_older(|incarnation| used.contains(&incarnation)));
        // The old programs are dropped after the lock is released.
        let before = std::mem::replace(one, next);
        drop(listed);
        drop(before);
    }

    /// Whether the program with this incarnation answers for the agent now.
    pub fn is_current(&self, agent: AgentIndex, incarnation: u32) -> bool {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let current = listed.get(usize::from(agent.0));
        current.is_some_and(|one| one.incarnation == incarnation && !one.is_removed)
    }

    /// The profile on an agent's card, unless the agent was removed.
    pub fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let current = listed.get(usize::from(agent.0)).filter(|current| !current.is_removed)?;
        Some(Arc::clone(&current.profile))
    }

    /// The maximum time without an event for the unfinished tasks of each agent, by agent index;
    /// empty: all agents use the times of the limits.
    pub fn idle_times(&self, limits: &Limits) -> Vec<IdleTimes> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let of_limits = IdleTimes::of(limits);
        let of = |one: &Arc<RegisteredAgent>| {
            let Profile { unfinished_idle_ms, input_required_ttl_ms, .. } = *one.profile;
            IdleTimes {
                unfinished_idle_ms: unfinished_idle_ms.unwrap_or(of_limits.unfinished_idle_ms),
                input_required_ttl_ms: input_required_ttl_ms
                    .unwrap_or(of_limits.input_required_ttl_ms),
            }
        };
        match listed.iter().all(|one| of(one) == of_limits) {
            true => Vec::new(),
            false => listed.iter().map(of).collect(),
        }
    }

    /// True if a newer program may answer for the agent.
    #[inline]
    pub fn has_changed(&self, current: &CurrentAgent<'_>) -> bool {
        match current {
            CurrentAgent::Listed(list, _) => list.changes != self.changes.load(Ordering::Acquire),
            CurrentAgent::Unlisted(_) => true,
        }
    }

    /// Applies all changes to a worker's list, unless a turn of that worker uses the list.
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
        // Old programs are dropped here, after all locks are released.
        drop(fresh);
    }

    /// Applies all of these changes, each to a different agent, or none of them. Returns the
    /// changed agents. `first` is called after all checks, before the first change is applied.
    ///
    /// # Errors
    /// [`AgentError`]; nothing has changed.
    pub fn change(
        &self,
        changes: Vec<AgentChange>,
        first: impl FnOnce(),
    ) -> Result<Vec<AgentIndex>, AgentError> {
        // Rejected and replaced programs are dropped after the lock is released.
        let mut replaced = Vec::new();
        let mut listed = self.listed.write().unwrap_or_else(PoisonError::into_inner);
        self.check(&listed, &changes)?;
        if changes.iter().filter_map(AgentChange::profile).any(|one| !one.scopes.is_empty()) {
            // Set before an agent can be found by its name.
            self.have_own_scopes.store(true, Ordering::Release);
        }
        first();
        let indexes = changes.into_iter().map(|change| {
            let index = self.names.find_ever(change.name());
            let index = index.or_else(|| self.names.add(change.name()));
            let index = index.ok_or(AgentError::TooMany)?;
            let before = listed.get(usize::from(index.0));
            let incarnation = before.map_or(0, |before| before.incarnation.wrapping_add(1));
            let next = match (change, before) {
                (AgentChange::Add(profile, agent) | AgentChange::Replace(profile, agent), _) => {
                    let agent = self.traced(&profile, agent);
                    RegisteredAgent::new(profile, agent, incarnation)
                }
                (AgentChange::Renew(profile, agent), Some(before)) => {
                    let agent = self.traced(&profile, agent);
                    RegisteredAgent {
                        older: before.older_of_next(),
                        ..RegisteredAgent::new(profile, agent, incarnation)
                    }
                }
                (AgentChange::Describe(profile), Some(before)) => RegisteredAgent {
                    older: before.older.clone(),
                    ..RegisteredAgent::new(profile, Arc::clone(&before.agent), before.incarnation)
                },
                (AgentChange::Remove(_), Some(before)) => before.removed(),
                (
                    AgentChange::Renew(..) | AgentChange::Describe(_) | AgentChange::Remove(_),
                    None,
                ) => return Ok(index),
            };
            self.names.set_freed(index, false);
            match listed.get_mut(usize::from(index.0)) {
                Some(before) => replaced.push(std::mem::replace(before, Arc::new(next))),
                None => listed.push(Arc::new(next)),
            }
            Ok(index)
        });
        let indexes = indexes.collect();
        self.changes.fetch_add(1, Ordering::Release);
        drop(listed);
        (0..self.workers.len()).for_each(|worker| self.refresh(worker));
        drop(replaced);
        indexes
    }

    /// Checks whether these changes can be applied.
    fn check(
        &self,
        listed: &[Arc<RegisteredAgent>],
        changes: &[AgentChange],
    ) -> Result<(), AgentError> {
        let (mut names, mut fresh) = (HashSet::new(), 0);
        for change in changes {
            let name = change.name();
            if let Some(profile) = change.profile() {
                check_fields(profile)?;
            }
            let index = self.names.find_ever(name);
            let present = index.filter(|index| !listed[usize::from(index.0)].is_removed);
            let is_again = !names.insert(name);
            let own = || name.to_owned();
            match (change, present) {
                (AgentChange::Add(..), _) if !is_agent_name(name) => {
                    return Err(AgentError::Name(own()));
                }
                (AgentChange::Add(..), Some(_)) => return Err(AgentError::Taken(own())),
                (_, _) if is_again => return Err(AgentError::Taken(own())),
                (AgentChange::Add(..), None) => fresh += usize::from(index.is_none()),
                (AgentChange::Remove(_), Some(AgentIndex(0))) => {
                    return Err(AgentError::Default(own()));
                }
                (_, None) => return Err(AgentError::Unknown(own())),
                (_, Some(_)) => {}
            }
        }
        if fresh > self.names.remaining() { Err(AgentError::TooMany) } else { Ok(()) }
    }

    /// The removed agents that may have tasks, so that their names are not free yet.
    pub fn leaving(&self) -> Vec<AgentIndex> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let agents = (0..=u16::MAX).map(AgentIndex).zip(&*listed);
        let removed = agents.filter(|(index, one)| one.is_removed && !self.names.is_freed(*index));
        removed.map(|(index, _)| index).collect()
    }

    /// Frees the name of a removed agent without tasks, or reserves it again.
    pub fn set_freed(&self, agent: AgentIndex, is_freed: bool) {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        if listed.get(usize::from(agent.0)).is_some_and(|one| one.is_removed) {
            self.names.set_freed(agent, is_freed);
        }
    }

    /// The meter of each agent that calls an upstream.
    pub fn upstreams(&self) -> Vec<(AgentIndex, Arc<UpstreamMeter>)> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let agents = (0..=u16::MAX).map(AgentIndex).zip(&*listed);
        let present = agents.filter(|(_, one)| !one.is_removed);
        present.filter_map(|(index, one)| Some((index, one.agent.upstream()?))).collect()
    }

    /// The names of the agents that are not removed, in order of their index.
    pub fn names(&self) -> Vec<String> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let present = listed.iter().filter(|one| !one.is_removed);
        present.map(|one| one.profile.name.clone()).collect()
    }
}

fn check_fields(profile: &Profile) -> Result<(), AgentError> {
    if let Some(name) = profile.wrong_security(None) {
        return Err(AgentError::Security(name.to_owned()));
    }
    match profile.wrong_field() {
        Some(name) => Err(AgentError::Field(name.to_owned())),
        None => Ok(()),
    }
}
