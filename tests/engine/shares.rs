//! The share of running tasks, streams and bytes of each caller, by default and for each way in
//! which a turn ends.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    auth::{Authenticator, Quota, Quotas},
    engine::Setup,
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{ArtifactBuf, MessageBuf, PartsBuf, TaskState},
    service,
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{OutgoingMessage, V1, post, rpc, say},
    callers::ByName,
};

/// Keeps each turn to continue it later, or ends it as the message says.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Deferred>>>);

impl Agent for Keep {
    fn start(&self, mut turn: Turn<'_>) {
        match &*turn.message.text() {
            "work" => {
                turn.status(TaskState::Working);
                turn.resume_after(3_600_000, 0);
            }
            "refuse" => turn.refuse(Fault::because(FaultKind::UnsupportedOperation, "not today")),
            "reply" => turn.reply(MessageBuf::agent(&PartsBuf::new().text("hello"))),
            "done" => turn.status(TaskState::Completed),
            _ => {
                if let Ok(deferred) = turn.defer() {
                    self.0.lock().unwrap().push(deferred);
                }
            }
        }
    }
}

impl Keep {
    fn take(&self) -> Deferred {
        self.0.lock().unwrap().pop().expect("a deferred turn")
    }
}

fn setup(keep: &Keep, quotas: Quotas) -> Setup {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("keep", "Answers later."), Arc::new(keep.clone()))];
    Setup { agents, quotas, ..Setup::default() }
}

/// Sends a message with a fresh id.
fn send(lab: &mut Lab, peer: Peer, text: &str) {
    let params = V1.params(OutgoingMessage { id: &format!("{text}{peer:?}"), ..say(text) });
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    lab.write(peer, &post("/", &fields, &rpc("SendMessage", &params)));
}

/// Two tasks may run: each way in which a turn ends frees its slot exactly once.
fn each_turn_gives_its_place_back(lab: &mut Lab, keep: &Keep, open: impl Fn(&mut Lab) -> Peer) {
    let mut first = open(lab);
    send(lab, first, "wait");
    let ends: [fn(Deferred); 6] = [
        drop,
        |deferred| deferred.reply(MessageBuf::agent(&PartsBuf::new().text("hello"))),
        |deferred| deferred.refuse(Fault::because(FaultKind::UnsupportedOperation, "no")),
        |deferred| deferred.into_job().unwrap().status(TaskState::Completed, None).unwrap(),
        |deferred| deferred.into_job().unwrap().status(TaskState::Failed, None).unwrap(),
        |deferred| {
            let mut job = deferred.into_job().unwrap();
            job.status(TaskState::Working, None).unwrap();
            job.status(TaskState::Completed, None).unwrap();
        },
    ];
    for end in ends {
        for text in ["refuse", "reply", "done"] {
            let peer = open(lab);
            send(lab, peer, text);
            assert_ne!(lab.reply(peer).status, 429, "{text}");
        }
        let second = open(lab);
        send(lab, second, "wait");
        assert!(lab.received(second).is_empty());
        // A turn takes its slot at once.
        let third = open(lab);
        send(lab, third, "wait");
        let refused = lab.reply(third);
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert!(refused.text().contains("tasks"), "{}", refused.text());
        end(keep.take());
        lab.settle();
        lab.reply(second);
    }
    // The slot of a client that disconnects stays with its agent's turn.
    lab.end(first);
    let second = open(lab);
    send(lab, second, "wait");
    first = open(lab);
    send(lab, first, "wait");
    assert_eq!(lab.reply(first).status, 429);
    drop((keep.take(), keep.take()));
    for _ in 0..2 {
        let peer = open(lab);
        send(lab, peer, "wait");
        assert!(lab.received(peer).is_empty());
    }
}

fn two_tasks() -> Quota {
    Quota { running_tasks: Some(2), ..Quota::default() }
}

#[test]
fn each_turn_end_frees_one_slot_of_authenticated_caller() {
    let keep = Keep::default();
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let quotas = Quotas { known: two_tasks(), ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator, ..setup(&keep, quotas) });
    each_turn_gives_its_place_back(&mut lab, &keep, Lab::open);
}

