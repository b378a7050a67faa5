//! HTTP/2: gRPC, and the HTTP/1.1 service, over one connection.
//!
//! h2 implements the protocol and its windows; the task of the connection polls a new call, which
//! becomes a separate task only if it has to wait. All calls of one read are answered before the
//! connection writes, so their answers are sent together. The limits of HTTP/1.1 bound a peer's
//! memory: for each body, each answer and all buffers together.

mod account;
mod body;
mod connection;
mod deadline;
mod fields;
pub(in crate::net) mod flood;
mod message;
pub(in crate::net) mod permit;
mod refusals;
mod request;
mod rewind;
mod send;
mod services;

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    net::IpAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use h2::server::Builder;
use tokio::io::AsyncWriteExt;

use crate::{
    engine::{Activity, Engine},
    limits::{
        HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_HEAD_LIST_FACTOR, HTTP2_STREAM_WINDOW_BYTES, Limits,
    },
    service::{Peer, PeerCertificate},
};

use super::{
    local_addr::LocalAddr,
    transport::Transport,
    worker_state::{ConnectionPermit, WorkerState},
};

use account::Account;
use connection::Http2Connection;
use fields::Heads;
use flood::Inflow;
use permit::Http2Permit;
use rewind::{Rewind, poll_skip};
use send::{Outgoing, StreamFailed};

/// Maximum bytes of one answer that h2 buffers.
const SEND_BUFFER: usize = 64 * 1024;

/// The state that the calls of one connection share.
struct Http2Shared {
    local: Rc<WorkerState>,
    /// Calls without a complete answer.
    active: Cell<usize>,
    is_secure: bool,
    identity: Option<Box<str>>,
    certificate: Option<PeerCertificate>,
    remote: Option<IpAddr>,
    /// Our side of the connection.
    local_addr: LocalAddr,
    inflow: Inflow,
    account: Arc<Account>,
    /// True: the peer does not respond, and the connection ends by a reset.
    resets: Cell<bool>,
    /// True: the peer sent too many wrong keys, and the connection ends by a GOAWAY.
    sends_goaway: Cell<bool>,
    heads: Heads,
    /// True: an authenticated call was accepted, or the server has no authentication.
    is_authenticated: Cell<bool>,
    /// The client address that a trusted proxy has reported last.
    forwarded: Cell<Option<IpAddr>>,
}

impl Http2Shared {
    fn new(permit: &Http2Permit, peer: Peer<'_>, local_addr: u8, waker: Waker) -> Http2Shared {
        let local = permit.local();
        let limits = local.server.engine.limits();
        let now_ms = local.clock.now().mono_ms;
        Http2Shared {
            local: Rc::clone(local),
            active: Cell::new(0),
            is_secure: peer.is_secure,
            identity: peer.identity.map(Box::from),
            certificate: peer.certificate.cloned(),
            remote: permit.remote(),
            local_addr: local.local_addrs.at(local_addr),
            inflow: Inflow::new(limits.http2_control_frames_max, now_ms),
            account: Arc::new(Account::new(&local.server, waker)),
            resets: Cell::new(false),
            sends_goaway: Cell::new(false),
            heads: Heads::default(),
            is_authenticated: Cell::new(false),
            forwarded: Cell::new(None),
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
        self.local_addr.add_to(Peer {
            is_secure,
            identity,
            certificate: self.certificate.as_ref(),
            remote: self.remote,
            ..Peer::default()
        })
    }
}

/// Counts a call until it ends, and its held bytes while it waits.
struct CallGuard {
    shared: Rc<Http2Shared>,
    /// Bytes counted in the limit of all buffers.
    charged: usize,
}

impl CallGuard {
    fn new(shared: &Rc<Http2Shared>) -> CallGuard {
        shared.active.set(shared.active.get() + 1);
        CallGuard { shared: Rc::clone(shared), charged: 0 }
    }

