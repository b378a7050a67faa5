//! What users write: an [`Agent`] gets a [`Turn`] for every message and publishes what it does.
//!
//! A turn runs on the worker's thread and must not block. An agent that is ready publishes through
//! the turn and returns: nothing is spawned, queued or woken. One that needs time either asks to
//! be called again ([`Turn::resume_after`]), takes a [`Job`] along and publishes from anywhere, or,
//! as long as it does not know whether there will be a task at all, takes a [`Deferred`].

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
pub(crate) use request::KeptHeaders;
pub use request::{Headers, RequestInfo, RequestView};
pub(crate) use traced::TracedAgent;
pub use turn::Turn;
pub use watch::{CallerGone, Canceled};

/// A program that answers messages.
pub trait Agent: Send + Sync {
    /// Called for each message to this agent, for a new task or a running one.
    fn start(&self, turn: Turn<'_>);

    /// Called after [`Turn::resume_after`], unless the task has ended meanwhile.
    fn resume(&self, _turn: Turn<'_>, _token: u64) {}

    /// Called for each unfinished task that another program of this agent was at work at, after it
    /// was replaced; [`Adopted::into_job`] goes on with it. Without, the task fails and says why.
    ///
    /// Tasks that wait for their client (`input-required`, `auth-required`) are not asked for: the
    /// client's next message begins a turn.
    fn adopt(&self, _task: Adopted) {}

    /// Called before a client's cancel ends a task that runs: the agent may refuse, or decide
    /// later. One that does neither agrees.
    fn cancel(&self, _cancel: CancelRequest<'_>) {}

    /// Called when a client wants to see, cancel or follow a task that is not stored: the agent may
    /// know it all the same, and say so now or later. One that does nothing does not.
    ///
    /// Any caller can ask for any id: an agent that goes to look for it bounds how often it does.
    fn missing(&self, _lookup: TaskLookup<'_>) {}

    /// What the agent counts of the upstream that answers for it, for metrics; `None`: it has none.
    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        None
    }
}

/// What became of a turn's events, and of the turn itself.
pub enum Ending {
    /// The agent said all it wanted for now.
    Returned,
    /// It answered with a direct message (no task may exist yet).
    Replied(MessageBuf),
    /// It wants to be called again.
    Resume {
        /// In this many milliseconds.
        after_ms: u64,
        /// With this token.
        token: u64,
    },
    /// It took a [`Job`] along; the events before that are already applied.
    Detached,
    /// It refused the message: the call fails, and no task is made.
    Refused(Fault),
    /// It took a [`Deferred`] along: the call waits.
    Deferred,
}

/// The side of a turn that belongs to the server.
pub trait TurnHost {
    /// Applies `events` to the task, which exists from now on, and empties the list.
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed>;
    /// Shows the task as it was before the turn; nothing when the message starts a new one.
    fn read(&self, each: &mut dyn FnMut(TaskView<'_>));
    /// The call that waits for the turn; `None`: it is answered at once, or there is none.
    fn call(&mut self) -> Option<Arc<LateCall>> {
        None
    }
    /// Lets the call wait; `held_bytes` is what the agent keeps of it. `events` are published when
    /// there is a task.
    fn defer(
        &mut self,
        _events: &mut EventBuf,
        _held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        Err(Closed)
    }
}

/// The side of a job that belongs to the server.
pub trait JobHost: Send + Sync {
    /// Applies one event to a task.
    fn publish(&self, task: Handle, event: &TaskEvent<'_>) -> Result<(), Closed>;
    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64;
    /// Keeps bytes with a task.
    fn keep(&self, task: Handle, bytes: &[u8]) -> Result<(), NotKept>;
    /// What is kept with a task.
    fn kept(&self, task: Handle) -> Vec<u8>;
    /// Shows the task as it is now; false: it has left the store, or belongs to another program.
    fn read(&self, task: Handle, each: &mut dyn FnMut(TaskView<'_>)) -> bool;
    /// Tells the operator of a failure, and returns the text for the client.
    fn failed(&self, failed: FailureNote) -> String;
    /// Ready when the task has ended or left the store, or belongs to another program; registers
    /// `wake` otherwise.
    fn poll_ended(&self, task: Handle, waiter: &mut Waiter, wake: &Waker) -> Poll<()>;
}

/// The side of a deferred turn that belongs to the server.
pub trait DeferredHost: Send + Sync {
    /// Publishes an event with the task that the turn becomes, when it does.
    fn prepare(&mut self, event: &TaskEvent<'_>);
    /// Keeps bytes with the task: at once, or when it is stored.
    fn keep(&mut self, bytes: Box<[u8]>) -> Result<(), NotKept>;
    /// Stores the task, unless it exists, and lets the call go on with it.
    fn begin(self: Box<Self>, message: Message<'_>) -> Result<(Handle, Arc<dyn JobHost>), Closed>;
    /// Answers the call with a message.
    fn reply(self: Box<Self>, message: MessageBuf);
    /// As [`JobHost::failed`].
    fn failed(&self, failed: FailureNote) -> String;
    /// Fails the call.
    fn refuse(self: Box<Self>, fault: Fault);
    /// The task that the message belongs to, if it exists.
    fn task(&self) -> Option<(Handle, Arc<dyn JobHost>)>;
    /// The bytes kept with a task of a scope; empty: there are none.
    fn kept_with(&self, scope: Scope, task_id: RawText<'_>) -> Vec<u8>;
    /// The bytes kept with the newest task of a context that has any.
    fn kept_in_context(&self, scope: Scope, context_id: RawText<'_>) -> Vec<u8>;
}

/// The task takes no more events: it ended, was canceled, has reached a limit, or belongs to
/// another program since its agent was replaced or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the task accepts no more events")
    }
}

impl std::error::Error for Closed {}

/// A message that is to be published and has no id yet, with one.
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

/// The event with this message, if it is a status.
fn saying<'m>(event: &TaskEvent<'m>, said: &'m MessageBuf) -> TaskEvent<'m> {
    match *event {
        TaskEvent::Status { state, at_ms, metadata, .. } => {
            TaskEvent::Status { state, at_ms, message: Some(said.view()), metadata }
        }
        TaskEvent::Artifact { .. } | TaskEvent::UserMessage { .. } => *event,
    }
}
