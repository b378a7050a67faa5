//! Receives the pieces of a request body within the time limits of an HTTP/1.1 body.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;

use crate::limits::HTTP2_UNREAD_MS;

use super::{
    Http2Shared,
    deadline::{Deadline, earlier},
};

/// The start of a window that does not end.
const UNLIMITED: u64 = u64::MAX / 2;

/// The body of a request that is being received.
pub(super) struct Body {
    stream: RecvStream,
    /// The start of the current time window, and the bytes received before it.
    since_ms: u64,
    seen: usize,
    received: usize,
    /// Bytes that were read ahead; the flow-control window was not opened for them.
    ahead: usize,
}

/// The rest of a body after an early answer.
///
/// A client that is reset while it still sends may lose the answer (curl 7.88), so its input is
/// read and discarded. The window stays closed, which bounds the input, and the stream is reset
/// after a time.
pub(super) struct Unread {
    stream: RecvStream,
    ends_ms: u64,
    deadline: Deadline,
}

impl Unread {
    /// Discards received input; ready when the peer has sent all input, or its time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, shared: &Http2Shared) -> Poll<()> {
        while shared.now_ms() < self.ends_ms {
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
                Poll::Pending => {
                    self.deadline.arm(cx, &shared.local, self.ends_ms);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    }
}

/// The result of reading a body.
pub(super) enum Piece {
    /// Some bytes of the body.
    Bytes(Bytes),
    /// The whole body, as received. The window stays closed until [`Body::open_window`], or until
    /// the call ends, when h2 opens it.
    All(Bytes),
    /// The end of the body.
    End,
    /// The body arrives too slowly.
    Slow,
    /// The time `due_ms` has passed.
    Late,
    /// The stream has failed, or the peer has reset it.
    Failed,
}

impl Body {
    /// A body without received bytes, and without time limits except those of its call.
    pub(super) fn new(stream: RecvStream) -> Body {
        Body { stream, since_ms: UNLIMITED, seen: 0, received: 0, ahead: 0 }
    }

    /// Applies the time limits of an HTTP/1.1 body from now on.
    pub(super) fn limit(&mut self, shared: &Http2Shared) {
        self.since_ms = shared.now_ms();
    }

    /// Returns the next piece; the wait ends at `due_ms`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Http2Shared,
        deadline: &mut Deadline,
        due_ms: Option<u64>,
    ) -> Poll<Piece> {
        self.open_window();
        match self.stream.poll_data(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.received += bytes.len();
                if self.received == bytes.len() && self.is_over() {
                    self.ahead = bytes.len();
                    return Poll::Ready(Piece::All(bytes));
                }
                // The window is opened again at once: the receiver of the bytes limits them.
                let _ = self.stream.flow_control().release_capacity(bytes.len());
                return Poll::Ready(Piece::Bytes(bytes));
            }
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Piece::Failed),
            Poll::Ready(None) => {
                self.forget_trailers(cx);
                return Poll::Ready(Piece::End);
            }
            Poll::Pending => {}
        }
        let (now, limits) = (shared.local.clock.now().mono_ms, shared.limits());
        if due_ms.is_some_and(|due_ms| now >= due_ms) {
            return Poll::Ready(Piece::Late);
        }
        if now >= self.since_ms + limits.body_idle_ms {
            if self.received - self.seen < limits.body_progress_bytes_min {
                return Poll::Ready(Piece::Slow);
            }
            (self.since_ms, self.seen) = (now, self.received);
        }
        let due_ms = earlier(due_ms, Some(self.since_ms + limits.body_idle_ms));
        deadline.arm(cx, &shared.local, due_ms);
        Poll::Pending
    }

    /// Opens the window for the bytes that were read ahead.
    pub(super) fn open_window(&mut self) {
        let ahead = std::mem::take(&mut self.ahead);
        if ahead > 0 {
            let _ = self.stream.flow_control().release_capacity(ahead);
        }
    }

    /// Takes a piece before it is needed: h2 would retain a whole read buffer for a single byte.
    /// The window stays closed.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        match self.stream.poll_data(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.received += bytes.len();
                self.ahead += bytes.len();
                Some(bytes)
            }
            // The waiting call sees the end again.
            Poll::Ready(None) => {
                self.forget_trailers(cx);
                None
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => None,
        }
    }

    /// Discards the rest of the body from now on, for at most [`HTTP2_UNREAD_MS`].
    pub(super) fn discard(self, shared: &Http2Shared) -> Unread {
        let ends_ms = shared.now_ms() + HTTP2_UNREAD_MS;
        Unread { stream: self.stream, ends_ms, deadline: Deadline::default() }
    }

    /// Discards trailers, which are not used: h2 would hold them until the call ends.
    fn forget_trailers(&mut self, cx: &mut Context<'_>) {
        let _ = self.stream.poll_trailers(cx);
    }

    /// True: the whole body was received.
    pub(super) fn is_over(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Removes the time limits except those of its call.
    pub(super) fn rest(&mut self) {
        self.since_ms = UNLIMITED;
    }
}
