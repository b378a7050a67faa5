//! Traced calls: their spans, the spans of their turns, and the trace that agents get.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use peregrine::{
    agent::{Agent, Deferred, Job, Profile, Turn},
    engine::Setup,
    fault::{Fault, FaultKind},
    limits::RESUMED_SPANS_MAX,
    model::{MessageBuf, PartsBuf, TaskState},
    service::{
        observe::{CallObserver, CallRecord},
        trace::{CallSpan, Tracer, TurnEnd, TurnRecord},
    },
};
use serde_json::json;

use crate::support::{
    Lab,
    ask::{V1, post, rpc, say},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// Records its spans; calls without a trace are sampled by one bit of their trace id.
#[derive(Default)]
struct Spans {
    calls: Mutex<Vec<CallRecord>>,
    turns: Mutex<Vec<TurnRecord>>,
    clock: AtomicU64,
}

impl CallObserver for Spans {
    fn clock_ns(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed) + 1
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn call_ended(&self, call: &CallRecord) {
        self.calls.lock().unwrap().push(call.clone());
    }
}

impl Tracer for Spans {
    fn clock_ns(&self) -> u64 {
        CallObserver::clock_ns(self)
    }

    fn samples(&self, trace_id: u128) -> bool {
        (trace_id >> 3).is_multiple_of(2)
    }

    fn turn_ended(&self, turn: TurnRecord) {
        self.turns.lock().unwrap().push(turn);
    }
}

impl Spans {
    fn calls(&self) -> Vec<CallSpan> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        calls.iter().filter_map(|call| call.details.as_ref().unwrap().span).collect()
    }

    fn turns(&self) -> Vec<TurnRecord> {
        std::mem::take(&mut self.turns.lock().unwrap())
    }

    /// The one call that has ended, and its one turn.
    fn pair(&self) -> (CallSpan, TurnRecord) {
        let (calls, turns) = (self.calls(), self.turns());
        let ([call], [turn]) = (&calls[..], &turns[..]) else { panic!("{calls:?} {turns:?}") };
        assert_eq!(turn.call, *call);
        assert_ne!(turn.span_id, call.span_id);
        (*call, turn.clone())
    }
}

/// Acts on the message, and records the trace it gets.
#[derive(Clone, Default)]
struct TraceAgent {
    shown: Arc<Mutex<Vec<[Option<String>; 2]>>>,
    jobs: Arc<Mutex<Vec<Job>>>,
    deferred: Arc<Mutex<Vec<Deferred>>>,
}

fn words() -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text("here it is"))
}

impl Agent for TraceAgent {
    fn start(&self, mut turn: Turn<'_>) {
        let headers = turn.request.headers;
        let value = |name| headers.value(name).map(|value| value.into_owned());
        self.shown.lock().unwrap().push(["traceparent", "tracestate"].map(value));
        match &*turn.message.text() {
            "reply" => turn.reply(words()),
            "fail" => turn.status(TaskState::Failed),
            "refuse" => turn.refuse(Fault::new(FaultKind::UnsupportedOperation)),
            "later" => turn.resume_after(10, 7),
            "job" => self.jobs.lock().unwrap().extend(turn.detach()),
            "defer" => self.deferred.lock().unwrap().extend(turn.defer()),
            "panic" => panic!("as it was told"),
            _ => turn.status(TaskState::Completed),
        }
    }

    fn resume(&self, mut turn: Turn<'_>, _token: u64) {
        turn.status(TaskState::Completed);
    }
}

fn profile(name: &str) -> Profile {
    let mut profile = Profile::new(name, "Does what it is told.");
    profile.fields = ["traceparent", "tracestate"].map(str::to_owned).into();
    profile
}

fn lab() -> (Lab, Arc<Spans>, TraceAgent) {
    let (spans, agent) = (Arc::<Spans>::default(), TraceAgent::default());
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile("told"), Arc::new(agent.clone()))];
    let observer = Some(Arc::clone(&spans) as Arc<dyn CallObserver>);
    let tracer = Some(Arc::clone(&spans) as Arc<dyn Tracer>);
    (Lab::new(Setup { agents, observer, tracer, ..Setup::default() }), spans, agent)
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT:016x}-{flags}")
}

