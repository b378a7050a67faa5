//! Agents in the field: a deviation from A2A is read where its meaning is plain, and named where it
//! is not.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::{
    fake::{Fake, ReceivedRequest, card, ok, status},
    run::User,
    support::binary::Binary,
};

const CARD: &str = "/.well-known/agent-card.json";

pub fn task(state: &str) -> Value {
    json!({ "id": "t-1", "contextId": "c-1", "status": { "state": format!("TASK_STATE_{state}") } })
}

pub fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "a-1", "role": "ROLE_AGENT", "parts": [{ "text": text }] } })
}

/// An agent that answers its calls so; its card has these additional members.
pub fn agent(
    more: Value,
    answer: impl Fn(&ReceivedRequest, usize) -> Vec<u8> + Send + 'static,
) -> Fake {
    Fake::start(move |request, number, url| match request.method.as_str() {
        "GET" => ok("application/json", &card(&format!("{url}/rpc"), &more)),
        _ => answer(request, number),
    })
}

pub fn streaming() -> Value {
    json!({ "capabilities": { "streaming": true } })
}

/// An agent of 0.3 with an interface of any version.
pub fn old_card(url: &str, version: &str, streams: bool) -> String {
    json!({
        "name": "old", "version": "1", "url": format!("{url}/rpc"), "protocolVersion": version,
        "capabilities": { "streaming": streams }, "skills": [],
    })
    .to_string()
}

/// The events of a stream that ends normally.
pub fn stream(events: &[String]) -> Vec<u8> {
    ok("text/event-stream", &events.concat())
}

pub fn event(request: &ReceivedRequest, result: &Value) -> String {
    let id = &request.body["id"];
    format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

pub fn status_update(state: &str) -> Value {
    let status = json!({ "state": format!("TASK_STATE_{state}") });
    json!({ "statusUpdate": { "taskId": "t-1", "contextId": "c-1", "status": status } })
}

#[test]
fn keep_alive_events_are_skipped() {
    for ping in [
        "event: ping\ndata: {}\n\n",
        "event: heartbeat\ndata: {\"status\":\"ok\"}\n\n",
        "data:\n\n",
        "data: [DONE]\n\n",
        "data: ping\n\n",
        "data: {\"type\":\"keep-alive\"}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":null,\"result\":null}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"ping\"}\n\n",
    ] {
        for at in 0..3 {
            let fake = agent(streaming(), move |request, _| {
                let mut events = vec![
                    event(request, &json!({ "task": task("WORKING") })),
                    event(request, &status_update("COMPLETED")),
                ];
                events.insert(at, ping.to_owned());
                stream(&events)
            });
            let output = User::of(&fake.url).ok(&["send", "hi", "--stream", "-o", "json"]);
            assert_eq!((output.lines().len(), &*output.err), (2, ""), "{ping:?} at {at}");
        }
    }
}

#[test]
fn unknown_stream_kinds_are_skipped_with_a_warning() {
    let fake = agent(streaming(), |request, _| {
        let unknown = event(request, &json!({ "progressUpdate": { "percent": 7 } }));
        stream(&[
            event(request, &json!({ "task": task("WORKING") })),
            unknown.clone(),
            unknown,
            event(request, &status_update("COMPLETED")),
        ])
    });
    let output = User::of(&fake.url).ok(&["send", "hi", "--stream", "-o", "json"]);
    assert_eq!(output.lines().len(), 2, "{output:?}");
    assert_eq!(output.err.matches("progressUpdate").count(), 1, "{output:?}");
}

#[test]
fn agent_of_0_1_gets_a_client_chosen_task_id() {
    for (streams, words) in [
        (false, &["send", "hi"][..]),
        (false, &["send", "hi", "--stream"]),
        (true, &["send", "hi"]),
        (true, &["send", "hi", "--stream"]),
    ] {
        let fake = Fake::start(move |request, _, url| {
            let id = &request.body["params"]["id"];
            match request.rpc() {
                "" => ok("application/json", &old_card(url, "0.1", streams)),
                "tasks/sendSubscribe" => {
                    let artifact =
                        json!({ "index": 0, "parts": [{ "type": "text", "text": "fine" }] });
                    let done =
                        json!({ "id": id, "status": { "state": "completed" }, "final": true });
                    stream(&[
                        event(request, &json!({ "id": id, "artifact": artifact })),
                        event(request, &done),
                    ])
                }
                "tasks/send" => {
                    request.result(&json!({ "id": id, "status": { "state": "working" } }))
                }
                _ => request.result(&json!({
                    "id": id, "status": { "state": "completed" },
                    "artifacts": [{ "index": 0, "parts": [{ "type": "text", "text": "fine" }] }],
                })),
            }
        });
        let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", "0.1");
        let output = user.ok(words);
        assert!(output.out.contains("fine"), "{words:?}: {output:?}");
        let requests = fake.requests();
        let sent = requests.iter().find(|request| request.rpc().starts_with("tasks/send")).unwrap();
        assert_eq!(sent.body["params"]["id"].as_str().unwrap().len(), 36, "{sent:?}");
    }
}

#[test]
fn authentication_marks_a_0_1_card_only_in_agent_json() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => {
            let mut card: Value = serde_json::from_str(&old_card(url, "", false)).unwrap();
            card["authentication"] = json!({ "schemes": [] });
            ok("application/json", &card.to_string())
        }
        _ => request.result(&json!({
            "kind": "message", "messageId": "m", "role": "agent",
            "parts": [{ "kind": "text", "text": "fine" }],
        })),
    });
    let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", "0.3");
    assert!(user.ok(&["send", "hi"]).out.contains("fine"));
    assert_eq!(fake.requests().last().unwrap().rpc(), "message/send");
    // At the path of 0.1 and 0.2 it is a card.
    let error = User::of(&format!("{}/.well-known/agent.json", fake.url)).failure(
        &["send", "hi"],
        "VersionNotSupportedError",
        1,
    );
    assert!(error["message"].as_str().unwrap().contains("0.1"), "{error}");
}

