//! Tasks that are not stored: the agent looks them up, at once, later or without a result.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    thread,
};

use peregrine::{
    agent::{Agent, DeferredLookup, Profile, TaskLookup, Turn, Wanted},
    auth::{Authenticator, Quota, Quotas},
    engine::{Mount, Setup, Tenants},
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{ArtifactBuf, Generation, MessageBuf, PartsBuf, TaskBuf, TaskState},
    service,
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, get, post, rpc, rpc_id, say},
    callers::ByName,
    ws::upgrade,
};

/// Stores its tasks elsewhere and finds them later; "at once" is found at once.
#[derive(Clone, Default)]
struct Archive(Arc<Mutex<Vec<(LookupDetails, DeferredLookup)>>>);

/// The details of a lookup that an agent gets.
#[derive(Debug, Default, PartialEq)]
struct LookupDetails {
    id: String,
    context: Option<String>,
    tenant: Option<String>,
    metadata: Option<String>,
    header: Option<String>,
}

impl Agent for Archive {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::Working);
        turn.resume_after(1_000_000, 0);
    }

    fn missing(&self, lookup: TaskLookup<'_>) {
        let id = lookup.task_id.to_str().into_owned();
        if id == "nowhere" {
            return;
        }
        let details = LookupDetails {
            id: id.clone(),
            context: lookup.context_id.map(|id| id.to_str().into_owned()),
            tenant: lookup.request.tenant.map(str::to_owned),
            metadata: lookup.request.metadata.map(|metadata| metadata.as_str().to_owned()),
            header: lookup.request.headers.value("x-key").map(|value| value.into_owned()),
        };
        let Ok(deferred) = lookup.defer() else { return };
        if id == "at once" {
            return deferred.found(task(&id, TaskState::Completed));
        }
        self.0.lock().unwrap().push((details, deferred));
    }
}

impl Archive {
    fn take(&self) -> DeferredLookup {
        self.0.lock().unwrap().pop().expect("a lookup").1
    }

    /// Answers the last lookup from another thread.
    fn found(&self, task: TaskBuf) {
        let lookup = self.take();
        thread::spawn(move || lookup.found(task)).join().unwrap();
    }
}

fn lab(limits: Limits) -> (Lab, Archive) {
    let archive = Archive::default();
    let mut profile = Profile::new("archive", "Has tasks elsewhere.");
    profile.fields = vec!["x-key".to_owned()];
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(archive.clone()))];
    let mount = Mount {
        path: "/langsmith".to_owned(),
        dialect: "langsmith".to_owned(),
        agent: Some("archive".to_owned()),
    };
    let (mounts, tenants) = (vec![mount], Tenants::Any);
    (Lab::new(Setup { agents, limits, mounts, tenants, ..Setup::default() }), archive)
}

/// A task with two messages of history and an artifact.
fn task(id: &str, state: TaskState) -> TaskBuf {
    let parts = |text| PartsBuf::new().text(text);
    let mut task = TaskBuf::new(id, "conversation-9", Generation::V1).unwrap();
    task.status(TaskState::Submitted, 1_000, None).unwrap();
    for number in ["one", "two"] {
        task.user_message(MessageBuf::agent(&parts(number)).id(number).view()).unwrap();
    }
    task.artifact(&ArtifactBuf::new("found", &parts("in the cellar"))).unwrap();
    task.status(state, 2_000, None).unwrap();
    task
}

/// Sends a call that waits for its agent.
fn send(lab: &mut Lab, request: &[u8]) -> Peer {
    let peer = lab.open();
    lab.write(peer, request);
    assert!(lab.received(peer).is_empty(), "{}", lab.received(peer).escape_ascii());
    peer
}

fn send_rpc(lab: &mut Lab, method: &str, params: &Value) -> Peer {
    send(lab, &post("/", &[], &rpc(method, params)))
}

fn answer(lab: &mut Lab, peer: Peer) -> Value {
    lab.settle();
    lab.reply(peer).json()
}

