//! Async agents: an `async fn` that owns its task, or a turn that may become one, run beside the
//! connections of its worker.
//!
//! The future starts on the worker that got the message and stays there, so it need not be `Send`;
//! it must not block. When it ends or panics without a last status, its task fails; without an
//! answer to a deferred turn, the call does.

use std::{future::Future, time::Duration};

use crate::agent::{Agent, Deferred, Job, Turn};

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

/// An agent made by [`deferring_agent`].
pub struct DeferringAgent<F>(F);

/// Makes an agent of an async function that finds out what comes of a message: a reply, a refusal
/// or a task. It runs as those of [`async_agent`] do.
///
/// ```
/// use peregrine::{agent::Deferred, model::{MessageBuf, PartsBuf}, net};
///
/// let agent = net::deferring_agent(|deferred: Deferred| async move {
///     net::sleep(std::time::Duration::from_millis(20)).await;
///     deferred.reply(MessageBuf::agent(&PartsBuf::new().text("here it is")));
/// });
/// ```
pub fn deferring_agent<F, R>(run: F) -> DeferringAgent<F>
where
    F: Fn(Deferred) -> R + Send + Sync + 'static,
    R: Future + 'static,
    R::Output: 'static,
{
    DeferringAgent(run)
}

impl<F, R> Agent for DeferringAgent<F>
where
    F: Fn(Deferred) -> R + Send + Sync + 'static,
    R: Future + 'static,
    R::Output: 'static,
{
    fn start(&self, turn: Turn<'_>) {
        // Without room for another call that waits there is none: the server says so to the client.
        if let Ok(deferred) = turn.defer() {
            tokio::task::spawn_local((self.0)(deferred));
        }
    }
}

/// Waits without holding up the worker.
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
        agent::{Closed, Profile},
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
    fn an_async_agent_answers_when_it_is_ready() {
        let answer = answer(Server::new().agent(Profile::new("a", "b"), async_agent(slow_hello)));
        assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
        assert!(answer.contains("hello from afar"), "{answer}");
    }

    #[test]
    fn a_deferring_agent_replies_without_a_task_or_makes_one() {
        let server = |run: fn(Deferred)| {
            let run = move |deferred| async move {
                sleep(Duration::from_millis(5)).await;
                run(deferred);
            };
            Server::new().agent(Profile::new("a", "b"), deferring_agent(run))
        };
        fn say() -> MessageBuf {
            MessageBuf::agent(&PartsBuf::new().text("hello from afar"))
        }
        let message = answer(server(|deferred| deferred.reply(say())));
        assert!(message.contains("hello from afar") && !message.contains("TASK_STATE"));
        let task = answer(server(|deferred| {
            deferred.into_job().and_then(|job| job.reply(&say())).unwrap();
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
