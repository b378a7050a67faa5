//! The packed form of messages, parts and artifacts: `tag u8, length u32 LE, bytes` per field.
//!
//! Tags are the field numbers of `lf.a2a.v1`. String fields hold the text *between* the quotes of a
//! JSON string with its escapes; `metadata` and `data` hold a whole JSON value, verbatim. A view is
//! created only over bytes that a [`Packer`] of this crate wrote or `from_packed` checked, so
//! reading never fails; with other bytes, reading would end early, without a panic.

use std::ops::Range;

use super::{json::JsonObject, part::Part, state::Role, text::RawText};

/// Field numbers of a packed message (`lf.a2a.v1.Message`).
pub mod message_tag {
    /// Raw string.
    pub const MESSAGE_ID: u8 = 1;
    /// Raw string.
    pub const CONTEXT_ID: u8 = 2;
    /// Raw string.
    pub const TASK_ID: u8 = 3;
    /// One byte, [`super::Role`].
    pub const ROLE: u8 = 4;
    /// Nested part; repeated.
    pub const PART: u8 = 5;
    /// Raw JSON object.
    pub const METADATA: u8 = 6;
    /// Raw string; repeated.
    pub const EXTENSION: u8 = 7;
    /// Raw string; repeated.
    pub const REFERENCE: u8 = 8;
}

/// Field numbers of a packed part (`lf.a2a.v1.Part`); the content field comes first.
pub mod part_tag {
    /// Raw string.
    pub const TEXT: u8 = 1;
    /// Raw string of standard base64.
    pub const RAW: u8 = 2;
    /// Raw string.
    pub const URL: u8 = 3;
    /// Raw JSON value.
    pub const DATA: u8 = 4;
    /// Raw JSON object.
    pub const METADATA: u8 = 5;
    /// Raw string.
    pub const FILENAME: u8 = 6;
    /// Raw string.
    pub const MEDIA_TYPE: u8 = 7;
    /// Raw JSON object: a whole part of unknown kind. Not a field number of A2A.
    pub const UNKNOWN: u8 = 8;
}

/// Field numbers of a packed artifact (`lf.a2a.v1.Artifact`).
pub mod artifact_tag {
    /// Raw string.
    pub const ARTIFACT_ID: u8 = 1;
    /// Raw string.
    pub const NAME: u8 = 2;
    /// Raw string.
    pub const DESCRIPTION: u8 = 3;
    /// Nested part; repeated.
    pub const PART: u8 = 4;
    /// Raw JSON object.
    pub const METADATA: u8 = 5;
    /// Raw string; repeated.
    pub const EXTENSION: u8 = 6;
}

/// Bytes of a field's tag and length.
pub const FIELD_HEAD: usize = 5;

/// Appends packed fields to a buffer.
pub struct Packer<'v>(pub &'v mut Vec<u8>);

/// The start of a nested field; pass it to [`Packer::close`].
#[must_use]
pub struct OpenField(usize);

impl Packer<'_> {
    /// Appends one field. `bytes` must be shorter than 4 GiB (bodies are capped far below).
    #[inline]
    pub fn put(&mut self, tag: u8, bytes: &[u8]) {
        self.0.reserve(FIELD_HEAD + bytes.len());
        let [a, b, c, d] = (bytes.len() as u32).to_le_bytes();
        self.0.extend_from_slice(&[tag, a, b, c, d]);
        self.0.extend_from_slice(bytes);
    }

    /// Appends one field if there is a value.
    #[inline]
    pub fn put_some(&mut self, tag: u8, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            self.put(tag, bytes);
        }
    }

    /// Opens a nested field; everything appended until [`Packer::close`] is its content.
    #[inline]
    pub fn open(&mut self, tag: u8) -> OpenField {
        self.0.extend_from_slice(&[tag, 0, 0, 0, 0]);
        OpenField(self.0.len())
    }

    /// Closes a nested field by patching its length.
    #[inline]
    pub fn close(&mut self, nested: OpenField) {
        let length = (self.0.len() - nested.0) as u32;
        self.0[nested.0 - 4..nested.0].copy_from_slice(&length.to_le_bytes());
    }
}

/// Iterates over the `(tag, bytes)` pairs of packed fields.
#[derive(Clone, Copy)]
pub struct PackedFields<'a>(pub &'a [u8]);

impl<'a> Iterator for PackedFields<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (head, rest) = self.0.split_first_chunk::<FIELD_HEAD>()?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (field, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((head[0], field))
    }
}

