//! HTTP/2: gRPC, and everything else that HTTP/1.1 serves, over one connection.
//!
//! h2 speaks the protocol and keeps its windows; a call is polled where it arrives and becomes a
//! task of its own only if it has to wait. All calls that one read brought are answered before the
//! connection writes, so they leave together. What a peer can hold is bounded by the limits of
//! HTTP/1.1: each body, each answer and all buffers together.

mod account;
mod body;
mod fields;
mod flood;
mod grpc;
mod host;
mod message;
mod metadata;
mod request;
mod rewind;
mod send;
mod services;

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong, Reason, RecvStream,
    server::{Builder, Connection, SendResponse},
};
use http::{Method, Request, header};
use smallvec::SmallVec;
use tokio::io::AsyncWriteExt;

use crate::{
    binding::grpc::is_media,
    engine::Engine,
    limits::{HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_STREAM_WINDOW_BYTES, Limits},
    service::Peer,
};

use super::{
    local_addr::LocalAddr,
    server_state::Stage,
    transport::Transport,
    wheel::{NEVER, TimerSlot},
    worker_state::{ConnectionPermit, WorkerState},
};

use account::Account;
use fields::DateValue;
use flood::Inflow;
use rewind::{Rewind, poll_skip};

/// What h2 takes of one answer before it wants to be rid of it.
const SEND_BUFFER: usize = 64 * 1024;

/// What the calls of one connection share.
struct Http2Shared {
    local: Rc<WorkerState>,
    /// Calls without a complete answer.
    active: Cell<usize>,
    is_secure: bool,
    identity: Option<Box<str>>,
    /// Our side of the connection.
    local_addr: LocalAddr,
    /// The authority of the last gRPC call that was let in.
    served: RefCell<Option<Rc<str>>>,
    inflow: Inflow,
    account: Arc<Account>,
    /// True: the peer does not answer, and the connection ends by a reset.
    resets: Cell<bool>,
    date: DateValue,
}

impl Http2Shared {
    fn new(local: &Rc<WorkerState>, peer: Peer<'_>, local_addr: u8, waker: Waker) -> Http2Shared {
        let limits = local.server.engine.limits();
        let now_ms = local.clock.now().mono_ms;
        Http2Shared {
            local: Rc::clone(local),
            active: Cell::new(0),
            is_secure: peer.is_secure,
            identity: peer.identity.map(Box::from),
            local_addr: local.local_addrs.at(local_addr),
            served: RefCell::default(),
            inflow: Inflow::new(limits.http2_control_frames_max, now_ms),
            account: Arc::new(Account::new(&local.server, waker)),
            resets: Cell::new(false),
            date: DateValue::default(),
        }
    }

    fn engine(&self) -> &Engine {
        &self.local.server.engine
    }

    fn limits(&self) -> &Limits {
        self.engine().limits()
    }

    fn now_ms(&self) -> u64 {
        self.local.clock.now().mono_ms
    }

    fn peer(&self) -> Peer<'_> {
        let (is_secure, identity) = (self.is_secure, self.identity.as_deref());
        self.local_addr.known_to(Peer { is_secure, identity, ..Peer::default() })
    }
}

/// Counts a call for as long as it lives.
struct CallGuard(Rc<Http2Shared>);

