//! A gRPC call: its metadata, its message, and how its answer leaves.
//!
//! What it means is `binding::grpc`'s to know. An answer that is ready leaves at once; a call that
//! waits hears its task, its deadline, its client leaving and the end of the server.

use std::{
    borrow::Cow,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};

use crate::{
    binding::{
        CallContext, Endpoint, Handled, RequestSource, Scratch,
        answer::ResponseWriter,
        grpc::{self, Code, GrpcMethod, Rpc, Status},
        large::{LARGE_BODY_BYTES, Lease, Lent, Ticket},
        responder::Transport,
        response_parts::ResponseParts,
    },
    http::ResponseFieldsBuf,
    net::{wheel::NEVER, worker_state::WorkerScratch},
    service::Follow,
};

use super::{
    CallGuard, Deadline, Http2Shared,
    fields::{put, trailers},
    message::{Messages, NoMessage, late},
    metadata::Metadata,
    send::{Gone, durable, send, take, take_piece},
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Bytes of a stream's messages that are written before they are sent.
const PIECE: usize = 64 * 1024;

/// One call and what it waits with.
pub(super) struct GrpcCall {
    pub(super) shared: Rc<Http2Shared>,
    _guard: CallGuard,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) deadline: Deadline,
    /// When the client no longer wants the answer.
    pub(super) due_ms: Option<u64>,
}

/// How a call ends: with a status, or because its client left.
pub(super) enum End {
    Status(Status),
    Gone,
}

impl From<Gone> for End {
    fn from(_: Gone) -> End {
        End::Gone
    }
}

impl From<NoMessage> for End {
    fn from(no_message: NoMessage) -> End {
        match no_message {
            NoMessage::End => End::Status(Status::OK),
            NoMessage::Status(status) => End::Status(status),
            NoMessage::Gone => End::Gone,
        }
    }
}

/// Answers one call.
pub(super) async fn answer(
    guard: CallGuard,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let shared = Rc::clone(&guard.0);
    let (head, body) = request.into_parts();
    let authority = shared.served(&head);
    let mut metadata = Metadata::read(head);
    let deadline = Deadline::new(&shared.local);
    let due_ms = metadata.timeout_ms.map(|ms| shared.local.clock.now().mono_ms + ms);
    let mut call = GrpcCall { shared, _guard: guard, respond, deadline, due_ms };
    if metadata.fields > call.shared.limits().head_fields_max {
        let why = "too many metadata fields (head_fields_max)";
        return call.refuse(&Status::new(Code::ResourceExhausted, why));
    }
    metadata.authority = match authority {
        Ok(authority) => authority,
        Err(status) => return call.refuse(&status),
    };
    let Some(rpc) = metadata.rpc else {
        return call.refuse(&grpc::no_rpc());
    };
    let mut messages = Messages::new(body, &call.shared, metadata.held_bytes());
    let end = match rpc {
        Rpc::A2a(method) => match messages.only(&mut call.deadline, due_ms).await {
            Ok(message) => call.a2a(method, metadata, message, messages).await,
            Err(no_message) => Err(no_message.into()),
        },
        Rpc::HealthCheck | Rpc::HealthWatch => call.health(rpc, messages).await,
        Rpc::Reflection => call.reflection(messages).await,
    };
    if let Err(End::Status(status)) = end {
        durable(&call.shared).await;
        call.refuse(&status);
    }
}

/// Initial metadata.
pub(super) fn initial() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

impl GrpcCall {
    /// Ends a call that has sent nothing: a response of trailers alone.
    fn refuse(&mut self, status: &Status) {
        let mut response = initial();
        put(response.headers_mut(), status.fields().get());
        // A client that left needs no answer.
        let _ = self.respond.send_response(response, true);
    }

    /// Sends a complete answer.
    pub(super) async fn answered(&mut self, answer: Bytes) -> Result<(), End> {
        let opened = self.respond.send_response(initial(), false);
        let mut stream = opened.map_err(|_| End::Gone)?;
        self.finish(&mut stream, answer, &Status::OK).await
    }

