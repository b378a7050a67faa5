//! Each connection's share of all buffers, and the choice of connections to cut when buffers run
//! short.
//!
//! Invariants: the connection with the largest cost for the others is cut first, not the connection
//! that happens to need more. The cost is the held bytes times the time for which they were held:
//! of two connections that began together the larger one has the larger cost. The time is the
//! average of all bytes: new bytes lower it, freed bytes do not change it. So a busy connection
//! stays as young as the bytes that it holds now, and a connection with a peer that reads only a
//! little now and then grows old. Each connection owns half of an equal part of
//! `buffers_bytes_max`: no connection is cut for this part, and the sum of the parts is half of the
//! limit. Cutting begins a little below the limit. At the limit all connections wait, without a
//! poll, until the cut connections have ended, so at most one poll of each worker exceeds the
//! limit.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use crate::limits::Limits;

/// Microseconds that are added to the age of all bytes, so that in a shortage many new bytes cost
/// more than a few old ones.
const HEAD_START_US: u64 = 250_000;
/// Maximum number of corrected positions of one class in one search, which bounds the search.
const CORRECTIONS_MAX: usize = 32;
/// Bits of a position below the bits of the class: microseconds of 2,000 years.
const TIME_BITS: u32 = 56;

/// The buffers of all connections.
pub(super) struct AllBuffers {
    /// Bytes of all buffers.
    bytes: Arc<AtomicUsize>,
    /// The part of `bytes` of connections that were cut and have not ended yet.
    leaving: AtomicUsize,
    /// Connections that were cut.
    cuts: AtomicU64,
    bytes_max: usize,
    /// The level above which a connection is cut.
    bytes_high: usize,
    /// Bytes that a connection may hold without being listed.
    own: usize,
    list: Mutex<ListedShares>,
    waiting: Mutex<RoomWaiters>,
    waiting_max: usize,
}

/// The connections that wait for room, and some that no longer wait.
struct RoomWaiters {
    wakers: Vec<Waker>,
    /// How often all waiting connections were woken, plus one.
    round: u32,
}

/// All connections that hold more than their own part, by class, then by time, then by number.
#[derive(Default)]
struct ListedShares {
    by_position: BTreeMap<(u64, u64), Arc<ListedShare>>,
    last_number: u64,
}

/// A listed connection. Only its owner changes `held` and `since_us`.
struct ListedShare {
    waker: Waker,
    held: AtomicUsize,
    /// The average time at which the bytes arrived, which never decreases.
    since_us: AtomicU64,
    /// The position in the list, changed under the lock: the class, which may be too high, and the
    /// time, which may be too early.
    position: AtomicU64,
    /// Of two entries at one position, the entry with the lower number is older.
    number: u64,
    /// Bytes that the connection held when it was cut; 0: it was not cut.
    cut: AtomicUsize,
}

impl ListedShare {
    /// The correct position.
    fn position(&self) -> u64 {
        position(self.held.load(Relaxed), self.since_us.load(Relaxed))
    }

    /// The position in the list.
    fn key(&self) -> (u64, u64) {
        (self.position.load(Relaxed), self.number)
    }

    /// The cost for the other connections, in bytes times microseconds.
    fn cost(&self, now_us: u64) -> u128 {
        let us = now_us.saturating_sub(self.since_us.load(Relaxed)) + HEAD_START_US;
        self.held.load(Relaxed) as u128 * u128::from(us)
    }

    /// Counts `held` bytes instead of the smaller `before`.
    fn grow(&self, before: usize, held: usize, now_us: u64) {
        let since_us = self.since_us.load(Relaxed);
        let younger = u128::from(now_us.saturating_sub(since_us)) * (held - before) as u128;
        self.since_us.store(since_us + (younger / held as u128) as u64, Relaxed);
        self.held.store(held, Relaxed);
    }
}

/// A position: a class and a time.
fn position(held: usize, since_us: u64) -> u64 {
    class(held) << TIME_BITS | since_us
}

/// The class of a size: there are four classes to a power of two.
fn class(held: usize) -> u64 {
    let held = held.max(4);
    let power = held.ilog2();
    u64::from(4 * power) + (held >> (power - 2) & 3) as u64
}

impl ListedShares {
    /// Inserts an entry at its correct position.
    fn insert(&mut self, entry: &Arc<ListedShare>) {
        entry.position.store(entry.position(), Relaxed);
        self.by_position.insert(entry.key(), Arc::clone(entry));
    }

    fn remove(&mut self, entry: &ListedShare) {
        self.by_position.remove(&entry.key());
    }

