//! Each platform dialect at its endpoint, end to end: its HTTP requirements, its requests, its
//! responses and its errors (wire §8).

use peregrine::{
    dialect::{self, Dialect, card::CardForm},
    engine::{Mount, Setup, Tenants},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{V1, V03, get, post, rpc, rpc_id, say, text_of},
    echo,
    reply::Reply,
    script,
};

/// Requests input, then completes on `done` or on any data part, which the default text also
/// matches.
const INPUT_REQUIRED: &str = r#"
    [[rule]]
    [[rule.step]]
    status = "input-required"
    text = "What next?"
    [[rule]]
    text = "done"
    [[rule.step]]
    artifact = "out"
    parts = [{ text = "result" }]
    [[rule.step]]
    status = "completed"
    [[rule]]
    text = "slow"
    [[rule.step]]
    status = "working"
    [[rule.step]]
    delay_ms = 1000
    status = "completed"
    [[rule]]
    text = "no"
    [[rule.step]]
    status = "rejected"
"#;

fn lab() -> Lab {
    let mount = |dialect: &&Dialect| Mount {
        path: format!("/{}", dialect.name),
        dialect: dialect.name.to_owned(),
        agent: None,
    };
    let agents = vec![echo(), script("asks", INPUT_REQUIRED)];
    let mounts = dialect::ALL.iter().map(mount).collect();
    Lab::new(Setup { agents, mounts, tenants: Tenants::Any, ..Setup::default() })
}

/// Posts to a path with `Accept: */*`.
fn call(lab: &mut Lab, path: &str, method: &str, params: &Value) -> Reply {
    lab.ask(&post(path, &[("Accept", "*/*")], &rpc(method, params)))
}

fn open(lab: &mut Lab, path: &str, method: &str, params: &Value) -> Peer {
    let peer = lab.open();
    lab.write(peer, &post(path, &[("Accept", "text/event-stream")], &rpc(method, params)));
    peer
}

#[test]
fn an_unknown_agent_is_404_with_a_json_rpc_error() {
    let mut lab = lab();
    for path in ["/a2a/nobody", "/api/v1/a2a/nobody", "/agents/nobody", "/a2a/", "/a2a/nobody/"] {
        let reply = call(&mut lab, path, "message/send", &V03.params(say("hi")));
        assert_eq!((reply.status, reply.closes(), reply.code()), (404, false, -32600), "{path}");
        assert_eq!((&reply.json()["jsonrpc"], &reply.json()["id"]), (&json!("2.0"), &Value::Null));
        assert_eq!(lab.ask(&get(path)).status, 404);
    }
}

#[test]
fn each_dialect_serves_only_its_own_methods() {
    let mut lab = lab();
    for (path, supported, unsupported) in [
        (
            "/a2a/echo",
            "tasks/get",
            "SubscribeToTask tasks/resubscribe tasks/pushNotificationConfig/set",
        ),
        ("/api/v1/a2a/echo", "tasks/get", "GetTask tasks/send tasks/pushNotificationConfig/list"),
        ("/rabbithole", "tasks/get", "message/send tasks/resubscribe tasks/pushNotification/set"),
        ("/a2a_rust", "GetTask", "tasks/get message/send"),
        ("/tutorial", "tasks/get", "SendMessage tasks/send"),
        ("/fasta2a", "tasks/get", "tasks/send agent/authenticatedExtendedCard task/subscribe"),
        ("/", "GetTask", "tasks/list SendTask sendMessage"),
    ] {
        let params = json!({"id": "x", "contextId": "c"});
        let code = call(&mut lab, path, supported, &params).code();
        assert!([-32001, -32000].contains(&code), "{path}: {code}");
        for method in unsupported.split(' ') {
            assert_eq!(call(&mut lab, path, method, &params).code(), -32601, "{path} {method}");
        }
    }
}

// --- langsmith

