//! Equal shares of a full limit among the owners that hold it.
//!
//! Invariants: an owner that holds no more than its share never gives way to another owner. Where
//! callers are authenticated, all anonymous callers together hold at most half of a limit; where
//! none are, each of their addresses is an owner like any other.

use std::net::IpAddr;

/// The owner that an entry is charged to: a caller with an owner number, or the address of an
/// anonymous caller (for IPv6 its network of 64 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder {
    key: u64,
    is_stranger: bool,
}

/// First 16 bits of keys that no network of 64 bits has from which a packet comes: multicast.
const OWNER: u64 = 0xfffe << 48;
const IPV4: u64 = 0xffff << 48;
const BUCKET: u64 = 0xfffd << 48;

impl Holder {
    /// A caller with this owner number.
    #[inline]
    pub const fn owner(number: u32) -> Holder {
        Holder { key: OWNER | number as u64, is_stranger: false }
    }

    /// An anonymous caller; all without an address are one. `is_stranger`: the server
    /// authenticates other callers.
    pub fn peer(address: Option<IpAddr>, is_stranger: bool) -> Holder {
        let key = match address.map(|address| address.to_canonical()) {
            None => 0,
            Some(IpAddr::V4(address)) => IPV4 | u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
        };
        Holder { key, is_stranger }
    }

    /// Anonymous callers with this number together: further ones where very many have tasks.
    pub const fn bucket(number: u32, is_stranger: bool) -> Holder {
        Holder { key: BUCKET | number as u64, is_stranger }
    }

    /// Whether it is anonymous.
    pub const fn is_peer(self) -> bool {
        self.key >> 48 != OWNER >> 48
    }

    /// Whether it is anonymous where other callers are authenticated.
    pub const fn is_stranger(self) -> bool {
        self.is_stranger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(last: u8) -> Holder {
        Holder::peer(Some(IpAddr::from([192, 0, 2, last])), true)
    }

    #[test]
    fn peers_are_told_apart_by_address_or_network() {
        let peer = |text: &str| Holder::peer(text.parse().ok(), false);
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        let all = [peer("192.0.2.1"), peer("::1"), peer("fe80::1"), Holder::owner(1)];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)));
        assert_ne!(stranger(1), peer("192.0.2.1"));
    }
}
