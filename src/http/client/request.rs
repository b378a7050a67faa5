//! Request heads, appended to the caller's buffer in one step (RFC 9112 §3).
//!
//! A target that could end its line early is refused, so a request cannot contain another request;
//! field lines are valid by their type.

use crate::http::{FieldLines, response::decimal};

/// The request target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTarget<'a> {
    /// Path and query, to the server itself (§3.2.1); begins with a slash.
    Origin(&'a str),
    /// As `Origin`, for a proxy to an http server: `http://authority` is put before it (§3.2.2).
    Absolute(&'a str),
    /// The authority alone, with CONNECT to a proxy (§3.2.3).
    Authority,
}

/// A request without its fields and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// The target.
    pub target: SentTarget<'a>,
    /// The value of `Host`; with [`SentTarget::Authority`] it includes the port.
    pub authority: &'a str,
}

/// The target or the authority is empty, or has a byte that is not visible ASCII; nothing was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsendableTarget;

/// The last written request head, reused for heads that differ only in length, as most do.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The head up to its length; empty: no head was written.
    bytes: Vec<u8>,
    /// Lengths of the parts of that head, in order.
    lens: [usize; 5],
}

impl RequestHead {
    /// Appends a request head as `write_request` does.
    ///
    /// # Errors
    /// `UnsendableTarget`; nothing is written.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        line: RequestLine<'_>,
        fields: FieldLines<'_>,
        body_len: Option<usize>,
    ) -> Result<(), UnsendableTarget> {
        if !self.is_of(line, fields) {
            self.bytes.clear();
            write_head(&mut self.bytes, line, fields)?;
            self.lens = Self::lens(&line.parts(), fields);
        }
        out.reserve(self.bytes.len() + ROOM);
        out.extend_from_slice(&self.bytes);
        write_length(out, body_len);
        if self.bytes.len() > CACHED_BYTES_MAX {
            self.bytes = Vec::new();
        }
        Ok(())
    }

    /// Lengths of the parts that differ between heads; the length of the prefix distinguishes the
    /// forms of a target.
    #[inline]
    fn lens(
        [method, prefix, _, path, _, authority, _]: &[&str; 7],
        fields: FieldLines<'_>,
    ) -> [usize; 5] {
        let lines = fields.lines();
        [method.len(), prefix.len(), path.len(), authority.len(), lines.len()]
    }

    fn is_of(&self, line: RequestLine<'_>, fields: FieldLines<'_>) -> bool {
        let parts = line.parts();
        if self.bytes.is_empty() || self.lens != Self::lens(&parts, fields) {
            return false;
        }
        let mut at = 0;
        let mut is_same = |part: &str, is_compared: bool| {
            let was = self.bytes.get(at..at + part.len());
            at += part.len();
            !is_compared || was == Some(part.as_bytes())
        };
        // The other parts are constants, distinguished by their lengths.
        let [method, prefix, middle, path, suffix, authority, _] = parts;
        is_same(method, true)
            && is_same(prefix, false)
            && is_same(middle, true)
            && is_same(path, true)
            && is_same(suffix, false)
            && is_same(authority, true)
            && self.bytes.ends_with(fields.lines())
    }
}

impl<'a> RequestLine<'a> {
    /// The parts of the beginning of a head.
    #[inline(always)]
    fn parts(&self) -> [&'a str; 7] {
        let RequestLine { method, target, authority } = *self;
        let (prefix, middle, path) = match target {
            SentTarget::Origin(path) => (" ", "", path),
            SentTarget::Absolute(path) => (" http://", authority, path),
            SentTarget::Authority => (" ", authority, ""),
        };
        [method, prefix, middle, path, " HTTP/1.1\r\nHost: ", authority, "\r\n"]
    }
}

/// Appends a request head: its line, `Host`, the fields, `Content-Length` for a known length, and
/// the empty line. The caller sends the content after it.
///
/// # Errors
/// [`UnsendableTarget`]; nothing is written.
pub fn write_request(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    fields: FieldLines<'_>,
    body_len: Option<usize>,
) -> Result<(), UnsendableTarget> {
    write_head(out, line, fields)?;
    write_length(out, body_len);
    Ok(())
}

fn write_head(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    fields: FieldLines<'_>,
) -> Result<(), UnsendableTarget> {
    let (parts, authority) = (line.parts(), line.authority);
    let path = parts[3];
    let is_path = path.starts_with('/') || line.target == SentTarget::Authority;
    if !is_path || authority.is_empty() || !is_visible(path) || !is_visible(authority) {
        return Err(UnsendableTarget);
    }
    let lines = fields.lines();
    out.reserve(parts.iter().map(|part| part.len()).sum::<usize>() + lines.len() + ROOM);
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    out.extend_from_slice(lines);
    Ok(())
}