#[test]
fn task_stored_for_another_tenant_causes_no_lookup() {
    let (mut lab, archive) = lab(Limits::default());
    let mut params = Gen::V1.params(OutgoingMessage { at_once: true, ..say("hi") });
    params["tenant"] = json!("acme");
    let call = |lab: &mut Lab, method: &str, params: &Value| {
        lab.ask(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)))
    };
    let task = call(&mut lab, "SendMessage", &params).result()["task"].take();
    for tenant in ["other", ""] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let reply = call(&mut lab, method, &json!({ "id": task["id"], "tenant": tenant }));
            assert_eq!(reply.code(), -32001, "{method}: {}", reply.text());
        }
    }
    assert!(archive.0.lock().unwrap().is_empty());
    let reply = call(&mut lab, "GetTask", &json!({ "id": task["id"], "tenant": "acme" }));
    assert_eq!(reply.result()["id"], task["id"]);
}

#[test]
fn task_of_a_deferred_lookup_is_returned_in_every_version() {
    let (mut lab, archive) = lab(Limits::default());
    for generation in Gen::ALL {
        let peer = send_rpc(&mut lab, generation.get(), &json!({ "id": "old" }));
        assert_eq!(archive.0.lock().unwrap()[0].1.wanted(), Wanted::Get { history: None });
        archive.found(task("old", TaskState::Completed));
        let answer = answer(&mut lab, peer);
        let shown = &answer["result"];
        assert_eq!(shown["id"], "old");
        assert_eq!(shown["status"]["state"], generation.state("completed"));
        assert_eq!(shown["artifacts"][0]["artifactId"], "found");
    }
    for path in ["/tasks/old", "/v1/tasks/old"] {
        let peer = send(&mut lab, &get(path));
        archive.found(task("old", TaskState::Completed));
        assert_eq!(answer(&mut lab, peer)["artifacts"][0]["artifactId"], "found");
    }
    // The task is not stored.
    assert_eq!(lab.result("ListTasks", &json!({}))["totalSize"], 0);
    assert_eq!(lab.engine.waiting().calls, 0);
}

#[test]
fn immediate_lookup_returns_the_task_without_waiting() {
    let (mut lab, _) = lab(Limits::default());
    assert_eq!(lab.result("GetTask", &json!({ "id": "at once" }))["id"], "at once");
    assert_eq!(lab.code("GetTask", &json!({ "id": "nowhere" })), -32001);
    assert_eq!(lab.code("CancelTask", &json!({ "id": "nowhere" })), -32001);
    assert_eq!(lab.code("SubscribeToTask", &json!({ "id": "nowhere" })), -32001);
}

#[test]
fn batch_and_websocket_calls_wait_for_deferred_lookups() {
    let (mut lab, archive) = lab(Limits::default());
    let of = |id: &str| rpc_id(id, "GetTask", &json!({ "id": "old" }));
    let peer = send(&mut lab, &post("/", &[], &format!("[{},{}]", of("1"), of("2"))));
    archive.found(task("old", TaskState::Working));
    archive.take().not_found();
    let answers = answer(&mut lab, peer);
    let codes = answers.as_array().unwrap().iter().filter(|one| one["error"]["code"] == -32001);
    assert_eq!((answers.as_array().unwrap().len(), codes.count()), (2, 1));

    let socket = lab.socket("/", "");
    assert!(lab.say(socket, &of("7")).is_empty());
    archive.found(task("old", TaskState::Working));
    lab.settle();
    let frame = lab.frames(socket)[0].json();
    assert_eq!((&frame["id"], &frame["result"]["id"]), (&json!(7), &json!("old")));
}

#[test]
fn lookup_answer_respects_history_length() {
    let (mut lab, archive) = lab(Limits::default());
    for (history, ids) in
        [(json!(1), vec!["two"]), (json!(0), vec![]), (json!(9), vec!["one", "two"])]
    {
        let params = json!({ "id": "old", "historyLength": history });
        let peer = send_rpc(&mut lab, "GetTask", &params);
        archive.found(task("old", TaskState::Working));
        let answer = answer(&mut lab, peer);
        let shown = answer["result"]["history"].as_array().cloned().unwrap_or_default();
        let shown: Vec<&str> = shown.iter().filter_map(|one| one["messageId"].as_str()).collect();
        assert_eq!(shown, ids);
    }
}

