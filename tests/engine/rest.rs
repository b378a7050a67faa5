//! HTTP+JSON through a connection: each route in both generations, under each kind of base path,
//! with its media types, queries, errors and streams.

use std::{sync::Arc, task::Waker};

use peregrine::{
    agent::{Profile, echo::Echo},
    engine::{Conn, Cx, Mount, Setup, Start, Tenants, Worker},
    service::{self, Now},
};
use serde_json::{Value, json};

use crate::support::{
    Counter, Lab, Peer,
    ask::{V01, V1, V03, get, get_with, post, rpc, say},
    echo,
    reply::Reply,
    with_push,
};

const A2A: &str = "application/a2a+json";
const INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// A request of any method without a body.
fn bare(method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n\r\n").into_bytes()
}

fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn old_message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}]},
        "configuration": {"blocking": true}})
}

fn send(lab: &mut Lab, base: &str, text: &str) -> Value {
    let reply = lab.ask(&post(&format!("{base}/message:send"), &[], &message(text).to_string()));
    ok(&reply)
}

/// The id of a finished task.
fn task(lab: &mut Lab) -> String {
    send(lab, "", "hi")["task"]["id"].as_str().unwrap().to_owned()
}

fn ok(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Checks an AIP-193 body and returns its error.
fn refused(reply: &Reply, status: u16, reason: &str) -> Value {
    assert_eq!(reply.status, status, "{}", reply.text());
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    let error = body["error"].clone();
    assert_eq!(error["code"], status, "{error}");
    assert!(error["status"].is_string() && error["message"].is_string(), "{error}");
    let info = &error["details"][0];
    let expected = json!({"@type": INFO, "reason": reason, "domain": "a2a-protocol.org"});
    assert_eq!(info, &expected, "{error}");
    error
}

/// Checks the body of an error of 0.3.
fn refused_old(reply: &Reply, status: u16, code: i64) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let body = reply.json();
    assert_eq!(body["code"], code, "{body}");
    assert!(body["message"].is_string() && body.get("error").is_none(), "{body}");
}

fn field(error: &Value) -> &str {
    let details = &error["details"][1];
    assert_eq!(details["@type"], "type.googleapis.com/google.rpc.BadRequest", "{error}");
    details["fieldViolations"][0]["field"].as_str().unwrap()
}

// --- Routes --------------------------------------------------------------------------------------

/// A server with two agents and mounts.
fn city() -> Lab {
    let bob = Profile::new("bob", "The other one");
    let mount = |path: &str, dialect: &str| Mount {
        path: path.to_owned(),
        dialect: dialect.to_owned(),
        agent: None,
    };
    let mounts = vec![mount("/m", "standard"), mount("/r", "a2a_rust"), mount("/old", "tutorial")];
    let agents = vec![echo(), (bob, Arc::new(Echo))];
    let tenants = Tenants::Any;
    Lab::new(Setup { agents, mounts, extended_card: true, tenants, ..Setup::default() })
}

const BASE_PATHS: [&str; 10] = [
    "",
    "/acme",
    "/tenants/acme",
    "/agents/echo",
    "/agents/echo/acme",
    "/agents/echo/tenants/acme",
    "/m",
    "/m/acme",
    "/r",
    "/r/tenants/acme",
];

#[test]
fn rest_1_0_routes_work_below_every_base_path() {
    for base in BASE_PATHS {
        let mut lab = city();
        let sent = send(&mut lab, base, "hi");
        let id = sent["task"]["id"].as_str().unwrap().to_owned();
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(send(&mut lab, base, "ping")["message"]["role"], "ROLE_AGENT");
        let read = ok(&lab.ask(&get(&format!("{base}/tasks/{id}"))));
        assert_eq!(read, sent["task"]);
        let page = ok(&lab.ask(&get(&format!("{base}/tasks"))));
        assert_eq!((&page["tasks"][0]["id"], &page["totalSize"]), (&json!(id), &json!(1)));
        let cancel = lab.ask(&bare("POST", &format!("{base}/tasks/{id}:cancel")));
        refused(&cancel, 400, "TASK_NOT_CANCELABLE");
        for request in [
            bare("POST", &format!("{base}/tasks/{id}:subscribe")),
            bare("GET", &format!("{base}/tasks/{id}:subscribe")),
            bare("GET", &format!("{base}/tasks/{id}/subscribe")),
        ] {
            refused(&lab.ask(&request), 400, "UNSUPPORTED_OPERATION");
        }
        let configs = format!("{base}/tasks/{id}/pushNotificationConfigs");
        for request in [
            post(&configs, &[], r#"{"url":"http://a"}"#),
            get(&configs),
            get(&format!("{configs}/c")),
            bare("DELETE", &format!("{configs}/c")),
        ] {
            refused(&lab.ask(&request), 400, "PUSH_NOTIFICATION_NOT_SUPPORTED");
        }
        let stream = lab.ask(&post(
            &format!("{base}/message:stream"),
            &[],
            &message("stream:3").to_string(),
        ));
        assert_eq!(stream.events().len(), 4, "{base}");
        let card = ok(&lab.ask(&get(&format!("{base}/extendedAgentCard"))));
        assert!(card["supportedInterfaces"].is_array() && card.get("url").is_none());
    }
}

#[test]
fn rest_0_3_routes_answer_in_the_0_3_format() {
    for base in ["", "/agents/echo", "/m"] {
        let mut lab = city();
        let url = |path: &str| format!("{base}/v1{path}");
        let body = old_message("hi").to_string();
        let sent = ok(&lab.ask(&post(&url("/message:send"), &[], &body)));
        let id = sent["task"]["id"].as_str().unwrap().to_owned();
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]});
        assert_eq!(sent["task"]["history"], json!([message]));
        let parts = &sent["task"]["artifacts"][0]["parts"];
        assert_eq!(parts, &json!([{"text": "hi"}]));
        let ping = lab.ask(&post(&url("/message:send"), &[], &old_message("ping").to_string()));
        assert_eq!(ok(&ping)["message"]["content"], json!([{"text": "pong"}]));
        assert_eq!(ok(&lab.ask(&get(&url(&format!("/tasks/{id}"))))), sent["task"]);
        let page = ok(&lab.ask(&get(&url("/tasks"))));
        assert_eq!((&page["tasks"][0]["id"], &page["nextPageToken"]), (&json!(id), &json!("")));
        refused_old(&lab.ask(&bare("POST", &url(&format!("/tasks/{id}:cancel")))), 409, -32002);
        for method in ["GET", "POST"] {
            let request = bare(method, &url(&format!("/tasks/{id}:subscribe")));
            refused_old(&lab.ask(&request), 501, -32004);
        }
        let configs = url(&format!("/tasks/{id}/pushNotificationConfigs"));
        let config = json!({"name": "n", "pushNotificationConfig": {"url": "http://a"}});
        // The three forms of the body in actual use (wire §3.4).
        for body in [
            json!({"parent": format!("tasks/{id}"), "configId": "c", "config": config}),
            config.clone(),
            json!({"config": config}),
        ] {
            refused_old(&lab.ask(&post(&configs, &[], &body.to_string())), 501, -32003);
        }
        for request in
            [get(&configs), get(&format!("{configs}/c")), bare("DELETE", &format!("{configs}/c"))]
        {
            refused_old(&lab.ask(&request), 501, -32003);
        }
        let card = ok(&lab.ask(&get(&url("/card"))));
        assert!(card["url"].is_string() && card.get("supportedInterfaces").is_none());
    }
}

