//! What goes through the door into tasks, for a journal or a replica.
//!
//! Invariant: everything that happens to a task is recorded, in its order and before a caller sees
//! it. What shows a task is held back until the last record that it shows of it is durable; what
//! shows none waits for nothing.

use std::task::Waker;

use crate::{
    model::{Generation, Message, RawText, TaskEvent},
    service::{Handle, Scope},
};

/// What happened to a task.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A client's message has made it, and it is `submitted`.
    Created {
        /// Its id, which a client or the store has chosen.
        id: RawText<'a>,
        /// The id of its conversation.
        context_id: RawText<'a>,
        /// True: a client has chosen the id, so that it does not name the task's place.
        is_chosen: bool,
        /// Whose it is. The numbers of tenant and owner are of this run, and of this task's time.
        scope: Scope,
        /// The name of the tenant.
        tenant: Option<&'a str>,
        /// The name of the owner.
        owner: Option<&'a str>,
        /// The wire family of the call that made it.
        generation: Generation,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
        /// The message.
        message: Message<'a>,
    },
    /// It has changed.
    Changed(TaskEvent<'a>),
    /// Its agent keeps these bytes with it, in place of those before; see
    /// [`Job::keep`](crate::agent::Job::keep).
    Kept(&'a [u8]),
    /// It has left the store; its handle will never name another.
    Evicted,
}

impl Record<'_> {
    /// The number of the kind in a journal; 5 to 15 are kept for push configurations and for
    /// requests that may be repeated.
    pub fn kind(&self) -> u8 {
        match self {
            Record::Created { .. } => 1,
            Record::Changed(_) => 2,
            Record::Evicted => 3,
            Record::Kept(_) => 4,
        }
    }
}

/// Keeps what happens to tasks. A server without one pays nothing for it; with one, the store takes
/// 8 bytes more for each slot.
///
/// Numbers count records of all tasks, from 1 on.
pub trait Tap: Send + Sync {
    /// Takes a record of a task and says its number; under the lock of the task, so it must be
    /// quick and must not call the service. A task's records have rising numbers.
    fn record(&self, task: Handle, record: Record<'_>) -> u64;

    /// Records up to this number are durable.
    fn durable(&self) -> u64;

    /// Wakes `wake` once the record of this number is durable, at once if it is.
    fn wait(&self, number: u64, wake: &Waker);
}

/// The waker that a tap was given for a record: it is given once, however often one looks.
#[derive(Debug, Default)]
pub(crate) struct DurableWait(Option<Waker>);

impl DurableWait {
    /// True when the record is durable; otherwise `wake` is woken when it is.
    pub(crate) fn is_durable(&mut self, tap: &dyn Tap, record: u64, wake: &Waker) -> bool {
        if tap.durable() >= record {
            self.0 = None;
            return true;
        }
        if !self.0.as_ref().is_some_and(|told| told.will_wake(wake)) {
            self.0 = Some(wake.clone());
            tap.wait(record, wake);
        }
        false
    }
}
