//! A turn that the agent answers later with a message, a task or a refusal.
//!
//! Invariant: until the answer its call waits, and a turn that would start a task has stored no
//! task. A message to an existing task is already in its history.

use std::{borrow::Cow, fmt::Display, sync::Arc};

#[cfg(feature = "net")]
use super::TurnKey;
use super::{
    Canceled, Closed, DeferredHost, FailureCause, Job, JobHost, RequestInfo,
    failure::{DroppedEnd, DroppedTurn, text_of},
    ids::FreshIds,
    watch::CallerGone,
};
#[cfg(feature = "gateway")]
use super::{NotKept, with_id, with_message};
#[cfg(feature = "gateway")]
use crate::model::TaskEvent;
use crate::{
    fault::{Fault, FaultKind},
    model::{Message, MessageBuf, RawText, TaskView},
    service::{Handle, LateCall},
};

/// A turn that the agent answers later, from any thread: by a direct message, a refusal, or a task.
/// Dropping it fails its call.
pub struct Deferred {
    pub(super) task_id: Box<[u8]>,
    pub(super) context_id: Box<[u8]>,
    pub(super) message: Box<[u8]>,
    pub(super) request: Box<RequestInfo>,
    pub(super) call: Arc<LateCall>,
    pub(super) ids: FreshIds,
    /// `None` after the answer.
    pub(super) host: Option<Box<dyn DeferredHost>>,
    /// As in [`Job`].
    pub(super) done: bool,
}

