//! A response head as borrowed views, read line by line as it arrives.
//!
//! Each line is read once, as soon as it is complete, so the outcome does not depend on how the
//! bytes were split into reads. Lines end only in CRLF, lines are not folded, the status line is
//! the first line, and the only allowed control byte is the tab.

use super::{
    ResponseFraming, ResponseLimits, ResponseReject,
    framing::{self, StatusLine},
};
use crate::http::{Method, Reject, Version, fields, line::is_token, scan::value_len};

/// The positions and meanings of the parts of a head; reused for the next head.
///
/// The layout borrows nothing: read the head through [`ResponseLayout::head`].
#[derive(Debug)]
pub struct ResponseLayout {
    /// The start of the incomplete line.
    line_at: usize,
    /// Bytes of the incomplete line that were scanned and have no control byte.
    seen: usize,
    is_whole: bool,
    version: Version,
    status: u16,
    keep_alive: bool,
    framing: ResponseFraming,
    body_bytes_max: u64,
    fields: Vec<FieldOffsets>,
    /// The first `Content-Type`, because every answer is checked for it.
    media: Option<FieldOffsets>,
    /// The request method and the limits of an accepted head; `None`: no head was accepted yet.
    accepted: Option<(Method, ResponseLimits)>,
}

/// The position of a field line, in bytes from the start of the head.
#[derive(Clone, Copy, Debug)]
struct FieldOffsets {
    name_at: usize,
    name_len: usize,
    value_at: usize,
    value_len: usize,
}

/// A valid response head.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedHead<'b> {
    bytes: &'b [u8],
    layout: &'b ResponseLayout,
}

/// The beginning of every accepted status line.
const HTTP_1: &[u8; 7] = b"HTTP/1.";

/// Bytes of `HTTP/1.1 200`; a space and the reason follow.
const BEFORE_REASON: usize = 12;

impl Default for ResponseLayout {
    fn default() -> ResponseLayout {
        ResponseLayout {
            line_at: 0,
            seen: 0,
            is_whole: false,
            version: Version::Http11,
            status: 0,
            keep_alive: false,
            framing: ResponseFraming::None,
            body_bytes_max: 0,
            fields: Vec::new(),
            media: None,
            accepted: None,
        }
    }
}

impl ResponseLayout {
    /// Clears the head, and retains its memory for the next one.
    pub fn clear(&mut self) {
        let fields = std::mem::take(&mut self.fields);
        *self = ResponseLayout { fields, ..ResponseLayout::default() };
        self.fields.clear();
    }

    /// Continues reading the head that begins at `buf[0]` and answers a request with `method`.
    /// Returns the length of the complete head in bytes. `None`: call again with more bytes
    /// appended.
    ///
    /// Call [`ResponseLayout::clear`] before each head, also after an error.
    ///
    /// # Errors
    /// [`ResponseReject`], when the line with the error is complete, or earlier.
    pub fn read(
        &mut self,
        buf: &[u8],
        method: Method,
        limits: &ResponseLimits,
    ) -> Result<Option<usize>, ResponseReject> {
        let view = &buf[..buf.len().min(limits.head_bytes_max)];
        // Bytes that are not HTTP are refused at the first wrong byte.
        if self.line_at == 0 && view.iter().zip(HTTP_1).any(|(is, should)| is != should) {
            return Err(not_http_1(view));
        }
        while !self.is_whole {
            let line = view.get(self.line_at..).unwrap_or_default();
            let len = self.seen + value_len(line.get(self.seen..).unwrap_or_default());
            self.seen = len;
            match (line.get(len), line.get(len + 1)) {
                (None, _) | (Some(b'\r'), None) if view.len() < limits.head_bytes_max => {
                    return Ok(None);
                }
                (None, _) | (Some(b'\r'), None) => return Err(ResponseReject::HeadTooLarge),
                (Some(b'\r'), Some(b'\n')) => {}
                (Some(b'\r'), Some(_)) => return Err(Reject::BareCarriageReturn.into()),
                (Some(b'\n'), _) => return Err(Reject::BareLineFeed.into()),
                (Some(_), _) => return Err(Reject::ControlByte.into()),
            }
            self.line(&line[..len], limits)?;
            self.line_at += len + 2;
            self.seen = 0;
            if self.is_whole {
                self.finish(view, method, limits)?;
            }
        }
        Ok(Some(self.line_at))
    }

