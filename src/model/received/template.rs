//! Templates: an answer without some of its texts.
//!
//! Invariant: a template filled with texts equals the result of reading the same answer with those
//! texts, since these texts are packed as received.

mod write;

use smallvec::SmallVec;

use super::{Numbers, Received, ReceivedKind, tag};
use crate::model::{
    entry::{ENTRY_HEAD, Entry, NEXT},
    event::kind,
    pack::{FIELD_HEAD, PackedFields, artifact_tag, message_tag, part_tag},
    state::{Generation, TaskState},
};

pub(crate) use write::ReceivedAround;

/// Bytes of the texts before each cut, and of all texts.
type Shifts = [u32; CUTS_MAX + 1];

/// Maximum texts that a template leaves out, and maximum gaps for them.
pub(crate) const TEXTS_MAX: usize = 16;
const CUTS_MAX: usize = 31;

/// The packed data around the texts; it is created once and reuses its memory.
#[derive(Default)]
pub(crate) struct ReceivedTemplate {
    kind: ReceivedKind,
    numbers: Numbers,
    /// The fields, or the log of the task, without the texts.
    bytes: Vec<u8>,
    /// The gaps in order.
    cuts: Vec<Cut>,
    /// Lengths that include a text: of its field, of the part, of the entry.
    lengths: Vec<LengthAt>,
    /// The columns of the task; `None`: it is not a task.
    task: Option<TaskColumns>,
    /// The last result, with its texts: the next texts often have the same lengths, as ids do.
    /// Empty: the result was too large.
    written: Vec<u8>,
    /// The shifts by those texts.
    shifts: Shifts,
}

/// A gap for a text.
#[derive(Clone, Copy)]
struct Cut {
    at: u32,
    text: u8,
    /// The position and the length of the text that was written last.
    written_at: u32,
    written_len: u32,
}

/// A position in the bytes, and the number of texts before it.
#[derive(Clone, Copy, Default)]
struct ByteOffset {
    at: u32,
    cuts: u8,
}

/// A u32 length of bytes that include texts.
struct LengthAt {
    offset: ByteOffset,
    /// The number of texts before the end of those bytes.
    cuts_end: u8,
}

/// Data of a task other than its log.
struct TaskColumns {
    context: ByteOffset,
    entries: ByteOffset,
    generation: Generation,
    state: TaskState,
    seq: u32,
    messages: u32,
    is_answered: bool,
    status: ByteOffset,
    artifacts: SmallVec<[ByteOffset; 1]>,
}

/// The kind of a set of fields.
#[derive(Clone, Copy)]
enum Inside {
    Event,
    Message,
    Artifact,
    Part,
}

impl Inside {
    /// Whether a field is text that is packed as received.
    fn is_text(self, tag: u8) -> bool {
        match self {
            Inside::Event => matches!(tag, tag::TASK_ID | tag::CONTEXT_ID),
            Inside::Message => matches!(
                tag,
                message_tag::MESSAGE_ID | message_tag::CONTEXT_ID | message_tag::TASK_ID
            ),
            Inside::Artifact => matches!(
                tag,
                artifact_tag::ARTIFACT_ID | artifact_tag::NAME | artifact_tag::DESCRIPTION
            ),
            Inside::Part => matches!(
                tag,
                part_tag::TEXT | part_tag::URL | part_tag::FILENAME | part_tag::MEDIA_TYPE
            ),
        }
    }

    /// The kind of the fields inside a field, if it has any.
    fn of_field(self, tag: u8) -> Option<Inside> {
        match (self, tag) {
            (Inside::Event, tag::MESSAGE) => Some(Inside::Message),
            (Inside::Event, tag::ARTIFACT) => Some(Inside::Artifact),
            (Inside::Message, message_tag::PART) => Some(Inside::Part),
            (Inside::Artifact, artifact_tag::PART) => Some(Inside::Part),
            _ => None,
        }
    }
}

impl ReceivedTemplate {
    /// Splits an answer. `find` returns the number of a text, below [`TEXTS_MAX`], if it is to be
    /// left out. False: this answer cannot become a template.
    pub fn split(&mut self, received: &Received, find: impl FnMut(&[u8]) -> Option<u8>) -> bool {
        self.bytes.clear();
        self.cuts.clear();
        self.lengths.clear();
        self.written.clear();
        self.task = None;
        (self.kind, self.numbers) = (received.kind, received.numbers);
        let mut cutter = Cutter { template: self, find };
        let is_split = match received.kind {
            ReceivedKind::Task => cutter.task(received),
            ReceivedKind::Message | ReceivedKind::StatusUpdate | ReceivedKind::ArtifactUpdate => {
                cutter.fields(&received.fields, Inside::Event)
            }
            ReceivedKind::Nothing
            | ReceivedKind::Page
            | ReceivedKind::PushConfig
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => None,
        };
        is_split.is_some() && self.cuts.len() <= CUTS_MAX
    }

