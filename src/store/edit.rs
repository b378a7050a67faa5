//! Changes to one task during a call, and their effects on the store.
//!
//! Invariants: bytes are taken from the store's budget before an event is applied. If an agent's
//! event exceeds a limit, the task fails; room for that final status is reserved. If a client's
//! message exceeds a limit, the task is unchanged. A task that waits for its client does not count
//! as running; it takes a running slot before it continues.

use std::sync::Arc;

use super::{
    FINAL_STATUS_BYTES, Refused, ScopeNames, Store,
    charges::{Resource, TaskList},
    door::{Change, Entered},
    evict::Need,
    group::Group,
    id::{SlotAt, group_of},
    running::CountedFor,
    shard::Shard,
    slab::{Slot, StoredTask, private_heap_bytes},
    waiters::Wakes,
};
use crate::{
    model::{EventBuf, Message, MessageBuf, Refusal, Task, TaskEvent, TaskState},
    service::{AgentIndex, Now, OwnerIndex, RunningShare, Scope, quota::RunningPermit},
};

/// A stored task under its lock; see [`Store::update`].
pub struct Edit<'e> {
    store: &'e Store,
    /// The group of the shard.
    group: &'e Group,
    shard: &'e mut Shard,
    at: usize,
    index: u32,
    now: Now,
    wakes: &'e mut Wakes,
    /// Sequence number of the task when this edit was opened.
    seq: u64,
    /// Bytes taken from the store's budget for the task: at least the held bytes.
    charged: usize,
    /// Bytes of the task that are counted in the charge of its holder.
    held: usize,
    /// True: the task counts as running. If it counts for a caller, it has a running slot of that
    /// caller.
    has_permit: bool,
    /// Bytes counted in the share of the caller while the task runs: at least the held bytes.
    share_charged: usize,
    /// The time of the last new status.
    status_ms: Option<u64>,
}

/// The slot of an edited task.
pub(super) struct EditedSlot<'e> {
    pub store: &'e Store,
    /// The group of the shard.
    pub group: &'e Group,
    pub slot_at: SlotAt,
}

