//! Sends waiting output, and ends a connection.
//!
//! A peer that reads too little of the waiting output is disconnected; the time in which output
//! waits to be durable does not count.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;

use super::{Hangup, Io, Phase, PollEnd, ROUNDS_MAX};
use crate::{
    net::{
        transport::{Transport, poll_read, send},
        worker_state::{WorkerScratch, WorkerState},
    },
    service::Now,
};

/// The answer to an incomplete request whose connection must free its slot for another.
const TIMED_OUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

impl<S: Transport + 'static> Io<S> {
    /// Writes waiting output; true when some was sent.
    pub(super) fn flush(
        &mut self,
        scratch: &mut WorkerScratch,
        local: &WorkerState,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Result<bool, Hangup> {
        if self.is_drained() {
            return Ok(false);
        }
        let (unsent, tap) = (self.output.len(), local.server.engine.tap());
        let held = self.output.held_back();
        let free = held.map_or(unsent, |held| held.free(unsent, tap, cx));
        if free == 0 && unsent > 0 {
            // The peer did not cause this wait.
            self.begin_window(now);
            return self.flush_transport(cx);
        }
        let sent = send(&mut self.stream, &self.output.unsent()[..free], cx)?;
        self.output.sent(sent, &mut scratch.outputs);
        // Always flush: the transport may buffer the bytes that it has just accepted.
        let moved = self.flush_transport(cx)? || sent > 0;
        self.window_bytes = self.window_bytes.saturating_add(sent.min(u32::MAX as usize) as u32);
        let is_over = self.waited_ms(now) >= local.bounds.write_stall_ms;
        if is_over && !self.is_drained() {
            if (self.window_bytes as usize) < local.bounds.write_progress_bytes_min {
                return Err(Hangup);
            }
            self.begin_window(now);
        }
        Ok(moved)
    }

    /// Flushes the transport; true if this has emptied it.
    pub(super) fn flush_transport(&mut self, cx: &mut Context<'_>) -> Result<bool, Hangup> {
        if self.stream.is_flushed() {
            return Ok(false);
        }
        Ok(Pin::new(&mut self.stream).poll_flush(cx)?.is_ready())
    }

    /// Ends the connection without waiting. An incomplete request is refused; output that the
    /// socket does not accept now is lost.
    #[cold]
    pub(super) fn end_for_another(
        &mut self,
        scratch: &mut WorkerScratch,
        local: &WorkerState,
        now: Now,
        cx: &mut Context<'_>,
    ) {
        if self.flush(scratch, local, now, cx).is_err() || !self.is_drained() {
            return;
        }
        let is_refused = self.phase == Phase::Open && self.conn.is_mid_request();
        if is_refused && send(&mut self.stream, TIMED_OUT, cx).is_err() {
            return;
        }
        let _ = self.flush_transport(cx);
        // Best effort: after an error the peer sees a closed connection.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
    }

    /// RFC 9112 §9.6: sends waiting output, closes our side, and reads a little longer, so that the
    /// peer is not reset before it has read our answer.
    pub(super) fn close(
        &mut self,
        scratch: &mut WorkerScratch,
        local: &WorkerState,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Result<PollEnd, Hangup> {
        if !self.is_drained() {
            return Ok(PollEnd::Wait);
        }
        if self.phase == Phase::Closing {
            self.input.release(&mut scratch.inputs);
            let ended = self.eof && !self.stream.sends_close_notify();
            if ended || Pin::new(&mut self.stream).poll_shutdown(cx)?.is_pending() {
                return Ok(PollEnd::Done);
            }
            self.phase = Phase::Lingering;
            self.due_ms = now.mono_ms + local.bounds.linger_ms;
        }
        if now.mono_ms >= self.due_ms {
            return Ok(PollEnd::Done);
        }
        for _ in 0..ROUNDS_MAX {
            match poll_read(&mut self.stream, &mut scratch.read, cx)? {
                Poll::Ready(0) => return Ok(PollEnd::Done),
                Poll::Ready(_) => {}
                Poll::Pending => return Ok(PollEnd::Wait),
            }
        }
        Ok(PollEnd::Yield)
    }
}
