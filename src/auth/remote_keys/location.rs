//! The locations from which keys may be fetched.
//!
//! Invariant: keys are fetched over TLS; plain HTTP is allowed only on this machine, and only if
//! the configuration names it.

use std::fmt;

use url::{Host, Url};

/// The location of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocation {
    /// The keys are at this URL.
    Jwks(String),
    /// The keys are at the URL in the issuer's metadata, which is below the issuer's own URL.
    OpenId,
}

/// Why keys cannot be fetched from a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocationError {
    /// The URL is not an absolute `http` or `https` URL with a host, or it has a password.
    Url,
    /// The URL is neither `https` nor on this machine: a host on the path could forge callers.
    PlainHttp,
}

impl fmt::Display for KeyLocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyLocationError::Url => "not an https URL",
            KeyLocationError::PlainHttp => {
                "keys must be fetched over https, except from this machine"
            }
        })
    }
}

impl std::error::Error for KeyLocationError {}

/// Whether keys may be fetched from a URL; `true`: by plain HTTP on this machine.
pub(super) fn check_url(text: &str) -> Result<bool, KeyLocationError> {
    let url = Url::parse(text).map_err(|_| KeyLocationError::Url)?;
    let has_password = !url.username().is_empty() || url.password().is_some();
    let is_loopback = match url.host() {
        None => return Err(KeyLocationError::Url),
        Some(_) if has_password => return Err(KeyLocationError::Url),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
    };
    match url.scheme() {
        "https" => Ok(false),
        "http" if is_loopback => Ok(true),
        "http" => Err(KeyLocationError::PlainHttp),
        _ => Err(KeyLocationError::Url),
    }
}
