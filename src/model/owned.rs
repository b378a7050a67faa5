//! Calls and tasks that own their data: for a service that answers later, from another thread, or
//! with tasks outside the store.
//!
//! Invariant: the view of an owned form equals its source, byte for byte.

use super::{
    build::{ArtifactBuf, MessageBuf},
    call::{Call, Get, List, Send, SendMode, Target, TaskWait},
    event::TaskEvent,
    json::JsonObject,
    pack::{Message, PackedFields, Packer},
    push::{PushCall, PushConfig, PushForm, PushRequest},
    state::{Generation, TaskState},
    task::{Refusal, Task, TaskLimits},
    text::{RawText, Text},
    view::TaskView,
};

/// The limits of an owned task: only the ranges of its integers. Every event can be replayed.
const LIMITS: TaskLimits = TaskLimits {
    bytes_max: i32::MAX as usize,
    history_max: u32::MAX as usize,
    artifacts_max: u16::MAX as usize,
    replay_max: u32::MAX as u64,
};

/// A task outside the store: built event by event, or copied from a view. Its changes do not affect
/// the original.
///
/// ```
/// use peregrine::model::{Generation, MessageBuf, PartsBuf, TaskBuf, TaskState};
///
/// let mut task = TaskBuf::new("task-1", "conversation-1", Generation::V1)?;
/// let message = MessageBuf::agent(&PartsBuf::new().text("done")).id("message-1");
/// task.status(TaskState::Completed, 1_790_000_000_000, Some(&message))?;
/// assert_eq!(task.view().status().state, TaskState::Completed);
/// # Ok::<(), peregrine::model::Refusal>(())
/// ```
#[derive(Clone)]
pub struct TaskBuf {
    pub(super) task: Task,
    /// The last event in its view.
    pub(super) seq: u64,
    limits: TaskLimits,
}

impl TaskBuf {
    /// A task without events. The first event should be a status; messages need ids.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`]: an id is longer than 65,535 bytes.
    pub fn new<'t>(
        id: impl Into<Text<'t>>,
        context_id: impl Into<Text<'t>>,
        generation: Generation,
    ) -> Result<TaskBuf, Refusal> {
        let (id, context_id) = (id.into(), context_id.into());
        let (id, context_id) = (id.canonical(), context_id.canonical());
        if id.len().max(context_id.len()) > usize::from(u16::MAX) {
            return Err(Refusal::TooLarge);
        }
        let task = Task::new(&id, &context_id, generation, 0);
        Ok(TaskBuf { task, seq: 0, limits: LIMITS })
    }

    /// A copy of the task in a view.
    pub fn of(view: TaskView<'_>) -> TaskBuf {
        TaskBuf { task: view.task().clone(), seq: view.seq(), limits: LIMITS }
    }

    /// The same task with these limits. With the limits of a store, it accepts and retains the same
    /// events as a task in that store. At most 65,535 artifacts are possible.
    #[must_use]
    pub fn within(self, limits: TaskLimits) -> TaskBuf {
        let artifacts_max = limits.artifacts_max.min(LIMITS.artifacts_max);
        TaskBuf { limits: TaskLimits { artifacts_max, ..limits }, ..self }
    }

    /// A task without ids and events.
    #[cfg(feature = "client")]
    pub(super) fn empty() -> TaskBuf {
        let task = Task::new(b"", b"", Generation::V1, 0);
        TaskBuf { task, seq: 0, limits: LIMITS }
    }

    /// Resets it to a task without events, reusing its memory.
    ///
    /// # Errors
    /// As for [`TaskBuf::new`]; the task is then unchanged.
    #[cfg(feature = "client")]
    pub(crate) fn renew(
        &mut self,
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
    ) -> Result<(), Refusal> {
        if id.len().max(context_id.len()) > usize::from(u16::MAX) {
            return Err(Refusal::TooLarge);
        }
        let mut log = std::mem::take(&mut self.task.log);
        log.clear();
        log.extend_from_slice(id);
        log.extend_from_slice(context_id);
        let mut artifacts = std::mem::take(&mut self.task.artifacts);
        artifacts.clear();
        self.task = Task::with_log(log, id, context_id, generation);
        self.task.artifacts = artifacts;
        self.seq = 0;
        Ok(())
    }

    /// Bytes of memory that it holds.
    #[cfg(feature = "client")]
    pub(crate) fn held_bytes(&self) -> usize {
        self.task.heap_bytes()
    }

    /// Applies one more event.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then unchanged.
    pub fn apply(&mut self, event: &TaskEvent<'_>) -> Result<(), Refusal> {
        self.seq = self.task.apply(event, &self.limits)?;
        Ok(())
    }

    /// Adds a client's message to the history.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then unchanged.
    pub fn user_message(&mut self, message: Message<'_>) -> Result<(), Refusal> {
        self.apply(&TaskEvent::UserMessage { message })
    }

    /// Sets the status, as of `at_ms` milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then unchanged.
    pub fn status(
        &mut self,
        state: TaskState,
        at_ms: u64,
        message: Option<&MessageBuf>,
    ) -> Result<(), Refusal> {
        let message = message.map(MessageBuf::view);
        self.apply(&TaskEvent::Status { state, at_ms, message, metadata: None })
    }

    /// Adds a whole artifact.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then unchanged.
    pub fn artifact(&mut self, artifact: &ArtifactBuf) -> Result<(), Refusal> {
        let artifact = artifact.view();
        let (append, last_chunk) = (false, true);
        self.apply(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: None })
    }

    /// The task, for an answer.
    pub fn view(&self) -> TaskView<'_> {
        self.task.view_at(self.seq)
    }

    /// The task with its events, for a stream; see
    /// [`Cursor::show_new`](crate::service::Cursor::show_new).
    pub fn task(&self) -> &Task {
        &self.task
    }
}