#[test]
fn default_share_of_authenticated_caller_is_one_eighth() {
    let keep = Keep::default();
    let limits =
        Limits { streams_max: 24, tasks_max: 100, deferred_calls_max: 16, ..Limits::default() };
    let setup = || Setup { limits: limits.clone(), ..setup(&keep, Quotas::default()) };
    let authenticator = || Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { authenticator: authenticator(), ..setup() });
    each_turn_gives_its_place_back(&mut lab, &keep, Lab::open);
    // A quota overrides the default share; a member it does not set keeps the share.
    let quotas =
        Quotas { known: Quota { running_tasks: Some(9), ..Quota::default() }, ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator: authenticator(), quotas, ..setup() });
    for n in 0..4 {
        let peer = lab.open();
        let params = V1.params(OutgoingMessage { id: &n.to_string(), ..say("wait") });
        let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
        lab.write(peer, &post("/", &fields, &rpc("SendStreamingMessage", &params)));
        assert_eq!(lab.received(peer).is_empty(), n < 3, "{n}");
    }
    // Without authentication there are no shares.
    let mut lab = Lab::new(setup());
    for _ in 0..16 {
        let peer = lab.open();
        send(&mut lab, peer, "wait");
        assert!(lab.received(peer).is_empty());
    }
}

/// A request that waits for the next event of a task, at this agent's path.
fn long_poll(path: &str, token: &str, task: &Value) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    let fields = [("Authorization", &*bearer), ("A2A-Version", "1.0")];
    let sent_fields = if token.is_empty() { &fields[1..] } else { &fields };
    post(path, sent_fields, &rpc("GetTask", &json!({ "id": task, "wait": 60 })))
}

/// Starts a task that stays in the state working, and returns its id.
fn begin(lab: &mut Lab, peer: Peer, path: &str, token: &str) -> Value {
    let params =
        V1.params(OutgoingMessage { at_once: true, id: &format!("{peer:?}"), ..say("work") });
    let bearer = format!("Bearer {token}");
    let fields = [("A2A-Version", "1.0"), ("Authorization", &*bearer)];
    let sent_fields = if token.is_empty() { &fields[..1] } else { &fields };
    lab.write(peer, &post(path, sent_fields, &rpc("SendMessage", &params)));
    lab.reply(peer).result()["task"]["id"].clone()
}

/// Sends a request on a new connection; true: it waits, false: it is refused for the share.
fn waits(lab: &mut Lab, peer: Peer, request: &[u8]) -> bool {
    lab.write(peer, request);
    if lab.received(peer).is_empty() {
        return true;
    }
    let refused = lab.reply(peer);
    assert_eq!((refused.status, refused.code()), (429, -32000), "{}", refused.text());
    assert!(refused.text().contains("RATE_LIMIT_EXCEEDED"), "{}", refused.text());
    assert!(refused.text().contains("the caller has too many waiting calls"), "{}", refused.text());
    let policy = refused.field("ratelimit-policy").unwrap();
    assert!(policy.starts_with("\"waiting-calls\";q="), "{policy}");
    assert!(policy.ends_with(";qu=\"concurrent-requests\""), "{policy}");
    assert_eq!(refused.field("ratelimit"), Some("\"waiting-calls\";r=0"));
    false
}

/// A server with 16 streams and 16 waiting calls, with an agent that accepts anonymous callers.
fn sixteen_wait(quotas: Quotas) -> Lab {
    let open = Profile { anonymous: true, ..Profile::new("open", "Anybody's.") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (Profile::new("keep", "Answers later."), Arc::new(Keep::default())),
        (open, Arc::new(Keep::default())),
    ];
    let limits = Limits {
        streams_max: 16,
        connections_max: 16,
        http2_connections_max: 16,
        ..Limits::default()
    };
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    Lab::new(Setup { agents, limits, authenticator, quotas, ..Setup::default() })
}

