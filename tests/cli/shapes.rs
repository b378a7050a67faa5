//! Agents with undocumented shapes: readable parts are printed completely and in the shape of 1.0.

use serde_json::{Value, json};

use crate::{
    fake::{Fake, ReceivedRequest, ok, status},
    foreign::{agent, event, old_card, status_update, stream, streaming, task},
    run::User,
};

fn refused(request: &ReceivedRequest, code: i64) -> Vec<u8> {
    let error = json!({ "code": code, "message": "no" });
    let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
    ok("application/json", &body.to_string())
}

fn chunk(text: &str, append: bool) -> Value {
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": text }] });
    let update =
        json!({ "taskId": "t-1", "contextId": "c-1", "append": append, "artifact": artifact });
    json!({ "artifactUpdate": update })
}

#[test]
fn task_is_assembled_from_stream_if_get_task_fails() {
    for code in [-32601, -32001] {
        let fake = agent(streaming(), move |request, _| match request.rpc() {
            "SendStreamingMessage" => stream(&[
                event(request, &json!({ "task": task("WORKING") })),
                event(request, &chunk("fi", false)),
                event(request, &chunk("ne", true)),
                event(request, &status_update("COMPLETED")),
            ]),
            _ => refused(request, code),
        });
        let user = User::of(&fake.url);
        let output = user.ok(&["send", "hi"]);
        assert!(
            output.out.contains("State: COMPLETED\n") && output.out.contains("fine"),
            "{output:?}"
        );
        assert!(output.err.contains("the task cannot be read"), "{output:?}");
        assert_eq!(user.ok(&["send", "-q", "hi"]).out, "fine\n");
        let parts = &user.json(&["send", "hi"])["task"]["artifacts"][0]["parts"];
        assert_eq!(*parts, json!([{ "text": "fi" }, { "text": "ne" }]));
    }
}

#[test]
fn unfinished_stream_with_failing_get_task_is_an_error() {
    let fake = agent(streaming(), |request, _| match request.rpc() {
        "SendStreamingMessage" => stream(&[event(request, &json!({ "task": task("WORKING") }))]),
        _ => refused(request, -32601),
    });
    let error = User::of(&fake.url).failure(&["send", "hi"], "MethodNotFoundError", 1);
    assert!(error["hint"].as_str().unwrap().contains("t-1"), "{error}");
}

#[test]
fn chat_falls_back_when_streaming_is_refused_or_fails() {
    let done = json!({
        "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "text": "fine" }] }],
    });
    let answer = done.clone();
    let without = agent(streaming(), move |request, _| match request.rpc() {
        "SendStreamingMessage" => status("404 Not Found", "text/plain", "no such page"),
        _ => request.result(&json!({ "task": answer })),
    });
    let failing = agent(streaming(), move |request, _| match request.rpc() {
        "SendStreamingMessage" => {
            let error = json!({ "code": -32603, "message": "restarted" });
            let last = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
            stream(&[
                event(request, &json!({ "task": task("WORKING") })),
                format!("data: {last}\n\n"),
            ])
        }
        _ => request.result(&done),
    });
    for fake in [without, failing] {
        let output = User::of(&fake.url).run_with(&["chat"], "one\ntwo\n");
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.out.matches("fine\n").count(), 2, "{output:?}");
    }
}

