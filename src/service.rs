//! The waist: every binding calls a [`Service`], and whatever answers calls implements it.
//!
//! A call is borrowed from its body and answered through a writer while the task is locked, so
//! nothing is copied in between. Time, entropy and wake-ups are arguments.

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
        view::{ReplayPlace, Replayed},
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
pub use principal::{Principal, ScopesAskedFor};
pub use quota::RunningShare;
pub(crate) use quota::TenantPlaces;
pub use scope::{AgentIndex, NumberHint, OwnerIndex, Scope, TenantIndex};
pub use shared::{CallerShares, SharedByCalls};
pub use stats::ServiceStats;
use upstream::UpstreamMeter;
pub use wait::{TaskLook, WaitHandle};

/// The time, read once per turn of a worker's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back.
    pub mono_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// What the world gives a server when it starts.
#[derive(Clone)]
pub struct Start {
    /// Unguessable bits that keep task ids, page tokens and hash tables from being predicted. Under
    /// the same secret an id names the same place after a restart, and a token the same page.
    pub secret: u128,
    /// Milliseconds since the Unix epoch, for agents that publish from threads of their own.
    pub unix_ms: fn() -> u64,
    /// Threads.
    pub workers: usize,
    /// Named by cards when a request has no `Host`.
    pub base_url: String,
}

/// Unguessable bits; each worker has a generator of its own.
pub trait Entropy {
    /// 128 fresh bits from a cryptographic generator.
    fn bits(&mut self) -> u128;
}

/// The caller and the called.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Whose tasks the call is about. A service that keeps tasks gives the names of
    /// [`Caller::tenant`] and [`Caller::owner`] numbers of its own, and takes those in here where
    /// there are none.
    pub scope: Scope,
    /// The name of the space of tasks that the caller named, which is no agent's.
    pub tenant: Option<&'a str>,
    /// The name of the owner of the tasks of the call: that of the principal
    /// ([`Principal::owner`]), or what a service around others says.
    pub owner: Option<&'a str>,
    /// The caller, where callers are authenticated ([`crate::auth`]); `None`: an anonymous one.
    pub principal: Option<&'a Arc<Principal>>,
    /// True: the server knows its callers, and a caller without a principal is anonymous.
    pub knows_callers: bool,
    /// How many of its tasks may run at a time; `None`: as many as there is room for.
    pub running: Option<&'a RunningShare>,
    /// The worker that handles the call.
    pub worker: usize,
    /// `Idempotency-Key`, as it came with this call alone.
    pub idempotency_key: Option<&'a str>,
    /// When the caller no longer wants the answer, in ms since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    /// How many agents and proxies the call has come through.
    pub hops: u32,
    /// Values of the extension headers, comma separated, as they came.
    pub extensions: Option<&'a str>,
    /// What its transport knows of the caller: also its name, if that was verified (A2A 1.0 §7.2).
    pub peer: &'a Peer<'a>,
    /// The header fields of its request.
    pub fields: RequestFields<'a>,
}

/// What a call may use beside its parameters.
pub struct CallCx<'a> {
    /// The caller and the called.
    pub caller: Caller<'a>,
    /// The time.
    pub now: Now,
    /// Woken when a call that waits, or a stream, may go on.
    pub wake: &'a Waker,
    /// Fresh bits for identifiers.
    pub entropy: &'a mut dyn Entropy,
    /// The worker's list in which an agent's events wait to be applied; empty between calls.
    pub events: &'a mut EventBuf,
    /// What all calls of the server use.
    pub shared: &'a SharedByCalls,
    /// The newest record of the tasks that the answer shows, see [`tap::Tap`]: the service says it,
    /// and the answer leaves when the record is durable. 0: there is none.
    pub record: u64,
}

impl CallCx<'_> {
    /// The owner that what the call leaves behind is charged to.
    #[inline(always)]
    pub(crate) fn holder(&self) -> Holder {
        match self.caller.scope.owner {
            OwnerIndex(0) => self.peer_holder(),
            OwnerIndex(number) => Holder::owner(number),
        }
    }

    /// The holder of a task without an owner: the caller's address, or 64 bits of one of IPv6.
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
        Holder::peer(address, caller.knows_callers)
    }

    /// Says that the answer shows a task whose last record is this one; 0: there is no journal.
    #[inline]
    pub fn shows(&mut self, record: u64) {
        self.record = self.record.max(record);
    }
}

