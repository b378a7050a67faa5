//! Builders with which agents make messages and artifacts.
//!
//! Text given here is ordinary text and is escaped once, on the way in; `*_raw` methods take
//! what came from a client as it is.

use super::{
    pack::{Artifact, Content, Message, Packer, Part, artifact_tag, message_tag, part_tag},
    state::Role,
};
use crate::json::write::push_escaped;

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

    /// Appends a text part.
    pub fn text(mut self, text: &str) -> PartsBuf {
        self.add(part_tag::TEXT, text, None, None);
        self
    }

    /// Appends a file by reference, with its optional name and media type.
    pub fn url(mut self, url: &str, filename: Option<&str>, media: Option<&str>) -> PartsBuf {
        self.add(part_tag::URL, url, filename, media);
        self
    }

    /// Appends a file by value: `base64` is standard base64 text.
    pub fn raw(mut self, base64: &str, filename: Option<&str>, media: Option<&str>) -> PartsBuf {
        self.add(part_tag::RAW, base64, filename, media);
        self
    }

    /// Appends a data part: `json` must be one valid JSON value; it is kept verbatim.
    pub fn data(mut self, json: &str) -> PartsBuf {
        let mut packer = Packer(&mut self.packed);
        let part = packer.open(message_tag::PART);
        packer.put(part_tag::DATA, json.as_bytes());
        packer.close(part);
        self
    }

    /// Appends a part of a message or artifact as it is.
    pub fn part(mut self, part: Part<'_>) -> PartsBuf {
        Packer(&mut self.packed).put(message_tag::PART, part.0);
        self
    }

    fn add(&mut self, tag: u8, value: &str, filename: Option<&str>, media: Option<&str>) {
        let mut packer = Packer(&mut self.packed);
        let part = packer.open(message_tag::PART);
        put_text(&mut packer, tag, value);
        if let Some(filename) = filename {
            put_text(&mut packer, part_tag::FILENAME, filename);
        }
        if let Some(media) = media {
            put_text(&mut packer, part_tag::MEDIA_TYPE, media);
        }
        packer.close(part);
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        Message(&self.packed).parts()
    }
}

/// Packs `text` as a raw string.
pub fn put_text(packer: &mut Packer<'_>, tag: u8, text: &str) {
    let field = packer.open(tag);
    push_escaped(packer.0, text);
    packer.close(field);
}

/// An owned message of an agent.
#[derive(Clone, Default)]
pub struct MessageBuf {
    packed: Vec<u8>,
}

impl MessageBuf {
    /// A message of the agent; `message_id` is ordinary text.
    pub fn agent(message_id: &str, parts: &PartsBuf) -> MessageBuf {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        put_text(&mut packer, message_tag::MESSAGE_ID, message_id);
        packer.put(message_tag::ROLE, &[Role::Agent as u8]);
        for part in parts.parts() {
            packer.put(message_tag::PART, part.0);
        }
        MessageBuf { packed }
    }

    /// Adds a raw JSON object as metadata.
    pub fn metadata(mut self, json: &str) -> MessageBuf {
        Packer(&mut self.packed).put(message_tag::METADATA, json.as_bytes());
        self
    }

    /// The message.
    pub fn view(&self) -> Message<'_> {
        Message(&self.packed)
    }
}

/// An owned artifact of an agent, or one chunk of it.
#[derive(Clone, Default)]
pub struct ArtifactBuf {
    packed: Vec<u8>,
}

impl ArtifactBuf {
    /// An artifact; `artifact_id` is ordinary text.
    pub fn new(artifact_id: &str, parts: &PartsBuf) -> ArtifactBuf {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        put_text(&mut packer, artifact_tag::ARTIFACT_ID, artifact_id);
        for part in parts.parts() {
            packer.put(artifact_tag::PART, part.0);
        }
        ArtifactBuf { packed }
    }

    /// Names the artifact.
    pub fn name(mut self, name: &str) -> ArtifactBuf {
        put_text(&mut Packer(&mut self.packed), artifact_tag::NAME, name);
        self
    }

    /// Describes the artifact.
    pub fn description(mut self, text: &str) -> ArtifactBuf {
        put_text(&mut Packer(&mut self.packed), artifact_tag::DESCRIPTION, text);
        self
    }

    /// Adds a raw JSON object as metadata.
    pub fn metadata(mut self, json: &str) -> ArtifactBuf {
        Packer(&mut self.packed).put(artifact_tag::METADATA, json.as_bytes());
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
                text.push_str(&crate::json::write::unescape(&String::from_utf8_lossy(raw)));
            }
        }
        text
    }
}
