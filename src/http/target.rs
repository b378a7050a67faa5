//! The request target in its four forms (RFC 9112 §3.2).
//!
//! A [`Target`] holds visible ASCII only, no fragment, and its path passed
//! [`path::check`]: whoever reads it needs no second look.

use super::{HeadLimits, Method, Reject, authority, path};

/// Which of the four forms the request target had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// `/path?query`, the form a client sends to an origin server (RFC 9112 §3.2.1).
    Origin,
    /// `http://authority/path?query`, which wins over Host (RFC 9112 §3.2.2).
    Absolute,
    /// `host:port`, for CONNECT only; the path is empty (RFC 9112 §3.2.3).
    Authority,
    /// `*`, for OPTIONS only; the path is `*` (RFC 9112 §3.2.4).
    Asterisk,
}

pub(super) struct Target<'b> {
    pub(super) form: TargetForm,
    pub(super) authority: Option<&'b str>,
    pub(super) path: &'b str,
    pub(super) query: Option<&'b str>,
}

/// Reads the target of a request with `method`.
pub(super) fn parse<'b>(
    method: Method,
    text: &'b str,
    limits: &HeadLimits,
) -> Result<Target<'b>, Reject> {
    let seen = text.bytes().fold(0, |seen, byte| seen | CLASS[byte as usize]);
    if seen & INVALID != 0 {
        return Err(Reject::TargetInvalid);
    }
    // RFC 9112 §3.2.3: CONNECT takes the authority form, and nothing else does.
    if method == Method::Connect {
        if !authority::is_valid_with_port(text) {
            return Err(Reject::TargetAuthority);
        }
        let form = TargetForm::Authority;
        return Ok(Target { form, authority: Some(text), path: "", query: None });
    }
    // RFC 9112 §3.2.4: the asterisk form is for OPTIONS alone.
    if text == "*" && method == Method::Options {
        let form = TargetForm::Asterisk;
        return Ok(Target { form, authority: None, path: "*", query: None });
    }
    let (form, authority, rest) = if text.starts_with('/') {
        (TargetForm::Origin, None, text)
    } else {
        let (authority, rest) = absolute(text)?;
        (TargetForm::Absolute, Some(authority), rest)
    };
    let (path, query) = match rest.split_once('?') {
        // A fragment behind a query is what sloppy clients forget to cut off; it means nothing
        // here. One behind a path could be read as part of the path, and is refused.
        Some((path, query)) => (path, query.split('#').next()),
        None => (rest, None),
    };
    if seen & FRAGMENT != 0 && path.contains('#') {
        return Err(Reject::TargetInvalid);
    }
    if query.is_some_and(|q| q.len() > limits.query_bytes_max) {
        return Err(Reject::QueryTooLong);
    }
    // RFC 9110 §4.2.3: an empty path is the same as "/".
    let path = if path.is_empty() { "/" } else { path };
    if seen & SUSPECT != 0 {
        path::check(path)?;
    }
    Ok(Target { form, authority, path, query })
}

/// Splits the absolute form into its authority and what follows.
fn absolute(text: &str) -> Result<(&str, &str), Reject> {
    let (scheme, rest) = text.split_once("://").ok_or(Reject::TargetForm)?;
    // RFC 9110 §4.2: schemes are case-insensitive.
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Reject::TargetScheme);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // RFC 9110 §4.2.4: user information is deprecated; it is not part of the host and names nobody.
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(user, host)| if user.contains('@') { authority } else { host });
    if !authority::is_valid(authority) {
        return Err(Reject::TargetAuthority);
    }
    Ok((authority, rest))
}

/// Not visible ASCII.
const INVALID: u8 = 1;
/// Something that makes the path worth a closer look.
const SUSPECT: u8 = 2;
/// `#`, which begins a fragment.
const FRAGMENT: u8 = 4;

const CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = match i as u8 {
            0..=0x20 | 0x7f..=0xff => INVALID,
            b'#' => FRAGMENT,
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
        parse(method, text, &LIMITS).map(|t| (t.form, t.authority, t.path, t.query))
    }

    #[test]
    fn rfc9112_3_2_the_four_forms() {
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        let (get, options) = (Method::Get, Method::Options);
        assert_eq!(read(get, "/a?b?c"), Ok((Origin, None, "/a", Some("b?c"))));
        assert_eq!(read(get, "/?"), Ok((Origin, None, "/", Some(""))));
        assert_eq!(read(get, "http://a:1/b"), Ok((Absolute, Some("a:1"), "/b", None)));
        assert_eq!(read(get, "HTTP://a?b"), Ok((Absolute, Some("a"), "/", Some("b"))));
        assert_eq!(read(options, "*"), Ok((Asterisk, None, "*", None)));
        assert_eq!(read(Method::Connect, "a:1"), Ok((Authority, Some("a:1"), "", None)));
    }

    #[test]
    fn rfc9112_3_2_other_targets() {
        let get = |text| read(Method::Get, text).err();
        assert_eq!(get("*"), Some(Reject::TargetForm));
        assert_eq!(get("a"), Some(Reject::TargetForm));
        assert_eq!(get("?a"), Some(Reject::TargetForm));
        assert_eq!(get("ws://a/"), Some(Reject::TargetScheme));
        assert_eq!(read(Method::Get, "http://u:p@b:1/").map(|t| t.1), Ok(Some("b:1")));
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
