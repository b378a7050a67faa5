//! The events of a task, and their encoding as entries of a log.

use super::{
    entry::{ENTRY_HEAD, NEXT, entry_head, mark},
    json::JsonObject,
    pack::{Artifact, Message, MoreParts},
    part::Part,
    state::TaskState,
};

/// One change of a task, as used in memory, streams and journals.
#[derive(Clone, Copy)]
pub enum TaskEvent<'a> {
    /// A client's message is added to the history, without a sequence number of its own.
    UserMessage {
        /// The message as received.
        message: Message<'a>,
    },
    /// The state changes (A2A 1.0 §4.2.1).
    Status {
        /// The new state.
        state: TaskState,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
        /// The agent's message.
        message: Option<Message<'a>>,
        /// Metadata of the event.
        metadata: Option<JsonObject<'a>>,
    },
    /// An artifact appears or grows (A2A 1.0 §4.2.2).
    Artifact {
        /// The artifact, or the chunk to append.
        artifact: Artifact<'a>,
        /// True: extends the parts of the artifact with this id; false: replaces it.
        append: bool,
        /// True: nothing more will be appended.
        last_chunk: bool,
        /// Metadata of the event.
        metadata: Option<JsonObject<'a>>,
    },
}

/// Kind bytes of encoded events.
pub(super) mod kind {
    pub const USER_MESSAGE: u8 = 1;
    pub const STATUS: u8 = 2;
    pub const ARTIFACT: u8 = 3;
}

/// Bits of an encoded artifact event's flag byte.
const APPEND: u8 = 1;
const LAST_CHUNK: u8 = 2;
pub(super) const REPEATS: u8 = 4;
const CONTINUES: u8 = 8;

/// Set in the flag byte of an artifact or a status with metadata. The other bits of a status flag
/// are its state.
const METADATA: u8 = 0x80;

#[inline]
pub(super) fn artifact_flag(append: bool, last_chunk: bool) -> u8 {
    (u8::from(append) * APPEND) | (u8::from(last_chunk) * LAST_CHUNK)
}

#[inline]
fn metadata_flag(metadata: Option<JsonObject<'_>>) -> u8 {
    if metadata.is_some() { METADATA } else { 0 }
}

/// The flag of a chunk of one part without the id of its artifact.
#[inline]
pub(super) fn continuing_flag(last_chunk: bool) -> u8 {
    artifact_flag(true, last_chunk) | CONTINUES
}

/// The state in the flag of a status.
#[inline]
pub(super) fn state_of(flag: u8) -> Option<TaskState> {
    TaskState::from_number(flag & !METADATA)
}

/// True when the flag of an artifact marks it as a chunk.
pub(super) fn is_append(flag: u8) -> bool {
    flag & APPEND != 0
}

/// True when the flag of an artifact marks a payload that ends with a reference to repeated parts.
#[inline]
pub(super) fn is_repeating(flag: u8) -> bool {
    flag & REPEATS != 0
}

/// True when the flag of an artifact marks a payload of one part only.
#[inline]
pub(super) fn is_continuing(flag: u8) -> bool {
    flag & CONTINUES != 0
}

/// True when a flag marks a payload with metadata.
#[inline]
pub(super) fn has_metadata(flag: u8) -> bool {
    flag & METADATA != 0
}

/// Bytes of a status's payload before its metadata.
const STATUS_HEAD: usize = 8;

/// Encoded bytes of metadata.
fn metadata_len(metadata: Option<JsonObject<'_>>) -> usize {
    metadata.map_or(0, |metadata| 4 + metadata.raw().len())
}

fn push_metadata(out: &mut Vec<u8>, metadata: Option<JsonObject<'_>>) {
    if let Some(metadata) = metadata.map(JsonObject::raw) {
        out.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        out.extend_from_slice(metadata);
    }
}

