//! Futures that notify an agent that its work is no longer needed. They need no runtime: the agent
//! polls them with its own waker.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

#[cfg(feature = "gateway")]
use super::Closed;
use super::JobHost;
use crate::service::{Handle, JoinedCalls, LateCall, Waiter, WatchedCall};

/// Ready when a task has ended, for instance because a client canceled it, or when no client can
/// receive the answer of a deferred turn any more.
#[must_use = "a future does nothing unless it is polled"]
pub struct Canceled(Watched);

enum Watched {
    Task { task: Handle, host: Arc<dyn JobHost>, waiter: Waiter },
    Unanswered { call: Arc<LateCall>, waiter: Waiter },
}

impl Canceled {
    pub(super) fn task(task: Handle, host: Arc<dyn JobHost>) -> Canceled {
        Canceled(Watched::Task { task, host, waiter: Waiter::default() })
    }

    /// For a call that creates no task if its caller disconnects before the answer.
    pub(super) fn unanswered(call: &Arc<LateCall>) -> Canceled {
        let (call, waiter) = (Arc::clone(call), Waiter::default());
        Canceled(Watched::Unanswered { call, waiter })
    }
}

#[cfg(feature = "gateway")]
impl Canceled {
    /// Runs a future until it is ready. The caller pins the future, since the state of an `async
    /// fn` stores a parameter twice.
    ///
    /// # Errors
    /// [`Closed`]: the task was canceled first.
    pub(crate) async fn race<F: Future>(
        &mut self,
        mut run: Pin<&mut F>,
    ) -> Result<F::Output, Closed> {
        std::future::poll_fn(|cx| match Pin::new(&mut *self).poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Closed)),
            Poll::Pending => run.as_mut().poll(cx).map(Ok),
        })
        .await
    }
}

impl Future for Canceled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.get_mut().0 {
            Watched::Task { task, host, waiter } => host.poll_ended(*task, waiter, cx.waker()),
            Watched::Unanswered { call, waiter } => {
                call.poll_disconnected_unanswered(waiter, cx.waker())
            }
        }
    }
}

/// Ready when the caller of a waiting call or a stream has disconnected before its end. Never ready
/// after the caller has its answer, or for a JSON-RPC notification, which wants the effect without
/// an answer. For cancels see [`DeferredCancel::caller_gone`](super::DeferredCancel::caller_gone).
#[must_use = "a future does nothing unless it is polled"]
pub struct CallerGone(WatchedCallers);

enum WatchedCallers {
    One { call: Option<Arc<LateCall>>, waiter: Waiter },
    All { calls: Arc<JoinedCalls>, watched: WatchedCall, task: Option<Canceled> },
}

impl CallerGone {
    pub(super) fn of(call: Option<&Arc<LateCall>>) -> CallerGone {
        let (call, waiter) = (call.cloned(), Waiter::default());
        CallerGone(WatchedCallers::One { call, waiter })
    }

    /// For several calls: ready when all callers have disconnected and, if some of them want no
    /// answer, the task has ended.
    pub(super) fn of_all(calls: &Arc<JoinedCalls>, task: Option<Canceled>) -> CallerGone {
        let (calls, watched) = (Arc::clone(calls), WatchedCall::default());
        CallerGone(WatchedCallers::All { calls, watched, task })
    }
}

impl Future for CallerGone {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.get_mut().0 {
            WatchedCallers::One { call: None, .. } => Poll::Pending,
            WatchedCallers::One { call: Some(call), waiter } => {
                call.poll_disconnected(waiter, cx.waker())
            }
            WatchedCallers::All { calls, watched, task } => {
                match (calls.poll_unawaited(watched, cx.waker()), task) {
                    (Poll::Ready(true), Some(task)) => Pin::new(task).poll(cx),
                    (Poll::Ready(_), _) => Poll::Ready(()),
                    (Poll::Pending, _) => Poll::Pending,
                }
            }
        }
    }
}
