//! `chat`: turns from a pipe.

use std::{io::Write, process::Stdio, thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    agent::Clerk,
    fake::{Fake, Heard, card, ok},
    run::{Said, User, assert_floor, field},
};

#[test]
fn chat_turns_reuse_the_context_and_the_open_task() {
    for flags in [&[][..], &["--no-streaming"]] {
        let clerk = Clerk::start(&format!("chat-{}", flags.len()), flags);
        let user = User::of(&clerk.url());
        let said = user.run_with(&["chat"], "ask\n\nlarge\nlarge\n");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_floor(&said.out);
        let tasks = |label| -> Vec<&str> {
            let lines = said.out.lines().filter_map(|line| field(line, label));
            let mut all: Vec<&str> = lines.collect();
            all.dedup();
            all
        };
        // The answer went to the task that asked; the third turn made a second task.
        assert_eq!(tasks("Task").len(), 2, "{said:?}");
        assert_eq!(tasks("Context").len(), 1, "{said:?}");
        assert_eq!(user.json(&["task", "list"])["totalSize"], 2);
    }
}

#[test]
fn end_of_input_ends_the_chat() {
    let clerk = Clerk::start("chat-ends", &[]);
    let said = User::of(&clerk.url()).ok(&["chat"]);
    assert!(said.out.is_empty() && said.err.is_empty(), "{said:?}");
}

/// An agent that ends its tasks while it waits for their answers.
fn forgetful(code: i64) -> Fake {
    Fake::start(move |heard, _, url| {
        let task =
            |state: &str| json!({ "id": "t-1", "contextId": "c-1", "status": { "state": state } });
        let message = &heard.body["params"]["message"];
        match (heard.rpc(), message["taskId"].as_str(), message["contextId"].as_str()) {
            ("", ..) => ok("application/json", &card(url, &json!({}))),
            (_, Some(_), _) => {
                let error = json!({ "code": code, "message": "no more" });
                let body = json!({ "jsonrpc": "2.0", "id": heard.body["id"], "error": error });
                ok("application/json", &body.to_string())
            }
            (_, None, Some(_)) => heard.result(&json!({ "task": task("TASK_STATE_COMPLETED") })),
            (_, None, None) => heard.result(&json!({ "task": task("TASK_STATE_INPUT_REQUIRED") })),
        }
    })
}

fn sent(fake: &Fake) -> Vec<[Value; 3]> {
    let heard = fake.heard();
    let of = |heard: &Heard| {
        let message = &heard.body["params"]["message"];
        let text = message["parts"][0]["text"].clone();
        [text, message["taskId"].clone(), message["contextId"].clone()]
    };
    heard.iter().filter(|heard| !heard.rpc().is_empty()).map(of).collect()
}

#[test]
fn chat_continues_in_the_context_after_its_task_has_ended() {
    // TaskNotFoundError and UnsupportedOperationError.
    for code in [-32001, -32004] {
        let fake = forgetful(code);
        let said = User::of(&fake.url).run_with(&["chat"], "one\ntwo\nthree\n");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains("the task accepts no more"), "{said:?}");
        let nobody = Value::Null;
        assert_eq!(
            sent(&fake),
            [
                [json!("one"), nobody.clone(), nobody.clone()],
                [json!("two"), json!("t-1"), json!("c-1")],
                [json!("two"), nobody.clone(), json!("c-1")],
                [json!("three"), nobody, json!("c-1")],
            ]
        );
    }
}

#[test]
fn chat_fails_if_the_named_task_is_not_found() {
    let fake = forgetful(-32001);
    let said = User::of(&fake.url).run_with(&["chat", "--task-id", "mine"], "one\n");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("TaskNotFoundError"), "{said:?}");
    assert_eq!(sent(&fake), [[json!("one"), json!("mine"), Value::Null]]);
}

#[test]
fn chat_timeout_applies_to_each_turn() {
    let clerk = Clerk::start("chat-timeout", &[]);
    let user = User::of(&clerk.url());
    let said = user.run_with(&["chat", "--timeout", "500ms"], "never\nlarge\n");
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.err.contains("peregrine task get --wait"), "{said:?}");
    // The writer of the lines takes longer.
    let limit = Duration::from_secs(4);
    let words = ["chat", "--timeout", &format!("{}s", limit.as_secs())];
    let mut child = user.command(&words).stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = child.stdin.take().unwrap();
    lines.write_all(b"large\n").unwrap();
    thread::sleep(limit + Duration::from_millis(500));
    lines.write_all(b"large\n").unwrap();
    drop(lines);
    let said = Said::of(child);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out.matches("one large coffee").count(), 2, "{said:?}");
}

#[test]
fn chat_ignores_async_with_a_warning() {
    let clerk = Clerk::start("chat-async", &[]);
    let said = User::of(&clerk.url()).run_with(&["chat", "--async"], "large\n");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("--async has no effect"), "{said:?}");
}
