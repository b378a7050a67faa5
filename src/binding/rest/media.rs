//! The media types of HTTP+JSON: that of the answer, and those that are accepted.

use crate::http::{self, Field, Head};

/// The media type of HTTP+JSON (A2A 1.0.1 §11.1).
pub const A2A_JSON: &str = "application/a2a+json";

/// The media type of the answer.
///
/// Wire §3.3: `application/a2a+json` for clients that send it in `Accept` or as the type of their
/// body; many clients support only `application/json`.
pub fn media(head: &Head<'_>) -> &'static str {
    let accept = head.value(Field::Accept).unwrap_or_default();
    let content_type = head.value(Field::ContentType).unwrap_or_default();
    // Fast path: few clients use a type with a suffix (RFC 6839).
    if !accept.contains(&b'+') && !content_type.contains(&b'+') {
        return http::media::JSON;
    }
    let mut is_json = false;
    for range in http::list(accept) {
        match media_type(range).filter(|_| !is_refused(range)) {
            Some(Media::A2a) => return A2A_JSON,
            Some(Media::Json) => is_json = true,
            None => {}
        }
    }
    let sends_a2a = media_type(content_type) == Some(Media::A2a);
    if !is_json && sends_a2a { A2A_JSON } else { http::media::JSON }
}

/// Whether a body of this `Content-Type` is accepted.
pub fn is_read(content_type: &[u8]) -> bool {
    media_type(content_type).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    A2a,
}

/// The media type in the value of a field, or in an element of `Accept`.
fn media_type(value: &[u8]) -> Option<Media> {
    if value == http::media::JSON.as_bytes() {
        return Some(Media::Json);
    }
    let name = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if name.eq_ignore_ascii_case(http::media::JSON.as_bytes()) {
        Some(Media::Json)
    } else if name.eq_ignore_ascii_case(A2A_JSON.as_bytes()) {
        Some(Media::A2a)
    } else {
        None
    }
}

/// RFC 9110 §12.4.2: a weight of 0 in an element of `Accept` is "not acceptable".
fn is_refused(range: &[u8]) -> bool {
    range.split(|b| *b == b';').skip(1).map(<[u8]>::trim_ascii).any(|part| {
        let weight = part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q="));
        weight.is_some_and(|weight| {
            weight.starts_with(b"0") && weight.iter().all(|b| matches!(b, b'0' | b'.'))
        })
    })
}
