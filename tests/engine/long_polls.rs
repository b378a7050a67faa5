//! Readers that wait for the next event of a task.

use peregrine::{
    agent::Job,
    engine::Next,
    limits::Limits,
    model::{Idempotency, TaskState},
};
use serde_json::{Value, json};

use crate::{
    repeats::Runs,
    support::{
        Lab, Peer,
        ask::{Gen, OutgoingMessage, V1, get, get_with, post, rpc, rpc_id, say},
    },
};

/// A server with a running task; its last event has the number 2.
fn running(limits: Limits) -> (Lab, Job, String) {
    let runs = Runs::default();
    let mut lab = Lab::new(runs.setup(limits, Idempotency::Off));
    let sent =
        lab.result("SendMessage", &V1.params(OutgoingMessage { at_once: true, ..say("job") }));
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    let mut job = runs.job();
    job.status(TaskState::Working, None).unwrap();
    (lab, job, id)
}

/// Each way to request a wait of so many seconds.
fn ways(id: &str, seconds: u64) -> Vec<(String, Vec<u8>)> {
    let prefer = format!("wait={seconds}");
    let mut ways = Vec::new();
    for generation in Gen::ALL {
        let method = generation.get();
        let params = rpc(method, &json!({ "id": id, "wait": seconds }));
        ways.push((format!("{generation:?} params"), post("/", &[], &params)));
        let fields = [("Prefer", &*prefer)];
        let head = post("/", &fields, &rpc(method, &json!({ "id": id })));
        ways.push((format!("{generation:?} Prefer"), head));
    }
    for path in ["/tasks/", "/v1/tasks/"] {
        ways.push((format!("{path} query"), get(&format!("{path}{id}?wait={seconds}"))));
        let line = format!("Prefer: respond-async, WAIT=\"{seconds}\"; x=1\r\n");
        ways.push((format!("{path} Prefer"), get_with(&format!("{path}{id}"), &line)));
    }
    ways
}

fn send(lab: &mut Lab, request: &[u8]) -> Peer {
    let peer = lab.open();
    lab.write(peer, request);
    peer
}

#[test]
fn long_poll_returns_at_the_next_event() {
    let (mut lab, mut job, id) = running(Limits::default());
    let polls = ways(&id, 30).into_iter().map(|(way, request)| (way, send(&mut lab, &request)));
    let polls: Vec<_> = polls.collect();
    lab.pass(29_000);
    for (way, peer) in &polls {
        assert!(lab.received(*peer).is_empty(), "{way}");
    }
    assert_eq!(lab.engine.waiting().calls, polls.len());
    job.status(TaskState::Working, None).unwrap();
    lab.settle();
    for (way, peer) in polls {
        let reply = lab.reply(peer);
        assert!(reply.status == 200 && reply.text().contains(&id), "{way}");
        let applied = way.ends_with("Prefer").then_some("wait=30");
        assert_eq!(reply.field("preference-applied"), applied, "{way}");
    }
    assert_eq!(lab.engine.waiting().calls, 0);
}

#[test]
fn long_poll_returns_the_task_after_its_timeout() {
    let (mut lab, _job, id) = running(Limits::default());
    for (way, request) in ways(&id, 5) {
        let peer = send(&mut lab, &request);
        lab.pass(4_999);
        assert!(lab.received(peer).is_empty(), "{way}");
        lab.pass(1);
        assert!(lab.reply(peer).text().contains(&id), "{way}");
        assert_eq!(lab.next(peer), Next::Open, "{way}");
    }
    for seconds in [0, 1] {
        let reply = send(&mut lab, &get(&format!("/tasks/{id}?wait={seconds}")));
        assert_eq!(lab.received(reply).is_empty(), seconds > 0);
    }
}

#[test]
fn long_poll_returns_at_once_if_events_were_missed() {
    let (mut lab, _job, id) = running(Limits::default());
    for (after, waits) in [(1, false), (2, true), (9, true)] {
        let params = json!({ "id": id, "wait": 10, "afterEvent": after });
        let line = format!("Prefer: wait=10\r\nLast-Event-ID: {after}\r\n");
        for request in [
            post("/", &[], &rpc("GetTask", &params)),
            get(&format!("/tasks/{id}?wait=10&afterEvent={after}")),
            get_with(&format!("/tasks/{id}"), &line),
        ] {
            let peer = send(&mut lab, &request);
            assert_eq!(lab.received(peer).is_empty(), waits, "{after}");
        }
    }
    let wrong = json!({ "id": id, "wait": 10, "afterEvent": "x" });
    assert_eq!(lab.code("GetTask", &wrong), -32602);
    assert_eq!(lab.code("GetTask", &json!({ "id": id, "wait": -1 })), -32602);
}

