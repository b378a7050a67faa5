//! Requests for a task that is not in the store: its agent may have the task in a database or on
//! another machine.

use std::sync::Arc;

use super::{Closed, RequestView, watch::CallerGone};
use crate::{
    fault::{Fault, FaultKind},
    model::{RawText, TaskBuf},
    service::LateCall,
};

/// Asks an agent for a task that is not stored. If the agent ignores the request, the call fails
/// with `TaskNotFound`.
///
/// Neither the id nor the server identifies the owner of the task. An agent with tasks of several
/// callers must compare the principal and the tenant of the request ([`RequestView::principal`],
/// [`RequestView::tenant`]) with those of the task's creator, and report the task as not found if
/// they differ. The agent is not called for another caller's stored task if the server has created
/// its id. It may be called if a client has chosen the id, as clients of 0.1 do (`tasks/send`).
pub struct TaskLookup<'a> {
    /// The task's id as sent by the client: any text.
    pub task_id: RawText<'a>,
    /// The context id that the client names for the task.
    pub context_id: Option<RawText<'a>>,
    /// The client's operation on the task.
    pub wanted: Wanted,
    /// The other data of the request.
    pub request: RequestView<'a>,
    /// The server.
    pub host: &'a mut dyn LookupHost,
}

/// The client's operation on a task that is not stored, and the meaning of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Get the task. The server truncates the history to the length that the client requests.
    Get {
        /// At most this many messages of history; `None`: all.
        history: Option<u32>,
    },
    /// Cancel the task, which the agent does. The answer is the resulting task. If it has ended in
    /// a state other than canceled, the call fails with `TaskNotCancelable`.
    Cancel,
    /// Subscribe to the task. The stream ends after the task as its only item, and the client
    /// subscribes again. If the task has ended, the call fails as for a stored task.
    Subscribe,
}

/// The server's side of a lookup.
pub trait LookupHost {
    /// Lets the call wait; `held_bytes` is the memory that the agent holds for it.
    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn LookupAnswer>), Closed>;
}

/// The server's side of a deferred lookup.
pub trait LookupAnswer: Send + Sync {
    /// Answers the call.
    fn answer(self: Box<Self>, found: Result<TaskBuf, Fault>);
}

impl TaskLookup<'_> {
    /// Lets the call wait until the agent answers through the returned value, at once or later, on
    /// any thread.
    ///
    /// # Errors
    /// [`Closed`] when the server has no room for another deferred call (`deferred_calls_max`,
    /// `store_bytes_max`); the client receives the error.
    pub fn defer(self) -> Result<DeferredLookup, Closed> {
        let task_id: Box<[u8]> = self.task_id.raw().into();
        let (call, host) = self.host.defer(task_id.len())?;
        Ok(DeferredLookup { task_id, wanted: self.wanted, call, host: Some(host) })
    }
}

/// A call about a task that is not stored, which the agent answers later, from any thread. Dropping
/// it answers `TaskNotFound`.
pub struct DeferredLookup {
    task_id: Box<[u8]>,
    wanted: Wanted,
    call: Arc<LateCall>,
    /// `None` after the answer.
    host: Option<Box<dyn LookupAnswer>>,
}

impl DeferredLookup {
    /// The task's id.
    pub fn task_id(&self) -> RawText<'_> {
        RawText::known(&self.task_id)
    }

    /// The client's operation on the task.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Ready when the answer is no longer needed: the caller has disconnected, or the server shuts
    /// down. A caller that wants no answer (a JSON-RPC notification, which the agent receives only
    /// for a cancel) does not disconnect.
    pub fn caller_gone(&self) -> CallerGone {
        CallerGone::of(Some(&self.call))
    }

    /// True when the answer is no longer needed, see [`DeferredLookup::caller_gone`].
    pub fn is_caller_gone(&self) -> bool {
        self.call.has_disconnected()
    }

    /// Answers with the current task; for its meaning see [`Wanted`]. Its id must be
    /// [`DeferredLookup::task_id`]. The task is not stored: the next call asks the agent again.
    pub fn found(mut self, task: TaskBuf) {
        self.answer(Ok(task));
    }

    /// Answers that the task does not exist.
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
