//! The script agent's step `parse` over a socket: how the client's readers treat valid and broken
//! payloads.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{run::User, support::binary::Binary};

const RULE: &str = "[[rule]]\ntext = \"parse \"\n[[rule.step]]\nparse = \"result\"\n";

/// A server with the reading agent, and a client of it.
struct Reader {
    _server: Binary,
    script: PathBuf,
    user: User,
}

impl Reader {
    fn start(name: &str) -> Reader {
        Reader::start_with(name, RULE)
    }

    fn start_with(name: &str, rules: &str) -> Reader {
        let file = format!("peregrine-parse-{name}-{}.toml", std::process::id());
        let script = std::env::temp_dir().join(file);
        fs::write(&script, rules).unwrap();
        let server = Binary::start(&["--agent", &format!("script:{}", script.display())]);
        let user = User::of(&format!("http://{}", server.addr()));
        Reader { _server: server, script, user }
    }

    /// The result of reading a text payload.
    fn read(&self, words: &str, payload: &str) -> Value {
        let text = format!("parse {words}");
        let message = self.user.json(&["send", &text, "--text", payload])["message"].clone();
        message["parts"][0]["data"].clone()
    }

    fn is(&self, words: &str, payload: &Value, expected: &Value) {
        assert_eq!(self.read(words, &payload.to_string()), *expected, "{words}: {payload}");
    }

    fn fails(&self, words: &str, payload: &str, name: &str, path: &str) {
        let error = self.read(words, payload)["error"].clone();
        assert_eq!(
            (&error["name"], &error["path"]),
            (&json!(name), &json!(path)),
            "{words}: {error}"
        );
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.script);
    }
}

