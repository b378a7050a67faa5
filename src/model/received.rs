//! A server's answer in canonical form, from any generation and binding.
//!
//! Invariant: one [`Received`] is filled repeatedly and reuses its memory, so steady-state reading
//! allocates nothing. A task is read into a task log: first the messages of its history, of all
//! authors in order, then its artifacts, then its status.

mod error;
mod fill;
#[cfg(feature = "client")]
mod template;

use std::{fmt, ops::Range};

use super::{
    json::JsonObject,
    owned::TaskBuf,
    pack::{Artifact, Message, PackedFields},
    push::PushConfig,
    state::TaskState,
    text::RawText,
    view::TaskView,
};

pub use error::ReadError;
pub(crate) use fill::{ReadStatus, Shapes};
#[cfg(feature = "client")]
pub(crate) use template::{ReceivedAround, ReceivedTemplate, TEXTS_MAX};

/// The kind of a server's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceivedKind {
    /// Nothing: the answer to a delete, or no answer yet.
    #[default]
    Nothing,
    /// A task: an answer, or an item of a stream.
    Task,
    /// A direct message: an answer, or an item of a stream.
    Message,
    /// An item of a stream: the status changed.
    StatusUpdate,
    /// An item of a stream: an artifact appeared or grew.
    ArtifactUpdate,
    /// A page of tasks.
    Page,
    /// One push configuration.
    PushConfig,
    /// A list of push configurations.
    PushConfigs,
    /// A card, as JSON.
    Card,
}

/// Tags of received data other than tasks.
mod tag {
    pub const TASK_ID: u8 = 1;
    pub const CONTEXT_ID: u8 = 2;
    pub const MESSAGE: u8 = 3;
    pub const ARTIFACT: u8 = 4;
    pub const METADATA: u8 = 5;
    pub const NEXT_PAGE: u8 = 6;
    pub const CONFIG: u8 = 7;
    pub const CARD: u8 = 8;
}

/// One answer of a server. Created once, it is filled by the readers of all generations.
#[derive(Clone, Default)]
pub struct Received {
    kind: ReceivedKind,
    /// All data except tasks, packed.
    fields: Vec<u8>,
    /// The first `tasks_len` tasks were received, the others are memory for reuse.
    tasks: Vec<ReceivedTask>,
    tasks_len: usize,
    numbers: Numbers,
    /// A message or an artifact of a task, before it is added to the task's log.
    scratch: Vec<u8>,
    span: Range<usize>,
}

/// Data other than text.
#[derive(Clone, Copy, Default)]
struct Numbers {
    state: Option<TaskState>,
    at_ms: u64,
    append: bool,
    last_chunk: bool,
    is_final: bool,
    page_size: u32,
    total_size: u64,
}

/// A task, and data that the log of a task does not hold.
#[derive(Clone)]
struct ReceivedTask {
    task: TaskBuf,
    /// Empty: no metadata.
    metadata: Vec<u8>,
}

impl ReceivedTask {
    fn metadata(&self) -> Option<JsonObject<'_>> {
        Some(self.metadata.as_slice()).filter(|some| !some.is_empty()).map(JsonObject::known)
    }
}

/// The fields of an event.
#[derive(Default)]
struct EventFields<'a> {
    task_id: RawText<'a>,
    context_id: RawText<'a>,
    message: Option<&'a [u8]>,
    artifact: Option<&'a [u8]>,
    metadata: Option<JsonObject<'a>>,
}

/// A changed status of a task (A2A 1.0 §4.2.1).
#[derive(Clone, Copy)]
pub struct StatusUpdate<'a> {
    /// The task; never empty.
    pub task_id: RawText<'a>,
    /// Its conversation; empty in 0.1, since its events do not contain it.
    pub context_id: RawText<'a>,
    /// The new state.
    pub state: TaskState,
    /// When, in milliseconds since the Unix epoch; 0: not given.
    pub at_ms: u64,
    /// The agent's message.
    pub message: Option<Message<'a>>,
    /// Metadata of the event.
    pub metadata: Option<JsonObject<'a>>,
    /// True: the server marks the end of its stream. Only generations before 1.0 do.
    pub is_final: bool,
}

