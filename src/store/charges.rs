//! The share of each holder in a group of shards, and the choice of the charge that loses a task.
//!
//! Invariants: a charge is in the table of its group while a shard of the group has a task of its
//! holder, or a reservation for one. A charge that holds no more than its share is never chosen.

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

/// Charges up to which a table releases no memory.
const RETAINED_CAPACITY: usize = 64;

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

/// A limit of the store that is shared among holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// `tasks_max`.
    Tasks = 0,
    /// `store_bytes_max`.
    Bytes = 1,
}

/// The charge of one holder in one group: the tasks and bytes that the holder has there.
pub(super) struct Charge {
    pub holder: Holder,
    /// The result of [`Holder::is_stranger`].
    is_stranger: bool,
    /// Tasks, including reservations, and their bytes.
    held: [AtomicUsize; 2],
    /// Stored tasks by list.
    listed: [AtomicUsize; TaskList::COUNT],
    /// The stamp of the oldest finished task in each shard of the group.
    oldest: [AtomicU64; GROUP],
    /// Evictions before the next comparison with other groups.
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

    /// The amount of a limit that the holder has.
    pub fn held(&self, resource: Resource) -> usize {
        self.held[resource as usize].load(Relaxed)
    }

    /// Whether a list of the charge has a task in any shard.
    pub fn has(&self, list: TaskList) -> bool {
        self.listed[list as usize].load(Relaxed) > 0
    }

    /// Counts a stored task in a list.
    #[inline]
    pub fn listed(&self, list: TaskList) {
        self.listed[list as usize].fetch_add(1, Relaxed);
    }

    /// Removes a stored task from the count of a list.
    #[inline]
    pub fn unlisted(&self, list: TaskList) {
        self.listed[list as usize].fetch_sub(1, Relaxed);
    }

    /// Notes the stamp of the oldest finished task of a shard.
    #[inline]
    pub fn note_oldest(&self, shard: usize, stamp: u64) {
        self.oldest[shard % GROUP].store(stamp, Relaxed);
    }

    /// The stamp of the oldest finished task, with its shard; shards in the set `skipped` are
    /// ignored.
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
    /// Number of holders without and with [`Holder::is_stranger`].
    holders: [AtomicUsize; 2],
    /// Amounts held by all charges, and by those with [`Holder::is_stranger`].
    held: [[AtomicUsize; 2]; 2],
    /// The group's equal part of each limit.
    capacity: [usize; 2],
    /// Maximum anonymous callers with a charge of their own; further ones share buckets.
    peers_max: usize,
}

#[derive(Default)]
struct ChargeTable {
    all: Vec<ChargeEntry>,
    rows: HashMap<Holder, usize, RandomState>,
    /// The row of the charge that was chosen last: the next search begins there.
    hand: usize,
    /// Charges of anonymous callers.
    peers: usize,
}

struct ChargeEntry {
    charge: Arc<Charge>,
    /// Shards with its tasks, and calls that make room for it.
    users: usize,
}

/// The equal shares of a limit in a group.
#[derive(Clone, Copy)]
pub(super) struct GroupShares {
    resource: Resource,
    /// The amount to share.
    room: usize,
    /// The divisors of the room, for a holder without and with [`Holder::is_stranger`].
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

    /// Whether a charge stays within its share with `more` in addition.
    pub fn fits(&self, charge: &Charge, more: usize) -> bool {
        let held = charge.held(self.resource).saturating_add(more);
        held.saturating_mul(self.parts(charge)) <= self.room
    }
}

/// The conditions for a charge that loses a task.
#[derive(Clone, Copy)]
pub(super) struct Above<'s> {
    pub shares: &'s GroupShares,
    /// The charge has tasks in this list.
    pub list: TaskList,
    /// True: only charges with [`Holder::is_stranger`].
    pub is_stranger: bool,
    /// The charge does not belong to this holder, which needs the room; its own tasks are evicted
    /// by other rules.
    pub needs: Holder,
}

impl Charges {
    /// The charges of a group with this part of `tasks_max` and of `store_bytes_max`.
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

    /// The charge of a holder, created if it does not exist; it stays until [`Charges::leave`].
    pub fn enter(&self, holder: Holder) -> Arc<Charge> {
        let mut table = self.table();
        let mut row = table.rows.get(&holder).copied();
        let mut holder = holder;
        if row.is_none() && holder.is_peer() && table.peers >= self.peers_max {
            let number = table.rows.hasher().hash_one(holder) % self.peers_max as u64;
            holder = Holder::bucket(number as u32, holder.is_stranger());
            row = table.rows.get(&holder).copied();
        }
        let row = row.unwrap_or_else(|| {
            let row = table.all.len();
            table.all.push(ChargeEntry { charge: Arc::new(Charge::new(holder)), users: 0 });
            table.rows.insert(holder, row);
            table.peers += usize::from(holder.is_peer());
            self.holders[usize::from(holder.is_stranger())].fetch_add(1, Relaxed);
            row
        });
        let entry = &mut table.all[row];
        entry.users += 1;
        Arc::clone(&entry.charge)
    }

