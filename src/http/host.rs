//! The host of an authority, normalised and without its port.
//!
//! Names are compared as in DNS: in any case, and with or without the dot of the root. Addresses
//! are compared by value, so that IPv6 has one form and IPv4 within IPv6 equals IPv4.

use std::net::{IpAddr, Ipv6Addr};

use super::authority;

/// Maximum bytes of a cached host, as names are not longer (RFC 1035 §2.3.4).
pub const CACHED_HOST_BYTES_MAX: usize = 255;

/// The host of an authority (RFC 3986 §3.2.2).
#[derive(Clone, Copy, Debug)]
pub enum Host<'a> {
    /// An address.
    Address(IpAddr),
    /// A name as received, without the dot at its end.
    Name(&'a str),
}

impl<'a> Host<'a> {
    /// The host of an authority; `None`: the authority is invalid, for instance with user
    /// information.
    pub fn of(authority: &'a str) -> Option<Host<'a>> {
        let host = authority::host(authority)?;
        if let Some(inside) = host.strip_prefix('[') {
            let address: Ipv6Addr = inside.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Address(IpAddr::V6(address).to_canonical()));
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        Some(name.parse().map_or(Host::Name(name), |address| Host::Address(IpAddr::V4(address))))
    }

    /// Whether the host is the client's own machine: a loopback address, `localhost` or a name
    /// below it (RFC 6761 §6.3).
    pub fn is_loopback(&self) -> bool {
        match self {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => {
                let last = name.rsplit('.').next().unwrap_or_default();
                last.eq_ignore_ascii_case("localhost")
            }
        }
    }
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Host<'_>) -> bool {
        match (self, other) {
            (Host::Address(one), Host::Address(other)) => one == other,
            (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
            (Host::Address(_), Host::Name(_)) | (Host::Name(_), Host::Address(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_hosts_are_equal_and_invalid_hosts_rejected() {
        for (one, other) in [
            ("a.example", "A.Example:80"),
            ("a.example.", "a.example"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("[::1]", "[0:0::0001]:3000"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ] {
            assert!(Host::of(one).is_some() && Host::of(one) == Host::of(other), "{one}");
        }
        for (one, other) in [("a", "b"), ("a", "a.b"), ("127.0.0.1", "127.0.0.2"), ("a..", "a")] {
            assert!(Host::of(one) != Host::of(other), "{one}");
        }
        for none in ["", "u@a", "u:p@a", "a/b", "::1", "[::1", "a b"] {
            assert!(Host::of(none).is_none(), "{none}");
        }
    }

    #[test]
    fn loopback_covers_localhost_names_and_addresses() {
        let is_loopback = |text| Host::of(text).unwrap().is_loopback();
        for text in [
            "localhost",
            "LocalHost.:80",
            "a.localhost",
            "127.0.0.1",
            "127.255.0.9:1",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(text), "{text}");
        }
        for text in [
            "localhost.example",
            "xlocalhost",
            "localhos%74",
            "127.0.0.1.example",
            "0.0.0.0",
            "127.1",
            "2130706433",
            "[::]",
            "10.0.0.1",
            ".",
        ] {
            assert!(!is_loopback(text), "{text}");
        }
    }
}