/// What a tick of a worker may use.
pub struct TickCx<'a> {
    /// Number of the worker.
    pub worker: usize,
    /// The time.
    pub now: Now,
    /// Fresh bits.
    pub entropy: &'a mut dyn Entropy,
    /// The worker's list of events; empty between calls.
    pub events: &'a mut EventBuf,
    /// Where a service notes the agent that it calls in the tick.
    pub last_call: &'a mut LastCall,
}

/// By what a service finds again what a call or a stream is about. Opaque: only the service that
/// made it reads it. One that has others behind it, like a router, numbers them in `service`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which of several services; a service that has none behind it leaves it alone.
    pub service: u16,
    /// What it is about: a task, a place in a table.
    pub key: u64,
    /// How far one got, or whatever spares a search; 0 in the beginning.
    pub hint: u64,
}

/// A subscriber's place in a task's events: all that a stream costs.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The task, and where in its events `seq` is.
    pub handle: Handle,
    /// The last event the subscriber was given.
    pub seq: u64,
    /// True: a snapshot of the task as it was after `seq` goes first.
    pub snapshot: bool,
    /// True: the stream ends when the task asks for input; false: only when the task ends.
    pub ends_at_input: bool,
    /// How it is woken.
    pub waiter: Waiter,
    /// What it shares with the agent that answers it, or wants to know when it leaves.
    pub link: CallLink,
    /// The newest record of what the subscriber was given, as in [`CallCx::record`].
    pub record: u64,
}

impl Cursor {
    /// Gives what `task` has that the subscriber was not given yet: the snapshot, if one is due,
    /// and the events behind it. An item on which `each` returns false counts as taken.
    pub fn show_new(&mut self, task: &Task, each: &mut Each<'_>) -> Follow {
        let newest = task.seq();
        let is_end = task.state().is_terminal() || (self.ends_at_input && task.awaits_input());
        // A resumed stream may name an event that never was.
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
        let mut place = ReplayPlace::from_bits(self.handle.hint);
        self.seq = task.replay(self.seq, &mut place, |replayed| {
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
        self.handle.hint = place.bits();
        match (self.seq == newest && is_end, is_enough) {
            (true, _) => Follow::End,
            (false, true) => Follow::More,
            (false, false) => Follow::Pending,
        }
    }
}

/// What became of a call.
pub enum Outcome {
    /// Answered.
    Answered,
    /// Will be answered by [`Service::poll`].
    Pending(WaitHandle),
    /// Will be answered by [`Service::follow`].
    Stream {
        /// Where the stream begins.
        cursor: Cursor,
        /// The wire family of the call that made the task.
        generation: Generation,
    },
}

/// One item of a stream.
pub enum StreamResponse<'a> {
    /// The whole task, as it was after its `seq()`.
    Snapshot(TaskView<'a>),
    /// One event.
    Event {
        /// Its sequence number in the task.
        seq: u64,
        /// The event; never a client's message.
        event: TaskEvent<'a>,
        /// Which of the task's artifacts the event is about, if it is about one; from 0.
        artifact_index: u32,
        /// The task's id.
        task_id: RawText<'a>,
        /// The id of its conversation.
        context_id: RawText<'a>,
        /// True when the stream ends with this event.
        last: bool,
    },
    /// A direct message: the only item of its stream.
    Message {
        /// The agent's message.
        message: Message<'a>,
        /// The id of the conversation.
        context_id: RawText<'a>,
    },
}

impl<'a> StreamResponse<'a> {
    /// The id of the task; empty where there is none.
    pub fn task_id(&self) -> RawText<'a> {
        match self {
            StreamResponse::Snapshot(view) => view.id(),
            StreamResponse::Event { task_id, .. } => *task_id,
            StreamResponse::Message { .. } => RawText::default(),
        }
    }
}

/// What a follower can expect next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Nothing now; the waker is registered.
    Pending,
    /// The follower stopped early and should come back when it has room.
    More,
    /// The stream is complete.
    End,
    /// The task left the store; the stream ends.
    Gone,
}

