//! Field lines of a valid head (RFC 9112 §5).
//!
//! The iterator only splits: every line has a token, a colon directly after the token, and a value
//! without control bytes. [`super::parse_head`], or [`super::HeadMemo::read_parts`] for a head in
//! parts, has refused any other line.

use super::scan;

/// The fields of a head in order, as `(name, value)`; the value without outer white space.
///
/// Names are as the peer wrote them; compare them case-insensitively.
#[derive(Clone, Copy, Debug)]
pub struct HeadFields<'b> {
    /// The field lines, each with its CRLF.
    pub(super) section: &'b [u8],
}

impl<'b> HeadFields<'b> {
    /// Every value of the fields of this name, in order.
    pub fn values(mut self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        std::iter::from_fn(move || {
            loop {
                let line = self.line()?;
                // A name never contains a colon.
                if let Some((own, [b':', value @ ..])) = line.split_at_checked(name.len())
                    && own.eq_ignore_ascii_case(name.as_bytes())
                {
                    return Some(trim(value));
                }
            }
        })
    }

    /// The next line. Its only control bytes are tabs, and it ends at its CRLF.
    #[inline]
    fn line(&mut self) -> Option<&'b [u8]> {
        if self.section.is_empty() {
            return None;
        }
        let (line, rest) = self.section.split_at(scan::value_len(self.section));
        self.section = rest.get(2..).unwrap_or_default();
        Some(line)
    }

    /// The fields of valid lines, each with its CRLF. With other bytes the result is meaningless,
    /// but nothing panics.
    #[cfg(any(feature = "client", feature = "internals"))]
    pub fn of_lines(section: &'b [u8]) -> HeadFields<'b> {
        HeadFields { section }
    }
}

impl<'b> Iterator for HeadFields<'b> {
    type Item = (&'b str, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.line()?;
        let colon = line.iter().position(|&b| b == b':')?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        Some((name, trim(&line[colon + 1..])))
    }
}

/// The non-empty elements of a comma list, trimmed (RFC 9110 §5.6.1.2).
///
/// Quoted strings are not supported: use it for lists of tokens only.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|element| !element.is_empty())
}

/// Removes optional white space at both ends (RFC 9110 §5.6.3: spaces and tabs).
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_iterate_in_order() {
        let section = b"Host: a\r\nX:\r\nY:\t b c \t\r\n";
        let got: Vec<_> = HeadFields { section }.collect();
        assert_eq!(got, [("Host", &b"a"[..]), ("X", b""), ("Y", b"b c")]);
    }

    #[test]
    fn values_returns_all_fields_with_a_name_in_any_case() {
        let section = b"Host: a\r\nX:\r\nXY: no\r\nx:\t b:\xe9 c \t\r\nX: last\r\n";
        for name in ["x", "host", "XY", "y"] {
            let fields = HeadFields { section };
            let named = |(own, value): (&str, _)| own.eq_ignore_ascii_case(name).then_some(value);
            let expected: Vec<&[u8]> = fields.filter_map(named).collect();
            let got: Vec<_> = fields.values(name).collect();
            assert_eq!(got, expected, "{name}");
        }
        let got: Vec<_> = HeadFields { section }.values("x").collect();
        assert_eq!(got, [&b""[..], b"b:\xe9 c", b"last"]);
    }

    #[test]
    fn rfc9110_5_6_1_lists_skip_empty_elements() {
        let got: Vec<_> = list(b" a ,, b,\t,c").collect();
        assert_eq!(got, [b"a", b"b", b"c"]);
        assert_eq!(list(b"").count(), 0);
    }
}
