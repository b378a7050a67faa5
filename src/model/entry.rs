//! One entry of a task's log: fixed columns, then the payload of an event.
//!
//! Pending events of an agent have the same form ([`super::EventBuf`]), so one copy adds them to a
//! log. Most entries of a long log are chunks of one part, without the id of their artifact: in a
//! list such a chunk belongs to the preceding artifact, in a log the column `index` identifies the
//! artifact.

use super::{
    event::{TaskEvent, has_metadata, is_continuing, is_repeating, kind, split_metadata},
    pack::{Artifact, FIELD_HEAD, Message, MoreParts, artifact_tag},
    part::Part,
};

/// Fixed columns before each entry's payload.
///
/// `length u32` includes the columns; `seq` and `dead` (sequence number of the event that replaced
/// the entry, 0 = alive) are u32; then `kind u8` with marks in its high bits, `flag u8` and `index
/// u16` (which artifact). The payload of an artifact begins with a further column, `next u32`
/// (offset of its next chunk, 0 = none). A continuing chunk has `next` in place of `dead`, since it
/// dies with the first entry of its artifact.
pub const ENTRY_HEAD: usize = 16;
/// The offset of the sequence number.
pub const SEQ_AT: usize = 4;
/// The offset of the sequence number of the event that replaced the entry.
pub const DEAD_AT: usize = 8;
/// The offset of the kind and its marks.
pub const KIND_AT: usize = 12;
/// The offset of the flag.
pub const FLAG_AT: usize = 13;
/// The offset of the artifact's index.
pub const INDEX_AT: usize = 14;
/// Bytes of the offset of the next chunk.
pub const NEXT: usize = 4;

/// The offset of the next-chunk column in an artifact with this flag.
#[inline]
pub fn next_at(flag: u8) -> usize {
    if is_continuing(flag) { DEAD_AT } else { ENTRY_HEAD }
}

/// Bytes of a reference to repeated parts: their start and end in the log, a u32 each.
pub const PARTS_RANGE: usize = 8;

/// Marks in the high bits of the kind column; the other bits are the kind.
pub mod mark {
    /// A user message, or a status with a message.
    pub const MESSAGE: u8 = 0x80;
    /// A chunk of an artifact that began in an earlier entry.
    pub const CHUNK: u8 = 0x40;
}

/// The columns of an entry that is not in a task's log yet.
#[inline]
pub fn entry_head(payload_len: usize, kind: u8, flag: u8) -> [u8; ENTRY_HEAD] {
    let mut head = [0; ENTRY_HEAD];
    head[..4].copy_from_slice(&((ENTRY_HEAD + payload_len) as u32).to_le_bytes());
    head[KIND_AT] = kind;
    head[FLAG_AT] = flag;
    head
}