    /// Undoes [`Charges::enter`]: the charge is removed with its last user.
    pub fn leave(&self, charge: &Charge) {
        let mut table = self.table();
        let holder = charge.holder;
        let Some(row) = table.rows.get(&holder).copied() else { return };
        table.all[row].users -= 1;
        if table.all[row].users > 0 {
            return;
        }
        table.all.swap_remove(row);
        table.rows.remove(&holder);
        if let Some(moved) = table.all.get(row).map(|moved| moved.charge.holder) {
            table.rows.insert(moved, row);
        }
        table.peers -= usize::from(holder.is_peer());
        if table.all.capacity() > RETAINED_CAPACITY && table.all.len() < table.all.capacity() / 8 {
            let capacity = 2 * table.all.len();
            table.all.shrink_to(capacity);
            table.rows.shrink_to(capacity);
        }
        self.holders[usize::from(holder.is_stranger())].fetch_sub(1, Relaxed);
    }

    /// The charge of a holder, if it has one.
    pub fn find(&self, holder: Holder) -> Option<Arc<Charge>> {
        let table = self.table();
        let row = *table.rows.get(&holder)?;
        Some(Arc::clone(&table.all[row].charge))
    }

    /// The number of charges.
    pub fn len(&self) -> usize {
        self.holders.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Adds an amount to a charge.
    #[inline]
    pub fn count(&self, charge: &Charge, resource: Resource, more: usize) {
        let at = resource as usize;
        charge.held[at].fetch_add(more, Relaxed);
        self.held[0][at].fetch_add(more, Relaxed);
        if charge.is_stranger {
            self.held[1][at].fetch_add(more, Relaxed);
        }
    }

    /// Subtracts an amount from a charge.
    #[inline]
    pub fn discount(&self, charge: &Charge, resource: Resource, less: usize) {
        let at = resource as usize;
        charge.held[at].fetch_sub(less, Relaxed);
        self.held[0][at].fetch_sub(less, Relaxed);
        if charge.is_stranger {
            self.held[1][at].fetch_sub(less, Relaxed);
        }
    }

    /// Corrects the bytes of a task in a charge.
    #[inline]
    pub fn settle_bytes(&self, charge: &Charge, before: usize, after: usize) {
        if after > before {
            self.count(charge, Resource::Bytes, after - before);
        } else if after < before {
            self.discount(charge, Resource::Bytes, before - after);
        }
    }

    /// The amount of a limit that holders with [`Holder::is_stranger`] have.
    pub fn held_by_strangers(&self, resource: Resource) -> usize {
        self.held[1][resource as usize].load(Relaxed)
    }

    /// The equal shares of a limit; anonymous callers have at most half of it together.
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

    /// The shares of the group's equal part of the limit, even if the group has more: for holders
    /// in another group.
    pub fn least_shares(&self, resource: Resource) -> GroupShares {
        GroupShares { room: self.capacity[resource as usize], ..self.shares(resource) }
    }

    /// The shares used when the group makes room. When anonymous callers hold their half of the
    /// limit, they share half of the group's equal part, not half of its current amount. Otherwise
    /// the shares of all groups would exceed that half, and no anonymous caller might be above its
    /// share while another is below.
    pub fn shares_at(&self, resource: Resource, is_half_full: bool) -> GroupShares {
        match is_half_full {
            true => self.least_shares(resource),
            false => self.shares(resource),
        }
    }

    /// A charge above its share: the same charge in each call as long as it is above. With `next`,
    /// the following charge above its share.
    pub fn above(&self, above: Above<'_>, next: bool) -> Option<Arc<Charge>> {
        let mut table = self.table();
        let (count, first) = (table.all.len(), table.hand + usize::from(next));
        for step in 0..count {
            let row = (first + step) % count;
            let charge = &table.all[row].charge;
            let is_candidate = charge.holder.is_stranger() || !above.is_stranger;
            let is_other = charge.holder != above.needs;
            if is_candidate && is_other && above.shares.is_above(charge) && charge.has(above.list) {
                let charge = Arc::clone(charge);
                table.hand = row;
                return Some(charge);
            }
        }
        None
    }
}