impl<'e> Edit<'e> {
    /// Opens the task of a slot; `None`: the slot has no task.
    pub(super) fn open(
        store: &'e Store,
        shard: &'e mut Shard,
        slot_at: SlotAt,
        now: Now,
        wakes: &'e mut Wakes,
    ) -> Option<Edit<'e>> {
        let SlotAt { at, index } = slot_at;
        let slot = shard.slab.slot(index)?;
        let task = slot.task.get()?;
        let (seq, held, has_permit) =
            (task.seq(), task.heap_bytes() + slot.private_heap_bytes(), runs(task));
        Some(Edit {
            store,
            group: store.group(at),
            shard,
            at,
            index,
            now,
            wakes,
            seq,
            charged: held,
            held,
            has_permit,
            share_charged: if has_permit { held } else { 0 },
            status_ms: None,
        })
    }

    /// Opens a task that was just created as submitted, after `charged` bytes were taken for it.
    #[inline]
    pub(super) fn begun(
        edited: EditedSlot<'e>,
        shard: &'e mut Shard,
        charged: usize,
        now: Now,
        wakes: &'e mut Wakes,
    ) -> Edit<'e> {
        let EditedSlot { store, group, slot_at: SlotAt { at, index } } = edited;
        Edit {
            store,
            group,
            shard,
            at,
            index,
            now,
            wakes,
            seq: 0,
            charged,
            held: 0,
            has_permit: true,
            share_charged: charged,
            status_ms: Some(now.unix_ms),
        }
    }

    #[inline]
    fn slot_at(&self) -> SlotAt {
        SlotAt { at: self.at, index: self.index }
    }

    /// The current task.
    ///
    /// # Panics
    /// Never: an edit is opened on a task, which cannot be evicted meanwhile.
    pub fn task(&self) -> &Task {
        match self.shard.slab[self.index].task.get() {
            Some(task) => task,
            None => unreachable!("an edit holds a task"),
        }
    }

    /// The current task, with the number of its last record.
    ///
    /// # Panics
    /// Never, as [`Edit::task`].
    pub fn stored(&self) -> StoredTask<'_> {
        match self.shard.slab.stored(self.index) {
            Some(task) => task,
            None => unreachable!("an edit holds a task"),
        }
    }

    /// The scope of the task.
    pub fn scope(&self) -> Scope {
        self.shard.slab[self.index].scope
    }

    /// The names of its tenant and of its owner.
    pub fn names(&self) -> ScopeNames {
        self.store.spaces.names(self.scope())
    }

    /// The agent that the task belongs to.
    pub fn agent(&self) -> AgentIndex {
        self.shard.slab[self.index].scope.agent
    }

    /// The incarnation of its agent that the task belongs to.
    #[inline]
    pub fn incarnation(&self) -> u32 {
        self.shard.slab[self.index].incarnation
    }

    /// Assigns the task to this incarnation; wakes the previous incarnation if it waits.
    pub fn set_incarnation(&mut self, incarnation: u32) {
        self.slot().incarnation = incarnation;
        self.shard.wake(self.index, self.wakes);
    }

    /// Counts the start of a turn of the agent.
    pub fn begin_turn(&mut self) {
        let turns = &mut self.slot().turns;
        *turns = turns.saturating_add(1);
    }

    /// Counts the end of a turn of the agent.
    pub fn end_turn(&mut self) {
        let turns = &mut self.slot().turns;
        *turns = turns.saturating_sub(1);
    }

    /// True while a turn of the agent is in progress.
    pub fn has_turn(&self) -> bool {
        self.shard.slab[self.index].turns > 0
    }

    /// The agent's private bytes, stored with the task until it is evicted.
    pub fn private_bytes(&self) -> &[u8] {
        self.shard.slab[self.index].private_bytes()
    }

    /// Stores the agent's private bytes with the task, replacing the previous ones.
    ///
    /// # Errors
    /// [`Refused::Terminal`]; [`Refused::OutOfBytes`], [`Refused::ShareBytesExhausted`]. The task
    /// is unchanged.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if self.task().state().is_terminal() {
            return Err(Refused::Terminal);
        }
        // The previous bytes are counted already, and will be replaced.
        let (before, held) = (self.slot().private_heap_bytes(), private_heap_bytes(bytes));
        self.take_bytes(held, held.saturating_sub(before))?;
        let (door, slot_at) = (&self.store.door, self.slot_at());
        let entered = door.enter(slot_at, &mut self.shard.slab, Change::Keep(bytes));
        entered.map(drop).map_err(|_| Refused::Terminal)
    }

    /// Stores the first private bytes with a task; the task fails if they have no room.
    pub(super) fn keep_first(&mut self, bytes: &[u8]) {
        if !bytes.is_empty()
            && let Err(refused) = self.keep(bytes)
        {
            self.fail_at(&refused);
        }
    }

    /// Adds a client's message to the history. A task that has waited for the message takes a
    /// running slot of the caller again.
    ///
    /// # Errors
    /// [`Refused::Terminal`], [`Refused::TooLarge`], [`Refused::OutOfBytes`],
    /// [`Refused::ShareExhausted`], [`Refused::ShareBytesExhausted`]; the task is unchanged.
    pub fn user_message(
        &mut self,
        message: Message<'_>,
        share: Option<&RunningShare>,
    ) -> Result<(), Refused> {
        if !self.has_permit && !self.task().state().is_terminal() {
            self.take_permit(Some(share))?;
        }
        self.put(&TaskEvent::UserMessage { message }).map(drop)
    }

    /// Applies an event of the agent and returns its sequence number.
    ///
    /// # Errors
    /// [`Refused::Terminal`]; [`Refused::TooLarge`], [`Refused::OutOfBytes`],
    /// [`Refused::ShareExhausted`] and [`Refused::ShareBytesExhausted`] when a limit was reached:
    /// the task has then failed.
    pub fn apply(&mut self, event: &TaskEvent<'_>) -> Result<u64, Refused> {
        self.put(event).inspect_err(|refused| self.fail_at(refused))
    }

    /// Fails the task with the message for the limit that caused a refusal.
    #[cold]
    fn fail_at(&mut self, refused: &Refused) {
        match refused {
            Refused::Terminal | Refused::Taken => {}
            Refused::TooLarge => self.fail(&self.store.final_messages[0]),
            Refused::Full | Refused::OutOfBytes | Refused::OwnShareFull { .. } => {
                self.fail(&self.store.final_messages[1]);
            }
            Refused::ShareBytesExhausted(_) => self.fail(&self.store.final_messages[2]),
            Refused::ShareExhausted(_) | Refused::TenantShareExhausted(_) => {
                self.fail(&self.store.final_messages[3])
            }
        }
    }

    /// Applies events in order, up to the first refusal; `first` is the message of a task that has
    /// just begun: some events may repeat it.
    ///
    /// # Errors
    /// As [`Edit::apply`].
    pub fn apply_all(
        &mut self,
        events: &EventBuf,
        first: Option<Message<'_>>,
    ) -> Result<(), Refused> {
        let applied = self.apply_at_once(events, first);
        if applied == events.len() {
            return Ok(());
        }
        events.iter(first).skip(applied).try_for_each(|event| self.apply(&event).map(drop))
    }

    /// Applies the first events of a list at once, as far as possible; returns their number.
    fn apply_at_once(&mut self, events: &EventBuf, first: Option<Message<'_>>) -> usize {
        let (store, slot_at) = (self.store, self.slot_at());
        let Some(task) = self.shard.slab[self.index].task.get() else { return 0 };
        if !self.has_permit {
            // An event may continue the waiting task, which needs a running slot.
            return 0;
        }
        let growth = task.growth_at_once(events);
        if growth > 0 {
            if task.state().is_terminal() || self.take_share(growth).is_err() {
                return 0;
            }
            if !self.take_free_bytes(growth) {
                self.give_back_share(growth);
                return 0;
            }
            self.charged += growth;
        }
        let change = Change::Events(events, first, &store.agent_limits);
        let entered = store.door.enter(slot_at, &mut self.shard.slab, change);
        let Ok(Entered { applied, status_ms, .. }) = entered else { return 0 };
        self.status_ms = status_ms.or(self.status_ms);
        applied
    }

    fn slot(&mut self) -> &mut Slot {
        &mut self.shard.slab[self.index]
    }

    /// Applies an event; a refusal leaves the task unchanged.
    pub(super) fn put(&mut self, event: &TaskEvent<'_>) -> Result<u64, Refused> {
        let task = self.task();
        if task.state().is_terminal() {
            return Err(Refused::Terminal);
        }
        let growth = task.growth(event);
        if !self.has_permit
            && let TaskEvent::Status { state, .. } = event
            && !state.is_terminal()
            && !state.is_interrupted()
        {
            self.take_permit(None)?;
        }
        if growth > 0 {
            let is_last = matches!(event, TaskEvent::Status { state, .. } if state.is_terminal());
            // A task that has ended is not counted for its caller.
            self.take_bytes(growth, if is_last { 0 } else { growth })?;
        }
        self.apply_charged(event, false).map_err(|refusal| match refusal {
            Refusal::Terminal => Refused::Terminal,
            Refusal::TooLarge | Refusal::TooManyArtifacts => Refused::TooLarge,
        })
    }

    /// Takes bytes from the store's budget, and `of_share` bytes from its caller's share.
    #[inline]
    fn take_bytes(&mut self, bytes: usize, of_share: usize) -> Result<(), Refused> {
        self.take_share(of_share)?;
        if !self.take_free_bytes(bytes) {
            self.make_room(bytes).inspect_err(|_| self.give_back_share(of_share))?;
        }
        self.charged += bytes;
        Ok(())
    }

    /// Takes a running slot and the held bytes from the share of the task's caller. `by` is the
    /// share given with the client's message; `None`: the agent continues the task without one.
    #[cold]
    fn take_permit(&mut self, by: Option<Option<&RunningShare>>) -> Result<(), Refused> {
        let slot = &mut self.shard.slab[self.index];
        let held = slot.task.get().map_or(0, Task::heap_bytes) + slot.private_heap_bytes();
        let of_tenant = slot.waiters.as_mut().and_then(|waiters| waiters.of_tenant.as_deref_mut());
        of_tenant.map_or(Ok(()), RunningPermit::unpark).map_err(Refused::TenantShareExhausted)?;
        let own = self.take_own_permit(by);
        if own.is_err() {
            self.park_of_tenant();
        }
        own?;
        self.has_permit = true;
        // If the bytes have no room, the task still waits, and dropping the edit returns the slot.
        self.take_share(held)
    }

    /// Returns the running slot of the tenant.
    fn park_of_tenant(&mut self) {
        let waiters = self.slot().waiters.as_mut();
        let permit = waiters.and_then(|waiters| waiters.of_tenant.as_deref_mut());
        permit.into_iter().for_each(RunningPermit::park);
    }

    /// Takes a running slot from the caller's share.
    fn take_own_permit(&mut self, by: Option<Option<&RunningShare>>) -> Result<(), Refused> {
        let (running, group) = (&self.store.spaces.running, group_of(self.at));
        let slot = &mut self.shard.slab[self.index];
        match (slot.scope.owner, by) {
            (OwnerIndex(0), _) => {
                let permit = slot.waiters.as_mut().and_then(|waiters| waiters.running.as_mut());
                permit.map_or(Ok(()), RunningPermit::unpark).map_err(Refused::ShareExhausted)?;
            }
            (owner, Some(share)) => running.take(group, owner, share)?,
            (owner, None) => running.take_again(group, owner)?,
        }
        Ok(())
    }

    /// Takes free bytes from the store's budget; false: there are too few, or anonymous callers
    /// hold their half.
    #[inline]
    fn take_free_bytes(&self, bytes: usize) -> bool {
        let charge = self.shard.charged.charge(self.shard.slab[self.index].charge);
        charge.is_some_and(|charge| {
            self.store.is_within_half(charge.holder, Resource::Bytes, bytes)
                && self.store.budget.bytes.take(&self.group.bytes, bytes)
        })
    }

    /// Takes bytes from the store's budget by evicting tasks.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> Result<(), Refused> {
        let slot = &self.shard.slab[self.index];
        let Some(charge) = self.shard.charged.charge(slot.charge).map(Arc::clone) else {
            return Err(Refused::OutOfBytes);
        };
        self.store.make_room(Need {
            group: group_of(self.at),
            charge: &charge,
            resource: Resource::Bytes,
            wanted: bytes,
            held: Some((self.at, &mut *self.shard)),
            edited: Some(SlotAt { at: self.at, index: self.index }),
            now: self.now,
            wakes: &mut *self.wakes,
        })
    }

    /// Takes bytes from the share of the task's caller, if the task has a running slot.
    #[inline]
    fn take_share(&mut self, bytes: usize) -> Result<(), Refused> {
        if !self.has_permit {
            return Ok(());
        }
        if let Some(of) = self.shard.slab[self.index].counted_for() {
            self.store.spaces.running.take_bytes(group_of(self.at), of, bytes)?;
            self.share_charged += bytes;
        }
        Ok(())
    }

    /// Returns bytes to the share.
    #[cold]
    fn give_back_share(&mut self, bytes: usize) {
        if !self.has_permit {
            return;
        }
        if let Some(of) = self.shard.slab[self.index].counted_for() {
            self.store.spaces.running.give_back_bytes(group_of(self.at), of, bytes);
            self.share_charged -= bytes;
        }
    }

    fn apply_charged(&mut self, event: &TaskEvent<'_>, is_last: bool) -> Result<u64, Refusal> {
        let store = self.store;
        let limits = if is_last { &store.limits } else { &store.agent_limits };
        let (door, slot_at) = (&store.door, self.slot_at());
        let change = Change::Event(event, limits);
        let Entered { seq, .. } = door.enter(slot_at, &mut self.shard.slab, change)?;
        if let TaskEvent::Status { at_ms, .. } = event {
            self.status_ms = Some(*at_ms);
        }
        Ok(seq)
    }

    /// Fails an unfinished task with this message, even without room.
    pub(super) fn end(&mut self, why: &MessageBuf) {
        let ended = self.put(&failed(why, self.now));
        if ended.is_err_and(|refused| refused != Refused::Terminal) {
            self.fail(why);
        }
    }

    /// Fails the task to make room for others; false: its final status uses the room reserved for
    /// one task of the shard.
    #[cold]
    pub(super) fn end_evicted(&mut self) -> bool {
        let has_room = self.take_free_bytes(FINAL_STATUS_BYTES);
        if has_room {
            self.charged += FINAL_STATUS_BYTES;
        }
        self.fail(&self.store.final_messages[4]);
        has_room
    }

    /// Fails the task with a message for which its log and the store have reserved room.
    fn fail(&mut self, why: &MessageBuf) {
        let event = failed(why, self.now);
        self.slot().task.make_room(&event);
        let refused = self.apply_charged(&event, true);
        debug_assert!(refused.is_ok(), "{refused:?}");
    }
}

