//! Waiting despite faults of agents: streams that break, states without meaning.

use serde_json::{Value, json};

use crate::{
    agent::Clerk,
    fake::{Fake, card, ok},
    run::User,
};

fn task(state: &str) -> Value {
    json!({ "id": "t-1", "contextId": "c-1", "status": { "state": format!("TASK_STATE_{state}") } })
}

#[test]
fn send_keeps_polling_while_state_is_unspecified() {
    let fake = Fake::start(|request, number, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({}))),
        "SendMessage" => request.result(&json!({ "task": task("UNSPECIFIED") })),
        _ if number < 5 => request.result(&task("UNSPECIFIED")),
        _ => request.result(&task("COMPLETED")),
    });
    let words = ["send", &fake.url, "hello", "--poll-interval", "10ms"];
    assert_eq!(User::new().ok(&words).field("State"), "COMPLETED");
    let polls = fake.requests().iter().filter(|request| request.rpc() == "GetTask").count();
    assert_eq!(polls, 4);
}

#[test]
fn send_polls_if_a_broken_stream_cannot_be_resumed() {
    let fake = Fake::start(|request, number, url| {
        let streams = json!({ "capabilities": { "streaming": true } });
        match request.rpc() {
            "" => ok("application/json", &card(url, &streams)),
            "SendStreamingMessage" => request.events(&[json!({ "task": task("WORKING") })]),
            "SubscribeToTask" => crate::fake::status("500 No", "text/plain", "no"),
            _ if number < 8 => request.result(&task("WORKING")),
            _ => request.result(&task("COMPLETED")),
        }
    });
    let task = User::of(&fake.url).json(&["send", "hello", "--poll-interval", "10ms"]);
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let sent = |request: &&crate::fake::ReceivedRequest| request.rpc().starts_with("Send");
    assert_eq!(fake.requests().iter().filter(sent).count(), 1, "a message is sent once");
    let lines = User::of(&fake.url).ok(&["send", "x", "--stream", "-o", "json"]).lines();
    assert!(lines.last().unwrap().to_string().contains("TASK_STATE_COMPLETED"), "{lines:?}");
}

#[test]
fn retry_after_429_is_reported_on_stderr() {
    let fake = Fake::start(|request, number, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({}))),
        _ if number < 2 => b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n\
                             content-length: 0\r\n\r\n"
            .to_vec(),
        _ => request.result(&json!({ "task": task("COMPLETED") })),
    });
    let output = User::new().run(&["send", &fake.url, "hello", "-o", "json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.err.contains("429") && output.err.contains("; next attempt in "), "{output:?}");
    assert_eq!(output.err.lines().count(), 1, "{output:?}");
    assert!(serde_json::from_str::<Value>(&output.out).is_ok(), "{output:?}");
}

#[test]
fn a_stream_that_breaks_is_resumed() {
    let fake = Fake::start(|request, _, url| {
        let streams = json!({ "capabilities": { "streaming": true } });
        let done = json!({ "statusUpdate": {
            "taskId": "t-1", "contextId": "c-1", "status": { "state": "TASK_STATE_COMPLETED" },
        } });
        match request.rpc() {
            "" => ok("application/json", &card(url, &streams)),
            "SubscribeToTask" => request.events(&[json!({ "task": task("WORKING") }), done]),
            _ => request.events(&[json!({ "task": task("WORKING") })]),
        }
    });
    let lines = User::of(&fake.url).ok(&["send", "x", "--stream", "-o", "json"]).lines();
    assert!(lines[0]["task"].is_object(), "{lines:?}");
    let state = &lines.last().unwrap()["statusUpdate"]["status"]["state"];
    assert_eq!(state, "TASK_STATE_COMPLETED", "{lines:?}");
    assert_eq!(
        fake.requests().iter().filter(|request| request.rpc() == "SubscribeToTask").count(),
        1
    );
}

#[test]
fn poll_interval_applies_from_the_first_pause() {
    let fake = Fake::start(|request, _, url| match request.rpc() {
        "" => ok("application/json", &card(url, &json!({}))),
        _ => request.result(&task("WORKING")),
    });
    let words = ["task", "get", "t-1", "--wait", "--poll-interval", "1h", "--timeout", "700ms"];
    User::of(&fake.url).failure(&words, "A2ACLI_ERR_TIMEOUT", 5);
    assert_eq!(fake.requests().iter().filter(|request| request.rpc() == "GetTask").count(), 1);
}

#[test]
fn wait_false_flag_or_variable_disables_waiting() {
    let clerk = Clerk::start("wait-false", &[]);
    let user = User::of(&clerk.url());
    for words in [&["send", "never", "--wait=false"][..], &["send", "never", "--async"]] {
        assert!(user.json(words)["task"]["contextId"].is_string());
    }
    let user = user.with("A2ACLI_WAIT", "false");
    assert_eq!(user.ok(&["send", "slow", "--async=false"]).field("State"), "COMPLETED");
    assert_ne!(user.ok(&["send", "slow"]).field("State"), "COMPLETED");
}
