//! What each connection holds of all buffers together, and who is cut when they run short.
//!
//! Laws: whoever holds most is cut first, never the one that happens to need more; among those that
//! hold less than [`SMALL`] it is the one that has held it longest. Half of an equal part of
//! `buffers_bytes_max` is everybody's own: nobody is cut for it, and all of it is half of the
//! limit. Cutting begins a little below the limit. At the limit everybody waits until those that
//! were cut are gone, so that it is passed by one turn of each worker at most.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use crate::limits::Limits;

/// Up to here it is ordinary requests and answers that are held; they come and go.
const SMALL: usize = 1024 * 1024;
/// Bits of a rank below those of the size.
const AGE_BITS: u32 = 56;

/// The buffers of all connections.
pub(super) struct Buffers {
    /// Bytes of them.
    bytes: Arc<AtomicUsize>,
    /// Those among `bytes` whose connections were cut and are not gone yet.
    leaving: AtomicUsize,
    bytes_max: usize,
    /// Above it somebody is cut.
    bytes_high: usize,
    /// Bytes that a connection may hold without being listed.
    own: usize,
    list: Mutex<List>,
}

/// All connections that hold more than their own; the last one is cut first.
#[derive(Default)]
struct List {
    by_rank: BTreeMap<u64, Arc<Entry>>,
    ranks_given: u64,
}

struct Entry {
    waker: Waker,
    held: AtomicUsize,
    /// Its place in the list, changed under the lock.
    rank: AtomicU64,
    /// Bytes that it held when it was cut; 0: it is not.
    cut: AtomicUsize,
}

/// What one connection holds; given back by [`Buffers::release`].
#[derive(Default)]
pub(super) struct Share {
    held: usize,
    entry: Option<Arc<Entry>>,
}

impl Share {
    /// Bytes that are counted.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// True: the connection held most and must go.
    pub(super) fn is_cut(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.cut.load(Relaxed) > 0)
    }
}

impl Buffers {
    /// No buffers yet; `bytes` is where all of them are counted.
    pub(super) fn new(limits: &Limits, bytes: &Arc<AtomicUsize>) -> Buffers {
        let bytes_max = limits.buffers_bytes_max;
        Buffers {
            bytes: Arc::clone(bytes),
            leaving: AtomicUsize::new(0),
            bytes_max,
            bytes_high: bytes_max - bytes_max / 16,
            own: bytes_max / 2 / limits.connections_max,
            list: Mutex::default(),
        }
    }

