//! The JSON codec: a span table over the caller's bytes, writers that append, base64.
//!
//! Invariant: the caller's bytes are never changed and never copied into a value; every node of a
//! document is its exact source text, so numbers and strings can be stored, echoed and compared
//! verbatim. A document that is not RFC 8259 JSON in UTF-8 is rejected; numbers may have any size,
//! except for exponents beyond 999. The code does not recurse, and no input makes it panic. Texts
//! are bytes that were validated as UTF-8.
//!
//! In scope: parsing one complete document, reading it, escaping, integers, base64 text. Out of
//! scope: streaming documents, floating point, trees that own their values, serde.

use std::fmt;

mod build;
mod members;
mod number;
mod parse;
mod slow;
mod source;
mod text;
mod value;

pub mod base64;
pub mod write;

#[cfg(feature = "internals")]
pub use members::MemberKey;
#[cfg(any(feature = "internals", feature = "client"))]
pub use parse::BYTE_ORDER_MARK;
pub use parse::{DEPTH_CAP, PADDING, Parser, SIZE_MAX};
pub use source::Source;
pub use value::{Kind, Value, ValueSlot};

/// Why a document was rejected. The sender of the bytes is to blame in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// The document has nothing but white space.
    Empty,
    /// The bytes are UTF-8 but not RFC 8259 JSON (or contain half a surrogate pair as an escape).
    Syntax {
        /// Byte offset of the first byte that cannot continue a document.
        offset: usize,
    },
    /// A number with an exponent exceeds a double and the parser's own limits.
    Range {
        /// Byte offset of the number.
        offset: usize,
    },
    /// The bytes are not UTF-8 (RFC 8259 §8.1).
    Utf8,
    /// Valid JSON, nested deeper than the caller allows.
    Depth,
    /// More tokens than the parser allows.
    Tokens {
        /// The limit.
        most: usize,
    },
    /// Longer than 32-bit spans reach, some 4 GiB.
    TooLarge,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty JSON document"),
            Self::Syntax { offset } => write!(f, "invalid JSON at byte {offset}"),
            Self::Range { offset } => write!(f, "the number at byte {offset} is out of range"),
            Self::Utf8 => f.write_str("JSON is not UTF-8"),
            Self::Depth => f.write_str("JSON is nested too deeply"),
            Self::Tokens { most } => write!(f, "JSON has more than {most} tokens"),
            Self::TooLarge => f.write_str("JSON document is too large"),
        }
    }
}

impl std::error::Error for JsonError {}

impl JsonError {
    /// The error with an offset in a document that is preceded by `skipped` bytes.
    fn offset_by(self, skipped: usize) -> JsonError {
        match self {
            Self::Syntax { offset } => Self::Syntax { offset: offset + skipped },
            Self::Range { offset } => Self::Range { offset: offset + skipped },
            Self::Empty | Self::Utf8 | Self::Depth | Self::Tokens { .. } | Self::TooLarge => self,
        }
    }
}

/// The document without its byte order mark, for readers that reject this mark (RFC 8259 §8.1).
#[cfg(feature = "client")]
pub fn without_mark(json: &[u8]) -> &[u8] {
    json.strip_prefix(BYTE_ORDER_MARK).unwrap_or(json)
}

/// Whether this thread has read half a surrogate pair as U+FFFD since the last call.
#[cfg(feature = "client")]
#[inline]
pub fn take_halves() -> bool {
    text::take_halves()
}

/// The document with U+FFFD in place of each escape of half a surrogate pair, for readers that
/// reject such escapes; `None`: the document has no such escape.
#[cfg(feature = "client")]
#[cold]
pub fn without_lone_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    slow::without_lone_surrogates(json)
}

/// Whether `text` is one document of at most `depth_max` levels, by the rules of [`Parser::parse`],
/// except that a byte order mark is rejected, because the text becomes part of another document.
///
/// For single texts that are not read afterwards: the check needs no parser, and for documents of
/// up to 64 levels only one word of memory.
///
/// # Errors
/// As [`Parser::parse`].
pub fn check(text: &[u8], depth_max: usize) -> Result<(), JsonError> {
    if text.len() > SIZE_MAX {
        return Err(JsonError::TooLarge);
    }
    str::from_utf8(text).map_err(|_| JsonError::Utf8)?;
    if slow::survey(text)? > depth_max.min(DEPTH_CAP) {
        return Err(JsonError::Depth);
    }
    Ok(())
}

/// Whether `text` is valid between the quotes of a string (RFC 8259 §7), in time linear in its
/// length, without allocating.
///
/// False for invalid UTF-8, a bare quote or control character, an invalid escape, and half a
/// surrogate pair: everything that [`check`] rejects in quotes.
#[inline]
pub fn is_text(text: &[u8]) -> bool {
    is_all_plain(text) || (slow::is_text(text) && str::from_utf8(text).is_ok())
}

/// Whether [`plain_len`] counts every byte of `text`; cheaper if the end is known.
#[inline]
pub fn is_all_plain(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks::<PLAIN_BLOCK>();
    match text.last_chunk() {
        // The last block may overlap the one before it.
        Some(last) => {
            blocks.iter().all(is_plain_block) && (rest.is_empty() || is_plain_block(last))
        }
        None => is_short_plain(text),
    }
}

/// Bytes that are examined together.
const PLAIN_BLOCK: usize = 16;

/// Branch-free, so that it compiles to a few vector instructions.
#[inline(always)]
fn is_plain_block(block: &[u8; PLAIN_BLOCK]) -> bool {
    block.iter().fold(0, |odd, byte| odd | u8::from(!is_plain(*byte))) == 0
}

/// As [`is_all_plain`], for less than a block.
#[inline]
fn is_short_plain(text: &[u8]) -> bool {
    let is_word_plain = |word: &[u8; 8]| not_plain(u64::from_le_bytes(*word)) == 0;
    match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => is_word_plain(first) && is_word_plain(last),
        _ => text.iter().all(|byte| is_plain(*byte)),
    }
}

/// The number of bytes of `text` before the first byte that is not ASCII or is special in a string:
/// a quote, a backslash, a control character.
#[inline]
#[cfg(any(test, feature = "client"))]
pub fn plain_len(text: &[u8]) -> usize {
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let special = not_plain(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    text.len() - tail.len() + tail.iter().take_while(|byte| is_plain(**byte)).count()
}

/// The high bits of the bytes that are not plain. Above the lowest such byte, a borrow may set
/// more.
#[inline(always)]
fn not_plain(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Sets the high bit of each byte that is below `other`.
    let below = |word: u64, other: u8| word.wrapping_sub(ONES * u64::from(other)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, b' ') | is(b'"') | is(b'\\') | word) & (ONES << 7)
}

#[inline(always)]
fn is_plain(byte: u8) -> bool {
    (b' '..0x80).contains(&byte) & (byte != b'"') & (byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_scans_equal_naive_scan() {
        for byte in 0..=u8::MAX {
            for at in 0..24 {
                for rest in [b'"', b'x', 0, 0x80] {
                    let mut text = [b'a'; 24];
                    text[at] = byte;
                    text.iter_mut().skip(at + 1).for_each(|next| *next = rest);
                    let plain = text.iter().position(|byte| !is_plain(*byte));
                    assert_eq!(plain_len(&text), plain.unwrap_or(24), "{byte:#x} at {at}");
                    for len in 0..=24 {
                        let is_all = plain.is_none_or(|plain| plain >= len);
                        assert_eq!(is_all_plain(&text[..len]), is_all, "{byte:#x} at {at}, {len}");
                    }
                }
            }
        }
    }
}
