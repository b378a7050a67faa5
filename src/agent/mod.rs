//! What users write: an [`Agent`] gets a [`Turn`] for every message and publishes what it does.
//!
//! A turn runs on the worker's thread and must not block. An agent that is ready publishes through
//! the turn and returns: nothing is spawned, queued or woken. One that needs time either asks to
//! be called again ([`Turn::resume_after`]) or takes a [`Job`] along and publishes from anywhere.

pub mod echo;
pub mod script;

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    model::{
        ArtifactBuf, EventBuf, Message, MessageBuf, TaskEvent, TaskState, TaskView,
        pack::artifact_tag,
    },
    service::{Now, TaskKey},
};

/// Bytes of a message below which its parts take hardly more than the place where they are.
const REPEAT_BYTES_MIN: usize = 96;

/// A program that answers messages.
pub trait Agent: Send + Sync {
    /// Called for each message to this agent, for a new task or a running one.
    fn start(&self, turn: Turn<'_>);

    /// Called after [`Turn::resume_after`], unless the task has ended meanwhile.
    fn resume(&self, _turn: Turn<'_>, _token: u64) {}
}

/// What the agent's card says; texts are ordinary text.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name on the card, and in `/agents/{name}`.
    pub name: String,
    /// One paragraph for humans.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    /// Media types it reads; a message part that declares another one is refused (-32005).
    /// `*/*` accepts anything.
    pub input_modes: Vec<String>,
    /// Media types it writes.
    pub output_modes: Vec<String>,
    /// What it can do; at least one.
    pub skills: Vec<Skill>,
    /// True: streaming operations are served.
    pub streaming: bool,
    /// Extensions of the protocol that it supports.
    pub extensions: Vec<Extension>,
}

/// One entry of a card's `capabilities.extensions` (A2A 1.0 §4.4.4).
#[derive(Clone, Debug)]
pub struct Extension {
    /// Names it, its version included.
    pub uri: String,
    /// What the agent does with it, for humans; may be empty.
    pub description: String,
    /// True: a message of a client that does not name it in `A2A-Extensions` is refused with
    /// `ExtensionSupportRequired` (A2A 1.0 §3.3.4).
    pub required: bool,
}

/// One entry of a card's `skills` (A2A 1.0 §4.4.5).
#[derive(Clone, Debug)]
pub struct Skill {
    /// Identifier.
    pub id: String,
    /// Title.
    pub name: String,
    /// One paragraph for humans.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Messages that show what it does.
    pub examples: Vec<String>,
}

impl Profile {
    /// A profile with one skill, any media type, streaming on.
    pub fn new(name: &str, description: &str) -> Profile {
        Profile {
            name: name.to_owned(),
            description: description.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            input_modes: vec!["*/*".to_owned()],
            output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
            skills: vec![Skill {
                id: name.to_owned(),
                name: name.to_owned(),
                description: description.to_owned(),
                tags: vec![name.to_owned()],
                examples: Vec::new(),
            }],
            streaming: true,
            extensions: Vec::new(),
        }
    }
}

/// What became of a turn's events, and of the turn itself.
pub enum Ending {
    /// The agent said all it wanted for now.
    Returned,
    /// It answered with a direct message (no task may exist yet).
    Replied(MessageBuf),
    /// It wants to be called again.
    Resume {
        /// In this many milliseconds.
        after_ms: u64,
        /// With this token.
        token: u64,
    },
    /// It took a [`Job`] along; the events before that are already applied.
    Detached,
}

/// The side of a turn that belongs to the server.
pub trait TurnHost {
    /// Applies `events` to the task, which exists from now on, and empties the list.
    fn commit(&mut self, events: &mut EventBuf) -> Result<(TaskKey, Arc<dyn JobHost>), Closed>;
    /// Shows the task as it was before the turn; not called when the message starts a new one.
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>));
}

/// The side of a job that belongs to the server.
pub trait JobHost: Send + Sync {
    /// Applies one event to a task.
    fn publish(&self, key: TaskKey, event: &TaskEvent<'_>) -> Result<(), Closed>;
    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64;
    /// True when the task has ended or left the store.
    fn is_closed(&self, key: TaskKey) -> bool;
}

/// The task takes no more events: it ended, was canceled, or has reached a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the task takes no more events")
    }
}

impl std::error::Error for Closed {}

