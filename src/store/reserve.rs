//! Creating a task: first room and an id are reserved, then the agent's turn runs, then the
//! complete task is stored, or nothing.
//!
//! Invariant: an id has at most one task. A dropped reservation returns its room and its id. A task
//! counts as running from its reservation on; its bytes count from the time it is stored.

use std::{cell::Cell, sync::PoisonError};

use super::{
    Edit, ID_LEN, Refused, Store, TaskKey,
    charges::Resource,
    door::{Begin, Change},
    edit::EditedSlot,
    evict::NewRoom,
    group::Group,
    held::BeginBytes,
    id::{GROUP, SlotAt, group_of},
    shard::{Context, HashedMap, Shard, remove, spread},
    slab::StoredTask,
    sync::MutexGuard,
    waiters::Wakes,
};
use crate::{
    limits::SCOPE_BYTES,
    model::{EventBuf, Generation, Message, Task},
    service::{Now, OwnerIndex, RunningShare, Scope, quota::RunningPermit},
    shares::Holder,
};

/// The parameters of a reservation.
#[derive(Clone, Copy)]
pub struct NewTask<'a> {
    /// The scope of the task; it is invisible to other scopes.
    pub scope: Scope,
    /// The number of the agent's program that creates it.
    pub incarnation: u32,
    /// Raw context id; `None`: the store creates one.
    pub context_id: Option<&'a [u8]>,
    /// Raw id that a client chose; `None`: the store creates one.
    pub chosen_id: Option<&'a [u8]>,
    /// Fresh random bits for the id of the task, and for that of the context.
    pub bits: [u128; 2],
    /// The worker: a task in a new context is stored in this worker's group of shards.
    pub worker: usize,
    /// The limits on the caller's running tasks and their bytes; `None`: only the limits of the
    /// store.
    pub share: Option<&'a RunningShare>,
    /// The anonymous caller that the task is charged to if it has no owner.
    pub peer: Holder,
}

impl NewTask<'_> {
    /// The holder that the task is charged to.
    #[inline]
    pub(super) fn holder(&self) -> Holder {
        match self.scope.owner {
            OwnerIndex(0) => self.peer,
            OwnerIndex(owner) => Holder::owner(owner),
        }
    }
}

/// A reservation that outlives its call. [`Store::give_back`] returns its room, [`Store::reopen`]
/// uses it.
pub struct ReservedBuf {
    key: TaskKey,
    scope: Scope,
    holder: Holder,
    incarnation: u32,
    context: Context,
    made: [u8; ID_LEN],
    chosen: Option<(Box<[u8]>, u64)>,
    made_context: [u8; ID_LEN],
    context_id: Option<Box<[u8]>>,
    is_counted: bool,
    private_bytes: Box<[u8]>,
}

impl ReservedBuf {
    /// Sets the agent's private bytes for the task, which fails later if they have no room.
    pub fn keep(&mut self, bytes: Box<[u8]>) {
        self.private_bytes = bytes;
    }

    /// Raw context id that the task will have.
    pub fn context_id(&self) -> &[u8] {
        self.context_id.as_deref().unwrap_or(&self.made_context)
    }
}

/// Room for one task, and its id. Dropping the reservation returns both.
pub struct Reserved<'a> {
    store: &'a Store,
    key: TaskKey,
    scope: Scope,
    holder: Holder,
    incarnation: u32,
    context: Context,
    made: [u8; ID_LEN],
    chosen: Option<(&'a [u8], u64)>,
    made_context: [u8; ID_LEN],
    context_id: Option<&'a [u8]>,
    /// True: the task counts among the running tasks of its caller.
    is_counted: bool,
    /// The agent's private bytes for the task.
    private_bytes: &'a [u8],
    /// True: the task is stored, or the reservation is retained for later.
    is_used_up: Cell<bool>,
}

impl Reserved<'_> {
    /// True when the task was stored or the reservation retained: dropping this value returns
    /// nothing.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.get()
    }

    /// The owner of the task.
    pub fn owner(&self) -> OwnerIndex {
        self.scope.owner
    }

    /// The holder that the task is charged to.
    #[inline]
    pub(super) fn holder(&self) -> Holder {
        self.holder
    }

    /// The key that the task will have.
    pub fn key(&self) -> TaskKey {
        self.key
    }

    /// Retains the reservation for later; this value is used up.
    #[cold]
    pub fn keep(&self) -> ReservedBuf {
        self.is_used_up.set(true);
        ReservedBuf {
            key: self.key,
            scope: self.scope,
            holder: self.holder,
            incarnation: self.incarnation,
            context: self.context,
            made: self.made,
            chosen: self.chosen.map(|(id, hash)| (id.into(), hash)),
            made_context: self.made_context,
            context_id: self.context_id.map(Into::into),
            is_counted: self.is_counted,
            private_bytes: self.private_bytes.into(),
        }
    }

    /// Raw id that the task will have.
    pub fn id(&self) -> &[u8] {
        self.chosen.map_or(&self.made[..], |(id, _)| id)
    }

    /// Raw context id that the task will have.
    pub fn context_id(&self) -> &[u8] {
        self.context_id.unwrap_or(&self.made_context)
    }
}