#[test]
fn json_output_normalizes_legacy_and_snake_case_shapes() {
    let part = json!({ "kind": "file", "file": { "bytes": "aGk=", "name": "h.txt" } });
    let old = json!({
        "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "completed" },
        "artifacts": [{ "artifactId": "a", "metadata": [], "parts": [part] }],
    });
    let snake = json!({
        "id": "t-1", "context_id": "c-1", "status": { "state": 3 },
        "artifacts": [{ "artifact_id": "a", "parts": [{ "raw": "aGk=\n", "filename": "h.txt" }] }],
    });
    let parts = json!([{ "raw": "aGk=", "filename": "h.txt" }]);
    for (sent, got) in [
        (old.clone(), old.clone()),
        (json!({ "task": old }), json!({ "task": old })),
        (json!({ "task": snake }), snake.clone()),
        (snake, old),
    ] {
        let fake = agent(json!({}), move |request, _| match request.rpc() {
            "SendMessage" => request.result(&sent),
            _ => request.result(&got),
        });
        let user = User::of(&fake.url);
        let task = user.json(&["task", "get", "t-1"]);
        for task in [&user.json(&["send", "hi"])["task"], &task] {
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
            assert_eq!(task["contextId"], "c-1", "{task}");
            assert_eq!(task["artifacts"][0]["parts"], parts, "{task}");
        }
    }
    let events = agent(streaming(), |request, _| {
        let done = json!({ "state": "completed" });
        let ids = json!({ "id": "t-1", "contextId": "c-1" });
        let mut first = ids.clone();
        (first["kind"], first["status"]) = (json!("task"), json!({ "state": "working" }));
        let last = json!({
            "kind": "status-update", "taskId": "t-1", "contextId": "c-1", "final": true,
            "status": done,
        });
        stream(&[event(request, &first), event(request, &last)])
    });
    let lines = User::of(&events.url).ok(&["send", "hi", "--stream", "-o", "json"]).lines();
    assert_eq!(lines[0]["task"]["status"]["state"], "TASK_STATE_WORKING", "{lines:?}");
    assert_eq!(lines[1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{lines:?}");
}

#[test]
fn send_accepts_card_with_empty_arrays_for_objects() {
    let fake = Fake::start(|request, _, url| match request.method.as_str() {
        "GET" => {
            let mut card: Value = serde_json::from_str(&old_card(url, "0.3.0", false)).unwrap();
            for name in ["capabilities", "securitySchemes", "security", "provider"] {
                card[name] = json!([]);
            }
            ok("application/json", &card.to_string())
        }
        _ => request.result(&json!({
            "kind": "message", "messageId": "m", "role": "agent", "metadata": [],
            "parts": [{ "kind": "text", "text": "fine", "metadata": [] }],
        })),
    });
    let user = User::of(&fake.url).with("A2ACLI_A2A_VERSION", "0.3");
    assert!(user.ok(&["send", "hi"]).out.contains("fine"));
    // It is still not a valid card.
    let output = user.run(&["card", "lint"]);
    assert!(output.out.contains("securitySchemes: an array"), "{output:?}");
}

#[test]
fn errors_from_faulty_agents_name_cause_or_cure() {
    let moved = agent(json!({}), |_, _| {
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.2:9/a2a\r\n\
          Content-Length: 0\r\nConnection: close\r\n\r\n"
            .to_vec()
    });
    let error = User::of(&moved.url).failure(&["send", "hi"], "A2ACLI_ERR_UNREACHABLE", 3);
    assert!(error["hint"].as_str().unwrap().ends_with("-a http://127.0.0.2:9/a2a"), "{error}");
    let bare = json!([{
        "url": "localhost:9/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0",
    }]);
    let bare = agent(json!({ "supportedInterfaces": bare }), |request, _| refused(request, -32601));
    let error = User::of(&bare.url).failure(&["send", "hi"], "A2ACLI_ERR_CARD_INVALID", 1);
    assert!(error["message"].as_str().unwrap().contains("http:// or https://"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("card lint"), "{error}");
    let empty = agent(json!({}), |_, _| status("202 Accepted", "application/json", ""));
    let error = User::of(&empty.url).failure(&["send", "hi"], "InvalidAgentResponseError", 1);
    assert!(error["message"].as_str().unwrap().contains("an empty body"), "{error}");
    let deaf = agent(streaming(), |request, _| refused(request, -32601));
    let words = ["task", "subscribe", "t-1"];
    let error = User::of(&deaf.url).failure(&words, "MethodNotFoundError", 1);
    assert!(error["hint"].as_str().unwrap().ends_with("--wait t-1"), "{error}");
}
