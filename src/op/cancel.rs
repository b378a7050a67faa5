//! Cancelling a task (A2A 1.0 §3.1.5): its agent is asked, and then it ends.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    agent::{CancelDecision, CancelHost, CancelRequest, Closed, Headers, Wanted},
    fault::{Fault, FaultKind},
    model::{Generation, JsonObject, JsonObjectBuf, Reply, Target, TaskEvent, TaskState, TaskView},
    op::{Core, missing::MissingTask, read::is_in, undecided::UndecidedCancel},
    permits::Permit,
    service::{
        Answer, CallCx, CallLink, Caller, Handle, JoinedCalls, LateAnswer, Now, Outcome,
        WaitHandle, Waiter,
    },
    store::{Edit, StoredTask, TaskKey},
};

/// What a client hears whose cancel was decided by a program that has the task no more.
const REPLACED: &str = "the agent was replaced before the task was canceled; ask again";

/// The hint of a handle whose call waits for the decision of an agent, or the end of the task.
const CANCEL: u64 = 1;

impl Core {
    /// Ends a running task if its agent agrees, which then finds its turn or job closed.
    pub(super) fn cancel(
        &self,
        cx: &mut CallCx<'_>,
        target: &Target<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Some(key) = self.store.find(cx.caller.scope, target.id.raw()) else {
            return self.look_up(cx, &MissingTask::of(target, Wanted::Cancel));
        };
        let (incarnation, link) = self.ask_to_cancel(cx, target, key)?;
        if let Some(link) = link {
            let handle = Handle { hint: CANCEL, ..key.handle() };
            return Ok(Outcome::Pending(WaitHandle { handle, link, ..WaitHandle::default() }));
        }
        let done = self.store.update(key, cx.now, |edit| {
            if !is_in(edit.task(), target.context_id) {
                return Err(Fault::from(FaultKind::TaskNotFound));
            }
            // A2A 1.0 §3.3.1: cancelling is idempotent; before 1.0 a second one is an error.
            let again =
                edit.task().state() == TaskState::Canceled && target.generation == Generation::V1;
            if !again {
                check_asked(edit, incarnation)?;
                let canceled = canceled(target.metadata, cx.now);
                edit.apply(&canceled).map_err(|_| FaultKind::TaskNotCancelable)?;
            }
            let task = edit.stored();
            cx.shows(task.record());
            answer(Reply::Task { view: task.view(), history: None });
            Ok(())
        });
        done.unwrap_or(Err(FaultKind::TaskNotFound.into()))?;
        Ok(Outcome::Answered)
    }

    /// Asks the agent of a task that runs: which of its programs that was, and the link of a call
    /// that waits for its decision.
    fn ask_to_cancel(
        &self,
        cx: &CallCx<'_>,
        target: &Target<'_>,
        key: TaskKey,
    ) -> Result<(u32, Option<CallLink>), Fault> {
        let runs =
            |task: StoredTask<'_>| !task.state().is_terminal() && is_in(&task, target.context_id);
        let registered = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
        if registered.is_removed || !self.store.read(key, runs).unwrap_or(false) {
            return Ok((registered.incarnation, None));
        }
        let (caller, incarnation) = (&cx.caller, registered.incarnation);
        let headers = Headers { names: &registered.profile.fields, fields: caller.fields };
        if let Some(link) = self.join_cancel(key, (caller, headers), incarnation)? {
            return Ok((incarnation, Some(link)));
        }
        let (metadata, link) = (target.metadata, CallLink::default());
        let of = (caller, headers, incarnation);
        let mut host = Asking { core: self, key, of, metadata, refused: None, link };
        registered.agent.cancel(CancelRequest {
            task_id: target.id,
            metadata,
            extensions: caller.extensions,
            identity: caller.identity,
            tenant: caller.tenant,
            owner: caller.owner,
            headers,
            scope: caller.scope,
            host: &mut host,
        });
        match host.refused {
            Some(fault) => Err(fault),
            None => Ok((incarnation, host.link.is_late().then_some(host.link))),
        }
    }

    /// Whether the task has ended for which a call waits to cancel it.
    pub(super) fn poll_cancel(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        let key = TaskKey::of(&wait.handle);
        if wait.handle.hint != CANCEL
            || self.store.poll_ended((key, None), &mut wait.waiter, wake).is_pending()
        {
            return Poll::Pending;
        }
        wait.waiter = Waiter::default();
        // Whoever would decide hears that nobody waits for it.
        wait.link = CallLink::default();
        let shown = self.store.read(key, |task| {
            let is_canceled = task.state() == TaskState::Canceled;
            if is_canceled {
                wait.record = task.record();
                answer(Reply::Task { view: task.view(), history: None });
            }
            is_canceled
        });
        Poll::Ready(match shown {
            Some(true) => Ok(Outcome::Answered),
            Some(false) => Err(FaultKind::TaskNotCancelable.into()),
            None => Err(FaultKind::TaskNotFound.into()),
        })
    }
}