/// The shard to take a slot from, and its group.
struct SlotShard<'g> {
    group: &'g Group,
    at: usize,
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_used_up() {
            self.release();
        }
    }
}

impl Reserved<'_> {
    /// Returns the room, unused.
    #[cold]
    fn release(&self) {
        self.store.release(self.key, self.scope, self.chosen.map(|(_, hash)| hash));
        let at = self.store.sharding.split(self.key.position).at;
        self.store.spaces.running.give_back(group_of(at), self.scope.owner);
    }
}

impl Store {
    /// Reserves room for a task and creates its id.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::OwnShareFull`], [`Refused::OutOfBytes`]; [`Refused::Taken`]
    /// when a task or a reservation has the chosen id; [`Refused::ShareExhausted`],
    /// [`Refused::TenantShareExhausted`]; [`Refused::ShareBytesExhausted`] when the caller's share
    /// of bytes is used up.
    #[inline]
    pub fn reserve<'a>(&'a self, new: NewTask<'a>, now: Now) -> Result<Reserved<'a>, Refused> {
        let (at, named) = self.shard_for(&new, now);
        match new.share.is_none() && new.scope.owner.0 == 0 {
            true => self.reserve_slot(&new, at, named, now),
            false => self.reserve_share(&new, at, named, now),
        }
    }

    /// The shard for a task, or any shard of its group; and the context, if the call names one.
    #[inline]
    fn shard_for(&self, new: &NewTask<'_>, now: Now) -> (usize, Option<Context>) {
        match new.context_id.map(|id| self.context(new.scope, id)) {
            Some((at, context)) => (at, Some(context)),
            None => (self.own_shard(new.scope, self.shard_now(new.worker, now)), None),
        }
    }

