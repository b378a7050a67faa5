//! One decoded request, borrowed from its body: the common result of all dialects' readers.

use super::{
    json::JsonObject,
    pack::Message,
    push::{PushConfig, PushRequest},
    state::{Generation, TaskState},
    text::RawText,
};

/// Declares the operations: the enum, and [`Op::ALL`], which lists all of them.
macro_rules! operations {
    ($($(#[$doc:meta])* $op:ident,)*) => {
        /// The operations of A2A (A2A 1.0 §3.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// Every operation, each at the position of its number (`op as usize`).
            pub const ALL: &'static [Op] = &[$(Op::$op),*];
        }
    };
}

operations! {
    /// Send a message and wait (§3.1.1).
    Send,
    /// Send a message and stream (§3.1.2).
    Stream,
    /// Read a task (§3.1.3).
    Get,
    /// Page through tasks (§3.1.4).
    List,
    /// Cancel a task (§3.1.5).
    Cancel,
    /// Attach to a task's stream (§3.1.6).
    Subscribe,
    /// Create or replace a push configuration (§3.1.7).
    PushSet,
    /// Read a push configuration (§3.1.8).
    PushGet,
    /// List push configurations (§3.1.9).
    PushList,
    /// Delete a push configuration (§3.1.10).
    PushDelete,
    /// The card for authenticated callers (§3.1.11).
    ExtendedCard,
}

impl Op {
    /// Its name in A2A 1.0 (§3.1).
    pub const fn name(self) -> &'static str {
        match self {
            Op::Send => "SendMessage",
            Op::Stream => "SendStreamingMessage",
            Op::Get => "GetTask",
            Op::List => "ListTasks",
            Op::Cancel => "CancelTask",
            Op::Subscribe => "SubscribeToTask",
            Op::PushSet => "CreateTaskPushNotificationConfig",
            Op::PushGet => "GetTaskPushNotificationConfig",
            Op::PushList => "ListTaskPushNotificationConfigs",
            Op::PushDelete => "DeleteTaskPushNotificationConfig",
            Op::ExtendedCard => "GetExtendedAgentCard",
        }
    }

    /// True for operations with a stream of events as answer.
    pub fn is_streaming(self) -> bool {
        matches!(self, Op::Stream | Op::Subscribe)
    }

    /// True for the operations on push configurations.
    #[inline(always)]
    pub fn is_push(self) -> bool {
        matches!(self, Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete)
    }

    /// The parameters of its requests, in every binding and generation.
    #[inline(always)]
    pub(crate) fn params<'a>(self) -> Params<'a> {
        match self {
            Op::Send | Op::Stream => Params::Send,
            Op::Get => Params::Get,
            Op::List => Params::List,
            Op::Cancel => Params::Target(Call::Cancel),
            Op::Subscribe => Params::Target(Call::Subscribe),
            Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete => Params::Push,
            Op::ExtendedCard => Params::Nothing,
        }
    }
}

/// The parameters of an operation's requests; each kind has one reader per binding.
#[derive(Clone, Copy)]
pub(crate) enum Params<'a> {
    /// [`Send`].
    Send,
    /// [`Get`].
    Get,
    /// [`List`].
    List,
    /// [`Target`], and the constructor of the call.
    Target(fn(Target<'a>) -> Call<'a>),
    /// [`PushRequest`].
    Push,
    /// Nothing.
    Nothing,
}

