//! The connections that count against one limit, by peer.
//!
//! Below the limit every connection is accepted. At the limit a new connection takes the slot of a
//! connection of the peer with the most connections, if that peer then still has at least as many
//! connections as the new one's peer; otherwise the new connection is refused. Of that peer's
//! connections an idle one ends first, then one without an authenticated request, then the oldest.
//! Invariant: at most [`ENDING_MAX`] connections exist beyond the limit, and each of these ends
//! when it is polled next.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    task::Waker,
};

use crate::engine::Activity;

/// Maximum number of connections that must end and have not ended yet.
const ENDING_MAX: usize = 64;
/// How many of a peer's oldest connections are searched for the connection to end.
const SEARCHED_MAX: usize = 1_024;

/// The unit that is counted as a peer: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PeerKey(u64);

impl PeerKey {
    /// A peer without a known address. Its connections count for no peer, and are never ended for a
    /// new connection.
    pub(super) const UNKNOWN: PeerKey = PeerKey(u64::MAX);

    /// The key of an address. IPv4 addresses get numbers that are reserved in IPv6 (0::/8).
    pub(super) fn of(address: IpAddr) -> PeerKey {
        match address.to_canonical() {
            IpAddr::V4(address) => PeerKey(u64::from(address.to_bits())),
            IpAddr::V6(address) => PeerKey((address.to_bits() >> 64) as u64),
        }
    }
}

/// The connections that count against one limit.
pub(super) struct PeerTable {
    most: usize,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// The connections that are not ending, by peer, then by age.
    by_peer: BTreeMap<(PeerKey, u64), Arc<ListedConnection>>,
    /// The number of connections of each known peer.
    counts: HashMap<PeerKey, usize>,
    /// The known peers, ordered by their number of connections.
    ranking: BTreeSet<(usize, PeerKey)>,
    last_number: u64,
    ending: usize,
}

struct ListedConnection {
    table: Arc<PeerTable>,
    number: u64,
    remote: Option<IpAddr>,
    activity: AtomicU8,
    is_ending: AtomicBool,
    changing: Mutex<Changing>,
}

struct Changing {
    peer: PeerKey,
    waker: Waker,
}

/// One connection in a table; dropping it removes the connection.
pub(super) struct PeerEntry(Arc<ListedConnection>);

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) entry: PeerEntry,
    /// True: another connection ends for this one.
    pub(super) evicts: bool,
}

impl PeerTable {
    /// An empty table for at most `most` connections.
    pub(super) fn new(most: usize) -> Arc<PeerTable> {
        Arc::new(PeerTable { most, connections: Mutex::default() })
    }

    /// Adds a connection that counts for `peer` and comes from the address `remote`; `None`: the
    /// table is full, and no other connection may end.
    pub(super) fn accept(
        self: &Arc<PeerTable>,
        peer: PeerKey,
        remote: Option<IpAddr>,
    ) -> Option<Accepted> {
        let mut connections = self.lock();
        let evicts = connections.by_peer.len() >= self.most;
        if evicts {
            connections.evict(peer)?;
        }
        connections.last_number += 1;
        let entry = Arc::new(ListedConnection {
            table: Arc::clone(self),
            number: connections.last_number,
            remote,
            activity: AtomicU8::new(Activity::Idle as u8),
            is_ending: AtomicBool::new(false),
            changing: Mutex::new(Changing { peer, waker: Waker::noop().clone() }),
        });
        connections.insert(peer, Arc::clone(&entry));
        drop(connections);
        Some(Accepted { entry: PeerEntry(entry), evicts })
    }

