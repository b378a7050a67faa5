//! The one door into a task: here it is made, changed and evicted, and nowhere else, since no other
//! code gets hold of a [`TaskInSlot`] to change it.
//!
//! Invariant: whatever goes through is recorded by the tap, if there is one, under the task's lock
//! and so in the task's order. What is refused leaves no record, and the task as it was.

use std::sync::Arc;

use super::{
    TaskKey,
    id::{Sharding, SlotAt},
    slab::Slab,
    spaces::Spaces,
};
use crate::{
    model::{EventBuf, Generation, Message, RawText, Refusal, Task, TaskEvent, TaskLimits},
    service::tap::{Record, Tap},
};

/// The task of a slot, or none. Others read it, and may move it to other memory.
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

/// What happens to a task.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// It is made; its slot says whose it is.
    Begin(Begin<'a>),
    /// One event is applied.
    Event(&'a TaskEvent<'a>, &'a TaskLimits),
    /// The first events of a list are applied, as many as nothing is in the way of; some may repeat
    /// the message that began the task.
    Events(&'a EventBuf, Option<Message<'a>>, &'a TaskLimits),
    /// Bytes of its agent are kept with it, in place of those before.
    Keep(&'a [u8]),
    /// It leaves the store: see [`Door::evict`].
    Evict,
}

/// With what a task begins.
#[derive(Clone, Copy)]
pub(super) struct Begin<'a> {
    pub id: &'a [u8],
    pub context_id: &'a [u8],
    pub generation: Generation,
    pub message: Message<'a>,
    pub at_ms: u64,
    /// Bytes of log to begin with.
    pub log: usize,
    /// What knows the names of its scope.
    pub spaces: &'a Spaces,
}

/// What became of a change.
#[derive(Clone, Copy, Default)]
pub(super) struct Entered {
    /// Sequence number of the task afterwards, where one event was applied.
    pub seq: u64,
    /// How many events of a list were applied.
    pub applied: usize,
    /// When the last status among them says that it was entered.
    pub status_ms: Option<u64>,
}

/// The door, and its watcher.
pub(super) struct Door {
    pub tap: Option<Arc<dyn Tap>>,
    pub sharding: Sharding,
}

impl Door {
    /// Changes the task of a slot.
    ///
    /// # Errors
    /// [`Refusal`] where one event is not applied.
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
                *task = Some(Task::submitted(id, context_id, generation, (message, at_ms), log));
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
                slot.waiters.get_or_insert_default().kept = bytes.into();
            }
            (Change::Event(..) | Change::Keep(_), None) => return Err(Refusal::Terminal),
            (Change::Events(..) | Change::Evict, _) => {}
        }
        if let Some(tap) = &self.tap {
            // By value, so that a change whose kind is known needs no memory without a tap.
            self.record(&**tap, slot_at, slab, change, entered.applied);
        }
        Ok(entered)
    }

    /// Takes the task out of a slot, which is to be freed next.
    pub fn evict(&self, slot_at: SlotAt, slab: &mut Slab) -> Option<Task> {
        // What leaves is not refused.
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
        let (place, slot) = (self.sharding.place(at, index), &slab[index]);
        let task = TaskKey { place, check: slot.check }.handle();
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
