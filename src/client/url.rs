//! URLs of requests: an origin (RFC 9110 §4.3.1) and a target, read by one parser.

use std::fmt;

use ::url::{Host, Url};

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpOrigin {
    is_secure: bool,
    port: u16,
    /// The host as in a URL: ASCII, in lower case, IPv6 in brackets.
    host: Box<str>,
    /// The value of `Host`, with the port unless it is the scheme's default.
    authority: Box<str>,
}

/// An origin, and a target at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// The origin.
    pub origin: HttpOrigin,
    /// Path and query, percent-encoded; it begins with a slash.
    pub path: String,
}

/// Why a URL cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// The text is not an absolute URL.
    NotAUrl(String),
    /// The scheme is neither `http` nor `https`.
    Scheme(String),
    /// The URL has no host.
    NoHost,
    /// The URL has a user name or a password, which would appear wherever URLs are shown.
    Credentials,
}

impl HttpOrigin {
    /// Reads an absolute URL of `http` or `https`; its fragment is dropped.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<HttpUrl, UrlError> {
        let url = Url::parse(url).map_err(|error| UrlError::NotAUrl(error.to_string()))?;
        let is_secure = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(UrlError::Scheme(other.to_owned())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Credentials);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(UrlError::NoHost)?;
        let default = if is_secure { 443 } else { 80 };
        let port = url.port().unwrap_or(default);
        let authority = match port == default {
            true => host.to_owned(),
            false => format!("{host}:{port}"),
        };
        let origin = HttpOrigin { is_secure, port, host: host.into(), authority: authority.into() };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(HttpUrl { origin, path })
    }

    /// True for `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The host as in a URL.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host as a name to be resolved: IPv6 without its brackets.
    pub fn host_name(&self) -> &str {
        let inner = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.unwrap_or(&self.host)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of `Host`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether the host is this machine by its name alone: `localhost`, a name below it, or a
    /// loopback address. No name is resolved.
    pub fn is_loopback(&self) -> bool {
        match Host::parse(&self.host) {
            Ok(Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                name == "localhost" || name.ends_with(".localhost")
            }
            Ok(Host::Ipv4(address)) => address.is_loopback(),
            Ok(Host::Ipv6(address)) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
            }
            Err(_) => false,
        }
    }
}

impl HttpUrl {
    /// Resolves a reference (RFC 3986 §4.1) against this URL, as for a redirect or on a card.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn join(&self, reference: &str) -> Result<HttpUrl, UrlError> {
        let not_a_url = |error: ::url::ParseError| UrlError::NotAUrl(error.to_string());
        let base = Url::parse(&self.to_string()).map_err(not_a_url)?;
        HttpOrigin::parse(base.join(reference).map_err(not_a_url)?.as_str())
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlError::NotAUrl(why) => {
                write!(f, "not an absolute URL such as https://HOST/PATH: {why}")
            }
            UrlError::Scheme(scheme) => {
                write!(f, "the URL must begin with http:// or https://, not {scheme}:")
            }
            UrlError::NoHost => f.write_str("the URL has no host"),
            UrlError::Credentials => f.write_str("the URL must not have a user name or a password"),
        }
    }
}

impl std::error::Error for UrlError {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn url_is_parsed_into_origin_and_target() {
        let target = HttpOrigin::parse("HTTP://Exämple.org:80/a b?c=d#e").unwrap();
        assert_eq!(target.path, "/a%20b?c=d");
        assert_eq!(target.origin.authority(), "xn--exmple-cua.org");
        assert_eq!(target.origin.to_string(), "http://xn--exmple-cua.org");
        let target = HttpOrigin::parse("https://[::1]:8443").unwrap();
        assert_eq!((target.path.as_str(), target.origin.authority()), ("/", "[::1]:8443"));
        assert_eq!(target.origin.host_name(), "::1");
        assert!(target.origin.is_loopback() && target.origin.is_secure());
    }

    #[test]
    fn reference_is_resolved_against_base_url() {
        let base = HttpOrigin::parse("https://a:8443/b/c?d").unwrap();
        assert_eq!(base.to_string(), "https://a:8443/b/c?d");
        for (reference, url) in [
            ("e", "https://a:8443/b/e"),
            ("/e?f#g", "https://a:8443/e?f"),
            ("//h/i", "https://h/i"),
            ("http://a:8443/", "http://a:8443/"),
        ] {
            assert_eq!(base.join(reference).unwrap().to_string(), url, "{reference}");
        }
        assert!(matches!(base.join("mailto:x"), Err(UrlError::Scheme(_))));
        assert!(matches!(base.join("//u@h/"), Err(UrlError::Credentials)));
    }

    #[test]
    fn loopback_host_forms_are_detected() {
        for host in ["localhost", "a.localhost", "LOCALHOST.", "127.1", "0x7f.0.0.1", "[::1]"] {
            let url = format!("http://{host}/");
            assert!(HttpOrigin::parse(&url).unwrap().origin.is_loopback(), "{host}");
        }
        for host in ["localhost.example", "128.0.0.1", "[::2]", "notlocalhost"] {
            let url = format!("http://{host}/");
            assert!(!HttpOrigin::parse(&url).unwrap().origin.is_loopback(), "{host}");
        }
    }

    #[test]
    fn unsupported_url_returns_specific_error() {
        assert!(matches!(HttpOrigin::parse("host/path"), Err(UrlError::NotAUrl(_))));
        assert!(matches!(HttpOrigin::parse("ftp://host/"), Err(UrlError::Scheme(_))));
        assert_eq!(HttpOrigin::parse("http://u:p@host/"), Err(UrlError::Credentials));
        assert_eq!(HttpOrigin::parse("http://u@host/"), Err(UrlError::Credentials));
    }
}
