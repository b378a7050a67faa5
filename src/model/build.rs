//! Builders for parts, messages and artifacts of agents.
//!
//! Invariant: builders take only valid values, so their results can be written in any binding. Text
//! is a `str`, which the builder escapes, or a [`RawText`](super::RawText), which is escaped
//! already; JSON is a [`Json`] or a [`JsonObject`]. A repeated setter replaces the value; the
//! documentation of a method states if it adds one instead.

use super::{
    json::{Json, JsonObject, ValueError},
    pack::{
        Artifact, FIELD_HEAD, Message, PackedFields, Packer, artifact_tag, message_tag, part_tag,
    },
    part::{Content, Part},
    state::Role,
    text::Text,
};
use crate::json::base64;

/// One owned part (A2A 1.0 §4.1.6): text, data, or a file by value or by reference.
///
/// ```
/// use peregrine::model::{JsonObject, PartBuf, PartsBuf};
///
/// let picture = PartBuf::bytes(&[0x89, b'P', b'N', b'G'])
///     .filename("plot.png")
///     .media_type("image/png")
///     .metadata(JsonObject::parse(r#"{"dpi": 300}"#)?);
/// let parts = PartsBuf::new().text("Here it is.").part(&picture);
/// # Ok::<(), peregrine::model::ValueError>(())
/// ```
#[derive(Clone)]
pub struct PartBuf {
    packed: Vec<u8>,
}

impl PartBuf {
    /// Text.
    pub fn text<'t>(text: impl Into<Text<'t>>) -> PartBuf {
        PartBuf::of(part_tag::TEXT, text.into())
    }

    /// Any JSON; it is stored verbatim.
    pub fn data<'t>(json: impl Into<Json<'t>>) -> PartBuf {
        let mut packed = Vec::new();
        Packer(&mut packed).put(part_tag::DATA, json.into().raw());
        PartBuf { packed }
    }

    /// A file by reference; `url` should be absolute (A2A 1.0 §4.1.6).
    pub fn url<'t>(url: impl Into<Text<'t>>) -> PartBuf {
        PartBuf::of(part_tag::URL, url.into())
    }

    /// A file by value. Every binding except gRPC sends it as base64, which is a third longer.
    pub fn bytes(bytes: &[u8]) -> PartBuf {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        let field = packer.open(part_tag::RAW);
        base64::push_encoded(packer.0, bytes);
        packer.close(field);
        PartBuf { packed }
    }

    /// A file by value in base64: standard or URL-safe alphabet, with or without padding.
    ///
    /// # Errors
    /// [`ValueError::NotBase64`].
    pub fn base64(text: &str) -> Result<PartBuf, ValueError> {
        let standard = base64::normalise(text).ok_or(ValueError::NotBase64)?;
        let mut packed = Vec::new();
        Packer(&mut packed).put(part_tag::RAW, standard.as_bytes());
        Ok(PartBuf { packed })
    }

    /// Names the file.
    pub fn filename<'t>(mut self, name: impl Into<Text<'t>>) -> PartBuf {
        set_text(&mut self.packed, part_tag::FILENAME, name.into());
        self
    }

    /// Sets the media type of the content (RFC 6838).
    pub fn media_type<'t>(mut self, media_type: impl Into<Text<'t>>) -> PartBuf {
        set_text(&mut self.packed, part_tag::MEDIA_TYPE, media_type.into());
        self
    }

    /// Sets its metadata.
    pub fn metadata(mut self, metadata: JsonObject<'_>) -> PartBuf {
        set(&mut self.packed, part_tag::METADATA, metadata.raw());
        self
    }

    /// The part.
    pub fn view(&self) -> Part<'_> {
        Part(&self.packed)
    }

    fn of(tag: u8, text: Text<'_>) -> PartBuf {
        let mut packed = Vec::new();
        put_text(&mut Packer(&mut packed), tag, text);
        PartBuf { packed }
    }
}

impl<'p> From<&'p PartBuf> for Part<'p> {
    fn from(part: &'p PartBuf) -> Part<'p> {
        part.view()
    }
}

/// A list of packed parts.
#[derive(Clone, Default)]
pub struct PartsBuf {
    /// Packed parts, each under [`message_tag::PART`].
    packed: Vec<u8>,
}