/// Appends `Content-Length` for a known length, and the empty line.
fn write_length(out: &mut Vec<u8>, body_len: Option<usize>) {
    if let Some(length) = body_len {
        let mut digits = [0; 20];
        let count = decimal(length as u64, &mut digits);
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(&digits[digits.len() - count..]);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Maximum bytes of a head that is stored for the next one.
const CACHED_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the longest `Content-Length` line, and of line ends.
const ROOM: usize = 40;

/// RFC 3986 §2: a URI has only visible ASCII; eight bytes are checked at a time.
fn is_visible(text: &str) -> bool {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let all = |bytes: &[u8]| bytes.iter().fold(true, |is_so, b| is_so & b.is_ascii_graphic());
    words.iter().all(|word| all(word)) && all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, TEST_LIMITS, field_lines, find_head, parse_head};

    const LIMITS: &HeadLimits = &TEST_LIMITS;

    const FIELDS: FieldLines<'static> = field_lines!("Accept": "*/*", "A2A-Version": "1.0");

    fn written(method: &str, target: SentTarget<'_>, body_len: Option<usize>) -> String {
        let mut out = Vec::new();
        let line = RequestLine { method, target, authority: "h:81" };
        write_request(&mut out, line, FIELDS, body_len).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rfc9112_3_2_origin_absolute_authority_forms_are_written() {
        let fields = "Host: h:81\r\nAccept: */*\r\nA2A-Version: 1.0\r\n";
        let origin = written("POST", SentTarget::Origin("/a?b"), Some(0));
        assert_eq!(origin, format!("POST /a?b HTTP/1.1\r\n{fields}Content-Length: 0\r\n\r\n"));
        let absolute = written("GET", SentTarget::Absolute("/a"), None);
        assert_eq!(absolute, format!("GET http://h:81/a HTTP/1.1\r\n{fields}\r\n"));
        let authority = written("CONNECT", SentTarget::Authority, None);
        assert_eq!(authority, format!("CONNECT h:81 HTTP/1.1\r\n{fields}\r\n"));
    }

    #[test]
    fn server_parses_written_request_heads() {
        for length in [0, 9, 10, 12_345, 4 * 1024 * 1024] {
            let text = written("POST", SentTarget::Origin("/"), Some(length));
            let scan = find_head(text.as_bytes(), 0, LIMITS);
            assert_eq!(scan, Ok(crate::http::Scan::Complete { head_len: text.len() }));
            let layout = parse_head(text.as_bytes(), LIMITS).unwrap();
            let body = crate::http::BodyFraming::Length(length as u64);
            assert_eq!(layout.head(text.as_bytes()).body(), body);
        }
    }

    #[test]
    fn invalid_target_or_authority_is_rejected() {
        let mut out = b"before".to_vec();
        for (path, authority) in [
            ("/a b", "h"),
            ("/a\r\n", "h"),
            ("/\u{e4}", "h"),
            ("", "h"),
            ("a", "h"),
            ("/", "h\r\nX: y"),
            ("/", ""),
        ] {
            let line = RequestLine { method: "GET", target: SentTarget::Origin(path), authority };
            let refused = write_request(&mut out, line, FieldLines::NONE, None);
            assert_eq!((refused, &out[..]), (Err(UnsendableTarget), &b"before"[..]), "{path:?}");
        }
    }

    #[test]
    fn reserved_bytes_fit_the_longest_content_length_line() {
        let mut out = Vec::new();
        write_length(&mut out, Some(usize::MAX));
        assert!(out.len() <= ROOM, "{}", out.len());
    }

    #[test]
    fn cached_request_head_equals_newly_written_head() {
        const OTHERS: FieldLines<'static> = field_lines!("Accept": "*/*", "A2A-Version": "1.1");
        let mut cached = RequestHead::default();
        let targets = [
            SentTarget::Origin("/"),
            SentTarget::Origin("/a?b"),
            SentTarget::Absolute("/"),
            SentTarget::Authority,
            SentTarget::Origin("/a b"),
            SentTarget::Origin(" HTTP/1.1\r\nHost: h"),
        ];
        for target in targets.into_iter().flat_map(|target| [target, target]) {
            for (method, authority) in [("GET", "h"), ("POST", "h"), ("POST", "h:81"), ("GET", "")]
            {
                for fields in [FIELDS, OTHERS, FieldLines::NONE] {
                    for body_len in [None, Some(0), Some(12_345)] {
                        let line = RequestLine { method, target, authority };
                        let (mut again, mut anew) = (b"x".to_vec(), b"x".to_vec());
                        let wrote = cached.write(&mut again, line, fields, body_len);
                        assert_eq!(wrote, write_request(&mut anew, line, fields, body_len));
                        assert_eq!(
                            again.escape_ascii().to_string(),
                            anew.escape_ascii().to_string()
                        );
                    }
                }
            }
        }
    }
}
