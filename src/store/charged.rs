//! The tasks of a shard by the charge of their holder. Each charge has three lists: finished tasks
//! by their end, waiting tasks by the start of their wait, running tasks by their last event.
//!
//! Invariant: a charge is in this table while the shard has a task or a reservation of its holder.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{
    charges::{Charge, Charges, Resource, TaskList},
    shard::RETAINED_CAPACITY,
    slab::{NONE, Slab},
};
use crate::shares::Holder;

/// The charges of a shard.
#[derive(Default)]
pub(super) struct ChargedTasks {
    all: Vec<ShardCharge>,
    rows: HashMap<Holder, u32, RandomState>,
    free: Vec<u32>,
    /// The index and the holder of the last new task.
    last: Option<(u32, Holder)>,
}

/// The part of one charge in a shard.
struct ShardCharge {
    /// `None`: the entry is free.
    charge: Option<Arc<Charge>>,
    /// Tasks, and reservations for tasks.
    tasks: u32,
    lists: [Ends; TaskList::COUNT],
}

/// The ends of a list.
#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

impl ShardCharge {
    /// The stamp of the newest finished task; `None`: there is an unfinished task, or no stored
    /// task.
    fn end(&self, slab: &Slab) -> Option<u64> {
        let [finished, waiting, running] = self.lists;
        let is_finished = waiting.first == NONE && running.first == NONE;
        slab.slot(finished.last).filter(|_| is_finished).map(|slot| slot.stamp)
    }
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

impl ChargedTasks {
    /// Counts a task of a holder; returns the index of its charge.
    #[inline]
    pub fn join(&mut self, holder: Holder, charges: &Charges) -> u32 {
        let row = match self.last {
            Some((row, last)) if last == holder => row,
            _ => self.enter(holder, charges),
        };
        let shard_charge = &mut self.all[row as usize];
        shard_charge.tasks += 1;
        if let Some(charge) = &shard_charge.charge {
            charges.count(charge, Resource::Tasks, 1);
        }
        row
    }

    #[inline(never)]
    fn enter(&mut self, holder: Holder, charges: &Charges) -> u32 {
        let row = match self.rows.get(&holder) {
            Some(row) => *row,
            None => {
                let charge = charges.enter(holder);
                // Very many anonymous callers have tasks: the charge is that of a shared bucket.
                match self.rows.get(&charge.holder) {
                    Some(row) => {
                        charges.leave(&charge);
                        *row
                    }
                    None => self.add(charge),
                }
            }
        };
        self.last = Some((row, holder));
        row
    }

    fn add(&mut self, charge: Arc<Charge>) -> u32 {
        let row = self.free.pop().unwrap_or(self.all.len() as u32);
        self.rows.insert(charge.holder, row);
        let lists = [EMPTY; TaskList::COUNT];
        let new = ShardCharge { charge: Some(charge), tasks: 0, lists };
        match self.all.get_mut(row as usize) {
            Some(free) => *free = new,
            None => self.all.push(new),
        }
        row
    }

    /// Subtracts a task and its bytes from the charge at an index.
    #[inline]
    pub fn leave(&mut self, row: u32, bytes: usize, charges: &Charges) {
        let shard_charge = &mut self.all[row as usize];
        shard_charge.tasks -= 1;
        let Some(charge) = &shard_charge.charge else { return };
        charges.discount(charge, Resource::Tasks, 1);
        charges.discount(charge, Resource::Bytes, bytes);
        if shard_charge.tasks == 0 {
            self.remove(row, charges);
        }
    }

    #[inline(never)]
    fn remove(&mut self, row: u32, charges: &Charges) {
        let Some(charge) = self.all[row as usize].charge.take() else { return };
        charges.leave(&charge);
        self.rows.remove(&charge.holder);
        self.last = self.last.filter(|(last, _)| *last != row);
        self.free.push(row);
        if self.rows.is_empty() && self.all.capacity() > RETAINED_CAPACITY {
            *self = ChargedTasks::default();
        }
    }