/// Splits bytes into metadata and the rest.
pub(super) fn split_metadata(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Conversion of an event to and from the columns of its encoding: `kind, flag, payload`.
///
/// Payloads: user message = message; status = `at_ms u64, metadata, message`; artifact = `next u32,
/// metadata, artifact`, followed by the start and end of the repeated parts in the log, u32 each,
/// if it repeats the task's first message; continuing chunk = the part. Metadata is stored after
/// its length u32, if the flag has the bit `METADATA`.
impl<'a> TaskEvent<'a> {
    /// Length of the payload in bytes.
    pub fn payload_len(&self) -> usize {
        match self {
            TaskEvent::UserMessage { message } => message.0.len(),
            TaskEvent::Status { message, metadata, .. } => {
                STATUS_HEAD + metadata_len(*metadata) + message.map_or(0, |m| m.0.len())
            }
            TaskEvent::Artifact { artifact, metadata, .. } => {
                NEXT + metadata_len(*metadata) + artifact.packed_len()
            }
        }
    }

    /// A chunk of one part, of the artifact with this id field.
    #[inline]
    pub(super) fn chunk(id_field: &'a [u8], part: Part<'a>, flag: u8) -> TaskEvent<'a> {
        let artifact = Artifact { packed: id_field, more: MoreParts::One(part) };
        let (append, last_chunk) = (flag & APPEND != 0, flag & LAST_CHUNK != 0);
        TaskEvent::Artifact { artifact, append, last_chunk, metadata: None }
    }

    /// The part and the flag, if the event is a chunk of one part of the artifact with this id
    /// field.
    #[inline]
    pub(super) fn as_chunk_of(&self, id_field: &[u8]) -> Option<(Part<'a>, u8)> {
        match *self {
            TaskEvent::Artifact { artifact, append: true, last_chunk, metadata: None } => {
                Some((artifact.lone_part(id_field)?, continuing_flag(last_chunk)))
            }
            TaskEvent::UserMessage { .. }
            | TaskEvent::Status { .. }
            | TaskEvent::Artifact { .. } => None,
        }
    }

    /// Appends the event as an entry that is not in a task's log yet.
    #[inline(always)]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            TaskEvent::Status { state, at_ms, message: None, metadata: None } => {
                let mut entry = [0; ENTRY_HEAD + STATUS_HEAD];
                let columns = entry_head(STATUS_HEAD, kind::STATUS, state as u8);
                entry[..ENTRY_HEAD].copy_from_slice(&columns);
                entry[ENTRY_HEAD..].copy_from_slice(&at_ms.to_le_bytes());
                out.extend_from_slice(&entry);
            }
            TaskEvent::UserMessage { .. }
            | TaskEvent::Status { .. }
            | TaskEvent::Artifact { .. } => {
                self.encode_any(out);
            }
        }
    }

    fn encode_any(&self, out: &mut Vec<u8>) {
        out.reserve(ENTRY_HEAD + self.payload_len());
        let payload_len = self.payload_len();
        match *self {
            TaskEvent::UserMessage { message } => {
                let kind = kind::USER_MESSAGE | mark::MESSAGE;
                out.extend_from_slice(&entry_head(payload_len, kind, 0));
                out.extend_from_slice(message.0);
            }
            TaskEvent::Status { state, at_ms, message, metadata } => {
                let packed = message.map_or(&[][..], |message| message.0);
                let kind = kind::STATUS | if packed.is_empty() { 0 } else { mark::MESSAGE };
                let flag = state as u8 | metadata_flag(metadata);
                out.extend_from_slice(&entry_head(payload_len, kind, flag));
                out.extend_from_slice(&at_ms.to_le_bytes());
                push_metadata(out, metadata);
                out.extend_from_slice(packed);
            }
            TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
                let flag = artifact_flag(append, last_chunk) | metadata_flag(metadata);
                out.extend_from_slice(&entry_head(payload_len, kind::ARTIFACT, flag));
                out.extend_from_slice(&[0; NEXT]);
                push_metadata(out, metadata);
                artifact.pack(out);
            }
        }
    }

    /// Reads an event back from its columns; `None` for invalid bytes.
    #[inline]
    pub(super) fn decode(kind: u8, flag: u8, payload: &'a [u8]) -> Option<TaskEvent<'a>> {
        let with_metadata = |bytes: &'a [u8]| match has_metadata(flag) {
            true => split_metadata(bytes)
                .map(|(metadata, rest)| (Some(JsonObject::known(metadata)), rest)),
            false => Some((None, bytes)),
        };
        match kind {
            kind::USER_MESSAGE => Some(TaskEvent::UserMessage { message: Message(payload) }),
            kind::STATUS => {
                let (at_ms, rest) = payload.split_first_chunk::<8>()?;
                let (metadata, message) = with_metadata(rest)?;
                Some(TaskEvent::Status {
                    state: state_of(flag)?,
                    at_ms: u64::from_le_bytes(*at_ms),
                    message: (!message.is_empty()).then_some(Message(message)),
                    metadata,
                })
            }
            kind::ARTIFACT => {
                let (metadata, artifact) = with_metadata(payload.get(NEXT..)?)?;
                Some(TaskEvent::Artifact {
                    artifact: Artifact::new(artifact),
                    append: flag & APPEND != 0,
                    last_chunk: flag & LAST_CHUNK != 0,
                    metadata,
                })
            }
            _ => None,
        }
    }
}

/// Appends a chunk as an entry without the id of its artifact.
pub(super) fn encode_chunk(part: Part<'_>, flag: u8, out: &mut Vec<u8>) {
    out.reserve(ENTRY_HEAD + part.0.len());
    out.extend_from_slice(&entry_head(part.0.len(), kind::ARTIFACT, flag));
    out.extend_from_slice(part.0);
}
