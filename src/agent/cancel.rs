//! A client that wants a task to end: its agent agrees, refuses, or says so later.

use std::{borrow::Cow, sync::Arc, task::Waker};

use super::{Canceled, Closed, JobHost, RequestInfo, RequestView, watch::CallerGone};
use crate::{
    model::{RawText, TaskView},
    service::{Handle, JoinedCalls, Waiter, WantedBy},
};

/// Asks the agent of a running task whether it may be canceled. An agent that does nothing with it
/// agrees.
///
/// Until it has answered, it is not asked again by the same caller, as far as
/// [`RequestView::identity`] and [`RequestView::headers`] tell: his other cancels of the task
/// wait for the same answer, whichever worker they came to.
pub struct CancelRequest<'a> {
    /// The task's id.
    pub task_id: RawText<'a>,
    /// What else is known of the request.
    pub request: RequestView<'a>,
    /// The server.
    pub host: &'a mut dyn CancelHost,
}

/// The side of a request to cancel that belongs to the server.
pub trait CancelHost {
    /// Shows the task.
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>));
    /// Fails the call.
    fn refuse(&mut self, text: Cow<'static, str>);
    /// Lets the call wait; `held_bytes` is what the agent keeps of it.
    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<JoinedCalls>, Box<dyn CancelDecision>), Closed>;
}

/// The side of a deferred request to cancel that belongs to the server.
pub trait CancelDecision: Send + Sync {
    /// The task, for the program that was asked.
    fn task(&self) -> (Handle, Arc<dyn JobHost>);
    /// Cancels the task and answers the calls, or fails them with this text.
    fn decide(self: Box<Self>, refusal: Option<Cow<'static, str>>);
}

impl CancelRequest<'_> {
    /// Shows the task, with history and artifacts. The store waits meanwhile: take what is needed
    /// and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.host.read(each);
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task goes on.
    pub fn refuse(self, text: impl Into<Cow<'static, str>>) {
        self.host.refuse(text.into());
    }

    /// Lets the call wait until the agent agrees or refuses, on any thread, or the task has ended.
    ///
    /// # Errors
    /// [`Closed`] when the server has no room for another call that waits like this
    /// (`deferred_calls_max`, `store_bytes_max`); the client is told.
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
    /// `None` behind the decision.
    host: Option<Box<dyn CancelDecision>>,
}

impl DeferredCancel {
    /// The task's id.
    pub fn task_id(&self) -> RawText<'_> {
        RawText::known(&self.task_id)
    }

    /// What else is known of the call; of calls that wait for the same decision, the first.
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// Shows the task as it is now, with history and artifacts; false: it has left the store. The
    /// store waits meanwhile: take what is needed and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        let host = self.host.as_ref().map(|host| host.task());
        host.is_some_and(|(task, host)| host.read(task, each))
    }

    /// What the agent has kept with the task; see [`Job::keep`](super::Job::keep).
    pub fn kept(&self) -> Vec<u8> {
        let host = self.host.as_ref().map(|host| host.task());
        host.map_or_else(Vec::new, |(task, host)| host.kept(task))
    }

    /// Ready when the decision is of no use any more: all callers have left, or the server has
    /// answered them, because the task has ended or the server ends.
    ///
    /// A caller that wants no answer (a notification of JSON-RPC) cannot leave, and whether its
    /// connection lasts means nothing: it wants the task to end. For its sake the decision is of
    /// use until the task has ended, or belongs to another program.
    pub fn caller_gone(&self) -> CallerGone {
        let task = self.host.as_ref().map(|host| host.task());
        CallerGone::of_all(&self.calls, task.map(|(task, host)| Canceled::task(task, host)))
    }

    /// True when the decision is of no use any more, as [`DeferredCancel::caller_gone`] says.
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

    /// Agrees: the task is canceled, unless it has ended meanwhile, or the agent was replaced.
    pub fn agree(mut self) {
        if let Some(host) = self.host.take() {
            host.decide(None);
        }
    }

    /// Refuses: the call fails with `TaskNotCancelable` and this text, and the task goes on.
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