/// An artifact that appeared or grew (A2A 1.0 §4.2.2).
#[derive(Clone, Copy)]
pub struct ArtifactUpdate<'a> {
    /// The task; never empty.
    pub task_id: RawText<'a>,
    /// Its conversation; empty in 0.1, since its events do not contain it.
    pub context_id: RawText<'a>,
    /// The artifact, or the chunk to append.
    pub artifact: Artifact<'a>,
    /// True: extends the parts of the artifact with this id; false: replaces it.
    pub append: bool,
    /// True: nothing more will be appended.
    pub last_chunk: bool,
    /// Metadata of the event.
    pub metadata: Option<JsonObject<'a>>,
}

/// A page of tasks (A2A 1.0 §3.1.4).
#[derive(Clone, Copy)]
pub struct TaskPage<'a> {
    tasks: &'a [ReceivedTask],
    /// Token of the next page; empty: this is the last.
    pub next_page_token: RawText<'a>,
    /// The page size that the server applied; 0: not given.
    pub page_size: u32,
    /// Matching tasks before paging; 0 with tasks: not given.
    pub total_size: u64,
}

impl<'a> TaskPage<'a> {
    /// The tasks, each with its metadata, in the server's order.
    pub fn tasks(self) -> impl Iterator<Item = (TaskView<'a>, Option<JsonObject<'a>>)> {
        self.tasks.iter().map(|held| (held.task.view(), held.metadata()))
    }
}

impl Received {
    /// An empty value.
    pub fn new() -> Received {
        Received::default()
    }

    /// The kind of its content.
    pub fn kind(&self) -> ReceivedKind {
        self.kind
    }

