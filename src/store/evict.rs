//! Making room: which task is evicted, and when.
//!
//! Tasks are evicted before their room is used, for the group of the shard that needs the room. If
//! a holder needs more than its equal share of the group, its own tasks are evicted, the oldest
//! first. For a holder below its share, the oldest task of a holder above its share is evicted. So
//! no holder below its share loses a task to another holder or is refused a task.
//!
//! If no finished task may be evicted, a waiting task fails and is evicted. As the last resort, and
//! only for a holder below its share, a running task of a holder above its share fails: the task
//! with the oldest last event.
//!
//! The groups are compared from time to time. If a task of the holder in another group ended
//! [`LEAD_MS`] before all its tasks in this group, or this group has none, then the unused room of
//! other groups is used first, and after that the holder's oldest task in any group is evicted.

use std::sync::{Arc, PoisonError, TryLockError};

use super::{
    Edit, Refused, Store,
    budget::SharedLimit,
    charges::{Above, Charge, Resource, TaskList},
    group::{Eviction, Group, floor_of},
    id::{GROUP, SlotAt, group_of},
    idle::EndReason,
    shard::Shard,
    slab::CHUNK,
    sync::{MutexGuard, atomic::Ordering::Relaxed},
    waiters::Wakes,
};
use crate::{service::Now, shares::Holder};

/// Maximum finished tasks that one [`Store::sweep`] evicts from one shard.
const SWEEP: usize = 64;

/// Spared tasks of a shard that one sweep examines: if a webhook's host is down for a day, many
/// tasks can be spared.
const SPARED_LOOKS: usize = 64;

/// How much earlier a task of another group must have ended to be evicted before those of this
/// group.
const LEAD_MS: u64 = 1_000;

/// Maximum charges above their share that are tried if the shard of a task is locked.
const TRIES: usize = 4;

/// Tasks of one holder that are examined to find a task without listening clients.
const LISTENED_LOOKS: usize = 64;

/// Selects tasks of other holders for eviction.
#[derive(Clone, Copy)]
struct OthersTasks {
    list: TaskList,
    /// Only tasks of anonymous callers.
    is_stranger: bool,
}

/// Room for a holder in a shard that the caller has not locked.
#[derive(Clone, Copy)]
pub(super) struct NewRoom {
    /// The shard.
    pub at: usize,
    pub holder: Holder,
    pub resource: Resource,
    /// Tasks, or bytes.
    pub wanted: usize,
}

/// A need for room.
pub(super) struct Need<'n> {
    /// The group that needs the room.
    pub group: usize,
    /// The charge that needs the room, in that group.
    pub charge: &'n Arc<Charge>,
    pub resource: Resource,
    pub wanted: usize,
    /// The shard that the caller has locked.
    pub held: Option<(usize, &'n mut Shard)>,
    /// The shard and slot of the task that the caller edits: it is not evicted.
    pub edited: Option<SlotAt>,
    pub now: Now,
    pub wakes: &'n mut Wakes,
}

fn why(resource: Resource) -> Eviction {
    match resource {
        Resource::Tasks => Eviction::Count,
        Resource::Bytes => Eviction::Bytes,
    }
}

/// The tasks that may be ended in one list of a charge in a shard: not the edited task, and no
/// waiting task with an answer of its client (its turn is in progress).
fn ending(
    at: usize,
    shard: &Shard,
    charge: &Charge,
    list: TaskList,
    stays: Option<SlotAt>,
) -> impl Iterator<Item = u32> {
    let tasks = shard.charged.tasks(&shard.slab, charge.holder, list);
    tasks.filter(move |index| {
        let is_answered = list == TaskList::Waiting && shard.slab[*index].turns > 0;
        !is_answered && stays != Some(SlotAt { at, index: *index })
    })
}

impl Store {
    /// Evicts expired finished tasks; true when it should be called again soon.
    ///
    /// One call evicts at most 1,024 tasks of each worker.
    #[cfg(any(test, feature = "internals"))]
    pub fn sweep(&self, now: Now) -> bool {
        (0..self.workers).fold(false, |is_more, worker| self.sweep_of(worker, now) | is_more)
    }

