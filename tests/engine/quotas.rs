//! The quotas of each caller, and how a refused caller learns when to retry.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    auth::{Authenticator, Quota, Quotas, Rate},
    engine::{Mount, Setup, Tenants},
    model::TaskState,
    service,
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{OutgoingMessage, V1, V03, post, rpc, say},
    callers::ByName,
    reply::Reply,
    ws::upgrade,
};

/// Starts a task that stays in the state working.
struct Works;

impl Agent for Works {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::Working);
        turn.resume_after(3_600_000, 0);
    }
}

fn setup(quotas: Quotas) -> Setup {
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (Echo::profile(), Arc::new(Echo)),
        (Profile::new("works", "Goes on."), Arc::new(Works)),
    ];
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    Setup { agents, authenticator, quotas, ..Setup::default() }
}

fn lab(known: Quota) -> Lab {
    Lab::new(setup(Quotas { known, ..Quotas::default() }))
}

fn call(token: &str, path: &str, method: &str, params: &Value) -> Vec<u8> {
    let fields = [("Authorization", &*format!("Bearer {token}")), ("A2A-Version", "1.0")];
    post(path, &fields, &rpc(method, params))
}

fn fields() -> [(&'static str, &'static str); 2] {
    [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")]
}

fn list(lab: &mut Lab, token: &str) -> Reply {
    lab.ask(&call(token, "/", "ListTasks", &json!({})))
}

/// A message with a fresh id: a duplicate would not count.
fn fresh(at_once: bool) -> Value {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let id = SENT.fetch_add(1, Relaxed).to_string();
    V1.params(OutgoingMessage { at_once, id: &id, ..say("hi") })
}

fn at_once() -> Value {
    fresh(true)
}

#[test]
fn call_above_rate_gets_429_with_retry_after() {
    let calls = Some(Rate { per_minute: 60, burst: 3 });
    let mut lab = lab(Quota { calls, ..Quota::default() });
    for _ in 0..3 {
        assert_eq!(list(&mut lab, "alice").status, 200);
    }
    let reply = list(&mut lab, "alice");
    assert_eq!((reply.status, reply.code()), (429, -32000));
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"calls\";q=60;w=60"));
    assert_eq!(reply.field("ratelimit"), Some("\"calls\";r=0;t=1"));
    let data = &reply.json()["error"]["data"];
    assert_eq!(data[0]["reason"], "RATE_LIMIT_EXCEEDED");
    assert_eq!(data[1]["retryDelay"], "1s");
    // Other callers have their own quota; another token of the same caller shares it.
    assert_eq!(list(&mut lab, "bob").status, 200);
    assert_eq!(list(&mut lab, "alice a2a:read").status, 429);
    lab.pass(1_000);
    assert_eq!(list(&mut lab, "alice").status, 200);
    assert_eq!(list(&mut lab, "alice").status, 429);
}

#[test]
fn each_batch_call_counts_against_the_rate() {
    let calls = Some(Rate { per_minute: 60, burst: 2 });
    let mut lab = lab(Quota { calls, ..Quota::default() });
    let batch = vec![rpc("ListTasks", &json!({})); 3].join(",");
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    let answers = lab.ask(&post("/", &fields, &format!("[{batch}]"))).json();
    assert!(answers[0]["result"].is_object() && answers[1]["result"].is_object());
    assert_eq!(answers[2]["error"]["data"][0]["reason"], "RATE_LIMIT_EXCEEDED");
}

