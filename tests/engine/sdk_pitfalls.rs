//! Measured errors of leading SDKs, with a test for each.

use peregrine::engine::{Next, Setup};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{Gen, OutgoingMessage, V01, V1, V03, get, get_with, post, rpc, rpc_id, say, text_of},
    echo,
    reply::Reply,
    script,
};

const INPUT_REQUIRED: &str = "[[rule]]\n[[rule.step]]\nstatus = \"input-required\"\n";

/// Calls with this `A2A-Version`.
fn versioned(lab: &mut Lab, version: &str, method: &str, params: &Value) -> Reply {
    lab.ask(&post("/", &[("A2A-Version", version)], &rpc(method, params)))
}

#[test]
fn parse_errors_have_a_null_id_and_missing_method_is_invalid() {
    let mut lab = Lab::echo();
    for body in ["", "{", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\"", "nul", "\u{1}"] {
        let reply = lab.ask(&post("/", &[], body));
        assert_eq!((reply.status, reply.code()), (200, -32700), "{body}");
        assert_eq!(reply.json()["id"], Value::Null);
    }
    for body in [r#"{"jsonrpc":"2.0","id":7}"#, r#"{"jsonrpc":"2.0","id":7,"method":1}"#] {
        let reply = lab.ask(&post("/", &[], body));
        assert_eq!((reply.status, reply.code()), (200, -32600), "{body}");
        assert_eq!(reply.json()["id"], 7);
    }
}

#[test]
fn unknown_version_is_rejected_and_missing_means_0_3() {
    let mut lab = Lab::echo();
    for version in ["99.0", "2.0", "1.7", "0.9", "one"] {
        for (method, params) in [("ListTasks", Value::Null), (V03.send(), V03.params(say("hi")))] {
            let reply = versioned(&mut lab, version, method, &params);
            assert_eq!((reply.status, reply.code()), (200, -32009), "{version} {method}");
        }
    }
    for version in ["", "0.3", "0.3.0", "1.0", "1.0.1"] {
        let reply = versioned(&mut lab, version, V03.send(), &V03.params(say("hi")));
        assert_eq!(reply.result()["kind"], "task", "{version}");
    }
    assert_eq!(lab.result(V03.send(), &V03.params(say("hi")))["kind"], "task");
}

#[test]
fn message_to_finished_task_or_other_context_is_rejected() {
    let mut lab = Lab::echo();
    let result = lab.result(V1.send(), &V1.params(say("hi")));
    let id = V1.task(&result)["id"].as_str().unwrap().to_owned();
    let again = OutgoingMessage { task: Some(&id), ..say("more") };
    assert_eq!(lab.code(V1.send(), &V1.params(again)), -32004);
    assert_eq!(lab.code(V03.send(), &V03.params(again)), -32004);
    // 0.1 has a code of its own.
    assert_eq!(lab.code(V01.send(), &V01.params(again)), -32009);
    let mut lab = Lab::scripted(INPUT_REQUIRED);
    let result = lab.result(V1.send(), &V1.params(say("hi")));
    let id = V1.task(&result)["id"].as_str().unwrap().to_owned();
    let strange = OutgoingMessage { task: Some(&id), context: Some("another"), ..say("more") };
    for generation in Gen::ALL {
        for method in [generation.send(), generation.stream()] {
            assert_eq!(lab.code(method, &generation.params(strange)), -32602, "{method}");
        }
    }
    // The refused message has changed nothing.
    let task = lab.result("GetTask", &json!({"id": id}));
    assert_eq!(task["history"].as_array().unwrap().len(), 1);
}

#[test]
fn tasks_are_listed_newest_first_with_a_page_token() {
    let mut lab = Lab::echo();
    let empty = lab.result("ListTasks", &Value::Null);
    let expected = json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0});
    assert_eq!(empty, expected);
    let mut ids = Vec::new();
    for turn in 0..5 {
        lab.pass(turn % 2);
        let result = lab.result(V1.send(), &V1.params(say("hi")));
        ids.insert(0, V1.task(&result)["id"].clone());
    }
    let mut listed = Vec::new();
    let mut token = String::new();
    for size in [2, 2, 1] {
        let page = lab.result("ListTasks", &json!({"pageSize": 2, "pageToken": token}));
        let tasks = page["tasks"].as_array().unwrap();
        assert_eq!((tasks.len(), &page["totalSize"]), (size, &json!(5)));
        listed.extend(tasks.iter().map(|task| task["id"].clone()));
        page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
    }
    assert_eq!((listed, token.as_str()), (ids, ""));
}

