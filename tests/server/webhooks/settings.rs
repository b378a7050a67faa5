//! The binary applies the webhook settings of its configuration file. It resolves no name when a
//! webhook is configured, and posts nothing about a task that has ended.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::{Value, json};

use super::{
    failing::{call, stream},
    receiver::{Received, Receiver, patiently, responds},
};
use crate::support::{
    ask::{V1, say},
    binary::Binary,
};

/// A file with these lines in `[push]`.
fn file(name: &str, lines: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("push_{name}.toml"));
    fs::write(&path, format!("[push]\n{lines}\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// For each of these URLs, whether a webhook may have it.
fn accepted(server: &Binary, urls: &[&str]) -> Vec<bool> {
    let sent = call(server.addr(), V1.send(), &V1.params(say("hi")));
    let task = &sent["result"]["task"]["id"];
    let set = |url: &&str| {
        let config = json!({"taskId": task, "id": "a", "url": url});
        let answer = call(server.addr(), "CreateTaskPushNotificationConfig", &config);
        if answer["error"].is_object() {
            assert_eq!(answer["error"]["code"], -32602, "{url}: {answer}");
        }
        answer["result"].is_object()
    };
    urls.iter().map(set).collect()
}

#[test]
fn push_settings_decide_allowed_webhook_urls() {
    let (public, other) = ("https://a.example/", "https://b.example/");
    let (http, port) = ("http://a.example/", "https://a.example:444/");
    let (high, own) = ("https://a.example:8443/", "http://127.0.0.1:4000/");
    let translated = "https://[2a01:db00:0:64::7f00:1]/";
    let urls = [public, other, http, port, high, own, translated];
    for (name, lines, expected) in [
        ("none", "", [true, true, false, false, true, false, true]),
        ("allow", "allow = [\"localhost\"]", [true, true, false, false, true, true, true]),
        ("deny", "deny = [\"b.example\"]", [true, false, false, false, true, false, true]),
        (
            "denied_network",
            "allow = [\"localhost\"]\ndeny = [\"127.0.0.0/8\"]",
            [true, true, false, false, true, false, true],
        ),
        (
            "only_allowed",
            "only_allowed = true\nallow = [\"*.example\"]\ndeny = [\"b.example\"]",
            [true, false, true, false, true, false, false],
        ),
        ("plain_http", "plain_http = true", [true, true, true, false, true, false, true]),
        ("ports", "ports = [444]", [false, false, false, true, false, false, false]),
        (
            "translators",
            "translators = [\"2a01:db00:0:64::/96\"]",
            [true, true, false, false, true, false, false],
        ),
    ] {
        let server = Binary::start(&["--config", &file(name, lines)]);
        assert_eq!(accepted(&server, &urls), expected, "{name}: {urls:?}");
    }
}

#[test]
fn push_settings_select_final_or_coalesced_events() {
    // The receiver answers the first post when the task has ended.
    let has_ended = Arc::<AtomicBool>::default();
    let ended = Arc::clone(&has_ended);
    let receiver = Receiver::new(move |_, _| {
        patiently("the task ends", || ended.load(Relaxed));
        responds("200 OK")
    });
    for (name, lines) in [("events", "events = [\"final\"]"), ("coalesce", "coalesce = true")] {
        has_ended.store(false, Relaxed);
        let lines = format!("allow = [\"localhost\"]\n{lines}");
        let server = Binary::start(&["--config", &file(name, &lines)]);
        let path = format!("/{name}");
        let events = stream(server.addr(), "stream:3", &receiver.url(&path));
        assert!(events.len() > 3, "{events:?}");
        has_ended.store(true, Relaxed);
        // Only the last status; or the task at its start, and the current task.
        let (kind, count) = if name == "events" { ("statusUpdate", 1) } else { ("task", 2) };
        receiver.wait_for(&path, count);
        let posts: Vec<Value> = receiver.all(&path).iter().map(Received::json).collect();
        let state = &posts.last().unwrap()[kind]["status"]["state"];
        assert_eq!((posts.len(), state), (count, &json!("TASK_STATE_COMPLETED")), "{posts:?}");
    }
}

#[test]
fn push_settings_decide_if_anonymous_callers_set_webhooks() {
    let config = json!({"url": "https://a.example/"});
    let mut params = V1.params(say("hi"));
    params["configuration"]["taskPushNotificationConfig"] = config;
    for (name, lines, code) in [
        ("strangers", "anonymous = false", Some(-32003)),
        ("anonymous", "anonymous = true\nonly_allowed = true", Some(-32602)),
        ("disabled", "enabled = false\nanonymous = true", Some(-32003)),
    ] {
        let words = ["--allow-anonymous", "--allow-host", "a.example", "--config"];
        let server = Binary::start_at("0.0.0.0:0", &[&words[..], &[&file(name, lines)]].concat());
        let addr = ([127, 0, 0, 1], server.addr().port()).into();
        let answer = call(addr, V1.send(), &params);
        assert_eq!(answer["error"]["code"].as_i64(), code, "{name}: {answer}");
    }
}
