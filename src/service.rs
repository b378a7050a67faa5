//! The service interface: every binding calls a [`Service`], and cores, routers and gateways
//! implement it.
//!
//! A call is borrowed from its body, and answered through a writer while the task is locked, so no
//! data is copied. Time, entropy and wake-ups are arguments.

mod fields;
mod grant;
mod joined;
mod last_call;
mod late;
pub mod observe;
pub mod pages;
mod peer;
pub mod principal;
pub(crate) mod quota;
mod scope;
mod shared;
mod stats;
pub mod tap;
pub mod trace;
pub mod upstream;
mod wait;

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    fault::Fault,
    model::{
        Call, EventBuf, Generation, Message, Profile, RawText, Reply, Task, TaskEvent, TaskView,
        view::{ReplayPosition, Replayed},
    },
    shares::Holder,
};

pub use crate::waiter::{SharedWaker, Waiter};
pub use fields::{FieldSource, RequestFields};
pub use grant::Grant;
pub(crate) use grant::GrantWatch;
pub use joined::JoinedCalls;
pub(crate) use joined::{WantedBy, WatchedCall};
pub use last_call::LastCall;
pub use late::{CallLink, LateAnswer, LateCall};
pub use peer::{Peer, PeerCertificate};
pub use principal::{Principal, RequiredScopes};
pub use quota::RunningShare;
pub(crate) use quota::TenantPermits;
pub use scope::{AgentIndex, NumberHint, OwnerIndex, Scope, TenantIndex};
pub use shared::{CallerShares, SharedByCalls};
pub use stats::ServiceStats;
use upstream::UpstreamMeter;
pub use wait::{TaskLook, WaitHandle};

/// The time, read once per round of a worker's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back.
    pub mono_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// The environment that a server receives when it starts.
#[derive(Clone)]
pub struct Start {
    /// Unguessable bits that make task ids, page tokens and hash tables unpredictable. With the
    /// same secret, ids and page tokens stay valid after a restart.
    pub secret: u128,
    /// Milliseconds since the Unix epoch, for agents that publish from their own threads.
    pub unix_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Worker threads.
    pub workers: usize,
    /// The base URL in cards if a request has no `Host`.
    pub base_url: String,
}

/// Unguessable bits; each worker has its own generator.
pub trait Entropy {
    /// 128 fresh bits from a cryptographic generator.
    fn bits(&mut self) -> u128;
}

/// The caller and the target of a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The scope of the call's tasks. A service with a store maps the names [`Caller::tenant`] and
    /// [`Caller::owner`] to its own numbers; without names it uses the numbers in this field.
    pub scope: Scope,
    /// The tenant that the caller named; never the name of an agent.
    pub tenant: Option<&'a str>,
    /// The name of the owner of the call's tasks: [`Principal::owner`], or a name set by an outer
    /// service.
    pub owner: Option<&'a str>,
    /// The authenticated caller ([`crate::auth`]); `None`: an anonymous caller.
    pub principal: Option<&'a Arc<Principal>>,
    /// True: the server authenticates callers, and a caller without a principal is anonymous.
    pub authenticates_callers: bool,
    /// The limit on the caller's running tasks; `None`: only the limits of the store.
    pub running: Option<&'a RunningShare>,
    /// The worker that handles the call.
    pub worker: usize,
    /// The `Idempotency-Key` of this call.
    pub idempotency_key: Option<&'a str>,
    /// When the caller no longer wants the answer, in ms since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    /// Agents and proxies that the call has passed.
    pub hops: u32,
    /// Values of the extension headers, comma separated, as received.
    pub extensions: Option<&'a str>,
    /// The caller's address and transport, and its name if TLS verified it (A2A 1.0 §7.2).
    pub peer: &'a Peer<'a>,
    /// The header fields of the request.
    pub fields: RequestFields<'a>,
}

/// The context of a call, in addition to its parameters.
pub struct CallCx<'a> {
    /// The caller and the target.
    pub caller: Caller<'a>,
    /// The time.
    pub now: Now,
    /// Woken when a waiting call or a stream can continue.
    pub wake: &'a Waker,
    /// Fresh bits for identifiers.
    pub entropy: &'a mut dyn Entropy,
    /// The worker's buffer for events of agents that are not applied yet; empty between calls.
    pub events: &'a mut EventBuf,
    /// State that all calls of the server share.
    pub shared: &'a SharedByCalls,
    /// The newest record of the tasks that the answer shows, see [`tap::Tap`]; set by the service.
    /// The answer is sent when the record is durable. 0: no record.
    pub record: u64,
}

