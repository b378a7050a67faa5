//! Everything that is not gRPC: the request becomes HTTP/1.1 bytes, a connection of the engine
//! answers them, and its answer becomes the response.
//!
//! So JSON-RPC, HTTP+JSON, cards and their streams are the same code on both, and every limit of
//! HTTP/1.1 holds: the body's from `Content-Length` before any of it is read. Costs a copy of the
//! head and of the body; who wants speed over HTTP/2 speaks gRPC.

use std::{
    future::poll_fn,
    io::Write,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, Request, Response, header};

use crate::{
    engine::{Conn, Cx, Next},
    http::{ChunkLimits, Chunked},
    net::{wheel::NEVER, worker_state::WorkerScratch},
};

use super::{
    CallGuard, Deadline, Http2Shared,
    body::{Body, Piece},
    host::authorities,
    send::{Gone, durable, send, take, take_piece},
};

/// RFC 9113 §8.2.2: fields of a connection mean nothing here; the rest is said anew.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];
/// Fields that the engine's answers have at most.
const FIELDS_MAX: usize = 64;

/// Answers one request.
pub(super) async fn answer(
    guard: CallGuard,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let shared = Rc::clone(&guard.0);
    let (head, body) = request.into_parts();
    let is_over = body.is_end_stream();
    let length = head.headers.get(header::CONTENT_LENGTH).cloned();
    let chunked = length.is_none() && !is_over;
    let now = shared.local.clock.now();
    let mut body = Body::new(body, &shared);
    body.rest();
    let answer = Answer::new(head.method == http::Method::HEAD);
    let mut exchange = OneExchange {
        conn: Conn::new(now),
        input: head_bytes(head, length.as_ref().map(|length| length.as_bytes()), chunked),
        body: (!is_over).then_some(body),
        chunked,
        answer,
        deadline: Deadline::new(&shared.local),
        charged: 0,
        due_ms: None,
        wants_body: true,
        has_begun: false,
        shared,
    };
    // What fails here is the client's leaving, or its end.
    let _ = exchange.run(&mut respond).await;
}