/// A server with authentication on which 16 calls may wait for agents; one agent is open to all
/// callers.
fn authenticating_lab(quotas: Quotas) -> (Lab, Archive) {
    let archive = Archive::default();
    let open = Profile { anonymous: true, ..Profile::new("open", "Anybody's.") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (Profile::new("archive", "Has tasks elsewhere."), Arc::new(archive.clone())),
        (open, Arc::new(archive.clone())),
    ];
    let limits = Limits { deferred_calls_max: 16, ..Limits::default() };
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let setup =
        Setup { agents, limits, authenticator, quotas, trusted_proxies, ..Setup::default() };
    (Lab::new(setup), archive)
}

/// Requests a task that is not stored. `None`: the call waits or is a stream, else its answer.
fn look_up(lab: &mut Lab, token: &str, method: &str) -> (Peer, Option<Value>) {
    let (peer, bearer) = (lab.open(), format!("Bearer {token}"));
    let fields = [("Authorization", &*bearer), ("A2A-Version", "1.0")];
    lab.write(peer, &post("/", &fields, &rpc(method, &json!({ "id": "old" }))));
    let answer = (!lab.received(peer).is_empty()).then(|| lab.reply(peer).json());
    (peer, answer)
}

#[test]
fn lookups_hold_caller_permits_until_the_agent_answers() {
    let (mut lab, archive) = authenticating_lab(Quotas::default());
    let is_refused = |answer: &Option<Value>| {
        let reason = answer.as_ref().map(|answer| &answer["error"]["data"][0]["reason"]);
        assert!(reason.is_none_or(|reason| *reason == "RATE_LIMIT_EXCEEDED"), "{answer:?}");
        reason.is_some()
    };
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let (disconnected, first) = look_up(&mut lab, "alice", method);
        let (_, second) = look_up(&mut lab, "alice", "GetTask");
        assert!(!is_refused(&first) && !is_refused(&second), "{method}");
        // The permit of a client that disconnects stays with the pending lookup; the agent gets no
        // second one.
        lab.end(disconnected);
        for again in ["GetTask", "CancelTask", "SubscribeToTask"] {
            assert!(is_refused(&look_up(&mut lab, "alice", again).1), "{method} {again}");
        }
        assert_eq!(archive.0.lock().unwrap().len(), 2);
        // Other callers have their own permits, and a call without a deferred lookup needs none.
        assert!(!is_refused(&look_up(&mut lab, "bob", method).1));
        let nowhere = rpc("GetTask", &json!({ "id": "nowhere" }));
        let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
        assert_eq!(lab.ask(&post("/", &fields, &nowhere)).code(), -32001);
        drop((archive.take(), archive.take(), archive.take()));
        lab.settle();
    }
    assert!((0..2).all(|_| look_up(&mut lab, "alice", "GetTask").1.is_none()));
    let one = Quota { running_tasks: Some(1), ..Quota::default() };
    let (mut lab, _archive) = authenticating_lab(Quotas { known: one, ..Quotas::default() });
    let refusals = [0; 2].map(|_| is_refused(&look_up(&mut lab, "alice", "GetTask").1));
    assert_eq!(refusals, [false, true]);
}