#[test]
fn rest_and_websocket_report_rate_limit_in_their_own_format() {
    let calls = Some(Rate { per_minute: 60, burst: 1 });
    let mut lab = lab(Quota { calls, ..Quota::default() });
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    let send = || post("/message:send", &fields, &V1.params(say("hi")).to_string());
    assert_eq!(lab.ask(&send()).status, 200);
    let reply = lab.ask(&send());
    assert_eq!((reply.status, reply.field("retry-after")), (429, Some("1")));
    assert_eq!(reply.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    let peer = lab.open();
    lab.write(peer, &upgrade("/", "Authorization: Bearer carol\r\n"));
    lab.take(peer);
    let answers: Vec<Value> =
        (0..2).flat_map(|_| lab.say(peer, &rpc("ListTasks", &json!({})))).collect();
    assert!(answers[0]["result"].is_object());
    assert_eq!(answers[1]["error"]["data"][0]["reason"], "RATE_LIMIT_EXCEEDED");
}

#[test]
fn request_above_byte_rate_gets_429_with_retry_after() {
    let request_kib = Some(Rate { per_minute: 60, burst: 10 });
    let mut lab = lab(Quota { request_kib, ..Quota::default() });
    let large = V1.params(say(&"x".repeat(8 * 1024)));
    assert_eq!(lab.ask(&call("alice", "/", "SendMessage", &large)).status, 200);
    let reply = lab.ask(&call("alice", "/", "SendMessage", &large));
    assert_eq!((reply.status, reply.field("retry-after")), (429, Some("8")));
    let policy = "\"bytes\";q=61440;qu=\"content-bytes\";w=60";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    assert_eq!(reply.field("ratelimit"), Some("\"bytes\";r=0;t=8"));
    let path = post("/message:send", &fields(), &large.to_string());
    assert_eq!(lab.ask(&path).field("ratelimit-policy"), Some(policy));
    lab.pass(8_000);
    assert_eq!(lab.ask(&call("alice", "/", "SendMessage", &large)).status, 200);
}

#[test]
fn agent_byte_quota_refusal_names_the_bytes_policy() {
    let request_kib = Some(Rate { per_minute: 60, burst: 4 });
    let named = BTreeMap::from([("few".to_owned(), Quota { request_kib, ..Quota::default() })]);
    let mut setup = setup(Quotas { named, ..Quotas::default() });
    setup.agents[1].0.quota = Some("few".to_owned());
    let mut lab = Lab::new(setup);
    let large = V1.params(OutgoingMessage { at_once: true, ..say(&"x".repeat(3 * 1024)) });
    let works = call("alice", "/agents/works", "SendMessage", &large);
    assert_eq!(lab.ask(&works).status, 200);
    let reply = lab.ask(&works);
    let ratelimit = [reply.field("ratelimit-policy"), reply.field("ratelimit")];
    let policy = "\"bytes\";q=61440;qu=\"content-bytes\";w=60";
    assert_eq!((reply.status, ratelimit), (429, [Some(policy), Some("\"bytes\";r=0;t=4")]));
    assert_eq!(lab.ask(&call("alice", "/", "SendMessage", &large)).status, 200);
}

#[test]
fn invalid_request_counts_its_bytes_and_one_call() {
    let request_kib = Some(Rate { per_minute: 60, burst: 10 });
    let mut lab = lab(Quota { request_kib, ..Quota::default() });
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    let broken = "[".repeat(8 * 1024);
    assert_eq!(lab.ask(&post("/", &fields, &broken)).code(), -32700);
    // The next one is refused unread, so its errors are not found.
    for path in ["/", "/message:send"] {
        let reply = lab.ask(&post(path, &fields, &broken));
        assert_eq!((reply.status, reply.field("retry-after")), (429, Some("8")), "{path}");
        assert!(reply.text().contains("RATE_LIMIT_EXCEEDED"), "{}", reply.text());
    }
    let calls = Some(Rate { per_minute: 60, burst: 5 });
    let mut lab = self::lab(Quota { calls, ..Quota::default() });
    for (path, body) in [
        ("/", "{"),
        ("/", &*rpc("NoMethod", &json!({}))),
        ("/", &*rpc("GetTask", &json!({ "id": 3 }))),
        ("/", "[]"),
        ("/message:send", "{}"),
    ] {
        assert_ne!(lab.ask(&post(path, &fields, body)).status, 429, "{body}");
    }
    assert_eq!(list(&mut lab, "alice").status, 429);
    // A readable request takes one call, and its refusal has the request's id.
    lab.pass(2_000);
    assert_eq!(list(&mut lab, "alice").status, 200);
    assert_eq!(list(&mut lab, "alice").status, 200);
    let refused = list(&mut lab, "alice");
    assert_eq!((refused.status, &refused.json()["id"]), (429, &json!(1)));
}

#[test]
fn batch_bytes_count_once_not_per_call() {
    let (calls, request_kib) =
        (Some(Rate { per_minute: 60, burst: 1 }), Some(Rate { per_minute: 1, burst: 20 }));
    let mut lab = lab(Quota { calls, request_kib, ..Quota::default() });
    assert_eq!(list(&mut lab, "alice").status, 200);
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    let large = rpc("SendMessage", &V1.params(say(&"x".repeat(2 * 1024))));
    let answers = lab.ask(&post("/", &fields, &format!("[{large},{large},{large}]"))).json();
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["error"]["data"][0]["reason"], "RATE_LIMIT_EXCEEDED");
    }
    lab.pass(1_000);
    let large = V1.params(say(&"x".repeat(8 * 1024)));
    assert_eq!(lab.ask(&call("alice", "/", "SendMessage", &large)).status, 200);
}

