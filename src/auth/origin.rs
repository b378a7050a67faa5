//! Addresses of peers: the bits that distinguish peers, and the client address behind proxies.

use std::net::IpAddr;

use crate::network::{Network, bits, mask};

/// The bits of an IPv6 address that identify a peer: a host, or a subscriber's line, owns the other
/// 64 bits.
const PEER_BITS: u32 = 64;

/// The bits that identify a peer: an IPv4 address, or the first 64 bits of an IPv6 address.
pub fn peer_bits(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(_) => bits(address),
        IpAddr::V6(_) => bits(address) & mask(PEER_BITS),
    }
}

/// The peer address or, behind trusted proxies, the rightmost untrusted `X-Forwarded-For` entry.
/// `hops` is reversed. An entry that is not an address ends the search, because entries in front of
/// it cannot be trusted.
pub fn origin_of<'f>(
    connection: IpAddr,
    forwarded: impl Iterator<Item = &'f [u8]>,
    trusted: &[Network],
) -> IpAddr {
    let is_trusted = |address| trusted.iter().any(|network| network.contains(address));
    let mut found = connection;
    for hop in forwarded {
        if !is_trusted(found) {
            break;
        }
        let Some(address) = hop_address(hop) else { break };
        found = address;
    }
    found
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn hop_address(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = text.strip_prefix('[') {
        let (address, suffix) = rest.split_once(']')?;
        let is_whole = suffix.is_empty() || suffix.strip_prefix(':').is_some_and(is_port);
        return address.parse().ok().map(IpAddr::V6).filter(|_| is_whole);
    }
    let (address, port) = text.split_once(':')?;
    address.parse().ok().map(IpAddr::V4).filter(|_| is_port(port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_in_one_ipv6_64_network_are_one_peer() {
        let same = |a, b| peer_bits(address(a)) == peer_bits(address(b));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("1.2.3.4", "::ffff:1.2.3.4") && !same("1.2.3.4", "1.2.3.5"));
    }

    #[test]
    fn client_is_last_untrusted_forwarded_address() {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        for (connection, forwarded, origin) in [
            ("203.0.113.9", "1.1.1.1", "203.0.113.9"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "1.1.1.1", "1.1.1.1"),
            ("10.0.0.1", "6.6.6.6, 1.1.1.1", "1.1.1.1"),
            ("10.0.0.1", "1.1.1.1, 192.0.2.1, 10.9.9.9", "1.1.1.1"),
            ("10.0.0.1", "1.1.1.1:99, [2001:db8::1]:80", "2001:db8::1"),
            ("10.0.0.1", "1.1.1.1, unknown", "10.0.0.1"),
            ("10.0.0.1", "1.1.1.1, unknown, 10.2.2.2", "10.2.2.2"),
        ] {
            let hops = forwarded.as_bytes().rsplit(|byte| *byte == b',');
            let found = origin_of(address(connection), hops, &trusted);
            assert_eq!(found, address(origin), "{connection} {forwarded}");
        }
    }
}
