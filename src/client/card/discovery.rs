//! The URLs of cards, and the lifetime of a card (A2A 1.0 §8.2, §8.6).
//!
//! Invariant: a bare origin has its card at a well-known path: that of 1.0 and 0.3 is requested
//! first, that of 0.2 and 0.1 only if the first has no card (wire §7.1). A fresh card is used
//! without a request; a stale one is revalidated with its validators. No clock: the time is an
//! argument.

use std::collections::HashMap;

use serde::de::IgnoredAny;

use crate::{
    http::{FieldLinesBuf, date},
    json::without_mark,
    service::Now,
};

use super::super::HttpUrl;

/// The paths of cards below an origin, in the order of the requests: of 0.3 and 1.0, of 0.1 and
/// 0.2.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The URLs to request in this order, until one has a card.
///
/// An origin has its card at the well-known paths. A URL with a path may be the URL of the card
/// itself, or of an agent with its card at the well-known paths below it. The well-known paths of
/// the origin are not requested, because they may have the card of another agent.
pub fn card_urls(url: &HttpUrl) -> Vec<HttpUrl> {
    let is_card = url.path.contains('?') || url.path.ends_with(".json");
    let base = url.path.trim_end_matches('/');
    let below = WELL_KNOWN
        .map(|path| HttpUrl { origin: url.origin.clone(), path: format!("{base}{path}") });
    match (is_card, base) {
        (true, _) => vec![url.clone()],
        (false, "") => below.to_vec(),
        (false, _) => [url.clone()].into_iter().chain(below).collect(),
    }
}

/// Whether the next URL of [`card_urls`] is requested after a response of this status: if the
/// status concerns only this URL, and not the server or a temporary state.
pub fn is_not_there(status: u16) -> bool {
    matches!(status, 200 | 400..=499) && !matches!(status, 408 | 421 | 425 | 429)
}

/// Whether a document may be a card, valid or not: a JSON object with a member that only cards
/// have. Pages for browsers and the `{"status":"ok"}` of a health check do not qualify.
pub fn looks_like_card(json: &[u8]) -> bool {
    const MEMBERS: [&str; 4] = ["capabilities", "skills", "supportedInterfaces", "url"];
    serde_json::from_slice::<HashMap<String, IgnoredAny>>(without_mark(json))
        .is_ok_and(|card| MEMBERS.iter().any(|name| card.contains_key(*name)))
}

/// The caching data of a fetched card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFreshness {
    etag: Option<String>,
    last_modified: Option<String>,
    /// When the card becomes stale, in ms since the Unix epoch: the value may be stored in a file.
    fresh_until_unix_ms: u64,
    /// True: the card must not be stored.
    is_private: bool,
}

/// Maximum milliseconds for which a card is fresh, whatever its server sends: a day.
pub const FRESH_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