    /// Sends the last messages and the status.
    pub(super) async fn finish(
        &mut self,
        stream: &mut SendStream<Bytes>,
        answer: Bytes,
        status: &Status,
    ) -> Result<(), End> {
        durable(&self.shared).await;
        let due_ms = self.due_ms.unwrap_or(NEVER);
        let in_time = send(stream, answer, false, &self.shared, &mut self.deadline, due_ms).await?;
        let end = if in_time { status.fields() } else { late().fields() };
        stream.send_trailers(trailers(end.get())).map_err(|_| End::Gone)
    }

    /// Answers an operation of A2A.
    async fn a2a(
        &mut self,
        method: &'static GrpcMethod,
        metadata: Metadata,
        mut message: Bytes,
        mut messages: Messages,
    ) -> Result<(), End> {
        let (mut ticket, mut waits) = (None, false);
        let mut parts = ResponseParts::default();
        let called = poll_fn(|cx| match self.turn(&mut ticket, &message, &mut messages, cx)? {
            Poll::Ready(lease) => {
                messages.give_back();
                let request = (method, &metadata, &*message);
                Poll::Ready(Ok(self.handle(request, lease, &mut parts, cx)))
            }
            Poll::Pending => {
                if !std::mem::replace(&mut waits, true) && message.len() <= LARGE_BODY_BYTES {
                    // A few bytes would keep all that h2 read with them.
                    message = Bytes::copy_from_slice(&message);
                }
                Poll::Pending
            }
        });
        let called: Result<_, End> = called.await;
        let (mut handled, written) = called?;
        let mut written = written?;
        // Whatever is waited for from here on, the request is not.
        drop((metadata, message, messages));
        let mut stream = None;
        loop {
            if self.say(&mut stream, &mut parts, written).await? {
                return Ok(());
            }
            let next = poll_fn(|cx| self.go_on(&mut handled, &mut parts, stream.as_mut(), cx));
            written = match (next.await, &mut stream) {
                (Ok(written), _) => written,
                (Err(End::Status(status)), Some(stream)) => {
                    return self.finish(stream, Bytes::new(), &status).await;
                }
                (Err(end), _) => return Err(end),
            };
        }
    }

    /// Waits until the call may begin, and a large message for the buffers that it needs. Who waits
    /// has its message counted.
    fn turn(
        &mut self,
        ticket: &mut Option<Box<Ticket>>,
        message: &[u8],
        messages: &mut Messages,
        cx: &mut Context<'_>,
    ) -> Result<Poll<Option<Box<Lease>>>, End> {
        if self.shared.account.lets_begin(cx.waker()) {
            if message.len() <= LARGE_BODY_BYTES {
                return Ok(Poll::Ready(None));
            }
            let lease = self.shared.engine().config.large.take(ticket, cx.waker());
            if lease.is_some() {
                return Ok(Poll::Ready(lease));
            }
        }
        messages.hold_whole(message.len())?;
        if self.respond.poll_reset(cx).is_ready() {
            return Err(End::Gone);
        }
        if self.is_late() {
            return Err(End::Status(late()));
        }
        self.deadline.arm(cx, self.due_ms.unwrap_or(NEVER));
        Ok(Poll::Pending)
    }

    fn is_late(&self) -> bool {
        self.due_ms.is_some_and(|due_ms| self.shared.local.clock.now().mono_ms >= due_ms)
    }

