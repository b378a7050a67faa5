//! A transport that can be moved to the driver of HTTP/2.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::service::Peer;

use super::{transport::Transport, worker_state::ConnectionPermit};

/// Holds a transport until it is moved; then every operation fails, as on a closed transport.
pub(super) struct Detachable<S>(Option<S>);

impl<S> Detachable<S> {
    /// Wraps a transport.
    pub(super) fn new(stream: S) -> Detachable<S> {
        Detachable(Some(stream))
    }

    fn get(&mut self) -> io::Result<&mut S> {
        self.0.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: Transport + 'static> Detachable<S> {
    /// Moves the transport, and the bytes read from it, to the driver of HTTP/2.
    pub(super) fn move_to_http2(&mut self, read: &[u8], permit: ConnectionPermit, local_addr: u8) {
        #[cfg(feature = "grpc")]
        if let Some(stream) = self.0.take() {
            super::http2::spawn(stream, read, permit, local_addr);
        }
        // Without the feature the engine never requests HTTP/2.
        #[cfg(not(feature = "grpc"))]
        let _ = (read, permit, local_addr);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Detachable<S> {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.get()?).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Detachable<S> {
    #[inline]
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get()?).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get()?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get()?).poll_shutdown(cx)
    }
}

impl<S: Transport> Transport for Detachable<S> {
    fn peer(&self) -> Peer<'_> {
        self.0.as_ref().map_or_else(Peer::default, Transport::peer)
    }

    fn is_read_closed(&self) -> bool {
        self.0.as_ref().is_none_or(Transport::is_read_closed)
    }

    fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Transport::held_bytes)
    }

    fn is_flushed(&self) -> bool {
        self.0.as_ref().is_none_or(Transport::is_flushed)
    }

    fn sends_close_notify(&self) -> bool {
        self.0.as_ref().is_some_and(Transport::sends_close_notify)
    }

    fn reset_on_close(&self) {
        if let Some(stream) = &self.0 {
            stream.reset_on_close();
        }
    }
}
