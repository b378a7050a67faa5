//! Peers that sent wrong credentials, and their remaining budgets.
//!
//! Invariants: an entry is replaced only when its window is over, so other failing peers cannot
//! flush it. Peers without a slot are counted in one shared entry.

use std::{
    hash::Hasher,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{peer_bits, table::FixedTable};
use crate::{
    limits::callers::{
        PEER_CHECKS_MAX, PEER_FAILURE_WINDOW_MS, PEER_FAILURES_MAX, UNNOTED_CHECKS_MAX,
    },
    service::Now,
};

/// Length of the window in which checks are counted.
const CHECKS_WINDOW_MS: u64 = 1_000;

/// The peers that sent wrong credentials recently.
pub(super) struct FailingPeers {
    table: FixedTable<PeerFailures>,
    /// The shared counts of all peers that found no slot in the table.
    unnoted: Mutex<PeerFailures>,
    hasher: SipHasher24,
}

/// The counts of one peer.
#[derive(Clone, Copy)]
struct PeerFailures {
    failures: u32,
    since_ms: u64,
    /// Checks in the current second, and its start.
    checks: u32,
    checks_since_ms: u64,
    checks_max: u32,
}

impl PeerFailures {
    fn new(now: Now, checks_max: u32) -> PeerFailures {
        let (since_ms, checks_since_ms) = (now.mono_ms, now.mono_ms);
        PeerFailures { failures: 0, since_ms, checks: 0, checks_since_ms, checks_max }
    }

    fn is_young(&self, now: Now) -> bool {
        now.mono_ms < self.since_ms.saturating_add(PEER_FAILURE_WINDOW_MS)
    }

    fn has_failed(&self, now: Now) -> bool {
        self.failures >= PEER_FAILURES_MAX && self.is_young(now)
    }

    fn has_budget(&self, now: Now) -> bool {
        let is_over = now.mono_ms >= self.checks_since_ms.saturating_add(CHECKS_WINDOW_MS);
        is_over || self.checks < self.checks_max
    }

    fn draw(&mut self, now: Now) {
        if now.mono_ms >= self.checks_since_ms.saturating_add(CHECKS_WINDOW_MS) {
            (self.checks, self.checks_since_ms) = (0, now.mono_ms);
        }
        self.checks = self.checks.saturating_add(1);
    }

    /// Counts a failure; true: this failure reaches the limit.
    fn fail(&mut self, now: Now) -> bool {
        if !self.is_young(now) {
            *self = PeerFailures::new(now, self.checks_max);
        }
        self.failures = self.failures.saturating_add(1);
        self.failures == PEER_FAILURES_MAX
    }
}

impl FailingPeers {
    /// An empty table of at most `peers_max` peers.
    pub fn new(peers_max: usize, hasher: SipHasher24) -> FailingPeers {
        let unnoted = Mutex::new(PeerFailures::new(Now::default(), UNNOTED_CHECKS_MAX));
        FailingPeers { table: FixedTable::new(peers_max), unnoted, hasher }
    }

    /// Whether the peer sent [`PEER_FAILURES_MAX`] wrong credentials in the current window.
    pub fn has_failed(&self, address: IpAddr, now: Now) -> bool {
        self.look(address, now, |peer| peer.has_failed(now)).unwrap_or(false)
    }

    /// Whether a signature may be verified for the peer: always, unless the peer has reached the
    /// limit of failures and used up its budget of this second.
    pub fn may_check(&self, address: IpAddr, now: Now) -> bool {
        let may = |peer: &mut PeerFailures| !peer.has_failed(now) || peer.has_budget(now);
        self.look(address, now, may).unwrap_or(true)
    }

    /// Counts a verification for a peer that has reached the limit of failures.
    pub fn count_check(&self, address: IpAddr, now: Now) {
        let draw = |peer: &mut PeerFailures| {
            if peer.has_failed(now) {
                peer.draw(now);
            }
        };
        self.look(address, now, draw);
    }

    /// Counts a wrong credential of the peer. True: this failure reaches the limit in the current
    /// window.
    pub fn count_failure(&self, address: IpAddr, now: Now) -> bool {
        let key = self.key(address);
        if self.is_unnoted(key, now) {
            return self.unnoted().fail(now);
        }
        let make = || PeerFailures::new(now, PEER_CHECKS_MAX);
        let worth = |peer: &PeerFailures| peer.since_ms.saturating_add(1);
        let mut has_just_failed = false;
        self.table.change(key, make, worth, |peer| has_just_failed = peer.fail(now));
        has_just_failed
    }

    /// Reads the entry of a peer; `None`: the peer has not failed.
    fn look<R>(
        &self,
        address: IpAddr,
        now: Now,
        look: impl Fn(&mut PeerFailures) -> R,
    ) -> Option<R> {
        let key = self.key(address);
        let found = self.table.look(key, &look);
        found.or_else(|| self.is_unnoted(key, now).then(|| look(&mut self.unnoted())))
    }

    /// Whether the key has no entry, and all entries that it could replace are too young.
    fn is_unnoted(&self, key: u128, now: Now) -> bool {
        let is_full = self.table.is_full(key, |peer| peer.is_young(now));
        is_full && self.table.look(key, |_| ()).is_none()
    }

    fn unnoted(&self) -> std::sync::MutexGuard<'_, PeerFailures> {
        self.unnoted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, address: IpAddr) -> u128 {
        let mut hasher = self.hasher;
        // Domain separation from the hash of any credential.
        hasher.write_u8(u8::MAX);
        hasher.write_u128(peer_bits(address));
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now { mono_ms, unix_ms: mono_ms }
    }

    fn peer(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn peers() -> FailingPeers {
        FailingPeers::new(512, SipHasher24::new_with_keys(1, 2))
    }

    #[test]
    fn peer_failures_max() {
        let peers = peers();
        for n in 0..PEER_FAILURES_MAX {
            assert!(!peers.has_failed(peer(1), at(5)), "{n}");
            assert_eq!(peers.count_failure(peer(1), at(5)), n + 1 == PEER_FAILURES_MAX);
        }
        assert!(!peers.count_failure(peer(1), at(5)));
        assert!(peers.has_failed(peer(1), at(5)) && !peers.has_failed(peer(2), at(5)));
        // PEER_FAILURE_WINDOW_MS
        assert!(peers.has_failed(peer(1), at(4 + PEER_FAILURE_WINDOW_MS)));
        assert!(!peers.has_failed(peer(1), at(5 + PEER_FAILURE_WINDOW_MS)));
        peers.count_failure(peer(1), at(5 + PEER_FAILURE_WINDOW_MS));
        assert!(!peers.has_failed(peer(1), at(5 + PEER_FAILURE_WINDOW_MS)));
    }

    #[test]
    fn peer_checks_max() {
        let peers = peers();
        let checks = |ms: u64| {
            (0..1_000)
                .take_while(|_| {
                    let may = peers.may_check(peer(1), at(ms));
                    peers.count_check(peer(1), at(ms));
                    may
                })
                .count()
        };
        assert_eq!(checks(0), 1_000);
        (0..PEER_FAILURES_MAX).for_each(|_| _ = peers.count_failure(peer(1), at(1)));
        assert_eq!(checks(1), PEER_CHECKS_MAX as usize);
        assert_eq!((checks(999), checks(1_001)), (0, PEER_CHECKS_MAX as usize));
    }

    #[test]
    fn peer_entry_is_not_evicted_before_its_window_ends() {
        let peers = peers();
        (0..PEER_FAILURES_MAX).for_each(|_| _ = peers.count_failure(peer(0), at(0)));
        for n in 1..100_000 {
            peers.count_failure(peer(n), at(1));
        }
        assert!(peers.has_failed(peer(0), at(2)));
        // Peers without a slot share one entry, which has reached the limit as well.
        assert!(peers.has_failed(peer(200_000), at(2)));
        let checks = (0..2 * UNNOTED_CHECKS_MAX)
            .take_while(|n| {
                peers.count_check(peer(200_000 + n % 2), at(2));
                peers.may_check(peer(200_000), at(2))
            })
            .count();
        assert!(checks + 1 >= UNNOTED_CHECKS_MAX as usize / 2, "{checks}");
        // Old entries are replaced.
        let later = 2 + PEER_FAILURE_WINDOW_MS;
        assert!(!peers.has_failed(peer(200_000), at(later)));
        (0..PEER_FAILURES_MAX).for_each(|_| _ = peers.count_failure(peer(300_000), at(later)));
        assert!(peers.has_failed(peer(300_000), at(later)));
        assert!(!peers.has_failed(peer(300_001), at(later)));
    }
}
