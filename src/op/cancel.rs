//! Cancels a task (A2A 1.0 §3.1.5): asks its agent, then ends the task.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    agent::{
        CancelDecision, CancelHost, CancelRequest, Closed, FailureNote, JobHost, RequestView,
        Wanted, panic_of,
    },
    fault::{Fault, FaultKind},
    model::{Generation, JsonObject, JsonObjectBuf, Reply, Target, TaskEvent, TaskState, TaskView},
    op::{
        Core,
        defer::DeferredPermit,
        missing::MissingTask,
        read::is_in,
        undecided::{CancelRole, OpenCancel},
    },
    service::{Answer, CallCx, CallLink, Handle, JoinedCalls, Now, Outcome, WaitHandle, Waiter},
    store::{Edit, StoredTask, TaskKey},
};

/// The error of a cancel if the deciding program no longer has the task.
const REPLACED: &str = "the agent was replaced before the task was canceled; ask again";

/// An agent's answer to a cancel.
enum AgentDecision {
    /// The agent agrees, or does not have to be asked; other calls may wait for the outcome.
    Agreed(Option<OpenCancel>),
    /// The agent decides later; the call waits.
    Later(CallLink),
}

/// Marks the handle of a call that waits for an agent's decision on a cancel, or for the end of the
/// task.
const CANCEL: u64 = 1;

impl Core {
    /// Ends a running task if its agent agrees. The agent then finds its turn or job closed.
    pub(super) fn cancel(
        &self,
        cx: &mut CallCx<'_>,
        target: &Target<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Some(key) = self.store.find(cx.caller.scope, target.id.raw()) else {
            return self.look_up(cx, &MissingTask::of(target, Wanted::Cancel));
        };
        let (incarnation, open) = match self.request_cancel(cx, target, key)? {
            (incarnation, AgentDecision::Agreed(open)) => (incarnation, open),
            (_, AgentDecision::Later(link)) => {
                let handle = Handle { hint: CANCEL, ..key.handle() };
                return Ok(Outcome::Pending(WaitHandle { handle, link, ..WaitHandle::default() }));
            }
        };
        let done = self.store.update(key, cx.now, |edit| {
            if !is_in(edit.task(), target.context_id) {
                return Err(Fault::from(FaultKind::TaskNotFound));
            }
            // A2A 1.0 §3.3.1: cancelling is idempotent; before 1.0 a second one is an error.
            let again =
                edit.task().state() == TaskState::Canceled && target.generation == Generation::V1;
            if !again {
                check_incarnation(edit, incarnation)?;
                let canceled = canceled(target.metadata, cx.now);
                edit.apply(&canceled).map_err(|_| FaultKind::TaskNotCancelable)?;
            }
            let task = edit.stored();
            cx.shows(task.record());
            answer(Reply::Task { view: task.view(), history: None });
            Ok(())
        });
        let done = done.unwrap_or(Err(FaultKind::TaskNotFound.into()));
        if let Some(open) = open {
            open.settle(&done);
        }
        done.map(|()| Outcome::Answered)
    }

    /// Asks the agent of a running task, unless it has already been asked. Returns the incarnation
    /// that was asked, and its answer.
    fn request_cancel(
        &self,
        cx: &CallCx<'_>,
        target: &Target<'_>,
        key: TaskKey,
    ) -> Result<(u32, AgentDecision), Fault> {
        let runs =
            |task: StoredTask<'_>| !task.state().is_terminal() && is_in(&task, target.context_id);
        let runs = || self.store.read(key, runs).unwrap_or(false);
        let mut registered = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
        if registered.has_older()
            && let Some(older) = self.older_program(cx.caller.scope.agent, key)
        {
            registered = older;
        }
        let incarnation = registered.incarnation;
        if registered.is_removed || !runs() {
            return Ok((incarnation, AgentDecision::Agreed(None)));
        }
        let request = RequestView::of(&cx.caller, &registered.profile, target.metadata, None);
        let open = match self.enter_cancel(key, &request, incarnation)? {
            CancelRole::First(open) => open,
            CancelRole::Joined(link) => return Ok((incarnation, AgentDecision::Later(link))),
        };
        // Another cancel may have ended the task in the meantime.
        if !runs() {
            return Ok((incarnation, AgentDecision::Agreed(Some(open))));
        }
        let metadata = target.metadata;
        let mut host = CancelCall { cx, open: Some(open), metadata, refused: None, later: None };
        let cancel_request = CancelRequest { task_id: target.id, request, host: &mut host };
        if let Some(cause) = panic_of(|| registered.agent.cancel(cancel_request)) {
            let agent = host.cx.caller.scope.agent;
            let panicked = FailureNote::of(agent, target.id.raw(), cause);
            host.refused = Some(self.broken_fault(panicked));
        }
        match (host.refused, host.later) {
            (Some(fault), _) => {
                host.open.inspect(|open| open.settle(&Err(fault.clone())));
                Err(fault)
            }
            (None, Some(link)) => Ok((incarnation, AgentDecision::Later(link))),
            (None, None) => Ok((incarnation, AgentDecision::Agreed(host.open))),
        }
    }