/// The request's head in HTTP/1.1, which is all that is kept of it. h2 has seen to it that no value
/// holds the end of a line.
fn head_bytes(head: http::request::Parts, length: Option<&[u8]>, chunked: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    // Writing to memory does not fail.
    let _ = write!(bytes, "{} {target} HTTP/1.1\r\n", head.method);
    let mut field = |name: &str, value: &[u8]| {
        for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
            bytes.extend_from_slice(piece);
        }
    };
    authorities(&head).for_each(|host| field("host", host));
    for (name, value) in &head.headers {
        if !HOP_BY_HOP.contains(name) {
            field(name.as_str(), value.as_bytes());
        }
    }
    if let Some(length) = length {
        field("content-length", length);
    }
    if chunked {
        field("transfer-encoding", b"chunked");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// One request on its way through a connection of its own.
struct OneExchange {
    shared: Rc<Http2Shared>,
    conn: Conn,
    /// Bytes for the engine that it has not consumed.
    input: Vec<u8>,
    /// What is to come of the body; nothing once all of the request is in the input, or the answer
    /// has begun.
    body: Option<Body>,
    /// True: the length of the body was not said.
    chunked: bool,
    answer: Answer,
    deadline: Deadline,
    /// Bytes of buffers that are counted among all.
    charged: usize,
    /// When the engine wants to be called again.
    due_ms: Option<u64>,
    /// False: the engine wants no input.
    wants_body: bool,
    /// True: the engine has seen it, and whatever waits now is not for a place to begin.
    has_begun: bool,
}

impl Drop for OneExchange {
    fn drop(&mut self) {
        self.shared.account.give_back(self.charged);
    }
}

/// What a turn of an exchange brought.
enum Turn {
    /// Some of the answer.
    Some,
    /// The engine will say no more.
    Over,
}

impl OneExchange {
    async fn run(&mut self, respond: &mut SendResponse<Bytes>) -> Result<(), Gone> {
        let mut stream: Option<SendStream<Bytes>> = None;
        loop {
            let turn = poll_fn(|cx| self.turn(cx, respond, stream.as_mut())).await?;
            durable(&self.shared).await;
            if stream.is_none()
                && let Some(response) = self.answer.head.take()
            {
                let ends = self.answer.is_done() && self.answer.body.is_empty();
                let opened = respond.send_response(response, ends).map_err(|_| Gone)?;
                if ends {
                    return Ok(());
                }
                stream = Some(opened);
            }
            let is_done = self.answer.is_done();
            let Some(stream) = &mut stream else {
                // The engine ended without an answer: so does the stream.
                if let Turn::Over = turn {
                    respond.send_reset(h2::Reason::INTERNAL_ERROR);
                    return Err(Gone);
                }
                continue;
            };
            let piece = match self.answer.is_stream {
                true => take_piece(&mut self.answer.body, &self.shared)?,
                false => take(&mut self.answer.body, &self.shared)?,
            };
            if is_done || !piece.is_empty() {
                send(stream, piece, is_done, &self.shared, &mut self.deadline, NEVER).await?;
            }
            if is_done {
                return Ok(());
            }
            if let Turn::Over = turn {
                stream.send_reset(h2::Reason::INTERNAL_ERROR);
                return Err(Gone);
            }
        }
    }

    /// Goes on until there is something to send.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        respond: &mut SendResponse<Bytes>,
        stream: Option<&mut SendStream<Bytes>>,
    ) -> Poll<Result<Turn, Gone>> {
        let left = match stream {
            Some(stream) => stream.poll_reset(cx),
            None => respond.poll_reset(cx),
        };
        if left.is_ready() {
            return Poll::Ready(Err(Gone));
        }
        if !self.has_begun && !self.shared.account.lets_begin(cx.waker()) {
            return self.wait(cx);
        }
        self.has_begun = true;
        let (mut is_due, mut was_late) = (true, false);
        loop {
            if is_due {
                let next = self.advance(cx)?;
                self.charge()?;
                if self.answer.has_news() || self.answer.is_done() {
                    // A request that is answered before it has come is refused.
                    self.body = None;
                    return Poll::Ready(Ok(Turn::Some));
                }
                if next != Next::Open {
                    return Poll::Ready(Ok(Turn::Over));
                }
            }
            let Some(body) = self.body.as_mut().filter(|_| self.wants_body) else { break };
            match body.poll(cx, &self.shared, &mut self.deadline, self.due_ms) {
                Poll::Ready(Piece::Bytes(bytes)) => self.keep(&bytes),
                Poll::Ready(Piece::End) => self.end(),
                // The engine has the same limits, and its own words for them.
                Poll::Ready(Piece::Slow | Piece::Late) if was_late => break,
                Poll::Ready(Piece::Slow | Piece::Late) => was_late = true,
                Poll::Ready(Piece::Gone) => return Poll::Ready(Err(Gone)),
                Poll::Pending => return Poll::Pending,
            }
            is_due = true;
        }
        self.deadline.arm(cx, self.due_ms.unwrap_or(NEVER));
        Poll::Pending
    }

    /// Takes in what comes until the call may begin: h2 would hold more for it.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn, Gone>> {
        while let Some(piece) = self.body.as_mut().and_then(|body| body.poll_ahead(cx)) {
            self.keep(&piece);
        }
        self.charge()?;
        self.deadline.arm(cx, NEVER);
        Poll::Pending
    }

    /// Lets the engine work on what came.
    fn advance(&mut self, cx: &Context<'_>) -> Result<Next, Gone> {
        let now = self.shared.local.clock.now();
        let mut scratch = self.shared.local.scratch.borrow_mut();
        let WorkerScratch { worker, out, .. } = &mut *scratch;
        out.clear();
        let (engine, wake, peer) = (self.shared.engine(), cx.waker(), self.shared.peer());
        let mut engine_cx = Cx { engine, worker, now, wake, out, unsent: 0, peer };
        let progress = self.conn.advance(&mut engine_cx, &self.input, false);
        match progress.consumed {
            all if all == self.input.len() => self.input = Vec::new(),
            some => drop(self.input.drain(..some)),
        }
        self.due_ms = progress.deadline_ms;
        self.wants_body = progress.read;
        self.answer.push(out)?;
        out.clear();
        Ok(progress.next)
    }

    /// Appends a piece of the body as the head has announced it.
    fn keep(&mut self, piece: &[u8]) {
        if self.chunked && !piece.is_empty() {
            let _ = write!(self.input, "{:x}\r\n", piece.len());
        }
        self.input.extend_from_slice(piece);
        if self.chunked && !piece.is_empty() {
            self.input.extend_from_slice(b"\r\n");
        }
    }

    fn end(&mut self) {
        self.body = None;
        if self.chunked {
            self.input.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn charge(&mut self) -> Result<(), Gone> {
        let held = self.input.capacity() + self.conn.held_bytes() + self.answer.held_bytes();
        let before = std::mem::replace(&mut self.charged, held);
        let stays = self.shared.account.charge(before, held, self.shared.now_ms());
        if stays { Ok(()) } else { Err(Gone) }
    }
}

/// The engine's answer on its way back from HTTP/1.1.
struct Answer {
    to_head: bool,
    head: Option<Response<()>>,
    /// True: it comes in pieces, for as long as there is something to say.
    is_stream: bool,
    framing: Framing,
    /// Bytes that are not yet taken apart.
    raw: Vec<u8>,
    /// Bytes of the body that are not yet sent.
    body: Vec<u8>,
}

enum Framing {
    /// The head is not complete.
    Head,
    /// So many bytes are to come.
    Length(u64),
    /// Chunks are to come.
    Chunks(Chunked),
    /// That was all.
    Done,
}

impl Answer {
    fn new(to_head: bool) -> Answer {
        let (raw, body) = (Vec::new(), Vec::new());
        Answer { to_head, head: None, is_stream: false, framing: Framing::Head, raw, body }
    }

    fn is_done(&self) -> bool {
        matches!(self.framing, Framing::Done)
    }

    fn has_news(&self) -> bool {
        self.head.is_some() || !self.body.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.raw.capacity() + self.body.capacity()
    }

    /// Takes apart what the engine wrote.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.raw.extend_from_slice(bytes);
        if let Framing::Head = self.framing {
            self.read_head()?;
        }
        match &mut self.framing {
            Framing::Head | Framing::Done => {}
            Framing::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(self.raw.len());
                self.body.extend(self.raw.drain(..take));
                *left -= take as u64;
                if *left == 0 {
                    self.framing = Framing::Done;
                }
            }
            Framing::Chunks(chunks) => {
                let step = chunks.advance(&self.raw, &mut self.body).map_err(|_| Gone)?;
                self.raw.drain(..step.consumed);
                if step.done {
                    self.framing = Framing::Done;
                }
            }
        }
        Ok(())
    }

    fn read_head(&mut self) -> Result<(), Gone> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let length = match parsed.parse(&self.raw) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        let status = parsed.code.unwrap_or(500);
        let (mut headers, mut left, mut chunked) = (HeaderMap::new(), 0, false);
        for field in parsed.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Gone)?;
            if name == header::TRANSFER_ENCODING {
                chunked = true;
            } else if name == header::CONTENT_LENGTH {
                let text = std::str::from_utf8(field.value).map_err(|_| Gone)?;
                left = text.trim().parse().map_err(|_| Gone)?;
            }
            if name == header::CONTENT_LENGTH || !HOP_BY_HOP.contains(&name) {
                headers.append(name, field.value.try_into().map_err(|_| Gone)?);
            }
        }
        let mut response = Response::builder().status(status).body(()).map_err(|_| Gone)?;
        *response.headers_mut() = headers;
        self.head = Some(response);
        self.is_stream = chunked;
        self.raw.drain(..length);
        // A stream has no end that could be too far.
        let limits = ChunkLimits {
            body_bytes_max: u64::MAX,
            line_bytes_max: 64,
            trailer_bytes_max: 1024,
            overhead_bytes_max: usize::MAX,
        };
        self.framing = match (self.to_head || status == 204 || status == 304, chunked) {
            (true, _) => Framing::Done,
            (false, true) => Framing::Chunks(Chunked::new(limits)),
            (false, false) if left == 0 => Framing::Done,
            (false, false) => Framing::Length(left),
        };
        Ok(())
    }
}