/// One message, and the means to answer it at once.
pub struct Turn<'a> {
    /// The message that started the turn; on resume, the newest one of the client.
    pub message: Message<'a>,
    /// The state of the task before this turn; `None` when the message starts a new one.
    pub state: Option<TaskState>,
    /// Raw task id; on a new task, the id it will have.
    pub task_id: &'a [u8],
    /// Raw context id.
    pub context_id: &'a [u8],
    /// Raw JSON object of the request's metadata; `None` on resume.
    pub metadata: Option<&'a [u8]>,
    /// The extensions that the client asks for, comma separated as in `A2A-Extensions`.
    pub extensions: Option<&'a str>,
    /// The client's name, as its verified certificate has it; `None` without one, and on resume.
    pub identity: Option<&'a str>,
    /// The time.
    pub now: Now,
    /// Events published so far.
    pub events: &'a mut EventBuf,
    /// How the turn ends; [`Ending::Returned`] unless the agent says otherwise.
    pub ending: &'a mut Ending,
    /// The server.
    pub host: &'a mut dyn TurnHost,
}

impl Turn<'_> {
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

    /// Publishes a whole artifact with the parts of the message, as they came; `artifact_id` is
    /// raw text. Parts of some size are stored once, where the message begins its task.
    pub fn artifact_of_message(&mut self, artifact_id: &[u8]) {
        let message = self.message;
        if self.state.is_none() && message.0.len() >= REPEAT_BYTES_MIN {
            self.events
                .push_repeat_with(|packer| packer.put(artifact_tag::ARTIFACT_ID, artifact_id));
            return;
        }
        self.events.push_artifact_with(false, true, |packer| {
            packer.put(artifact_tag::ARTIFACT_ID, artifact_id);
            for part in message.parts() {
                packer.put(artifact_tag::PART, part.0);
            }
        });
    }

    /// Publishes any event, for instance a chunk of an artifact.
    pub fn publish(&mut self, event: &TaskEvent<'_>) {
        self.events.push(event);
    }

    /// Shows the task as it was before the turn, with history and artifacts. The store waits
    /// meanwhile: take what is needed and return.
    pub fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.host.read(each);
    }

    /// Answers with a direct message and no task. On a task that exists already, the message
    /// becomes the status message of its completion (A2A 1.0 §3.1.1).
    pub fn reply(self, message: MessageBuf) {
        *self.ending = Ending::Replied(message);
    }

    /// Asks to be called again in `after_ms` milliseconds with `token`.
    pub fn resume_after(self, after_ms: u64, token: u64) {
        *self.ending = Ending::Resume { after_ms, token };
    }

    /// Takes the task out of the turn: from now on the job publishes, from any thread.
    ///
    /// # Errors
    /// [`Closed`] when the server has no room for another running task, or the task has ended
    /// meanwhile; the client is told.
    pub fn detach(self) -> Result<Job, Closed> {
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        let (task_id, context_id) = (text(self.task_id), text(self.context_id));
        let message = Bytes::copy_from_slice(self.message.0);
        let (key, host) = self.host.commit(self.events)?;
        *self.ending = Ending::Detached;
        Ok(Job { task_id, context_id, message, key, host, done: false })
    }
}

/// A running task that its agent owns. Dropping it fails the task, unless the last status it
/// published is terminal or waits for the client.
pub struct Job {
    task_id: String,
    context_id: String,
    message: Bytes,
    key: TaskKey,
    host: Arc<dyn JobHost>,
    done: bool,
}

impl Job {
    /// Raw task id.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// Raw context id.
    pub fn context_id(&self) -> &str {
        &self.context_id
    }

    /// The message that started the turn.
    pub fn message(&self) -> Message<'_> {
        Message(&self.message)
    }

    /// The same message, packed, for tasks of the agent that outlive a borrow; shared, not copied.
    pub fn message_bytes(&self) -> Bytes {
        self.message.clone()
    }

    /// True when the task has ended, for instance because a client canceled it.
    pub fn is_closed(&self) -> bool {
        self.host.is_closed(self.key)
    }

    /// Publishes a status, with a message if there is something to say.
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

    /// Publishes one chunk of an artifact: the first one makes it, `last` completes it.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn chunk(&mut self, chunk: &ArtifactBuf, append: bool, last: bool) -> Result<(), Closed> {
        let artifact = chunk.view();
        self.publish(TaskEvent::Artifact { artifact, append, last_chunk: last, metadata: None })
    }

    /// Publishes any event.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn publish(&mut self, event: TaskEvent<'_>) -> Result<(), Closed> {
        if let TaskEvent::Status { state, .. } = event {
            self.done = state.is_terminal() || state.is_interrupted();
        }
        self.host.publish(self.key, &event)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.done {
            let text = crate::model::PartsBuf::new().text("the agent ended without a result");
            let message = MessageBuf::agent("agent-ended", &text);
            // A task that is closed already needs no end.
            let _ = self.status(TaskState::Failed, Some(&message));
        }
    }
}