    /// Counts the task as running for its caller, and takes room for it.
    #[inline(never)]
    fn reserve_share<'a>(
        &'a self,
        new: &NewTask<'a>,
        at: usize,
        named: Option<Context>,
        now: Now,
    ) -> Result<Reserved<'a>, Refused> {
        let (owner, running) = (new.scope.owner, &self.spaces.running);
        let of_tenant = new.share.map_or(Ok(None), RunningShare::tenant_permit);
        let of_tenant = of_tenant.map_err(Refused::TenantShareExhausted)?;
        if owner.0 != 0 {
            let group = group_of(at);
            running.take(group, owner, new.share)?;
            // Changed in place, since a reservation is expensive to copy.
            let mut outcome = self.reserve_slot(new, at, named, now);
            match &mut outcome {
                Ok(reserved) => {
                    reserved.is_counted = true;
                    if of_tenant.is_some() {
                        let SlotAt { at, index } = self.sharding.split(reserved.key.position);
                        let mut shard = self.lock(at);
                        shard.slab[index].waiters.get_or_insert_default().of_tenant = of_tenant;
                    }
                }
                Err(_) => running.give_back(group, owner),
            }
            return outcome;
        }
        let on_account = new.share.and_then(|share| Some((share, share.account.as_ref()?)));
        let Some((share, account)) = on_account else {
            return self.reserve_slot(new, at, named, now);
        };
        if !account.running_bytes().has_room(share.begin_kib_max) {
            return Err(Refused::ShareBytesExhausted(share.begin_kib_max));
        }
        let permit =
            RunningPermit::take(account, share).ok_or(Refused::ShareExhausted(share.most))?;
        let mut reserved = self.reserve_slot(new, at, named, now)?;
        let SlotAt { at, index } = self.sharding.split(reserved.key.position);
        let mut shard = self.lock(at);
        let waiters = shard.slab[index].waiters.get_or_insert_default();
        (waiters.running, waiters.of_tenant) = (Some(permit), of_tenant);
        drop(shard);
        reserved.is_counted = true;
        Ok(reserved)
    }

    fn reserve_slot<'a>(
        &'a self,
        new: &NewTask<'a>,
        at: usize,
        named: Option<Context>,
        now: Now,
    ) -> Result<Reserved<'a>, Refused> {
        let mut wakes = Wakes::default();
        let group = self.group(at);
        let holder = new.holder();
        let is_within_half = self.is_within_half(holder, Resource::Tasks, 1);
        if !is_within_half || !self.budget.tasks.take(&group.tasks, 1) {
            let room = NewRoom { at, holder, resource: Resource::Tasks, wanted: 1 };
            self.make_room_of(room, now, &mut wakes)?;
        }
        // A new context can be in any shard of the group, unless its scope has a tenant or an
        // owner.
        let shards = if named.is_none() && new.scope.is_plain() { GROUP } else { 1 };
        let mut acquired = (0..shards).map(|step| {
            self.take_slot(SlotShard { group, at: at ^ step }, new.scope, holder, now, &mut wakes)
        });
        let Some((key, is_uncharged)) = acquired.find_map(|slot| slot) else {
            self.budget.tasks.release(&group.tasks, 1);
            return Err(Refused::Full);
        };
        if is_uncharged {
            let charged = self.charge_scope(key, new.scope, holder, now, &mut wakes);
            charged.inspect_err(|_| self.release(key, new.scope, None))?;
        }
        let index = self.sharding.split(key.position).index;
        let [bits, context_bits] = new.bits;
        // The only task of a context is not found by a hash.
        let alone = Context { hash: 0, context_slot: index };
        let mut chosen = None;
        if let Some(id) = new.chosen_id {
            let hash = self.chosen_hash(new.scope, id);
            if self.find(new.scope, id).is_some() || !self.choose(hash, key.position) {
                self.release(key, new.scope, None);
                return Err(Refused::Taken);
            }
            chosen = Some((id, hash));
        }
        // Built in its return slot, since a reservation is expensive to copy.
        Ok(Reserved {
            store: self,
            key,
            scope: new.scope,
            holder,
            incarnation: new.incarnation,
            context: named.unwrap_or(alone),
            made: self.keys.id(key.position, bits),
            chosen,
            made_context: self.keys.context_id(key.position, context_bits),
            context_id: new.context_id,
            is_counted: false,
            private_bytes: &[],
            is_used_up: Cell::new(false),
        })
    }

    /// Calls `with` with a retained reservation. If `with` stores no task, the room is returned.
    pub fn reopen<R>(&self, retained: ReservedBuf, with: impl FnOnce(&Reserved<'_>) -> R) -> R {
        with(&Reserved {
            store: self,
            key: retained.key,
            scope: retained.scope,
            holder: retained.holder,
            incarnation: retained.incarnation,
            context: retained.context,
            made: retained.made,
            chosen: retained.chosen.as_ref().map(|(id, hash)| (&**id, *hash)),
            made_context: retained.made_context,
            context_id: retained.context_id.as_deref(),
            is_counted: retained.is_counted,
            private_bytes: &retained.private_bytes,
            is_used_up: Cell::new(false),
        })
    }

    /// Returns a retained reservation.
    pub fn give_back(&self, retained: ReservedBuf) {
        self.reopen(retained, |_| ());
    }

    /// Takes a free slot of a shard; true: bytes must be taken for the scope, too.
    #[inline]
    fn take_slot(
        &self,
        SlotShard { group, at }: SlotShard<'_>,
        scope: Scope,
        holder: Holder,
        now: Now,
        wakes: &mut Wakes,
    ) -> Option<(TaskKey, bool)> {
        let mut shard = group.lock(at);
        self.expire(at, &mut shard, now, wakes, 2);
        if !shard.slab.has_free() && !self.make_slot(at, &mut shard, holder, wakes) {
            return None;
        }
        let Shard { slab, scopes, charged, .. } = &mut *shard;
        let (index, check) = slab.take()?;
        slab[index].charge = charged.join(holder, &group.charges);
        Some((TaskKey { position: self.sharding.position(at, index), check }, scopes.join(scope)))
    }

    /// Takes the bytes of a scope when a shard gets its first task of the scope. The bytes are
    /// charged to the owner of the scope; without an owner to no holder, since the tasks of the
    /// scope may belong to several callers.
    #[cold]
    fn charge_scope(
        &self,
        key: TaskKey,
        scope: Scope,
        holder: Holder,
        now: Now,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        self.take_room(key, holder, SCOPE_BYTES, now, wakes)?;
        let SlotAt { at, index } = self.sharding.split(key.position);
        let group = self.group(at);
        let mut shard = group.lock(at);
        if !shard.scopes.charge(scope) {
            // Another call has charged the scope meanwhile.
            drop(shard);
            self.budget.bytes.release(&group.bytes, SCOPE_BYTES);
        } else if scope.owner != OwnerIndex(0)
            && let Some(charge) = shard.charged.charge(shard.slab[index].charge)
        {
            group.charges.count(charge, Resource::Bytes, SCOPE_BYTES);
        }
        Ok(())
    }

    fn release(&self, key: TaskKey, scope: Scope, chosen: Option<u64>) {
        let SlotAt { at, index } = self.sharding.split(key.position);
        let group = self.group(at);
        let mut shard = group.lock(at);
        let bytes = shard.scopes.leave(scope);
        let charge = shard.slab[index].charge;
        let of_owner = if scope.owner == OwnerIndex(0) { 0 } else { bytes };
        shard.charged.leave(charge, of_owner, &group.charges);
        let freed = shard.slab.release(index);
        drop(shard);
        self.budget.bytes.release(&group.bytes, bytes);
        self.budget.slots.release(&group.slots, freed);
        self.budget.tasks.release(&group.tasks, 1);
        if let Some(hash) = chosen {
            self.unchoose(hash);
        }
    }

    /// Stores a reserved task: the client's message, `submitted`, then the agent's events.
    ///
    /// `read` sees the task before any other call does. An event beyond a limit fails the task, and
    /// later events are dropped.
    ///
    /// # Errors
    /// [`Refused::OutOfBytes`]; [`Refused::TooLarge`] when the message alone is too large;
    /// [`Refused::ShareBytesExhausted`] when the message alone exceeds the rest of the caller's
    /// share; [`Refused::Taken`] when the reservation is used up.
    pub fn commit_new<R>(
        &self,
        reserved: &Reserved<'_>,
        generation: Generation,
        message: Message<'_>,
        events: &EventBuf,
        now: Now,
        read: impl FnOnce(StoredTask<'_>) -> R,
    ) -> Result<R, Refused> {
        if reserved.is_used_up() {
            return Err(Refused::Taken);
        }
        let mut wakes = Wakes::default();
        let (id, context_id) = (reserved.id(), reserved.context_id());
        let first = id.len() + context_id.len() + Task::submitted_cost(message);
        if first > self.agent_limits.bytes_max {
            return Err(Refused::TooLarge);
        }
        let mut log = (first + events.bytes_len()).min(self.limits.bytes_max);
        let SlotAt { at, index } = self.sharding.split(reserved.key.position);
        let group = self.group(at);
        if reserved.is_counted {
            log = self.take_to_begin(reserved, BeginBytes { first, log }, now, &mut wakes)?;
        } else {
            self.take_room(reserved.key, reserved.holder, log, now, &mut wakes)?;
        }
        let mut shard = group.lock(at);
        let slot = &mut shard.slab[index];
        (slot.scope, slot.is_chosen) = (reserved.scope, reserved.chosen.is_some());
        (slot.incarnation, slot.context) = (reserved.incarnation, reserved.context.hash);
        (slot.context_slot, slot.is_only_task) =
            (reserved.context.context_slot, reserved.context_id.is_none());
        let (at_ms, spaces) = (now.unix_ms, &self.spaces);
        let begin = Begin { id, context_id, generation, message, at_ms, log, spaces };
        // The creation of a task is never refused.
        let _ = self.door.enter(SlotAt { at, index }, &mut shard.slab, Change::Begin(begin));
        reserved.is_used_up.set(true);
        // If a limit was reached, the task has failed, and `read` sees that.
        let edited = EditedSlot { store: self, group, slot_at: SlotAt { at, index } };
        let mut edit = Edit::begun(edited, &mut shard, log, now, &mut wakes);
        edit.keep_first(reserved.private_bytes);
        let _ = edit.apply_all(events, Some(message));
        drop(edit);
        shard.slab.stored(index).map(read).ok_or(Refused::Full)
    }

    /// The hash of an id that a client chose: its key in the map.
    pub(super) fn chosen_hash(&self, scope: Scope, id: &[u8]) -> u64 {
        self.keys.hash(spread(scope), id)
    }

    fn chosen_map(&self, hash: u64) -> MutexGuard<'_, HashedMap> {
        let map = &self.chosen[self.sharding.shard_of(hash)];
        map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn chosen_position(&self, scope: Scope, id: &[u8]) -> Option<u32> {
        let hash = self.chosen_hash(scope, id);
        self.chosen_map(hash).get(&hash).copied()
    }

    fn choose(&self, hash: u64, position: u32) -> bool {
        let mut map = self.chosen_map(hash);
        let is_new = !map.contains_key(&hash);
        if is_new {
            map.insert(hash, position);
        }
        is_new
    }

    pub(super) fn unchoose(&self, hash: u64) {
        remove(&mut self.chosen_map(hash), hash);
    }

    /// The shard for new contexts of `worker`: it stays the same for some milliseconds, so that
    /// consecutive writes are close together in memory.
    pub(super) fn shard_now(&self, worker: usize, now: Now) -> usize {
        self.sharding.shard_of_worker(worker, now.mono_ms >> 3)
    }
}
