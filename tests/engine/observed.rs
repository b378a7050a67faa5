//! The observer of a server gets each call once, whichever way the call ends.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use peregrine::{
    auth::Authenticator,
    engine::Setup,
    fault::FaultKind,
    limits::{
        Limits,
        callers::{PEER_CHECKS_MAX, PEER_FAILURES_MAX},
    },
    model::{Generation, Op},
    service::{
        Peer,
        observe::{CallBinding, CallEnd, CallObserver, CallRecord, LimitHit},
    },
};
use serde_json::json;

use crate::support::{
    Lab,
    ask::{V1, get_with, post, rpc, say},
    callers::ByName,
};

/// Records its calls; its clock advances by one with each read.
#[derive(Default)]
struct Notes {
    calls: Mutex<Vec<CallRecord>>,
    limits: Mutex<Vec<&'static str>>,
    clock: AtomicU64,
    is_curious: bool,
    keeps_turns: bool,
}

impl CallObserver for Notes {
    fn clock_ns(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed) + 1
    }

    fn turned_ns(&self, _worker: usize) -> u64 {
        self.clock_ns()
    }

    fn keeps_turns(&self) -> bool {
        self.keeps_turns
    }

    fn wants_details(&self) -> bool {
        self.is_curious
    }

    fn limit_hit(&self, hit: &LimitHit<'_>) {
        self.limits.lock().unwrap().push(hit.limit);
    }

    fn call_ended(&self, call: &CallRecord) {
        self.calls.lock().unwrap().push(call.clone());
    }
}

