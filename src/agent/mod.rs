//! The interface for agents: an [`Agent`] receives a [`Turn`] for every message and publishes
//! events.
//!
//! A turn runs on the worker's thread and must not block. An agent that can answer at once
//! publishes through the turn and returns: nothing is spawned, queued or woken. An agent that needs
//! time asks to be called again ([`Turn::resume_after`]), or takes a [`Job`] and publishes from any
//! thread, or takes a [`Deferred`] if it does not know yet whether a task will be created.

mod adopt;
mod cancel;
mod deferred;
pub mod echo;
mod failure;
mod ids;
mod job;
mod lookup;
mod request;
#[cfg(feature = "script")]
pub mod script;
mod traced;
mod turn;
mod watch;

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    fault::Fault,
    model::{EventBuf, Message, MessageBuf, RawText, TaskEvent, TaskView},
    service::{Handle, LateCall, Scope, Waiter, upstream::UpstreamMeter},
};

pub use crate::model::{Extension, Profile, Provider, Skill};
pub use adopt::{Adopted, NotKept};
pub use cancel::{CancelDecision, CancelHost, CancelRequest, DeferredCancel};
pub use deferred::Deferred;
pub(crate) use failure::panic_of;
#[cfg(feature = "net")]
pub(crate) use failure::run_step;
pub use failure::{
    AgentFailure, AgentOutcome, FailureCause, FailureListener, FailureNote, FailureRules,
};
#[cfg(feature = "net")]
#[doc(hidden)]
pub use ids::TurnKey;
pub use job::Job;
pub use lookup::{DeferredLookup, LookupAnswer, LookupHost, TaskLookup, Wanted};
pub(crate) use request::OwnedHeaders;
pub use request::{Headers, RequestInfo, RequestView};
pub(crate) use traced::TracedAgent;
pub use turn::Turn;
pub use watch::{CallerGone, Canceled};

