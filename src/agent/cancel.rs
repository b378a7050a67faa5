//! Cancel requests: the agent agrees, refuses, or decides later.

use std::{borrow::Cow, sync::Arc, task::Waker};

use super::{Canceled, Closed, JobHost, RequestInfo, RequestView, watch::CallerGone};
use crate::{
    model::{RawText, TaskView},
    service::{Handle, JoinedCalls, Waiter, WantedBy},
};

/// Asks the agent of a running task whether the task may be canceled. An agent that ignores the
/// request agrees.
///
/// Until the agent has decided, further cancels of the task by the same caller, compared by
/// [`RequestView::identity`] and [`RequestView::headers`], wait for the same decision on all
/// workers.
pub struct CancelRequest<'a> {
    /// The task's id.
    pub task_id: RawText<'a>,
    /// The other data of the request.
    pub request: RequestView<'a>,
    /// The server.
    pub host: &'a mut dyn CancelHost,
}

/// The server's side of a cancel request.
pub trait CancelHost {
    /// Shows the task.
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>));
    /// Fails the call.
    fn refuse(&mut self, text: Cow<'static, str>);
    /// Lets the call wait; `held_bytes` is the memory that the agent holds for it.
    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<JoinedCalls>, Box<dyn CancelDecision>), Closed>;
}

/// The server's side of a deferred cancel request.
pub trait CancelDecision: Send + Sync {
    /// The task, with the host of the program that decides.
    fn task(&self) -> (Handle, Arc<dyn JobHost>);
    /// Cancels the task and answers the calls, or fails the calls with this text.
    fn decide(self: Box<Self>, refusal: Option<Cow<'static, str>>);
}

impl CancelRequest<'_> {
    /// Shows the task, with history and artifacts. The task is locked meanwhile: copy only the
    /// needed data and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.host.read(each);
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task continues.
    pub fn refuse(self, text: impl Into<Cow<'static, str>>) {
        self.host.refuse(text.into());
    }

    /// Lets the call wait until the agent agrees or refuses, on any thread, or the task has ended.
    ///
    /// # Errors
    /// [`Closed`] if the server has no room for another deferred call (`deferred_calls_max`,
    /// `store_bytes_max`); the client receives the error.
    pub fn defer(self) -> Result<DeferredCancel, Closed> {
        let task_id: Box<[u8]> = self.task_id.raw().into();
        let request = Box::new(RequestInfo::of(&self.request, None));
        let held_bytes = task_id.len() + size_of::<RequestInfo>() + request.held_bytes();
        let (calls, host) = self.host.defer(held_bytes)?;
        Ok(DeferredCancel { task_id, request, calls, host: Some(host) })
    }
}

/// A request to cancel that the agent decides later, from any thread. Dropping it refuses.
pub struct DeferredCancel {
    task_id: Box<[u8]>,
    request: Box<RequestInfo>,
    calls: Arc<JoinedCalls>,
    /// `None` after the decision.
    host: Option<Box<dyn CancelDecision>>,
}

impl DeferredCancel {
    /// The task's id.
    pub fn task_id(&self) -> RawText<'_> {
        RawText::known(&self.task_id)
    }

    /// Other data of the call; if several calls wait for the decision, of the first call.
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// Shows the current task, with history and artifacts; false: the task was evicted. The task is
    /// locked meanwhile: copy only the needed data and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        let host = self.host.as_ref().map(|host| host.task());
        host.is_some_and(|(task, host)| host.read(task, each))
    }

    /// The bytes that the agent has stored with the task; see [`Job::keep`](super::Job::keep).
    pub fn kept(&self) -> Vec<u8> {
        let host = self.host.as_ref().map(|host| host.task());
        host.map_or_else(Vec::new, |(task, host)| host.kept(task))
    }

    /// Ready when the decision is no longer needed: all callers have disconnected, or the server
    /// has answered them, because the task has ended or the server shuts down.
    ///
    /// A caller that wants no answer (a JSON-RPC notification) cannot disconnect. For such a caller
    /// the decision is needed until the task has ended or belongs to another program.
    pub fn caller_gone(&self) -> CallerGone {
        let task = self.host.as_ref().map(|host| host.task());
        CallerGone::of_all(&self.calls, task.map(|(task, host)| Canceled::task(task, host)))
    }

    /// True when the decision is no longer needed, see [`DeferredCancel::caller_gone`].
    pub fn is_caller_gone(&self) -> bool {
        match self.calls.wanted_by() {
            WantedBy::Caller(_) => false,
            WantedBy::NoCaller => true,
            WantedBy::Silent => self.host.as_ref().is_none_or(|host| {
                let (task, host) = host.task();
                host.poll_ended(task, &mut Waiter::default(), Waker::noop()).is_ready()
            }),
        }
    }

    /// Agrees: the task is canceled, unless it has ended or the agent was replaced meanwhile.
    pub fn agree(mut self) {
        if let Some(host) = self.host.take() {
            host.decide(None);
        }
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task continues.
    pub fn refuse(mut self, text: impl Into<Cow<'static, str>>) {
        if let Some(host) = self.host.take() {
            host.decide(Some(text.into()));
        }
    }
}

impl Drop for DeferredCancel {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.decide(Some("the agent did not decide whether the task may be canceled".into()));
        }
    }
}