#[test]
fn caller_gets_an_eighth_of_the_waiting_calls() {
    let mut lab = sixteen_wait(Quotas::default());
    let at = lab.open();
    let task = begin(&mut lab, at, "/", "alice");
    let poll = long_poll("/", "alice", &task);
    let peers = [0; 3].map(|_| lab.open());
    assert_eq!(peers.map(|peer| waits(&mut lab, peer, &poll)), [true, true, false]);
    assert_eq!(lab.engine.waiting().calls, 2);
    // Over each binding and for each kind of wait: a batch counts like a turn.
    let prefer = format!(
        "GET /tasks/{}?wait=60 HTTP/1.1\r\nHost: a.example\r\nA2A-Version: 1.0\r\n\
         Authorization: Bearer alice\r\n\r\n",
        task.as_str().unwrap()
    );
    let reply = lab.ask(prefer.as_bytes());
    assert_eq!(
        (reply.status, &reply.json()["error"]["status"]),
        (429, &json!("RESOURCE_EXHAUSTED"))
    );
    let socket = lab.socket("/", "Authorization: Bearer alice\r\nA2A-Version: 1.0\r\n");
    let member = rpc("GetTask", &json!({ "id": task, "wait": 60 }));
    let answers = lab.say(socket, &member);
    assert_eq!(answers[0]["error"]["data"][0]["reason"], "RATE_LIMIT_EXCEEDED");
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    let turn = rpc("SendMessage", &V1.params(OutgoingMessage { id: "turn", ..say("wait") }));
    for body in [format!("[{member},{member}]"), turn] {
        let peer = lab.open();
        assert!(!waits(&mut lab, peer, &post("/", &fields, &body)), "{body}");
    }
    // A call that does not wait needs no slot, and other callers have their own.
    let get = post("/", &fields, &rpc("GetTask", &json!({ "id": task })));
    assert_eq!(lab.ask(&get).result()["id"], task);
    let bob = lab.open();
    let others = begin(&mut lab, bob, "/", "bob");
    assert!(waits(&mut lab, bob, &long_poll("/", "bob", &others)));
    // A client that disconnects frees its slot, and so does an answer.
    lab.end(peers[0]);
    assert!(waits(&mut lab, peers[2], &poll) && !waits(&mut lab, at, &poll));
    lab.pass(60_000);
    assert_eq!(lab.reply(peers[2]).result()["id"], task);
    assert_eq!(lab.engine.waiting().calls, 0);
    assert!(waits(&mut lab, at, &poll));
    // The waiting calls of a batch together take one slot.
    let batch = lab.open();
    assert!(waits(&mut lab, batch, &post("/", &fields, &format!("[{member},{member}]"))));
}

#[test]
fn anonymous_waits_count_by_address_and_quotas_override_them() {
    let mut lab = sixteen_wait(Quotas::default());
    let path = "/agents/open";
    let peers = [1, 1, 1, 2].map(|net| from(&mut lab, &format!("2001:db8:{net}::1")));
    let task = begin(&mut lab, peers[0], path, "");
    let poll = long_poll(path, "", &task);
    assert_eq!(peers.map(|peer| waits(&mut lab, peer, &poll)), [true, true, false, true]);
    let one = Quota { waiting_calls: Some(1), ..Quota::default() };
    let mut lab = sixteen_wait(Quotas { known: one, ..Quotas::default() });
    let peers = [0; 2].map(|_| lab.open());
    let task = begin(&mut lab, peers[0], "/", "alice");
    let poll = long_poll("/", "alice", &task);
    assert_eq!(peers.map(|peer| waits(&mut lab, peer, &poll)), [true, false]);
}

#[test]
fn anonymous_callers_get_half_of_streams_and_waiting_calls() {
    for (method, reason) in [
        ("SendMessage", "anonymous callers together have too many waiting calls (8)"),
        ("SendStreamingMessage", "anonymous callers together have too many open streams (8)"),
    ] {
        let mut lab = sixteen_wait(Quotas::default());
        let turn =
            |n: i32| rpc(method, &V1.params(OutgoingMessage { id: &n.to_string(), ..say("wait") }));
        let anonymous_send = |n: i32| post("/agents/open", &[("A2A-Version", "1.0")], &turn(n));
        let peers: Vec<Peer> = (0..10)
            .map(|n| {
                let peer = from(&mut lab, &format!("2001:db8:{}::1", n / 2));
                lab.write(peer, &anonymous_send(n));
                peer
            })
            .collect();
        // Two of each address wait, and the fifth address gets no slot.
        for (n, peer) in peers.iter().enumerate() {
            assert_eq!(lab.received(*peer).is_empty(), n < 8, "{method} {n}");
        }
        let refused = lab.reply(peers[8]);
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains(reason), "{}", refused.text());
        // Authenticated callers have the other half.
        for (n, token) in (10..).zip(["alice", "alice", "bob", "carol", "dora", "dora"]) {
            let peer = lab.open();
            lab.write(peer, &request_with(token, &turn(n)));
            assert!(lab.received(peer).is_empty(), "{method} {token}");
        }
        // The slot that an anonymous caller frees goes to another one.
        lab.end(peers[0]);
        let peer = from(&mut lab, "2001:db8:9::1");
        lab.write(peer, &anonymous_send(16));
        assert!(lab.received(peer).is_empty(), "{method}");
    }
}

