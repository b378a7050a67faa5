//! Deferred turns: agents that answer a message later, from any thread.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    thread,
};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    engine::Setup,
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskState},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, post, rpc, rpc_id, say},
};

/// Keeps each turn for the test.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Deferred>>>);

impl Agent for Keep {
    fn start(&self, mut turn: Turn<'_>) {
        match &*turn.message.text() {
            "refuse" => turn.refuse(Fault::because(FaultKind::UnsupportedOperation, "not today")),
            "ask" => turn.status(TaskState::InputRequired),
            text => {
                if text == "artifact" {
                    turn.artifact_of_message("early");
                }
                if text == "many" {
                    (0..11).for_each(|_| turn.status(TaskState::Working));
                }
                if let Ok(deferred) = turn.defer() {
                    self.0.lock().unwrap().push(deferred);
                }
            }
        }
    }

    fn resume(&self, turn: Turn<'_>, _token: u64) {
        if let Ok(deferred) = turn.defer() {
            self.0.lock().unwrap().push(deferred);
        }
    }
}

impl Keep {
    fn take(&self) -> Deferred {
        self.0.lock().unwrap().pop().expect("a deferred turn")
    }

    /// Moves a turn to its own thread.
    fn on_thread(&self, then: impl FnOnce(Deferred) + Send + 'static) {
        let deferred = self.take();
        thread::spawn(move || then(deferred)).join().unwrap();
    }
}

fn lab(limits: Limits) -> (Lab, Keep) {
    let keep = Keep::default();
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("keep", "Answers later."), Arc::new(keep.clone()))];
    (Lab::new(Setup { agents, limits, ..Setup::default() }), keep)
}

fn words(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

fn open(lab: &mut Lab, generation: Gen, method: &str, message: OutgoingMessage<'_>) -> Peer {
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &rpc(method, &generation.params(message))));
    assert!(lab.received(peer).is_empty(), "{}", lab.received(peer).escape_ascii());
    peer
}

/// Sends a message and leaves its call waiting.
fn send(lab: &mut Lab, generation: Gen, message: OutgoingMessage<'_>) -> Peer {
    open(lab, generation, generation.send(), message)
}

fn answer(lab: &mut Lab, peer: Peer) -> Value {
    lab.settle();
    lab.reply(peer).json()
}

fn is_ready(future: impl Future<Output = ()>) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn deferred_turn_can_reply_with_a_direct_message() {
    let (mut lab, keep) = lab(Limits::default());
    for generation in [Gen::V03, Gen::V1] {
        for at_once in [false, true] {
            let peer = send(&mut lab, generation, OutgoingMessage { at_once, ..say("hi") });
            keep.on_thread(|deferred| deferred.reply(words("hello")));
            let result = answer(&mut lab, peer)["result"].take();
            let message = if generation == Gen::V1 { &result["message"] } else { &result };
            assert_eq!(message["parts"][0]["text"], "hello");
            assert!(message["messageId"].as_str().is_some_and(|id| id.len() == 36));
            let unknown = json!({ "id": message["contextId"] });
            assert_eq!(lab.code(generation.get(), &unknown), -32001);
        }
    }
}

#[test]
fn waiting_call_gets_the_finished_task_of_a_deferred_turn() {
    let (mut lab, keep) = lab(Limits::default());
    for generation in Gen::ALL {
        let peer = send(&mut lab, generation, say("hi"));
        let deferred = keep.take();
        let id = deferred.task_id().to_str().into_owned();
        assert_eq!(lab.code(generation.get(), &json!({ "id": id })), -32001);
        let mut job = deferred.into_job().unwrap();
        assert_eq!(lab.result(generation.get(), &json!({ "id": id }))["id"], *id);
        assert_eq!(lab.try_reply(peer).map(|reply| reply.status), None);
        job.status(TaskState::Working, None).unwrap();
        job.reply(words("done")).unwrap();
        let result = answer(&mut lab, peer)["result"].take();
        let task = generation.task(&result);
        assert_eq!(task["id"], *id);
        assert_eq!(task["status"]["state"], generation.state("completed"));
    }
}

#[test]
fn non_waiting_call_gets_the_new_task_of_a_deferred_turn() {
    let (mut lab, keep) = lab(Limits::default());
    for generation in [Gen::V03, Gen::V1] {
        let peer = send(&mut lab, generation, OutgoingMessage { at_once: true, ..say("artifact") });
        let job = keep.take().into_job().unwrap();
        let result = answer(&mut lab, peer)["result"].take();
        let task = generation.task(&result);
        assert_eq!(task["status"]["state"], generation.state("submitted"));
        assert_eq!(task["artifacts"][0]["artifactId"], "early");
        job.fail("no luck").unwrap();
        let task = lab.result(generation.get(), &json!({ "id": task["id"] }));
        assert_eq!(task["status"]["state"], generation.state("failed"));
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "no luck");
    }
}