    /// Checks whether the task has ended for a call that waits to cancel it.
    pub(super) fn poll_cancel(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        let key = TaskKey::of(&wait.handle);
        if wait.handle.hint != CANCEL
            || self.store.poll_ended(key, None, &mut wait.waiter, wake).is_pending()
        {
            return Poll::Pending;
        }
        wait.waiter = Waiter::default();
        // Tells the agent that the call no longer waits.
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

/// Rejects the decision of a program if the task was handed to a later program.
fn check_incarnation(edit: &Edit<'_>, incarnation: u32) -> Result<(), Fault> {
    match edit.incarnation() > incarnation && !edit.task().state().is_terminal() {
        true => Err(Fault::because(FaultKind::TaskNotCancelable, REPLACED)),
        false => Ok(()),
    }
}

fn canceled(metadata: Option<JsonObject<'_>>, now: Now) -> TaskEvent<'_> {
    let (state, at_ms) = (TaskState::Canceled, now.unix_ms);
    TaskEvent::Status { state, at_ms, message: None, metadata }
}

/// The core's side of a [`CancelRequest`]: the agent may answer it at once.
struct CancelCall<'t, 'c> {
    cx: &'t CallCx<'c>,
    /// `None` after [`CancelHost::defer`].
    open: Option<OpenCancel>,
    metadata: Option<JsonObject<'t>>,
    refused: Option<Fault>,
    later: Option<CallLink>,
}

impl CancelHost for CancelCall<'_, '_> {
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        if let Some(open) = &self.open {
            open.core().store.read(open.key(), |task| each(task.view()));
        }
    }

    fn refuse(&mut self, text: Cow<'static, str>) {
        self.refused = Some(Fault::because(FaultKind::TaskNotCancelable, text));
    }

    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<JoinedCalls>, Box<dyn CancelDecision>), Closed> {
        let open = self.open.as_ref().ok_or(Closed)?;
        let metadata: Option<JsonObjectBuf> = self.metadata.map(Into::into);
        let own = metadata.as_ref().map_or(0, |metadata| metadata.view().as_str().len());
        let held_bytes = held_bytes + own + open.held_bytes();
        // A caller that disconnects may cancel again while the agent is still deciding.
        let permit = match DeferredPermit::take(open.core(), self.cx, held_bytes) {
            Ok(permit) => permit,
            Err(fault) => {
                self.refused = Some(fault);
                return Err(Closed);
            }
        };
        if let Err(refused) = open.core().store.hold_bytes(open.key(), held_bytes) {
            self.refused = Some(refused.into());
            return Err(Closed);
        }
        let mut open = self.open.take().ok_or(Closed)?;
        self.later = Some(std::mem::take(&mut open.link));
        let calls = Arc::clone(open.calls());
        Ok((calls, Box::new(Deciding { open, metadata, held_bytes, _permit: permit })))
    }
}

/// The core's side of a deferred cancel: the agent decides later.
pub(super) struct Deciding {
    open: OpenCancel,
    metadata: Option<JsonObjectBuf>,
    /// Bytes of this value that are charged to the store.
    held_bytes: usize,
    _permit: DeferredPermit,
}

impl CancelDecision for Deciding {
    fn task(&self) -> (Handle, Arc<dyn JobHost>) {
        let host = Arc::clone(self.open.core()) as Arc<dyn JobHost>;
        (self.open.key().job_handle(self.open.incarnation()), host)
    }

    fn decide(self: Box<Self>, refusal: Option<Cow<'static, str>>) {
        self.open.settle(&match refusal {
            Some(text) => Err(Fault::because(FaultKind::TaskNotCancelable, text)),
            None => self.cancel_task(),
        });
    }
}

impl Deciding {
    fn cancel_task(&self) -> Result<(), Fault> {
        let (core, key) = (self.open.core(), self.open.key());
        let now = core.now();
        let canceled = canceled(self.metadata.as_ref().map(JsonObjectBuf::view), now);
        let done = core.store.update(key, now, |edit| {
            // Another call or the agent may have canceled the task.
            if edit.task().state() == TaskState::Canceled {
                return Ok(());
            }
            check_incarnation(edit, self.open.incarnation())?;
            let applied = edit.apply(&canceled);
            applied.map(drop).map_err(|_| Fault::from(FaultKind::TaskNotCancelable))
        });
        done.unwrap_or(Err(FaultKind::TaskNotFound.into()))
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        self.open.core().store.release_bytes(self.open.key(), self.held_bytes);
    }
}
