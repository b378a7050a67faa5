//! Reports the end of calls to the observer of a server, exactly once for each call.
//!
//! A call that is answered immediately is reported immediately. A waiting call or a stream has its
//! data in an [`ObservedCall`]; dropping this reports the end of the call.

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

/// The data of a call at its beginning.
#[derive(Clone, Copy, Default)]
pub struct CallBegin {
    ns: u64,
    bytes_in: usize,
    out_at: usize,
}

/// The data of a call that is not answered yet.
pub struct ObservedCall {
    observer: Arc<dyn CallObserver>,
    record: CallRecord,
    /// True: the end of the call is recorded.
    is_over: bool,
}

/// The data to report when a call ends; `None`: no observer.
pub type Observed = Option<Box<ObservedCall>>;

/// Bytes on the heap.
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
    /// Counts written bytes of the answer.
    pub fn wrote(&mut self, bytes: usize) {
        self.record.bytes_out += bytes as u64;
    }

    /// The log details, if an observer wants them.
    pub fn details(&mut self) -> Option<&mut CallDetails> {
        self.record.details.as_deref_mut()
    }

    /// Records that the call is answered, or rejected with `refusal`, in this format.
    pub fn end(&mut self, format: &AnswerFormat<'_>, refusal: Option<CallRefusal>) {
        if let Some(refusal) = refusal {
            self.record.status = status(format, refusal);
        }
        self.record.refusal = refusal;
        self.end_by(CallEnd::Complete);
    }

    /// Records the end of the call for this reason.
    pub fn end_by(&mut self, end: CallEnd) {
        (self.record.end, self.is_over) = (end, true);
    }

    /// Records the events that one poll of a stream has written, and its end.
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

