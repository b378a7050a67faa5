//! The life cycle of a server or an engine: created, started, ended. Agents can be added until the
//! start.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::embed::{HostAgent, HostError, HostSettings};

use super::{
    agent::NewAgent,
    status::{FfiFailure, PeregrineStatus},
};

/// An object that takes agents until it is started.
pub(super) struct Staged<R> {
    /// The name of the object in errors.
    name: &'static str,
    stage: Mutex<FfiStage<R>>,
}

enum FfiStage<R> {
    /// Not started: agents can be added.
    Made {
        settings: HostSettings,
        agents: Vec<HostAgent>,
    },
    Running(R),
    Ended,
}

impl<R> Staged<R> {
    /// An object with these settings, the text of a TOML file; empty: the defaults.
    pub fn new(name: &'static str, settings: &str) -> Staged<R> {
        let settings = match settings.is_empty() {
            true => HostSettings::Default,
            false => HostSettings::Text(settings.to_owned()),
        };
        Staged { name, stage: Mutex::new(FfiStage::Made { settings, agents: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, FfiStage<R>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self, what: &str) -> FfiFailure {
        FfiFailure::new(PeregrineStatus::Server, format!("the {} {what}", self.name))
    }

    /// Adds an agent.
    ///
    /// # Errors
    /// [`PeregrineStatus::Server`]: the object was started already.
    pub fn add(&self, agent: NewAgent) -> Result<(), FfiFailure> {
        match &mut *self.lock() {
            FfiStage::Made { agents, .. } => agents.push(agent.take()),
            FfiStage::Running(_) | FfiStage::Ended => {
                return Err(self.failure("was started already"));
            }
        }
        Ok(())
    }

    /// Passes a header field of requests to the agent that was added last.
    ///
    /// # Errors
    /// [`PeregrineStatus::Server`]: no agent was added, or the object was started already.
    pub fn pass_header(&self, name: &str) -> Result<(), FfiFailure> {
        match &mut *self.lock() {
            FfiStage::Made { agents, .. } => match agents.pop() {
                Some(agent) => agents.push(agent.fields([name.to_owned()])),
                None => return Err(self.failure("has no agent yet")),
            },
            FfiStage::Running(_) | FfiStage::Ended => {
                return Err(self.failure("was started already"));
            }
        }
        Ok(())
    }

    /// Starts the object. If this fails, the object has ended.
    ///
    /// # Errors
    /// [`PeregrineStatus::Server`]: the object was started already, or the reason why it cannot
    /// start.
    pub fn start(
        &self,
        start: impl FnOnce(HostSettings, Vec<HostAgent>) -> Result<R, HostError>,
    ) -> Result<(), FfiFailure> {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, FfiStage::Ended) {
            FfiStage::Made { settings, agents } => {
                *stage = FfiStage::Running(start(settings, agents)?);
                Ok(())
            }
            other => {
                *stage = other;
                Err(self.failure("was started already"))
            }
        }
    }

    /// Calls `read` with the running object, under the lock.
    ///
    /// # Errors
    /// [`PeregrineStatus::Server`]: the object is not running.
    pub fn running<T>(&self, read: impl FnOnce(&R) -> T) -> Result<T, FfiFailure> {
        match &*self.lock() {
            FfiStage::Running(running) => Ok(read(running)),
            FfiStage::Made { .. } | FfiStage::Ended => Err(self.failure("does not run")),
        }
    }

    /// Ends the object; returns its running state, if any.
    pub fn end(&self) -> Option<R> {
        match std::mem::replace(&mut *self.lock(), FfiStage::Ended) {
            FfiStage::Running(running) => Some(running),
            FfiStage::Made { .. } | FfiStage::Ended => None,
        }
    }
}
