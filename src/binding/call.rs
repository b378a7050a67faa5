//! The pipeline: executes a decoded call, which is answered, becomes pending, or opens a stream.
//!
//! Invariant: JSON-RPC, HTTP+JSON and gRPC decode a request into a call and the format of its
//! answer, and pass both to [`CallContext::answer`]; from there on all bindings share one path.

use std::{borrow::Cow, task::Waker};

use crate::{
    auth::CallerPermit,
    binding::{
        CallScratch, CallerShare, Endpoint, Handled, RequestSource, ServerConfig,
        admission::Admitted,
        answer::{AnswerFormat, Opened, ResponseWriter, no_answer},
        coded,
        extensions::{self, DeclaredExtensions},
        make::make,
        observed::{CallBegin, refusal_of},
        origin::Origin,
        pending::{PendingBatch, PendingCall, PendingResponse},
        stream::EventStream,
    },
    dialect::WriteCx,
    fault::{Fault, FaultKind},
    http::{FieldLinesBuf, Head},
    model::{Call, Op},
    permits::Permit,
    service::{AgentIndex, CallCx, Caller, Now, Outcome, Peer, Scope, Service},
};

/// One request, and the state that is needed to answer it.
pub struct CallContext<'x> {
    /// The service interface.
    pub service: &'x dyn Service,
    /// Mounts, agents and settings.
    pub config: &'x ServerConfig,
    /// The worker's reusable buffers.
    pub scratch: &'x mut CallScratch,
    /// The writer of the answer.
    pub writer: ResponseWriter<'x>,
    /// The time.
    pub now: Now,
    /// Woken when a pending call or a stream may continue.
    pub wake: &'x Waker,
    /// The peer.
    pub peer: Peer<'x>,
    /// Dialect and agent, once they are known.
    pub endpoint: Endpoint,
    /// The path of the endpoint, without a trailing slash.
    pub base: &'x str,
    /// The tenant in the path or the metadata.
    pub outside_tenant: Option<&'x str>,
    /// The agent of the last decoded call: its tenant may name an agent other than that of the
    /// endpoint.
    pub agent: AgentIndex,
    /// The source of the request.
    pub source: RequestSource<'x>,
    /// True: the connection closes after the answer.
    pub closes: bool,
    /// The extensions that the request activates, comma separated.
    pub extensions: Option<Cow<'x, str>>,
    /// The authenticated caller; `None`: an anonymous caller.
    pub admission: Admitted,
    /// The share of the caller, once it was looked up.
    pub share: Option<CallerShare>,
    /// The observer's data about the call that began last.
    pub begin: CallBegin,
}

/// The write context of a call's answer.
pub(super) fn write_cx<'p>(op: Op, call: &Call<'p>, now: Now) -> WriteCx<'p> {
    let mut cx = WriteCx { unix_ms: now.unix_ms, ..WriteCx::new(op) };
    if let Call::Send(send) = call {
        (cx.task_id, cx.history) = (send.task_id.unwrap_or_default().raw(), send.history);
    }
    cx
}

impl<'x> CallContext<'x> {
    /// A2A 1.0 §3.2.6: agents see the requested extensions, and the answer names the extensions in
    /// effect.
    #[inline(always)] // Few requests name an extension.
    pub fn name_extensions(&mut self) {
        if let RequestSource::Http(head) = self.source
            && extensions::are_named(head)
        {
            self.name_extensions_of(head);
        }
    }

    #[cold]
    fn name_extensions_of(&mut self, head: &Head<'_>) {
        let Some(named) = extensions::joined(head) else { return };
        let cors = &self.config.cors;
        self.writer.fields = FieldLinesBuf::default();
        if let Some(profile) = self.service.profile(self.agent) {
            let is_authenticated = self.admission.is_some();
            let declared =
                DeclaredExtensions { profile: &profile, config: self.config, is_authenticated };
            self.writer.fields = extensions::fields(declared, head);
        }
        self.writer.fields.extend(cors.fields(cors.of(head)).get());
        if head.is_coded() {
            coded::name_accepted(&mut self.writer.fields);
        }
        self.extensions = Some(named.into());
    }

    /// RFC 9110 §12.5.3: the response to content with a coding lists the accepted codings.
    #[cold]
    pub fn name_codings(&mut self) {
        // If the request has extensions, `name_extensions_of` has listed the codings.
        if self.extensions.is_none() {
            coded::name_accepted(&mut self.writer.fields);
        }
    }

