//! Owners, set by a wrapping service; and tenants of a service with several cores.

use std::{
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use peregrine::{
    agent::{
        Adopted, Agent, CancelRequest, Extension, Job, Profile, RequestInfo, Turn, echo::Echo,
    },
    engine::{Setup, Start, local_core},
    fault::Fault,
    limits::Limits,
    model::{Call, Content, TaskState},
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Handle, Lifecycle, Outcome, Peer,
        Service, TickCx, WaitHandle,
        tap::{Record, Tap},
    },
};
use serde_json::{Value, json};

use crate::{
    router::Router,
    support::{
        BEGIN, Lab,
        ask::{OutgoingMessage, V1, get, post, rpc, say},
        reply::Reply,
    },
};

/// Each caller with a certificate owns the tasks it creates, and sees no others.
struct Owned(Arc<dyn Service>);

impl Lifecycle for Owned {
    fn tick(&self, cx: &mut TickCx<'_>, wake: &Waker) -> Option<u64> {
        self.0.tick(cx, wake)
    }
}

impl Service for Owned {
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        cx.caller.owner = cx.caller.peer.identity;
        self.0.call(cx, call, answer)
    }

    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        self.0.poll(wait, wake, answer)
    }

    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow {
        self.0.follow(cursor, wake, each)
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        self.0.profile(agent)
    }
}

fn lab(limits: &Limits) -> Lab {
    let start = Start {
        secret: 7,
        unix_ms: Arc::new(|| BEGIN.unix_ms),
        workers: 1,
        base_url: String::new(),
    };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
    let (core, _) = local_core(limits, agents, None, &start, None).unwrap();
    Lab::new(Setup { service: Some(Arc::new(Owned(core))), ..Setup::default() })
}

/// A request of the caller with this name.
fn send_as(lab: &mut Lab, name: Option<&'static str>, request: &[u8]) -> Reply {
    let peer = lab.open_to(Peer { identity: name, ..Peer::default() });
    lab.write(peer, request);
    lab.reply(peer)
}

fn send(lab: &mut Lab, name: Option<&'static str>) -> Value {
    send_text(lab, name, "hi")
}

fn send_text(lab: &mut Lab, name: Option<&'static str>, text: &str) -> Value {
    let mut params = V1.params(OutgoingMessage { id: text, ..say(text) });
    params["configuration"]["returnImmediately"] = json!(true);
    send_as(lab, name, &post("/", &[], &rpc("SendMessage", &params))).json()
}

fn tasks(lab: &mut Lab, name: Option<&'static str>) -> Value {
    send_as(lab, name, &get("/tasks")).json()["totalSize"].clone()
}

#[test]
fn task_is_visible_only_to_its_owner() {
    let mut lab = lab(&Limits::default());
    let names = [None, Some("ann"), Some("bob")];
    for name in names {
        let id = send(&mut lab, name)["result"]["task"]["id"].as_str().unwrap().to_owned();
        for other in names {
            let found = send_as(&mut lab, other, &get(&format!("/tasks/{id}"))).status;
            assert_eq!(found, if other == name { 200 } else { 404 }, "{name:?} {other:?}");
        }
        assert_eq!(tasks(&mut lab, name), 1);
    }
    // A tenant of one owner is not the same-named tenant of another.
    let mut params = V1.params(say("hi"));
    params["tenant"] = json!("acme");
    let request = post("/", &[], &rpc("SendMessage", &params));
    send_as(&mut lab, Some("ann"), &request);
    for (name, count) in [(None, 0), (Some("ann"), 1), (Some("bob"), 0)] {
        let page = send_as(&mut lab, name, &get("/acme/tasks")).json();
        assert_eq!(page["totalSize"], count, "{name:?}");
    }
}

#[test]
fn owners_max() {
    let mut lab = lab(&Limits { owners_max: 2, task_ttl_ms: 60_000, ..Limits::default() });
    for name in ["ann", "bob"] {
        assert!(send_text(&mut lab, Some(name), "hold:600000:2").get("result").is_some());
    }
    lab.pass(1_000);
    let refused = send(&mut lab, Some("eve"));
    assert_eq!(refused["error"]["code"], -32000);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("owners_max"), "{message}");
    assert_eq!(tasks(&mut lab, Some("eve")), 0);
    for name in [None, Some("ann"), Some("bob")] {
        assert!(send(&mut lab, name).get("result").is_some());
    }
    // An owner without unfinished tasks loses its entry, and its tasks are evicted with it.
    lab.pass(610_000);
    assert!(send(&mut lab, Some("eve")).get("result").is_some());
    assert_eq!((tasks(&mut lab, Some("eve")), tasks(&mut lab, Some("ann"))), (json!(1), json!(0)));
    lab.assert_lives();
}

#[test]
fn tenant_sees_only_its_own_tasks_across_routed_cores() {
    let agents = || vec![(Echo::profile(), Arc::new(Echo) as Arc<dyn Agent>)];
    let mut lab = Lab::new(Setup { service: Some(Router::new(2, 1, agents)), ..Setup::default() });
    // Each core assigns its numbers in another order.
    for (tenant, count) in [("a", 1), ("b", 2), ("a", 3), ("c", 3), ("b", 3), ("", 3)] {
        let mut params = V1.params(say("hi"));
        params["tenant"] = json!(tenant);
        for _ in 0..count {
            lab.result("SendMessage", &params);
        }
    }
    for (tenant, count) in [("a", 4), ("b", 5), ("c", 3), ("", 3), ("d", 0)] {
        let page = lab.result("ListTasks", &json!({ "tenant": tenant, "pageSize": 100 }));
        assert_eq!(page["totalSize"], count, "{tenant}");
        for task in page["tasks"].as_array().unwrap() {
            for other in ["a", "b", "c", "", "d"] {
                let params = json!({ "tenant": other, "id": task["id"] });
                let is_found = lab.call("GetTask", &params).get("result").is_some();
                assert_eq!(is_found, other == tenant, "{tenant} {other}");
            }
        }
    }
}

