//! The second check of a rejected document: is it invalid, out of range, or too deep?
//!
//! A plain RFC 8259 acceptor in one pass, with one bit of memory per open bracket and without
//! recursion. It decides every `Syntax` error and its offset; the fast path uses its checks of
//! numbers and escapes.

use super::JsonError;

/// Maximum digits of an exponent, in a number beyond the range of a double.
const EXPONENT_DIGITS_MAX: usize = 3;

/// Maximum digits before an exponent, in a number beyond the range of a double (IEEE 754 decimal128
/// has 34).
const MANTISSA_DIGITS_MAX: usize = 34;

/// The tokens that may come next.
enum Expect {
    Value,
    FirstElement,
    FirstKey,
    Key,
    After,
}

/// Checks `src`; returns its depth.
///
/// # Errors
///
/// [`JsonError::Empty`], [`JsonError::Syntax`] and [`JsonError::Range`].
pub(super) fn survey(src: &[u8]) -> Result<usize, JsonError> {
    let mut scan = ByteCursor { src, at: 0 };
    let mut nest = Nest::default();
    let mut expect = Expect::Value;
    scan.white();
    if scan.at == src.len() {
        return Err(JsonError::Empty);
    }
    loop {
        scan.white();
        expect = match expect {
            Expect::Value => match scan.peek() {
                Some(b'[') => nest.push(&mut scan, false),
                Some(b'{') => nest.push(&mut scan, true),
                Some(_) | None => scan.scalar()?,
            },
            Expect::FirstElement => match scan.peek() {
                Some(b']') => nest.pop(&mut scan),
                Some(_) | None => Expect::Value,
            },
            Expect::FirstKey => match scan.peek() {
                Some(b'}') => nest.pop(&mut scan),
                Some(_) | None => Expect::Key,
            },
            Expect::Key => {
                scan.string()?;
                scan.white();
                scan.eat(b':')?;
                Expect::Value
            }
            Expect::After => match (nest.in_object(), scan.peek()) {
                (None, None) => return Ok(nest.deepest),
                (Some(true), Some(b'}')) | (Some(false), Some(b']')) => nest.pop(&mut scan),
                (Some(object), Some(b',')) => {
                    scan.at += 1;
                    if object { Expect::Key } else { Expect::Value }
                }
                (None | Some(_), Some(_)) | (Some(_), None) => return Err(scan.fail()),
            },
        };
    }
}

/// Whether `text` is exactly one number, in range.
#[inline]
pub(super) fn is_number(text: &[u8]) -> bool {
    match text {
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => true,
        _ => is_any_number(text),
    }
}

fn is_any_number(text: &[u8]) -> bool {
    let mut scan = ByteCursor { src: text, at: 0 };
    match scan.number() {
        Ok(exponent) => scan.at == text.len() && (!exponent || is_in_range(text)),
        Err(_) => false,
    }
}

/// Whether `text` is exactly one string.
pub(super) fn is_string(text: &[u8]) -> bool {
    let mut scan = ByteCursor { src: text, at: 0 };
    scan.string().is_ok() && scan.at == text.len()
}

/// Whether `text` is valid between two quotes; it need not be UTF-8.
pub(super) fn is_text(text: &[u8]) -> bool {
    let mut scan = ByteCursor { src: text, at: 0 };
    scan.text().is_ok() && scan.at == text.len()
}

/// A copy of the same length in which U+FFFD replaces each escape of half a surrogate pair; `None`:
/// no such escape. Takes linear time, and any text: outside strings, a backslash is invalid anyway.
#[cfg(feature = "client")]
pub(super) fn without_lone_surrogates(src: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let mut scan = ByteCursor { src, at };
        scan.eat(b'\\').and_then(|()| scan.hex()).ok()
    };
    let (mut copy, mut at) = (None, 0);
    while let Some(found) = src.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\\')) {
        at += found;
        match unit(at) {
            Some(0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => at += 12,
            Some(0xd800..0xe000) => {
                let copy = copy.get_or_insert_with(|| src.to_vec());
                copy[at + 2..at + 6].copy_from_slice(b"fffd");
                at += 6;
            }
            Some(_) | None => at += 2,
        }
    }
    copy
}

/// The open brackets, one bit each: 1 for an object.
#[derive(Default)]
struct Nest {
    bits: Vec<u64>,
    depth: usize,
    deepest: usize,
}