    /// The origin that the client addressed.
    pub fn origin(&self) -> Origin<'x> {
        match self.source {
            RequestSource::Http(head) => Origin::of(self.config, self.peer, head),
            RequestSource::Grpc(metadata) => metadata.origin,
            RequestSource::WebSocket { upgrade, .. } => upgrade.origin(),
        }
    }

    /// Executes a call and answers it.
    #[inline]
    pub fn answer(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) -> Handled {
        if self.agent != self.endpoint.agent {
            self.name_extensions();
        }
        if self.needs_checks()
            && let Err(fault) = self.check_call(format.write.op)
        {
            self.name_share();
            self.refuse_call(Some(format.write.op), format, &fault);
            return Handled::Answered;
        }
        self.name_share();
        self.push_wait(call);
        if format.is_streaming() {
            return self.open_stream(call, format);
        }
        if let Call::ExtendedCard = call {
            return self.answer_card(format);
        }
        match self.config.observer {
            None => self.reply::<false>(call, format),
            Some(_) if self.wants_details() => self.reply_detailed(call, format),
            Some(_) => self.reply::<true>(call, format),
        }
    }

    /// Executes a call that is answered by a reply. `IS_OBSERVED`: an observer is notified, without
    /// details.
    #[inline(always)]
    fn reply<const IS_OBSERVED: bool>(
        &mut self,
        call: &Call<'_>,
        format: &AnswerFormat<'_>,
    ) -> Handled {
        let (service, mut cx, writer) = self.split(true);
        let outcome = writer.begin_reply(format, |answer| service.call(&mut cx, *call, answer));
        writer.shows(cx.record);
        let refusal = if IS_OBSERVED { refusal_of(&outcome, false) } else { None };
        match writer.end_reply(format, outcome) {
            None => {
                if IS_OBSERVED {
                    self.ended(Some(format.write.op), format, refusal, None);
                }
                Handled::Answered
            }
            Some(wait) => {
                let call = PendingCall::new(wait, format).observed(self.observe(format, None));
                self.pend(format, vec![call], None)
            }
        }
    }

    /// As [`CallContext::reply`], for an observer that wants details.
    #[inline(never)]
    fn reply_detailed(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) -> Handled {
        let mut details = Some(self.details_of(call));
        let (service, mut cx, writer) = self.split(true);
        let outcome =
            writer.begin_reply(format, |answer| make(service, &mut cx, call, &mut details, answer));
        writer.shows(cx.record);
        let refusal = refusal_of(&outcome, false);
        match writer.end_reply(format, outcome) {
            None => {
                self.ended(Some(format.write.op), format, refusal, details);
                Handled::Answered
            }
            Some(wait) => {
                let call = PendingCall::new(wait, format).observed(self.observe(format, details));
                self.pend(format, vec![call], None)
            }
        }
    }

    /// Executes a call that is answered by a stream.
    fn open_stream(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) -> Handled {
        let Some(permit) = self.config.streams.permit(self.scratch.worker) else {
            self.refuse_call(Some(format.write.op), format, &Fault::at_limit("streams_max"));
            return Handled::Answered;
        };
        let stream_permit = match self.stream_permit() {
            Ok(permit) => permit,
            Err(fault) => {
                self.refuse_call(Some(format.write.op), format, &fault);
                return Handled::Answered;
            }
        };
        let (now_ms, due_ms) = (self.now.mono_ms, self.due_ms());
        let mut details = self.details(call);
        let (service, mut cx, writer) = self.split(true);
        let outcome = writer
            .begin_opening(format, |answer| make(service, &mut cx, call, &mut details, answer));
        writer.shows(cx.record);
        let refusal = refusal_of(&outcome, true);
        match writer.end_opening(format, outcome) {
            Opened::Answered => {
                self.ended(Some(format.write.op), format, refusal, details);
                Handled::Answered
            }
            Opened::Stream(opened) => {
                let fields = &mut writer.fields;
                let mut stream = EventStream::new(format, opened, now_ms, permit, fields);
                stream.due_ms = due_ms;
                let stream = stream.observed(self.observe_stream(call, format, details));
                Handled::Stream(Box::new(stream.admitted(
                    self.admission.clone(),
                    stream_permit,
                    self.now,
                )))
            }
            Opened::Waits(wait) => {
                let observed = self.observe_stream(call, format, details);
                let calls = vec![PendingCall::new(wait, format).observed(observed)];
                let fields = self.take_fields();
                let pending = PendingResponse::new(calls, None, fields, permit).until(due_ms);
                let pending = pending.with_early_head(&self.config.limits, self.now);
                let pending = pending.admitted(self.admission.clone(), stream_permit, self.now);
                Handled::Pending(Box::new(pending))
            }
        }
    }

    /// Executes one call of a batch and appends its answer.
    ///
    /// # Errors
    /// The fault of the call, which the caller of this function reports. It must roll back the
    /// output, as for a call that waits.
    pub fn push_answer(
        &mut self,
        call: &Call<'_>,
        format: &AnswerFormat<'_>,
    ) -> Result<Option<PendingCall>, Fault> {
        if self.needs_checks() {
            self.check_call(format.write.op)?;
        }
        if let Call::ExtendedCard = call {
            let card = self.extended_card(format)?;
            format.push_bytes(self.writer.out, &card);
            let details = self.details(call);
            self.ended(Some(Op::ExtendedCard), format, None, details);
            return Ok(None);
        }
        let mut details = self.details(call);
        let (service, mut cx, writer) = self.split(false);
        let start = writer.out.len();
        let outcome = format
            .push_reply(writer.out, |answer| make(service, &mut cx, call, &mut details, answer));
        writer.shows(cx.record);
        match outcome {
            Ok(Outcome::Answered) => {
                format.envelope.close(writer.out, start);
                self.ended(Some(format.write.op), format, None, details);
                Ok(None)
            }
            Ok(Outcome::Pending(_)) if self.is_full() => {
                self.scratch.refused = details;
                Err(in_flight())
            }
            Ok(Outcome::Pending(wait)) => {
                let observed = self.observe(format, details);
                Ok(Some(PendingCall::new(wait, format).observed(observed)))
            }
            outcome => {
                self.scratch.refused = details;
                Err(no_answer(outcome))
            }
        }
    }

    /// Executes a call without an id, which gets no response (JSON-RPC 2.0 §4.1). No output is
    /// written, not even temporarily, since a batch of such calls could exceed the limit of an
    /// answer. A call that only reads is not executed.
    pub fn call_silently(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) {
        let op = format.write.op;
        if !call.only_shows() && (!self.needs_checks() || self.check_call(op).is_ok()) {
            let mut details = self.details(call);
            let (service, mut cx, _) = self.split(false);
            let outcome = make(service, &mut cx, call, &mut details, &mut |_| ());
            let refusal = refusal_of(&outcome, op.is_streaming());
            let _ = outcome.map(Outcome::finish);
            self.ended(Some(op), format, refusal, details);
        }
    }

    /// Makes calls pending, if the limits allow it.
    pub fn pend(
        &mut self,
        format: &AnswerFormat<'_>,
        mut calls: Vec<PendingCall>,
        batch: Option<PendingBatch>,
    ) -> Handled {
        match self.permit_to_wait() {
            Ok((permit, caller_permit)) => {
                let (fields, due_ms) = (self.take_fields(), self.due_ms());
                let pending =
                    PendingResponse::new(calls, batch, fields, permit).counted(caller_permit);
                let pending =
                    pending.until(due_ms).admitted(self.admission.clone(), None, self.now);
                Handled::Pending(Box::new(pending))
            }
            Err(fault) => {
                calls.iter_mut().for_each(|call| call.refused(&fault));
                self.writer.refuse(format, &fault);
                Handled::Answered
            }
        }
    }

    /// Takes a permit among all waiting calls, and a permit among those of the caller. Calls rarely
    /// wait, so the permits are taken only here.
    fn permit_to_wait(&mut self) -> Result<(Permit, Option<CallerPermit>), Fault> {
        if self.is_full() {
            return Err(in_flight());
        }
        let caller_permit = self.waiting_permit()?;
        let permit = self.config.waiting.permit(self.scratch.worker);
        Ok((permit.ok_or_else(|| Fault::at_limit("connections_max"))?, caller_permit))
    }

    /// True on a WebSocket at its limit of pending requests.
    fn is_full(&self) -> bool {
        matches!(self.source, RequestSource::WebSocket { is_full: true, .. })
    }

    fn take_fields(&mut self) -> FieldLinesBuf {
        std::mem::take(&mut self.writer.fields)
    }

    /// The service, its context, and the writer. The `Idempotency-Key` of the head applies only to
    /// a call outside a batch.
    #[inline(always)]
    fn split(&mut self, is_alone: bool) -> (&'x dyn Service, CallCx<'_>, &mut ResponseWriter<'x>) {
        self.scratch.note_call(self.agent, self.now);
        let CallScratch { worker, events, entropy, tenant, .. } = &mut *self.scratch;
        let principal = self.admission.as_ref().map(|admission| &admission.principal);
        let terms = self.source.terms();
        let caller = Caller {
            scope: Scope::of(self.agent),
            tenant: Some(&**tenant).filter(|tenant| !tenant.is_empty()),
            owner: principal.map(|principal| principal.owner()),
            principal,
            authenticates_callers: self.config.access.gate.is_some(),
            running: self.share.as_ref().and_then(|share| share.running()),
            worker: *worker,
            idempotency_key: terms.idempotency_key.filter(|_| is_alone),
            deadline_unix_ms: terms.timeout_ms.map(|ms| self.now.unix_ms.saturating_add(ms)),
            hops: terms.hops,
            extensions: self.extensions.as_deref(),
            peer: &self.peer,
            fields: self.source.fields(),
        };
        let (now, wake, shared) = (self.now, self.wake, &self.config.shared);
        let cx = CallCx { caller, now, wake, entropy: &mut **entropy, events, shared, record: 0 };
        (self.service, cx, &mut self.writer)
    }
}

/// The fault of a call for which a WebSocket has no slot to wait.
#[cold]
pub(super) fn in_flight() -> Fault {
    let detail = "too many pending requests on this connection (ws_in_flight_max)";
    Fault::because(FaultKind::Overloaded, detail).of_limit("ws_in_flight_max")
}
