//! Bytes that are counted without a stored task: for calls with deferred answers, and for tasks
//! that are about to be created.
//!
//! Invariant: the bytes of a turn that waits for its agent are counted as if its task held them.

use std::sync::Arc;

use super::{
    Refused, Reserved, Store, TaskKey, charges::Resource, evict::NewRoom, id::group_of,
    running::CountedFor, slab::Slot, waiters::Wakes,
};
use crate::{
    service::{Now, OwnerIndex, quota::CallerAccount},
    shares::Holder,
};

/// Bytes counted for a task outside the store. [`Store::release_held`] returns them.
pub struct HeldBytes {
    key: TaskKey,
    bytes: usize,
    held_for: HeldFor,
}

/// The bytes that the creation of a task needs.
#[derive(Clone, Copy)]
pub(super) struct BeginBytes {
    /// The first message of the task: the minimum.
    pub first: usize,
    /// The message and the events of its first turn, if the share of its caller has room.
    pub log: usize,
}

/// The account that the bytes are counted in.
enum HeldFor {
    NoCaller,
    Owner(OwnerIndex),
    Account(Arc<CallerAccount>),
}

impl From<Option<CountedFor<'_>>> for HeldFor {
    fn from(counted_for: Option<CountedFor<'_>>) -> HeldFor {
        match counted_for {
            None => HeldFor::NoCaller,
            Some(CountedFor::Owner(owner)) => HeldFor::Owner(owner),
            Some(CountedFor::Permit(position)) => HeldFor::Account(Arc::clone(position.account())),
        }
    }
}

impl Store {
    /// A key in the worker's group at which bytes can be counted without a task.
    pub fn position_of(&self, worker: usize, now: Now) -> TaskKey {
        TaskKey {
            position: self.sharding.position(self.shard_now(worker, now), 0),
            check: u32::MAX,
        }
    }

    /// Counts bytes outside the store at this key, in no caller's share.
    ///
    /// # Errors
    /// [`Refused::OutOfBytes`].
    pub fn hold_bytes(&self, key: TaskKey, bytes: usize) -> Result<(), Refused> {
        let holder = self.holder_of(key);
        self.take_room(key, holder, bytes, self.last_now(key), &mut Wakes::default())
    }

    /// Returns bytes from [`Store::hold_bytes`].
    pub fn release_bytes(&self, key: TaskKey, bytes: usize) {
        let at = self.sharding.split(key.position).at;
        self.budget.bytes.release(&self.group(at).bytes, bytes);
    }

    /// Counts bytes outside the store for a task, also in the share of its caller. `owner` is the
    /// owner of a task that is not stored yet.
    ///
    /// # Errors
    /// [`Refused::ShareBytesExhausted`], [`Refused::OutOfBytes`].
    pub fn hold_for_task(
        &self,
        key: TaskKey,
        owner: OwnerIndex,
        bytes: usize,
    ) -> Result<HeldBytes, Refused> {
        let running = &self.spaces.running;
        let group = group_of(self.sharding.split(key.position).at);
        let held_for = self.counted_for(key, owner, |counted_for| {
            counted_for.map_or(Ok(()), |of| running.take_bytes(group, of, bytes))?;
            Ok(counted_for.into())
        })?;
        let held = HeldBytes { key, bytes, held_for };
        match self.hold_bytes(key, bytes) {
            Ok(()) => Ok(held),
            Err(refused) => {
                self.release_share(&held);
                Err(refused)
            }
        }
    }

    /// Returns bytes from [`Store::hold_for_task`].
    pub fn release_held(&self, held: HeldBytes) {
        self.release_share(&held);
        self.release_bytes(held.key, held.bytes);
    }

    fn release_share(&self, held: &HeldBytes) {
        match &held.held_for {
            HeldFor::NoCaller => {}
            HeldFor::Owner(owner) => {
                let (running, of) = (&self.spaces.running, CountedFor::Owner(*owner));
                let group = group_of(self.sharding.split(held.key.position).at);
                running.give_back_bytes(group, of, held.bytes);
            }
            HeldFor::Account(account) => account.running_bytes().give_back(held.bytes),
        }
    }

    /// Takes bytes for a reserved task that counts for a caller; returns their number.
    ///
    /// # Errors
    /// [`Refused::ShareBytesExhausted`], [`Refused::OutOfBytes`].
    #[inline(never)]
    pub(super) fn take_to_begin(
        &self,
        reserved: &Reserved<'_>,
        BeginBytes { first, log }: BeginBytes,
        now: Now,
        wakes: &mut Wakes,
    ) -> Result<usize, Refused> {
        let running = &self.spaces.running;
        let (key, owner, holder) = (reserved.key(), reserved.owner(), reserved.holder());
        let group = group_of(self.sharding.split(key.position).at);
        let acquired = self.counted_for(key, owner, |counted_for| {
            let take = |bytes| {
                let acquired = counted_for.map(|of| running.take_bytes(group, of, bytes));
                acquired.unwrap_or(Ok(())).map(|()| bytes)
            };
            take(log).or_else(|_| take(first))
        })?;
        self.take_room(key, holder, acquired, now, wakes).map(|()| acquired).inspect_err(|_| {
            self.counted_for(key, owner, |counted_for| {
                counted_for.into_iter().for_each(|of| running.give_back_bytes(group, of, acquired));
            });
        })
    }

    /// Takes bytes of the store for a holder, in the group of a task.
    #[inline]
    pub(super) fn take_room(
        &self,
        key: TaskKey,
        holder: Holder,
        bytes: usize,
        now: Now,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        let at = self.sharding.split(key.position).at;
        let is_within_half = self.is_within_half(holder, Resource::Bytes, bytes);
        match is_within_half && self.budget.bytes.take(&self.group(at).bytes, bytes) {
            true => Ok(()),
            false => {
                let room = NewRoom { at, holder, resource: Resource::Bytes, wanted: bytes };
                self.make_room_of(room, now, wakes)
            }
        }
    }

    /// The time of the last change in a task's group. It is used in the rare case that counting
    /// bytes ends another task.
    fn last_now(&self, key: TaskKey) -> Now {
        let group = self.group(self.sharding.split(key.position).at);
        Now { mono_ms: self.swept_ms(), unix_ms: group.last_ms() }
    }

    /// The holder that a task is charged to; the default holder, if the task does not exist.
    fn holder_of(&self, key: TaskKey) -> Holder {
        let shard = self.lock_key(key);
        let charge = shard.as_ref().and_then(|shard| {
            let slot = shard.slab.slot(self.sharding.split(key.position).index)?;
            shard.charged.charge(slot.charge)
        });
        charge.map_or(Holder::default(), |charge| charge.holder)
    }

    /// Calls `with` with the account of the caller of a task or a reservation: the account of this
    /// owner, or of the running slot.
    fn counted_for<R>(
        &self,
        key: TaskKey,
        owner: OwnerIndex,
        with: impl FnOnce(Option<CountedFor<'_>>) -> R,
    ) -> R {
        if owner.0 != 0 {
            return with(Some(CountedFor::Owner(owner)));
        }
        let shard = self.lock_key(key);
        let slot = shard
            .as_ref()
            .and_then(|shard| shard.slab.slot(self.sharding.split(key.position).index));
        with(slot.and_then(Slot::counted_for))
    }
}