#[test]
fn stream_starts_with_the_task_or_is_one_message() {
    let mut lab = Lab::echo();
    for (method, text) in [(V1.stream(), "stream:3"), (V1.stream(), "hi")] {
        let peer = lab.stream(method, &V1.params(say(text)));
        let events = lab.reply(peer).events();
        assert!(events[0].result().get("task").is_some());
        assert!(events[1..].iter().all(|event| event.result().get("task").is_none()));
    }
    let peer = lab.stream(V1.stream(), &V1.params(say("ping")));
    let reply = lab.reply(peer);
    let events = reply.events();
    assert_eq!((events.len(), reply.complete), (1, true));
    assert_eq!(text_of(&events[0].result()["message"]), "pong");
    let peer = lab.stream(V03.stream(), &V03.params(say("ping")));
    let events = lab.reply(peer).events();
    assert_eq!((events.len(), &events[0].result()["kind"]), (1, &json!("message")));
}

#[test]
fn history_has_every_message_up_to_history_length() {
    let mut lab = Lab::scripted(INPUT_REQUIRED);
    let none = OutgoingMessage { history: Some(0), ..say("one") };
    let result = lab.result(V1.send(), &V1.params(none));
    let task = V1.task(&result);
    assert!(task.get("history").is_none(), "{task}");
    let id = task["id"].as_str().unwrap().to_owned();
    for text in ["two", "three"] {
        lab.result(V1.send(), &V1.params(OutgoingMessage { task: Some(&id), ..say(text) }));
    }
    let texts = |lab: &mut Lab, params: Value| {
        let task = lab.result("GetTask", &params);
        let history = task["history"].as_array().cloned().unwrap_or_default();
        history.iter().map(|message| text_of(message).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&mut lab, json!({"id": id})), ["one", "two", "three"]);
    assert_eq!(texts(&mut lab, json!({"id": id, "historyLength": 2})), ["two", "three"]);
    assert!(texts(&mut lab, json!({"id": id, "historyLength": 0})).is_empty());
    assert_eq!(lab.code("GetTask", &json!({"id": id, "historyLength": -1})), -32602);
}

#[test]
fn json_numbers_are_echoed_verbatim() {
    let mut lab = Lab::echo();
    let numbers = "[9007199254740993,-0,1.0,1e400,1E+2,18446744073709551616,0.10]";
    for (method, part) in [("SendMessage", "data"), ("message/send", "kind\":\"data\",\"data")] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":9007199254740993,"method":"{method}","params":{{"message":{{"messageId":"m","role":"user","metadata":{{"n":{numbers}}},"parts":[{{"{part}":{{"n":{numbers}}}}}]}}}}}}"#
        );
        let reply = lab.ask(&post("/", &[], &body));
        let text = reply.text();
        assert!(text.starts_with(r#"{"jsonrpc":"2.0","id":9007199254740993,"#), "{text}");
        // In the artifact once, in the history twice: data and metadata.
        assert_eq!(text.matches(numbers).count(), 3, "{text}");
    }
}

#[test]
fn params_may_be_absent_null_or_empty() {
    let mut lab = Lab::new(Setup { extended_card: true, ..Setup::default() });
    for params in ["", r#","params":null"#, r#","params":{}"#, r#","params":[]"#] {
        for method in ["ListTasks", "GetExtendedAgentCard"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#);
            lab.ask(&post("/", &[], &body)).result();
        }
        // If a method has params, the error is the missing parameter, not the missing object.
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask"{params}}}"#);
        assert_eq!(lab.ask(&post("/", &[], &body)).code(), -32602, "{params}");
    }
    for params in ["[1]", "1", "\"x\"", "true"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{params}}}"#);
        assert!([-32600, -32602].contains(&lab.ask(&post("/", &[], &body)).code()), "{params}");
    }
}