/// Records the tenant and the owner of each call to it.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<Job>>>);

impl Recorder {
    fn note(&self, what: &str, tenant: Option<&str>, owner: Option<&str>) {
        let [tenant, owner] = [tenant, owner].map(|name| name.unwrap_or("-"));
        self.0.lock().unwrap().push(format!("{what} {tenant} {owner}"));
    }

    fn note_request(&self, what: &str, request: &RequestInfo) {
        self.note(what, request.tenant(), request.owner());
    }

    fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Agent for Recorder {
    fn start(&self, turn: Turn<'_>) {
        let what = if turn.state.is_some() { "next" } else { "start" };
        self.note(what, turn.request.tenant, turn.request.owner);
        match turn.message.parts().next().map(|part| part.content()) {
            Some(Content::Text(text)) if text == "defer" => {
                let deferred = turn.defer().unwrap();
                self.note_request("deferred", deferred.request());
                let mut job = deferred.into_job().unwrap();
                self.note_request("its job", job.request());
                job.status(TaskState::Completed, None).unwrap();
            }
            Some(Content::Text(text)) if text == "detach" => {
                let job = turn.detach().unwrap();
                self.note_request("job", job.request());
                self.1.lock().unwrap().push(job);
            }
            _ => turn.resume_after(1, 0),
        }
    }

    fn resume(&self, mut turn: Turn<'_>, _token: u64) {
        self.note("resume", turn.request.tenant, turn.request.owner);
        turn.status(TaskState::InputRequired);
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        self.note("cancel", cancel.request.tenant, cancel.request.owner);
    }

    fn adopt(&self, task: Adopted) {
        let mut job = task.into_job();
        self.note_request("adopt", job.request());
        job.status(TaskState::Completed, None).unwrap();
    }
}

impl Tap for Recorder {
    fn record(&self, _task: Handle, record: Record<'_>) -> u64 {
        if let Record::Created { tenant, owner, .. } = record {
            self.note("created", tenant, owner);
        }
        0
    }

    fn durable(&self) -> u64 {
        u64::MAX
    }

    fn wait(&self, _number: u64, _wake: &Waker) {}
}

#[test]
fn agents_and_taps_receive_tenant_and_owner_names() {
    let recorder = Recorder::default();
    let start = Start {
        secret: 7,
        unix_ms: Arc::new(|| BEGIN.unix_ms),
        workers: 1,
        base_url: String::new(),
    };
    let profile = || Profile::new("asks", "Asks.");
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile(), Arc::new(recorder.clone()))];
    let tap = Some(Arc::new(recorder.clone()) as _);
    let (core, agents) = local_core(&Limits::default(), agents, None, &start, tap).unwrap();
    let mut lab = Lab::new(Setup { service: Some(Arc::new(Owned(core))), ..Setup::default() });
    for (tenant, owner) in
        [(None, None), (Some("acme"), None), (None, Some("ann")), (Some("b"), Some("bob"))]
    {
        let notes = |whats: &[&str]| -> Vec<String> {
            let [tenant, owner] = [tenant, owner].map(|name| name.unwrap_or("-"));
            whats.iter().map(|what| format!("{what} {tenant} {owner}")).collect()
        };
        let mut call = |method: &str, mut params: Value| {
            if let Some(tenant) = tenant {
                params["tenant"] = json!(tenant);
            }
            let peer = lab.open_to(Peer { identity: owner, ..Peer::default() });
            let by_id = [("a2a-extensions", Extension::IDEMPOTENT_SEND)];
            lab.write(peer, &post("/", &by_id, &rpc(method, &params)));
            lab.pass(10);
            lab.reply(peer).json()
        };
        let made = call("SendMessage", V1.params(say("hi")));
        assert_eq!(recorder.take_notes(), notes(&["start", "created", "resume"]));
        // Duplicates are recognized by owner; anonymous sends are executed again.
        call("SendMessage", V1.params(say("hi")));
        let again = if owner.is_some() { vec![] } else { notes(&["start", "created", "resume"]) };
        assert_eq!(recorder.take_notes(), again);
        let id = made["result"]["task"]["id"].as_str().unwrap().to_owned();
        call("SendMessage", V1.params(OutgoingMessage { task: Some(&id), ..say("defer") }));
        assert_eq!(recorder.take_notes(), notes(&["next", "deferred", "its job"]));
        call("SendMessage", V1.params(OutgoingMessage { id: "deferred", ..say("defer") }));
        assert_eq!(recorder.take_notes(), notes(&["start", "deferred", "created", "its job"]));
        let made = call(
            "SendMessage",
            V1.params(OutgoingMessage { id: "job", at_once: true, ..say("detach") }),
        );
        assert_eq!(recorder.take_notes(), notes(&["start", "created", "job"]));
        call("CancelTask", json!({ "id": made["result"]["task"]["id"] }));
        assert_eq!(recorder.take_notes(), notes(&["cancel"]));
        call(
            "SendMessage",
            V1.params(OutgoingMessage { id: "other", at_once: true, ..say("detach") }),
        );
        recorder.take_notes();
        agents.replace(profile(), Arc::new(recorder.clone())).unwrap();
        assert_eq!(recorder.take_notes(), notes(&["adopt"]));
    }
}
