//! The local core: the [`Service`] that runs agents in this process and stores tasks in memory.
//!
//! Each operation has its own file, except that get and list share `read`. Nothing here sees HTTP,
//! JSON-RPC or a wire format; the caller passes time and entropy.

mod agents;
mod cancel;
mod change;
mod check;
mod defer;
mod failure;
mod handover;
mod host;
mod idempotency;
mod late;
mod missing;
mod names;
#[cfg(feature = "net")]
mod operate;
#[cfg(not(feature = "push"))]
#[path = "no_push.rs"]
mod push;
#[cfg(feature = "push")]
mod push;
mod read;
mod send;
mod space;
mod subscribe;
mod timer;
mod turn;
mod undecided;

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Poll, Waker},
};

use crate::{
    agent::{Agent, FailureRules, JobHost},
    fault::{Fault, FaultKind},
    json::write::unescape,
    limits::Limits,
    model::{Call, Profile, RepeatRules, TaskState},
    permits::Permits,
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Handle, Lifecycle, Outcome,
        RequiredScopes, Service, ServiceStats, Start, TickCx, WaitHandle, tap::Tap, trace::Tracer,
        upstream::UpstreamMeter,
    },
    store::{Stats, Store, TaskKey},
};

use agents::{AllAgents, CurrentAgent};
use idempotency::RecognisedSends;
use timer::AllTimers;
use undecided::UndecidedCancels;

#[cfg(feature = "net")]
pub use crate::store::SurveyedTask;
pub use change::{AgentChange, AgentError, Agents};
#[cfg(feature = "net")]
pub use operate::{NotOperated, Operated, OperatorFilter};
#[cfg(feature = "push")]
pub use push::ShownPost;

/// Agents, their tasks and their resume timers.
pub struct Core {
    this: Weak<Core>,
    store: Store,
    agents: AllAgents,
    limits: Limits,
    unix_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    timers: AllTimers,
    /// When removed agents were last checked for remaining tasks, in ms of the monotonic clock.
    looked_ms: AtomicU64,
    /// Permits of calls that wait for their agents.
    deferred: Permits,
    /// The cancels among these calls.
    undecided: UndecidedCancels,
    /// Sends that are recognised when repeated.
    sends: RecognisedSends,
    /// The webhooks, if enabled.
    #[cfg(feature = "push")]
    push: OnceLock<push::CorePush>,
    /// How failures of the agents are reported.
    failures: OnceLock<FailureRules>,
    /// The number of failures.
    failed: AtomicU64,
    draining: AtomicBool,
    cut: AtomicBool,
}

impl Core {
    /// An empty core with these agents; for `node` see [`Setup::node`](crate::engine::Setup::node).
    pub fn new(
        limits: &Limits,
        agents: Vec<(Profile, Arc<dyn Agent>)>,
        node: Option<u16>,
        repeats: RepeatRules,
        start: &Start,
        tap: Option<Arc<dyn Tap>>,
    ) -> Arc<Core> {
        let agents = AllAgents::new(agents, start.workers, limits.agents_max, start.secret);
        let core = Arc::new_cyclic(|this| Core {
            this: this.clone(),
            store: Store::for_workers(limits, start.secret, start.workers)
                .of_node(node)
                .tapped(tap),
            agents,
            limits: limits.clone(),
            unix_ms: Arc::clone(&start.unix_ms),
            timers: AllTimers::new(start.workers, limits.tasks_max),
            looked_ms: AtomicU64::new(0),
            deferred: Permits::new(limits.deferred_calls_max, start.workers),
            undecided: UndecidedCancels::default(),
            sends: RecognisedSends::new(limits, repeats, start.secret),
            #[cfg(feature = "push")]
            push: OnceLock::new(),
            failures: OnceLock::new(),
            failed: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        });
        // No tenant may have the name of an agent, not even of a removed one.
        core.agents.names().iter().for_each(|name| {
            core.claim_name(name);
        });
        core
    }

    /// Traces the turns of the agents.
    pub fn trace(&self, tracer: Arc<dyn Tracer>) {
        self.agents.trace(tracer);
    }

    /// The agents, for changes.
    pub fn agents(self: &Arc<Core>) -> Agents {
        Agents(Arc::clone(self))
    }