impl<'a> PackedFields<'a> {
    /// True when no field remains.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first field with this tag.
    pub fn first(mut self, tag: u8) -> Option<&'a [u8]> {
        self.find(|(t, _)| *t == tag).map(|(_, bytes)| bytes)
    }

    /// The first field with this tag, which must be a text field.
    pub(super) fn text(self, tag: u8) -> Option<RawText<'a>> {
        self.first(tag).map(RawText::known)
    }

    /// All fields with this tag, which must be a text field.
    pub(super) fn texts(self, tag: u8) -> impl Iterator<Item = RawText<'a>> {
        self.filter(move |(t, _)| *t == tag).map(|(_, raw)| RawText::known(raw))
    }
}

/// A packed message (A2A 1.0 §4.1.4).
#[derive(Clone, Copy)]
pub struct Message<'a>(pub(crate) &'a [u8]);

impl<'a> Message<'a> {
    /// Its packed form, for storage; [`Message::from_packed`] reads it again.
    #[inline]
    pub fn packed(self) -> &'a [u8] {
        self.0
    }

    /// All fields, in the order they were packed.
    pub fn fields(self) -> PackedFields<'a> {
        PackedFields(self.0)
    }

    /// Its id and its text, if it is a user's message with a single part of text and nothing else.
    #[inline]
    pub fn as_user_text(self) -> Option<(RawText<'a>, RawText<'a>)> {
        const USER: &[u8] = &[Role::User as u8];
        let mut fields = self.fields();
        match (fields.next()?, fields.next()?, fields.next()?) {
            (
                (message_tag::MESSAGE_ID, id),
                (message_tag::ROLE, USER),
                (message_tag::PART, part),
            ) if fields.is_empty() => Some((RawText::known(id), Part(part).as_text()?)),
            _ => None,
        }
    }

    /// The range of its parts if they are contiguous, as is usual; else the whole message.
    #[inline]
    pub fn parts_at(self) -> Range<usize> {
        let (mut from, mut to, mut at) = (0, 0, 0);
        for (tag, bytes) in self.fields() {
            let end = at + FIELD_HEAD + bytes.len();
            if tag == message_tag::PART {
                match to {
                    0 => from = at,
                    to if to != at => return 0..self.0.len(),
                    _ => {}
                }
                to = end;
            }
            at = end;
        }
        from..to
    }

    /// The `messageId`; empty when the message has none (0.1 before the server assigned one).
    pub fn message_id(self) -> RawText<'a> {
        self.fields().text(message_tag::MESSAGE_ID).unwrap_or_default()
    }

    /// Its author; the agent if the field is missing.
    pub fn role(self) -> Role {
        match self.fields().first(message_tag::ROLE) {
            Some([1]) => Role::User,
            Some(_) | None => Role::Agent,
        }
    }

    /// The `contextId` as written by the author.
    pub fn context_id(self) -> Option<RawText<'a>> {
        self.fields().text(message_tag::CONTEXT_ID)
    }

    /// The `taskId` as written by the author.
    pub fn task_id(self) -> Option<RawText<'a>> {
        self.fields().text(message_tag::TASK_ID)
    }

    /// The tasks that it refers to.
    pub fn reference_task_ids(self) -> impl Iterator<Item = RawText<'a>> {
        self.fields().texts(message_tag::REFERENCE)
    }

    /// The URIs of the extensions that it uses.
    pub fn extensions(self) -> impl Iterator<Item = RawText<'a>> {
        self.fields().texts(message_tag::EXTENSION)
    }

    /// Its metadata.
    pub fn metadata(self) -> Option<JsonObject<'a>> {
        self.fields().first(message_tag::METADATA).map(JsonObject::known)
    }

    /// The parts, in order.
    pub fn parts(self) -> impl Iterator<Item = Part<'a>> {
        self.fields().filter(|(tag, _)| *tag == message_tag::PART).map(|(_, part)| Part(part))
    }
}

/// A packed artifact (A2A 1.0 §4.1.7), or one chunk of it.
#[derive(Clone, Copy)]
pub struct Artifact<'a> {
    /// Its fields.
    pub(crate) packed: &'a [u8],
    /// Further parts, after those in the fields.
    pub(crate) more: MoreParts<'a>,
}

