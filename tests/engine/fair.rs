//! What clients see of a full share of the store: why their task ended, and when to retry.

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Profile, Turn},
    engine::Setup,
    limits::Limits,
    model::TaskState,
    service,
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{OutgoingMessage, V1, post, rpc, say},
    reply::Reply,
    with_push,
};

const WORDS: &str = "evicted: the owner's share is full";

/// Leaves a task in the state named by the message.
struct SetsState;

impl Agent for SetsState {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(match &*turn.message.text() {
            "ask" => TaskState::InputRequired,
            "work" => TaskState::Working,
            _ => TaskState::Completed,
        });
    }
}

fn lab(tasks_max: usize) -> Lab {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("leaves", "Leaves tasks."), Arc::new(SetsState))];
    let limits = Limits {
        tasks_max,
        unfinished_idle_ms: 60_000,
        keep_alive_idle_ms: 1 << 40,
        ..Limits::default()
    };
    Lab::new(Setup { agents, limits, ..with_push() })
}

fn from(lab: &mut Lab, address: &str) -> Peer {
    let remote = Some(address.parse().unwrap());
    lab.open_to(service::Peer { remote, ..service::Peer::default() })
}

fn send(lab: &mut Lab, peer: Peer, text: &str) -> Reply {
    let params = V1.params(OutgoingMessage { at_once: true, ..say(text) });
    lab.write(peer, &post("/", &[], &rpc(V1.send(), &params)));
    let reply = lab.reply(peer);
    lab.take(peer);
    reply
}

fn make(lab: &mut Lab, peer: Peer, text: &str) -> Value {
    send(lab, peer, text).result()["task"]["id"].clone()
}

#[test]
fn stream_gets_the_eviction_reason_of_its_task() {
    let mut lab = lab(4);
    let peer = from(&mut lab, "192.0.2.1");
    let waiting: Vec<Value> = (0..4).map(|_| make(&mut lab, peer, "ask")).collect();
    let stream = lab.stream(V1.subscribe(), &json!({ "id": waiting[0] }));
    make(&mut lab, peer, "ask");
    let last = lab.reply(stream).events().last().unwrap().result().clone();
    let seen = &last["statusUpdate"]["status"];
    assert_eq!(seen["state"], "TASK_STATE_FAILED");
    assert_eq!(seen["message"]["parts"][0]["text"], WORDS);
    // The failed task is the next to be evicted.
    make(&mut lab, peer, "ask");
    assert_eq!(lab.code(V1.get(), &json!({ "id": waiting[0] })), -32001);
    assert_eq!(lab.engine.stats().unwrap().ended[2], 2);
}

#[cfg(feature = "push")]
#[test]
fn webhook_gets_the_eviction_reason_of_its_task() {
    use std::task::Waker;

    use peregrine::engine::{NextRequest, PostOutcome, PostRequest};

    let mut lab = lab(4);
    let mut params = V1.params(say("ask"));
    let hook = json!({"url": "https://a.example/"});
    params["configuration"]["taskPushNotificationConfig"] = hook;
    lab.result(V1.send(), &params);
    let outbox = lab.engine.outbox().unwrap();
    let posts = |lab: &Lab| {
        let (mut bodies, mut request) = (Vec::new(), PostRequest::default());
        while let NextRequest::Post = outbox.next(lab.now, Waker::noop(), &mut request) {
            bodies.push(serde_json::from_slice::<Value>(&request.body).unwrap());
            outbox.done(&request, PostOutcome::Delivered, lab.now, 1 << 60);
        }
        bodies
    };
    posts(&lab);
    for _ in 0..3 {
        lab.result(V1.send(), &V1.params(say("ask")));
    }
    lab.result(V1.send(), &V1.params(say("ask")));
    let bodies = posts(&lab);
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(bodies[0]["statusUpdate"]["status"]["message"]["parts"][0]["text"], WORDS);
}

#[test]
fn full_share_of_running_tasks_returns_retry_after() {
    let mut lab = lab(4);
    let peers = ["192.0.2.1", "2001:db8::1"].map(|address| from(&mut lab, address));
    for peer in peers {
        (0..2).for_each(|_| _ = make(&mut lab, peer, "work"));
    }
    let refused = send(&mut lab, peers[0], "work");
    assert!(refused.json()["error"]["code"].is_number());
    let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((58..=61).contains(&after), "{after}");
    // Another address of the same network shares the same share.
    let same = from(&mut lab, "2001:db8::2");
    assert!(send(&mut lab, same, "work").json()["error"]["code"].is_number());
    lab.pass(after * 1_000);
    make(&mut lab, peers[0], "work");
}

#[test]
fn address_evicts_only_its_own_tasks() {
    let mut lab = lab(6);
    let [first, second] = ["192.0.2.1", "192.0.2.2"].map(|address| from(&mut lab, address));
    let tasks: Vec<Value> = (0..3).map(|_| make(&mut lab, first, "done")).collect();
    for text in ["done", "ask"].into_iter().cycle().take(50) {
        make(&mut lab, second, text);
    }
    for id in &tasks {
        lab.result(V1.get(), &json!({ "id": id }));
    }
}