#[test]
fn all_messages_of_a_0_3_stream_are_read() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => ok("application/json", &old_card(url, "0.3.0", true)),
        _ => {
            let word = |text: &str| {
                let parts = json!([{ "kind": "text", "text": text }]);
                let answer =
                    json!({ "kind": "message", "messageId": "m", "role": "agent", "parts": parts });
                event(request, &answer)
            };
            stream(&[word("one "), word("two "), word("three")])
        }
    });
    let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", "0.3");
    let output = user.ok(&["send", "hi"]);
    for word in ["one", "two", "three"] {
        assert!(output.out.contains(word), "{output:?}");
    }
    let parts = user.json(&["send", "hi"])["message"]["parts"].clone();
    assert_eq!(parts, json!([{ "text": "one " }, { "text": "two " }, { "text": "three" }]));
    let lines = user.ok(&["send", "hi", "--stream", "-o", "json"]).lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn several_messages_in_a_1_0_stream_give_a_warning() {
    let fake = agent(streaming(), |request, _| {
        stream(&[event(request, &message("one")), event(request, &message("two"))])
    });
    let output = User::of(&fake.url).ok(&["send", "hi"]);
    assert!(
        output.out.contains("one") && output.err.contains("more than one message"),
        "{output:?}"
    );
    let empty = agent(streaming(), |request, _| {
        let nothing = json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [] } });
        stream(&[event(request, &nothing), event(request, &message("two"))])
    });
    let error = User::of(&empty.url).failure(&["send", "hi"], "InvalidAgentResponseError", 1);
    assert!(error["message"].as_str().unwrap().contains("message.parts"), "{error}");
}