    /// Connections in the table, including those that are ending.
    pub(super) fn count(&self) -> usize {
        let connections = self.lock();
        connections.by_peer.len() + connections.ending
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    fn insert(&mut self, peer: PeerKey, entry: Arc<ListedConnection>) {
        self.by_peer.insert((peer, entry.number), entry);
        self.recount(peer, |count| count + 1);
    }

    fn remove(&mut self, peer: PeerKey, number: u64) -> Option<Arc<ListedConnection>> {
        let entry = self.by_peer.remove(&(peer, number));
        self.recount(peer, |count| count - 1);
        entry
    }

    fn recount(&mut self, peer: PeerKey, change: impl FnOnce(usize) -> usize) {
        if peer == PeerKey::UNKNOWN {
            return;
        }
        let count = self.counts.entry(peer).or_default();
        self.ranking.remove(&(*count, peer));
        *count = change(*count);
        match *count {
            0 => drop(self.counts.remove(&peer)),
            count => drop(self.ranking.insert((count, peer))),
        }
    }

    /// Ends a connection for a new connection of the peer `own`; `None`: no connection may end.
    fn evict(&mut self, own: PeerKey) -> Option<()> {
        let &(most, peer) = self.ranking.last()?;
        let own = self.counts.get(&own).copied().unwrap_or_default();
        if most < own + 2 || self.ending >= ENDING_MAX {
            return None;
        }
        let of_peer = self.by_peer.range((peer, 0)..=(peer, u64::MAX)).take(SEARCHED_MAX);
        let rank = |((_, number), entry): &(&(_, u64), &Arc<ListedConnection>)| {
            (entry.activity.load(Relaxed), *number)
        };
        let (&(_, number), _) = of_peer.min_by_key(rank)?;
        let entry = self.remove(peer, number)?;
        self.ending += 1;
        entry.is_ending.store(true, Relaxed);
        entry.changing().waker.wake_by_ref();
        Some(())
    }
}

impl ListedConnection {
    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerEntry {
    /// Sets the task that is woken when the connection has to end.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.0.changing().waker.clone_from(waker);
    }

    /// True: the connection has to end now.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.0.is_ending.load(Relaxed)
    }

    /// Notes the activity of the connection.
    #[inline]
    pub(super) fn note(&self, activity: Activity) {
        if self.0.activity.load(Relaxed) != activity as u8 {
            self.0.activity.store(activity as u8, Relaxed);
        }
    }

    /// The address of the peer; `None`: unknown.
    #[inline]
    pub(super) fn remote(&self) -> Option<IpAddr> {
        self.0.remote
    }

    /// The peer that the connection counts for.
    #[cfg(feature = "grpc")]
    pub(super) fn peer(&self) -> PeerKey {
        self.0.changing().peer
    }

    /// Counts the connection for another peer.
    pub(super) fn set_peer(&self, peer: PeerKey) {
        let ListedConnection { table, number, .. } = &*self.0;
        if self.0.changing().peer == peer {
            return;
        }
        let mut connections = table.lock();
        let before = std::mem::replace(&mut self.0.changing().peer, peer);
        if !self.is_ending() {
            connections.remove(before, *number);
            connections.insert(peer, Arc::clone(&self.0));
        }
    }

    /// True: the connection is in this table.
    pub(super) fn is_in(&self, table: &Arc<PeerTable>) -> bool {
        Arc::ptr_eq(&self.0.table, table)
    }
}

