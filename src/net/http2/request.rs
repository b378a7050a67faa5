//! Everything that is not gRPC: an exchange of the engine's, whose answer leaves as frames.
//!
//! Every limit of HTTP/1.1 holds: that of the body from `Content-Length` on before any of it is
//! read. A request that has come is answered where it arrived; one that waits is counted.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, DATE},
    uri::PathAndQuery,
};

use crate::{
    binding::responder::Content,
    engine::{Cx, Exchange, HeadParts, RequestParts, ResponseFields, ResponseSink},
    net::{wheel::NEVER, worker_state::WorkerScratch},
};

use super::{
    CallGuard, Deadline, Http2Shared,
    body::{Body, Piece},
    fields::{put, trailers},
    send::{Gone, send, take, take_piece},
};

/// Answers one request.
pub(super) async fn answer(
    guard: CallGuard,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let shared = Rc::clone(&guard.0);
    let (head, body) = request.into_parts();
    let mut body = Body::new(body, &shared);
    body.rest();
    let exchange = begin(&shared, &head, !body.is_over());
    // What waits holds its request, and h2's form of it takes several times the bytes.
    drop(head);
    let deadline = Deadline::new(&shared.local);
    let mut call =
        Http2Request { shared, exchange, body: Some(body), deadline, charged: 0, may_begin: false };
    // What fails here is the client's leaving, or its end.
    let _ = call.run(&mut respond).await;
}

/// RFC 9113 §8.3.1: `:authority` stands for `Host`.
fn begin(shared: &Http2Shared, head: &http::request::Parts, has_body: bool) -> Exchange {
    let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let fields = head.headers.iter().map(|(name, value)| (name.as_ref(), value.as_bytes()));
    let request = RequestParts {
        method: head.method.as_str().as_bytes(),
        target: target.as_bytes(),
        authority,
        fields,
        has_body,
        takes_trailers: true,
    };
    with_cx(shared, std::task::Waker::noop(), |cx| Exchange::new(cx, request))
}

/// Lets the engine work on something, with an output that is empty before and after.
fn with_cx<T>(
    shared: &Http2Shared,
    wake: &std::task::Waker,
    work: impl FnOnce(&mut Cx<'_>) -> T,
) -> T {
    let now = shared.local.now();
    let mut scratch = shared.local.scratch.borrow_mut();
    let WorkerScratch { worker, out, .. } = &mut *scratch;
    out.clear();
    let (engine, peer) = (shared.engine(), shared.peer());
    work(&mut Cx { engine, worker, now, wake, out, unsent: 0, peer })
}

/// One request on its way.
struct Http2Request {
    shared: Rc<Http2Shared>,
    exchange: Exchange,
    /// What is to come of the body; nothing once the answer has begun.
    body: Option<Body>,
    deadline: Deadline,
    /// Bytes of buffers that are counted among all, while it waits.
    charged: usize,
    /// False: answers of this connection wait to be read, and it may have to wait for them.
    may_begin: bool,
}

impl Drop for Http2Request {
    fn drop(&mut self) {
        self.shared.account.give_back(self.charged);
    }
}

/// What the exchange said in one turn.
struct Said<'s> {
    shared: &'s Http2Shared,
    head: Option<Response<()>>,
    /// True: the content comes in pieces, for as long as there is something to say.
    is_stream: bool,
    content: Result<Bytes, Gone>,
    end: Option<HeaderMap>,
}

impl ResponseSink for Said<'_> {
    fn head(&mut self, head: &HeadParts) {
        let mut response = Response::new(());
        // All our statuses are some.
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or_default();
        let headers = response.headers_mut();
        if let Some(date) = self.shared.date.at(self.shared.local.clock.now()) {
            headers.insert(DATE, date);
        }
        if !head.media.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(head.media));
        }
        if let Some(length) = head.content_length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        put(headers, head.fields.get());
        self.is_stream = head.content == Content::Stream;
        self.head = Some(response);
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.content = match self.is_stream {
            true => take_piece(bytes, self.shared),
            false => take(bytes, self.shared),
        };
    }

    fn end(&mut self, fields: ResponseFields<'_>) {
        self.end = Some(trailers(fields));
    }
}