#[test]
fn unknown_parts_are_printed_and_unknown_states_are_polled() {
    let fake = agent(json!({}), |request, number| {
        let parts =
            json!([{ "text": "fine" }, { "table": { "rows": 2 } }, { "kind": "chart", "x": 1 }]);
        let mut answer = task(if number < 3 { "PONDERING" } else { "COMPLETED" });
        answer["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
        answer["novel"] = json!([1]);
        match request.rpc() {
            "SendMessage" => request.result(&json!({ "task": answer })),
            _ => request.result(&answer),
        }
    });
    let words = ["send", "hi", "--poll-interval", "10ms"];
    let output = User::of(&fake.url).ok(&words);
    for part in ["fine", "Unknown part: table", "Unknown part: chart"] {
        assert!(output.out.contains(part), "{output:?}");
    }
    let output = User::of(&fake.url).json(&words);
    assert_eq!(output["task"]["artifacts"][0]["parts"][1], json!({ "table": { "rows": 2 } }));
}

#[test]
fn redirect_is_followed_only_for_307_308_within_the_origin() {
    for (line, to, is_followed) in [
        ("307 Temporary Redirect", "/rpc/", true),
        ("308 Permanent Redirect", "rpc/", true),
        ("302 Found", "/rpc/", false),
        ("307 Temporary Redirect", "https://agents.example/rpc", false),
        ("302 Found", "https://agents.example/rpc", false),
    ] {
        let fake = agent(json!({}), move |request, _| match request.target.as_str() {
            "/rpc/" => request.result(&message("fine")),
            _ => {
                let head = format!("HTTP/1.1 {line}\r\nLocation: {to}\r\n");
                format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
            }
        });
        let output = User::of(&fake.url).run(&["send", "hi"]);
        assert_eq!(output.code == Some(0), is_followed, "{line} {to}: {output:?}");
        let is_named =
            output.err.contains("https://agents.example/rpc") || output.err.contains("/rpc/");
        assert!(is_followed || is_named, "{line} {to}: {output:?}");
    }
}

#[test]
fn next_interface_is_called_if_the_first_is_unreachable() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for streams in [false, true] {
        let fake = Fake::start(move |request, _, url| match request.target.as_str() {
            CARD => {
                let at = |url: &str, binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
                let all = [
                    at(&format!("http://{dead}/rpc"), "JSONRPC"),
                    at(&format!("http://{dead}"), "GRPC"),
                    at(&format!("{url}/rest"), "HTTP+JSON"),
                ];
                let capabilities = json!({ "streaming": streams });
                let more = json!({ "supportedInterfaces": all, "capabilities": capabilities });
                ok("application/json", &card(url, &more))
            }
            "/rest/message:stream" => stream(&[format!("data: {}\n\n", message("fine"))]),
            _ => ok("application/json", &message("fine").to_string()),
        });
        let output = User::of(&fake.url).ok(&["send", "hi"]);
        assert!(output.out.contains("fine"), "{output:?}");
        assert!(output.err.contains("/rest") && output.err.contains("instead"), "{output:?}");
        // An explicit binding is not replaced.
        let words = ["send", "hi", "--transport", "jsonrpc"];
        User::of(&fake.url).failure(&words, "A2ACLI_ERR_UNREACHABLE", 3);
    }
}

#[test]
fn card_search_continues_after_a_response_without_a_card() {
    for line in ["403 Forbidden", "404 Not Found", "405 Method Not Allowed", "410 Gone", "200 OK"] {
        let fake = Fake::start(move |request, _, url| match request.target.as_str() {
            CARD => status(line, "text/html", "<h1>hello</h1>"),
            "/.well-known/agent.json" => ok("application/json", &card(url, &json!({}))),
            _ => request.result(&message("fine")),
        });
        assert!(User::of(&fake.url).ok(&["send", "hi"]).out.contains("fine"), "{line}");
        let none = Fake::start(move |_, _, _| status(line, "text/html", "<h1>hello</h1>"));
        let output = User::of(&none.url).run(&["send", "hi"]);
        assert!(output.err.contains(&line[..3]) && output.err.contains("text/html"), "{output:?}");
    }
    let fake = Fake::start(|_, _, _| status("401 Unauthorized", "text/plain", ""));
    assert_eq!(User::of(&fake.url).run(&["send", "hi"]).code, Some(4));
    assert_eq!(fake.requests().len(), 1, "{:?}", fake.requests());
}