#[test]
fn quota_limits_open_streams_and_running_tasks() {
    let mut lab = lab(Quota { streams: Some(2), running_tasks: Some(3), ..Quota::default() });
    let stream = || call("alice", "/agents/works", "SendStreamingMessage", &fresh(false));
    let streams: Vec<_> = (0..2)
        .map(|_| {
            let peer = lab.open();
            lab.write(peer, &stream());
            assert_eq!(lab.peek(peer).status, 200);
            peer
        })
        .collect();
    let reply = lab.ask(&stream());
    assert_eq!((reply.status, reply.code()), (429, -32000));
    assert!(reply.text().contains("streams"), "{}", reply.text());
    let policy = "\"streams\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    assert_eq!(reply.field("ratelimit"), Some("\"streams\";r=0"));
    // A client that disconnects frees its slot; its task runs on.
    lab.end(streams[0]);
    let peer = lab.open();
    lab.write(peer, &stream());
    assert_eq!(lab.peek(peer).status, 200);
    lab.end(peer);
    let send = || call("alice", "/agents/works", "SendMessage", &at_once());
    let reply = lab.ask(&send());
    assert_eq!((reply.status, reply.field("retry-after")), (429, Some("1")));
    assert!(reply.text().contains("tasks"), "{}", reply.text());
    let policy = "\"running-tasks\";q=3;qu=\"concurrent-requests\"";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    assert_eq!(reply.field("ratelimit"), Some("\"running-tasks\";r=0"));
    let message = json!({ "message": fresh(false)["message"] });
    let rest = post(
        "/agents/works/message:send",
        &[("A2A-Version", "1.0"), ("Authorization", "Bearer alice")],
        &message.to_string(),
    );
    let reply = lab.ask(&rest);
    assert_eq!((reply.status, reply.field("ratelimit-policy")), (429, Some(policy)));
    // An agent that ends its task at once is refused as well, since this is not known in advance.
    assert_eq!(lab.ask(&call("alice", "/", "SendMessage", &at_once())).status, 429);
    assert_eq!(lab.ask(&call("bob", "/agents/works", "SendMessage", &at_once())).status, 200);
    let page = lab.ask(&call("alice", "/agents/works", "ListTasks", &json!({}))).json();
    let id = page["result"]["tasks"][0]["id"].clone();
    let cancel = call("alice", "/agents/works", "CancelTask", &json!({ "id": id }));
    assert_eq!(lab.ask(&cancel).status, 200);
    assert_eq!(lab.ask(&send()).status, 200);
    assert_eq!(lab.ask(&send()).status, 429);
}