#[test]
fn langsmith_requires_a_matching_accept_header() {
    let mut lab = lab();
    let (send, stream) = ("message/send", "message/stream");
    for (method, accept, status) in [
        (send, None, 400),
        (send, Some(""), 400),
        (send, Some("text/event-stream"), 400),
        (send, Some("text/html, application/xml"), 400),
        (send, Some("application/json"), 200),
        (send, Some("text/html, Application/JSON;q=0.5"), 200),
        (send, Some("*/*"), 200),
        (send, Some("application/*"), 200),
        (stream, None, 400),
        (stream, Some("application/json"), 400),
        (stream, Some("application/json, text/event-stream"), 200),
        (stream, Some("text/*"), 200),
    ] {
        let fields: Vec<_> = accept.iter().map(|accept| ("Accept", *accept)).collect();
        let body = rpc_id("\"run-1\"", method, &V03.params(say("hi")));
        let reply = lab.ask(&post("/a2a/echo", &fields, &body));
        assert_eq!((reply.status, reply.closes()), (status, false), "{method} {accept:?}");
        if status == 400 {
            assert_eq!((reply.code(), &reply.json()["id"]), (-32600, &json!("run-1")));
        }
    }
    // The refused requests have started no task.
    let page = lab.result("ListTasks", &Value::Null);
    assert_eq!(page["totalSize"], 6);
}

#[test]
fn langsmith_get_and_cancel_accept_a_thread_id() {
    let mut lab = lab();
    let result = call(&mut lab, "/a2a/asks", "message/send", &V03.params(say("hi"))).result();
    assert_eq!(result["kind"], "task");
    let (id, thread) = (result["id"].as_str().unwrap(), result["contextId"].as_str().unwrap());
    let compound = format!("{thread}:{id}");
    for method in ["tasks/get", "tasks/cancel"] {
        let reply = call(&mut lab, "/a2a/asks", method, &json!({"id": id, "contextId": "other"}));
        assert_eq!((reply.status, reply.code()), (400, -32001), "{method}");
    }
    for id_alone in [id, compound.as_str()] {
        let result = call(&mut lab, "/a2a/asks", "tasks/get", &json!({"id": id_alone})).result();
        assert_eq!(result["id"], id);
    }
    let params = json!({"id": compound, "contextId": thread, "historyLength": 10});
    assert_eq!(call(&mut lab, "/a2a/asks", "tasks/get", &params).result()["id"], id);
    let params = json!({"id": id, "contextId": thread, "historyLength": 11});
    assert_eq!(call(&mut lab, "/a2a/asks", "tasks/get", &params).code(), -32602);
    // Unlike the platform, cancel works here.
    let params = json!({"id": compound, "contextId": thread});
    let task = call(&mut lab, "/a2a/asks", "tasks/cancel", &params).result();
    assert_eq!(task["status"]["state"], "canceled");
    let reply = call(&mut lab, "/a2a/asks", "tasks/cancel", &params);
    assert_eq!((reply.status, reply.code()), (400, -32002));
}

#[test]
fn langsmith_resumes_by_text_and_by_data_under_a_compound_id() {
    let mut lab = lab();
    for part in [
        json!({"kind": "text", "text": "done"}),
        json!({"kind": "data", "data": {"resume": [{"id": "i-1", "value": 7}]}}),
    ] {
        let result = call(&mut lab, "/a2a/asks", "message/send", &V03.params(say("hi"))).result();
        assert_eq!(result["status"]["state"], "input-required");
        let (id, thread) = (result["id"].as_str().unwrap(), result["contextId"].as_str().unwrap());
        let compound = format!("{thread}:{id}");
        let is_text = part["kind"] == "text";
        let message = json!({"role": "user", "messageId": "m2", "contextId": thread,
            "taskId": compound, "parts": [part]});
        let result =
            call(&mut lab, "/a2a/asks", "message/send", &json!({"message": message})).result();
        assert_eq!(result["id"], id);
        let state = if is_text { "completed" } else { "input-required" };
        assert_eq!(result["status"]["state"], state, "the data reached the agent, which asked on");
        let history = result["history"].as_array().unwrap();
        let sent = history.iter().find(|message| message["messageId"] == "m2").unwrap();
        assert_eq!(sent["parts"][0], part);
    }
}