/// Whether a task counts as running: it has not ended and does not wait for its client.
#[inline]
fn runs(task: &Task) -> bool {
    !task.state().is_terminal() && !task.waits_for_client()
}

/// The status of a task that fails with this message.
fn failed(why: &MessageBuf, now: Now) -> TaskEvent<'_> {
    let (state, at_ms, message) = (TaskState::Failed, now.unix_ms, Some(why.view()));
    TaskEvent::Status { state, at_ms, message, metadata: None }
}

impl Drop for Edit<'_> {
    /// Applies the effects of the change: lists, budget, wakers.
    fn drop(&mut self) {
        let (seq, mono_ms) = (self.seq, self.now.mono_ms);
        let status_ms = self.status_ms.map(|ms| ms.min(self.now.unix_ms));
        let slot = self.slot();
        let Some(task) = slot.task.get() else { return };
        let (has_event, has_ended) = (task.seq() != seq, task.state().is_terminal());
        if has_event {
            slot.event_ms = mono_ms;
        }
        if has_ended && status_ms.is_some() {
            slot.task.fit();
            if slot.listed.is_some() {
                // Tasks stored next to it may be evicted already, and it stays as long as new
                // tasks: its log moves to their memory.
                slot.task.relocate();
            }
        }
        let is_counted = slot.counted_for().is_some();
        if is_counted && self.has_permit {
            self.settle_share();
        }
        let Some(status_ms) = status_ms else {
            if has_event {
                self.note_event();
            }
            return self.close();
        };
        self.shard.list(self.index, self.at, self.group.stamp(status_ms));
        self.close();
    }
}

