//! A client that asks for a task which is not stored: its agent may know it all the same, because
//! its tasks live in a database or on another machine.

use std::sync::Arc;

use super::{Closed, RequestView, watch::CallerGone};
use crate::{
    fault::{Fault, FaultKind},
    model::{RawText, TaskBuf},
    service::LateCall,
};

/// Asks an agent for a task that is not stored. An agent that does nothing with it does not know
/// the task either: the call fails with `TaskNotFound`.
///
/// The id says nothing of whose the task is, and the server knows nothing of it. An agent that has
/// tasks of several callers must compare the principal and the tenant of the request
/// ([`RequestView::principal`], [`RequestView::tenant`]) with those that made the task, and not
/// know it where they differ. It is not asked for a task that the server has stored for another
/// else under an id that the server has made; it may be under one that a client has chosen, as
/// clients of 0.1 do (`tasks/send`).
pub struct TaskLookup<'a> {
    /// The task's id, as the client names it: any text.
    pub task_id: RawText<'a>,
    /// The conversation that the client says the task belongs to.
    pub context_id: Option<RawText<'a>>,
    /// What the client wants of it.
    pub wanted: Wanted,
    /// What else is known of the request.
    pub request: RequestView<'a>,
    /// The server.
    pub host: &'a mut dyn LookupHost,
}

/// What a client wants of a task that is not stored, and what the answer to it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To see it. The server leaves out what the client does not want to see of its history.
    Get {
        /// At most this many messages of history; `None`: all.
        history: Option<u32>,
    },
    /// To end it: the agent that runs it has to. The answer is the task as it is then. One that has
    /// ended otherwise than canceled fails the call with `TaskNotCancelable`.
    Cancel,
    /// To follow it. The stream has the task as its only item and ends, and the client asks again.
    /// A task that has ended fails the call as one does that is stored.
    Subscribe,
}

/// The side of a lookup that belongs to the server.
pub trait LookupHost {
    /// Lets the call wait; `held_bytes` is what the agent keeps of it.
    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn LookupAnswer>), Closed>;
}

/// The side of a deferred lookup that belongs to the server.
pub trait LookupAnswer: Send + Sync {
    /// Answers the call.
    fn answer(self: Box<Self>, found: Result<TaskBuf, Fault>);
}

impl TaskLookup<'_> {
    /// Lets the call wait until the agent has found the task or not, on any thread; or answers it
    /// at once, through what is returned.
    ///
    /// # Errors
    /// [`Closed`] when the server has no room for another call that waits like this
    /// (`deferred_calls_max`, `store_bytes_max`); the client is told.
    pub fn defer(self) -> Result<DeferredLookup, Closed> {
        let task_id: Box<[u8]> = self.task_id.raw().into();
        let (call, host) = self.host.defer(task_id.len())?;
        Ok(DeferredLookup { task_id, wanted: self.wanted, call, host: Some(host) })
    }
}

/// A call about a task that is not stored, which the agent answers later, from any thread.
/// Dropping it answers that there is no such task.
pub struct DeferredLookup {
    task_id: Box<[u8]>,
    wanted: Wanted,
    call: Arc<LateCall>,
    /// `None` behind the answer.
    host: Option<Box<dyn LookupAnswer>>,
}

impl DeferredLookup {
    /// The task's id.
    pub fn task_id(&self) -> RawText<'_> {
        RawText::known(&self.task_id)
    }

    /// What the client wants of the task.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Ready when the answer is of no use any more: the caller has left, or the server has answered
    /// it because it ends. A caller that wants no answer (a notification of JSON-RPC, of which the
    /// agent hears only if it is to cancel the task) does not leave.
    pub fn caller_gone(&self) -> CallerGone {
        CallerGone::of(Some(&self.call))
    }

    /// True when the answer is of no use any more, as [`DeferredLookup::caller_gone`] says.
    pub fn is_caller_gone(&self) -> bool {
        self.call.has_left()
    }

    /// Answers with the task as it is now; for what that means see [`Wanted`]. Its id must be
    /// [`DeferredLookup::task_id`]. It is not stored: the next call asks again.
    pub fn found(mut self, task: TaskBuf) {
        self.answer(Ok(task));
    }

    /// There is no such task.
    pub fn not_found(self) {}

    /// Fails the call, for instance with `TaskNotCancelable`.
    pub fn refuse(mut self, fault: impl Into<Fault>) {
        self.answer(Err(fault.into()));
    }

    fn answer(&mut self, found: Result<TaskBuf, Fault>) {
        if let Some(host) = self.host.take() {
            host.answer(found);
        }
    }
}

impl Drop for DeferredLookup {
    fn drop(&mut self) {
        self.answer(Err(FaultKind::TaskNotFound.into()));
    }
}
