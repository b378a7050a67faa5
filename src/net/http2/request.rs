//! One request: an exchange of the engine; its answer is sent as frames.
//!
//! Every limit of HTTP/1.1 applies; `Content-Length` is checked before the body is read. The task
//! of the connection answers a complete request; a request that waits becomes a separate task, and
//! its memory is counted.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, Method, Response, request::Parts, uri::PathAndQuery};

use crate::binding::body_limit::RequestRefusal;
use crate::{
    binding::{
        grpc::{Rpc, Status},
        responder::Content,
    },
    engine::{Cx, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink},
    net::{wheel::NEVER, worker_state::WorkerScratch},
};

use super::{
    CallGuard, Http2Shared,
    body::{Body, Piece, Unread},
    deadline::{Deadline, earlier},
    fields::trailers,
    send::{Outgoing, Sending, StreamFailed, take, take_piece},
    services::{self, ServiceCall},
};

/// The rest of a request, and the stream of its answer.
pub(super) type Rest = (RecvStream, SendResponse<Outgoing>);

/// Answers a request at once if possible, otherwise in a separate task.
pub(super) fn start(
    shared: &Rc<Http2Shared>,
    head: &Parts,
    body: RecvStream,
    respond: SendResponse<Outgoing>,
    cx: &mut Context<'_>,
) {
    let exchange = begin(shared, head, &body);
    if !shared.engine().config.access.trusted_proxies.is_empty()
        && let Some(address) = exchange.forwarded(shared.engine(), shared.peer())
    {
        shared.forwarded.set(Some(address));
    }
    let mut call = Http2Request {
        exchange,
        guard: CallGuard::new(shared),
        respond,
        body: Some(Body::new(body)),
        unopened: None,
        unread: None,
        is_answered: false,
        deadline: Deadline::default(),
        may_begin: false,
        stream: None,
        is_stream: false,
        sending: None,
        end: End::Open,
    };
    if let Some(rpc) = services::rpc_at(head.uri.path())
        && call.exchange.is_grpc()
    {
        return call.serve(rpc, cx);
    }
    if Pin::new(&mut call).poll(cx).is_pending() {
        tokio::task::spawn_local(call);
    }
}

/// RFC 9113 §8.3.1: `:authority` stands for `Host`.
fn begin(shared: &Http2Shared, head: &Parts, body: &RecvStream) -> Exchange {
    let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let fields = head.headers.iter().map(|(name, value)| (name.as_ref(), value.as_bytes()));
    let request = RequestParts {
        method: head.method.as_str().as_bytes(),
        target: target.as_bytes(),
        authority,
        fields,
        // A request with another method may consist of its head alone.
        has_body: head.method == Method::POST || !body.is_end_stream(),
        takes_trailers: true,
    };
    with_cx(shared, Waker::noop(), |cx| Exchange::new(cx, request))
}

/// Runs the engine with an output that is empty before and after.
fn with_cx<T>(shared: &Http2Shared, wake: &Waker, work: impl FnOnce(&mut Cx<'_>) -> T) -> T {
    let now = shared.local.now();
    let mut scratch = shared.local.scratch.borrow_mut();
    let WorkerScratch { worker, out, .. } = &mut *scratch;
    out.clear();
    let (engine, peer) = (shared.engine(), shared.peer());
    work(&mut Cx { engine, worker, now, wake, out, unsent: 0, peer })
}

/// One request in progress.
struct Http2Request {
    guard: CallGuard,
    respond: SendResponse<Outgoing>,
    exchange: Exchange,
    /// The rest of the body; `None` once the answer has begun.
    body: Option<Body>,
    /// A body that arrived in one piece: its window is opened when the call waits, or by h2 when
    /// the call ends.
    unopened: Option<Body>,
    /// The rest of a body after an early answer.
    unread: Option<Unread>,
    /// True: all of the answer was passed to h2.
    is_answered: bool,
    deadline: Deadline,
    /// False: the call may have to wait until the peer has read earlier answers of this connection.
    may_begin: bool,
    /// The answer, once its head was sent.
    stream: Option<SendStream<Outgoing>>,
    /// True: the content is a stream of unknown length.
    is_stream: bool,
    /// Output that was not sent yet.
    sending: Option<Sending>,
    end: End,
}

/// The part of an answer after its current content.
#[derive(Default)]
enum End {
    /// More content.
    #[default]
    Open,
    /// Nothing: the answer is complete.
    Closed,
    /// Trailers.
    Trailers(HeaderMap),
}

/// The output of one poll of the exchange.
struct ExchangeOutput<'s> {
    shared: &'s Http2Shared,
    head: Option<Response<()>>,
    is_stream: bool,
    content: Result<Outgoing, StreamFailed>,
    end: End,
}

