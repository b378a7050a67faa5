//! What each holder has in a group of shards: its share, and the charge that gives way.
//!
//! Invariants: a charge is in the table of its group as long as a shard of the group has a task of
//! its holder, or room that was taken for one. A charge that holds no more than its share is never
//! returned as one that gives way.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, PoisonError},
};

use foldhash::fast::RandomState;

use super::{
    id::GROUP,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};
use crate::{limits::charged_peers_max, model::TaskState, shares::Holder};

/// Charges for which a table keeps its memory.
const KEPT: usize = 64;

/// The lists of a charge in a shard: each stored task is in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskList {
    /// In a terminal state.
    Finished = 0,
    /// In `input-required` or `auth-required`.
    Waiting = 1,
    /// In any other state.
    Running = 2,
}

impl TaskList {
    /// Number of lists.
    pub const COUNT: usize = 3;

    /// The list of a task in this state.
    #[inline]
    pub fn of(state: TaskState) -> TaskList {
        match (state.is_terminal(), state.is_interrupted()) {
            (true, _) => TaskList::Finished,
            (false, true) => TaskList::Waiting,
            (false, false) => TaskList::Running,
        }
    }
}

/// A limit of the store of which each holder has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// `tasks_max`.
    Tasks = 0,
    /// `store_bytes_max`.
    Bytes = 1,
}

/// What one holder has in one group.
pub(super) struct Charge {
    pub holder: Holder,
    /// Whether the holder is a stranger.
    is_stranger: bool,
    /// Tasks, with those for which there is only room, and their bytes.
    held: [AtomicUsize; 2],
    /// Stored tasks by list.
    listed: [AtomicUsize; TaskList::COUNT],
    /// The stamp of the oldest finished task in each shard of the group.
    oldest: [AtomicU64; GROUP],
    /// Evictions before the next look at other groups.
    pub unlooked: AtomicU32,
}

impl Charge {
    fn new(holder: Holder) -> Charge {
        Charge {
            holder,
            is_stranger: holder.is_stranger(),
            held: [const { AtomicUsize::new(0) }; 2],
            listed: [const { AtomicUsize::new(0) }; TaskList::COUNT],
            oldest: [const { AtomicU64::new(u64::MAX) }; GROUP],
            unlooked: AtomicU32::new(0),
        }
    }

    /// What the holder has of a limit.
    pub fn held(&self, resource: Resource) -> usize {
        self.held[resource as usize].load(Relaxed)
    }

    /// Whether a list of the charge has a task in any shard.
    pub fn has(&self, list: TaskList) -> bool {
        self.listed[list as usize].load(Relaxed) > 0
    }

    /// One stored task more in a list.
    #[inline]
    pub fn listed(&self, list: TaskList) {
        self.listed[list as usize].fetch_add(1, Relaxed);
    }

    /// One stored task less in a list.
    #[inline]
    pub fn unlisted(&self, list: TaskList) {
        self.listed[list as usize].fetch_sub(1, Relaxed);
    }

    /// Notes the stamp of the oldest finished task of a shard.
    #[inline]
    pub fn note_oldest(&self, shard: usize, stamp: u64) {
        self.oldest[shard % GROUP].store(stamp, Relaxed);
    }

    /// The stamp of the oldest finished task, and its shard of the group; those in the set
    /// `skipped` do not count.
    pub fn oldest(&self, skipped: u32) -> Option<(u64, usize)> {
        let mut best = (u64::MAX, None);
        for (at, stamp) in self.oldest.iter().enumerate() {
            let stamp = stamp.load(Relaxed);
            if stamp < best.0 && skipped >> at & 1 == 0 {
                best = (stamp, Some(at));
            }
        }
        best.1.map(|at| (best.0, at))
    }
}

/// The charges of a group.
pub(super) struct Charges {
    table: Mutex<ChargeTable>,
    /// Holders that are no strangers, and strangers.
    holders: [AtomicUsize; 2],
    /// What all charges hold, and what those of strangers hold.
    held: [[AtomicUsize; 2]; 2],
    /// What the group would have of each limit if all groups had the same.
    capacity: [usize; 2],
    /// Anonymous callers that have a charge each; further ones have one together.
    peers_max: usize,
}