    /// Reads a complete head as [`ResponseLayout::read`] does, if it differs from the previous head
    /// only in field values. `before`: the bytes of the previous head.
    ///
    /// Servers repeat their heads except for a length and a date, so an identical line is not
    /// parsed again. `None`: call [`ResponseLayout::clear`] and [`ResponseLayout::read`], which
    /// also reports errors.
    pub fn read_again(
        &mut self,
        before: &[u8],
        buf: &[u8],
        method: Method,
        limits: &ResponseLimits,
    ) -> Option<usize> {
        if self.accepted != Some((method, *limits)) {
            return None;
        }
        if buf.starts_with(before) {
            return Some(before.len());
        }
        let view = &buf[..buf.len().min(limits.head_bytes_max)];
        let end_at = before.len().checked_sub(2)?;
        let mut at = self.fields.first().map_or(end_at, |offsets| offsets.name_at);
        if view.get(..at)? != before.get(..at)? {
            return None;
        }
        for index in 0..self.fields.len() {
            let offsets = self.fields[index];
            let next_at = self.fields.get(index + 1).map_or(end_at, |next| next.name_at);
            let (line, rest) = (before.get(offsets.name_at..next_at)?, view.get(at..)?);
            if rest.starts_with(line) {
                self.fields[index] = offsets.moved(at);
                at += line.len();
                continue;
            }
            let len = value_len(rest);
            if rest.get(len..len + 2)? != b"\r\n" {
                return None;
            }
            self.fields[index] = FieldOffsets::of(&rest[..len], at).ok()?;
            at += len + 2;
        }
        if view.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        self.line_at = at + 2;
        self.accepted = None;
        self.finish(view, method, limits).ok()?;
        Some(self.line_at)
    }

    /// Reads the head at the start of `bytes`, which must be the bytes of this layout. With other
    /// bytes the result is meaningless, but nothing panics.
    pub fn head<'b>(&'b self, bytes: &'b [u8]) -> ReceivedHead<'b> {
        ReceivedHead { bytes, layout: self }
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        self.fields.capacity() * size_of::<FieldOffsets>()
    }

    /// Records a line that begins at `line_at` and has no control byte.
    fn line(&mut self, line: &[u8], limits: &ResponseLimits) -> Result<(), ResponseReject> {
        if self.line_at == 0 {
            (self.version, self.status) = status_line(line)?;
            return Ok(());
        }
        if line.is_empty() {
            self.is_whole = true;
            return Ok(());
        }
        let offsets = FieldOffsets::of(line, self.line_at)?;
        if self.fields.len() >= limits.fields_max {
            return Err(ResponseReject::TooManyFields);
        }
        self.fields.push(offsets);
        Ok(())
    }