impl ResponseSink for ExchangeOutput<'_> {
    fn head(&mut self, head: &HeadParts) {
        self.is_stream = head.content == Content::Stream;
        self.head = Some(self.shared.heads.response(head, self.shared.local.clock.now()));
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.content = match self.is_stream {
            true => take_piece(bytes, self.shared),
            false => take(bytes, self.shared),
        };
    }

    fn end(&mut self, fields: FieldLines<'_>) {
        self.end = match fields.is_empty() {
            true => End::Closed,
            false => End::Trailers(trailers(fields)),
        };
    }
}

impl ExchangeOutput<'_> {
    fn is_nothing(&self) -> bool {
        let has_content = !matches!(&self.content, Ok(bytes) if bytes.is_empty());
        self.head.is_none() && !has_content && matches!(self.end, End::Open)
    }
}

impl Future for Http2Request {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // After an error the stream has ended, and nothing can be sent.
        if !self.is_answered {
            match self.advance(cx) {
                Poll::Ready(Ok(())) => self.is_answered = true,
                Poll::Ready(Err(StreamFailed)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
        let me = &mut *self;
        me.unread.take_if(|unread| unread.poll(cx, &me.guard.shared).is_ready());
        if me.is_answered && me.unread.is_none() {
            return Poll::Ready(());
        }
        if let Some(mut body) = me.unopened.take() {
            body.open_window();
        }
        Poll::Pending
    }
}

impl Http2Request {
    /// Passes the call to the services that every gRPC server has.
    #[cold]
    fn serve(self, rpc: Rpc, cx: &mut Context<'_>) {
        let Http2Request { guard, exchange, respond, body, .. } = self;
        let Some(body) = body else { return };
        let address = exchange.address(guard.shared.engine(), guard.shared.peer());
        let call = ServiceCall::new(guard, respond, exchange.due_ms(), address);
        let mut call = Box::pin(call.answer(rpc, body));
        if call.as_mut().poll(cx).is_pending() {
            tokio::task::spawn_local(call);
        }
    }

    /// Runs the exchange and sends its output until it is complete.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamFailed>> {
        let shared = Rc::clone(&self.guard.shared);
        loop {
            if !ready!(self.send(&shared, cx))? {
                return Poll::Ready(Ok(()));
            }
            let is_stream = self.is_stream;
            let (head, content) = (None, Ok(Outgoing::default()));
            let mut output =
                ExchangeOutput { shared: &shared, head, is_stream, content, end: End::Open };
            ready!(self.turn(&shared, cx, &mut output))?;
            if self.exchange.closes_connection() {
                // The refusal that is sent below wakes the connection.
                shared.sends_goaway.set(true);
            }
            self.is_stream = output.is_stream;
            let content = output.content?;
            if let Some(head) = output.head {
                let is_all = content.is_empty() && matches!(output.end, End::Closed);
                let stream = self.respond.send_response(head, is_all).map_err(|_| StreamFailed)?;
                if is_all {
                    return Poll::Ready(Ok(()));
                }
                self.stream = Some(stream);
            }
            self.end = output.end;
            let is_last = matches!(self.end, End::Closed);
            self.sending = Some(Sending::new(content, is_last, &shared));
        }
    }

    /// Sends pending output; false: the answer is complete.
    fn send(
        &mut self,
        shared: &Http2Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, StreamFailed>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Ok(true)) };
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(StreamFailed)) };
        let due_ms = self.exchange.due_ms().unwrap_or(NEVER);
        if !ready!(sending.poll(cx, stream, shared, &mut self.deadline, due_ms))? {
            self.end = End::Trailers(trailers(Status::late().fields().get()));
        }
        self.sending = None;
        Poll::Ready(match std::mem::take(&mut self.end) {
            End::Open => Ok(true),
            End::Closed => Ok(false),
            End::Trailers(end) => {
                stream.send_trailers(end).map(|()| false).map_err(|_| StreamFailed)
            }
        })
    }

    /// Polls the exchange until it has output, which is stored in `output`.
    fn turn(
        &mut self,
        shared: &Http2Shared,
        cx: &mut Context<'_>,
        output: &mut ExchangeOutput<'_>,
    ) -> Poll<Result<(), StreamFailed>> {
        if !self.may_begin {
            let now = shared.local.clock.now();
            if !self.exchange.is_late(now) && !shared.account.may_begin(cx.waker()) {
                if now.mono_ms < self.waits_until_ms(shared) {
                    return self.wait(shared, cx);
                }
                self.exchange.refuse(RequestRefusal {
                    status: 503,
                    why: "the client does not read earlier answers",
                    limit: Some("output_bytes_max"),
                });
            }
            self.may_begin = true;
        }
        if self.exchange.is_admitting() {
            // The body of a request that is not admitted yet is not read; flow control makes the
            // client retain the rest.
            let _ = with_cx(shared, cx.waker(), |cx| self.exchange.poll(cx, output));
            if self.exchange.is_admitting() && output.is_nothing() {
                return self.wait_admission(shared, cx);
            }
        }
        if self.exchange.has_caller() || shared.engine().config.access.gate.is_none() {
            shared.is_authenticated.set(true);
        }
        let mut was_late = false;
        loop {
            let (is_late, whole) = self.read(shared, cx)?;
            let is_wanted = whole.is_none() && self.exchange.wants_body();
            if !is_wanted && (self.body.is_some() || whole.is_some()) {
                self.discard_rest(shared);
                // Processing the body frees its memory for the answer.
                self.guard.give_back();
            }
            let _ = with_cx(shared, cx.waker(), |cx| match whole {
                Some(body) => self.exchange.poll_whole(cx, &body, output),
                None => self.exchange.poll(cx, output),
            });
            if !output.is_nothing() {
                // An answer before the end of the request is a refusal.
                self.discard_rest(shared);
                self.guard.give_back();
                return Poll::Ready(Ok(()));
            }
            // The exchange checks the time as well: if it has not refused the request, there is
            // time left.
            if !is_late || was_late {
                break;
            }
            was_late = true;
        }
        self.check_reset(cx)?;
        self.guard.charge(self.exchange.held_bytes())?;
        let due_ms = self.exchange.deadline_ms(shared.limits()).unwrap_or(NEVER);
        self.deadline.arm(cx, &shared.local, due_ms);
        Poll::Pending
    }

    /// Stops receiving the body.
    fn discard_rest(&mut self, shared: &Http2Shared) {
        if let Some(body) = self.body.take().filter(|body| !body.is_over()) {
            self.unread = Some(body.discard(shared));
        }
    }

    /// Fails if the client has reset the stream.
    fn check_reset(&mut self, cx: &mut Context<'_>) -> Result<(), StreamFailed> {
        let reset = match &mut self.stream {
            Some(stream) => stream.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        };
        if reset.is_ready() { Err(StreamFailed) } else { Ok(()) }
    }

    /// Receives the available part of the body, or returns a body that arrived in one piece; true:
    /// the time for the body is over.
    fn read(
        &mut self,
        shared: &Http2Shared,
        cx: &mut Context<'_>,
    ) -> Result<(bool, Option<Bytes>), StreamFailed> {
        while self.exchange.wants_body()
            && let Some(body) = &mut self.body
        {
            let due_ms = self.exchange.deadline_ms(shared.limits());
            match body.poll(cx, shared, &mut self.deadline, due_ms) {
                Poll::Ready(Piece::All(bytes)) => {
                    self.unopened = self.body.take();
                    return Ok((false, Some(bytes)));
                }
                Poll::Ready(Piece::Bytes(bytes)) => {
                    self.exchange.push(shared.limits(), &bytes);
                    if body.is_over() {
                        self.exchange.end();
                    }
                }
                Poll::Ready(Piece::End) => self.exchange.end(),
                Poll::Ready(Piece::Slow | Piece::Late) => return Ok((true, None)),
                Poll::Ready(Piece::Failed) => return Err(StreamFailed),
                Poll::Pending => return Ok((false, None)),
            }
        }
        Ok((false, None))
    }

    /// Waits for the authentication of the caller.
    fn wait_admission<T>(
        &mut self,
        shared: &Http2Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, StreamFailed>> {
        self.check_reset(cx)?;
        self.guard.charge(self.exchange.held_bytes())?;
        let due_ms = self.exchange.deadline_ms(shared.limits()).unwrap_or(NEVER);
        self.deadline.arm(cx, &shared.local, due_ms);
        Poll::Pending
    }

    /// The time until which the request may wait to start.
    fn waits_until_ms(&self, shared: &Http2Shared) -> u64 {
        shared.account.waits_until_ms(self.exchange.began_ms())
    }

    /// Receives input until the call may start: in h2, waiting input would take more memory.
    fn wait<T>(
        &mut self,
        shared: &Http2Shared,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, StreamFailed>> {
        self.check_reset(cx)?;
        while let Some(body) = &mut self.body
            && let Some(piece) = body.poll_ahead(cx)
        {
            self.exchange.push(shared.limits(), &piece);
        }
        self.guard.charge(self.exchange.held_bytes())?;
        let due_ms = earlier(self.exchange.due_ms(), Some(self.waits_until_ms(shared)));
        self.deadline.arm(cx, &shared.local, due_ms);
        Poll::Pending
    }
}
