//! The events of a stream.

use crate::{
    dialect,
    model::{
        JsonObject, Message, Op, RawText, Received, ReceivedKind, TaskEvent, TaskState, TaskView,
    },
    service::StreamResponse,
};
use dialect::WriteCx;

use super::v1_shape::has_v1_shape;

/// One event of a stream, valid until the next event is requested.
#[derive(Clone, Copy)]
pub struct StreamEvent<'a> {
    kind: EventKind<'a>,
    number: Option<u64>,
    metadata: Option<JsonObject<'a>>,
    /// The received JSON, if it is JSON of 1.0.
    json: &'a [u8],
}

/// The kind of an event.
#[derive(Clone, Copy)]
pub enum EventKind<'a> {
    /// A snapshot of the task; most streams begin with it.
    Task(TaskView<'a>),
    /// A direct message: the only event of its stream, unless an agent older than 1.0 sends more.
    Message(Message<'a>),
    /// The status or an artifact changed.
    Change {
        /// The id of the task.
        task_id: RawText<'a>,
        /// The context id; empty if the server does not send it (0.1).
        context_id: RawText<'a>,
        /// [`TaskEvent::Status`] or [`TaskEvent::Artifact`], never a client's message.
        change: TaskEvent<'a>,
    },
    /// The stream broke, and the missed changes were read from the task. The following events are
    /// complete, except for intermediate statuses, which cannot be recovered.
    Gap {
        /// The number of the last event before the gap, if the server numbers events.
        after: Option<u64>,
        /// True: the following events may repeat earlier ones, because the server neither numbers
        /// events nor began with the task.
        may_repeat: bool,
    },
}

impl<'a> StreamEvent<'a> {
    pub(super) fn gap(after: Option<u64>, may_repeat: bool) -> StreamEvent<'a> {
        let kind = EventKind::Gap { after, may_repeat };
        StreamEvent { kind, number: None, metadata: None, json: b"" }
    }

    /// The event of a received item; `None`: the item does not belong to a stream.
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

    /// An event with a task that the reader has assembled from other events; it has no number.
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

    /// The kind of the event.
    pub fn kind(&self) -> EventKind<'a> {
        self.kind
    }

    /// The number of the event, if the server numbers events: `Client::subscribe` resumes after
    /// this number, also in another process.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The id of the task; `None`: the event is a gap, or a message that names no task.
    pub fn task_id(&self) -> Option<RawText<'a>> {
        match self.kind {
            EventKind::Task(view) => Some(view.id()),
            EventKind::Change { task_id, .. } => Some(task_id),
            EventKind::Message(message) => message.task_id(),
            EventKind::Gap { .. } => None,
        }
    }

    /// The state of the task, if the event has it.
    pub fn state(&self) -> Option<TaskState> {
        match self.kind {
            EventKind::Task(view) => Some(view.status().state),
            EventKind::Change { change: TaskEvent::Status { state, .. }, .. } => Some(state),
            EventKind::Change { .. } | EventKind::Message(_) | EventKind::Gap { .. } => None,
        }
    }

    /// `Task.metadata`, if the event is a task.
    pub fn task_metadata(&self) -> Option<JsonObject<'a>> {
        self.metadata
    }

    /// The received JSON if it is JSON of 1.0; empty otherwise.
    #[cfg(feature = "load")]
    pub(crate) fn v1_json(&self) -> &'a [u8] {
        self.json
    }

    /// Appends the event as a `StreamResponse` of 1.0, without an envelope: the received bytes if
    /// they have this form, otherwise the event serialized again. The check reads the received
    /// bytes again. False: the event is a gap, and nothing was written.
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

    /// The event as an item that servers write; `None`: a gap.
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
