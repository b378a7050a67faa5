//! One parser per worker: simd-json marks a document without changing its bytes.
//!
//! simd-json needs a mutable slice with space after it: a private copy, unless the caller lends a
//! buffer. The second stage of simd-json would unescape strings in place, but stops before the
//! first bracket, so a lent buffer is used for arrays and objects only.
//!
//! simd-json's first stage checks UTF-8 and finds where each token begins. Its second stage, which
//! would unescape strings and convert numbers unnecessarily, is stopped by a depth limit of 0 and
//! replaced by [`build`]. A rejected document is examined again by [`slow`], which alone decides
//! the error. All buffers are retained between documents, so a warm parser does not allocate.

use std::mem;

use simd_json::value::tape::Node as TapeNode;
use simd_json::{Buffers, ErrorType, Tape, fill_tape_padded};

use super::build::{Marked, Node, build};
use super::source::Source;
use super::value::Value;
use super::{JsonError, slow};

/// Longest document in bytes: spans are 32-bit and the copy is padded.
pub const SIZE_MAX: usize = u32::MAX as usize - 2 * PADDING;

/// Deepest nesting that can be requested: simd-json's own default.
pub const DEPTH_CAP: usize = 1024;

/// simd-json reads whole SIMD blocks; its largest is 64 bytes.
pub const PADDING: usize = 64;

/// The byte order mark with which editors and PowerShell begin a file.
pub const BYTE_ORDER_MARK: &[u8; 3] = b"\xef\xbb\xbf";

/// A reusable JSON parser; it owns all scratch memory of parsing.
///
/// ```
/// use peregrine::json::Parser;
/// let mut parser = Parser::new();
/// let value = parser.parse(br#"{"id": 1.50, "ok": true}"#, 8)?;
/// assert_eq!(value.get("id").map(|id| id.raw()), Some(&b"1.50"[..]));
/// # Ok::<(), peregrine::json::JsonError>(())
/// ```
pub struct Parser {
    copy: Vec<u8>,
    buffers: Buffers,
    /// Stays empty; retained because simd-json reserves memory in it.
    tape: Vec<TapeNode<'static>>,
    nodes: Vec<Node>,
    tokens_max: usize,
    #[cfg(feature = "client")]
    accepts_lone_surrogates: bool,
}

impl Parser {
    /// Creates a parser with empty buffers; they grow with its documents.
    #[must_use]
    pub fn new() -> Self {
        Self::bounded(usize::MAX)
    }

    /// As [`Parser::new`], for documents of at most `tokens_max` tokens (RFC 8259 §2: the six
    /// structural characters, strings, numbers and literal names).
    ///
    /// Work and memory grow with the number of tokens, not of bytes. The number is known after the
    /// first stage, before the table is built.
    ///
    /// Scratch memory is up to 9 times the longest document and 16 bytes for each token: a document
    /// of brackets needs a copy and, in a vector that doubles, the offset of each bracket. Long
    /// strings need only twice the document. Dropping the parser frees the memory.
    #[must_use]
    pub fn bounded(tokens_max: usize) -> Self {
        Self {
            copy: Vec::new(),
            buffers: Buffers::with_max_depth(0, 0),
            tape: Vec::new(),
            nodes: Vec::new(),
            tokens_max,
            #[cfg(feature = "client")]
            accepts_lone_surrogates: false,
        }
    }

    /// Whether to accept escapes of half a surrogate pair, as Python and JavaScript write them (RFC
    /// 8259 §8.2); default false. They are read as U+FFFD; the bytes stay unchanged, so other JSON
    /// writers must check them first.
    #[cfg(feature = "client")]
    pub fn accept_lone_surrogates(&mut self, accepts: bool) {
        self.accepts_lone_surrogates = accepts;
    }

