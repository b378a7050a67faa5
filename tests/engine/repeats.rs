//! Duplicate sends: an equal send is executed once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use peregrine::{
    agent::{Agent, Deferred, Job, Profile, Turn},
    engine::Setup,
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{Idempotency, IdempotentConflict, MessageBuf, PartsBuf, TaskState},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, V01, V1, V03, get, post, rpc, say, text_of},
    callers::ByName,
};

/// Acts on the first word of the message, and counts its turns.
#[derive(Clone, Default)]
pub struct Runs {
    count: Arc<AtomicUsize>,
    deferred: Arc<Mutex<Vec<Deferred>>>,
    jobs: Arc<Mutex<Vec<Job>>>,
}

impl Agent for Runs {
    fn start(&self, mut turn: Turn<'_>) {
        let run = self.count.fetch_add(1, SeqCst) + 1;
        let words = turn.message.text().to_owned();
        match words.split(' ').next().unwrap_or_default() {
            "say" => turn.reply(text_message(&format!("run {run}"))),
            "refuse" => turn.refuse(Fault::because(FaultKind::UnsupportedOperation, "no")),
            "ask" => turn.status(TaskState::InputRequired),
            "idle" => {}
            "defer" => self.deferred.lock().unwrap().extend(turn.defer().ok()),
            "job" => self.jobs.lock().unwrap().extend(turn.detach().ok()),
            _ => {
                turn.artifact_of_message("echo");
                turn.status(TaskState::Completed);
            }
        }
    }
}

impl Runs {
    fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    fn deferred(&self) -> Deferred {
        self.deferred.lock().unwrap().pop().expect("a deferred turn")
    }

    pub fn job(&self) -> Job {
        self.jobs.lock().unwrap().pop().expect("a job")
    }

    pub fn setup(&self, limits: Limits, idempotency: Idempotency) -> Setup {
        let profile = Profile::new("runs", "Counts its turns.");
        let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(self.clone()))];
        Setup { agents, limits, idempotency, ..Setup::default() }
    }
}

fn text_message(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}

fn lab_of(limits: Limits) -> (Lab, Runs) {
    let runs = Runs::default();
    (Lab::new(runs.setup(limits, Idempotency::Everybody)), runs)
}

fn lab() -> (Lab, Runs) {
    lab_of(Limits::default())
}

/// A lab in which other content under a used message id is a conflict.
fn refusing_lab(limits: Limits) -> (Lab, Runs) {
    let runs = Runs::default();
    let setup = runs.setup(limits, Idempotency::Everybody);
    let idempotent_conflict = IdempotentConflict::Refuse;
    (Lab::new(Setup { idempotent_conflict, ..setup }), runs)
}

/// The binding and generation of a send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Rpc(Gen),
    Rest,
    RestV03,
    Socket,
}

const WAYS: [Way; 5] = [Way::Rpc(V03), Way::Rpc(V1), Way::Rest, Way::RestV03, Way::Socket];

impl Way {
    /// Sends, and returns the HTTP status and the answer.
    fn send(self, lab: &mut Lab, message: OutgoingMessage<'_>) -> (u16, Value) {
        match self {
            Way::Rpc(generation) => {
                let body = rpc(generation.send(), &generation.params(message));
                let reply = lab.ask(&post("/", &[], &body));
                (reply.status, reply.json())
            }
            Way::Rest => {
                let reply = lab.ask(&post("/message:send", &[], &V1.params(message).to_string()));
                (reply.status, reply.json())
            }
            Way::RestV03 => {
                let id = if message.id.is_empty() { "m" } else { message.id };
                let body = json!({"request": {"messageId": id, "role": "ROLE_USER",
                    "content": [{"text": message.text}]}, "configuration": {"blocking": true}});
                let reply = lab.ask(&post("/v1/message:send", &[], &body.to_string()));
                (reply.status, reply.json())
            }
            Way::Socket => {
                let peer = lab.socket("/", "");
                let mut answers = lab.say(peer, &rpc("SendMessage", &V1.params(message)));
                (200, answers.pop().expect("an answer"))
            }
        }
    }

