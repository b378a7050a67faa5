//! Response heads, written straight into the caller's buffer (RFC 9112 §4, §6).
//!
//! All or nothing: a head is begun, its body is appended, and then the length is written into a
//! padded field, or everything is rolled back. 1xx, 204 and 304 never have a body, and an answer to
//! HEAD has the length of the omitted body.

use super::media;

/// RFC 9110 §15.2.1: the interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The `extra` that an HTTP/1.0 client needs for a persistent connection (RFC 9112 §9.3).
pub const KEEP_ALIVE: &[u8] = b"Connection: keep-alive\r\n";

/// Digits of the padded Content-Length; to write a longer number, the body is moved.
const LENGTH_DIGITS: usize = 10;

/// The longest body with a length that fits the padded field.
const LENGTH_PADDED_MAX: u64 = 9_999_999_999;

/// The text before the digits that [`begin`] reserves.
const LENGTH_NAME: &[u8; 16] = b"Content-Length: ";

/// Bytes of a head without its media type and extra fields; one reservation is cheaper than
/// several.
const HEAD_BYTES_TYPICAL: usize = 160;

/// The text before the date of every response with status 200.
pub(super) const OK_DATE: &[u8; 23] = b"HTTP/1.1 200 OK\r\nDate: ";

/// The complete head of nearly every answer, with blanks for date and length.
const JSON_HEAD: &[u8; 116] = b"HTTP/1.1 200 OK\r\nDate:                              \r\n\
    Content-Type: application/json\r\nContent-Length:           \r\n\r\n";

/// The offset of the digits of the length.
const JSON_LENGTH_AT: usize = JSON_HEAD.len() - LENGTH_DIGITS - 4;

/// A response that was begun: pass it to [`finish`] or [`rollback`].
#[derive(Debug)]
#[must_use = "finish the response or roll it back"]
pub struct ResponseMark {
    start: usize,
    length_at: usize,
    body_at: usize,
}

/// Begins a response; the caller appends the body to `out`.
///
/// `status` must allow a body (see [`has_body`]); `extra` has complete field lines with CRLF. The
/// length is not known yet: [`finish`] writes it.
#[inline(always)]
pub fn begin(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    date: &[u8; 29],
    extra: &[u8],
    close: bool,
) -> ResponseMark {
    debug_assert!(has_body(status));
    let start = out.len();
    if status == 200 && content_type == media::JSON && !close {
        if extra.is_empty() {
            return begin_json(out, date);
        }
        with_fields(out, date, extra);
        return ResponseMark { start, length_at: start + JSON_LENGTH_AT, body_at: out.len() };
    }
    out.reserve(HEAD_BYTES_TYPICAL + content_type.len() + extra.len());
    status_line(out, status, date);
    out.extend_from_slice(b"Content-Type: ");
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(b"\r\nContent-Length:           \r\n");
    let length_at = out.len() - LENGTH_DIGITS - 2;
    end_head(out, extra, close);
    ResponseMark { start, length_at, body_at: out.len() }
}

/// As [`begin`], for JSON with status 200, without further fields.
#[inline(always)]
pub fn begin_json(out: &mut Vec<u8>, date: &[u8; 29]) -> ResponseMark {
    let start = out.len();
    out.extend_from_slice(JSON_HEAD);
    if let Some(head) = out.last_chunk_mut::<{ JSON_HEAD.len() }>() {
        head[OK_DATE.len()..OK_DATE.len() + date.len()].copy_from_slice(date);
    }
    ResponseMark { start, length_at: start + JSON_LENGTH_AT, body_at: out.len() }
}

/// Appends the head of [`begin_json`] with these field lines before its empty line; with one copy
/// if they are short.
#[inline(always)]
fn with_fields(out: &mut Vec<u8>, date: &[u8; 29], extra: &[u8]) {
    const LINES: usize = 114;
    let mut head = *JSON_HEAD;
    head[OK_DATE.len()..OK_DATE.len() + date.len()].copy_from_slice(date);
    let mut whole = [0; 256];
    let length = LINES + extra.len() + 2;
    if let Some(lines) = whole.get_mut(LINES..length - 2) {
        lines.copy_from_slice(extra);
        whole[..LINES].copy_from_slice(&head[..LINES]);
        if let Some(end) = whole.get_mut(length - 2..length) {
            end.copy_from_slice(b"\r\n");
            return out.extend_from_slice(&whole[..length]);
        }
    }
    out.extend_from_slice(&head[..LINES]);
    out.extend_from_slice(extra);
    out.extend_from_slice(b"\r\n");
}