#[test]
fn deferred_turn_streams_from_its_first_event() {
    let (mut lab, keep) = lab(Limits::default());
    for generation in Gen::ALL {
        let peer = open(&mut lab, generation, generation.stream(), say("hi"));
        assert_eq!(lab.engine.waiting().streams, 1);
        let mut job = keep.take().into_job().unwrap();
        job.status(TaskState::Working, None).unwrap();
        job.status(TaskState::Completed, None).unwrap();
        lab.settle();
        let events = lab.reply(peer).events();
        let first = events[0].result();
        // 0.1 streams start without a task.
        if generation != Gen::V01 {
            let task = generation.task(first);
            assert_eq!(task["status"]["state"], generation.state("submitted"));
        }
        assert!(events.len() >= 2);
        assert_eq!(lab.engine.waiting().streams, 0);
    }
    let peer = open(&mut lab, Gen::V1, "SendStreamingMessage", say("hi"));
    keep.on_thread(|deferred| deferred.reply(words("hello")));
    lab.settle();
    let events = lab.reply(peer).events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].result()["message"]["parts"][0]["text"], "hello");
}

#[test]
fn refused_failed_or_dropped_deferred_turn_returns_an_error() {
    let (mut lab, keep) = lab(Limits::default());
    type End = fn(Deferred);
    let ends: [(End, i64, &str); 3] = [
        (|deferred| deferred.refuse(FaultKind::UnsupportedOperation), -32004, "not supported"),
        (|deferred| deferred.fail("the other side is down"), -32603, "the other side is down"),
        (drop, -32603, "the agent ended without an answer"),
    ];
    for (end, code, text) in ends {
        for method in ["SendMessage", "SendStreamingMessage"] {
            let peer = open(&mut lab, Gen::V1, method, say("hi"));
            keep.on_thread(end);
            let error = answer(&mut lab, peer)["error"].take();
            assert_eq!(error["code"], code);
            assert!(error["message"].as_str().unwrap().contains(text), "{error}");
        }
        let peer = lab.open();
        lab.write(peer, &post("/message:send", &[], &Gen::V1.params(say("hi")).to_string()));
        keep.on_thread(end);
        lab.settle();
        let refused = lab.reply(peer);
        assert_eq!(refused.status, if code == -32603 { 500 } else { 400 });
        assert!(refused.text().contains(text), "{}", refused.text());
    }
}

#[test]
fn refused_turn_creates_no_task() {
    let (mut lab, _) = lab(Limits::default());
    let answer = lab.call("SendMessage", &Gen::V1.params(say("refuse")));
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["message"]),
        (&json!(-32004), &json!("not today"))
    );
    assert_eq!(lab.result("ListTasks", &json!({}))["totalSize"], 0);
    assert_eq!(lab.engine.unfinished_tasks(), 0);
}

