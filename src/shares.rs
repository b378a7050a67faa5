//! Equal shares of a full limit for the owners that use it.
//!
//! Invariants: an owner that holds no more than its share never loses anything to another owner. If
//! the server authenticates callers, an anonymous caller is a "stranger", and all strangers
//! together hold at most half of a limit. Otherwise each address is an owner.

use std::net::IpAddr;

/// The holder that an entry is charged to: a caller with an owner number, or the address of an
/// anonymous caller (for IPv6 its /64 network).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder(u64);

/// Prefixes of keys that are not IPv6 networks: no packet comes from a multicast address
/// (ff00::/8).
const OWNER: u64 = 0xfffe << 48;
const IPV4: u64 = 0xffff << 48;
const BUCKET: u64 = 0xfffd << 48;

/// The bit that is inverted in the key of a [stranger](Holder::is_stranger). In all other keys, as
/// in all assigned networks, the first two bits are equal.
const STRANGER: u64 = 1 << 62;

impl Holder {
    /// A caller with this owner number.
    #[inline]
    pub const fn owner(number: u32) -> Holder {
        Holder(OWNER | number as u64)
    }

    /// Its owner number; 0: an anonymous caller.
    #[inline]
    #[cfg_attr(not(feature = "push"), allow(dead_code, reason = "only webhooks use it"))]
    pub const fn number(self) -> u32 {
        if self.0 & IPV4 == OWNER { self.0 as u32 } else { 0 }
    }

    /// An anonymous caller; all callers without an address are one holder. `is_stranger`: the
    /// server authenticates other callers.
    pub fn peer(address: Option<IpAddr>, is_stranger: bool) -> Holder {
        let key = match address.map(|address| address.to_canonical()) {
            None => 0,
            Some(IpAddr::V4(address)) => IPV4 | u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
        };
        Holder(if is_stranger { key ^ STRANGER } else { key })
    }

    /// One holder for a part of the anonymous callers, used when very many of them have tasks.
    pub const fn bucket(number: u32, is_stranger: bool) -> Holder {
        let key = BUCKET | number as u64;
        Holder(if is_stranger { key ^ STRANGER } else { key })
    }

    /// Whether it is an anonymous caller.
    pub const fn is_peer(self) -> bool {
        self.0 >> 48 != OWNER >> 48
    }

    /// Whether it is an anonymous caller of a server that authenticates others.
    #[inline]
    pub const fn is_stranger(self) -> bool {
        (self.0 ^ self.0 << 1) >> 63 == 1
    }
}

/// The holders of one limit, by [`Holder::is_stranger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Number of holders without [`Holder::is_stranger`].
    pub owners: usize,
    /// Number of holders with [`Holder::is_stranger`].
    pub strangers: usize,
    /// The amount that all holders with [`Holder::is_stranger`] have.
    pub held_by_strangers: usize,
}

/// The share of each holder in a full limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualShare {
    owner: usize,
    stranger: usize,
}

impl Holders {
    /// The share of each holder; 0 if there are more holders than room.
    #[inline]
    pub fn share(&self, most: usize) -> EqualShare {
        if self.strangers <= self.owners {
            let equal = most / (self.owners + self.strangers).max(1);
            return EqualShare { owner: equal, stranger: equal };
        }
        let half = most / 2;
        EqualShare { owner: (most - half) / self.owners.max(1), stranger: half / self.strangers }
    }

    /// Whether `holder` is an anonymous caller of a server that authenticates others, and `more`
    /// exceeds the half of all of them.
    #[inline]
    pub fn strangers_full(&self, holder: Holder, more: usize, most: usize) -> bool {
        holder.is_stranger() && self.held_by_strangers + more > most / 2
    }
}

impl EqualShare {
    /// The share of a holder.
    #[inline]
    pub fn of(self, holder: Holder) -> usize {
        if holder.is_stranger() { self.stranger } else { self.owner }
    }
}

/// A holder that requests more of a full limit.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The holder.
    pub holder: Holder,
    /// The requested amount; counts as held.
    pub more: usize,
    /// The whole limit.
    pub most: usize,
}