    /// True: nobody may take more until those that were cut are gone.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max && self.leaving.load(Relaxed) > 0
    }

    /// Notes that a connection, which `waker` wakes, holds `held` bytes now. Cuts those that hold
    /// most when all together hold too much. False: what grew here must go, because it was cut, or
    /// would be, or because there is nobody to cut.
    #[must_use]
    pub(super) fn charge(&self, share: &mut Share, held: usize, waker: &Waker) -> bool {
        let before = std::mem::replace(&mut share.held, held);
        let all = self.add(before, held);
        if let Some(entry) = &share.entry {
            entry.held.store(held, Relaxed);
        }
        if self.class(before) != self.class(held) {
            self.enlist(share, waker);
        }
        if held > before && all > self.bytes_high {
            let has_room = self.make_room(share.entry.as_ref());
            if !has_room || (all > self.bytes_max && self.leaving.load(Relaxed) == 0) {
                return false;
            }
        }
        !share.is_cut()
    }

    /// Counts `held` bytes instead of `before`; returns the sum.
    fn add(&self, before: usize, held: usize) -> usize {
        match held.checked_sub(before) {
            Some(more) => self.bytes.fetch_add(more, Relaxed) + more,
            None => self.bytes.fetch_sub(before - held, Relaxed) - (before - held),
        }
    }

    /// Notes that a connection holds nothing any more.
    pub(super) fn release(&self, share: &mut Share) {
        if share.held > 0 {
            self.add(std::mem::take(&mut share.held), 0);
        }
        if let Some(entry) = share.entry.take() {
            self.lock().by_rank.remove(&entry.rank.load(Relaxed));
            self.leaving.fetch_sub(entry.cut.load(Relaxed), Relaxed);
        }
    }

    /// Gives a connection whose class has changed its place in the list.
    #[cold]
    fn enlist(&self, share: &mut Share, waker: &Waker) {
        let class = self.class(share.held);
        let mut list = self.lock();
        if share.is_cut() {
            return;
        }
        if let Some(entry) = &share.entry {
            list.by_rank.remove(&entry.rank.load(Relaxed));
        }
        if class == 0 {
            share.entry = None;
            return;
        }
        // Of two in one class the one that came later has the lower rank.
        list.ranks_given += 1;
        let rank = (u64::from(class + 1) << AGE_BITS) - list.ranks_given;
        let held = AtomicUsize::new(share.held);
        let new = || {
            let (rank, cut) = (AtomicU64::new(rank), AtomicUsize::new(0));
            Arc::new(Entry { waker: waker.clone(), held, rank, cut })
        };
        let entry = share.entry.get_or_insert_with(new);
        entry.rank.store(rank, Relaxed);
        list.by_rank.insert(rank, Arc::clone(entry));
    }

    /// Cuts those that hold most until the rest is little enough; false: the one who asks, `own`,
    /// is next.
    #[cold]
    fn make_room(&self, own: Option<&Arc<Entry>>) -> bool {
        let mut list = self.lock();
        loop {
            let all = self.bytes.load(Relaxed).saturating_sub(self.leaving.load(Relaxed));
            if all <= self.bytes_high {
                return true;
            }
            let Some(last) = list.by_rank.last_entry() else { return true };
            if own.is_some_and(|own| Arc::ptr_eq(own, last.get())) {
                return false;
            }
            let entry = last.remove();
            let held = entry.held.load(Relaxed).max(1);
            self.leaving.fetch_add(held, Relaxed);
            entry.cut.store(held, Relaxed);
            entry.waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is compared: 0 for what is one's own, 1 for what is small, then powers of two.
    fn class(&self, held: usize) -> u32 {
        match held {
            own if own <= self.own => 0,
            ..SMALL => 1,
            large => 2 + (large / SMALL).ilog2(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1024;

    /// Buffers of 16 MiB, of which 8 KiB are everybody's own.
    fn buffers() -> Buffers {
        let limits =
            Limits { buffers_bytes_max: 16 * SMALL, connections_max: 1024, ..Limits::default() };
        Buffers::new(&limits, &Arc::default())
    }

    /// What a connection does, without looking at whether it was cut before.
    fn grow(buffers: &Buffers, held: usize) -> (Share, bool) {
        let mut share = Share::default();
        let fits = buffers.charge(&mut share, held, Waker::noop());
        (share, fits)
    }

    fn cut(shares: &[Share]) -> Vec<usize> {
        (0..shares.len()).filter(|at| shares[*at].is_cut()).collect()
    }

    #[test]
    fn who_holds_most_is_cut_and_not_who_grows() {
        let buffers = buffers();
        let sizes = [3 * SMALL, 200 * KB, 7 * SMALL, 2 * SMALL, 2 * SMALL];
        let shares = sizes.map(|held| grow(&buffers, held).0);
        assert!(cut(&shares).is_empty());
        let (_small, fits) = grow(&buffers, 900 * KB);
        assert!(fits && cut(&shares) == [2]);
    }

    #[test]
    fn of_the_small_the_oldest_is_cut() {
        let buffers = buffers();
        let mut shares: Vec<_> = (0..160).map(|_| grow(&buffers, 96 * KB).0).collect();
        assert!(cut(&shares).is_empty());
        // It holds more than any of them, but has only just come.
        let (_witness, fits) = grow(&buffers, 200 * KB);
        assert!(fits);
        assert_eq!(cut(&shares), [0, 1, 2]);
        // One that has moved on meanwhile is new again.
        let moving = &mut shares[3];
        assert!(buffers.charge(moving, 0, Waker::noop()));
        assert!(buffers.charge(moving, 96 * KB, Waker::noop()));
        let (_witness, fits) = grow(&buffers, 200 * KB);
        assert!(fits);
        assert_eq!(cut(&shares), [0, 1, 2, 4, 5]);
    }

    #[test]
    fn what_is_ones_own_is_never_cut() {
        let buffers = buffers();
        let shares: Vec<_> = (0..1023).map(|_| grow(&buffers, 8 * KB)).collect();
        let (mut greedy, fits) = grow(&buffers, 7 * SMALL);
        assert!(fits);
        // With all the others cut, one that needs it all must go itself.
        assert!(!buffers.charge(&mut greedy, 9 * SMALL, Waker::noop()));
        assert!(shares.iter().all(|(share, fits)| *fits && !share.is_cut()));
    }

    #[test]
    fn everybody_waits_until_those_that_were_cut_are_gone() {
        let buffers = buffers();
        let mut shares: Vec<_> = (0..5).map(|_| grow(&buffers, 3 * SMALL).0).collect();
        assert!(!buffers.is_full() && cut(&shares).is_empty());
        let (mut last, fits) = grow(&buffers, 2 * SMALL);
        assert!(fits && buffers.is_full());
        assert_eq!(cut(&shares), [0]);
        buffers.release(&mut shares[0]);
        assert!(!buffers.is_full());
        // Everything given back, nothing is left.
        shares.iter_mut().chain([&mut last]).for_each(|share| buffers.release(share));
        let left = [&*buffers.bytes, &buffers.leaving].map(|bytes| bytes.load(Relaxed));
        assert_eq!((left, buffers.lock().by_rank.len()), ([0, 0], 0));
    }

    #[test]
    fn a_worker_may_cut_what_another_one_drives() {
        let buffers = buffers();
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let buffers = &buffers;
                scope.spawn(move || {
                    let (mut shares, mut random) = ([(); 8].map(|()| Share::default()), seed);
                    for _ in 0..20_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let share = &mut shares[(random >> 60) as usize % 8];
                        let held = (random >> 33) as usize % (2 * SMALL);
                        let held = if held.is_multiple_of(3) { held / 200 } else { held };
                        if !buffers.charge(share, held, Waker::noop()) {
                            buffers.release(share);
                        }
                    }
                    shares.iter_mut().for_each(|share| buffers.release(share));
                });
            }
        });
        let left = [&*buffers.bytes, &buffers.leaving].map(|bytes| bytes.load(Relaxed));
        assert_eq!((left, buffers.lock().by_rank.len()), ([0, 0], 0));
    }
}
