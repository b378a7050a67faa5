//! Converts the bytes of a program's output to pieces of text.

/// Maximum bytes of a piece; a longer piece is split.
const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// Output that was read and not yet taken.
pub(super) struct OutputText {
    separator: Option<Vec<u8>>,
    bytes: Vec<u8>,
}

impl OutputText {
    /// Splits at each `separator`, which is dropped; without one, after each read.
    pub fn new(separator: Option<&str>) -> OutputText {
        let separator = separator.filter(|text| !text.is_empty());
        OutputText { separator: separator.map(|text| text.as_bytes().to_vec()), bytes: Vec::new() }
    }

    /// Adds read bytes.
    pub fn push(&mut self, read: &[u8]) {
        self.bytes.extend_from_slice(read);
    }

    /// Returns the next piece. An incomplete character, or a piece without its separator, waits for
    /// more output, unless `is_end`. Bytes that are not UTF-8 become U+FFFD.
    pub fn next(&mut self, is_end: bool) -> Option<String> {
        if self.bytes.is_empty() {
            return None;
        }
        let whole = self.bytes.len();
        let (end, next) = match &self.separator {
            None => {
                let end = if is_end { whole } else { characters_end(&self.bytes) };
                (end, end)
            }
            Some(separator) => match find(&self.bytes, separator) {
                Some(at) => (at, at + separator.len()),
                None if is_end => (whole, whole),
                None if whole > PIECE_BYTES_MAX => {
                    let end = characters_end(&self.bytes);
                    (end, end)
                }
                None => return None,
            },
        };
        if next == 0 {
            return None;
        }
        let piece = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..next);
        Some(piece)
    }
}

/// The end of the last complete character: at most three bytes before the end.
fn characters_end(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let starts = |at: &usize| bytes[*at] >= 0xC0;
    let Some(start) = (tail..bytes.len()).rev().find(starts) else { return bytes.len() };
    match str::from_utf8(&bytes[start..]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

fn find(bytes: &[u8], separator: &[u8]) -> Option<usize> {
    bytes.windows(separator.len()).position(|window| window == separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(separator: Option<&str>, reads: &[&[u8]]) -> Vec<String> {
        let mut output = OutputText::new(separator);
        let mut pieces = Vec::new();
        for read in reads {
            output.push(read);
            pieces.extend(std::iter::from_fn(|| output.next(false)));
        }
        pieces.extend(std::iter::from_fn(|| output.next(true)));
        pieces
    }

    #[test]
    fn multibyte_characters_are_not_split_across_reads() {
        let text = "aé€😀z";
        for at in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            let pieces = pieces(None, &[head, tail]);
            assert_eq!(pieces.concat(), text, "at {at}");
        }
        assert_eq!(pieces(None, &[b"a\xE2\x82", b"\xACb"]), ["a", "€b"]);
        assert_eq!(pieces(None, &[b"\xFFa", b"\xE2"]), ["\u{FFFD}a", "\u{FFFD}"]);
    }

    #[test]
    fn a_separator_cuts_the_output() {
        assert_eq!(pieces(Some("--"), &[b"a-", b"-b--", b"-c"]), ["a", "b", "-c"]);
        assert_eq!(pieces(Some("\n"), &[b"a\n\nb\n"]), ["a", "", "b"]);
    }
}
