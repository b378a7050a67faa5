//! Sends an answer: bytes that wait in h2 are counted until h2 has sent them, and the stream of a
//! peer that opens no window is reset.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use h2::{Reason, SendStream};

use super::{Http2Shared, account::Account, deadline::Deadline};

/// An answer above this size that fills more than half of its buffer is moved to h2; other answers
/// are copied, and the worker retains the buffer.
const COPY_MAX: usize = 64 * 1024;

/// Bytes that are sent through h2.
pub(super) enum Outgoing {
    /// A whole piece of output, which is not split.
    Whole(Counted),
    /// A part of a split piece, or uncounted bytes.
    Part(Bytes),
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        !self.has_remaining()
    }

    /// Splits `length` bytes off the front.
    fn split_to(&mut self, length: usize) -> Outgoing {
        let all = std::mem::take(self);
        if length >= all.remaining() {
            return all;
        }
        let mut rest = match all {
            Outgoing::Whole(counted) => Bytes::from_owner(counted),
            Outgoing::Part(bytes) => bytes,
        };
        let first = rest.split_to(length);
        *self = Outgoing::Part(rest);
        Outgoing::Part(first)
    }
}

impl Default for Outgoing {
    fn default() -> Outgoing {
        Outgoing::Part(Bytes::new())
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        match self {
            Outgoing::Whole(counted) => counted.bytes.len() - counted.sent,
            Outgoing::Part(bytes) => bytes.len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Outgoing::Whole(counted) => &counted.bytes[counted.sent..],
            Outgoing::Part(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Outgoing::Whole(counted) => {
                assert!(count <= counted.bytes.len() - counted.sent);
                counted.sent += count;
            }
            Outgoing::Part(bytes) => bytes.advance(count),
        }
    }
}

/// Bytes counted in the limit of all buffers until h2 has sent them.
pub(super) struct Counted {
    bytes: Vec<u8>,
    /// How many of the first bytes h2 has sent; only the rest can be split into parts.
    sent: usize,
    /// True: a complete answer, for which later calls may wait.
    is_answer: bool,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let held = self.bytes.capacity();
        match self.is_answer {
            true => self.account.give_back_answer(held),
            false => self.account.give_back(held),
        }
    }
}

/// The stream cannot continue: its client has disconnected, or it was reset or dropped.
pub(super) struct StreamFailed;

/// Takes a complete answer out of a worker's buffer; [`StreamFailed`]: the buffers have no room for
/// it.
pub(super) fn take(out: &mut Vec<u8>, shared: &Http2Shared) -> Result<Outgoing, StreamFailed> {
    counted(out, shared, true)
}

/// Takes a piece of a stream, like [`take`].
pub(super) fn take_piece(
    out: &mut Vec<u8>,
    shared: &Http2Shared,
) -> Result<Outgoing, StreamFailed> {
    counted(out, shared, false)
}

fn counted(
    out: &mut Vec<u8>,
    shared: &Http2Shared,
    is_answer: bool,
) -> Result<Outgoing, StreamFailed> {
    let bytes = match out.len() {
        0 => return Ok(Outgoing::default()),
        // Unused capacity would be counted as long as the answer waits.
        length if length <= COPY_MAX || length <= out.capacity() / 2 => {
            let bytes = out.as_slice().to_vec();
            out.clear();
            bytes
        }
        _ => std::mem::take(out),
    };
    let account = Arc::clone(&shared.account);
    let has_room = match is_answer {
        true => account.charge_answer(bytes.capacity(), shared.now_ms()),
        false => account.charge(0, bytes.capacity(), shared.now_ms()),
    };
    let counted = Counted { bytes, sent: 0, is_answer, account };
    if has_room { Ok(Outgoing::Whole(counted)) } else { Err(StreamFailed) }
}

/// Output that is being sent to the peer.
pub(super) struct Sending {
    bytes: Outgoing,
    /// True: the stream ends after these bytes.
    is_last: bool,
    /// The start of the peer's current time window, and the bytes sent since then.
    since_ms: u64,
    window_bytes: usize,
}

impl Sending {
    /// Starts to send `bytes`.
    pub(super) fn new(bytes: Outgoing, is_last: bool, shared: &Http2Shared) -> Sending {
        Sending { bytes, is_last, since_ms: shared.now_ms(), window_bytes: 0 }
    }

    /// Sends as fast as the peer reads, and then ends the stream if this is the last output.
    ///
    /// `due_ms`: returns `false` at that time, with the rest unsent.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut SendStream<Outgoing>,
        shared: &Http2Shared,
        deadline: &mut Deadline,
        due_ms: u64,
    ) -> Poll<Result<bool, StreamFailed>> {
        let mut remaining = self.bytes.remaining();
        if remaining == 0 {
            if self.is_last {
                stream.send_data(Outgoing::default(), true).map_err(|_| StreamFailed)?;
            }
            return Poll::Ready(Ok(true));
        }
        loop {
            stream.reserve_capacity(remaining);
            let room = match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => room.min(remaining),
                Poll::Ready(_) => return Poll::Ready(Err(StreamFailed)),
                Poll::Pending => break,
            };
            let piece = self.bytes.split_to(room);
            (self.window_bytes, remaining) = (self.window_bytes + room, remaining - room);
            shared.inflow.sent(room);
            stream.send_data(piece, self.is_last && remaining == 0).map_err(|_| StreamFailed)?;
            if remaining == 0 {
                return Poll::Ready(Ok(true));
            }
        }
        let (now, limits) = (shared.now_ms(), shared.limits());
        if now >= self.since_ms + limits.write_stall_ms {
            if self.window_bytes < limits.write_progress_bytes_min {
                stream.send_reset(Reason::ENHANCE_YOUR_CALM);
                return Poll::Ready(Err(StreamFailed));
            }
            (self.since_ms, self.window_bytes) = (now, 0);
        }
        if now >= due_ms {
            return Poll::Ready(Ok(false));
        }
        let due_ms = due_ms.min(self.since_ms + limits.write_stall_ms);
        deadline.arm(cx, &shared.local, due_ms);
        Poll::Pending
    }
}
