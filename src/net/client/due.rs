//! The client's clock and its deadlines.
//!
//! Invariant: a timer that fires too early is checked and set again; a timer that would fire too
//! late is set at once. Deadlines mostly move later, so a call on a connection in use sets no
//! timer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

use crate::{client::TransportError, net::clock::unix_ms, service::Now};

/// A deadline that is never reached.
pub(super) const NEVER_MS: u64 = u64::MAX;

/// The longest duration of one timer; after it, the deadline is checked again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Milliseconds since the client was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientClock(Instant);

impl ClientClock {
    /// A clock that starts now at 1, so that 0 is earlier than every time.
    pub(super) fn new() -> ClientClock {
        ClientClock(Instant::now())
    }

    /// The time.
    pub(super) fn now(self) -> Now {
        Now { mono_ms: self.now_ms(), unix_ms: unix_ms() }
    }

    /// Milliseconds of [`Now::mono_ms`].
    pub(super) fn now_ms(self) -> u64 {
        1 + self.0.elapsed().as_millis() as u64
    }

    /// The moment at which `due_ms` is reached, or a moment long before it.
    pub(super) fn instant(self, due_ms: u64) -> tokio::time::Instant {
        let now = Instant::now();
        let at = self.0.checked_add(Duration::from_millis(due_ms.saturating_sub(1)));
        at.unwrap_or(now).min(now + LONGEST).into()
    }

    /// Runs `work`, at most until `due_ms`.
    ///
    /// # Errors
    /// The errors of `work`; [`TransportError::Timeout`] with `what`.
    pub(super) async fn within<T>(
        self,
        due_ms: u64,
        what: &'static str,
        work: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let done = tokio::time::timeout_at(self.instant(due_ms), work).await;
        done.unwrap_or(Err(TransportError::Timeout(what)))
    }
}

/// A deadline of the task that polls it.
#[derive(Default)]
pub(super) struct Due {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the timer fires.
    armed_ms: u64,
}

impl Due {
    /// Ready when `due_ms` is reached; otherwise the caller is woken at that time.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        clock: ClientClock,
        due_ms: u64,
    ) -> Poll<()> {
        if due_ms == NEVER_MS {
            return Poll::Pending;
        }
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if self.armed_ms > due_ms {
                    sleep.as_mut().reset(clock.instant(due_ms));
                    self.armed_ms = due_ms;
                }
                sleep
            }
            none => {
                self.armed_ms = due_ms;
                none.insert(Box::pin(tokio::time::sleep_until(clock.instant(due_ms))))
            }
        };
        while sleep.as_mut().poll(cx).is_ready() {
            if clock.now_ms() >= due_ms {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(clock.instant(due_ms));
            self.armed_ms = due_ms;
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn later_deadline_reuses_the_armed_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (clock, mut due) = (ClientClock::new(), Due::default());
            let began = clock.now_ms();
            poll_fn(|cx| {
                assert!(due.poll(cx, clock, NEVER_MS).is_pending() && due.sleep.is_none());
                for later in [20, 40, 60] {
                    assert!(due.poll(cx, clock, began + later).is_pending());
                    assert_eq!(due.armed_ms, began + 20);
                }
                Poll::Ready(())
            })
            .await;
            // The timer fires at 20, is set to 60, and fires again.
            poll_fn(|cx| due.poll(cx, clock, began + 60)).await;
            assert!(clock.now_ms() >= began + 60 && due.armed_ms == began + 60);
            let late = poll_fn(|cx| due.poll(cx, clock, 0));
            late.await;
            // A deadline beyond the clock's range does not panic.
            poll_fn(|cx| Poll::Ready(due.poll(cx, clock, NEVER_MS - 1))).await.is_pending();
        });
    }
}
