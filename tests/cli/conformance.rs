//! `conformance`: the checks for any agent, and the user's kit.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::{
    agent::{Clerk, echo},
    fake::{Fake, card, ok},
    run::{User, assert_floor},
};

#[test]
fn echo_agent_passes_conformance_over_every_binding() {
    let all = "jsonrpc,http+json,grpc,websocket";
    let (_server, url) = echo(&["--interfaces", all]);
    for binding in all.split(',') {
        let report = User::of(&url).json(&["conformance", "--aggressive", "--transport", binding]);
        assert_eq!((&report["failed"], &report["skipped"]), (&json!(0), &json!(0)), "{report}");
        assert!(report["passed"].as_u64().unwrap() > 12, "{report}");
    }
    let output = User::new().ok(&["conformance", &url]);
    assert_floor(&output.out);
    assert_eq!(output.field("Failed"), "0");
    assert!(output.out.contains("Pass: CORE-GET-002 "), "{output:?}");
}

#[test]
fn checks_that_cannot_run_are_skipped_with_a_reason() {
    let clerk = Clerk::start("conformance", &["--no-streaming"]);
    let output = User::of(&clerk.url()).ok(&["conformance", "--text", "ask"]);
    assert!(output.out.contains("Skip: STREAM-SUB-004 "), "{output:?}");
    assert!(output.out.contains("the card declares no streams"), "{output:?}");
    assert!(output.out.contains("Skip: CORE-CANCEL-002 "), "{output:?}");
    assert!(output.out.contains("the task has not ended"), "{output:?}");
    // A2A 0.3 has no form for it but HTTP+JSON.
    let output = User::of(&clerk.url()).ok(&["conformance", "--a2a-version", "0.3"]);
    assert_eq!(output.field("Failed"), "0", "{output:?}");
    assert!(output.out.contains("Skip: CORE-LIST-003 "), "{output:?}");
}

#[test]
fn checks_of_1_0_run_only_for_1_0() {
    let task = json!({
        "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "completed" },
    });
    // As the official SDK of 0.3 refuses a message to a finished task.
    let fake = Fake::start(move |request, _, url| {
        let card = json!({
            "name": "old", "description": "", "version": "1", "protocolVersion": "0.3.0",
            "url": url, "preferredTransport": "JSONRPC", "capabilities": {},
            "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
        });
        match request.rpc() {
            "" => ok("application/json", &card.to_string()),
            "message/send" if request.body["params"]["message"]["taskId"].is_null() => {
                request.result(&task)
            }
            _ => {
                let error = json!({ "code": -32602, "message": "Task is in terminal state" });
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                ok("application/json", &body.to_string())
            }
        }
    });
    let output = User::of(&fake.url).run(&["conformance", "--a2a-version", "0.3"]);
    assert!(output.out.contains("Skip: CORE-SEND-002 "), "{output:?}");
    assert!(output.out.contains("only A2A 1.0 defines it"), "{output:?}");
    let (_server, url) = echo(&["--card", "v03"]);
    let output = User::of(&url).ok(&["conformance", "--aggressive", "--a2a-version", "0.3"]);
    assert!(output.out.contains("Skip: STREAM-SUB-003 "), "{output:?}");
    assert_eq!(output.field("Failed"), "0", "{output:?}");
}

#[test]
fn checks_that_differ_in_0_1_are_skipped_for_0_1() {
    let fake = Fake::start(|request, _, url| {
        let id = &request.body["params"]["id"];
        let event = |result: Value| {
            let response = json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result });
            format!("data: {response}\n\n")
        };
        let card = json!({
            "name": "old", "description": "d", "version": "1", "url": url,
            "authentication": { "schemes": [] }, "capabilities": { "streaming": true },
            "skills": [{ "id": "s", "name": "s" }],
        });
        match request.rpc() {
            "" if request.target.ends_with("/agent.json") => {
                ok("application/json", &card.to_string())
            }
            "tasks/send" => request.result(&json!({ "id": id, "status": { "state": "working" } })),
            "tasks/sendSubscribe" => {
                let done = json!({ "state": "completed" });
                let artifact = json!({ "index": 0, "parts": [{ "type": "text", "text": "a" }] });
                let first = event(json!({ "id": id, "artifact": artifact }));
                let last = event(json!({ "id": id, "status": done, "final": true }));
                ok("text/event-stream", &(first + &last))
            }
            "tasks/get" if *id != json!("00000000-0000-4000-8000-00000000c0de") => {
                request.result(&json!({ "id": id, "status": { "state": "working" } }))
            }
            _ => {
                let error = json!({ "code": -32001, "message": "Task not found" });
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                ok("application/json", &body.to_string())
            }
        }
    });
    let output = User::of(&fake.url).ok(&["conformance", "--a2a-version", "0.1"]);
    assert_eq!(output.field("Failed"), "0", "{output:?}");
    for requirement in ["CORE-EXECUTION-MODE-001", "CORE-MULTI-004"] {
        assert!(output.out.contains(&format!("Skip: {requirement} ")), "{output:?}");
    }
    assert!(output.out.contains("Pass: CORE-STREAM-003 "), "{output:?}");
}

