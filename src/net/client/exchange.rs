//! One request and its response over HTTP/1.x: bytes between [`Http1Connection`] and a [`Link`].
//!
//! Invariants: sending and reading run concurrently, so the client reads an early answer, and a
//! server that answers before it reads causes no deadlock. The whole state of a request is in one
//! `Http1Exchange`, which later requests reuse; an idle connection has no exchange.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use crate::{
    client::{
        HttpRequest, TransportError,
        http1::{Http1Connection, Http1Event, RequestHead, ResponseBuf},
    },
    http::{FieldLines, FieldLinesBuf, client::ResponseLimits},
};

use super::{
    due::{ClientClock, Due, NEVER_MS},
    link::Link,
    tls::transport_error,
};

/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Content up to this size is copied after its head, so that both are sent in one write without a
/// list.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Bytes of buffers that are retained for the next request.
const RETAINED_BYTES_MAX: usize = 128 * 1024;

thread_local! {
    /// The read buffer, which the requests of a thread share, so a waiting request holds no memory.
    /// A request copies the bytes that it cannot use at once.
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Buffers and state of one request.
#[derive(Default)]
pub(super) struct Http1Exchange {
    link: Option<Link>,
    http1: Http1Connection,
    /// The head of the response.
    pub(super) response: ResponseBuf,
    /// Remaining input; the bytes before `start` are consumed.
    input: Vec<u8>,
    start: usize,
    /// The head of the previous request, or of this one.
    request_head: RequestHead,
    /// The head of the request, and short content.
    output: Vec<u8>,
    /// Sent bytes of head and content.
    sent: usize,
    /// True: sending failed, so nothing more is sent.
    has_send_failed: bool,
    /// True: a byte of a response was received.
    pub(super) is_answered: bool,
    due: Due,
    /// When the silence since the last byte of the content times out; 0: not set yet.
    silent_ms: u64,
}

/// The context for driving an exchange.
#[derive(Clone, Copy)]
pub(super) struct ExchangeCx<'a> {
    pub(super) clock: ClientClock,
    pub(super) limits: &'a ResponseLimits,
}

impl Http1Exchange {
    /// Writes the head of a request for this connection. `proxy`: fields for the proxy, if the
    /// connection leads to a proxy.
    ///
    /// # Errors
    /// [`TransportError::Io`]: the target is invalid.
    pub(super) fn begin(
        &mut self,
        link: Link,
        request: &HttpRequest<'_>,
        proxy: FieldLines<'_>,
    ) -> Result<(), TransportError> {
        self.http1 = Http1Connection::default();
        let (request_head, out) = (&mut self.request_head, &mut self.output);
        let begun = if link.to_proxy && !proxy.is_empty() {
            let fields = FieldLinesBuf::of(&[request.fields, proxy]);
            let request = HttpRequest { fields: fields.get(), ..*request };
            self.http1.begin(&request, true, request_head, out)
        } else {
            self.http1.begin(request, link.to_proxy, request_head, out)
        };
        begun.map_err(|refused| TransportError::Io(refused.to_string()))?;
        if request.body.len() <= COPIED_BYTES_MAX {
            self.output.extend_from_slice(request.body);
        }
        self.link = Some(link);
        Ok(())
    }

    /// Requests a tunnel from a proxy.
    ///
    /// # Errors
    /// [`TransportError::Io`]: the authority is invalid.
    pub(super) fn begin_connect(
        &mut self,
        link: Link,
        authority: &str,
        fields: FieldLines<'_>,
    ) -> Result<(), TransportError> {
        self.http1 = Http1Connection::default();
        let begun = self.http1.begin_connect(authority, fields, &mut self.output);
        begun.map_err(|refused| TransportError::Io(refused.to_string()))?;
        self.link = Some(link);
        Ok(())
    }

