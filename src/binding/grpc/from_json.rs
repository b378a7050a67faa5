//! Converts JSON text to `google.protobuf.Struct` and `Value`.
//!
//! Invariant: stored JSON is sent over gRPC as `Struct`, in which every number is a double.
//! Integers above 2^53 lose their last digits, and a number above the largest double becomes the
//! largest double (`Infinity` is valid neither in JSON nor in `Struct`). The conversion does not
//! recurse.

use smallvec::SmallVec;

use crate::{
    json::write::push_unescaped,
    pb::{Nested, Writer},
};

use super::fields::{
    entry,
    other::{list_value, structure, value},
};

/// Appends field `number` of type `Struct` for a JSON object.
pub fn struct_field(out: &mut Vec<u8>, number: u32, json: &[u8]) {
    Tree::new(out, json).write(number, true);
}

/// Appends the fields of a `Struct` for a JSON object to an open message.
pub fn struct_members(out: &mut Vec<u8>, json: &[u8]) {
    let mut tree = Tree::new(out, json);
    tree.enter(0);
    tree.finish();
}

/// Appends field `number` of type `Value` for any JSON value.
pub fn value_field(out: &mut Vec<u8>, number: u32, json: &[u8]) {
    Tree::new(out, json).write(number, false);
}

/// A JSON text that is being converted. The text is valid, like all stored JSON; the output of an
/// invalid text would end early, with correct lengths.
struct Tree<'t, 'v> {
    json: &'t [u8],
    at: usize,
    writer: Writer<'v>,
    /// The open messages, outermost first.
    nested: SmallVec<[Nested; 24]>,
    /// The open containers: whether each is an object, and the number of messages that end with it.
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
            self.enter(1);
        } else {
            self.value(1);
        }
        self.finish();
    }

    /// Enters an object after its `Struct` was opened; `ends` messages end with the object.
    fn enter(&mut self, ends: u8) {
        let brace = self.json.iter().position(|byte| *byte == b'{');
        self.at = brace.map_or(self.json.len(), |at| at + 1);
        self.open.push((true, ends));
    }

    fn finish(&mut self) {
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

    /// Opens a message; the length of the remaining text is a guess at its length.
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

    /// Writes the value at the current position into the open message; `ends` messages end with the
    /// value.
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

    /// Writes `true`, `false`, `null` or a number.
    fn word(&mut self) {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        let word = &rest[..length];
        // At least one byte, so that the loop always advances.
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

    /// The text between the quotes at the current position.
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

/// Appends a string of the model; `raw`: the text between the quotes of a JSON string.
pub fn text_field(writer: &mut Writer<'_>, number: u32, raw: &[u8]) {
    if !raw.contains(&b'\\') {
        return writer.bytes(number, raw);
    }
    let nested = writer.open(number, raw.len());
    push_unescaped(writer.0, std::str::from_utf8(raw).unwrap_or_default());
    writer.close(nested);
}
