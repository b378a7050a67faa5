//! Header fields about a call: its deadline, and how many hops it has passed.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    engine::{Next, Setup},
    limits::Limits,
    model::{MessageBuf, PartsBuf},
};
use serde_json::json;

use crate::support::{
    BEGIN, Lab,
    ask::{Gen, OutgoingMessage, V1, post, rpc, say},
};

/// The deadline and the hops of a call, as the agent gets them.
type CallTerms = (Option<u64>, u32);

/// A turn, with its deadline and hops.
type Turned = (CallTerms, Option<Deferred>);

/// Keeps each turn.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Turned>>>);

impl Agent for Keep {
    fn start(&self, turn: Turn<'_>) {
        let terms = (turn.request.deadline_unix_ms, turn.request.hops);
        let deferred = turn.defer().ok();
        let request = deferred.as_ref().map(Deferred::request);
        assert_eq!(
            request.map(|request| (request.deadline_unix_ms(), request.hops())),
            Some(terms)
        );
        self.0.lock().unwrap().push((terms, deferred));
    }
}

fn lab(limits: Limits) -> (Lab, Keep) {
    let keep = Keep::default();
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("keep", "Answers later."), Arc::new(keep.clone()))];
    (Lab::new(Setup { agents, limits, ..Setup::default() }), keep)
}

fn send(generation: Gen, method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    post("/", fields, &rpc(method, &generation.params(say("hi"))))
}

fn rest(fields: &[(&str, &str)]) -> Vec<u8> {
    post("/message:send", fields, &V1.params(say("hi")).to_string())
}

#[test]
fn stream_head_ms() {
    let (mut lab, keep) = lab(Limits::default());
    for generation in Gen::ALL {
        let peer = lab.open();
        lab.write(peer, &send(generation, generation.stream(), &[("Request-Timeout", "20")]));
        lab.pass(999);
        assert!(lab.received(peer).is_empty());
        lab.pass(1);
        let text = |lab: &Lab| String::from_utf8_lossy(lab.received(peer)).into_owned();
        let begun = text(&lab);
        assert!(begun.starts_with("HTTP/1.1 200 OK\r\n"), "{begun}");
        assert_eq!(begun.matches(": keep-alive\n\n").count(), 1, "{begun}");
        lab.pass(15_000);
        assert_eq!(text(&lab).matches(": keep-alive\n\n").count(), 2);
        lab.pass(4_000);
        let reply = lab.reply(peer);
        let code = if generation == Gen::V01 { "-32011" } else { "-32000" };
        let all = reply.text();
        assert!(all.contains("event: error\n") && all.contains(code), "{all}");
        assert_eq!((reply.status, lab.next(peer)), (200, Next::Open));
        keep.0.lock().unwrap().clear();
    }
    // Two calls in sequence on one connection.
    let peer = lab.open();
    lab.write(peer, &send(V1, V1.stream(), &[]));
    lab.pass(1_000);
    let (_, deferred) = keep.0.lock().unwrap().pop().unwrap();
    deferred.unwrap().reply(MessageBuf::agent(&PartsBuf::new().text("done")));
    lab.pass(1);
    assert!(lab.reply(peer).text().contains("\"done\""));
    lab.write(peer, &send(V1, V1.send(), &[]));
    let (_, deferred) = keep.0.lock().unwrap().pop().unwrap();
    deferred.unwrap().reply(MessageBuf::agent(&PartsBuf::new().text("again")));
    lab.pass(1);
    assert!(lab.reply(peer).json()["result"]["message"].is_object());
}

#[test]
fn call_past_its_request_timeout_gets_a_deadline_error() {
    // The heads of streams are not sent before.
    let (mut lab, keep) = lab(Limits { stream_head_ms: 10_000, ..Limits::default() });
    let late = [("Request-Timeout", "3")];
    for generation in Gen::ALL {
        for method in [generation.send(), generation.stream()] {
            let peer = lab.open();
            lab.write(peer, &send(generation, method, &late));
            lab.pass(2_999);
            assert!(lab.received(peer).is_empty());
            lab.pass(1);
            let error = lab.reply(peer).json()["error"].take();
            let code = if generation == Gen::V01 { -32011 } else { -32000 };
            assert_eq!(error["code"], code, "{generation:?} {method}: {error}");
            assert_eq!(lab.next(peer), Next::Open);
            let (_, deferred) = keep.0.lock().unwrap().pop().unwrap();
            assert!(deferred.unwrap().is_caller_gone());
        }
    }
    let peer = lab.open();
    lab.write(peer, &rest(&late));
    lab.pass(3_000);
    let reply = lab.reply(peer);
    assert_eq!(
        (reply.status, &reply.json()["error"]["status"]),
        (504, &json!("DEADLINE_EXCEEDED"))
    );
}