/// One entry of a log.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    log: &'a [u8],
    head: &'a [u8; ENTRY_HEAD],
    pub payload: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry that starts at `at`; `None` at the end of the log.
    #[inline]
    pub fn at(log: &'a [u8], at: usize) -> Option<Entry<'a>> {
        let (head, rest) = log.get(at..)?.split_first_chunk()?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let payload = rest.get(..length.checked_sub(ENTRY_HEAD)?)?;
        Some(Entry { log, head, payload })
    }

    #[inline]
    fn column<const AT: usize>(&self) -> u32 {
        let head = self.head;
        u32::from_le_bytes([head[AT], head[AT + 1], head[AT + 2], head[AT + 3]])
    }

    /// Bytes of the whole entry.
    #[inline]
    pub fn len(&self) -> usize {
        ENTRY_HEAD + self.payload.len()
    }

    #[inline]
    pub fn seq(&self) -> u32 {
        self.column::<SEQ_AT>()
    }

    /// The offset of the artifact's next chunk; 0: there is none.
    #[inline]
    pub fn next(&self) -> usize {
        if self.is_continuing() {
            return self.column::<DEAD_AT>() as usize;
        }
        self.payload.first_chunk::<NEXT>().map_or(0, |next| u32::from_le_bytes(*next) as usize)
    }

    /// Sequence number of the event that replaced the entry; 0: alive. Not stored in a
    /// [continuing](Entry::is_continuing) entry: use `Deaths`.
    #[inline]
    pub fn dead(&self) -> u32 {
        self.column::<DEAD_AT>()
    }

    /// The index of its artifact in the task.
    #[inline]
    pub fn index(&self) -> u16 {
        u16::from_le_bytes([self.head[INDEX_AT], self.head[INDEX_AT + 1]])
    }

    /// True when the entry is alive in the task as it was after event `seq`.
    #[inline]
    pub fn lives_at(&self, seq: u32) -> bool {
        self.seq() <= seq && (self.dead() == 0 || self.dead() > seq)
    }

    #[inline]
    pub fn kind(&self) -> u8 {
        self.head[KIND_AT] & !(mark::MESSAGE | mark::CHUNK)
    }

    #[inline]
    pub fn flag(&self) -> u8 {
        self.head[FLAG_AT]
    }

    /// Appends the entry to another log, unchanged.
    pub fn copy_to(&self, log: &mut Vec<u8>) {
        log.extend_from_slice(self.head);
        log.extend_from_slice(self.payload);
    }

    /// The event; `id_field` is the id field of its artifact, which a
    /// [continuing](Entry::is_continuing) entry does not contain.
    #[inline(always)]
    pub fn event(&self, id_field: &'a [u8]) -> Option<TaskEvent<'a>> {
        match self.lone_part() {
            Some(part) => Some(TaskEvent::chunk(id_field, part, self.flag())),
            None if self.is_repeating() => self.repeating_event(),
            None => self.plain_event(),
        }
    }

    /// The artifact of an artifact entry; for a [continuing](Entry::is_continuing) entry, an
    /// artifact with only its part.
    pub fn chunk(&self) -> Artifact<'a> {
        match self.lone_part() {
            Some(part) => Artifact { packed: b"", more: MoreParts::One(part) },
            None => self.artifact(),
        }
    }

    /// True for a chunk of one part without the id of its artifact.
    #[inline]
    pub fn is_continuing(&self) -> bool {
        self.kind() == kind::ARTIFACT && is_continuing(self.flag())
    }

    /// The only part of a [continuing](Entry::is_continuing) entry.
    #[inline]
    fn lone_part(&self) -> Option<Part<'a>> {
        self.is_continuing().then_some(Part(self.payload))
    }

    /// The event of an entry that contains it completely, like every user message and status.
    #[inline]
    pub fn plain_event(&self) -> Option<TaskEvent<'a>> {
        TaskEvent::decode(self.kind(), self.flag(), self.payload)
    }

    #[cold]
    #[inline(never)]
    fn repeating_event(&self) -> Option<TaskEvent<'a>> {
        let event = TaskEvent::decode(self.kind(), self.flag(), self.own_payload())?;
        Some(match event {
            TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
                let artifact = Artifact { more: self.repeated(), ..artifact };
                TaskEvent::Artifact { artifact, append, last_chunk, metadata }
            }
            TaskEvent::UserMessage { .. } | TaskEvent::Status { .. } => event,
        })
    }

    #[inline]
    pub fn is_artifact(&self) -> bool {
        self.kind() == kind::ARTIFACT
    }

    /// True for an artifact with a payload that ends with a reference to repeated parts.
    #[inline]
    pub fn is_repeating(&self) -> bool {
        // The flag of a status is its state, so the kind is compared, too.
        self.kind() == kind::ARTIFACT && is_repeating(self.flag())
    }

    /// The payload of a repeating entry without the reference to the repeated parts.
    fn own_payload(&self) -> &'a [u8] {
        self.payload.get(..self.payload.len().saturating_sub(PARTS_RANGE)).unwrap_or_default()
    }

    /// The parts that a repeating entry repeats, or their message; none while the entry is not in a
    /// task's log.
    #[inline]
    fn repeated(&self) -> MoreParts<'a> {
        let range =
            self.payload.last_chunk::<PARTS_RANGE>().map_or(0, |range| u64::from_le_bytes(*range));
        let (from, to) = (range as u32 as usize, (range >> 32) as usize);
        let message = self.log.get(from..to).filter(|_| from > 0).map(Message);
        message.map_or(MoreParts::None, MoreParts::OfMessage)
    }

    /// The artifact of an artifact entry, without the metadata of the event; the entry must not be
    /// [continuing](Entry::is_continuing).
    #[inline]
    pub fn artifact(&self) -> Artifact<'a> {
        let (payload, more) = match is_repeating(self.flag()) {
            true => (self.own_payload(), self.repeated()),
            false => (self.payload, MoreParts::None),
        };
        let packed = match has_metadata(self.flag()) {
            true => payload.get(NEXT..).and_then(split_metadata).map(|(_, packed)| packed),
            false => payload.get(NEXT..),
        };
        Artifact { packed: packed.unwrap_or_default(), more }
    }

    /// The fields of an artifact event with an id and without metadata.
    #[inline]
    pub fn plain_artifact(&self) -> Option<&'a [u8]> {
        let is_plain = !has_metadata(self.flag()) && !is_continuing(self.flag());
        self.payload.get(NEXT..).filter(|_| is_plain)
    }

    /// The id field of an artifact or a chunk, if it comes first and the event has no metadata.
    #[inline]
    pub fn artifact_key(&self) -> Option<&'a [u8]> {
        let fields = self.plain_artifact()?;
        let head: &[u8; FIELD_HEAD] = fields.first_chunk()?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        fields.get(..FIELD_HEAD + length).filter(|_| head[0] == artifact_tag::ARTIFACT_ID)
    }

    /// The message of an entry that [holds](Entry::holds_message) one.
    #[inline]
    pub fn message(&self) -> Option<Message<'a>> {
        match self.plain_event()? {
            TaskEvent::UserMessage { message } => Some(message),
            TaskEvent::Status { message, .. } => message,
            TaskEvent::Artifact { .. } => None,
        }
    }

    /// True for a user message and for a status with a message.
    #[inline]
    pub fn holds_message(&self) -> bool {
        self.head[KIND_AT] & mark::MESSAGE != 0
    }

    /// True for the first entry of an artifact.
    #[inline]
    pub fn is_artifact_start(&self) -> bool {
        self.head[KIND_AT] == kind::ARTIFACT
    }

    #[inline]
    pub fn is_user_message(&self) -> bool {
        self.kind() == kind::USER_MESSAGE
    }
}

/// The entries of a log from an offset on, with their offsets.
pub struct Entries<'a> {
    pub log: &'a [u8],
    pub at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, Entry<'a>);

    #[inline]
    fn next(&mut self) -> Option<(usize, Entry<'a>)> {
        let at = self.at;
        let entry = Entry::at(self.log, at)?;
        self.at += entry.len();
        Some((at, entry))
    }
}
