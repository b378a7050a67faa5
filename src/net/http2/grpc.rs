//! A gRPC call: its metadata, its message, and how its answer leaves.
//!
//! What it means is `binding::grpc`'s to know. An answer that is ready leaves at once; a call that
//! waits hears its task, its deadline, its client leaving and the end of the server.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::CONTENT_TYPE};

use crate::{
    binding::{
        grpc::{self, A2aRpc, Called, Code, Handled, Means, Parked, Pump, Pumped, Rpc, Status},
        large::{LARGE_BODY_BYTES, Lease, Lent, Ticket},
        stream::SHUTTING_DOWN,
    },
    net::{wheel::NEVER, worker_state},
};

use super::{
    CallGuard, Deadline, Http2Shared,
    message::{Messages, NoMessage, late},
    metadata::Metadata,
    send::{Gone, durable, send, take, take_piece},
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ENCODINGS: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const EVENT_ID: HeaderName = HeaderName::from_static("a2a-event-id");
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
    /// The extensions in effect (wire §1.8).
    extensions: Option<HeaderValue>,
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
    let mut call = GrpcCall { shared, _guard: guard, respond, deadline, due_ms, extensions: None };
    if metadata.fields > call.shared.limits().head_fields_max {
        return call.refuse(Status::new(
            Code::ResourceExhausted,
            "too many metadata fields (head_fields_max)",
        ));
    }
    metadata.authority = match authority {
        Ok(authority) => authority,
        Err(status) => return call.refuse(status),
    };
    let Some(rpc) = metadata.rpc else {
        return call.refuse(Status::new(Code::Unimplemented, "there is no such rpc"));
    };
    let mut messages = Messages::new(body, &call.shared, metadata.held_bytes());
    let end = match rpc {
        Rpc::A2a(rpc) => match messages.only(&mut call.deadline, due_ms).await {
            Ok(message) => call.a2a(rpc, metadata, message, messages).await,
            Err(no_message) => Err(no_message.into()),
        },
        Rpc::HealthCheck | Rpc::HealthWatch => call.health(rpc, messages).await,
        Rpc::Reflection => call.reflection(messages).await,
    };
    if let Err(End::Status(status)) = end {
        durable(&call.shared).await;
        call.refuse(status);
    }
}

/// Initial metadata; `grpc-accept-encoding` says that nothing is decompressed.
pub(super) fn initial() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