#[test]
fn card_request_is_retried_after_503() {
    let fake = Fake::start(|request, number, url| match (request.method.as_str(), number) {
        ("GET", 0) => {
            let head = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n";
            format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
        }
        ("GET", _) => ok("application/json", &card(url, &json!({}))),
        _ => request.result(&message("fine")),
    });
    assert!(User::of(&fake.url).ok(&["send", "hi"]).out.contains("fine"));
}

#[test]
fn answer_without_reason_phrase_and_id_is_accepted() {
    for id in ["", "\"id\":null,"] {
        let fake = agent(json!({}), move |_, _| {
            let body = format!("{{\"jsonrpc\":\"2.0\",{id}\"result\":{}}}", message("fine"));
            let answer = String::from_utf8(ok("application/json", &body)).unwrap();
            answer.replacen("200 OK", "200", 1).into_bytes()
        });
        assert!(User::of(&fake.url).ok(&["send", "hi"]).out.contains("fine"), "{id:?}");
    }
    let other = agent(json!({}), |_, _| {
        ok(
            "application/json",
            &format!("{{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}}", message("fine")),
        )
    });
    User::of(&other.url).failure(&["send", "hi"], "InvalidAgentResponseError", 1);
}

#[test]
fn byte_order_marks_are_skipped() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => ok("application/json", &format!("\u{feff}{}", card(url, &json!({})))),
        _ => {
            let result = request.result(&message("fine"));
            let result = String::from_utf8(result).unwrap();
            let body = result.split_once("\r\n\r\n").unwrap().1;
            ok("application/json", &format!("\u{feff}{body}"))
        }
    });
    let user = User::of(&fake.url);
    assert_eq!(user.json(&["send", "hi"]), message("fine"));
    let output = user.run_with(&["send", "--data", "-"], "\u{feff}{\"n\":1}");
    assert_eq!(output.code, Some(0), "{output:?}");
    let sent = fake.requests().last().unwrap().body["params"]["message"]["parts"].clone();
    assert_eq!(sent, json!([{ "data": { "n": 1 } }]));
    let lint = user.run(&["card", "lint", "-o", "json"]).out;
    assert!(lint.contains("byte order mark"), "{lint}");
}

#[test]
fn empty_values_of_serializers_are_read_as_absent() {
    for (members, is_read) in [
        (json!({ "metadata": [], "artifacts": {}, "history": {} }), true),
        (json!({ "status": { "state": "TASK_STATE_COMPLETED", "message": {} } }), true),
        (json!({ "status": { "state": "TASK_STATE_COMPLETED", "message": "" } }), true),
        (
            json!({ "status": { "state": "TASK_STATE_COMPLETED", "message": { "parts": [] } } }),
            true,
        ),
        (json!({ "artifacts": [{ "parts": [{ "text": "x", "raw": null, "url": "" }] }] }), true),
        (json!({ "artifacts": [{ "parts": {} }, { "parts": [{ "raw": "AA\nA=\n" }] }] }), true),
        (json!({ "metadata": [1] }), false),
        (json!({ "artifacts": { "a": 1 } }), false),
    ] {
        let shown = members.to_string();
        let fake = agent(json!({}), move |request, _| {
            let mut answer = task("COMPLETED");
            for (name, value) in members.as_object().unwrap() {
                answer[name] = value.clone();
            }
            request.result(&json!({ "task": answer }))
        });
        let output = User::of(&fake.url).run(&["send", "hi"]);
        assert_eq!(output.code == Some(0), is_read, "{shown}: {output:?}");
    }
}

