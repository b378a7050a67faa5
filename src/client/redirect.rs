//! Which redirects are followed (RFC 9110 §15.4): those of a GET of a card, and no others.
//!
//! Law: at most `redirects_max` in a row, and never from `https` to `http`. Nothing that proves who
//! calls is sent: a card is asked for without credentials. A POST is never sent elsewhere than
//! where the caller sent it.

use std::fmt;

use super::{HttpMethod, HttpUrl, UrlError};

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectError {
    /// The request was no GET.
    Method,
    /// The response does not say where to.
    NoLocation,
    /// There were as many before as are allowed.
    TooMany(usize),
    /// It leads from `https` to `http`.
    Insecure,
    /// It leads to what cannot be called.
    Url(UrlError),
}

impl fmt::Display for RedirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectError::Method => f.write_str("the server redirects, but only a GET follows"),
            RedirectError::NoLocation => f.write_str("the redirect does not say where to"),
            RedirectError::TooMany(0) => f.write_str("the server redirects, which is not followed"),
            RedirectError::TooMany(max) => write!(f, "more than {max} redirects in a row"),
            RedirectError::Insecure => f.write_str("the redirect leads from https to http"),
            RedirectError::Url(error) => write!(f, "the redirect cannot be followed: {error}"),
        }
    }
}

impl std::error::Error for RedirectError {}

/// Whether a response of this status is a redirect. 300 and 304 are none, and 305 is obsolete.
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// What to ask for next, with GET.
    pub url: HttpUrl,
    /// True: it is another origin, where what this one's card was named by means nothing.
    pub is_other_origin: bool,
}

/// Follows one redirect. `location` is the value of `Location`, `before` how many redirects led to
/// `current`, `redirects_max` the limit.
///
/// # Errors
/// [`RedirectError`].
pub fn next(
    method: HttpMethod,
    current: &HttpUrl,
    location: Option<&[u8]>,
    before: usize,
    redirects_max: usize,
) -> Result<Redirect, RedirectError> {
    match method {
        HttpMethod::Get => {}
        HttpMethod::Post | HttpMethod::Delete => return Err(RedirectError::Method),
    }
    if before >= redirects_max {
        return Err(RedirectError::TooMany(redirects_max));
    }
    let location = location.and_then(|bytes| str::from_utf8(bytes.trim_ascii()).ok());
    let location = location.filter(|text| !text.is_empty()).ok_or(RedirectError::NoLocation)?;
    let url = current.join(location).map_err(RedirectError::Url)?;
    if current.origin.is_secure() && !url.origin.is_secure() {
        return Err(RedirectError::Insecure);
    }
    let is_other_origin = url.origin != current.origin;
    Ok(Redirect { url, is_other_origin })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::HttpOrigin, *};

    #[test]
    fn a_get_follows_and_says_whether_it_leaves_its_origin() {
        let current = HttpOrigin::parse("https://a/x/card?y").unwrap();
        let follow = |location: &str| {
            next(HttpMethod::Get, &current, Some(location.as_bytes()), 4, 5).unwrap()
        };
        for (location, url, is_other_origin) in [
            ("/z", "https://a/z", false),
            (" z ", "https://a/x/z", false),
            ("https://A:443/z", "https://a/z", false),
            ("https://a:444/z", "https://a:444/z", true),
            ("//b/", "https://b/", true),
        ] {
            let followed = follow(location);
            assert_eq!(followed.url.to_string(), url, "{location}");
            assert_eq!(followed.is_other_origin, is_other_origin, "{location}");
        }
    }

    #[test]
    fn what_is_not_followed_says_why() {
        let secure = HttpOrigin::parse("https://a/").unwrap();
        let get = |location: Option<&[u8]>, before| {
            next(HttpMethod::Get, &secure, location, before, 5).unwrap_err()
        };
        assert_eq!(get(Some(b"/"), 5), RedirectError::TooMany(5));
        assert_eq!(get(None, 0), RedirectError::NoLocation);
        assert_eq!(get(Some(b" "), 0), RedirectError::NoLocation);
        assert_eq!(get(Some(b"/\xff"), 0), RedirectError::NoLocation);
        assert_eq!(get(Some(b"http://a/"), 0), RedirectError::Insecure);
        let credentials = RedirectError::Url(UrlError::Credentials);
        assert_eq!(get(Some(b"https://u:p@a/"), 0), credentials);
        assert!(matches!(get(Some(b"file:///etc"), 0), RedirectError::Url(UrlError::Scheme(_))));
        for method in [HttpMethod::Post, HttpMethod::Delete] {
            let error = next(method, &secure, Some(b"/"), 0, 5).unwrap_err();
            assert_eq!(error, RedirectError::Method);
        }
        let plain = HttpOrigin::parse("http://a/").unwrap();
        let upgraded = next(HttpMethod::Get, &plain, Some(b"https://a/"), 0, 5).unwrap();
        assert!(upgraded.is_other_origin);
        assert!(is_redirect(307) && !is_redirect(304) && !is_redirect(300));
    }
}