impl Newcomer {
    /// The holder that must lose something: the holder furthest above its equal share, or the
    /// newcomer itself if no other is further above. `held` lists each holder once, with the amount
    /// it holds. `None`: the newcomer holds nothing, and no other is above its share.
    pub fn victim<I>(self, held: I) -> Option<Holder>
    where
        I: Iterator<Item = (Holder, usize)> + Clone,
    {
        let Newcomer { holder: own, more, most } = self;
        let mut holders = Holders::default();
        let mut is_new = true;
        for (holder, held) in held.clone() {
            is_new &= holder != own;
            holders.count(holder, held);
        }
        if is_new {
            holders.count(own, 0);
        }
        let share = holders.share(most);
        let are_strangers_alone = holders.strangers_full(own, more, most);
        let candidates = held
            .filter(|(holder, held)| *held > 0 && (holder.is_stranger() || !are_strangers_alone));
        let excess = |(holder, held): &(Holder, usize)| {
            let held = if *holder == own { held.saturating_add(more) } else { *held };
            (held as i128 - share.of(*holder) as i128, *holder == own)
        };
        let victim = candidates.max_by_key(excess)?;
        let is_above = victim.1 > share.of(victim.0);
        (is_above || victim.0 == own).then_some(victim.0)
    }
}

impl Holders {
    fn count(&mut self, holder: Holder, held: usize) {
        match holder.is_stranger() {
            true => {
                self.strangers += 1;
                self.held_by_strangers += held;
            }
            false => self.owners += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(last: u8) -> Holder {
        Holder::peer(Some(IpAddr::from([192, 0, 2, last])), true)
    }

    #[test]
    fn peers_are_distinguished_by_address_or_network() {
        let peer = |text: &str| Holder::peer(text.parse().ok(), false);
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        let all = [peer("192.0.2.1"), peer("::1"), peer("fe80::1"), Holder::owner(1)];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)));
        assert!(all.iter().all(|holder| !holder.is_stranger()));
        for address in ["192.0.2.1", "::1", "2001:db8::1", "fd00::1", "fe80::1"] {
            let stranger = Holder::peer(address.parse().ok(), true);
            assert!(stranger.is_stranger() && stranger != peer(address), "{address}");
        }
    }

    #[test]
    fn anonymous_callers_share_at_most_half_of_a_limit() {
        let share = |owners, strangers| {
            let share = Holders { owners, strangers, held_by_strangers: 0 }.share(100);
            (share.owner, share.stranger)
        };
        assert_eq!([share(1, 0), share(4, 0), share(0, 5)], [(100, 100), (25, 25), (50, 10)]);
        assert_eq!([share(3, 1), share(1, 1), share(1, 4)], [(25, 25), (50, 50), (50, 12)]);
        assert_eq!([share(200, 0), share(1, 200)], [(0, 0), (50, 0)]);
    }

    #[test]
    fn holder_furthest_above_its_share_is_the_victim() {
        let (a, b, c) = (Holder::owner(1), Holder::owner(2), Holder::owner(3));
        let victim = |holder, held: &[(Holder, usize)]| {
            Newcomer { holder, more: 1, most: 10 }.victim(held.iter().copied())
        };
        assert_eq!(victim(a, &[(a, 8), (b, 2)]), Some(a));
        assert_eq!(victim(b, &[(a, 8), (b, 2)]), Some(a));
        assert_eq!(victim(b, &[(a, 5), (b, 5)]), Some(b));
        assert_eq!(victim(c, &[(a, 6), (b, 4)]), Some(a));
        // Anonymous callers have at most half, even if the rest is free.
        let (s, t) = (stranger(1), stranger(2));
        assert_eq!(victim(s, &[(a, 1), (s, 5)]), Some(s));
        assert_eq!(victim(t, &[(a, 5), (s, 5)]), Some(s));
        assert_eq!(victim(t, &[(a, 7), (s, 3)]), Some(a));
        assert_eq!(victim(a, &[]), None);
    }
}