/// A program decides on no task that a later one was given meanwhile.
fn check_asked(edit: &Edit<'_>, asked: u32) -> Result<(), Fault> {
    match edit.incarnation() > asked && !edit.task().state().is_terminal() {
        true => Err(Fault::because(FaultKind::TaskNotCancelable, REPLACED)),
        false => Ok(()),
    }
}

fn canceled(metadata: Option<JsonObject<'_>>, now: Now) -> TaskEvent<'_> {
    let (state, at_ms) = (TaskState::Canceled, now.unix_ms);
    TaskEvent::Status { state, at_ms, message: None, metadata }
}

/// An agent is asked.
struct Asking<'t> {
    core: &'t Core,
    key: TaskKey,
    /// For whom, and which of the agent's programs.
    of: (&'t Caller<'t>, Headers<'t>, u32),
    metadata: Option<JsonObject<'t>>,
    refused: Option<Fault>,
    link: CallLink,
}

impl CancelHost for Asking<'_> {
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.core.store.read(self.key, |task| each(task.view()));
    }

    fn refuse(&mut self, text: Cow<'static, str>) {
        self.refused = Some(Fault::because(FaultKind::TaskNotCancelable, text));
    }

    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<JoinedCalls>, Box<dyn CancelDecision>), Closed> {
        let core = self.core.this.upgrade().ok_or(Closed)?;
        let (caller, headers, incarnation) = self.of;
        let Some(permit) = core.deferred.permit(caller.worker) else {
            self.refused = Some(Fault::at_limit("deferred_calls_max"));
            return Err(Closed);
        };
        let metadata: Option<JsonObjectBuf> = self.metadata.map(Into::into);
        let own = metadata.as_ref().map_or(0, |metadata| metadata.view().as_str().len());
        let (link, cancel) = UndecidedCancel::new(caller, headers, incarnation);
        let held_bytes = held_bytes + own + cancel.held_bytes();
        if let Err(refused) = core.store.hold_bytes(self.key, held_bytes) {
            self.refused = Some(refused.into());
            return Err(Closed);
        }
        self.link = link;
        let (key, calls, cancel) = (self.key, Arc::clone(&cancel.calls), Arc::new(cancel));
        core.undecided.add(key, Arc::clone(&cancel));
        let _permit = permit;
        let deciding = Deciding { core, key, incarnation, cancel, metadata, held_bytes, _permit };
        Ok((calls, Box::new(deciding)))
    }
}

/// An agent decides later.
pub(super) struct Deciding {
    core: Arc<Core>,
    key: TaskKey,
    /// Which of the agent's programs was asked.
    incarnation: u32,
    cancel: Arc<UndecidedCancel>,
    metadata: Option<JsonObjectBuf>,
    /// Bytes that the store counts for it.
    held_bytes: usize,
    _permit: Permit,
}

impl CancelDecision for Deciding {
    fn decide(self: Box<Self>, refusal: Option<Cow<'static, str>>) {
        // Who asks from now on asks anew.
        self.core.undecided.remove(self.key, &self.cancel);
        let done = match refusal {
            Some(text) => Err(Fault::because(FaultKind::TaskNotCancelable, text)),
            None => self.cancel_task(),
        };
        self.cancel.calls.answer(|| match &done {
            Ok(()) => LateAnswer::Task(self.key.handle()),
            Err(fault) => LateAnswer::Fault(fault.clone()),
        });
    }
}

impl Deciding {
    fn cancel_task(&self) -> Result<(), Fault> {
        let now = self.core.now();
        let canceled = canceled(self.metadata.as_ref().map(JsonObjectBuf::view), now);
        let done = self.core.store.update(self.key, now, |edit| {
            // Another call may have canceled it, or its agent.
            if edit.task().state() == TaskState::Canceled {
                return Ok(());
            }
            check_asked(edit, self.incarnation)?;
            let applied = edit.apply(&canceled);
            applied.map(drop).map_err(|_| Fault::from(FaultKind::TaskNotCancelable))
        });
        done.unwrap_or(Err(FaultKind::TaskNotFound.into()))
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        self.core.undecided.remove(self.key, &self.cancel);
        self.core.store.release_bytes(self.key, self.held_bytes);
    }
}