fn put_status(headers: &mut HeaderMap, status: &Status) {
    headers.insert(STATUS, HeaderValue::from(status.code as u16));
    if status.code == Code::Unimplemented {
        headers.insert(ENCODINGS, HeaderValue::from_static("identity"));
    }
    if !status.message.is_empty()
        && let Ok(message) = HeaderValue::from_str(&status.encoded_message())
    {
        headers.insert(MESSAGE, message);
    }
    if !status.details.is_empty()
        && let Ok(details) = HeaderValue::from_str(&status.encoded_details())
    {
        headers.insert(DETAILS, details);
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(4);
    put_status(&mut trailers, status);
    trailers
}

impl GrpcCall {
    /// Ends a call that has sent nothing: a response of trailers alone.
    fn refuse(&mut self, status: Status) {
        let mut response = initial();
        put_status(response.headers_mut(), &status);
        // A client that left needs no answer.
        let _ = self.respond.send_response(response, true);
    }

    /// What an operation of A2A leaves: its messages, written; a call that waits; a stream.
    async fn a2a(
        &mut self,
        rpc: &'static A2aRpc,
        metadata: Metadata,
        mut message: Bytes,
        mut messages: Messages,
    ) -> Result<(), End> {
        let (mut ticket, mut waits) = (None, false);
        let called = poll_fn(|cx| match self.turn(&mut ticket, &message, &mut messages, cx)? {
            Poll::Ready(lease) => {
                messages.give_back();
                Poll::Ready(self.handle(rpc, &metadata, &message, lease, cx))
            }
            Poll::Pending => {
                if !std::mem::replace(&mut waits, true) && message.len() <= LARGE_BODY_BYTES {
                    // A few bytes would keep all that h2 read with them.
                    message = Bytes::copy_from_slice(&message);
                }
                Poll::Pending
            }
        });
        let (handled, written) = called.await?;
        // Whatever is waited for from here on, the request is not.
        drop((metadata, message, messages));
        match handled {
            Handled::Answered => self.answered(written?).await,
            Handled::Parked(parked) => {
                let answer = self.parked(*parked).await?;
                self.answered(answer).await
            }
            Handled::Stream(pump) => self.stream(*pump).await,
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
        if self.due_ms.is_some_and(|due_ms| self.shared.local.clock.now().mono_ms >= due_ms) {
            return Err(End::Status(late()));
        }
        self.deadline.arm(cx, self.due_ms.unwrap_or(NEVER));
        Ok(Poll::Pending)
    }

    /// Calls the service.
    fn handle(
        &mut self,
        rpc: &'static A2aRpc,
        metadata: &Metadata,
        message: &[u8],
        lease: Option<Box<Lease>>,
        cx: &Context<'_>,
    ) -> Result<(Handled, Result<Bytes, Gone>), End> {
        let request = grpc::Request {
            rpc,
            message,
            version: metadata.version.as_deref(),
            extensions: metadata.extensions.as_deref(),
            after: metadata.after,
            authority: metadata.authority.as_deref(),
        };
        let now = self.shared.local.clock.now();
        let mut scratch = self.shared.local.scratch.borrow_mut();
        let worker_state::WorkerScratch { worker, out, .. } = &mut *scratch;
        out.clear();
        let engine = self.shared.engine();
        let mut scratch = Lent::new(&mut worker.scratch, lease, now);
        let mut means = Means {
            service: engine.service(),
            config: &engine.config,
            scratch: &mut scratch,
            out: &mut *out,
            now,
            wake: cx.waker(),
            peer: self.shared.peer(),
        };
        match grpc::handle(&mut means, &request) {
            Ok(Called { handled, extensions }) => {
                let extensions = extensions.map(HeaderValue::try_from);
                self.extensions = extensions.and_then(Result::ok);
                let written = take(out, &self.shared);
                Ok((handled, written))
            }
            Err(fault) => Err(End::Status(Status::of(&fault, rpc.generation()))),
        }
    }

    /// Initial metadata of an answer.
    fn initial(&mut self) -> Response<()> {
        let mut response = initial();
        if let Some(uris) = self.extensions.take() {
            response.headers_mut().insert(EXTENSIONS, uris);
        }
        response
    }

    /// Sends a complete answer.
    pub(super) async fn answered(&mut self, answer: Bytes) -> Result<(), End> {
        let response = self.initial();
        let mut stream = self.respond.send_response(response, false).map_err(|_| End::Gone)?;
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
        let trailers = if in_time { trailers(status) } else { trailers(&late()) };
        stream.send_trailers(trailers).map_err(|_| End::Gone)
    }

    /// Waits for a task.
    async fn parked(&mut self, mut parked: Parked) -> Result<Bytes, End> {
        let GrpcCall { shared, respond, deadline, due_ms, .. } = self;
        poll_fn(|cx| {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(End::Gone));
            }
            let mut scratch = shared.local.scratch.borrow_mut();
            scratch.out.clear();
            match parked.settle(shared.engine().service(), cx.waker(), &mut scratch.out) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(take(&mut scratch.out, shared)?)),
                Poll::Ready(Err(fault)) => {
                    let status = Status::of(&fault, parked.rpc.generation());
                    return Poll::Ready(Err(End::Status(status)));
                }
                Poll::Pending => {}
            }
            if due_ms.is_some_and(|due_ms| shared.local.clock.now().mono_ms >= due_ms) {
                return Poll::Ready(Err(End::Status(late())));
            }
            deadline.arm(cx, due_ms.unwrap_or(NEVER));
            Poll::Pending
        })
        .await
    }

    /// Sends the events of a task until the stream is over.
    async fn stream(&mut self, mut pump: Pump) -> Result<(), End> {
        // Where the count begins depends on what there is to begin with.
        let mut at_hand = Some(self.at_hand(&mut pump).await?);
        let first = *pump.first.get_or_insert(pump.next);
        let mut response = self.initial();
        response.headers_mut().insert(EVENT_ID, HeaderValue::from(first));
        let mut stream = self.respond.send_response(response, false).map_err(|_| End::Gone)?;
        loop {
            let (messages, pumped) = match at_hand.take() {
                Some(at_hand) => at_hand,
                None => self.pumped(&mut stream, &mut pump).await?,
            };
            let status = match pumped {
                Pumped::Pending if messages.is_empty() => continue,
                Pumped::Pending | Pumped::More => {
                    durable(&self.shared).await;
                    let due_ms = self.due_ms.unwrap_or(NEVER);
                    let deadline = &mut self.deadline;
                    if send(&mut stream, messages, false, &self.shared, deadline, due_ms).await? {
                        continue;
                    }
                    return stream.send_trailers(trailers(&late())).map_err(|_| End::Gone);
                }
                Pumped::End => Status::OK,
                Pumped::Cut(status) => status,
            };
            return self.finish(&mut stream, messages, &status).await;
        }
    }

    /// What is ready at once.
    async fn at_hand(&mut self, pump: &mut Pump) -> Result<(Bytes, Pumped), End> {
        let shared = &self.shared;
        poll_fn(|cx| {
            let mut scratch = shared.local.scratch.borrow_mut();
            scratch.out.clear();
            let pumped = pump.pump(shared.engine().service(), cx.waker(), &mut scratch.out, PIECE);
            Poll::Ready(Ok((take_piece(&mut scratch.out, shared)?, pumped)))
        })
        .await
    }

    /// Waits until there are messages, or until there will be none.
    async fn pumped(
        &mut self,
        stream: &mut SendStream<Bytes>,
        pump: &mut Pump,
    ) -> Result<(Bytes, Pumped), End> {
        let GrpcCall { shared, deadline, due_ms, .. } = self;
        poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(End::Gone));
            }
            let mut scratch = shared.local.scratch.borrow_mut();
            scratch.out.clear();
            let pumped = pump.pump(shared.engine().service(), cx.waker(), &mut scratch.out, PIECE);
            if !scratch.out.is_empty() || pumped != Pumped::Pending {
                return Poll::Ready(Ok((take_piece(&mut scratch.out, shared)?, pumped)));
            }
            let over = if due_ms.is_some_and(|due_ms| shared.local.clock.now().mono_ms >= due_ms) {
                late()
            } else if shared.engine().is_cut() {
                Status::new(Code::Unavailable, SHUTTING_DOWN)
            } else {
                deadline.arm(cx, due_ms.unwrap_or(NEVER));
                return Poll::Pending;
            };
            Poll::Ready(Ok((Bytes::new(), Pumped::Cut(over))))
        })
        .await
    }
}
