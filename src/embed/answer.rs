//! Output of an exchange that the program has not taken yet.

use std::collections::VecDeque;

use crate::engine::{FieldLines, HeadParts, ResponseSink};

/// The name and the value of a field.
type AnswerField = (Box<str>, Box<str>);

/// An answer for the program. Its content stays in the buffers of the engine until the program
/// consumes it.
#[derive(Default)]
pub struct HostAnswer {
    /// The HTTP status; 0: not received yet.
    pub status: u16,
    /// The fields.
    pub fields: Vec<AnswerField>,
    /// The trailers.
    pub trailers: Vec<AnswerField>,
    /// True: nothing follows.
    pub is_over: bool,
    content: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that were consumed.
    consumed: usize,
    unsent: usize,
}

impl ResponseSink for HostAnswer {
    fn head(&mut self, head: &HeadParts) {
        self.status = head.status;
        head.for_each_field(|name, value| self.fields.push((name.into(), value.into())));
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.unsent += bytes.len();
            self.content.push_back(std::mem::take(bytes));
        }
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        self.trailers = trailers.iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.is_over = true;
    }
}

impl HostAnswer {
    /// Bytes of content that were not consumed.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// The first piece of the content; empty if there is no content.
    pub fn first(&self) -> &[u8] {
        self.content.front().map_or(&[], |first| &first[self.consumed..])
    }

    /// Removes `len` bytes from the front of the content. False: the content is shorter, and
    /// nothing is removed.
    pub fn consume(&mut self, mut len: usize) -> bool {
        if len > self.unsent {
            return false;
        }
        self.unsent -= len;
        while let Some(first) = self.content.front() {
            let remaining = first.len() - self.consumed;
            if len < remaining {
                self.consumed += len;
                break;
            }
            len -= remaining;
            self.consumed = 0;
            self.content.pop_front();
        }
        true
    }

    /// Takes the first piece of the content.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut first = self.content.pop_front()?;
        first.drain(..std::mem::take(&mut self.consumed));
        self.unsent -= first.len();
        Some(first)
    }
}