impl PartsBuf {
    /// An empty list.
    pub fn new() -> PartsBuf {
        PartsBuf::default()
    }

    /// Adds a part with text only.
    pub fn text<'t>(mut self, text: impl Into<Text<'t>>) -> PartsBuf {
        let text = text.into();
        self.packed.reserve(2 * FIELD_HEAD + text.raw_len_min());
        let mut packer = Packer(&mut self.packed);
        let part = packer.open(message_tag::PART);
        put_text(&mut packer, part_tag::TEXT, text);
        packer.close(part);
        self
    }

    /// Adds a part with data only.
    pub fn data<'t>(self, json: impl Into<Json<'t>>) -> PartsBuf {
        self.part(&PartBuf::data(json))
    }

    /// Adds a part: a [`PartBuf`], or an unchanged part of a message or artifact.
    pub fn part<'p>(mut self, part: impl Into<Part<'p>>) -> PartsBuf {
        Packer(&mut self.packed).put(message_tag::PART, part.into().0);
        self
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        Message(&self.packed).parts()
    }
}

/// Packs `text` as a raw string.
pub(crate) fn put_text<'t>(packer: &mut Packer<'_>, tag: u8, text: impl Into<Text<'t>>) {
    let field = packer.open(tag);
    text.into().push_raw(packer.0);
    packer.close(field);
}

/// Packs an id in canonical form.
fn put_id(packer: &mut Packer<'_>, tag: u8, id: Text<'_>) {
    packer.put(tag, &id.canonical());
}

/// Sets a field, replacing the one with its tag.
fn set(packed: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    remove(packed, tag);
    Packer(packed).put(tag, bytes);
}

/// As [`set`], for text.
fn set_text(packed: &mut Vec<u8>, tag: u8, text: Text<'_>) {
    remove(packed, tag);
    put_text(&mut Packer(packed), tag, text);
}

/// As [`set`], for an id.
fn set_id(packed: &mut Vec<u8>, tag: u8, id: Text<'_>) {
    remove(packed, tag);
    put_id(&mut Packer(packed), tag, id);
}

pub(super) fn remove(packed: &mut Vec<u8>, tag: u8) {
    let mut at = 0;
    for (found, bytes) in PackedFields(packed) {
        let end = at + FIELD_HEAD + bytes.len();
        if found == tag {
            packed.drain(at..end);
            return;
        }
        at = end;
    }
}

/// An owned message of an agent (A2A 1.0 §4.1.4).
///
/// A message without an id gets a fresh one from the turn or the job that publishes it.
#[derive(Clone, Default)]
pub struct MessageBuf {
    packed: Vec<u8>,
}

/// A message of the agent with this text.
impl From<&str> for MessageBuf {
    fn from(text: &str) -> MessageBuf {
        MessageBuf::agent(&PartsBuf::new().text(text))
    }
}

/// A message of the agent with this text.
impl From<String> for MessageBuf {
    fn from(text: String) -> MessageBuf {
        text.as_str().into()
    }
}

/// A copy of the message.
impl From<&MessageBuf> for MessageBuf {
    fn from(message: &MessageBuf) -> MessageBuf {
        message.clone()
    }
}

impl MessageBuf {
    /// A message of a client.
    pub fn user(parts: &PartsBuf) -> MessageBuf {
        let mut packed = Vec::with_capacity(parts.packed.len() + 2 * FIELD_HEAD + 40);
        Packer(&mut packed).put(message_tag::ROLE, &[Role::User as u8]);
        packed.extend_from_slice(&parts.packed);
        MessageBuf { packed }
    }

    /// A message of the agent.
    pub fn agent(parts: &PartsBuf) -> MessageBuf {
        let mut packed = Vec::with_capacity(parts.packed.len() + 2 * FIELD_HEAD + 40);
        Packer(&mut packed).put(message_tag::ROLE, &[Role::Agent as u8]);
        packed.extend_from_slice(&parts.packed);
        MessageBuf { packed }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.packed.capacity()
    }

