//! The one door into a task: here it is made, changed and evicted, and nowhere else.
//!
//! Law: whatever goes through is recorded by the tap, if there is one, under the task's lock and so
//! in the task's order. What is refused leaves no record, and the task as it was.

use std::sync::Arc;

use super::{TaskKey, id::Sharding, slab::Slab};
use crate::{
    model::{EventBuf, Generation, Message, RawText, Refusal, Task, TaskEvent, TaskLimits},
    service::tap::{Record, Tap},
};

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
    /// It leaves the store: its slot is freed next.
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
}

/// What became of a change.
#[derive(Clone, Copy, Default)]
pub(super) struct Entered {
    /// Sequence number of the task afterwards, where one event was applied.
    pub seq: u64,
    /// How many events of a list were applied.
    pub applied: usize,
    /// True: a status was among them.
    pub has_status: bool,
}

/// The door, and who watches it.
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
        (at, index): (usize, u32),
        slab: &mut Slab,
        change: Change<'_>,
    ) -> Result<Entered, Refusal> {
        let mut entered = Entered::default();
        let slot = &mut slab[index];
        match (change, &mut slot.task) {
            (Change::Begin(begin), task) => {
                let Begin { id, context_id, generation, message, at_ms, log } = begin;
                *task = Some(Task::submitted(id, context_id, generation, (message, at_ms), log));
            }
            (Change::Event(event, limits), Some(task)) => {
                entered.seq = task.apply(event, limits)?
            }
            (Change::Events(events, _, limits), Some(task)) => {
                (entered.applied, entered.has_status) = task.apply_at_once(events, limits);
            }
            (Change::Keep(bytes), Some(_)) => {
                slot.waiters.get_or_insert_default().kept = bytes.into();
            }
            (Change::Event(..) | Change::Keep(_), None) => return Err(Refusal::Terminal),
            (Change::Events(..) | Change::Evict, _) => {}
        }
        if let Some(tap) = &self.tap {
            // By value, so that a change whose kind is known needs no memory without a tap.
            self.record(&**tap, (at, index), slab, change, entered.applied);
        }
        Ok(entered)
    }

    #[cold]
    fn record(
        &self,
        tap: &dyn Tap,
        (at, index): (usize, u32),
        slab: &mut Slab,
        change: Change<'_>,
        applied: usize,
    ) {
        let (place, slot) = (self.sharding.place(at, index), &slab[index]);
        let task = TaskKey { place, check: slot.check }.handle();
        let number = match change {
            Change::Begin(Begin { id, context_id, generation, message, at_ms, .. }) => {
                let (id, context_id) = (RawText::known(id), RawText::known(context_id));
                let (scope, is_chosen) = (slot.scope, slot.is_chosen);
                let created = Record::Created {
                    id,
                    context_id,
                    is_chosen,
                    scope,
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