impl Notes {
    fn take(&self) -> Vec<CallRecord> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn one(&self) -> CallRecord {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

fn lab(is_curious: bool, limits: Limits) -> (Lab, Arc<Notes>) {
    let notes = Arc::new(Notes { is_curious, ..Notes::default() });
    let observer = Some(Arc::clone(&notes) as Arc<dyn CallObserver>);
    (Lab::new(Setup { observer, limits, ..Setup::default() }), notes)
}

#[test]
fn observer_records_binding_operation_and_bytes_of_a_call() {
    let (mut lab, notes) = lab(false, Limits::default());
    let body = rpc(V1.send(), &V1.params(say("hi")));
    let reply = lab.ask(&post("/", &[("A2A-Version", "1.0")], &body));
    let call = notes.one();
    assert_eq!((call.binding, call.op), (CallBinding::JsonRpc, Some(Op::Send)));
    assert_eq!((call.generation, call.status), (Generation::V1, 200));
    assert_eq!((call.refusal, call.waited, call.end), (None, false, CallEnd::Complete));
    assert_eq!(call.bytes_in, body.len() as u64);
    assert!(call.bytes_out > reply.text().len() as u64 && call.stream.is_none());
    assert!(call.began_ns > 0 && call.details.is_none());

    let path = "/tasks/none";
    lab.ask(&get_with(path, "A2A-Version: 1.0\r\n"));
    let call = notes.one();
    assert_eq!((call.binding, call.op), (CallBinding::HttpJson, Some(Op::Get)));
    assert_eq!((call.refusal.unwrap().kind, call.status), (FaultKind::TaskNotFound, 404));

    let socket = lab.socket("/", "A2A-Version: 1.0\r\n");
    lab.say(socket, &rpc("GetTask", &json!({ "id": "none" })));
    let call = notes.one();
    assert_eq!((call.binding, call.op), (CallBinding::WebSocket, Some(Op::Get)));
    // Cards and unknown paths are not calls.
    for path in ["/.well-known/agent-card.json", "/nowhere"] {
        lab.ask(&get_with(path, ""));
        assert_eq!(notes.take().len(), 0, "{path}");
    }
}

#[test]
fn malformed_and_unknown_calls_are_recorded_without_op() {
    let (mut lab, notes) = lab(false, Limits::default());
    let nothing = rpc("Nothing", &json!({}));
    for (body, kind) in [
        ("{", FaultKind::Parse),
        ("[]", FaultKind::InvalidRequest),
        (&nothing, FaultKind::MethodNotFound),
    ] {
        lab.ask(&post("/", &[("A2A-Version", "1.0")], body));
        let call = notes.one();
        assert_eq!((call.op, call.refusal.unwrap().kind), (None, kind), "{body}");
    }
    notes.take();
    lab.code("GetTask", &json!({}));
    let call = notes.one();
    assert_eq!(call.op, Some(Op::Get));
    assert_eq!(call.refusal.unwrap().kind, FaultKind::InvalidParams);
}

#[test]
fn observer_records_each_batch_call_and_counts_bytes_once() {
    let (mut lab, notes) = lab(false, Limits::default());
    let good = rpc("ListTasks", &json!({}));
    let waits = rpc(V1.send(), &V1.params(say("hold:5:1")));
    let body = format!("[{good},{},{waits}]", rpc("Nothing", &json!({})));
    let peer = lab.open();
    lab.write(peer, &post("/", &[("A2A-Version", "1.0")], &body));
    lab.settle();
    assert_eq!(notes.calls.lock().unwrap().len(), 2);
    lab.pass(10_000);
    lab.reply(peer);
    let all = notes.take();
    let ops: Vec<_> = all.iter().map(|call| (call.op, call.refusal.is_some())).collect();
    assert_eq!(ops, [(Some(Op::List), false), (None, true), (Some(Op::Send), false)]);
    assert_eq!(all.iter().map(|call| call.bytes_in).sum::<u64>(), body.len() as u64);
    assert_eq!(all.iter().map(|call| call.waited).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn observer_gets_a_start_time_for_each_batch_call() {
    for (keeps_turns, is_curious) in [(true, false), (true, true), (false, false)] {
        // Without turns the clock is read once more, at the start of the request.
        let first = if keeps_turns { 1 } else { 2 };
        let notes = Arc::new(Notes { keeps_turns, is_curious, ..Notes::default() });
        let observer = Some(Arc::clone(&notes) as Arc<dyn CallObserver>);
        let mut lab = Lab::new(Setup { observer, ..Setup::default() });
        let good = rpc("ListTasks", &json!({}));
        let waits = rpc(V1.send(), &V1.params(say("hold:5:1")));
        let peer = lab.open();
        lab.write(peer, &post("/", &[], &format!("[{good},{good},{waits}]")));
        lab.settle();
        // The third call has begun, with its own time.
        assert_eq!(notes.clock.load(Relaxed), first + 2);
        lab.pass(10_000);
        lab.reply(peer);
        let began: Vec<u64> = notes.take().iter().map(|call| call.began_ns).collect();
        assert_eq!(began, [first, first + 1, first + 2], "{keeps_turns} {is_curious}");
    }
}

#[test]
fn observer_records_a_stream_at_its_end_with_the_reason() {
    let (mut lab, notes) = lab(false, Limits::default());
    let peer = lab.stream("SendStreamingMessage", &V1.params(say("stream:3")));
    lab.settle();
    lab.reply(peer);
    let call = notes.one();
    let stream = call.stream.unwrap();
    assert_eq!((call.op, call.end), (Some(Op::Stream), CallEnd::Complete));
    assert!(stream.events >= 3 && stream.first_event_ns.unwrap() > call.began_ns);
    assert!(!stream.resumed && stream.lag_max > 0 && call.bytes_out > 0);

    let peer = lab.stream("SendStreamingMessage", &V1.params(say("hold:60000:1")));
    lab.settle();
    assert_eq!(notes.take().len(), 0);
    lab.end(peer);
    lab.settle();
    drop(lab);
    assert_eq!(notes.one().end, CallEnd::ClientLeft);
}

#[test]
fn refusal_record_names_the_reached_limit() {
    let (mut lab, notes) = lab(false, Limits { streams_max: 1, ..Limits::default() });
    let _held = lab.stream("SendStreamingMessage", &V1.params(say("hold:60000:1")));
    lab.settle();
    lab.code("SendStreamingMessage", &V1.params(say("stream:3")));
    let refusal = notes.one().refusal.unwrap();
    assert_eq!((refusal.kind, refusal.limit), (FaultKind::Overloaded, Some("streams_max")));
}

#[test]
fn tokens_beyond_the_failure_budget_of_a_peer_are_503() {
    let notes = Arc::new(Notes::default());
    let observer = Some(Arc::clone(&notes) as Arc<dyn CallObserver>);
    let authenticator =
        Some(Arc::new(ByName { is_signed: true, ..ByName::default() }) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { observer, authenticator, ..Setup::default() });
    let remote = Some("192.0.2.7".parse().unwrap());
    let mut show = |token: &str| {
        let peer = lab.open_to(Peer { remote, ..Peer::default() });
        let bearer = format!("Bearer {token}");
        let fields = [("Authorization", &*bearer), ("A2A-Version", "1.0")];
        lab.write(peer, &post("/", &fields, &rpc("ListTasks", &json!({}))));
        lab.reply(peer).status
    };
    for n in 0..PEER_FAILURES_MAX + PEER_CHECKS_MAX {
        assert_eq!(show(&format!("wrong {n}")), 401, "{n}");
    }
    assert!(notes.limits.lock().unwrap().is_empty());
    assert_eq!([show("alice"), show("wrong again")], [503, 503]);
    assert_eq!(*notes.limits.lock().unwrap(), ["wrong_credentials"; 2]);
}

#[test]
fn call_details_contain_task_id_and_trace_id() {
    let (mut lab, notes) = lab(true, Limits::default());
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let trace = format!("00-{id}-00f067aa0ba902b7-01");
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*trace)];
    let reply = lab.ask(&post("/", &fields, &rpc(V1.send(), &V1.params(say("hi")))));
    let details = notes.one().details.unwrap();
    let task = reply.result()["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(details.task, task.as_bytes());
    assert_eq!(details.trace_id.unwrap(), *id.as_bytes().first_chunk::<32>().unwrap());
    lab.code("GetTask", &json!({ "id": "none" }));
    assert_eq!(notes.one().details.unwrap().task, b"none");
}
