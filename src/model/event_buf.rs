//! The packed list of an agent's events that wait to be applied.

use super::{
    build::ArtifactBuf,
    entry::{ENTRY_HEAD, Entries, Entry, FLAG_AT, KIND_AT, NEXT, PARTS_RANGE},
    event::{REPEATS, TaskEvent, artifact_flag, continuing_flag, encode_chunk, kind},
    pack::{Artifact, Message, MoreParts, Packer},
};
#[cfg(feature = "script")]
use super::{entry::mark, state::TaskState};

/// Encoded events one after another, each as an entry that is not in a task's log yet.
///
/// A list is reused from call to call, so that an agent that answers inline allocates nothing.
#[derive(Default)]
pub struct EventBuf {
    bytes: Vec<u8>,
    count: usize,
    artifacts: usize,
    /// The offset of the newest entry with an artifact id, if there is one.
    named_at: Option<usize>,
}

impl EventBuf {
    /// Reserves this many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Appends one event.
    #[inline]
    pub fn push(&mut self, event: &TaskEvent<'_>) {
        match event {
            TaskEvent::Artifact { .. } => self.push_artifact(event),
            TaskEvent::UserMessage { .. } | TaskEvent::Status { .. } => {
                event.encode(&mut self.bytes);
            }
        }
        self.count += 1;
    }

    #[inline(never)]
    fn push_artifact(&mut self, event: &TaskEvent<'_>) {
        match self.named().and_then(|named| event.as_chunk_of(named.id_field())) {
            Some((part, flag)) => encode_chunk(part, flag, &mut self.bytes),
            None => {
                self.named_at = Some(self.bytes.len());
                event.encode(&mut self.bytes);
            }
        }
        self.artifacts += 1;
    }

    /// The newest artifact with an id.
    fn named(&self) -> Option<Artifact<'_>> {
        Entry::at(&self.bytes, self.named_at?).map(|entry| entry.artifact())
    }

    /// Appends a status; `write` packs its message in place (`message_tag` fields).
    #[cfg(feature = "script")]
    #[inline]
    pub(crate) fn push_status_with(
        &mut self,
        state: TaskState,
        at_ms: u64,
        write: impl FnOnce(&mut Packer<'_>),
    ) {
        let start = self.bytes.len();
        self.push(&TaskEvent::Status { state, at_ms, message: None, metadata: None });
        let message_at = self.bytes.len();
        write(&mut Packer(&mut self.bytes));
        let kind = kind::STATUS | if self.bytes.len() > message_at { mark::MESSAGE } else { 0 };
        self.close(start, kind);
    }

    /// Appends an artifact that `write` packs in place (`artifact_tag` fields).
    #[inline]
    pub(crate) fn push_artifact_with(
        &mut self,
        last_chunk: bool,
        write: impl FnOnce(&mut Packer<'_>),
    ) {
        self.named_at = Some(self.bytes.len());
        let mut head = [0; ENTRY_HEAD + NEXT];
        head[FLAG_AT] = artifact_flag(false, last_chunk);
        self.push_artifact_entry(&head, write);
    }

    /// Appends one part, which `write` packs in place (`part_tag` fields), to the newest artifact
    /// of the list.
    #[inline]
    pub(crate) fn push_part_with(&mut self, last_chunk: bool, write: impl FnOnce(&mut Packer<'_>)) {
        let mut head = [0; ENTRY_HEAD];
        head[FLAG_AT] = continuing_flag(last_chunk);
        self.push_artifact_entry(&head, write);
    }

    #[inline(always)]
    fn push_artifact_entry(&mut self, head: &[u8], write: impl FnOnce(&mut Packer<'_>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(head);
        write(&mut Packer(&mut self.bytes));
        (self.count, self.artifacts) = (self.count + 1, self.artifacts + 1);
        self.close(start, kind::ARTIFACT);
    }

    /// Appends a whole artifact with the parts of the task's first message, without copying them;
    /// `head` has no parts. Only for the turn that creates the task: if the message cannot be
    /// repeated later, the artifact has no parts.
    /// [`Turn::artifact_of_message`](crate::agent::Turn::artifact_of_message) uses this function or
    /// copies the parts.
    pub fn push_repeat(&mut self, head: &ArtifactBuf) {
        self.push_repeat_with(|packer| packer.0.extend_from_slice(head.view().packed));
    }

    /// As [`EventBuf::push_repeat`], with a head that `write` packs in place.
    #[inline]
    pub(crate) fn push_repeat_with(&mut self, write: impl FnOnce(&mut Packer<'_>)) {
        let start = self.bytes.len();
        self.push_artifact_with(true, |packer| {
            write(packer);
            packer.0.extend_from_slice(&[0; PARTS_RANGE]);
        });
        self.bytes[start + FLAG_AT] |= REPEATS;
    }

    /// Sets the length and the kind of the newest entry after its payload was packed.
    #[inline]
    fn close(&mut self, start: usize, kind: u8) {
        let length = (self.bytes.len() - start) as u32;
        let entry = self.bytes.get_mut(start..).and_then(|entry| entry.first_chunk_mut());
        if let Some::<&mut [u8; ENTRY_HEAD]>(head) = entry {
            head[..4].copy_from_slice(&length.to_le_bytes());
            head[KIND_AT] = kind;
        }
    }

    /// Removes all events, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.artifacts, self.named_at) = (0, 0, None);
    }

    /// Moves all events to memory of their exact size.
    pub(crate) fn take_exact(&mut self) -> EventBuf {
        let bytes = self.bytes.as_slice().to_vec();
        let moved = EventBuf { bytes, ..*self };
        self.clear();
        moved
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is no event.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encoded size in bytes: the bytes that the events will need in a task's log.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The entries.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of artifacts and chunks among the events.
    pub(super) fn artifacts(&self) -> usize {
        self.artifacts
    }

    /// The events, oldest first; `first` is the message that some of them may repeat.
    pub fn iter<'a>(&'a self, first: Option<Message<'a>>) -> impl Iterator<Item = TaskEvent<'a>> {
        let mut id_field = &b""[..];
        Entries { log: &self.bytes, at: 0 }.map_while(move |(_, entry)| {
            if entry.is_artifact() && !entry.is_continuing() {
                id_field = entry.artifact().id_field();
            }
            let event = entry.event(id_field)?;
            Some(match (event, first) {
                (TaskEvent::Artifact { artifact, append, last_chunk, metadata }, Some(first))
                    if entry.is_repeating() =>
                {
                    let artifact = Artifact { more: MoreParts::OfMessage(first), ..artifact };
                    TaskEvent::Artifact { artifact, append, last_chunk, metadata }
                }
                (event, _) => event,
            })
        })
    }
}
