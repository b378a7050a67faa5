//! Errors of agents that name nothing: a bare status means the same over every binding.

use serde_json::{Value, json};

use crate::{
    fake::{Fake, card, ok, status},
    run::User,
};

/// Answers the card, and everything else with this status of HTTP and this body.
fn refusing(line: &'static str, body: &'static str) -> Fake {
    Fake::start(move |heard, _, url| match heard.target.as_str() {
        "/.well-known/agent-card.json" => {
            let interface = |binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
            let both: Vec<Value> = ["JSONRPC", "HTTP+JSON"].map(interface).into();
            let pushes = json!({ "pushNotifications": true });
            let members = json!({ "supportedInterfaces": both, "capabilities": pushes });
            ok("application/json", &card(url, &members))
        }
        _ => status(line, "text/plain", body),
    })
}

#[test]
fn a_bare_status_is_taken_at_what_was_asked() {
    const GET: &[&str] = &["task", "get", "t-1"];
    const SEND: &[&str] = &["send", "hello"];
    for (line, words, name) in [
        ("404 Not Found", GET, "TaskNotFoundError"),
        ("404 Not Found", &["task", "cancel", "t-1"], "TaskNotFoundError"),
        ("404 Not Found", &["send", "hello", "--task-id", "t-1"], "TaskNotFoundError"),
        ("404 Not Found", SEND, "MethodNotFoundError"),
        ("404 Not Found", &["task", "list"], "MethodNotFoundError"),
        ("409 Conflict", &["task", "cancel", "t-1"], "TaskNotCancelableError"),
        ("415 Unsupported Media Type", SEND, "ContentTypeNotSupportedError"),
        ("501 Not Implemented", SEND, "UnsupportedOperationError"),
        (
            "501 Not Implemented",
            &["task", "push-config", "list", "t-1"],
            "PushNotificationNotSupportedError",
        ),
        ("400 Bad Request", SEND, "InvalidParamsError"),
        ("500 Internal Server Error", SEND, "InvalidAgentResponseError"),
        ("200 OK", SEND, "InvalidAgentResponseError"),
    ] {
        for body in ["", "<h1>no</h1>"] {
            let user = User::of(&refusing(line, body).url);
            for binding in ["jsonrpc", "http+json"] {
                let words = [words, &["--transport", binding]].concat();
                let error = user.failure(&words, name, 1);
                let message = error["message"].as_str().unwrap();
                assert!(!message.is_empty() && !message.contains("Error"), "{error}");
            }
        }
    }
}

#[test]
fn a_refused_message_points_at_the_wire_and_made_no_task() {
    let user = User::of(&refusing("404 Not Found", "").url);
    let error = user.failure(&["send", "x", "--task-id", "t-1"], "TaskNotFoundError", 1);
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.starts_with("no new task was made") && hint.contains("--debug"), "{error}");
}

#[test]
fn a_message_that_is_cut_off_points_at_the_wire() {
    for streams in [true, false] {
        for binding in ["JSONRPC", "HTTP+JSON"] {
            let fake = Fake::start(move |heard, _, url| match heard.target.as_str() {
                "/.well-known/agent-card.json" => {
                    let interface =
                        json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
                    let members = json!({
                        "supportedInterfaces": [interface], "capabilities": { "streaming": streams },
                    });
                    ok("application/json", &card(url, &members))
                }
                _ => Vec::new(),
            });
            let user = User::of(&fake.url);
            for extra in [&[][..], &["--stream"], &["--async"]] {
                let words = [&["send", "x", "--task-id", "none"], extra].concat();
                let error = user.failure(&words, "A2ACLI_ERR_UNREACHABLE", 3);
                assert!(error["hint"].as_str().unwrap().contains("--debug"), "{error}");
            }
            let error = user.failure(&["send", "x"], "A2ACLI_ERR_UNREACHABLE", 3);
            assert!(error["hint"].is_null(), "{error}");
        }
    }
}