#[test]
fn deferred_turn_continues_an_existing_task() {
    let (mut lab, keep) = lab(Limits::default());
    let task = |lab: &mut Lab| -> Value {
        lab.result("SendMessage", &Gen::V1.params(say("ask")))["task"]["id"].clone()
    };
    // A message completes the task, a job continues it, a refusal leaves it unchanged.
    for end in ["reply", "job", "refuse"] {
        let id = task(&mut lab);
        let next = OutgoingMessage { task: id.as_str(), ..say("next") };
        let peer = send(&mut lab, Gen::V1, next);
        let deferred = keep.take();
        assert_eq!(deferred.request().state(), Some(TaskState::InputRequired));
        assert!(!is_ready(deferred.canceled()));
        match end {
            "reply" => deferred.reply(words("done")),
            "job" => deferred.into_job().unwrap().reply(words("done")).unwrap(),
            _ => deferred.refuse(FaultKind::UnsupportedOperation),
        }
        let answer = answer(&mut lab, peer);
        let now = lab.result("GetTask", &json!({ "id": id }));
        if end == "refuse" {
            assert_eq!(answer["error"]["code"], -32004);
            assert_eq!(now["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        } else {
            assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
            assert_eq!(now["status"]["message"]["parts"][0]["text"], "done");
        }
    }
    // Earlier events are published with the end of the turn; a refusal discards them.
    for (end, is_there) in [("reply", true), ("job", true), ("refuse", false)] {
        let id = task(&mut lab);
        let peer =
            send(&mut lab, Gen::V1, OutgoingMessage { task: id.as_str(), ..say("artifact") });
        let deferred = keep.take();
        match end {
            "reply" => deferred.reply(words("done")),
            "job" => deferred.into_job().unwrap().reply(words("done")).unwrap(),
            _ => deferred.refuse(FaultKind::UnsupportedOperation),
        }
        answer(&mut lab, peer);
        let now = lab.result("GetTask", &json!({ "id": id }));
        assert_eq!(now["artifacts"][0]["artifactId"] == "early", is_there, "{end}");
        assert_eq!(now["status"]["state"] == "TASK_STATE_COMPLETED", is_there, "{end}");
    }
    // The turn detects that its task was canceled, and its call is answered.
    let id = task(&mut lab);
    let peer = send(&mut lab, Gen::V1, OutgoingMessage { task: id.as_str(), ..say("next") });
    let deferred = keep.take();
    lab.result("CancelTask", &json!({ "id": id }));
    assert!(is_ready(deferred.canceled()) && !is_ready(deferred.caller_gone()));
    assert!(deferred.into_job().is_err());
    assert_eq!(answer(&mut lab, peer)["error"]["code"], -32004);
}

#[test]
fn batch_and_websocket_calls_wait_for_deferred_turns() {
    let (mut lab, keep) = lab(Limits::default());
    let call = |id: &str| rpc_id(id, "SendMessage", &Gen::V1.params(say("hi")));
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &format!("[{},{}]", call("1"), call("2"))));
    keep.on_thread(|deferred| deferred.fail("no"));
    lab.settle();
    assert!(lab.received(peer).is_empty());
    keep.on_thread(|deferred| deferred.reply(words("hello")));
    let answers = answer(&mut lab, peer);
    assert_eq!(answers.as_array().map(Vec::len), Some(2));

    let socket = lab.socket("/", "");
    assert!(lab.say(socket, &call("7")).is_empty());
    assert!(lab.say(socket, &rpc("SendStreamingMessage", &Gen::V1.params(say("hi")))).is_empty());
    keep.take().into_job().unwrap().reply(words("done")).unwrap();
    keep.take().reply(words("hello"));
    lab.settle();
    let ws_answers: Vec<Value> = lab.frames(socket).iter().map(|frame| frame.json()).collect();
    assert!(
        ws_answers
            .iter()
            .any(|answer| answer["id"] == 7 && answer["result"]["message"].is_object())
    );
    assert!(ws_answers.iter().any(|answer| answer["result"]["statusUpdate"].is_object()));
}

#[test]
fn disconnect_cancels_a_deferred_turn_and_creates_no_task() {
    let limits = Limits { tasks_max: 1, ..Limits::default() };
    let (mut lab, keep) = lab(limits);
    for method in ["SendMessage", "SendStreamingMessage"] {
        let peer = open(&mut lab, Gen::V1, method, say("hi"));
        let deferred = keep.take();
        assert!(!is_ready(deferred.caller_gone()) && !is_ready(deferred.canceled()));
        // The deferred turn holds the only task slot.
        assert_eq!(lab.code("SendMessage", &Gen::V1.params(say("hi"))), -32000);
        lab.end(peer);
        assert!(is_ready(deferred.caller_gone()) && is_ready(deferred.canceled()));
        assert!(deferred.is_caller_gone());
        deferred.reply(words("too late"));
        let waiting = lab.engine.waiting();
        assert_eq!((waiting.calls, waiting.streams, lab.engine.unfinished_tasks()), (0, 0, 0));
    }
}

#[test]
fn deferred_turn_of_a_notification_is_executed() {
    let (mut lab, keep) = lab(Limits::default());
    let call = json!({
        "jsonrpc": "2.0", "method": "SendMessage", "params": Gen::V1.params(say("hi")),
    });
    for end in ["reply", "task"] {
        assert_eq!(lab.ask(&post("/", &[], &json!([call]).to_string())).status, 204);
        let deferred = keep.take();
        assert!(!is_ready(deferred.canceled()) && !is_ready(deferred.caller_gone()));
        match end {
            "reply" => deferred.reply(words("into the void")),
            _ => deferred.into_job().unwrap().reply(words("done")).unwrap(),
        }
    }
    let tasks = lab.result("ListTasks", &json!({}));
    assert_eq!(tasks["totalSize"], 1);
    assert_eq!(tasks["tasks"][0]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(lab.engine.waiting().calls, 0);
}

#[test]
fn job_sees_its_waiting_caller_disconnect() {
    let (mut lab, keep) = lab(Limits::default());
    for method in ["SendMessage", "SendStreamingMessage"] {
        let peer = open(&mut lab, Gen::V1, method, say("hi"));
        let mut job = keep.take().into_job().unwrap();
        lab.settle();
        assert!(!is_ready(job.caller_gone()) && !is_ready(job.canceled()));
        lab.end(peer);
        assert!(is_ready(job.caller_gone()) && !is_ready(job.canceled()));
        job.status(TaskState::Working, None).unwrap();
    }
    // The `canceled` future of the turn no longer follows the caller once the turn is a task.
    let peer = send(&mut lab, Gen::V1, say("hi"));
    let deferred = keep.take();
    let mut canceled = pin!(deferred.canceled());
    let mut is_canceled =
        || canceled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!is_canceled());
    let job = deferred.into_job().unwrap();
    lab.end(peer);
    assert!(is_ready(job.caller_gone()) && !is_canceled());
    // A caller that has its answer does not count as gone.
    let peer = send(&mut lab, Gen::V1, say("hi"));
    let mut job = keep.take().into_job().unwrap();
    job.status(TaskState::AuthRequired, None).unwrap();
    assert_eq!(answer(&mut lab, peer)["result"]["task"]["id"], *job.task_id().to_str());
    lab.end(peer);
    assert!(!is_ready(job.caller_gone()));
}