    /// Counts `held` bytes; [`StreamFailed`]: the buffers have no room for them.
    fn charge(&mut self, held: usize) -> Result<(), StreamFailed> {
        let before = std::mem::replace(&mut self.charged, held);
        let (account, now_ms) = (&self.shared.account, self.shared.now_ms());
        if account.charge(before, held, now_ms) { Ok(()) } else { Err(StreamFailed) }
    }

    /// Stops counting the held bytes.
    fn give_back(&mut self) {
        if self.charged > 0 {
            self.shared.account.give_back(std::mem::take(&mut self.charged));
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.give_back();
        self.shared.active.set(self.shared.active.get() - 1);
    }
}

/// Serves HTTP/2 in a separate task, on a connection that begins with the bytes in `read`, which
/// may be empty. If `http2_connections_max` connections are open and none of these can be ended,
/// the new connection gets a GOAWAY and is closed.
pub(super) fn spawn<S: Transport + 'static>(
    mut stream: S,
    read: &[u8],
    permit: ConnectionPermit,
    local_addr: u8,
) {
    let permit = match Http2Permit::take(permit) {
        Ok(permit) => permit,
        Err(permit) => {
            // Best effort: a peer that does not read the refusal sees a closed connection.
            let within = Duration::from_millis(permit.bounds.linger_ms);
            tokio::task::spawn_local(async move {
                let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
                permit.entry().inspect(|entry| entry.set_waker(&waker));
                let refused = tokio::time::timeout(within, refuse(&mut stream));
                until_ending(|| permit.is_ending(), refused).await;
            });
            return;
        }
    };
    tokio::task::spawn_local(serve(stream, read.to_vec(), permit, local_addr));
}

/// Runs `work` to its end; `None`: the connection had to end before.
async fn until_ending<T>(is_ending: impl Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match is_ending() {
        true => Poll::Ready(None),
        false => work.as_mut().poll(cx).map(Some),
    })
    .await
}

/// The output of a connection beyond `http2_connections_max`: SETTINGS, the first frame of every
/// server, and GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 §6.8).
const REFUSAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

/// Sends the refusal, then reads until the peer has closed its side: closing a socket with unread
/// input resets the connection, and the refusal is lost.
async fn refuse<S: Transport>(stream: &mut S) -> io::Result<()> {
    stream.write_all(REFUSAL).await?;
    stream.shutdown().await?;
    poll_fn(|cx| poll_skip(stream, cx)).await
}

/// Serves HTTP/2 on a connection that begins with the bytes in `read`.
pub(super) async fn serve<S: Transport>(
    stream: S,
    read: Vec<u8>,
    permit: Http2Permit,
    local_addr: u8,
) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    permit.set_waker(&waker);
    permit.note(Activity::Unauthenticated);
    let shared = Rc::new(Http2Shared::new(&permit, stream.peer(), local_addr, waker.clone()));
    let limits = shared.limits();
    let within = Duration::from_millis(limits.head_timeout_ms);
    let handshake = builder(limits).handshake::<_, Outgoing>(Rewind::new(read, stream, &shared));
    let handshake = tokio::time::timeout(within, handshake);
    let handshake = until_ending(|| permit.is_ending(), handshake).await;
    let Some(Ok(Ok(h2))) = handshake else { return };
    let mut connection = Http2Connection::new(h2, shared, permit, waker);
    poll_fn(|cx| connection.poll(cx)).await;
}

fn builder(limits: &Limits) -> Builder {
    let count = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(count(limits.http2_streams_max))
        .max_pending_accept_reset_streams(limits.http2_resets_max)
        // Frames of a call that was refused before its body are not an error.
        .max_concurrent_reset_streams(limits.http2_streams_max)
        .max_local_error_reset_streams(Some(limits.http2_control_frames_max))
        .max_header_list_size(count(limits.head_bytes_max * HTTP2_HEAD_LIST_FACTOR))
        .initial_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}
