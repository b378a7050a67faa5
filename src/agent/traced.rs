//! Tracing of turns: one span for each turn, from its start until the agent has dropped it, on any
//! thread.
//!
//! Invariant: agents are wrapped only if spans are recorded, so other servers have no overhead. The
//! span of a turn without an end, for instance after a panic, ends when it is dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::{
    Adopted, Agent, CancelRequest, Closed, DeferredHost, Ending, FailureNote, Headers, JobHost,
    NotKept, RequestView, TaskLookup, Turn, TurnHost,
};
use crate::{
    fault::Fault,
    limits::RESUMED_SPANS_MAX,
    model::{EventBuf, Message, MessageBuf, RawText, TaskEvent, TaskState, TaskView},
    service::{
        Handle, LateCall, RequestFields, Scope, Waiter,
        trace::{CallSpan, SpanFields, Tracer, TurnEnd, TurnRecord, fresh_id},
        upstream::UpstreamMeter,
    },
};

/// An agent, and the tracer of its turns.
pub(crate) struct TracedAgent {
    agent: Arc<dyn Agent>,
    name: Arc<str>,
    /// Scheme, host and port of the agent's upstream.
    upstream: Option<Arc<str>>,
    tracer: Arc<dyn Tracer>,
    /// The spans of calls with turns that will resume, by [`key_of`].
    resumed: Mutex<HashMap<Box<[u8]>, CallSpan>>,
}

impl TracedAgent {
    pub fn new(agent: Arc<dyn Agent>, name: &str, tracer: Arc<dyn Tracer>) -> TracedAgent {
        let upstream = agent.upstream().and_then(|meter| meter.origin().map(Arc::from));
        TracedAgent { agent, name: name.into(), upstream, tracer, resumed: Mutex::default() }
    }

    fn resumed(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, CallSpan>> {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the span of a call until its turn resumes. A task that ends earlier does not remove
    /// its span; if there are too many spans, all are dropped.
    fn remember(&self, task: Box<[u8]>, call: CallSpan) {
        let mut resumed = self.resumed();
        if resumed.len() >= RESUMED_SPANS_MAX {
            resumed.clear();
        }
        resumed.insert(task, call);
    }

    /// Runs a turn of the agent that belongs to this call.
    fn traced(&self, turn: Turn<'_>, call: CallSpan, run: impl FnOnce(&dyn Agent, Turn<'_>)) {
        let key = key_of(&turn);
        let Turn { message, state, task_id, context_id, request, now, entropy, .. } = turn;
        let (events, ending, host) = (turn.events, turn.ending, turn.host);
        let record = TurnRecord {
            call,
            span_id: fresh_id(entropy),
            agent: Arc::clone(&self.name),
            upstream: self.upstream.clone(),
            began_ns: self.tracer.clock_ns(),
            end: TurnEnd::Lost,
        };
        let fields = SpanFields::new(request.headers.fields, call, record.span_id);
        let headers = Headers { fields: RequestFields::of(&fields), ..request.headers };
        let span = TurnSpan { tracer: Arc::clone(&self.tracer), record: Some(record) };
        let mut host = SpanTurn { host, span: Some(span) };
        run(
            &*self.agent,
            Turn {
                message,
                state,
                task_id,
                context_id,
                request: RequestView { headers, ..request },
                now,
                entropy: &mut *entropy,
                events: &mut *events,
                ending: &mut *ending,
                host: &mut host,
            },
        );
        // A detached or deferred turn has taken its span.
        if let Some(span) = host.span {
            if let Ending::Resume { .. } = ending {
                self.remember(key, call);
            }
            span.end(end_of(ending, events));
        }
    }
}

impl Agent for TracedAgent {
    fn start(&self, turn: Turn<'_>) {
        match turn.request.headers.fields.span() {
            Some(call) => self.traced(turn, call, |agent, turn| agent.start(turn)),
            None => self.agent.start(turn),
        }
    }

    fn resume(&self, turn: Turn<'_>, token: u64) {
        let call = self.resumed().remove(&key_of(&turn));
        match call {
            Some(call) => self.traced(turn, call, |agent, turn| agent.resume(turn, token)),
            None => self.agent.resume(turn, token),
        }
    }

    fn adopt(&self, task: Adopted) {
        self.agent.adopt(task);
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        self.agent.cancel(cancel);
    }

    fn missing(&self, lookup: TaskLookup<'_>) {
        self.agent.missing(lookup);
    }

    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        self.agent.upstream()
    }
}

/// The key of a task. It includes the owner, because ids that callers choose are unique only per
/// caller.
fn key_of(turn: &Turn<'_>) -> Box<[u8]> {
    let RequestView { owner, tenant, .. } = turn.request;
    let scope = [tenant, owner].map(|name| name.unwrap_or_default().as_bytes());
    [scope[0], scope[1], turn.task_id.raw()].join(&0).into()
}

/// The outcome of a turn that ends when its agent returns.
fn end_of(ending: &Ending, events: &EventBuf) -> TurnEnd {
    match ending {
        Ending::Replied(_) => TurnEnd::Replied,
        Ending::Resume { .. } => TurnEnd::Resumes,
        Ending::Refused(fault) => TurnEnd::Refused(fault.kind.row().reason),
        Ending::Returned | Ending::Detached | Ending::Deferred => {
            TurnEnd::Task(events.iter(None).filter_map(|event| state_of(&event)).last())
        }
    }
}

