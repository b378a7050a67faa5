//! Async agents: an `async fn` that owns its task, or a turn that may become a task. The function
//! runs on a worker, together with the worker's connections.
//!
//! The future starts on the worker that got the message and stays there, so it need not be `Send`;
//! it must not block. The number of futures on a worker is bounded, whether or not their tasks have
//! ended; further messages are refused before any of their data is stored. When a future ends or
//! panics without a last status, its task fails. A deferred turn without an answer fails its call
//! with the future's error or panic, if any. A future whose result no client will see is dropped.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use super::{clock::HELD_UP, owned_turn::OwnedTurn, slow_turn::note_future};
use crate::{
    agent::{Agent, AgentOutcome, Canceled, Turn, TurnKey, run_step},
    fault::Fault,
    service::AgentIndex,
};

/// An agent created by [`async_agent`].
pub struct AsyncAgent<T, F> {
    run: F,
    input: PhantomData<fn(T)>,
}

/// Creates an agent from an async function. The function takes a [`Job`](crate::agent::Job), so
/// that each message creates or continues a task; or a [`Deferred`](crate::agent::Deferred), to
/// decide this itself. The function returns nothing or a result of any type; an error or a panic
/// fails the unfinished task or call, as [`Job::fail_for`](crate::agent::Job::fail_for) does.
///
/// The agent runs only under [`crate::net::Server`]: the pure engine has no runtime for its
/// futures.
///
/// If the caller disconnects before there is an answer or a task, a future with a `Deferred` is
/// dropped at its next `await`: no client would see the result, and its slot of
/// `deferred_calls_max` becomes free. Work that must continue in this case belongs to a task
/// ([`Deferred::into_job`](crate::agent::Deferred::into_job)). The future of a task that was
/// canceled, or of a message to an existing task, continues:
/// [`Job::canceled`](crate::agent::Job::canceled) reports the cancel. At most `async_futures_max`
/// futures run; further messages are refused (-32000).
///
/// ```
/// use peregrine::{agent::{Deferred, Job}, model::{MessageBuf, PartsBuf, TaskState}, net};
///
/// let agent = net::async_agent(|mut job: Job| async move {
///     job.status(TaskState::Working, None)?;
///     net::sleep(std::time::Duration::from_millis(20)).await;
///     job.status(TaskState::Completed, None)
/// });
/// let other = net::async_agent(|deferred: Deferred| async move {
///     net::sleep(std::time::Duration::from_millis(20)).await;
///     deferred.reply(MessageBuf::agent(&PartsBuf::new().text("here it is")));
/// });
/// ```
pub fn async_agent<T, F, R>(run: F) -> AsyncAgent<T, F>
where
    T: OwnedTurn,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output: AgentOutcome> + 'static,
{
    AsyncAgent { run, input: PhantomData }
}

impl<T, F, R> Agent for AsyncAgent<T, F>
where
    T: OwnedTurn,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: Future<Output: AgentOutcome> + 'static,
{
    fn start(&self, turn: Turn<'_>) {
        start_future(turn, |owned: T| (self.run)(owned));
    }
}

