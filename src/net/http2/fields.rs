//! Heads and trailers of answers, in h2's types.

use std::cell::RefCell;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, DATE},
};

use crate::{
    binding::grpc::frame::ACCEPTED_ENCODINGS,
    engine::HeadParts,
    http::{FieldLines, date::imf_fixdate, media},
    service::Now,
};

pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The status of a successful gRPC call.
const OK: HeaderValue = HeaderValue::from_static("0");

/// Parts that many answers of one connection share.
#[derive(Default)]
pub(super) struct Heads {
    /// The value of `Date` and its second; it is formatted once a second.
    date: RefCell<Option<(u64, HeaderValue)>>,
    /// The last head without additional fields.
    last: RefCell<Option<LastHead>>,
}

/// A head that later answers may reuse.
struct LastHead {
    second: u64,
    media: &'static str,
    content_length: Option<u64>,
    response: Response<()>,
}

impl Heads {
    /// The head of an answer that begins now.
    pub(super) fn response(&self, head: &HeadParts, now: Now) -> Response<()> {
        let mut response = match head.fields.is_empty() {
            true => self.repeated(head, now),
            false => {
                let mut response = self.begin(head, now);
                put(response.headers_mut(), head.fields.get());
                response
            }
        };
        // All statuses that we send are valid.
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or_default();
        response
    }

    /// Returns a copy of the last head if only the status may differ, otherwise a new head.
    fn repeated(&self, head: &HeadParts, now: Now) -> Response<()> {
        let &HeadParts { media, content_length, .. } = head;
        let second = now.unix_ms / 1000;
        let mut last = self.last.borrow_mut();
        if let Some(last) = &*last
            && (last.second, last.content_length) == (second, content_length)
            && last.media == media
        {
            return last.response.clone();
        }
        let response = self.begin(head, now);
        *last = Some(LastHead { second, media, content_length, response: response.clone() });
        response
    }

    /// Creates a head with the fields that all answers have. A head of gRPC has only its type and
    /// encodings: gRPC messages contain their lengths.
    fn begin(&self, head: &HeadParts, now: Now) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.reserve(4);
        if !head.media.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(head.media));
        }
        if head.media == media::GRPC {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED_ENCODINGS));
            return response;
        }
        if let Some(date) = self.date(now) {
            headers.insert(DATE, date);
        }
        if let Some(length) = head.content_length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        response
    }

    fn date(&self, now: Now) -> Option<HeaderValue> {
        let second = now.unix_ms / 1000;
        let mut cached = self.date.borrow_mut();
        if cached.as_ref().is_none_or(|(cached_second, _)| *cached_second != second) {
            let value = HeaderValue::from_bytes(&imf_fixdate(second)).ok()?;
            *cached = Some((second, value));
        }
        cached.as_ref().map(|(_, value)| value.clone())
    }
}

/// Adds the fields of an answer to a map of h2.
fn put(headers: &mut HeaderMap, fields: FieldLines<'_>) {
    for (name, value) in fields.iter() {
        let field = match (name, value) {
            ("grpc-status", "0") => (STATUS, OK),
            (name, value) => {
                let named = HeaderName::from_bytes(name.as_bytes());
                let (Ok(name), Ok(value)) = (named, HeaderValue::from_str(value)) else { continue };
                (name, value)
            }
        };
        headers.append(field.0, field.1);
    }
}

/// The trailers of an answer.
pub(super) fn trailers(fields: FieldLines<'_>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(4);
    put(&mut trailers, fields);
    trailers
}