/// A program that answers messages.
pub trait Agent: Send + Sync {
    /// Called for each message to this agent, for a new task or a running task.
    fn start(&self, turn: Turn<'_>);

    /// Called after [`Turn::resume_after`], unless the task has ended meanwhile.
    fn resume(&self, _turn: Turn<'_>, _token: u64) {}

    /// Called for each unfinished task of this agent's previous program after it was replaced;
    /// [`Adopted::into_job`] continues the task. The default fails the task with a reason.
    ///
    /// Not called for tasks that wait for their client (`input-required`, `auth-required`): the
    /// next message of the client starts a turn.
    fn adopt(&self, _task: Adopted) {}

    /// Called before a client's cancel ends a running task: the agent may refuse, or decide later.
    /// The default agrees.
    fn cancel(&self, _cancel: CancelRequest<'_>) {}

    /// Called when a client wants to get, cancel or subscribe to a task that is not stored: the
    /// agent may provide the task, now or later. The default answers that the task does not exist.
    ///
    /// Any caller can request any id, so an agent with an expensive lookup must bound its rate.
    fn missing(&self, _lookup: TaskLookup<'_>) {}

    /// Metrics of the upstream that answers for the agent; `None`: it has no upstream.
    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        None
    }
}

/// How a turn ended.
pub enum Ending {
    /// The agent has published all events for now.
    Returned,
    /// The agent answered with a direct message, which requires that no task exists yet.
    Replied(MessageBuf),
    /// The agent asked to be called again.
    Resume {
        /// After this number of milliseconds.
        after_ms: u64,
        /// With this token.
        token: u64,
    },
    /// The agent took a [`Job`]; the events before that are already applied.
    Detached,
    /// The agent refused the message: the call fails, and no task is stored.
    Refused(Fault),
    /// The agent took a [`Deferred`]: the call waits.
    Deferred,
}

/// The server's side of a turn.
pub trait TurnHost {
    /// Applies `events` to the task, which is stored from now on, and clears the list.
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed>;
    /// Shows the task as it was before the turn; not called if the message starts a new task.
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>));
    /// The call that waits for the turn; `None`: no call waits, or the call is answered at once.
    fn call(&mut self) -> Option<Arc<LateCall>> {
        None
    }
    /// Lets the call wait; `held_bytes` is the memory that the agent holds for it. `events` are
    /// published when the task is stored.
    fn defer(
        &mut self,
        _events: &mut EventBuf,
        _held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        Err(Closed)
    }
}

/// The server's side of a job.
pub trait JobHost: Send + Sync {
    /// Applies one event to a task.
    fn publish(&self, task: Handle, event: &TaskEvent<'_>) -> Result<(), Closed>;
    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64;
    /// Stores bytes with a task.
    fn keep(&self, task: Handle, bytes: &[u8]) -> Result<(), NotKept>;
    /// The bytes stored with a task.
    fn kept(&self, task: Handle) -> Vec<u8>;
    /// Shows the current task; false: the task was evicted, or belongs to another program.
    fn read(&self, task: Handle, each: &mut dyn FnMut(TaskView<'_>)) -> bool;
    /// Reports a failure to the operator, and returns the text for the client.
    fn failed(&self, failed: FailureNote) -> String;
    /// Ready when the task has ended, was evicted, or belongs to another program; otherwise
    /// registers `wake`.
    fn poll_ended(&self, task: Handle, waiter: &mut Waiter, wake: &Waker) -> Poll<()>;
}

/// The server's side of a deferred turn.
pub trait DeferredHost: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64;
    /// Publishes an event together with the task, when the task is stored.
    fn prepare(&mut self, event: &TaskEvent<'_>);
    /// Stores bytes with the task: at once, or when the task is stored.
    fn keep(&mut self, bytes: Box<[u8]>) -> Result<(), NotKept>;
    /// Stores the task, unless it exists, and continues the call with it.
    fn begin(self: Box<Self>, message: Message<'_>) -> Result<(Handle, Arc<dyn JobHost>), Closed>;
    /// Answers the call with a message.
    fn reply(self: Box<Self>, message: MessageBuf);
    /// As [`JobHost::failed`].
    fn failed(&self, failed: FailureNote) -> String;
    /// Fails the call.
    fn refuse(self: Box<Self>, fault: Fault);
    /// The task that the message belongs to, if it exists.
    fn task(&self) -> Option<(Handle, Arc<dyn JobHost>)>;
    /// The bytes stored with a task of a scope; empty: no bytes.
    fn kept_with(&self, scope: Scope, task_id: RawText<'_>) -> Vec<u8>;
    /// The bytes stored with the newest task of a context that has any.
    fn kept_in_context(&self, scope: Scope, context_id: RawText<'_>) -> Vec<u8>;
}

/// The task accepts no more events: it has ended, was canceled, has reached a limit, or belongs to
/// another program because its agent was replaced or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the task accepts no more events")
    }
}

impl std::error::Error for Closed {}

/// A copy of the event's message with a fresh id, if the message has no id.
fn with_id(event: &TaskEvent<'_>, fresh: impl FnOnce() -> String) -> Option<MessageBuf> {
    match *event {
        TaskEvent::Status { message: Some(message), .. } if message.message_id().is_empty() => {
            Some(MessageBuf::with_id(message, &fresh()))
        }
        TaskEvent::Status { .. } | TaskEvent::Artifact { .. } | TaskEvent::UserMessage { .. } => {
            None
        }
    }
}

/// The event with this message instead of its own, if the event is a status.
fn with_message<'m>(event: &TaskEvent<'m>, message: &'m MessageBuf) -> TaskEvent<'m> {
    match *event {
        TaskEvent::Status { state, at_ms, metadata, .. } => {
            TaskEvent::Status { state, at_ms, message: Some(message.view()), metadata }
        }
        TaskEvent::Artifact { .. } | TaskEvent::UserMessage { .. } => *event,
    }
}
