//! Authenticated callers: which requests pass, how refused callers are answered, and that a caller
//! cannot read data of other callers.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    auth::Authenticator,
    engine::{Cors, Mount, Next, Setup, Tenants},
    limits::callers::{PEER_FAILURES_MAX, WRONG_KEY_DELAY_MS},
    model::{MessageBuf, PartsBuf, TaskState},
    service,
};
use serde_json::{Value, json};

use crate::support::{
    BEGIN, Lab,
    ask::{OutgoingMessage, V01, V1, V03, get, get_with, post, post_chunked, rpc, say},
    callers::ByName,
    reply::Reply,
    ws::upgrade,
};

/// Answers with the caller's name and keeps the task.
struct CallerNameAgent;

impl Agent for CallerNameAgent {
    fn start(&self, turn: Turn<'_>) {
        let request = turn.request;
        let principal = request.principal.map_or("nobody", |principal| principal.name());
        let text = format!("{principal} in {}", request.tenant.unwrap_or("no tenant"));
        turn.reply(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
}

/// Starts a task that stays in the state working.
struct Works;

impl Agent for Works {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::Working);
        turn.resume_after(3_600_000, 0);
    }

    fn resume(&self, mut turn: Turn<'_>, _token: u64) {
        turn.status(TaskState::Completed);
    }
}

fn setup(by: &Arc<ByName>) -> Setup {
    let profile = |name: &str| Profile::new(name, "An agent of tests.");
    let open = Profile { anonymous: true, ..profile("open") };
    let special = Profile { scopes: vec!["special".to_owned()], ..profile("special") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (profile("echo"), Arc::new(Echo)),
        (open, Arc::new(Echo)),
        (special, Arc::new(Echo)),
        (profile("tell"), Arc::new(CallerNameAgent)),
        (profile("works"), Arc::new(Works)),
    ];
    let authenticator = Some(Arc::clone(by) as Arc<dyn Authenticator>);
    Setup { agents, authenticator, tenants: Tenants::Any, ..Setup::default() }
}

fn lab() -> (Lab, Arc<ByName>) {
    let by = Arc::new(ByName::default());
    (Lab::new(setup(&by)), by)
}

/// A call of 1.0 with a token.
fn call(token: &str, path: &str, method: &str, params: &Value) -> Vec<u8> {
    let fields = [("Authorization", &*format!("Bearer {token}")), ("A2A-Version", "1.0")];
    post(path, &fields, &rpc(method, params))
}

fn sent(lab: &mut Lab, token: &str, path: &str) -> Value {
    let params = V1.params(OutgoingMessage { at_once: true, ..say("hi") });
    let reply = lab.ask(&call(token, path, "SendMessage", &params));
    assert_eq!(reply.status, 200, "{token} {path}");
    reply.json()["result"].clone()
}

// --- Authentication

#[test]
fn anonymous_call_gets_401_in_its_format_before_its_body() {
    let by = Arc::new(ByName::default());
    let mount = |path: &str, dialect: &str| Mount {
        path: path.to_owned(),
        dialect: dialect.to_owned(),
        agent: None,
    };
    let mounts = vec![mount("/evo", "evo_ai"), mount("/old", "rabbithole")];
    let mut lab = Lab::new(Setup { mounts, ..setup(&by) });
    // The body is never sent.
    let head = |path: &str, lines: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: 100\r\n\r\n")
    };
    type Case = (&'static str, &'static str, fn(&Value));
    let cases: [Case; 8] = [
        ("/", "A2A-Version: 1.0\r\n", |body| {
            assert_eq!(body["error"]["code"], -32000);
            assert_eq!(body["error"]["data"][0]["reason"], "AUTHENTICATION_REQUIRED");
        }),
        ("/", "A2A-Version: 0.3\r\n", |body| assert!(body["error"]["data"].is_null(), "{body}")),
        ("/agents/tell", "A2A-Version: 0.3\r\n", |body| assert!(body["error"]["data"].is_null())),
        ("/", "A2A-Version: 0.1\r\n", |body| assert_eq!(body["error"]["code"], -32007)),
        ("/old", "", |body| assert_eq!(body["error"]["code"], -32007)),
        ("/evo", "", |body| {
            assert_eq!(body["error"]["message"], "Agent error");
            assert!(body["error"]["data"]["details"].is_string());
        }),
        ("/message:send", "A2A-Version: 1.0\r\n", |body| {
            assert_eq!(body["error"]["status"], "UNAUTHENTICATED");
            assert_eq!(body["error"]["code"], 401);
        }),
        ("/v1/message:send", "", |body| assert!(body["code"].is_i64(), "{body}")),
    ];
    for (path, lines, check) in cases {
        let peer = lab.open();
        lab.write(peer, head(path, lines).as_bytes());
        let reply = lab.reply(peer);
        assert_eq!(reply.status, 401, "{path} {lines}");
        assert_eq!(reply.field("www-authenticate"), Some("Bearer realm=\"a2a\""));
        assert_eq!(reply.field("connection"), Some("close"));
        assert_eq!(lab.next(peer), Next::Close);
        let body = reply.json();
        if body["jsonrpc"].is_string() {
            assert!(body["id"].is_null());
        }
        check(&body);
    }
    assert_eq!(by.asked.load(Relaxed), 0, "nothing was shown");
    assert_eq!(lab.ask(&call("alice", "/", "ListTasks", &json!({}))).status, 200);
}