#[test]
fn server_shutdown_answers_deferred_calls() {
    let (mut lab, keep) = lab(Limits::default());
    let peers = ["SendMessage", "SendStreamingMessage"]
        .map(|method| open(&mut lab, Gen::V1, method, say("hi")));
    lab.engine.drain();
    lab.settle_all();
    assert!(peers.iter().all(|peer| lab.received(*peer).is_empty()));
    lab.engine.cut();
    lab.settle_all();
    for peer in peers {
        let error = lab.reply(peer).json()["error"].take();
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("before the agent answered"), "{error}");
        assert!(is_ready(keep.take().canceled()));
    }
    assert_eq!(lab.engine.running(), 0);
}

#[test]
fn deferred_call_counts_towards_store_bytes() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (40_000, 20_000);
    let (mut lab, keep) = lab(limits);
    let text = "x".repeat(9_000);
    let peers: Vec<Peer> = (0..4).map(|_| lab.open()).collect();
    for peer in &peers {
        lab.write(*peer, &post("/", &[], &rpc("SendMessage", &Gen::V1.params(say(&text)))));
    }
    let refused = peers.iter().filter(|peer| !lab.received(**peer).is_empty()).count();
    assert!((1..4).contains(&refused), "{refused}");
    // The bytes are released.
    for deferred in std::mem::take(&mut *keep.0.lock().unwrap()) {
        deferred.reply(words("hello"));
    }
    send(&mut lab, Gen::V1, say(&text));
    assert_eq!(keep.take().message().text(), text);
}

#[test]
fn untaken_message_counts_as_a_deferred_call() {
    let limits = Limits { deferred_calls_max: 1, ..Limits::default() };
    let (mut lab, keep) = lab(limits);
    // The server reads this request before the other connection takes its answer.
    let refused = lab.open();
    let peer = send(&mut lab, Gen::V1, say("hi"));
    keep.take().reply(words("hello"));
    lab.write(refused, &post("/", &[], &rpc("SendMessage", &Gen::V1.params(say("hi")))));
    let error = lab.reply(refused).json()["error"].take();
    assert!(error["message"].as_str().unwrap().contains("deferred_calls_max"), "{error}");
    assert_eq!(answer(&mut lab, peer)["result"]["message"]["parts"][0]["text"], "hello");
    let peer = send(&mut lab, Gen::V1, say("hi"));
    keep.take().reply(words("hello"));
    lab.end(peer);
    send(&mut lab, Gen::V1, say("hi"));
}

#[test]
fn untaken_message_counts_towards_store_bytes() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (40_000, 20_000);
    let (mut lab, keep) = lab(limits);
    for _ in 0..2 {
        let peers: Vec<Peer> = (0..4).map(|_| send(&mut lab, Gen::V1, say("hi"))).collect();
        for deferred in std::mem::take(&mut *keep.0.lock().unwrap()) {
            deferred.reply(words(&"x".repeat(9_000)));
        }
        let answers: Vec<Value> = peers.iter().map(|peer| answer(&mut lab, *peer)).collect();
        let refused = answers.iter().filter(|answer| answer["error"]["code"] == -32000).count();
        assert!((1..4).contains(&refused), "{refused}");
    }
}

#[test]
fn deferred_turn_with_too_many_events_fails_its_task() {
    let limits = Limits { turn_events_max: 10, ..Limits::default() };
    let (mut lab, keep) = lab(limits);
    let peer = send(&mut lab, Gen::V1, say("many"));
    let mut job = keep.take().into_job().unwrap();
    assert!(job.status(TaskState::Completed, None).is_err());
    let status = answer(&mut lab, peer)["result"]["task"]["status"].take();
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    // The same for an existing task, which the call returns in its current state.
    let id = lab.result("SendMessage", &Gen::V1.params(say("ask")))["task"]["id"].take();
    let peer = send(&mut lab, Gen::V1, OutgoingMessage { task: id.as_str(), ..say("many") });
    keep.take().reply(words("done"));
    let status = answer(&mut lab, peer)["result"]["task"]["status"].take();
    assert_eq!(status["state"], "TASK_STATE_FAILED");
}