#[test]
fn langsmith_accepts_files_and_returns_400_for_errors() {
    let mut lab = lab();
    for part in [
        json!({"kind": "file", "file": {"bytes": "AAAA"}}),
        json!({"kind": "file", "file": {"uri": "http://a"}}),
    ] {
        let mut params = V03.params(say("hi"));
        params["message"]["parts"] = json!([part]);
        let result = call(&mut lab, "/a2a/echo", "message/send", &params).result();
        assert_eq!(result["history"][0]["parts"][0], part);
    }
    let reply = lab.ask(&post("/a2a/echo", &[], "{"));
    assert_eq!((reply.status, reply.code()), (400, -32700));
    let reply = lab.ask(&post("/a2a/echo", &[], r#"{"jsonrpc":"2.0","id":"x"}"#));
    assert_eq!((reply.status, reply.code(), &reply.json()["id"]), (400, -32600, &json!("x")));
    // `assistant_id` selects the card.
    let card = lab.ask(&get("/.well-known/agent-card.json?assistant_id=asks")).json();
    assert_eq!(card["url"], "http://a.example/a2a/asks");
    let interface = &card["supportedInterfaces"][0];
    assert_eq!(
        (&interface["protocolVersion"], &interface["url"]),
        (&json!("1.0"), &json!("http://a.example/a2a/asks"))
    );
}

#[test]
fn langsmith_answers_methods_of_1_0_in_the_format_of_1_0() {
    let mut lab = lab();
    let result = call(&mut lab, "/a2a/asks", "SendMessage", &V1.params(say("hi"))).result();
    let task = &result["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{result}");
    let id = task["id"].clone();
    let got = call(&mut lab, "/a2a/asks", "GetTask", &json!({"id": id})).result();
    assert_eq!((&got["id"], &got["status"]["state"]), (&id, &task["status"]["state"]));
    // The task is the same by either method.
    let old = call(&mut lab, "/a2a/asks", "tasks/get", &json!({"id": id})).result();
    assert_eq!((&old["kind"], &old["status"]["state"]), (&json!("task"), &json!("input-required")));
    let page = call(&mut lab, "/a2a/asks", "ListTasks", &json!({})).result();
    assert_eq!(page["tasks"][0]["id"], id);
    let canceled = call(&mut lab, "/a2a/asks", "CancelTask", &json!({"id": id})).result();
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    let peer = open(&mut lab, "/a2a/echo", "SendStreamingMessage", &V1.params(say("stream:3")));
    let events = lab.reply(peer).events();
    assert!(events[0].result()["task"].is_object());
    assert!(events[1].result()["statusUpdate"].is_object());
    // Its errors have HTTP status 200; those of 0.3 have their own statuses.
    for (method, params, code) in [
        ("GetTask", json!({"id": "none"}), -32001),
        ("SendMessage", json!({}), -32602),
        ("SubscribeToTask", json!({"id": id}), -32601),
        ("GetExtendedAgentCard", json!({}), -32004),
    ] {
        let reply = call(&mut lab, "/a2a/asks", method, &params);
        assert_eq!((reply.status, reply.code()), (200, code), "{method}: {}", reply.text());
    }
    let reply = call(&mut lab, "/a2a/asks", "tasks/get", &json!({"id": "none"}));
    assert_eq!((reply.status, reply.code()), (400, -32001));
}

/// Answers of langgraph-api 0.16.7 (`langgraph dev`) to calls of both families: our readers parse
/// the calls as that server does, and our client parses its answers.
#[cfg(feature = "client")]
#[test]
fn recorded_langgraph_calls_and_answers_are_parsed() {
    use peregrine::client::format::explain;

    let path = "tests/data/langsmith/langgraph-api-0.16.7.json";
    let text = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let recorded: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut read = 0;
    for exchange in &recorded {
        let name = &exchange["name"];
        let body: Value = serde_json::from_str(exchange["response"]["body"].as_str().unwrap())
            .unwrap_or_default();
        let Some(method) = exchange["request"]["body"]["method"].as_str() else { continue };
        let version = if method.contains('/') { "0.3" } else { "1.0" };
        let kind = match () {
            () if body.get("result").is_some() => "result",
            () if body["error"]["code"].is_i64() => "fault",
            () => continue,
        };
        let operation = match method {
            "tasks/get" | "GetTask" => "GetTask",
            "tasks/cancel" | "CancelTask" => "CancelTask",
            "ListTasks" | "GetExtendedAgentCard" => method,
            _ => "SendMessage",
        };
        let payload = body.get("result").unwrap_or(&body["error"]).to_string();
        let explanation = explain(&format!("{kind} {operation} {version}"), payload.as_bytes());
        assert!(!explanation.starts_with("{\"error\":{\"name\""), "{name}: {explanation}");
        read += 1;
        let is_foreign = ["no such agent", "push", "subscribe", "resubscribe", "unknown"];
        if exchange["request"]["params_are_ours"] == true
            && !is_foreign.iter().any(|word| name.as_str().unwrap_or_default().contains(word))
        {
            let mut lab = lab();
            let params = &exchange["request"]["body"]["params"];
            let answer = call(&mut lab, "/a2a/echo", method, params).json();
            assert_eq!(answer.get("result").is_some(), kind == "result", "{name}: {answer}");
        }
    }
    assert!(read > 30, "{read}");
}

#[test]
fn langsmith_streams_0_3_events() {
    let mut lab = lab();
    let peer = open(&mut lab, "/a2a/echo", "message/stream", &V03.params(say("stream:3")));
    let events = lab.reply(peer).events();
    let kinds: Vec<_> = events.iter().map(|event| &event.result()["kind"]).collect();
    assert_eq!(kinds, ["task", "status-update", "artifact-update", "status-update"]);
    assert_eq!(events[3].result()["final"], true);
}

// --- evo_ai

const EVO: &str = "/api/v1/a2a/asks";

fn evo_message(text: &str) -> Value {
    json!({"role": "user", "messageId": "m", "parts": [{"type": "text", "text": text}]})
}

#[test]
fn evo_ai_reads_context_from_params_and_sets_final_on_results() {
    let mut lab = lab();
    let params = json!({"contextId": "talk", "message": evo_message("hi")});
    let task = call(&mut lab, EVO, "message/send", &params).result();
    assert_eq!((&task["contextId"], task.get("kind")), (&json!("talk"), None), "{task}");
    assert_eq!(
        (&task["status"]["state"], &task["final"]),
        (&json!("input-required"), &json!(true))
    );
    assert_eq!(
        task["status"]["message"]["parts"][0],
        json!({"type": "text", "text": "What next?"})
    );
    let params = json!({"contextId": "talk", "taskId": task["id"], "message": evo_message("done")});
    let done = call(&mut lab, EVO, "message/send", &params).result();
    assert_eq!((&done["id"], &done["final"]), (&task["id"], &json!(true)));
    assert_eq!(done["status"]["state"], "completed");
    let read = call(&mut lab, EVO, "tasks/get", &json!({"taskId": task["id"]})).result();
    assert_eq!(read["artifacts"][0]["parts"][0]["text"], "result");
    // A legacy session is a context; a running task is not final.
    let mut params = json!({"sessionId": "old", "message": evo_message("slow")});
    params["configuration"] = json!({"blocking": false});
    let task = call(&mut lab, EVO, "message/send", &params).result();
    assert_eq!((&task["contextId"], &task["final"]), (&json!("old"), &json!(false)));
}

#[test]
fn evo_ai_stream_events_have_id_and_final() {
    let mut lab = lab();
    let params = json!({"message": evo_message("slow")});
    let peer = open(&mut lab, EVO, "message/stream", &params);
    lab.pass(1_000);
    let reply = lab.reply(peer);
    let events = reply.events();
    let states: Vec<_> = events.iter().map(|e| &e.result()["status"]["state"]).collect();
    assert_eq!(states, ["submitted", "working", "completed"]);
    let finals: Vec<_> = events.iter().map(|e| &e.result()["final"]).collect();
    assert_eq!(finals, [&json!(false), &json!(false), &json!(true)]);
    for event in &events {
        assert!(event.result()["id"].is_string() && event.result().get("taskId").is_none());
    }
    assert_eq!(reply.field("cache-control"), Some("no-cache, no-transform"));
}

#[test]
fn evo_ai_files_are_plain_base64() {
    let mut lab = lab();
    let file = json!({"name": "a.bin", "mimeType": "application/x-a", "bytes": "AAEC"});
    let mut message = evo_message("");
    message["parts"] = json!([{"type": "file", "file": file}]);
    let params = json!({"message": message});
    let task = call(&mut lab, "/api/v1/a2a/echo", "message/send", &params).result();
    let part = &task["artifacts"][0]["parts"][0];
    assert_eq!(part, &json!({"type": "file", "file": file}));
    let mut wrong = params;
    wrong["message"]["parts"][0]["file"]["bytes"] = json!("data:text/plain;base64,AAEC");
    let reply = call(&mut lab, "/api/v1/a2a/echo", "message/send", &wrong);
    assert_eq!(reply.code(), -32602);
}

#[test]
fn evo_ai_returns_its_own_error_codes() {
    let mut lab = lab();
    let done =
        call(&mut lab, EVO, "message/send", &json!({"message": evo_message("done")})).result();
    let to_done = json!({"message": evo_message("more"), "taskId": done["id"]});
    let push = json!({"config": {"url": "http://a", "headers": {"Authorization": "x"}}});
    for (method, params, code) in [
        ("message/send", json!({}), -32602),
        ("tasks/get", json!({"id": "x"}), -32000),
        ("tasks/cancel", json!({"id": done["id"]}), -32000),
        ("message/send", to_done, -32000),
        ("tasks/pushNotificationConfig/set", push, -32000),
        ("nothing", json!({}), -32601),
    ] {
        let reply = call(&mut lab, EVO, method, &params);
        assert_eq!((reply.status, reply.code()), (200, code), "{method}");
        let error = &reply.json()["error"];
        assert!(error["data"]["details"].is_string(), "{error}");
        assert_eq!(error["message"] == "Agent error", code == -32000, "{error}");
    }
    // Five states: other states are mapped to the nearest one.
    let task = call(&mut lab, EVO, "message/send", &json!({"message": evo_message("no")})).result();
    assert_eq!(task["status"]["state"], "failed");
}

// --- tutorial

#[test]
fn tutorial_returns_400_and_405_for_two_errors() {
    let mut lab = lab();
    for (body, status, code) in [
        (r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), 400, -32600),
        (rpc("no/such", &json!({})), 405, -32601),
        (rpc("message/send", &json!({})), 200, -32602),
        (rpc("tasks/get", &json!({"id": "x"})), 200, -32001),
        ("{".to_owned(), 200, -32700),
    ] {
        let reply = lab.ask(&post("/tutorial", &[], &body));
        assert_eq!((reply.status, reply.code(), reply.closes()), (status, code, false), "{body}");
        // A batch has one status.
        if code != -32700 {
            let reply = lab.ask(&post("/tutorial", &[], &format!("[{body}]")));
            assert_eq!((reply.status, &reply.json()[0]["error"]["code"]), (200, &json!(code)));
        }
    }
}

#[test]
fn tutorial_writes_both_key_styles_and_generates_message_ids() {
    let mut lab = lab();
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "ping"}]});
    let answer = call(&mut lab, "/tutorial", "message/send", &json!({"message": message})).result();
    assert_eq!((&answer["kind"], &answer["role"]), (&json!("message"), &json!("agent")));
    assert!(answer["messageId"].is_string() && answer["messageId"] == answer["message_id"]);
    let part = json!({"kind": "text", "type": "text", "text": "pong"});
    assert_eq!(answer["parts"][0], part);
    // Two messages without an id are two messages.
    let mut ids = ["hi", "hi"].map(|text| {
        let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        let params = json!({"message": message});
        let task = call(&mut lab, "/tutorial", "message/send", &params).result();
        task["history"][0]["messageId"].as_str().unwrap().to_owned()
    });
    ids.sort();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 36), "{ids:?}");
}