    /// The entry with the largest cost: only the oldest entry of each class is compared.
    fn first(&mut self, now_us: u64) -> Option<Arc<ListedShare>> {
        let (mut first, mut most, mut above) = (None, 0, u64::MAX);
        while let Some((&(position, _), _)) = self.by_position.range(..(above, 0)).next_back() {
            above = position >> TIME_BITS << TIME_BITS;
            let Some(oldest) = self.oldest(above) else { continue };
            let cost = oldest.cost(now_us);
            if cost > most {
                (first, most) = (Some(oldest), cost);
            }
        }
        first
    }

    /// The oldest entry from this position on, after entries that have become smaller or younger
    /// were moved to their correct positions. If this empties a class, the entry is of a later
    /// class, which is then compared twice.
    fn oldest(&mut self, from: u64) -> Option<Arc<ListedShare>> {
        for _ in 0..CORRECTIONS_MAX {
            let (_, entry) = self.by_position.range((from, 0)..).next()?;
            if entry.position() == entry.position.load(Relaxed) {
                break;
            }
            let entry = Arc::clone(entry);
            self.remove(&entry);
            self.insert(&entry);
        }
        self.by_position.range((from, 0)..).next().map(|(_, entry)| Arc::clone(entry))
    }
}

/// The round in which a connection began to wait for room; 0: it has never waited.
#[derive(Default)]
pub(super) struct WaitRound(u32);

/// The bytes that one connection holds; [`AllBuffers::release`] returns them.
#[derive(Default)]
pub(super) struct Share {
    held: usize,
    entry: Option<Arc<ListedShare>>,
}

impl Share {
    /// The counted bytes.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// True: the connection had the largest cost and must end.
    pub(super) fn is_cut(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.cut.load(Relaxed) > 0)
    }
}

impl RoomWaiters {
    fn wake(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl AllBuffers {
    /// Starts without buffers; `bytes` counts the bytes of all buffers.
    pub(super) fn new(limits: &Limits, bytes: &Arc<AtomicUsize>) -> AllBuffers {
        let bytes_max = limits.buffers_bytes_max;
        AllBuffers {
            bytes: Arc::clone(bytes),
            leaving: AtomicUsize::new(0),
            cuts: AtomicU64::new(0),
            bytes_max,
            bytes_high: bytes_max - bytes_max / 16,
            own: bytes_max / 2 / limits.connections_max,
            list: Mutex::default(),
            waiting: Mutex::new(RoomWaiters { wakers: Vec::new(), round: 1 }),
            // At least half of this many wakers belong to connections that no longer wait.
            waiting_max: 2 * limits.connections_max,
        }
    }

    /// True: no connection may take more until the cut connections have ended, which wakes `waker`.
    pub(super) fn must_wait(&self, since: &mut WaitRound, waker: &Waker) -> bool {
        self.is_full() && self.wait(since, waker)
    }

    #[cold]
    fn wait(&self, since: &mut WaitRound, waker: &Waker) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock, which a connection takes after it has freed memory.
        if !self.is_full() {
            return false;
        }
        if waiting.wakers.len() >= self.waiting_max {
            // Waiting connections register again; the other wakers only held memory.
            waiting.wake();
        }
        if since.0 != waiting.round {
            since.0 = waiting.round;
            waiting.wakers.push(waker.clone());
        }
        true
    }

    /// Wakes the connections that wait for room.
    #[cold]
    fn wake_waiting(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).wake();
    }

