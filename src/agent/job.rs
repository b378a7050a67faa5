//! A running task that its agent publishes from any thread.

use std::{fmt::Display, sync::Arc};

#[cfg(feature = "net")]
use super::TurnKey;
use super::{
    Canceled, Closed, FailureCause, JobHost, RequestInfo,
    failure::{DroppedEnd, DroppedTurn, text_of},
    ids::FreshIds,
    watch::CallerGone,
    with_id, with_message,
};
use crate::{
    model::{ArtifactBuf, Message, MessageBuf, PartsBuf, RawText, TaskEvent, TaskState, TaskView},
    service::{Handle, LateCall},
};

/// A running task that its agent owns. Dropping it fails the task, unless the last published status
/// is terminal or waits for the client.
pub struct Job {
    pub(super) task_id: Box<[u8]>,
    pub(super) context_id: Box<[u8]>,
    pub(super) message: Box<[u8]>,
    pub(super) request: Box<RequestInfo>,
    /// The call that waits for the job, if any.
    pub(super) call: Option<Arc<LateCall>>,
    pub(super) task: Handle,
    pub(super) host: Arc<dyn JobHost>,
    pub(super) ids: FreshIds,
    pub(super) done: bool,
}

impl Job {
    /// The task's id.
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

    /// Shows the current task, with history and artifacts; false: the task was evicted. The task is
    /// locked meanwhile: copy only the needed data and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        self.host.read(self.task, each)
    }

    /// The state of the task; `None`: the task was evicted.
    pub fn state(&self) -> Option<TaskState> {
        let mut state = None;
        self.read(&mut |task| state = Some(task.status().state));
        state
    }

    /// A new id: a UUID of bits that the engine drew when the job began.
    ///
    /// Messages need no id: a message without one gets a fresh id when it is published.
    pub fn fresh_id(&mut self) -> String {
        self.ids.next()
    }

    /// Milliseconds since the Unix epoch.
    #[cfg(feature = "gateway")]
    pub(crate) fn unix_ms(&self) -> u64 {
        self.host.unix_ms()
    }

    /// True when the task has ended, for instance because a client canceled it.
    pub fn is_closed(&self) -> bool {
        self.state().is_none_or(TaskState::is_terminal)
    }

    /// Ready when the task has ended, for instance because a client canceled it.
    pub fn canceled(&self) -> Canceled {
        Canceled::task(self.task, Arc::clone(&self.host))
    }

    /// Ready when the caller has disconnected that waits for the task, or follows it on the stream
    /// of its message. The task continues, because other callers may request it.
    pub fn caller_gone(&self) -> CallerGone {
        CallerGone::of(self.call.as_ref())
    }

    /// Completes the task with a message or a text, which becomes its status message, as a direct
    /// message to an existing task does (A2A 1.0 §3.1.1).
    ///
    /// # Errors
    /// [`Closed`].
    pub fn reply(mut self, message: impl Into<MessageBuf>) -> Result<(), Closed> {
        self.status(TaskState::Completed, Some(&message.into()))
    }

    /// Fails the task with this text.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn fail(mut self, text: &str) -> Result<(), Closed> {
        let message = MessageBuf::agent(&PartsBuf::new().text(text));
        self.status(TaskState::Failed, Some(&message))
    }

    /// Fails the task because of an error of the agent. The operator receives the text of the error
    /// (`{:#}`, at most 4 KiB). The client receives the text if the server shows errors, and
    /// otherwise a reference ([`FailureRules`](super::FailureRules)). A task that has ended does
    /// not change.
    pub fn fail_for(mut self, error: &dyn Display) {
        let text = text_of(error);
        self.done = true;
        self.dropped().end(Some(FailureCause::error(text)));
    }

    /// Identifies the turn.
    #[cfg(feature = "net")]
    pub(crate) fn turn_key(&self) -> TurnKey {
        self.ids.key()
    }

    /// Takes the data that is needed to end the turn when the job is dropped.
    #[cold]
    fn dropped(&mut self) -> DroppedTurn {
        DroppedTurn {
            agent: self.request.scope().agent,
            task_id: self.task_id().to_str().into_owned(),
            ids: self.ids,
            end: DroppedEnd::Task(self.task, Arc::clone(&self.host)),
        }
    }

    /// Ends the turn without a status, because another job continues the task.
    pub fn leave(mut self) {
        self.done = true;
    }

    /// Publishes a status, with or without a message.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn status(&mut self, state: TaskState, message: Option<&MessageBuf>) -> Result<(), Closed> {
        let at_ms = self.host.unix_ms();
        let message = message.map(MessageBuf::view);
        self.publish(TaskEvent::Status { state, at_ms, message, metadata: None })
    }

    /// Publishes a whole artifact.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn artifact(&mut self, artifact: &ArtifactBuf) -> Result<(), Closed> {
        let artifact = artifact.view();
        let (append, last_chunk) = (false, true);
        self.publish(TaskEvent::Artifact { artifact, append, last_chunk, metadata: None })
    }

    /// Publishes one chunk of an artifact: the first chunk creates the artifact, `last` completes
    /// it.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn chunk(&mut self, chunk: &ArtifactBuf, append: bool, last: bool) -> Result<(), Closed> {
        let artifact = chunk.view();
        self.publish(TaskEvent::Artifact { artifact, append, last_chunk: last, metadata: None })
    }

    /// Publishes any event. A message without an id gets a fresh one.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn publish(&mut self, event: TaskEvent<'_>) -> Result<(), Closed> {
        if let TaskEvent::Status { state, .. } = event {
            self.done = state.is_terminal() || state.is_interrupted();
        }
        match with_id(&event, || self.fresh_id()) {
            Some(message) => self.host.publish(self.task, &with_message(&event, &message)),
            None => self.host.publish(self.task, &event),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.done {
            self.dropped().end_with_its_function();
        }
    }
}
