//! What a stream gives its reader.

use crate::{
    dialect,
    model::{
        JsonObject, Message, Op, RawText, Received, ReceivedKind, TaskEvent, TaskState, TaskView,
    },
    service::StreamResponse,
};
use dialect::WriteCx;

use super::v1_shape::has_v1_shape;

/// One event of a stream, until the next one is asked for.
#[derive(Clone, Copy)]
pub struct StreamEvent<'a> {
    kind: EventKind<'a>,
    number: Option<u64>,
    metadata: Option<JsonObject<'a>>,
    /// The JSON that came, when it is that of 1.0.
    json: &'a [u8],
}

/// What an event is.
#[derive(Clone, Copy)]
pub enum EventKind<'a> {
    /// The task as it is; a stream mostly begins with it.
    Task(TaskView<'a>),
    /// A direct message: the only event of its stream, unless an agent of before 1.0 sends more.
    Message(Message<'a>),
    /// The status or an artifact changed.
    Change {
        /// The task.
        task_id: RawText<'a>,
        /// Its conversation; empty where the server does not say it (0.1).
        context_id: RawText<'a>,
        /// [`TaskEvent::Status`] or [`TaskEvent::Artifact`], never a client's message.
        change: TaskEvent<'a>,
    },
    /// The stream broke, and what was missed was read from the task: what follows is complete, but
    /// for statuses between the one before and the next, which cannot be known.
    Gap {
        /// The number of the last event before, where the server counts.
        after: Option<u64>,
        /// True: what follows may repeat what was seen, because the server neither counts nor began
        /// with the task.
        may_repeat: bool,
    },
}

impl<'a> StreamEvent<'a> {
    pub(super) fn gap(after: Option<u64>, may_repeat: bool) -> StreamEvent<'a> {
        let kind = EventKind::Gap { after, may_repeat };
        StreamEvent { kind, number: None, metadata: None, json: b"" }
    }

    /// What was received, if it is an item of a stream.
    pub(crate) fn received(
        received: &'a Received,
        number: Option<u64>,
        json: &'a [u8],
    ) -> Option<StreamEvent<'a>> {
        let (kind, metadata) = match received.kind() {
            ReceivedKind::Task => (EventKind::Task(received.task()?), received.task_metadata()),
            ReceivedKind::Message => (EventKind::Message(received.message()?), None),
            ReceivedKind::StatusUpdate => {
                let update = received.status_update()?;
                let change = TaskEvent::Status {
                    state: update.state,
                    at_ms: update.at_ms,
                    message: update.message,
                    metadata: update.metadata,
                };
                let (task_id, context_id) = (update.task_id, update.context_id);
                (EventKind::Change { task_id, context_id, change }, None)
            }
            ReceivedKind::ArtifactUpdate => {
                let update = received.artifact_update()?;
                let change = TaskEvent::Artifact {
                    artifact: update.artifact,
                    append: update.append,
                    last_chunk: update.last_chunk,
                    metadata: update.metadata,
                };
                let (task_id, context_id) = (update.task_id, update.context_id);
                (EventKind::Change { task_id, context_id, change }, None)
            }
            ReceivedKind::Nothing
            | ReceivedKind::Page
            | ReceivedKind::PushConfig
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => return None,
        };
        Some(StreamEvent { kind, number, metadata, json })
    }

    /// A task as an event, for a reader that has put one together from others; it has no number.
    pub fn of_task(view: TaskView<'a>) -> StreamEvent<'a> {
        StreamEvent { kind: EventKind::Task(view), number: None, metadata: None, json: b"" }
    }

    pub(super) fn change(
        task_id: RawText<'a>,
        context_id: RawText<'a>,
        change: TaskEvent<'a>,
    ) -> StreamEvent<'a> {
        let kind = EventKind::Change { task_id, context_id, change };
        StreamEvent { kind, number: None, metadata: None, json: b"" }
    }

    /// What it is.
    pub fn kind(&self) -> EventKind<'a> {
        self.kind
    }

    /// Its number in the stream, where the server counts: for `Client::subscribe` to go on after
    /// it, in another process if need be.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The task that it is about; `None`: it is a direct message or a gap.
    pub fn task_id(&self) -> Option<RawText<'a>> {
        match self.kind {
            EventKind::Task(view) => Some(view.id()),
            EventKind::Change { task_id, .. } => Some(task_id),
            EventKind::Message(message) => message.task_id(),
            EventKind::Gap { .. } => None,
        }
    }

    /// The state that the task has with it, if it says.
    pub fn state(&self) -> Option<TaskState> {
        match self.kind {
            EventKind::Task(view) => Some(view.status().state),
            EventKind::Change { change: TaskEvent::Status { state, .. }, .. } => Some(state),
            EventKind::Change { .. } | EventKind::Message(_) | EventKind::Gap { .. } => None,
        }
    }

    /// `Task.metadata` of a task.
    pub fn task_metadata(&self) -> Option<JsonObject<'a>> {
        self.metadata
    }

    /// Its JSON if it came as that of 1.0; empty otherwise.
    #[cfg(feature = "load")]
    pub(crate) fn v1_json(&self) -> &'a [u8] {
        self.json
    }

    /// Appends its JSON, a `StreamResponse` of 1.0: as it came if it came so, else written anew,
    /// whatever it was wrapped in. It is read again for that. False: it is a gap, and nothing was
    /// written.
    pub fn write_json(&self, out: &mut Vec<u8>) -> bool {
        let Some(item) = self.item() else { return false };
        let start = out.len();
        let is_written = (dialect::V1.encode.event)(out, &item, &WriteCx::new(Op::Stream));
        if !self.json.is_empty() && has_v1_shape(self.json, &out[start..]) {
            out.truncate(start);
            out.extend_from_slice(self.json);
        }
        is_written
    }

    /// It as an item that servers write; `None`: a gap.
    fn item(&self) -> Option<StreamResponse<'a>> {
        Some(match self.kind {
            EventKind::Task(view) => StreamResponse::Snapshot(view),
            EventKind::Message(message) => {
                let context_id = message.context_id().unwrap_or_default();
                StreamResponse::Message { message, context_id }
            }
            EventKind::Change { task_id, context_id, change } => StreamResponse::Event {
                seq: self.number.unwrap_or(0),
                event: change,
                artifact_index: 0,
                task_id,
                context_id,
                last: false,
            },
            EventKind::Gap { .. } => return None,
        })
    }
}