/// Tags of a call's text fields, in [`CallBuf::fields`].
mod tag {
    pub const MESSAGE: u8 = 1;
    pub const ID: u8 = 2;
    pub const CONTEXT_ID: u8 = 3;
    pub const OUTPUT_MODES: u8 = 4;
    pub const METADATA: u8 = 5;
    pub const PAGE_TOKEN: u8 = 6;
    pub const PUSH: u8 = 7;
    pub const PUSH_ID: u8 = 8;
}

/// A call that owns its data.
#[derive(Clone)]
pub struct CallBuf {
    kind: CallKind,
    /// Its text fields, packed.
    fields: Box<[u8]>,
}

/// A call without its text fields.
#[derive(Clone, Copy)]
enum CallKind {
    Send {
        has_own_id: bool,
        client_chooses_id: bool,
        mode: SendMode,
        history: Option<u32>,
        generation: Generation,
    },
    Get {
        history: Option<u32>,
        wait: Option<TaskWait>,
    },
    List(List<'static>),
    Cancel(Aim),
    Subscribe(Aim),
    Push(PushKind, PushForm),
    ExtendedCard,
}

/// A [`Target`] without its text fields.
#[derive(Clone, Copy)]
struct Aim {
    generation: Generation,
    after: Option<u64>,
}

impl Aim {
    fn of(target: &Target<'_>, put: &mut dyn FnMut(u8, Option<&[u8]>)) -> Aim {
        put(tag::ID, Some(target.id.raw()));
        put(tag::CONTEXT_ID, target.context_id.map(RawText::raw));
        put(tag::METADATA, target.metadata.map(JsonObject::raw));
        Aim { generation: target.generation, after: target.after }
    }
}

/// A [`PushCall`] without its text fields.
#[derive(Clone, Copy)]
enum PushKind {
    Set,
    Get,
    List { page_size: Option<u32> },
    Delete,
}

impl PushKind {
    fn of(call: &PushCall<'_>, put: &mut dyn FnMut(u8, Option<&[u8]>)) -> PushKind {
        match *call {
            PushCall::Set(config) => {
                put(tag::PUSH, Some(config.packed()));
                PushKind::Set
            }
            PushCall::Get { task_id, id } => {
                put(tag::ID, Some(task_id.raw()));
                put(tag::PUSH_ID, id.map(RawText::raw));
                PushKind::Get
            }
            PushCall::List { task_id, page_size, page_token } => {
                put(tag::ID, Some(task_id.raw()));
                put(tag::PAGE_TOKEN, page_token.map(RawText::raw));
                PushKind::List { page_size }
            }
            PushCall::Delete { task_id, id } => {
                put(tag::ID, Some(task_id.raw()));
                put(tag::PUSH_ID, id.map(RawText::raw));
                PushKind::Delete
            }
        }
    }

