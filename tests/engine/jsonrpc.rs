//! The envelope of a call: batches, versions, names, paths and HTTP methods.

use peregrine::engine::{Mount, Setup};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{Gen, V01, V1, V03, get, get_with, post, post_chunked, rpc, rpc_id, say},
    reply::Reply,
};

const SLOW: &str = r#"
    [[rule]]
    [[rule.step]]
    status = "completed"
    [[rule]]
    text = "slow"
    [[rule.step]]
    delay_ms = 500
    status = "completed"
    [[rule]]
    text = "slower"
    [[rule.step]]
    delay_ms = 900
    status = "completed"
"#;

fn batch(calls: &[String]) -> Vec<u8> {
    post("/", &[], &format!("[{}]", calls.join(",")))
}

fn list_of(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200);
    reply.json().as_array().expect("an array").clone()
}

#[test]
fn method_name_in_wrong_case_gets_a_suggestion() {
    let mut lab = Lab::echo();
    for (method, message) in [
        ("sendMessage", "Method not found: did you mean SendMessage?"),
        ("Tasks/Get", "Method not found: did you mean tasks/get?"),
        ("tasks/make", "Method not found"),
    ] {
        let error = lab.ask(&post("/", &[], &rpc(method, &json!({})))).json()["error"].clone();
        assert_eq!((&error["code"], &error["message"]), (&json!(-32601), &json!(message)));
    }
}

// --- Batches, JSON-RPC 2.0 §6

#[test]
fn batch_answer_is_one_array_with_the_ids_of_its_calls() {
    let mut lab = Lab::echo();
    let send = |id: &str, generation: Gen, text: &str| {
        rpc_id(id, generation.send(), &generation.params(say(text)))
    };
    let calls = [
        send("\"a\"", V1, "one"),
        send("2", V03, "two"),
        send("null", V1, "ping"),
        rpc_id("3.0", "GetTask", &json!({"id": "nowhere"})),
        rpc_id("4", "ListTasks", &Value::Null),
        send("5", V01, "three"),
    ];
    let answers = list_of(&lab.ask(&batch(&calls)));
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!(2), Value::Null, json!(3.0), json!(4), json!(5)]);
    // Each in the form of its own generation, in the order of the calls.
    assert!(answers[0]["result"]["task"].is_object() && answers[1]["result"]["kind"] == "task");
    assert_eq!(answers[2]["result"]["message"]["role"], "ROLE_AGENT");
    assert_eq!(answers[3]["error"]["code"], -32001);
    assert_eq!(answers[4]["result"]["totalSize"], 2);
    assert_eq!(answers[5]["result"]["id"], "client-m");
}

#[test]
fn single_call_batch_returns_array_and_empty_batch_an_error() {
    let mut lab = Lab::echo();
    assert_eq!(list_of(&lab.ask(&batch(&[rpc("ListTasks", &Value::Null)]))).len(), 1);
    for body in ["[]", " [ ] "] {
        let error = lab.ask(&post("/", &[], body)).json();
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32600), &Value::Null));
    }
}

#[test]
fn each_invalid_batch_member_gets_an_error() {
    let mut lab = Lab::echo();
    let answers =
        list_of(&lab.ask(&post("/", &[], r#"[1,"x",null,[],{},{"id":7,"jsonrpc":"2.0"}]"#)));
    assert_eq!(answers.len(), 6);
    assert!(answers.iter().all(|answer| answer["error"]["code"] == -32600));
    let ids: Vec<_> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(
        ids,
        [&Value::Null, &Value::Null, &Value::Null, &Value::Null, &Value::Null, &json!(7)]
    );
    // A batch that is not JSON has one answer.
    let error =
        lab.ask(&post("/", &[], r#"[{"jsonrpc":"2.0","id":1,"method":"ListTasks"},"#)).json();
    assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32700), &Value::Null));
}

#[test]
fn notification_is_answered_only_outside_a_batch() {
    let mut lab = Lab::echo();
    let notification = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    };
    let notify = notification(V1.send(), V1.params(say("hi")));
    let call = rpc("ListTasks", &Value::Null);
    let answers = list_of(&lab.ask(&batch(&[notify.clone(), call, notify.clone()])));
    // The notifications were executed.
    assert_eq!((answers.len(), &answers[0]["result"]["totalSize"]), (1, &json!(1)));
    let reply = lab.ask(&batch(&[notify.clone(), notification("NoSuch", json!({}))]));
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    let answer = lab.ask(&post("/", &[], &notify)).json();
    assert!(answer["id"].is_null() && answer["result"]["task"].is_object());
}

#[test]
fn streams_are_refused_inside_a_batch_and_begin_no_task() {
    let mut lab = Lab::echo();
    for generation in Gen::ALL {
        let calls = [generation.stream(), generation.subscribe()]
            .map(|method| rpc(method, &generation.params(say("stream:3"))));
        for answer in list_of(&lab.ask(&batch(&calls))) {
            assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32600), &json!(1)));
        }
    }
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 0);
}