#[test]
fn batch_answer_has_one_www_authenticate_field() {
    let keep = Keep::default();
    let open = Profile { anonymous: true, ..Profile::new("open", "Anybody's.") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (open, Arc::new(keep.clone())),
        (Profile::new("closed", "Not anybody's."), Arc::new(keep.clone())),
    ];
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { agents, authenticator, ..Setup::default() });
    let mut closed = V1.params(say("done"));
    closed["tenant"] = json!("closed");
    let (waits, closed) =
        (rpc("SendMessage", &V1.params(say("wait"))), rpc("SendMessage", &closed));
    let peer = lab.open();
    let body = format!("[{waits},{closed},{closed},{closed}]");
    lab.write(peer, &post("/", &[("A2A-Version", "1.0")], &body));
    drop(keep.take());
    lab.settle();
    let bytes = lab.received(peer).to_ascii_lowercase();
    let head = String::from_utf8_lossy(&bytes);
    assert_eq!(head.matches("www-authenticate").count(), 1, "{head}");
}

/// A connection from this address.
fn from(lab: &mut Lab, address: &str) -> Peer {
    let remote = Some(address.parse().unwrap());
    lab.open_to(service::Peer { remote, ..service::Peer::default() })
}

#[test]
fn anonymous_running_tasks_count_by_client_network() {
    let keep = Keep::default();
    let quotas = Quotas { anonymous: two_tasks(), ..Quotas::default() };
    let mut lab = Lab::new(setup(&keep, quotas));
    each_turn_gives_its_place_back(&mut lab, &keep, |lab| from(lab, "2001:db8::1"));
    // Addresses of one /64 network share; another network has its own share.
    for (address, is_refused) in [("2001:db8::2", true), ("2001:db8:1::1", false)] {
        let peer = from(&mut lab, address);
        send(&mut lab, peer, "wait");
        assert_eq!(!lab.received(peer).is_empty(), is_refused, "{address}");
    }
}

/// Sends a message with a fresh id and so many bytes; its text selects how the turn ends.
fn send_large(lab: &mut Lab, peer: Peer, token: &str, begins: &str, bytes: usize) {
    let mut params =
        V1.params(OutgoingMessage { at_once: begins == "work", id: "", ..say(begins) });
    static SENT: AtomicUsize = AtomicUsize::new(0);
    params["message"]["messageId"] = json!(SENT.fetch_add(1, Relaxed).to_string());
    params["message"]["metadata"] = json!({ "large": "x".repeat(bytes) });
    lab.write(peer, &request_with(token, &rpc("SendMessage", &params)));
}

/// Ends all working and waiting tasks.
fn end_all(lab: &mut Lab, keep: &Keep, token: &str, peer: Peer) {
    keep.0.lock().unwrap().clear();
    lab.settle();
    lab.take(peer);
    let list = json!({ "status": "TASK_STATE_WORKING" });
    lab.write(peer, &request_with(token, &rpc("ListTasks", &list)));
    for task in lab.reply(peer).result()["tasks"].as_array().unwrap() {
        let cancel = rpc("CancelTask", &json!({ "id": task["id"] }));
        lab.write(peer, &request_with(token, &cancel));
        assert_eq!(lab.reply(peer).status, 200);
    }
}

/// A request with this token, or an anonymous one.
fn request_with(token: &str, body: &str) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    let fields = [("A2A-Version", "1.0"), ("Authorization", &*bearer)];
    post("/", if token.is_empty() { &fields[..1] } else { &fields }, body)
}

/// The tasks of a caller may hold 64 KiB: two of them use up the share of that caller, and of no
/// other caller.
fn two_tasks_fill_the_bytes_of_their_caller(
    lab: &mut Lab,
    keep: &Keep,
    token: &str,
    other: &str,
    open: impl Fn(&mut Lab, &str) -> Peer,
) {
    const LARGE: usize = 30 * 1024;
    let refused = |lab: &mut Lab, peer: Peer| {
        let reply = lab.reply(peer);
        assert_eq!((reply.status, reply.code()), (429, -32000), "{}", reply.text());
        let policy = "\"running-bytes\";q=65536;qu=\"content-bytes\"";
        assert_eq!(reply.field("ratelimit-policy"), Some(policy));
        assert!(reply.text().contains("RATE_LIMIT_EXCEEDED"), "{}", reply.text());
        assert!(reply.text().contains("bytes (64 KiB)"), "{}", reply.text());
        assert!(reply.field("retry-after").is_some());
    };
    // For tasks, and for turns that the agent has not answered yet.
    for begins in ["work", "wait"] {
        let peers = [0; 3].map(|_| open(lab, token));
        for peer in &peers[..2] {
            send_large(lab, *peer, token, begins, LARGE);
            if begins == "work" {
                assert_eq!(lab.reply(*peer).status, 200);
            }
        }
        send_large(lab, peers[2], token, begins, LARGE);
        refused(lab, peers[2]);
        // A small task still fits, and another caller has its own share.
        let small = open(lab, token);
        send_large(lab, small, token, "done", 1);
        assert_eq!(lab.reply(small).status, 200);
        let peer = open(lab, other);
        send_large(lab, peer, other, "done", LARGE);
        assert_eq!(lab.reply(peer).status, 200);
        end_all(lab, keep, token, peers[0]);
        // The whole share is free again.
        send_large(lab, peers[2], token, "done", LARGE);
        assert_eq!(lab.reply(peers[2]).status, 200);
    }
}

