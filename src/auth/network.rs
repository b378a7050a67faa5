//! Networks by their prefix (RFC 4632 §3.1, RFC 4291 §2.3), and whom an address stands for.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

/// Bits of an IPv6 address by which one peer is told from another: a host, or a line of somebody's,
/// has the other 64 for itself.
const PEER_BITS: u32 = 64;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    prefix: u32,
}

/// That a text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNetwork;

impl fmt::Display for NoNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address, or a network like 10.0.0.0/8")
    }
}

impl std::error::Error for NoNetwork {}

impl FromStr for Network {
    type Err = NoNetwork;

    /// An address, or an address, a slash and a number of bits. Bits behind the prefix are refused:
    /// whoever writes `10.0.0.1/8` means something else than it says.
    fn from_str(text: &str) -> Result<Network, NoNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let (all, above) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let own = match prefix {
            None => all,
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|bits| *bits <= all).ok_or(NoNetwork)?
            }
            Some(_) => return Err(NoNetwork),
        };
        let network = Network { bits: bits(address), prefix: own + above };
        match network.bits & !mask(network.prefix) {
            0 => Ok(network),
            _ => Err(NoNetwork),
        }
    }
}

impl Network {
    /// Whether an address is in it; one of IPv4 is the same in its IPv6 form.
    pub fn contains(self, address: IpAddr) -> bool {
        bits(address) & mask(self.prefix) == self.bits
    }
}

/// The bits by which peers are told apart: an address of IPv4, or the network of 64 bits of one of
/// IPv6.
pub fn peer_bits(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(_) => bits(address),
        IpAddr::V6(_) => bits(address) & mask(PEER_BITS),
    }
}

/// The address that a request came from: that of the connection, or behind trusted hops the last in
/// `X-Forwarded-For` that is none of them, whose hops come the last one first. What is no address
/// there ends the search: nothing before it can be believed.
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
        let (address, behind) = rest.split_once(']')?;
        let is_whole = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
        return address.parse().ok().map(IpAddr::V6).filter(|_| is_whole);
    }
    let (address, port) = text.split_once(':')?;
    address.parse().ok().map(IpAddr::V4).filter(|_| is_port(port))
}

fn bits(address: IpAddr) -> u128 {
    let v6: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    v6.to_bits()
}

fn mask(prefix: u32) -> u128 {
    // A shift by all bits is none.
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_contains_what_its_prefix_says() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "1.2.3.4", "?"),
            ("2001:db8::/32", "2001:db8:1::", "2001:db9::"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(address(inside)), "{network} {inside}");
            let is_inside = outside.parse().is_ok_and(|address| parsed.contains(address));
            assert!(!is_inside, "{network} {outside}");
        }
        for wrong in [
            "",
            "a",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "/8",
            "10/8",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(NoNetwork), "{wrong}");
        }
    }

    #[test]
    fn hosts_of_one_line_are_one_peer() {
        let same = |a, b| peer_bits(address(a)) == peer_bits(address(b));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("1.2.3.4", "::ffff:1.2.3.4") && !same("1.2.3.4", "1.2.3.5"));
    }

    #[test]
    fn behind_trusted_hops_the_last_stranger_counts() {
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
