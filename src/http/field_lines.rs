//! Fields of a request or a response: names and values, stored as the lines of HTTP/1.1.
//!
//! Invariant: the positions of a line's parts are recorded when the line is written. HTTP/1.1
//! copies the lines, other wire formats read names and values, and neither parses text.

use std::borrow::Cow;

/// The names and values of some fields, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldLines<'a> {
    /// The lines, each with its CRLF.
    lines: &'a str,
    /// Bytes of each name and of each value.
    parts: &'a [(usize, usize)],
}

/// Owned fields. Constants are not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldLinesBuf {
    lines: Cow<'static, str>,
    parts: Cow<'static, [(usize, usize)]>,
}

impl From<FieldLines<'static>> for FieldLinesBuf {
    fn from(fields: FieldLines<'static>) -> FieldLinesBuf {
        let FieldLines { lines, parts } = fields;
        FieldLinesBuf { lines: Cow::Borrowed(lines), parts: Cow::Borrowed(parts) }
    }
}

/// [`FieldLines`] of constants: `field_lines!("Allow": "POST, OPTIONS")`.
macro_rules! field_lines {
    ($($name:literal: $value:literal),*) => {{
        const LINES: &str = concat!($($name, ": ", $value, "\r\n"),*);
        const PARTS: &[(usize, usize)] = &[$(($name.len(), $value.len())),*];
        $crate::http::FieldLines::of_lines(LINES, PARTS)
    }};
}
pub(crate) use field_lines;

/// The `User-Agent` of every request (RFC 9110 §10.1.5): some firewalls refuse a request without
/// it.
#[cfg(feature = "client")]
pub const USER_AGENT: (&str, &str) =
    ("User-Agent", concat!("peregrine/", env!("CARGO_PKG_VERSION")));

/// The separator of a name and its value, and the end of a line.
const SEPARATOR: &str = ": ";
const END: &str = "\r\n";

impl<'a> FieldLines<'a> {
    /// No fields.
    pub const NONE: FieldLines<'static> = FieldLines { lines: "", parts: &[] };

    /// Only for the macro `field_lines`: the lines, and the length in bytes of each name and value.
    pub const fn of_lines(lines: &'a str, parts: &'a [(usize, usize)]) -> FieldLines<'a> {
        FieldLines { lines, parts }
    }

    /// True if there are no fields.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The field lines of HTTP/1.1, each with its CRLF.
    #[inline(always)]
    pub fn lines(self) -> &'a [u8] {
        self.lines.as_bytes()
    }

    /// Names and values.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut rest = self.lines;
        self.parts.iter().map_while(move |&(name_len, value_len)| {
            let (name, tail) = rest.split_at_checked(name_len)?;
            let (value, tail) = tail.get(SEPARATOR.len()..)?.split_at_checked(value_len)?;
            rest = tail.get(END.len()..)?;
            Some((name, value))
        })
    }
}

impl FieldLinesBuf {
    /// Concatenates all of these fields, in order.
    pub fn of(all: &[FieldLines<'_>]) -> FieldLinesBuf {
        let mut fields = FieldLinesBuf::default();
        all.iter().for_each(|some| fields.extend(*some));
        fields
    }

    /// Appends a field. The value must not have control bytes, such as CR and LF.
    pub fn push(&mut self, name: &str, value: &str) {
        self.push_pieces(name, &[value]);
    }

    /// As [`FieldLinesBuf::push`], with a value in pieces.
    pub fn push_pieces(&mut self, name: &str, value: &[&str]) {
        let is_control = |piece: &&str| piece.bytes().any(|byte| byte.is_ascii_control());
        debug_assert!(!value.iter().any(is_control), "{name}: {value:?}");
        let bytes = value.iter().map(|piece| piece.len()).sum();
        let lines = self.lines.to_mut();
        lines.reserve(name.len() + SEPARATOR.len() + bytes + END.len());
        lines.extend([name, SEPARATOR]);
        lines.extend(value.iter().copied());
        lines.push_str(END);
        self.parts.to_mut().push((name.len(), bytes));
    }

    /// Removes all fields, and retains the memory.
    pub fn clear(&mut self) {
        self.lines.to_mut().clear();
        self.parts.to_mut().clear();
    }

    /// Appends all of `fields`.
    pub fn extend(&mut self, fields: FieldLines<'_>) {
        if !fields.parts.is_empty() {
            self.lines.to_mut().push_str(fields.lines);
            self.parts.to_mut().extend_from_slice(fields.parts);
        }
    }

    /// True if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The fields.
    #[inline]
    pub fn get(&self) -> FieldLines<'_> {
        FieldLines { lines: &self.lines, parts: &self.parts }
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        let lines = if let Cow::Owned(lines) = &self.lines { lines.capacity() } else { 0 };
        let parts = if let Cow::Owned(parts) = &self.parts { parts.capacity() } else { 0 };
        lines + parts * size_of::<(usize, usize)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: FieldLines<'static> = field_lines!("Allow": "GET", "X-Y": "");

    #[test]
    fn field_lines_iterate_as_names_and_values() {
        assert_eq!(TWO.lines(), b"Allow: GET\r\nX-Y: \r\n");
        assert_eq!(TWO.iter().collect::<Vec<_>>(), [("Allow", "GET"), ("X-Y", "")]);
        let mut fields = FieldLinesBuf::default();
        fields.push("Vary", "Host: a");
        fields.extend(TWO);
        fields.push("Z", "1");
        let all = [("Vary", "Host: a"), ("Allow", "GET"), ("X-Y", ""), ("Z", "1")];
        assert_eq!(fields.get().iter().collect::<Vec<_>>(), all);
        assert_eq!(fields.get().lines(), b"Vary: Host: a\r\nAllow: GET\r\nX-Y: \r\nZ: 1\r\n");
        assert_eq!(FieldLinesBuf::from(TWO).get(), TWO);
        assert_eq!(FieldLinesBuf::from(TWO).held_bytes(), 0);
        assert_eq!(FieldLines::NONE.iter().count(), 0);
    }
}
