//! What was received but for some of its texts.
//!
//! Law: what is received with texts filled in is what a reader makes of the same answer with those
//! texts in it, since the texts in question are packed as they came.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Numbers, Received, ReceivedKind, ReceivedTask, tag};
use crate::model::{
    entry::{ENTRY_HEAD, Entry, NEXT},
    event::kind,
    owned::TaskBuf,
    pack::{FIELD_HEAD, PackedFields, artifact_tag, message_tag, part_tag},
    state::{Generation, TaskState},
    task::{ArtifactChunks, Task},
};

/// Texts that a template leaves out, and places in which they stand.
pub(crate) const TEXTS_MAX: usize = 16;
const CUTS_MAX: usize = 32;

/// What is packed around the texts; made once, it keeps its memory.
#[derive(Default)]
pub(crate) struct ReceivedTemplate {
    kind: ReceivedKind,
    numbers: Numbers,
    /// The fields, or the log of the task, without the texts.
    bytes: Vec<u8>,
    /// In their order.
    cuts: Vec<Cut>,
    /// Lengths of what a text stands in: of its field, of the part, of the entry.
    lengths: Vec<LengthAt>,
    /// The columns of the task; `None`: it is no task.
    task: Option<TaskColumns>,
}

/// Where in the bytes a text is left out.
#[derive(Clone, Copy)]
struct Cut {
    at: u32,
    text: u8,
}

/// A place in the bytes, and how many texts stand before it.
#[derive(Clone, Copy, Default)]
struct BytePlace {
    at: u32,
    cuts: u8,
}

/// A u32 that counts bytes among which are texts.
struct LengthAt {
    place: BytePlace,
    /// How many texts stand before the end of what is counted.
    cuts_end: u8,
}

/// What a task has beside its log.
struct TaskColumns {
    context: BytePlace,
    entries: BytePlace,
    generation: Generation,
    state: TaskState,
    seq: u32,
    messages: u32,
    is_answered: bool,
    status: BytePlace,
    artifacts: SmallVec<[BytePlace; 1]>,
}

/// What the fields of something mean.
#[derive(Clone, Copy)]
enum Inside {
    Event,
    Message,
    Artifact,
    Part,
}

impl Inside {
    /// Whether a field is text that is packed as it came.
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

