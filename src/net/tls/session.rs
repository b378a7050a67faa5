//! One TLS connection: its handshake, and then its session as a transport.
//!
//! A connection counts as open from the moment it is accepted, and has `tls_handshake_timeout_ms`
//! for its handshake. A failed handshake is counted, and reported to the peer by an alert if
//! possible.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{Accept, TlsAcceptor, rustls::ServerConfig, server::TlsStream};

use crate::{
    engine::Activity,
    net::{
        drive::Drive, report, server_state::Stage, transport::Transport, wheel::TimerSlot,
        worker_state::ConnectionPermit,
    },
    service::{Grant, Peer},
};

use super::{
    Current,
    name::{self, CertificateNames},
};

/// Bytes of output that a session encrypts ahead of its socket: one record of the largest size (RFC
/// 8446 §5.1), about the number of bytes that a slow peer must read in each window.
const AHEAD_BYTES: usize = 16 * 1024;
/// Maximum bytes that a record adds to its content (RFC 8446 §5.2).
const RECORD_OVERHEAD_BYTES: usize = 256 + 5;

/// Performs the handshake and then serves, as the driver does on a plain socket.
pub(super) async fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    authorities: Arc<Grant>,
    permit: ConnectionPermit,
    local_addr: u8,
) {
    let limit = |session: &mut tokio_rustls::rustls::ServerConnection| {
        session.set_buffer_limit(Some(AHEAD_BYTES));
    };
    let accept = Box::new(TlsAcceptor::from(config).accept_with(stream, limit));
    let timeout_ms = permit.server.live.tls_handshake_timeout_ms();
    let due_ms = permit.clock.now().mono_ms.saturating_add(timeout_ms);
    permit.entry().inspect(|entry| entry.note(Activity::Unauthenticated));
    let is_admin = permit.local_addrs.at(local_addr).is_admin();
    let handshake = Handshake { accept, local: &permit, slot: None, due_ms, is_admin };
    match handshake.await {
        Some(stream) => {
            permit.server.counts.handshakes.fetch_add(1, Ordering::Relaxed);
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
            let stream = TlsConnection::new(stream, &authorities);
            match is_http2 {
                true => serve_http2(stream, permit, local_addr),
                false => Drive::new(stream, permit, local_addr).await,
            }
        }
        None => permit.server.tls.iter().for_each(Current::note_failure),
    }
}

/// RFC 9113 §3.2: a client that has negotiated this protocol speaks only HTTP/2.
const ALPN_HTTP2: &[u8] = b"h2";

#[cfg(feature = "grpc")]
fn serve_http2(stream: TlsConnection, permit: ConnectionPermit, local_addr: u8) {
    crate::net::http2::spawn(stream, &[], permit, local_addr);
}

/// Without the feature no client can negotiate HTTP/2.
#[cfg(not(feature = "grpc"))]
fn serve_http2(_: TlsConnection, _: ConnectionPermit, _: u8) {}

/// A handshake with its deadline; the output is `None` if the handshake failed.
struct Handshake<'s> {
    accept: Box<Accept<TcpStream>>,
    local: &'s ConnectionPermit,
    slot: Option<TimerSlot>,
    due_ms: u64,
    /// True: a connection of the admin listener, which serves until a drain ends.
    is_admin: bool,
}

impl Future for Handshake<'_> {
    type Output = Option<TlsStream<TcpStream>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Handshake { accept, local, slot, due_ms, is_admin } = self.get_mut();
        if let Poll::Ready(done) = Pin::new(&mut **accept).poll(cx) {
            let done = done.inspect_err(|error| report::handshake(local.remote(), error));
            return Poll::Ready(done.ok());
        }
        let slot = *slot.get_or_insert_with(|| {
            local.entry().inspect(|entry| entry.set_waker(cx.waker()));
            local.wheel.borrow_mut().insert(cx.waker().clone())
        });
        let is_late = local.clock.now().mono_ms >= *due_ms;
        if is_late {
            report::handshake(local.remote(), &"it timed out");
        }
        let is_over = local.server.stage() != Stage::Serving && !*is_admin;
        if is_late || local.is_ending() || is_over {
            return Poll::Ready(None);
        }
        local.arm(slot, *due_ms);
        Poll::Pending
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.local.wheel.borrow_mut().remove(slot);
        }
    }
}

/// An established session.
struct TlsConnection {
    stream: Box<TlsStream<TcpStream>>,
    identity: Option<CertificateNames>,
}

impl TlsConnection {
    fn new(stream: TlsStream<TcpStream>, authorities: &Arc<Grant>) -> TlsConnection {
        let shown = stream.get_ref().1.peer_certificates();
        let identity = shown.and_then(|chain| name::of_certificate(chain.first()?, authorities));
        TlsConnection { stream: Box::new(stream), identity }
    }
}

impl Transport for TlsConnection {
    fn peer(&self) -> Peer<'_> {
        let names = self.identity.as_ref();
        let identity = names.map(|names| &*names.name);
        let certificate = names.map(|names| &names.certificate);
        Peer { is_secure: true, identity, certificate, ..Peer::default() }
    }

    fn is_read_closed(&self) -> bool {
        self.stream.get_ref().0.is_read_closed()
    }

    fn is_flushed(&self) -> bool {
        !self.stream.get_ref().1.wants_write()
    }

    fn held_bytes(&self) -> usize {
        if self.is_flushed() { 0 } else { AHEAD_BYTES + RECORD_OVERHEAD_BYTES }
    }

    /// RFC 8446 §6.1: without `close_notify` the peer cannot distinguish an end from a cut.
    fn sends_close_notify(&self) -> bool {
        true
    }

    fn reset_on_close(&self) {
        self.stream.get_ref().0.reset_on_close();
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_read(cx, room)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_shutdown(cx)
    }
}
