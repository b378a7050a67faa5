//! Sending an answer: what waits in h2 is counted until it has left, and a peer that opens no
//! window is given up.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, SendStream};

use super::{Deadline, Http2Shared, account::Account};
use crate::service::tap::DurableWait;

/// An answer above this size that fills its buffer is handed over as it is; another one is copied,
/// and the buffer stays with the worker.
const COPY_MAX: usize = 64 * 1024;

/// Bytes that are counted among all buffers until h2 has sent them.
struct Counted {
    bytes: Vec<u8>,
    /// True: a complete answer, for which the calls behind it wait.
    is_answer: bool,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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

/// The stream is over: the peer has left or was given up.
pub(super) struct Gone;

/// Waits until everything that was recorded so far is durable: what is sent next shows no more.
pub(super) async fn durable(shared: &Http2Shared) {
    let Some(tap) = shared.engine().tap() else { return };
    let record = tap.recorded();
    let mut wait = DurableWait::default();
    poll_fn(|cx| match wait.is_durable(&**tap, record, cx.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Takes a complete answer out of a worker's buffer; [`Gone`]: the buffers have no room for it.
pub(super) fn take(out: &mut Vec<u8>, shared: &Http2Shared) -> Result<Bytes, Gone> {
    counted(out, shared, true)
}

/// Takes a piece of a stream as [`take`] does an answer.
pub(super) fn take_piece(out: &mut Vec<u8>, shared: &Http2Shared) -> Result<Bytes, Gone> {
    counted(out, shared, false)
}

fn counted(out: &mut Vec<u8>, shared: &Http2Shared, is_answer: bool) -> Result<Bytes, Gone> {
    let bytes = match out.len() {
        0 => return Ok(Bytes::new()),
        // Room that is not used would be counted for as long as the answer waits.
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
    let counted = Counted { bytes, is_answer, account };
    if has_room { Ok(Bytes::from_owner(counted)) } else { Err(Gone) }
}

/// Sends `bytes` as fast as the peer takes them, and ends the stream behind them if `is_last`.
///
/// `due_ms`: returns `Ok(false)` at that time, with the rest unsent.
pub(super) async fn send(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    is_last: bool,
    shared: &Http2Shared,
    deadline: &mut Deadline,
    due_ms: u64,
) -> Result<bool, Gone> {
    if bytes.is_empty() {
        if is_last {
            stream.send_data(bytes, true).map_err(|_| Gone)?;
        }
        return Ok(true);
    }
    let limits = shared.limits();
    let mut since_ms = shared.local.clock.now().mono_ms;
    // Bytes that the peer has taken since then.
    let mut taken = 0;
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|cx: &mut Context<'_>| {
            let now = shared.local.clock.now().mono_ms;
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(room))) => return Poll::Ready(Ok(Some(room))),
                Poll::Ready(_) => return Poll::Ready(Err(Gone)),
                Poll::Pending => {}
            }
            if now >= since_ms + limits.write_stall_ms {
                if taken < limits.write_progress_bytes_min {
                    return Poll::Ready(Err(Gone));
                }
                (since_ms, taken) = (now, 0);
            }
            if now >= due_ms {
                return Poll::Ready(Ok(None));
            }
            deadline.arm(cx, due_ms.min(since_ms + limits.write_stall_ms));
            Poll::Pending
        });
        let room = match room.await {
            Ok(Some(room)) => room,
            Ok(None) => return Ok(false),
            Err(gone) => {
                stream.send_reset(Reason::ENHANCE_YOUR_CALM);
                return Err(gone);
            }
        };
        let piece = bytes.split_to(room.min(bytes.len()));
        taken += piece.len();
        let ends = is_last && bytes.is_empty();
        shared.inflow.sent(piece.len());
        stream.send_data(piece, ends).map_err(|_| Gone)?;
    }
    Ok(true)
}