#[test]
fn version_variants_and_relative_urls_are_accepted() {
    for (version, path) in [("v1.0", "/rpc"), ("v1", "rpc"), ("1", "./rpc"), ("1.0.0", "../rpc")] {
        let fake = Fake::start(move |request, _, url| match request.method.as_str() {
            "GET" => {
                let one = json!({ "url": path, "protocolBinding": "JSONRPC", "protocolVersion": version });
                ok("application/json", &card(url, &json!({ "supportedInterfaces": [one] })))
            }
            _ => request.result(&message("fine")),
        });
        let user = User::of(&fake.url);
        assert!(user.ok(&["send", "hi"]).out.contains("fine"), "{version} {path}");
        let lint = user.run(&["card", "lint"]).out;
        assert!(lint.contains("a relative URL") && !lint.contains("cannot be called"), "{lint}");
    }
    let fake = agent(json!({}), |request, _| request.result(&message("fine")));
    let of = |path: &'static str, binding: &'static str| {
        Fake::start(move |_, _, url| {
            let one = json!({
                "url": format!("{url}{path}"), "protocolBinding": binding, "protocolVersion": "1.0",
            });
            ok("application/json", &card(url, &json!({ "supportedInterfaces": [one] })))
        })
    };
    for (path, binding) in [
        ("/v1/message:send", "HTTP+JSON"),
        ("/a/message:stream", "JSONRPC"),
        ("/.well-known/agent-card.json", "JSONRPC"),
    ] {
        let output = User::of(&of(path, binding).url).run(&["card", "lint"]).out;
        assert!(
            output.contains("the name of an operation") || output.contains("a card's"),
            "{path}: {output}"
        );
    }
    let output = User::of(&fake.url).run(&["card", "lint"]).out;
    assert!(!output.contains("operation's"), "{output}");
}

#[test]
fn refused_stream_falls_back_to_polling() {
    for line in ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"] {
        let fake = Fake::start(move |request, _, url| match request.target.as_str() {
            CARD => {
                let one =
                    json!({ "url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" });
                let mut more = streaming();
                more["supportedInterfaces"] = json!([one]);
                ok("application/json", &card(url, &more))
            }
            "/message:send" => {
                ok("application/json", &json!({ "task": task("WORKING") }).to_string())
            }
            "/tasks/t-1" => ok("application/json", &task("COMPLETED").to_string()),
            _ => status(line, "text/plain", "no"),
        });
        for words in [&["send", "hi"][..], &["send", "hi", "--stream"]] {
            let output = User::of(&fake.url).ok(words);
            assert!(output.out.contains("COMPLETED"), "{line}: {output:?}");
        }
    }
}

/// An error of the agent, by its code.
fn error(request: &ReceivedRequest, code: i64) -> Vec<u8> {
    let error = json!({ "code": code, "message": "try again" });
    let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
    ok("application/json", &body.to_string())
}

#[test]
fn wait_continues_after_a_temporary_error() {
    for bad in ["-32603", "-32001", "500"] {
        let fake = agent(json!({}), move |request, number| match request.rpc() {
            "SendMessage" => request.result(&json!({ "task": task("WORKING") })),
            _ if number > 3 => request.result(&task("COMPLETED")),
            _ if bad == "500" => status("500 Internal Server Error", "text/plain", "oops"),
            _ => error(request, bad.parse().unwrap()),
        });
        assert_eq!(User::of(&fake.url).ok(&["send", "hi"]).field("State"), "COMPLETED", "{bad}");
    }
}

