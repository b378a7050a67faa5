//! Waiting calls: a single call or the unanswered calls of a batch, with the formats of their
//! answers.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    auth::{AdmittedCaller, CallerPermit, CallerWatch},
    binding::{
        Handled,
        admission::{Admitted, ENDED, fault},
        answer::{AnswerFormat, Opened, ResponseWriter, no_answer},
        kept_format::RetainedFormat,
        observed::{Observed, held_bytes, refusal_of},
        responder::{Content, Responder},
        stream::{EventFraming, EventStream},
    },
    fault::{Fault, FaultKind},
    http::{FieldLines, FieldLinesBuf, media},
    limits::Limits,
    permits::Permit,
    service::{Answer, Now, Outcome, Service, WaitHandle, observe::CallEnd},
    sse,
    waiter::WAITER_BYTES,
};

/// The error of a call that is unanswered when the server terminates.
const SHUTDOWN_DETAIL: &str = "the server shut down before the answer was ready; retry later";

/// A waiting call.
pub struct PendingCall {
    wait: WaitHandle,
    format: RetainedFormat,
    /// The data to report when the call ends.
    observed: Observed,
}

impl PendingCall {
    /// A waiting call, of which no output is written yet.
    pub fn new(wait: WaitHandle, format: &AnswerFormat<'_>) -> PendingCall {
        PendingCall { wait, format: format.keep(), observed: None }
    }

    /// The same call, with the data to report when it ends.
    #[must_use]
    pub fn observed(mut self, observed: Observed) -> PendingCall {
        self.observed = observed;
        self
    }

    /// Reports that the call ends with a fault, for this reason.
    fn give_up(&mut self, fault: &Fault, end: CallEnd) {
        if let Some(mut observed) = self.observed.take() {
            observed.end(&self.format.get(), Some(fault.into()));
            observed.end_by(end);
        }
    }

    /// Reports that the call is answered with a fault.
    pub fn refused(&mut self, fault: &Fault) {
        self.give_up(fault, CallEnd::Complete);
    }
}

/// The batch of waiting calls: the answers so far, and their limit.
pub struct PendingBatch {
    /// The answers so far, without brackets.
    pub answers: Vec<u8>,
    /// Bytes of answers beyond which the remaining calls are rejected.
    pub answer_bytes_max: usize,
    /// The newest record of the tasks that the answers show.
    pub record: u64,
}

/// The early head of a waiting call's stream: it is sent before a slow answer, since proxies and
/// clients close silent connections.
#[derive(Clone, Copy)]
struct EarlyHead {
    /// When the head is written, or after it the next keep-alive comment.
    due_ms: u64,
    /// Milliseconds between keep-alive comments.
    keep_alive_ms: u64,
    is_written: bool,
}

/// The waiting calls of one request, or of one message of a WebSocket.
pub struct PendingResponse {
    /// The calls that are not answered yet; never empty.
    calls: Vec<PendingCall>,
    /// `None` for a single call.
    batch: Option<PendingBatch>,
    /// Fields of the answer.
    fields: FieldLinesBuf,
    /// A permit among all waiting calls, or among all streams if the call requested a stream.
    permit: Option<Permit>,
    /// The caller.
    admission: Admitted,
    /// Wakes the response when the caller's credential is withdrawn.
    watch: Option<Box<CallerWatch>>,
    /// When the caller's credential expires, in ms of the monotonic clock.
    expires_ms: Option<u64>,
    /// The permit among the caller's streams.
    caller_permit: Option<CallerPermit>,
    /// The permit among the caller's waiting calls.
    _waiting: Option<CallerPermit>,
    /// The caller's deadline, in ms of the monotonic clock.
    deadline_ms: Option<u64>,
    /// The early head; `None`: the answer is not a stream of server-sent events.
    head: Option<EarlyHead>,
}

impl PendingResponse {
    /// Waiting calls, with the fields of their answer.
    pub fn new(
        calls: Vec<PendingCall>,
        batch: Option<PendingBatch>,
        fields: FieldLinesBuf,
        permit: Permit,
    ) -> PendingResponse {
        PendingResponse {
            calls,
            batch,
            fields,
            permit: Some(permit),
            admission: None,
            watch: None,
            expires_ms: None,
            caller_permit: None,
            _waiting: None,
            deadline_ms: None,
            head: None,
        }
    }