/// Parts of an artifact that are not stored among its fields.
#[derive(Clone, Copy, Default)]
pub(crate) enum MoreParts<'a> {
    /// No further parts.
    #[default]
    None,
    /// The parts of a message. The slice may contain only its parts, so other fields must not be
    /// read.
    OfMessage(Message<'a>),
    /// One part.
    One(Part<'a>),
}

impl<'a> MoreParts<'a> {
    #[inline]
    fn parts(self) -> impl Iterator<Item = Part<'a>> {
        let (message, part) = match self {
            MoreParts::None => (None, None),
            MoreParts::OfMessage(message) => (Some(message), None),
            MoreParts::One(part) => (None, Some(part)),
        };
        message.into_iter().flat_map(Message::parts).chain(part)
    }
}

impl<'a> Artifact<'a> {
    /// An artifact with all of its fields in `packed`.
    #[inline]
    pub(crate) fn new(packed: &'a [u8]) -> Artifact<'a> {
        Artifact { packed, more: MoreParts::None }
    }

    /// Its own fields, in the order they were packed.
    #[inline]
    pub fn fields(self) -> PackedFields<'a> {
        PackedFields(self.packed)
    }

    /// Length of [`Artifact::pack`] in bytes.
    #[inline]
    pub fn packed_len(self) -> usize {
        let more = self.more.parts().map(|part| FIELD_HEAD + part.0.len());
        self.packed.len() + more.sum::<usize>()
    }

    /// Appends all fields, with all parts as fields.
    #[inline]
    pub fn pack(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.packed);
        self.more.parts().for_each(|part| Packer(out).put(artifact_tag::PART, part.0));
    }

    /// Its id field, tag and length included; empty without one.
    #[inline]
    pub(crate) fn id_field(self) -> &'a [u8] {
        let mut fields = self.fields();
        while let (before, Some((tag, id))) = (fields.0, fields.next()) {
            if tag == artifact_tag::ARTIFACT_ID {
                return &before[..FIELD_HEAD + id.len()];
            }
        }
        b""
    }

    /// Its part, if it has only this id field and one part.
    #[inline]
    pub(crate) fn lone_part(self, id_field: &[u8]) -> Option<Part<'a>> {
        let mut rest = PackedFields(self.packed.strip_prefix(id_field)?);
        match (rest.next(), self.more) {
            (None, MoreParts::One(part)) => Some(part),
            (Some((artifact_tag::PART, part)), MoreParts::None) if rest.is_empty() => {
                Some(Part(part))
            }
            _ => None,
        }
    }

    /// Its id and its text, if it has only one part of text, like most chunks.
    #[inline(always)]
    pub fn as_text(self) -> Option<(RawText<'a>, RawText<'a>)> {
        let mut fields = self.fields();
        let (artifact_tag::ARTIFACT_ID, id) = fields.next()? else { return None };
        let (mut parts, part_tag) = match self.more {
            MoreParts::None => (fields, artifact_tag::PART),
            MoreParts::One(part) if fields.is_empty() => {
                return Some((RawText::known(id), part.as_text()?));
            }
            MoreParts::OfMessage(message) if fields.is_empty() => {
                (message.fields(), message_tag::PART)
            }
            MoreParts::OfMessage(_) | MoreParts::One(_) => return None,
        };
        match parts.next()? {
            (tag, part) if tag == part_tag && parts.is_empty() => {
                Some((RawText::known(id), Part(part).as_text()?))
            }
            _ => None,
        }
    }

    /// The `artifactId`.
    pub fn artifact_id(self) -> RawText<'a> {
        self.fields().text(artifact_tag::ARTIFACT_ID).unwrap_or_default()
    }

    /// Its name.
    pub fn name(self) -> Option<RawText<'a>> {
        self.fields().text(artifact_tag::NAME)
    }

    /// Its description.
    pub fn description(self) -> Option<RawText<'a>> {
        self.fields().text(artifact_tag::DESCRIPTION)
    }

    /// The URIs of the extensions that it uses.
    pub fn extensions(self) -> impl Iterator<Item = RawText<'a>> {
        self.fields().texts(artifact_tag::EXTENSION)
    }

    /// Its metadata.
    pub fn metadata(self) -> Option<JsonObject<'a>> {
        self.fields().first(artifact_tag::METADATA).map(JsonObject::known)
    }

    /// The parts, in order.
    pub fn parts(self) -> impl Iterator<Item = Part<'a>> {
        let own = self.fields().filter(|(tag, _)| *tag == artifact_tag::PART);
        own.map(|(_, part)| Part(part)).chain(self.more.parts())
    }
}