#[test]
fn task_subscribe_works_in_tutorial_and_standard_dialect() {
    for path in ["/tutorial", "/"] {
        let mut lab = lab();
        let mut params = V03.params(say("hold:1000:3"));
        params["configuration"]["blocking"] = json!(false);
        let task = call(&mut lab, path, "message/send", &params).result();
        let peer = open(&mut lab, path, "task/subscribe", &json!({"id": task["id"]}));
        lab.pass(1_000);
        let events = lab.reply(peer).events();
        let kinds: Vec<_> = events.iter().map(|event| &event.result()["kind"]).collect();
        assert_eq!(kinds, ["task", "status-update", "artifact-update", "status-update"], "{path}");
        assert_eq!(
            call(&mut lab, path, "task/subscribe", &json!({"id": task["id"]})).code(),
            -32004
        );
    }
}

// --- a2a_rust

#[test]
fn a2a_rust_answers_notifications_with_204() {
    let mut lab = lab();
    let notify = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
    };
    for (body, total) in [
        (notify(V1.send(), V1.params(say("hi"))), 1),
        // A streaming notification still starts its task.
        (notify(V1.stream(), V1.params(say("hi"))), 2),
        (notify(V1.send(), json!({})), 2),
        (notify("NoSuch", json!({})), 2),
    ] {
        let reply = lab.ask(&post("/a2a_rust", &[], &body));
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{body}");
        assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], total, "{body}");
    }
    // An invalid request is not a notification.
    let reply = lab.ask(&post("/a2a_rust", &[], r#"{"jsonrpc":"2.0"}"#));
    assert_eq!((reply.status, reply.code()), (200, -32600));
}

#[test]
fn a2a_rust_serves_tenants_and_echoes_any_rpc_id() {
    let mut lab = lab();
    for path in ["/tenants/t-1", "/tenants/t-1/", "/a2a_rust", "/a2a_rust/tenants/t-2"] {
        for id in ["0", "1.5", "null", "\"x\""] {
            let body = rpc_id(id, V1.send(), &V1.params(say("hi")));
            let reply = lab.ask(&post(path, &[], &body));
            assert!(
                reply.text().starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)),
                "{path}"
            );
            assert_eq!(text_of(&reply.result()["task"]["artifacts"][0]), "hi");
        }
    }
    let peer = open(&mut lab, "/tenants/t-1", V1.stream(), &V1.params(say("stream:3")));
    assert_eq!(lab.reply(peer).events().len(), 4);
    assert_eq!(lab.ask(&post("/tenants/", &[], "{}")).status, 404);
}