#[test]
fn anonymous_lookups_hold_permits_of_their_ip_address() {
    let (mut lab, _archive) = authenticating_lab(Quotas::default());
    let old = rpc("GetTask", &json!({ "id": "old" }));
    let mut waits = |address: &str, forwarded: &str, over_socket: bool| {
        let remote = Some(address.parse().unwrap());
        let peer = lab.open_to(service::Peer { remote, ..service::Peer::default() });
        if over_socket {
            lab.write(peer, &upgrade("/agents/open", &format!("X-Forwarded-For: {forwarded}\r\n")));
            lab.take(peer);
            return lab.say(peer, &old).is_empty();
        }
        let fields = [("A2A-Version", "1.0"), ("X-Forwarded-For", forwarded)];
        lab.write(peer, &post("/agents/open", &fields, &old));
        lab.received(peer).is_empty()
    };
    for (address, forwarded, over_socket, expected) in [
        ("192.0.2.1", "", false, true),
        ("192.0.2.1", "192.0.2.9", false, true),
        ("192.0.2.1", "192.0.2.9", false, false),
        ("10.0.0.1", "192.0.2.1", false, false),
        ("10.0.0.1", "192.0.2.1", true, false),
        ("10.0.0.1", "192.0.2.2", true, true),
        ("10.0.0.1", "192.0.2.2", false, true),
        ("192.0.2.2", "", true, false),
        ("10.0.0.1", "192.0.2.3", true, true),
    ] {
        let what = format!("{address} {forwarded} {over_socket}");
        assert_eq!(waits(address, forwarded, over_socket), expected, "{what}");
    }
}

#[test]
fn agent_decides_the_cancel_of_an_unstored_task() {
    let (mut lab, archive) = lab(Limits::default());
    let refuse: fn(DeferredLookup) = |lookup| {
        lookup.refuse(Fault::because(FaultKind::TaskNotCancelable, "it has been shipped"));
    };
    let ends: [(fn(DeferredLookup), i64); 5] = [
        (|lookup| lookup.found(task("old", TaskState::Canceled)), 0),
        // A task that will end later is returned as it is.
        (|lookup| lookup.found(task("old", TaskState::Working)), 0),
        (|lookup| lookup.found(task("old", TaskState::Completed)), -32002),
        (refuse, -32002),
        (drop, -32001),
    ];
    for (end, code) in ends {
        for generation in Gen::ALL {
            let peer = send_rpc(&mut lab, generation.cancel(), &json!({ "id": "old" }));
            let lookup = archive.take();
            assert_eq!(lookup.wanted(), Wanted::Cancel);
            assert_eq!(&*lookup.task_id().to_str(), "old");
            end(lookup);
            let answer = answer(&mut lab, peer);
            match code {
                0 => assert_eq!(answer["result"]["id"], "old"),
                code => assert_eq!(answer["error"]["code"], code, "{answer}"),
            }
        }
    }
    let peer = send(&mut lab, &post("/tasks/old:cancel", &[], "{}"));
    refuse(archive.take());
    assert!(answer(&mut lab, peer).to_string().contains("it has been shipped"));
}

#[test]
fn subscription_to_an_unstored_task_sends_only_the_task() {
    let (mut lab, archive) = lab(Limits::default());
    for generation in Gen::ALL {
        let peer = send_rpc(&mut lab, generation.subscribe(), &json!({ "id": "old" }));
        assert_eq!(lab.engine.waiting().streams, 1);
        let lookup = archive.take();
        assert_eq!(lookup.wanted(), Wanted::Subscribe);
        lookup.found(task("old", TaskState::Working));
        lab.settle();
        let events = lab.reply(peer).events();
        assert!(events[0].result().to_string().contains("old"));
        assert_eq!((events.len(), lab.engine.waiting().streams), (1, 0));
        // A finished task has no further events, as if it were stored.
        let peer = send_rpc(&mut lab, generation.subscribe(), &json!({ "id": "old" }));
        archive.found(task("old", TaskState::Completed));
        let ended = answer(&mut lab, peer)["error"]["code"].take();
        let peer = send_rpc(&mut lab, generation.subscribe(), &json!({ "id": "old" }));
        drop(archive.take());
        assert_eq!(
            (ended, answer(&mut lab, peer)["error"]["code"].take()),
            (json!(-32004), json!(-32001))
        );
    }
    let peer = send(&mut lab, &get("/tasks/old:subscribe"));
    archive.found(task("old", TaskState::Working));
    lab.settle();
    assert_eq!(lab.reply(peer).events().len(), 1);
}

