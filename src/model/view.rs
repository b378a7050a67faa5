//! Reading a task: its status, history and artifacts as they were after a given event.

use super::{
    entry::{Entries, Entry},
    event::{TaskEvent, kind},
    json::JsonObject,
    pack::{Artifact, Message, MoreParts, PackedFields, artifact_tag, message_tag},
    part::Part,
    state::{Generation, TaskState},
    task::Task,
    text::RawText,
};

/// A task after one of its events.
#[derive(Clone, Copy)]
pub struct TaskView<'a> {
    task: &'a Task,
    seq: u32,
    status_at: usize,
}

/// The status of a task (A2A 1.0 §4.1.2).
#[derive(Clone, Copy)]
pub struct TaskStatus<'a> {
    /// The state.
    pub state: TaskState,
    /// When it was entered, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The agent's message.
    pub message: Option<Message<'a>>,
    /// Metadata of the status.
    pub metadata: Option<JsonObject<'a>>,
}

impl<'a> TaskView<'a> {
    pub(super) fn new(task: &'a Task, seq: u64) -> TaskView<'a> {
        let mut view = TaskView { task, seq: seq as u32, status_at: task.status_at() };
        if u64::from(view.seq) < task.seq() {
            let statuses = view.entries().filter(|(_, entry)| entry.kind() == kind::STATUS);
            view.status_at = statuses.last().map_or(0, |(at, _)| at);
        }
        view
    }

    /// The task with all its events.
    pub(super) fn task(&self) -> &'a Task {
        self.task
    }

    /// The task's id.
    pub fn id(&self) -> RawText<'a> {
        RawText::known(self.task.id())
    }

    /// The id of its conversation.
    pub fn context_id(&self) -> RawText<'a> {
        RawText::known(self.task.context_id())
    }

    /// The wire family of the call that created the task.
    pub fn generation(&self) -> Generation {
        self.task.generation()
    }

    /// The last event in this view.
    pub fn seq(&self) -> u64 {
        u64::from(self.seq)
    }

    /// Bytes of the log: about the length of the task's JSON, without punctuation.
    pub fn bytes(&self) -> usize {
        self.task.length()
    }

    /// The status.
    pub fn status(&self) -> TaskStatus<'a> {
        match Entry::at(self.task.log(), self.status_at).and_then(|entry| entry.plain_event()) {
            Some(TaskEvent::Status { state, at_ms, message, metadata }) => {
                TaskStatus { state, at_ms, message, metadata }
            }
            Some(TaskEvent::UserMessage { .. } | TaskEvent::Artifact { .. }) | None => TaskStatus {
                state: TaskState::Unspecified,
                at_ms: 0,
                message: None,
                metadata: None,
            },
        }
    }

    /// The entries up to this view, dead ones included; sequence numbers never decrease in a log.
    #[inline]
    fn entries(&self) -> impl Iterator<Item = (usize, Entry<'a>)> + use<'a> {
        let seq = self.seq;
        Entries { log: self.task.log(), at: self.task.entries_at() }
            .take_while(move |(_, entry)| entry.seq() <= seq)
    }

    #[inline]
    fn is_now(&self) -> bool {
        u64::from(self.seq) == self.task.seq()
    }

    /// The messages of the history.
    #[inline]
    fn messages(&self) -> HistoryMessages<'a> {
        let (task, TaskView { seq, status_at, .. }) = (self.task, *self);
        let (at, remaining) = match self.is_now() {
            true => (task.trimmed_at(), task.history_len()),
            false => (task.entries_at(), u32::MAX),
        };
        HistoryMessages { log: task.log(), at, seq, remaining, status_at }
    }

    /// The newest `most` messages of the history (`None`: all), oldest first.
    ///
    /// The message of the current status is not part of the history (A2A 1.0 §4.1.1).
    #[inline]
    pub fn history(&self, most: Option<u32>) -> impl Iterator<Item = Message<'a>> + use<'a> {
        let mut walk = self.messages();
        if let Some(most) = most {
            let all = if self.is_now() { walk.remaining } else { self.messages().count() as u32 };
            for _ in most..all {
                walk.next();
            }
        }
        walk
    }

    /// The newest message that a client sent.
    pub fn last_user_message(&self) -> Option<Message<'a>> {
        let seq = self.seq;
        let messages =
            self.entries().filter(|(_, entry)| entry.is_user_message() && entry.lives_at(seq));
        messages.last().map(|(_, entry)| Message(entry.payload))
    }

    /// The artifacts, in the order in which they appeared.
    #[inline]
    pub fn artifacts(&self) -> impl Iterator<Item = ArtifactView<'a>> + use<'a> {
        let (task, seq) = (self.task, self.seq);
        let (mut at, mut remaining) = match self.is_now() {
            true => task.artifacts_at(),
            false => (task.entries_at(), usize::MAX),
        };
        std::iter::from_fn(move || {
            let log = task.log();
            while remaining > 0 {
                let entry = Entry::at(log, at).filter(|entry| entry.seq() <= seq)?;
                at += entry.len();
                if entry.is_artifact_start() && entry.lives_at(seq) {
                    remaining -= 1;
                    let (head, index, next) = (entry.artifact(), entry.index(), entry.next());
                    return Some(ArtifactView { log, head, index, next, seq });
                }
            }
            None
        })
    }
}

/// Iterates over the messages of a history.
struct HistoryMessages<'a> {
    log: &'a [u8],
    at: usize,
    seq: u32,
    /// The maximum number of remaining messages.
    remaining: u32,
    /// The current status, which is not part of the history.
    status_at: usize,
}