    /// The same response for a streaming call: after `stream_head_ms` without an answer, the head
    /// of the stream is written. Has no effect on framings other than server-sent events.
    #[must_use]
    pub fn with_early_head(mut self, limits: &Limits, now: Now) -> PendingResponse {
        let is_sse = |call: &PendingCall| call.format.get().events == EventFraming::Sse;
        self.head = self.calls.first().filter(|call| is_sse(call)).map(|_| EarlyHead {
            due_ms: now.mono_ms.saturating_add(limits.stream_head_ms),
            keep_alive_ms: limits.sse_keep_alive_ms,
            is_written: false,
        });
        self
    }

    /// True: the head was sent, so the answer must be an event.
    fn has_early_head(&self) -> bool {
        self.head.is_some_and(|head| head.is_written)
    }

    /// Writes the early head or a keep-alive comment, if due.
    fn write_early(&mut self, now: Now, writer: &mut ResponseWriter<'_>) {
        let Some(head) = self.head.as_mut().filter(|head| head.due_ms <= now.mono_ms) else {
            return;
        };
        let Some(PendingCall { format, observed, .. }) = self.calls.first_mut() else { return };
        let before = writer.out.len();
        if !head.is_written {
            writer.begin_stream(&format.get());
        }
        let comment = &mut |out: &mut Vec<u8>| out.extend_from_slice(sse::KEEP_ALIVE);
        writer.responder.piece(writer.out, comment);
        (head.is_written, head.due_ms) = (true, now.mono_ms.saturating_add(head.keep_alive_ms));
        observed.iter_mut().for_each(|observed| observed.wrote(writer.out.len() - before));
    }

    /// The same response, with its caller.
    #[must_use]
    pub fn admitted(
        self,
        admission: Admitted,
        caller_permit: Option<CallerPermit>,
        now: Now,
    ) -> PendingResponse {
        let ends = admission.as_ref().filter(|by| by.expires_unix_ms < u64::MAX);
        let expires_ms = ends.map(|by| by.expires_mono_ms(now));
        PendingResponse { admission, expires_ms, caller_permit, ..self }
    }

    /// The same response, with this permit among its caller's waiting calls.
    #[must_use]
    pub fn counted(self, waiting: Option<CallerPermit>) -> PendingResponse {
        PendingResponse { _waiting: waiting, ..self }
    }

    /// The same response, with this deadline.
    pub fn until(self, deadline_ms: Option<u64>) -> PendingResponse {
        PendingResponse { deadline_ms, ..self }
    }

    /// Bytes on the heap: the waiting calls, and the answers of a batch so far.
    pub fn held_bytes(&self) -> usize {
        let of_call = |call: &PendingCall| call.format.held_bytes() + held_bytes(&call.observed);
        let call_bytes: usize = self.calls.iter().map(of_call).sum();
        let each = size_of::<PendingCall>();
        let calls = self.calls.capacity() * each + self.calls.len() * WAITER_BYTES;
        let caller = self.admission.as_ref().map_or(0, |by| by.counted_bytes());
        self.batch.as_ref().map_or(0, |batch| batch.answers.capacity())
            + calls
            + call_bytes
            + caller
    }

    /// When to poll the response without an earlier event, in ms of the monotonic clock.
    pub fn due_ms(&self) -> Option<u64> {
        let looks = self.calls.iter().filter_map(|call| call.wait.look);
        let head_ms = self.head.map(|head| head.due_ms);
        let due = looks.map(|look| look.due_ms).chain(self.deadline_ms).chain(self.expires_ms);
        due.chain(head_ms).min()
    }