/// A 1.0 card, or its form of 0.3 or 0.1.
fn card(version: &str) -> Value {
    json!({
        "name": "a", "description": "", "version": "1", "capabilities": {},
        "supportedInterfaces": [
            { "url": "https://h/a", "protocolBinding": "JSONRPC", "protocolVersion": version },
        ],
        "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    })
}

#[test]
fn cards_of_each_version_are_read() {
    let reader = Reader::start("cards");
    let old = |members: Value| {
        let mut card = json!({ "name": "a", "url": "https://h/a", "version": "1" });
        card.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        card
    };
    let v03 = old(json!({ "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC" }));
    let v01 = old(json!({ "authentication": { "schemes": [] } }));
    for words in ["card", "result GetExtendedAgentCard"] {
        for (version, payload) in [("1.0", card("1.0")), ("0.3", v03.clone()), ("0.1", v01.clone())]
        {
            let words = format!("{words} {version}");
            let card_read = reader.read(&words, &payload.to_string());
            let interface = &card_read["supportedInterfaces"][0];
            assert_eq!(
                (&card_read["name"], &interface["url"]),
                (&json!("a"), &json!("https://h/a"))
            );
            let is_same = interface["protocolVersion"].as_str().unwrap().starts_with(version);
            assert!(is_same || version == "0.1", "{card_read}");
            assert!(
                card_read.get("protocolVersion").is_none() && card_read.get("url").is_none(),
                "{card_read}"
            );
        }
        reader.fails(words, r#"{"name":"x"}"#, "CardError", "url");
        reader.fails(&format!("{words} 0.3"), r#"{"url":"https://h"}"#, "CardError", "name");
        reader.fails(&format!("{words} 0.1"), "[]", "CardError", "");
        reader.fails(words, "no", "CardError", "");
    }
}

#[test]
fn results_of_each_version_are_read() {
    let reader = Reader::start("results");
    let task = json!({ "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } });
    let v03 = json!({
        "kind": "task", "id": "t", "contextId": "c", "status": { "state": "working" },
    });
    let v01 = json!({ "id": "t", "sessionId": "c", "status": { "state": "working" } });
    for (version, payload) in [("1.0", &task), ("0.3", &v03), ("0.1", &v01)] {
        reader.is(&format!("GetTask {version}"), payload, &task);
    }
    reader.is("", &json!({ "task": task }), &json!({ "task": task }));
    reader.is("0.3", &v03, &json!({ "task": task }));
    reader.is("0.1", &v01, &json!({ "task": task }));
    reader.fails("", r#"{"task":{"id":7}}"#, "ReadError", "task.id");
    reader.fails("0.3", r#"{"kind":"task","id":7}"#, "ReadError", "id");
    reader.fails("0.1", r#"{"id":7,"status":{"state":"working"}}"#, "ReadError", "id");
    reader.fails("GetTask", r#"{"id":"t""#, "JsonError", "");
}

#[test]
fn events_of_each_version_are_read() {
    let reader = Reader::start("events");
    let event =
        |state: &str| json!({ "taskId": "t", "contextId": "c", "status": { "state": state } });
    let v1 = json!({ "statusUpdate": event("TASK_STATE_WORKING") });
    let mut v03 = event("working");
    (v03["kind"], v03["final"]) = (json!("status-update"), json!(false));
    reader.is("event 1.0", &v1, &v1);
    reader.is("event 0.3", &v03, &v1);
    let v01 = json!({ "id": "t", "status": { "state": "working" }, "final": false });
    let event_read = reader.read("event 0.1", &v01.to_string());
    assert_eq!(event_read["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING", "{event_read}");
    reader.fails("event 1.0", "{}", "ReadError", "");
    reader.fails("event 0.3", r#"{"kind":"tea"}"#, "ReadError", "");
    reader.fails("event 0.1", r#"{"id":"t","status":7}"#, "ReadError", "status");
}

#[test]
fn faults_of_each_version_are_read() {
    let reader = Reader::start("faults");
    for (version, code, name) in [
        ("1.0", -32009, "VersionNotSupportedError"),
        ("0.3", -32001, "TaskNotFoundError"),
        ("0.1", -32009, "InvalidTaskStateError"),
    ] {
        let payload = json!({ "code": code, "message": "no" });
        let fault_read = reader.read(&format!("fault {version}"), &payload.to_string());
        assert_eq!(fault_read["fault"]["name"], name, "{fault_read}");
        assert_eq!(
            (&fault_read["fault"]["code"], &fault_read["fault"]["message"]),
            (&json!(code), &json!("no"))
        );
        let words = format!("fault {version}");
        reader.fails(&words, "[]", "FaultError", "");
        reader.fails(&words, r#"{"code":"x"}"#, "FaultError", "code");
        reader.fails(&words, "{", "JsonError", "");
    }
    reader.fails("tea", "{}", "UnknownWord", "tea");
}

/// A step `client_response` of the A2A conformance suite, and the answer to it.
fn acts(reader: &Reader, operation: &str, wire: &Value) -> Value {
    let step = json!({"operation": operation, "wire_payload": wire}).to_string();
    let file = reader.script.with_extension("json");
    fs::write(&file, step).unwrap();
    let answer = reader.user.json(&["send", "parse", "--data", &file.display().to_string()]);
    fs::remove_file(file).unwrap();
    let task = &answer["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    task["artifacts"][0]["parts"][0]["data"].clone()
}

#[test]
fn conformance_client_response_steps_return_parsed_payload() {
    let reader = Reader::start_with(
        "acts",
        "[[rule]]\ntext = \"parse\"\n[[rule.step]]\nparse = \"result\"\n",
    );
    let rpc = |result: Value| json!({"jsonrpc": "2.0", "id": "req-001", "result": result});
    let task = json!({"id": "t", "contextId": "c",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2025-05-25T20:00:00Z"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}]}],
        "history": [{"role": "ROLE_USER", "parts": [{"text": "original request"}]}]});
    let read = acts(&reader, "send_message", &rpc(json!({"task": task})));
    assert_eq!((&read["task"]["id"], &read["task"]["contextId"]), (&json!("t"), &json!("c")));
    assert_eq!(read["task"]["artifacts"][0]["parts"][0]["text"], "x");
    let read = acts(&reader, "get_task", &rpc(task.clone()));
    assert_eq!((&read["id"], read["history"].as_array().map(Vec::len)), (&json!("t"), Some(1)));
    // CLIENT-PARSE-006, in each form that the suite has used for a file.
    let (raw, url) = (json!("aGVsbG8="), json!("https://e.example/a.txt"));
    let flat = |member: &str, content: &Value| json!({member: content, "filename": "a.txt", "mediaType": "text/plain"});
    for (member, content, spelled) in [
        ("raw", &raw, &["raw", "bytes", "fileWithBytes"][..]),
        ("url", &url, &["url", "uri", "fileWithUri"]),
    ] {
        let mut forms = vec![flat(member, content)];
        for name in spelled {
            forms.push(json!({"file": flat(name, content)}));
            forms.push(json!({"file": {*name: content}, "filename": "a.txt",
                "mediaType": "text/plain"}));
        }
        for part in forms {
            let mut with_file = task.clone();
            with_file["artifacts"][0]["parts"] = json!([part]);
            let read = acts(&reader, "get_task", &rpc(with_file));
            assert_eq!(read["artifacts"][0]["parts"], json!([flat(member, content)]), "{part}");
        }
    }
    let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "yes"}]});
    let read = acts(&reader, "send_message", &rpc(json!({"message": message})));
    assert_eq!(
        (&read["message"]["messageId"], &read["message"]["role"]),
        (&json!("m"), &json!("ROLE_AGENT"))
    );
    let error = json!({"code": -32001, "message": "Task not found", "data": {"taskId": "t"}});
    let error = json!({"jsonrpc": "2.0", "id": "req-004", "error": error});
    let read = acts(&reader, "get_task", &error);
    assert_eq!(
        (&read["error"]["code"], &read["error"]["message"]),
        (&json!(-32001), &json!("Task not found"))
    );
    let card = json!({"name": "Example Agent", "version": "1.0.0",
        "capabilities": {"streaming": false, "extendedAgentCard": true},
        "skills": [{"id": "s", "name": "S"}],
        "supportedInterfaces": [{"url": "https://example.com/", "protocolBinding": "REST",
            "protocolVersion": "1.0"}]});
    for operation in ["get_agent_card", "get_extended_agent_card"] {
        for wire in [card.clone(), rpc(card.clone())] {
            let read = acts(&reader, operation, &wire);
            assert_eq!(read["capabilities"]["extendedAgentCard"], true, "{read}");
            assert_eq!(read["capabilities"]["streaming"], false, "{read}");
            assert_eq!(read["skills"].as_array().map(Vec::len), Some(1), "{read}");
        }
    }
    for (operation, wire, name) in [
        ("no_such_thing", json!({}), "UnknownOperation"),
        ("get_task", json!({"jsonrpc": "2.0", "id": 1}), "ReadError"),
        ("get_task", rpc(json!({"id": 7})), "ReadError"),
    ] {
        assert_eq!(acts(&reader, operation, &wire)["error"]["name"], name);
    }
}
