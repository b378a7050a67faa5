//! Calls that wait for their task, and streams on their way to one subscriber.

use std::task::{Poll, Waker};

use crate::{
    dialect::{Method, WriteCx},
    fault::{Fault, FaultKind},
    permits::Permit,
    service::{self, Cursor, Follow, Outcome, Service, StreamResponse, WaitHandle},
};

use super::{A2aRpc, Answer, Code, Status, push_event};

/// A call that waits.
pub struct Parked {
    /// What it waits for.
    pub wait: WaitHandle,
    /// Which call.
    pub rpc: &'static A2aRpc,
    /// What it does.
    pub method: &'static Method,
    /// The place among the parked calls.
    pub _permit: Permit,
}

impl Parked {
    /// Appends the answer if the task is ready, and registers `wake` otherwise.
    pub fn settle(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), Fault>> {
        let write = WriteCx::new(self.method.op);
        let mut answer = Answer::begin(self.rpc, self.method, out);
        let polled = poll_answer(service, &mut self.wait, wake, &mut |reply| {
            answer.push(out, reply, &write)
        });
        match polled {
            Poll::Ready(Ok(())) => answer.finish(out),
            Poll::Ready(Err(_)) | Poll::Pending => out.truncate(answer.start),
        }
        polled
    }
}

/// A stream on its way to one subscriber.
pub struct Pump {
    /// Where it is.
    pub cursor: Cursor,
    /// Which call.
    pub rpc: &'static A2aRpc,
    /// What it does.
    pub method: &'static Method,
    /// At most this many messages of history in a snapshot.
    pub history: Option<u32>,
    /// The sequence of the first message, once it is known: from there the subscriber counts.
    pub first: Option<u64>,
    /// The sequence of the next message: each is one more than the one before.
    pub next: u64,
    /// The place among the open streams.
    pub _permit: Permit,
}

/// What a subscriber can expect next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// Nothing now; the waker is registered.
    Pending,
    /// There is more when there is room.
    More,
    /// The stream is complete.
    End,
    /// The stream ends early, with this.
    Cut(Status),
}

impl Pump {
    /// Appends framed messages until `out` holds `high_water` bytes.
    ///
    /// A message has no place for its sequence number, so a subscriber counts. One that comes back
    /// from behind the replay window begins with a snapshot, whatever it has seen; one that must be
    /// given a snapshot in between is cut off, and subscribes anew.
    pub fn pump(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        out: &mut Vec<u8>,
        high_water: usize,
    ) -> Pumped {
        let Pump { cursor, rpc, method, history, first, next, _permit: _ } = self;
        let write = WriteCx { history: *history, ..WriteCx::new(method.op) };
        let mut is_behind = false;
        let follow = service.follow(cursor, wake, &mut |item| {
            let seq = match item {
                StreamResponse::Snapshot(view) => view.seq(),
                StreamResponse::Event { seq, .. } => seq,
                StreamResponse::Message { .. } => *next,
            };
            if first.is_none() {
                (*first, *next) = (Some(seq), seq);
            }
            if seq != *next {
                is_behind = true;
                return false;
            }
            push_event(rpc, method, out, &item, &write);
            *next += 1;
            out.len() < high_water
        });
        if is_behind {
            let why = "the subscriber fell behind; subscribe again to go on";
            return Pumped::Cut(Status::new(Code::Unavailable, why));
        }
        match follow {
            Follow::Pending => Pumped::Pending,
            Follow::More => Pumped::More,
            Follow::End => Pumped::End,
            Follow::Gone => {
                let detail = "the task left the store";
                let fault = Fault::because(FaultKind::TaskNotFound, detail);
                Pumped::Cut(Status::of(&fault, rpc.generation()))
            }
        }
    }
}

/// Polls a call that waits for an answer and cannot be answered by a stream.
fn poll_answer(
    service: &dyn Service,
    wait: &mut WaitHandle,
    wake: &Waker,
    answer: &mut service::Answer<'_>,
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