/// Writes the length of the body into the head.
pub fn finish(out: &mut Vec<u8>, mark: ResponseMark) {
    let length = out.len().saturating_sub(mark.body_at) as u64;
    // RFC 9110 §5.5: white space before a value is not part of it, so the padding is legal.
    let field = out.get_mut(mark.length_at..mark.length_at + LENGTH_DIGITS);
    match field.and_then(|field| field.first_chunk_mut::<LENGTH_DIGITS>()) {
        Some(field) if length <= LENGTH_PADDED_MAX => {
            decimal(length, field);
        }
        Some(_) => {
            let digits = length.to_string().into_bytes();
            out.splice(mark.length_at..mark.length_at + LENGTH_DIGITS, digits);
        }
        None => debug_assert!(false, "the buffer shrank below the mark"),
    }
}

/// As [`finish`], for HEAD: keeps the length and removes the body (RFC 9110 §9.3.2).
pub fn finish_head_only(out: &mut Vec<u8>, mark: ResponseMark) {
    let body_at = mark.body_at;
    finish(out, mark);
    out.truncate(body_at);
}

/// As [`finish_head_only`], for content that was not generated: its length is omitted, as
/// RFC 9110 §9.3.2 allows if only generating the content would determine it.
pub fn finish_without_length(out: &mut Vec<u8>, mark: ResponseMark) {
    let line_at = mark.length_at.saturating_sub(LENGTH_NAME.len());
    out.truncate(mark.body_at);
    out.drain(line_at..mark.length_at + LENGTH_DIGITS + 2);
}

/// Removes everything since [`begin`].
pub fn rollback(out: &mut Vec<u8>, mark: ResponseMark) {
    out.truncate(mark.start);
}

/// Writes the head of an event stream; the events follow in chunks, or unframed until the close.
///
/// HTTP/1.0 has no chunks (RFC 9112 §6.1), so the close ends the stream, and the head has
/// `Connection: close` regardless of `close`.
pub fn stream_head(
    out: &mut Vec<u8>,
    content_type: &str,
    date: &[u8; 29],
    close: bool,
    http10: bool,
    extra: &[u8],
) {
    status_line(out, 200, date);
    push_field(out, b"Content-Type: ", content_type.as_bytes());
    if !http10 {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    end_head(out, extra, close || http10);
}

/// Writes a whole response, head and body.
///
/// Without a content type the field is omitted. For 1xx, 204 and 304 the body, its type and its
/// length are omitted (RFC 9112 §6.3 (1), RFC 9110 §8.6).
#[expect(clippy::too_many_arguments, reason = "parts of a response, each with its own type")]
pub fn simple(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    body: &[u8],
    date: &[u8; 29],
    extra: &[u8],
    close: bool,
    head_only: bool,
) {
    status_line(out, status, date);
    if has_body(status) {
        if !content_type.is_empty() {
            push_field(out, b"Content-Type: ", content_type.as_bytes());
        }
        let mut digits = [b' '; 20];
        let count = decimal(body.len() as u64, &mut digits);
        push_field(out, b"Content-Length: ", &digits[digits.len() - count..]);
    }
    end_head(out, extra, close);
    if has_body(status) && !head_only {
        out.extend_from_slice(body);
    }
}

/// Whether a response with this status has a body (RFC 9112 §6.3 (1)).
pub const fn has_body(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 304)
}

/// The reason phrase of a status (RFC 9110 §15); empty if the server never sends the status.
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        499 => "Client Closed Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[inline(always)]
fn status_line(out: &mut Vec<u8>, status: u16, date: &[u8; 29]) {
    if status == 200 {
        out.extend_from_slice(OK_DATE);
    } else {
        // RFC 9112 §4: status-code = 3DIGIT, then a space even before an empty phrase.
        let digit = |value: u16| b'0' + (value % 10) as u8;
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
        out.extend_from_slice(reason_phrase(status).as_bytes());
        out.extend_from_slice(b"\r\nDate: ");
    }
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
}