fn state_of(event: &TaskEvent<'_>) -> Option<TaskState> {
    match event {
        TaskEvent::Status { state, .. } => Some(*state),
        TaskEvent::Artifact { .. } | TaskEvent::UserMessage { .. } => None,
    }
}

/// The span of a turn that has not ended.
struct TurnSpan {
    tracer: Arc<dyn Tracer>,
    /// `None` after its end was recorded.
    record: Option<TurnRecord>,
}

impl TurnSpan {
    /// Ends the turn with this outcome.
    fn end(mut self, end: TurnEnd) {
        self.note(end);
    }

    /// Records an outcome, which a later outcome may replace.
    fn note(&mut self, end: TurnEnd) {
        if let Some(record) = &mut self.record {
            record.end = end;
        }
    }
}

impl Drop for TurnSpan {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.tracer.turn_ended(record);
        }
    }
}

/// The server's side of a turn, with its span, which moves with the turn.
struct SpanTurn<'t> {
    host: &'t mut dyn TurnHost,
    span: Option<TurnSpan>,
}

impl TurnHost for SpanTurn<'_> {
    fn commit(&mut self, events: &mut EventBuf) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let (task, host) = self.host.commit(events)?;
        Ok((task, job(host, self.span.take(), None)))
    }

    fn read(&self, each: &mut dyn FnMut(TaskView<'_>)) {
        self.host.read(each);
    }

    fn call(&mut self) -> Option<Arc<LateCall>> {
        self.host.call()
    }

    fn defer(
        &mut self,
        events: &mut EventBuf,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn DeferredHost>), Closed> {
        let (call, host) = self.host.defer(events, held_bytes)?;
        Ok((call, Box::new(SpanDeferred { host, span: self.span.take(), state: None })))
    }
}

/// The server's side of a deferred turn, with its span.
struct SpanDeferred {
    host: Box<dyn DeferredHost>,
    span: Option<TurnSpan>,
    /// The last state that was published before the task is stored.
    state: Option<TaskState>,
}

impl DeferredHost for SpanDeferred {
    fn unix_ms(&self) -> u64 {
        self.host.unix_ms()
    }

    fn prepare(&mut self, event: &TaskEvent<'_>) {
        self.state = state_of(event).or(self.state);
        self.host.prepare(event);
    }

    fn keep(&mut self, bytes: Box<[u8]>) -> Result<(), NotKept> {
        self.host.keep(bytes)
    }

    fn begin(self: Box<Self>, message: Message<'_>) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let (task, host) = self.host.begin(message)?;
        Ok((task, job(host, self.span, self.state)))
    }

    fn reply(self: Box<Self>, message: MessageBuf) {
        // Before the answer, so that the end is recorded before the call is answered.
        self.span.into_iter().for_each(|span| span.end(TurnEnd::Replied));
        self.host.reply(message);
    }

    fn failed(&self, failed: FailureNote) -> String {
        self.host.failed(failed)
    }

    fn refuse(self: Box<Self>, fault: Fault) {
        let end = TurnEnd::Refused(fault.kind.row().reason);
        self.span.into_iter().for_each(|span| span.end(end));
        self.host.refuse(fault);
    }

    fn task(&self) -> Option<(Handle, Arc<dyn JobHost>)> {
        self.host.task()
    }

    fn kept_with(&self, scope: Scope, task_id: RawText<'_>) -> Vec<u8> {
        self.host.kept_with(scope, task_id)
    }

    fn kept_in_context(&self, scope: Scope, context_id: RawText<'_>) -> Vec<u8> {
        self.host.kept_in_context(scope, context_id)
    }
}

/// The server's side of a job, with the span of its turn; `state`: the last state that the agent
/// has published.
fn job(
    host: Arc<dyn JobHost>,
    span: Option<TurnSpan>,
    state: Option<TaskState>,
) -> Arc<dyn JobHost> {
    match span {
        Some(mut span) => {
            span.note(TurnEnd::Task(state));
            let has_ended = state.is_some_and(TaskState::is_terminal);
            // A span ends when it is dropped.
            let span = (!has_ended).then_some(span);
            Arc::new(SpanJob { host, span: Mutex::new(span) })
        }
        None => host,
    }
}

/// A job; its turn ends with its task, or when the job is dropped.
struct SpanJob {
    host: Arc<dyn JobHost>,
    span: Mutex<Option<TurnSpan>>,
}

impl JobHost for SpanJob {
    fn publish(&self, task: Handle, event: &TaskEvent<'_>) -> Result<(), Closed> {
        self.host.publish(task, event)?;
        if let Some(state) = state_of(event) {
            let mut span = self.span.lock().unwrap_or_else(PoisonError::into_inner);
            span.iter_mut().for_each(|span| span.note(TurnEnd::Task(Some(state))));
            let ended = if state.is_terminal() { span.take() } else { None };
            drop(span);
            drop(ended);
        }
        Ok(())
    }

    fn unix_ms(&self) -> u64 {
        self.host.unix_ms()
    }

    fn keep(&self, task: Handle, bytes: &[u8]) -> Result<(), NotKept> {
        self.host.keep(task, bytes)
    }

    fn kept(&self, task: Handle) -> Vec<u8> {
        self.host.kept(task)
    }

    fn failed(&self, failed: FailureNote) -> String {
        self.host.failed(failed)
    }

    fn read(&self, task: Handle, each: &mut dyn FnMut(TaskView<'_>)) -> bool {
        self.host.read(task, each)
    }

    fn poll_ended(&self, task: Handle, waiter: &mut Waiter, wake: &Waker) -> Poll<()> {
        self.host.poll_ended(task, waiter, wake)
    }
}