#[derive(Default)]
struct ChargeTable {
    all: Vec<ChargeEntry>,
    places: HashMap<Holder, usize, RandomState>,
    /// Where the search for the charge that gives way continues.
    hand: usize,
    /// Charges of anonymous callers.
    peers: usize,
}

struct ChargeEntry {
    charge: Arc<Charge>,
    /// Shards that have tasks of it, and calls that make room for it.
    users: usize,
}

/// The equal shares of a limit in a group.
#[derive(Clone, Copy)]
pub(super) struct GroupShares {
    resource: Resource,
    /// What is shared out.
    room: usize,
    /// The parts into which it is divided for a holder that is no stranger, and for a stranger.
    parts: [usize; 2],
}

impl GroupShares {
    fn parts(&self, charge: &Charge) -> usize {
        self.parts[usize::from(charge.holder.is_stranger())]
    }

    /// Whether a charge holds more than its share.
    pub fn is_above(&self, charge: &Charge) -> bool {
        charge.held(self.resource).saturating_mul(self.parts(charge)) > self.room
    }

    /// Whether a charge holds less than its share.
    pub fn is_below(&self, charge: &Charge) -> bool {
        charge.held(self.resource).saturating_mul(self.parts(charge)) < self.room
    }

    /// Whether a charge has a share that is large enough for what it holds and so much more.
    pub fn fits(&self, charge: &Charge, more: usize) -> bool {
        let held = charge.held(self.resource).saturating_add(more);
        held.saturating_mul(self.parts(charge)) <= self.room
    }
}

/// What a charge must be to give way.
#[derive(Clone, Copy)]
pub(super) struct Above<'s> {
    pub shares: &'s GroupShares,
    /// It has tasks in this list.
    pub list: TaskList,
    /// It is that of a stranger.
    pub is_stranger: bool,
    /// It is not that of this holder, which needs the room and evicts its own tasks by other rules.
    pub needs: Holder,
}

impl Charges {
    /// Charges of a group that has such a part of `tasks_max` and of `store_bytes_max`.
    pub fn new(capacity: [usize; 2]) -> Charges {
        let zeros = || [const { AtomicUsize::new(0) }; 2];
        Charges {
            table: Mutex::default(),
            holders: zeros(),
            held: [zeros(), zeros()],
            capacity,
            peers_max: charged_peers_max(capacity[0]),
        }
    }

    fn table(&self) -> MutexGuard<'_, ChargeTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The charge of a holder, which is made if there is none; it stays until [`Charges::leave`].
    pub fn enter(&self, holder: Holder) -> Arc<Charge> {
        let mut table = self.table();
        let mut place = table.places.get(&holder).copied();
        let mut holder = holder;
        if place.is_none() && holder.is_peer() && table.peers >= self.peers_max {
            let number = table.places.hasher().hash_one(holder) % self.peers_max as u64;
            holder = Holder::bucket(number as u32, holder.is_stranger());
            place = table.places.get(&holder).copied();
        }
        let place = place.unwrap_or_else(|| {
            let place = table.all.len();
            table.all.push(ChargeEntry { charge: Arc::new(Charge::new(holder)), users: 0 });
            table.places.insert(holder, place);
            table.peers += usize::from(holder.is_peer());
            self.holders[usize::from(holder.is_stranger())].fetch_add(1, Relaxed);
            place
        });
        let entry = &mut table.all[place];
        entry.users += 1;
        Arc::clone(&entry.charge)
    }

