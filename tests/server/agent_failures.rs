//! Errors and panics of agents fail the task or call that they belong to. The operator gets the
//! text; the client gets the text or a reference to it.

use std::{
    error::Error,
    fmt,
    ops::Deref,
    sync::mpsc::{Receiver, channel},
};

use peregrine::{
    agent::{Agent, AgentFailure, CancelRequest, Closed, Deferred, Job, Profile, TaskLookup, Turn},
    model::TaskState,
    net::{self, Running, Server},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say, text_of},
    binary::{PATIENCE, Tcp},
};

/// Panics in `start`, in `resume`, after it has published or detached, in a cancel or a lookup.
struct Fragile;

impl Agent for Fragile {
    fn start(&self, mut turn: Turn<'_>) {
        match turn.message.text().as_str() {
            "start" => panic!("no start: {}", 1 + 1),
            "published" => {
                turn.status(TaskState::Working);
                panic!("too late");
            }
            "detached" => {
                let _job = turn.detach();
                panic!("no job");
            }
            "deferred" => {
                let _deferred = turn.defer();
                panic!("no answer");
            }
            "resume" => turn.resume_after(1, 0),
            "cancel" => turn.resume_after(1_000_000, 0),
            _ => turn.reply("fine"),
        }
    }

    fn resume(&self, _: Turn<'_>, _: u64) {
        panic!("no resume");
    }

    fn cancel(&self, _: CancelRequest<'_>) {
        panic!("no cancel");
    }

    fn missing(&self, _: TaskLookup<'_>) {
        panic!("no lookup");
    }
}

fn number(text: &str) -> Result<u32, Box<dyn Error + Send + Sync>> {
    Ok(text.parse::<u32>()?)
}

fn counted(job: Job) -> Result<(), Box<dyn Error + Send + Sync>> {
    let text = job.message().text();
    if text == "panic" {
        panic!("told to");
    }
    let twice = 2 * number(&text)?;
    Ok(job.reply(twice.to_string())?)
}

async fn counted_later(deferred: Deferred) -> Result<(), String> {
    let text = deferred.message().text();
    tokio_yield().await;
    if text == "panic" {
        panic!("told to");
    }
    let twice = 2 * number(&text).map_err(|error| format!("no number: {error}"))?;
    deferred.reply(twice.to_string());
    Ok(())
}

async fn canceled_first(mut job: Job) -> Result<(), Closed> {
    job.status(TaskState::Working, None)?;
    job.canceled().await;
    job.status(TaskState::Completed, None)
}

async fn tokio_yield() {
    net::sleep(std::time::Duration::from_millis(1)).await;
}

fn server() -> (Server, Receiver<AgentFailure>) {
    let (sender, failures) = channel();
    let server = Server::new()
        .agent(Profile::new("fragile", "Panics."), Fragile)
        .agent(Profile::new("blocking", "Counts."), net::blocking_agent(counted))
        .agent(Profile::new("async", "Counts."), net::async_agent(counted_later))
        .agent(Profile::new("canceled", "Waits."), net::async_agent(canceled_first))
        .on_agent_failure(move |failure| sender.send(failure.clone()).unwrap());
    (server.allow_host("*").listen("127.0.0.1:0").workers(1), failures)
}

/// Calls an agent; returns the answer.
fn call(running: &Running, agent: &str, method: &str, params: &Value) -> Value {
    let mut line = Tcp::to(running.addrs()[0]);
    line.write(&post(&format!("/agents/{agent}"), &[], &rpc(method, params)));
    line.reply().json()
}

fn send(running: &Running, agent: &str, text: &str) -> Value {
    call(running, agent, V1.send(), &V1.params(say(text)))
}

/// The text with which a task or a call has failed.
fn failed(answer: &Value) -> String {
    let task = &answer["result"]["task"];
    match task.is_null() {
        true => answer["error"]["message"].as_str().unwrap().to_owned(),
        false => {
            assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{answer}");
            text_of(&task["status"]["message"]).to_owned()
        }
    }
}

/// Asserts that the client gets a text, once verbatim and once by its reference, and that the
/// operator gets it too.
fn assert_reported(text: &str, agent: &str, is_panic: bool, provoke: impl Fn(&Running) -> Value) {
    for shows in [true, false] {
        let (server, failures) = server();
        let running = server.show_errors(shows).start().unwrap();
        let shown = failed(&provoke(&running));
        let failure = failures.recv_timeout(PATIENCE).unwrap();
        let AgentFailure { text: own, reference, .. } = &failure;
        assert_eq!((failure.agent.as_str(), own.as_str()), (agent, text), "{failure:?}");
        assert_eq!(failure.is_panic, is_panic, "{failure:?}");
        assert!(!failure.task_id.is_empty(), "{failure:?}");
        let words = if is_panic { "the agent has panicked: " } else { "" };
        let by_reference = format!("the agent has failed (reference {reference})");
        let expected = if shows { format!("{words}{text}") } else { by_reference };
        assert!(shown.ends_with(&expected), "{shown} is not {expected}");
        // The server still answers.
        assert_eq!(text_of(&send(&running, "fragile", "on")["result"]["message"]), "fine");
        assert!(failures.try_recv().is_err());
    }
}