/// The refusal of a call, if its outcome is a fault.
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
    /// Records that a call begins; `bytes_in`: the length of its body or message.
    #[inline(always)]
    pub fn begin_call(&mut self, bytes_in: usize) {
        let ns = self.begin_ns();
        self.begin = CallBegin { ns, bytes_in, out_at: self.writer.out.len() };
    }

    /// Records that the next call of a batch begins.
    #[inline(always)]
    pub fn begin_next_call(&mut self) {
        self.begin.ns = self.begin_ns();
        self.begin.out_at = self.writer.out.len();
    }

    /// The start time of the call; 0 with [`CallObserver::keeps_turns`]: the time is then read at
    /// the end.
    #[inline(always)]
    fn begin_ns(&self) -> u64 {
        if self.config.reads_begin_time { self.turned_ns() } else { 0 }
    }

    /// The start time of the call according to [`CallObserver::turned_ns`].
    #[cold]
    fn turned_ns(&self) -> u64 {
        let observer = self.config.observer.as_ref();
        observer.map_or(0, |observer| observer.turned_ns(self.scratch.worker))
    }

    /// The log details of a call; `None`: no observer wants them.
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
            // If callers are authenticated, anonymous callers may not decide about tracing.
            let is_anonymous = self.config.access.gate.is_some() && self.admission.is_none();
            let fields = (!is_anonymous).then_some(fields);
            details.span = CallSpan::begin(fields, &mut *self.scratch.entropy, &**tracer);
            details.trace_id = details.span.map(|span| span.trace_hex()).or(details.trace_id);
        }
        details
    }

    /// Reports the end of the call that began last.
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
                let (binding, begin) = (self.binding_of(format), self.take_begin());
                observer.call_answered(&AnsweredCall {
                    worker: self.scratch.worker,
                    binding,
                    op,
                    generation: format.encode.generation,
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
        let (binding, generation) = (self.binding_of(format), format.encode.generation);
        let mut record = self.record(op, binding, generation, details);
        if let Some(refusal) = refusal {
            record.status = status(format, refusal);
            record.refusal = Some(refusal);
            record.refused = self.refused_caller(refusal);
        }
        observer.call_ended(&record);
    }

    /// The log details of a rejected call, if an observer wants refusals.
    fn details_of_refused(&mut self, refusal: Option<CallRefusal>) -> Option<Box<CallDetails>> {
        let observer = self.config.observer.as_ref()?;
        (refusal.is_some() && observer.wants_refusals()).then(|| self.plain_details())
    }

    /// The log details of a call that is answered with this fault.
    fn details_of_fault(&mut self, fault: &Fault) -> Option<Box<CallDetails>> {
        let is_wanted = self.wants_details() || self.config.observer.as_ref()?.wants_refusals();
        is_wanted.then(|| {
            let mut details = self.plain_details();
            note_reason(&mut details, fault);
            details
        })
    }

    /// The caller of a call that was rejected by a limit.
    fn refused_caller(&self, refusal: CallRefusal) -> Option<Arc<Principal>> {
        refusal.limit?;
        self.admission.as_ref().map(|by| Arc::clone(&by.principal))
    }

    /// Takes the data of the call that began last; later data belongs to the next call of a batch.
    #[inline(always)]
    fn take_begin(&mut self) -> CallBegin {
        let begin = self.begin;
        (self.begin.bytes_in, self.begin.out_at) = (0, self.writer.out.len());
        begin
    }

    /// Answers a call with a fault, and reports it; `op`: the operation, if known.
    #[cold]
    pub fn refuse_call(&mut self, op: Option<Op>, format: &AnswerFormat<'_>, fault: &Fault) {
        self.writer.refuse(format, fault);
        self.report_refused(op, format, fault);
    }

    /// Reports that a call was answered with a fault in the HTTP+JSON format of a generation.
    #[cold]
    pub fn report_refused_rest(
        &mut self,
        op: Option<Op>,
        generation: Generation,
        status: u16,
        fault: &Fault,
    ) {
        let Some(observer) = &self.config.observer else { return };
        let (details, refusal) = (self.details_of_fault(fault), CallRefusal::from(fault));
        let record = self.record(op, CallBinding::HttpJson, generation, details);
        let refused = self.refused_caller(refusal);
        observer.call_ended(&CallRecord { status, refusal: Some(refusal), refused, ..record });
    }

    /// Reports that a call was answered with a fault.
    #[cold]
    pub fn report_refused(&mut self, op: Option<Op>, format: &AnswerFormat<'_>, fault: &Fault) {
        let details = self.details_of_fault(fault);
        self.ended(op, format, Some(fault.into()), details);
    }

    /// Reports the rejection of a request that is not a call.
    #[cold]
    pub fn report_request_refused(&self, status: u16, reason: &str, limit: Option<&'static str>) {
        let principal = self.admission.as_ref().map(|by| &*by.principal);
        let peer = self.origin_address();
        self.config.report_refused(&RefusedRequest { peer, principal, status, reason, limit });
    }

    /// Reports that a call of a batch was answered with a fault. If the call was executed, its
    /// details are already recorded.
    #[cold]
    pub fn report_refused_member(
        &mut self,
        op: Option<Op>,
        format: &AnswerFormat<'_>,
        fault: &Fault,
    ) {
        match self.scratch.refused.take() {
            None => self.report_refused(op, format, fault),
            Some(mut details) => {
                note_reason(&mut details, fault);
                self.ended(op, format, Some(fault.into()), Some(details));
            }
        }
    }

    /// The data to report at the end of the call that began last.
    pub(super) fn observe(
        &mut self,
        format: &AnswerFormat<'_>,
        details: Option<Box<CallDetails>>,
    ) -> Observed {
        let observer = Arc::clone(self.config.observer.as_ref()?);
        let (binding, generation) = (self.binding_of(format), format.encode.generation);
        let record = self.record(Some(format.write.op), binding, generation, details);
        let record = CallRecord { waited: true, ..record };
        Some(Box::new(ObservedCall { observer, record, is_over: false }))
    }

    /// As [`CallContext::observe`], for a stream; `call` determines whether the subscriber resumes.
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

    /// The binding of a call that is answered in this format.
    #[inline(always)]
    fn binding_of(&self, format: &AnswerFormat<'_>) -> CallBinding {
        match (format.envelope, self.source) {
            (Envelope::Grpc { .. }, _) => CallBinding::Grpc,
            (Envelope::Bare, _) => CallBinding::HttpJson,
            (Envelope::Rpc(_), RequestSource::WebSocket { .. }) => CallBinding::WebSocket,
            (Envelope::Rpc(_), _) => CallBinding::JsonRpc,
        }
    }

    fn record(
        &mut self,
        op: Option<Op>,
        binding: CallBinding,
        generation: Generation,
        details: Option<Box<CallDetails>>,
    ) -> CallRecord {
        let out = self.writer.out.len();
        let CallBegin { ns, bytes_in, out_at } = self.take_begin();
        let began_ns = if self.config.reads_begin_time { ns } else { self.turned_ns() };
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

    /// Reports the admission of a request that may be a call, if callers are authenticated.
    #[inline(always)]
    pub fn report_admitted(&self) {
        if self.config.access.gate.is_some() {
            self.report_caller(&self.admission);
        }
    }

    #[cold]
    fn report_caller(&self, admission: &Admitted) {
        let outcome = match admission {
            Some(by) => AuthOutcome::Admitted(by.principal.kind()),
            None => AuthOutcome::Anonymous,
        };
        let observer = self.config.observer.iter();
        observer.for_each(|observer| observer.caller_checked(self.scratch.worker, outcome));
    }

    /// Reports that a request was not admitted.
    pub fn report_not_admitted(&self, refusal: &AuthRefusal) {
        let outcome = match refusal {
            AuthRefusal::Missing => AuthOutcome::Missing,
            AuthRefusal::Wrong(_) | AuthRefusal::Expired(_) => AuthOutcome::Wrong,
            AuthRefusal::Unavailable { .. } => AuthOutcome::Unavailable,
            AuthRefusal::TooMany { .. } => AuthOutcome::TooMany,
        };
        let observer = self.config.observer.iter();
        observer.for_each(|observer| observer.caller_checked(self.scratch.worker, outcome));
        let is_limit = matches!(refusal, AuthRefusal::TooMany { .. }) || *refusal == OVER_BUDGET;
        let limit = is_limit.then_some("wrong_credentials");
        self.config.report_limit(self.scratch.worker, limit, None);
        let fault = fault(refusal);
        self.report_request_refused(fault.kind.row().status.http(), fault.message(), limit);
    }
}

/// Records the message of a fault about permissions or limits. Faults about params are not
/// recorded, because they may contain values that must not be logged.
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