#[test]
fn dialect_without_http_json_returns_404_for_rest_paths() {
    let mut lab = city();
    for base in ["/old", "/a2a/echo", "/api/v1/a2a/echo"] {
        for path in ["/message:send", "/v1/message:send"] {
            let reply = lab.ask(&post(&format!("{base}{path}"), &[], &message("hi").to_string()));
            assert_eq!((reply.status, reply.code()), (404, -32600), "{base}{path}");
        }
    }
    // a2a-rust supports 1.0 alone: the prefix of 0.3 is a tenant's name there.
    let reply = lab.ask(&post("/r/v1/message:send", &[], &message("hi").to_string()));
    assert_eq!(ok(&reply)["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn tenant_is_read_from_the_query_of_a_bodyless_post() {
    let mut lab = Lab::new(Setup { tenants: Tenants::Any, ..Setup::default() });
    let id = task(&mut lab);
    for (base, reason) in [("", Some("TASK_NOT_FOUND")), ("/v1", None)] {
        for verb in ["cancel", "subscribe"] {
            // The task is finished; it exists without a tenant and in no tenant.
            let path = format!("{base}/tasks/{id}:{verb}");
            let without_tenant = lab.ask(&bare("POST", &path));
            let named = |lab: &mut Lab, path: &str| lab.ask(&bare("POST", path));
            let elsewhere = named(&mut lab, &format!("{path}?tenant=t"));
            assert_ne!(without_tenant.status, 404, "{path}");
            assert_eq!(elsewhere.status, 404, "{path}");
            if let Some(reason) = reason {
                refused(&elsewhere, 404, reason);
            }
        }
    }
}

#[test]
fn agent_path_wins_over_tenant_path_at_root_mount() {
    let mounts = vec![Mount { path: "/".to_owned(), dialect: "standard".to_owned(), agent: None }];
    let tasks = Profile::new("tasks", "An unlucky name");
    let agents = vec![echo(), (tasks, Arc::new(Echo))];
    let tenants = Tenants::Any;
    let mut lab = Lab::new(Setup { agents, mounts, tenants, ..Setup::default() });
    let reply = lab.ask(&post("/agents/tasks", &[], &rpc("ListTasks", &Value::Null)));
    assert_eq!(reply.result()["totalSize"], 0);
    assert_eq!(ok(&lab.ask(&get("/acme/tasks")))["totalSize"], 0);
    // With another dialect mounted at the root, the standard dialect is not served there.
    let mounts = vec![Mount { path: "/".to_owned(), dialect: "tutorial".to_owned(), agent: None }];
    let mut lab = Lab::new(Setup { mounts, ..Setup::default() });
    assert_eq!(lab.ask(&get("/tasks")).status, 404);
}

#[test]
fn not_found_and_not_allowed_use_the_format_of_their_path() {
    let mut lab = city();
    for path in ["/tasks/", "/tasks/a/b", "/message:sent", "/acme/tasks/a/b", "/agents/x/tasks/a"] {
        refused(&lab.ask(&get(path)), 404, "METHOD_NOT_FOUND");
    }
    for path in ["/v1/nothing", "/agents/echo/v1/nothing", "/agents/x/v1/tasks"] {
        refused_old(&lab.ask(&get(path)), 404, -32601);
    }
    assert_eq!(lab.ask(&get("/nothing")).code(), -32600);
    for (method, path, allow) in [
        ("GET", "/message:send", "POST, OPTIONS"),
        ("PUT", "/message:stream", "POST, OPTIONS"),
        ("POST", "/tasks", "GET, HEAD, OPTIONS"),
        ("DELETE", "/tasks/a", "GET, HEAD, OPTIONS"),
        ("GET", "/tasks/a:cancel", "POST, OPTIONS"),
        ("DELETE", "/tasks/a:subscribe", "GET, POST, OPTIONS"),
        ("DELETE", "/tasks/a/pushNotificationConfigs", "GET, HEAD, POST, OPTIONS"),
        ("POST", "/tasks/a/pushNotificationConfigs/b", "GET, HEAD, DELETE, OPTIONS"),
        ("POST", "/extendedAgentCard", "GET, HEAD, OPTIONS"),
    ] {
        let reply = lab.ask(&bare(method, path));
        assert_eq!(reply.field("allow"), Some(allow), "{path}");
        refused(&reply, 405, "UNSUPPORTED_OPERATION");
        let reply = lab.ask(&bare("OPTIONS", path));
        assert_eq!((reply.status, reply.field("allow")), (204, Some(allow)), "{path}");
    }
    refused_old(&lab.ask(&bare("PUT", "/v1/tasks/a")), 405, -32004);
}

#[test]
fn head_is_get_without_its_content() {
    let mut lab = Lab::echo();
    let id = task(&mut lab);
    for (path, status) in
        [(format!("/tasks/{id}"), 200), ("/tasks".to_owned(), 200), ("/tasks/x".to_owned(), 404)]
    {
        let whole = lab.ask(&get(&path));
        let peer = lab.open();
        lab.write(peer, &bare("HEAD", &path));
        let head = lab.head_reply(peer);
        assert_eq!((head.status, whole.status), (status, status));
        assert_eq!(head.field("content-type"), whole.field("content-type"));
        // RFC 9110 §9.3.2: a length that depends on the content may be omitted.
        let length = whole.field("content-length").filter(|_| status != 200);
        assert_eq!(head.field("content-length"), length);
        assert!(lab.received(peer).is_empty());
    }
}

#[test]
fn rest_get_responses_have_cache_control_no_store() {
    let mut lab = Lab::new(Setup { extended_card: true, ..Setup::default() });
    let id = task(&mut lab);
    for base in ["", "/v1"] {
        for path in [format!("{base}/tasks/{id}"), format!("{base}/tasks")] {
            assert_eq!(lab.ask(&get(&path)).field("cache-control"), Some("no-store"), "{path}");
        }
    }
    let reply = lab.ask(&get("/extendedAgentCard"));
    assert_eq!((reply.status, reply.field("cache-control")), (200, Some("no-store")));
    for path in ["/tasks/nobody", "/v1/nothing", "/message:send"] {
        let reply = lab.ask(&get(path));
        assert!([404, 405].contains(&reply.status), "{path}: {}", reply.status);
        assert_eq!(reply.field("cache-control"), Some("no-store"), "{path}");
    }
    // An answer to a POST is not cached (RFC 9110 §9.3.3).
    let reply = lab.ask(&post("/message:send", &[], &message("hi").to_string()));
    assert_eq!(reply.field("cache-control"), None);
}

/// Pipelined requests are answered until the output limit is reached. The content that HEAD omits
/// must not be generated: with a few bytes per answer it would keep a worker busy with pages of
/// megabytes.
#[test]
fn head_does_not_generate_the_omitted_content() {
    let start =
        Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url: "http://a".to_owned() };
    let engine = Setup { agents: vec![echo()], ..Setup::default() }.build(start).unwrap();
    let mut worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
    let mut room = |request: &[u8]| {
        let (now, mut out) = (Now { mono_ms: 1, unix_ms: 1 }, Vec::new());
        let mut cx = Cx {
            engine: &engine,
            worker: &mut worker,
            now,
            wake: Waker::noop(),
            out: &mut out,
            unsent: 0,
            peer: service::Peer::default(),
        };
        let progress = Conn::new(now).advance(&mut cx, request, false);
        assert_eq!(progress.consumed, request.len());
        assert!(out.starts_with(b"HTTP/1.1 200 OK\r\n"));
        out.capacity()
    };
    let large = "x".repeat(1 << 20);
    room(&post("/message:send", &[], &message(&large).to_string()));
    let page = "/tasks?includeArtifacts=true&historyLength=9";
    assert!(room(&bare("GET", page)) > 2 << 20);
    for _ in 0..2 {
        assert!(room(&bare("HEAD", page).repeat(20)) < 16 << 10);
    }
}

// --- Requests ------------------------------------------------------------------------------------

#[test]
fn query_parameters_are_validated_like_json_rpc_params() {
    let mut lab = Lab::echo();
    let id = task(&mut lab);
    for (query, history) in
        [("historyLength=0", 0), ("history_length=1", 1), ("x=1&historyLength=5", 1)]
    {
        let task = ok(&lab.ask(&get(&format!("/tasks/{id}?{query}"))));
        assert_eq!(task["history"].as_array().map_or(0, Vec::len), history, "{query}");
        let task = ok(&lab.ask(&get(&format!("/v1/tasks/{id}?{query}"))));
        assert_eq!(task["history"].as_array().map_or(0, Vec::len), history, "{query}");
    }
    let long = "x".repeat(300);
    for (path, name) in [
        (format!("/tasks/{id}?historyLength=-1"), "historyLength"),
        (format!("/tasks/{id}?historyLength=two"), "historyLength"),
        (format!("/tasks/{id}?historyLength=2147483648"), "historyLength"),
        ("/tasks?pageSize=0".to_owned(), "pageSize"),
        ("/tasks?pageSize=101".to_owned(), "pageSize"),
        ("/tasks?pageSize=1.5".to_owned(), "pageSize"),
        ("/tasks?includeArtifacts=1".to_owned(), "includeArtifacts"),
        ("/tasks?status=BAD".to_owned(), "status"),
        ("/tasks?statusTimestampAfter=yesterday".to_owned(), "statusTimestampAfter"),
        ("/tasks?pageToken=%00".to_owned(), "pageToken"),
        (format!("/tasks?contextId={long}"), "contextId"),
        (format!("/tasks/{long}"), "id"),
        ("/tasks?contextId=%".to_owned(), "query"),
        ("/tasks/x?%ff=1".to_owned(), "query"),
    ] {
        let error = refused(&lab.ask(&get(&path)), 400, "INVALID_PARAMS");
        assert_eq!(field(&error), name, "{path}");
        assert_eq!(error["status"], "INVALID_ARGUMENT");
    }
    refused_old(&lab.ask(&get(&format!("/v1/tasks/{id}?historyLength=-1"))), 422, -32602);
    // Of repeated members the last one counts; unknown ones are ignored.
    let page = ok(&lab.ask(&get("/tasks?pageSize=0&pageSize=7&nested.x=1&tenant=t")));
    assert_eq!(page["pageSize"], 7);
    // Path errors come before the operation: 414, and 400 for dot segments.
    let query = "a".repeat(4097);
    assert_eq!(lab.ask(&get(&format!("/tasks?{query}"))).status, 414);
    for path in ["/tasks/..", "/tasks/%2e%2E", "/x/../tasks", "/tasks/%252e%252e", "/tasks/a%2fb"] {
        assert_eq!(lab.ask(&get(path)).status, 400, "{path}");
    }
}

#[test]
fn tasks_are_listed_by_every_filter() {
    let mut lab = Lab::echo();
    let first = send(&mut lab, "", "one")["task"].clone();
    lab.pass(10);
    let second = send(&mut lab, "", "two")["task"].clone();
    let ids = |lab: &mut Lab, query: &str| -> Vec<Value> {
        let page = ok(&lab.ask(&get(&format!("/tasks?{query}"))));
        page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
    };
    let (one, two) = (first["id"].clone(), second["id"].clone());
    assert_eq!(ids(&mut lab, ""), [two.clone(), one.clone()]);
    let context = first["contextId"].as_str().unwrap();
    assert_eq!(ids(&mut lab, &format!("contextId={context}")), std::slice::from_ref(&one));
    assert_eq!(ids(&mut lab, "status=TASK_STATE_WORKING"), Vec::<Value>::new());
    assert_eq!(ids(&mut lab, "status=TASK_STATE_COMPLETED").len(), 2);
    let after = second["status"]["timestamp"].as_str().unwrap().replace(':', "%3A");
    assert_eq!(ids(&mut lab, &format!("statusTimestampAfter={after}")), [two]);
    let page = ok(&lab.ask(&get("/tasks?pageSize=1&includeArtifacts=True&historyLength=1")));
    assert!(page["tasks"][0]["artifacts"].is_array() && page["tasks"][0]["history"].is_array());
    let token = page["nextPageToken"].as_str().unwrap();
    assert_eq!(ids(&mut lab, &format!("pageSize=1&pageToken={token}")), [one]);
}

#[test]
fn task_ids_in_paths_are_percent_decoded_once() {
    let mut lab = Lab::echo();
    for (id, path) in [
        ("plain", "plain"),
        ("a b", "a%20b"),
        ("é\"q", "%C3%A9%22q"),
        ("é\"r", "%C3%A9\"r"),
        ("a:b", "a:b"),
        ("x:cancel", "x%3Acancel"),
        ("a+b", "a+b"),
        ("a%b", "a%25b"),
    ] {
        let params =
            V01.params(crate::support::ask::OutgoingMessage { task: Some(id), ..say("hi") });
        lab.result(V01.send(), &params);
        for base in ["", "/v1"] {
            let task = ok(&lab.ask(&get(&format!("{base}/tasks/{path}"))));
            assert_eq!(task["id"], id, "{path}");
        }
    }
    refused(&lab.ask(&get("/tasks/%C3")), 400, "INVALID_PARAMS");
}

#[test]
fn rest_accepts_and_negotiates_the_1_0_1_media_types() {
    let mut lab = Lab::echo();
    let body = message("hi").to_string();
    let typed = |sent: &str, accept: &str| {
        let fields = [("Content-Type", sent), ("Accept", accept)];
        post("/message:send", &fields, &body)
    };
    for (sent, accept, answered) in [
        ("application/json", "*/*", "application/json"),
        ("application/json; charset=utf-8", "application/a2a+json", A2A),
        ("application/json", "text/html, Application/A2A+JSON;q=0.5, */*", A2A),
        ("application/json", "application/a2a+json;q=0", "application/json"),
        ("application/json", "application/a2a+json;q=", A2A),
        ("application/json; q=0", "*/*", "application/json"),
        ("application/a2a+json; q=", "*/*", A2A),
        ("application/a2a+json", "*/*", A2A),
        ("application/a2a+json", "application/json", "application/json"),
    ] {
        let reply = lab.ask(&typed(sent, accept));
        assert_eq!((reply.status, reply.field("content-type")), (200, Some(answered)), "{accept}");
    }
    for sent in ["text/plain", "application/xml", "application/vnd.x+json", "application/jsonx"] {
        refused(&lab.ask(&typed(sent, "*/*")), 400, "CONTENT_TYPE_NOT_SUPPORTED");
        let fields = [("Content-Type", sent)];
        refused_old(&lab.ask(&post("/v1/message:send", &fields, &body)), 415, -32005);
        refused(
            &city().ask(&post("/r/message:send", &fields, &body)),
            415,
            "CONTENT_TYPE_NOT_SUPPORTED",
        );
        // Without a body its content type is ignored.
        let cancel = post("/tasks/x:cancel", &fields, "");
        refused(&lab.ask(&cancel), 404, "TASK_NOT_FOUND");
    }
    let refusal = lab.ask(&get_with("/tasks/x", "Accept: application/a2a+json\r\n"));
    assert_eq!(refusal.field("content-type"), Some(A2A));
    refused(&refusal, 404, "TASK_NOT_FOUND");
}

#[test]
fn rest_body_is_validated_like_json_rpc_params() {
    let mut lab = Lab::new(with_push());
    let id = task(&mut lab);
    for (path, body, reason, name) in [
        ("/message:send", "", "PARSE_ERROR", None),
        ("/message:send", "{", "PARSE_ERROR", None),
        ("/message:send", "[1]", "INVALID_PARAMS", Some("params")),
        ("/message:send", "{}", "INVALID_PARAMS", Some("message")),
        ("/message:send", r#"{"message":7}"#, "INVALID_PARAMS", Some("message")),
        (
            "/message:stream",
            r#"{"message":{"role":"ROLE_USER"}}"#,
            "INVALID_PARAMS",
            Some("message.parts"),
        ),
        ("/tasks/x:cancel", r#"{"metadata":1}"#, "TASK_NOT_FOUND", None),
        ("/tasks/x/pushNotificationConfigs", "{", "PARSE_ERROR", None),
        ("/tasks/x/pushNotificationConfigs", "7", "INVALID_PARAMS", Some("params")),
    ] {
        if path.contains("pushNotification") && cfg!(not(feature = "push")) {
            continue;
        }
        let reply = lab.ask(&post(path, &[], body));
        if reason == "TASK_NOT_FOUND" {
            // The errors of a body come before the lookup of its task.
            assert_eq!(field(&refused(&reply, 400, "INVALID_PARAMS")), "metadata");
            continue;
        }
        let error = refused(&reply, 400, reason);
        if let Some(name) = name {
            assert_eq!(field(&error), name, "{body}");
        }
    }
    // The path names the task.
    let other = r#"{"id":"another","metadata":{"why":1}}"#;
    refused(
        &lab.ask(&post(&format!("/tasks/{id}:cancel"), &[], other)),
        400,
        "TASK_NOT_CANCELABLE",
    );
    // The depth limit of JSON-RPC applies here.
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    refused(&lab.ask(&post("/message:send", &[], &deep)), 400, "INVALID_REQUEST");
    lab.assert_lives();
}

#[test]
fn rest_0_3_body_is_protojson_of_the_0_3_proto() {
    let mut lab = Lab::echo();
    // With proto names throughout, as the Python SDK sends them.
    let body = json!({"request": {"message_id": "m-1", "context_id": "c-1", "role": "ROLE_USER",
        "content": [
            {"text": "hi", "metadata": {"k": 1.0}},
            {"file": {"file_with_uri": "http://a/f", "mime_type": "text/plain", "name": "f"}},
            {"file": {"fileWithBytes": "aGk", "mimeType": "text/plain"}},
            {"data": {"data": {"n": 9007199254740993u64}}},
            {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": true}},
        ],
        "metadata": {"m": true}, "extensions": ["urn:x"]},
        "configuration": {"blocking": true, "history_length": 1, "push_notification": {}}});
    let sent = ok(&lab.ask(&post("/v1/message:send", &[], &body.to_string())));
    let task = &sent["task"];
    assert_eq!(task["contextId"], "c-1");
    let content = json!([
        {"text": "hi", "metadata": {"k": 1.0}},
        {"file": {"fileWithUri": "http://a/f", "mimeType": "text/plain", "name": "f"}},
        {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain"}},
        {"data": {"data": {"n": 9007199254740993u64}}},
        {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": true}},
    ]);
    assert_eq!(task["history"][0]["content"], content);
    assert_eq!(task["artifacts"][0]["parts"], content);
    assert_eq!(task["history"][0]["extensions"], json!(["urn:x"]));
    // 1.0 reads the same values, and 0.3 reads those of 1.0 in its own form.
    let id = task["id"].as_str().unwrap().to_owned();
    let new = ok(&lab.ask(&get(&format!("/tasks/{id}"))));
    assert_eq!(new["artifacts"][0]["parts"][4], json!({"data": [1]}));
    assert_eq!(new["artifacts"][0]["parts"][3], json!({"data": {"n": 9007199254740993u64}}));
    // A push URL is refused in each form, and a message needs its id.
    for (name, value) in [
        ("pushNotification", json!({"url": "http://a"})),
        ("push_notification", json!({"url": "http://a"})),
    ] {
        let mut body = old_message("hi");
        body["configuration"][name] = value;
        refused_old(&lab.ask(&post("/v1/message:send", &[], &body.to_string())), 501, -32003);
    }
    let mut nameless = old_message("hi");
    nameless["message"].as_object_mut().unwrap().remove("messageId");
    refused_old(&lab.ask(&post("/v1/message:send", &[], &nameless.to_string())), 422, -32602);
}

#[test]
fn missing_blocking_in_0_3_configuration_means_false() {
    let mut lab = Lab::echo();
    let mut body = old_message("hold:1000:1");
    body["configuration"] = json!({});
    let sent = ok(&lab.ask(&post("/v1/message:send", &[], &body.to_string())));
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    // Without a configuration the default applies.
    body.as_object_mut().unwrap().remove("configuration");
    let peer = lab.open();
    lab.write(peer, &post("/v1/message:send", &[], &body.to_string()));
    assert!(lab.received(peer).is_empty());
    lab.pass(1_000);
    assert_eq!(ok(&lab.reply(peer))["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn version_header_or_query_overrides_the_path_version() {
    let mut lab = Lab::echo();
    let id = task(&mut lab);
    let version = |value: &str| format!("A2A-Version: {value}\r\n");
    let content = |task: &Value| task["history"][0].get("content").is_some();
    for (path, lines, is_old) in [
        (format!("/tasks/{id}"), String::new(), false),
        (format!("/tasks/{id}"), version("1.0"), false),
        (format!("/tasks/{id}"), version(""), false),
        (format!("/tasks/{id}"), version("0.3"), true),
        (format!("/v1/tasks/{id}"), version("0.3.0"), true),
        // Where 0.3 is supported, its prefix is not a tenant's name.
        (format!("/v1/tasks/{id}"), version("1.0"), false),
        (format!("/tasks/{id}?A2A-Version=0.3"), String::new(), true),
        (format!("/v1/tasks/{id}?a2a-version=1.0"), String::new(), false),
    ] {
        let task = ok(&lab.ask(&get_with(&path, &lines)));
        assert_eq!(content(&task), is_old, "{path} {lines}");
    }
    for value in ["99.0", "0.1", "1.1", "x"] {
        let lines = version(value);
        let path = format!("/tasks/{id}");
        refused(&lab.ask(&get_with(&path, &lines)), 400, "VERSION_NOT_SUPPORTED");
        let path = format!("/v1{path}");
        refused_old(&lab.ask(&get_with(&path, &lines)), 400, -32009);
    }
    let lines = version("0.3");
    let mut lab = city();
    let reply = lab.ask(&get_with(&format!("/r/tasks/{id}"), &lines));
    refused(&reply, 400, "VERSION_NOT_SUPPORTED");
    let mut lab = Lab::new(Setup { strict_version: true, ..Setup::default() });
    refused(&lab.ask(&get("/tasks")), 400, "VERSION_NOT_SUPPORTED");
    ok(&lab.ask(&get_with("/tasks", &version("1.0"))));
    ok(&lab.ask(&get("/v1/tasks")));
}

#[test]
fn strict_server_requires_message_id_and_version() {
    let body = |id: Option<&str>| {
        let mut message = json!({"role": "ROLE_USER", "parts": [{"text": "hi"}]});
        if let Some(id) = id {
            message["messageId"] = json!(id);
        }
        json!({"message": message}).to_string()
    };
    let version = [("A2A-Version", "1.0")];
    let mut lab = Lab::echo();
    ok(&lab.ask(&post("/message:send", &version, &body(None))));
    let mut lab = Lab::new(Setup { strict: true, ..Setup::default() });
    ok(&lab.ask(&post("/message:send", &version, &body(Some("m")))));
    let reply = lab.ask(&post("/message:send", &version, &body(None)));
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("message.messageId"), "{}", reply.text());
    refused(&lab.ask(&get("/tasks")), 400, "VERSION_NOT_SUPPORTED");
}

#[test]
fn disabled_extended_card_error_depends_on_generation() {
    let mut lab = Lab::echo();
    refused(&lab.ask(&get("/extendedAgentCard")), 400, "UNSUPPORTED_OPERATION");
    refused_old(&lab.ask(&get("/v1/card")), 404, -32007);
}

// --- Waiting and streams -------------------------------------------------------------------------

#[test]
fn blocking_send_waits_and_keeps_accept_media_type() {
    let mut lab = Lab::echo();
    let peer = lab.open();
    let body = message("hold:1000:1").to_string();
    lab.write(peer, &post("/message:send", &[("Accept", A2A)], &body));
    assert!(lab.received(peer).is_empty());
    lab.pass(1_000);
    let reply = lab.reply(peer);
    assert_eq!((reply.status, reply.field("content-type")), (200, Some(A2A)));
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    // A call that may not wait is refused with a time to retry.
    let mut lab = Lab::limited(|limits| limits.connections_max = 1);
    let waits = lab.open();
    lab.write(waits, &post("/message:send", &[], &body));
    let reply = lab.ask(&post("/message:send", &[], &body));
    assert_eq!(reply.field("retry-after"), Some("1"));
    refused(&reply, 429, "RESOURCE_EXHAUSTED");
}

#[test]
fn waiting_send_returns_the_canceled_task() {
    let mut lab = Lab::echo();
    let peer = lab.open();
    lab.write(peer, &post("/message:send", &[], &message("hold:60000:1").to_string()));
    let page = ok(&lab.ask(&get("/tasks")));
    let id = page["tasks"][0]["id"].as_str().unwrap().to_owned();
    let canceled = ok(&lab.ask(&bare("POST", &format!("/tasks/{id}:cancel"))));
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(ok(&lab.reply(peer))["task"]["status"]["state"], "TASK_STATE_CANCELED");
    let old = ok(&lab.ask(&get(&format!("/v1/tasks/{id}"))));
    assert_eq!(old["status"]["state"], "TASK_STATE_CANCELLED");
    // In 1.0 a second cancel succeeds; in 0.3 it is an error.
    ok(&lab.ask(&bare("POST", &format!("/tasks/{id}:cancel"))));
    refused_old(&lab.ask(&bare("POST", &format!("/v1/tasks/{id}:cancel"))), 409, -32002);
}

fn kinds(reply: &Reply) -> Vec<(Option<u64>, String)> {
    let kind = |data: &Value| data.as_object().unwrap().keys().next().unwrap().clone();
    reply.events().iter().map(|event| (event.id, kind(&event.data))).collect()
}

#[test]
fn rest_events_have_no_envelope_but_json_rpc_event_ids() {
    let mut lab = Lab::echo();
    let body = message("stream:3").to_string();
    let stream = lab.ask(&post("/message:stream", &[("Accept", "text/event-stream")], &body));
    let expected = [(1, "task"), (2, "statusUpdate"), (3, "artifactUpdate"), (4, "statusUpdate")];
    let expected = expected.map(|(id, kind)| (Some(id), kind.to_owned()));
    assert_eq!(kinds(&stream), expected);
    let same = lab.ask(&post("/", &[], &rpc(V1.stream(), &message("stream:3"))));
    for (bare, wrapped) in stream.events().iter().zip(same.events()) {
        assert_eq!(bare.id, wrapped.id);
        assert_eq!(
            bare.data.as_object().unwrap().keys().next(),
            wrapped.result().as_object().unwrap().keys().next()
        );
    }
    let old = lab.ask(&post("/v1/message:stream", &[], &old_message("stream:3").to_string()));
    assert_eq!(kinds(&old), expected);
    let events = old.events();
    assert_eq!(events[0].data["task"]["history"][0]["content"], json!([{"text": "stream:3"}]));
    let finals: Vec<_> =
        [1, 3].map(|at| events[at].data["statusUpdate"].get("final").cloned()).into();
    assert_eq!(finals, [None, Some(json!(true))]);
    // A direct message is the only event of its stream.
    let ping = lab.ask(&post("/message:stream", &[], &message("ping").to_string()));
    assert_eq!(kinds(&ping), [(None, "message".to_owned())]);
    // HTTP/1.0 has no chunks: closing the connection ends the stream.
    let peer = lab.open();
    let request = String::from_utf8(post("/message:stream", &[], &body)).unwrap();
    lab.write(peer, request.replace("HTTP/1.1", "HTTP/1.0").as_bytes());
    assert_eq!(kinds(&lab.reply(peer)), expected);
}

fn subscribe(lab: &mut Lab, method: &str, path: &str, lines: &str) -> Peer {
    let peer = lab.open();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n");
    lab.write(peer, head.as_bytes());
    peer
}

#[test]
fn subscriber_resumes_after_last_event_id() {
    let mut lab = Lab::echo();
    let body = message("hold:1000:4").to_string();
    let first = lab.open();
    lab.write(first, &post("/message:stream", &[], &body));
    let id = lab.peek(first).events()[0].data["task"]["id"].as_str().unwrap().to_owned();
    let path = format!("/tasks/{id}:subscribe");
    let fresh = [
        subscribe(&mut lab, "GET", &path, ""),
        subscribe(&mut lab, "POST", &path, ""),
        subscribe(&mut lab, "GET", &format!("/v1/tasks/{id}/subscribe"), ""),
    ];
    lab.pass(1_000);
    let whole = kinds(&lab.reply(first));
    for peer in fresh {
        let reply = lab.reply(peer);
        assert_eq!(kinds(&reply)[0].1, "task");
        assert_eq!(kinds(&reply)[1..], whole[1..]);
    }
    // After the end, the missed events; by the header or by the query.
    for (at, (number, _)) in whole.iter().enumerate().take(whole.len() - 1) {
        let seen = number.unwrap();
        let line = format!("Last-Event-ID: {seen}\r\n");
        let header = subscribe(&mut lab, "POST", &path, &line);
        let query = subscribe(&mut lab, "GET", &format!("{path}?lastEventId={seen}"), "");
        for peer in [header, query] {
            assert_eq!(kinds(&lab.reply(peer)), whole[at + 1..], "after {seen}");
        }
    }
    refused(&lab.ask(&bare("GET", &path)), 400, "UNSUPPORTED_OPERATION");
    refused(&lab.ask(&bare("GET", "/tasks/none:subscribe")), 404, "TASK_NOT_FOUND");
}

#[test]
fn shutdown_ends_stream_with_error_event() {
    let mut lab = Lab::echo();
    let body = message("hold:60000:1").to_string();
    let new = lab.open();
    lab.write(new, &post("/message:stream", &[], &body));
    let old = lab.open();
    let hold = old_message("hold:60000:1").to_string();
    lab.write(old, &post("/v1/message:stream", &[], &hold));
    lab.engine.drain();
    lab.engine.cut();
    lab.pass(15_000);
    let last = lab.reply(new).events().pop().unwrap();
    assert_eq!(last.name.as_deref(), Some("error"));
    assert_eq!(last.data["error"]["status"], "UNAVAILABLE");
    assert_eq!(last.data["error"]["details"][0]["reason"], "UNAVAILABLE");
    let last = lab.reply(old).events().pop().unwrap();
    assert_eq!((last.name.as_deref(), &last.data["code"]), (Some("error"), &json!(-32000)));
}

#[test]
fn rest_and_json_rpc_share_a_connection_and_tasks() {
    let mut lab = Lab::echo();
    let peer = lab.open();
    let sent = message("hi").to_string();
    let pipeline = [
        post("/message:send", &[], &sent),
        post("/", &[], &rpc("ListTasks", &Value::Null)),
        get("/tasks"),
    ];
    lab.write(peer, &pipeline.concat());
    let id = ok(&lab.reply(peer))["task"]["id"].clone();
    assert_eq!(lab.reply(peer).result()["tasks"][0]["id"], id);
    assert_eq!(ok(&lab.reply(peer))["tasks"][0]["id"], id);
}

/// Names, chunks, metadata and requests for input, as a script publishes them.
const SCRIPT: &str = r#"
    [[rule]]
    [[rule.step]]
    status = "working"
    text = "Thinking"
    [[rule.step]]
    delay_ms = 1000
    artifact = "out"
    parts = [{ text = "one" }, { url = "http://a/f", filename = "f", media_type = "text/plain" }]
    [[rule.step]]
    artifact = "out"
    append = true
    last_chunk = true
    parts = [{ data = '{"n":1.0}' }]
    [[rule.step]]
    status = "input-required"
    text = "What next?"
"#;

#[test]
fn rest_0_3_stream_events_use_the_0_3_format() {
    let mut lab = Lab::scripted(SCRIPT);
    let peer = lab.open();
    lab.write(peer, &post("/v1/message:stream", &[], &old_message("go").to_string()));
    lab.pass(1_000);
    let reply = lab.reply(peer);
    let mut events: Vec<Value> = reply.events().into_iter().map(|event| event.data).collect();
    let task = events.remove(0)["task"].take();
    let (id, context) = (task["id"].clone(), task["contextId"].clone());
    let remove_generated = |status: &mut Value| {
        let at = status.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(at.as_str().unwrap().ends_with('Z'));
        let message = status["message"].as_object_mut().unwrap();
        assert!(message.remove("messageId").is_some());
    };
    remove_generated(&mut events[0]["statusUpdate"]["status"]);
    remove_generated(&mut events[3]["statusUpdate"]["status"]);
    let message = |text: &str| {
        json!({"taskId": id, "contextId": context, "role": "ROLE_AGENT",
        "content": [{"text": text}]})
    };
    let file =
        json!({"file": {"fileWithUri": "http://a/f", "mimeType": "text/plain", "name": "f"}});
    let expected = [
        json!({"statusUpdate": {"taskId": id, "contextId": context,
            "status": {"state": "TASK_STATE_WORKING", "message": message("Thinking")}}}),
        json!({"artifactUpdate": {"taskId": id, "contextId": context,
            "artifact": {"artifactId": "out", "parts": [{"text": "one"}, file]}}}),
        json!({"artifactUpdate": {"taskId": id, "contextId": context, "append": true, "lastChunk": true,
            "artifact": {"artifactId": "out", "parts": [{"data": {"data": {"n": 1.0}}}]}}}),
        json!({"statusUpdate": {"taskId": id, "contextId": context, "final": true,
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": message("What next?")}}}),
    ];
    assert_eq!(events, expected);
    // The follow-up, in 1.0, continues the task.
    let mut more = message_to(&id, "more");
    more["message"]["contextId"] = context;
    let peer = lab.open();
    lab.write(peer, &post("/message:send", &[], &more.to_string()));
    lab.pass(1_000);
    let task = ok(&lab.reply(peer))["task"].clone();
    assert_eq!((&task["id"], &task["status"]["state"]), (&id, &json!("TASK_STATE_INPUT_REQUIRED")));
    assert!(task["history"].as_array().unwrap().len() >= 2);
}

fn message_to(task: &Value, text: &str) -> Value {
    let mut body = message(text);
    body["message"]["taskId"] = task.clone();
    body
}

#[test]
fn json_rpc_at_rest_path_must_match_the_path_operation() {
    let mut lab = Lab::echo();
    let old = json!({"message": {"kind": "message", "messageId": "m", "role": "user",
        "parts": [{"kind": "text", "text": "hi"}]}});
    // As the client of agno sends it.
    for (path, method, params) in [
        ("/v1/message:send", "message/send", &old),
        ("/message:send", "message/send", &old),
        ("/message:send", "SendMessage", &message("hi")),
        ("/v1/message:send", "SendMessage", &message("hi")),
    ] {
        let answer = ok(&lab.ask(&post(path, &[], &rpc(method, params))));
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)), "{answer}");
        let task = answer["result"].get("task").unwrap_or(&answer["result"]);
        let id = task["id"].as_str().unwrap().to_owned();
        // The path names the task, whatever the params contain.
        let path = format!("/tasks/{id}:cancel");
        let answer = ok(&lab.ask(&post(&path, &[], &rpc("CancelTask", &json!({"id": "x"})))));
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
    }
    let stream = lab.ask(&post("/v1/message:stream", &[], &rpc("message/stream", &old)));
    assert_eq!(stream.field("content-type"), Some("text/event-stream"));
    assert_eq!(stream.events()[0].result()["kind"], "task");
    for (path, method) in [
        ("/v1/message:send", "message/stream"),
        ("/message:stream", "SendMessage"),
        ("/message:send", "tasks/get"),
        ("/message:send", "nothing"),
        ("/tasks/t:cancel", "GetTask"),
    ] {
        let answer = ok(&lab.ask(&post(path, &[], &rpc(method, &old))));
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32600), &json!(1)),
            "{path}"
        );
    }
    // A body that is not a JSON-RPC request is read as the body of the path.
    refused(&lab.ask(&post("/message:send", &[], r#"{"jsonrpc":"2.0"}"#)), 400, "INVALID_PARAMS");
    refused(&lab.ask(&post("/message:send", &[], "{")), 400, "PARSE_ERROR");
}

#[test]
fn if_generation_match_is_rejected_only_with_a_task_id() {
    let mut lab = Lab::echo();
    let id = task(&mut lab);
    let mut params = message("hi");
    for (name, value) in [("ifGenerationMatch", json!(3)), ("if_generation_match", json!("0"))] {
        params["configuration"] = json!({name: value});
        params["message"].as_object_mut().unwrap().remove("taskId");
        assert!(ok(&lab.ask(&post("/message:send", &[], &params.to_string())))["task"].is_object());
        params["message"]["taskId"] = json!(id);
        let reply = lab.ask(&post("/message:send", &[], &params.to_string()));
        let error = refused(&reply, 400, "INVALID_PARAMS");
        assert_eq!(field(&error), "configuration.ifGenerationMatch");
        assert_eq!(lab.code("SendMessage", &params), -32602);
        let mut old = V03.params(say("hi"));
        (old["configuration"], old["message"]["taskId"]) = (json!({name: value}), json!(id));
        assert_eq!(lab.code("message/send", &old), -32602);
    }
    params["configuration"] = json!({"ifGenerationMatch": null});
    assert_eq!(lab.code("SendMessage", &params), -32004);
}