/// A server where all callers of the tenant `acme` share this quota.
fn lab_of_tenant(acme: Quota) -> Lab {
    let tenants = BTreeMap::from([("acme".to_owned(), acme)]);
    let setup = setup(Quotas { tenants, ..Quotas::default() });
    let mut setup = Setup { tenants: Tenants::Any, ..setup };
    setup.agents.push((Profile::new("asks", "Asks."), Arc::new(RequestsInput)));
    Lab::new(setup)
}

/// Requests input after each message.
struct RequestsInput;

impl Agent for RequestsInput {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::InputRequired);
    }
}

#[test]
fn callers_of_a_tenant_share_its_rates() {
    let calls = Some(Rate { per_minute: 60, burst: 3 });
    let mut lab = lab_of_tenant(Quota { calls, ..Quota::default() });
    for token in ["alice - acme", "bob - acme", "alice - acme,other"] {
        assert_eq!(list(&mut lab, token).status, 200, "{token}");
    }
    let reply = list(&mut lab, "carol - acme");
    assert_eq!((reply.status, reply.code()), (429, -32000));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"calls\";q=60;w=60"));
    assert_eq!(reply.field("ratelimit"), Some("\"calls\";r=0;t=1"));
    // Callers of other tenants, and callers without a tenant, have their own.
    for token in ["alice - other,acme", "alice", "carol"] {
        assert_eq!(list(&mut lab, token).status, 200, "{token}");
    }
    lab.pass(1_000);
    assert_eq!(list(&mut lab, "carol - acme").status, 200);

    let request_kib = Some(Rate::per_minute(8));
    let mut lab = lab_of_tenant(Quota { request_kib, ..Quota::default() });
    let large = V1.params(say(&"x".repeat(7 * 1024)));
    let send = |lab: &mut Lab, token| lab.ask(&call(token, "/", "SendMessage", &large)).status;
    assert_eq!(send(&mut lab, "alice - acme"), 200);
    assert_eq!(send(&mut lab, "bob - acme"), 429);
    assert_eq!(send(&mut lab, "bob"), 200);
}

#[test]
fn callers_of_a_tenant_share_its_streams() {
    let mut lab = lab_of_tenant(Quota { streams: Some(1), ..Quota::default() });
    let stream = |token: &str| call(token, "/agents/works", "SendStreamingMessage", &fresh(false));
    let peer = lab.open();
    lab.write(peer, &stream("alice - acme"));
    assert_eq!(lab.peek(peer).status, 200);
    let reply = lab.ask(&stream("bob - acme"));
    assert_eq!(reply.status, 429);
    assert!(reply.text().contains("tenant together"), "{}", reply.text());
    let policy = "\"streams\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    let other = lab.open();
    lab.write(other, &stream("bob - other"));
    assert_eq!(lab.peek(other).status, 200);
    lab.end(peer);
    let peer = lab.open();
    lab.write(peer, &stream("bob - acme"));
    assert_eq!(lab.peek(peer).status, 200);
}

#[test]
fn callers_of_a_tenant_share_its_waiting_calls() {
    let mut lab = lab_of_tenant(Quota { waiting_calls: Some(1), ..Quota::default() });
    let send = |token: &str| call(token, "/agents/works", "SendMessage", &fresh(false));
    let waiting = lab.open();
    lab.write(waiting, &send("alice - acme"));
    assert!(lab.received(waiting).is_empty());
    let reply = lab.ask(&send("bob - acme"));
    assert_eq!(reply.status, 429);
    assert!(reply.text().contains("tenant together"), "{}", reply.text());
    let policy = "\"waiting-calls\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    // Callers of other tenants have their own, and a call that ends frees its slot.
    let other = lab.open();
    lab.write(other, &send("bob - other"));
    assert!(lab.received(other).is_empty());
    lab.end(waiting);
    let next = lab.open();
    lab.write(next, &send("bob - acme"));
    assert!(lab.received(next).is_empty());
}

