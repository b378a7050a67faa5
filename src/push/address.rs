//! Which addresses are on the public internet.
//!
//! Invariant: an address is refused unless it is globally reachable by IANA's special-purpose
//! registries (RFC 6890). Also refused: an IPv6 address that contains a refused IPv4 address,
//! multicast, unallocated addresses, and the metadata addresses of clouds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// An address that identifies no host (RFC 1122 §3.2.1.3, RFC 4291 §2.5.2).
    Unspecified,
    /// The connecting host itself.
    Loopback,
    /// A private network (RFC 1918, RFC 4193, RFC 3879).
    Private,
    /// A host behind the translator of a provider (RFC 6598).
    SharedByProvider,
    /// Hosts on the same link (RFC 3927, RFC 4291 §2.5.6), including cloud services.
    LinkLocal,
    /// Several hosts (RFC 5771, RFC 4291 §2.7).
    Multicast,
    /// All hosts (RFC 919).
    Broadcast,
    /// Reserved for documentation, benchmarks and experiments.
    Documentation,
    /// Reserved by IANA for protocols or future use.
    Reserved,
    /// An IPv4 address in an IPv6 form that is not routed: mapped, compatible, 6to4, Teredo, or
    /// behind a private translator.
    Embedded,
    /// A metadata service of a cloud.
    CloudMetadata,
    /// An address of this machine, as determined by the connecting driver.
    Own,
}

impl AddressKind {
    /// The kind, for error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Unspecified => "unspecified",
            Loopback => "loopback",
            Private => "private",
            SharedByProvider => "shared by a provider",
            LinkLocal => "link-local",
            Multicast => "multicast",
            Broadcast => "broadcast",
            Documentation => "for documentation or tests",
            Reserved => "reserved",
            Embedded => "an IPv4 address inside an IPv6 address",
            CloudMetadata => "reserved for a cloud's internal services",
            AddressKind::Own => "an address of this server",
        }
    }
}

use AddressKind::{
    Broadcast, CloudMetadata, Documentation, Embedded, LinkLocal, Loopback, Multicast, Private,
    Reserved, SharedByProvider, Unspecified,
};

/// Ranges of IANA's IPv4 registry that are not globally reachable, and multicast; the first
/// matching row applies. `None`: globally reachable, although a later row contains it.
const V4: &[(Ipv4Addr, u32, Option<AddressKind>)] = &[
    // Azure's service address, which is in no registry.
    (Ipv4Addr::new(168, 63, 129, 16), 32, Some(CloudMetadata)),
    (Ipv4Addr::new(169, 254, 169, 254), 32, Some(CloudMetadata)),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Some(CloudMetadata)),
    (Ipv4Addr::UNSPECIFIED, 32, Some(Unspecified)),
    (Ipv4Addr::UNSPECIFIED, 8, Some(Reserved)),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Some(Private)),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Some(SharedByProvider)),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Some(Loopback)),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Some(LinkLocal)),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Some(Private)),
    // Anycast addresses of PCP and TURN.
    (Ipv4Addr::new(192, 0, 0, 9), 32, None),
    (Ipv4Addr::new(192, 0, 0, 10), 32, None),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Some(Reserved)),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Some(Documentation)),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Some(Reserved)),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Some(Private)),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Some(Documentation)),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Some(Documentation)),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Some(Documentation)),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Some(Multicast)),
    (Ipv4Addr::BROADCAST, 32, Some(Broadcast)),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Some(Reserved)),
];

/// As `V4`, for IPv6. Addresses without a row are reserved; 2000::/3 is allocated.
const V6: &[(Ipv6Addr, u32, Option<AddressKind>)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, Some(Unspecified)),
    (Ipv6Addr::LOCALHOST, 128, Some(Loopback)),
    // Compatible and mapped addresses.
    (Ipv6Addr::UNSPECIFIED, 96, Some(Embedded)),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Some(Embedded)),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Some(Embedded)),
    (LOCAL_NAT64, 48, Some(Embedded)),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1), 128, None),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 2), 128, None),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 3), 128, None),
    (Ipv6Addr::new(0x2001, 3, 0, 0, 0, 0, 0, 0), 32, None),
    (Ipv6Addr::new(0x2001, 4, 0x112, 0, 0, 0, 0, 0), 48, None),
    (Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28, None),
    (Ipv6Addr::new(0x2001, 0x30, 0, 0, 0, 0, 0, 0), 28, None),
    // Teredo.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Some(Embedded)),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Some(Reserved)),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Some(Documentation)),
    // 6to4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Some(Embedded)),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Some(Documentation)),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, None),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Some(CloudMetadata)),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Some(CloudMetadata)),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Some(Private)),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Some(LinkLocal)),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Some(Private)),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Some(Multicast)),
];

