//! `NO_PROXY`: hosts without a proxy.

use std::net::IpAddr;

/// Maximum entries that are read; further entries are ignored.
const ENTRIES_MAX: usize = 1_024;

/// A list of hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Exempt {
    matches_all: bool,
    /// Names in lower case, each including all names below it.
    names: Vec<String>,
    /// Networks: an address, and the number of significant bits.
    networks: Vec<(IpAddr, u8)>,
}

impl Exempt {
    /// Reads a list with commas or white space between the entries.
    pub(super) fn parse(list: &str) -> Exempt {
        let mut exempt = Exempt::default();
        let entries = list.split(|c: char| c == ',' || c.is_whitespace());
        for entry in entries.filter(|entry| !entry.is_empty()).take(ENTRIES_MAX) {
            match entry {
                "*" => exempt.matches_all = true,
                _ => match network(entry) {
                    Some(network) => exempt.networks.push(network),
                    None => {
                        let name = entry.trim_matches('.').to_ascii_lowercase();
                        exempt.names.extend(Some(name).filter(|name| !name.is_empty()));
                    }
                },
            }
        }
        exempt
    }

    /// Whether `host`, in lower case, is on the list.
    pub(super) fn has(&self, host: &str) -> bool {
        if self.matches_all {
            return true;
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.networks.iter().any(|(network, bits)| is_in(address, *network, *bits));
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        self.names.iter().any(|name| {
            let above = host.strip_suffix(name.as_str());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        })
    }
}

/// `10.0.0.1`, `10.0.0.0/8`, `[::1]`.
fn network(entry: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (entry, None),
    };
    let inner = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    let address: IpAddr = inner.unwrap_or(address).parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some((address, bits))
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let differs = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    differs.leading_zeros() >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_matches_names_addresses_and_networks() {
        let exempt = Exempt::parse("Example.org,.local 10.0.0.0/8, 192.168.1.7 [fe80::]/10,/8,x/y");
        for host in ["example.org", "a.b.example.org", "example.org.", "h.local", "local"] {
            assert!(exempt.has(host), "{host}");
        }
        for host in ["10.255.0.1", "192.168.1.7", "fe80::1", "febf::1"] {
            assert!(exempt.has(host), "{host}");
        }
        for host in
            ["xexample.org", "example.org.evil", "11.0.0.1", "192.168.1.8", "fec0::1", "::1"]
        {
            assert!(!exempt.has(host), "{host}");
        }
        assert!(Exempt::parse("*").has("any.example"));
        assert!(!Exempt::parse("0.0.0.0/33").has("1.2.3.4"));
        assert!(Exempt::parse("0.0.0.0/0").has("1.2.3.4"));
    }
}
