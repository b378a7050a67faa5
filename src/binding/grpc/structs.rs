//! `google.protobuf.Struct` and `Value` to JSON text and back.
//!
//! Law: what a client sends as `Struct` is stored as JSON text and given to every other binding as
//! that text; what was stored as JSON is given to gRPC as `Struct`, where every number is a double.
//! Whole numbers beyond 2^53 lose their last digits there, and a number beyond a double becomes the
//! largest one (`Infinity` is no JSON and no valid `Struct`). Nothing here recurses.

use smallvec::SmallVec;

use crate::{
    json::write::{push_escaped, push_i64, push_unescaped},
    pb::{Fields, Malformed, Nested, Value, Writer},
};

use super::fields::{
    entry,
    other::{list_value, structure, value},
};

/// Why a `Struct` or `Value` cannot be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJson {
    /// It is no message.
    Malformed,
    /// It is nested too deeply.
    Depth,
    /// A number is not finite.
    Number,
}

impl From<Malformed> for NotJson {
    fn from(_: Malformed) -> NotJson {
        NotJson::Malformed
    }
}

/// A message whose fields become the members of a container.
struct Open<'a> {
    fields: Fields<'a>,
    is_object: bool,
}

/// Appends the JSON object that a `Struct` stands for; its members keep their order.
///
/// `depth_max` bounds the objects and lists around a value. `skip`: a member that is left out.
///
/// # Errors
/// [`NotJson`]; `out` then holds the beginning.
pub fn push_struct(
    out: &mut Vec<u8>,
    message: &[u8],
    skip: Option<&str>,
    depth_max: usize,
) -> Result<(), NotJson> {
    out.push(b'{');
    let top = Open { fields: Fields(message), is_object: true };
    push_open(out, top, skip, depth_max)
}

/// Appends the JSON that a `Value` stands for; one that is not set is `null`.
///
/// # Errors
/// As [`push_struct`].
pub fn push_value(out: &mut Vec<u8>, message: &[u8], depth_max: usize) -> Result<(), NotJson> {
    match scalar_or_open(out, message)? {
        Some(open) => push_open(out, open, None, depth_max),
        None => Ok(()),
    }
}

fn push_open<'a>(
    out: &mut Vec<u8>,
    top: Open<'a>,
    skip: Option<&str>,
    depth_max: usize,
) -> Result<(), NotJson> {
    let mut stack: SmallVec<[Open<'a>; 8]> = SmallVec::new();
    stack.push(top);
    while let Some(open) = stack.last_mut() {
        let is_object = open.is_object;
        let wanted = if is_object { structure::FIELDS } else { list_value::VALUES };
        let item = match open.fields.next() {
            None => {
                out.push(if is_object { b'}' } else { b']' });
                stack.pop();
                continue;
            }
            Some(field) => match field? {
                (number, item) if number == wanted => item.bytes()?,
                _ => continue,
            },
        };
        let item = if is_object {
            member(out, item, skip.filter(|_| stack.len() == 1))?
        } else {
            comma(out);
            Some(item)
        };
        if let Some(item) = item
            && let Some(open) = scalar_or_open(out, item)?
        {
            if stack.len() >= depth_max {
                return Err(NotJson::Depth);
            }
            stack.push(open);
        }
    }
    Ok(())
}

/// No value ends with an opening bracket, so one that stands there is its container's.
fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{' | b'[')) {
        out.push(b',');
    }
}

/// Appends the key of a member and returns its value; `None`: it is to be left out.
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

/// Appends a scalar, or the opening bracket of what is returned.
fn scalar_or_open<'a>(out: &mut Vec<u8>, message: &'a [u8]) -> Result<Option<Open<'a>>, NotJson> {
    let mut kind = None;
    for field in Fields(message) {
        let (number, item) = field?;
        // Of a oneof the last field counts.
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

/// The shortest text that is this double; whole numbers that a double holds exactly have no point.
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

/// True when a `Struct` has a member of this name that is `true`.
pub fn is_true(message: &[u8], name: &str) -> bool {
    let mut found = false;
    for (key, item) in members(message) {
        if key == name.as_bytes() {
            let set = (value::BOOL_VALUE, Value::Varint(1));
            found = Fields(item).filter_map(Result::ok).last() == Some(set);
        }
    }
    found
}

/// The value of a `Struct` that has one member, of this name.
pub fn only<'a>(message: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut members = members(message);
    let (key, item) = members.next()?;
    (key == name.as_bytes() && members.next().is_none()).then_some(item)
}

/// Number of a `Struct`'s members.
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

/// Appends field `number` of type `Struct` for a JSON object.
pub fn struct_field(out: &mut Vec<u8>, number: u32, json: &[u8]) {
    Tree::new(out, json).write(number, true);
}

