//! Converts `google.protobuf.Struct` and `Value` to JSON text.
//!
//! Invariant: a `Struct` from a client is stored as JSON text, which other bindings send unchanged.
//! The conversion does not recurse.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::{
    json::write::{push_escaped, push_i64},
    pb::{Fields, Malformed, Value},
};

use super::fields::{
    entry,
    other::{list_value, structure, value},
};

/// JSON tokens of an empty container, of a member (key, colon, value, comma), and of an element.
const BRACKETS: usize = 2;
const MEMBER: usize = 4;
const ELEMENT: usize = 2;

/// Why a `Struct` or `Value` cannot be converted to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJson {
    /// Not a valid message.
    Malformed,
    /// The value is nested too deeply.
    Depth,
    /// The JSON would have too many tokens.
    Tokens,
    /// A number is infinite or NaN.
    Number,
}

impl From<Malformed> for NotJson {
    fn from(_: Malformed) -> NotJson {
        NotJson::Malformed
    }
}

/// Limits for the JSON of a message.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The maximum number of objects and lists around a value.
    pub depth_max: usize,
    /// Remaining tokens (RFC 8259 §2) for this and the following values of the message.
    pub tokens: &'a Cell<usize>,
}

impl Bounds<'_> {
    fn take(&self, tokens: usize) -> Result<(), NotJson> {
        self.tokens.set(self.tokens.get().checked_sub(tokens).ok_or(NotJson::Tokens)?);
        Ok(())
    }
}

/// An open container: the remaining fields of its message.
struct Open<'a> {
    fields: Fields<'a>,
    is_object: bool,
}

/// Appends the JSON object that a `Struct` represents; its members keep their order.
///
/// `skip`: a member to omit.
///
/// # Errors
/// [`NotJson`]; `out` then has partial output.
pub fn push_struct(
    out: &mut Vec<u8>,
    message: &[u8],
    skip: Option<&str>,
    bounds: Bounds<'_>,
) -> Result<(), NotJson> {
    bounds.take(BRACKETS)?;
    out.push(b'{');
    let top = Open { fields: Fields(message), is_object: true };
    push_open(out, top, skip, bounds)
}

/// Appends the JSON that a `Value` represents; an unset `Value` is `null`.
///
/// # Errors
/// As [`push_struct`].
pub fn push_value(out: &mut Vec<u8>, message: &[u8], bounds: Bounds<'_>) -> Result<(), NotJson> {
    bounds.take(BRACKETS)?;
    match scalar_or_open(out, message)? {
        Some(open) => push_open(out, open, None, bounds),
        None => Ok(()),
    }
}

fn push_open<'a>(
    out: &mut Vec<u8>,
    top: Open<'a>,
    skip: Option<&str>,
    bounds: Bounds<'_>,
) -> Result<(), NotJson> {
    let mut stack: SmallVec<[Open<'a>; 8]> = SmallVec::new();
    stack.push(top);
    while let Some(open) = stack.last_mut() {
        let is_object = open.is_object;
        let entries_field = if is_object { structure::FIELDS } else { list_value::VALUES };
        let item = match open.fields.next() {
            None => {
                out.push(if is_object { b'}' } else { b']' });
                stack.pop();
                continue;
            }
            Some(field) => match field? {
                (number, item) if number == entries_field => item.bytes()?,
                _ => continue,
            },
        };
        bounds.take(if is_object { MEMBER } else { ELEMENT })?;
        let item = if is_object {
            member(out, item, skip.filter(|_| stack.len() == 1))?
        } else {
            comma(out);
            Some(item)
        };
        if let Some(item) = item
            && let Some(open) = scalar_or_open(out, item)?
        {
            if stack.len() >= bounds.depth_max {
                return Err(NotJson::Depth);
            }
            bounds.take(BRACKETS - 1)?;
            stack.push(open);
        }
    }
    Ok(())
}

/// Appends a comma, except for the first item: only then is the last byte an opening bracket.
fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{' | b'[')) {
        out.push(b',');
    }
}

/// Appends the key of a member and returns its value; `None`: the member is skipped.
fn member<'a>(
    out: &mut Vec<u8>,
    message: &'a [u8],
    skip: Option<&str>,
) -> Result<Option<&'a [u8]>, NotJson> {
    let (mut key, mut item) = ("", &[][..]);
    for field in Fields(message) {
        match field? {
            (entry::KEY, text) => key = text.text()?,
            (entry::VALUE, value) => item = value.bytes()?,
            _ => {}
        }
    }
    if skip == Some(key) {
        return Ok(None);
    }
    comma(out);
    out.push(b'"');
    push_escaped(out, key);
    out.extend_from_slice(b"\":");
    Ok(Some(item))
}