    /// Polls all waiting calls, and writes the answer when no call remains. If the caller's
    /// credential has expired or was withdrawn, the answer is an error.
    pub fn poll(
        &mut self,
        service: &dyn Service,
        now: Now,
        wake: &Waker,
        writer: &mut ResponseWriter<'_>,
    ) -> Poll<Handled> {
        let watch = &mut self.watch;
        let holds = |by: &&Arc<AdmittedCaller>| !by.holds_or_wakes(watch, now, wake);
        if let Some(ended) = self.admission.as_ref().filter(holds) {
            self.fields.push("WWW-Authenticate", &ended.challenge(&ENDED));
            self.give_up(writer, &fault(&ENDED), CallEnd::Expired);
            return Poll::Ready(Handled::Answered);
        }
        for look in self.calls.iter_mut().filter_map(|call| call.wait.look.as_mut()) {
            look.is_due |= look.due_ms <= now.mono_ms;
        }
        std::mem::swap(&mut self.fields, &mut writer.fields);
        let polled = match &mut self.batch {
            None => self.poll_one(service, now, wake, writer),
            Some(batch) => poll_batch(batch, &mut self.calls, service, wake, writer),
        };
        if polled.is_pending() {
            self.write_early(now, writer);
        }
        std::mem::swap(&mut self.fields, &mut writer.fields);
        if polled.is_pending() && self.deadline_ms.is_some_and(|due_ms| due_ms <= now.mono_ms) {
            self.give_up(writer, &FaultKind::DeadlineExceeded.into(), CallEnd::DeadlineExceeded);
            return Poll::Ready(Handled::Answered);
        }
        polled
    }

    /// Answers all waiting calls with the error for a shutdown.
    pub fn cut(&mut self, writer: &mut ResponseWriter<'_>) {
        let fault = Fault::because(FaultKind::ShuttingDown, SHUTDOWN_DETAIL);
        self.give_up(writer, &fault, CallEnd::Cut);
    }

    /// Answers all waiting calls with this fault, and reports their end.
    fn give_up(&mut self, writer: &mut ResponseWriter<'_>, fault: &Fault, end: CallEnd) {
        let has_early_head = self.has_early_head();
        std::mem::swap(&mut self.fields, &mut writer.fields);
        if let Some(batch) = &mut self.batch {
            for mut call in self.calls.drain(..) {
                if !batch.answers.is_empty() {
                    batch.answers.push(b',');
                }
                call.format.get().push_fault(&mut batch.answers, fault);
                call.give_up(fault, end);
            }
            push_batch(batch, writer);
        } else if let Some(mut call) = self.calls.pop() {
            writer.has_early_head = has_early_head;
            writer.refuse(&call.format.get(), fault);
            call.give_up(fault, end);
        }
    }

    fn poll_one(
        &mut self,
        service: &dyn Service,
        now: Now,
        wake: &Waker,
        writer: &mut ResponseWriter<'_>,
    ) -> Poll<Handled> {
        writer.has_early_head = self.has_early_head();
        let Some(PendingCall { wait, format, observed }) = self.calls.first_mut() else {
            return Poll::Ready(Handled::Answered);
        };
        let (format, before) = (format.get(), writer.out.len());
        let poll = |answer: &mut Answer<'_>| poll_call(service, wait, wake, observed, answer);
        if format.is_streaming() {
            let Poll::Ready(outcome) = writer.begin_opening(&format, poll) else {
                writer.rollback();
                return Poll::Pending;
            };
            writer.shows(wait.record);
            let refusal = refusal_of(&outcome, true);
            match writer.end_opening(&format, outcome) {
                Opened::Answered => {
                    if let Some(mut observed) = observed.take() {
                        observed.wrote(writer.out.len() - before);
                        observed.end(&format, refusal);
                    }
                    return Poll::Ready(Handled::Answered);
                }
                Opened::Waits(next) => *wait = next,
                Opened::Stream(opened) => {
                    let Some(permit) = self.permit.take() else { return Poll::Pending };
                    let (now_ms, fields) = (now.mono_ms, &mut writer.fields);
                    let mut stream = EventStream::new(&format, opened, now_ms, permit, fields);
                    stream.due_ms = self.deadline_ms;
                    let stream = stream.observed(observed.take());
                    let stream =
                        stream.admitted(self.admission.take(), self.caller_permit.take(), now);
                    return Poll::Ready(Handled::Stream(Box::new(stream)));
                }
            }
        } else {
            let Poll::Ready(outcome) = writer.begin_reply(&format, poll) else {
                writer.rollback();
                return Poll::Pending;
            };
            writer.shows(wait.record);
            let refusal = refusal_of(&outcome, false);
            let Some(next) = writer.end_reply(&format, outcome) else {
                if let Some(mut observed) = observed.take() {
                    observed.wrote(writer.out.len() - before);
                    observed.end(&format, refusal);
                }
                return Poll::Ready(Handled::Answered);
            };
            *wait = next;
        }
        // The next poll continues, so that a service cannot keep this poll busy forever.
        wake.wake_by_ref();
        Poll::Pending
    }
}