impl Http2Request {
    async fn run(&mut self, respond: &mut SendResponse<Bytes>) -> Result<(), Gone> {
        let shared = Rc::clone(&self.shared);
        let mut stream: Option<SendStream<Bytes>> = None;
        let mut is_stream = false;
        loop {
            let turn = poll_fn(|cx| self.turn(&shared, cx, respond, (&mut stream, is_stream)));
            let said = turn.await?;
            is_stream = said.is_stream;
            let (content, has_trailers) =
                (said.content?, said.end.as_ref().is_some_and(|end| !end.is_empty()));
            let is_last = said.end.is_some() && !has_trailers;
            if let Some(response) = said.head {
                let is_all = is_last && content.is_empty();
                let opened = respond.send_response(response, is_all).map_err(|_| Gone)?;
                if is_all {
                    return Ok(());
                }
                stream = Some(opened);
            }
            let Some(stream) = &mut stream else { return Err(Gone) };
            send(stream, content, is_last, &shared, &mut self.deadline, NEVER).await?;
            if let Some(end) = said.end {
                return if has_trailers {
                    stream.send_trailers(end).map_err(|_| Gone)
                } else {
                    Ok(())
                };
            }
        }
    }

    /// Goes on until there is something to send.
    fn turn<'s>(
        &mut self,
        shared: &'s Http2Shared,
        cx: &mut Context<'_>,
        respond: &mut SendResponse<Bytes>,
        (stream, is_stream): (&mut Option<SendStream<Bytes>>, bool),
    ) -> Poll<Result<Said<'s>, Gone>> {
        if !self.may_begin && !shared.account.lets_begin(cx.waker()) {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            return self.wait(cx);
        }
        self.may_begin = true;
        let mut said = Said { shared, head: None, is_stream, content: Ok(Bytes::new()), end: None };
        let mut was_late = false;
        loop {
            let is_late = self.read(shared, cx)?;
            if !self.exchange.wants_body() && self.body.take().is_some() {
                // What is handled now makes room for its answer.
                self.give_back();
            }
            let _ = with_cx(shared, cx.waker(), |cx| self.exchange.poll(cx, &mut said));
            if said.head.is_some()
                || said.end.is_some()
                || !matches!(&said.content, Ok(bytes) if bytes.is_empty())
            {
                // A request that is answered before it has come is refused.
                self.body = None;
                self.give_back();
                return Poll::Ready(Ok(said));
            }
            // What is late to us has moved on for the engine, or is refused.
            if !is_late || was_late {
                break;
            }
            was_late = true;
        }
        let left = match stream {
            Some(stream) => stream.poll_reset(cx),
            None => respond.poll_reset(cx),
        };
        if left.is_ready() {
            return Poll::Ready(Err(Gone));
        }
        self.charge()?;
        self.deadline.arm(cx, self.exchange.deadline_ms(shared.limits()).unwrap_or(NEVER));
        Poll::Pending
    }

    /// Takes in what has come of the body; true: the time for more of it is over.
    fn read(&mut self, shared: &Http2Shared, cx: &mut Context<'_>) -> Result<bool, Gone> {
        while self.exchange.wants_body()
            && let Some(body) = &mut self.body
        {
            let due_ms = self.exchange.deadline_ms(shared.limits());
            match body.poll(cx, shared, &mut self.deadline, due_ms) {
                Poll::Ready(Piece::Bytes(bytes)) => {
                    self.exchange.push(shared.limits(), &bytes);
                    if body.is_over() {
                        self.exchange.end();
                    }
                }
                Poll::Ready(Piece::End) => self.exchange.end(),
                Poll::Ready(Piece::Slow | Piece::Late) => return Ok(true),
                Poll::Ready(Piece::Gone) => return Err(Gone),
                Poll::Pending => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Takes in what comes until the call may begin: h2 would hold more for it.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Gone>> {
        while let Some(body) = &mut self.body
            && let Some(piece) = body.poll_ahead(cx)
        {
            self.exchange.push(self.shared.limits(), &piece);
        }
        self.charge()?;
        self.deadline.arm(cx, NEVER);
        Poll::Pending
    }

    /// Counts what is held while it waits.
    fn charge(&mut self) -> Result<(), Gone> {
        let held = self.exchange.held_bytes();
        let before = std::mem::replace(&mut self.charged, held);
        let stays = self.shared.account.charge(before, held, self.shared.now_ms());
        if stays { Ok(()) } else { Err(Gone) }
    }

    fn give_back(&mut self) {
        self.shared.account.give_back(std::mem::take(&mut self.charged));
    }
}