/// Takes a turn and runs the future of `run` on the current worker.
pub(super) fn start_future<T, R>(turn: Turn<'_>, run: impl FnOnce(T) -> R)
where
    T: OwnedTurn,
    R: Future<Output: AgentOutcome> + 'static,
{
    let Some(slot) = FutureSlot::take() else {
        return turn.refuse(Fault::at_limit("async_futures_max"));
    };
    let agent = turn.request.scope.agent;
    // On an error there was no room, and the server has answered the client.
    if let Ok(owned) = T::take(turn) {
        let (turn, unseen) = (Some(owned.key()), owned.unseen());
        let run = Box::pin(run(owned));
        tokio::task::spawn_local(RunningFuture { agent, slot, turn, unseen, run }.end());
    }
}

/// Runs a future without a turn for an agent, with this permit.
#[cfg(feature = "gateway")]
pub(super) fn run_future(
    agent: AgentIndex,
    slot: FutureSlot,
    run: impl Future<Output = ()> + 'static,
) {
    let (turn, unseen, run) = (None, None, Box::pin(run));
    tokio::task::spawn_local(RunningFuture { agent, slot, turn, unseen, run }.end());
}

thread_local! {
    /// How many more futures of agents may run on the worker of this thread.
    static ROOM: Cell<usize> = const { Cell::new(0) };
}

/// Sets how many futures of agents may run on the worker of this thread.
pub(super) fn set_room(futures: usize) {
    ROOM.set(futures);
}

/// The permit of a future on its worker; dropping the permit returns it.
pub(super) struct FutureSlot(());

impl FutureSlot {
    /// `None`: `async_futures_max` are running.
    pub(super) fn take() -> Option<FutureSlot> {
        let remaining = ROOM.get().checked_sub(1)?;
        ROOM.set(remaining);
        Some(FutureSlot(()))
    }
}

impl Drop for FutureSlot {
    fn drop(&mut self) {
        ROOM.set(ROOM.get() + 1);
    }
}

/// A future of an agent, boxed because the runtime copies a task's future several times before it
/// runs.
struct RunningFuture<F> {
    agent: AgentIndex,
    slot: FutureSlot,
    /// `None`: the future has no turn.
    turn: Option<TurnKey>,
    /// Ready when no client will see the result.
    unseen: Option<Canceled>,
    run: Pin<Box<F>>,
}

impl<F: Future<Output: AgentOutcome>> RunningFuture<F> {
    /// Runs the future until it ends, or until no client will see its result.
    async fn end(self) {
        let RunningFuture { agent, slot, turn, mut unseen, mut run } = self;
        let _slot = slot;
        poll_fn(|cx| {
            // Checked before the poll, so that the future is not dropped in the poll in which it
            // starts work.
            if unseen.as_mut().is_some_and(|unseen| Pin::new(unseen).poll(cx).is_ready()) {
                return Poll::Ready(());
            }
            let began = Instant::now();
            let is_over = run_step(turn, || match run.as_mut().poll(cx) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            });
            let elapsed = began.elapsed();
            if elapsed > HELD_UP {
                note_future(agent, elapsed.as_millis() as u64);
            }
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits without blocking the worker.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use crate::{
        agent::{Closed, Deferred, Job, Profile},
        model::{ArtifactBuf, MessageBuf, PartsBuf, TaskState},
        net::Server,
    };

    use super::*;

    async fn slow_hello(mut job: Job) -> Result<(), Closed> {
        job.status(TaskState::Working, None)?;
        sleep(Duration::from_millis(30)).await;
        let parts = PartsBuf::new().text("hello from afar");
        job.artifact(&ArtifactBuf::new("greeting", &parts))?;
        job.status(TaskState::Completed, None)
    }

    async fn no_end(_job: Job) {}

    fn answer(server: Server) -> String {
        let running = server.listen("127.0.0.1:0").workers(2).start().unwrap();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
            {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
        let length = body.len();
        let mut stream = TcpStream::connect(running.addrs()[0]).unwrap();
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        running.shutdown();
        running.join();
        answer
    }

    #[test]
    fn async_agent_answers_after_its_task_completes() {
        let answer = answer(Server::new().agent(Profile::new("a", "b"), async_agent(slow_hello)));
        assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
        assert!(answer.contains("hello from afar"), "{answer}");
    }

    #[test]
    fn async_agent_replies_with_a_message_or_a_task() {
        let server = |run: fn(Deferred)| {
            let run = move |deferred: Deferred| async move {
                sleep(Duration::from_millis(5)).await;
                run(deferred);
            };
            Server::new().agent(Profile::new("a", "b"), async_agent(run))
        };
        fn hello() -> MessageBuf {
            MessageBuf::agent(&PartsBuf::new().text("hello from afar"))
        }
        let message = answer(server(|deferred| deferred.reply(hello())));
        assert!(message.contains("hello from afar") && !message.contains("TASK_STATE"));
        let task = answer(server(|deferred| {
            deferred.into_job().and_then(|job| job.reply(hello())).unwrap();
        }));
        assert!(task.contains("TASK_STATE_COMPLETED"));
        assert!(answer(server(drop)).contains("the agent ended without an answer"));
    }

    #[test]
    fn a_future_without_a_result_fails_its_task() {
        let answer = answer(Server::new().agent(Profile::new("a", "b"), async_agent(no_end)));
        assert!(answer.contains("TASK_STATE_FAILED"), "{answer}");
    }
}