    /// Makes the call.
    fn handle(
        &mut self,
        (method, metadata, message): (&'static GrpcMethod, &Metadata, &[u8]),
        lease: Option<Box<Lease>>,
        parts: &mut ResponseParts,
        cx: &Context<'_>,
    ) -> (Handled, Result<Bytes, Gone>) {
        let now = self.shared.local.now();
        let mut scratch = self.shared.local.scratch.borrow_mut();
        let WorkerScratch { worker, out, .. } = &mut *scratch;
        out.clear();
        let (engine, peer) = (self.shared.engine(), self.shared.peer());
        let mut lent = Lent::new(&mut worker.scratch, lease, now);
        let Scratch { decode, call, .. } = &mut *lent;
        let mut context = CallContext {
            service: engine.service(),
            config: &engine.config,
            scratch: call,
            writer: ResponseWriter::new(out, Transport::Parts(parts)),
            now,
            wake: cx.waker(),
            peer,
            endpoint: Endpoint::DEFAULT,
            base: "",
            named_beside: None,
            agent: Endpoint::DEFAULT.agent,
            source: RequestSource::Grpc(metadata.said(peer.is_secure)),
            closes: engine.is_draining(),
            extensions: metadata.extensions.as_deref().map(Cow::Borrowed),
        };
        let handled = grpc::call(&mut context, method, decode, message);
        drop(lent);
        (handled, take(out, &self.shared))
    }

    /// Goes on with a call that waits, or with its stream, until there is something to say.
    fn go_on(
        &mut self,
        handled: &mut Handled,
        parts: &mut ResponseParts,
        stream: Option<&mut SendStream<Bytes>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, End>> {
        let has_left = match stream {
            Some(stream) => stream.poll_reset(cx).is_ready(),
            None => self.respond.poll_reset(cx).is_ready(),
        };
        if has_left {
            return Poll::Ready(Err(End::Gone));
        }
        let (engine, now) = (self.shared.engine(), self.shared.local.now());
        let mut scratch = self.shared.local.scratch.borrow_mut();
        let out = &mut scratch.out;
        out.clear();
        let mut writer = ResponseWriter::new(out, Transport::Parts(parts));
        if let Handled::Pending(pending) = handled {
            match pending.poll(engine.service(), (now, cx.waker()), &mut writer) {
                Poll::Ready(next) => *handled = next,
                Poll::Pending if engine.is_cut() => {
                    pending.cut(&mut writer);
                    *handled = Handled::Answered;
                }
                Poll::Pending => {}
            }
        }
        if let Handled::Stream(events) = handled {
            let follow = events.poll(engine.service(), cx.waker(), &mut writer, PIECE);
            if follow == Follow::Pending && engine.is_cut() {
                events.cut(&mut writer);
            }
        }
        if !out.is_empty() || parts.has_news() {
            let written = match handled {
                Handled::Stream(_) => take_piece(out, &self.shared),
                Handled::Answered | Handled::Pending(_) | Handled::Upgraded(_) => {
                    take(out, &self.shared)
                }
            };
            return Poll::Ready(written.map_err(End::from));
        }
        drop(scratch);
        if self.is_late() {
            return Poll::Ready(Err(End::Status(late())));
        }
        self.deadline.arm(cx, self.due_ms.unwrap_or(NEVER));
        Poll::Pending
    }

    /// Sends what was written, once it is durable; true: that was all.
    async fn say(
        &mut self,
        stream: &mut Option<SendStream<Bytes>>,
        parts: &mut ResponseParts,
        written: Bytes,
    ) -> Result<bool, Gone> {
        if written.is_empty() && !parts.has_news() {
            return Ok(false);
        }
        durable(&self.shared).await;
        if let Some(head) = parts.take_head() {
            let mut response = initial();
            put(response.headers_mut(), head.fields.get());
            let is_all = written.is_empty() && parts.end().is_some_and(ResponseFieldsBuf::is_empty);
            let opened = self.respond.send_response(response, is_all).map_err(|_| Gone)?;
            if is_all {
                return Ok(true);
            }
            *stream = Some(opened);
        }
        let Some(stream) = stream else { return Err(Gone) };
        let due_ms = self.due_ms.unwrap_or(NEVER);
        let in_time =
            send(stream, written, false, &self.shared, &mut self.deadline, due_ms).await?;
        let end = match (in_time, parts.end()) {
            (true, None) => return Ok(false),
            (true, Some(end)) => trailers(end.get()),
            (false, _) => trailers(late().fields().get()),
        };
        stream.send_trailers(end).map_err(|_| Gone)?;
        Ok(true)
    }
}
