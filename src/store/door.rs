//! The only code that creates, changes and evicts tasks: no other module can change a
//! [`TaskInSlot`].
//!
//! Invariant: the tap, if there is one, records each change under the task's lock, so the records
//! of a task are in order. A refused change is not recorded and leaves the task unchanged.

use std::sync::Arc;

use super::{
    TaskKey,
    id::{Sharding, SlotAt},
    slab::Slab,
    spaces::Spaces,
};
use crate::{
    model::{
        EventBuf, FirstMessage, Generation, Message, RawText, Refusal, Task, TaskEvent, TaskLimits,
    },
    service::tap::{Record, Tap},
};

/// The task of a slot, if there is one. Other modules can read the task, and move it to other
/// memory.
#[derive(Default)]
pub(super) struct TaskInSlot(Option<Task>);

impl TaskInSlot {
    /// The task.
    #[inline(always)]
    pub fn get(&self) -> Option<&Task> {
        self.0.as_ref()
    }

    /// See [`Task::make_room`].
    pub fn make_room(&mut self, event: &TaskEvent<'_>) {
        self.0.iter_mut().for_each(|task| task.make_room(event));
    }

    /// See [`Task::fit`].
    #[inline]
    pub fn fit(&mut self) {
        self.0.iter_mut().for_each(Task::fit);
    }

    /// See [`Task::relocate`].
    pub fn relocate(&mut self) -> usize {
        self.0.as_mut().map_or(0, Task::relocate)
    }
}

/// A change of a task.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// The task is created; its slot holds its scope.
    Begin(Begin<'a>),
    /// One event is applied.
    Event(&'a TaskEvent<'a>, &'a TaskLimits),
    /// The first events of a list are applied, up to the first that needs [`Change::Event`]; some
    /// events may repeat the first message of the task.
    Events(&'a EventBuf, Option<Message<'a>>, &'a TaskLimits),
    /// The agent stores private bytes with the task, replacing the previous ones.
    Keep(&'a [u8]),
    /// The task is evicted: see [`Door::evict`].
    Evict,
}

/// The data of a new task.
#[derive(Clone, Copy)]
pub(super) struct Begin<'a> {
    pub id: &'a [u8],
    pub context_id: &'a [u8],
    pub generation: Generation,
    pub message: Message<'a>,
    pub at_ms: u64,
    /// Bytes to allocate for the log.
    pub log: usize,
    /// Resolves the names of its scope.
    pub spaces: &'a Spaces,
}

/// The result of a change.
#[derive(Clone, Copy, Default)]
pub(super) struct Entered {
    /// The task's new sequence number, if one event was applied.
    pub seq: u64,
    /// Events of a list that were applied.
    pub applied: usize,
    /// The time of the last status among them.
    pub status_ms: Option<u64>,
}

/// Changes tasks, and records each change in the tap.
pub(super) struct Door {
    pub tap: Option<Arc<dyn Tap>>,
    pub sharding: Sharding,
}

impl Door {
    /// Changes the task of a slot.
    ///
    /// # Errors
    /// [`Refusal`] if an event is not applied.
    #[inline(always)] // Each caller has one kind of change.
    pub fn enter(
        &self,
        slot_at: SlotAt,
        slab: &mut Slab,
        change: Change<'_>,
    ) -> Result<Entered, Refusal> {
        let mut entered = Entered::default();
        let slot = &mut slab[slot_at.index];
        match (change, &mut slot.task.0) {
            (Change::Begin(begin), task) => {
                let Begin { id, context_id, generation, message, at_ms, log, .. } = begin;
                let first = FirstMessage { message, at_ms };
                *task = Some(Task::submitted(id, context_id, generation, first, log));
            }
            (Change::Event(event, limits), Some(task)) => {
                entered.seq = task.apply(event, limits)?
            }
            (Change::Events(events, _, limits), Some(task)) => {
                let (applied, has_status) = task.apply_at_once(events, limits);
                entered.applied = applied;
                entered.status_ms = has_status.then(|| task.updated_ms());
            }
            (Change::Keep(bytes), Some(_)) => {
                slot.waiters.get_or_insert_default().private_bytes = bytes.into();
            }
            (Change::Event(..) | Change::Keep(_), None) => return Err(Refusal::Terminal),
            (Change::Events(..) | Change::Evict, _) => {}
        }
        if let Some(tap) = &self.tap {
            // `change` is passed by value, so that without a tap a change of constant kind needs no
            // memory.
            self.record(&**tap, slot_at, slab, change, entered.applied);
        }
        Ok(entered)
    }

    /// Takes the task out of a slot, which the caller frees next.
    pub fn evict(&self, slot_at: SlotAt, slab: &mut Slab) -> Option<Task> {
        // An eviction is never refused.
        let _ = self.enter(slot_at, slab, Change::Evict);
        slab[slot_at.index].task.0.take()
    }

    #[cold]
    fn record(
        &self,
        tap: &dyn Tap,
        SlotAt { at, index }: SlotAt,
        slab: &mut Slab,
        change: Change<'_>,
        applied: usize,
    ) {
        let (position, slot) = (self.sharding.position(at, index), &slab[index]);
        let task = TaskKey { position, check: slot.check }.handle();
        let number = match change {
            Change::Begin(Begin { id, context_id, generation, message, at_ms, spaces, .. }) => {
                let names = spaces.names(slot.scope);
                let (id, context_id) = (RawText::known(id), RawText::known(context_id));
                let (scope, is_chosen) = (slot.scope, slot.is_chosen);
                let created = Record::Created {
                    id,
                    context_id,
                    is_chosen,
                    scope,
                    tenant: names.tenant.as_deref(),
                    owner: names.owner.as_deref(),
                    generation,
                    at_ms,
                    message,
                };
                Some(tap.record(task, created))
            }
            Change::Event(event, _) => Some(tap.record(task, Record::Changed(*event))),
            Change::Events(events, first, _) => {
                let events = events.iter(first).take(applied);
                events.map(|event| tap.record(task, Record::Changed(event))).last()
            }
            Change::Keep(bytes) => Some(tap.record(task, Record::Kept(bytes))),
            Change::Evict => Some(tap.record(task, Record::Evicted)),
        };
        if let Some(number) = number {
            slab.note_record(index, number);
        }
    }
}
