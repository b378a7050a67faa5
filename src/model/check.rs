//! Packed bytes that somebody kept, and gives back: looked at whole before they are believed.

use super::{
    json::{Json, ValueError},
    pack::{Artifact, FIELD_HEAD, Fields, Message, artifact_tag, message_tag, part_tag},
    part::Part,
    state::Role,
    text::RawText,
};
use crate::json::{DEPTH_CAP, base64, check};

/// What a field may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Text,
    Base64,
    Json,
    Object,
    Role,
    Part,
}

/// Tag, what it holds, whether it may repeat.
type Known = (u8, Holds, bool);

const MESSAGE: &[Known] = &[
    (message_tag::MESSAGE_ID, Holds::Text, false),
    (message_tag::CONTEXT_ID, Holds::Text, false),
    (message_tag::TASK_ID, Holds::Text, false),
    (message_tag::ROLE, Holds::Role, false),
    (message_tag::PART, Holds::Part, true),
    (message_tag::METADATA, Holds::Object, false),
    (message_tag::EXTENSION, Holds::Text, true),
    (message_tag::REFERENCE, Holds::Text, true),
];

const ARTIFACT: &[Known] = &[
    (artifact_tag::ARTIFACT_ID, Holds::Text, false),
    (artifact_tag::NAME, Holds::Text, false),
    (artifact_tag::DESCRIPTION, Holds::Text, false),
    (artifact_tag::PART, Holds::Part, true),
    (artifact_tag::METADATA, Holds::Object, false),
    (artifact_tag::EXTENSION, Holds::Text, true),
];

const PART: &[Known] = &[
    (part_tag::TEXT, Holds::Text, false),
    (part_tag::RAW, Holds::Base64, false),
    (part_tag::URL, Holds::Text, false),
    (part_tag::DATA, Holds::Json, false),
    (part_tag::METADATA, Holds::Object, false),
    (part_tag::FILENAME, Holds::Text, false),
    (part_tag::MEDIA_TYPE, Holds::Text, false),
];

/// Tags of a part up to here are its content, of which there is one.
const CONTENT_END: u8 = part_tag::DATA;

impl<'a> Message<'a> {
    /// The message that [`Message::packed`] gave, for instance to another thread. Linear in its
    /// length.
    ///
    /// # Errors
    /// [`ValueError`] of the first field that is not what it should be.
    pub fn from_packed(packed: &'a [u8]) -> Result<Message<'a>, ValueError> {
        fields(packed, MESSAGE)?;
        Ok(Message(packed))
    }
}

impl<'a> Artifact<'a> {
    /// An artifact from its packed fields. Linear in their length.
    ///
    /// # Errors
    /// [`ValueError`] of the first field that is not what it should be.
    pub fn from_packed(packed: &'a [u8]) -> Result<Artifact<'a>, ValueError> {
        fields(packed, ARTIFACT)?;
        Ok(Artifact::new(packed))
    }
}

impl<'a> Part<'a> {
    /// The part that [`Part::packed`] gave. Linear in its length.
    ///
    /// # Errors
    /// [`ValueError`] of the first field that is not what it should be.
    pub fn from_packed(packed: &'a [u8]) -> Result<Part<'a>, ValueError> {
        part(packed)?;
        Ok(Part(packed))
    }
}

fn fields(packed: &[u8], known: &[Known]) -> Result<(), ValueError> {
    let (mut length, mut seen) = (0, 0_u16);
    for (tag, bytes) in Fields(packed) {
        length += FIELD_HEAD + bytes.len();
        let found = known.iter().find(|(known, ..)| *known == tag);
        let &(_, holds, repeats) = found.ok_or(ValueError::NotPacked)?;
        if !repeats && seen & 1 << tag != 0 {
            return Err(ValueError::NotPacked);
        }
        seen |= 1 << tag;
        field(bytes, holds)?;
    }
    if length == packed.len() { Ok(()) } else { Err(ValueError::NotPacked) }
}

fn field(bytes: &[u8], holds: Holds) -> Result<(), ValueError> {
    let text = || str::from_utf8(bytes).map_err(|_| ValueError::NotRawText);
    match holds {
        Holds::Text => RawText::parse(text()?).map(drop),
        Holds::Base64 => base64::normalise(text()?)
            .is_some_and(|standard| standard.as_bytes() == bytes)
            .then_some(())
            .ok_or(ValueError::NotBase64),
        Holds::Json => json(bytes).map(drop),
        Holds::Object => json(bytes)?.as_object().map(drop).ok_or(ValueError::NotAnObject),
        Holds::Role => match bytes {
            [role] if [Role::User as u8, Role::Agent as u8].contains(role) => Ok(()),
            _ => Err(ValueError::NotPacked),
        },
        Holds::Part => part(bytes),
    }
}

/// As deep as any server lets a client nest it; there is no white space around what is packed.
fn json(bytes: &[u8]) -> Result<Json<'_>, ValueError> {
    check(bytes, DEPTH_CAP)?;
    if bytes.trim_ascii().len() < bytes.len() {
        return Err(ValueError::NotPacked);
    }
    Ok(Json::known(bytes))
}

fn part(packed: &[u8]) -> Result<(), ValueError> {
    fields(packed, PART)?;
    let contents = Fields(packed).filter(|(tag, _)| *tag <= CONTENT_END).count();
    if contents == 1 { Ok(()) } else { Err(ValueError::NotPacked) }
}
