//! Agents with ordinary blocking code, which runs on separate threads instead of a worker.
//!
//! Invariants: threads and waiting messages are bounded, and further messages are refused before
//! any of their data is stored. Code that panics or returns without an answer fails its task or
//! call. A shutdown waits for calls, but not for threads.

use std::{marker::PhantomData, sync::Arc};

use crate::{
    agent::{Agent, AgentOutcome, Turn, run_step},
    fault::{Fault, FaultKind},
    limits::{BLOCKING_QUEUE_MAX, BLOCKING_THREADS_MAX},
};

use super::{
    blocking_pool::{BlockingPool, NoWorker},
    owned_turn::OwnedTurn,
};

/// An agent created by [`blocking_agent`], with its own threads.
pub struct BlockingAgent<T, F> {
    run: Arc<F>,
    pool: BlockingPool,
    input: PhantomData<fn(T)>,
}

/// Creates an agent from a function that may block: read files, query a database, compute for long.
/// The function takes a [`Job`](crate::agent::Job), so that each message creates or continues a
/// task; or a [`Deferred`](crate::agent::Deferred), to decide this itself. The function returns
/// nothing or a result of any type; an error or a panic fails the unfinished task or call, as
/// [`Job::fail_for`](crate::agent::Job::fail_for) does.
///
/// The function runs on a thread of a pool that grows to [`BLOCKING_THREADS_MAX`] threads. When all
/// threads are busy, up to [`BLOCKING_QUEUE_MAX`] messages wait in order of arrival; the next
/// message is refused (-32000, `blocking_queue_max`). A waiting message is dropped if a client
/// cancels its task, or disconnects before there is a task.
///
/// A function that panics, or returns without a last status or an answer, fails its task or call
/// and does not affect others. A shutdown does not wait for functions: running and waiting
/// functions continue on their threads until they return or the process ends.
///
/// ```
/// use peregrine::{agent::{Deferred, Job}, model::{MessageBuf, PartsBuf, TaskState}, net};
///
/// let agent = net::blocking_agent(|mut job: Job| {
///     job.status(TaskState::Working, None)?;
///     std::thread::sleep(std::time::Duration::from_millis(20));
///     job.status(TaskState::Completed, None)
/// });
/// let other = net::blocking_agent(|deferred: Deferred| {
///     deferred.reply(MessageBuf::agent(&PartsBuf::new().text("here it is")));
/// });
/// let small = other.threads(4).queue(16);
/// ```
pub fn blocking_agent<T, F, R>(run: F) -> BlockingAgent<T, F>
where
    T: OwnedTurn,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: AgentOutcome,
{
    let pool = BlockingPool::new(BLOCKING_THREADS_MAX, BLOCKING_QUEUE_MAX);
    BlockingAgent { run: Arc::new(run), pool, input: PhantomData }
}

impl<T, F> BlockingAgent<T, F> {
    /// Sets the maximum number of threads, at least one.
    #[must_use]
    pub fn threads(mut self, threads_max: usize) -> Self {
        self.pool.threads_max = threads_max.max(1);
        self
    }

    /// Sets the maximum number of messages that wait while all threads are busy; 0: none.
    #[must_use]
    pub fn queue(mut self, queue_max: usize) -> Self {
        self.pool.queue_max = queue_max;
        self
    }
}

impl<T, F, R> Agent for BlockingAgent<T, F>
where
    T: OwnedTurn,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: AgentOutcome,
{
    fn start(&self, turn: Turn<'_>) {
        let permit = match self.pool.permit() {
            Ok(permit) => permit,
            Err(NoWorker::Full) => return turn.refuse(Fault::at_limit("blocking_queue_max")),
            Err(NoWorker::NoThread) => {
                let text = "the system cannot start a thread for the agent, retry later";
                return turn.refuse(Fault::because(FaultKind::Overloaded, text));
            }
        };
        // On an error there was no room, and the server has answered the client.
        if let Ok(owned) = T::take(turn) {
            let run = Arc::clone(&self.run);
            permit.run(Box::new(move || {
                if !owned.is_in_vain() {
                    run_step(Some(owned.key()), || Some(run(owned)));
                }
            }));
        }
    }
}