    /// The charge at an index.
    #[inline]
    pub fn charge(&self, row: u32) -> Option<&Arc<Charge>> {
        self.all.get(row as usize)?.charge.as_ref()
    }

    /// The first task in a list of a charge.
    pub fn first(&self, holder: Holder, list: TaskList) -> Option<u32> {
        let row = match self.last {
            Some((row, last)) if last == holder => row,
            _ => *self.rows.get(&holder)?,
        };
        let first = self.all[row as usize].lists[list as usize].first;
        (first != NONE).then_some(first)
    }

    /// The stamp of a holder's newest finished task; `Some(None)`: the holder has an unfinished
    /// task here, or only reservations.
    pub fn end_of(&self, slab: &Slab, holder: Holder) -> Option<Option<u64>> {
        let row = *self.rows.get(&holder)?;
        Some(self.all[row as usize].end(slab))
    }

    /// Each holder in this shard, with its newest stamp as in [`ChargedTasks::end_of`].
    pub fn ends(&self, slab: &Slab) -> impl Iterator<Item = (Holder, Option<u64>)> {
        let charged = self.all.iter().filter_map(|one| Some((one.charge.as_ref()?.holder, one)));
        charged.map(|(holder, one)| (holder, one.end(slab)))
    }

    /// The tasks in a list of a charge, in order.
    pub fn tasks<'s>(
        &'s self,
        slab: &'s Slab,
        holder: Holder,
        list: TaskList,
    ) -> impl Iterator<Item = u32> + use<'s> {
        std::iter::successors(self.first(holder, list), |index| {
            let next = slab[*index].charge_next;
            (next != NONE).then_some(next)
        })
    }

    /// Moves a running task to the end of its charge's list, after an event.
    #[inline]
    pub fn touch(&mut self, slab: &mut Slab, index: u32, at: usize) {
        if slab[index].charge_next != NONE {
            self.remove_from(slab, index, TaskList::Running, at);
            self.push(slab, index, TaskList::Running, at);
        }
    }

    /// The charges with tasks in this shard.
    pub fn charges(&self) -> impl Iterator<Item = &Arc<Charge>> {
        self.all.iter().filter_map(|one| one.charge.as_ref())
    }

    /// Adds a task at the end of a list of its charge; `at` is the shard.
    #[inline]
    pub fn push(&mut self, slab: &mut Slab, index: u32, list: TaskList, at: usize) {
        let slot = &mut slab[index];
        let (row, stamp) = (slot.charge, slot.stamp);
        let shard_charge = &mut self.all[row as usize];
        let ends = &mut shard_charge.lists[list as usize];
        let last = std::mem::replace(&mut ends.last, index);
        (slot.charge_before, slot.charge_next) = (last, NONE);
        if last == NONE {
            ends.first = index;
        } else {
            slab[last].charge_next = index;
        }
        if let Some(charge) = &shard_charge.charge {
            charge.listed(list);
            if last == NONE && list == TaskList::Finished {
                charge.note_oldest(at, stamp);
            }
        }
    }

    /// Removes a task from a list of its charge.
    #[inline]
    pub fn remove_from(&mut self, slab: &mut Slab, index: u32, list: TaskList, at: usize) {
        let slot = &slab[index];
        let (row, before, next) = (slot.charge, slot.charge_before, slot.charge_next);
        let shard_charge = &mut self.all[row as usize];
        let ends = &mut shard_charge.lists[list as usize];
        match before {
            NONE => ends.first = next,
            before => slab[before].charge_next = next,
        }
        match next {
            NONE => ends.last = before,
            next => slab[next].charge_before = before,
        }
        if let Some(charge) = &shard_charge.charge {
            charge.unlisted(list);
            if before == NONE && list == TaskList::Finished {
                charge.note_oldest(at, slab.slot(next).map_or(u64::MAX, |next| next.stamp));
            }
        }
    }
}