    /// Parses one document of `src`, which may be surrounded by white space. A byte order mark in
    /// front of the document is skipped (RFC 8259 §8.1).
    ///
    /// `depth_max` counts nested arrays and objects (`[]` is 1, a scalar 0); above [`DEPTH_CAP`] it
    /// counts as [`DEPTH_CAP`]. Duplicate keys are retained. The value borrows `src` and this
    /// parser until the next document.
    ///
    /// # Errors
    ///
    /// [`JsonError::TooLarge`] before anything is read, [`JsonError::Tokens`] before any other
    /// error, [`JsonError::Utf8`], [`JsonError::Empty`], [`JsonError::Syntax`],
    /// [`JsonError::Range`] and, for valid documents only, [`JsonError::Depth`].
    pub fn parse<'p>(
        &'p mut self,
        src: &'p [u8],
        depth_max: usize,
    ) -> Result<Value<'p>, JsonError> {
        self.parse_from(src.into(), depth_max)
    }

    /// As [`Parser::parse`], without a copy if the source has a block of space after the document.
    ///
    /// # Errors
    ///
    /// As [`Parser::parse`].
    pub fn parse_from<'p>(
        &'p mut self,
        mut source: Source<'p>,
        depth_max: usize,
    ) -> Result<Value<'p>, JsonError> {
        let length = source.bytes().len();
        if length > SIZE_MAX {
            return Err(JsonError::TooLarge);
        }
        let depth_max = depth_max.min(DEPTH_CAP);
        let is_container = is_container(source.bytes());
        let (escapes, is_marked) = match source.buffer(PADDING).filter(|_| is_container) {
            Some((buffer, length)) => (has_backslash(buffer, length), self.mark(buffer, length)),
            None => {
                let mut copy = self.copied(source.bytes());
                let both = (has_backslash(&copy, length), self.mark(&mut copy, length));
                self.copy = copy;
                both
            }
        };
        let src = source.into_bytes();
        // Each mark is a token, also in a rejected document.
        let marks = self.buffers.structural_indexes();
        if marks.len() > self.tokens_max {
            return Err(JsonError::Tokens { most: self.tokens_max });
        }
        let count = if is_marked {
            let doc = Marked { src, marks, escapes };
            build(&mut self.nodes, &doc, depth_max)
        } else {
            None
        };
        let count = match count {
            Some(count) => count,
            None => self.judge(src, depth_max)?,
        };
        let nodes = self.nodes.get(..count).unwrap_or_default();
        Value::root(src, nodes).ok_or(JsonError::Empty)
    }

    /// Copies `src` into the private buffer, which the caller puts back.
    #[inline]
    fn copied(&mut self, src: &[u8]) -> Vec<u8> {
        let mut copy = mem::take(&mut self.copy);
        copy.clear();
        copy.reserve(src.len() + PADDING);
        copy.extend_from_slice(src);
        copy.extend_from_slice(&[b' '; PADDING]);
        copy
    }

    /// Runs the first stage of simd-json over the first `length` bytes of `buffer`, which has space
    /// after them; false: this stage rejects the document, or the second stage does so for a
    /// document of one scalar.
    #[inline]
    fn mark(&mut self, buffer: &mut [u8], length: usize) -> bool {
        let mut tape = Tape(mem::take(&mut self.tape)).reset();
        let result = fill_tape_padded(buffer, length, &mut self.buffers, &mut tape);
        // Only the second stage checks depth, at the first bracket.
        let marked = match &result {
            Ok(()) => true,
            Err(error) => matches!(error.error(), ErrorType::DepthLimitExceeded),
        };
        self.tape = tape.reset().0;
        marked
    }

    /// Decides the error of a rejected document.
    #[cold]
    #[inline(never)]
    fn judge(&mut self, src: &[u8], depth_max: usize) -> Result<usize, JsonError> {
        str::from_utf8(src).map_err(|_| JsonError::Utf8)?;
        let paired = self.paired(src);
        // The replacements have the same length, so that spans are valid for both texts.
        let checked = paired.as_deref().unwrap_or(src);
        let marked = if src.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let document = checked.get(marked..).unwrap_or_default();
        let depth = slow::survey(document).map_err(|error| error.offset_by(marked))?;
        if depth > depth_max {
            return Err(JsonError::Depth);
        }
        if marked > 0 || paired.is_some() {
            let mut copy = self.copied(checked);
            copy[..marked].fill(b' ');
            let is_marked = self.mark(&mut copy, src.len());
            self.copy = copy;
            let marks = self.buffers.structural_indexes();
            let doc = Marked { src: checked, marks, escapes: true };
            let count = is_marked.then(|| build(&mut self.nodes, &doc, depth_max)).flatten();
            if let Some(count) = count {
                return Ok(count);
            }
        }
        // Not an error: the document is one number that fits no machine type.
        let start = document.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
        let start = (marked + start) as u32;
        let doc = Marked { src: checked, marks: &[start], escapes: true };
        build(&mut self.nodes, &doc, 0).ok_or(JsonError::Syntax { offset: 0 })
    }

    /// The document without lone surrogates, if the parser accepts them and the document has some.
    #[cfg(feature = "client")]
    fn paired(&self, src: &[u8]) -> Option<Vec<u8>> {
        self.accepts_lone_surrogates.then(|| slow::without_lone_surrogates(src)).flatten()
    }

    #[cfg(not(feature = "client"))]
    fn paired(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Whether the document, if valid, is an array or an object.
#[inline]
fn is_container(src: &[u8]) -> bool {
    let first = src.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    matches!(first, Some(b'{' | b'['))
}

/// Whether the first `length` bytes contain a backslash; a backslash in the space after them may
/// count, too.
#[inline]
fn has_backslash(buffer: &[u8], length: usize) -> bool {
    // Branch-free over a block, so that the compiler can use vector instructions.
    let found = |block: &[u8]| block.iter().fold(false, |any, &byte| any | (byte == b'\\'));
    let whole = length.next_multiple_of(PADDING).min(buffer.len());
    buffer[..whole].chunks_exact(PADDING).any(found)
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn outcome(src: impl AsRef<[u8]>, depth_max: usize) -> Result<(), JsonError> {
        Parser::new().parse(src.as_ref(), depth_max).map(|_| ())
    }

    fn syntax(src: impl AsRef<[u8]>) -> bool {
        matches!(outcome(src, DEPTH_CAP), Err(JsonError::Syntax { .. }))
    }

    #[test]
    fn invalid_documents_return_their_json_error() {
        assert_eq!(outcome("", 4), Err(JsonError::Empty));
        assert_eq!(outcome(" \t\r\n", 4), Err(JsonError::Empty));
        assert_eq!(outcome("[1,]", 4), Err(JsonError::Syntax { offset: 3 }));
        assert_eq!(outcome(b"\"\xff\"", 4), Err(JsonError::Utf8));
        assert_eq!(outcome("[[1]]", 1), Err(JsonError::Depth));
        assert_eq!(outcome("1", 0), Ok(()));
        assert_eq!(outcome("[]", 0), Err(JsonError::Depth));
    }

    #[test]
    fn only_the_four_json_bytes_are_white_space() {
        for byte in 0..=0x7f_u8 {
            let white = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let digit = byte.is_ascii_digit();
            assert_eq!(outcome([b'[', byte, b']'], 4).is_ok(), white || digit, "{byte:#x}");
            assert_eq!(outcome([b'[', b']', byte], 4).is_ok(), white, "{byte:#x}");
            assert_eq!(outcome([byte, b'[', b']'], 4).is_ok(), white, "{byte:#x}");
            let control = byte < 0x20 || byte == b'"' || byte == b'\\';
            assert_eq!(outcome([b'"', byte, b'"'], 4).is_ok(), !control, "{byte:#x}");
        }
    }

    #[test]
    fn leniencies_of_other_parsers_are_errors() {
        for bad in [
            "\u{feff}\u{feff}[]",
            "[\u{feff}]",
            "[]\u{feff}",
            "[] x",
            "[]]",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "nul",
            "truex",
            "NaN",
            "Infinity",
            "[1 2]",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":1,}",
            "'a'",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a",
            "[",
            "{",
            "{\"a\":",
            "]",
            "\0",
            "[]\0",
            "1\0",
            "/**/1",
            "\u{a0}1",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\ud800\"",
            "\"\\ud800x\"",
            "{\"\\udead\":1}",
        ] {
            assert!(syntax(bad), "{bad:?}");
        }
        for good in ["-0", "0", "\"\\ud83d\\ude00\"", "{\"a\":1,\"a\":2}", "\"\u{7f}\u{2028}\""] {
            assert_eq!(outcome(good, 4), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let mut parser = Parser::new();
        for document in ["[1,\"\\u0041\"]", " {\"a\":[]} ", "\"x\"", "1e400", "null"] {
            let text = format!("\u{feff}{document}");
            let value = parser.parse(text.as_bytes(), 2).unwrap();
            assert_eq!(value.raw_str(), document.trim(), "{document}");
            assert_eq!(&text[value.span()], document.trim(), "{document}");
        }
        assert_eq!(outcome("\u{feff}[[1]]", 1), Err(JsonError::Depth));
        assert_eq!(outcome("\u{feff}[1,]", 4), Err(JsonError::Syntax { offset: 6 }));
        assert_eq!(outcome("\u{feff} ", 4), Err(JsonError::Empty));
        assert_eq!(outcome(b"\xef\xbb[]", 4), Err(JsonError::Utf8));
    }

    #[test]
    #[cfg(feature = "client")]
    fn lone_surrogates_are_preserved_if_enabled() {
        let mut parser = Parser::new();
        parser.accept_lone_surrogates(true);
        for text in [r"\ud800", r"a\\\udc00b", r"\ud83d\ude00\ud83d", r"\ud800\ud800", r"\uDFFFx\n"]
        {
            assert!(syntax(format!("[\"{text}\"]")), "{text}");
            for document in [format!("[\"{text}\"]"), format!("\u{feff}{{\"{text}\":\"{text}\"}}")]
            {
                let value = parser.parse(document.as_bytes(), 1).unwrap();
                let (key, first) = (value.members().next(), value.elements().next());
                let value = key.map(|(_, value)| value).or(first).unwrap();
                assert_eq!(value.raw_str(), format!("\"{text}\""), "{document}");
                assert!(
                    String::from_utf8_lossy(&value.text().unwrap()).contains('\u{fffd}'),
                    "{document}"
                );
            }
            assert_eq!(
                parser.parse(format!("\"{text}\"").as_bytes(), 0).unwrap().raw_str().len(),
                text.len() + 2
            );
        }
        for bad in
            [r#"["\ud800",]"#, r#"["\ud8"]"#, r#"["\ud800"#, r#"[\ud800]"#, r#"["\x\ud800"]"#]
        {
            assert!(
                matches!(parser.parse(bad.as_bytes(), 4), Err(JsonError::Syntax { .. })),
                "{bad}"
            );
        }
        assert!(matches!(parser.parse(br#"[["\ud800"]]"#, 1), Err(JsonError::Depth)));
    }

    #[test]
    fn long_numbers_keep_their_text_unless_out_of_range() {
        let mut parser = Parser::new();
        for number in [
            "1e400",
            "-1e999",
            "1E+999",
            "1e-99999999999999999999",
            "-0.0e00",
            "1234567890123456789012345678901234567890",
            "18446744073709551616",
            "-9223372036854775809",
            "0.00000000000000000000000000000000000000000000000001",
        ] {
            let doc = format!(" {{ \"a\\n\" : [ {number} , {number}],\"b\":{number}\n}} ");
            let value = parser.parse(doc.as_bytes(), 4).unwrap();
            assert_eq!(value.get("b").unwrap().raw_str(), number);
            let first = value.get("a\n").unwrap().elements().next().unwrap();
            assert_eq!(first.raw_str(), number);
            assert_eq!(parser.parse(number.as_bytes(), 0).unwrap().raw_str(), number);
            assert!(syntax(format!("[{number}x]")), "{number}");
            assert!(syntax(format!("[{number},]")), "{number}");
        }
        for number in ["1e+1111", "1E99999999999999999999", &format!("{}e+308", "1".repeat(44))] {
            let refused = parser.parse(number.as_bytes(), 0).err();
            assert_eq!(refused, Some(JsonError::Range { offset: 0 }), "{number}");
        }
    }

    #[test]
    fn depth_error_requires_a_valid_document() {
        let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
        for depth in [1, 63, 64, 65, DEPTH_CAP - 1, DEPTH_CAP] {
            assert_eq!(outcome(nest(depth), depth), Ok(()), "{depth}");
            assert_eq!(outcome(nest(depth), depth - 1), Err(JsonError::Depth), "{depth}");
        }
        assert_eq!(outcome(nest(DEPTH_CAP + 1), usize::MAX), Err(JsonError::Depth));
        assert_eq!(outcome(nest(100_000), 64), Err(JsonError::Depth));
        assert!(syntax("[".repeat(100_000)));
        assert!(syntax("{\"a\":".repeat(100_000)));
        assert!(syntax(nest(100_000) + "]"));
        let mixed = "{\"a\":[".repeat(5_000) + &"]}".repeat(5_000);
        assert_eq!(outcome(&mixed, 64), Err(JsonError::Depth));
        assert!(syntax(mixed.replacen("]}", "}]", 1)));
    }

    #[test]
    fn the_second_stage_of_simd_json_is_not_entered() {
        let mut parser = Parser::new();
        for (src, marks) in [(&b"[1,2]"[..], 5), (b"{\"a\":{}}", 6), (b"[1e999,\"\\x\"]", 5)] {
            let mut copy = parser.copied(src);
            assert!(parser.mark(&mut copy, src.len()));
            assert!(copy.starts_with(src));
            assert_eq!(parser.buffers.structural_indexes().len(), marks);
            assert!(parser.tape.is_empty());
        }
        for src in [&b"[\"]"[..], b"[\"\xff\"]", b"[\"\n\"]", b"  ", b""] {
            let mut copy = parser.copied(src);
            assert!(!parser.mark(&mut copy, src.len()));
        }
    }

    #[test]
    fn container_in_padded_buffer_is_parsed_without_copy() {
        let mut parser = Parser::new();
        let buffer = [&b"..  [\"\\u0041\",1]\x00\"\\"[..], &[b'}'; 2 * PADDING]].concat();
        for (length, copies) in [(14, false), (2 * PADDING, true)] {
            let mut lent = buffer.clone();
            let value = parser.parse_from(Source::roomy(&mut lent[2..], length), 4);
            assert_eq!(value.is_err(), copies);
            assert_eq!(parser.copy.capacity() > 0, copies);
            assert_eq!(lent, buffer);
        }
        // The second stage would unescape this string in place.
        let mut lent = [&b"\"\\u0041\""[..], &[0; PADDING]].concat();
        let value = parser.parse_from(Source::roomy(&mut lent, 8), 4).unwrap();
        assert_eq!(value.raw(), b"\"\\u0041\"");
    }

    #[test]
    fn parser_reuse_ignores_the_previous_document() {
        let mut parser = Parser::new();
        assert_eq!(parser.parse(b"[1,\"\\u0041\",{}]", 4).unwrap().elements().count(), 3);
        assert!(parser.parse(b"[1,", 4).is_err());
        assert_eq!(parser.parse(b" {} ", 4).unwrap().raw(), b"{}");
        assert_eq!(parser.parse(b"[2]", 4).unwrap().raw(), b"[2]");
    }
}
