//! Owners, named by a service around others; and tenants behind a service that has several cores.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use peregrine::{
    agent::{Agent, Profile, echo::Echo},
    engine::{Setup, Start, local_core},
    fault::Fault,
    limits::Limits,
    model::Call,
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Peer, Service,
        TickCx, WaitHandle,
    },
};
use serde_json::{Value, json};

use crate::{
    router::Router,
    support::{
        BEGIN, Lab,
        ask::{V1, get, post, rpc, say},
        reply::Reply,
    },
};

/// Whoever has shown a certificate owns the tasks that it makes, and sees no others.
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
        cx.caller.owner = cx.caller.identity;
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
    let start = Start { secret: 7, unix_ms: || BEGIN.unix_ms, workers: 1, base_url: String::new() };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
    let (core, _) = local_core(limits, agents, None, &start, None);
    Lab::new(Setup { service: Some(Arc::new(Owned(core))), ..Setup::default() })
}

/// A request of who has this name.
fn ask(lab: &mut Lab, name: Option<&'static str>, request: &[u8]) -> Reply {
    let peer = lab.open_to(Peer { identity: name, ..Peer::default() });
    lab.write(peer, request);
    lab.reply(peer)
}

fn send(lab: &mut Lab, name: Option<&'static str>) -> Value {
    let request = post("/", &[], &rpc("SendMessage", &V1.params(say("hi"))));
    ask(lab, name, &request).json()
}

fn tasks(lab: &mut Lab, name: Option<&'static str>) -> Value {
    ask(lab, name, &get("/tasks")).json()["totalSize"].clone()
}

#[test]
fn a_task_is_there_for_its_owner_alone() {
    let mut lab = lab(&Limits::default());
    let names = [None, Some("ann"), Some("bob")];
    for name in names {
        let id = send(&mut lab, name)["result"]["task"]["id"].as_str().unwrap().to_owned();
        for other in names {
            let found = ask(&mut lab, other, &get(&format!("/tasks/{id}"))).status;
            assert_eq!(found, if other == name { 200 } else { 404 }, "{name:?} {other:?}");
        }
        assert_eq!(tasks(&mut lab, name), 1);
    }
    // A tenant of one owner is not that of another.
    let mut params = V1.params(say("hi"));
    params["tenant"] = json!("acme");
    let request = post("/", &[], &rpc("SendMessage", &params));
    ask(&mut lab, Some("ann"), &request);
    for (name, count) in [(None, 0), (Some("ann"), 1), (Some("bob"), 0)] {
        let page = ask(&mut lab, name, &get("/acme/tasks")).json();
        assert_eq!(page["totalSize"], count, "{name:?}");
    }
}

#[test]
fn owners_max() {
    let mut lab = lab(&Limits { owners_max: 2, task_ttl_ms: 60_000, ..Limits::default() });
    for name in ["ann", "bob"] {
        assert!(send(&mut lab, Some(name)).get("result").is_some());
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
    // An owner leaves with its last task.
    lab.pass(70_000);
    assert!(send(&mut lab, Some("eve")).get("result").is_some());
    assert_eq!((tasks(&mut lab, Some("eve")), tasks(&mut lab, Some("ann"))), (json!(1), json!(0)));
    lab.assert_lives();
}

#[test]
fn a_tenant_is_the_same_in_all_cores_behind_a_router() {
    let agents = || vec![(Echo::profile(), Arc::new(Echo) as Arc<dyn Agent>)];
    let mut lab = Lab::new(Setup { service: Some(Router::new(2, 1, agents)), ..Setup::default() });
    // Each core gives its numbers in another order.
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