#[test]
fn callers_of_a_tenant_share_its_running_tasks() {
    let mut lab = lab_of_tenant(Quota { running_tasks: Some(2), ..Quota::default() });
    let send = |lab: &mut Lab, token: &str, agent: &str| {
        lab.ask(&call(token, &format!("/agents/{agent}"), "SendMessage", &at_once()))
    };
    let one = send(&mut lab, "alice - acme", "works").result()["task"]["id"].clone();
    assert_eq!(send(&mut lab, "bob - acme", "works").status, 200);
    let reply = send(&mut lab, "carol - acme", "works");
    assert_eq!((reply.status, reply.code()), (429, -32000));
    assert!(reply.text().contains("the tenant has too many running tasks"), "{}", reply.text());
    let policy = "\"running-tasks\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(reply.field("ratelimit-policy"), Some(policy));
    assert_eq!(send(&mut lab, "carol", "works").status, 200);
    let cancel = json!({ "id": one });
    let cancel = call("alice - acme", "/agents/works", "CancelTask", &cancel);
    assert_eq!(lab.ask(&cancel).status, 200);
    // A task in input-required does not count as running; its next message makes it count.
    let replies: Vec<_> = (0..3).map(|_| send(&mut lab, "carol - acme", "asks")).collect();
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert_eq!(send(&mut lab, "carol - acme", "works").status, 200);
    let mut params = at_once();
    params["message"]["taskId"] = replies[0].result()["task"]["id"].clone();
    let answer = call("carol - acme", "/agents/asks", "SendMessage", &params);
    assert_eq!(lab.ask(&answer).status, 429);
    // A task that ends frees its slot.
    let page = call("carol - acme", "/agents/works", "ListTasks", &json!({}));
    let last = lab.ask(&page).result()["tasks"][0]["id"].clone();
    let cancel = call("carol - acme", "/agents/works", "CancelTask", &json!({ "id": last }));
    assert_eq!(lab.ask(&cancel).status, 200);
    for _ in 0..3 {
        assert_eq!(lab.ask(&answer).status, 200);
    }
}

#[test]
fn anonymous_callers_of_a_tenant_share_its_quota() {
    let acme = Quota { calls: Some(Rate::per_minute(5)), ..Quota::default() };
    let acme = Quota { running_tasks: Some(1), streams: Some(1), ..acme };
    let tenants = BTreeMap::from([("acme".to_owned(), acme)]);
    let setup = setup(Quotas { tenants, ..Quotas::default() });
    let setup = Setup { authenticator: None, tenants: Tenants::Any, ..setup };
    let mut lab = Lab::new(setup);
    let mut status_of = |tenant: &str, method: &str| {
        let mut params = if method == "ListTasks" { json!({}) } else { at_once() };
        params["tenant"] = json!(tenant);
        lab.ask(&call("", "/agents/works", method, &params)).status
    };
    assert_eq!([status_of("acme", "SendMessage"), status_of("acme", "SendMessage")], [200, 429]);
    assert_eq!([status_of("other", "SendMessage"), status_of("other", "SendMessage")], [200, 200]);
    let listed = [0; 4].map(|_| status_of("acme", "ListTasks"));
    assert_eq!(listed, [200, 200, 200, 429]);
    assert_eq!(status_of("other", "ListTasks"), 200);
}

#[test]
fn caller_gets_its_named_quota_or_the_default() {
    let one = Quota { calls: Some(Rate { per_minute: 60, burst: 1 }), ..Quota::default() };
    let two = Quota { calls: Some(Rate { per_minute: 60, burst: 2 }), ..Quota::default() };
    let named = BTreeMap::from([("two".to_owned(), two)]);
    let mut lab = Lab::new(setup(Quotas { known: one, named, ..Quotas::default() }));
    for (token, most) in [("alice", 1), ("bob - - two", 2), ("carol - - unknown", 1)] {
        let allowed = (0..4).filter(|_| list(&mut lab, token).status == 200).count();
        assert_eq!(allowed, most, "{token}");
    }
}