#[test]
fn an_error_during_a_wait_names_the_task() {
    let fake = agent(json!({}), |request, _| match request.rpc() {
        "SendMessage" => request.result(&json!({ "task": task("WORKING") })),
        _ => error(request, -32602),
    });
    let output = User::of(&fake.url).run(&["send", "hi"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("task get") && output.err.contains("--wait t-1"), "{output:?}");
    let user = User::of(&fake.url);
    let failure = user.failure(&["send", "hi"], "InvalidParamsError", 1);
    assert!(failure["hint"].as_str().unwrap().contains("--wait t-1"), "{failure}");
    // A missing task is reported at once.
    let fake = agent(json!({}), |request, _| error(request, -32001));
    User::of(&fake.url).failure(&["task", "get", "t-9", "--wait"], "TaskNotFoundError", 1);
    assert_eq!(fake.requests().len(), 2);
}

/// A lone surrogate, as Python writes it.
const LONE: &str = r"lone \ud83d end \udc00";

/// A task with half a surrogate pair in every kind of text.
fn task_of_halves() -> String {
    format!(
        r#"{{"id":"t-1","contextId":"c-1","status":{{"state":"TASK_STATE_COMPLETED"}},"artifacts":[{{
        "artifactId":"a-1","name":"{LONE}","parts":[{{"text":"{LONE}"}},
        {{"data":{{"{LONE}":["{LONE}"]}}}}]}}],"metadata":{{"note":"{LONE}"}}}}"#
    )
}