    /// The id of the task in an answer.
    fn task(self, answer: &Value) -> String {
        let task = match self {
            Way::Rpc(V1) | Way::Socket => &answer["result"]["task"],
            Way::Rpc(_) => &answer["result"],
            Way::Rest | Way::RestV03 => &answer["task"],
        };
        task["id"].as_str().unwrap_or_else(|| panic!("{self:?}: {answer}")).to_owned()
    }
}

#[test]
fn equal_message_is_one_task_in_each_format_and_binding() {
    for first in WAYS {
        let (mut lab, runs) = lab();
        let id = first.task(&first.send(&mut lab, say("hello")).1);
        for again in WAYS {
            let (status, answer) = again.send(&mut lab, say("hello"));
            assert_eq!((status, again.task(&answer)), (200, id.clone()), "{first:?} {again:?}");
        }
        assert_eq!(runs.count(), 1, "{first:?}");
        let other = first.send(&mut lab, OutgoingMessage { id: "other", ..say("hello") }).1;
        assert_ne!(first.task(&other), id);
    }
}

#[test]
fn reused_message_id_with_other_content_creates_new_task() {
    for first in WAYS {
        let (mut lab, runs) = lab();
        let ids = ["hello", "other", "third"].map(|text| first.send(&mut lab, say(text)).1);
        let ids = ids.map(|answer| first.task(&answer));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{first:?}");
        for again in WAYS {
            for (text, id) in ["hello", "other", "third"].iter().zip(&ids) {
                let (status, answer) = again.send(&mut lab, say(text));
                assert_eq!((status, &again.task(&answer)), (200, id), "{first:?} {again:?}");
            }
        }
        assert_eq!(runs.count(), 3, "{first:?}");
    }
}

#[test]
fn refuse_mode_rejects_reused_message_id_with_other_content() {
    let (mut lab, runs) = refusing_lab(Limits::default());
    Way::Rest.send(&mut lab, say("hello"));
    for way in WAYS {
        let (status, answer) = way.send(&mut lab, say("other"));
        match way {
            Way::Rest => {
                assert_eq!((status, &answer["error"]["status"]), (409, &json!("ALREADY_EXISTS")));
                let reason = &answer["error"]["details"][0]["reason"];
                assert_eq!(reason, "IDEMPOTENCY_CONFLICT");
            }
            Way::RestV03 => assert_eq!((status, &answer["code"]), (409, &json!(-32602))),
            Way::Rpc(_) | Way::Socket => {
                assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32602)), "{answer}");
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.starts_with("message.messageId: "), "{message}");
            }
        }
    }
    assert_eq!(runs.count(), 1);
}

#[test]
fn message_id_is_scoped_to_task_and_context() {
    let (mut lab, runs) = lab();
    let first = lab.result("SendMessage", &V1.params(say("ask")))["task"].take();
    let (task, context) = (first["id"].as_str().unwrap(), first["contextId"].as_str().unwrap());
    let same = OutgoingMessage { context: Some(context), ..say("ask") };
    let second = lab.result("SendMessage", &V1.params(same))["task"].take();
    assert_ne!(second["id"], first["id"]);
    let next = OutgoingMessage { task: Some(task), ..say("ask") };
    assert_eq!(lab.result("SendMessage", &V1.params(next))["task"]["id"], first["id"]);
    assert_eq!(runs.count(), 3);
    for (message, id) in [(say("ask"), &first["id"]), (same, &second["id"]), (next, &first["id"])] {
        assert_eq!(lab.result("SendMessage", &V1.params(message))["task"]["id"], *id);
    }
    assert_eq!(runs.count(), 3);
}