#[test]
fn panic_fails_the_task_and_reports_its_text() {
    for (message, text) in
        [("start", "no start: 2"), ("published", "too late"), ("resume", "no resume")]
    {
        assert_reported(text, "fragile", true, |running| send(running, "fragile", message));
    }
    for agent in ["blocking", "async"] {
        assert_reported("told to", agent, true, |running| send(running, agent, "panic"));
    }
}

#[test]
fn panic_after_detach_or_defer_is_reported() {
    let (server, failures) = server();
    let running = server.start().unwrap();
    for (message, shown, text) in [
        ("detached", "the agent ended without a result", "no job"),
        ("deferred", "the agent ended without an answer", "no answer"),
    ] {
        assert!(failed(&send(&running, "fragile", message)).ends_with(shown), "{message}");
        assert_eq!(failures.recv_timeout(PATIENCE).unwrap().text, text);
    }
}

/// Returns an error that cannot be written, and panics with a payload that panics again.
struct Mean;

impl fmt::Display for Mean {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text")
    }
}

impl Drop for Mean {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("no end");
        }
    }
}

#[test]
fn panicking_error_or_listener_still_fails_the_task() {
    let agent = net::blocking_agent(|job: Job| -> Result<(), Mean> {
        match job.message().text().as_str() {
            "fail_for" => job.fail_for(&std::mem::ManuallyDrop::new(Mean).deref()),
            "payload" => std::panic::panic_any(Mean),
            _ => return Err(Mean),
        }
        Ok(())
    });
    let deferring = net::async_agent(|_: Deferred| async { Err::<(), Mean>(Mean) });
    let server = Server::new().agent(Profile::new("mean", "Fails."), agent);
    let server = server.agent(Profile::new("deferring", "Fails."), deferring);
    let server = server.on_agent_failure(|_| panic!("no listener")).allow_host("*");
    let running = server.listen("127.0.0.1:0").workers(1).start().unwrap();
    for text in ["error", "payload", "fail_for"] {
        assert_eq!(
            send(&running, "mean", text)["result"]["task"]["status"]["state"],
            "TASK_STATE_FAILED"
        );
    }
    assert!(!send(&running, "deferring", "error")["error"].is_null());
}

#[test]
fn server_with_public_url_shows_failure_references() {
    let (server, failures) = server();
    let running = server.public_url("https://agents.example").start().unwrap();
    let shown = failed(&send(&running, "fragile", "start"));
    let reference = failures.recv_timeout(PATIENCE).unwrap().reference;
    assert_eq!(shown, format!("the agent has failed (reference {reference})"));
}

#[test]
fn a_panic_in_a_cancel_or_lookup_fails_the_call() {
    assert_reported("no cancel", "fragile", true, |running| {
        let begun = V1.params(OutgoingMessage { at_once: true, ..say("cancel") });
        let task = call(running, "fragile", V1.send(), &begun);
        let id = json!({ "id": task["result"]["task"]["id"] });
        call(running, "fragile", V1.cancel(), &id)
    });
    assert_reported("no lookup", "fragile", true, |running| {
        call(running, "fragile", V1.get(), &json!({ "id": "elsewhere" }))
    });
}

#[test]
fn an_error_fails_the_task_or_call_with_its_text() {
    let text = "invalid digit found in string";
    assert_reported(text, "blocking", false, |running| send(running, "blocking", "five"));
    let text = format!("no number: {text}");
    assert_reported(&text, "async", false, |running| send(running, "async", "five"));
    let (server, _failures) = server();
    let running = server.start().unwrap();
    let answer = send(&running, "blocking", "21");
    assert_eq!(text_of(&answer["result"]["task"]["status"]["message"]), "42");
    assert_eq!(text_of(&send(&running, "async", "21")["result"]["message"]), "42");
}

#[test]
fn error_of_a_canceled_task_is_not_reported() {
    let (server, failures) = server();
    let running = server.start().unwrap();
    let begun = V1.params(OutgoingMessage { at_once: true, ..say("wait") });
    let task = call(&running, "canceled", V1.send(), &begun);
    let id = json!({ "id": task["result"]["task"]["id"] });
    let canceled = call(&running, "canceled", V1.cancel(), &id);
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    assert_eq!(failed(&send(&running, "fragile", "start")), "the agent has panicked: no start: 2");
    // Of the two failures, only this one is reported.
    assert_eq!(failures.recv_timeout(PATIENCE).unwrap().text, "no start: 2");
    running.shutdown();
    running.join();
    assert!(failures.try_recv().is_err());
}

#[test]
fn long_error_text_is_truncated() {
    let (sender, failures) = channel();
    let agent = net::blocking_agent(|job: Job| Err::<(), _>(job.message().text()));
    let server = Server::new().agent(Profile::new("long", "Fails."), agent).allow_host("*");
    let server = server.on_agent_failure(move |failure| sender.send(failure.text.len()).unwrap());
    let running = server.listen("127.0.0.1:0").workers(1).start().unwrap();
    let long = format!("{}{}", "x".repeat(4095), "é".repeat(3000));
    let shown = failed(&send(&running, "long", &long));
    assert_eq!((shown.len(), failures.recv_timeout(PATIENCE).unwrap()), (4095, 4095));
}