#[test]
fn request_timeout_ends_stream_and_remaining_batch_calls() {
    let mut lab = Lab::echo();
    let late = [("Request-Timeout", "3")];
    let peer = lab.open();
    let held = V1.params(say("hold:9000:1"));
    lab.write(peer, &post("/", &late, &rpc("SendStreamingMessage", &held)));
    lab.pass(3_000);
    let reply = lab.reply(peer);
    let last = reply.events().pop().unwrap();
    assert_eq!(
        (last.name.as_deref(), &last.data["error"]["code"]),
        (Some("error"), &json!(-32000))
    );
    assert_eq!(lab.next(peer), Next::Open);
    let quick = rpc("SendMessage", &V1.params(OutgoingMessage { id: "q", ..say("hello") }));
    let batch = format!("[{},{quick}]", rpc("SendMessage", &held));
    lab.write(peer, &post("/", &late, &batch));
    lab.pass(3_000);
    let answers = lab.reply(peer).json();
    assert!(answers[0]["result"].is_object() && answers[1]["error"].is_object(), "{answers}");
}

#[test]
fn call_with_zero_request_timeout_is_not_executed() {
    let (mut lab, keep) = lab(Limits::default());
    let late = [("Request-Timeout", "0")];
    assert_eq!(lab.ask(&rest(&late)).status, 504);
    assert_eq!(lab.ask(&send(V1, "SendMessage", &late)).json()["error"]["code"], -32000);
    let batch = format!("[{}]", rpc("SendMessage", &V1.params(say("hi"))));
    assert_eq!(lab.ask(&post("/", &late, &batch)).json()[0]["error"]["code"], -32000);
    assert!(keep.0.lock().unwrap().is_empty());
}

#[test]
fn agent_receives_deadline_and_hop_count_of_a_call() {
    let (mut lab, keep) = lab(Limits::default());
    for (fields, expected) in [
        (vec![], (None, 0)),
        (vec![("Request-Timeout", "7")], (Some(BEGIN.unix_ms + 7_000), 0)),
        (vec![("Request-Timeout", "soon"), ("A2A-Hops", "many")], (None, 0)),
        (vec![("A2A-Hops", "3")], (None, 3)),
        (vec![("A2A-Hops", "1"), ("A2A-Hops", "4")], (None, 4)),
        (vec![("A2A-Hops", "4"), ("A2A-Hops", "many")], (None, 4)),
        (vec![("A2A-Hops", "1, 5"), ("A2A-Hops", "2")], (None, 5)),
        (vec![("Via", "1.1 a (x, (y, z)), 1.0 b"), ("Via", "1.1 c")], (None, 3)),
        (vec![("Via", "1.1 a, 1.1 b"), ("A2A-Hops", "1")], (None, 2)),
    ] {
        let peer = lab.open();
        lab.write(peer, &send(V1, "SendMessage", &fields));
        assert_eq!(keep.0.lock().unwrap().pop().unwrap().0, expected, "{fields:?}");
    }
    // The field of an upgrade request does not apply to single messages.
    let socket = lab.socket("/", "Request-Timeout: 1\r\nA2A-Hops: 99\r\n");
    lab.say(socket, &rpc("SendMessage", &V1.params(say("hi"))));
    assert_eq!(keep.0.lock().unwrap().pop().unwrap().0, (None, 0));
}

#[test]
fn hops_max() {
    let (mut lab, keep) = lab(Limits { hops_max: 2, ..Limits::default() });
    let via = "1.1 a, 1.1 b, 1.1 c";
    for field in [("A2A-Hops", "3"), ("A2A-Hops", "99999999999999999999"), ("Via", via)] {
        let reply = lab.ask(&rest(&[field]));
        let error = reply.json()["error"].take();
        assert_eq!((reply.status, &error["status"]), (508, &json!("FAILED_PRECONDITION")));
        assert_eq!(error["details"][0]["reason"], "LOOP_DETECTED");
        assert!(error["message"].as_str().unwrap().contains("hops_max"), "{error}");
        for generation in Gen::ALL {
            let error = lab.ask(&send(generation, generation.send(), &[field])).json();
            let code = if generation == Gen::V01 { -32011 } else { -32000 };
            assert_eq!(error["error"]["code"], code, "{error}");
        }
    }
    assert!(keep.0.lock().unwrap().is_empty());
    let peer = lab.open();
    lab.write(peer, &rest(&[("A2A-Hops", "2")]));
    assert_eq!(keep.0.lock().unwrap().len(), 1);
}
