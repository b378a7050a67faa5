//! Appends JSON members: keys are constants with their punctuation, values are raw text.
//!
//! Values are not inspected, because packed values are valid JSON text.

use crate::{
    json::write::push_u64,
    model::{JsonObject, RawText, time},
};

/// Appends a string member: `key` ends with the opening quote.
#[inline]
pub(super) fn text(out: &mut Vec<u8>, key: &[u8], raw: &[u8]) {
    out.extend_from_slice(key);
    out.extend_from_slice(raw);
    out.push(b'"');
}

/// Appends a string member, if any.
#[inline]
pub(super) fn text_some(out: &mut Vec<u8>, key: &[u8], value: Option<RawText<'_>>) {
    if let Some(value) = value {
        text(out, key, value.raw());
    }
}

/// Appends a member with JSON text as its value: `key` ends with the colon.
#[inline]
pub(super) fn json(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Appends a member with a JSON object as its value, if any.
#[inline]
pub(super) fn object_some(out: &mut Vec<u8>, key: &[u8], value: Option<JsonObject<'_>>) {
    if let Some(value) = value {
        json(out, key, value.raw());
    }
}

/// Appends an array member: `key` ends with the opening bracket. Without items nothing is written,
/// unless `even_empty` is true.
#[inline]
pub(super) fn list<T>(
    out: &mut Vec<u8>,
    key: &[u8],
    items: impl Iterator<Item = T>,
    even_empty: bool,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    let start = out.len();
    out.extend_from_slice(key);
    let first = out.len();
    for item in items {
        each(out, item);
        out.push(b',');
    }
    match out.get_mut(first..).and_then(<[u8]>::last_mut) {
        Some(comma) => *comma = b']',
        None if even_empty => out.push(b']'),
        None => out.truncate(start),
    }
}

/// Appends a string member that is probably a UUID; a UUID is copied without a call.
#[inline]
pub(super) fn id(out: &mut Vec<u8>, key: &[u8], raw: &[u8]) {
    out.extend_from_slice(key);
    match <&[u8; 36]>::try_from(raw) {
        Ok(uuid) => out.extend_from_slice(uuid),
        Err(_) => out.extend_from_slice(raw),
    }
    out.push(b'"');
}

/// The ids of a task and of its context, as shown; an empty id is omitted.
#[derive(Clone, Copy)]
pub(super) struct TaskRef<'a> {
    pub task_id: &'a [u8],
    pub context_id: &'a [u8],
}

/// Text with two blanks for the ids of a task and of its context, each of 36 dashes.
pub(super) struct Template<const N: usize> {
    text: &'static [u8; N],
    task_at: usize,
    context_at: usize,
}

/// The length of a blank: 36 bytes, the length of a UUID.
const BLANK: usize = 36;

impl<const N: usize> Template<N> {
    /// Finds the blanks; a constant without them does not compile.
    pub const fn new(text: &'static [u8; N]) -> Template<N> {
        let mut task_at = 0;
        while text[task_at] != b'-' {
            task_at += 1;
        }
        let mut context_at = task_at + BLANK;
        while text[context_at] != b'-' {
            context_at += 1;
        }
        assert!(text[context_at + BLANK - 1] == b'-' && text[context_at + BLANK] == b'"');
        Template { text, task_at, context_at }
    }

    /// Appends the text with its blanks filled in. Two UUIDs, the usual case, are written with one
    /// copy.
    #[inline(always)]
    pub fn put(&self, out: &mut Vec<u8>, task_id: &[u8], context_id: &[u8]) {
        let Template { text, task_at, context_at } = *self;
        let ids: (Result<&[u8; BLANK], _>, Result<&[u8; BLANK], _>) =
            (task_id.try_into(), context_id.try_into());
        if let (Ok(task_id), Ok(context_id)) = ids {
            out.extend_from_slice(text);
            if let Some(text) = out.last_chunk_mut::<N>() {
                text[task_at..task_at + BLANK].copy_from_slice(task_id);
                text[context_at..context_at + BLANK].copy_from_slice(context_id);
            }
            return;
        }
        out.extend_from_slice(&text[..task_at]);
        out.extend_from_slice(task_id);
        out.extend_from_slice(&text[task_at + BLANK..context_at]);
        out.extend_from_slice(context_id);
        out.extend_from_slice(&text[context_at + BLANK..]);
    }
}

/// Appends an array of raw strings, if any.
pub(super) fn texts<'a>(out: &mut Vec<u8>, key: &[u8], items: impl Iterator<Item = &'a [u8]>) {
    list(out, key, items, false, |out, raw| text(out, b"\"", raw));
}

/// The output of [`timestamp`].
pub(super) const STAMP: &[u8; 39] = b",\"timestamp\":\"0000-00-00T00:00:00.000Z\"";

/// Appends `,"timestamp":"…"` unless the time is unknown.
#[inline]
pub(super) fn timestamp(out: &mut Vec<u8>, at_ms: u64) {
    if at_ms != 0 {
        out.extend_from_slice(STAMP);
        stamp(out, 1, at_ms);
    }
}

/// Overwrites 24 bytes of a text with a time; `suffix_bytes` bytes follow them.
#[inline(always)]
pub(super) fn stamp(out: &mut [u8], suffix_bytes: usize, at_ms: u64) {
    let end = out.len() - suffix_bytes;
    let blank = out.get_mut(..end).and_then(|text| text.last_chunk_mut::<24>());
    if let Some(blank) = blank {
        *blank = time::rfc3339(at_ms);
    }
}

/// Begins the result of ListTasks.
pub(super) fn page_start(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"tasks\":[");
}

/// Appends a comma before a task of a page, unless it is the first.
pub(super) fn page_comma(out: &mut Vec<u8>) {
    // A task ends with a brace, so a bracket is the opening bracket of the page.
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

/// Ends the result of ListTasks. A2A 1.0 §3.1.4: all four fields are required.
pub(super) fn page_end(out: &mut Vec<u8>, next: &str, page_size: u32, total: u64) {
    text(out, b"],\"nextPageToken\":\"", next.as_bytes());
    out.extend_from_slice(b",\"pageSize\":");
    push_u64(out, u64::from(page_size));
    out.extend_from_slice(b",\"totalSize\":");
    push_u64(out, total);
    out.push(b'}');
}

/// Appends a boolean member: `key` ends with the colon.
pub(super) fn flag(out: &mut Vec<u8>, key: &[u8], value: bool) {
    json(out, key, if value { b"true" } else { b"false" });
}

/// Appends the flags of an artifact event in ProtoJSON: false is omitted.
pub(super) fn chunk_flags(out: &mut Vec<u8>, append: bool, last_chunk: bool) {
    if append {
        out.extend_from_slice(b",\"append\":true");
    }
    if last_chunk {
        out.extend_from_slice(b",\"lastChunk\":true");
    }
}

/// Appends the metadata of a part, with the mark for wrapped `data` added.
pub(super) fn wrapped_mark(out: &mut Vec<u8>, metadata: Option<JsonObject<'_>>) {
    out.extend_from_slice(b",\"metadata\":");
    let before = metadata.and_then(|object| object.raw().strip_suffix(b"}")).unwrap_or(b"{");
    out.extend_from_slice(before);
    if before.trim_ascii() != b"{" {
        out.push(b',');
    }
    out.extend_from_slice(b"\"data_part_compat\":true}");
}