#[test]
fn lookup_has_tenant_metadata_header_and_context() {
    let (mut lab, archive) = lab(Limits::default());
    let lookup_details = |lab: &mut Lab, request: &[u8]| {
        let peer = send(lab, request);
        let (details, lookup) = archive.0.lock().unwrap().pop().unwrap();
        lookup.found(task(&details.id, TaskState::Working));
        (details, answer(lab, peer))
    };
    let body = rpc("CancelTask", &json!({ "id": "old", "tenant": "acme", "metadata": { "a": 1 } }));
    let (details, _) =
        lookup_details(&mut lab, &post("/", &[("X-Key", "open"), ("X-Other", "no")], &body));
    let expected = LookupDetails {
        id: "old".to_owned(),
        tenant: Some("acme".to_owned()),
        metadata: Some(r#"{"a":1}"#.to_owned()),
        header: Some("open".to_owned()),
        ..LookupDetails::default()
    };
    assert_eq!(details, expected);
    // The lookup has created no tenant.
    assert_eq!(lab.result("ListTasks", &json!({ "tenant": "acme" }))["totalSize"], 0);
    // A dialect that names the context sees tasks of that context only.
    for (context, is_found) in [("conversation-9", true), ("other", false)] {
        let body = rpc("tasks/get", &json!({ "id": "old", "contextId": context }));
        let request = post("/langsmith", &[("Accept", "*/*")], &body);
        let (details, answer) = lookup_details(&mut lab, &request);
        assert_eq!(details.context.as_deref(), Some(context));
        assert_eq!(answer.get("result").is_some(), is_found, "{answer}");
    }
}

#[test]
fn stored_task_causes_no_lookup() {
    let (mut lab, archive) = lab(Limits::default());
    let params = Gen::V1.params(OutgoingMessage { at_once: true, ..say("hi") });
    let made = lab.result("SendMessage", &params)["task"].take();
    for (method, id) in [("GetTask", &made["id"]), ("CancelTask", &made["id"])] {
        assert_eq!(lab.result(method, &json!({ "id": id }))["id"], *id);
    }
    let body = rpc("tasks/get", &json!({ "id": made["id"], "contextId": "other" }));
    let refused = lab.ask(&post("/langsmith", &[("Accept", "*/*")], &body));
    assert_eq!(refused.code(), -32001);
    assert!(archive.0.lock().unwrap().is_empty());
}

#[test]
fn wrong_or_oversized_lookup_answer_returns_an_error() {
    let limits = Limits { task_bytes_max: 5_000_000, ..Limits::default() };
    let (mut lab, archive) = lab(limits);
    let peer = send_rpc(&mut lab, "GetTask", &json!({ "id": "old" }));
    archive.found(task("another", TaskState::Working));
    let error = answer(&mut lab, peer)["error"].take();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32603), &json!("the agent answered with a different task"))
    );
    let peer = send_rpc(&mut lab, "GetTask", &json!({ "id": "old" }));
    let mut large = task("old", TaskState::Working);
    let parts = PartsBuf::new().text(&"x".repeat(5_000_000));
    large.artifact(&ArtifactBuf::new("large", &parts)).unwrap();
    archive.found(large);
    let error = answer(&mut lab, peer)["error"].take();
    assert!(error["message"].as_str().unwrap().contains("task_bytes_max"), "{error}");
}

