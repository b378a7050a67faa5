//! Validation of packed bytes that were stored elsewhere: they are checked completely before use.

use super::{
    json::{Json, ValueError},
    pack::{Artifact, FIELD_HEAD, Message, PackedFields, artifact_tag, message_tag, part_tag},
    part::Part,
    state::Role,
    text::RawText,
};
use crate::json::{DEPTH_CAP, base64, check};

/// The kind of content of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Text,
    Base64,
    Json,
    Object,
    Role,
    Part,
}

/// Tag, kind of content, whether the field may repeat.
type FieldRule = (u8, FieldKind, bool);

const MESSAGE: &[FieldRule] = &[
    (message_tag::MESSAGE_ID, FieldKind::Text, false),
    (message_tag::CONTEXT_ID, FieldKind::Text, false),
    (message_tag::TASK_ID, FieldKind::Text, false),
    (message_tag::ROLE, FieldKind::Role, false),
    (message_tag::PART, FieldKind::Part, true),
    (message_tag::METADATA, FieldKind::Object, false),
    (message_tag::EXTENSION, FieldKind::Text, true),
    (message_tag::REFERENCE, FieldKind::Text, true),
];

const ARTIFACT: &[FieldRule] = &[
    (artifact_tag::ARTIFACT_ID, FieldKind::Text, false),
    (artifact_tag::NAME, FieldKind::Text, false),
    (artifact_tag::DESCRIPTION, FieldKind::Text, false),
    (artifact_tag::PART, FieldKind::Part, true),
    (artifact_tag::METADATA, FieldKind::Object, false),
    (artifact_tag::EXTENSION, FieldKind::Text, true),
];

const PART: &[FieldRule] = &[
    (part_tag::TEXT, FieldKind::Text, false),
    (part_tag::RAW, FieldKind::Base64, false),
    (part_tag::URL, FieldKind::Text, false),
    (part_tag::DATA, FieldKind::Json, false),
    (part_tag::METADATA, FieldKind::Object, false),
    (part_tag::FILENAME, FieldKind::Text, false),
    (part_tag::MEDIA_TYPE, FieldKind::Text, false),
    (part_tag::UNKNOWN, FieldKind::Object, false),
];

/// The tags of a part's content; each part has exactly one.
const CONTENTS: [u8; 5] =
    [part_tag::TEXT, part_tag::RAW, part_tag::URL, part_tag::DATA, part_tag::UNKNOWN];

impl<'a> Message<'a> {
    /// A message from [`Message::packed`], for instance from storage. Linear in its length.
    ///
    /// # Errors
    /// [`ValueError`] of the first invalid field.
    pub fn from_packed(packed: &'a [u8]) -> Result<Message<'a>, ValueError> {
        fields(packed, MESSAGE)?;
        Ok(Message(packed))
    }
}

impl<'a> Artifact<'a> {
    /// An artifact from its packed fields. Linear in their length.
    ///
    /// # Errors
    /// [`ValueError`] of the first invalid field.
    pub fn from_packed(packed: &'a [u8]) -> Result<Artifact<'a>, ValueError> {
        fields(packed, ARTIFACT)?;
        Ok(Artifact::new(packed))
    }
}

impl<'a> Part<'a> {
    /// A part from [`Part::packed`]. Linear in its length.
    ///
    /// # Errors
    /// [`ValueError`] of the first invalid field.
    pub fn from_packed(packed: &'a [u8]) -> Result<Part<'a>, ValueError> {
        part(packed)?;
        Ok(Part(packed))
    }
}

fn fields(packed: &[u8], rules: &[FieldRule]) -> Result<(), ValueError> {
    let (mut length, mut seen) = (0, 0_u16);
    for (tag, bytes) in PackedFields(packed) {
        length += FIELD_HEAD + bytes.len();
        let found = rules.iter().find(|(expected, ..)| *expected == tag);
        let &(_, holds, repeats) = found.ok_or(ValueError::NotPacked)?;
        if !repeats && seen & 1 << tag != 0 {
            return Err(ValueError::NotPacked);
        }
        seen |= 1 << tag;
        field(bytes, holds)?;
    }
    if length == packed.len() { Ok(()) } else { Err(ValueError::NotPacked) }
}

fn field(bytes: &[u8], holds: FieldKind) -> Result<(), ValueError> {
    let text = || str::from_utf8(bytes).map_err(|_| ValueError::NotRawText);
    match holds {
        FieldKind::Text => RawText::parse(text()?).map(drop),
        FieldKind::Base64 => base64::normalise(text()?)
            .is_some_and(|standard| standard.as_bytes() == bytes)
            .then_some(())
            .ok_or(ValueError::NotBase64),
        FieldKind::Json => json(bytes).map(drop),
        FieldKind::Object => json(bytes)?.as_object().map(drop).ok_or(ValueError::NotAnObject),
        FieldKind::Role => match bytes {
            [role] if [Role::User as u8, Role::Agent as u8].contains(role) => Ok(()),
            _ => Err(ValueError::NotPacked),
        },
        FieldKind::Part => part(bytes),
    }
}

/// Checks JSON with the largest nesting that any server allows; packed JSON has no white space
/// around it.
fn json(bytes: &[u8]) -> Result<Json<'_>, ValueError> {
    check(bytes, DEPTH_CAP)?;
    if bytes.trim_ascii().len() < bytes.len() {
        return Err(ValueError::NotPacked);
    }
    Ok(Json::known(bytes))
}

fn part(packed: &[u8]) -> Result<(), ValueError> {
    fields(packed, PART)?;
    let contents = PackedFields(packed).filter(|(tag, _)| CONTENTS.contains(tag)).count();
    if contents == 1 { Ok(()) } else { Err(ValueError::NotPacked) }
}
