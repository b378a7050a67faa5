//! Where cards are found, and how long one that was found is good (A2A 1.0 §8.2, §8.6).
//!
//! Invariant: a bare origin has its card at the well-known path, the one of 1.0 and 0.3 first, that
//! of 0.2 and 0.1 only when there is none (wire §7.1). A card is used without a question while the
//! server said it is fresh, and asked about by its validators after that. No clock: the time is an
//! argument.

use std::collections::HashMap;

use serde::de::IgnoredAny;

use crate::{
    http::{FieldLinesBuf, date},
    json::without_mark,
    service::Now,
};

use super::super::HttpUrl;

/// Where cards are found below an origin, in the order in which they are asked for: of 0.3 and 1.0,
/// of 0.1 and 0.2.
pub const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// What to ask for, in this order: the next when the one before was not there.
///
/// An origin has its card at the well-known paths. A URL with a path is the card itself, or, where
/// there is none, an agent with its card at the well-known paths below it; never at those of the
/// origin, where another agent's card may be.
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

/// Whether the next of [`card_urls`] is requested after a response of this status: after every one
/// that says that this URL has no card for this request, and not after one that is about the server
/// or about now.
pub fn is_not_there(status: u16) -> bool {
    matches!(status, 200 | 400..=499) && !matches!(status, 408 | 421 | 425 | 429)
}

/// Whether a document may be a card, with or without mistakes: a JSON object with a member that
/// only cards have. A page for browsers is none, nor is the `{"status":"ok"}` of a health check.
pub fn looks_like_card(json: &[u8]) -> bool {
    const MEMBERS: [&str; 4] = ["capabilities", "skills", "supportedInterfaces", "url"];
    serde_json::from_slice::<HashMap<String, IgnoredAny>>(without_mark(json))
        .is_ok_and(|card| MEMBERS.iter().any(|name| card.contains_key(*name)))
}

/// What is remembered of a card that was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFreshness {
    etag: Option<String>,
    last_modified: Option<String>,
    /// Until when it is used without a question, in ms since the Unix epoch: it may be kept in a
    /// file.
    fresh_until_unix_ms: u64,
    /// True: it must not be kept.
    is_private: bool,
}

/// Milliseconds that a card is fresh at most, whatever its server says: a day.
pub const FRESH_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

impl CardFreshness {
    /// Reads what the head of a response says. `field` gives the first value of a field by its name
    /// in lower case.
    pub fn of<'f>(field: impl Fn(&str) -> Option<&'f [u8]>, now: Now) -> CardFreshness {
        let text = |name: &str| {
            let value = str::from_utf8(field(name)?.trim_ascii()).ok()?;
            let is_plain = !value.is_empty() && value.len() <= 256;
            // What is not can be said in no field of a question.
            let is_plain = is_plain && value.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            is_plain.then(|| value.to_owned())
        };
        let control = text("cache-control").unwrap_or_default().to_ascii_lowercase();
        let directives = || control.split(',').map(str::trim);
        let has = |name: &str| directives().any(|one| one == name || one.starts_with(name));
        let seconds = directives().find_map(|one| one.strip_prefix("max-age="));
        let seconds = seconds.and_then(|text| text.trim_matches('"').parse::<u64>().ok());
        // RFC 9111 §5.2.1: a cache may have held it for a while already.
        let age = text("age").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let fresh_ms = match (seconds, text("expires")) {
            // RFC 9111 §4.1: what varies by more than a request says is no answer to another one.
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

    /// Whether the card is used without a question.
    pub fn is_fresh(&self, now: Now) -> bool {
        // A clock that was set back must not keep a card for ever.
        let left_ms = self.fresh_until_unix_ms.saturating_sub(now.unix_ms);
        left_ms > 0 && left_ms <= FRESH_MS_MAX
    }

    /// Milliseconds for which the card is used without a question from now on.
    #[cfg(feature = "gateway")]
    pub(crate) fn left_ms(&self, now: Now) -> u64 {
        if self.is_fresh(now) { self.fresh_until_unix_ms - now.unix_ms } else { 0 }
    }

    /// The same, to be asked about at once.
    #[cfg(feature = "gateway")]
    pub(crate) fn stale(self) -> CardFreshness {
        CardFreshness { fresh_until_unix_ms: 0, ..self }
    }

    /// Whether the server allows to keep the card at all.
    pub fn may_be_kept(&self) -> bool {
        !self.is_private
    }

    /// Adds the fields that ask whether the card has changed (RFC 9110 §13.1): the answer may be
    /// 304, after which [`CardFreshness::renewed`] says how long it is good.
    pub fn ask(&self, fields: &mut FieldLinesBuf) {
        if let Some(etag) = &self.etag {
            fields.push("If-None-Match", etag);
        }
        if let Some(last_modified) = &self.last_modified {
            fields.push("If-Modified-Since", last_modified);
        }
    }

    /// What is known after a 304, whose head says how long the card is good, and may leave out its
    /// validators (RFC 9111 §4.3.4).
    #[must_use]
    pub fn renewed<'f>(self, field: impl Fn(&str) -> Option<&'f [u8]>, now: Now) -> CardFreshness {
        let is_said = field("cache-control").is_some();
        let new = CardFreshness::of(field, now);
        CardFreshness {
            etag: new.etag.or(self.etag),
            last_modified: new.last_modified.or(self.last_modified),
            // What is not said anew holds on: it must not be kept because a 304 is short.
            is_private: if is_said { new.is_private } else { self.is_private },
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
        |name| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
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
    fn a_document_with_a_member_of_cards_looks_like_one() {
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
    fn a_card_is_fresh_as_long_as_its_server_says() {
        let fresh_ms = |fields: &[(&str, &str)]| {
            let card = CardFreshness::of(head(fields), NOW);
            let left = card.fresh_until_unix_ms - NOW.unix_ms;
            assert_eq!(card.is_fresh(NOW), left > 0);
            assert!(left == 0 || card.is_fresh(later(left - 1)));
            assert!(!card.is_fresh(later(left)));
            left
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
        let stored = CardFreshness::of(head(&[("cache-control", "no-store")]), NOW);
        assert!(!stored.may_be_kept() && card.may_be_kept());
    }

    #[test]
    fn a_stale_card_is_asked_about_by_its_validators() {
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        let fields = [("etag", "W/\"a\""), ("last-modified", modified)];
        let card = CardFreshness::of(head(&fields), NOW);
        let asked = |card: &CardFreshness| {
            let mut fields = FieldLinesBuf::default();
            card.ask(&mut fields);
            String::from_utf8(fields.get().lines().to_vec()).unwrap()
        };
        let both = format!("If-None-Match: W/\"a\"\r\nIf-Modified-Since: {modified}\r\n");
        assert_eq!(asked(&card), both);
        let renewed = card.renewed(head(&[("cache-control", "max-age=5")]), later(9));
        assert_eq!(asked(&renewed), both);
        assert!(renewed.is_fresh(later(10)));
        let stored = CardFreshness::of(head(&[("cache-control", "no-store")]), NOW);
        assert!(!stored.clone().renewed(head(&[]), NOW).may_be_kept());
        assert!(stored.renewed(head(&[("cache-control", "max-age=5")]), NOW).may_be_kept());
        // HTTP/2 would not let a request with such a field go out.
        for etag in ["a\u{1}b", "\"\u{e9}\"", "a\tb"] {
            let fields = [("etag", etag), ("last-modified", "")];
            assert_eq!(asked(&CardFreshness::of(head(&fields), NOW)), "", "{etag:?}");
        }
    }
}
