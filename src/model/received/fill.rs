//! Filling a server's answer: the interface for readers.

use std::ops::Range;

use super::{Numbers, Received, ReceivedKind, ReceivedTask, tag};
use crate::model::{
    event::TaskEvent,
    json::JsonObject,
    owned::TaskBuf,
    pack::{Artifact, Message, Packer},
    state::{Generation, TaskState},
    task::Refusal,
    text::RawText,
};

/// The possible answers of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Shapes {
    /// A task.
    Task,
    /// A task or a message.
    Answer,
    /// A task, a message, or an event of a stream.
    Item,
}

impl Shapes {
    pub fn allow(self, kind: ReceivedKind) -> bool {
        match kind {
            ReceivedKind::Task => true,
            ReceivedKind::Message => matches!(self, Shapes::Answer | Shapes::Item),
            ReceivedKind::StatusUpdate | ReceivedKind::ArtifactUpdate | ReceivedKind::Nothing => {
                matches!(self, Shapes::Item)
            }
            ReceivedKind::Page
            | ReceivedKind::PushConfig
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => false,
        }
    }

    pub fn expected(self) -> &'static str {
        match self {
            Shapes::Task => "must be a task",
            Shapes::Answer => "must be a task or a message",
            Shapes::Item => "must be a task, a message, a status update or an artifact update",
        }
    }
}

/// The result of reading a status.
#[derive(Clone, Copy)]
pub(crate) struct ReadStatus {
    pub state: TaskState,
    pub at_ms: u64,
    /// True: the data packed last is its message.
    pub has_message: bool,
}

impl Received {
    /// Removes all content, keeping the memory.
    pub fn clear(&mut self) {
        self.kind = ReceivedKind::Nothing;
        self.fields.clear();
        self.tasks_len = 0;
        self.numbers = Numbers::default();
        self.span = 0..0;
    }

    /// Sets the kind of the content.
    pub(crate) fn set_kind(&mut self, kind: ReceivedKind) {
        self.kind = kind;
    }

    pub(crate) fn set_span(&mut self, span: Range<usize>) {
        self.span = span;
    }

    /// Empty memory in which a message or an artifact is packed before it is added to a task;
    /// return it by [`Received::keep_scratch`].
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    pub(crate) fn keep_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// Begins one more task.
    pub(crate) fn begin_task(
        &mut self,
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
    ) -> Result<TaskFiller<'_>, Refusal> {
        match self.tasks.get_mut(self.tasks_len) {
            Some(held) => {
                held.metadata.clear();
                held.task.renew(id, context_id, generation)?;
            }
            None => {
                let (id, context_id) = (RawText::known(id), RawText::known(context_id));
                let task = TaskBuf::new(id, context_id, generation)?;
                self.tasks.push(ReceivedTask { task, metadata: Vec::new() });
            }
        }
        self.tasks_len += 1;
        let held = &mut self.tasks[self.tasks_len - 1];
        Ok(TaskFiller { held })
    }

    /// Number of tasks so far.
    pub(crate) fn tasks_len(&self) -> usize {
        self.tasks_len
    }

    /// Sets the task and the conversation of an event.
    pub(crate) fn event_ids(&mut self, task_id: &[u8], context_id: &[u8]) {
        let mut packer = Packer(&mut self.fields);
        packer.put(tag::TASK_ID, task_id);
        packer.put(tag::CONTEXT_ID, context_id);
    }

    /// Adds the packed message of an event.
    pub(crate) fn put_message(&mut self, packed: &[u8]) {
        Packer(&mut self.fields).put(tag::MESSAGE, packed);
    }

    /// Packs a direct message in place.
    pub(crate) fn pack_message<T, E>(
        &mut self,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.nested(tag::MESSAGE, pack)
    }

    /// Packs an artifact in place.
    pub(crate) fn pack_artifact<T, E>(
        &mut self,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.nested(tag::ARTIFACT, pack)
    }

    /// Packs one more push configuration.
    pub(crate) fn pack_config<T, E>(
        &mut self,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.nested(tag::CONFIG, pack)
    }

    fn nested<T, E>(
        &mut self,
        tag: u8,
        pack: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<T, E> {
        let open = Packer(&mut self.fields).open(tag);
        let packed = pack(&mut self.fields)?;
        Packer(&mut self.fields).close(open);
        Ok(packed)
    }

    pub(crate) fn set_status(&mut self, state: TaskState, at_ms: u64, is_final: bool) {
        let numbers = &mut self.numbers;
        (numbers.state, numbers.at_ms, numbers.is_final) = (Some(state), at_ms, is_final);
    }

    pub(crate) fn set_chunk(&mut self, append: bool, last_chunk: bool) {
        (self.numbers.append, self.numbers.last_chunk) = (append, last_chunk);
    }

    /// Adds the metadata of an event.
    pub(crate) fn put_metadata(&mut self, metadata: JsonObject<'_>) {
        Packer(&mut self.fields).put(tag::METADATA, metadata.raw());
    }

    pub(crate) fn put_card(&mut self, card: JsonObject<'_>) {
        Packer(&mut self.fields).put(tag::CARD, card.raw());
    }

    pub(crate) fn put_next_page(&mut self, token: &[u8]) {
        Packer(&mut self.fields).put(tag::NEXT_PAGE, token);
    }

    pub(crate) fn set_page(&mut self, page_size: u32, total_size: u64) {
        (self.numbers.page_size, self.numbers.total_size) = (page_size, total_size);
    }
}

/// A task that is being read: first its history, then its artifacts, finally its status.
pub(crate) struct TaskFiller<'r> {
    held: &'r mut ReceivedTask,
}

impl TaskFiller<'_> {
    pub fn message(&mut self, message: Message<'_>) -> Result<(), Refusal> {
        self.held.task.user_message(message)
    }

    /// Adds an artifact; an artifact with the id of an earlier one is a chunk of that artifact.
    pub fn artifact(&mut self, artifact: Artifact<'_>, last_chunk: bool) -> Result<(), Refusal> {
        let append = true;
        self.held.task.apply(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: None })
    }

    pub fn status(&mut self, status: ReadStatus, packed: &[u8]) -> Result<(), Refusal> {
        let ReadStatus { state, at_ms, has_message } = status;
        let message = has_message.then_some(Message(packed));
        self.held.task.apply(&TaskEvent::Status { state, at_ms, message, metadata: None })
    }

    pub fn metadata(&mut self, metadata: JsonObject<'_>) {
        self.held.metadata.extend_from_slice(metadata.raw());
    }
}
