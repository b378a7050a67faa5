//! An operator's actions on the tasks of all callers: list, cancel, fail.
//!
//! A cancel goes through the agent, like a cancel of the task's own caller; a failure goes through
//! the store's one mutation path, so that streams and webhooks see it.

use std::task::Waker;

use crate::{
    fault::{Fault, FaultKind},
    model::{
        EventBuf, Generation, MessageBuf, PartsBuf, RawText, Reply, Target, TaskEvent, TaskState,
    },
    op::{Agents, Core},
    service::{CallCx, Caller, Entropy, Outcome, Peer, RequestFields, Scope, SharedByCalls},
    store::{AnyTask, SurveyFilter, SurveyPage, TaskKey},
};

/// Why an operation was rejected.
pub enum NotOperated {
    /// No task has this id.
    Unknown,
    /// Several callers use this id: the filter must name one.
    Several,
    /// The task or its agent does not allow it.
    Refused(Fault),
}

/// The outcome of an operation.
pub struct Operated {
    /// The state of the task afterwards.
    pub state: TaskState,
    /// True: the agent has not decided yet.
    pub is_pending: bool,
}

/// Selects an agent's tasks, in addition to [`SurveyFilter::owner`].
#[derive(Clone, Copy, Default)]
pub struct OperatorFilter<'a> {
    /// The owner's name; empty: tasks without an owner.
    pub owner: Option<&'a str>,
    /// The agent's name.
    pub agent: Option<&'a str>,
    /// The state.
    pub state: Option<TaskState>,
}

/// An entropy source for these operations, which never create an id.
struct NoEntropy;

impl Entropy for NoEntropy {
    fn bits(&mut self) -> u128 {
        0
    }
}

impl Agents {
    /// One page of the matching tasks, of all owners.
    ///
    /// # Errors
    /// Invalid parameters: an unknown agent, or an invalid page token.
    pub(crate) fn survey(
        &self,
        wanted: OperatorFilter<'_>,
        page_token: &str,
    ) -> Result<SurveyPage, Fault> {
        self.0.store.survey(self.filter(wanted)?, page_token.as_bytes())
    }

    /// Cancels a task through its agent, as the task's own caller would.
    ///
    /// # Errors
    /// [`NotOperated`].
    pub(crate) fn cancel_any(
        &self,
        id: &[u8],
        wanted: OperatorFilter<'_>,
    ) -> Result<Operated, NotOperated> {
        let (key, scope) = self.find_any(id, wanted)?;
        self.0.cancel_for_operator(id, key, scope).map_err(|fault| match fault.kind {
            FaultKind::TaskNotFound => NotOperated::Unknown,
            _ => NotOperated::Refused(fault),
        })
    }

    /// Fails a task with this text; its agent finds its turn or job closed.
    ///
    /// # Errors
    /// [`NotOperated`].
    pub(crate) fn fail_any(
        &self,
        id: &[u8],
        wanted: OperatorFilter<'_>,
        why: &str,
    ) -> Result<Operated, NotOperated> {
        let (key, _) = self.find_any(id, wanted)?;
        let message = MessageBuf::agent(&PartsBuf::new().text(why)).id("failed-by-operator");
        let now = self.0.now();
        let failed = TaskEvent::Status {
            state: TaskState::Failed,
            at_ms: now.unix_ms,
            message: Some(message.view()),
            metadata: None,
        };
        let done = self.0.store.update(key, now, |edit| {
            let state = edit.task().state();
            if state.is_terminal() {
                let why = "the task has already ended";
                return Err(Fault::because(FaultKind::TaskNotCancelable, why));
            }
            // If the text does not fit, the task fails with the store's own text.
            let _ = edit.apply(&failed);
            Ok(Operated { state: edit.task().state(), is_pending: false })
        });
        done.ok_or(NotOperated::Unknown)?.map_err(NotOperated::Refused)
    }

    fn find_any(
        &self,
        id: &[u8],
        wanted: OperatorFilter<'_>,
    ) -> Result<(TaskKey, Scope), NotOperated> {
        let filter = self.filter(wanted).map_err(NotOperated::Refused)?;
        match self.0.store.find_anywhere(id, filter) {
            AnyTask::None => Err(NotOperated::Unknown),
            AnyTask::One(key, scope) => Ok((key, scope)),
            AnyTask::Several => Err(NotOperated::Several),
        }
    }

    fn filter<'a>(&self, wanted: OperatorFilter<'a>) -> Result<SurveyFilter<'a>, Fault> {
        let index = |name| {
            let found = self.0.agents.find(name);
            found.ok_or_else(|| Fault::param("agent", "is not the name of an agent"))
        };
        let agent = wanted.agent.map(index).transpose()?;
        Ok(SurveyFilter { owner: wanted.owner, agent, state: wanted.state })
    }
}

impl Core {
    fn cancel_for_operator(
        &self,
        id: &[u8],
        key: TaskKey,
        scope: Scope,
    ) -> Result<Operated, Fault> {
        let state = || self.store.read(key, |task| task.state());
        if state().is_some_and(TaskState::is_terminal) {
            let why = "the task has already ended";
            return Err(Fault::because(FaultKind::TaskNotCancelable, why));
        }
        let names = self.store.names_of(scope);
        let (peer, shared) = (Peer { is_admin: true, ..Peer::default() }, SharedByCalls::default());
        let caller = Caller {
            scope,
            tenant: names.tenant.as_deref(),
            owner: names.owner.as_deref(),
            principal: None,
            authenticates_callers: false,
            running: None,
            worker: 0,
            idempotency_key: None,
            deadline_unix_ms: None,
            hops: 0,
            extensions: None,
            peer: &peer,
            fields: RequestFields::default(),
        };
        let mut cx = CallCx {
            caller,
            now: self.now(),
            wake: Waker::noop(),
            entropy: &mut NoEntropy,
            events: &mut EventBuf::default(),
            shared: &shared,
            record: 0,
        };
        let target = Target {
            id: RawText::known(id),
            context_id: None,
            metadata: None,
            generation: Generation::V1,
            after: None,
        };
        let mut shown = TaskState::Unspecified;
        let outcome = self.cancel(&mut cx, &target, &mut |reply| {
            if let Reply::Task { view, .. } = reply {
                shown = view.status().state;
            }
        })?;
        match outcome {
            Outcome::Pending(mut wait) => {
                // The operator does not wait for the answer, but the agent must still decide.
                wait.link.finish();
                let state = state().ok_or(FaultKind::TaskNotFound)?;
                Ok(Operated { state, is_pending: !state.is_terminal() })
            }
            Outcome::Answered | Outcome::Stream { .. } => {
                Ok(Operated { state: shown, is_pending: false })
            }
        }
    }
}
