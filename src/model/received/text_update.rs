//! An artifact update but for one piece of its text.
//!
//! Law: what is received with a text filled in is what a reader makes of the same event with that
//! text in it, since a piece of text is packed as it came.

use std::ops::Range;

use super::{Numbers, Received, ReceivedKind, tag};
use crate::model::pack::{FIELD_HEAD, PackedFields, artifact_tag, part_tag};

/// What is packed around a text; made once, it keeps its memory.
#[derive(Default)]
pub(crate) struct TextUpdate {
    /// Fields up to the text, whose head is their end, and those behind it.
    before: Vec<u8>,
    behind: Vec<u8>,
    /// The artifact, the part and the text: where the content of each begins, and how long it is
    /// when the text is empty.
    around: [(usize, usize); 3],
    numbers: Numbers,
    /// Where the update stands in what was read, if the text is empty.
    span: Range<usize>,
}

impl TextUpdate {
    /// Takes an artifact update apart, whose first part is to be a text; false: it is none.
    pub fn split(&mut self, received: &Received) -> bool {
        let Some(around) = text_at(received) else { return false };
        let text = around[2].clone();
        let empty = |range: Range<usize>| (range.start, range.len() - text.len());
        self.around = around.map(empty);
        self.before.clear();
        self.before.extend_from_slice(&received.fields[..text.start]);
        self.behind.clear();
        self.behind.extend_from_slice(&received.fields[text.end..]);
        self.numbers = received.numbers;
        self.span = received.span.start..received.span.end - text.len();
        true
    }
}

impl Received {
    /// The text of an artifact update whose first part is one, as it stands in JSON.
    pub(crate) fn first_text(&self) -> Option<&[u8]> {
        let [_, _, text] = text_at(self)?;
        self.fields.get(text)
    }

    /// Forgets everything, and takes an update with this text.
    pub(crate) fn fill_text(&mut self, update: &TextUpdate, text: &[u8]) {
        self.tasks_len = 0;
        self.kind = ReceivedKind::ArtifactUpdate;
        self.numbers = update.numbers;
        self.span = update.span.start..update.span.end + text.len();
        self.fields.clear();
        for piece in [&update.before, text, &update.behind] {
            self.fields.extend_from_slice(piece);
        }
        for (start, len) in update.around {
            let len = (len + text.len()) as u32;
            self.fields[start - size_of_val(&len)..start].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Where in the fields the artifact, its first part and the text of that part are.
fn text_at(received: &Received) -> Option<[Range<usize>; 3]> {
    if received.kind != ReceivedKind::ArtifactUpdate {
        return None;
    }
    let first = |within: Range<usize>, wanted: u8| {
        let mut start = within.start;
        for (tag, field) in PackedFields(received.fields.get(within)?) {
            start += FIELD_HEAD;
            if tag == wanted {
                return Some(start..start + field.len());
            }
            start += field.len();
        }
        None
    };
    let artifact = first(0..received.fields.len(), tag::ARTIFACT)?;
    let part = first(artifact.clone(), artifact_tag::PART)?;
    let text = first(part.clone(), part_tag::TEXT)?;
    Some([artifact, part, text])
}