impl Deferred {
    /// The task's id; if a new task is not stored yet, its future id.
    pub fn task_id(&self) -> RawText<'_> {
        RawText::known(&self.task_id)
    }

    /// The id of the conversation.
    pub fn context_id(&self) -> RawText<'_> {
        RawText::known(&self.context_id)
    }

    /// The message that started the turn.
    pub fn message(&self) -> Message<'_> {
        Message(&self.message)
    }

    /// Other data of the call.
    pub fn request(&self) -> &RequestInfo {
        &self.request
    }

    /// Milliseconds since the Unix epoch.
    #[cfg(feature = "embed")]
    pub(crate) fn unix_ms(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.unix_ms())
    }

    /// Shows the task that the message continues, with history and artifacts; false: the message
    /// starts a new task, or the task was evicted. The task is locked meanwhile: copy only the
    /// needed data and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        self.task().is_some_and(|(task, host)| host.read(task, each))
    }

    /// The bytes that the agent has stored with the task that the message continues; see
    /// [`Job::keep`]. Empty: no bytes or no task.
    pub fn kept(&self) -> Vec<u8> {
        self.task().map_or_else(Vec::new, |(task, host)| host.kept(task))
    }

    /// The bytes that the agent has stored with another task of the same owner and tenant, finished
    /// or not, for instance a task to which the message refers (`referenceTaskIds`). Empty: no
    /// bytes or no such task.
    pub fn kept_with(&self, task_id: RawText<'_>) -> Vec<u8> {
        let scope = self.request.scope();
        self.host.as_ref().map_or_else(Vec::new, |host| host.kept_with(scope, task_id))
    }

    /// The bytes stored with the newest task that has any, of the conversation's newest 32 tasks.
    pub fn kept_in_context(&self) -> Vec<u8> {
        let (scope, context_id) = (self.request.scope(), self.context_id());
        self.host.as_ref().map_or_else(Vec::new, |host| host.kept_in_context(scope, context_id))
    }

    fn task(&self) -> Option<(Handle, Arc<dyn JobHost>)> {
        self.host.as_ref()?.task()
    }

    /// Answers with a message instead of a task; a text becomes a message. If the task already
    /// exists, the message becomes the status message of its completion (A2A 1.0 §3.1.1). A message
    /// without an id gets a fresh one.
    pub fn reply(mut self, message: impl Into<MessageBuf>) {
        let message = message.into();
        let is_named = !message.view().message_id().is_empty();
        let message = if is_named { message } else { message.id(&self.ids.next()) };
        if let Some(host) = self.host.take() {
            host.reply(message);
        }
    }

    /// Refuses the message: its call fails. An existing task does not change.
    pub fn refuse(mut self, fault: impl Into<Fault>) {
        if let Some(host) = self.host.take() {
            host.refuse(fault.into());
        }
    }

    /// Refuses the message as an internal error with this text.
    pub fn fail(self, text: impl Into<Cow<'static, str>>) {
        self.refuse(Fault::because(FaultKind::Internal, text));
    }

    /// Refuses the message because of an error of the agent, like [`Job::fail_for`].
    pub fn fail_for(mut self, error: &dyn Display) {
        let text = text_of(error);
        if let Some(dropped) = self.dropped() {
            dropped.end(Some(FailureCause::error(text)));
        }
    }

    /// Identifies the turn.
    #[cfg(feature = "net")]
    pub(crate) fn turn_key(&self) -> TurnKey {
        self.ids.key()
    }

    /// Takes the data that is needed to end the turn when the value is dropped.
    fn dropped(&mut self) -> Option<DroppedTurn> {
        let host = self.host.take()?;
        Some(DroppedTurn {
            agent: self.request.scope().agent,
            task_id: self.task_id().to_str().into_owned(),
            ids: self.ids,
            end: DroppedEnd::Call(host),
        })
    }

    /// Publishes an event together with the task, in one step with all earlier events. Until then
    /// the bytes of the event are not counted, so the task must follow at once.
    #[cfg(feature = "gateway")]
    pub(crate) fn prepare(&mut self, event: &TaskEvent<'_>) {
        let Some(host) = &mut self.host else { return };
        if let TaskEvent::Status { state, .. } = event {
            self.done = state.is_terminal() || state.is_interrupted();
        }
        match with_id(event, || self.ids.next()) {
            Some(message) => host.prepare(&with_message(event, &message)),
            None => host.prepare(event),
        }
    }

    /// Stores bytes with the task, like [`Job::keep`]. A new task without room for them fails.
    ///
    /// # Errors
    /// [`NotKept`].
    #[cfg(feature = "gateway")]
    pub(crate) fn keep(&mut self, bytes: Box<[u8]>) -> Result<(), NotKept> {
        self.host.as_mut().map_or(Err(NotKept::Closed), |host| host.keep(bytes))
    }

    /// Creates the task, unless it exists. The call is answered as any `SendMessage`, and the job
    /// publishes the events.
    ///
    /// # Errors
    /// [`Closed`] if the server has no room for the task, or the task has ended meanwhile; the
    /// client receives the error.
    pub fn into_job(mut self) -> Result<Job, Closed> {
        let host = self.host.take().ok_or(Closed)?;
        let (task, host) = host.begin(Message(&self.message))?;
        Ok(Job {
            task_id: std::mem::take(&mut self.task_id),
            context_id: std::mem::take(&mut self.context_id),
            message: std::mem::take(&mut self.message),
            request: self.request.clone(),
            call: Some(Arc::clone(&self.call)),
            task,
            host,
            ids: self.ids,
            done: self.done,
        })
    }

    /// Ready when an answer is no longer needed: the existing task of the message has ended; or the
    /// message has no task yet, and the caller has disconnected or the server shuts down.
    pub fn canceled(&self) -> Canceled {
        match self.task() {
            Some((task, host)) => Canceled::task(task, host),
            None => Canceled::unanswered(&self.call),
        }
    }

    /// Ready when the caller has disconnected or the server shuts down. A caller that wants no
    /// answer (a JSON-RPC notification) does not disconnect.
    pub fn caller_gone(&self) -> CallerGone {
        CallerGone::of(Some(&self.call))
    }

    /// True when the caller has disconnected or the server shuts down.
    pub fn is_caller_gone(&self) -> bool {
        self.call.has_disconnected()
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped() {
            dropped.end_with_its_function();
        }
    }
}