fn answered(request: &ReceivedRequest, result: &str) -> Vec<u8> {
    let id = &request.body["id"];
    ok("application/json", &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

#[test]
fn lone_surrogates_stay_unchanged_in_json_output() {
    let wrapped = format!(r#"{{"task":{}}}"#, task_of_halves());
    let event = wrapped.replace('\n', " ");
    for is_streaming in [false, true] {
        let (wrapped, event) = (wrapped.clone(), event.clone());
        let more = json!({ "capabilities": { "streaming": is_streaming } });
        let fake = agent(more, move |request, _| match request.rpc() {
            "SendStreamingMessage" => {
                let id = &request.body["id"];
                let data = format!(r#"data: {{"jsonrpc":"2.0","id":{id},"result":{event}}}"#);
                stream(&[format!("{data}\n\n")])
            }
            "GetTask" => answered(request, &task_of_halves()),
            _ => answered(request, &wrapped),
        });
        let user = User::of(&fake.url);
        let output = user.ok(&["send", "hi", "-o", "json"]);
        assert_eq!(output.out.matches(LONE).count(), 5, "{output:?}");
        let output = user.ok(&["send", "hi"]);
        assert!(output.out.contains("lone \u{fffd} end \u{fffd}"), "{output:?}");
    }
    // Converted to 1.0, they are unchanged.
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => ok("application/json", &old_card(url, "0.3.0", false)),
        _ => {
            let task = task_of_halves().replace("TASK_STATE_COMPLETED", "completed");
            let task = task.replacen('{', r#"{"kind":"task","#, 1);
            let task = task.replace(r#"{"text""#, r#"{"kind":"text","text""#);
            answered(request, &task.replace(r#"{"data""#, r#"{"kind":"data","data""#))
        }
    });
    let words = ["send", "hi", "-o", "json", "--a2a-version", "0.3"];
    let output = User::of(&fake.url).ok(&words);
    assert_eq!(output.out.matches(LONE).count(), 5, "{output:?}");
    assert!(output.out.contains("TASK_STATE_COMPLETED"), "{output:?}");
}

#[test]
fn gateway_relays_lone_surrogates_except_over_grpc() {
    let wrapped = format!(r#"{{"task":{}}}"#, task_of_halves());
    let fake = agent(json!({}), move |request, _| match request.rpc() {
        "GetTask" => answered(request, &task_of_halves()),
        _ => answered(request, &wrapped),
    });
    let interfaces = "jsonrpc,http+json,websocket,grpc";
    let gateway_of = |fake: &Fake| {
        Binary::start(&["--agent", &format!("a2a:{}", fake.url), "--interfaces", interfaces])
    };
    let gateway = gateway_of(&fake);
    let user = User::of(&format!("http://{}", gateway.addr()));
    for binding in ["jsonrpc", "http+json", "websocket"] {
        let output = user.ok(&["send", "hi", "-o", "json", "--transport", binding]);
        // The metadata of a task belongs to its agent.
        assert!(output.out.matches(LONE).count() >= 4, "{output:?}");
    }
    // The error names what gRPC cannot carry, in an answer and in a stream.
    for more in [&[][..], &["--stream"]] {
        let words = [&["send", "hi", "--transport", "grpc"], more].concat();
        let output = user.run(&words);
        assert_ne!(output.code, Some(0), "{output:?}");
        assert!(
            output.err.contains("artifact") && output.err.contains(".name has half"),
            "{output:?}"
        );
    }
    // Other answers on the same connections are complete.
    user.ok(&["task", "list", "--transport", "grpc"]);
    // The same holds for a direct message, and for a stream that consists of one.
    let part = format!(r#"{{"messageId":"m","role":"ROLE_AGENT","parts":[{{"text":"{LONE}"}}]}}"#);
    let answer = format!(r#"{{"message":{part}}}"#);
    let fake = agent(json!({}), move |request, _| answered(request, &answer));
    let gateway = gateway_of(&fake);
    let user = User::of(&format!("http://{}", gateway.addr()));
    for more in [&[][..], &["--stream"]] {
        let output = user.run(&[&["send", "hi", "--transport", "grpc"], more].concat());
        assert!(output.err.contains("message.parts[0].text has half"), "{output:?}");
    }
}

#[test]
fn card_with_lone_surrogates_is_accepted() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => {
            let card = card(&format!("{url}/rpc"), &json!({ "description": "LONE" }));
            ok("application/json", &card.replace("LONE", LONE))
        }
        _ => request.result(&json!({ "task": task("COMPLETED") })),
    });
    User::of(&fake.url).ok(&["send", "hi"]);
}

#[test]
fn json_output_has_the_1_0_format_for_any_wrapped_answer() {
    let new = task("COMPLETED");
    let new_message = message("fine");
    let mut old = json!({ "id": "t-1", "contextId": "c-1", "status": { "state": "completed" } });
    old["kind"] = json!("task");
    let old_message = json!({
        "kind": "message", "messageId": "a-1", "role": "agent",
        "parts": [{ "kind": "text", "text": "fine" }],
    });
    let snake =
        json!({ "id": "t-1", "context_id": "c-1", "status": { "state": "TASK_STATE_COMPLETED" } });
    let all = [
        new.clone(),
        json!({ "task": new }),
        json!({ "kind": "task", "task": new }),
        old.clone(),
        json!({ "task": old }),
        json!({ "task": snake }),
        json!({ "result": { "task": new } }),
        json!({ "jsonrpc": "2.0", "id": "1", "result": old }),
        json!({ "root": { "result": new } }),
        json!({ "payload": { "task": new } }),
        new_message.clone(),
        new_message["message"].clone(),
        old_message.clone(),
        json!({ "message": old_message }),
        json!({ "result": new_message }),
    ];
    for version in ["1.0", "0.3"] {
        for (streams, result) in
            [false, true].into_iter().flat_map(|s| all.iter().map(move |r| (s, r)))
        {
            let answered = result.clone();
            let fake = Fake::start(move |request, _, url| match request.rpc() {
                "" if version == "0.3" => ok("application/json", &old_card(url, "0.3.0", streams)),
                "" => {
                    let more = json!({ "capabilities": { "streaming": streams } });
                    ok("application/json", &card(url, &more))
                }
                "SendStreamingMessage" | "message/stream" => stream(&[event(request, &answered)]),
                _ => request.result(&answered),
            });
            let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", version);
            let is_task = !result.to_string().contains("a-1");
            for words in [&["send", "hi"][..], &["send", "hi", "--stream"], &["task", "get", "t-1"]]
            {
                if words[0] == "task" && !is_task {
                    continue;
                }
                let output = user.json(words);
                match words[0] {
                    "task" => assert_eq!(output, new, "{version} {words:?} {result}"),
                    _ if is_task => {
                        assert_eq!(output, json!({ "task": new }), "{words:?} {result}")
                    }
                    _ => assert_eq!(output, new_message, "{version} {words:?} {result}"),
                }
            }
        }
    }
}