#[test]
fn wrong_credential_is_401_on_calls_and_ignored_on_public_paths() {
    let (mut lab, _) = lab();
    let reply = lab.ask(&call("wrong", "/", "ListTasks", &json!({})));
    assert_eq!((reply.status, reply.code()), (401, -32000));
    assert_eq!(reply.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    assert_eq!(reply.json()["error"]["message"], "nobody has this token");
    for path in ["/.well-known/agent-card.json", "/agents/tell/.well-known/agent.json"] {
        for lines in ["", "Authorization: Bearer wrong\r\n"] {
            assert_eq!(lab.ask(&get_with(path, lines)).status, 200, "{path}");
        }
    }
    assert_eq!(lab.ask(&get("/nothing")).status, 404);
    assert_eq!(lab.ask(b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n").status, 204);
    // An open agent refuses a wrong credential; it does not treat it as none.
    assert_eq!(lab.ask(&call("wrong", "/agents/open", "ListTasks", &json!({}))).status, 401);
}

#[test]
fn anonymous_calls_reach_only_open_agents() {
    let (mut lab, _) = lab();
    let fields = [("A2A-Version", "1.0")];
    let send = rpc("SendMessage", &V1.params(say("hi")));
    assert_eq!(lab.ask(&post("/agents/open", &fields, &send)).status, 200);
    assert_eq!(lab.ask(&post("/agents/open/message:send", &fields, "{}")).status, 400);
    // A tenant path with the open agent's name is recognized from the request head as well.
    assert_eq!(lab.ask(&post("/tenants/open", &fields, &send)).status, 200);
    assert_eq!(lab.ask(&post("/open/message:send", &fields, "{}")).status, 400);
    assert_eq!(lab.ask(&post("/tenants/tell", &fields, &send)).status, 401);
    assert_eq!(lab.ask(&post("/agents/tell/tenants/open", &fields, &send)).status, 401);
    for method in ["GetExtendedAgentCard", "ListTasks"] {
        let reply = lab.ask(&post("/agents/open", &fields, &rpc(method, &json!({}))));
        let expected = if method == "ListTasks" { 200 } else { 401 };
        assert_eq!(reply.status, expected, "{method}");
    }
    // Here the body names the tenant, and the server does not read an anonymous caller's body.
    let mut named = V1.params(say("hi"));
    named["tenant"] = json!("open");
    assert_eq!(lab.ask(&post("/", &fields, &rpc("SendMessage", &named))).status, 401);
    // An open agent at the root gives no access to other agents.
    let by = Arc::new(ByName::default());
    let mut setup = setup(&by);
    setup.agents.swap(0, 1);
    let mut lab = Lab::new(setup);
    named["tenant"] = json!("tell");
    let reply = lab.ask(&post("/", &fields, &rpc("SendMessage", &named)));
    assert_eq!((reply.status, reply.code()), (401, -32000));
    assert!(reply.field("www-authenticate").is_some());
    let batch = format!("[{},{}]", rpc("SendMessage", &named), send);
    let answers = lab.ask(&post("/", &fields, &batch)).json();
    assert_eq!(answers[0]["error"]["code"], -32000);
    assert!(answers[1]["result"]["task"].is_object());
}

#[test]
fn authenticator_enables_extended_card_and_protects_it() {
    let (mut lab, _) = lab();
    let path = "/agent/authenticatedExtendedCard";
    assert_eq!(lab.ask(&get(path)).status, 401);
    assert_eq!(lab.ask(&get_with(path, "Authorization: Bearer alice\r\n")).status, 200);
    assert_eq!(lab.ask(&get("/agents/open/agent/authenticatedExtendedCard")).status, 401);
    let reply = lab.ask(&call("alice", "/", "GetExtendedAgentCard", &json!({})));
    assert_eq!(reply.json()["result"]["name"], "echo");
    assert_eq!(lab.ask(&get("/extendedAgentCard")).status, 401);
}

#[test]
fn extended_card_checks_the_tenant_of_its_path_for_each_caller() {
    let (mut lab, _) = lab();
    let card = "/agent/authenticatedExtendedCard";
    let mut request = |token: &str, path: &str| {
        lab.ask(&get_with(path, &format!("Authorization: Bearer {token}\r\n")))
    };
    // Alternating: one worker answers both.
    for token in ["alice - acme", "bob - other", "alice - acme", "carol"] {
        let reply = request(token, card);
        assert_eq!(reply.status, 200, "{token} {}", reply.text());
    }
    for (token, status) in [("alice - acme", 200), ("bob - other", 403), ("carol", 403)] {
        let reply = request(token, &format!("/tenants/acme{card}"));
        assert_eq!(reply.status, status, "{token} {}", reply.text());
    }
}

#[test]
fn cards_list_security_schemes_and_requirements() {
    let (mut lab, _) = lab();
    let card = lab.ask(&get("/.well-known/agent-card.json")).json();
    assert_eq!(card["securityRequirements"].as_array().unwrap().len(), 2);
    assert_eq!(card["security"][0], json!({ "token": [] }));
    assert!(card["securitySchemes"]["key"].is_object());
    assert_eq!(card["supportsAuthenticatedExtendedCard"], true);
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);
    // An open agent lists the empty requirement first; its extended card still needs a credential.
    let open = lab.ask(&get("/agents/open/.well-known/agent-card.json")).json();
    assert_eq!(open["securityRequirements"][0], json!({}));
    assert_eq!(open["security"][0], json!({}));
    assert_eq!(open["securityRequirements"].as_array().unwrap().len(), 3);
    assert_eq!(open["securitySchemes"], card["securitySchemes"]);
    assert_eq!(open["capabilities"]["extendedAgentCard"], true);
    for (token, status) in [("", 401), ("wrong", 401), ("alice", 200)] {
        let mut lines = "A2A-Version: 1.0\r\n".to_owned();
        if !token.is_empty() {
            lines += &format!("X-API-Key: {token}\r\n");
        }
        let reply = lab.ask(&get_with("/agents/open/extendedAgentCard", &lines));
        assert_eq!(reply.status, status, "{token}: {}", reply.text());
    }
}

#[cfg(feature = "auth")]
#[test]
fn replaced_auth_rules_change_cards_and_cors_headers() {
    use peregrine::auth::{AuthRules, Callers, KeyRule, KnownCaller, SecretDigest};

    let rules = |field: &str| {
        let caller = KnownCaller { name: "robot".to_owned(), ..KnownCaller::default() };
        let digest = SecretDigest::take("key".to_owned());
        let api_keys = vec![KeyRule { digest, caller, expires_unix_ms: None }];
        AuthRules { api_keys, api_key_field: field.to_owned(), ..AuthRules::default() }
    };
    let callers = Arc::new(Callers::new(rules("X-First")).unwrap());
    let authenticator = Some(Arc::clone(&callers) as Arc<dyn Authenticator>);
    let cors = Cors { origins: vec!["http://page".to_owned()], ..Cors::default() };
    let mut lab = Lab::new(Setup { authenticator, cors, ..setup(&Arc::default()) });
    let path = "/.well-known/agent-card.json";
    let of = |reply: &Reply| reply.json()["securitySchemes"]["api-key"]["name"].clone();
    let first = lab.ask(&get(path));
    assert_eq!(of(&first), "X-First");
    lab.pass(2_000);
    callers.replace(rules("X-Second")).unwrap();
    let since = format!("If-Modified-Since: {}\r\n", first.field("last-modified").unwrap());
    let second = lab.ask(&get_with(path, &since));
    assert_eq!((second.status, of(&second)), (200, json!("X-Second")));
    assert_ne!(second.field("etag"), first.field("etag"));
    let since = format!("If-Modified-Since: {}\r\n", second.field("last-modified").unwrap());
    assert_eq!(lab.ask(&get_with(path, &since)).status, 304);
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://page\r\n\
        Access-Control-Request-Method: POST\r\n\r\n";
    let allowed = lab.ask(preflight.as_bytes());
    assert!(allowed.field("access-control-allow-headers").unwrap().contains("X-Second"));
}

#[test]
fn authenticated_split_and_chunked_bodies_are_accepted() {
    let (mut lab, by) = lab();
    let whole = call("alice", "/", "ListTasks", &json!({}));
    let peer = lab.open();
    for byte in &whole {
        lab.write(peer, &[*byte]);
    }
    assert_eq!(lab.reply(peer).status, 200);
    let chunked = post_chunked("/", &rpc("ListTasks", &json!({})), 7);
    let text = String::from_utf8(chunked).unwrap();
    let authenticated =
        text.replacen("\r\n", "\r\nAuthorization: Bearer alice\r\nA2A-Version: 1.0\r\n", 1);
    assert_eq!(lab.ask(authenticated.as_bytes()).status, 200);
    assert_eq!(by.asked.load(Relaxed), 1, "the second is remembered");
    let peer = lab.open();
    lab.write(peer, text.as_bytes());
    assert_eq!((lab.reply(peer).status, lab.next(peer)), (401, Next::Close));
}

#[test]
fn unauthenticated_body_on_public_path_is_not_read() {
    let (mut lab, _) = lab();
    for (line, status) in [
        ("POST /nothing", 404),
        ("POST /agents/nobody", 404),
        ("OPTIONS /", 204),
        ("OPTIONS *", 204),
        ("OPTIONS /message:send", 204),
        ("POST /.well-known/agent-card.json", 405),
        // A path for calls returns 405 before it requests a credential.
        ("GET /", 405),
        ("GET /.well-known/agent-card.json", 200),
        ("GET /agents", 200),
    ] {
        for framing in ["Content-Length: 4000000", "Transfer-Encoding: chunked"] {
            for wrong in ["", "Authorization: Bearer wrong\r\n", "Expect: 100-continue\r\n"] {
                let peer = lab.open();
                let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{wrong}{framing}\r\n\r\n");
                lab.write(peer, head.as_bytes());
                let reply = lab.reply(peer);
                assert_eq!((reply.status, reply.closes()), (status, true), "{line} {framing}");
                assert_eq!(lab.next(peer), Next::Close);
            }
        }
    }
    // A small body that arrived with its head does not close the connection; a large one does.
    let peer = lab.open();
    for _ in 0..2 {
        lab.write(peer, b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!((lab.reply(peer).status, lab.is_open(peer)), (404, true));
    }
    // The server reads the body of an authenticated caller, and of any caller where no
    // authentication is set up.
    let head = "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n";
    let peer = lab.open();
    lab.write(peer, format!("{head}Authorization: Bearer alice\r\n\r\nx").as_bytes());
    assert!(lab.take(peer).is_empty() && lab.is_open(peer));
    let mut free = Lab::echo();
    let peer = free.open();
    free.write(peer, format!("{head}\r\nx").as_bytes());
    assert!(free.take(peer).is_empty() && free.is_open(peer));
}

#[test]
fn pending_credential_check_reads_no_body_and_ends_after_5_s() {
    let (mut lab, by) = lab();
    by.is_waiting.store(true, Relaxed);
    let request = call("alice", "/", "ListTasks", &json!({}));
    let (first, second) = (lab.open(), lab.open());
    lab.write(first, &request);
    lab.write(second, &request);
    assert!(lab.try_reply(first).is_none() && !lab.progress(first).read);
    // Other requests are served meanwhile.
    assert_eq!(lab.ask(&get("/.well-known/agent-card.json")).status, 200);
    lab.pass(4_000);
    by.go_on();
    lab.pass(0);
    assert_eq!((lab.reply(first).status, lab.reply(second).status), (200, 200));
    by.is_waiting.store(true, Relaxed);
    let request = call("bob", "/", "ListTasks", &json!({}));
    lab.write(first, &request);
    lab.pass(4_999);
    assert!(lab.try_reply(first).is_none());
    lab.pass(1);
    let reply = lab.reply(first);
    assert_eq!((reply.status, lab.next(first)), (503, Next::Close));
    assert!(reply.field("retry-after").is_some() && reply.field("www-authenticate").is_none());
    // A client that disconnects leaves no pending check.
    lab.write(second, &request);
    lab.end(second);
    assert_eq!(lab.next(second), Next::Abort);
}

/// Sends ten wrong tokens from one peer, each on its own connection.
fn fail_ten_times(lab: &mut Lab, peer: service::Peer<'static>) {
    for n in 0..PEER_FAILURES_MAX {
        let client = lab.open_to(peer);
        lab.write(client, &call(&format!("wrong {n}"), "/", "ListTasks", &json!({})));
        assert_eq!(lab.reply(client).status, 401, "{n}");
    }
}

fn from(address: &str) -> service::Peer<'static> {
    let remote = Some(address.parse().unwrap());
    service::Peer { remote, ..service::Peer::default() }
}

#[test]
fn wrong_key_delay_ms() {
    let (mut lab, by) = lab();
    let peer = from("192.0.2.7");
    fail_ten_times(&mut lab, peer);
    let checks_before = by.asked.load(Relaxed);
    let (client, leaver) = (lab.open_to(peer), lab.open_to(peer));
    let wrong = call("wrong", "/", "ListTasks", &json!({}));
    lab.write(client, &wrong);
    lab.write(leaver, &wrong);
    lab.pass(WRONG_KEY_DELAY_MS - 1);
    assert!(lab.try_reply(client).is_none() && !lab.progress(client).read);
    lab.end(leaver);
    assert_eq!(lab.next(leaver), Next::Abort);
    // Right keys pass meanwhile, new ones as well; public resources are served.
    for token in ["alice", "bob"] {
        let client = lab.open_to(peer);
        lab.write(client, &call(token, "/", "ListTasks", &json!({})));
        assert_eq!(lab.reply(client).status, 200, "{token}");
    }
    let public = lab.open_to(peer);
    lab.write(public, &get_with("/.well-known/agent-card.json", "Authorization: Bearer wrong\r\n"));
    assert_eq!(lab.reply(public).status, 200);
    lab.pass(1);
    let reply = lab.reply(client);
    assert_eq!((reply.status, reply.code(), lab.next(client)), (401, -32000, Next::Close));
    assert_eq!(reply.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    assert_eq!(by.asked.load(Relaxed), checks_before + 5, "each was checked once");
    // Other peers get the answer to a wrong key at once.
    assert_eq!(lab.ask(&wrong).status, 401);
}

#[test]
fn upgrade_with_wrong_key_is_delayed_after_repeated_failures() {
    let (mut lab, _) = lab();
    let peer = from("2001:db8::1");
    fail_ten_times(&mut lab, peer);
    let client = lab.open_to(from("2001:db8::2"));
    lab.write(client, &upgrade("/", "Sec-WebSocket-Protocol: a2a, a2a.bearer.wrong\r\n"));
    assert!(lab.try_reply(client).is_none());
    lab.pass(WRONG_KEY_DELAY_MS);
    assert_eq!((lab.reply(client).status, lab.next(client)), (401, Next::Close));
}

#[test]
fn credentials_max() {
    let by = Arc::new(ByName::default());
    let mut setup = setup(&by);
    // The table has at least 512 slots.
    setup.limits.credentials_max = 1;
    let mut lab = Lab::new(setup);
    let token = |n: usize| call(&format!("caller-{n}"), "/", "ListTasks", &json!({}));
    for n in 0..2_000 {
        assert_eq!(lab.ask(&token(n)).status, 200);
        assert_eq!(lab.ask(&token(n)).status, 200);
    }
    assert_eq!(by.asked.load(Relaxed), 2_000);
    // Most entries were evicted and are checked again.
    for n in 0..1_000 {
        assert_eq!(lab.ask(&token(n)).status, 200);
    }
    assert!(by.asked.load(Relaxed) > 2_500);
}

// --- Ownership

#[test]
fn tasks_and_contexts_of_other_callers_are_hidden() {
    let (mut lab, _) = lab();
    let task = sent(&mut lab, "alice", "/agents/works")["task"].clone();
    let (id, context) = (task["id"].clone(), task["contextId"].clone());
    let existing = json!({ "id": id });
    let unknown = json!({ "id": "no-such-task" });
    let error_text = |reply: Reply| reply.json()["error"]["message"].as_str().unwrap().to_owned();
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let others = lab.ask(&call("bob", "/agents/works", method, &existing));
        let nothing = lab.ask(&call("bob", "/agents/works", method, &unknown));
        assert_eq!((others.status, others.code()), (nothing.status, -32001), "{method}");
        assert_eq!(error_text(others), error_text(nothing), "{method}");
    }
    let mut follow_up = V1.params(say("more"));
    follow_up["message"]["taskId"] = id.clone();
    let reply = lab.ask(&call("bob", "/agents/works", "SendMessage", &follow_up));
    assert_eq!(reply.code(), -32001);
    let count = |lab: &mut Lab, token: &str, params: &Value| {
        let page = lab.ask(&call(token, "/agents/works", "ListTasks", params)).json();
        page["result"]["totalSize"].as_u64().unwrap()
    };
    assert_eq!(count(&mut lab, "alice", &json!({})), 1);
    assert_eq!(count(&mut lab, "bob", &json!({})), 0);
    assert_eq!(count(&mut lab, "bob", &json!({ "contextId": context })), 0);
    // A context of the same name belongs to the other caller.
    let mut same = V1.params(OutgoingMessage { at_once: true, ..say("mine") });
    same["message"]["contextId"] = context.clone();
    let reply = lab.ask(&call("bob", "/agents/works", "SendMessage", &same)).json();
    assert_eq!(reply["result"]["task"]["contextId"], context);
    let of_context = json!({ "contextId": context });
    assert_eq!(count(&mut lab, "bob", &of_context), 1);
    assert_eq!(count(&mut lab, "alice", &of_context), 1);
    assert_eq!(lab.ask(&call("alice", "/agents/works", "GetTask", &existing)).status, 200);
    let canceled = lab.ask(&call("alice", "/agents/works", "CancelTask", &existing)).json();
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn task_ownership_is_enforced_in_every_protocol_version() {
    let (mut lab, _) = lab();
    let bearer = |name: &str| format!("Bearer {name}");
    for made in [V01, V03, V1] {
        let token = bearer("alice");
        let body = rpc(made.send(), &made.params(say("hi")));
        let reply = lab.ask(&post("/", &[("Authorization", &token)], &body)).json();
        let id = made.task(&reply["result"])["id"].as_str().unwrap().to_owned();
        for (token, status) in [("alice", 200), ("bob", 404)] {
            let line = format!("Authorization: Bearer {token}\r\nA2A-Version: 1.0\r\n");
            assert_eq!(lab.ask(&get_with(&format!("/tasks/{id}"), &line)).status, status);
            let old = rpc("tasks/get", &json!({ "id": id }));
            let reply = lab.ask(&post("/", &[("Authorization", &bearer(token))], &old)).json();
            assert_eq!(reply["error"].is_null(), token == "alice", "{made:?}");
        }
    }
}

#[test]
fn caller_may_only_name_its_granted_tenants() {
    let (mut lab, _) = lab();
    let answer = |lab: &mut Lab, token: &str, tenant: Option<&str>| {
        let mut params = V1.params(say("hi"));
        if let Some(tenant) = tenant {
            params["tenant"] = json!(tenant);
        }
        let reply = lab.ask(&call(token, "/agents/tell", "SendMessage", &params));
        match reply.status {
            200 => reply.json()["result"]["message"]["parts"][0]["text"].as_str().unwrap().into(),
            status => format!("{status} {}", reply.json()["error"]["message"].as_str().unwrap()),
        }
    };
    assert_eq!(answer(&mut lab, "alice", None), "alice in no tenant");
    assert_eq!(answer(&mut lab, "alice x a,b", None), "alice in a");
    assert_eq!(answer(&mut lab, "alice x a,b", Some("b")), "alice in b");
    let refused = "403 the caller may not use the tenant c";
    assert_eq!(answer(&mut lab, "alice x a,b", Some("c")), refused);
    assert!(answer(&mut lab, "alice", Some("a")).starts_with("403"));
    // The path names the tenant.
    for (path, status) in [("/tenants/b", 200), ("/tenants/c", 403)] {
        let reply = lab.ask(&call("alice x a,b", path, "ListTasks", &json!({})));
        assert_eq!(reply.status, status, "{path}");
    }
    let fields = "Authorization: Bearer alice x a,b\r\nA2A-Version: 1.0\r\n";
    assert_eq!(lab.ask(&get_with("/b/tasks", fields)).status, 200);
    assert_eq!(lab.ask(&get_with("/c/tasks", fields)).status, 403);
    // A batch is answered call by call.
    let in_tenant = |tenant: &str| rpc("ListTasks", &json!({ "tenant": tenant }));
    let batch = format!("[{},{}]", in_tenant("b"), in_tenant("c"));
    let fields = [("Authorization", "Bearer alice x a,b"), ("A2A-Version", "1.0")];
    let answers = lab.ask(&post("/", &fields, &batch)).json();
    assert!(answers[0]["result"].is_object());
    assert_eq!(answers[1]["error"]["data"][0]["reason"], "AUTHORIZATION_FAILED");
}

#[test]
fn anonymous_callers_may_create_half_of_tenants_max() {
    let by = Arc::new(ByName::default());
    let mut setup = setup(&by);
    setup.limits.tenants_max = 4;
    let mut lab = Lab::new(setup);
    let mut send = |token: &str, tenant: &str| {
        let mut params = V1.params(say("hi"));
        params["tenant"] = json!(tenant);
        let body = rpc("SendMessage", &params);
        let lines = [("A2A-Version", "1.0"), ("Authorization", token)];
        lab.pass(1_000);
        lab.ask(&post("/agents/open", &lines[..1 + usize::from(!token.is_empty())], &body))
    };
    assert_eq!([send("", "a").status, send("", "b").status], [200, 200]);
    let refused = send("", "c");
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("anonymous callers have named"), "{}", refused.text());
    // Tenants with a name still work; the other half is for authenticated callers.
    assert_eq!(send("", "a").status, 200);
    let alice = "Bearer alice - c,d";
    assert_eq!([send(alice, "c").status, send(alice, "d").status], [200, 200]);
}

#[test]
fn tenant_granted_by_name_is_valid_in_each_tenant_mode() {
    let by = Arc::new(ByName::default());
    let named = Tenants::Named(["known".to_owned()].into());
    for tenants in [Tenants::OfOneAgent, named] {
        let mut lab = Lab::new(Setup { tenants, ..setup(&by) });
        let mut status = |token: &str, tenant: &str| {
            let params = json!({ "tenant": tenant });
            let reply = lab.ask(&call(token, "/", "ListTasks", &params));
            let path =
                lab.ask(&call(token, &format!("/tenants/{tenant}"), "ListTasks", &json!({})));
            assert_eq!(reply.status, path.status, "{token} {tenant}");
            (reply.status, reply.json()["error"]["code"].as_i64())
        };
        assert_eq!(status("alice x a,b", "a"), (200, None));
        assert_eq!(status("alice x a,b", "b"), (200, None));
        // The answer does not show which other tenants exist.
        for tenant in ["known", "c"] {
            let refused = status("alice x a,b", tenant);
            assert_eq!((refused.0, status("alice", tenant)), (403, refused), "{tenant}");
        }
        // An invalid name is invalid for every caller.
        let params = json!({ "tenant": "a b" });
        let reply = lab.ask(&call("alice x a,b", "/", "ListTasks", &params));
        assert_eq!(reply.json()["error"]["code"], -32602);
    }
}

#[test]
fn calls_require_the_scopes_of_the_server_and_agent() {
    let by = Arc::new(ByName::default());
    let mut lab = Lab::new(Setup { requires_scopes: true, ..setup(&by) });
    let send = V1.params(say("hi"));
    let none = json!({ "id": "none" });
    for (scopes, allowed) in [
        ("a2a:read", [true, false, false]),
        ("a2a:send", [false, true, false]),
        ("a2a:cancel", [false, false, true]),
        ("a2a:read,a2a:send,a2a:cancel", [true, true, true]),
        ("a2a:admin", [false, false, false]),
    ] {
        let calls = [("ListTasks", &json!({})), ("SendMessage", &send), ("CancelTask", &none)];
        for ((method, params), is_allowed) in calls.into_iter().zip(allowed) {
            let reply = lab.ask(&call(&format!("alice {scopes}"), "/", method, params));
            assert_eq!(reply.status != 403, is_allowed, "{scopes} {method}");
        }
    }
    let denied = lab.ask(&call("alice a2a:read", "/", "SendMessage", &send));
    assert_eq!(denied.json()["error"]["message"], "missing scope \"a2a:send\"");
    for (scopes, status) in [("a2a:send", 403), ("a2a:send,special", 200)] {
        let token = format!("alice {scopes}");
        let reply = lab.ask(&call(&token, "/agents/special", "SendMessage", &send));
        assert_eq!(reply.status, status, "{scopes}");
    }
}

#[test]
fn added_and_replaced_agents_require_their_scopes_at_once() {
    let by = Arc::new(ByName::default());
    let profile = |scopes: &[&str]| Profile {
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
        ..Profile::new("echo", "An agent of tests.")
    };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile(&[]), Arc::new(Echo))];
    let mut lab = Lab::new(Setup { agents, ..setup(&by) });
    let running = lab.engine.agents().unwrap().clone();
    let send = V1.params(say("hi"));
    let status_at = |lab: &mut Lab, token: &str, path: &str| {
        lab.ask(&call(token, path, "SendMessage", &send)).status
    };
    assert_eq!(status_at(&mut lab, "alice", "/"), 200, "no agent asks for anything");
    let late = Profile { scopes: vec!["special".to_owned()], ..Profile::new("late", "Later.") };
    running.add(late, Arc::new(Echo)).unwrap();
    running.replace(profile(&["special"]), Arc::new(Echo)).unwrap();
    for path in ["/", "/agents/echo", "/agents/late"] {
        assert_eq!(status_at(&mut lab, "alice", path), 403, "{path}");
        assert_eq!(status_at(&mut lab, "alice special", path), 200, "{path}");
    }
    running.replace(profile(&[]), Arc::new(Echo)).unwrap();
    assert_eq!(status_at(&mut lab, "alice", "/"), 200, "it asks no longer");
    assert_eq!(status_at(&mut lab, "alice", "/agents/late"), 403);
}

