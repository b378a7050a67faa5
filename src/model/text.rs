//! Text in JSON form, and ordinary text: two types, so that they cannot be confused.
//!
//! A peer's text is stored and returned as received between its quotes, escapes included. A
//! [`RawText`] is therefore never escaped again, and a `str` always is; a builder takes a [`Text`],
//! which is either.

use std::{borrow::Cow, fmt};

use super::json::ValueError;
use crate::json::{
    base64, is_text,
    write::{canonical_raw, push_escaped, unescape},
};

/// The text between the quotes of a JSON string, with its original escapes.
///
/// Comparison, output and decoding use the unescaped text; [`RawText::raw`] is the original, which
/// builders copy byte for byte.
///
/// ```
/// use peregrine::model::{PartBuf, RawText};
///
/// let name = RawText::parse(r"caf\u00e9.txt")?;
/// assert_eq!(name, "café.txt");
/// let part = PartBuf::url("https://example.com/menu").filename(name);
/// assert_eq!(part.view().filename().map(|name| name.raw()), Some(&br"caf\u00e9.txt"[..]));
/// # Ok::<(), peregrine::model::ValueError>(())
/// ```
#[derive(Clone, Copy, Default)]
pub struct RawText<'a>(&'a [u8]);

impl<'a> RawText<'a> {
    /// Checks that `raw` is valid between quotes (RFC 8259 §7); linear, for cold paths.
    ///
    /// # Errors
    /// [`ValueError::NotRawText`] for a bare quote or control character, an invalid escape, and
    /// half a surrogate pair.
    pub fn parse(raw: &'a str) -> Result<RawText<'a>, ValueError> {
        match is_text(raw.as_bytes()) {
            true => Ok(RawText(raw.as_bytes())),
            false => Err(ValueError::NotRawText),
        }
    }

    /// Raw text that was checked before: read from JSON, or packed.
    #[inline]
    pub(crate) const fn known(raw: &'a [u8]) -> RawText<'a> {
        RawText(raw)
    }

    /// The bytes between the quotes, with the original escapes; UTF-8.
    #[inline]
    pub const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// [`RawText::raw`] as a `str`; linear in its length.
    pub fn raw_str(self) -> &'a str {
        // Raw text is a piece of JSON, which is UTF-8.
        str::from_utf8(self.0).unwrap_or_default()
    }

    /// The unescaped text; borrowed when it has no escapes.
    pub fn to_str(self) -> Cow<'a, str> {
        unescape(self.raw_str())
    }

    /// Decodes the text as base64 (RFC 4648 §4 or §5, padded or not); `None`: it is not base64.
    pub fn decode_base64(self) -> Option<Vec<u8>> {
        base64::decode(&self.to_str())
    }

    /// True for the empty text.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for RawText<'_> {
    fn eq(&self, other: &RawText<'_>) -> bool {
        self.0 == other.0 || self.to_str() == other.to_str()
    }
}

impl Eq for RawText<'_> {}

impl PartialEq<str> for RawText<'_> {
    fn eq(&self, text: &str) -> bool {
        self.to_str() == text
    }
}

impl PartialEq<&str> for RawText<'_> {
    fn eq(&self, text: &&str) -> bool {
        *self == **text
    }
}

impl fmt::Display for RawText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_str())
    }
}

impl fmt::Debug for RawText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.raw_str())
    }
}

/// A text for a builder: a `str`, which the builder escapes, or a [`RawText`], which is escaped
/// already.
#[derive(Clone, Copy)]
pub struct Text<'a>(TextForm<'a>);

#[derive(Clone, Copy)]
enum TextForm<'a> {
    Ordinary(&'a str),
    Raw(&'a [u8]),
}

impl Text<'_> {
    /// Appends it as raw text.
    #[inline]
    pub(crate) fn push_raw(self, out: &mut Vec<u8>) {
        match self.0 {
            TextForm::Ordinary(text) => push_escaped(out, text),
            TextForm::Raw(raw) => out.extend_from_slice(raw),
        }
    }

    /// Minimum length as raw text, since escapes can make it longer.
    #[inline]
    pub(super) fn raw_len_min(self) -> usize {
        match self.0 {
            TextForm::Ordinary(text) => text.len(),
            TextForm::Raw(raw) => raw.len(),
        }
    }
}

impl<'a> Text<'a> {
    /// The canonical raw form of the text. Ids use it, so that equal ids have equal bytes.
    #[inline]
    pub(crate) fn canonical(self) -> Cow<'a, [u8]> {
        match self.0 {
            TextForm::Raw(raw) if !raw.contains(&b'\\') => Cow::Borrowed(raw),
            TextForm::Raw(_) | TextForm::Ordinary(_) => self.respelled(),
        }
    }

    #[cold]
    fn respelled(self) -> Cow<'a, [u8]> {
        match self.0 {
            TextForm::Raw(raw) => {
                Cow::Owned(canonical_raw(RawText(raw).raw_str()).into_owned().into_bytes())
            }
            TextForm::Ordinary(text) => {
                let mut raw = Vec::with_capacity(text.len());
                push_escaped(&mut raw, text);
                Cow::Owned(raw)
            }
        }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(TextForm::Ordinary(text))
    }
}

impl<'a> From<&'a String> for Text<'a> {
    fn from(text: &'a String) -> Text<'a> {
        Text(TextForm::Ordinary(text))
    }
}

impl<'a> From<&'a Cow<'_, str>> for Text<'a> {
    fn from(text: &'a Cow<'_, str>) -> Text<'a> {
        Text(TextForm::Ordinary(text))
    }
}

impl<'a> From<RawText<'a>> for Text<'a> {
    fn from(text: RawText<'a>) -> Text<'a> {
        Text(TextForm::Raw(text.0))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn raw_text_accepts_only_valid_json_string_content() {
        for (raw, text) in [("", ""), ("a/b", "a/b"), (r"\/\u0041\n", "/A\n"), ("é", "é")] {
            assert_eq!(RawText::parse(raw).unwrap(), text);
            assert_eq!(RawText::parse(raw).unwrap().to_string(), text);
        }
        for bad in ["\"", "a\"b", "\\", r"\x", "\n", r"\ud800", r"\u12", "a\",\"b"] {
            assert_eq!(RawText::parse(bad).err(), Some(ValueError::NotRawText), "{bad:?}");
        }
    }

    #[test]
    fn escaped_and_plain_raw_text_compare_equal() {
        let [plain, escaped] = ["Ab", r"\u0041b"].map(|raw| RawText::parse(raw).unwrap());
        assert!(plain == escaped && plain.raw() != escaped.raw());
        assert!(plain != RawText::parse("ab").unwrap() && plain != "ab");
    }
}