#[test]
fn a2a_rust_batch_rejects_streaming_calls() {
    let mut lab = lab();
    let send = |id: &str, method: &str| rpc_id(id, method, &V1.params(say("hi")));
    let body = format!("[{},{}]", send("0", V1.send()), send("1", V1.stream()));
    let answers = lab.ask(&post("/a2a_rust", &[], &body)).json();
    assert!(answers[0]["result"]["task"].is_object());
    assert_eq!((&answers[1]["error"]["code"], &answers[1]["id"]), (&json!(-32600), &json!(1)));
}

#[test]
fn a2a_rust_rejects_bad_sizes_paths_and_types_by_status() {
    let mut lab = lab();
    let query = format!("/a2a_rust?{}", "q".repeat(4_097));
    assert_eq!(lab.ask(&post(&query, &[], "{}")).status, 414);
    assert_eq!(lab.ask(&post("/a2a_rust/%2E%2E", &[], "{}")).status, 400);
    let large = "POST /a2a_rust HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n";
    assert_eq!(lab.ask(large.as_bytes()).status, 413);
    let body = rpc("ListTasks", &Value::Null);
    for (media, status) in [
        ("application/json", 200),
        ("application/a2a+json", 200),
        ("text/plain", 415),
        ("application/xml", 415),
    ] {
        let reply = lab.ask(&post("/a2a_rust", &[("Content-Type", media)], &body));
        assert_eq!((reply.status, reply.closes()), (status, false), "{media}");
    }
}

