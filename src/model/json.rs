//! JSON as text that is valid by construction.
//!
//! JSON from a client was checked with its body and is passed on without another check. JSON from
//! an agent is checked here once, before it can be used.

use std::fmt;

use crate::json::{JsonError, check};

/// Nesting limit for JSON of an agent: the default of `json_depth_max`, so that a peer with the
/// same limits can read it.
pub const JSON_DEPTH_MAX: usize = 64;

/// Why a value of an agent is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// It is not JSON, or nested deeper than [`JSON_DEPTH_MAX`].
    Json(JsonError),
    /// It is JSON, but not the object required for metadata.
    NotAnObject,
    /// It is not base64 in a form that A2A allows.
    NotBase64,
    /// It is not valid between the quotes of a JSON string.
    NotRawText,
    /// The bytes are not a packed message, artifact or part.
    NotPacked,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Json(error) => error.fmt(f),
            ValueError::NotAnObject => f.write_str("it must be a JSON object"),
            ValueError::NotBase64 => f.write_str("it is not base64"),
            ValueError::NotRawText => {
                f.write_str("the text is not the escaped content of a JSON string")
            }
            ValueError::NotPacked => f.write_str("the bytes are not valid packed fields"),
        }
    }
}

impl std::error::Error for ValueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ValueError::Json(error) => Some(error),
            ValueError::NotAnObject
            | ValueError::NotBase64
            | ValueError::NotRawText
            | ValueError::NotPacked => None,
        }
    }
}

impl From<JsonError> for ValueError {
    fn from(error: JsonError) -> ValueError {
        ValueError::Json(error)
    }
}

/// One valid JSON value as text, without white space around it; stored verbatim.
///
/// ```
/// use peregrine::model::{Json, PartsBuf, ValueError};
///
/// let parts = PartsBuf::new().data(Json::parse(r#"{"total": 1.50}"#)?);
/// assert!(matches!(Json::parse("{not json"), Err(ValueError::Json(_))));
/// # Ok::<(), ValueError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// Checks that `text` is one JSON value of at most [`JSON_DEPTH_MAX`] levels; white space
    /// around it is dropped. Linear in its length; allocates nothing.
    ///
    /// # Errors
    /// [`ValueError::Json`].
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &'a T) -> Result<Json<'a>, ValueError> {
        let text = text.as_ref();
        check(text, JSON_DEPTH_MAX)?;
        Ok(Json(text.trim_ascii()))
    }

    /// JSON that was checked before: read from a body, or packed.
    #[inline]
    pub(crate) const fn known(text: &'a [u8]) -> Json<'a> {
        Json(text)
    }

    /// The text, UTF-8.
    #[inline]
    pub const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// The text as a `str`; linear in its length.
    pub fn as_str(self) -> &'a str {
        // JSON is UTF-8.
        str::from_utf8(self.0).unwrap_or_default()
    }

    /// The same value if it is an object.
    #[inline]
    pub fn as_object(self) -> Option<JsonObject<'a>> {
        (self.0.first() == Some(&b'{')).then_some(JsonObject(self.0))
    }
}

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One valid JSON object as text, as metadata requires; stored verbatim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JsonObject<'a>(&'a [u8]);

impl<'a> JsonObject<'a> {
    /// As [`Json::parse`], for an object.
    ///
    /// # Errors
    /// [`ValueError::Json`], and [`ValueError::NotAnObject`] for any other JSON.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &'a T) -> Result<JsonObject<'a>, ValueError> {
        Json::parse(text)?.as_object().ok_or(ValueError::NotAnObject)
    }

    /// An object that was checked before: read from a body, or packed.
    #[inline]
    pub(crate) const fn known(text: &'a [u8]) -> JsonObject<'a> {
        JsonObject(text)
    }

    /// The text, UTF-8.
    #[inline]
    pub const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// The text as a `str`; linear in its length.
    pub fn as_str(self) -> &'a str {
        // JSON is UTF-8.
        str::from_utf8(self.0).unwrap_or_default()
    }
}

impl<'a> From<JsonObject<'a>> for Json<'a> {
    fn from(object: JsonObject<'a>) -> Json<'a> {
        Json(object.0)
    }
}

impl fmt::Debug for JsonObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A JSON object that owns its text.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonObjectBuf(Box<[u8]>);

impl JsonObjectBuf {
    /// As [`JsonObject::parse`], with a copy of the text.
    ///
    /// # Errors
    /// As [`JsonObject::parse`].
    pub fn parse<T: AsRef<[u8]> + ?Sized>(text: &T) -> Result<JsonObjectBuf, ValueError> {
        JsonObject::parse(text).map(JsonObjectBuf::from)
    }

    /// The object.
    #[inline]
    pub fn view(&self) -> JsonObject<'_> {
        JsonObject(&self.0)
    }
}

impl From<JsonObject<'_>> for JsonObjectBuf {
    fn from(object: JsonObject<'_>) -> JsonObjectBuf {
        JsonObjectBuf(object.0.into())
    }
}

impl fmt::Debug for JsonObjectBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_accepts_one_value_and_keeps_its_text() {
        for text in ["null", "1e400", "\"a\\u00e9\"", "[1, 2 ]", "{ \"a\" : 1 }"] {
            let padded = format!(" \n{text}\t");
            assert_eq!(Json::parse(&padded).unwrap().as_str(), text);
        }
        for bad in ["", " ", "{not json", "{}{}", "1 2", "'a'", "[1,]", "\"\\ud800\"", "nul"] {
            assert!(matches!(Json::parse(bad), Err(ValueError::Json(_))), "{bad}");
        }
        assert_eq!(Json::parse(b"\"\xff\"").err(), Some(ValueError::Json(JsonError::Utf8)));
    }

    #[test]
    fn json_depth_limit_equals_body_depth_limit() {
        assert_eq!(JSON_DEPTH_MAX, crate::limits::Limits::default().json_depth_max);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(JSON_DEPTH_MAX)).is_ok());
        let deeper = nested(JSON_DEPTH_MAX + 1);
        assert_eq!(Json::parse(&deeper), Err(ValueError::Json(JsonError::Depth)));
    }

    #[test]
    fn json_object_accepts_only_objects() {
        assert_eq!(JsonObject::parse(" {} ").unwrap().as_str(), "{}");
        for other in ["null", "[]", "1", "\"{}\""] {
            assert_eq!(JsonObject::parse(other), Err(ValueError::NotAnObject), "{other}");
        }
        assert!(matches!(JsonObject::parse("{"), Err(ValueError::Json(_))));
    }
}
