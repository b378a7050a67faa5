//! Filling texts into a template.

use std::ops::Range;

use smallvec::SmallVec;

use super::{ByteOffset, CUTS_MAX, Cut, ReceivedTemplate, Shifts, TEXTS_MAX, TaskColumns};
use crate::model::{
    entry::ENTRY_HEAD,
    owned::TaskBuf,
    received::{Numbers, Received, ReceivedKind, ReceivedTask},
    task::{ArtifactChunks, Task},
};

/// Maximum size of a result that is retained for the next one.
const WRITTEN_BYTES_MAX: usize = 4 * 1024;

impl ByteOffset {
    fn shifted(self, shifts: &Shifts) -> u32 {
        self.at + shifts[usize::from(self.cuts)]
    }
}

impl ReceivedTemplate {
    /// Writes the bytes with the texts in them.
    fn write(&mut self, texts: &[&[u8]; TEXTS_MAX], out: &mut Vec<u8>) {
        out.clear();
        let is_as_long = |cut: &Cut| texts_at(texts, cut).len() == cut.written_len as usize;
        if self.written.is_empty() || !self.cuts.iter().all(is_as_long) {
            self.write_anew(texts, out);
            self.written.clear();
            if out.len() <= WRITTEN_BYTES_MAX {
                self.written.extend_from_slice(out);
            }
            return;
        }
        out.extend_from_slice(&self.written);
        for cut in &self.cuts {
            let (at, text) = (cut.written_at as usize, texts_at(texts, cut));
            out[at..at + text.len()].copy_from_slice(text);
        }
    }

    /// Writes texts of other lengths than the last ones, appended to `out`.
    fn write_anew(&mut self, texts: &[&[u8]; TEXTS_MAX], out: &mut Vec<u8>) {
        let (mut from, mut shift) = (0, 0);
        for (index, cut) in self.cuts.iter_mut().enumerate().take(CUTS_MAX) {
            let text = texts_at(texts, cut);
            out.extend_from_slice(&self.bytes[from..cut.at as usize]);
            (cut.written_at, cut.written_len) = (out.len() as u32, text.len() as u32);
            out.extend_from_slice(text);
            from = cut.at as usize;
            shift += text.len() as u32;
            self.shifts[index + 1] = shift;
        }
        out.extend_from_slice(&self.bytes[from..]);
        for length in &self.lengths {
            let more = self.shifts[usize::from(length.cuts_end)]
                - self.shifts[usize::from(length.offset.cuts)];
            let at = length.offset.shifted(&self.shifts) as usize;
            let Some(bytes) = out[at..].first_chunk_mut() else { continue };
            *bytes = (u32::from_le_bytes(*bytes) + more).to_le_bytes();
        }
    }

    /// Splits the last result around the single occurrence of a text. False: it occurs several
    /// times, or the answer is a task.
    pub fn around(&self, text: u8, received: &Received, around: &mut ReceivedAround) -> bool {
        let mut offsets = self.cuts.iter().enumerate().filter(|(_, cut)| cut.text == text);
        let (Some((index, cut)), None, None) = (offsets.next(), offsets.next(), &self.task) else {
            return false;
        };
        let (at, len) = (cut.written_at as usize, cut.written_len as usize);
        (around.kind, around.numbers) = (received.kind, received.numbers);
        around.before.clear();
        around.before.extend_from_slice(&received.fields[..at]);
        around.after.clear();
        around.after.extend_from_slice(&received.fields[at + len..]);
        around.lengths.clear();
        for length in &self.lengths {
            let cuts = usize::from(length.offset.cuts)..usize::from(length.cuts_end);
            let offset = length.offset.shifted(&self.shifts) as usize;
            let Some(counted) = received.fields[offset..].first_chunk() else { continue };
            if cuts.contains(&index) {
                around.lengths.push((offset, u32::from_le_bytes(*counted) - cut.written_len));
            }
        }
        true
    }
}

/// The text of a gap.
#[inline]
fn texts_at<'t>(texts: &[&'t [u8]; TEXTS_MAX], cut: &Cut) -> &'t [u8] {
    texts[usize::from(cut.text) % TEXTS_MAX]
}

/// An answer without one text.
#[derive(Default)]
pub(crate) struct ReceivedAround {
    kind: ReceivedKind,
    numbers: Numbers,
    before: Vec<u8>,
    after: Vec<u8>,
    /// Lengths that include the text: their positions before the text, and their values without it.
    lengths: SmallVec<[(usize, u32); 4]>,
}

impl TaskColumns {
    /// Sets the columns of a task after writing its log.
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
        for offset in &self.artifacts {
            let first = offset.shifted(shifts);
            task.artifacts.push(ArtifactChunks { first, last: first });
        }
    }
}

impl Received {
    /// Replaces all content by the template with these texts: the content is at `span` in the bytes
    /// that were read. `at_ms`: a new time of the status, if there is one.
    pub(crate) fn fill(
        &mut self,
        template: &mut ReceivedTemplate,
        texts: &[&[u8]; TEXTS_MAX],
        at_ms: Option<u64>,
        span: Range<usize>,
    ) {
        (self.kind, self.numbers, self.span) = (template.kind, template.numbers, span);
        if template.task.is_none() {
            self.tasks_len = 0;
            self.numbers.at_ms = at_ms.unwrap_or(self.numbers.at_ms);
            template.write(texts, &mut self.fields);
            return;
        }
        self.fields.clear();
        if self.tasks.is_empty() {
            self.tasks.push(ReceivedTask { task: TaskBuf::empty(), metadata: Vec::new() });
        }
        self.tasks_len = 1;
        let ReceivedTask { task, metadata } = &mut self.tasks[0];
        metadata.clear();
        template.write(texts, &mut task.task.log);
        let Some(columns) = &template.task else { return };
        columns.set(&mut task.task, &template.shifts);
        task.seq = u64::from(columns.seq);
        if let Some(at_ms) = at_ms {
            let at = task.task.status_at as usize + ENTRY_HEAD;
            task.task.log[at..at + size_of::<u64>()].copy_from_slice(&at_ms.to_le_bytes());
        }
    }

    /// As [`Received::fill`], for an answer that differs from the last one in one text only.
    pub(crate) fn fill_around(&mut self, around: &ReceivedAround, text: &[u8], span: Range<usize>) {
        (self.kind, self.numbers, self.span) = (around.kind, around.numbers, span);
        self.tasks_len = 0;
        self.fields.clear();
        self.fields.extend_from_slice(&around.before);
        self.fields.extend_from_slice(text);
        self.fields.extend_from_slice(&around.after);
        for (at, others) in &around.lengths {
            let Some(bytes) = self.fields[*at..].first_chunk_mut() else { continue };
            *bytes = (others + text.len() as u32).to_le_bytes();
        }
    }
}