    /// Sends the request, and reads until the head of the final response is in `response`.
    ///
    /// # Errors
    /// [`TransportError`]; the connection is then closed.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        body: &[u8],
        due_ms: u64,
        with: ExchangeCx<'_>,
    ) -> Poll<Result<(), TransportError>> {
        let done = ready!(self.poll_head_inner(cx, body, due_ms, with));
        if done.is_err() {
            self.link = None;
        }
        Poll::Ready(done)
    }

    fn poll_head_inner(
        &mut self,
        cx: &mut Context<'_>,
        body: &[u8],
        due_ms: u64,
        with: ExchangeCx<'_>,
    ) -> Poll<Result<(), TransportError>> {
        loop {
            if self.http1.needs_request() && !self.has_send_failed {
                self.send(cx, body);
            }
            // No content is returned before the head is complete, so this buffer stays empty.
            match self.poll_read(cx, &mut Vec::new(), 0, with) {
                Poll::Ready(Ok(Http1Event::More)) => {}
                Poll::Ready(event) => return Poll::Ready(event.map(|_| ())),
                Poll::Pending => {
                    ready!(self.due.poll(cx, with.clock, due_ms));
                    return Poll::Ready(Err(TransportError::Timeout("response")));
                }
            }
        }
    }

    /// Reads content, as [`HttpResponse::poll_read`](crate::client::HttpResponse::poll_read) does.
    /// At the end of the content, a reusable connection is returned.
    ///
    /// # Errors
    /// [`TransportError`]; the connection is then closed.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
        idle_ms: u64,
        with: ExchangeCx<'_>,
    ) -> Poll<Result<BodyRead, TransportError>> {
        let read = ready!(self.poll_body_inner(cx, out, room, idle_ms, with));
        Poll::Ready(match read {
            Ok(BodyPiece::More) => Ok(BodyRead::More),
            Ok(BodyPiece::End { is_reusable }) => {
                let link = self.link.take().filter(|_| is_reusable);
                Ok(BodyRead::End(link))
            }
            Err(error) => {
                self.link = None;
                Err(error)
            }
        })
    }

    fn poll_body_inner(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
        idle_ms: u64,
        with: ExchangeCx<'_>,
    ) -> Poll<Result<BodyPiece, TransportError>> {
        let (before, end) = (out.len(), out.len() + room.max(1));
        let mut event = self.step(out, end - out.len(), with)?;
        loop {
            match event {
                Http1Event::End { is_reusable } => {
                    return Poll::Ready(Ok(BodyPiece::End { is_reusable }));
                }
                Http1Event::More | Http1Event::Head if out.len() > before => {
                    return Poll::Ready(Ok(BodyPiece::More));
                }
                Http1Event::More | Http1Event::Head => {}
            }
            event = match self.poll_read(cx, out, end - out.len(), with) {
                Poll::Ready(event) => event?,
                Poll::Pending => {
                    ready!(self.poll_silent(cx, idle_ms, with.clock));
                    return Poll::Ready(Err(TransportError::Timeout("byte of the body")));
                }
            };
        }
    }

    /// Writes to the peer of an upgraded connection.
    ///
    /// # Errors
    /// [`TransportError::Closed`], [`TransportError::Tls`], [`TransportError::Io`].
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        let Some(link) = &mut self.link else { return Poll::Ready(Err(CLOSED)) };
        let sent = ready!(Pin::new(&mut *link).poll_write(cx, bytes));
        // Data that a session buffers is sent as soon as the socket accepts it.
        if let Poll::Ready(Err(error)) = Pin::new(link).poll_flush(cx) {
            return Poll::Ready(Err(broken(&error, false)));
        }
        Poll::Ready(sent.map_err(|error| broken(&error, false)))
    }

    /// Whether the request may be repeated on another connection: no byte of a response was
    /// received, and either the server cannot have read the request or the caller allows the
    /// repetition.
    pub(super) fn may_repeat(&self, is_repeatable: bool) -> bool {
        !self.is_answered && (is_repeatable || self.sent == 0)
    }

    /// Ends a response that the caller has not read. If the response is already complete, its
    /// reusable connection is returned.
    pub(super) fn end_unread(&mut self, with: ExchangeCx<'_>) -> Option<Link> {
        let link = self.link.take()?;
        let step = self.step(&mut Vec::new(), 0, with);
        matches!(step, Ok(Http1Event::End { is_reusable: true })).then_some(link)
    }

    /// The tunnel of CONNECT or an upgrade; `None`: bytes that belong to no response were received
    /// already.
    pub(super) fn take_tunnel(&mut self) -> Option<Link> {
        self.link.take().filter(|_| self.start == self.input.len())
    }

    /// Prepares for another request. Large buffers are freed.
    pub(super) fn clear(&mut self) {
        self.link = None;
        self.input.clear();
        self.output.clear();
        (self.start, self.sent, self.silent_ms) = (0, 0, 0);
        (self.has_send_failed, self.is_answered) = (false, false);
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.capacity() > RETAINED_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.response.held_bytes() > RETAINED_BYTES_MAX {
            self.response = ResponseBuf::default();
        }
    }

    /// Sends as much as the socket accepts. Errors are reported by reading, since the server may
    /// have sent the reason.
    fn send(&mut self, cx: &mut Context<'_>, body: &[u8]) {
        let Some(link) = &mut self.link else { return };
        let is_copied = body.len() <= COPIED_BYTES_MAX;
        let total = self.output.len() + if is_copied { 0 } else { body.len() };
        while self.sent < total {
            let head = self.output.get(self.sent..).unwrap_or_default();
            let rest = match self.sent.checked_sub(self.output.len()) {
                Some(at) => &body[at..],
                None => body,
            };
            let wrote = match (is_copied, head.is_empty()) {
                (true, _) => Pin::new(&mut *link).poll_write(cx, head),
                (false, true) => Pin::new(&mut *link).poll_write(cx, rest),
                (false, false) => {
                    let pieces = [io::IoSlice::new(head), io::IoSlice::new(rest)];
                    Pin::new(&mut *link).poll_write_vectored(cx, &pieces)
                }
            };
            match wrote {
                Poll::Ready(Ok(count)) if count > 0 => self.sent += count,
                Poll::Ready(Ok(_) | Err(_)) => return self.has_send_failed = true,
                Poll::Pending => return,
            }
        }
        match Pin::new(link).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.http1.sent(),
            Poll::Ready(Err(_)) => self.has_send_failed = true,
            Poll::Pending => {}
        }
    }

    /// Passes the remaining input to the connection; if there is none, reads once and passes the
    /// received bytes.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
        with: ExchangeCx<'_>,
    ) -> Poll<Result<Http1Event, TransportError>> {
        // If little room is left, this step may consume only the framing of a chunk.
        if self.start < self.input.len() {
            return Poll::Ready(self.step(out, room, with));
        }
        let Some(link) = &mut self.link else { return Poll::Ready(Err(CLOSED)) };
        let mut buffer = READ_BUFFER.take();
        buffer.clear();
        buffer.reserve(READ_BYTES);
        let read = link.poll_fill(cx, &mut buffer);
        let event = read.map(|read| match read {
            Ok(0) => self.http1.eof(&self.response),
            Ok(_) => self.take_in(&buffer, out, room, with),
            Err(error) => Err(broken(&error, !self.is_answered)),
        });
        READ_BUFFER.set(buffer);
        event
    }

    /// Passes received bytes to the connection, and retains the rest.
    fn take_in(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        room: usize,
        with: ExchangeCx<'_>,
    ) -> Result<Http1Event, TransportError> {
        (self.is_answered, self.silent_ms) = (true, 0);
        let step = self.http1.advance(bytes, &mut self.response, out, room, with.limits)?;
        self.input.clear();
        self.input.extend_from_slice(&bytes[step.consumed..]);
        self.start = 0;
        Ok(step.event)
    }

    /// Passes the remaining input to the connection.
    fn step(
        &mut self,
        out: &mut Vec<u8>,
        room: usize,
        with: ExchangeCx<'_>,
    ) -> Result<Http1Event, TransportError> {
        let input = &self.input[self.start..];
        let step = self.http1.advance(input, &mut self.response, out, room, with.limits)?;
        self.start += step.consumed;
        debug_assert!(self.start <= self.input.len());
        Ok(step.event)
    }

    /// Ready when nothing was received for `idle_ms`.
    fn poll_silent(&mut self, cx: &mut Context<'_>, idle_ms: u64, clock: ClientClock) -> Poll<()> {
        if idle_ms == NEVER_MS {
            return Poll::Pending;
        }
        if self.silent_ms == 0 {
            self.silent_ms = clock.now_ms().saturating_add(idle_ms);
        }
        self.due.poll(cx, clock, self.silent_ms)
    }
}

/// The result of reading content.
pub(super) enum BodyRead {
    /// More content may follow.
    More,
    /// The content has ended; the connection, if it is reusable.
    End(Option<Link>),
}

enum BodyPiece {
    More,
    End { is_reusable: bool },
}

const CLOSED: TransportError = TransportError::Closed { before_response: false };

/// The error of a broken connection, for any error code of the system.
fn broken(error: &io::Error, before_response: bool) -> TransportError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::WriteZero => TransportError::Closed { before_response },
        _ => transport_error(error),
    }
}