#[test]
fn lookups_count_as_deferred_calls_until_answered() {
    let limits = Limits { deferred_calls_max: 1, ..Limits::default() };
    let (mut lab, archive) = lab(limits);
    let params = json!({ "id": "old" });
    // The server reads this request before the other connection takes its answer.
    let refused = lab.open();
    let peer = send_rpc(&mut lab, "GetTask", &params);
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let error = lab.call(method, &params)["error"].take();
        assert!(error["message"].as_str().unwrap().contains("deferred_calls_max"), "{error}");
    }
    // An answer that is not taken yet keeps its permit.
    archive.found(task("old", TaskState::Working));
    lab.write(refused, &post("/", &[], &rpc("GetTask", &params)));
    assert!(lab.reply(refused).text().contains("deferred_calls_max"));
    assert_eq!(answer(&mut lab, peer)["result"]["id"], "old");
    let peer = send_rpc(&mut lab, "GetTask", &params);
    lab.end(peer);
    drop(archive.take());
    let peer = send_rpc(&mut lab, "GetTask", &params);
    archive.found(task("old", TaskState::Working));
    answer(&mut lab, peer);
}

#[test]
fn untaken_lookup_answer_counts_towards_store_bytes() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (40_000, 20_000);
    let (mut lab, archive) = lab(limits);
    let peers: Vec<Peer> =
        (0..4).map(|_| send_rpc(&mut lab, "GetTask", &json!({ "id": "old" }))).collect();
    for _ in &peers {
        let mut found = task("old", TaskState::Working);
        let parts = PartsBuf::new().text(&"x".repeat(9_000));
        found.artifact(&ArtifactBuf::new("large", &parts)).unwrap();
        archive.found(found);
    }
    let answers: Vec<Value> = peers.iter().map(|peer| answer(&mut lab, *peer)).collect();
    let refused = answers.iter().filter(|answer| answer.get("error").is_some());
    for answer in refused.clone() {
        assert!(answer.to_string().contains("store_bytes_max"), "{answer}");
    }
    assert!((1..4).contains(&refused.count()));
    // All of the bytes are released.
    let peer = send_rpc(&mut lab, "GetTask", &json!({ "id": "old" }));
    archive.found(task("old", TaskState::Working));
    assert_eq!(answer(&mut lab, peer)["result"]["id"], "old");
}

#[test]
fn lookup_sees_caller_disconnect_and_ends_with_the_server() {
    let (mut lab, archive) = lab(Limits::default());
    let is_signaled = |lookup: &DeferredLookup| {
        let cx = &mut Context::from_waker(Waker::noop());
        let is_ready = pin!(lookup.caller_gone()).poll(cx).is_ready();
        assert_eq!(is_ready, lookup.is_caller_gone());
        is_ready
    };
    // The first slot of the store has a task, which is independent of the lookup.
    lab.result("SendMessage", &Gen::V1.params(OutgoingMessage { at_once: true, ..say("hi") }));
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let peer = send_rpc(&mut lab, method, &json!({ "id": "old" }));
        let lookup = archive.take();
        assert!(!is_signaled(&lookup));
        lab.end(peer);
        assert!(is_signaled(&lookup));
        lookup.found(task("old", TaskState::Working));
    }
    let methods = ["GetTask", "CancelTask", "SubscribeToTask"];
    let peers = methods.map(|method| send_rpc(&mut lab, method, &json!({ "id": "old" })));
    lab.engine.drain();
    lab.engine.cut();
    lab.settle_all();
    for peer in peers {
        let error = lab.reply(peer).json()["error"].take();
        assert_eq!(error["code"], -32000);
        assert!(error.to_string().contains("before the agent answered"), "{error}");
        assert!(is_signaled(&archive.take()));
    }
    let waiting = lab.engine.waiting();
    assert_eq!((waiting.calls, waiting.streams), (0, 0));
}

#[test]
fn notification_starts_a_lookup_only_for_a_cancel() {
    let (mut lab, archive) = lab(Limits::default());
    let notifications = ["GetTask", "SubscribeToTask", "ListTasks", "CancelTask"]
        .map(|method| json!({ "jsonrpc": "2.0", "method": method, "params": { "id": "old" } }));
    let batch = Value::from(notifications.to_vec()).to_string();
    assert_eq!(lab.ask(&post("/", &[], &batch)).status, 204);
    let lookup = archive.take();
    assert_eq!(lookup.wanted(), Wanted::Cancel);
    assert!(archive.0.lock().unwrap().is_empty() && !lookup.is_caller_gone());
}