    /// Applies the rules that need the whole head.
    fn finish(
        &mut self,
        bytes: &[u8],
        method: Method,
        limits: &ResponseLimits,
    ) -> Result<(), ResponseReject> {
        let (mut length, mut encoding, mut is_stream) = (None, None, false);
        let (mut close, mut persist) = (false, false);
        self.media = None;
        for offsets in &self.fields {
            let Some((name, value)) = offsets.of_head(bytes) else { continue };
            match name.len() {
                14 if is_name(name, b"content-length") => {
                    // RFC 9112 §6.3 (5): equal lengths are refused, too: they suggest that two
                    // programs have written this head.
                    once(&mut length, value, Reject::LengthRepeated)?;
                }
                17 if is_name(name, b"transfer-encoding") => {
                    once(&mut encoding, value, Reject::EncodingRepeated)?;
                }
                12 if is_name(name, b"content-type") => {
                    self.media.get_or_insert(*offsets);
                    let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
                    is_stream = fields::trim(media).eq_ignore_ascii_case(b"text/event-stream");
                }
                // RFC 9110 §7.6.1: a list of case-insensitive tokens, over any number of lines.
                10 if is_name(name, b"connection") => {
                    for option in fields::list(value) {
                        close |= option.eq_ignore_ascii_case(b"close");
                        persist |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        let body_bytes_max = if is_stream { u64::MAX } else { limits.body_bytes_max };
        let line = StatusLine { version: self.version, status: self.status };
        let framing = framing::body(method, line, encoding, length, body_bytes_max)?;
        // RFC 9112 §9.3: `close` takes precedence; otherwise 1.1 persists, and 1.0 only with
        // `keep-alive`.
        let keep_alive = !close && (self.version == Version::Http11 || persist);
        (self.framing, self.body_bytes_max, self.keep_alive) =
            (framing, body_bytes_max, keep_alive);
        self.accepted = Some((method, *limits));
        Ok(())
    }
}

impl<'b> ReceivedHead<'b> {
    /// The status, from 100 to 999; a status above 599 means the same as 500 (RFC 9110 §15).
    pub fn status(&self) -> u16 {
        self.layout.status
    }

    /// The version in the status line.
    pub fn version(&self) -> Version {
        self.layout.version
    }

    /// How the body is delimited.
    pub fn framing(&self) -> ResponseFraming {
        self.layout.framing
    }

    /// Maximum bytes of the body, before its content is decoded.
    pub fn body_bytes_max(&self) -> u64 {
        self.layout.body_bytes_max
    }

    /// Whether the connection may be used for another request (RFC 9112 §9.3).
    pub fn keep_alive(&self) -> bool {
        self.layout.keep_alive && self.layout.framing != ResponseFraming::UntilClose
    }

    /// The value of the first field of this name, in any case, without outer white space.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        match name {
            "content-type" => Some(self.layout.media?.of_head(self.bytes)?.1),
            _ => self.values(name).next(),
        }
    }

    /// Every value of the fields with this name, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        let (bytes, name) = (self.bytes, name.as_bytes());
        let same_len = self.layout.fields.iter().filter(|offsets| offsets.name_len == name.len());
        same_len.filter_map(move |offsets| {
            let (is, value) = offsets.of_head(bytes)?;
            is.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// All fields in order; names as the server wrote them.
    pub fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b> {
        let bytes = self.bytes;
        self.layout.fields.iter().filter_map(move |offsets| {
            let (name, value) = offsets.of_head(bytes)?;
            Some((str::from_utf8(name).ok()?, value))
        })
    }
}

impl FieldOffsets {
    /// The position of a line that begins at `at`, is not empty and has no control byte.
    fn of(line: &[u8], at: usize) -> Result<FieldOffsets, Reject> {
        // RFC 9112 §5.1: the name is a token, without white space before the colon.
        let name_len = line.iter().position(|byte| !is_token(*byte)).unwrap_or(line.len());
        match line.get(name_len) {
            Some(b':') if name_len > 0 => {}
            // RFC 9112 §5.2: a user agent may replace obs-fold, but no current server sends it.
            Some(b' ' | b'\t') if name_len == 0 => return Err(Reject::FieldFolded),
            Some(_) | None => return Err(Reject::FieldName),
        }
        let after_colon = &line[name_len + 1..];
        let value_len = fields::trim(after_colon).len();
        let blanks = after_colon.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        Ok(FieldOffsets { name_at: at, name_len, value_at: at + name_len + 1 + blanks, value_len })
    }

    /// The position of the same line, if the line begins at `at`.
    fn moved(self, at: usize) -> FieldOffsets {
        FieldOffsets { name_at: at, value_at: at + (self.value_at - self.name_at), ..self }
    }

    /// Name and value.
    fn of_head(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let name = bytes.get(self.name_at..)?.get(..self.name_len)?;
        Some((name, bytes.get(self.value_at..)?.get(..self.value_len)?))
    }
}

/// Whether a name is `lower` in any case, compared without a branch for each byte.
fn is_name<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    <&[u8; N]>::try_from(name).is_ok_and(|name| {
        let both = name.iter().zip(lower);
        both.fold(true, |is_so, (byte, lower)| is_so & (byte.to_ascii_lowercase() == *lower))
    })
}

/// RFC 9112 §4: HTTP-version SP status-code SP [ reason-phrase ]. The reason has no control bytes,
/// and is ignored. Some servers omit the last space together with the reason; as in curl, browsers
/// and the clients of Go, Python and Node, this is accepted.
fn status_line(line: &[u8]) -> Result<(Version, u16), ResponseReject> {
    let Some((start, reason)) = line.split_first_chunk::<BEFORE_REASON>() else {
        return Err(ResponseReject::StatusLine);
    };
    let [_, _, _, _, _, _, _, minor, b' ', a, b, c] = *start else {
        return Err(not_http_1(line));
    };
    if !matches!(reason, [] | [b' ', ..]) {
        return Err(not_http_1(line));
    }
    let version = match minor {
        b'0' => Version::Http10,
        b'1' => Version::Http11,
        _ => return Err(not_http_1(line)),
    };
    if ![a, b, c].iter().all(u8::is_ascii_digit) {
        return Err(ResponseReject::StatusLine);
    }
    match [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')) {
        // RFC 9110 §15: a status above 599 is invalid, too, but a client should treat it as 5xx.
        0..100 => Err(ResponseReject::Status),
        status => Ok((version, status)),
    }
}

/// The error for a first line of another version or protocol.
fn not_http_1(line: &[u8]) -> ResponseReject {
    match line {
        [b'H', b'T', b'T', b'P', b'/', b'0', ..]
        | [b'H', b'T', b'T', b'P', b'/', b'2'..=b'9', ..]
        | [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', ..] => ResponseReject::Version,
        _ => ResponseReject::StatusLine,
    }
}

fn once<'b>(slot: &mut Option<&'b [u8]>, value: &'b [u8], again: Reject) -> Result<(), Reject> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(again),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::client::TEST_LIMITS as LIMITS;

    /// The result of `view` for the head read at once, which must equal that of a head read byte by
    /// byte.
    fn read<T: PartialEq + std::fmt::Debug>(
        text: &str,
        view: impl Fn(ReceivedHead<'_>) -> T,
    ) -> Result<Option<(usize, T)>, ResponseReject> {
        let bytes = text.as_bytes();
        let mut layout = ResponseLayout::default();
        let one = |buf: &[u8], layout: &mut ResponseLayout| {
            let head_len = layout.read(buf, Method::Get, &LIMITS)?;
            Ok(head_len.map(|head_len| (head_len, view(layout.head(&buf[..head_len])))))
        };
        let whole = one(bytes, &mut layout);
        layout.clear();
        let mut last = Ok(None);
        for len in 0..=bytes.len() {
            last = one(&bytes[..len], &mut layout);
            if last != Ok(None) {
                break;
            }
        }
        assert_eq!(last, whole, "{text:?} byte by byte");
        whole
    }

    fn refusal(text: &str) -> Option<ResponseReject> {
        read(text, |_| ()).err()
    }

    fn with(fields: &str) -> String {
        format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")
    }

    #[test]
    fn layout_reuse_equals_full_parse_or_returns_none() {
        let before = with("A: b\r\nContent-Length: 5\r\nDate: now");
        let again = |text: &str, method| {
            let mut layout = ResponseLayout::default();
            let read = layout.read(before.as_bytes(), Method::Get, &LIMITS);
            assert_eq!(read, Ok(Some(before.len())));
            let bytes = text.as_bytes();
            let reused = layout.read_again(before.as_bytes(), bytes, method, &LIMITS);
            let mut anew = ResponseLayout::default();
            let read = anew.read(bytes, method, &LIMITS);
            if reused.is_some() {
                assert_eq!(read, Ok(reused), "{text:?}");
                let [is, should] = [&layout, &anew].map(|layout| layout.head(bytes));
                assert!(is.fields().eq(should.fields()), "{text:?}");
                assert_eq!(is.framing(), should.framing());
                assert_eq!(
                    (is.status(), is.version(), is.keep_alive(), is.body_bytes_max()),
                    (should.status(), should.version(), should.keep_alive(), 1_000)
                );
            }
            reused.is_some()
        };
        for reusable in [
            "A: b\r\nContent-Length: 5\r\nDate: now",
            "A: b\r\nContent-Length: 999\r\nDate: now",
            "A: b\r\ncontent-length:\t6\r\nDate: tomorrow ",
            "A:\r\nContent-Length: 5\r\nDate: now",
            "A: b\r\nContent-Length: 5\r\nConnection: close",
            "Transfer-Encoding: chunked\r\nB: c\r\nDate: now",
        ] {
            assert!(again(&(with(reusable) + "rest"), Method::Get), "{reusable:?}");
            assert!(!again(&with(reusable), Method::Connect), "{reusable:?}");
            assert!(
                !again(&with(reusable)[..with(reusable).len() - 1], Method::Get),
                "{reusable:?}"
            );
        }
        for other in [
            "A: b\r\nContent-Length: 5",
            "A: b\r\nContent-Length: 5\r\nDate: now\r\nX: y",
            "A: b\r\nContent-Length: 1001\r\nDate: now",
            "A: b\r\nContent-Length: 5\r\nContent-Length: 5",
            "A: b\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "A: b\r\nContent-Length : 5\r\nDate: now",
            "A: b\r\n Content-Length: 5\r\nDate: now",
            "A: b\r\nContent-Length: 5\nDate: now",
            "A: \u{0}\r\nContent-Length: 5\r\nDate: now",
        ] {
            assert!(!again(&with(other), Method::Get), "{other:?}");
        }
        assert!(!again(&before.replace("200", "201"), Method::Get));
        assert!(ResponseLayout::default().read_again(b"", b"", Method::Get, &LIMITS).is_none());
    }

    #[test]
    fn response_head_parses_into_status_version_and_fields() {
        let text = "HTTP/1.0 404 \t\u{e4} Not Found\r\nA: b\r\nX:\r\na:\t c d \t\r\n\r\nrest";
        let head = read(text, |head| {
            let fields: Vec<_> = head.fields().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            let all = head.values("A").map(<[u8]>::to_vec).collect::<Vec<_>>();
            (head.status(), head.version(), fields, all, head.field("B").is_some())
        });
        let field = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        let fields = vec![field("A", "b"), field("X", ""), field("a", "c d")];
        let all = vec![b"b".to_vec(), b"c d".to_vec()];
        let expected = (404, Version::Http10, fields, all, false);
        assert_eq!(head, Ok(Some((text.len() - 4, expected))));
        assert_eq!(read("HTTP/1.1 200 OK\r\nA: b\r\n", |_| ()), Ok(None));
    }

    #[test]
    fn rfc9112_4_only_valid_status_lines_are_accepted() {
        for line in [
            "HTTP/1.1 200",
            "HTTP/1.1 200 ",
            "HTTP/1.1 200 OK",
            "HTTP/1.0 999 a b",
            "HTTP/1.1 100  x",
        ] {
            let head = read(&format!("{line}\r\n\r\n"), |head| head.status());
            let status = line[9..12].parse().unwrap();
            assert_eq!(head, Ok(Some((line.len() + 4, status))), "{line}");
        }
        for line in [
            "HTTP/1.1 200\tOK",
            "HTTP/1.1 200OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200 OK",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 +20 OK",
            "HTTP/1.1 2x0 OK",
            "HTTP/1.1 ",
            "HTTP/1.x 200 OK",
            "HTTP/1.11 200 OK",
            "HTTP/1. 200 OK",
            "http/1.1 200 OK",
            " HTTP/1.1 200 OK",
            "HTTP /1.1 200 OK",
            "ICY 200 OK",
            "SSH-2.0-x",
            "",
        ] {
            let refused = refusal(&format!("{line}\r\n\r\n"));
            assert_eq!(refused, Some(ResponseReject::StatusLine), "{line}");
        }
        for line in ["HTTP/1.2 200 OK", "HTTP/1.9 200 OK", "HTTP/2 200", "HTTP/0.9 ", "HTTP/3.0"] {
            let refused = refusal(&format!("{line}\r\n\r\n"));
            assert_eq!(refused, Some(ResponseReject::Version), "{line}");
        }
        for line in ["HTTP/1.1 099 x", "HTTP/1.1 000 x"] {
            assert_eq!(refusal(&format!("{line}\r\n\r\n")), Some(ResponseReject::Status), "{line}");
        }
        assert_eq!(refusal("\u{15}\u{3}"), Some(ResponseReject::StatusLine));
    }

    #[test]
    fn rfc9112_5_invalid_field_lines_are_rejected() {
        for (field, reject) in [
            ("A : b", Reject::FieldName),
            ("A", Reject::FieldName),
            (": b", Reject::FieldName),
            ("A(: b", Reject::FieldName),
            ("\u{e4}: b", Reject::FieldName),
            (" A: b", Reject::FieldFolded),
            ("A: b\r\n c", Reject::FieldFolded),
            ("A: b\r\n\tc", Reject::FieldFolded),
            ("A: b\nB: c", Reject::BareLineFeed),
            ("A: b\rB: c", Reject::BareCarriageReturn),
            ("A: \u{0}", Reject::ControlByte),
            ("A: \u{7f}", Reject::ControlByte),
            ("A\u{0}: b", Reject::ControlByte),
            ("Content-Length: 1\r\ncontent-length: 1", Reject::LengthRepeated),
            ("Content-Length: 1, 1", Reject::LengthInvalid),
            ("Content-Length:", Reject::LengthInvalid),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked", Reject::LengthAndEncoding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Reject::EncodingRepeated),
            ("Transfer-Encoding: gzip, chunked", Reject::EncodingUnknown),
            ("Transfer-Encoding: chunked, gzip", Reject::EncodingInvalid),
            ("Content-Length: 1001", Reject::BodyTooLarge),
        ] {
            assert_eq!(refusal(&with(field)), Some(reject.into()), "{field:?}");
        }
        assert_eq!(refusal("HTTP/1.1 200 a\u{7f}\r\n"), Some(Reject::ControlByte.into()));
        assert_eq!(refusal("HTTP/1.1 200 OK\n\n"), Some(Reject::BareLineFeed.into()));
        let old = refusal("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old, Some(Reject::EncodingOnHttp10.into()));
    }

    #[test]
    fn head_size_and_field_count_limits_are_exact() {
        let fields = |count| with(&vec!["A: b"; count].join("\r\n"));
        assert_eq!(refusal(&fields(10)), None);
        assert_eq!(refusal(&fields(11)), Some(ResponseReject::TooManyFields));
        let long = |len| with(&format!("A: {}", "a".repeat(len)));
        let overhead = long(0).len();
        let small = ResponseLimits { head_bytes_max: 100, ..LIMITS };
        let read =
            |text: &str| ResponseLayout::default().read(text.as_bytes(), Method::Get, &small);
        assert_eq!(read(&long(100 - overhead)), Ok(Some(100)));
        assert_eq!(read(&long(101 - overhead)), Err(ResponseReject::HeadTooLarge));
        assert_eq!(read(&long(100 - overhead)[..99]), Ok(None));
        assert_eq!(read(&long(200)[..100]), Err(ResponseReject::HeadTooLarge));
    }

    #[test]
    fn rfc9112_9_3_keep_alive_follows_version_and_fields() {
        let keeps = |version: &str, field: &str| {
            let text = format!("HTTP/{version} 200 OK\r\nContent-Length: 1\r\n{field}\r\n\r\n");
            read(&text, |head| head.keep_alive()).map(|head| head.map(|(_, keeps)| keeps))
        };
        assert_eq!(keeps("1.1", "A: b"), Ok(Some(true)));
        assert_eq!(keeps("1.1", "Connection: x, Close"), Ok(Some(false)));
        assert_eq!(keeps("1.0", "A: b"), Ok(Some(false)));
        assert_eq!(keeps("1.0", "Connection: Keep-Alive"), Ok(Some(true)));
        assert_eq!(keeps("1.0", "Connection: keep-alive\r\nConnection: close"), Ok(Some(false)));
        let until_close = read(&with("A: b"), |head| head.keep_alive());
        assert!(until_close.is_ok_and(|head| head.is_some_and(|(_, keeps)| !keeps)));
    }

    #[test]
    fn event_stream_body_length_is_unlimited() {
        for (media, max) in [
            ("text/event-stream", u64::MAX),
            ("Text/Event-Stream ; charset=utf-8", u64::MAX),
            ("text/event-streams", 1_000),
            ("application/json", 1_000),
        ] {
            let text = with(&format!("Content-Type: {media}\r\nTransfer-Encoding: chunked"));
            let head = read(&text, |head| (head.framing(), head.body_bytes_max()));
            assert_eq!(head, Ok(Some((text.len(), (ResponseFraming::Chunked, max)))), "{media}");
        }
    }
}