fn push_field(out: &mut Vec<u8>, name_colon: &[u8], value: &[u8]) {
    out.extend_from_slice(name_colon);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn end_head(out: &mut Vec<u8>, extra: &[u8], close: bool) {
    debug_assert!(extra.is_empty() || extra.ends_with(b"\r\n"));
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    if !extra.is_empty() {
        out.extend_from_slice(extra);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the decimal digits of `value` to the end of `field`, and returns their number.
#[inline]
pub(super) fn decimal<const N: usize>(mut value: u64, field: &mut [u8; N]) -> usize {
    for (count, digit) in (1..).zip(field.iter_mut().rev()) {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return count;
        }
    }
    N
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn text(out: &[u8]) -> String {
        out.escape_ascii().to_string().replace("\\r\\n", "\n").replace("\\'", "'")
    }

    #[test]
    fn rfc9112_6_2_finish_writes_body_length_into_head() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out, 200, "application/json", DATE, b"X: y\r\n", true);
        out.extend_from_slice(b"{\"answer\":42}");
        finish(&mut out, mark);
        let want = "beforeHTTP/1.1 200 OK\nDate: Sun, 06 Nov 1994 08:49:37 GMT\n\
                    Content-Type: application/json\nContent-Length:         13\n\
                    Connection: close\nX: y\n\n{\\\"answer\\\":42}";
        assert_eq!(text(&out), want);
    }

    #[test]
    fn json_heads_with_and_without_extra_fields_agree() {
        let (mut usual, mut other) = (Vec::new(), Vec::new());
        for (out, extra) in [(&mut usual, &b""[..]), (&mut other, b"X: y\r\n")] {
            let mark = begin(out, 200, "application/json", DATE, extra, false);
            out.extend_from_slice(b"{}");
            finish(out, mark);
        }
        assert_eq!(text(&usual), text(&other).replace("X: y\n", ""));
    }

    #[test]
    fn content_length_is_written_as_padded_decimal() {
        let mut field = [b' '; 20];
        for value in [0, 9, 10, 4096, 9_999_999_999, u64::MAX] {
            let count = decimal(value, &mut field);
            assert_eq!(field[20 - count..], *value.to_string().as_bytes());
        }
        let mut out = Vec::new();
        let mark = begin(&mut out, 200, "a/b", DATE, b"", false);
        finish(&mut out, mark);
        assert!(text(&out).contains("Content-Length:          0\n"));
        let padded = "9".repeat(LENGTH_DIGITS).parse();
        assert_eq!(padded, Ok(LENGTH_PADDED_MAX));
    }

    #[test]
    fn rollback_removes_the_unfinished_response() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out, 200, "a/b", DATE, b"", false);
        out.extend_from_slice(b"half an ans");
        rollback(&mut out, mark);
        assert_eq!(out, b"before");
    }

    #[test]
    fn rfc9110_9_3_2_head_response_has_length_but_no_body() {
        let mut out = Vec::new();
        let mark = begin(&mut out, 200, "a/b", DATE, b"", false);
        out.extend_from_slice(b"body");
        finish_head_only(&mut out, mark);
        assert!(out.ends_with(b"Content-Length:          4\r\n\r\n"));
        let mut out = Vec::new();
        simple(&mut out, 404, "a/b", b"body", DATE, b"", false, true);
        assert!(out.ends_with(b"Content-Length: 4\r\n\r\n"));
    }

    #[test]
    fn rfc9110_9_3_2_unknown_length_is_omitted() {
        for (media, extra) in [("application/json", &b""[..]), ("a/b", b"X: y\r\n")] {
            let (mut counted, mut omitted) = (Vec::new(), b"before".to_vec());
            let mark = begin(&mut counted, 200, media, DATE, extra, false);
            finish_head_only(&mut counted, mark);
            let mark = begin(&mut omitted, 200, media, DATE, extra, false);
            finish_without_length(&mut omitted, mark);
            let counted = text(&counted).replace("Content-Length:          0\n", "");
            assert_eq!(text(&omitted), format!("before{counted}"));
        }
    }

    #[test]
    fn rfc9110_8_6_bodyless_status_has_no_content_length() {
        for status in [100, 101, 204, 304] {
            let mut out = Vec::new();
            simple(&mut out, status, "a/b", b"body", DATE, b"", false, false);
            assert!(out.ends_with(b" GMT\r\n\r\n"), "{}", text(&out));
        }
        let mut out = Vec::new();
        simple(&mut out, 202, "", b"", DATE, b"", false, false);
        assert!(
            text(&out).contains("202 Accepted\n") && out.ends_with(b"Content-Length: 0\r\n\r\n")
        );
    }

    #[test]
    fn rfc9112_6_1_streams_are_chunked_on_1_1_only() {
        let head = |close, http10| {
            let mut out = Vec::new();
            stream_head(&mut out, "text/event-stream", DATE, close, http10, b"X: y\r\n");
            text(&out)
        };
        assert!(head(false, false).contains("Transfer-Encoding: chunked\n"));
        assert!(!head(false, false).contains("Connection:"));
        assert!(!head(false, true).contains("Transfer-Encoding"));
        assert!(head(false, true).contains("Connection: close\n"));
        for field in ["Content-Type: text/event-stream\n", "X: y\n"] {
            assert!(head(true, false).contains(field));
        }
    }

    #[test]
    fn rfc9110_15_every_reject_status_has_a_phrase() {
        for reject in crate::http::Reject::ALL {
            assert!(!reason_phrase(reject.status()).is_empty(), "{reject:?}");
        }
        let mut out = Vec::new();
        simple(&mut out, 299, "", b"", DATE, b"", false, false);
        // RFC 9112 §4: the space is also written before an empty phrase.
        assert!(out.starts_with(b"HTTP/1.1 299 \r\n"));
    }
}
