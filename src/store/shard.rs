//! The tasks under one lock and their indexes: by state and stamp, by context, by end.
//!
//! A task is in all indexes or in none. The indexes change once per change of status, under the
//! shard's lock, and every new stamp is above all stamps of the shard.
//!
//! A context is a chain of its tasks, newest first, and belongs to one scope. A context with
//! [`MANY`] tasks also has its own orders, until it has fewer than [`FEW`] tasks. A context with an
//! id created by the store is found by that id, not by a map, as long as it has only its first
//! task.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    task::Waker,
};

use super::{
    charged::ChargedTasks,
    charges::{Charges, TaskList},
    door::Door,
    finished::FinishedTasks,
    id::SlotAt,
    order::Order,
    scopes::Scopes,
    slab::{NONE, Slab},
    survivors::Survivors,
    waiters::{Waiters, Wakes},
};
use crate::{
    model::{Task, TaskState},
    service::{AgentIndex, OwnerIndex, Scope},
    shares::Holder,
    waiter::Waiter,
    watch::TaskWatch,
};

/// A hasher for keys that are keyed hashes already: it returns them unchanged.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "{bytes:?} is not a keyed hash");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Entries up to which a list or a map releases no memory.
pub(super) const RETAINED_CAPACITY: usize = 256;

/// The bits of a scope mixed into all positions, for maps and hashes; unique for each scope.
#[inline]
pub(super) fn spread(scope: Scope) -> u64 {
    // Both steps are invertible. Clients do not choose the indexes, so no keyed hash is needed.
    let bits = scope.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^ bits >> 32
}

/// A map from keyed hashes.
pub(super) type HashedMap<V = u32> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// Removes a hash from a map, and releases the memory of earlier entries.
pub(super) fn remove<V>(map: &mut HashedMap<V>, hash: u64) {
    map.remove(&hash);
    if map.capacity() > RETAINED_CAPACITY && map.len() < map.capacity() / 8 {
        map.shrink_to(2 * map.len());
    }
}

/// Tasks of one scope or of one context, by state.
pub(super) type Orders = [Order; TaskState::ALL.len()];

/// A context with this many tasks gets orders, because a scan would take too long.
pub(super) const MANY: u32 = 32;
/// A context with fewer tasks loses its orders; the gap avoids repeated sorting at the threshold.
pub(super) const FEW: u32 = MANY / 2;

/// A context of the shard.
#[derive(Clone, Copy)]
pub(super) struct Context {
    /// Keyed hash of its id, unless it has only its first task.
    pub hash: u64,
    /// The slot in its id, if the store created the id: that of its first task.
    pub context_slot: u32,
}

/// The remains of an evicted task.
pub(super) struct Evicted {
    /// Bytes of the task, and of its scope if the scope was removed with it.
    pub bytes: usize,
    /// Slots that were released.
    pub slots: usize,
    /// Its scope and its id, if a client chose the id.
    pub chosen: Option<(Scope, Box<[u8]>)>,
}

pub(super) struct Shard {
    pub slab: Slab,
    pub scopes: Scopes,
    /// The newest task of a context, by the context's hash; not for a context found by its id.
    contexts: HashedMap,
    /// Orders of the contexts with many tasks.
    large_contexts: HashedMap<Box<Orders>>,
    pub finished: FinishedTasks,
    pub charged: ChargedTasks,
    survivors: Survivors,
    /// Registered wakers.
    pub waiting: usize,
    /// Tasks in a non-terminal state.
    pub unfinished: usize,
    /// The slot at which the next search for idle tasks begins.
    pub idle_next: u32,
}

impl Shard {
    pub fn new(index_max: u32) -> Shard {
        Shard {
            slab: Slab::new(index_max),
            scopes: Scopes::default(),
            contexts: HashedMap::default(),
            large_contexts: HashedMap::default(),
            finished: FinishedTasks::new(),
            charged: ChargedTasks::default(),
            survivors: Survivors::default(),
            waiting: 0,
            unfinished: 0,
            idle_next: 0,
        }
    }

    /// The task in a slot, if it is stored.
    pub fn task(&self, index: u32) -> Option<&Task> {
        self.slab.slot(index)?.task.get()
    }

    /// The unfinished tasks of the scopes that `is_of` selects.
    pub fn unfinished_of(&self, is_of: impl Fn(Scope) -> bool) -> impl Iterator<Item = u32> {
        let states = TaskState::ALL.iter().filter(|state| !state.is_terminal());
        let states = states.map(|state| *state as usize);
        let orders =
            self.scopes.all_orders().flat_map(move |orders| states.clone().map(|at| &orders[at]));
        let slots = orders.flat_map(|order| order.newest(u64::MAX)).map(|(_, slot)| slot);
        slots.filter(move |slot| is_of(self.slab[*slot].scope))
    }

