//! Tells the observer of a server how its calls end: each once, by whichever way it goes.
//!
//! A call that is answered where it came is told there. One that waits, and a stream, carries what
//! is known of it in an [`ObservedCall`], and dropping that reports how it ended.

use std::sync::Arc;

use crate::{
    auth::{AuthRefusal, OVER_BUDGET},
    binding::{
        CallContext, RequestSource,
        admission::{Admitted, fault},
        answer::AnswerFormat,
        envelope::Envelope,
    },
    fault::{Fault, FaultKind},
    model::{Call, Generation, Op},
    service::{
        Follow, Outcome, Principal,
        observe::{
            AnsweredCall, AuthOutcome, CallBinding, CallDetails, CallEnd, CallObserver, CallRecord,
            CallRefusal, RefusedRequest, StreamRecord,
        },
        trace::CallSpan,
        upstream::LoggedUpstream,
    },
};

/// What is known of a call when it begins.
#[derive(Clone, Copy, Default)]
pub struct CallBegin {
    ns: u64,
    bytes_in: usize,
    out_at: usize,
}

/// What is told of a call that is not answered yet.
pub struct ObservedCall {
    observer: Arc<dyn CallObserver>,
    record: CallRecord,
    /// True: what ended it is known.
    is_over: bool,
}

/// What is told of a call when it ends; `None`: there is no observer.
pub type Observed = Option<Box<ObservedCall>>;

/// Bytes behind the pointer.
pub fn held_bytes(observed: &Observed) -> usize {
    let of_details = |call: &ObservedCall| {
        let of = |details: &CallDetails| {
            let upstream = details.upstream.as_ref().map_or(0, |_| size_of::<LoggedUpstream>());
            size_of::<CallDetails>() + details.task.capacity() + upstream
        };
        call.record.details.as_deref().map_or(0, of)
    };
    observed.as_deref().map_or(0, |call| size_of::<ObservedCall>() + of_details(call))
}

impl ObservedCall {
    /// Counts bytes that were written for it.
    pub fn wrote(&mut self, bytes: usize) {
        self.record.bytes_out += bytes as u64;
    }

    /// What a log tells of it, if an observer wants details.
    pub fn details(&mut self) -> Option<&mut CallDetails> {
        self.record.details.as_deref_mut()
    }

    /// It is answered, or refused, in this format.
    pub fn end(&mut self, format: &AnswerFormat<'_>, refusal: Option<CallRefusal>) {
        if let Some(refusal) = refusal {
            self.record.status = status(format, refusal);
        }
        self.record.refusal = refusal;
        self.end_by(CallEnd::Complete);
    }

    /// Nothing more is said of it, for this reason.
    pub fn end_by(&mut self, end: CallEnd) {
        (self.record.end, self.is_over) = (end, true);
    }

    /// It is a stream, of which so many events were written in this turn.
    pub fn followed(&mut self, events: u64, follow: Follow) {
        let observer = &self.observer;
        let stream = self.record.stream.get_or_insert_default();
        stream.wrote(events, !matches!(follow, Follow::More), || observer.clock_ns());
        match follow {
            Follow::Pending | Follow::More => {}
            Follow::End => self.end_by(CallEnd::Complete),
            Follow::Gone => self.end_by(CallEnd::Gone),
        }
    }
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        if !self.is_over {
            self.record.end = CallEnd::ClientLeft;
        }
        self.observer.call_ended(&self.record);
    }
}

/// Why the answer of a call is a fault.
#[inline(always)]
pub fn refusal_of(outcome: &Result<Outcome, Fault>, is_streaming: bool) -> Option<CallRefusal> {
    match outcome {
        Ok(Outcome::Answered | Outcome::Pending(_)) => None,
        Ok(Outcome::Stream { .. }) if is_streaming => None,
        Ok(Outcome::Stream { .. }) => Some(CallRefusal { kind: FaultKind::Internal, limit: None }),
        Err(fault) => Some(CallRefusal::from(fault)),
    }
}

