//! The request target in its four forms (RFC 9112 §3.2).
//!
//! The parts of a [`RequestTarget`] are visible ASCII without a fragment, and [`path::check`] has
//! accepted its path, so that readers need no further checks.

use super::head::Span;
use super::{HeadLimits, Method, Reject, authority, path};

/// The form of a request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// `/path?query`, the form that a client sends to an origin server (RFC 9112 §3.2.1).
    Origin,
    /// `http://authority/path?query`, which takes precedence over Host (RFC 9112 §3.2.2).
    Absolute,
    /// `host:port`, for CONNECT only; the path is empty (RFC 9112 §3.2.3).
    Authority,
    /// `*`, for OPTIONS only; the path is `*` (RFC 9112 §3.2.4).
    Asterisk,
}

/// The positions of a target's parts in its text.
pub(super) struct RequestTarget {
    pub(super) form: TargetForm,
    pub(super) authority: Span,
    /// Empty for an absolute target without a path, which means "/".
    pub(super) path: Span,
    pub(super) query: Span,
}

/// Reads the target of a request with `method`.
pub(super) fn parse(
    method: Method,
    text: &[u8],
    limits: &HeadLimits,
) -> Result<RequestTarget, Reject> {
    let seen = text.iter().fold(0, |seen, &byte| seen | CLASS[usize::from(byte)]);
    if seen & INVALID != 0 {
        return Err(Reject::TargetInvalid);
    }
    let whole = Span::new(0, text.len());
    // RFC 9112 §3.2.3: CONNECT has a target in authority form, and no other method has one.
    if method == Method::Connect {
        if !authority::is_valid_with_port(text) {
            return Err(Reject::TargetAuthority);
        }
        let form = TargetForm::Authority;
        return Ok(RequestTarget {
            form,
            authority: whole,
            path: Span::new(0, 0),
            query: Span::ABSENT,
        });
    }
    // RFC 9112 §3.2.4: only OPTIONS may use the asterisk form.
    if text == b"*" && method == Method::Options {
        let (form, authority) = (TargetForm::Asterisk, Span::ABSENT);
        return Ok(RequestTarget { form, authority, path: whole, query: Span::ABSENT });
    }
    let (form, authority, path_at) = match text.first() {
        Some(b'/') => (TargetForm::Origin, Span::ABSENT, 0),
        Some(_) | None => {
            let (authority, path_at) = absolute(text)?;
            (TargetForm::Absolute, authority, path_at)
        }
    };
    let mark = if seen & QUERY == 0 { text.len() } else { find(text, path_at, b"?") };
    let (path_end, query) = match mark {
        at if at == text.len() => (at, Span::ABSENT),
        // A fragment after a query is a common mistake of clients, and is ignored. A fragment after
        // a path could be read as part of the path, and is refused.
        at => (at, Span::new(at + 1, find(text, at + 1, b"#"))),
    };
    let path = &text[path_at..path_end];
    if seen & FRAGMENT != 0 && path.contains(&b'#') {
        return Err(Reject::TargetInvalid);
    }
    if query.range().is_some_and(|query| query.len() > limits.query_bytes_max) {
        return Err(Reject::QueryTooLong);
    }
    if seen & SUSPECT != 0 {
        path::check_bytes(path)?;
    }
    Ok(RequestTarget { form, authority, path: Span::new(path_at, path_end), query })
}

/// The authority of an absolute target, and the start of its path.
fn absolute(text: &[u8]) -> Result<(Span, usize), Reject> {
    let scheme_end = text.windows(3).position(|three| three == b"://").ok_or(Reject::TargetForm)?;
    let scheme = &text[..scheme_end];
    // RFC 9110 §4.2: schemes are case-insensitive.
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(Reject::TargetScheme);
    }
    let (begin, end) = (scheme_end + 3, find(text, scheme_end + 3, b"/?#"));
    // RFC 9110 §4.2.4: user information is an error, probably made to hide the host after it; text
    // with `@` is not a valid authority here.
    if !authority::is_valid(&text[begin..end]) {
        return Err(Reject::TargetAuthority);
    }
    Ok((Span::new(begin, end), end))
}

/// The index of the first of `marks` at or after `from`, or the end of `text`.
fn find(text: &[u8], from: usize, marks: &[u8]) -> usize {
    text[from..].iter().position(|b| marks.contains(b)).map_or(text.len(), |at| from + at)
}

/// Not visible ASCII.
const INVALID: u8 = 1;
/// A byte that requires the full check of the path.
const SUSPECT: u8 = 2;
/// `#`, which begins a fragment.
const FRAGMENT: u8 = 4;
/// `?`, which begins a query.
const QUERY: u8 = 8;

const CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = match i as u8 {
            0..=0x20 | 0x7f..=0xff => INVALID,
            b'#' => FRAGMENT,
            b'?' => QUERY,
            b'%' | b'.' | b'\\' => SUSPECT,
            _ => 0,
        };
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TEST_LIMITS as LIMITS;

    type Parts<'b> = (TargetForm, Option<&'b str>, &'b str, Option<&'b str>);

    fn read(method: Method, text: &str) -> Result<Parts<'_>, Reject> {
        let part = |span: Span| span.range().map(|range| &text[range]);
        let target = parse(method, text.as_bytes(), &LIMITS)?;
        let path = part(target.path).unwrap_or_default();
        Ok((target.form, part(target.authority), path, part(target.query)))
    }

    #[test]
    fn rfc9112_3_2_all_four_target_forms_are_parsed() {
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        let (get, options) = (Method::Get, Method::Options);
        assert_eq!(read(get, "/a?b?c"), Ok((Origin, None, "/a", Some("b?c"))));
        assert_eq!(read(get, "/?"), Ok((Origin, None, "/", Some(""))));
        assert_eq!(read(get, "http://a:1/b"), Ok((Absolute, Some("a:1"), "/b", None)));
        assert_eq!(read(get, "HTTP://a?b"), Ok((Absolute, Some("a"), "", Some("b"))));
        assert_eq!(read(options, "*"), Ok((Asterisk, None, "*", None)));
        assert_eq!(read(Method::Connect, "a:1"), Ok((Authority, Some("a:1"), "", None)));
    }

    #[test]
    fn rfc9112_3_2_invalid_targets_are_rejected() {
        let get = |text| read(Method::Get, text).err();
        assert_eq!(get("*"), Some(Reject::TargetForm));
        assert_eq!(get("a"), Some(Reject::TargetForm));
        assert_eq!(get("?a"), Some(Reject::TargetForm));
        assert_eq!(get("ws://a/"), Some(Reject::TargetScheme));
        assert_eq!(get("http://u:p@b:1/"), Some(Reject::TargetAuthority));
        assert_eq!(get("http://a@b@c/"), Some(Reject::TargetAuthority));
        assert_eq!(read(Method::Get, "/a?b#c").map(|t| t.3), Ok(Some("b")));
        assert_eq!(get("/a#b"), Some(Reject::TargetInvalid));
        assert_eq!(get("/ä"), Some(Reject::TargetInvalid));
        assert_eq!(get("/a/.."), Some(Reject::PathDots));
        assert_eq!(get("/a?/.."), None);
        assert_eq!(read(Method::Connect, "/").err(), Some(Reject::TargetAuthority));
        let (fits, long) = (format!("/?{}", "a".repeat(4096)), format!("/?{}", "a".repeat(4097)));
        assert_eq!(get(&fits), None);
        assert_eq!(get(&long), Some(Reject::QueryTooLong));
    }
}
