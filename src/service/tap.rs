//! The journal hook: receives every change of a task, for a journal or a replica.
//!
//! Invariant: each change of a task is recorded, in order and before a caller sees it. An answer
//! that shows a task is held back until the task's last record in it is durable; other answers
//! never wait.

use std::task::Waker;

use crate::{
    model::{Generation, Message, RawText, TaskEvent},
    service::{Handle, Scope},
};

/// A change of a task.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A client's message created the task, in state `submitted`.
    Created {
        /// The id of the task, chosen by a client or the store.
        id: RawText<'a>,
        /// The id of its context.
        context_id: RawText<'a>,
        /// True: a client chose the id, so the id does not encode the task's slot.
        is_chosen: bool,
        /// The scope of the task. The numbers of tenant and owner are valid in this process, as
        /// long as the task exists.
        scope: Scope,
        /// The name of the tenant.
        tenant: Option<&'a str>,
        /// The name of the owner.
        owner: Option<&'a str>,
        /// The wire family of the call that created the task.
        generation: Generation,
        /// The time in milliseconds since the Unix epoch.
        at_ms: u64,
        /// The message.
        message: Message<'a>,
    },
    /// An event was applied to the task.
    Changed(TaskEvent<'a>),
    /// The agent stores these bytes with the task, and replaces the previous bytes; see
    /// [`Job::keep`](crate::agent::Job::keep).
    Kept(&'a [u8]),
    /// The task was evicted; its handle will never refer to another task.
    Evicted,
}

impl Record<'_> {
    /// The number of the kind in a journal; 5 to 15 are reserved for push configurations and for
    /// repeatable requests.
    pub fn kind(&self) -> u8 {
        match self {
            Record::Created { .. } => 1,
            Record::Changed(_) => 2,
            Record::Evicted => 3,
            Record::Kept(_) => 4,
        }
    }
}

/// Records changes of tasks. A server without a tap has no cost; with a tap, the store uses 8 bytes
/// more for each slot.
///
/// Record numbers start at 1 and count the records of all tasks.
pub trait Tap: Send + Sync {
    /// Stores a record of a task and returns its number. Called under the lock of the task, so it
    /// must be quick and must not call the service. A task's records have increasing numbers.
    fn record(&self, task: Handle, record: Record<'_>) -> u64;

    /// The number up to which all records are durable.
    fn durable(&self) -> u64;

    /// Wakes `wake` once the record with this number is durable; immediately if it is durable
    /// already.
    fn wait(&self, number: u64, wake: &Waker);
}

/// The waker that is registered with a tap for a record, to register it only once.
#[derive(Debug, Default)]
pub(crate) struct DurableWait(Option<Waker>);

impl DurableWait {
    /// True when the record is durable; otherwise `wake` is woken when it is.
    pub(crate) fn is_durable(&mut self, tap: &dyn Tap, record: u64, wake: &Waker) -> bool {
        if tap.durable() >= record {
            self.0 = None;
            return true;
        }
        if !self.0.as_ref().is_some_and(|registered| registered.will_wake(wake)) {
            self.0 = Some(wake.clone());
            tap.wait(record, wake);
        }
        false
    }
}