impl CardFreshness {
    /// Reads the head of a response. `field` returns the first value of a field by its name in
    /// lower case.
    pub fn of<'f>(field: impl Fn(&str) -> Option<&'f [u8]>, now: Now) -> CardFreshness {
        let text = |name: &str| {
            let value = str::from_utf8(field(name)?.trim_ascii()).ok()?;
            let is_plain = !value.is_empty() && value.len() <= 256;
            // Other values cannot be sent in a request field.
            let is_plain = is_plain && value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            is_plain.then(|| value.to_owned())
        };
        let control = text("cache-control").unwrap_or_default().to_ascii_lowercase();
        let directives = || control.split(',').map(str::trim);
        let has = |name: &str| directives().any(|one| one == name || one.starts_with(name));
        let seconds = directives().find_map(|one| one.strip_prefix("max-age="));
        let seconds = seconds.and_then(|text| text.trim_matches('"').parse::<u64>().ok());
        // RFC 9111 §5.1: a cache may have stored the response for some time already.
        let age = text("age").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let fresh_ms = match (seconds, text("expires")) {
            // RFC 9111 §4.1: `*` means that the response fits no other request.
            _ if text("vary").is_some_and(|vary| vary.contains('*')) => 0,
            _ if has("no-cache") || has("no-store") => 0,
            (Some(seconds), _) => seconds.saturating_sub(age).saturating_mul(1_000),
            (None, Some(expires)) => date::parse(expires.as_bytes())
                .map_or(0, |at_s| at_s.saturating_mul(1_000).saturating_sub(now.unix_ms)),
            (None, None) => 0,
        };
        CardFreshness {
            etag: text("etag"),
            last_modified: text("last-modified"),
            fresh_until_unix_ms: now.unix_ms.saturating_add(fresh_ms.min(FRESH_MS_MAX)),
            is_private: has("no-store"),
        }
    }

    /// Whether the card is used without a request.
    pub fn is_fresh(&self, now: Now) -> bool {
        // A clock that was set back must not keep a card fresh for ever.
        let remaining_ms = self.fresh_until_unix_ms.saturating_sub(now.unix_ms);
        remaining_ms > 0 && remaining_ms <= FRESH_MS_MAX
    }

    /// Milliseconds for which the card is still fresh.
    #[cfg(feature = "gateway")]
    pub(crate) fn remaining_ms(&self, now: Now) -> u64 {
        if self.is_fresh(now) { self.fresh_until_unix_ms - now.unix_ms } else { 0 }
    }

    /// The same data marked as stale, to revalidate the card at once.
    #[cfg(feature = "gateway")]
    pub(crate) fn stale(self) -> CardFreshness {
        CardFreshness { fresh_until_unix_ms: 0, ..self }
    }

    /// Whether the server allows storing the card.
    pub fn may_be_stored(&self) -> bool {
        !self.is_private
    }

    /// Adds the fields of a conditional request (RFC 9110 §13.1): after a 304,
    /// [`CardFreshness::renewed`] returns the new caching data.
    pub fn ask(&self, fields: &mut FieldLinesBuf) {
        if let Some(etag) = &self.etag {
            fields.push("If-None-Match", etag);
        }
        if let Some(last_modified) = &self.last_modified {
            fields.push("If-Modified-Since", last_modified);
        }
    }

    /// The caching data after a 304: the response has the new lifetime, and may omit the validators
    /// (RFC 9111 §4.3.4).
    #[must_use]
    pub fn renewed<'f>(self, field: impl Fn(&str) -> Option<&'f [u8]>, now: Now) -> CardFreshness {
        let has_cache_control = field("cache-control").is_some();
        let new = CardFreshness::of(field, now);
        CardFreshness {
            etag: new.etag.or(self.etag),
            last_modified: new.last_modified.or(self.last_modified),
            // A 304 without `Cache-Control` leaves `no-store` in force.
            is_private: if has_cache_control { new.is_private } else { self.is_private },
            ..new
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::super::HttpOrigin, *};

    const NOW: Now = Now { mono_ms: 0, unix_ms: 784_111_777_000 };

    fn later(ms: u64) -> Now {
        Now { mono_ms: 0, unix_ms: NOW.unix_ms + ms }
    }

    fn head<'f>(fields: &'f [(&'f str, &'f str)]) -> impl Fn(&str) -> Option<&'f [u8]> {
        |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_bytes())
    }

    #[test]
    fn an_origin_has_its_card_at_the_well_known_paths() {
        let urls = |url: &str| {
            let urls = card_urls(&HttpOrigin::parse(url).unwrap());
            urls.iter().map(|url| url.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(urls("http://h"), WELL_KNOWN);
        let below =
            ["/a/".to_owned(), format!("/a{}", WELL_KNOWN[0]), format!("/a{}", WELL_KNOWN[1])];
        assert_eq!(urls("http://h/a/"), below);
        for url in ["http://h/x.json", "http://h/?c", "http://h/a?assistant_id=1"] {
            assert_eq!(card_urls(&HttpOrigin::parse(url).unwrap()).len(), 1, "{url}");
        }
        for status in [200, 400, 401, 403, 404, 405, 406, 410, 426] {
            assert!(is_not_there(status), "{status}");
        }
        for status in [201, 408, 429, 500, 503] {
            assert!(!is_not_there(status), "{status}");
        }
    }

    #[test]
    fn document_with_a_card_member_looks_like_a_card() {
        for json in
            [r#"{"name":"a","url":"u"}"#, r#"{"skills":3}"#, "\u{feff}{\"capabilities\":{}}"]
        {
            assert!(looks_like_card(json.as_bytes()), "{json}");
        }
        for other in ["", "<html>", "[]", "{}", r#"{"status":"ok"}"#, r#"{"url":"u""#] {
            assert!(!looks_like_card(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn card_freshness_follows_response_cache_fields() {
        let fresh_ms = |fields: &[(&str, &str)]| {
            let card = CardFreshness::of(head(fields), NOW);
            let lifetime_ms = card.fresh_until_unix_ms - NOW.unix_ms;
            assert_eq!(card.is_fresh(NOW), lifetime_ms > 0);
            assert!(lifetime_ms == 0 || card.is_fresh(later(lifetime_ms - 1)));
            assert!(!card.is_fresh(later(lifetime_ms)));
            lifetime_ms
        };
        let date = "Sun, 06 Nov 1994 08:49:40 GMT";
        assert_eq!(fresh_ms(&[]), 0);
        assert_eq!(fresh_ms(&[("cache-control", "public, Max-Age=60")]), 60_000);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=60"), ("age", "50")]), 10_000);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=60, no-cache")]), 0);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=60"), ("vary", "*")]), 0);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=60"), ("vary", "accept")]), 60_000);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=x"), ("expires", date)]), 3_000);
        assert_eq!(fresh_ms(&[("cache-control", "max-age=99999999999")]), FRESH_MS_MAX);
        let set_back = Now { mono_ms: 0, unix_ms: 0 };
        let card = CardFreshness::of(head(&[("cache-control", "max-age=60")]), NOW);
        assert!(!card.is_fresh(set_back));
        let no_store = CardFreshness::of(head(&[("cache-control", "no-store")]), NOW);
        assert!(!no_store.may_be_stored() && card.may_be_stored());
    }

    #[test]
    fn stale_card_is_revalidated_with_its_validators() {
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        let fields = [("etag", "W/\"a\""), ("last-modified", modified)];
        let card = CardFreshness::of(head(&fields), NOW);
        let condition_fields = |card: &CardFreshness| {
            let mut fields = FieldLinesBuf::default();
            card.ask(&mut fields);
            String::from_utf8(fields.get().lines().to_vec()).unwrap()
        };
        let both = format!("If-None-Match: W/\"a\"\r\nIf-Modified-Since: {modified}\r\n");
        assert_eq!(condition_fields(&card), both);
        let renewed = card.renewed(head(&[("cache-control", "max-age=5")]), later(9));
        assert_eq!(condition_fields(&renewed), both);
        assert!(renewed.is_fresh(later(10)));
        let no_store = CardFreshness::of(head(&[("cache-control", "no-store")]), NOW);
        assert!(!no_store.clone().renewed(head(&[]), NOW).may_be_stored());
        assert!(no_store.renewed(head(&[("cache-control", "max-age=5")]), NOW).may_be_stored());
        // HTTP/2 would reject a request with such a field.
        for etag in ["a\u{1}b", "\"\u{e9}\"", "a\tb"] {
            let fields = [("etag", etag), ("last-modified", "")];
            assert_eq!(condition_fields(&CardFreshness::of(head(&fields), NOW)), "", "{etag:?}");
        }
    }
}