#[test]
fn a_batch_waits_for_its_slowest_member() {
    let mut lab = Lab::scripted(SLOW);
    let send = |id: &str, text: &str| rpc_id(id, V1.send(), &V1.params(say(text)));
    let calls = [send("1", "slow"), send("2", "quick"), send("3", "slower"), "7".to_owned()];
    let peer = lab.open();
    lab.write(peer, &batch(&calls));
    // The next request on the connection waits.
    lab.write(peer, &get("/.well-known/agent.json"));
    lab.pass(899);
    assert!(lab.received(peer).is_empty());
    lab.pass(1);
    let answers = list_of(&lab.reply(peer));
    let mut ids: Vec<_> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!((answers.len(), ids), (4, vec![1, 2, 3]));
    assert_eq!(lab.reply(peer).status, 200);
}

#[test]
fn batch_of_more_than_100_calls_is_rejected() {
    let mut lab = Lab::echo();
    let send = rpc(V1.send(), &V1.params(say("hi")));
    assert_eq!(list_of(&lab.ask(&batch(&vec![send.clone(); 100]))).len(), 100);
    let error = lab.ask(&batch(&vec![send; 101])).json();
    assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32600), &Value::Null));
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 100, "none of them was heard");
}

// --- Versions, A2A 1.0 §3.6

fn call_code(lab: &mut Lab, path: &str, version: Option<&str>, generation: Gen) -> i64 {
    let body = rpc(generation.get(), &json!({"id": "nowhere"}));
    let fields: Vec<_> = version.iter().map(|version| ("A2A-Version", *version)).collect();
    lab.ask(&post(path, &fields, &body)).code()
}

#[test]
fn the_version_is_a_header_or_a_query_and_the_header_wins() {
    let mut lab = Lab::echo();
    for generation in [V03, V1] {
        for (path, version, code) in [
            ("/", None, -32001),
            ("/", Some(""), -32001),
            ("/", Some("1.0"), -32001),
            ("/", Some("0.3"), -32001),
            ("/", Some("99.0"), -32009),
            ("/?A2A-Version=99.0", None, -32009),
            ("/?a2a-version=99.0&x=1", None, -32009),
            ("/?A2A-Version=1.0", None, -32001),
            ("/?A2A-Version=99.0", Some("1.0"), -32001),
            ("/?A2A-Version=1.0", Some("99.0"), -32009),
        ] {
            assert_eq!(call_code(&mut lab, path, version, generation), code, "{path} {version:?}");
        }
    }
}

#[test]
fn strict_version_rejects_1_0_calls_that_do_not_name_1_0() {
    let mut lab = Lab::new(Setup { strict_version: true, ..Setup::default() });
    for (version, code) in [(None, -32009), (Some("0.3"), -32009), (Some("1.0"), -32001)] {
        assert_eq!(call_code(&mut lab, "/", version, V1), code, "{version:?}");
        assert_eq!(call_code(&mut lab, "/", version, V03), -32001, "{version:?}");
    }
    assert_eq!(call_code(&mut lab, "/?A2A-Version=1.0", None, V1), -32001);
    let body = rpc(V1.stream(), &V1.params(say("hi")));
    assert_eq!(lab.ask(&post("/", &[], &body)).code(), -32009, "before the first event");
}

