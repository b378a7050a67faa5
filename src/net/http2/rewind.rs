//! A transport that first returns bytes that were read before. It counts the received frames, and
//! the refusals of h2.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::net::transport::Transport;

use super::{Http2Shared, flood::Frames, refusals::Refusals};

/// Returns the bytes that were read before, then the bytes of the stream.
pub(super) struct Rewind<S: Transport> {
    read: Vec<u8>,
    consumed: usize,
    stream: S,
    shared: Rc<Http2Shared>,
    frames: Frames,
    refusals: Refusals,
    /// True: something was written.
    has_begun: bool,
    /// True: our side is closed.
    is_shut: bool,
}

impl<S: Transport> Rewind<S> {
    /// `read` comes before the bytes of `stream`.
    pub(super) fn new(read: Vec<u8>, stream: S, shared: &Rc<Http2Shared>) -> Rewind<S> {
        Rewind {
            read,
            consumed: 0,
            stream,
            shared: Rc::clone(shared),
            frames: Frames::new(),
            refusals: Refusals::new(),
            has_begun: false,
            is_shut: false,
        }
    }
}

impl<S: Transport> Drop for Rewind<S> {
    fn drop(&mut self) {
        if self.shared.resets.get() {
            self.stream.reset_on_close();
        }
    }
}

impl<S: Transport> Rewind<S> {
    /// Counts the refusals of h2 in the first `count` bytes of `bufs`, which were written.
    fn wrote(&mut self, bufs: &[io::IoSlice<'_>], mut count: usize) {
        let local = &self.shared.local;
        for buf in bufs {
            let written = count.min(buf.len());
            count -= written;
            self.refusals.scan(&buf[..written], |limit| local.server.refused(local.worker, limit));
        }
    }

    fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let unread = &self.read[self.consumed..];
        let count = unread.len().min(buf.remaining());
        buf.put_slice(&unread[..count]);
        self.consumed += count;
        if self.consumed == self.read.len() {
            self.read = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Transport> AsyncRead for Rewind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.shared.inflow.is_paused() {
            return Poll::Pending;
        }
        if me.shared.inflow.is_flooded() {
            // The connection checks for a flood after every poll.
            return Poll::Pending;
        }
        if me.shared.inflow.turn_is_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(me.poll_some(cx, buf))?;
        if buf.filled().len() == before && me.shared.inflow.keeps_end() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Rewind { shared, frames, .. } = me;
        shared.inflow.read(frames, &buf.filled()[before..], || shared.local.clock.now().mono_ms);
        if shared.inflow.is_flooded() {
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Transport> AsyncWrite for Rewind<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_begun = true;
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.wrote(&[io::IoSlice::new(buf)], count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.wrote(bufs, count);
        Poll::Ready(Ok(count))
    }

    /// False at first, when h2 decides to copy content of up to 1 KiB and to write many frames at
    /// once; with true it would write each frame of 256 bytes and more separately.
    fn is_write_vectored(&self) -> bool {
        self.has_begun && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// After a flood the rest of the input is read and ignored: closing a socket with unread input
    /// resets the connection, and the GOAWAY is lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        if !self.shared.inflow.is_flooded() {
            return Poll::Ready(Ok(()));
        }
        poll_skip(&mut self.stream, cx)
    }
}

/// Reads and discards input until the peer has ended its side.
pub(super) fn poll_skip(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut some = [0; 4096];
    while ready!(pin!(stream.read(&mut some)).poll(cx))? > 0 {}
    Poll::Ready(Ok(()))
}
