//! Limits how long a stream of events occupies its worker.

use std::{future::poll_fn, task::Poll};

/// Events that a stream publishes before its worker runs other futures.
pub(super) const EVENTS_AT_ONCE: u32 = 32;

/// Counts the events of one stream.
#[derive(Default)]
pub(crate) struct EventPace(u32);

impl EventPace {
    /// Yields to the worker's other futures after [`EVENTS_AT_ONCE`] events.
    pub(crate) async fn after_event(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(EVENTS_AT_ONCE) {
            let mut has_waited = false;
            poll_fn(|cx| match std::mem::replace(&mut has_waited, true) {
                true => Poll::Ready(()),
                false => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
        }
    }
}