/// One request, ready for the service; each variant names the [`Reply`](super::Reply) that answers
/// it. A streaming request with an immediate answer becomes a stream of one item.
#[derive(Clone, Copy)]
pub enum Call<'a> {
    /// [`Op::Send`] and [`Op::Stream`]: a task or a message.
    Send(Send<'a>),
    /// [`Op::Get`]: the task.
    Get(Get<'a>),
    /// [`Op::List`]: the start of a page, each of its tasks, and the end of the page.
    List(List<'a>),
    /// [`Op::Cancel`]: the task.
    Cancel(Target<'a>),
    /// [`Op::Subscribe`]: a stream, or the task.
    Subscribe(Target<'a>),
    /// The four operations on push configurations: a configuration or its absence, a list of
    /// configurations, the confirmation of a delete.
    Push(PushRequest<'a>),
    /// [`Op::ExtendedCard`], which bindings answer themselves from the agent's profile.
    ExtendedCard,
}

impl Call<'_> {
    /// Whether the call may create a task.
    pub(crate) fn may_make_task(&self) -> bool {
        match self {
            Call::Send(send) => send.task_id.is_none() || send.client_chooses_id,
            Call::Get(_) | Call::List(_) | Call::Cancel(_) | Call::Subscribe(_) => false,
            Call::Push(_) | Call::ExtendedCard => false,
        }
    }

    /// Whether it is read-only.
    pub(crate) fn only_shows(&self) -> bool {
        match self {
            Call::Get(_) | Call::List(_) | Call::Subscribe(_) | Call::ExtendedCard => true,
            Call::Send(_) | Call::Cancel(_) | Call::Push(_) => false,
        }
    }
}

/// The callers for which repeated sends are recognized: a repeated message gets the result of the
/// first one. A message is repeated if its content is equal and it has the same `Idempotency-Key`,
/// or the same id if the client activates
/// [`Extension::IDEMPOTENT_SEND`](super::Extension::IDEMPOTENT_SEND) (`docs/guide/calls.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idempotency {
    /// None: each send is executed.
    Off,
    /// Authenticated callers: anonymous ones could use each other's ids.
    #[default]
    Authenticated,
    /// All callers; their message ids count even if a client does not activate the extension.
    Everybody,
}

/// The treatment of a send with a used `messageId` and other content. Under a used
/// `Idempotency-Key` other content is always refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdempotentConflict {
    /// The message is new, because the official conformance kit, and clients that number their
    /// messages, reuse ids.
    #[default]
    New,
    /// The message is refused as a conflict.
    Refuse,
}

/// The rules for recognizing repeated sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatRules {
    /// The callers.
    pub callers: Idempotency,
    /// The treatment of other content under a used `messageId`.
    pub conflict: IdempotentConflict,
}

impl Idempotency {
    /// The value of `callers` in cards; `None`: repeated sends are not recognized.
    pub(crate) const fn callers(self, authenticates_callers: bool) -> Option<&'static str> {
        match self {
            Idempotency::Off => None,
            Idempotency::Authenticated if !authenticates_callers => None,
            Idempotency::Authenticated => Some("authenticated"),
            Idempotency::Everybody => Some("all"),
        }
    }
}

/// When and in which form a sender wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// When the task is terminal or interrupted (A2A 1.0 §3.2.2).
    Wait,
    /// As soon as the task exists.
    Return,
    /// As a stream of events.
    Stream,
}

/// A message to an agent. Identifiers are raw strings in canonical form (`json::canonical_raw`).
#[derive(Clone, Copy)]
pub struct Send<'a> {
    /// The message, packed by the dialect; it always has a `messageId`.
    pub message: Message<'a>,
    /// True: the caller has chosen that id; false: the server has.
    pub has_own_id: bool,
    /// The task to continue.
    pub task_id: Option<RawText<'a>>,
    /// 0.1 only: an unknown `task_id` creates a task with this id.
    pub client_chooses_id: bool,
    /// The conversation.
    pub context_id: Option<RawText<'a>>,
    /// When to answer.
    pub mode: SendMode,
    /// At most this many messages of history; `None`: all.
    pub history: Option<u32>,
    /// Raw JSON array of media types, when given.
    pub accepted_output_modes: Option<&'a [u8]>,
    /// The request's metadata.
    pub metadata: Option<JsonObject<'a>>,
    /// The webhook for the events of the task; its configuration names no task.
    pub push: Option<PushConfig<'a>>,
    /// The caller's wire family.
    pub generation: Generation,
}

/// How long a reader waits for new events of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskWait {
    /// Milliseconds; the server may reduce them.
    pub wait_ms: u64,
    /// The last event that the reader has; `None`: the last event at the time of the call.
    pub after: Option<u64>,
}

/// Which task to read.
#[derive(Clone, Copy)]
pub struct Get<'a> {
    /// The task's id.
    pub id: RawText<'a>,
    /// LangSmith also sends the id of the conversation; a mismatch is "not found".
    pub context_id: Option<RawText<'a>>,
    /// At most this many messages of history; `None`: all.
    pub history: Option<u32>,
    /// Waits for new events; `None`: the task is read at once.
    pub wait: Option<TaskWait>,
}

/// Which task to act on.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The task's id.
    pub id: RawText<'a>,
    /// LangSmith also sends the id of the conversation; a mismatch is "not found".
    pub context_id: Option<RawText<'a>>,
    /// The request's metadata (1.0 cancel).
    pub metadata: Option<JsonObject<'a>>,
    /// Before 1.0 a second cancel is an error; since 1.0 cancel is idempotent (§3.3.1).
    pub generation: Generation,
    /// Subscribe only: the last event the client has seen (`Last-Event-ID`).
    pub after: Option<u64>,
}

/// Which tasks to page through (A2A 1.0 §3.1.4).
#[derive(Clone, Copy, Default)]
pub struct List<'a> {
    /// Only this conversation.
    pub context_id: Option<RawText<'a>>,
    /// Only this state.
    pub status: Option<TaskState>,
    /// 1..=100; the dialect checks the range.
    pub page_size: Option<u32>,
    /// The page token; raw string, empty = first page.
    pub page_token: Option<&'a [u8]>,
    /// At most this many messages of history in each task; `None`: no history requested.
    pub history: Option<u32>,
    /// Only tasks with a status change at or after this time, ms since the Unix epoch.
    pub after_ms: Option<u64>,
    /// False: the tasks are listed without their artifacts.
    pub include_artifacts: bool,
}
