//! Async agents: an `async fn` that owns its task, run beside the connections of its worker.
//!
//! The future starts on the worker that got the message and stays there, so it need not be `Send`;
//! it must not block. When it ends or panics without a last status, its task fails.

use std::{future::Future, time::Duration};

use crate::agent::{Agent, Job, Turn};

/// An agent made by [`async_agent`].
pub struct AsyncAgent<F>(F);

/// Makes an agent of an async function; what the future returns is ignored.
///
/// It runs under [`crate::net::Server`] only: the pure engine has no runtime for its futures.
///
/// ```
/// use peregrine::{agent::Job, model::TaskState, net};
///
/// let agent = net::async_agent(|mut job: Job| async move {
///     job.status(TaskState::Working, None)?;
///     net::sleep(std::time::Duration::from_millis(20)).await;
///     job.status(TaskState::Completed, None)
/// });
/// ```
pub fn async_agent<F, R>(run: F) -> AsyncAgent<F>
where
    F: Fn(Job) -> R + Send + Sync + 'static,
    R: Future + 'static,
    R::Output: 'static,
{
    AsyncAgent(run)
}

impl<F, R> Agent for AsyncAgent<F>
where
    F: Fn(Job) -> R + Send + Sync + 'static,
    R: Future + 'static,
    R::Output: 'static,
{
    fn start(&self, turn: Turn<'_>) {
        // Without room for another task there is no job: the server says so to the client.
        if let Ok(job) = turn.detach() {
            tokio::task::spawn_local((self.0)(job));
        }
    }
}

/// Waits without holding up the worker.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