#[test]
fn idempotency_key_header_deduplicates_sends() {
    let (mut lab, runs) = lab();
    let send = |lab: &mut Lab, key: &str, params: &Value, method: &str| {
        let fields = [("Idempotency-Key", key)];
        lab.ask(&post("/", &fields, &rpc(method, params))).json()
    };
    for generation in Gen::ALL {
        let before = runs.count();
        let name = format!("{generation:?}");
        let (quoted, bare) = (format!("\"{name}\""), name.as_str());
        // The message itself may have a generated id.
        let params = |id| match generation {
            V01 => generation.params(say("hello")),
            V03 | V1 => generation.params(OutgoingMessage { id, ..say("hello") }),
        };
        let first = send(&mut lab, &quoted, &params("a"), generation.send());
        let again = send(&mut lab, bare, &params("b"), generation.send());
        let (first, again) = (generation.task(&first["result"]), generation.task(&again["result"]));
        assert_eq!((&first["id"], runs.count()), (&again["id"], before + 1), "{generation:?}");
        let other = send(&mut lab, bare, &generation.params(say("other")), generation.send());
        assert_eq!(other["error"]["code"], -32602, "{generation:?}");
        let message = other["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("Idempotency-Key: "), "{message}");
    }
    // An invalid key is ignored: the message's own id counts.
    let long = "k".repeat(256);
    for key in ["", "\"", "a b", &long] {
        let before = runs.count();
        for _ in 0..2 {
            send(
                &mut lab,
                key,
                &V1.params(OutgoingMessage { id: "own", ..say("x") }),
                "SendMessage",
            );
        }
        assert!(runs.count() <= before + 1, "{key}");
    }
}

#[test]
fn idempotency_key_header_is_ignored_on_a_batch() {
    let (mut lab, runs) = lab();
    let call = |id| rpc("SendMessage", &V1.params(OutgoingMessage { id, ..say("hello") }));
    let batch = format!("[{},{}]", call("a"), call("b"));
    for _ in 0..2 {
        let reply = lab.ask(&post("/", &[("Idempotency-Key", "k")], &batch)).json();
        assert_ne!(reply[0]["result"]["task"]["id"], reply[1]["result"]["task"]["id"]);
    }
    assert_eq!(runs.count(), 2);
}

#[test]
fn send_without_message_id_is_not_deduplicated() {
    let (mut lab, runs) = lab();
    let params = json!({"message": {"role": "ROLE_USER", "parts": [{"text": "hello"}]}});
    let ids = [(), ()].map(|()| lab.result("SendMessage", &params)["task"]["id"].take());
    assert!(ids[0] != ids[1] && runs.count() == 2);
    // 0.1 has no message ids; extra members are ignored.
    let mut params = V01.params(OutgoingMessage { task: Some("mine"), ..say("ask") });
    params["message"]["messageId"] = json!("m");
    for _ in 0..2 {
        lab.result("tasks/send", &params);
    }
    assert_eq!(runs.count(), 4);
}

#[test]
fn anonymous_repeats_run_again_in_off_and_authenticated_mode() {
    for idempotency in [Idempotency::Off, Idempotency::Authenticated] {
        let runs = Runs::default();
        let mut lab = Lab::new(runs.setup(Limits::default(), idempotency));
        let ids = [(), ()].map(|()| Way::Rest.task(&Way::Rest.send(&mut lab, say("hello")).1));
        assert!(ids[0] != ids[1] && runs.count() == 2, "{idempotency:?}");
    }
}

#[test]
fn message_id_deduplicates_when_the_extension_is_active() {
    let runs = Runs::default();
    let mut setup = runs.setup(Limits::default(), Idempotency::Authenticated);
    setup.authenticator = Some(Arc::<ByName>::default());
    let mut lab = Lab::new(setup);
    let body = rpc("SendMessage", &V1.params(say("hello")));
    let mut send = |more: &[(&str, &str)]| {
        let fields = [&[("x-api-key", "alice")], more].concat();
        lab.ask(&post("/", &fields, &body)).json()["result"]["task"]["id"].take()
    };
    let uri = "urn:peregrine:idempotent-send:1";
    let both = format!("urn:other, {uri}");
    let first = send(&[("A2A-Extensions", uri)]);
    assert_eq!(send(&[("X-A2A-Extensions", &both)]), first);
    // Other clients send equal messages under one id and mean several.
    let others = [(), ()].map(|()| send(&[]));
    assert!(others[0] != others[1] && others[0] != first && others[1] != first);
    assert_ne!(send(&[("A2A-Extensions", "urn:peregrine:idempotent-send:2")]), first);
    let key = send(&[("Idempotency-Key", "k")]);
    assert_eq!(send(&[("Idempotency-Key", "k")]), key);
}

#[test]
fn json_of_repeated_sends_is_compared_by_value() {
    let (mut lab, runs) = refusing_lab(Limits::default());
    let send = |lab: &mut Lab, data: &str, metadata: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{
            "messageId":"m","role":"ROLE_USER","parts":[{{"data":{data}}}],
            "metadata":{metadata}}}}}}}"#
        );
        lab.ask(&post("/", &[], &body)).json()
    };
    let first = send(&mut lab, r#"{"a":[1,{}],"b":"é"}"#, r#"{"x":{"y":-0,"z":null}}"#);
    assert!(first["result"].is_object(), "{first}");
    for (data, metadata) in [
        (r#" { "b" : "\u00e9" , "a" : [ 1.0 , { } ] } "#, r#"{"x":{"z":null,"y":0.0}}"#),
        (r#"{"a":[10e-1,{}],"b":"é"}"#, r#"{"x":{"y":0,"z":null}}"#),
    ] {
        assert_eq!(send(&mut lab, data, metadata), first, "{data}");
    }
    for (data, metadata) in [
        (r#"{"a":[{},1],"b":"é"}"#, r#"{"x":{"y":0,"z":null}}"#),
        (r#"{"a":[1,[]],"b":"é"}"#, r#"{"x":{"y":0,"z":null}}"#),
        (r#"{"a":["1",{}],"b":"é"}"#, r#"{"x":{"y":0,"z":null}}"#),
        (r#"{"a":[1,{}],"b":"e"}"#, r#"{"x":{"y":0,"z":null}}"#),
        (r#"{"a":[1,{}],"b":"é"}"#, r#"{"x":{"y":0},"z":null}"#),
        (r#"{"a":[9007199254740993,{}],"b":"é"}"#, r#"{"x":{"y":0,"z":null}}"#),
    ] {
        assert_eq!(send(&mut lab, data, metadata)["error"]["code"], -32602, "{data}");
    }
    assert_eq!(runs.count(), 1);
}

#[test]
fn repeated_send_returns_the_same_direct_message() {
    let (mut lab, runs) = lab();
    let first = lab.result("SendMessage", &V1.params(say("say")))["message"].take();
    assert_eq!(text_of(&first), "run 1");
    assert_eq!(lab.result("SendMessage", &V1.params(say("say")))["message"], first);
    assert_eq!(
        lab.result("message/send", &V03.params(say("say")))["messageId"],
        first["messageId"]
    );
    let stream = lab.stream("SendStreamingMessage", &V1.params(say("say")));
    let event = lab.reply(stream).events()[0].result()["message"].clone();
    assert_eq!((event, runs.count()), (first, 1));
}

#[test]
fn repeat_of_refused_send_is_executed_again() {
    let (mut lab, runs) = lab();
    for run in 1..4 {
        assert_eq!(lab.code("SendMessage", &V1.params(say("refuse"))), -32004);
        assert_eq!(runs.count(), run);
    }
    // Another message is accepted as well: the first has left no entry.
    assert!(lab.result("SendMessage", &V1.params(say("hello")))["task"].is_object());
}

fn send_waiting(lab: &mut Lab, method: &str, message: OutgoingMessage<'_>) -> Peer {
    let peer = lab.stream(method, &V1.params(message));
    assert!(lab.received(peer).is_empty(), "{}", lab.received(peer).escape_ascii());
    peer
}

#[test]
fn repeat_of_deferred_send_waits_for_its_outcome() {
    let (mut lab, runs) = refusing_lab(Limits::default());
    let methods = ["SendMessage", "SendMessage", "SendStreamingMessage"];
    let peers = methods.map(|method| send_waiting(&mut lab, method, say("defer")));
    let at_once =
        send_waiting(&mut lab, "SendMessage", OutgoingMessage { at_once: true, ..say("defer") });
    assert_eq!(lab.code("SendMessage", &V1.params(say("defer 2"))), -32602);
    let deferred = runs.deferred();
    let id = deferred.task_id().to_str().into_owned();
    let mut job = deferred.into_job().unwrap();
    lab.settle();
    assert_eq!(lab.reply(at_once).json()["result"]["task"]["id"], *id);
    job.artifact(&peregrine::model::ArtifactBuf::new("a", &PartsBuf::new().text("x"))).unwrap();
    job.status(TaskState::Completed, None).unwrap();
    lab.settle();
    let unary = [peers[0], peers[1]].map(|peer| lab.reply(peer).json()["result"]["task"].take());
    assert_eq!(unary[0], unary[1]);
    assert_eq!((&unary[0]["id"], runs.count()), (&json!(id), 1));
    let events = lab.reply(peers[2]).events();
    let first = &events[0].result()["task"];
    assert_eq!(
        (&first["id"], &first["status"]["state"]),
        (&json!(id), &json!(V1.state("submitted")))
    );
    assert_eq!(events.len(), 3);
}

#[test]
fn duplicate_waits_for_the_direct_message_or_the_fault() {
    let (mut lab, runs) = lab();
    let peers = [(), ()].map(|()| send_waiting(&mut lab, "SendMessage", say("defer")));
    runs.deferred().reply(text_message("later"));
    lab.settle();
    let messages = peers.map(|peer| lab.reply(peer).json()["result"]["message"].take());
    assert_eq!((text_of(&messages[0]), &messages[0]), ("later", &messages[1]));
    assert_eq!(lab.result("SendMessage", &V1.params(say("defer")))["message"], messages[0]);
    assert_eq!(runs.count(), 1);

    let other = OutgoingMessage { id: "n", ..say("defer") };
    let peers = [(), ()].map(|()| send_waiting(&mut lab, "SendMessage", other));
    runs.deferred().refuse(FaultKind::TaskTerminal);
    lab.settle();
    for peer in peers {
        assert_eq!(lab.reply(peer).json()["error"]["code"], -32004);
    }
    send_waiting(&mut lab, "SendMessage", other);
    assert_eq!(runs.count(), 3);
}

#[test]
fn repeat_of_running_send_waits_or_streams_from_start() {
    let (mut lab, runs) = lab();
    let first = send_waiting(&mut lab, "SendMessage", say("job"));
    let unary = send_waiting(&mut lab, "SendMessage", say("job"));
    let mut job = runs.job();
    job.status(TaskState::Working, None).unwrap();
    let stream = lab.stream("SendStreamingMessage", &V1.params(say("job")));
    let events = lab.peek(stream).events();
    let states = events.iter().map(|event| event.result().clone()).collect::<Vec<_>>();
    assert_eq!(states[0]["task"]["status"]["state"], V1.state("submitted"));
    assert_eq!(states[1]["statusUpdate"]["status"]["state"], V1.state("working"));
    job.status(TaskState::Completed, None).unwrap();
    lab.settle();
    let tasks = [first, unary].map(|peer| lab.reply(peer).json()["result"]["task"].take());
    assert_eq!((&tasks[0], runs.count()), (&tasks[1], 1));
    assert_eq!(lab.reply(stream).events().len(), 3);
}

#[test]
fn repeat_of_a_resultless_send_returns_submitted_task() {
    let (mut lab, runs) = lab();
    for _ in 0..2 {
        let task = lab.result("SendMessage", &V1.params(say("idle")))["task"].take();
        assert_eq!(task["status"]["state"], V1.state("submitted"));
    }
    assert_eq!(runs.count(), 1);
}

#[test]
fn repeated_follow_up_returns_its_original_state() {
    let (mut lab, runs) = lab();
    let task = lab.result("SendMessage", &V1.params(say("ask")))["task"]["id"].take();
    let id = task.as_str().unwrap();
    let (second, third) = (
        OutgoingMessage { id: "2", task: Some(id), ..say("ask again") },
        OutgoingMessage { id: "3", task: Some(id), ..say("hello") },
    );
    let state = |lab: &mut Lab, message| {
        lab.result("SendMessage", &V1.params(message))["task"]["status"]["state"].take()
    };
    for (message, expected) in [
        (second, "input-required"),
        (third, "completed"),
        (second, "input-required"),
        (third, "completed"),
        // A repeat of the first send returns the task's current state.
        (say("ask"), "completed"),
    ] {
        assert_eq!(state(&mut lab, message), V1.state(expected), "{message:?}");
    }
    assert_eq!(runs.count(), 3);
    // A new message id is a new message to a finished task.
    let fourth = OutgoingMessage { id: "4", task: Some(id), ..say("hello") };
    assert_eq!(lab.code("SendMessage", &V1.params(fourth)), -32004);
}

#[test]
fn idempotency_ttl_ms() {
    let limits = Limits { task_ttl_ms: 1_000, idempotency_ttl_ms: 10_000, ..Limits::default() };
    let (mut lab, runs) = refusing_lab(limits);
    let id = Way::Rest.task(&Way::Rest.send(&mut lab, say("hello")).1);
    lab.pass(5_000);
    assert_eq!(lab.ask(&get(&format!("/tasks/{id}"))).status, 404);
    // An evicted task is not created again.
    for method in ["SendMessage", "SendStreamingMessage"] {
        assert_eq!(lab.code(method, &V1.params(say("hello"))), -32001);
    }
    assert_eq!(lab.code("SendMessage", &V1.params(say("other"))), -32602);
    assert_eq!(runs.count(), 1);
    lab.pass(5_000);
    assert!(lab.result("SendMessage", &V1.params(say("other")))["task"].is_object());
    assert_eq!(runs.count(), 2);
}

#[test]
fn idempotency_entries_max() {
    let limits = Limits { idempotency_entries_max: 3, ..Limits::default() };
    let (mut lab, runs) = lab_of(limits);
    let send = |lab: &mut Lab, id| {
        lab.result("SendMessage", &V1.params(OutgoingMessage { id, ..say("hello") }));
    };
    // A pending entry is never evicted, however many follow.
    let waits = send_waiting(&mut lab, "SendMessage", say("defer"));
    ["a", "b", "c", "d"].iter().for_each(|id| send(&mut lab, id));
    ["c", "d"].iter().for_each(|id| send(&mut lab, id));
    assert_eq!(runs.count(), 5);
    send(&mut lab, "a");
    assert_eq!(runs.count(), 6);
    let joins = send_waiting(&mut lab, "SendMessage", say("defer"));
    runs.deferred().reply(text_message("later"));
    lab.settle();
    let answers = [waits, joins].map(|peer| lab.reply(peer).json()["result"].take());
    assert_eq!((&answers[0], runs.count()), (&answers[1], 6));
    // With pending entries only, further sends are executed without an entry; none is refused.
    for id in ["e", "f", "g"] {
        send_waiting(&mut lab, "SendMessage", OutgoingMessage { id, ..say("defer") });
    }
    for _ in 0..2 {
        send(&mut lab, "h");
    }
    assert_eq!(runs.count(), 11);
}

/// A lab that authenticates callers by the name in `X-API-Key` and accepts anonymous ones as well.
fn lab_with_owners(limits: Limits) -> (Lab, Runs) {
    let runs = Runs::default();
    let mut setup = runs.setup(limits, Idempotency::Everybody);
    setup.authenticator = Some(Arc::<ByName>::default());
    setup.agents[0].0.anonymous = true;
    (Lab::new(setup), runs)
}

/// Sends as an owner, or anonymously, and returns the answer.
fn send_as(lab: &mut Lab, owner: Option<&str>, id: &str, text: &str) -> Value {
    let fields: Vec<(&str, &str)> = owner.into_iter().map(|owner| ("x-api-key", owner)).collect();
    let body = rpc("SendMessage", &V1.params(OutgoingMessage { id, ..say(text) }));
    lab.ask(&post("/", &fields, &body)).json()["result"].take()
}

#[test]
fn flood_of_sends_evicts_no_entry_of_another_owner() {
    let limits = Limits { idempotency_entries_max: 12, ..Limits::default() };
    let (mut lab, runs) = lab_with_owners(limits);
    let ids = ["1", "2", "3"];
    let first = ids.map(|id| send_as(&mut lab, Some("victim"), id, "hello"));
    for round in 0..100 {
        let id = round.to_string();
        send_as(&mut lab, Some("attacker"), &id, "hello");
        send_as(&mut lab, None, &id, "hello");
    }
    let before = runs.count();
    assert_eq!(ids.map(|id| send_as(&mut lab, Some("victim"), id, "hello")), first);
    assert_eq!(runs.count(), before);
}

#[test]
fn flood_of_direct_messages_evicts_none_of_another_owner() {
    let limits = Limits { idempotency_bytes_max: 2_000, ..Limits::default() };
    let (mut lab, runs) = lab_with_owners(limits);
    let first = send_as(&mut lab, Some("victim"), "1", "say");
    for round in 0..100 {
        let id = round.to_string();
        send_as(&mut lab, Some("attacker"), &id, "say");
        send_as(&mut lab, None, &id, "say");
    }
    let before = runs.count();
    assert_eq!(send_as(&mut lab, Some("victim"), "1", "say"), first);
    assert_eq!(runs.count(), before);
}

#[test]
fn idempotency_bytes_max() {
    let limits = Limits { idempotency_bytes_max: 400, ..Limits::default() };
    let (mut lab, runs) = lab_of(limits);
    let send = |lab: &mut Lab, id| {
        let result = lab.result("SendMessage", &V1.params(OutgoingMessage { id, ..say("say") }));
        text_of(&result["message"]).to_owned()
    };
    assert_eq!(["a", "b", "a"].map(|id| send(&mut lab, id)), ["run 1", "run 2", "run 1"]);
    // One more than fits: the oldest is evicted.
    for id in ["c", "d", "e", "f"] {
        send(&mut lab, id);
    }
    assert_eq!(["f", "a"].map(|id| send(&mut lab, id)), ["run 6", "run 7"]);
    assert_eq!(runs.count(), 7);
}

#[test]
fn concurrent_equal_sends_execute_once() {
    const ROUNDS: usize = 200;
    let runs = Runs::default();
    let labs = Lab::pair(runs.setup(Limits::default(), Idempotency::Everybody));
    let barrier = std::sync::Barrier::new(2);
    let both = thread::scope(|scope| {
        let barrier = &barrier;
        let threads = labs.map(|mut lab| {
            scope.spawn(move || {
                let ids = (0..ROUNDS).map(|round| {
                    let (id, text) =
                        (round.to_string(), if round % 2 == 0 { "hello" } else { "say" });
                    let peer = lab.open();
                    let body =
                        rpc("SendMessage", &V1.params(OutgoingMessage { id: &id, ..say(text) }));
                    barrier.wait();
                    lab.write(peer, &post("/", &[], &body));
                    while lab.received(peer).is_empty() {
                        lab.settle_all();
                    }
                    let result = lab.reply(peer).json()["result"].take();
                    let shown = if text == "say" {
                        &result["message"]["messageId"]
                    } else {
                        &result["task"]["id"]
                    };
                    assert!(shown.is_string(), "{result}");
                    shown.clone()
                });
                ids.collect::<Vec<_>>()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(runs.count(), ROUNDS);
}