#[test]
fn strict_server_requires_message_ids_in_0_3_and_1_0() {
    let mounts = vec![Mount { path: "/r".into(), dialect: "a2a_rust".into(), agent: None }];
    let mut lab = Lab::new(Setup { strict: true, mounts, ..Setup::default() });
    let send = |lab: &mut Lab, path: &str, generation: Gen, id: Option<&str>| {
        let mut params = generation.params(say("hi"));
        params["message"].as_object_mut().unwrap().remove("messageId");
        if let Some(id) = id {
            params["message"]["messageId"] = json!(id);
        }
        let body = rpc(generation.send(), &params);
        lab.ask(&post(path, &[("A2A-Version", "1.0")], &body)).json()
    };
    for id in [None, Some("")] {
        let refused = send(&mut lab, "/", V1, id);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("messageId"));
        assert_eq!(send(&mut lab, "/", V03, id)["error"]["code"], -32602);
    }
    assert!(send(&mut lab, "/", V1, Some("m")).get("result").is_some());
    // 0.1 has no message ids, and a platform dialect does not require them.
    let old = rpc(V01.send(), &V01.params(say("hi")));
    assert!(lab.ask(&post("/", &[], &old)).json().get("result").is_some());
    assert!(send(&mut lab, "/r/tenants/t", V1, None).get("result").is_some());
    // A tenant's path belongs to the specification.
    assert_eq!(send(&mut lab, "/tenants/t", V1, None)["error"]["code"], -32602);
    // A server that is not strict generates an id for each message.
    assert!(send(&mut Lab::echo(), "/", V1, None).get("result").is_some());
    let body = rpc(V1.send(), &V1.params(say("hi")));
    assert_eq!(lab.ask(&post("/", &[], &body)).code(), -32009, "it implies the strict version");
}

#[test]
fn unsupported_extensions_are_accepted_but_not_activated() {
    let mut lab = Lab::echo();
    for name in ["A2A-Extensions", "X-A2A-Extensions"] {
        let body = rpc(V1.send(), &V1.params(say("hi")));
        let reply = lab.ask(&post("/", &[(name, "urn:a, urn:b")], &body));
        reply.result();
        assert_eq!(reply.field("a2a-extensions"), None, "what is not served is not echoed");
    }
}

/// A page of another site may send simple requests (Fetch §2.2.2), which name its origin.
#[test]
fn request_with_origin_requires_a_json_content_type() {
    let mut lab = Lab::echo();
    let body = rpc(V1.send(), &V1.params(say("hi")));
    let bare = V1.params(say("hi")).to_string();
    let page = ("Origin", "https://elsewhere.example");
    for (path, body, status) in [("/", &body, 200), ("/message:send", &bare, 400)] {
        let untyped = |lines: &str| {
            let length = body.len();
            format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        };
        assert_eq!(lab.ask(&untyped("A2A-Version: 1.0\r\n")).status, 200, "{path}");
        let refused = lab.ask(&untyped("A2A-Version: 1.0\r\nOrigin: null\r\n"));
        assert_eq!(refused.status, status, "{path}");
        assert!(refused.json()["error"].is_object(), "{path}");
        let typed = lab.ask(&post(path, &[page, ("A2A-Version", "1.0")], body));
        assert!(typed.json().get("error").is_none(), "{path}");
    }
    let cancel =
        b"POST /tasks/x:cancel HTTP/1.1\r\nHost: a\r\nOrigin: null\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(lab.ask(cancel).json()["error"]["status"], "INVALID_ARGUMENT");
}

// --- Names and framing

#[test]
fn json_members_accept_snake_case_and_escaped_names() {
    let mut lab = Lab::echo();
    let body = r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"SendMessage","params":{"message":
        {"message_id":"m","context_id":"c-1","role":1,"parts":[{"text":"hi","media_type":"text/plain"}]},
        "configuration":{"history_length":0,"return_immediately":true}}}"#;
    let result = lab.ask(&post("/", &[], body)).result();
    let task = V1.task(&result);
    assert_eq!((&task["contextId"], task.get("history")), (&json!("c-1"), None));
    let read = lab.result("GetTask", &json!({"task_id": task["id"], "history_length": 5}));
    assert_eq!(read["history"][0]["messageId"], "m");
    assert_eq!(read["history"][0]["parts"][0]["mediaType"], "text/plain");
}