/// The well-known prefix of translators (RFC 6052 §2.1): an address with it reaches the same host
/// as the embedded IPv4 address.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Why an address must not be connected to; `None`: it is globally reachable.
///
/// `translators` are the operator's translator networks in addition to the well-known prefix (RFC
/// 6052 §2.2): of their addresses, the embedded IPv4 address is checked.
pub fn refused_kind(address: IpAddr, translators: &[Network]) -> Option<AddressKind> {
    match address {
        IpAddr::V4(address) => v4_kind(address),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            for network in translators {
                if network.contains(IpAddr::V6(address)) {
                    return v4_kind(inside(bits, network.prefix_bits()));
                }
            }
            if is_in(bits, NAT64.to_bits(), 96, 128) {
                return v4_kind(inside(bits, 96));
            }
            let row = V6.iter().find(|(net, prefix, _)| is_in(bits, net.to_bits(), *prefix, 128));
            row.map_or(Some(Reserved), |(.., kind)| *kind)
        }
    }
}

/// The prefix of local-use translators (RFC 8215), of any length.
const LOCAL_NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0);

/// The IPv4 addresses that may be reached through an address: mapped, compatible, translated (RFC
/// 2765, RFC 6052, RFC 8215), 6to4, and both addresses of Teredo. `translators`: see
/// [`refused_kind`].
pub fn carried(address: IpAddr, translators: &[Network]) -> Vec<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return Vec::new() };
    let bits = address.to_bits();
    let own = translators.iter().filter(|network| network.contains(IpAddr::V6(address)));
    let mut found: Vec<Ipv4Addr> = own.map(|network| inside(bits, network.prefix_bits())).collect();
    match address.segments() {
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            found.push(inside(bits, 96));
        }
        [0x2001, 0, ..] => {
            found.push(Ipv4Addr::from_bits((bits >> 64) as u32));
            found.push(Ipv4Addr::from_bits(!(bits as u32)));
        }
        [0x2002, ..] => found.push(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ if is_in(bits, NAT64.to_bits(), 96, 128) => found.push(inside(bits, 96)),
        _ if is_in(bits, LOCAL_NAT64.to_bits(), 48, 128) => {
            found.extend([48, 56, 64, 96].map(|prefix| inside(bits, prefix)));
        }
        _ => {}
    }
    found
}

fn v4_kind(address: Ipv4Addr) -> Option<AddressKind> {
    let bits = u128::from(address.to_bits());
    let row = V4.iter().find(|(net, prefix, _)| is_in(bits, net.to_bits().into(), *prefix, 32));
    row.and_then(|(.., kind)| *kind)
}

/// The IPv4 address after a prefix of this many bits (RFC 6052 §2.2), which skips bits 64 to 71.
fn inside(bits: u128, prefix: u32) -> Ipv4Addr {
    let (high, low) = ((bits >> 64) as u64, bits as u64);
    // Without the skipped octet, the remaining 120 bits are contiguous.
    let row = u128::from(high) << 56 | u128::from(low & (u64::MAX >> 8));
    let v4 = match prefix {
        96.. => low as u32,
        _ => (row >> (120 - prefix.min(64) - 32)) as u32,
    };
    Ipv4Addr::from_bits(v4)
}