/// Takes the pieces of an answer.
pub type Answer<'f> = dyn FnMut(Reply<'_>) + 'f;

/// Takes the items of a stream; false: enough for now.
pub type Each<'f> = dyn FnMut(StreamResponse<'_>) -> bool + 'f;

/// What a server tells its service beside calls, and asks it. A service that needs none of it
/// implements it with nothing inside: `impl Lifecycle for Table {}`.
pub trait Lifecycle {
    /// Does what is due on a worker; returns when to come back, in ms of the monotonic clock.
    /// `wake` is woken when that becomes earlier.
    fn tick(&self, _cx: &mut TickCx<'_>, _wake: &Waker) -> Option<u64> {
        None
    }

    /// From now on nothing new is begun: the server will end.
    fn drain(&self) {}

    /// From now on no call waits: each that is polled is answered, if need be with
    /// [`ShuttingDown`](crate::fault::FaultKind::ShuttingDown).
    fn cut(&self) {}

    /// Tasks in no terminal state, whether or not a caller waits for them: an operator is told how
    /// many there are when the server ends.
    fn unfinished_tasks(&self) -> usize {
        0
    }

    /// What it keeps, for metrics; `None`: it does not say.
    fn stats(&self) -> Option<ServiceStats> {
        None
    }
}

/// The narrow waist between bindings and everything that can answer them.
pub trait Service: Lifecycle + Send + Sync {
    /// Handles one call; before `Ok(Answered)`, `answer` has got what [`Call`] says of it.
    ///
    /// # Errors
    /// A [`Fault`]; `answer` has then not been called.
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault>;

    /// Goes on with a call that waits, if it can, and registers `wake` otherwise.
    ///
    /// `Answered` and `Stream` are as from [`Service::call`]; a `Pending` takes the place of
    /// `wait`, and is polled next.
    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>>;

    /// Gives what is new to `each` and registers `wake` if there is nothing more.
    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow;

    /// What the card of this agent says now; another `Arc` than the time before says that it may
    /// have changed. `None`: there is no such agent, or none any more.
    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>>;

    /// The agent of this name: asked each time, so that agents may come and
    /// go while the server runs. An index names no other agent ever.
    ///
    /// Unless it is written anew it looks at one profile after the other, from index 0 until there
    /// is none.
    fn agent(&self, name: &str) -> Option<AgentIndex> {
        let mut agents = (0..=u16::MAX).map(AgentIndex);
        let mut profiles = agents.by_ref().map_while(|agent| Some((agent, self.profile(agent)?)));
        profiles.find(|(_, profile)| profile.name == name).map(|(agent, _)| agent)
    }

    /// True when there is one agent and no other: any name may then be a tenant's
    /// ([`Tenants::OfOneAgent`](crate::engine::Tenants)).
    fn has_one_agent(&self) -> bool {
        self.profile(AgentIndex(1)).is_none()
    }

    /// True when push notifications are served: cards say so, and the calls of [`Call::Push`] and
    /// [`Send::push`](crate::model::Send::push) are given to the service. Otherwise they are
    /// refused before they are read (A2A 1.0 §3.3.4).
    fn has_push(&self) -> bool {
        false
    }

    /// False when no agent asks for scopes of its own ([`Profile::scopes`]), which spares the look
    /// at its profile for each call of a caller that is known.
    fn has_own_scopes(&self) -> bool {
        true
    }

    /// The scopes that the agents and their skills ask for; `None`: unknown, and the server retains
    /// each scope of its callers.
    fn scopes_asked_for(&self) -> Option<Arc<ScopesAskedFor>> {
        None
    }

    /// [`ScopesAskedFor::number`] of what [`Service::scopes_asked_for`] returns; 0 without it.
    fn scopes_number(&self) -> u64 {
        0
    }

    /// What each agent counts of the upstream that answers for it, where one does.
    fn upstreams(&self) -> Vec<(AgentIndex, Arc<UpstreamMeter>)> {
        Vec::new()
    }
}