// --- Streams and WebSockets

#[test]
fn stream_ends_without_error_when_its_credential_expires() {
    let by = ByName { expires_unix_ms: Some(BEGIN.unix_ms + 60_000), ..ByName::default() };
    let by = Arc::new(by);
    let mut lab = Lab::new(setup(&by));
    let stream = call("alice", "/agents/works", "SendStreamingMessage", &V1.params(say("hi")));
    let peer = lab.open();
    lab.write(peer, &stream);
    lab.pass(59_999);
    assert!(lab.is_open(peer) && !lab.peek(peer).complete);
    lab.pass(1);
    assert_eq!(lab.next(peer), Next::Close);
    let reply = lab.reply(peer);
    assert!(reply.complete);
    assert!(!reply.events().iter().any(|event| event.data.to_string().contains("error")));
}

#[test]
fn withdrawn_credential_ends_streams_calls_and_websockets() {
    let (mut lab, by) = lab();
    let params = V1.params(say("hi"));
    let open = |lab: &mut Lab, bytes: &[u8]| {
        let peer = lab.open();
        lab.write(peer, bytes);
        peer
    };
    let stream = open(&mut lab, &call("alice", "/agents/works", "SendStreamingMessage", &params));
    let poll = open(&mut lab, &call("alice", "/agents/works", "SendMessage", &params));
    let [idle, busy] = [false, true].map(|is_busy| {
        let peer = open(&mut lab, &upgrade("/agents/works", "Authorization: Bearer alice\r\n"));
        assert!(lab.take(peer).starts_with(b"HTTP/1.1 101"));
        if is_busy {
            lab.say(peer, &rpc("SendStreamingMessage", &params));
            lab.say(peer, &rpc("SendMessage", &params));
        }
        peer
    });
    lab.pass(1_000);
    assert!([stream, poll, idle, busy].iter().all(|peer| lab.is_open(*peer)));
    by.grant.withdraw();
    // No time passes: the withdrawal wakes the waiting calls.
    lab.pass(0);
    assert_eq!(lab.next(stream), Next::Close);
    assert!(lab.reply(stream).complete);
    let reply = lab.reply(poll);
    assert_eq!(reply.status, 401);
    assert_eq!(reply.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    for socket in [idle, busy] {
        let last = lab.frames(socket).pop().unwrap();
        assert_eq!((last.close_code(), lab.next(socket)), (3000, Next::Close));
    }
}

#[test]
fn waiting_call_gets_401_when_its_credential_expires() {
    let wait = call("alice", "/agents/works", "SendMessage", &V1.params(say("hi")));
    let batch = {
        let body = rpc("SendMessage", &V1.params(say("hi")));
        let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
        post("/agents/works", &fields, &format!("[{body}]"))
    };
    let by = ByName { expires_unix_ms: Some(BEGIN.unix_ms + 60_000), ..ByName::default() };
    let mut lab = Lab::new(setup(&Arc::new(by)));
    let [one, many] = [&wait, &batch].map(|bytes| {
        let peer = lab.open();
        lab.write(peer, bytes);
        peer
    });
    lab.pass(59_999);
    assert!(lab.take(one).is_empty() && lab.take(many).is_empty());
    // The refusal is sent at the expiry, not earlier.
    lab.pass(1);
    let reply = lab.reply(one);
    assert_eq!((reply.status, reply.code()), (401, -32000));
    assert_eq!(reply.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    let reply = lab.reply(many);
    assert_eq!(reply.json()[0]["error"]["code"], -32000);
    assert_eq!(reply.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    // A withdrawn credential counts as expired, even if the answer is ready.
    let (mut lab, by) = self::lab();
    let peer = lab.open();
    lab.write(peer, &wait);
    by.grant.withdraw();
    lab.pass(0);
    assert_eq!(lab.reply(peer).status, 401);
}

#[test]
fn web_socket_needs_a_credential_and_closes_when_it_expires() {
    let by = ByName { expires_unix_ms: Some(BEGIN.unix_ms + 60_000), ..ByName::default() };
    let by = Arc::new(by);
    let mut lab = Lab::new(setup(&by));
    let stranger = lab.open();
    lab.write(stranger, &upgrade("/", ""));
    assert_eq!((lab.reply(stranger).status, lab.next(stranger)), (401, Next::Close));
    // A page cannot set the header field, so it sends its token as a subprotocol.
    for lines in
        ["Authorization: Bearer alice\r\n", "Sec-WebSocket-Protocol: a2a, a2a.bearer.alice\r\n"]
    {
        let peer = lab.open();
        lab.write(peer, &upgrade("/agents/tell", lines));
        let head = String::from_utf8(lab.take(peer)).unwrap();
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(!head.contains("bearer"), "{head}");
        let answers = lab.say(peer, &rpc("SendMessage", &V1.params(say("hi"))));
        assert!(answers[0].to_string().contains("alice in no tenant"), "{answers:?}");
        lab.jump(60_000);
        lab.pass(lab.engine.limits().ws_ping_ms);
        let last = lab.frames(peer).pop().unwrap();
        assert_eq!((last.close_code(), lab.next(peer)), (3000, Next::Close));
        lab.jump(-60_000 - lab.engine.limits().ws_ping_ms as i64);
    }
}

#[test]
fn upgrade_with_two_tokens_or_two_origins_is_rejected() {
    let (mut lab, _) = lab();
    let twice = "Sec-WebSocket-Protocol: a2a.bearer.alice, a2a, a2a.bearer.";
    let line = "Sec-WebSocket-Protocol: a2a.bearer.alice\r\nSec-WebSocket-Protocol: a2a.bearer.";
    for lines in [twice, line] {
        for second in ["alice", "bob", "wrong", ""] {
            let peer = lab.open();
            lab.write(peer, &upgrade("/", &format!("{lines}{second}\r\n")));
            assert_eq!(lab.reply(peer).status, 400, "{lines}{second}");
        }
    }
    let own = "Authorization: Bearer alice\r\nOrigin: http://a\r\n";
    let second = format!("{own}Origin: http://a\r\n");
    let peer = lab.open();
    lab.write(peer, &upgrade("/", &second));
    assert_eq!((lab.reply(peer).status, lab.next(peer)), (400, Next::Close));
    let plain = get_with("/.well-known/agent-card.json", &second);
    assert_eq!(lab.ask(&plain).status, 400);
}