#[test]
fn direct_message_creates_no_task() {
    let mut lab = Lab::echo();
    for generation in Gen::ALL {
        for method in [generation.send(), generation.stream()] {
            let peer = lab.stream(method, &generation.params(say("ping")));
            assert!(lab.reply(peer).text().contains("pong"));
        }
    }
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 0);
    assert_eq!(lab.code("GetTask", &json!({"id": "client-m"})), -32001);
}

// For the other half of rule 10, GET and POST of `:subscribe`, see `rest.rs`.
#[test]
fn subscribe_to_finished_task_is_rejected() {
    let mut lab = Lab::echo();
    let result = lab.result(V1.send(), &V1.params(say("hi")));
    let id = json!({"id": V1.task(&result)["id"]});
    for generation in [V1, V03] {
        assert_eq!(lab.code(generation.subscribe(), &id), -32004);
    }
}

// For rule 11, the content type of HTTP+JSON, see `rest.rs`.

// For rate limits see `quotas.rs`. The limits on tasks and streams are not internal errors either;
// a dialect with HTTP statuses answers 429 with Retry-After.
#[test]
fn exceeded_stream_limit_is_not_an_internal_error() {
    let mut lab = Lab::limited(|limits| limits.streams_max = 1);
    let hold = V03.params(say("hold:1000:1"));
    let _stream = lab.stream(V03.stream(), &hold);
    assert_eq!(lab.code(V03.stream(), &hold), -32000);
    let body = rpc(V03.stream(), &hold);
    let reply = lab.ask(&post("/a2a/echo", &[("Accept", "text/event-stream")], &body));
    assert_eq!((reply.status, reply.field("retry-after"), reply.code()), (429, Some("1"), -32000));
}

// For the other half of rule 13, readiness, see `pages.rs`.
#[test]
fn get_on_the_rpc_path_is_405() {
    let mut lab = Lab::echo();
    for path in
        ["/", "/agents/echo", "/agents/echo/", "/a2a/echo", "/api/v1/a2a/echo", "/tenants/t"]
    {
        for method in ["GET", "PUT", "DELETE", "PATCH", "BREW"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let reply = lab.ask(request.as_bytes());
            assert_eq!((reply.status, reply.closes()), (405, false), "{method} {path}");
            assert!(reply.field("allow").unwrap().contains("POST"));
        }
        let peer = lab.open();
        lab.write(peer, format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(lab.head_reply(peer).status, 405);
        assert!(lab.received(peer).is_empty(), "HEAD has no content");
    }
}

#[test]
fn card_lists_interfaces_in_order_of_preference() {
    let mut lab = Lab::echo();
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let card = lab.ask(&get(path)).json();
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        let offered: Vec<_> = interfaces
            .iter()
            .filter(|i| i["protocolBinding"] == "JSONRPC")
            .map(|i| (i["protocolVersion"].as_str().unwrap(), i["url"].as_str().unwrap()))
            .collect();
        assert_eq!(offered, [("1.0", "http://a.example/"), ("0.3", "http://a.example/")]);
        // In each binding the newest version comes first, and in each version JSON-RPC.
        assert_eq!(interfaces[0]["protocolBinding"], "JSONRPC");
        assert!(interfaces.is_sorted_by(|a, b| {
            let [a, b] = [a, b].map(|i| i["protocolVersion"].as_str().unwrap());
            a >= b
        }));
        assert_eq!(card["url"], "http://a.example/");
    }
    // A tenant that a client repeats from an interface changes nothing.
    let mut params = V1.params(say("hi"));
    params["tenant"] = json!("t");
    lab.result(V1.send(), &params);
}

