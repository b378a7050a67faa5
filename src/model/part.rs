//! Views of packed parts: their content and its attributes.

use super::{
    json::{Json, JsonObject},
    pack::{PackedFields, part_tag},
    text::RawText,
};

/// A packed part (A2A 1.0 §4.1.6).
#[derive(Clone, Copy)]
pub struct Part<'a>(pub(crate) &'a [u8]);

/// The content of a part: exactly one of four kinds, or an unknown kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Text.
    Text(RawText<'a>),
    /// Bytes, as standard base64 with its padding ([`RawText::decode_base64`]).
    Raw(RawText<'a>),
    /// The URL of the bytes.
    Url(RawText<'a>),
    /// Any JSON.
    Data(Json<'a>),
    /// The whole part, of unknown kind; metadata and names are inside.
    Unknown(JsonObject<'a>),
}

impl<'a> Part<'a> {
    /// Its packed form.
    #[inline]
    pub fn packed(self) -> &'a [u8] {
        self.0
    }

    /// All fields; the content comes first.
    pub fn fields(self) -> PackedFields<'a> {
        PackedFields(self.0)
    }

    /// Its text, if it has no other field.
    #[inline]
    pub fn as_text(self) -> Option<RawText<'a>> {
        let mut fields = self.fields();
        match fields.next()? {
            (part_tag::TEXT, text) if fields.is_empty() => Some(RawText::known(text)),
            _ => None,
        }
    }

    /// The content; empty text if there is none.
    pub fn content(self) -> Content<'a> {
        for (tag, bytes) in self.fields() {
            match tag {
                part_tag::TEXT => return Content::Text(RawText::known(bytes)),
                part_tag::RAW => return Content::Raw(RawText::known(bytes)),
                part_tag::URL => return Content::Url(RawText::known(bytes)),
                part_tag::DATA => return Content::Data(Json::known(bytes)),
                part_tag::UNKNOWN => return Content::Unknown(JsonObject::known(bytes)),
                _ => {}
            }
        }
        Content::Text(RawText::known(b""))
    }

    /// Its metadata.
    pub fn metadata(self) -> Option<JsonObject<'a>> {
        self.fields().first(part_tag::METADATA).map(JsonObject::known)
    }

    /// The file's name.
    pub fn filename(self) -> Option<RawText<'a>> {
        self.fields().text(part_tag::FILENAME)
    }

    /// The media type of the content (RFC 6838).
    pub fn media_type(self) -> Option<RawText<'a>> {
        self.fields().text(part_tag::MEDIA_TYPE)
    }
}