    /// True when an agent has tasks of any owner in this shard.
    pub fn has_tasks_of(&self, agent: AgentIndex) -> bool {
        let firsts = self.scopes.all_orders().filter_map(|orders| {
            orders.iter().find_map(|order| order.newest(u64::MAX).next()).map(|(_, slot)| slot)
        });
        // All tasks of an order have one scope.
        let mut agents = firsts.map(|slot| self.slab[slot].scope.agent);
        agents.any(|one| one == agent)
    }

    /// The tasks of a context, and of other contexts with the same hash, newest first.
    pub fn context(&self, context: Context, id: &[u8]) -> impl Iterator<Item = u32> + use<'_> {
        let mut next = self.contexts.get(&context.hash).copied();
        if next.is_none() {
            next = self.only_task(context.context_slot, id);
        }
        std::iter::from_fn(move || {
            let index = next?;
            next = Some(self.slab[index].older).filter(|older| *older != NONE);
            Some(index)
        })
    }

    /// The task at `context_slot`, if it is the only task of a context with this id that is not in
    /// the map.
    fn only_task(&self, context_slot: u32, id: &[u8]) -> Option<u32> {
        let slot = self.slab.slot(context_slot).filter(|slot| slot.is_only_task)?;
        slot.task.get().is_some_and(|task| task.context_id() == id).then_some(context_slot)
    }

    /// The orders of the context with a hash, if it has many tasks.
    pub fn large_context(&self, hash: u64) -> Option<&Orders> {
        self.large_contexts.get(&hash).map(Box::as_ref)
    }

    /// Moves the task of a slot to the position of `stamp` in every index, after a new status; `at`
    /// is the shard.
    pub fn list(&mut self, index: u32, at: usize, stamp: u64) {
        let slot = &mut self.slab[index];
        let Some(state) = slot.task.get().map(Task::state) else { return };
        let (scope, before) = (slot.scope, slot.listed.replace(state));
        let old_stamp = std::mem::replace(&mut slot.stamp, stamp);
        let orders = self.scopes.orders_mut(scope);
        if let Some(before) = before {
            orders[before as usize].remove(old_stamp);
        }
        orders[state as usize].push(stamp, index);
        let is_new_and_runs = before.is_none() && !state.is_terminal();
        match (before, state.is_terminal()) {
            (None, false) => self.unfinished += 1,
            // A finished task has no further status.
            (Some(_), true) => self.unfinished -= 1,
            (None, true) | (Some(_), false) => {}
        }
        if slot.is_only_task {
            slot.context_len = 1;
        } else {
            self.front(index, before.is_some());
            if self.slab[index].context_len >= FEW {
                self.sort(index, before.map(|before| (before, old_stamp)));
            }
        }
        self.survivors.listed(is_new_and_runs, &self.slab, index, stamp);
        if let Some(before) = before {
            self.charged.remove_from(&mut self.slab, index, TaskList::of(before), at);
        }
        self.charged.push(&mut self.slab, index, TaskList::of(state), at);
        if state.is_terminal() {
            self.finished.push(&mut self.slab, index);
        }
    }

    /// Moves a task to the front of its context.
    fn front(&mut self, index: u32, is_linked: bool) {
        if is_linked {
            if self.slab[index].newer == NONE {
                return;
            }
            self.unlink(index);
        }
        let mut context_len = 1;
        let slot = &self.slab[index];
        let (scope, hash) = (slot.scope, slot.context);
        let mut older = self.contexts.insert(hash, index).unwrap_or(NONE);
        let slot = &self.slab[index];
        if let (NONE, Some(task)) = (older, slot.task.get())
            && let Some(only) = self.only_task(slot.context_slot, task.context_id())
            && self.slab[only].scope == scope
        {
            (older, self.slab[only].context) = (only, hash);
        }
        if older != NONE {
            let older = &mut self.slab[older];
            (older.newer, older.is_only_task) = (index, false);
            context_len = older.context_len + u32::from(!is_linked);
        }
        let slot = &mut self.slab[index];
        (slot.newer, slot.older, slot.context_len) = (NONE, older, context_len);
    }

    /// Moves the newest task of a context to its position in the context's orders, if the context
    /// has or needs orders; `before` is the old position of the task.
    #[inline(never)]
    fn sort(&mut self, index: u32, before: Option<(TaskState, u64)>) {
        let slot = &self.slab[index];
        let (hash, stamp, context_len) = (slot.context, slot.stamp, slot.context_len);
        let Some(state) = slot.listed else { return };
        if let Some(orders) = self.large_contexts.get_mut(&hash) {
            if let Some((before, old_stamp)) = before {
                orders[before as usize].remove(old_stamp);
            }
            orders[state as usize].push(stamp, index);
        } else if context_len >= MANY {
            let mut orders = Box::<Orders>::default();
            let newest: Vec<u32> =
                self.context(Context { hash, context_slot: NONE }, b"").collect();
            for index in newest.into_iter().rev() {
                let slot = &self.slab[index];
                if let Some(state) = slot.listed {
                    orders[state as usize].push(slot.stamp, index);
                }
            }
            self.large_contexts.insert(hash, orders);
        }
    }

    /// Removes a task from its context.
    fn leave(&mut self, index: u32) {
        let slot = &self.slab[index];
        let (hash, stamp, listed) = (slot.context, slot.stamp, slot.listed);
        let (newer, older) = (slot.newer, slot.older);
        self.unlink(index);
        let (before, newest) = match newer {
            NONE => (self.slab[index].context_len, older),
            _ => {
                let newest = self.contexts.get(&hash).copied().unwrap_or(newer);
                (self.slab[newest].context_len, newest)
            }
        };
        if newest != NONE {
            self.slab[newest].context_len = before - 1;
        }
        if before == FEW {
            remove(&mut self.large_contexts, hash);
        } else if let (true, Some(state)) = (before > FEW, listed)
            && let Some(orders) = self.large_contexts.get_mut(&hash)
        {
            orders[state as usize].remove(stamp);
        }
    }

    fn unlink(&mut self, index: u32) {
        let (newer, older) = (self.slab[index].newer, self.slab[index].older);
        if older != NONE {
            self.slab[older].newer = newer;
        }
        match (newer, older) {
            (NONE, NONE) if self.slab[index].is_only_task => {}
            (NONE, NONE) => remove(&mut self.contexts, self.slab[index].context),
            (NONE, older) => drop(self.contexts.insert(self.slab[index].context, older)),
            (newer, older) => self.slab[newer].older = older,
        }
    }

    /// The finished task of a holder that ended first.
    pub fn first_finished_of(&self, holder: Holder) -> Option<u32> {
        self.charged.first(holder, TaskList::Finished)
    }

    /// Evicts a task that was removed from the finished tasks.
    pub fn evict(
        &mut self,
        slot_at: SlotAt,
        door: &Door,
        charges: &Charges,
        wakes: &mut Wakes,
    ) -> Evicted {
        let SlotAt { at, index } = slot_at;
        let slot = &self.slab[index];
        let (scope, stamp, charge) = (slot.scope, slot.stamp, slot.charge);
        if let Some(state) = slot.listed {
            let orders = self.scopes.orders_mut(scope);
            orders[state as usize].remove(stamp);
            self.charged.remove_from(&mut self.slab, index, TaskList::of(state), at);
        }
        let scope_bytes = self.scopes.leave(scope);
        self.leave(index);
        self.end_waits(index, wakes);
        let private_heap_bytes = self.slab[index].private_heap_bytes();
        let watch = self.slab[index].watch.take();
        let task = door.evict(slot_at, &mut self.slab);
        let is_chosen = self.slab[index].is_chosen;
        let slots = self.slab.release(index);
        self.survivors.evicted(&mut self.slab, stamp);
        let task_bytes = task.as_ref().map_or(0, Task::heap_bytes) + private_heap_bytes;
        let of_owner = if scope.owner == OwnerIndex(0) { 0 } else { scope_bytes };
        self.charged.leave(charge, task_bytes + of_owner, charges);
        let chosen = task.as_ref().filter(|_| is_chosen).map(|task| (scope, task.id().into()));
        if let Some(watch) = watch {
            let seq = task.as_ref().map_or(0, Task::seq);
            watch.keep(task);
            watch.leave(seq);
        }
        Evicted { bytes: task_bytes + scope_bytes, slots, chosen }
    }

    /// Wakes the waiters of a task.
    pub fn wake(&mut self, index: u32, wakes: &mut Wakes) {
        let slot = &self.slab[index];
        if let Some(waiters) = &slot.waiters {
            waiters.wake(wakes);
        }
        slot.wake_watch(wakes);
    }

    /// Wakes and removes the waiters of a task that has ended, or is evicted. Its watch, and the
    /// agent's private bytes, stay until the eviction.
    pub fn end_waits(&mut self, index: u32, wakes: &mut Wakes) {
        let slot = &mut self.slab[index];
        slot.wake_watch(wakes);
        if let Some(mut waiters) = slot.waiters.take() {
            waiters.wake(wakes);
            self.waiting -= waiters.len();
            if !waiters.private_bytes.is_empty() {
                waiters.end();
                slot.waiters = Some(waiters);
            }
        }
    }

    /// Sets the watch of a task. An ended watch does not replace another one: it may arrive late,
    /// from a call that a later call has overtaken.
    #[cfg_attr(not(feature = "push"), allow(dead_code, reason = "only webhooks watch tasks"))]
    pub fn watch(&mut self, index: u32, watch: Arc<TaskWatch>) {
        let before = &mut self.slab[index].watch;
        if before.is_none() || !watch.is_over() {
            *before = Some(watch);
        }
    }

    /// Registers a waiter of a task.
    pub fn wait(&mut self, index: u32, waiter: &mut Waiter, wake: &Waker) {
        let waiters: &mut Waiters = self.slab[index].waiters.get_or_insert_default();
        let before = waiters.len();
        waiters.register(waiter, wake);
        self.waiting = self.waiting + waiters.len() - before;
    }
}