#[test]
fn anonymous_quota_counts_by_client_address() {
    let calls = Some(Rate { per_minute: 60, burst: 2 });
    let anonymous = Quota { calls, ..Quota::default() };
    let quotas = Quotas { anonymous, ..Quotas::default() };
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let mut lab = Lab::new(Setup { quotas, trusted_proxies, ..Setup::default() });
    let mut allowed = |address: &str, forwarded: &str| {
        let remote = Some(address.parse().unwrap());
        let peer = lab.open_to(service::Peer { remote, ..service::Peer::default() });
        let fields = [("A2A-Version", "1.0"), ("X-Forwarded-For", forwarded)];
        lab.write(peer, &post("/", &fields, &rpc("ListTasks", &json!({}))));
        lab.reply(peer).status == 200
    };
    for (address, forwarded, is_allowed) in [
        ("192.0.2.1", "6.6.6.6", true),
        ("192.0.2.1", "7.7.7.7", true),
        ("192.0.2.1", "8.8.8.8", false),
        ("192.0.2.2", "", true),
        ("10.0.0.1", "192.0.2.2", true),
        ("10.0.0.2", "1.1.1.1, 192.0.2.2", false),
        ("10.0.0.2", "192.0.2.3", true),
        ("2001:db8::1", "", true),
        ("2001:db8::2", "", true),
        ("2001:db8::3", "", false),
        ("2001:db8:1::1", "", true),
    ] {
        assert_eq!(allowed(address, forwarded), is_allowed, "{address} {forwarded}");
    }
}

/// Lists tasks from an address with this `X-Forwarded-For`, and returns whether it was accepted.
fn lists_from(lab: &mut Lab, remote: Option<std::net::IpAddr>, forwarded: &[u8]) -> bool {
    let peer = lab.open_to(service::Peer { remote, ..service::Peer::default() });
    let fields = [("A2A-Version", "1.0"), ("X-Forwarded-For", "%")];
    let mut request = post("/", &fields, &rpc("ListTasks", &json!({})));
    let at = request.iter().position(|byte| *byte == b'%').unwrap();
    request.splice(at..=at, forwarded.iter().copied());
    lab.write(peer, &request);
    lab.reply(peer).status == 200
}

/// An anonymous caller may call once; proxies are in 10.0.0.0/8.
fn once_for_strangers() -> Lab {
    let calls = Some(Rate { per_minute: 60, burst: 1 });
    let quotas = Quotas { anonymous: Quota { calls, ..Quota::default() }, ..Quotas::default() };
    let trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    Lab::new(Setup { quotas, trusted_proxies, ..Setup::default() })
}

#[test]
fn forwarded_for_last_hop_is_read_after_invalid_bytes() {
    let mut lab = once_for_strangers();
    let proxy = Some("10.0.0.1".parse().unwrap());
    assert!(lists_from(&mut lab, proxy, b"\xff, 192.0.2.1"));
    assert!(lists_from(&mut lab, proxy, b"\xff, 192.0.2.2"));
    assert!(lists_from(&mut lab, proxy, b"\xff\r\nX-Forwarded-For: 192.0.2.3"));
    assert!(!lists_from(&mut lab, proxy, b"\xfe, 192.0.2.2"));
    assert!(!lists_from(&mut lab, proxy, b"\xfe\r\nX-Forwarded-For: 192.0.2.3"));
}

#[test]
fn anonymous_callers_without_address_share_one_quota() {
    let mut lab = once_for_strangers();
    assert!(lists_from(&mut lab, None, b""));
    assert!(!lists_from(&mut lab, None, b"192.0.2.1"));
}