fn sixty_four_kib() -> Quota {
    Quota { running_kib: Some(64), ..Quota::default() }
}

#[test]
fn unfinished_task_bytes_are_limited_per_authenticated_caller() {
    let keep = Keep::default();
    let authenticator = || Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let quotas = Quotas { known: sixty_four_kib(), ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator: authenticator(), ..setup(&keep, quotas) });
    let open = |lab: &mut Lab, _: &str| lab.open();
    two_tasks_fill_the_bytes_of_their_caller(&mut lab, &keep, "alice", "bob", open);
    // Without a quota the share is an eighth of the store.
    let limits =
        Limits { store_bytes_max: 8 * 64 * 1024, task_bytes_max: 256 * 1024, ..Limits::default() };
    let setup = Setup { limits, ..setup(&keep, Quotas::default()) };
    let mut lab = Lab::new(Setup { authenticator: authenticator(), ..setup });
    two_tasks_fill_the_bytes_of_their_caller(&mut lab, &keep, "alice", "bob", open);
}

#[test]
fn anonymous_unfinished_bytes_count_by_address() {
    let keep = Keep::default();
    let quotas = Quotas { anonymous: sixty_four_kib(), ..Quotas::default() };
    let mut lab = Lab::new(setup(&keep, quotas));
    let open = |lab: &mut Lab, token: &str| match token {
        "" => from(lab, "192.0.2.1"),
        _ => from(lab, "192.0.2.2"),
    };
    two_tasks_fill_the_bytes_of_their_caller(&mut lab, &keep, "", " ", open);
}

#[test]
fn task_beyond_its_callers_byte_share_fails_with_a_reason() {
    let keep = Keep::default();
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let quotas = Quotas { known: sixty_four_kib(), ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator, ..setup(&keep, quotas) });
    let peers = [0; 2].map(|_| lab.open());
    peers.iter().for_each(|peer| send_large(&mut lab, *peer, "alice", "wait", 20 * 1024));
    let mut job = keep.take().into_job().unwrap();
    let chunk = ArtifactBuf::new("a", &PartsBuf::new().text(&"y".repeat(1024)));
    let accepted = (0..100).take_while(|n| job.chunk(&chunk, *n > 0, false).is_ok()).count();
    assert!((1..44).contains(&accepted), "{accepted}");
    lab.settle();
    let task = lab.reply(peers[1]).result()["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    let why = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(why.contains("tasks of the caller hold too many bytes"), "{why}");
    // The other task continues, and a new one is accepted.
    keep.take().into_job().unwrap().status(TaskState::Completed, None).unwrap();
    lab.settle();
    let done = lab.reply(peers[0]).result();
    assert_eq!(done["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    send_large(&mut lab, peers[0], "alice", "done", 50 * 1024);
    assert_eq!(lab.reply(peers[0]).status, 200);
}

#[test]
fn agent_byte_quota_rejects_new_tasks_above_it() {
    let keep = Keep::default();
    let few = Quota { running_kib: Some(8), ..Quota::default() };
    let known = sixty_four_kib();
    let quotas = Quotas { known, named: [("few".to_owned(), few)].into(), ..Quotas::default() };
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut setup = Setup { authenticator, ..setup(&keep, quotas) };
    let quota = Some("few".to_owned());
    let small = Profile { quota, ..Profile::new("small", "Has a quota.") };
    setup.agents.push((small, Arc::new(keep.clone())));
    let mut lab = Lab::new(setup);
    let mut begins = |path: &str| {
        let peer = lab.open();
        let mut params =
            V1.params(OutgoingMessage { at_once: true, id: &format!("{peer:?}"), ..say("work") });
        params["message"]["metadata"] = json!({ "large": "x".repeat(10 * 1024) });
        let fields = [("A2A-Version", "1.0"), ("Authorization", "Bearer alice")];
        lab.write(peer, &post(path, &fields, &rpc("SendMessage", &params)));
        lab.reply(peer).status
    };
    assert_eq!([begins("/agents/small"), begins("/agents/small")], [200, 429]);
    // At other agents the caller has its general share.
    assert_eq!([begins("/"), begins("/"), begins("/agents/small")], [200, 200, 429]);
}