impl Drop for PeerEntry {
    fn drop(&mut self) {
        let mut connections = self.0.table.lock();
        if self.is_ending() {
            connections.ending -= 1;
            return;
        }
        let peer = self.0.changing().peer;
        connections.remove(peer, self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer(last: u8) -> PeerKey {
        PeerKey::of(IpAddr::from([192, 0, 2, last]))
    }

    /// Accepts `count` connections of a peer.
    fn fill(table: &Arc<PeerTable>, last: u8, count: usize) -> Vec<PeerEntry> {
        (0..count).map(|_| table.accept(peer(last), None).unwrap().entry).collect()
    }

    fn ending(entries: &[PeerEntry]) -> Vec<usize> {
        (0..entries.len()).filter(|at| entries[*at].is_ending()).collect()
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let key = |text: &str| PeerKey::of(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), peer(1));
        assert_ne!(peer(1), peer(2));
    }

    #[test]
    fn eviction_order_is_idle_unauthenticated_oldest() {
        let table = PeerTable::new(8);
        let mut held = fill(&table, 1, 8);
        let doing = [Activity::Authenticated, Activity::Unauthenticated, Activity::Idle];
        held.iter().zip(doing.iter().cycle()).for_each(|(entry, activity)| entry.note(*activity));
        let mut added = Vec::new();
        for expected in [&[2][..], &[2, 5], &[1, 2, 5], &[1, 2, 4, 5]] {
            let last = added.len() as u8 + 2;
            let Accepted { entry, evicts } = table.accept(peer(last), None).unwrap();
            assert!(evicts);
            added.push(entry);
            assert_eq!(ending(&held), expected);
        }
        held.truncate(1);
        assert_eq!(table.count(), 5);
    }

    #[test]
    fn connections_below_the_limit_evict_nothing() {
        let table = PeerTable::new(8);
        let held = fill(&table, 1, 7);
        let last = table.accept(peer(2), None).unwrap();
        assert!(!last.evicts && ending(&held).is_empty());
        drop(last);
        assert!(!table.accept(peer(1), None).unwrap().evicts && ending(&held).is_empty());
    }

    #[test]
    fn largest_peer_is_refused_and_equal_peers_keep_their_slots() {
        let table = PeerTable::new(4);
        let mut first = fill(&table, 1, 4);
        assert!(table.accept(peer(1), None).is_none());
        let second = fill(&table, 2, 2);
        assert_eq!(ending(&first).len(), 2);
        first.retain(|entry| !entry.is_ending());
        // Both peers have two connections now: neither takes a slot of the other.
        assert!(table.accept(peer(1), None).is_none() && table.accept(peer(2), None).is_none());
        assert!(table.accept(peer(3), None).is_some() && ending(&second).len() <= 1);
    }

    #[test]
    fn connection_counts_for_its_last_set_peer() {
        let table = PeerTable::new(4);
        let held: Vec<_> =
            (0..4).map(|_| table.accept(PeerKey::UNKNOWN, None).unwrap().entry).collect();
        assert!(table.accept(peer(9), None).is_none());
        held.iter().for_each(|entry| entry.set_peer(peer(1)));
        held[3].set_peer(peer(2));
        assert!(table.accept(peer(9), None).is_some());
        assert_eq!(ending(&held), [0]);
        held[0].set_peer(peer(3));
        drop(held);
        assert_eq!(table.count(), 0);
    }

    proptest! {
        /// The limit holds, the counts match the connections, and no peer at or below an equal
        /// share loses a connection to another peer.
        #[test]
        fn random_peers_keep_their_counts_limit_and_equal_shares(
            most in 1..20_usize,
            steps in prop::collection::vec((0..5_u8, 0..3_u8, 0..30_usize), 0..300),
        ) {
            let table = PeerTable::new(most);
            let mut held: Vec<(u8, PeerEntry)> = Vec::new();
            let count = |held: &[(u8, PeerEntry)], last: u8| {
                held.iter().filter(|(of, entry)| *of == last && !entry.is_ending()).count()
            };
            for (last, step, at) in steps {
                match step {
                    0 if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                    1 if !held.is_empty() => {
                        let at = at % held.len();
                        held[at].0 = last;
                        held[at].1.set_peer(peer(last));
                    }
                    _ => {
                        let before: Vec<usize> = (0..5).map(|of| count(&held, of)).collect();
                        let accepted = table.accept(peer(last), None);
                        if let Some(Accepted { entry, .. }) = accepted {
                            held.push((last, entry));
                        }
                        for of in 0..5 {
                            let (was, is) = (before[of as usize], count(&held, of));
                            prop_assert!(is >= was || is >= count(&held, last));
                        }
                    }
                }
                let all: usize = (0..5).map(|of| count(&held, of)).sum();
                prop_assert!(all <= most && table.count() == held.len());
                prop_assert!(held.len() <= most + ENDING_MAX);
                let connections = table.lock();
                prop_assert_eq!(connections.counts.values().sum::<usize>(), all);
                prop_assert_eq!(connections.ranking.len(), connections.counts.len());
            }
        }
    }
}
