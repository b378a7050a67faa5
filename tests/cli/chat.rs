//! `chat`: turns from a pipe.

use std::{io::Write, process::Stdio, thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    agent::Clerk,
    fake::{Fake, ReceivedRequest, card, ok},
    run::{RunOutput, User, assert_floor, field},
};

#[test]
fn chat_turns_reuse_the_context_and_the_open_task() {
    for flags in [&[][..], &["--no-streaming"]] {
        let clerk = Clerk::start(&format!("chat-{}", flags.len()), flags);
        let user = User::of(&clerk.url());
        let output = user.run_with(&["chat"], "ask\n\nlarge\nlarge\n");
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_floor(&output.out);
        let tasks = |label| -> Vec<&str> {
            let lines = output.out.lines().filter_map(|line| field(line, label));
            let mut all: Vec<&str> = lines.collect();
            all.dedup();
            all
        };
        // The answer went to the task that asked; the third turn made a second task.
        assert_eq!(tasks("Task").len(), 2, "{output:?}");
        assert_eq!(tasks("Context").len(), 1, "{output:?}");
        assert_eq!(user.json(&["task", "list"])["totalSize"], 2);
    }
}

#[test]
fn end_of_input_ends_the_chat() {
    let clerk = Clerk::start("chat-ends", &[]);
    let output = User::of(&clerk.url()).ok(&["chat"]);
    assert!(output.out.is_empty() && output.err.is_empty(), "{output:?}");
}

/// An agent that ends its tasks while it waits for their answers.
fn forgetful(code: i64) -> Fake {
    Fake::start(move |request, _, url| {
        let task =
            |state: &str| json!({ "id": "t-1", "contextId": "c-1", "status": { "state": state } });
        let message = &request.body["params"]["message"];
        match (request.rpc(), message["taskId"].as_str(), message["contextId"].as_str()) {
            ("", ..) => ok("application/json", &card(url, &json!({}))),
            (_, Some(_), _) => {
                let error = json!({ "code": code, "message": "no more" });
                let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
                ok("application/json", &body.to_string())
            }
            (_, None, Some(_)) => request.result(&json!({ "task": task("TASK_STATE_COMPLETED") })),
            (_, None, None) => {
                request.result(&json!({ "task": task("TASK_STATE_INPUT_REQUIRED") }))
            }
        }
    })
}

fn sent(fake: &Fake) -> Vec<[Value; 3]> {
    let requests = fake.requests();
    let of = |request: &ReceivedRequest| {
        let message = &request.body["params"]["message"];
        let text = message["parts"][0]["text"].clone();
        [text, message["taskId"].clone(), message["contextId"].clone()]
    };
    requests.iter().filter(|request| !request.rpc().is_empty()).map(of).collect()
}

#[test]
fn chat_continues_in_the_context_after_its_task_has_ended() {
    // TaskNotFoundError and UnsupportedOperationError.
    for code in [-32001, -32004] {
        let fake = forgetful(code);
        let output = User::of(&fake.url).run_with(&["chat"], "one\ntwo\nthree\n");
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.err.contains("the task accepts no more"), "{output:?}");
        let null = Value::Null;
        assert_eq!(
            sent(&fake),
            [
                [json!("one"), null.clone(), null.clone()],
                [json!("two"), json!("t-1"), json!("c-1")],
                [json!("two"), null.clone(), json!("c-1")],
                [json!("three"), null, json!("c-1")],
            ]
        );
    }
}

#[test]
fn chat_fails_if_the_named_task_is_not_found() {
    let fake = forgetful(-32001);
    let output = User::of(&fake.url).run_with(&["chat", "--task-id", "mine"], "one\n");
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("TaskNotFoundError"), "{output:?}");
    assert_eq!(sent(&fake), [[json!("one"), json!("mine"), Value::Null]]);
}

#[test]
fn chat_timeout_applies_to_each_turn() {
    let clerk = Clerk::start("chat-timeout", &[]);
    let user = User::of(&clerk.url());
    let output = user.run_with(&["chat", "--timeout", "500ms"], "never\nlarge\n");
    assert_eq!(output.code, Some(5), "{output:?}");
    assert!(output.err.contains("peregrine task get --wait"), "{output:?}");
    // The writer of the lines takes longer.
    let limit = Duration::from_secs(4);
    let words = ["chat", "--timeout", &format!("{}s", limit.as_secs())];
    let mut child = user.command(&words).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = child.stdin.take().unwrap();
    lines.write_all(b"large\n").unwrap();
    thread::sleep(limit + Duration::from_millis(500));
    lines.write_all(b"large\n").unwrap();
    drop(lines);
    let output = RunOutput::of(child);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out.matches("one large coffee").count(), 2, "{output:?}");
}

#[test]
fn chat_ignores_async_with_a_warning() {
    let clerk = Clerk::start("chat-async", &[]);
    let output = User::of(&clerk.url()).run_with(&["chat", "--async"], "large\n");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.err.contains("--async has no effect"), "{output:?}");
}
