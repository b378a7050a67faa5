//! Escapes of JSON strings, read piece by piece so that comparing needs no memory.
//!
//! The input is the text between the quotes of a valid string. Other text never panics: an invalid
//! escape yields U+FFFD.

use std::borrow::Cow;
#[cfg(feature = "client")]
use std::cell::Cell;

/// The text that a raw string represents; borrowed when it has no backslash.
#[must_use]
pub fn unescape(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    for piece in (Pieces { rest: raw }) {
        match piece {
            TextPiece::Text(part) => text.push_str(part),
            TextPiece::Char(c) => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// Appends the text that a raw string represents.
pub fn push_unescaped(out: &mut Vec<u8>, raw: &str) {
    for piece in (Pieces { rest: raw }) {
        match piece {
            TextPiece::Text(part) => out.extend_from_slice(part.as_bytes()),
            TextPiece::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether `raw` represents `text`; does not allocate.
pub(super) fn eq_unescaped(raw: &str, text: &str) -> bool {
    let mut remaining = text;
    for piece in (Pieces { rest: raw }) {
        let rest = match piece {
            TextPiece::Text(part) => remaining.strip_prefix(part),
            TextPiece::Char(c) => remaining.strip_prefix(c),
        };
        match rest {
            Some(rest) => remaining = rest,
            None => return false,
        }
    }
    remaining.is_empty()
}

/// A run without backslashes, or the character of one escape.
enum TextPiece<'r> {
    Text(&'r str),
    Char(char),
}

struct Pieces<'r> {
    rest: &'r str,
}

impl<'r> Iterator for Pieces<'r> {
    type Item = TextPiece<'r>;

    fn next(&mut self) -> Option<TextPiece<'r>> {
        if self.rest.is_empty() {
            return None;
        }
        let run = self.rest.find('\\').unwrap_or(self.rest.len());
        if run > 0 {
            let (text, rest) = self.rest.split_at(run);
            self.rest = rest;
            return Some(TextPiece::Text(text));
        }
        let (c, length) = escape(self.rest.as_bytes());
        self.rest = self.rest.get(length..).unwrap_or_default();
        Some(TextPiece::Char(c))
    }
}

/// The character of the escape at the start of `bytes`, and the escape's length.
///
/// The length covers only ASCII bytes, so the rest begins at a character.
fn escape(bytes: &[u8]) -> (char, usize) {
    let simple = match bytes.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(&same @ (b'"' | b'\\' | b'/')) => char::from(same),
        Some(b'u') => return unicode_escape(bytes),
        Some(_) | None => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (simple, 2)
}

/// As [`escape`], for `\uXXXX` and surrogate pairs.
fn unicode_escape(bytes: &[u8]) -> (char, usize) {
    let Some(unit) = hex(bytes, 2) else {
        return (char::REPLACEMENT_CHARACTER, 2);
    };
    if let Some(c) = char::from_u32(unit) {
        return (c, 6);
    }
    let low = bytes.get(6..8).filter(|mark| *mark == b"\\u").and_then(|_| hex(bytes, 8));
    match (unit, low) {
        // RFC 8259 §7: a character beyond the BMP is a pair of surrogates
        (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
            let code = 0x1_0000 + ((unit - 0xd800) << 10 | (low - 0xdc00));
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
        }
        _ => {
            note_half();
            (char::REPLACEMENT_CHARACTER, 6)
        }
    }
}

#[cfg(feature = "client")]
thread_local! {
    /// True once half a surrogate pair was read as U+FFFD.
    static HAS_READ_HALF: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has read half a surrogate pair since the last call.
#[cfg(feature = "client")]
pub(super) fn take_halves() -> bool {
    HAS_READ_HALF.take()
}

#[cold]
fn note_half() {
    #[cfg(feature = "client")]
    HAS_READ_HALF.set(true);
}

/// Four hexadecimal digits at `at`.
fn hex(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .iter()
        .try_fold(0, |unit, &b| Some(unit << 4 | char::from(b).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read() {
        for (raw, text) in [
            ("", ""),
            ("a\u{e9}", "a\u{e9}"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"x\u0041\u00e9y\u20AC", "xA\u{e9}y\u{20ac}"),
            (r"\ud83d\ude00!", "\u{1f600}!"),
            (r"\u0000", "\0"),
        ] {
            assert_eq!(unescape(raw), text, "{raw}");
            assert!(eq_unescaped(raw, text), "{raw}");
            assert!(!eq_unescaped(raw, &format!("{text}.")), "{raw}");
            assert!(text.is_empty() || !eq_unescaped(raw, ""), "{raw}");
        }
        assert!(matches!(unescape("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn invalid_escapes_become_replacement_characters() {
        for (raw, text) in [
            ("\\", "\u{fffd}"),
            ("\\\u{e9}", "\u{fffd}\u{e9}"),
            (r"\u12", "\u{fffd}12"),
            (r"\ud800", "\u{fffd}"),
            (r"\ud800\n", "\u{fffd}\n"),
            (r"\ud800\u0041", "\u{fffd}A"),
            (r"\udc00\ud800", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(unescape(raw), text, "{raw}");
        }
    }
}