/// Polls the answer of a waiting call, and records its task if an observer needs this.
fn poll_call(
    service: &dyn Service,
    wait: &mut WaitHandle,
    wake: &Waker,
    observed: &mut Observed,
    answer: &mut Answer<'_>,
) -> Poll<Result<Outcome, Fault>> {
    match observed.as_mut().and_then(|observed| observed.details()) {
        None => service.poll(wait, wake, answer),
        Some(details) => service.poll(wait, wake, &mut |reply| {
            details.note_reply(&reply);
            answer(reply);
        }),
    }
}

fn poll_batch(
    batch: &mut PendingBatch,
    calls: &mut Vec<PendingCall>,
    service: &dyn Service,
    wake: &Waker,
    writer: &mut ResponseWriter<'_>,
) -> Poll<Handled> {
    calls.retain_mut(|call| !push_element(batch, call, service, wake));
    if !calls.is_empty() {
        return Poll::Pending;
    }
    push_batch(batch, writer);
    Poll::Ready(Handled::Answered)
}

/// Writes the answer of a batch, after all calls are answered.
fn push_batch(batch: &mut PendingBatch, writer: &mut ResponseWriter<'_>) {
    writer.shows(batch.record);
    writer.begin(200, media::JSON, FieldLines::NONE, Content::Whole);
    writer.out.push(b'[');
    writer.out.append(&mut batch.answers);
    writer.out.push(b']');
    writer.finish();
}

/// Appends the answer of one call if it is ready; true: the call is answered.
fn push_element(
    batch: &mut PendingBatch,
    call: &mut PendingCall,
    service: &dyn Service,
    wake: &Waker,
) -> bool {
    let PendingBatch { answers, answer_bytes_max, record } = batch;
    let (before, format) = (answers.len(), call.format.get());
    if before > 0 {
        answers.push(b',');
    }
    let at = answers.len();
    let polled = match before > *answer_bytes_max {
        // The answer would exceed the limit, so it is not written.
        true => service.poll(&mut call.wait, wake, &mut |_| ()).map(|_| Err(too_large())),
        false => format.push_reply(answers, |answer| {
            poll_call(service, &mut call.wait, wake, &mut call.observed, answer)
        }),
    };
    match polled {
        Poll::Ready(Ok(Outcome::Answered)) => {
            format.envelope.close(answers, at);
            *record = call.wait.record.max(*record);
            if let Some(mut observed) = call.observed.take() {
                observed.wrote(answers.len() - at);
                observed.end(&format, None);
            }
            return true;
        }
        Poll::Pending => {}
        Poll::Ready(Ok(Outcome::Pending(next))) => {
            call.wait = next;
            wake.wake_by_ref();
        }
        Poll::Ready(outcome) => {
            answers.truncate(at);
            let fault = no_answer(outcome);
            format.push_fault(answers, &fault);
            if let Some(mut observed) = call.observed.take() {
                observed.wrote(answers.len() - at);
                observed.end(&format, Some((&fault).into()));
            }
            return true;
        }
    }
    answers.truncate(before);
    false
}

/// The error of calls in a batch if their answers would exceed the limit.
pub(super) fn too_large() -> Fault {
    Fault::because(
        FaultKind::Overloaded,
        "the answers of this batch are too large (answer_bytes_max); request less",
    )
    .of_limit("answer_bytes_max")
}
