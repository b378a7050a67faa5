//! Networks by their prefix (RFC 4632 §3.1, RFC 4291 §2.3).

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

/// A network: an address and the number of its significant bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    prefix: u32,
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNetwork;

impl fmt::Display for NoNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "must be an address, or a network such as 10.0.0.0/8 without bits set after its prefix",
        )
    }
}

impl std::error::Error for NoNetwork {}

impl FromStr for Network {
    type Err = NoNetwork;

    /// Parses an address, or an address, a slash and the length of a prefix. Bits set after the
    /// prefix are refused: `10.0.0.1/8` is probably a mistake.
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
    /// The network of one address.
    pub fn host(address: IpAddr) -> Network {
        Network { bits: bits(address), prefix: 128 }
    }

    /// The length of its prefix as an IPv6 network, which is 96 more for an IPv4 network.
    pub fn prefix_bits(self) -> u32 {
        self.prefix
    }

    /// Whether it contains an address; an IPv4 address equals its IPv6 form.
    pub fn contains(self, address: IpAddr) -> bool {
        bits(address) & mask(self.prefix) == self.bits
    }
}

/// The bits of an address in its IPv6 form.
pub(crate) fn bits(address: IpAddr) -> u128 {
    let v6: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    v6.to_bits()
}

/// The mask of a prefix.
pub(crate) fn mask(prefix: u32) -> u128 {
    // A shift by all 128 bits returns `None`.
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
    fn network_contains_only_addresses_of_its_prefix() {
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
}