impl CallCx<'_> {
    /// The holder that is charged for the data of the call.
    #[inline(always)]
    pub(crate) fn holder(&self) -> Holder {
        match self.caller.scope.owner {
            OwnerIndex(0) => self.peer_holder(),
            OwnerIndex(number) => Holder::owner(number),
        }
    }

    /// The holder of a task without an owner: the caller's address, or 64 bits of an IPv6 address.
    #[inline]
    pub(crate) fn peer_holder(&self) -> Holder {
        let caller = &self.caller;
        if caller.scope.owner != OwnerIndex(0) {
            return Holder::default();
        }
        let address = match &self.shared.shares {
            Some(shares) if self.shared.has_proxies => shares.address(caller),
            Some(_) | None => caller.peer.remote,
        };
        Holder::peer(address, caller.authenticates_callers)
    }

    /// Notes that the answer shows a task with this last record; 0: the server has no journal.
    #[inline]
    pub fn shows(&mut self, record: u64) {
        self.record = self.record.max(record);
    }
}

/// The context of a worker's tick.
pub struct TickCx<'a> {
    /// Number of the worker.
    pub worker: usize,
    /// The time.
    pub now: Now,
    /// Fresh bits.
    pub entropy: &'a mut dyn Entropy,
    /// The worker's buffer for events; empty between calls.
    pub events: &'a mut EventBuf,
    /// The last agent that the service calls in the tick.
    pub last_call: &'a mut LastCall,
}

/// Identifies a task, call or stream in a service. Opaque: only the service that created the handle
/// reads it. A service in front of others, like a router, stores the number of the inner service in
/// `service`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The number of the inner service; ignored by a service without inner services.
    pub service: u16,
    /// The key: a task, or a position in a table.
    pub key: u64,
    /// A position, or other data that avoids a search; 0 at first.
    pub hint: u64,
}

/// A subscriber's position in a task's events: the only cost of a stream.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The task, with the position of `seq` in its events.
    pub handle: Handle,
    /// The last event that the subscriber has received.
    pub seq: u64,
    /// True: a snapshot of the task after `seq` comes first.
    pub snapshot: bool,
    /// True: the stream ends when the task asks for input; false: only when the task ends.
    pub ends_at_input: bool,
    /// Wakes the subscriber.
    pub waiter: Waiter,
    /// The link to the agent that answers the call, or is notified when the subscriber disconnects.
    pub link: CallLink,
    /// The newest record that the subscriber has received, see [`CallCx::record`].
    pub record: u64,
}

impl Cursor {
    /// Passes the new events of `task` to `each`, after a snapshot if one is due. If `each` returns
    /// false, its item counts as received, and no further item follows.
    pub fn show_new(&mut self, task: &Task, each: &mut Each<'_>) -> Follow {
        let newest = task.seq();
        let is_end = task.state().is_terminal() || (self.ends_at_input && task.awaits_input());
        // A resumed stream may name an event that never existed.
        self.seq = self.seq.min(newest);
        if self.snapshot || self.seq < task.base_seq() {
            if self.seq < task.base_seq() {
                self.seq = newest;
            }
            self.snapshot = false;
            if !each(StreamResponse::Snapshot(task.view_at(self.seq))) {
                return if self.seq == newest && is_end { Follow::End } else { Follow::More };
            }
        }
        let mut is_enough = false;
        let mut position = ReplayPosition::from_bits(self.handle.hint);
        self.seq = task.replay(self.seq, &mut position, |replayed| {
            let Replayed { seq, event, artifact_index } = replayed;
            is_enough = !each(StreamResponse::Event {
                seq,
                event,
                artifact_index,
                task_id: RawText::known(task.id()),
                context_id: RawText::known(task.context_id()),
                last: is_end && seq == newest,
            });
            !is_enough
        });
        self.handle.hint = position.bits();
        match (self.seq == newest && is_end, is_enough) {
            (true, _) => Follow::End,
            (false, true) => Follow::More,
            (false, false) => Follow::Pending,
        }
    }
}

/// The outcome of a call.
pub enum Outcome {
    /// Answered.
    Answered,
    /// [`Service::poll`] will answer the call.
    Pending(WaitHandle),
    /// [`Service::follow`] will answer the call.
    Stream {
        /// The position at which the stream begins.
        cursor: Cursor,
        /// The wire family of the call that created the task.
        generation: Generation,
    },
}

/// One item of a stream.
pub enum StreamResponse<'a> {
    /// The whole task, as it was after the event `seq()`.
    Snapshot(TaskView<'a>),
    /// One event.
    Event {
        /// The sequence number of the event in the task.
        seq: u64,
        /// The event; never a client's message.
        event: TaskEvent<'a>,
        /// The index of the event's artifact, if it has one; from 0.
        artifact_index: u32,
        /// The task's id.
        task_id: RawText<'a>,
        /// The id of the task's context.
        context_id: RawText<'a>,
        /// True when the stream ends with this event.
        last: bool,
    },
    /// A direct message: the only item of its stream.
    Message {
        /// The agent's message.
        message: Message<'a>,
        /// The id of the context.
        context_id: RawText<'a>,
    },
}

