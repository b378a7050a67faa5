//! A response over HTTP/2.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h2::RecvStream;
use http::{HeaderMap, response::Parts};

use crate::{
    client::{ClientLimits, TransportError},
    net::client::due::{ClientClock, Due, NEVER_MS},
};

use super::{Http2Mark, failure};

/// The timer of the silence between two pieces of content.
pub(super) struct IdleTimer {
    pub(super) due: Due,
    pub(super) clock: ClientClock,
    pub(super) idle_ms: u64,
}

/// The head of a response, and the rest of its content.
pub(crate) struct Http2Response {
    head: Parts,
    body: RecvStream,
    /// Received content that was not returned yet; returning it reopens the flow-control window.
    piece: Bytes,
    trailers: Option<HeaderMap>,
    is_over: bool,
    /// Bytes of content that may still arrive; `None` for a stream of events.
    remaining: Option<u64>,
    idle: IdleTimer,
    silent_ms: u64,
    /// The connection's count of reads at the start of the silence.
    silent_reads: u64,
    in_use: Arc<Http2Mark>,
}

impl Http2Response {
    /// A response with a complete head.
    pub(super) fn new(
        head: Parts,
        body: RecvStream,
        limits: &ClientLimits,
        idle: IdleTimer,
        in_use: Arc<Http2Mark>,
    ) -> Http2Response {
        let media = head.headers.get("content-type").map_or(&[][..], |value| value.as_bytes());
        // The reader of a stream, of events or of messages, bounds each item.
        let is_stream = [&b"text/event-stream"[..], b"application/grpc"]
            .iter()
            .any(|name| media.get(..name.len()).is_some_and(|m| m.eq_ignore_ascii_case(name)));
        let remaining = (!is_stream).then_some(limits.body_bytes_max as u64);
        let (piece, trailers, is_over) = (Bytes::new(), None, false);
        Http2Response {
            head,
            body,
            piece,
            trailers,
            is_over,
            remaining,
            idle,
            silent_ms: 0,
            silent_reads: 0,
            in_use,
        }
    }

    /// The status.
    pub(crate) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// The first field of this name in the head, else in the trailers.
    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        let trailer = || self.trailers.as_ref().and_then(|trailers| trailers.get(name));
        self.head.headers.get(name).or_else(trailer).map(|value| value.as_bytes())
    }

    /// All values of this name in the head.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.head.headers.get_all(name).iter().map(|value| value.as_bytes())
    }

    /// As [`HttpResponse::poll_read`](crate::client::HttpResponse::poll_read).
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        if self.is_over {
            return Poll::Ready(Ok(false));
        }
        while self.piece.is_empty() {
            let next = match self.body.poll_data(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    ready!(self.poll_silent(cx));
                    return Poll::Ready(Err(TransportError::Timeout("byte of the body")));
                }
            };
            self.silent_ms = 0;
            match next {
                Some(Ok(piece)) => self.take_in(piece)?,
                Some(Err(error)) => return Poll::Ready(Err(self.failed(&error))),
                None => return self.poll_end(cx).map_ok(|()| false),
            }
        }
        let count = self.piece.len().min(room.max(1));
        out.extend_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        let opened = self.body.flow_control().release_capacity(count);
        opened.map_err(|error| self.failed(&error))?;
        Poll::Ready(Ok(true))
    }

    /// The error for content that failed to arrive.
    fn failed(&self, error: &h2::Error) -> TransportError {
        self.in_use.cause().unwrap_or_else(|| failure(error, false))
    }

    fn take_in(&mut self, piece: Bytes) -> Result<(), TransportError> {
        if let Some(remaining) = &mut self.remaining {
            let rest = remaining.checked_sub(piece.len() as u64);
            *remaining = rest.ok_or(TransportError::TooLarge("body_bytes_max"))?;
        }
        self.piece = piece;
        Ok(())
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        let trailers = match self.body.poll_trailers(cx) {
            Poll::Ready(trailers) => trailers,
            Poll::Pending => {
                ready!(self.poll_silent(cx));
                return Poll::Ready(Err(TransportError::Timeout("byte of the body")));
            }
        };
        self.trailers = trailers.map_err(|error| self.failed(&error))?;
        self.is_over = true;
        Poll::Ready(Ok(()))
    }

    /// Ready when no content was received for `idle_ms`. If the whole connection was silent, it
    /// accepts no more requests.
    fn poll_silent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let IdleTimer { due, clock, idle_ms } = &mut self.idle;
        if *idle_ms == NEVER_MS {
            return Poll::Pending;
        }
        if self.silent_ms == 0 {
            self.silent_ms = clock.now_ms().saturating_add(*idle_ms);
            self.silent_reads = self.in_use.reads();
        }
        ready!(due.poll(cx, *clock, self.silent_ms));
        self.in_use.waited(self.silent_reads);
        Poll::Ready(())
    }
}