#[cold]
fn status(format: &AnswerFormat<'_>, refusal: CallRefusal) -> u16 {
    let fault = Fault::new(refusal.kind);
    match format.status(Err(&fault)) {
        Some(status) => status.code as u16,
        None => (format.status)(&fault),
    }
}

impl CallContext<'_> {
    /// Notes that a call begins, whose body or message has so many bytes.
    #[inline(always)]
    pub fn begin_call(&mut self, bytes_in: usize) {
        let ns = self.begin_ns();
        self.begin = CallBegin { ns, bytes_in, out_at: self.writer.out.len() };
    }

    /// Notes that another call of a batch begins.
    #[inline(always)]
    pub fn begin_next_call(&mut self) {
        self.begin.ns = self.begin_ns();
        self.begin.out_at = self.writer.out.len();
    }

    /// When the call begins; 0 where the observer keeps turns, which is asked when it ends.
    #[inline(always)]
    fn begin_ns(&self) -> u64 {
        if self.config.asks_begins { self.turned_ns() } else { 0 }
    }

    /// When the worker has turned to the call, as far as the observer knows.
    #[cold]
    fn turned_ns(&self) -> u64 {
        let observer = self.config.observer.as_ref();
        observer.map_or(0, |observer| observer.turned_ns(self.scratch.worker))
    }

    /// What a log wants to know of a call beside its numbers; `None`: there is no log.
    #[inline(always)]
    pub(super) fn details(&mut self, call: &Call<'_>) -> Option<Box<CallDetails>> {
        self.wants_details().then(|| self.details_of(call))
    }

    #[inline(always)]
    pub(super) fn wants_details(&self) -> bool {
        self.config.observer.as_ref().is_some_and(|observer| observer.wants_details())
    }

    #[cold]
    pub(super) fn details_of(&mut self, call: &Call<'_>) -> Box<CallDetails> {
        let mut details = self.plain_details();
        match call {
            Call::Send(send) => send.task_id.into_iter().for_each(|id| details.note(id)),
            Call::Get(get) => details.note(get.id),
            Call::Cancel(target) | Call::Subscribe(target) => details.note(target.id),
            Call::Push(push) => details.note(push.call.task_id()),
            Call::List(_) | Call::ExtendedCard => {}
        }
        details
    }

    fn plain_details(&mut self) -> Box<CallDetails> {
        let mut details = Box::<CallDetails>::default();
        details.principal = self.admission.as_ref().map(|by| Arc::clone(&by.principal));
        details.peer = self.origin_address();
        let fields = self.source.fields();
        if let Some(traceparent) = fields.value("traceparent") {
            details.note_trace(&traceparent);
        }
        if let Some(tracer) = &self.config.tracer {
            // Strangers decide nothing where callers are known.
            let is_stranger = self.config.access.gate.is_some() && self.admission.is_none();
            let fields = (!is_stranger).then_some(fields);
            details.span = CallSpan::begin(fields, &mut *self.scratch.entropy, &**tracer);
            details.trace_id = details.span.map(|span| span.trace_hex()).or(details.trace_id);
        }
        details
    }

    /// Tells that the call which was begun last has ended.
    #[inline(always)]
    pub fn ended(
        &mut self,
        op: Option<Op>,
        format: &AnswerFormat<'_>,
        refusal: Option<CallRefusal>,
        details: Option<Box<CallDetails>>,
    ) {
        let Some(observer) = &self.config.observer else { return };
        match (op, refusal, details) {
            (Some(op), None, None) => {
                let ((binding, generation), begin) = (self.way(format), self.take_begin());
                observer.call_answered(&AnsweredCall {
                    worker: self.scratch.worker,
                    binding,
                    op,
                    generation,
                    agent: self.agent,
                    began_ns: begin.ns,
                    bytes_in: begin.bytes_in as u64,
                    bytes_out: self.writer.out.len().saturating_sub(begin.out_at) as u64,
                });
            }
            (op, refusal, details) => self.ended_otherwise(op, format, refusal, details),
        }
    }

    #[cold]
    fn ended_otherwise(
        &mut self,
        op: Option<Op>,
        format: &AnswerFormat<'_>,
        refusal: Option<CallRefusal>,
        details: Option<Box<CallDetails>>,
    ) {
        let Some(observer) = &self.config.observer else { return };
        let details = details.or_else(|| self.details_of_refused(refusal));
        let mut record = self.record(op, self.way(format), details);
        if let Some(refusal) = refusal {
            record.status = status(format, refusal);
            record.refusal = Some(refusal);
            record.refused = self.refused_caller(refusal);
        }
        observer.call_ended(&record);
    }

    /// What a log wants to know of a call that is refused, where it wanted nothing before.
    fn details_of_refused(&mut self, refusal: Option<CallRefusal>) -> Option<Box<CallDetails>> {
        let observer = self.config.observer.as_ref()?;
        (refusal.is_some() && observer.wants_refusals()).then(|| self.plain_details())
    }

    /// The same of a call that is answered with this fault.
    fn details_of_fault(&mut self, fault: &Fault) -> Option<Box<CallDetails>> {
        let is_wanted = self.wants_details() || self.config.observer.as_ref()?.wants_refusals();
        is_wanted.then(|| {
            let mut details = self.plain_details();
            note_reason(&mut details, fault);
            details
        })
    }

    /// The caller of a call that was refused because of a limit.
    fn refused_caller(&self, refusal: CallRefusal) -> Option<Arc<Principal>> {
        refusal.limit?;
        self.admission.as_ref().map(|by| Arc::clone(&by.principal))
    }

    /// What is known of the call that was begun last. What follows belongs to the next one of a
    /// batch.
    #[inline(always)]
    fn take_begin(&mut self) -> CallBegin {
        let begin = self.begin;
        (self.begin.bytes_in, self.begin.out_at) = (0, self.writer.out.len());
        begin
    }

    /// Answers a call of this operation, if it is one, with a fault, and tells it.
    #[cold]
    pub fn refuse_call(&mut self, op: Option<Op>, format: &AnswerFormat<'_>, fault: &Fault) {
        self.writer.refuse(format, fault);
        self.tell_refused(op, format, fault);
    }

    /// Tells that a call was answered with a fault in the form of HTTP+JSON of a generation.
    #[cold]
    pub fn tell_refused_rest(
        &mut self,
        op: Option<Op>,
        generation: Generation,
        status: u16,
        fault: &Fault,
    ) {
        let Some(observer) = &self.config.observer else { return };
        let (details, refusal) = (self.details_of_fault(fault), CallRefusal::from(fault));
        let record = self.record(op, (CallBinding::HttpJson, generation), details);
        let refused = self.refused_caller(refusal);
        observer.call_ended(&CallRecord { status, refusal: Some(refusal), refused, ..record });
    }

    /// Tells that a call was answered with a fault.
    #[cold]
    pub fn tell_refused(&mut self, op: Option<Op>, format: &AnswerFormat<'_>, fault: &Fault) {
        let details = self.details_of_fault(fault);
        self.ended(op, format, Some(fault.into()), details);
    }

    /// Tells that a request was refused that is no call.
    #[cold]
    pub fn tell_request_refused(&self, status: u16, reason: &str, limit: Option<&'static str>) {
        let principal = self.admission.as_ref().map(|by| &*by.principal);
        let peer = self.origin_address();
        self.config.tell_refused(&RefusedRequest { peer, principal, status, reason, limit });
    }

    /// Tells that a call of a batch was answered with a fault. One that was made before that has
    /// left its details.
    #[cold]
    pub fn tell_refused_member(
        &mut self,
        op: Option<Op>,
        format: &AnswerFormat<'_>,
        fault: &Fault,
    ) {
        match self.scratch.refused.take() {
            None => self.tell_refused(op, format, fault),
            Some(mut details) => {
                note_reason(&mut details, fault);
                self.ended(op, format, Some(fault.into()), Some(details));
            }
        }
    }

    /// What is to be told of the call which was begun last, when it ends.
    pub(super) fn observe(
        &mut self,
        format: &AnswerFormat<'_>,
        details: Option<Box<CallDetails>>,
    ) -> Observed {
        let observer = Arc::clone(self.config.observer.as_ref()?);
        let record = self.record(Some(format.write.op), self.way(format), details);
        let record = CallRecord { waited: true, ..record };
        Some(Box::new(ObservedCall { observer, record, is_over: false }))
    }

    /// The same for a stream; `call` says whether its subscriber has come back.
    pub(super) fn observe_stream(
        &mut self,
        call: &Call<'_>,
        format: &AnswerFormat<'_>,
        details: Option<Box<CallDetails>>,
    ) -> Observed {
        let mut observed = self.observe(format, details)?;
        let resumed = matches!(call, Call::Subscribe(target) if target.after.is_some());
        observed.record.stream = Some(StreamRecord { resumed, ..StreamRecord::default() });
        Some(observed)
    }

    /// The way by which a call came that is answered in this format.
    #[inline(always)]
    fn way(&self, format: &AnswerFormat<'_>) -> (CallBinding, Generation) {
        let binding = match (format.envelope, self.source) {
            (Envelope::Grpc { .. }, _) => CallBinding::Grpc,
            (Envelope::Bare, _) => CallBinding::HttpJson,
            (Envelope::Rpc(_), RequestSource::WebSocket { .. }) => CallBinding::WebSocket,
            (Envelope::Rpc(_), _) => CallBinding::JsonRpc,
        };
        (binding, format.encode.generation)
    }

    fn record(
        &mut self,
        op: Option<Op>,
        (binding, generation): (CallBinding, Generation),
        details: Option<Box<CallDetails>>,
    ) -> CallRecord {
        let out = self.writer.out.len();
        let CallBegin { ns, bytes_in, out_at } = self.take_begin();
        let began_ns = if self.config.asks_begins { ns } else { self.turned_ns() };
        CallRecord {
            worker: self.scratch.worker,
            binding,
            op,
            generation,
            agent: self.agent,
            refusal: None,
            status: binding.status_ok(),
            began_ns,
            waited: false,
            bytes_in: bytes_in as u64,
            bytes_out: out.saturating_sub(out_at) as u64,
            stream: None,
            end: CallEnd::Complete,
            details,
            refused: None,
        }
    }

    /// Tells that a request which may be a call was let in, where callers are known.
    #[inline(always)]
    pub fn tell_admitted(&self) {
        if self.config.access.gate.is_some() {
            self.tell_caller(&self.admission);
        }
    }

    #[cold]
    fn tell_caller(&self, admission: &Admitted) {
        let outcome = match admission {
            Some(by) => AuthOutcome::Admitted(by.principal.kind()),
            None => AuthOutcome::Anonymous,
        };
        let observer = self.config.observer.iter();
        observer.for_each(|observer| observer.caller_asked(self.scratch.worker, outcome));
    }

    /// Tells that a request was not let in.
    pub fn tell_not_admitted(&self, refusal: &AuthRefusal) {
        let outcome = match refusal {
            AuthRefusal::Missing => AuthOutcome::Missing,
            AuthRefusal::Wrong(_) | AuthRefusal::Expired(_) => AuthOutcome::Wrong,
            AuthRefusal::Unavailable { .. } => AuthOutcome::Unavailable,
            AuthRefusal::TooMany { .. } => AuthOutcome::TooMany,
        };
        let observer = self.config.observer.iter();
        observer.for_each(|observer| observer.caller_asked(self.scratch.worker, outcome));
        let is_limit = matches!(refusal, AuthRefusal::TooMany { .. }) || *refusal == OVER_BUDGET;
        let limit = is_limit.then_some("wrong_credentials");
        self.config.tell_limit(self.scratch.worker, limit, None);
        let fault = fault(refusal);
        self.tell_request_refused(fault.kind.row().status.http(), fault.message(), limit);
    }
}

/// Notes why a call is refused that asks for more than it may have. What is said of its params may
/// repeat them, which no log shows.
pub(super) fn note_reason(details: &mut CallDetails, fault: &Fault) {
    match fault.kind {
        FaultKind::Unauthenticated
        | FaultKind::PermissionDenied
        | FaultKind::RateLimited
        | FaultKind::Overloaded
        | FaultKind::ShuttingDown => fault.message().clone_into(&mut details.reason),
        _ => {}
    }
}