    /// Whether the text with this number is left out anywhere.
    pub fn uses(&self, text: u8) -> bool {
        self.cuts.iter().any(|cut| cut.text == text)
    }

    /// Bytes without the texts.
    pub fn around_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Copies an answer into a template, except the texts.
struct Cutter<'t, F> {
    template: &'t mut ReceivedTemplate,
    find: F,
}

impl<F: FnMut(&[u8]) -> Option<u8>> Cutter<'_, F> {
    /// `None`, here and below: the log has entries that a reader of answers never writes, or is too
    /// large.
    fn task(&mut self, received: &Received) -> Option<()> {
        let held = received.tasks.first().filter(|held| held.metadata.is_empty())?;
        let task = held.task.task();
        let is_cut = task.compactions != 0 || task.trimmed_at != 0 || task.base_seq != 0;
        if is_cut || task.dead_bytes != 0 || task.repeats_at != 0 {
            return None;
        }
        self.text(task.id());
        let context = self.offset();
        self.text(task.context_id());
        let (entries, log) = (self.offset(), task.log());
        let (mut at, mut status, mut artifacts) =
            (task.entries_at(), ByteOffset::default(), SmallVec::new());
        while let Some(entry) = Entry::at(log, at) {
            let offset = self.offset();
            match entry.kind() {
                kind::STATUS => status = offset,
                kind::ARTIFACT if entry.next() != 0 || entry.is_continuing() => return None,
                kind::ARTIFACT => artifacts.push(offset),
                _ => {}
            }
            self.entry(&log[at..at + entry.len()], entry.kind())?;
            at += entry.len();
        }
        self.template.task = Some(TaskColumns {
            context,
            entries,
            generation: task.generation(),
            state: task.state(),
            seq: u32::try_from(task.seq()).ok()?,
            messages: task.messages,
            is_answered: task.is_answered,
            status,
            artifacts,
        });
        Some(())
    }

    fn entry(&mut self, entry: &[u8], kind: u8) -> Option<()> {
        let (head, inside) = match kind {
            kind::STATUS => (ENTRY_HEAD + size_of::<u64>(), Inside::Message),
            kind::ARTIFACT => (ENTRY_HEAD + NEXT, Inside::Artifact),
            _ => (ENTRY_HEAD, Inside::Message),
        };
        let (head, fields) = entry.split_at_checked(head)?;
        let (offset, before) = (self.offset(), self.template.bytes.len());
        self.template.bytes.extend_from_slice(head);
        let open = self.open(offset);
        self.fields(fields, inside)?;
        self.close(open, before);
        Some(())
    }

    fn fields(&mut self, packed: &[u8], inside: Inside) -> Option<()> {
        for (tag, field) in PackedFields(packed) {
            let length = self.template.bytes.len() + FIELD_HEAD - size_of::<u32>();
            let offset = ByteOffset { at: length as u32, cuts: self.cuts() };
            self.template.bytes.push(tag);
            self.template.bytes.extend_from_slice(&[0; FIELD_HEAD - 1]);
            let (open, before) = (self.open(offset), self.template.bytes.len());
            match inside.of_field(tag) {
                Some(inner) => self.fields(field, inner)?,
                None if inside.is_text(tag) => self.text(field),
                None => self.template.bytes.extend_from_slice(field),
            }
            self.close(open, before);
        }
        (self.template.cuts.len() <= CUTS_MAX).then_some(())
    }

    /// Leaves a text out, or copies it.
    fn text(&mut self, text: &[u8]) {
        match (self.find)(text) {
            Some(number) => {
                let at = self.template.bytes.len() as u32;
                let (text, written_at, written_len) = (number, 0, 0);
                self.template.cuts.push(Cut { at, text, written_at, written_len });
            }
            None => self.template.bytes.extend_from_slice(text),
        }
    }

    fn cuts(&self) -> u8 {
        self.template.cuts.len().min(usize::from(u8::MAX)) as u8
    }

    fn offset(&self) -> ByteOffset {
        ByteOffset { at: self.template.bytes.len() as u32, cuts: self.cuts() }
    }

    fn open(&mut self, offset: ByteOffset) -> usize {
        self.template.lengths.push(LengthAt { offset, cuts_end: 0 });
        self.template.lengths.len() - 1
    }

    /// Writes the length of the bytes from `before` on, without texts.
    fn close(&mut self, open: usize, before: usize) {
        let cuts_end = self.cuts();
        let template = &mut *self.template;
        let at = template.lengths[open].offset.at as usize;
        let length = (template.bytes.len() - before) as u32;
        template.bytes[at..at + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
        if template.lengths[open].offset.cuts == cuts_end {
            // All later lengths are inside this one, and include no text either.
            template.lengths.truncate(open);
        } else {
            template.lengths[open].cuts_end = cuts_end;
        }
    }
}
