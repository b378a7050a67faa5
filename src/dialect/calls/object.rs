//! A JSON object that is written member by member, with its commas.

use crate::{
    json::write::{push_escaped, push_u64},
    model::RawText,
};

/// Appends an object; [`ObjectOut::close`] ends it.
pub(in crate::dialect) struct ObjectOut<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> ObjectOut<'o> {
    /// Begins an object.
    pub fn open(out: &'o mut Vec<u8>) -> ObjectOut<'o> {
        out.push(b'{');
        ObjectOut { out, is_empty: true }
    }

    /// Appends the name of a member, which must need no escape; the caller appends the value.
    #[inline]
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        let comma: &[u8] = if self.is_empty { b"\"" } else { b",\"" };
        self.is_empty = false;
        self.out.extend_from_slice(comma);
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Appends a member with raw text.
    #[inline]
    pub fn raw(&mut self, key: &str, text: &[u8]) {
        let out = self.key(key);
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    }

    /// Appends a member with raw text, if any.
    #[inline]
    pub fn raw_some(&mut self, key: &str, text: Option<RawText<'_>>) {
        if let Some(text) = text {
            self.raw(key, text.raw());
        }
    }

    /// Appends a member with ordinary text, if any.
    pub fn text_some(&mut self, key: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        let out = self.key(key);
        out.push(b'"');
        push_escaped(out, text);
        out.push(b'"');
    }

    /// Appends a member with unchanged JSON, if any.
    pub fn json_some(&mut self, key: &str, json: Option<&[u8]>) {
        if let Some(json) = json {
            self.key(key).extend_from_slice(json);
        }
    }

    /// Appends a member with a number, if any.
    pub fn number_some(&mut self, key: &str, number: Option<impl Into<u64>>) {
        if let Some(number) = number {
            push_u64(self.key(key), number.into());
        }
    }

    /// Appends a member with `true` or `false`.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Ends the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}
