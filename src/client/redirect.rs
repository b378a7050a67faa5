//! Decides which redirects are followed (RFC 9110 §15.4): those of a GET of a card, and, for calls,
//! 307 and 308 within their origin.
//!
//! Invariant: at most `redirects_max` redirects in a row are followed, and none from `https` to
//! `http`. A card is requested without credentials. A redirected call keeps its method, its
//! content, its credentials and its origin.

use std::fmt;

use super::{HttpMethod, HttpUrl, UrlError};

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectError {
    /// The request was not a GET.
    Method,
    /// The response has no `Location`.
    NoLocation,
    /// The maximum number of redirects was followed.
    TooMany(usize),
    /// The redirect leads from `https` to `http`.
    Insecure,
    /// The target cannot be called.
    Url(UrlError),
    /// A call does not follow the redirect.
    Call {
        /// The status of the response.
        status: u16,
        /// The target: a URL or, if it is not a URL, the first characters of the server's text.
        to: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for RedirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedirectError::Method => {
                f.write_str("the server redirects, but only GET requests follow redirects")
            }
            RedirectError::NoLocation => f.write_str("the redirect has no target"),
            RedirectError::TooMany(0) => {
                f.write_str("the server redirects, and redirects are not followed")
            }
            RedirectError::TooMany(max) => write!(f, "more than {max} redirects in a row"),
            RedirectError::Insecure => f.write_str("the redirect leads from https to http"),
            RedirectError::Url(error) => write!(f, "the redirect cannot be followed: {error}"),
            RedirectError::Call { status, to, why } => write!(
                f,
                "the agent redirects the call to {to} (HTTP status {status}), which is not \
                 followed: {why}"
            ),
        }
    }
}

impl std::error::Error for RedirectError {}

/// Whether a response of this status is a redirect: not 300 or 304, nor the obsolete 305.
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The URL to GET next.
    pub url: HttpUrl,
    /// True: the URL has another origin, where the validators of the current URL mean nothing.
    pub is_other_origin: bool,
}

/// Follows one redirect. `location` is the value of `Location`, `before` the number of redirects
/// that led to `current`, `redirects_max` the limit.
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

/// Follows one redirect of a call, within its origin. The arguments are those of [`next`]; `status`
/// is the status of the response.
///
/// # Errors
/// [`RedirectError::Call`] names the target.
pub fn next_of_call(
    status: u16,
    current: &HttpUrl,
    location: Option<&[u8]>,
    before: usize,
    redirects_max: usize,
) -> Result<HttpUrl, RedirectError> {
    const SHOWN_MAX: usize = 256;
    let target = String::from_utf8_lossy(location.unwrap_or_default().trim_ascii()).into_owned();
    let url = if target.is_empty() { None } else { current.join(&target).ok() };
    let too_many = format!("more than {redirects_max} redirects in a row");
    let why = match &url {
        _ if target.is_empty() => "it has no target",
        None => "its target cannot be called",
        Some(url) if url.origin != current.origin => "its target is another origin",
        // RFC 9110 §15.4.3, §15.4.4: clients may turn the call into a GET.
        Some(_) if !matches!(status, 307 | 308) => "only 307 and 308 preserve the call",
        Some(_) if redirects_max == 0 => "redirects of calls are disabled",
        Some(_) if before >= redirects_max => too_many.as_str(),
        Some(url) => return Ok(url.clone()),
    };
    let to = url.map_or_else(|| target.chars().take(SHOWN_MAX).collect(), |url| url.to_string());
    let to = if to.is_empty() { "nowhere".to_owned() } else { to };
    Err(RedirectError::Call { status, to, why: why.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::HttpOrigin, *};

    #[test]
    fn get_redirect_is_followed_and_reports_other_origin() {
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
    fn call_redirect_is_followed_only_within_its_origin() {
        let current = HttpOrigin::parse("https://a/rpc").unwrap();
        let next = |status, location: &str, before, max| {
            next_of_call(status, &current, Some(location.as_bytes()), before, max)
        };
        for (status, location) in [(307, "/rpc/"), (308, "https://A:443/rpc/"), (307, "rpc/")] {
            let url = next(status, location, 4, 5).unwrap();
            assert_eq!(url.to_string(), "https://a/rpc/", "{location}");
        }
        for (status, location, before, max, to) in [
            (307, "https://b/rpc", 0, 5, "https://b/rpc"),
            (307, "http://a/rpc", 0, 5, "http://a/rpc"),
            (302, "/login", 0, 5, "https://a/login"),
            (307, "/rpc/", 5, 5, "https://a/rpc/"),
            (307, "/rpc/", 0, 0, "https://a/rpc/"),
            (307, "file:///etc", 0, 5, "file:///etc"),
            (308, "", 0, 5, "nowhere"),
        ] {
            let error = next(status, location, before, max).unwrap_err();
            assert!(error.to_string().contains(&format!(" to {to} (")), "{error}");
        }
    }

    #[test]
    fn rejected_redirect_returns_its_reason() {
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
