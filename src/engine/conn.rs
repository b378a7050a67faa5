//! One connection as a state machine.
//!
//! A request is handled when it is complete in the input; until then no input is consumed and only
//! the number of required bytes is stored (chunked bodies are decoded as they arrive). Output above
//! the high-water mark stops input. After a framing error no input is parsed.

mod admitting;
mod large;
mod pending;
mod preface;
mod refusal;
mod streaming;

pub(super) use large::ParseTurn;

use std::task::{Poll, Waker};

use crate::binding::body_limit::RequestRefusal;
use crate::{
    binding::{
        EventStream, Handled, PendingResponse,
        cors::CorsAnswer,
        hosts,
        large::{LARGE_BODY_BYTES, Ticket},
        responder::Http1ResponseState,
    },
    engine::{
        Engine, Worker,
        body::Chunks,
        following,
        request::{self, Http1Handled, RequestCx, asking},
        socket::Socket,
    },
    http::{Found, Head},
    json::Source,
    limits::callers::ADMISSION_MS_MAX,
    service::{Now, Peer},
};

use admitting::LateRefusal;

/// The context of each call to a connection.
pub struct Cx<'a> {
    /// The state that all connections share.
    pub engine: &'a Engine,
    /// The state that the connections of this thread share.
    pub worker: &'a mut Worker,
    /// The time.
    pub now: Now,
    /// Woken when the connection can continue for a reason other than its socket.
    pub wake: &'a Waker,
    /// The buffer to which output is appended; its present content counts as unsent.
    pub out: &'a mut Vec<u8>,
    /// Bytes of earlier output that the socket has not taken, in addition to those in `out`.
    pub unsent: usize,
    /// The peer; must be the same in each call.
    pub peer: Peer<'a>,
}

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are consumed.
    pub consumed: usize,
    /// Bytes of unconsumed input that are required to continue; 0: unknown.
    pub need: usize,
    /// When to advance again without an earlier event, in ms of the monotonic clock.
    pub deadline_ms: Option<u64>,
    /// False: leave input in the socket.
    pub read: bool,
    /// What to do with the socket.
    pub next: Next,
    /// The last record of the tasks in the output. The output may be sent when the server's
    /// [`Tap`](crate::service::tap::Tap) reports this record as durable. 0: no record.
    pub record: u64,
}

/// What to do with the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Keep the socket open.
    Open,
    /// Send the unsent output, shut down writing, ignore input for a while, then close.
    Close,
    /// Reset the socket now: the peer has disconnected, or does not respond.
    Abort,
    /// Serve HTTP/2 on the socket, from its first byte on: no input was consumed.
    Http2,
}

pub(super) enum State {
    /// Between requests, or in the middle of a head or of a body of known length.
    Reading { scanned: u32, need: u32, continued: bool },
    /// In the middle of a chunked body.
    Chunks(Box<Chunks>),
    /// The request has waited for authentication since `since_ms`; it is not consumed.
    Admitting { since_ms: u64 },
    /// A request with a wrong key, which is refused after a delay; it is not consumed.
    Refusing(Box<LateRefusal>),
    /// An answer waits for its task.
    Pending(Box<PendingResponse>),
    /// A stream is open.
    Streaming(Box<EventStream>),
    /// The connection is a WebSocket.
    Upgraded(Box<Socket>),
    /// The last answer is written.
    Closed,
}

pub(super) const FRESH: State = State::Reading { scanned: 0, need: 0, continued: false };

/// One connection.
pub struct Conn {
    pub(super) state: State,
    /// When the head or the current window of the body began, or the last answer ended.
    pub(super) since_ms: u64,
    /// Bytes of input at the start of the current window of a body.
    pub(super) seen: u64,
    /// The ticket of a large body that waits for a parse slot.
    pub(super) ticket: Option<Box<Ticket>>,
    /// Data of the request that an incomplete answer needs.
    pub(super) retained: Http1ResponseState,
    /// True: no input was consumed yet, so HTTP/2 can still begin.
    is_new: bool,
    /// True: the last request with a complete head was admitted, and the caller was authenticated
    /// if the server has an authenticator.
    is_authenticated: bool,
    /// CORS fields for the current request if it is refused.
    cors: CorsAnswer,
}

