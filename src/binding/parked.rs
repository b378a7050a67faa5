//! Calls whose tasks are not ready yet: one call, or what is left of a batch.

use std::task::{Poll, Waker};

use crate::{
    binding::{carrier::Carrier, envelope::Envelope},
    dialect::{Method, WriteCx},
    fault::{Fault, FaultKind},
    permits::Permit,
    service::{Answer, Outcome, Service, WaitHandle},
};

/// One call that waits.
pub struct ParkedCall {
    /// What it waits for.
    pub wait: WaitHandle,
    /// The request's id, as it stood in the body; `None` over HTTP+JSON.
    pub id: Option<Box<[u8]>>,
    /// The method.
    pub method: &'static Method,
}

/// Bytes of the bell that hangs at a task for each call, and of its places in lists.
const BELL_BYTES: usize = 64;

/// All that one HTTP request, or one message of a WebSocket, waits for.
pub struct Parked {
    /// The calls that are not answered yet; never empty.
    pub calls: Vec<ParkedCall>,
    /// The answers of a batch so far, without brackets; `None` for a single call.
    pub batch: Option<Vec<u8>>,
    /// The HTTP status of a fault that is answered alone.
    pub status: fn(&Fault) -> u16,
    /// The media type of the answer.
    pub media: &'static str,
    /// Bytes of a batch's answers beyond which the rest of its calls are refused.
    pub answer_bytes_max: usize,
    /// How the answer travels.
    pub carrier: Carrier,
    /// More fields for the head of a response, each with its line end.
    pub fields: Vec<u8>,
    /// True: the connection closes behind the answer.
    pub close: bool,
    /// The place among the parked calls.
    pub permit: Permit,
}

impl Parked {
    /// Bytes of a batch that waits: its answers so far, and the calls without one.
    pub fn held_bytes(&self) -> usize {
        let Some(answers) = &self.batch else { return 0 };
        let ids: usize =
            self.calls.iter().filter_map(|call| call.id.as_deref()).map(<[u8]>::len).sum();
        let calls = self.calls.capacity() * size_of::<ParkedCall>() + self.calls.len() * BELL_BYTES;
        answers.capacity() + calls + ids
    }

    /// Answers every call whose task is ready; writes the response when none is left.
    ///
    /// Returns true when the response is written.
    pub fn settle(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        out: &mut Vec<u8>,
        date: &[u8; 29],
    ) -> bool {
        let fields = &self.fields[..];
        match &mut self.batch {
            None => {
                let Some(call) = self.calls.first_mut() else { return true };
                let mark = self.carrier.begin(out, self.media, date, fields, self.close);
                let Some(status) = settle_one(call, self.status, false, service, wake, out) else {
                    mark.rollback(out);
                    return false;
                };
                mark.finish_with(out, (status, self.media), date, fields, self.close);
            }
            Some(answers) => {
                self.calls.retain_mut(|call| {
                    let at = answers.len();
                    if at > 0 {
                        answers.push(b',');
                    }
                    let is_full = at > self.answer_bytes_max;
                    let settled =
                        settle_one(call, self.status, is_full, service, wake, answers).is_some();
                    if !settled {
                        answers.truncate(at);
                    }
                    !settled
                });
                if !self.calls.is_empty() {
                    return false;
                }
                let mark = self.carrier.begin(out, self.media, date, fields, self.close);
                out.push(b'[');
                out.append(answers);
                out.push(b']');
                mark.finish(out);
            }
        }
        true
    }
}

/// Polls a call that waits for an answer and cannot be answered by a stream.
pub(super) fn poll_answer(
    service: &dyn Service,
    wait: &mut WaitHandle,
    wake: &Waker,
    answer: &mut Answer<'_>,
) -> Poll<Result<(), Fault>> {
    match service.poll(wait, wake, answer) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(Outcome::Answered)) => Poll::Ready(Ok(())),
        Poll::Ready(Ok(Outcome::Pending(next))) => {
            *wait = next;
            // It is polled in the next turn: one that never ends holds nobody else up.
            wake.wake_by_ref();
            Poll::Pending
        }
        Poll::Ready(Ok(Outcome::Stream { .. })) => Poll::Ready(Err(FaultKind::Internal.into())),
        Poll::Ready(Err(fault)) => Poll::Ready(Err(fault)),
    }
}

/// What the calls of a batch hear whose answers would make it too large.
pub(super) fn too_large() -> Fault {
    Fault::because(
        FaultKind::Overloaded,
        "the answers of this batch are too large (answer_bytes_max); ask for less",
    )
}

/// Writes the answer of one call and returns its HTTP status; `None`: not ready, nothing written.
fn settle_one(
    call: &mut ParkedCall,
    status: fn(&Fault) -> u16,
    is_full: bool,
    service: &dyn Service,
    wake: &Waker,
    out: &mut Vec<u8>,
) -> Option<u16> {
    let (at, cx) = (out.len(), WriteCx::new(call.method.op));
    let envelope = Envelope::of(call.id.as_deref());
    envelope.open_result(out);
    let polled = poll_answer(service, &mut call.wait, wake, &mut |reply| {
        // What is refused anyway need not be written first.
        if !is_full {
            (call.method.wire_of(&reply).reply)(out, &reply, &cx);
        }
    });
    let status = match polled {
        Poll::Pending => {
            out.truncate(at);
            return None;
        }
        Poll::Ready(Ok(())) if !is_full => 200,
        Poll::Ready(outcome) => {
            let fault = outcome.err().unwrap_or_else(too_large);
            out.truncate(at);
            envelope.open_error(out);
            (call.method.wire.fault)(out, &fault, &cx);
            status(&fault)
        }
    };
    envelope.close(out);
    Some(status)
}
