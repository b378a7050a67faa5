//! The origin to which a client sent its request: the base of the URLs on a card.
//!
//! Forwarded fields are ignored unless the operator trusts them, since a client could otherwise
//! direct other clients to another server. Trusted values must also be well-formed.

use std::borrow::Cow;

use crate::{
    binding::ServerConfig,
    http::{self, Field, FieldLines, Head, field_lines},
    service::Peer,
};

/// The origin of the server in a request, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// True: `https`.
    pub is_secure: bool,
    /// The host with its optional port, in ASCII; `None`: the request has no host.
    pub host: Option<&'a [u8]>,
    /// The forwarded port, if `host` has no port and the scheme does not imply it.
    pub port: Option<u16>,
    /// The path prefix that a proxy has removed, without a trailing slash.
    pub prefix: &'a str,
}

impl<'a> Origin<'a> {
    /// The origin in the request with this head, on a connection of this peer.
    #[inline]
    pub fn of(config: &ServerConfig, peer: Peer<'_>, head: &Head<'a>) -> Origin<'a> {
        let (is_secure, host) = (peer.is_secure, head.host_bytes());
        let origin = Origin { is_secure, host, port: None, prefix: "" };
        if config.trust_forwarded { origin.forwarded(head) } else { origin }
    }

    #[cold]
    fn forwarded(self, head: &Head<'a>) -> Origin<'a> {
        let scheme = first(head, Field::XForwardedProto);
        let prefix = first(head, Field::XForwardedPrefix);
        let prefix = prefix.map(|prefix| prefix.trim_end_matches('/'));
        let is_secure = scheme.map_or(self.is_secure, |it| it.eq_ignore_ascii_case("https"));
        let host = forwarded_host(head).map(str::as_bytes).or(self.host);
        let implied = if is_secure { 443 } else { 80 };
        let port = first(head, Field::XForwardedPort).and_then(|port| port.parse().ok());
        let is_new = |port: &u16| *port > 0 && *port != implied && !host.is_some_and(has_port);
        Origin {
            is_secure,
            host,
            port: port.filter(is_new),
            prefix: prefix.filter(|prefix| is_prefix(prefix)).unwrap_or_default(),
        }
    }

    /// Host and port; `None`: the request has no host.
    pub fn authority(&self) -> Option<Cow<'a, [u8]>> {
        let host = self.host?;
        Some(match self.port {
            Some(port) => Cow::Owned([host, format!(":{port}").as_bytes()].concat()),
            None => Cow::Borrowed(host),
        })
    }

    /// The base URL of the server, without a trailing slash: the public URL, or else the URL that
    /// the client used.
    pub fn url(&self, config: &ServerConfig) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        match (&config.public_url, self.authority()) {
            (Some(url), _) => url.clone(),
            (None, Some(authority)) => {
                format!("{scheme}://{}{}", String::from_utf8_lossy(&authority), self.prefix)
            }
            (None, None) => config.base_url.clone(),
        }
    }

    /// `Vary` for a card (RFC 9110 §12.5.5); with a public URL the card does not depend on the
    /// request.
    pub fn vary(config: &ServerConfig) -> FieldLines<'static> {
        match (&config.public_url, config.trust_forwarded, config.cors.is_on()) {
            (Some(_), _, false) => FieldLines::NONE,
            (Some(_), _, true) => field_lines!("Vary": "Origin"),
            (None, true, false) => field_lines!(
                "Vary": "Host, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Port, \
                    X-Forwarded-Prefix"
            ),
            (None, true, true) => field_lines!(
                "Vary": "Host, X-Forwarded-Proto, X-Forwarded-Host, X-Forwarded-Port, \
                    X-Forwarded-Prefix, Origin"
            ),
            (None, false, false) => field_lines!("Vary": "Host"),
            (None, false, true) => field_lines!("Vary": "Host, Origin"),
        }
    }
}

/// The forwarded host, if it is well-formed. The caller decides whether the proxy is trusted.
pub fn forwarded_host<'a>(head: &Head<'a>) -> Option<&'a str> {
    first(head, Field::XForwardedHost).filter(|host| http::is_authority(host.as_bytes()))
}

/// Whether an authority has a port.
fn has_port(host: &[u8]) -> bool {
    let name_end = host.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    host[name_end..].contains(&b':')
}

/// The first value of a field, from the proxy that is closest to the client.
fn first<'a>(head: &Head<'a>, field: Field) -> Option<&'a str> {
    std::str::from_utf8(http::list(head.value(field)?).next()?).ok()
}

/// Whether a text is an absolute path without characters that need escapes.
fn is_prefix(prefix: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.' | b'~');
    prefix.starts_with('/') && prefix.bytes().all(plain) && http::path::check(prefix).is_ok()
}
