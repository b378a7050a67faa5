//! A connected byte stream to an origin: a socket, or a TLS session on one.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// A connection, as HTTP/1.x and HTTP/2 use it.
pub(super) struct Link {
    stream: LinkStream,
    /// True: the peer is a proxy that expects absolute URLs (RFC 9112 §3.2.2).
    pub(super) to_proxy: bool,
}

enum LinkStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Link {
    /// A plain connection.
    pub(super) fn plain(stream: TcpStream) -> Link {
        Link { stream: LinkStream::Plain(stream), to_proxy: false }
    }

    /// A connection to a proxy that expects absolute URLs.
    pub(super) fn to_proxy(stream: TcpStream) -> Link {
        Link { stream: LinkStream::Plain(stream), to_proxy: true }
    }

    /// A plain connection on this machine.
    pub(super) fn unix(stream: UnixStream) -> Link {
        Link { stream: LinkStream::Unix(stream), to_proxy: false }
    }

    /// A session of TLS.
    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Link {
        Link { stream: LinkStream::Tls(Box::new(stream)), to_proxy: false }
    }

    /// The socket of a connection without TLS.
    pub(super) fn into_plain(self) -> Option<TcpStream> {
        match self.stream {
            LinkStream::Plain(stream) => Some(stream),
            LinkStream::Tls(_) | LinkStream::Unix(_) => None,
        }
    }

    /// True: the server has closed the idle connection, or has sent bytes without a request.
    /// Usually this needs no system call: the runtime's readiness flags show it.
    pub(super) fn is_stale(&mut self) -> bool {
        let looked = match &self.stream {
            LinkStream::Plain(socket) => socket.try_io(Interest::READABLE, || Ok(())),
            LinkStream::Tls(session) => session.get_ref().0.try_io(Interest::READABLE, || Ok(())),
            LinkStream::Unix(socket) => socket.try_io(Interest::READABLE, || Ok(())),
        };
        if looked.is_err() {
            return false;
        }
        // Readable bytes of a session may be a new ticket, not content.
        let mut byte = [0];
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(self).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_ready()
    }

    /// Reads once, and appends to `input`; ready: the number of bytes, 0 at the end.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            LinkStream::Plain(socket) => pin!(socket.read_buf(input)).poll(cx),
            LinkStream::Tls(session) => pin!(session.read_buf(input)).poll(cx),
            LinkStream::Unix(socket) => pin!(socket.read_buf(input)).poll(cx),
        }
    }
}

/// The error of a session that accepts no more bytes. Its server may have sent an alert (RFC 8446
/// §6.2) before it closed, such as a missing client certificate. After a reset, the alert is lost.
#[cold]
fn alert_or(session: &mut TlsStream<TcpStream>, error: io::Error) -> io::Error {
    let mut bytes = [0; 1024];
    let cx = &mut Context::from_waker(Waker::noop());
    match Pin::new(session).poll_read(cx, &mut ReadBuf::new(&mut bytes)) {
        Poll::Ready(Err(alert)) if alert.kind() == io::ErrorKind::InvalidData => alert,
        Poll::Ready(_) | Poll::Pending => error,
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            LinkStream::Plain(socket) => Pin::new(socket).poll_read(cx, room),
            LinkStream::Tls(session) => Pin::new(&mut **session).poll_read(cx, room),
            LinkStream::Unix(socket) => Pin::new(socket).poll_read(cx, room),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            // Fast path: a socket usually has room, and the write then does not use the runtime.
            LinkStream::Plain(socket) => match socket.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Pin::new(socket).poll_write(cx, bytes)
                }
                sent => Poll::Ready(sent),
            },
            LinkStream::Tls(session) => {
                let sent = Pin::new(&mut **session).poll_write(cx, bytes);
                sent.map_err(|error| alert_or(session, error))
            }
            LinkStream::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            LinkStream::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            LinkStream::Tls(session) => {
                let sent = Pin::new(&mut **session).poll_write_vectored(cx, pieces);
                sent.map_err(|error| alert_or(session, error))
            }
            LinkStream::Unix(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            LinkStream::Plain(_) | LinkStream::Unix(_) => Poll::Ready(Ok(())),
            LinkStream::Tls(session) => {
                let flushed = Pin::new(&mut **session).poll_flush(cx);
                flushed.map_err(|error| alert_or(session, error))
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            LinkStream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            LinkStream::Tls(session) => Pin::new(&mut **session).poll_shutdown(cx),
            LinkStream::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