#[test]
fn long_poll_of_a_finished_or_paused_task_returns_at_once() {
    for words in ["hello", "ask"] {
        let runs = Runs::default();
        let mut lab = Lab::new(runs.setup(Limits::default(), Idempotency::Off));
        let sent = lab.result("SendMessage", &V1.params(say(words)));
        let id = sent["task"]["id"].as_str().unwrap();
        for (way, request) in ways(id, 30) {
            assert!(lab.ask(&request).text().contains(id), "{words} {way}");
        }
        let missing = lab.ask(&get("/tasks/none?wait=30"));
        assert_eq!(missing.status, 404);
    }
}

#[test]
fn batch_and_websocket_calls_can_long_poll() {
    let (mut lab, mut job, id) = running(Limits::default());
    let call = |number, params| rpc_id(number, "GetTask", &params);
    let (waits, reads) = (json!({ "id": id, "wait": 20 }), json!({ "id": id }));
    let batch = format!("[{},{}]", call("1", waits.clone()), call("2", reads.clone()));
    let batch = send(&mut lab, &post("/", &[], &batch));
    let socket = lab.socket("/", "Prefer: wait=20\r\n");
    // The field of an upgrade request does not apply to single messages.
    assert_eq!(lab.say(socket, &call("3", reads))[0]["id"], 3);
    assert_eq!(lab.say(socket, &call("4", waits.clone())), Vec::<Value>::new());
    assert!(lab.received(batch).is_empty());
    job.status(TaskState::Working, None).unwrap();
    lab.settle();
    let answers = lab.reply(batch).json();
    let numbers: Vec<_> = answers.as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(lab.frames(socket)[0].json()["id"], 4);
    let shorter = json!({ "id": id, "wait": 10 });
    assert_eq!(lab.say(socket, &call("5", shorter)), Vec::<Value>::new());
    lab.pass(10_000);
    assert_eq!(lab.frames(socket)[0].json()["id"], 5);
}

#[test]
fn long_poll_ends_at_once_for_head_and_server_shutdown() {
    let (mut lab, _job, id) = running(Limits::default());
    let peer = lab.open();
    lab.write(peer, format!("HEAD /tasks/{id}?wait=9 HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    assert_eq!(lab.head_reply(peer).status, 200);
    let waits = send(&mut lab, &get(&format!("/tasks/{id}?wait=30")));
    lab.engine.drain();
    lab.engine.cut();
    lab.settle_all();
    assert!(lab.reply(waits).text().contains(&id));
}

#[test]
fn long_poll_ms_max() {
    let (mut lab, _job, id) = running(Limits { long_poll_ms_max: 3_000, ..Limits::default() });
    for (way, request) in ways(&id, 99_999_999) {
        let peer = send(&mut lab, &request);
        lab.pass(2_999);
        assert!(lab.received(peer).is_empty(), "{way}");
        lab.pass(1);
        let reply = lab.reply(peer);
        assert!(reply.text().contains(&id), "{way}");
        let applied = way.ends_with("Prefer").then_some("wait=3");
        assert_eq!(reply.field("preference-applied"), applied, "{way}");
    }
    let card = lab.ask(&get("/.well-known/agent-card.json")).json();
    let declared = &card["capabilities"]["extensions"][0];
    assert_eq!(declared["uri"], "urn:peregrine:long-poll:1");
    assert_eq!(declared["params"], json!({ "waitSecondsMax": 3 }));
}

#[test]
fn long_polls_count_towards_connections_max() {
    let (mut lab, _job, id) = running(Limits { connections_max: 1, ..Limits::default() });
    let waits = send(&mut lab, &get(&format!("/tasks/{id}?wait=9")));
    let refused = lab.ask(&get(&format!("/tasks/{id}?wait=9")));
    assert!(refused.status == 429 && refused.text().contains("connections_max"));
    lab.pass(9_000);
    lab.reply(waits);
}