impl Edit<'_> {
    /// Moves a running task to the end of its charge's list, after an event.
    #[inline]
    fn note_event(&mut self) {
        let slot = &self.shard.slab[self.index];
        if slot.listed.map(TaskList::of) == Some(TaskList::Running) {
            self.shard.charged.touch(&mut self.shard.slab, self.index, self.at);
        }
    }

    /// Corrects the bytes counted for the task's caller. If the task has ended or waits for its
    /// client, removes its bytes and its running slot from the counts.
    #[inline(never)]
    fn settle_share(&mut self) {
        let running = &self.store.spaces.running;
        let slot = &self.shard.slab[self.index];
        let Some(counted_for) = slot.counted_for() else { return };
        let task = slot.task.get().filter(|task| runs(task));
        let held = task.map_or(0, |task| task.heap_bytes() + slot.private_heap_bytes());
        debug_assert!(
            held <= self.share_charged,
            "a running task holds at most the bytes that its share was charged"
        );
        let unused = self.share_charged.saturating_sub(held);
        if unused > 0 {
            running.give_back_bytes(group_of(self.at), counted_for, unused);
        }
        if task.is_some() {
            return;
        }
        if let CountedFor::Owner(owner) = counted_for {
            running.give_back(group_of(self.at), owner);
        } else {
            let waiters = self.slot().waiters.as_mut();
            let permit = waiters.and_then(|waiters| waiters.running.as_mut());
            permit.into_iter().for_each(RunningPermit::park);
        }
        self.park_of_tenant();
    }

    fn close(&mut self) {
        let slot = &self.shard.slab[self.index];
        let Some(task) = slot.task.get() else { return };
        let is_news = task.seq() != self.seq && (slot.waiters.is_some() || slot.watch.is_some());
        let is_over = task.state().is_terminal();
        let held = task.heap_bytes() + slot.private_heap_bytes();
        self.store.budget.bytes.settle(&self.group.bytes, self.charged, held);
        if let Some(charge) = self.shard.charged.charge(slot.charge) {
            self.group.charges.settle_bytes(charge, self.held, held);
        }
        match (is_news, is_over) {
            (false, _) => {}
            (true, false) => self.shard.wake(self.index, self.wakes),
            // No further change follows.
            (true, true) => self.shard.end_waits(self.index, self.wakes),
        }
    }
}