    fn view(self, fields: PackedFields<'_>) -> PushCall<'_> {
        let (task_id, id) = (fields.text(tag::ID).unwrap_or_default(), fields.text(tag::PUSH_ID));
        match self {
            PushKind::Set => PushCall::Set(PushConfig(fields.first(tag::PUSH).unwrap_or_default())),
            PushKind::Get => PushCall::Get { task_id, id },
            PushKind::List { page_size } => {
                PushCall::List { task_id, page_size, page_token: fields.text(tag::PAGE_TOKEN) }
            }
            PushKind::Delete => PushCall::Delete { task_id, id },
        }
    }
}

impl CallBuf {
    /// A copy of a call.
    pub fn of(call: &Call<'_>) -> CallBuf {
        let mut fields = Vec::new();
        let mut put = |tag, bytes: Option<&[u8]>| Packer(&mut fields).put_some(tag, bytes);
        let kind = match call {
            Call::Send(send) => {
                put(tag::MESSAGE, Some(send.message.packed()));
                put(tag::ID, send.task_id.map(RawText::raw));
                put(tag::CONTEXT_ID, send.context_id.map(RawText::raw));
                put(tag::OUTPUT_MODES, send.accepted_output_modes);
                put(tag::METADATA, send.metadata.map(JsonObject::raw));
                put(tag::PUSH, send.push.map(PushConfig::packed));
                let Send { has_own_id, client_chooses_id, mode, history, .. } = *send;
                let generation = send.generation;
                CallKind::Send { has_own_id, client_chooses_id, mode, history, generation }
            }
            Call::Get(get) => {
                put(tag::ID, Some(get.id.raw()));
                put(tag::CONTEXT_ID, get.context_id.map(RawText::raw));
                CallKind::Get { history: get.history, wait: get.wait }
            }
            Call::List(list) => {
                put(tag::CONTEXT_ID, list.context_id.map(RawText::raw));
                put(tag::PAGE_TOKEN, list.page_token);
                CallKind::List(List { context_id: None, page_token: None, ..*list })
            }
            Call::Cancel(target) => CallKind::Cancel(Aim::of(target, &mut put)),
            Call::Subscribe(target) => CallKind::Subscribe(Aim::of(target, &mut put)),
            Call::Push(push) => CallKind::Push(PushKind::of(&push.call, &mut put), push.form),
            Call::ExtendedCard => CallKind::ExtendedCard,
        };
        CallBuf { kind, fields: fields.into() }
    }

    /// The call.
    pub fn view(&self) -> Call<'_> {
        let fields = PackedFields(&self.fields);
        let (id, context_id) = (fields.text(tag::ID), fields.text(tag::CONTEXT_ID));
        let metadata = fields.first(tag::METADATA).map(JsonObject::known);
        let target = |Aim { generation, after }| {
            let id = id.unwrap_or_default();
            Target { id, context_id, metadata, generation, after }
        };
        match self.kind {
            CallKind::Send { has_own_id, client_chooses_id, mode, history, generation } => {
                Call::Send(Send {
                    message: Message(fields.first(tag::MESSAGE).unwrap_or_default()),
                    has_own_id,
                    task_id: id,
                    client_chooses_id,
                    context_id,
                    mode,
                    history,
                    accepted_output_modes: fields.first(tag::OUTPUT_MODES),
                    metadata,
                    push: fields.first(tag::PUSH).map(PushConfig),
                    generation,
                })
            }
            CallKind::Get { history, wait } => {
                Call::Get(Get { id: id.unwrap_or_default(), context_id, history, wait })
            }
            CallKind::List(list) => {
                let page_token = fields.first(tag::PAGE_TOKEN);
                Call::List(List { context_id, page_token, ..list })
            }
            CallKind::Cancel(aim) => Call::Cancel(target(aim)),
            CallKind::Subscribe(aim) => Call::Subscribe(target(aim)),
            CallKind::Push(kind, form) => Call::Push(PushRequest { call: kind.view(fields), form }),
            CallKind::ExtendedCard => Call::ExtendedCard,
        }
    }
}
