//! Fields of request heads that all bindings use: version, media types, last event id.

use std::borrow::Cow;

use crate::{
    http::{self, Field, Head, query},
    service::FieldSource,
};

/// A2A 1.0 §3.6.1: the version is in a header field, or else in a query parameter with the same
/// name.
#[inline(always)]
pub fn version_of<'h>(head: &Head<'h>) -> Option<Cow<'h, [u8]>> {
    if let Some(value) = head.value(Field::A2aVersion) {
        return Some(Cow::Borrowed(value));
    }
    version_in_query(head.query()?)
}

fn version_in_query(query: &str) -> Option<Cow<'_, [u8]>> {
    let mut pairs = query::pairs(query).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version"))?;
    Some(match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    })
}

/// Whether the media type of the body passes `is_read`. Many clients send no type, and are
/// accepted. But a web page can send a body without a type to any server without a preflight (Fetch
/// §2.2.2, CORS-safelisted method and headers), so a request with `Origin` but without a type is
/// rejected.
#[inline(always)]
pub fn has_type(head: &Head<'_>, is_read: impl Fn(&[u8]) -> bool) -> bool {
    match head.value(Field::ContentType) {
        Some(content_type) => is_read(content_type),
        None => head.value(Field::Origin).is_none(),
    }
}

/// Whether `Accept` contains a media type or a range that includes it (RFC 9110 §12.5.1).
pub fn names(accept: Option<&[u8]>, wanted: &str) -> bool {
    http::list(accept.unwrap_or_default()).any(|range| {
        let range = range.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let kind = wanted.split('/').next().unwrap_or_default();
        range.eq_ignore_ascii_case(wanted.as_bytes())
            || range == b"*/*"
            || range.strip_suffix(b"/*").is_some_and(|r| r.eq_ignore_ascii_case(kind.as_bytes()))
    })
}

/// The last event that a resuming subscriber has received: in the header field, or in `lastEventId`
/// of the query.
pub fn last_event_id(head: &Head<'_>) -> Option<u64> {
    if let Some(value) = head.value(Field::LastEventId) {
        return std::str::from_utf8(value).ok()?.trim().parse().ok();
    }
    let mut pairs = query::pairs(head.query()?).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key == "lastEventId")?;
    value.parse().ok()
}

impl FieldSource for Head<'_> {
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.values(name).for_each(each);
    }
}