    /// Ends what [`Charges::enter`] began: the charge goes with its last user.
    pub fn leave(&self, charge: &Charge) {
        let mut table = self.table();
        let holder = charge.holder;
        let Some(place) = table.places.get(&holder).copied() else { return };
        table.all[place].users -= 1;
        if table.all[place].users > 0 {
            return;
        }
        table.all.swap_remove(place);
        table.places.remove(&holder);
        if let Some(moved) = table.all.get(place).map(|moved| moved.charge.holder) {
            table.places.insert(moved, place);
        }
        table.peers -= usize::from(holder.is_peer());
        if table.all.capacity() > KEPT && table.all.len() < table.all.capacity() / 8 {
            let kept = 2 * table.all.len();
            table.all.shrink_to(kept);
            table.places.shrink_to(kept);
        }
        self.holders[usize::from(holder.is_stranger())].fetch_sub(1, Relaxed);
    }

    /// The charge of a holder, if it has one.
    pub fn find(&self, holder: Holder) -> Option<Arc<Charge>> {
        let table = self.table();
        let place = *table.places.get(&holder)?;
        Some(Arc::clone(&table.all[place].charge))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.holders.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// So much more of a limit is held.
    #[inline]
    pub fn count(&self, charge: &Charge, resource: Resource, more: usize) {
        let at = resource as usize;
        charge.held[at].fetch_add(more, Relaxed);
        self.held[0][at].fetch_add(more, Relaxed);
        if charge.is_stranger {
            self.held[1][at].fetch_add(more, Relaxed);
        }
    }

    /// So much less of a limit is held.
    #[inline]
    pub fn discount(&self, charge: &Charge, resource: Resource, less: usize) {
        let at = resource as usize;
        charge.held[at].fetch_sub(less, Relaxed);
        self.held[0][at].fetch_sub(less, Relaxed);
        if charge.is_stranger {
            self.held[1][at].fetch_sub(less, Relaxed);
        }
    }

    /// A task that held so many bytes holds these now.
    #[inline]
    pub fn settle_bytes(&self, charge: &Charge, before: usize, after: usize) {
        if after > before {
            self.count(charge, Resource::Bytes, after - before);
        } else if after < before {
            self.discount(charge, Resource::Bytes, before - after);
        }
    }

    /// What strangers hold of a limit.
    pub fn held_by_strangers(&self, resource: Resource) -> usize {
        self.held[1][resource as usize].load(Relaxed)
    }

    /// The equal shares of a limit: strangers have no more than half of it.
    pub fn shares(&self, resource: Resource) -> GroupShares {
        let [owners, strangers] = [0, 1].map(|kind: usize| self.holders[kind].load(Relaxed));
        let held = self.held[0][resource as usize].load(Relaxed);
        let room = held.max(self.capacity[resource as usize]);
        let all = (owners + strangers).max(1);
        let parts = match strangers > owners {
            false => [all, all],
            true => [2 * owners.max(1), 2 * strangers],
        };
        GroupShares { resource, room, parts }
    }

    /// The shares of the group's part of the limit, also where the group has more: for holders of
    /// another group.
    pub fn least_shares(&self, resource: Resource) -> GroupShares {
        GroupShares { room: self.capacity[resource as usize], ..self.shares(resource) }
    }

    /// Those by which the group makes room. Where strangers have their half of the limit, they
    /// share half of the group's part and not of what it has: else the shares of all groups would
    /// be more than the half, and where one of them is below its share none might be above.
    pub fn shares_at(&self, resource: Resource, is_half_full: bool) -> GroupShares {
        match is_half_full {
            true => self.least_shares(resource),
            false => self.shares(resource),
        }
    }

    /// A charge above its share: the same one as long as it is above. With `next`, the one after
    /// that.
    pub fn above(&self, above: Above<'_>, next: bool) -> Option<Arc<Charge>> {
        let mut table = self.table();
        let (count, first) = (table.all.len(), table.hand + usize::from(next));
        for step in 0..count {
            let place = (first + step) % count;
            let charge = &table.all[place].charge;
            let is_candidate = charge.holder.is_stranger() || !above.is_stranger;
            let is_other = charge.holder != above.needs;
            if is_candidate && is_other && above.shares.is_above(charge) && charge.has(above.list) {
                let charge = Arc::clone(charge);
                table.hand = place;
                return Some(charge);
            }
        }
        None
    }
}
