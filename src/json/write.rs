//! Writers that append JSON to the caller's buffer, with one canonical form of strings.
//!
//! Only characters that RFC 8259 §7 requires are escaped, in the short form if there is one: equal
//! texts become equal bytes, and text without such characters is copied unchanged.

use std::borrow::Cow;

pub use super::text::{push_unescaped, unescape};

/// Appends `text` with escapes, without quotes.
pub fn push_escaped(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len());
    let mut rest = text.as_bytes();
    loop {
        let (clean, dirty) = rest.split_at(clean_prefix(rest));
        out.extend_from_slice(clean);
        let Some((&byte, after)) = dirty.split_first() else {
            return;
        };
        push_escape(out, byte);
        rest = after;
    }
}

/// Appends `text` as a JSON string with its quotes.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends `value` in decimal.
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    // u64::MAX has 20 digits
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut remaining = value;
    while remaining >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(remaining % 100) as usize]);
        remaining /= 100;
    }
    let pair = PAIRS[remaining as usize];
    if remaining >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&pair);
    } else {
        at -= 1;
        digits[at] = pair[1];
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `value` in decimal, with a sign when it is negative.
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(out, value.unsigned_abs());
}

/// The canonical form of a raw string: escaped as by [`push_escaped`].
///
/// `raw` is the text between the quotes of a valid JSON string. Without a backslash it is canonical
/// already and is returned unchanged.
#[must_use]
pub fn canonical_raw(raw: &str) -> Cow<'_, str> {
    match unescape(raw) {
        Cow::Borrowed(raw) => Cow::Borrowed(raw),
        Cow::Owned(text) => {
            let mut out = Vec::with_capacity(raw.len());
            push_escaped(&mut out, &text);
            // UTF-8 because ASCII replaced ASCII in a `str`.
            Cow::Owned(String::from_utf8(out).unwrap_or_default())
        }
    }
}

/// Appends JSON without space between its tokens, and strings as from [`canonical_raw`]. Numbers
/// stay unchanged.
///
/// `json` must be valid: an invalid text is appended in part.
#[cfg(any(feature = "push", test))]
pub fn push_compact(out: &mut Vec<u8>, json: &str) {
    let is_space = |c: char| matches!(c, ' ' | '\n' | '\r' | '\t');
    let mut rest = json;
    loop {
        let (tokens, string) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
        out.extend(tokens.split(is_space).flat_map(str::bytes));
        let Some(string) = string.strip_prefix('"') else { return };
        let raw = &string[..string_end(string.as_bytes())];
        out.push(b'"');
        out.extend_from_slice(canonical_raw(raw).as_bytes());
        out.push(b'"');
        rest = string.get(raw.len() + 1..).unwrap_or_default();
    }
}

/// The end of the string text that `bytes` begins with.
#[cfg(any(feature = "push", test))]
fn string_end(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
        at += if *byte == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
        at += 1;
    }
    pairs
};

/// Whether RFC 8259 §7 requires `byte` to be escaped.
const fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// The number of bytes from the start that need no escape.
fn clean_prefix(bytes: &[u8]) -> usize {
    // Branch-free over a block, so that the compiler can use vector instructions.
    const BLOCK: usize = 32;
    let dirty = |block: &&[u8]| block.iter().fold(false, |any, &byte| any | needs_escape(byte));
    let blocks = bytes.chunks_exact(BLOCK).take_while(|block| !dirty(block)).count();
    let start = blocks * BLOCK;
    let tail = bytes.get(start..).unwrap_or_default();
    start + tail.iter().position(|&byte| needs_escape(byte)).unwrap_or(tail.len())
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b">".to_vec();
        write(&mut out);
        String::from_utf8_lossy(&out[1..]).into_owned()
    }

    #[test]
    fn only_required_characters_are_escaped() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}\u{e9}\u{2028}";
        let raw = "\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\u{e9}\u{2028}";
        assert_eq!(written(|out| push_escaped(out, text)), raw);
        assert_eq!(written(|out| push_string(out, "a\nb")), "\"a\\nb\"");
        assert_eq!(written(|out| push_string(out, "")), "\"\"");
    }

    #[test]
    fn block_escape_scan_equals_naive_scan() {
        for length in [0, 1, 31, 32, 33, 64, 100] {
            for at in 0..=length {
                for byte in [b'"', b'\\', 0, 0x1f, b' ', b'a', 0x7f] {
                    let mut bytes = vec![b'x'; length];
                    bytes.insert(at, byte);
                    let naive = bytes.iter().position(|&b| needs_escape(b));
                    assert_eq!(clean_prefix(&bytes), naive.unwrap_or(bytes.len()));
                }
            }
        }
    }

    #[test]
    fn integers_are_decimal() {
        let powers = (0..20).map(|n| 10_u64.pow(n)).flat_map(|p| [p - 1, p, p + 1]);
        for value in powers.chain([u64::MAX, u64::MAX - 1, 42, 99, 100, 101]) {
            assert_eq!(written(|out| push_u64(out, value)), value.to_string());
        }
        for value in [0, 1, -1, -10, 12345, i64::MIN, i64::MAX] {
            assert_eq!(written(|out| push_i64(out, value)), value.to_string());
        }
    }

    #[test]
    fn canonical_raw_decodes_unneeded_escapes() {
        assert!(matches!(canonical_raw("a/\u{e9}"), Cow::Borrowed("a/\u{e9}")));
        assert_eq!(canonical_raw(r"a\/\u00e9\u0041\u000A\t\u0022"), "a/\u{e9}A\\n\\t\\\"");
    }
    #[test]
    fn push_compact_removes_white_space_and_unneeded_escapes() {
        let spaced = " { \"a \\u00e9\\/\" : [ 1.50 , -0 ,\t\"\\\\\" , \
            \"\\\"\\ud83d\\ude00\" ] ,\r\n\"b\":{ } }\n";
        let compact = "{\"a \u{e9}/\":[1.50,-0,\"\\\\\",\"\\\"\u{1f600}\"],\"b\":{}}";
        assert_eq!(written(|out| push_compact(out, spaced)), compact);
        assert_eq!(written(|out| push_compact(out, compact)), compact);
        for torn in ["\"", "\"a", "\"\\", "\"\\\"", "\"\u{e9}\\"] {
            written(|out| push_compact(out, torn));
        }
    }
}