/// Appends field `number` of type `Value` for any JSON value.
pub fn value_field(out: &mut Vec<u8>, number: u32, json: &[u8]) {
    Tree::new(out, json).write(number, false);
}

/// JSON text on its way to messages. It is valid when it comes from a client; what an agent made up
/// itself may be anything and ends early, with every length right.
struct Tree<'t, 'v> {
    json: &'t [u8],
    at: usize,
    writer: Writer<'v>,
    /// The messages that are open, outermost first.
    nested: SmallVec<[Nested; 24]>,
    /// The containers that are open: whether an object, and how many messages end with it.
    open: SmallVec<[(bool, u8); 8]>,
}

impl<'t, 'v> Tree<'t, 'v> {
    fn new(out: &'v mut Vec<u8>, json: &'t [u8]) -> Tree<'t, 'v> {
        let (nested, open) = (SmallVec::new(), SmallVec::new());
        Tree { json, at: 0, writer: Writer(out), nested, open }
    }

    fn write(&mut self, number: u32, is_struct: bool) {
        self.begin(number);
        if is_struct {
            // The field itself is the `Struct`: its brace opens nothing further.
            self.at =
                self.json.iter().position(|b| *b == b'{').map_or(self.json.len(), |at| at + 1);
            self.open.push((true, 1));
        } else {
            self.value(1);
        }
        while let Some(&(is_object, ends)) = self.open.last() {
            match self.token() {
                Some(b'}' | b']') | None => {
                    self.at += 1;
                    self.open.pop();
                    self.end(ends);
                }
                Some(b'"') if is_object => {
                    let key = self.string();
                    self.begin(structure::FIELDS);
                    text_field(&mut self.writer, entry::KEY, key);
                    self.begin(entry::VALUE);
                    self.token();
                    self.value(2);
                }
                Some(_) if is_object => self.at = self.json.len(),
                Some(_) => {
                    self.begin(list_value::VALUES);
                    self.value(1);
                }
            }
        }
        while !self.nested.is_empty() {
            self.end(1);
        }
    }

    /// Opens a message; what is left of the text is a guess at its length.
    fn begin(&mut self, number: u32) {
        let nested = self.writer.open(number, self.json.len().saturating_sub(self.at));
        self.nested.push(nested);
    }

    fn end(&mut self, messages: u8) {
        for _ in 0..messages {
            if let Some(nested) = self.nested.pop() {
                self.writer.close(nested);
            }
        }
    }

    /// The next byte that is neither white space nor a separator.
    fn token(&mut self) -> Option<u8> {
        while let Some(&byte) = self.json.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Writes the value that begins here into the open message; `ends` messages end with it.
    fn value(&mut self, ends: u8) {
        match self.token() {
            Some(b'{') => return self.container(value::STRUCT_VALUE, true, ends),
            Some(b'[') => return self.container(value::LIST_VALUE, false, ends),
            Some(b'"') => {
                let text = self.string();
                text_field(&mut self.writer, value::STRING_VALUE, text);
            }
            _ => self.word(),
        }
        self.end(ends);
    }

    fn container(&mut self, number: u32, is_object: bool, ends: u8) {
        self.begin(number);
        self.at += 1;
        self.open.push((is_object, ends + 1));
    }

    /// `true`, `false`, `null` or a number.
    fn word(&mut self) {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        let word = &rest[..length];
        // At least one byte, so that nothing is looked at twice.
        self.at += length.max(1);
        match word {
            b"true" => self.writer.number(value::BOOL_VALUE, 1),
            b"false" => self.writer.number(value::BOOL_VALUE, 0),
            b"null" => self.writer.number(value::NULL_VALUE, 0),
            number => {
                let number = std::str::from_utf8(number).unwrap_or_default();
                let number = number.parse::<f64>().ok().filter(|number| !number.is_nan());
                let number = number.unwrap_or(0.0).clamp(-f64::MAX, f64::MAX);
                self.writer.double(value::NUMBER_VALUE, number);
            }
        }
    }

    /// What stands between the quotes that begin here.
    fn string(&mut self) -> &'t [u8] {
        let start = self.at + 1;
        let rest = self.json.get(start..).unwrap_or_default();
        let mut end = 0;
        while let Some(&byte) = rest.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let end = end.min(rest.len());
        self.at = start + end + 1;
        &rest[..end]
    }
}

/// Appends a string that the model holds: the text between the quotes of a JSON string.
pub fn text_field(writer: &mut Writer<'_>, number: u32, raw: &[u8]) {
    if !raw.contains(&b'\\') {
        return writer.bytes(number, raw);
    }
    let nested = writer.open(number, raw.len());
    push_unescaped(writer.0, std::str::from_utf8(raw).unwrap_or_default());
    writer.close(nested);
}