    /// The answer of a call if its task is unfinished when the server ends.
    #[cold]
    fn cut_off(&self, of: &Handle) -> Fault {
        let key = (of.hint != missing::MISSING).then(|| TaskKey::of(of));
        let id: Option<Box<[u8]>> =
            key.and_then(|key| self.store.read(key, |task| task.id().into()));
        let name = id.as_deref().and_then(|id| std::str::from_utf8(id).ok()).map(unescape);
        let detail = match name {
            Some(name) => {
                format!(
                    "the server shut down before the task {name} was done, and retains no tasks: \
                     send the message again"
                )
            }
            None => "the server shut down before the agent answered".to_owned(),
        };
        Fault { task: id, ..Fault::because(FaultKind::ShuttingDown, detail) }
    }

    #[inline(always)] // A call is large, and copying it is slow.
    fn call_in_scope(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        match call {
            Call::Send(send) => {
                let mut first = None;
                if self.sends.has(&cx.caller)
                    && let Some(duplicate) = self.look_up_send(cx, &send, answer, &mut first)
                {
                    return duplicate;
                }
                let outcome = self.send(cx, &send, answer, &mut first);
                if let (Some(first), Err(fault)) = (&mut first, &outcome) {
                    first.fail(fault);
                }
                outcome
            }
            Call::Get(get) => self.get(cx, &get, answer),
            Call::List(list) => self.list(cx, &list, answer),
            Call::Cancel(target) => self.cancel(cx, &target, answer),
            Call::Subscribe(target) => self.subscribe(cx, &target),
            Call::Push(request) => self.push(cx, &request, answer),
            Call::ExtendedCard => Err(FaultKind::ExtendedAgentCardNotConfigured.into()),
        }
    }

    /// The program that answers for an agent now, from the worker's list.
    #[inline]
    fn registered(&self, worker: usize, agent: AgentIndex) -> Result<CurrentAgent<'_>, Fault> {
        let found = self.agents.of_worker(worker, agent);
        found.ok_or_else(|| Fault::because(FaultKind::Internal, "no such agent"))
    }

    /// The core as the host of jobs; `None` only while the core is being dropped.
    fn job_host(&self) -> Option<Arc<dyn JobHost>> {
        self.this.upgrade().map(|core| core as Arc<dyn JobHost>)
    }
}

impl Lifecycle for Core {
    /// Resumes agents of `cx.worker` that are due, and evicts expired tasks.
    fn tick(&self, cx: &mut TickCx<'_>, wake: &Waker) -> Option<u64> {
        Some(self.run_due(cx, wake))
    }

    fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    fn unfinished_tasks(&self) -> usize {
        let by_state = self.store.stats().by_state;
        let states = TaskState::ALL.iter().zip(by_state);
        states.filter(|(state, _)| !state.is_terminal()).map(|(_, tasks)| tasks as usize).sum()
    }

    fn stats(&self) -> Option<ServiceStats> {
        let Stats { by_state, bytes, evicted, ended, .. } = self.store.stats();
        Some(ServiceStats { tasks: by_state, bytes, evicted, ended })
    }
}

impl Service for Core {
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        if cx.caller.tenant.is_some() || cx.caller.owner.is_some() {
            return self.call_in_space(cx, call, answer);
        }
        self.call_in_scope(cx, call, answer)
    }

    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        if let Some(look) = &mut wait.look {
            // When the server ends, waiting calls are answered at once.
            look.is_due |= self.cut.load(Ordering::Relaxed);
        }
        let polled = match wait.link.is_late() {
            true => self.poll_late(wait, wake, answer),
            false => self.store.poll(wait, wake, answer).map_ok(|()| Outcome::Answered),
        };
        match polled {
            Poll::Pending if self.cut.load(Ordering::Relaxed) => {
                Poll::Ready(Err(self.cut_off(&wait.handle)))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => {
                wait.link.finish();
                Poll::Ready(outcome)
            }
        }
    }

    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow {
        let follow = self.store.follow(cursor, wake, each);
        if let Follow::End | Follow::Gone = follow {
            cursor.link.finish();
        }
        follow
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        self.agents.profile(agent)
    }

    fn agent(&self, name: &str) -> Option<AgentIndex> {
        self.agents.find(name)
    }

    fn has_one_agent(&self) -> bool {
        self.agents.is_one()
    }

    fn has_own_scopes(&self) -> bool {
        self.agents.have_own_scopes()
    }

    fn required_scopes(&self) -> Option<Arc<RequiredScopes>> {
        Some(self.agents.required_scopes())
    }

    fn scopes_number(&self) -> u64 {
        self.agents.scopes_number()
    }

    fn upstreams(&self) -> Vec<(AgentIndex, Arc<UpstreamMeter>)> {
        self.agents.upstreams()
    }

    fn has_push(&self) -> bool {
        Core::has_push(self)
    }
}
