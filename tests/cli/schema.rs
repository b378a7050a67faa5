//! The output of `-o json` against the types of A2A 1.0 (the command line's specification, §11.3).

use serde_json::{Value, json};

use crate::{
    agent::echo,
    fake::{Fake, card, ok},
    run::User,
    types::assert_type,
};

/// One document of a command.
fn document(user: &User, name: &str, words: &[&str]) -> Value {
    let document = user.json(words);
    assert_type(name, &document);
    document
}

/// Its lines with `--stream`.
fn lines(user: &User, name: &str, words: &[&str]) -> Vec<Value> {
    let lines = user.ok(&[words, &["--stream", "-o", "json"]].concat()).lines();
    assert!(!lines.is_empty(), "{words:?}");
    lines.iter().for_each(|line| assert_type(name, line));
    lines
}

fn every_command(user: &User, has_lists: bool) {
    let task = document(user, "SendMessageResponse", &["send", "hello", "--data", "data.json"]);
    let id = task["task"]["id"].as_str().unwrap();
    document(user, "SendMessageResponse", &["send", "ping"]);
    let held = || {
        let task = document(user, "SendMessageResponse", &["send", "hold:60000:2", "--async"]);
        task["task"]["id"].as_str().unwrap().to_owned()
    };
    lines(user, "StreamResponse", &["send", "stream:3"]);
    lines(user, "StreamResponse", &["send", "ping"]);
    document(user, "Task", &["task", "get", id, "--history", "3"]);
    assert_eq!(lines(user, "Task", &["task", "get", id]).len(), 1);
    document(user, "Task", &["task", "download", id, "--dir", "got", "--overwrite"]);
    let canceled = document(user, "Task", &["task", "cancel", &held()]);
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(lines(user, "Task", &["task", "cancel", &held()]).len(), 1);
    let short = || {
        let task = user.json(&["send", "hold:300:2", "--async"]);
        task["task"]["id"].as_str().unwrap().to_owned()
    };
    // From its first event on: on a slow machine the task may have ended.
    document(user, "Task", &["task", "subscribe", &short(), "--last-event-id", "1"]);
    lines(user, "StreamResponse", &["task", "subscribe", &short(), "--last-event-id", "1"]);
    if has_lists {
        document(user, "ListTasksResponse", &["task", "list", "--page-size", "2"]);
        document(user, "ListTasksResponse", &["task", "list", "--artifacts", "--history", "1"]);
        lines(user, "Task", &["task", "list"]);
    }
    document(user, "AgentCard", &["card", "get"]);
    assert_eq!(lines(user, "AgentCard", &["card", "get"]).len(), 1);
    document(user, "AgentCard", &["card", "get", "--extended"]);
    let error = user.failure(&["task", "get", "none"], "TaskNotFoundError", 1);
    assert!(error["message"].is_string() && error["hint"].is_string(), "{error}");
    assert!(!error["a2aCode"].is_null(), "{error}");
}

fn user_of(url: &str, binding: &str) -> User {
    let user = User::of(url).with("A2ACLI_TRANSPORT", binding);
    user.write("work/data.json", "{\"k\":[\"v\",true]}");
    user
}

#[test]
fn json_output_matches_a2a_types_over_every_binding() {
    let all = "jsonrpc,http+json,grpc,websocket";
    let (_server, url) = echo(&["--extended-card", "--card", "v1", "--interfaces", all]);
    for binding in all.split(',') {
        every_command(&user_of(&url, binding), true);
    }
}

#[test]
fn json_output_of_0_3_agents_uses_1_0_types() {
    let all = "jsonrpc,http+json,grpc,websocket";
    let (_server, url) = echo(&["--extended-card", "--card", "v03", "--interfaces", all]);
    for binding in all.split(',') {
        let user = user_of(&url, binding).with("A2ACLI_A2A_VERSION", "0.3");
        every_command(&user, false);
    }
}

#[test]
fn push_config_json_output_matches_a2a_types() {
    let config = json!({ "taskId": "t-1", "id": "c-1", "url": "https://h.example/hook" });
    let fake = Fake::start(move |request, _, url| match request.rpc() {
        "" => {
            let pushes = json!({ "capabilities": { "pushNotifications": true } });
            ok("application/json", &card(url, &pushes))
        }
        "ListTaskPushNotificationConfigs" => request.result(&json!({ "configs": [config] })),
        _ => request.result(&config),
    });
    let user = User::of(&fake.url);
    let create = ["task", "push-config", "create", "t-1", "--url", "https://h.example/hook"];
    document(&user, "TaskPushNotificationConfig", &create);
    document(&user, "TaskPushNotificationConfig", &["task", "push-config", "get", "t-1", "c-1"]);
    let list = ["task", "push-config", "list", "t-1"];
    document(&user, "ListTaskPushNotificationConfigsResponse", &list);
}

#[test]
fn error_object_has_code_message_hint_and_a2a_code() {
    let (_server, url) = echo(&["--no-push"]);
    let user = User::of(&url);
    for (words, code, exit) in [
        (&["send", "--nope"][..], "A2ACLI_ERR_USAGE", 2),
        (&["card", "get", "-a", "./none.json"], "A2ACLI_ERR_CARD_NOT_FOUND", 3),
        (&["task", "get", "none"], "TaskNotFoundError", 1),
        (&["task", "push-config", "list", "t"], "PushNotificationNotSupportedError", 1),
        (&["send", "hold:60000:2", "--timeout", "300ms"], "A2ACLI_ERR_TIMEOUT", 5),
    ] {
        let error = user.failure(words, code, exit);
        let is_text = |name: &str| error[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("message"), "{error}");
        assert!(error["hint"].is_null() || is_text("hint"), "{error}");
        let a2a = &error["a2aCode"];
        assert!(a2a.is_null() || a2a.is_number() || is_text("a2aCode"), "{error}");
    }
}