impl<'a> StreamResponse<'a> {
    /// The id of the task; empty if there is none.
    pub fn task_id(&self) -> RawText<'a> {
        match self {
            StreamResponse::Snapshot(view) => view.id(),
            StreamResponse::Event { task_id, .. } => *task_id,
            StreamResponse::Message { .. } => RawText::default(),
        }
    }
}

/// The state of a follower after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// No new item; the waker is registered.
    Pending,
    /// `each` stopped early; call again when there is room.
    More,
    /// The stream is complete.
    End,
    /// The task was evicted; the stream ends.
    Gone,
}

/// Receives the pieces of an answer.
pub type Answer<'f> = dyn FnMut(Reply<'_>) + 'f;

/// Receives the items of a stream; false: enough for now.
pub type Each<'f> = dyn FnMut(StreamResponse<'_>) -> bool + 'f;

/// Notifications and requests of a server to its service other than calls. A service that needs
/// none has an empty implementation: `impl Lifecycle for Table {}`.
pub trait Lifecycle {
    /// Performs the due work of a worker; returns when to call `tick` again, in ms of the monotonic
    /// clock. Wakes `wake` if work is due earlier.
    fn tick(&self, _cx: &mut TickCx<'_>, _wake: &Waker) -> Option<u64> {
        None
    }

    /// The server shuts down: no new work starts after this.
    fn drain(&self) {}

    /// No call waits after this: each poll answers its call, if necessary with
    /// [`ShuttingDown`](crate::fault::FaultKind::ShuttingDown).
    fn cut(&self) {}

    /// Tasks in a non-terminal state, with or without a waiting caller: the server reports the
    /// number to the operator when it terminates.
    fn unfinished_tasks(&self) -> usize {
        0
    }

    /// Counters for metrics; `None`: the service has none.
    fn stats(&self) -> Option<ServiceStats> {
        None
    }
}

/// The interface between bindings and the implementations that answer calls.
pub trait Service: Lifecycle + Send + Sync {
    /// Handles one call; before `Ok(Answered)`, `answer` has received the reply that [`Call`]
    /// specifies.
    ///
    /// # Errors
    /// A [`Fault`]; `answer` has then not been called.
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault>;

    /// Continues a waiting call if possible, and registers `wake` otherwise.
    ///
    /// `Answered` and `Stream` are as from [`Service::call`]; a `Pending` replaces `wait` and is
    /// polled next.
    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>>;

    /// Passes the new items to `each`, and registers `wake` when no item is left.
    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow;

    /// The current profile of this agent; a different `Arc` than before means that it may have
    /// changed. `None`: the agent does not exist (any more).
    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>>;

    /// The agent with this name: called for each lookup, so that agents may be added and removed
    /// while the server runs. An index is never reused for another agent.
    ///
    /// The default compares all profiles, from index 0 to the first index without a profile.
    fn agent(&self, name: &str) -> Option<AgentIndex> {
        let mut agents = (0..=u16::MAX).map(AgentIndex);
        let mut profiles = agents.by_ref().map_while(|agent| Some((agent, self.profile(agent)?)));
        profiles.find(|(_, profile)| profile.name == name).map(|(agent, _)| agent)
    }

    /// True if there is exactly one agent: any other name may then be the name of a tenant
    /// ([`Tenants::OfOneAgent`](crate::engine::Tenants)).
    fn has_one_agent(&self) -> bool {
        self.profile(AgentIndex(1)).is_none()
    }

    /// True when push notifications are supported: cards announce them, and the service receives
    /// the calls of [`Call::Push`] and [`Send::push`](crate::model::Send::push). Otherwise such
    /// calls are refused before they are read (A2A 1.0 §3.3.4).
    fn has_push(&self) -> bool {
        false
    }

    /// False if no agent has its own scopes ([`Profile::scopes`]): calls of authenticated callers
    /// then need not read the profile.
    fn has_own_scopes(&self) -> bool {
        true
    }

    /// The scopes that agents and their skills require; `None`: unknown, and the server retains all
    /// scopes of its callers.
    fn required_scopes(&self) -> Option<Arc<RequiredScopes>> {
        None
    }

    /// [`RequiredScopes::number`] of the current [`Service::required_scopes`]; 0 without it.
    fn scopes_number(&self) -> u64 {
        0
    }

    /// The meters of the agents' upstreams.
    fn upstreams(&self) -> Vec<(AgentIndex, Arc<UpstreamMeter>)> {
        Vec::new()
    }
}
