//! Answers of HTTP+JSON that are errors, and the media type of all of them.

use crate::{
    binding::{Exchange, Handled, carrier::retry_after},
    dialect::rest::Rest,
    fault::{Fault, FaultKind},
    http::{self, Field, Head, Method, response},
};

/// The media type of HTTP+JSON (A2A 1.0.1 §11.1).
pub const A2A_JSON: &str = "application/a2a+json";

/// RFC 9111 §3: a cache may keep what a GET says, and guess for how long. A task changes, and
/// concerns whoever asked.
pub const NO_STORE: &[u8] = b"Cache-Control: no-store\r\n";

/// The media type in which a client is answered.
///
/// Wire §3.3: `application/a2a+json` for those who name it, in `Accept` or else as the type of
/// their body; many clients know only `application/json`.
pub fn media(head: &Head<'_>) -> &'static str {
    let accept = head.value(Field::Accept).unwrap_or_default();
    let mut is_json = false;
    for range in http::list(accept) {
        match media_type(range).filter(|_| !is_refused(range)) {
            Some(Media::A2a) => return A2A_JSON,
            Some(Media::Json) => is_json = true,
            None => {}
        }
    }
    let sends_a2a =
        || head.value(Field::ContentType).and_then(media_type).is_some_and(|it| it == Media::A2a);
    if !is_json && sends_a2a() { A2A_JSON } else { http::media::JSON }
}

/// Whether a body of this `Content-Type` is read.
pub fn is_read(content_type: &[u8]) -> bool {
    media_type(content_type).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    Json,
    A2a,
}

/// The media type of a field's value, or of one element of `Accept`.
fn media_type(value: &[u8]) -> Option<Media> {
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

/// Answers with a fault, under the HTTP status that the form has for it.
pub fn refuse(x: &mut Exchange<'_>, form: &Rest, media: &str, fault: &Fault) -> Handled {
    let status = (form.status)(fault);
    refuse_with(x, form, media, fault, (status, b""))
}

/// Answers with a fault, under an HTTP status and with field lines of its own.
pub fn refuse_with(
    x: &mut Exchange<'_>,
    form: &Rest,
    media: &str,
    fault: &Fault,
    (status, extra): (u16, &[u8]),
) -> Handled {
    let date = x.means.scratch.date(x.means.now);
    // RFC 9110 §15.1: a cache may keep a 404 or 405, too, which is of the type that was asked for.
    let is_safe = matches!(x.head.method(), Method::Get | Method::Head);
    let store: &[u8] = if is_safe { NO_STORE } else { b"" };
    let extra = [extra, retry_after(status), store].concat();
    let mark = response::begin(x.means.out, status, media, &date, &extra, x.close);
    (form.fault)(x.means.out, fault, status);
    if x.head.method() == Method::Head {
        response::finish_head_only(x.means.out, mark);
    } else {
        response::finish(x.means.out, mark);
    }
    Handled::Answered
}

/// Answers a request whose path was meant for HTTP+JSON and names nothing.
pub fn lost(x: &mut Exchange<'_>, form: &Rest, detail: &'static str) -> Handled {
    let media = media(x.head);
    refuse(x, form, media, &Fault::because(FaultKind::MethodNotFound, detail))
}
