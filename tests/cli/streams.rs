//! `--stream`: events as they arrive, in text and as JSON lines.

use crate::{
    agent::{Clerk, echo},
    run::{User, assert_floor, field},
};

#[test]
fn json_lines_end_with_the_terminal_event() {
    let (_server, url) = echo(&[]);
    let output = User::of(&url).ok(&["send", "stream:5", "--stream", "-o", "json"]);
    let lines = output.lines();
    assert!(lines[0]["task"]["id"].is_string(), "{lines:?}");
    let last = &lines.last().unwrap()["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(last["taskId"], lines[0]["task"]["id"]);
    assert!(last["contextId"].is_string());
    assert!(lines.iter().any(|line| line["artifactUpdate"].is_object()));
    assert!(output.err.is_empty(), "{output:?}");
}

#[test]
fn a_message_is_the_only_event_of_its_stream() {
    let (_server, url) = echo(&[]);
    let lines = User::of(&url).ok(&["send", "ping", "--stream", "-o", "json"]).lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["message"]["parts"][0]["text"], "pong");
    assert_eq!(User::of(&url).ok(&["send", "ping", "--stream"]).block("Text"), "pong");
}

#[test]
fn text_stream_ends_with_task_context_and_state() {
    let clerk = Clerk::start("stream-text", &[]);
    let user = User::of(&clerk.url());
    let output = user.ok(&["send", "slow", "--stream"]);
    assert_floor(&output.out);
    let tail: Vec<&str> = output.out.lines().rev().take(3).collect();
    assert_eq!(tail[0], "State: COMPLETED", "{output:?}");
    assert!(tail[1].starts_with("Context: ") && tail[2].starts_with("Task: "), "{output:?}");
    assert_eq!(output.block("Text"), "at last");
    let paused = user.ok(&["send", "ask", "--stream"]);
    assert_floor(&paused.out);
    assert!(field(&paused.out, "Next").unwrap().contains("--task-id"), "{paused:?}");
}

#[test]
fn stream_error_is_printed_as_the_last_json_line() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let output = user.run(&["send", "x", "--task-id", "none", "--stream", "-o", "json"]);
    assert_eq!(output.code, Some(1));
    assert_eq!(output.lines().last().unwrap()["error"]["code"], "TaskNotFoundError");
}

#[test]
fn stream_flag_cannot_be_set_by_environment_or_file() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url).with("A2ACLI_STREAM", "true");
    user.write("work/.env", "A2ACLI_STREAM=true\n");
    assert!(user.json(&["config", "show"])["stream"]["variable"].is_null());
    let output = user.ok(&["send", "stream:5", "-o", "json"]);
    assert!(output.document()["task"].is_object(), "{output:?}");
    assert!(
        output.err.contains("A2ACLI_STREAM has no effect: --stream can only be a flag"),
        "{output:?}"
    );
    assert!(output.err.contains(".env: A2ACLI_STREAM has no effect in a file"), "{output:?}");
}

#[test]
fn subscribe_follows_a_task_to_its_end() {
    let (_server, url) = echo(&[]);
    let user = User::of(&url);
    let id = || {
        let task = user.json(&["send", "hold:1000:4", "--async"]);
        task["task"]["id"].as_str().unwrap().to_owned()
    };
    let lines = user.ok(&["task", "subscribe", &id(), "--stream", "-o", "json"]).lines();
    assert!(lines[0]["task"].is_object(), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    let task = user.json(&["task", "subscribe", &id()]);
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert!(task["artifacts"].is_array());
    let output = user.ok(&["task", "subscribe", &id()]);
    assert_floor(&output.out);
    assert_eq!(output.field("State"), "COMPLETED");
    user.failure(&["task", "subscribe", "none"], "TaskNotFoundError", 1);
    // If the task cannot be subscribed to, the output shows the alternative.
    let id = user.json(&["send", "hello"])["task"]["id"].as_str().unwrap().to_owned();
    let error = user.failure(&["task", "subscribe", &id], "UnsupportedOperationError", 1);
    assert_eq!(error["hint"], format!("peregrine task get {id}"));
    let (_server, url) = echo(&["--no-streaming"]);
    let user = User::of(&url);
    let error = user.failure(&["task", "subscribe", &id], "UnsupportedOperationError", 1);
    assert_eq!(error["hint"], format!("peregrine task get --wait {id}"));
}