/// Appends a scalar, or the opening bracket of the returned container.
fn scalar_or_open<'a>(out: &mut Vec<u8>, message: &'a [u8]) -> Result<Option<Open<'a>>, NotJson> {
    let mut kind = None;
    for field in Fields(message) {
        let (number, item) = field?;
        // Of a oneof the last field is used.
        if (value::NULL_VALUE..=value::LIST_VALUE).contains(&number) {
            kind = Some((number, item));
        }
    }
    match kind {
        Some((value::NUMBER_VALUE, number)) => push_number(out, number)?,
        Some((value::STRING_VALUE, text)) => {
            out.push(b'"');
            push_escaped(out, text.text()?);
            out.push(b'"');
        }
        Some((value::BOOL_VALUE, flag)) => {
            let text: &[u8] = if flag.varint()? != 0 { b"true" } else { b"false" };
            out.extend_from_slice(text);
        }
        Some((value::STRUCT_VALUE, fields)) => {
            out.push(b'{');
            return Ok(Some(Open { fields: Fields(fields.bytes()?), is_object: true }));
        }
        Some((value::LIST_VALUE, fields)) => {
            out.push(b'[');
            return Ok(Some(Open { fields: Fields(fields.bytes()?), is_object: false }));
        }
        Some((_, null)) => {
            null.varint()?;
            out.extend_from_slice(b"null");
        }
        None => out.extend_from_slice(b"null"),
    }
    Ok(None)
}

/// Appends the shortest text of this double; integers of at most 2^53 have no decimal point.
fn push_number(out: &mut Vec<u8>, number: Value<'_>) -> Result<(), NotJson> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Value::Fixed64(bits) = number else { return Err(NotJson::Malformed) };
    let number = f64::from_bits(bits);
    if !number.is_finite() {
        return Err(NotJson::Number);
    }
    let negative_zero = number == 0.0 && number.is_sign_negative();
    if number.fract() == 0.0 && number.abs() <= EXACT && !negative_zero {
        push_i64(out, number as i64);
    } else {
        out.extend_from_slice(format!("{number:?}").as_bytes());
    }
    Ok(())
}

/// Whether a `Struct` has a member with this name and the value `true`.
pub fn is_true(message: &[u8], name: &str) -> bool {
    let mut found = false;
    for (key, item) in members(message) {
        if key == name.as_bytes() {
            let last = Fields(item).filter_map(Result::ok).last();
            // Any varint except 0 is true (Protocol Buffers, "Encoding").
            found = matches!(last, Some((value::BOOL_VALUE, Value::Varint(flag))) if flag != 0);
        }
    }
    found
}

/// The value of the single member of a `Struct`, if it has this name.
pub fn only<'a>(message: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut members = members(message);
    let (key, item) = members.next()?;
    (key == name.as_bytes() && members.next().is_none()).then_some(item)
}

/// The number of members of a `Struct`.
pub fn count(message: &[u8]) -> usize {
    members(message).count()
}

fn members(message: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let entries = Fields(message).filter_map(Result::ok).filter(|f| f.0 == structure::FIELDS);
    entries.filter_map(|(_, item)| {
        let (mut key, mut value) = (&[][..], &[][..]);
        for (number, field) in Fields(item.bytes().ok()?).filter_map(Result::ok) {
            match number {
                entry::KEY => key = field.bytes().ok()?,
                entry::VALUE => value = field.bytes().ok()?,
                _ => {}
            }
        }
        Some((key, value))
    })
}