impl<'a> Iterator for HistoryMessages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        while self.remaining > 0 {
            let at = self.at;
            let entry = Entry::at(self.log, at).filter(|entry| entry.seq() <= self.seq)?;
            self.at += entry.len();
            if entry.holds_message() && at != self.status_at && entry.lives_at(self.seq) {
                self.remaining -= 1;
                return entry.message();
            }
        }
        None
    }
}

/// One artifact with all of its chunks.
#[derive(Clone, Copy)]
pub struct ArtifactView<'a> {
    log: &'a [u8],
    head: Artifact<'a>,
    index: u16,
    /// The offset of the next chunk.
    next: usize,
    seq: u32,
}

impl<'a> ArtifactView<'a> {
    /// Its index in the task, from 0; an artifact that replaces another takes its index.
    pub fn index(&self) -> u32 {
        u32::from(self.index)
    }

    /// The first chunk, with the id, name, description, extensions and metadata of the artifact.
    #[inline]
    pub fn head(&self) -> Artifact<'a> {
        self.head
    }

    /// True when no chunk has been appended.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.next == 0
    }

    /// Fields of the head other than parts.
    pub fn fields(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.head().fields().filter(|(tag, _)| *tag != artifact_tag::PART)
    }

    /// The parts of all chunks, in order.
    #[inline]
    pub fn parts(&self) -> AllParts<'a> {
        let (head, next) = (self.head, self.next);
        let (fields, more, tag) = (head.fields(), head.more, artifact_tag::PART);
        AllParts { log: self.log, fields, tag, more, next, seq: self.seq }
    }
}

/// Iterates over the parts of an artifact and of its chunks.
pub struct AllParts<'a> {
    log: &'a [u8],
    /// The remaining fields of the chunk, or of the message that it repeats, and the tag of the
    /// parts.
    fields: PackedFields<'a>,
    tag: u8,
    /// Further parts, after the fields of the chunk.
    more: MoreParts<'a>,
    /// The offset of the next chunk.
    next: usize,
    seq: u32,
}

impl<'a> Iterator for AllParts<'a> {
    type Item = Part<'a>;

    #[inline]
    fn next(&mut self) -> Option<Part<'a>> {
        loop {
            for (tag, bytes) in self.fields.by_ref() {
                if tag == self.tag {
                    return Some(Part(bytes));
                }
            }
            match std::mem::take(&mut self.more) {
                MoreParts::One(part) => return Some(part),
                MoreParts::OfMessage(message) => {
                    (self.fields, self.tag) = (message.fields(), message_tag::PART);
                }
                MoreParts::None if self.next == 0 => return None,
                MoreParts::None => self.enter_chunk()?,
            }
        }
    }
}

impl AllParts<'_> {
    /// Enters the next chunk; `None`: there is none, or it belongs to a later event.
    #[inline(never)]
    fn enter_chunk(&mut self) -> Option<()> {
        let entry = Entry::at(self.log, self.next).filter(|entry| entry.seq() <= self.seq)?;
        let chunk = entry.chunk();
        (self.fields, self.tag) = (chunk.fields(), artifact_tag::PART);
        (self.more, self.next) = (chunk.more, entry.next());
        Some(())
    }
}

/// A position in a task's events: an offset in the log, valid until the next compaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayPosition {
    offset: u32,
    compactions: u32,
}

impl ReplayPosition {
    /// The position as a number, for storage; [`ReplayPosition::from_bits`] reads it again.
    pub fn bits(self) -> u64 {
        u64::from(self.compactions) << 32 | u64::from(self.offset)
    }

    /// The position from a number; 0: no position yet.
    pub fn from_bits(bits: u64) -> ReplayPosition {
        ReplayPosition { offset: bits as u32, compactions: (bits >> 32) as u32 }
    }
}

/// One replayed event of a task.
pub struct Replayed<'a> {
    /// Its sequence number.
    pub seq: u64,
    /// The event; never a client's message.
    pub event: TaskEvent<'a>,
    /// The index of its artifact in the task, if it has one.
    pub artifact_index: u32,
}

impl Task {
    /// Calls `each` with the events after `seq`, oldest first, until it returns false.
    ///
    /// `position` remembers the position between calls, so that following N events costs O(N).
    /// Returns the sequence number of the last event passed to `each`, or `seq`.
    #[inline]
    pub fn replay<'a>(
        &'a self,
        seq: u64,
        position: &mut ReplayPosition,
        mut each: impl FnMut(Replayed<'a>) -> bool,
    ) -> u64 {
        if position.offset == 0 || position.compactions != self.compactions() {
            *position = ReplayPosition {
                offset: self.entries_at() as u32,
                compactions: self.compactions(),
            };
        }
        let mut last = seq;
        let mut named = (u16::MAX, &b""[..]);
        while let Some(entry) = Entry::at(self.log(), position.offset as usize) {
            let seq = u64::from(entry.seq());
            position.offset += entry.len() as u32;
            if seq <= last || entry.is_user_message() {
                continue;
            }
            last = seq;
            let index = entry.index();
            if entry.is_continuing() && named.0 != index {
                named = (index, self.id_field_of(usize::from(index)));
            }
            if let Some(event) = entry.event(named.1)
                && !each(Replayed { seq, event, artifact_index: u32::from(index) })
            {
                break;
            }
        }
        last
    }
}