    /// Evicts at most 1,024 expired finished tasks of one worker; true when it should be called
    /// again soon. Call it about once a second.
    pub fn sweep_of(&self, worker: usize, now: Now) -> bool {
        self.budget.note_sweep(now.mono_ms);
        let latest = self.groups.iter().map(|group| group.last_stamp()).max().unwrap_or(0);
        let mut is_more = false;
        for number in (worker..self.groups.len()).step_by(self.workers) {
            let group = &self.groups[number];
            // Otherwise tasks of some groups would look older than others after the wall clock was
            // set back.
            group.catch_up(latest);
            for at in (number * GROUP..).take(GROUP) {
                let mut wakes = Wakes::default();
                let mut shard = self.lock(at);
                self.expire(at, &mut shard, now, &mut wakes, SWEEP);
                self.evict_released(at, &mut shard, &mut wakes);
                let Shard { finished, slab, .. } = &*shard;
                is_more |= finished.has_expired(slab, self.budget.ttl_ms, now.mono_ms);
            }
        }
        is_more
    }

    /// Evicts at most `most` expired tasks of a shard.
    pub(super) fn expire(
        &self,
        at: usize,
        shard: &mut Shard,
        now: Now,
        wakes: &mut Wakes,
        most: usize,
    ) {
        for _ in 0..most {
            let Shard { finished, slab, .. } = &*shard;
            if !finished.has_expired(slab, self.budget.ttl_ms, now.mono_ms) {
                break;
            }
            self.expire_one(at, shard, wakes);
        }
    }

    /// Evicts the next expired task of a shard, unless it is spared.
    #[cold]
    fn expire_one(&self, at: usize, shard: &mut Shard, wakes: &mut Wakes) {
        if let Some(index) = shard.finished.take_expired(&mut shard.slab) {
            self.evict_task(SlotAt { at, index }, shard, group_of(at), Eviction::Ttl, wakes);
        }
    }

    /// Evicts tasks of a shard that were spared and are not needed any more, within a bounded
    /// number of examinations.
    fn evict_released(&self, at: usize, shard: &mut Shard, wakes: &mut Wakes) {
        let mut looks = SPARED_LOOKS;
        while let Some(index) = shard.finished.take_released(&shard.slab, &mut looks) {
            self.evict_task(SlotAt { at, index }, shard, group_of(at), Eviction::Ttl, wakes);
        }
    }

    /// Whether anonymous callers stay within their half of a resource if the holder gets `more`.
    #[inline]
    pub(super) fn is_within_half(&self, holder: Holder, resource: Resource, more: usize) -> bool {
        !holder.is_stranger() || self.strangers_have_room(resource, more)
    }

    #[inline(never)]
    fn strangers_have_room(&self, resource: Resource, more: usize) -> bool {
        let held = self.groups.iter().map(|group| group.charges.held_by_strangers(resource));
        held.sum::<usize>().saturating_add(more) <= self.limit(resource).most() / 2
    }

    /// Takes room for a holder by evicting tasks.
    #[inline(never)]
    pub(super) fn make_room_of(
        &self,
        room: NewRoom,
        now: Now,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        let NewRoom { at, holder, resource, wanted } = room;
        let (charges, group) = (&self.group(at).charges, group_of(at));
        let charge = &charges.enter(holder);
        let (held, edited) = (None, None);
        let made =
            self.make_room(Need { group, charge, resource, wanted, held, edited, now, wakes });
        charges.leave(charge);
        made
    }

    /// Frees a slot of a shard for a holder: adds a chunk, or evicts a finished task.
    #[inline(never)]
    pub(super) fn make_slot(
        &self,
        at: usize,
        shard: &mut Shard,
        holder: Holder,
        wakes: &mut Wakes,
    ) -> bool {
        let (number, slots) = (group_of(at), &self.budget.slots);
        let spare = |group: usize| &self.groups[group].slots;
        if !slots.take(spare(number), CHUNK) {
            slots.gather(spare(number), (0..self.groups.len()).map(spare));
            if !slots.take(spare(number), CHUNK) {
                return self.evict_in(at, shard, holder, wakes);
            }
        }
        let is_grown = shard.slab.grow();
        if !is_grown {
            slots.release(spare(number), CHUNK);
        }
        is_grown
    }

    /// Evicts a finished task of a shard: a task of the holder, or else of a holder above its
    /// share.
    #[cold]
    fn evict_in(&self, at: usize, shard: &mut Shard, holder: Holder, wakes: &mut Wakes) -> bool {
        let shares = self.group(at).charges.shares(Resource::Tasks);
        let others = shard.charged.charges().filter(|charge| shares.is_above(charge));
        let holders = std::iter::once(holder).chain(others.map(|charge| charge.holder));
        let first = |holder| shard.charged.first(holder, TaskList::Finished);
        let Some(index) = holders.into_iter().find_map(first) else { return false };
        self.evict_finished(SlotAt { at, index }, shard, Eviction::Count, wakes);
        true
    }

    fn limit(&self, resource: Resource) -> &SharedLimit {
        match resource {
            Resource::Tasks => &self.budget.tasks,
            Resource::Bytes => &self.budget.bytes,
        }
    }