fn is_in(bits: u128, network: u128, prefix: u32, all: u32) -> bool {
    (bits ^ network) >> (all - prefix) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<AddressKind> {
        refused_kind(text.parse().unwrap(), &[])
    }

    #[test]
    fn embedded_ipv4_address_is_found_in_every_form() {
        let networks: Vec<Network> =
            ["2001:db8::/32", "fd00:64:ff9b::/96"].map(|net| net.parse().unwrap()).into();
        for (address, inside) in [
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::10.1.2.3", "10.1.2.3"),
            ("::ffff:0:10.1.2.3", "10.1.2.3"),
            ("64:ff9b::10.1.2.3", "10.1.2.3"),
            ("64:ff9b:1::10.1.2.3", "10.1.2.3"),
            ("64:ff9b:1:a01:2:300::", "10.1.2.3"),
            ("2002:a01:203::1", "10.1.2.3"),
            ("2001:0:a01:203::1", "10.1.2.3"),
            ("2001::f5fe:fdfc", "10.1.2.3"),
            ("2001:db8:a01:203::", "10.1.2.3"),
            ("fd00:64:ff9b::10.1.2.3", "10.1.2.3"),
        ] {
            let found = carried(address.parse().unwrap(), &networks);
            assert!(found.contains(&inside.parse().unwrap()), "{address} {found:?}");
        }
        for address in ["10.1.2.3", "2606:4700::a01:203", "fe80::10.1.2.3"] {
            assert!(carried(address.parse().unwrap(), &networks).is_empty(), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_accepted() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.0.9",
            "192.0.0.10",
            "192.0.1.0",
            "192.0.3.0",
            "192.31.196.1",
            "192.52.193.1",
            "192.167.255.255",
            "192.169.0.0",
            "192.175.48.1",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "168.63.129.17",
            "2000::",
            "2001:1::1",
            "2001:1::2",
            "2001:1::3",
            "2001:3::1",
            "2001:4:112::1",
            "2001:20::1",
            "2001:3f:ffff::",
            "2001:200::",
            "2001:db7::",
            "2001:db9::",
            "2003::",
            "2606:4700::1111",
            "2620:4f:8000::1",
            "3ffe::",
            "3fff:1000::",
            "64:ff9b::8.8.8.8",
            "64:ff9b::1.1.1.1",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn non_public_addresses_are_refused() {
        for (address, why) in [
            ("0.0.0.0", Unspecified),
            ("0.0.0.1", Reserved),
            ("0.255.255.255", Reserved),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("100.64.0.0", SharedByProvider),
            ("100.127.255.255", SharedByProvider),
            ("100.100.100.200", CloudMetadata),
            ("127.0.0.1", Loopback),
            ("127.255.255.255", Loopback),
            ("169.254.0.0", LinkLocal),
            ("169.254.169.254", CloudMetadata),
            ("168.63.129.16", CloudMetadata),
            ("172.16.0.0", Private),
            ("172.31.255.255", Private),
            ("192.0.0.0", Reserved),
            ("192.0.0.8", Reserved),
            ("192.0.0.11", Reserved),
            ("192.0.0.170", Reserved),
            ("192.0.0.192", Reserved),
            ("192.0.2.1", Documentation),
            ("192.88.99.1", Reserved),
            ("192.168.0.0", Private),
            ("192.168.255.255", Private),
            ("198.18.0.0", Documentation),
            ("198.19.255.255", Documentation),
            ("198.51.100.7", Documentation),
            ("203.0.113.7", Documentation),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.0", Reserved),
            ("255.255.255.254", Reserved),
            ("255.255.255.255", Broadcast),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Embedded),
            ("::7f00:1", Embedded),
            ("::8.8.8.8", Embedded),
            ("::ffff:8.8.8.8", Embedded),
            ("::ffff:127.0.0.1", Embedded),
            ("::ffff:0:127.0.0.1", Embedded),
            ("64:ff9b::127.0.0.1", Loopback),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::169.254.169.254", CloudMetadata),
            ("64:ff9b:1::8.8.8.8", Embedded),
            ("64:ff9b:1:ffff::10.0.0.1", Embedded),
            ("64:ff9b:0:0:1::", Reserved),
            ("64:ff9c::", Reserved),
            ("100::1", Reserved),
            ("100:0:0:1::1", Reserved),
            ("1::", Reserved),
            ("2001::1", Embedded),
            ("2001:0:53aa:64c::", Embedded),
            ("2001:1::4", Reserved),
            ("2001:2::1", Reserved),
            ("2001:10::1", Reserved),
            ("2001:1ff::", Reserved),
            ("2001:db8::1", Documentation),
            ("2002:7f00:1::", Embedded),
            ("2002:808:808::1", Embedded),
            ("3fff::1", Documentation),
            ("3fff:fff::", Documentation),
            ("4000::", Reserved),
            ("5f00::1", Reserved),
            ("fc00::1", Private),
            ("fd00:ec2::254", CloudMetadata),
            ("fd20:ce::254", CloudMetadata),
            ("fdff::", Private),
            ("fe00::", Reserved),
            ("fe80::1", LinkLocal),
            ("febf::", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("ffff::", Multicast),
        ] {
            assert_eq!(kind(address), Some(why), "{address}");
        }
    }

    /// The examples of RFC 6052 §2.4.
    #[test]
    fn translated_address_is_judged_by_its_embedded_ipv4() {
        for (network, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let network: Network = network.parse().unwrap();
            let address: Ipv6Addr = address.parse().unwrap();
            let found = inside(address.to_bits(), network.prefix_bits());
            assert_eq!(found, Ipv4Addr::new(192, 0, 2, 33), "{address}");
            let found = refused_kind(IpAddr::V6(address), &[network]);
            assert_eq!(found, Some(Documentation), "{address}");
        }
        let translators = ["2606:4700:64::/96".parse().unwrap()];
        let kind = |text: &str| refused_kind(text.parse().unwrap(), &translators);
        assert_eq!(kind("2606:4700:64::8.8.8.8"), None);
        assert_eq!(kind("2606:4700:64::10.0.0.1"), Some(Private));
        assert_eq!(kind("2606:4700:65::10.0.0.1"), None);
    }
}