#[test]
fn proxied_websocket_quota_counts_by_forwarded_address() {
    let mut lab = once_for_strangers();
    let remote = Some("10.0.0.1".parse().unwrap());
    let mut answers = |forwarded: &str| {
        let peer = lab.open_to(service::Peer { remote, ..service::Peer::default() });
        lab.write(peer, &upgrade("/", &format!("X-Forwarded-For: {forwarded}\r\n")));
        lab.take(peer);
        let answers = lab.say(peer, &rpc("ListTasks", &json!({})));
        answers[0]["result"].is_object()
    };
    assert!(answers("192.0.2.1"));
    assert!(answers("192.0.2.2"));
    assert!(!answers("6.6.6.6, 192.0.2.2"));
}

#[test]
fn evo_ai_applies_documented_quota_to_authenticated_callers() {
    let mounts = vec![Mount { path: "/evo".to_owned(), dialect: "evo_ai".to_owned(), agent: None }];
    let mut lab = Lab::new(Setup { mounts: mounts.clone(), ..setup(Quotas::default()) });
    let get = rpc("tasks/get", &json!({ "id": "none" }));
    let get_task =
        |lab: &mut Lab, token: &str| lab.ask(&post("/evo", &[("X-API-Key", token)], &get));
    for n in 0..100 {
        let reply = get_task(&mut lab, "alice");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.field("x-ratelimit-limit"), Some("100"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(&*(99 - n).to_string()));
        let reset: u64 = reply.field("x-ratelimit-reset").unwrap().parse().unwrap();
        let ahead = reset - lab.now.unix_ms / 1000;
        assert!((1..=60).contains(&ahead), "{ahead}");
    }
    let reply = get_task(&mut lab, "alice");
    assert_eq!((reply.status, reply.field("x-ratelimit-remaining")), (429, Some("0")));
    assert_eq!(reply.json()["error"]["message"], "Agent error");
    assert!(reply.field("retry-after").is_some());
    assert_eq!(get_task(&mut lab, "bob").status, 200);
    // On other paths the same caller has the general quota.
    assert_eq!(list(&mut lab, "alice").status, 200);
    let stream = rpc("message/stream", &V03.params(say("hold:60000:1")));
    for n in 0..11 {
        let peer = lab.open();
        lab.write(peer, &post("/evo", &[("X-API-Key", "carol")], &stream));
        assert_eq!(lab.peek(peer).status, if n < 10 { 200 } else { 429 }, "{n}");
    }
    // The operator's lower quota applies as well, to the calls of all dialects together.
    let calls = Some(Rate { per_minute: 30, burst: 4 });
    let known = Quota { calls, streams: Some(2), ..Quota::default() };
    let large = Quota { calls: Some(Rate::per_minute(1_000)), ..Quota::default() };
    let named = BTreeMap::from([("large".to_owned(), large)]);
    let quotas = Quotas { known, named, ..Quotas::default() };
    let mut lab = Lab::new(Setup { mounts: mounts.clone(), ..setup(quotas) });
    let reply = get_task(&mut lab, "alice - - large");
    assert_eq!(reply.field("x-ratelimit-limit"), Some("100"));
    for remaining in ["3", "2"] {
        let reply = get_task(&mut lab, "bob");
        assert_eq!(reply.field("x-ratelimit-limit"), Some("30"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(remaining));
    }
    for status in [200, 200, 429] {
        assert_eq!(list(&mut lab, "bob").status, status);
    }
    assert_eq!(get_task(&mut lab, "bob").status, 429);
    for (path, status) in [("/evo", 200), ("/", 200), ("/evo", 429), ("/", 429)] {
        let peer = lab.open();
        let key = [("X-API-Key", "carol"), ("A2A-Version", "0.3")];
        lab.write(peer, &post(path, &key, &stream));
        assert_eq!(lab.peek(peer).status, status, "{path}");
    }
    // Without authentication no call counts.
    let mut lab = Lab::new(Setup { mounts, ..Setup::default() });
    let reply = lab.ask(&post("/evo", &[], &get));
    assert!(reply.field("x-ratelimit-limit").is_none());
}

#[test]
fn agent_quota_limits_each_caller_of_the_agent() {
    let calls = |per_minute| Some(Rate { per_minute, burst: per_minute });
    let few = Quota { calls: calls(2), running_tasks: Some(1), ..Quota::default() };
    let known = Quota { calls: calls(600), running_tasks: Some(9), ..Quota::default() };
    let named = BTreeMap::from([("few".to_owned(), few)]);
    for authenticates_callers in [true, false] {
        let quotas = Quotas { known, named: named.clone(), ..Quotas::default() };
        let mut setup = setup(quotas);
        if !authenticates_callers {
            setup.authenticator = None;
        }
        for (profile, _) in setup.agents.iter_mut().skip(1) {
            profile.quota = Some("few".to_owned());
        }
        let mut lab = Lab::new(setup);
        let mut list = |token: &str, path: &str, params: Value| {
            let reply = lab.ask(&call(token, path, "ListTasks", &params));
            (reply.status, reply.field("ratelimit-policy").map(str::to_owned))
        };
        let policy = Some("\"calls\";q=2;w=60".to_owned());
        // Calls to other agents do not count towards this agent's quota.
        for _ in 0..20 {
            assert_eq!(list("alice", "/", json!({})), (200, None));
        }
        assert_eq!(list("alice", "/agents/works", json!({})), (200, None));
        // At the root the call itself names the agent.
        assert_eq!(list("alice", "/", json!({ "tenant": "works" })), (200, None));
        assert_eq!(list("alice", "/agents/works", json!({})), (429, policy.clone()));
        assert_eq!(list("alice", "/", json!({ "tenant": "works" })), (429, policy));
        assert_eq!(list("alice", "/", json!({})).0, 200);
        if authenticates_callers {
            assert_eq!(list("bob", "/agents/works", json!({})).0, 200);
        }
    }
    // Its limit on tasks is lower as well, and the calls of a batch count one by one.
    let quotas = Quotas { known, named, ..Quotas::default() };
    let mut setup = setup(quotas);
    setup.agents[1].0.quota = Some("few".to_owned());
    let mut lab = Lab::new(setup);
    let send = |lab: &mut Lab| lab.ask(&call("eve", "/agents/works", "SendMessage", &at_once()));
    assert_eq!((send(&mut lab).status, send(&mut lab).status), (200, 429));
}

#[test]
fn agent_quota_applies_to_tenant_addressed_calls() {
    // Anonymous callers have a rate; only the agent limits running tasks.
    let one = Quota { running_tasks: Some(1), ..Quota::default() };
    let rate = Quota { calls: Some(Rate::per_minute(600)), ..Quota::default() };
    let named = BTreeMap::from([("one".to_owned(), one)]);
    let quotas = Quotas { anonymous: rate, named, ..Quotas::default() };
    let mut setup = Setup { authenticator: None, ..setup(quotas) };
    setup.agents[1].0.quota = Some("one".to_owned());
    let mut lab = Lab::new(setup);
    let mut params = at_once();
    params["tenant"] = json!("works");
    let mut send = || lab.ask(&call("", "/", "SendMessage", &params)).status;
    assert_eq!([send(), send()], [200, 429]);
}

#[test]
fn exhausted_agent_byte_quota_refuses_every_batch_call() {
    let few = Rate { per_minute: 1, burst: 1 };
    let named = Quota { request_kib: Some(few), ..Quota::default() };
    let named = BTreeMap::from([("few".to_owned(), named)]);
    let mut setup = setup(Quotas { named, ..Quotas::default() });
    setup.agents[1].0.quota = Some("few".to_owned());
    let mut lab = Lab::new(setup);
    let list = rpc("ListTasks", &json!({ "tenant": "works" }));
    let mut batch = || {
        let reply = lab.ask(&post("/", &fields(), &format!("[{list},{list},{list}]"))).json();
        let answers = reply.as_array().unwrap();
        answers.iter().filter(|answer| answer["error"].is_null()).count()
    };
    // The first batch takes its bytes once for the whole request; the second gets none for any
    // call.
    assert_eq!([batch(), batch()], [3, 0]);
}