    /// Evicts tasks until the wanted amount is free, and takes it.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::OutOfBytes`]; [`Refused::OwnShareFull`] if the holder is at
    /// its share and other holders have tasks, or if anonymous callers are at their half.
    pub(super) fn make_room(&self, mut need: Need<'_>) -> Result<(), Refused> {
        let (limit, resource, wanted) = (self.limit(need.resource), need.resource, need.wanted);
        let full = match resource {
            Resource::Tasks => Refused::Full,
            Resource::Bytes => Refused::OutOfBytes,
        };
        if !limit.could_hold(wanted) {
            return Err(full);
        }
        let (spare, mut has_gathered) = (self.groups[need.group].spare(resource), false);
        loop {
            if !self.make_some(&mut need, &mut has_gathered) {
                let is_share = self.is_own_share_full(&need);
                return Err(if is_share { self.own_share_full(&mut need) } else { full });
            }
            let is_within_half = self.is_within_half(need.charge.holder, resource, wanted);
            if is_within_half && limit.take(spare, wanted) {
                return Ok(());
            }
        }
    }

    /// Whether a holder is at its share and other holders have tasks, or anonymous callers are at
    /// their half.
    #[cold]
    fn is_own_share_full(&self, need: &Need<'_>) -> bool {
        let holder = need.charge.holder;
        let others =
            |group: &Group| group.charges.len() > usize::from(group.charges.find(holder).is_some());
        let is_over = !self.is_within_half(holder, need.resource, need.wanted);
        let shares = self.groups[need.group].charges.shares_at(need.resource, is_over);
        let has_share = !shares.fits(need.charge, need.wanted);
        has_share && (is_over || self.groups.iter().any(others))
    }