/// The activity of a connection. If connections must be closed, those with the lowest variant are
/// closed first.
#[cfg(feature = "net")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// No request has begun, and all output is sent.
    Idle,
    /// A request without an authenticated caller; if the server has no authenticator, a request
    /// with an incomplete head.
    Unauthenticated,
    /// Any other request.
    Authenticated,
}

/// The result of one step of a connection.
pub(super) enum Step {
    /// This many bytes were consumed; call the next step.
    Ate(usize),
    /// The connection waits for an event.
    Wait,
    /// The connection has no room for output.
    Full,
    /// This many bytes were consumed, and the connection waits; false: it has no room for output.
    Rest(usize, bool),
    /// The connection begins with the preface of HTTP/2.
    Http2,
    /// The connection has ended.
    Over(Next),
}

impl Conn {
    /// A connection that was just accepted.
    pub fn new(now: Now) -> Conn {
        Conn {
            state: FRESH,
            since_ms: now.mono_ms,
            seen: 0,
            ticket: None,
            retained: Http1ResponseState::default(),
            is_new: true,
            is_authenticated: false,
            cors: CorsAnswer::NONE,
        }
    }

    /// Advances as far as possible: call it when input arrived, the waker was woken, output was
    /// sent, the deadline passed, or the peer shut down writing.
    ///
    /// `input` contains all received bytes that are not yet consumed. Bodies in a [`Source::roomy`]
    /// buffer are parsed in place, other bodies on a copy; `input` is unchanged after the call.
    pub fn advance<'i>(
        &mut self,
        cx: &mut Cx<'_>,
        input: impl Into<Source<'i>>,
        eof: bool,
    ) -> Progress {
        let mut input = input.into();
        let (mut consumed, length) = (0, input.bytes().len());
        let written = cx.out.len();
        let mut admitting_ms = None;
        if let State::Admitting { since_ms } = self.state
            && !eof
        {
            // The head is parsed again, since only `reading` parses heads.
            (admitting_ms, self.state) = (Some(since_ms), FRESH);
        }
        let mut progress = loop {
            let rest = input.tail(consumed);
            let step = match &mut self.state {
                State::Reading { .. } => self.reading(cx, rest, eof, admitting_ms.take()),
                // The client has disconnected before any answer was sent.
                State::Admitting { .. } if eof => Step::Over(Next::Abort),
                State::Admitting { .. } => Step::Wait,
                State::Refusing(_) => self.refuse_late(cx, rest, eof),
                State::Chunks(_) => self.chunks(cx, rest.bytes(), eof),
                State::Pending(_) => self.pending(cx, eof),
                State::Streaming(_) => self.streaming(cx, eof),
                State::Upgraded(socket) => socket.advance(cx, rest.bytes(), eof),
                State::Closed => Step::Over(Next::Close),
            };
            match step {
                Step::Ate(bytes) => consumed += bytes,
                Step::Wait => break self.progress(cx, consumed, length - consumed, true),
                Step::Full => break self.progress(cx, consumed, length - consumed, false),
                Step::Rest(bytes, room) => {
                    consumed += bytes;
                    break self.progress(cx, consumed, length - consumed, room);
                }
                Step::Http2 => {
                    self.state = State::Closed;
                    let next = Next::Http2;
                    let need = 0;
                    break Progress {
                        consumed,
                        need,
                        deadline_ms: None,
                        read: false,
                        next,
                        record: 0,
                    };
                }
                Step::Over(next) => {
                    self.state = State::Closed;
                    let (consumed, need, deadline_ms) = (length, 0, None);
                    break Progress { consumed, need, deadline_ms, read: true, next, record: 0 };
                }
            }
        };
        if cx.engine.tap.is_some() {
            let record = std::mem::take(&mut cx.worker.record);
            progress.record = if cx.out.len() > written { record } else { 0 };
        }
        progress
    }

    /// The activity of the connection; `is_sent`: all of its output is sent.
    #[cfg(feature = "net")]
    pub(crate) fn activity(&self, is_sent: bool) -> Activity {
        match self.state {
            State::Reading { scanned: 0, need: 0, .. } | State::Closed if is_sent => Activity::Idle,
            State::Refusing(_) => Activity::Unauthenticated,
            _ if self.is_authenticated => Activity::Authenticated,
            _ => Activity::Unauthenticated,
        }
    }

    /// True: a request is partly received.
    #[cfg(feature = "net")]
    pub(crate) fn is_mid_request(&self) -> bool {
        match self.state {
            State::Reading { scanned, need, .. } => scanned > 0 || need > 0,
            State::Chunks(_) | State::Admitting { .. } => true,
            State::Pending(_)
            | State::Streaming(_)
            | State::Upgraded(_)
            | State::Refusing(_)
            | State::Closed => false,
        }
    }

    /// Bytes of buffers that the connection holds in addition to the caller's.
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Reading { .. } | State::Admitting { .. } | State::Closed => 0,
            State::Streaming(stream) => stream.caller_bytes(),
            State::Refusing(_) => size_of::<LateRefusal>(),
            State::Chunks(chunks) => chunks.held_bytes(),
            State::Pending(pending) => pending.held_bytes(),
            State::Upgraded(socket) => socket.held_bytes(),
        }
    }

    fn progress(&self, cx: &Cx<'_>, consumed: usize, unread: usize, room: bool) -> Progress {
        let limits = cx.engine.limits();
        let (deadline_ms, need, read) = match &self.state {
            State::Reading { need, .. } => {
                let span = match (unread, *need) {
                    (0, 0) => limits.keep_alive_idle_ms,
                    (_, 0) => limits.head_timeout_ms,
                    (_, _) => limits.body_idle_ms,
                };
                (Some(self.since_ms + span), *need as usize, room)
            }
            State::Chunks(_) => (Some(self.since_ms + limits.body_idle_ms), 0, room),
            State::Admitting { since_ms } => (Some(since_ms + ADMISSION_MS_MAX), 0, false),
            State::Refusing(late) => (Some(late.delay.due_ms), 0, false),
            State::Pending(pending) => (pending.due_ms(), 0, unread < limits.head_bytes_max),
            State::Streaming(stream) => {
                let next = following::next_ms(stream, limits);
                (Some(next), 0, unread < limits.head_bytes_max)
            }
            State::Upgraded(socket) => (Some(socket.deadline_ms(limits)), 0, room),
            State::Closed => (None, 0, true),
        };
        // Without room for output there is no deadline; the driver closes the connection if its
        // peer does not read.
        let deadline_ms = deadline_ms.filter(|_| room);
        Progress { consumed, need, deadline_ms, read, next: Next::Open, record: 0 }
    }

    /// Parses and handles the next request; `admitting_ms`: when its wait for authentication began.
    #[inline(always)] // The only caller returns its result.
    fn reading(
        &mut self,
        cx: &mut Cx<'_>,
        rest: Source<'_>,
        eof: bool,
        admitting_ms: Option<u64>,
    ) -> Step {
        let State::Reading { scanned, need, continued } = self.state else { return Step::Wait };
        if cx.out.len() + cx.unsent > cx.engine.limits().output_bytes_max {
            return Step::Full;
        }
        let seen = rest.bytes().len();
        if seen == 0 || seen < need as usize {
            return self.not_yet(cx, seen, need as usize, eof);
        }
        if self.is_new
            && let Some(step) = self.preface(cx, rest.bytes(), eof)
        {
            return step;
        }
        let config = &cx.engine.config;
        let check_hosts = |head: &Head<'_>, is_known| hosts::are_known(config, head, is_known);
        let layout = match cx.worker.heads.read(rest.bytes(), scanned as usize, check_hosts) {
            Err(reject) => return self.reject_head(cx, rest.bytes(), reject),
            Ok(Found::Partial { scanned: upto }) => {
                self.cors = CorsAnswer::NONE;
                if scanned == 0 {
                    self.since_ms = cx.now.mono_ms;
                }
                // At least 1, which distinguishes a partial head from an idle connection.
                let scanned = upto.max(1) as u32;
                self.state = State::Reading { scanned, need: 0, continued };
                return self.not_yet(cx, seen, 0, eof);
            }
            Ok(Found::Complete(layout)) => layout,
        };
        let head = layout.head(rest.bytes());
        let hosts_known = layout.has_known_hosts();
        if let Some(refusal) = self.refused_head(cx.engine, cx.peer, &head, hosts_known) {
            return self.refuse(cx, refusal);
        }
        if !config.access.trusted_proxies.is_empty() {
            cx.worker.forwarded = asking(cx.engine, cx.peer, false).forwarded(&head);
        }
        let recent = &mut cx.worker.scratch.callers;
        let asking = asking(cx.engine, cx.peer, false);
        let admission = match asking.admit(&head, recent, cx.now, cx.wake) {
            Poll::Ready(Ok(admission)) => {
                self.is_authenticated = admission.is_some() || config.access.gate.is_none();
                admission
            }
            refused => {
                let layout = *layout;
                return self.not_admitted(cx, &layout.head(rest.bytes()), refused, admitting_ms);
            }
        };
        self.note_page(config, &head);
        let head_len = layout.head_len();
        let end = request::body_end(&head, head_len);
        let total = match end {
            request::BodyEnd::At(total) if total <= seen => total,
            end => {
                let layout = *layout;
                return self.begin_body(cx, rest.bytes(), &layout, end, eof, admission);
            }
        };
        if total - head_len > LARGE_BODY_BYTES || head.is_coded() {
            let layout = *layout;
            return self.large(cx, rest, &layout, total, admission);
        }
        let (head, body) = rest.split(head_len, total - head_len);
        let head = layout.head(head);
        let (scratch, out) = (&mut cx.worker.scratch, &mut *cx.out);
        let at =
            RequestCx { engine: cx.engine, now: cx.now, wake: cx.wake, peer: cx.peer, head: &head };
        let answered = request::handle(at, scratch, out, body, admission);
        self.answered(cx, answered);
        Step::Ate(total)
    }

    /// Waits for the missing bytes, which the peer must send in time.
    pub(super) fn not_yet(&mut self, cx: &mut Cx<'_>, seen: usize, need: usize, eof: bool) -> Step {
        let limits = cx.engine.limits();
        let waited = cx.now.mono_ms.saturating_sub(self.since_ms);
        // The operator may send requests until the server terminates; a drain does not wait for
        // them.
        let is_over = cx.engine.is_draining() && !cx.peer.is_admin;
        if eof || (seen == 0 && is_over) {
            // The answer to an earlier request may be unsent, and must not be lost.
            return Step::Over(Next::Close);
        }
        if seen == 0 {
            let idle = waited >= limits.keep_alive_idle_ms;
            return if idle { Step::Over(Next::Close) } else { Step::Wait };
        }
        if need == 0 && waited >= limits.head_timeout_ms {
            let limit = Some("head_timeout_ms");
            let why = "the request head did not arrive in time";
            return self.reject_with(cx, RequestRefusal { status: 408, why, limit });
        }
        if need > 0 && self.body_stalls(cx, seen as u64) {
            return self.reject_with(cx, RequestRefusal::SLOW_BODY);
        }
        Step::Wait
    }

    /// Applies the outcome of a request.
    #[inline(always)]
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, answered: Http1Handled) {
        let Http1Handled { handled, session, retained, record } = answered;
        cx.worker.shows(record);
        self.set_state(cx, handled, retained);
        if let Some(session) = session {
            self.state = State::Upgraded(Box::new(Socket::new(*session, cx.now)));
        }
    }

    #[inline(always)]
    pub(super) fn set_state(
        &mut self,
        cx: &Cx<'_>,
        handled: Handled,
        retained: Http1ResponseState,
    ) {
        (self.since_ms, self.retained) = (cx.now.mono_ms, retained);
        if let (Handled::Answered, State::Reading { scanned, need, continued }, false) =
            (&handled, &mut self.state, retained.closes)
        {
            (*scanned, *need, *continued) = (0, 0, false);
            return;
        }
        self.state = match handled {
            Handled::Answered if retained.closes => State::Closed,
            Handled::Answered => FRESH,
            Handled::Pending(pending) => State::Pending(pending),
            Handled::Stream(stream) => State::Streaming(stream),
        };
    }
}