/// A message of a caller that records its trace.
fn send(text: &str) -> Vec<u8> {
    let fields =
        [("A2A-Version", "1.0"), ("traceparent", &*parent("01")), ("tracestate", "shop=7,a=1")];
    post("/", &fields, &rpc(V1.send(), &V1.params(say(text))))
}

#[test]
fn agent_receives_traceparent_of_its_own_turn_span() {
    let (mut lab, spans, agent) = lab();
    lab.ask(&send("go"));
    let (call, turn) = spans.pair();
    assert_eq!(call.trace_hex(), *TRACE.as_bytes());
    assert_eq!(call.parent_id, Some(PARENT));
    assert_eq!(&*turn.agent, "told");
    assert_eq!(turn.end, TurnEnd::Task(Some(TaskState::Completed)));
    let own = format!("00-{TRACE}-{:016x}-01", turn.span_id);
    let [shown] = &agent.shown.lock().unwrap()[..] else { panic!("one turn") };
    assert_eq!(*shown, [Some(own), Some("shop=7,a=1".to_owned())]);
}

#[test]
fn unsampled_trace_is_forwarded_unchanged_without_spans() {
    let (mut lab, spans, agent) = lab();
    let unsampled = parent("00");
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*unsampled), ("tracestate", "a=1")];
    lab.ask(&post("/", &fields, &rpc(V1.send(), &V1.params(say("go")))));
    assert_eq!((spans.calls().len(), spans.turns().len()), (0, 0));
    let shown = agent.shown.lock().unwrap().pop().unwrap();
    assert_eq!(shown, [Some(unsampled), Some("a=1".to_owned())]);
}

#[test]
fn calls_without_traceparent_are_sampled() {
    let (mut lab, spans, agent) = lab();
    for _ in 0..40 {
        lab.call(V1.send(), &V1.params(say("go")));
    }
    let (calls, turns) = (spans.calls(), spans.turns());
    assert!((1..40).contains(&calls.len()), "{}", calls.len());
    assert!(calls.iter().all(|call| call.parent_id.is_none() && (call.trace_id >> 3) % 2 == 0));
    assert_eq!(turns.iter().map(|turn| turn.call).collect::<Vec<_>>(), calls);
    let shown = agent.shown.lock().unwrap();
    assert_eq!(shown.iter().filter(|shown| shown[0].is_some()).count(), calls.len());
    assert!(shown.iter().all(|shown| shown[1].is_none()));
}

#[test]
fn turn_span_records_reply_failure_refusal_or_panic() {
    let (mut lab, spans, _) = lab();
    for (text, end) in [
        ("reply", TurnEnd::Replied),
        ("fail", TurnEnd::Task(Some(TaskState::Failed))),
        ("refuse", TurnEnd::Refused("UNSUPPORTED_OPERATION")),
    ] {
        lab.ask(&send(text));
        assert_eq!(spans.pair().1.end, end, "{text}");
    }
    lab.ask(&send("panic"));
    assert_eq!(spans.turns().pop().unwrap().end, TurnEnd::Lost);
}

#[test]
fn resumed_turn_gets_its_own_span_of_the_same_call() {
    let (mut lab, spans, _) = lab();
    let peer = lab.open();
    lab.write(peer, &send("later"));
    lab.settle();
    let first = spans.turns();
    assert_eq!(first[0].end, TurnEnd::Resumes);
    lab.pass(20);
    lab.reply(peer);
    let (call, second) = spans.pair();
    assert_eq!((first[0].call, second.call), (call, call));
    assert_ne!(first[0].span_id, second.span_id);
    assert_eq!(second.end, TurnEnd::Task(Some(TaskState::Completed)));
}

#[test]
fn spans_of_resumed_turns_are_dropped_beyond_the_limit() {
    let (mut lab, spans, _) = lab();
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent("01"))];
    let mut params = V1.params(say("later"));
    params["configuration"] = json!({ "returnImmediately": true });
    for _ in 0..=RESUMED_SPANS_MAX {
        lab.ask(&post("/", &fields, &rpc(V1.send(), &params)));
    }
    assert_eq!(spans.turns().len(), RESUMED_SPANS_MAX + 1);
    lab.pass(20);
    // Only the last one was recorded after the others were dropped.
    assert_eq!(spans.turns().len(), 1);
}