#[test]
fn hostile_input_gets_a_clear_error_and_the_server_lives() {
    let mut lab = Lab::echo();
    let valid = rpc("ListTasks", &Value::Null);
    // Each is answered, and the connection stays open.
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ListTasks"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","method":"ListTasks"}"#, -32600),
        (&deep, -32600),
        (&"{\"a\":".repeat(100_000), -32700),
    ] {
        let peer = lab.open();
        lab.write(peer, &post("/", &[], body));
        assert_eq!(lab.reply(peer).code(), code, "{}", &body[..40]);
        lab.write(peer, &post("/", &[], &valid));
        lab.reply(peer).result();
    }
    let peer = lab.open();
    let bad = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n\"\xff\xfe\xc0\x80\"";
    lab.write(peer, bad);
    assert_eq!(lab.reply(peer).code(), -32700);
    lab.write(peer, &post("/", &[], &valid));
    lab.reply(peer).result();
    // A very large head is refused, and the connection closes.
    let peer = lab.open();
    lab.write(peer, &get_with("/", &format!("X: {}\r\n", "x".repeat(1 << 20))));
    assert_eq!((lab.reply(peer).status, lab.next(peer)), (431, Next::Close));
    // One byte at a time gives the same answer.
    let peer = lab.open();
    for byte in post("/", &[], &valid) {
        lab.write(peer, &[byte]);
    }
    lab.reply(peer).result();
    lab.assert_lives();
}

#[test]
fn empty_parts_and_undeclared_media_types_are_refused() {
    let mut text_only = echo();
    text_only.0.input_modes = vec!["text/*".to_owned(), "application/json".to_owned()];
    let mut lab = Lab::new(Setup { agents: vec![text_only], ..Setup::default() });
    let send =
        |parts: Value| json!({"message": {"messageId": "m", "role": "user", "parts": parts}});
    assert_eq!(lab.code("SendMessage", &send(json!([]))), -32602);
    assert_eq!(lab.code("message/send", &send(json!([]))), -32602);
    let png = json!([{"text": "hi"}, {"raw": "AAAA", "mediaType": "image/png"}]);
    assert_eq!(lab.code("SendMessage", &send(png.clone())), -32005);
    assert_eq!(lab.code("SendStreamingMessage", &send(png)), -32005);
    let file = json!([{"kind": "file", "file": {"bytes": "AAAA", "mimeType": "image/png"}}]);
    assert_eq!(lab.code("message/send", &send(file)), -32005);
    for media in ["text/plain", "TEXT/markdown; charset=utf-8", "application/json"] {
        lab.result("SendMessage", &send(json!([{"raw": "AAAA", "mediaType": media}])));
    }
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 3);
}

#[test]
fn request_id_is_echoed_verbatim_even_for_bad_params() {
    let mut lab = Lab::echo();
    let ids = ["0", "-0", "1.0", "1e400", "9007199254740993", "null", r#""""#, r#""a\u0062\/\"é""#];
    for id in ids {
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        for (method, params) in [
            ("ListTasks", json!({})),
            ("GetTask", json!({"id": 7})),
            ("SendMessage", json!({"message": []})),
            ("message/stream", json!({"message": {"parts": 1}})),
            ("tasks/send", json!({"id": ""})),
            ("NoSuchMethod", json!({})),
        ] {
            let reply = lab.ask(&post("/", &[], &rpc_id(id, method, &params)));
            assert!(reply.text().starts_with(&expected), "{method}: {}", reply.text());
        }
        let body = rpc_id(id, V1.stream(), &V1.params(say("stream:3")));
        let stream = lab.ask(&post("/", &[], &body));
        assert_eq!(stream.text().matches(&expected).count(), 4, "{}", stream.text());
    }
    for id in ["{}", "[]", "true", "false"] {
        let reply = lab.ask(&post("/", &[], &rpc_id(id, "ListTasks", &Value::Null)));
        assert_eq!((reply.code(), &reply.json()["id"]), (-32600, &Value::Null), "{id}");
    }
}

/// The rules hold for a named agent as for the default one.
#[test]
fn default_agent_cannot_access_tasks_of_named_agent() {
    let setup = Setup { agents: vec![echo(), script("asks", INPUT_REQUIRED)], ..Setup::default() };
    let mut lab = Lab::new(setup);
    let reply = lab.ask(&post("/agents/asks", &[], &rpc(V1.send(), &V1.params(say("hi")))));
    let id = json!({"id": V1.task(&reply.result())["id"]});
    // An agent has no access to the tasks of another one.
    assert_eq!(lab.code("GetTask", &id), -32001);
    assert_eq!(lab.code("CancelTask", &id), -32001);
    assert_eq!(lab.code("SubscribeToTask", &id), -32001);
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 0);
    lab.ask(&post("/agents/asks/", &[], &rpc("GetTask", &id))).result();
}