#[test]
fn chunked_body_of_any_chunk_size_is_accepted() {
    let mut lab = Lab::echo();
    let body = rpc(V1.send(), &V1.params(say("häppchen")));
    for size in [1, 2, 3, 7, 64, 4096] {
        let result = lab.ask(&post_chunked("/", &body, size)).result();
        assert_eq!(V1.task(&result)["artifacts"][0]["parts"][0]["text"], "häppchen");
    }
}

// --- HTTP

#[test]
fn paths_accept_a_trailing_slash_and_the_absolute_form() {
    let mut lab = Lab::echo();
    let body = rpc("ListTasks", &Value::Null);
    for path in ["/", "/agents/echo", "/agents/echo/", "/tenants/t", "/tenants/t/", "/?x=1"] {
        assert_eq!(lab.ask(&post(path, &[], &body)).result()["totalSize"], 0, "{path}");
    }
    assert_eq!(lab.ask(&post("http://a.example/", &[], &body)).result()["totalSize"], 0);
    for path in ["/x", "/agent", "/agents/", "/agents/nobody", "/agents/echo/x", "/tenants/"] {
        let reply = lab.ask(&post(path, &[], &body));
        assert_eq!((reply.status, reply.closes(), reply.code()), (404, false, -32600), "{path}");
        assert_eq!(reply.json()["id"], Value::Null);
    }
}

#[test]
fn ambiguous_paths_are_rejected() {
    let mut lab = Lab::echo();
    for path in [
        "/..",
        "/../x",
        "/a/..",
        "/a/../b",
        "/./a",
        "/%2e%2e",
        "/%2E%2e/x",
        "/%252e%252E",
        "/%25252e%25252e",
        "/a%2fb",
        "/a%2Fb",
        "/a%252fb",
        "/a%00",
        "/a%2500",
        "/a\\b",
        "/a%5cb",
        "/%",
        "/%g0",
        "/%c0%ae%c0%ae",
    ] {
        let reply = lab.ask(&get(path));
        assert_eq!((reply.status, reply.closes()), (400, true), "{path}");
    }
    for path in ["/a..b", "/...", "/%41", "/a%20b", "/100%25"] {
        assert_eq!(lab.ask(&get(path)).status, 404, "{path}");
    }
}

#[test]
fn options_returns_the_allowed_methods_of_a_path() {
    let mut lab = Lab::echo();
    for (target, allow) in [
        ("*", "GET, HEAD, POST, OPTIONS"),
        ("/", "POST, OPTIONS"),
        ("/.well-known/agent-card.json", "GET, HEAD, OPTIONS"),
        ("/agent/authenticatedExtendedCard", "GET, HEAD, OPTIONS"),
    ] {
        let request = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let reply = lab.ask(request.as_bytes());
        assert_eq!((reply.status, reply.field("allow")), (204, Some(allow)), "{target}");
    }
}

#[test]
fn head_never_has_content() {
    let mut lab = Lab::new(Setup { test_echo: Some("/echo".to_owned()), ..Setup::default() });
    for path in [
        "/",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/echo",
        "/nowhere",
        "/agents/nobody",
        "/agents/nobody/.well-known/agent.json",
        "/a2a/nobody",
        "/tenants/",
        "/agent/authenticatedExtendedCard",
        "/echo/x",
    ] {
        let peer = lab.open();
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        lab.write(peer, request.as_bytes());
        let head = lab.head_reply(peer);
        assert!(lab.received(peer).is_empty(), "content after HEAD {path}");
        // RFC 9110 §9.3.2: the same fields as for GET.
        let full = lab.ask(&get(path));
        assert_eq!(head.status, full.status, "{path}");
        if head.status == 200 {
            assert_eq!(head.fields, full.fields, "{path}");
        }
        // The connection is still in sync.
        lab.write(peer, &get("/.well-known/agent.json"));
        assert_eq!(lab.reply(peer).status, 200, "{path}");
    }
}