#[test]
fn job_turn_span_ends_with_its_task_or_when_job_is_dropped() {
    let (mut lab, spans, agent) = lab();
    for ends in [true, false] {
        let peer = lab.open();
        lab.write(peer, &send("job"));
        lab.settle();
        assert_eq!(spans.turns().len(), 0);
        let mut job = agent.jobs.lock().unwrap().pop().unwrap();
        job.status(TaskState::Working, None).unwrap();
        assert_eq!(spans.turns().len(), 0);
        let state = if ends {
            job.status(TaskState::Completed, None).unwrap();
            assert_eq!(spans.turns.lock().unwrap().len(), 1);
            TaskState::Completed
        } else {
            TaskState::Failed
        };
        drop(job);
        lab.settle();
        lab.reply(peer);
        assert_eq!(spans.pair().1.end, TurnEnd::Task(Some(state)));
    }
}

#[test]
fn deferred_turn_span_ends_with_its_answer_or_its_job() {
    let (mut lab, spans, agent) = lab();
    for (what, end) in [
        ("reply", TurnEnd::Replied),
        ("refuse", TurnEnd::Refused("UNSUPPORTED_OPERATION")),
        ("drop", TurnEnd::Refused("INTERNAL_ERROR")),
        ("job", TurnEnd::Task(Some(TaskState::Completed))),
    ] {
        let peer = lab.open();
        lab.write(peer, &send("defer"));
        lab.settle();
        assert_eq!((spans.calls().len(), spans.turns().len()), (0, 0));
        let deferred = agent.deferred.lock().unwrap().pop().unwrap();
        match what {
            "reply" => deferred.reply(words()),
            "refuse" => deferred.refuse(FaultKind::UnsupportedOperation),
            "job" => {
                let job = deferred.into_job().unwrap();
                assert_eq!(spans.turns().len(), 0);
                job.reply(words()).unwrap();
            }
            _ => drop(deferred),
        }
        lab.settle();
        lab.reply(peer);
        assert_eq!(spans.pair().1.end, end, "{what}");
    }
}

#[test]
fn each_batch_call_has_its_own_span_even_if_refused() {
    let (mut lab, spans, _) = lab();
    let one = |text| rpc(V1.send(), &V1.params(say(text)));
    let body =
        format!("[{},{},{}]", one("go"), one("refuse"), rpc("GetTask", &json!({ "id": "none" })));
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent("01"))];
    lab.ask(&post("/", &fields, &body));
    let (calls, turns) = (spans.calls(), spans.turns());
    assert_eq!((calls.len(), turns.len()), (3, 2));
    assert!(calls.iter().all(|call| call.parent_id == Some(PARENT)));
    assert_eq!([turns[0].call, turns[1].call], [calls[0], calls[1]]);
    assert!(calls[0] != calls[1] && calls[1] != calls[2]);
}

#[test]
fn rest_and_websocket_calls_read_traceparent() {
    let (mut lab, spans, _) = lab();
    let (parent, params) = (parent("01"), V1.params(say("go")));
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent)];
    lab.ask(&post("/message:send", &fields, &params.to_string()));
    assert_eq!(spans.pair().0.parent_id, Some(PARENT));
    let lines = format!("A2A-Version: 1.0\r\ntraceparent: {parent}\r\n");
    let socket = lab.socket("/", &lines);
    for _ in 0..2 {
        lab.say(socket, &rpc(V1.send(), &params));
        assert_eq!(spans.pair().0.parent_id, Some(PARENT));
    }
}

#[test]
fn agents_added_or_replaced_at_runtime_are_traced() {
    let (mut lab, spans, _) = lab();
    let agents = lab.engine.agents().unwrap().clone();
    agents.add(profile("other"), Arc::new(TraceAgent::default())).unwrap();
    agents.replace(profile("told"), Arc::new(TraceAgent::default())).unwrap();
    for (path, name) in [("/", "told"), ("/agents/other", "other")] {
        let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent("01"))];
        lab.ask(&post(path, &fields, &rpc(V1.send(), &V1.params(say("go")))));
        assert_eq!(&*spans.pair().1.agent, name);
    }
}