#[test]
fn checks_that_crash_servers_run_only_with_aggressive() {
    let task = json!({
        "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
    });
    let fake = Fake::start(move |request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({ "capabilities": { "streaming": true } }))),
        _ => request.result(&json!({ "task": task })),
    });
    let subscriptions =
        || fake.requests().iter().filter(|one| one.rpc() == "SubscribeToTask").count();
    let output = User::of(&fake.url).run(&["conformance"]);
    for requirement in ["STREAM-SUB-003", "STREAM-SUB-004"] {
        let line = output.out.lines().find(|line| line.contains(requirement)).unwrap();
        assert!(line.starts_with("Skip: ") && line.contains("--aggressive"), "{output:?}");
    }
    assert_eq!(subscriptions(), 0);
    User::of(&fake.url).run(&["conformance", "--aggressive"]);
    assert!(subscriptions() >= 2);
}

#[test]
fn conformance_reports_each_failed_requirement() {
    // It answers every request with the same task.
    let task = json!({
        "id": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
        "history": [
            { "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "a" }] },
            { "messageId": "m-2", "role": "ROLE_AGENT", "parts": [{ "text": "b" }] },
        ],
    });
    let fake = Fake::start(move |request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({ "skills": [{}] }))),
        "SendMessage" => request.result(&json!({ "task": task })),
        "ListTasks" => request.result(&json!({
            "tasks": [], "nextPageToken": "", "pageSize": 2, "totalSize": 0,
        })),
        _ => request.result(&task),
    });
    let output = User::of(&fake.url).run(&["conformance", "-o", "json"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let report = output.document();
    let outcome = |name: &str| -> String {
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["requirement"] == name).unwrap();
        format!("{} {}", check["outcome"], check["detail"]).replace('"', "")
    };
    for (requirement, expected) in [
        ("CARD-STRUCT-001", "fail description: "),
        ("CORE-SEND-001", "pass null"),
        ("CORE-MULTI-003", "fail the second message was added to the task of the first"),
        ("CORE-MULTI-004", "fail InvalidAgentResponseError: the server answered with another"),
        ("CORE-GET-001", "pass null"),
        ("CORE-GET-002", "fail InvalidAgentResponseError: the server answered with another"),
        ("CORE-HIST-002", "fail 2 messages were returned instead of 1"),
        ("CORE-CANCEL-002", "fail the call succeeded"),
        ("CORE-LIST-003", "fail the new task is not in the list"),
        ("STREAM-SUB-003", "skip the card declares no streams"),
    ] {
        assert!(outcome(requirement).starts_with(expected), "{requirement}: {report}");
    }
}

#[test]
fn tck_option_runs_the_kit_and_reports_its_exit_code() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    fs::create_dir_all(user.path("work/kit")).unwrap();
    let run = |exit: u8| {
        let script = format!("#!/bin/sh\necho \"kit $*\"\nexit {exit}\n");
        let path = user.write("work/kit/run_tck.py", &script);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        user.run(&["conformance", "--tck", "kit", "-o", "json"])
    };
    for (exit, code, outcome) in [(0, 0, "pass"), (1, 1, "fail")] {
        let output = run(exit);
        assert_eq!(output.code, Some(code), "{output:?}");
        let report: Value = output.document();
        assert_eq!(report["checks"][0]["outcome"], outcome, "{report}");
        // The kit's output is not a part of the document.
        assert!(output.err.contains(&format!("kit --sut-host {url} --level must")), "{output:?}");
    }
    let error = user.failure(&["conformance", "--tck", "none"], "A2ACLI_ERR_USAGE", 2);
    assert!(error["hint"].as_str().unwrap().contains("a2a-tck"), "{error}");
}

#[test]
fn tck_is_stopped_at_the_timeout_and_gets_no_credentials() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    fs::create_dir_all(user.path("work/kit")).unwrap();
    let script = "#!/bin/sh\nenv | grep -c A2ACLI_ >&2\n(sleep 4; touch late) &\nwait\n";
    let path = user.write("work/kit/run_tck.py", script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["conformance", "--tck", "kit", "--timeout", "1500ms", "-o", "json"];
    let user = user.with("A2ACLI_BEARER", "hidden");
    let output = user.run(&arguments);
    assert_eq!(output.code, Some(5), "{output:?}");
    assert!(output.err.lines().any(|line| line == "0"), "{output:?}");
    // A process that the kit has started ends as well.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!user.path("work/kit/late").exists());
}