impl CallGuard {
    fn new(shared: &Rc<Http2Shared>) -> CallGuard {
        shared.active.set(shared.active.get() + 1);
        CallGuard(Rc::clone(shared))
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

/// A deadline of whoever polls it, in the worker's wheel; it also hears the end of the server.
struct Deadline {
    local: Rc<WorkerState>,
    slot: Option<(TimerSlot, Waker)>,
}

impl Deadline {
    fn new(local: &Rc<WorkerState>) -> Deadline {
        Deadline { local: Rc::clone(local), slot: None }
    }

    /// Wakes the caller at `due_ms` of the monotonic clock, and when the server drains.
    fn arm(&mut self, cx: &Context<'_>, due_ms: u64) {
        let slot = match &self.slot {
            Some((slot, waker)) if waker.will_wake(cx.waker()) => *slot,
            _ => {
                self.disarm();
                let slot = self.local.wheel.borrow_mut().insert(cx.waker().clone());
                self.slot = Some((slot, cx.waker().clone()));
                slot
            }
        };
        self.local.arm(slot, due_ms);
    }

    fn disarm(&mut self) {
        if let Some((slot, _)) = self.slot.take() {
            self.local.wheel.borrow_mut().remove(slot);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// Serves HTTP/2 in a task of its own, on a connection of which `read` has been read already; it
/// may be empty. Beyond `http2_connections_max` it is told to go, and nothing of it is kept.
pub(super) fn spawn<S: Transport + 'static>(
    mut stream: S,
    read: &[u8],
    permit: ConnectionPermit,
    local_addr: u8,
) {
    let Some(http2_permit) = permit.server.http2.permit(permit.worker) else {
        // Best effort: whoever does not read it sees a closed connection.
        let within = Duration::from_millis(permit.bounds.linger_ms);
        tokio::task::spawn_local(async move {
            let _ = tokio::time::timeout(within, refuse(&mut stream)).await;
            drop(permit);
        });
        return;
    };
    let read = read.to_vec();
    tokio::task::spawn_local(async move {
        serve(stream, read, Rc::clone(permit.local()), local_addr).await;
        drop((http2_permit, permit));
    });
}

/// What a connection beyond `http2_connections_max` is told: SETTINGS, as every server begins, and
/// GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 §6.8).
const REFUSAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

/// Says the refusal, and reads until the peer has ended its side, too: what lies unread when a
/// socket is closed resets the connection, and takes the refusal with it.
async fn refuse<S: Transport>(stream: &mut S) -> io::Result<()> {
    stream.write_all(REFUSAL).await?;
    stream.shutdown().await?;
    poll_fn(|cx| poll_skip(stream, cx)).await
}

async fn serve<S: Transport>(stream: S, read: Vec<u8>, local: Rc<WorkerState>, local_addr: u8) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let shared = Rc::new(Http2Shared::new(&local, stream.peer(), local_addr, waker));
    let limits = shared.limits();
    let within = Duration::from_millis(limits.head_timeout_ms);
    let handshake = builder(limits).handshake::<_, Bytes>(Rewind::new(read, stream, &shared));
    let Ok(Ok(mut h2)) = tokio::time::timeout(within, handshake).await else { return };
    let pings = h2.ping_pong();
    let (deadline, moved_ms) = (Deadline::new(&local), local.clock.now().mono_ms);
    let mut connection = Http2Connection {
        h2,
        pings,
        shared,
        deadline,
        moved_ms,
        asked_ms: None,
        is_leaving: false,
        ends_ms: None,
    };
    poll_fn(|cx| connection.poll(cx)).await;
}

fn builder(limits: &Limits) -> Builder {
    let count = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(count(limits.http2_streams_max))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        // What comes for a call that was refused before its body was there is no mistake.
        .max_concurrent_reset_streams(limits.http2_streams_max)
        .max_local_error_reset_streams(Some(limits.http2_control_frames_max))
        .max_header_list_size(count(limits.head_bytes_max))
        .initial_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

/// One connection.
struct Http2Connection<S: Transport> {
    h2: Connection<Rewind<S>, Bytes>,
    pings: Option<PingPong>,
    shared: Rc<Http2Shared>,
    deadline: Deadline,
    /// When a call came, or an answer to a ping.
    moved_ms: u64,
    /// When a ping was sent that has no answer yet, or the goodbye.
    asked_ms: Option<u64>,
    /// True: the peer was told to go.
    is_leaving: bool,
    /// When a connection that flooded us is let go, whether or not it has heard why.
    ends_ms: Option<u64>,
}

impl<S: Transport> Http2Connection<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.local.server.stage() != Stage::Serving {
            self.leave();
        }
        if self.shared.account.is_cut() {
            return self.reset();
        }
        if self.shared.local.server.buffers.is_full() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.shared.inflow.begin_turn();
        loop {
            // All that h2 has: while it waits there, a head takes several times its bytes.
            let mut calls: SmallVec<[AcceptedCall; 8]> = SmallVec::new();
            loop {
                match self.h2.poll_accept(cx) {
                    Poll::Ready(Some(Ok(call))) => {
                        self.shared.inflow.called();
                        calls.push(call);
                    }
                    // What is still open hears of it from h2.
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            if calls.is_empty() {
                break;
            }
            self.moved_ms = self.shared.local.clock.now().mono_ms;
            for (request, respond) in calls {
                start(&self.shared, request, respond, cx);
            }
        }
        self.shared.inflow.end_turn(self.shared.local.clock.now().mono_ms);
        if self.shared.inflow.is_flooded() {
            return self.calm(cx);
        }
        self.watch(cx)
    }

    /// Ends a connection that sent too many frames without use.
    fn calm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shared.local.clock.now().mono_ms;
        let ends_ms = *self.ends_ms.get_or_insert_with(|| {
            self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            // It leaves with the next poll.
            cx.waker().wake_by_ref();
            now + self.shared.limits().linger_ms
        });
        self.deadline.arm(cx, ends_ms);
        if now < ends_ms { Poll::Pending } else { Poll::Ready(()) }
    }

    fn reset(&mut self) -> Poll<()> {
        self.shared.resets.set(true);
        Poll::Ready(())
    }

    fn leave(&mut self) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.h2.graceful_shutdown();
        }
    }

    /// Ends a connection that is idle, and one whose peer no longer answers.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shared.local.clock.now().mono_ms;
        let (limits, is_idle) = (self.shared.limits(), self.shared.active.get() == 0);
        let (stall_ms, quiet_ms) = match is_idle {
            true => (limits.write_stall_ms, limits.keep_alive_idle_ms),
            false => (limits.write_stall_ms, limits.sse_keep_alive_ms),
        };
        if let Some(pings) = &mut self.pings
            && let Poll::Ready(answer) = pings.poll_pong(cx)
        {
            if answer.is_err() {
                return Poll::Ready(());
            }
            (self.asked_ms, self.moved_ms) = (None, now);
        }
        let due_ms = match self.asked_ms {
            Some(asked_ms) if now >= asked_ms + stall_ms => {
                return if is_idle { Poll::Ready(()) } else { self.reset() };
            }
            Some(asked_ms) => asked_ms + stall_ms,
            None if now < self.moved_ms + quiet_ms => self.moved_ms + quiet_ms,
            None => {
                self.asked_ms = Some(now);
                if is_idle {
                    self.leave();
                } else if let Some(pings) = &mut self.pings {
                    // One that is under way already will do as well.
                    let _ = pings.send_ping(Ping::opaque());
                }
                // What was just asked for leaves with the next poll.
                cx.waker().wake_by_ref();
                now + stall_ms
            }
        };
        self.deadline.arm(cx, due_ms);
        Poll::Pending
    }
}

type AcceptedCall = (Request<RecvStream>, SendResponse<Bytes>);

/// Answers a call at once if it can be, and in a task of its own otherwise.
fn start(
    shared: &Rc<Http2Shared>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    cx: &mut Context<'_>,
) {
    let guard = CallGuard::new(shared);
    let mut answer: Pin<Box<dyn Future<Output = ()>>> = match is_grpc(&request) {
        true => Box::pin(grpc::answer(guard, request, respond)),
        false => Box::pin(request::answer(guard, request, respond)),
    };
    if answer.as_mut().poll(cx).is_pending() {
        tokio::task::spawn_local(answer);
    }
}

/// Whether it is a call of gRPC.
fn is_grpc(request: &Request<RecvStream>) -> bool {
    let media = request.headers().get(header::CONTENT_TYPE);
    request.method() == Method::POST && media.is_some_and(|media| is_media(media.as_bytes()))
}

/// The earlier of two deadlines.
fn earlier(a: Option<u64>, b: Option<u64>) -> u64 {
    a.unwrap_or(NEVER).min(b.unwrap_or(NEVER))
}