#[test]
fn keep_alive_follows_http_version_and_connection_header() {
    let mut lab = Lab::echo();
    for (version, field, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let peer = lab.open();
        let request =
            format!("GET /.well-known/agent.json HTTP/{version}\r\nHost: a\r\n{field}\r\n");
        lab.write(peer, request.as_bytes());
        let reply = lab.reply(peer);
        assert_eq!((reply.status, lab.is_open(peer)), (200, stays), "{version} {field}");
        // RFC 9112 §9.3: a 1.0 client keeps the connection only if the answer says so.
        let connection = reply.field("connection").map(str::to_ascii_lowercase);
        let expected = match (version, stays) {
            (_, false) => Some("close"),
            ("1.0", true) => Some("keep-alive"),
            _ => None,
        };
        assert_eq!(connection.as_deref(), expected, "{version} {field}");
    }
}

#[test]
fn late_answer_over_http_1_0_keeps_the_connection_alive() {
    let mut lab = Lab::scripted(SLOW);
    let body = rpc(V1.send(), &V1.params(say("slow")));
    let request = post("/", &[("Connection", "keep-alive")], &body);
    let peer = lab.open();
    lab.write(peer, String::from_utf8(request).unwrap().replace("HTTP/1.1", "HTTP/1.0").as_bytes());
    assert!(lab.received(peer).is_empty() && lab.is_open(peer));
    lab.pass(500);
    let reply = lab.reply(peer);
    assert_eq!((reply.status, reply.closes(), lab.is_open(peer)), (200, false, true));
    assert_eq!(reply.field("connection"), Some("keep-alive"));
}

#[test]
fn continue_is_sent_only_while_the_body_is_missing() {
    let mut lab = Lab::echo();
    let body = rpc("ListTasks", &Value::Null);
    let request = post("/", &[("Expect", "100-continue")], &body);
    let head_len = request.len() - body.len();
    let peer = lab.open();
    lab.write(peer, &request[..head_len]);
    assert_eq!(lab.reply(peer).status, 100);
    lab.write(peer, &request[head_len..head_len + 1]);
    lab.write(peer, &request[head_len + 1..]);
    lab.reply(peer).result();
    assert!(lab.received(peer).is_empty());
    // The body arrived with the head: no `100 Continue` is sent.
    lab.ask(&request).result();
    // HTTP/1.0 has no `100 Continue`; another expectation cannot be met.
    let old = String::from_utf8(request.clone()).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    let peer = lab.open();
    lab.write(peer, &old.as_bytes()[..head_len]);
    assert!(lab.received(peer).is_empty());
    let reply = lab.ask(&get_with("/", "Expect: 200-ok\r\n"));
    assert_eq!((reply.status, reply.closes()), (417, true));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut lab = Lab::scripted(SLOW);
    let peer = lab.open();
    let calls = ["slow", "quick", "slower", "quick"].into_iter().enumerate();
    let requests = calls.map(|(id, text)| {
        post("/", &[], &rpc_id(&id.to_string(), V1.send(), &V1.params(say(text))))
    });
    lab.write(peer, &requests.collect::<Vec<_>>().concat());
    assert!(lab.received(peer).is_empty());
    // A call starts when the previous one is answered.
    lab.pass(500);
    assert_eq!(Reply::parse_all(lab.received(peer), false).len(), 2);
    lab.pass(900);
    let ids = [(); 4].map(|()| lab.reply(peer).json()["id"].clone());
    assert_eq!(ids, [json!(0), json!(1), json!(2), json!(3)]);
}

#[test]
fn incomplete_request_never_reaches_an_agent() {
    let mut lab = Lab::echo();
    let request = post("/", &[], &rpc(V1.send(), &V1.params(say("hi"))));
    let chunked = post_chunked("/", &rpc(V1.send(), &V1.params(say("hi"))), 50);
    for whole in [request, chunked] {
        for end in [1, 10, whole.len() / 2, whole.len() - 1] {
            let peer = lab.open();
            lab.write(peer, &whole[..end]);
            lab.end(peer);
            assert!(lab.received(peer).is_empty() && !lab.is_open(peer));
        }
    }
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 0);
}
