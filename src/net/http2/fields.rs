//! Fields of the engine's as those of h2.

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    http::{ResponseFields, date::imf_fixdate},
    service::Now,
};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// How nearly every call of gRPC ends.
const OK: HeaderValue = HeaderValue::from_static("0");

/// The value of `Date`, made once a second; with the second that it says.
#[derive(Default)]
pub(super) struct DateValue(RefCell<Option<(u64, HeaderValue)>>);

impl DateValue {
    /// The value for this time.
    pub(super) fn at(&self, now: Now) -> Option<HeaderValue> {
        let second = now.unix_ms / 1000;
        let mut said = self.0.borrow_mut();
        if said.as_ref().is_none_or(|(known, _)| *known != second) {
            let value = HeaderValue::from_bytes(&imf_fixdate(second)).ok()?;
            *said = Some((second, value));
        }
        said.as_ref().map(|(_, value)| value.clone())
    }
}

/// Puts fields of an answer into those of h2.
pub(super) fn put(headers: &mut HeaderMap, fields: ResponseFields<'_>) {
    for (name, value) in fields.iter() {
        let known = match (name, value) {
            ("grpc-status", "0") => (STATUS, OK),
            (name, value) => {
                let named = HeaderName::from_bytes(name.as_bytes());
                let (Ok(name), Ok(value)) = (named, HeaderValue::from_str(value)) else { continue };
                (name, value)
            }
        };
        headers.append(known.0, known.1);
    }
}

/// What comes behind the content of an answer.
pub(super) fn trailers(fields: ResponseFields<'_>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(4);
    put(&mut trailers, fields);
    trailers
}