    /// The refusal for a holder at its share, with the time until the first of its running tasks
    /// fails as idle.
    #[cold]
    fn own_share_full(&self, need: &mut Need<'_>) -> Refused {
        let (charge, mut oldest_ms) = (need.charge, None::<u64>);
        for at in (need.group * GROUP..).take(GROUP) {
            self.in_shard(at, need, |shard, _| {
                let first = shard.charged.first(charge.holder, TaskList::Running);
                let event_ms = first.map(|index| shard.slab[index].event_ms);
                oldest_ms = oldest_ms.into_iter().chain(event_ms).min();
                true
            });
        }
        let idle_ms = need.now.mono_ms.saturating_sub(oldest_ms.unwrap_or_default());
        let remaining_ms = match oldest_ms {
            Some(_) => self.idle_times.unfinished_idle_ms.saturating_sub(idle_ms),
            None => 0,
        };
        // The sweep that ends idle tasks runs once a second.
        let retry_s = u32::try_from(remaining_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
        Refused::OwnShareFull { retry_s: retry_s.saturating_add(1) }
    }

    /// Frees a part of a limit; false: no more tasks may be evicted for the holder.
    fn make_some(&self, need: &mut Need<'_>, has_gathered: &mut bool) -> bool {
        use TaskList::{Finished, Running, Waiting};
        let (number, charge, resource) = (need.group, need.charge, need.resource);
        let is_stranger = !self.is_within_half(charge.holder, resource, need.wanted);
        let shares = self.groups[number].charges.shares_at(resource, is_stranger);
        let mut gather = || {
            // Anonymous callers at their half may not use the unused room of other groups.
            let is_first = !is_stranger && !std::mem::replace(has_gathered, true);
            if is_first {
                let spares = self.groups.iter().map(|group| group.spare(resource));
                self.limit(resource).gather(self.groups[number].spare(resource), spares);
            }
            is_first
        };
        let others = |list| OthersTasks { list, is_stranger };
        if shares.fits(charge, need.wanted) {
            let has_some = self.evict_above(number, need, others(Finished)) || gather();
            let lists = [Finished, Waiting, Running];
            if has_some || lists.into_iter().any(|list| self.evict_others(need, others(list))) {
                return true;
            }
        }
        let is_evicted_first = self.is_evicted_first(charge);
        if is_evicted_first && self.evict_of(number, charge, need) {
            return true;
        }
        // Unused room of other groups is used before tasks there are evicted.
        if gather() || self.evict_oldest(need) {
            return true;
        }
        let is_below = shares.is_below(charge);
        let below = |list, need: &mut Need<'_>| is_below && self.evict_others(need, others(list));
        below(Finished, need)
            || self.end_waiting(need)
            || below(Waiting, need)
            || below(Running, need)
    }

    /// True if, by the last comparison, tasks of this charge are evicted before those of the same
    /// holder in other groups.
    fn is_evicted_first(&self, charge: &Charge) -> bool {
        if self.groups.len() == 1 {
            return true;
        }
        let unlooked = charge.unlooked.load(Relaxed);
        if unlooked > 0 {
            charge.unlooked.store(unlooked - 1, Relaxed);
            return true;
        }
        let stamp = |group: &Group| {
            let charge = group.charges.find(charge.holder)?;
            charge.oldest(0).map(|(stamp, _)| stamp)
        };
        let others = self.groups.iter().filter_map(stamp).min().unwrap_or(u64::MAX);
        let own = charge.oldest(0).map_or(u64::MAX, |(stamp, _)| stamp);
        let is_evicted_first = own <= others.saturating_add(floor_of(LEAD_MS));
        if is_evicted_first {
            let portion = u32::try_from(self.budget.tasks.portion()).unwrap_or(u32::MAX);
            charge.unlooked.store(portion, Relaxed);
        }
        is_evicted_first
    }

    /// Evicts the holder's task that ended first, in any group.
    fn evict_oldest(&self, need: &mut Need<'_>) -> bool {
        let mut skipped = 0u64;
        loop {
            let groups = self.groups.iter().enumerate();
            let groups = groups.filter(|(number, _)| skipped >> number & 1 == 0);
            let oldest = groups.filter_map(|(number, group)| {
                let charge = group.charges.find(need.charge.holder)?;
                Some((charge.oldest(0)?.0, number, charge))
            });
            let oldest = oldest.min_by_key(|(stamp, ..)| *stamp);
            let Some((_, number, charge)) = oldest else { return false };
            if self.evict_of(number, &charge, need) {
                return true;
            }
            skipped |= 1 << number;
        }
    }

    /// Evicts a task of a holder above its share, first in the group that needs room.
    #[cold]
    fn evict_others(&self, need: &mut Need<'_>, of: OthersTasks) -> bool {
        let own = need.group;
        self.evict_above(own, need, of)
            || (0..self.groups.len())
                .any(|number| number != own && self.evict_above(number, need, of))
    }

    /// Evicts a task of a charge above its share in a group.
    fn evict_above(&self, number: usize, need: &mut Need<'_>, of: OthersTasks) -> bool {
        let charges = &self.groups[number].charges;
        let OthersTasks { list, is_stranger } = of;
        let shares = &match number == need.group {
            true => charges.shares_at(need.resource, is_stranger),
            false => charges.least_shares(need.resource),
        };
        let above = Above { shares, list, is_stranger, needs: need.charge.holder };
        (0..TRIES).any(|round| {
            let charge = charges.above(above, round > 0);
            charge.is_some_and(|charge| match list {
                TaskList::Finished => self.evict_of(number, &charge, need),
                TaskList::Waiting | TaskList::Running => self.end_of(number, &charge, need, list),
            })
        })
    }

    /// Ends and evicts the longest-waiting task of a holder, in any group.
    #[cold]
    fn end_waiting(&self, need: &mut Need<'_>) -> bool {
        let own = need.group;
        let others = (0..self.groups.len()).filter(|number| *number != own);
        std::iter::once(own).chain(others).any(|number| {
            let charge = self.groups[number].charges.find(need.charge.holder);
            charge.is_some_and(|charge| self.end_of(number, &charge, need, TaskList::Waiting))
        })
    }

    /// Ends and evicts the first task in a list of a charge of a group.
    #[cold]
    fn end_of(&self, number: usize, charge: &Charge, need: &mut Need<'_>, list: TaskList) -> bool {
        if !charge.has(list) {
            return false;
        }
        let mut first = None;
        for at in (number * GROUP..).take(GROUP) {
            self.in_shard(at, need, |shard, need| {
                let index = ending(at, shard, charge, list, need.edited).next();
                let stamp = index.map(|index| match list {
                    TaskList::Running => shard.slab[index].event_ms,
                    TaskList::Finished | TaskList::Waiting => shard.slab[index].stamp,
                });
                if let Some(stamp) = stamp
                    && first.is_none_or(|(before, _)| stamp < before)
                {
                    first = Some((stamp, at));
                }
                stamp.is_some()
            });
        }
        first.is_some_and(|(_, at)| {
            self.in_shard(at, need, |shard, need| self.end_in(at, shard, charge, need, list))
        })
    }

    /// Ends and evicts the first task in a list of a charge in a shard. If clients listen to that
    /// task, it stays as a finished task until the next eviction; if another task has no listeners,
    /// that task is ended and evicted instead.
    #[cold]
    fn end_in(
        &self,
        at: usize,
        shard: &mut Shard,
        charge: &Charge,
        need: &mut Need<'_>,
        list: TaskList,
    ) -> bool {
        let tasks = || ending(at, shard, charge, list, need.edited).take(LISTENED_LOOKS);
        let Some(first) = tasks().next() else { return false };
        let unlistened = tasks().find(|index| !shard.slab[*index].is_listened_to());
        // If the final status uses the room reserved for one task, the task cannot stay.
        let slot_at = |index| SlotAt { at, index };
        let may_stay = self.end_task(slot_at(first), shard, need);
        let unlistened = unlistened.filter(|index| may_stay && *index != first);
        if let Some(index) = unlistened {
            self.end_task(slot_at(index), shard, need);
        }
        self.evict_ended(slot_at(unlistened.unwrap_or(first)), shard, need)
    }

    /// Ends a task; false: its final status uses the room reserved for one task of the shard.
    fn end_task(&self, slot_at: SlotAt, shard: &mut Shard, need: &mut Need<'_>) -> bool {
        let edit = Edit::open(self, shard, slot_at, need.now, need.wakes);
        let ended = edit.map(|mut edit| edit.end_evicted());
        if ended.is_some() {
            self.count_end(slot_at.at, EndReason::OwnerShare);
        }
        ended == Some(true)
    }

    /// Evicts a task that has just ended.
    fn evict_ended(&self, slot_at: SlotAt, shard: &mut Shard, need: &mut Need<'_>) -> bool {
        shard.finished.remove(&mut shard.slab, slot_at.index);
        self.evict_task(slot_at, shard, need.group, why(need.resource), need.wakes);
        true
    }

    /// Evicts the first-ended task of a charge in a group.
    fn evict_of(&self, number: usize, charge: &Charge, need: &mut Need<'_>) -> bool {
        let mut skipped = 0u32;
        while let Some((_, at)) = charge.oldest(skipped) {
            skipped |= 1 << at;
            let at = number * GROUP + at;
            let evict =
                |shard: &mut Shard, need: &mut Need<'_>| self.evict_from(at, shard, charge, need);
            if self.in_shard(at, need, evict) {
                return true;
            }
        }
        false
    }

    /// Calls `with` with a shard; false: another thread holds its lock, and the caller has locked
    /// another shard.
    fn in_shard(
        &self,
        at: usize,
        need: &mut Need<'_>,
        with: impl FnOnce(&mut Shard, &mut Need<'_>) -> bool,
    ) -> bool {
        let mut held = need.held.take();
        let done = match &mut held {
            Some((held_at, shard)) if *held_at == at => with(shard, need),
            // Two threads with a locked shard each must not wait for one another.
            Some(_) => self.try_lock(at).is_some_and(|mut shard| with(&mut shard, need)),
            None => with(&mut self.lock(at), need),
        };
        need.held = held;
        done
    }

    fn try_lock(&self, at: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.group(at).shards[at % GROUP].try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poison)) => Some(PoisonError::into_inner(poison)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Evicts the first-ended task of a charge in a shard, and moves its room to the group that
    /// needs it.
    fn evict_from(
        &self,
        at: usize,
        shard: &mut Shard,
        charge: &Charge,
        need: &mut Need<'_>,
    ) -> bool {
        let Some(index) = shard.charged.first(charge.holder, TaskList::Finished) else {
            charge.note_oldest(at, u64::MAX);
            return false;
        };
        self.evict_ended(SlotAt { at, index }, shard, need)
    }

    /// Evicts a finished task of a shard.
    pub(super) fn evict_finished(
        &self,
        slot_at: SlotAt,
        shard: &mut Shard,
        why: Eviction,
        wakes: &mut Wakes,
    ) {
        shard.finished.remove(&mut shard.slab, slot_at.index);
        self.evict_task(slot_at, shard, group_of(slot_at.at), why, wakes);
    }

    /// Evicts a task that was removed from the finished tasks, and moves its room to a group.
    #[inline(never)]
    fn evict_task(
        &self,
        slot_at: SlotAt,
        shard: &mut Shard,
        group: usize,
        why: Eviction,
        wakes: &mut Wakes,
    ) {
        let charges = &self.group(slot_at.at).charges;
        let evicted = shard.evict(slot_at, &self.door, charges, wakes);
        let group = &self.groups[group];
        self.budget.bytes.release(&group.bytes, evicted.bytes);
        self.budget.tasks.release(&group.tasks, 1);
        self.budget.slots.release(&group.slots, evicted.slots);
        group.count(why);
        if let Some((scope, id)) = &evicted.chosen {
            self.unchoose(self.chosen_hash(*scope, id));
        }
    }
}