    /// What the fields inside a field mean, if it has some.
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
    /// Takes apart what was received. `find` gives the number of a text, below [`TEXTS_MAX`], if
    /// it is to be left out. False: it is nothing that a template can be made of.
    pub fn split(&mut self, received: &Received, find: impl FnMut(&[u8]) -> Option<u8>) -> bool {
        self.bytes.clear();
        self.cuts.clear();
        self.lengths.clear();
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

    /// Whether the text of this number is left out anywhere.
    pub fn uses(&self, text: u8) -> bool {
        self.cuts.iter().any(|cut| cut.text == text)
    }

    /// Bytes around the texts.
    pub fn around_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Copies what was received into a template, but for the texts.
struct Cutter<'t, F> {
    template: &'t mut ReceivedTemplate,
    find: F,
}

impl<F: FnMut(&[u8]) -> Option<u8>> Cutter<'_, F> {
    /// `None`, here and below: the log has what a reader of answers never writes, or it is too
    /// much.
    fn task(&mut self, received: &Received) -> Option<()> {
        let held = received.tasks.first().filter(|held| held.metadata.is_empty())?;
        let task = held.task.task();
        let is_cut = task.compactions != 0 || task.trimmed_at != 0 || task.base_seq != 0;
        if is_cut || task.dead_bytes != 0 || task.repeats_at != 0 {
            return None;
        }
        self.text(task.id());
        let context = self.place();
        self.text(task.context_id());
        let (entries, log) = (self.place(), task.log());
        let (mut at, mut status, mut artifacts) =
            (task.entries_at(), BytePlace::default(), SmallVec::new());
        while let Some(entry) = Entry::at(log, at) {
            let place = self.place();
            match entry.kind() {
                kind::STATUS => status = place,
                kind::ARTIFACT if entry.next() != 0 || entry.is_continuing() => return None,
                kind::ARTIFACT => artifacts.push(place),
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
        let (place, before) = (self.place(), self.template.bytes.len());
        self.template.bytes.extend_from_slice(head);
        let open = self.open(place);
        self.fields(fields, inside)?;
        self.close(open, before);
        Some(())
    }

    fn fields(&mut self, packed: &[u8], inside: Inside) -> Option<()> {
        for (tag, field) in PackedFields(packed) {
            let length = self.template.bytes.len() + FIELD_HEAD - size_of::<u32>();
            let place = BytePlace { at: length as u32, cuts: self.cuts() };
            self.template.bytes.push(tag);
            self.template.bytes.extend_from_slice(&[0; FIELD_HEAD - 1]);
            let (open, before) = (self.open(place), self.template.bytes.len());
            match inside.of_field(tag) {
                Some(inner) => self.fields(field, inner)?,
                None if inside.is_text(tag) => self.text(field),
                None => self.template.bytes.extend_from_slice(field),
            }
            self.close(open, before);
        }
        (self.template.cuts.len() <= CUTS_MAX).then_some(())
    }

    /// Leaves a text out, or keeps it.
    fn text(&mut self, text: &[u8]) {
        match (self.find)(text) {
            Some(number) => {
                let at = self.template.bytes.len() as u32;
                self.template.cuts.push(Cut { at, text: number });
            }
            None => self.template.bytes.extend_from_slice(text),
        }
    }

    fn cuts(&self) -> u8 {
        self.template.cuts.len().min(usize::from(u8::MAX)) as u8
    }

    fn place(&self) -> BytePlace {
        BytePlace { at: self.template.bytes.len() as u32, cuts: self.cuts() }
    }

    fn open(&mut self, place: BytePlace) -> usize {
        self.template.lengths.push(LengthAt { place, cuts_end: 0 });
        self.template.lengths.len() - 1
    }

    /// Writes a length as of what is counted from `before` on, without texts.
    fn close(&mut self, open: usize, before: usize) {
        let cuts_end = self.cuts();
        let template = &mut *self.template;
        let at = template.lengths[open].place.at as usize;
        let length = (template.bytes.len() - before) as u32;
        template.bytes[at..at + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
        if template.lengths[open].place.cuts == cuts_end {
            // Only those inside it have come since, and they have no texts either.
            template.lengths.truncate(open);
        } else {
            template.lengths[open].cuts_end = cuts_end;
        }
    }
}

/// Bytes of texts before each cut, and of all.
type Shifts = [u32; CUTS_MAX + 1];

impl BytePlace {
    fn shifted(self, shifts: &Shifts) -> u32 {
        self.at + shifts[usize::from(self.cuts)]
    }
}

impl ReceivedTemplate {
    /// Writes the bytes with the texts in them.
    fn write(&self, texts: &[&[u8]; TEXTS_MAX], out: &mut Vec<u8>) -> Shifts {
        let (mut shifts, mut from, mut shift): (Shifts, _, _) = ([0; CUTS_MAX + 1], 0, 0);
        out.clear();
        for (index, cut) in self.cuts.iter().enumerate().take(CUTS_MAX) {
            let text = texts[usize::from(cut.text) % TEXTS_MAX];
            out.extend_from_slice(&self.bytes[from..cut.at as usize]);
            out.extend_from_slice(text);
            from = cut.at as usize;
            shift += text.len() as u32;
            shifts[index + 1] = shift;
        }
        out.extend_from_slice(&self.bytes[from..]);
        for length in &self.lengths {
            let more =
                shifts[usize::from(length.cuts_end)] - shifts[usize::from(length.place.cuts)];
            let at = length.place.shifted(&shifts) as usize;
            let Some(bytes) = out[at..].first_chunk_mut() else { continue };
            *bytes = (u32::from_le_bytes(*bytes) + more).to_le_bytes();
        }
        shifts
    }
}

impl TaskColumns {
    /// Sets the columns of a task whose log was written.
    fn set(&self, task: &mut Task, shifts: &Shifts) {
        let (context, entries) = (self.context.shifted(shifts), self.entries.shifted(shifts));
        (task.id_len, task.context_len) = (context as u16, (entries - context) as u16);
        (task.generation, task.state) = (self.generation, self.state);
        (task.is_answered, task.messages) = (self.is_answered, self.messages);
        (task.seq, task.base_seq) = (self.seq, 0);
        (task.dead_bytes, task.compactions) = (0, 0);
        (task.trimmed_at, task.repeats_at) = (0, 0);
        task.status_at = self.status.shifted(shifts);
        task.artifacts.clear();
        for place in &self.artifacts {
            let first = place.shifted(shifts);
            task.artifacts.push(ArtifactChunks { first, last: first });
        }
    }
}

impl Received {
    /// Forgets everything, and takes what the template says with these texts: what stands at `span`
    /// in the bytes that were read. `at_ms`: when the status changed, if that is told anew.
    pub(crate) fn fill(
        &mut self,
        template: &ReceivedTemplate,
        texts: &[&[u8]; TEXTS_MAX],
        at_ms: Option<u64>,
        span: Range<usize>,
    ) {
        (self.kind, self.numbers, self.span) = (template.kind, template.numbers, span);
        let Some(columns) = &template.task else {
            self.tasks_len = 0;
            self.numbers.at_ms = at_ms.unwrap_or(self.numbers.at_ms);
            template.write(texts, &mut self.fields);
            return;
        };
        self.fields.clear();
        if self.tasks.is_empty() {
            self.tasks.push(ReceivedTask { task: TaskBuf::empty(), metadata: Vec::new() });
        }
        self.tasks_len = 1;
        let ReceivedTask { task, metadata } = &mut self.tasks[0];
        metadata.clear();
        let shifts = template.write(texts, &mut task.task.log);
        columns.set(&mut task.task, &shifts);
        task.seq = u64::from(columns.seq);
        if let Some(at_ms) = at_ms {
            let at = task.task.status_at as usize + ENTRY_HEAD;
            task.task.log[at..at + size_of::<u64>()].copy_from_slice(&at_ms.to_le_bytes());
        }
    }
}
