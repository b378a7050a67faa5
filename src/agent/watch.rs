//! Futures that tell an agent that its work is of no use any more. They need no runtime: the agent
//! that polls them with a waker is woken.

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
/// see the answer of a deferred turn any more.
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

    /// Of a call that leaves no task behind when its caller leaves before it is answered.
    pub(super) fn unanswered(call: &Arc<LateCall>) -> Canceled {
        let (call, waiter) = (Arc::clone(call), Waiter::default());
        Canceled(Watched::Unanswered { call, waiter })
    }
}

#[cfg(feature = "gateway")]
impl Canceled {
    /// Runs a future until it is ready. It is pinned by its caller, since the state of an
    /// `async fn` has room for a parameter twice.
    ///
    /// # Errors
    /// [`Closed`]: it was canceled before.
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
            Watched::Unanswered { call, waiter } => call.poll_left_unanswered(waiter, cx.waker()),
        }
    }
}

/// Ready when the caller of a waiting call or of a stream has left before its end. A caller that
/// has its answer does not leave, nor does one that wants none, as behind a notification of
/// JSON-RPC, which wants what comes of it: then this is never ready. Of a cancel it says more, see
/// [`DeferredCancel::caller_gone`](super::DeferredCancel::caller_gone).
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

    /// Of several calls: when all callers have left, and the task has ended if some of them want
    /// no answer.
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
            WatchedCallers::One { call: Some(call), waiter } => call.poll_left(waiter, cx.waker()),
            WatchedCallers::All { calls, watched, task } => {
                match (calls.poll_left(watched, cx.waker()), task) {
                    (Poll::Ready(true), Some(task)) => Pin::new(task).poll(cx),
                    (Poll::Ready(_), _) => Poll::Ready(()),
                    (Poll::Pending, _) => Poll::Pending,
                }
            }
        }
    }
}
