//! One request that another library has parsed, and its answer.
//!
//! Invariants: requests are refused for the same reasons, with the same texts and under the same
//! limits as on an HTTP/1.1 connection. The data passed to a [`ResponseSink`] is final, and durable
//! if the server has a [`Tap`](crate::service::tap::Tap). A body is handled when it is complete.

mod admission;
mod body;
mod delivery;
mod refusal;

use std::{net::IpAddr, task::Poll};

#[cfg(feature = "embed")]
use crate::auth::{AdmittedCaller, Principal};
use crate::binding::body_limit::RequestRefusal;
use crate::{
    auth::NotAdmitted,
    binding::{
        EventStream, Handled, PendingResponse,
        admission::{Admitted, ENDED},
        answer::ResponseWriter,
        body_limit::BodyLimit,
        cors::CorsAnswer,
        grpc::{self, Status, frame},
        hosts,
        large::{LARGE_BODY_BYTES, Lease, Lent, Ticket},
        responder::Transport,
        response_parts::{HeadParts, ResponseParts},
    },
    engine::{
        Cx,
        following::next_ms,
        request::{self, RequestCx},
    },
    http::{self, Field, FieldLines, Head, HeadBuf, PartsReject, RequestParts},
    json::Source,
    limits::{Limits, callers::ADMISSION_MS_MAX},
    service::{Now, tap::DurableWait},
};

/// Receives the answer of an [`Exchange`]: the head once, then content any number of times, then
/// the end once. Received data is never revoked.
pub trait ResponseSink {
    /// Takes the status and the fields.
    fn head(&mut self, head: &HeadParts);

    /// Takes the next bytes of the content, out of the buffer or by a copy: bytes that remain in
    /// the buffer are dropped.
    fn content(&mut self, bytes: &mut Vec<u8>);

    /// Takes the end of the answer. Only gRPC has trailers.
    fn end(&mut self, trailers: FieldLines<'_>);
}

/// One request and its answer.
///
/// Create it from the head of the request ([`Exchange::new`]), push the body as it arrives
/// ([`Exchange::push`], [`Exchange::end`]), and poll it: first, when the body has ended, when its
/// waker was woken, when its deadline has passed, and when the sink has sent its output. Drop it
/// when the client disconnects. Any thread may poll it, always with the worker of the same number.
pub struct Exchange {
    state: ExchangeState,
    parts: ResponseParts,
    /// True: it is a gRPC call, which reports refusals in trailers.
    is_grpc: bool,
    /// CORS fields, for a refusal.
    cors: CorsAnswer,
    /// The client that trusted proxies name.
    forwarded: Option<IpAddr>,
    /// The client's deadline for the answer (`grpc-timeout`).
    due_ms: Option<u64>,
    /// True: the sink has the head of the answer.
    has_begun: bool,
    /// True: the connection must close after the answer.
    closes: bool,
    body: Vec<u8>,
    /// The size limit of the body.
    limit: BodyLimit,
    /// When the current window of the body began, and the bytes received until then.
    since_ms: u64,
    seen: usize,
    /// The ticket of a large body that waits for a parse slot.
    ticket: Option<Box<Ticket>>,
    /// Content that waits until its record is durable.
    held: Vec<u8>,
    /// The record for which the content waits.
    record: Option<u64>,
    wait: DurableWait,
}

enum ExchangeState {
    /// The request is not handled yet; `caller`: the result of authentication.
    Body { head: HeadBuf, is_whole: bool, caller: Option<Admitted> },
    /// The request is refused.
    Refused(RequestRefusal),
    /// The request is not admitted.
    NotAdmitted(HeadBuf, NotAdmitted),
    /// The answer waits for its task.
    Pending(Box<PendingResponse>),
    /// A stream is open.
    Streaming(Box<EventStream>),
    /// All of the answer is written.
    Written,
    /// The sink has received the whole answer.
    Done,
}

impl Exchange {
    /// A request with this head. Names may have any case; connection fields such as `Connection`
    /// and `Transfer-Encoding` are ignored.
    pub fn new<'r>(
        cx: &mut Cx<'_>,
        request: RequestParts<'r, impl Iterator<Item = (&'r [u8], &'r [u8])>>,
    ) -> Exchange {
        let mut exchange = Exchange::begin(cx, request);
        exchange.admit(cx);
        exchange
    }