    /// The task, of an answer or of a stream's snapshot.
    pub fn task(&self) -> Option<TaskView<'_>> {
        self.only_task().map(|held| held.task.view())
    }

    /// The task as a value to store and to apply events to.
    pub fn task_buf(&self) -> Option<&TaskBuf> {
        self.only_task().map(|held| &held.task)
    }

    /// `Task.metadata`, which the log of a task does not hold.
    pub fn task_metadata(&self) -> Option<JsonObject<'_>> {
        self.only_task().and_then(ReceivedTask::metadata)
    }

    /// The direct message.
    pub fn message(&self) -> Option<Message<'_>> {
        let message = self.first(ReceivedKind::Message, tag::MESSAGE);
        message.map(Message)
    }

    /// The changed status.
    pub fn status_update(&self) -> Option<StatusUpdate<'_>> {
        let state = self.numbers.state.filter(|_| self.kind == ReceivedKind::StatusUpdate)?;
        let fields = self.event_fields();
        Some(StatusUpdate {
            task_id: fields.task_id,
            context_id: fields.context_id,
            state,
            at_ms: self.numbers.at_ms,
            message: fields.message.map(Message),
            metadata: fields.metadata,
            is_final: self.numbers.is_final,
        })
    }

    /// The artifact that appeared or grew.
    pub fn artifact_update(&self) -> Option<ArtifactUpdate<'_>> {
        if self.kind != ReceivedKind::ArtifactUpdate {
            return None;
        }
        let fields = self.event_fields();
        Some(ArtifactUpdate {
            task_id: fields.task_id,
            context_id: fields.context_id,
            artifact: Artifact::new(fields.artifact?),
            append: self.numbers.append,
            last_chunk: self.numbers.last_chunk,
            metadata: fields.metadata,
        })
    }

    /// The fields of an event, each once.
    fn event_fields(&self) -> EventFields<'_> {
        let mut event = EventFields::default();
        for (tag, field) in PackedFields(&self.fields) {
            match tag {
                tag::TASK_ID => event.task_id = RawText::known(field),
                tag::CONTEXT_ID => event.context_id = RawText::known(field),
                tag::MESSAGE => event.message = Some(field),
                tag::ARTIFACT => event.artifact = Some(field),
                tag::METADATA => event.metadata = Some(JsonObject::known(field)),
                _ => {}
            }
        }
        event
    }

    /// The page of tasks.
    pub fn page(&self) -> Option<TaskPage<'_>> {
        (self.kind == ReceivedKind::Page).then(|| TaskPage {
            tasks: self.tasks.get(..self.tasks_len).unwrap_or_default(),
            next_page_token: self.next_page_token().unwrap_or_default(),
            page_size: self.numbers.page_size,
            total_size: self.numbers.total_size,
        })
    }

    /// Token of the next page, of tasks or of push configurations; `None`: there is none.
    pub fn next_page_token(&self) -> Option<RawText<'_>> {
        PackedFields(&self.fields).text(tag::NEXT_PAGE).filter(|token| !token.is_empty())
    }

    /// The one push configuration.
    pub fn push_config(&self) -> Option<PushConfig<'_>> {
        self.first(ReceivedKind::PushConfig, tag::CONFIG).map(PushConfig)
    }

    /// All push configurations of a list, or the single one.
    pub fn push_configs(&self) -> impl Iterator<Item = PushConfig<'_>> {
        let configs = PackedFields(&self.fields).filter(|(tag, _)| *tag == tag::CONFIG);
        configs.map(|(_, config)| PushConfig(config))
    }

    /// The card, as JSON.
    pub fn card(&self) -> Option<JsonObject<'_>> {
        self.first(ReceivedKind::Card, tag::CARD).map(JsonObject::known)
    }

    /// The id of its task, if given.
    pub fn task_id(&self) -> Option<RawText<'_>> {
        let id = match self.kind {
            ReceivedKind::Task => self.task().map(|task| task.id()),
            ReceivedKind::Message => self.message().and_then(Message::task_id),
            ReceivedKind::StatusUpdate | ReceivedKind::ArtifactUpdate => {
                PackedFields(&self.fields).text(tag::TASK_ID)
            }
            ReceivedKind::PushConfig => self.push_config().and_then(PushConfig::task_id),
            ReceivedKind::Nothing
            | ReceivedKind::Page
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => None,
        };
        id.filter(|id| !id.is_empty())
    }

    /// The id of its conversation, if given.
    pub fn context_id(&self) -> Option<RawText<'_>> {
        let id = match self.kind {
            ReceivedKind::Task => self.task().map(|task| task.context_id()),
            ReceivedKind::Message => self.message().and_then(Message::context_id),
            ReceivedKind::StatusUpdate | ReceivedKind::ArtifactUpdate => {
                PackedFields(&self.fields).text(tag::CONTEXT_ID)
            }
            ReceivedKind::Nothing
            | ReceivedKind::Page
            | ReceivedKind::PushConfig
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => None,
        };
        id.filter(|id| !id.is_empty())
    }

    /// The state of the task, if a task or a status was received.
    pub fn state(&self) -> Option<TaskState> {
        match self.status_update() {
            Some(update) => Some(update.state),
            None => self.task().map(|task| task.status().state),
        }
    }

    /// The range of the content in the bytes that were read, without its envelope, for forwarding.
    /// Empty if those bytes were not JSON, or there was no content.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Bytes of memory that it holds, in use or for reuse.
    pub fn held_bytes(&self) -> usize {
        let tasks = self.tasks.iter().map(|held| held.task.held_bytes() + held.metadata.capacity());
        let table = self.tasks.capacity() * size_of::<ReceivedTask>();
        self.fields.capacity() + self.scratch.capacity() + table + tasks.sum::<usize>()
    }

    fn only_task(&self) -> Option<&ReceivedTask> {
        self.tasks.first().filter(|_| self.kind == ReceivedKind::Task)
    }

    fn first(&self, kind: ReceivedKind, tag: u8) -> Option<&[u8]> {
        PackedFields(&self.fields).first(tag).filter(|_| self.kind == kind)
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("kind", &self.kind)
            .field("task_id", &self.task_id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