    /// Sets its id, unique among the agent's messages; at most 256 bytes, the limit of clients of
    /// this crate.
    pub fn id<'t>(mut self, message_id: impl Into<Text<'t>>) -> MessageBuf {
        remove(&mut self.packed, message_tag::MESSAGE_ID);
        let mut id = Vec::new();
        put_id(&mut Packer(&mut id), message_tag::MESSAGE_ID, message_id.into());
        self.packed.splice(0..0, id);
        self
    }

    /// Sets its conversation; by default that of the task.
    pub fn context_id<'t>(mut self, context_id: impl Into<Text<'t>>) -> MessageBuf {
        set_id(&mut self.packed, message_tag::CONTEXT_ID, context_id.into());
        self
    }

    /// Sets its task; by default the task that it is published to.
    pub fn task_id<'t>(mut self, task_id: impl Into<Text<'t>>) -> MessageBuf {
        set_id(&mut self.packed, message_tag::TASK_ID, task_id.into());
        self
    }

    /// Adds a task that it refers to.
    pub fn reference_task_id<'t>(mut self, task_id: impl Into<Text<'t>>) -> MessageBuf {
        put_id(&mut Packer(&mut self.packed), message_tag::REFERENCE, task_id.into());
        self
    }

    /// Adds the URI of an extension that it uses.
    pub fn extension<'t>(mut self, uri: impl Into<Text<'t>>) -> MessageBuf {
        put_text(&mut Packer(&mut self.packed), message_tag::EXTENSION, uri);
        self
    }

    /// Sets its metadata.
    pub fn metadata(mut self, metadata: JsonObject<'_>) -> MessageBuf {
        set(&mut self.packed, message_tag::METADATA, metadata.raw());
        self
    }

    /// The message.
    pub fn view(&self) -> Message<'_> {
        Message(&self.packed)
    }

    /// A message of these packed fields.
    #[cfg(feature = "gateway")]
    pub(crate) fn of_packed(packed: Vec<u8>) -> MessageBuf {
        MessageBuf { packed }
    }

    /// A copy of `message` with this id instead of its own.
    pub(crate) fn with_id<'t>(message: Message<'_>, id: impl Into<Text<'t>>) -> MessageBuf {
        MessageBuf { packed: message.0.to_vec() }.id(id)
    }
}

/// An owned artifact of an agent, or one chunk of it (A2A 1.0 §4.1.7).
#[derive(Clone, Default)]
pub struct ArtifactBuf {
    packed: Vec<u8>,
}

impl ArtifactBuf {
    /// An artifact; `artifact_id` is unique in its task.
    pub fn new<'t>(artifact_id: impl Into<Text<'t>>, parts: &PartsBuf) -> ArtifactBuf {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        put_id(&mut packer, artifact_tag::ARTIFACT_ID, artifact_id.into());
        for part in parts.parts() {
            packer.put(artifact_tag::PART, part.0);
        }
        ArtifactBuf { packed }
    }

    /// Names the artifact.
    pub fn name<'t>(mut self, name: impl Into<Text<'t>>) -> ArtifactBuf {
        set_text(&mut self.packed, artifact_tag::NAME, name.into());
        self
    }

    /// Describes the artifact.
    pub fn description<'t>(mut self, text: impl Into<Text<'t>>) -> ArtifactBuf {
        set_text(&mut self.packed, artifact_tag::DESCRIPTION, text.into());
        self
    }

    /// Adds the URI of an extension that it uses.
    pub fn extension<'t>(mut self, uri: impl Into<Text<'t>>) -> ArtifactBuf {
        put_text(&mut Packer(&mut self.packed), artifact_tag::EXTENSION, uri);
        self
    }

    /// Sets its metadata.
    pub fn metadata(mut self, metadata: JsonObject<'_>) -> ArtifactBuf {
        set(&mut self.packed, artifact_tag::METADATA, metadata.raw());
        self
    }

    /// The artifact.
    pub fn view(&self) -> Artifact<'_> {
        Artifact::new(&self.packed)
    }
}

impl Message<'_> {
    /// The text of all text parts, unescaped, one after another.
    pub fn text(self) -> String {
        let mut text = String::new();
        for part in self.parts() {
            if let Content::Text(raw) = part.content() {
                text.push_str(&raw.to_str());
            }
        }
        text
    }
}