// --- rabbithole

#[test]
fn rabbithole_send_waits_and_returns_a_0_1_task() {
    let mut lab = lab();
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "hold:1000:1"}]});
    let params = json!({"id": "t-1", "sessionId": "s-1", "message": message, "historyLength": 1});
    let peer = open(&mut lab, "/rabbithole", "tasks/send", &params);
    assert!(lab.received(peer).is_empty());
    lab.pass(1_000);
    let task = lab.reply(peer).result();
    assert_eq!((&task["id"], &task["sessionId"]), (&json!("t-1"), &json!("s-1")));
    assert_eq!(task["status"]["state"], "completed");
    assert_eq!(task["history"], json!([message]), "a message of 0.1 has no id");
    for (method, params, code) in [
        ("tasks/get", json!({"id": "nowhere"}), -32001),
        ("tasks/cancel", json!({"id": "t-1"}), -32002),
        ("tasks/send", json!({"id": "t-1", "message": message}), -32009),
        ("tasks/send", json!({"message": message}), -32602),
    ] {
        assert_eq!(call(&mut lab, "/rabbithole", method, &params).code(), code, "{method}");
    }
    // A direct message becomes a completed task with that text.
    let ping = json!({"role": "user", "parts": [{"type": "text", "text": "ping"}]});
    let params = json!({"id": "t-2", "message": ping});
    let task = call(&mut lab, "/rabbithole", "tasks/send", &params).result();
    assert_eq!((&task["id"], &task["status"]["state"]), (&json!("t-2"), &json!("completed")));
    assert_eq!(text_of(&task["status"]["message"]), "pong");
}

