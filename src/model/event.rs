//! What can happen to a task, and the packed list in which an agent's events wait to be applied.

use super::{
    pack::{Artifact, Message, Packer},
    state::TaskState,
};

/// One change of a task: the single value that memory, streams and later journals carry.
#[derive(Clone, Copy)]
pub enum TaskEvent<'a> {
    /// A client's message joins the history; it has no sequence number of its own.
    Turn {
        /// The message as it came.
        message: Message<'a>,
    },
    /// The state changes (A2A 1.0 §4.2.1).
    Status {
        /// The new state.
        state: TaskState,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
        /// What the agent says about it.
        message: Option<Message<'a>>,
        /// Raw JSON object.
        metadata: Option<&'a [u8]>,
    },
    /// An artifact appears or grows (A2A 1.0 §4.2.2).
    Artifact {
        /// The artifact, or the chunk to append.
        artifact: Artifact<'a>,
        /// True: extends the parts of the artifact with this id; false: replaces it.
        append: bool,
        /// True: nothing more will be appended.
        last_chunk: bool,
        /// Raw JSON object.
        metadata: Option<&'a [u8]>,
    },
}

/// Kind bytes of encoded events.
pub(super) mod kind {
    pub const TURN: u8 = 1;
    pub const STATUS: u8 = 2;
    pub const ARTIFACT: u8 = 3;
}

/// Bits of an encoded artifact event's flag byte.
const APPEND: u8 = 1;
const LAST_CHUNK: u8 = 2;

/// An event cut into the columns of its encoding: `kind, flag, payload`.
///
/// Payloads: turn = message; status = `at_ms u64, metadata length u32, metadata, message`;
/// artifact = `metadata length u32, metadata, artifact`.
impl<'a> TaskEvent<'a> {
    pub(super) fn kind(&self) -> u8 {
        match self {
            TaskEvent::Turn { .. } => kind::TURN,
            TaskEvent::Status { .. } => kind::STATUS,
            TaskEvent::Artifact { .. } => kind::ARTIFACT,
        }
    }

    pub(super) fn flag(&self) -> u8 {
        match self {
            TaskEvent::Turn { .. } => 0,
            TaskEvent::Status { state, .. } => *state as u8,
            TaskEvent::Artifact { append, last_chunk, .. } => {
                (if *append { APPEND } else { 0 }) | (if *last_chunk { LAST_CHUNK } else { 0 })
            }
        }
    }

    /// Length of the payload in bytes.
    pub fn payload_len(&self) -> usize {
        match self {
            TaskEvent::Turn { message } => message.0.len(),
            TaskEvent::Status { message, metadata, .. } => {
                12 + metadata.map_or(0, <[u8]>::len) + message.map_or(0, |m| m.0.len())
            }
            TaskEvent::Artifact { artifact, metadata, .. } => {
                4 + metadata.map_or(0, <[u8]>::len) + artifact.0.len()
            }
        }
    }

    pub(super) fn write_payload(&self, out: &mut Vec<u8>) {
        let sized = |out: &mut Vec<u8>, bytes: Option<&[u8]>| {
            let bytes = bytes.unwrap_or_default();
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        match self {
            TaskEvent::Turn { message } => out.extend_from_slice(message.0),
            TaskEvent::Status { at_ms, message, metadata, .. } => {
                out.extend_from_slice(&at_ms.to_le_bytes());
                sized(out, *metadata);
                out.extend_from_slice(message.map_or(&[][..], |m| m.0));
            }
            TaskEvent::Artifact { artifact, metadata, .. } => {
                sized(out, *metadata);
                out.extend_from_slice(artifact.0);
            }
        }
    }

    /// Reads an event back from its columns; `None` on bytes that no event wrote.
    pub(super) fn decode(kind: u8, flag: u8, payload: &'a [u8]) -> Option<TaskEvent<'a>> {
        let sized = |bytes: &'a [u8]| {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            Some(((!value.is_empty()).then_some(value), rest))
        };
        match kind {
            kind::TURN => Some(TaskEvent::Turn { message: Message(payload) }),
            kind::STATUS => {
                let (at_ms, rest) = payload.split_first_chunk::<8>()?;
                let (metadata, message) = sized(rest)?;
                Some(TaskEvent::Status {
                    state: TaskState::from_number(flag)?,
                    at_ms: u64::from_le_bytes(*at_ms),
                    message: (!message.is_empty()).then_some(Message(message)),
                    metadata,
                })
            }
            kind::ARTIFACT => {
                let (metadata, artifact) = sized(payload)?;
                Some(TaskEvent::Artifact {
                    artifact: Artifact(artifact),
                    append: flag & APPEND != 0,
                    last_chunk: flag & LAST_CHUNK != 0,
                    metadata,
                })
            }
            _ => None,
        }
    }
}

/// Encoded events one after another: `length u32, kind u8, flag u8, payload`.
///
/// It is reused from call to call, so that an agent that answers inline allocates nothing.
#[derive(Default)]
pub struct EventBuf {
    bytes: Vec<u8>,
    count: usize,
}

const ENTRY_HEAD: usize = 6;

impl EventBuf {
    /// Appends one event.
    pub fn push(&mut self, event: &TaskEvent<'_>) {
        let length = event.payload_len() as u32;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&[event.kind(), event.flag()]);
        event.write_payload(&mut self.bytes);
        self.count += 1;
    }

    /// Appends a status whose message `write` packs in place (`message_tag` fields).
    pub fn push_status_with(
        &mut self,
        state: TaskState,
        at_ms: u64,
        write: impl FnOnce(&mut Packer<'_>),
    ) {
        self.push_with(&TaskEvent::Status { state, at_ms, message: None, metadata: None }, write);
    }

    /// Appends an artifact, or a chunk of one, that `write` packs in place (`artifact_tag` fields).
    pub fn push_artifact_with(
        &mut self,
        append: bool,
        last_chunk: bool,
        write: impl FnOnce(&mut Packer<'_>),
    ) {
        let artifact = Artifact(&[]);
        let event = TaskEvent::Artifact { artifact, append, last_chunk, metadata: None };
        self.push_with(&event, write);
    }

    /// Both payloads end with what is packed, so `event` without it is a prefix of the whole.
    fn push_with(&mut self, event: &TaskEvent<'_>, write: impl FnOnce(&mut Packer<'_>)) {
        let at = self.bytes.len();
        self.push(event);
        write(&mut Packer(&mut self.bytes));
        let length = (self.bytes.len() - at - ENTRY_HEAD) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Forgets all events, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Gives memory beyond `keep` bytes back.
    pub fn shrink(&mut self, keep: usize) {
        if self.bytes.capacity() > keep {
            self.bytes = Vec::new();
            self.count = 0;
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when there is no event.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encoded size in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = TaskEvent<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (head, tail) = rest.split_first_chunk::<ENTRY_HEAD>()?;
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let (payload, tail) = tail.split_at_checked(length)?;
            rest = tail;
            TaskEvent::decode(head[4], head[5], payload)
        })
    }
}
