//! One message to an agent, answered at once or later.

use super::{
    Closed, Deferred, Ending, Job, RequestInfo, RequestView, TurnHost,
    ids::{FreshIds, id_of},
    with_id, with_message,
};
use crate::{
    fault::Fault,
    model::{
        ArtifactBuf, EventBuf, Message, MessageBuf, RawText, TaskEvent, TaskState, TaskView, Text,
        pack::artifact_tag,
    },
    service::{Entropy, Now},
};

/// Minimum size of a message for an artifact that refers to its parts: smaller parts are hardly
/// larger than the reference.
const REPEAT_BYTES_MIN: usize = 96;

/// One message, and the functions to answer it at once.
pub struct Turn<'a> {
    /// The message that started the turn; on resume, the latest message of the client.
    pub message: Message<'a>,
    /// The state of the task before this turn; `None`: the message starts a new task.
    pub state: Option<TaskState>,
    /// The task's id; for a new task, its future id.
    pub task_id: RawText<'a>,
    /// The id of the conversation.
    pub context_id: RawText<'a>,
    /// Other data of the request; on resume, only tenant and owner of the task.
    pub request: RequestView<'a>,
    /// The time.
    pub now: Now,
    /// Fresh random bits, from which [`Turn::fresh_id`] creates ids.
    pub entropy: &'a mut dyn Entropy,
    /// Events published so far.
    pub events: &'a mut EventBuf,
    /// How the turn ends; [`Ending::Returned`] by default.
    pub ending: &'a mut Ending,
    /// The server.
    pub host: &'a mut dyn TurnHost,
}

impl Turn<'_> {
    /// A new id: a random UUID (RFC 9562 §5.4).
    ///
    /// Messages need no id: a message without one gets a fresh id when it is published.
    pub fn fresh_id(&mut self) -> String {
        fresh_id(self.entropy)
    }

    /// Publishes a status without a message.
    pub fn status(&mut self, state: TaskState) {
        let at_ms = self.now.unix_ms;
        self.events.push(&TaskEvent::Status { state, at_ms, message: None, metadata: None });
    }

    /// Publishes a status with a message of the agent.
    pub fn status_with(&mut self, state: TaskState, message: &MessageBuf) {
        self.publish(&TaskEvent::Status {
            state,
            at_ms: self.now.unix_ms,
            message: Some(message.view()),
            metadata: None,
        });
    }

    /// Publishes a whole artifact.
    pub fn artifact(&mut self, artifact: &ArtifactBuf) {
        self.publish(&TaskEvent::Artifact {
            artifact: artifact.view(),
            append: false,
            last_chunk: true,
            metadata: None,
        });
    }

    /// Publishes one chunk of an artifact: `append` adds its parts to the artifact with its id,
    /// `last` marks the final chunk.
    pub fn chunk(&mut self, chunk: &ArtifactBuf, append: bool, last: bool) {
        let artifact = chunk.view();
        self.publish(&TaskEvent::Artifact { artifact, append, last_chunk: last, metadata: None });
    }

    /// Publishes a whole artifact with the parts of the message, unchanged. If the message starts
    /// its task, larger parts are stored only once.
    #[inline]
    pub fn artifact_of_message<'t>(&mut self, artifact_id: impl Into<Text<'t>>) {
        self.artifact_of_message_as(&artifact_id.into().canonical());
    }

    /// The same, with the raw id in canonical form.
    fn artifact_of_message_as(&mut self, artifact_id: &[u8]) {
        let message = self.message;
        if self.state.is_none() && message.0.len() >= REPEAT_BYTES_MIN {
            self.events
                .push_repeat_with(|packer| packer.put(artifact_tag::ARTIFACT_ID, artifact_id));
            return;
        }
        self.events.push_artifact_with(true, |packer| {
            packer.put(artifact_tag::ARTIFACT_ID, artifact_id);
            for part in message.parts() {
                packer.put(artifact_tag::PART, part.0);
            }
        });
    }

    /// Publishes any event, for instance a status with metadata. A message without an id gets a
    /// fresh one.
    pub fn publish(&mut self, event: &TaskEvent<'_>) {
        match with_id(event, || fresh_id(self.entropy)) {
            Some(message) => self.events.push(&with_message(event, &message)),
            None => self.events.push(event),
        }
    }

    /// Shows the task as it was before the turn, with history and artifacts; shows nothing if the
    /// message starts a new task. The task is locked meanwhile: copy only the needed data and
    /// return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.host.read(each);
    }

    /// Answers with a message instead of a task; a text becomes a message. If the task already
    /// exists, the message becomes the status message of its completion (A2A 1.0 §3.1.1). A message
    /// without an id gets a fresh one.
    pub fn reply(self, message: impl Into<MessageBuf>) {
        let message = message.into();
        let is_named = !message.view().message_id().is_empty();
        let message = if is_named { message } else { message.id(&fresh_id(self.entropy)) };
        *self.ending = Ending::Replied(message);
    }

    /// Asks to be called again in `after_ms` milliseconds with `token`.
    pub fn resume_after(self, after_ms: u64, token: u64) {
        *self.ending = Ending::Resume { after_ms, token };
    }

    /// Detaches the task from the turn: from now on the job publishes, from any thread.
    ///
    /// # Errors
    /// [`Closed`] if the server has no room for another running task, the task has ended meanwhile,
    /// or earlier events exceed `turn_events_max`, which fails the task; the client receives the
    /// error.
    pub fn detach(self) -> Result<Job, Closed> {
        let (task_id, context_id) = (self.task_id.raw().into(), self.context_id.raw().into());
        let (message, request) =
            (self.message.0.into(), Box::new(RequestInfo::of(&self.request, self.state)));
        let (task, host) = self.host.commit(self.events)?;
        *self.ending = Ending::Detached;
        let (call, ids) = (self.host.call(), FreshIds::drawn(self.entropy));
        Ok(Job { task_id, context_id, message, request, call, task, host, ids, done: false })
    }

    /// Refuses the message: its call fails with this fault, and no task is stored. An existing task
    /// does not change; but a resumed task fails.
    pub fn refuse(self, fault: impl Into<Fault>) {
        *self.ending = Ending::Refused(fault.into());
    }

    /// Lets the call wait until the agent decides on a direct message, a task or a refusal, on any
    /// thread. Until then no new task is stored. Earlier events are published with the task, if the
    /// agent creates one.
    ///
    /// # Errors
    /// [`Closed`] if the server has no room for another deferred call (`deferred_calls_max`,
    /// `store_bytes_max`); the client receives the error.
    pub fn defer(self) -> Result<Deferred, Closed> {
        let (task_id, context_id) = (self.task_id.raw().into(), self.context_id.raw().into());
        let (message, request) =
            (self.message.0.into(), Box::new(RequestInfo::of(&self.request, self.state)));
        // The reservation of a task that is not stored yet also has a copy of its ids.
        let ids = 2 * (self.task_id.raw().len() + self.context_id.raw().len());
        let held_bytes = self.message.0.len() + request.held_bytes() + self.events.bytes_len();
        let held_bytes = held_bytes + ids;
        let (call, host) = self.host.defer(self.events, held_bytes)?;
        *self.ending = Ending::Deferred;
        let (host, ids) = (Some(host), FreshIds::drawn(self.entropy));
        Ok(Deferred { task_id, context_id, message, request, call, ids, host, done: false })
    }
}

fn fresh_id(entropy: &mut dyn Entropy) -> String {
    id_of(entropy.bits())
}