#[test]
fn rabbithole_streams_status_and_artifact_events_only() {
    let mut lab = lab();
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "stream:4"}]});
    let params = json!({"id": "t-1", "message": message});
    let peer = open(&mut lab, "/rabbithole", "tasks/sendSubscribe", &params);
    let events = lab.reply(peer).events();
    for (index, event) in events.iter().enumerate() {
        let result = event.result();
        assert_eq!(result["id"], "t-1");
        assert!(result.get("status").is_some() != result.get("artifact").is_some(), "{result}");
        let last = index + 1 == events.len();
        assert_eq!(result["final"] == true, last, "{result}");
    }
    assert_eq!(events.len(), 5);
    assert_eq!(events[3].result()["artifact"]["append"], true);
}

// --- fasta2a

/// Its client reads only the lines of a stream, whatever the request was.
#[test]
fn fasta2a_stream_error_is_sent_as_a_stream_event() {
    let mut lab = lab();
    let unknown = json!({"id": "nowhere"});
    let mut message = V03.params(say("hi"));
    message["message"]["taskId"] = json!("nowhere");
    for (method, params) in [("tasks/resubscribe", &unknown), ("message/stream", &message)] {
        let reply = lab.ask(&post("/fasta2a", &[("Accept", "*/*")], &rpc(method, params)));
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("text/event-stream")));
        let events = reply.events();
        assert_eq!(events.len(), 1, "{method}");
        let error = &events[0].data["error"];
        let expected = (&json!(-32001), &json!("Task not found"));
        assert_eq!((&error["code"], &error["message"]), expected, "{method}");
    }
    // In 1.0 it is an ordinary error, as is each refusal of another call.
    for method in ["SubscribeToTask", "tasks/get"] {
        assert_eq!(call(&mut lab, "/fasta2a", method, &unknown).code(), -32001, "{method}");
    }
}