    /// Stops counting `bytes`.
    fn give_back(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Relaxed);
        if before > self.bytes_max && before - bytes <= self.bytes_max {
            self.wake_waiting();
        }
    }

    /// Connections that were cut so that others have room.
    #[cfg(feature = "metrics")]
    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Relaxed)
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max && self.leaving.load(Relaxed) > 0
    }

    /// Counts `held` bytes for a connection, which `waker` wakes. Cuts the connections with the
    /// largest cost if the sum is too large. False: the new bytes must be freed, because this
    /// connection was cut, or is the next to be cut, or because no connection can be cut.
    #[must_use]
    pub(super) fn charge(
        &self,
        share: &mut Share,
        held: usize,
        now_ms: u64,
        waker: &Waker,
    ) -> bool {
        if held <= share.held {
            self.shrink(share, held);
            return !share.is_cut();
        }
        let before = std::mem::replace(&mut share.held, held);
        let more = held - before;
        let all = self.bytes.fetch_add(more, Relaxed) + more;
        if held > self.own {
            self.note(share, before, now_ms * 1_000, waker);
        }
        if all > self.bytes_high {
            let has_room = self.make_room(share.entry.as_ref(), now_ms * 1_000);
            if !has_room || (all > self.bytes_max && self.leaving.load(Relaxed) == 0) {
                return false;
            }
        }
        !share.is_cut()
    }

    /// Notes that a connection now holds only `held` bytes.
    pub(super) fn shrink(&self, share: &mut Share, held: usize) {
        let before = std::mem::replace(&mut share.held, held);
        self.give_back(before - held);
        if let Some(entry) = &share.entry {
            entry.held.store(held, Relaxed);
            if held <= self.own {
                self.unlist(share);
            }
        }
    }

    /// Notes that a connection holds no bytes any more.
    pub(super) fn release(&self, share: &mut Share) {
        if share.is_cut() {
            self.cuts.fetch_add(1, Relaxed);
        }
        if share.held > 0 {
            self.give_back(std::mem::take(&mut share.held));
        }
        if let Some(entry) = share.entry.take() {
            self.lock().remove(&entry);
            let cut = entry.cut.load(Relaxed);
            if cut > 0 && self.leaving.fetch_sub(cut, Relaxed) == cut {
                self.wake_waiting();
            }
        }
    }

    /// Notes growth of a connection that holds more than its own part.
    fn note(&self, share: &mut Share, before: usize, now_us: u64, waker: &Waker) {
        let Some(entry) = &share.entry else { return self.enlist(share, now_us, waker) };
        entry.grow(before, share.held, now_us);
        if class(share.held) > entry.position.load(Relaxed) >> TIME_BITS {
            self.move_up(entry);
        }
    }

    /// Lists a connection.
    #[cold]
    fn enlist(&self, share: &mut Share, now_us: u64, waker: &Waker) {
        let mut list = self.lock();
        list.last_number += 1;
        let entry = Arc::new(ListedShare {
            waker: waker.clone(),
            held: AtomicUsize::new(share.held),
            since_us: AtomicU64::new(now_us),
            position: AtomicU64::default(),
            number: list.last_number,
            cut: AtomicUsize::new(0),
        });
        list.insert(&entry);
        share.entry = Some(entry);
    }

    /// Moves an entry to the class that it has grown into.
    #[cold]
    fn move_up(&self, entry: &Arc<ListedShare>) {
        let mut list = self.lock();
        if entry.cut.load(Relaxed) == 0 {
            list.remove(entry);
            list.insert(entry);
        }
    }

    /// Removes a connection from the list, unless it was cut.
    #[cold]
    fn unlist(&self, share: &mut Share) {
        let mut list = self.lock();
        if let Some(entry) = share.entry.take_if(|entry| entry.cut.load(Relaxed) == 0) {
            list.remove(&entry);
        }
    }

    /// Cuts the connections with the largest cost until the sum is small enough; false: the
    /// caller's connection, `own`, is next.
    #[cold]
    fn make_room(&self, own: Option<&Arc<ListedShare>>, now_us: u64) -> bool {
        let mut list = self.lock();
        loop {
            let all = self.bytes.load(Relaxed).saturating_sub(self.leaving.load(Relaxed));
            if all <= self.bytes_high {
                return true;
            }
            let Some(first) = list.first(now_us) else { return true };
            if own.is_some_and(|own| Arc::ptr_eq(own, &first)) {
                return false;
            }
            list.remove(&first);
            let held = first.held.load(Relaxed).max(1);
            self.leaving.fetch_add(held, Relaxed);
            first.cut.store(held, Relaxed);
            first.waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListedShares> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    const KB: usize = 1024;
    const MB: usize = 1024 * KB;

    /// Buffers of 16 MiB, of which 8 KiB are each connection's own; all connections share a clock.
    struct Rig {
        buffers: AllBuffers,
        now_ms: u64,
        shares: Vec<Share>,
    }

    impl Rig {
        fn new() -> Rig {
            let limits =
                Limits { buffers_bytes_max: 16 * MB, connections_max: 1024, ..Limits::default() };
            Rig {
                buffers: AllBuffers::new(&limits, &Arc::default()),
                now_ms: 1_000_000,
                shares: Vec::new(),
            }
        }

        /// Opens a connection with the next number and `held` bytes; returns whether it may hold
        /// them.
        fn open(&mut self, held: usize) -> bool {
            self.shares.push(Share::default());
            self.hold(self.shares.len() - 1, held)
        }

        /// Changes the bytes that a connection holds, without checking whether it was cut before.
        fn hold(&mut self, at: usize, held: usize) -> bool {
            self.buffers.charge(&mut self.shares[at], held, self.now_ms, Waker::noop())
        }

        fn cut(&self) -> Vec<usize> {
            (0..self.shares.len()).filter(|at| self.shares[*at].is_cut()).collect()
        }

        /// Opens `count` other connections, which read nothing; false: connection `at` was cut for
        /// them.
        fn outlives(&mut self, at: usize, count: usize, held: usize, each_ms: u64) -> bool {
            (0..count).all(|_| {
                self.now_ms += each_ms;
                self.open(held);
                self.cut().iter().for_each(|at| self.buffers.release(&mut self.shares[*at]));
                self.shares[at].held() > 0
            })
        }
    }

    /// Asserts that nothing is held or listed any more.
    fn assert_empty(buffers: &AllBuffers) {
        let remaining = [&*buffers.bytes, &buffers.leaving].map(|bytes| bytes.load(Relaxed));
        assert_eq!((remaining, buffers.lock().by_position.len()), ([0, 0], 0));
    }

    #[test]
    fn largest_connection_is_cut_instead_of_the_newest() {
        let mut rig = Rig::new();
        let sizes = [3 * MB, 200 * KB, 7 * MB, 2 * MB, 2 * MB];
        assert!(sizes.into_iter().all(|held| rig.open(held)) && rig.cut().is_empty());
        assert!(rig.open(900 * KB));
        assert_eq!(rig.cut(), [2]);
    }

    #[test]
    fn oldest_of_equally_large_connections_is_cut() {
        let mut rig = Rig::new();
        for _ in 0..160 {
            rig.now_ms += 10;
            assert!(rig.open(96 * KB));
        }
        assert!(rig.cut().is_empty());
        // The new connection holds more than any of the others, but is younger.
        assert!(rig.open(200 * KB));
        assert_eq!(rig.cut(), [0, 1, 2]);
        // A connection that has released everything is new again.
        assert!(rig.hold(3, 0) && rig.hold(3, 96 * KB));
        assert!(rig.open(200 * KB));
        assert_eq!(rig.cut(), [0, 1, 2, 4, 5]);
    }

    #[test]
    fn first_of_equally_old_and_large_connections_is_cut() {
        let mut rig = Rig::new();
        assert!((0..160).all(|_| rig.open(96 * KB)));
        assert!(rig.open(90 * KB));
        assert_eq!(rig.cut(), [0]);
    }

    #[test]
    fn slow_upload_outlives_large_unread_answers() {
        let mut rig = Rig::new();
        assert!(rig.open(KB));
        // An upload of 200 KB in three seconds; each reader is connected for less than one second.
        for part in 1..=60 {
            assert!(rig.hold(0, part * 200 * KB / 60));
            assert!(rig.outlives(0, 1, 900 * KB, 50));
        }
        // Larger answers that arrive together do not take the room of the upload either.
        assert!(rig.outlives(0, 10, 7 * MB, 0));
        // A connection that never releases its bytes is cut in the end, however few they are.
        rig.now_ms += 1_000_000;
        assert!(!rig.outlives(0, 20, 900 * KB, 50));
    }

    #[test]
    fn connection_age_is_the_age_of_its_held_bytes() {
        let mut rig = Rig::new();
        assert!(rig.open(400 * KB) && rig.open(400 * KB));
        // The first connection releases some bytes every tenth of a second and takes as many again.
        for _ in 0..600 {
            rig.now_ms += 100;
            assert!(rig.hold(0, 340 * KB) && rig.hold(0, 400 * KB));
        }
        let entry = rig.shares[0].entry.as_ref().unwrap();
        let age_ms = rig.now_ms - entry.since_us.load(Relaxed) / 1_000;
        // 60 KB in a tenth of a second are 400 KB in 667 ms.
        assert!((500..=700).contains(&age_ms), "{age_ms}");
        assert!(!rig.outlives(1, 20, 900 * KB, 50) && rig.shares[0].held() > 0);
        for _ in 0..20 {
            assert!(rig.hold(0, 340 * KB) && rig.hold(0, 400 * KB));
            assert!(rig.outlives(0, 2, 900 * KB, 50));
        }
    }

    #[test]
    fn slow_reader_is_cut_despite_small_reads() {
        let mut rig = Rig::new();
        assert!(rig.open(900 * KB) && rig.open(200 * KB));
        for remaining in (600..900).rev() {
            rig.now_ms += 100;
            assert!(rig.hold(0, remaining * KB));
        }
        // The new connection holds little less than the first one did.
        assert!(rig.open(500 * KB));
        rig.now_ms += 100;
        assert!(rig.open(14 * MB));
        assert_eq!(rig.cut(), [0]);
    }

    #[test]
    fn shrunk_and_younger_entries_move_to_their_correct_positions() {
        let mut rig = Rig::new();
        // More entries than one search corrects, in a class that they leave.
        assert!((0..4 * CORRECTIONS_MAX).all(|_| rig.open(100 * KB)));
        rig.now_ms += 5_000;
        assert!((0..4 * CORRECTIONS_MAX).all(|at| rig.hold(at, 10 * KB)));
        assert!(rig.open(100 * KB) && (0..13).all(|_| rig.open(MB)));
        rig.now_ms += 5_000;
        for at in 0..2 * CORRECTIONS_MAX {
            assert!(rig.hold(at, 12 * KB));
        }
        assert!(rig.open(MB));
        assert_eq!(rig.cut(), [4 * CORRECTIONS_MAX + 1]);
        let mut shares = std::mem::take(&mut rig.shares);
        shares.iter_mut().for_each(|share| rig.buffers.release(share));
        assert_empty(&rig.buffers);
    }

    #[test]
    fn connection_within_its_own_bytes_is_never_cut() {
        let mut rig = Rig::new();
        assert!((0..1023).all(|_| rig.open(8 * KB)));
        rig.now_ms += 1_000_000;
        assert!(rig.open(7 * MB));
        // The others hold only their own part, so the connection that needs more must end.
        assert!(!rig.hold(1023, 9 * MB));
        assert!(rig.cut().is_empty());
    }

    #[test]
    fn buffers_are_full_until_cut_connections_are_released() {
        let mut rig = Rig::new();
        assert!((0..5).all(|_| rig.open(3 * MB)));
        assert!(!rig.buffers.is_full() && rig.cut().is_empty());
        assert!(rig.open(2 * MB) && rig.buffers.is_full());
        assert_eq!(rig.cut(), [0]);
        rig.buffers.release(&mut rig.shares[0]);
        assert!(!rig.buffers.is_full());
        // After everything was released, nothing is counted.
        rig.shares.iter_mut().for_each(|share| rig.buffers.release(share));
        assert_empty(&rig.buffers);
    }

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn waiting_connection_is_woken_when_bytes_are_released() {
        let mut rig = Rig::new();
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut waiting = WaitRound::default();
        assert!(!rig.buffers.must_wait(&mut waiting, &waker));
        // First case: the cut connection ends.
        assert!((0..5).all(|_| rig.open(3 * MB)) && rig.open(2 * MB));
        for _ in 0..10_000 {
            assert!(rig.buffers.must_wait(&mut waiting, &waker));
        }
        rig.buffers.release(&mut rig.shares[0]);
        assert_eq!(woken.0.load(Relaxed), 1);
        assert!(!rig.buffers.must_wait(&mut waiting, &waker));
        // Second case: another connection releases bytes.
        assert!(rig.open(3 * MB));
        assert!(rig.buffers.must_wait(&mut waiting, &waker));
        assert!(rig.hold(5, 1) && !rig.cut().is_empty());
        assert_eq!(woken.0.load(Relaxed), 2);
        assert!(!rig.buffers.must_wait(&mut waiting, &waker));
        rig.shares.iter_mut().for_each(|share| rig.buffers.release(share));
        // Wakers of connections that have ended meanwhile are not retained for ever.
        assert!((0..6).all(|_| rig.open(3 * MB)));
        for _ in 0..10_000 {
            assert!(rig.buffers.must_wait(&mut WaitRound::default(), &waker));
        }
        assert!(rig.buffers.waiting.lock().unwrap().wakers.len() <= 2 * 1024);
    }

    #[test]
    fn concurrent_charges_and_cuts_leave_no_bytes_counted() {
        let rig = Rig::new();
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let buffers = &rig.buffers;
                scope.spawn(move || {
                    let (mut shares, mut random) = ([(); 8].map(|()| Share::default()), seed);
                    for now_ms in 0..20_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let share = &mut shares[(random >> 60) as usize % 8];
                        let held = (random >> 33) as usize % (2 * MB);
                        let held = if held.is_multiple_of(3) { held / 200 } else { held };
                        if !buffers.charge(share, held, now_ms, Waker::noop()) {
                            buffers.release(share);
                        }
                    }
                    shares.iter_mut().for_each(|share| buffers.release(share));
                });
            }
        });
        assert_empty(&rig.buffers);
    }
}
