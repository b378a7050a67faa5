//! The slot of the single HTTP/2 connection to an origin.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use crate::net::client::origins::lock;

use super::{Http2Mark, Http2Sender};

/// The connection, or the state of opening it.
#[derive(Default)]
pub(crate) struct Http2Slot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    phase: SlotPhase,
    waiting: Vec<Waker>,
}

#[derive(Default)]
enum SlotPhase {
    /// The server's versions are unknown, or the connection has ended.
    #[default]
    Free,
    /// A request is opening a connection.
    Opening,
    Open {
        sender: Http2Sender,
        used_ms: u64,
    },
    /// ALPN selected HTTP/1.1.
    Http1,
}

/// The result of claiming an origin's slot.
pub(crate) enum Claim<'s> {
    /// A connection is open.
    Sender(Http2Sender),
    /// The caller opens the connection, while other requests wait.
    Opens(Opening<'s>),
    /// The server speaks HTTP/1.1.
    Http1,
}

/// The right to open the connection. Dropping the right passes it to another request.
pub(crate) struct Opening<'s> {
    slot: &'s Http2Slot,
    becomes: SlotPhase,
}

impl Opening<'_> {
    /// The connection is open.
    pub(crate) fn done(mut self, sender: &Http2Sender, now_ms: u64) {
        self.becomes = SlotPhase::Open { sender: sender.clone(), used_ms: now_ms };
    }

    /// The server has selected HTTP/1.1.
    pub(crate) fn found_http1(mut self) {
        self.becomes = SlotPhase::Http1;
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut slot = lock(&self.slot.0);
        slot.phase = std::mem::take(&mut self.becomes);
        let waiting = std::mem::take(&mut slot.waiting);
        drop(slot);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Http2Slot {
    /// Waits while the connection is being opened. `is_required`: HTTP/1.1 is not acceptable, so a
    /// server that has selected HTTP/1.1 before is tried again.
    pub(crate) async fn claim(&self, is_required: bool, now_ms: u64) -> Claim<'_> {
        poll_fn(|cx| {
            let mut slot = lock(&self.0);
            match &mut slot.phase {
                SlotPhase::Open { sender, used_ms } if !sender.in_use.is_over() => {
                    *used_ms = now_ms.max(*used_ms);
                    Poll::Ready(Claim::Sender(sender.clone()))
                }
                SlotPhase::Http1 if !is_required => Poll::Ready(Claim::Http1),
                SlotPhase::Free | SlotPhase::Open { .. } | SlotPhase::Http1 => {
                    slot.phase = SlotPhase::Opening;
                    Poll::Ready(Claim::Opens(Opening { slot: self, becomes: SlotPhase::Free }))
                }
                SlotPhase::Opening => {
                    if !slot.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                        slot.waiting.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Removes a connection that accepts no more requests, unless another connection has replaced
    /// it.
    pub(crate) fn forget(&self, over: &Arc<Http2Mark>) {
        let mut slot = lock(&self.0);
        if let SlotPhase::Open { sender, .. } = &slot.phase
            && Arc::ptr_eq(&sender.in_use, over)
        {
            slot.phase = SlotPhase::Free;
        }
    }

    /// True: requests of any version go over HTTP/1.1.
    pub(crate) fn is_http1(&self) -> bool {
        matches!(lock(&self.0).phase, SlotPhase::Http1)
    }

    /// Closes a connection that has ended, or was unused for `idle_ms`; returns whether a
    /// connection remains.
    pub(crate) fn close_old(&self, now_ms: u64, idle_ms: u64) -> bool {
        let mut slot = lock(&self.0);
        let SlotPhase::Open { sender, used_ms } = &mut slot.phase else {
            return matches!(slot.phase, SlotPhase::Opening);
        };
        // The slot itself has one reference; no other reference is created under the lock.
        if Arc::strong_count(&sender.in_use) > 1 {
            // A long request has used the connection until now.
            *used_ms = now_ms;
        }
        if sender.in_use.is_over() || now_ms.saturating_sub(*used_ms) >= idle_ms {
            slot.phase = SlotPhase::Free;
            return false;
        }
        true
    }
}