#[test]
fn fasta2a_unreadable_call_gets_an_error_in_its_format() {
    let mut lab = lab();
    for body in ["{", "[]", "7"] {
        let error = lab.ask(&post("/fasta2a", &[], body)).json()["error"].take();
        assert!(error["data"]["details"].is_string(), "{body}: {error}");
    }
    // The standard dialect answers as 1.0, with a list of details.
    let error = lab.ask(&post("/", &[], "{")).json()["error"].take();
    assert!(error["data"][0]["reason"].is_string(), "{error}");
}

#[test]
fn fasta2a_get_task_accepts_a_null_rpc_id() {
    let mut lab = lab();
    let task = call(&mut lab, "/fasta2a", "message/send", &V03.params(say("hi"))).result();
    assert_eq!(task["task"]["status"]["state"], "completed");
    assert_eq!(task["task"]["artifacts"][0]["parts"], json!([{"text": "hi"}]));
    let params = json!({"id": task["task"]["id"]});
    let reply = lab.ask(&post("/fasta2a/", &[], &rpc_id("null", "tasks/get", &params)));
    assert_eq!((&reply.json()["id"], &reply.result()), (&Value::Null, &task["task"]));
}

#[test]
fn fasta2a_card_is_1_0_with_media_types_on_skills() {
    for form in [CardForm::Hybrid, CardForm::V1, CardForm::V03] {
        let mounts =
            vec![Mount { path: "/f".to_owned(), dialect: "fasta2a".to_owned(), agent: None }];
        let mut lab = Lab::new(Setup { mounts, card: form, ..Setup::default() });
        let card = lab.ask(&get("/f/.well-known/agent-card.json")).json();
        let rpc = json!({"url": "http://a.example/f", "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0"});
        assert_eq!(card["supportedInterfaces"], json!([rpc]), "{form:?}");
        // The card has no fields of 0.3: clients of 0.3 could not read the answers.
        assert!(card.get("url").is_none() && card.get("protocolVersion").is_none(), "{card}");
        let skill = &card["skills"][0];
        assert_eq!(skill["inputModes"], card["defaultInputModes"]);
        assert_eq!(skill["outputModes"], card["defaultOutputModes"]);
    }
}

// --- side by side

#[test]
fn tasks_of_platform_dialects_are_readable_in_1_0() {
    let mut lab = lab();
    let made = [
        ("/a2a/echo", "message/send", V03.params(say("hi"))),
        ("/api/v1/a2a/echo", "message/send", json!({"message": evo_message("hi")})),
        ("/tutorial", "message/send", V03.params(say("hi"))),
        ("/fasta2a", "message/send", V03.params(say("hi"))),
        // A tenant with the name of an agent is that agent's own space.
        ("/tenants/echo", "SendMessage", V1.params(say("hi"))),
        ("/rabbithole", "tasks/send", json!({"id": "mine", "message": evo_message("hi")})),
    ];
    for (path, method, params) in made {
        let result = call(&mut lab, path, method, &params).result();
        let id = result.get("task").unwrap_or(&result)["id"].clone();
        let task = lab.result("GetTask", &json!({"id": id}));
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{path}");
        assert_eq!(text_of(&task["artifacts"][0]), "hi", "{path}");
    }
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 6);
}

/// `route` treats a path that begins with a dot as a well-known path.
#[test]
fn dialect_path_prefixes_do_not_start_with_a_dot() {
    let all_routes = dialect::ALL.iter().map(|dialect| &dialect.routes);
    for prefix in all_routes.flat_map(|routes| routes.by_name.into_iter().chain(routes.tenants)) {
        assert!(!prefix.starts_with("/."), "{prefix}");
    }
}
