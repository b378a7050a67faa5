//! One entry of a task's log: fixed columns, then the payload of an event.

use super::{
    event::{TaskEvent, kind},
    pack::Artifact,
};

/// Fixed columns before each entry's payload.
///
/// `length u32` counts them; `seq`, `next` (offset of the artifact's next chunk, 0 = none) and
/// `dead` (sequence number that replaced the entry, 0 = alive) are u32.
pub const ENTRY_HEAD: usize = 20;
const SEQ_AT: usize = 4;
/// Where the next chunk's offset is.
pub const NEXT_AT: usize = 8;
/// Where the sequence number is that killed the entry.
pub const DEAD_AT: usize = 12;

/// One entry of a log.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry that starts at `at`; `None` at the end of the log.
    pub fn at(log: &'a [u8], at: usize) -> Option<Entry<'a>> {
        let rest = log.get(at..)?;
        let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let bytes = rest.get(..length)?;
        (length >= ENTRY_HEAD).then_some(Entry { bytes })
    }

    fn column(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
    }

    pub fn seq(&self) -> u32 {
        self.column(SEQ_AT)
    }

    pub fn next(&self) -> usize {
        self.column(NEXT_AT) as usize
    }

    pub fn dead(&self) -> u32 {
        self.column(DEAD_AT)
    }

    /// True when the entry is alive in the task as it was after event `seq`.
    pub fn lives_at(&self, seq: u32) -> bool {
        self.seq() <= seq && (self.dead() == 0 || self.dead() > seq)
    }

    pub fn kind(&self) -> u8 {
        self.bytes[16]
    }

    pub fn event(&self) -> Option<TaskEvent<'a>> {
        TaskEvent::decode(self.bytes[16], self.bytes[17], &self.bytes[ENTRY_HEAD..])
    }

    pub fn artifact(&self) -> Option<Artifact<'a>> {
        match self.event()? {
            TaskEvent::Artifact { artifact, .. } => Some(artifact),
            TaskEvent::Turn { .. } | TaskEvent::Status { .. } => None,
        }
    }

    /// True for a turn and for a status that says something.
    pub fn holds_message(&self) -> bool {
        match self.event() {
            Some(TaskEvent::Turn { .. }) => true,
            Some(TaskEvent::Status { message, .. }) => message.is_some(),
            Some(TaskEvent::Artifact { .. }) | None => false,
        }
    }

    pub fn is_turn(&self) -> bool {
        self.kind() == kind::TURN
    }
}

/// The entries of a log from an offset on, with their offsets.
pub struct Entries<'a> {
    pub log: &'a [u8],
    pub at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, Entry<'a>);

    fn next(&mut self) -> Option<(usize, Entry<'a>)> {
        let at = self.at;
        let entry = Entry::at(self.log, at)?;
        self.at += entry.bytes.len();
        Some((at, entry))
    }
}