    /// A request of the embedding program, which names the caller, so no credential is needed.
    /// `None`: an anonymous caller.
    #[cfg(feature = "embed")]
    pub(crate) fn vouched<'r>(
        cx: &mut Cx<'_>,
        request: RequestParts<'r, impl Iterator<Item = (&'r [u8], &'r [u8])>>,
        principal: Option<Principal>,
    ) -> Exchange {
        let mut exchange = Exchange::begin(cx, request);
        if let ExchangeState::Body { caller, .. } = &mut exchange.state {
            let accounts = &cx.engine.config.access.accounts;
            let admitted = |principal| AdmittedCaller::vouched(principal, accounts, cx.now);
            *caller = Some(principal.map(admitted));
        }
        exchange
    }

    #[inline(always)]
    fn begin<'r>(
        cx: &mut Cx<'_>,
        request: RequestParts<'r, impl Iterator<Item = (&'r [u8], &'r [u8])>>,
    ) -> Exchange {
        let (config, peer) = (&cx.engine.config, cx.peer);
        let RequestParts { method, has_body, takes_trailers, .. } = request;
        let (is_head, may_be_grpc) = (method == b"HEAD", takes_trailers && method == b"POST");
        let check_hosts = |head: &Head<'_>, is_known| hosts::are_known(config, head, is_known);
        let read = cx.worker.heads.read_parts(request, check_hosts);
        let media = match &read {
            Ok(head) => head.head().value(Field::ContentType),
            Err(refused) => refused.content_type.as_deref(),
        };
        let cors = refusal::page(config, peer, &read);
        let forwarded = match &read {
            Ok(head) if !config.access.trusted_proxies.is_empty() => {
                request::asking(cx.engine, peer, takes_trailers).forwarded(&head.head())
            }
            Ok(_) | Err(_) => None,
        };
        let is_grpc = may_be_grpc && media.is_some_and(grpc::is_media);
        let mut limit = BodyLimit::ordinary(cx.engine.limits());
        let state = match read {
            Err(PartsReject { reject, .. }) => ExchangeState::Refused(reject.into()),
            Ok(head)
                if !head.has_known_hosts() && !hosts::are_served(config, peer, &head.head()) =>
            {
                let refusal = RequestRefusal::new(hosts::MISDIRECTED, hosts::REFUSAL);
                ExchangeState::Refused(refusal)
            }
            Ok(mut head) => {
                if config.access.gate.is_some() {
                    head.hold_secret();
                }
                limit = body::limit(cx, &head.head(), is_grpc);
                body::begin(head, has_body, limit)
            }
        };
        let mut parts = ResponseParts::new(is_head, takes_trailers);
        if let ExchangeState::Body { head, .. } = &state
            && is_grpc
            && let Some(codings) = head.head().value(Field::GrpcAcceptEncoding)
            && http::list(codings).any(|coding| coding == b"gzip")
        {
            parts.accept_gzip();
        }
        let since_ms = cx.now.mono_ms;
        let timeout_ms = match &state {
            ExchangeState::Body { head, .. } if is_grpc => grpc::timeout_ms(&head.head()),
            _ => None,
        };
        Exchange {
            state,
            parts,
            is_grpc,
            cors,
            forwarded,
            due_ms: timeout_ms.map(|ms| since_ms + ms),
            has_begun: false,
            closes: false,
            body: Vec::new(),
            limit,
            since_ms,
            seen: 0,
            ticket: None,
            held: Vec::new(),
            record: None,
            wait: DurableWait::default(),
        }
    }

    /// True: it is a gRPC call with a valid head.
    #[cfg(feature = "grpc")]
    pub(crate) fn is_grpc(&self) -> bool {
        self.is_grpc && !matches!(self.state, ExchangeState::Refused(..))
    }

    /// When the request arrived or was admitted; valid until its body arrives.
    #[cfg(feature = "grpc")]
    pub(crate) fn began_ms(&self) -> u64 {
        self.since_ms
    }

    /// The client's deadline for the answer, in ms of the monotonic clock: gRPC clients may set it.
    /// A status then replaces the unsent part of the answer.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// When to poll again, in ms of the monotonic clock, without an earlier event.
    pub fn deadline_ms(&self, limits: &Limits) -> Option<u64> {
        let deadline_ms = self.own_deadline_ms(limits);
        let earlier = |due_ms: u64| deadline_ms.map_or(due_ms, |ms| ms.min(due_ms));
        self.due_ms.map(earlier).or(deadline_ms)
    }

    fn own_deadline_ms(&self, limits: &Limits) -> Option<u64> {
        match &self.state {
            _ if self.record.is_some() => None,
            ExchangeState::Body { caller: None, .. } => Some(self.since_ms + ADMISSION_MS_MAX),
            ExchangeState::Body { is_whole: false, .. } => {
                Some(self.since_ms + limits.body_idle_ms)
            }
            ExchangeState::Streaming(stream) => Some(next_ms(stream, limits)),
            ExchangeState::Pending(pending) => pending.due_ms(),
            ExchangeState::NotAdmitted(_, refused) => {
                refused.delay.as_ref().map(|delay| delay.due_ms)
            }
            ExchangeState::Body { .. }
            | ExchangeState::Refused(..)
            | ExchangeState::Written
            | ExchangeState::Done => None,
        }
    }

    /// Bytes of the buffers of the exchange.
    pub fn held_bytes(&self) -> usize {
        let state = match &self.state {
            ExchangeState::Body { head, .. } | ExchangeState::NotAdmitted(head, _) => {
                head.held_bytes()
            }
            ExchangeState::Pending(pending) => pending.held_bytes(),
            ExchangeState::Streaming(stream) => stream.held_bytes(),
            ExchangeState::Refused(..) | ExchangeState::Written | ExchangeState::Done => 0,
        };
        state + self.body.capacity() + self.held.capacity() + self.parts.held_bytes()
    }

    /// Advances as far as possible, and passes the available part of the answer to `sink`; ready
    /// when the answer is complete.
    ///
    /// Content is written to `cx.out`, which is empty before and after the call. `cx.unsent` is the
    /// number of bytes of this answer that the sink has not sent: above `output_bytes_max` a stream
    /// waits.
    pub fn poll(&mut self, cx: &mut Cx<'_>, sink: &mut dyn ResponseSink) -> Poll<()> {
        debug_assert!(cx.out.is_empty());
        if let ExchangeState::Done = self.state {
            return Poll::Ready(());
        }
        if self.record.is_none() {
            let record = self.advance(cx);
            self.note_record(cx, record);
        }
        self.flush(cx, sink)
    }

    /// As [`Exchange::push`], [`Exchange::end`] and [`Exchange::poll`], for a body in one piece,
    /// which is copied only if it must wait.
    pub fn poll_whole(
        &mut self,
        cx: &mut Cx<'_>,
        body: &[u8],
        sink: &mut dyn ResponseSink,
    ) -> Poll<()> {
        if !self.accepts_whole(cx, body) {
            self.push(cx.engine.limits(), body);
            self.end();
            return self.poll(cx, sink);
        }
        let shown = self.handle(cx, body, None);
        let record = self.advance(cx).max(shown);
        self.note_record(cx, record);
        self.flush(cx, sink)
    }

    /// Passes the output to `sink` if it is durable, or a timeout status after the deadline.
    fn flush(&mut self, cx: &mut Cx<'_>, sink: &mut dyn ResponseSink) -> Poll<()> {
        if !self.is_durable(cx) {
            if !self.is_late(cx.now) {
                return Poll::Pending;
            }
            self.time_out(cx);
        } else if cx.out.is_empty() && !self.parts.has_news() && self.is_late(cx.now) {
            self.time_out(cx);
        }
        self.deliver(cx.out, sink);
        match self.state {
            ExchangeState::Done => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// True: the client's deadline has passed.
    pub(crate) fn is_late(&self, now: Now) -> bool {
        self.due_ms.is_some_and(|due_ms| now.mono_ms >= due_ms)
    }

    /// Writes a timeout status in place of the unsent part. The status shows no task, so it is sent
    /// without waiting for a record.
    #[cold]
    fn time_out(&mut self, cx: &mut Cx<'_>) {
        (self.held, self.record) = (Vec::new(), None);
        self.parts.restart(cx.out);
        let mut writer = ResponseWriter::new(cx.out, Transport::Parts(&mut self.parts));
        match self.has_begun {
            true => {
                writer.trailers(Status::late().fields());
                writer.finish();
            }
            false => _ = grpc::refuse(&mut writer, &Status::late()),
        }
        self.body = Vec::new();
        self.state = ExchangeState::Written;
    }

    /// Writes as much as possible, and returns the record that the output shows.
    fn advance(&mut self, cx: &mut Cx<'_>) -> u64 {
        let (is_late, mut record) = (self.is_late(cx.now), 0);
        loop {
            match &mut self.state {
                // After the deadline a request is not started.
                ExchangeState::Body { .. } if is_late => {}
                ExchangeState::Body { caller: None, .. } => {
                    if !self.admit(cx) {
                        return record;
                    }
                    continue;
                }
                ExchangeState::Body { is_whole: false, .. } => {
                    if self.body_stalls(cx) {
                        self.state = ExchangeState::Refused(RequestRefusal::SLOW_BODY);
                        continue;
                    }
                }
                ExchangeState::Body { head, is_whole: true, .. } => {
                    let mut lease = None;
                    // A compressed body counts as large.
                    let is_coded = match self.is_grpc {
                        true => frame::is_compressed(&self.body),
                        false => head.head().is_coded(),
                    };
                    if self.body.len() > LARGE_BODY_BYTES || is_coded {
                        lease = cx.engine.config.large.take(&mut self.ticket, cx.wake);
                        if lease.is_none() {
                            return record;
                        }
                    }
                    let body = std::mem::take(&mut self.body);
                    record = self.handle(cx, &body, lease);
                    continue;
                }
                ExchangeState::NotAdmitted(..) => {
                    if !self.refusal_waits(cx.now) {
                        self.refuse_caller(cx);
                    }
                }
                ExchangeState::Refused(refusal) => {
                    let refusal = *refusal;
                    self.answer_refused(cx, refusal);
                }
                ExchangeState::Pending(pending) => {
                    let mut writer = ResponseWriter::new(cx.out, Transport::Parts(&mut self.parts));
                    let service = cx.engine.service();
                    let polled = pending.poll(service, cx.now, cx.wake, &mut writer);
                    record = writer.record.max(record);
                    match polled {
                        Poll::Ready(handled) => {
                            self.set_state(handled);
                            continue;
                        }
                        Poll::Pending if cx.engine.is_cut() => {
                            pending.cut(&mut writer);
                            self.state = ExchangeState::Written;
                        }
                        Poll::Pending => {}
                    }
                }
                ExchangeState::Streaming(_) => record = self.follow_stream(cx).max(record),
                ExchangeState::Written | ExchangeState::Done => {}
            }
            return record;
        }
    }

    /// Handles a complete request, and returns the record that its answer shows.
    fn handle(&mut self, cx: &mut Cx<'_>, body: &[u8], lease: Option<Box<Lease>>) -> u64 {
        let state = std::mem::replace(&mut self.state, ExchangeState::Written);
        let ExchangeState::Body { head: filed, caller, .. } = state else {
            self.state = state;
            return 0;
        };
        let admission = caller.flatten();
        // The credential may have expired while the body arrived.
        if admission.as_ref().is_some_and(|admission| !admission.holds(cx.now)) {
            self.state = ExchangeState::NotAdmitted(filed, ENDED.into());
            return 0;
        }
        let (head, body) = (filed.head(), Source::from(body));
        let at = RequestCx::of(cx, &head);
        let mut lent = Lent::new(&mut cx.worker.scratch, lease, cx.now);
        let writer = ResponseWriter::new(cx.out, Transport::Parts(&mut self.parts));
        let (handled, record) = request::handle_parts(at, &mut lent, writer, body, admission);
        drop(lent);
        cx.worker.heads.reuse(filed);
        self.set_state(handled);
        record
    }

    fn set_state(&mut self, handled: Handled) {
        self.state = match handled {
            Handled::Answered => ExchangeState::Written,
            Handled::Pending(pending) => ExchangeState::Pending(pending),
            Handled::Stream(stream) => ExchangeState::Streaming(stream),
        };
    }
}
