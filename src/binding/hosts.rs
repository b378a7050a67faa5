//! The hosts that a server accepts in requests.
//!
//! A web page can make its own host name resolve to an address of the user's machine, and then send
//! same-origin requests to a local server (DNS rebinding). These requests still contain the host
//! name of the page. So listeners on the loopback interface accept only known hosts, and so do all
//! listeners if the setup configures a host: an allowed host, or the host of the public URL. The
//! listener of the pages about the server always checks hosts, but accepts every IP address as
//! well: the attack needs a name, and probes use addresses. Known hosts are the configured hosts,
//! the names and addresses of the loopback interface, and the local address of the connection.
//! Ports are ignored. Requests without a host are accepted, since browsers always send one.

use std::net::IpAddr;

use crate::{
    binding::{ServerConfig, origin::forwarded_host},
    http::{Field, Head, Host},
    service::Peer,
};

/// The status for a request to an unknown host (RFC 9110 §15.5.20).
pub const MISDIRECTED: u16 = 421;

/// The error text for a request to an unknown host.
pub const REFUSAL: &str = "the Host of the request is not allowed; allow it with --allow-host \
                           HOST or --public-url URL (Setup::allow_hosts, Setup::public_url)";

/// Allows every host.
const ANY: &str = "*";

/// The hosts that the setup configures.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    named: Vec<String>,
    is_any: bool,
}

impl Hosts {
    /// All hosts in `allowed` must have passed [`is_host`].
    pub fn new(allowed: Vec<String>, public_url: Option<&str>) -> Hosts {
        let is_any = allowed.iter().any(|host| host == ANY);
        let public = public_url.and_then(|url| {
            let (_, rest) = url.split_once("://")?;
            Some(rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned())
        });
        let bracketed = |host: String| if is_bare_ipv6(&host) { format!("[{host}]") } else { host };
        Hosts { named: allowed.into_iter().map(bracketed).chain(public).collect(), is_any }
    }

    /// Whether a listener accepts only known hosts.
    #[inline]
    pub fn are_checked(&self, is_loopback: bool) -> bool {
        is_loopback || !self.named.is_empty()
    }

    /// Whether the host of this authority is known to the listener at the address `local`.
    pub fn know(&self, authority: &str, local: Option<IpAddr>) -> bool {
        let Some(host) = Host::of(authority) else { return false };
        self.is_any
            || host.is_loopback()
            || local.is_some_and(|local| host == Host::Address(local.to_canonical()))
            || self.named.iter().any(|named| Host::of(named) == Some(host))
    }
}

impl Hosts {
    /// Whether the setup configures exactly this host, in lower case, and `authority` has no port
    /// or `port`; `*` does not count.
    pub fn name(&self, authority: &[u8], port: Option<&str>) -> bool {
        let Ok(text) = str::from_utf8(authority) else { return false };
        self.named.iter().filter(|named| *named != ANY).any(|named| {
            let rest = text.strip_prefix(&*named.to_ascii_lowercase());
            let has_port = |rest: &str| rest.strip_prefix(':').is_some_and(|it| Some(it) == port);
            rest.is_some_and(|rest| rest.is_empty() || has_port(rest))
        })
    }
}

/// Whether every host that a request names is known, independent of the listener.
/// `is_host_accepted`: an earlier request with the same `Host` was checked successfully.
#[inline]
pub fn are_known(config: &ServerConfig, head: &Head<'_>, is_host_accepted: bool) -> bool {
    let is_alone = !config.trust_forwarded || head.value(Field::XForwardedHost).is_none();
    is_alone && is_host_accepted || know_all(config, head, None)
}

/// Whether to answer a request for which [`are_known`] is false.
#[cold]
pub fn are_served(config: &ServerConfig, peer: Peer<'_>, head: &Head<'_>) -> bool {
    let (hosts, is_admin) = (&config.hosts, peer.is_admin);
    let is_address = |host: &str| matches!(Host::of(host), Some(Host::Address(_)));
    let is_served = |host: &str| hosts.know(host, peer.local) || is_admin && is_address(host);
    !hosts.are_checked(peer.is_loopback || is_admin) || named(config, head).all(is_served)
}

#[cold]
pub(super) fn know_all(config: &ServerConfig, head: &Head<'_>, local: Option<IpAddr>) -> bool {
    named(config, head).all(|host| config.hosts.know(host, local))
}

/// A forwarded host is checked in addition to `Host`, not instead: a page that bypasses the proxy
/// could forge it.
fn named<'h>(config: &ServerConfig, head: &Head<'h>) -> impl Iterator<Item = &'h str> + use<'h> {
    let forwarded = if config.trust_forwarded { forwarded_host(head) } else { None };
    [head.host(), forwarded].into_iter().flatten()
}

/// True for a host without a port, as in `Host`, and for `*`, which allows all hosts.
pub fn is_host(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_name = || !text.is_empty() && text.bytes().all(plain);
    let is_ipv6 = || text.starts_with('[') && text.ends_with(']') && Host::of(text).is_some();
    text == ANY || is_name() || is_bare_ipv6(text) || is_ipv6()
}

fn is_bare_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_syntax_is_validated() {
        for text in ["a", "a.example", "a.example.", "xn--a-b", "x_y", "10.0.0.1", "::1", "[::1]"] {
            assert!(is_host(text), "{text}");
        }
        for text in ["", "a:80", "[::1]:80", "[::1", "http://a", "a/b", "u@a", "ä", "*.a", "a b"] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn accepted_hosts_are_configured_public_or_local() {
        let allowed = ["A.example", "::2"].map(str::to_owned).to_vec();
        let hosts = Hosts::new(allowed, Some("https://mesh.example:8443/base"));
        let local = "10.0.0.1".parse().ok();
        for host in [
            "a.example",
            "a.EXAMPLE.:1",
            "[0::2]:80",
            "mesh.example",
            "localhost",
            "127.9.9.9:1",
            "[::1]",
            "10.0.0.1:3000",
            "[::ffff:10.0.0.1]",
        ] {
            assert!(hosts.know(host, local), "{host}");
        }
        for host in ["b.a.example", "example", "evil.example", "10.0.0.2", "u@localhost", ""] {
            assert!(!hosts.know(host, local), "{host}");
        }
        assert!(!hosts.know("10.0.0.1", None));
        assert!(Hosts::new(vec![ANY.to_owned()], None).know("evil.example", None));
    }

    #[test]
    fn host_matches_configured_name_with_optional_port() {
        let named = ["A.example", "::2", ANY].map(str::to_owned).to_vec();
        let hosts = Hosts::new(named, None);
        for host in ["a.example", "a.example:3000", "[::2]", "[::2]:3000"] {
            assert!(hosts.name(host.as_bytes(), Some("3000")), "{host}");
        }
        for host in [
            "A.example",
            "a.example:",
            "a.example:3001",
            "a.example.evil",
            "a.example.evil:3000",
            "b.example",
            "*",
            "localhost",
            "",
        ] {
            assert!(!hosts.name(host.as_bytes(), Some("3000")), "{host}");
        }
        assert!(!hosts.name(b"a.example:3000", None));
    }

    #[test]
    fn hosts_are_checked_on_loopback_or_if_configured() {
        let [none, one, url] = [
            Hosts::default(),
            Hosts::new(vec!["a".to_owned()], None),
            Hosts::new(Vec::new(), Some("https://a")),
        ];
        assert!(none.are_checked(true) && !none.are_checked(false));
        assert!(one.are_checked(false) && url.are_checked(false));
    }
}