impl Nest {
    /// Steps over an opening bracket.
    fn push(&mut self, scan: &mut ByteCursor<'_>, object: bool) -> Expect {
        scan.at += 1;
        if self.depth.is_multiple_of(64) {
            self.bits.push(0);
        }
        if let Some(word) = self.bits.last_mut() {
            *word = *word << 1 | u64::from(object);
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if object { Expect::FirstKey } else { Expect::FirstElement }
    }

    /// Steps over a closing bracket, which matches.
    fn pop(&mut self, scan: &mut ByteCursor<'_>) -> Expect {
        scan.at += 1;
        if let Some(word) = self.bits.last_mut() {
            *word >>= 1;
        }
        self.depth -= 1;
        if self.depth.is_multiple_of(64) {
            self.bits.pop();
        }
        Expect::After
    }

    /// Whether the innermost open bracket is an object's; `None`: no bracket is open.
    fn in_object(&self) -> Option<bool> {
        self.bits.last().map(|word| word & 1 == 1)
    }
}

/// A cursor over the source: `at <= src.len()`.
struct ByteCursor<'s> {
    src: &'s [u8],
    at: usize,
}

impl ByteCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.src.get(self.at).copied()
    }

    fn fail(&self) -> JsonError {
        JsonError::Syntax { offset: self.at }
    }

    /// Steps over the one byte that is allowed here.
    fn eat(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.fail());
        }
        self.at += 1;
        Ok(())
    }

    fn white(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn scalar(&mut self) -> Result<Expect, JsonError> {
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(b'-' | b'0'..=b'9') => {
                let start = self.at;
                if self.number()? && !is_in_range(&self.src[start..self.at]) {
                    return Err(JsonError::Range { offset: start });
                }
            }
            Some(_) | None => return Err(self.fail()),
        }
        Ok(Expect::After)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        word.iter().try_for_each(|&byte| self.eat(byte))
    }

    /// RFC 8259 §6; returns whether the number has an exponent.
    fn number(&mut self) -> Result<bool, JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(_) | None => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if !matches!(self.peek(), Some(b'e' | b'E')) {
            return Ok(false);
        }
        self.at += 1;
        if let Some(b'+' | b'-') = self.peek() {
            self.at += 1;
        }
        self.digits()?;
        Ok(true)
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.fail()) } else { Ok(()) }
    }

    /// RFC 8259 §7, and each escaped surrogate must be half of a pair.
    fn string(&mut self) -> Result<(), JsonError> {
        self.eat(b'"')?;
        self.text()?;
        self.eat(b'"')
    }

    /// Reads the text between quotes, up to the next quote or the end.
    fn text(&mut self) -> Result<(), JsonError> {
        loop {
            match self.peek() {
                Some(b'"') | None => return Ok(()),
                Some(b'\\') => self.escape()?,
                Some(0..0x20) => return Err(self.fail()),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.eat(b'\\')?;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let paired = match self.hex()? {
                    0xd800..0xdc00 => {
                        self.eat(b'\\')?;
                        matches!(self.hex()?, 0xdc00..0xe000)
                    }
                    unit => !matches!(unit, 0xdc00..0xe000),
                };
                if !paired {
                    return Err(JsonError::Syntax { offset: start });
                }
            }
            Some(_) | None => return Err(self.fail()),
        }
        Ok(())
    }

    /// `uXXXX`
    fn hex(&mut self) -> Result<u32, JsonError> {
        self.eat(b'u')?;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            unit = unit << 4 | digit.ok_or_else(|| self.fail())?;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// RFC 8259 §6: "this specification allows implementations to set limits on the range and precision
/// of numbers accepted".
///
/// Here a number beyond a double is text, but a peer that receives it may expand it: `1e1000000000`
/// has twelve characters and a gigabyte of digits. So a number with an exponent that is beyond a
/// double has at most [`EXPONENT_DIGITS_MAX`] digits in the exponent and [`MANTISSA_DIGITS_MAX`]
/// before it.
fn is_in_range(number: &[u8]) -> bool {
    let text = std::str::from_utf8(number).unwrap_or_default();
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return true;
    }
    let count = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    count(exponent.trim_start_matches(['+', '0'])) <= EXPONENT_DIGITS_MAX
        && count(mantissa) <= MANTISSA_DIGITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_have_exact_offsets() {
        for (src, offset) in [
            ("[1,]", 3),
            ("[1", 2),
            ("{\"a\" 1}", 5),
            ("{\"a\":1,}", 7),
            ("\"a\u{1}\"", 2),
            ("01", 1),
            ("-x", 1),
            ("tru", 3),
            ("\"ab\\ud800\"", 9),
            ("\"\\udfff\"", 1),
            ("[}", 1),
            ("[]]", 2),
        ] {
            assert_eq!(survey(src.as_bytes()), Err(JsonError::Syntax { offset }), "{src}");
        }
        assert_eq!(survey(b" "), Err(JsonError::Empty));
    }

    #[test]
    fn bracket_stack_works_across_word_boundaries() {
        for depth in [63, 64, 65, 128, 129, 1000] {
            let open = "[{\"a\":".repeat(depth / 2);
            let doc = format!("{open}1{}", "}]".repeat(depth / 2));
            assert_eq!(survey(doc.as_bytes()), Ok(depth / 2 * 2));
            assert!(survey(doc.replacen("}]", "]}", 1).as_bytes()).is_err());
        }
    }
}
