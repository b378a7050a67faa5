//! Agents of blocking code over real sockets: they block no worker, their threads and queue are
//! bounded, and a panic or the end of the server harms no other call.

use std::sync::{
    Arc, Mutex, PoisonError,
    mpsc::{Receiver, Sender, channel},
};

use peregrine::{
    agent::{AgentOutcome, Closed, Deferred, Job, Profile},
    limits::Limits,
    model::{MessageBuf, PartsBuf},
    net::{self, BlockingAgent, Running, Server},
};
use serde_json::{Value, json};

use crate::support::{
    ask::{Gen, V1, post, rpc, say, text_of},
    binary::Tcp,
};

/// The texts that the agent got, in order, and the sender that releases a waiting call.
pub struct Gate {
    texts: Arc<Mutex<Vec<String>>>,
    pub open: Sender<()>,
}

fn words(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

/// Records each text; before "wait" it waits at the gate, and at "panic" it panics.
fn answer(job: Job, texts: &Mutex<Vec<String>>, gate: &Mutex<Receiver<()>>) -> Result<(), Closed> {
    let text = job.message().text();
    texts.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
    assert_ne!(text, "panic", "a test of panics in blocking code");
    if text == "wait" {
        // It continues when the test opens the gate or has ended.
        let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
    }
    job.reply(words(&text))
}

/// A server of one worker, and an agent with this many threads and queue slots.
pub fn serve(threads: usize, queue: usize, limits: Limits) -> (Running, Gate) {
    let (open, gate) = channel();
    let (texts, gate) = (Arc::<Mutex<Vec<String>>>::default(), Mutex::new(gate));
    let shared = Arc::clone(&texts);
    let agent = net::blocking_agent(move |job: Job| answer(job, &shared, &gate));
    (start(agent.threads(threads).queue(queue), limits), Gate { texts, open })
}

fn start<T, F, R>(agent: BlockingAgent<T, F>, limits: Limits) -> Running
where
    T: net::OwnedTurn,
    F: Fn(T) -> R + Send + Sync + 'static,
    R: AgentOutcome,
{
    let server = Server::new().agent(Profile::new("blocking", "Takes its time."), agent);
    let server = server.allow_host("*").workers(1).limits(limits);
    server.listen("127.0.0.1:0").start().unwrap()
}

/// A call that was sent.
pub fn call(running: &Running, generation: Gen, method: &str, text: &str) -> Tcp {
    let mut line = Tcp::to(running.addrs()[0]);
    line.write(&post("/", &[], &rpc(method, &generation.params(say(text)))));
    line
}

/// A task that the agent runs, or that waits for a thread; the stream that follows it, and its id.
pub fn begun(running: &Running, text: &str) -> (Tcp, Value) {
    let mut line = call(running, V1, V1.stream(), text);
    line.read_until("TASK_STATE_SUBMITTED");
    let id = line.peek().unwrap().events()[0].result()["task"]["id"].clone();
    (line, id)
}

fn send(running: &Running, text: &str) -> Value {
    call(running, V1, V1.send(), text).reply().result()
}

fn status(answer: &Value) -> (&str, &str) {
    let status = &answer["task"]["status"];
    (status["state"].as_str().unwrap(), text_of(&status["message"]))
}

#[test]
fn blocking_code_delays_only_its_caller() {
    let (running, gate) = serve(2, 0, Limits::default());
    let (mut held, _) = begun(&running, "wait");
    assert_eq!(status(&send(&running, "hello")), ("TASK_STATE_COMPLETED", "hello"));
    assert!(!held.peek().unwrap().text().contains("TASK_STATE_COMPLETED"));
    gate.open.send(()).unwrap();
    held.read_until("TASK_STATE_COMPLETED");
}

#[test]
fn blocking_agent_replies_creates_a_task_or_fails() {
    let agent =
        net::blocking_agent(|deferred: Deferred| match deferred.message().text().as_str() {
            "task" => {
                let job = deferred.into_job();
                assert!(job.and_then(|job| job.reply(words("a task"))).is_ok());
            }
            "fail" => deferred.fail("it cannot be done"),
            "leave" => {}
            _ => deferred.reply(words("a message")),
        });
    let running = start(agent, Limits::default());
    assert_eq!(text_of(&send(&running, "anything")["message"]), "a message");
    assert_eq!(status(&send(&running, "task")), ("TASK_STATE_COMPLETED", "a task"));
    for (text, why) in [("fail", "it cannot be done"), ("leave", "ended without an answer")] {
        let refused = call(&running, V1, V1.send(), text).reply();
        assert_eq!(refused.code(), -32603);
        assert!(refused.text().contains(why), "{}", refused.text());
    }
}

#[test]
fn blocking_code_that_panics_fails_its_task_and_not_the_pool() {
    let (running, _gate) = serve(1, 4, Limits::default());
    for _ in 0..3 {
        let answer = send(&running, "panic");
        let (state, text) = status(&answer);
        assert_eq!(state, "TASK_STATE_FAILED");
        assert!(text.starts_with("the agent has panicked: "), "{text}");
        assert_eq!(status(&send(&running, "hello")), ("TASK_STATE_COMPLETED", "hello"));
    }
}

#[test]
fn queued_blocking_task_is_not_run_after_a_cancel() {
    let (running, gate) = serve(1, 2, Limits::default());
    let (_held, _) = begun(&running, "wait");
    let (_canceled, id) = begun(&running, "canceled");
    let (mut last, _) = begun(&running, "last");
    let mut line = Tcp::to(running.addrs()[0]);
    line.write(&post("/", &[], &rpc(V1.cancel(), &json!({ "id": id }))));
    assert_eq!(line.reply().result()["status"]["state"], "TASK_STATE_CANCELED");
    gate.open.send(()).unwrap();
    last.read_until("TASK_STATE_COMPLETED");
    assert_eq!(*gate.texts.lock().unwrap(), ["wait", "last"]);
}

#[test]
fn server_stops_while_blocking_code_still_runs() {
    let (running, gate) = serve(1, 1, Limits { drain_ms: 100, ..Limits::default() });
    let (_held, _) = begun(&running, "wait");
    let (mut queued, _) = begun(&running, "queued");
    running.shutdown();
    running.join();
    let output = queued.read_to_end();
    assert!(String::from_utf8_lossy(&output).contains("event: error"), "{}", output.escape_ascii());
    drop(gate);
}
