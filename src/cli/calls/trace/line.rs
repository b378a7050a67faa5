//! A received line until its end.

use super::{Redaction, one_line};

/// Maximum bytes that are shown of a line; the others are only counted.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes that are buffered of a line. The others are only counted, because a server that
/// never ends a line would fill the memory.
const BUFFERED_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// A line that has not ended.
#[derive(Default)]
pub(super) struct OpenLine {
    bytes: Vec<u8>,
    /// The number of bytes that were not buffered.
    omitted: usize,
}

impl OpenLine {
    /// Appends bytes to the line.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = BUFFERED_BYTES_MAX - self.bytes.len();
        let (buffered, rest) = bytes.split_at(bytes.len().min(room));
        self.bytes.extend_from_slice(buffered);
        self.omitted += rest.len();
    }

    /// Counts bytes that are not shown.
    pub fn count(&mut self, bytes: &[u8]) {
        self.omitted += bytes.len();
    }

    /// The bytes received so far.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.omitted
    }

    /// The line for the output.
    pub fn shown(&self, redaction: &Redaction) -> String {
        let bytes = self.bytes.as_slice();
        shown(redaction, bytes.strip_suffix(b"\r").unwrap_or(bytes), self.omitted)
    }
}

/// A line without secrets; `omitted`: the number of later bytes that were not buffered.
pub(super) fn shown(redaction: &Redaction, line: &[u8], omitted: usize) -> String {
    let rest = line.len().saturating_sub(LINE_BYTES_MAX) + omitted;
    // Decoded leniently, because escaping before a quotation mark would hide a member from the
    // redaction. Masked as a whole before the cut, because a secret may lie across it.
    let mut text = redaction.masked(&String::from_utf8_lossy(line));
    if omitted > 0 {
        // The cut may have split a secret, so a tail of the longest secret's length is removed.
        let longest = redaction.longest();
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(longest)));
    }
    let mut text = one_line(&text);
    if rest > 0 {
        text = text.chars().take(LINE_BYTES_MAX).collect();
        text.push_str(&format!(" ... and {rest} bytes"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_line_is_counted_with_bounded_memory() {
        let mut line = OpenLine::default();
        for _ in 0..64 {
            line.push(&[b'x'; LINE_BYTES_MAX]);
        }
        assert!(line.bytes.capacity() <= 2 * BUFFERED_BYTES_MAX);
        assert_eq!(line.len(), 64 * LINE_BYTES_MAX);
        let text = line.shown(&Redaction::default());
        let end = format!("x ... and {} bytes", 63 * LINE_BYTES_MAX);
        assert!(text.ends_with(&end), "{}", &text[LINE_BYTES_MAX - 1..]);
    }

    #[test]
    fn secret_cut_at_the_buffer_end_is_not_shown() {
        let redaction = Redaction::of(["hidden-secret"].into_iter(), [].into_iter());
        let mut line = OpenLine::default();
        line.push(b"{\"token\":\"");
        line.push(&vec![b'a'; BUFFERED_BYTES_MAX - 17]);
        line.push(b"\"hidden-secret\"}");
        let text = line.shown(&redaction);
        assert!(text.starts_with("{\"token") && !text.contains("hidden"), "{text}");
    }
}
