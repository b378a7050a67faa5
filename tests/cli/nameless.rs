//! Errors of agents without a name: a bare status means the same over every binding.

use serde_json::{Value, json};

use crate::{
    fake::{Fake, card, ok, status},
    run::User,
};

/// Answers with the card, and every other request with this HTTP status and body.
fn refusing(line: &'static str, body: &'static str) -> Fake {
    Fake::start(move |request, _, url| match request.target.as_str() {
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
fn bare_http_status_maps_to_error_of_the_operation() {
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
        ("429 Too Many Requests", SEND, "PEREGRINE_ERR_OVERLOADED"),
        ("503 Service Unavailable", SEND, "PEREGRINE_ERR_UNAVAILABLE"),
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
fn send_404_hint_reports_no_new_task_and_suggests_debug() {
    let user = User::of(&refusing("404 Not Found", "").url);
    let error = user.failure(&["send", "x", "--task-id", "t-1"], "TaskNotFoundError", 1);
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.starts_with("no new task was created") && hint.contains("--debug"), "{error}");
}

#[test]
fn tenant_403_hint_suggests_another_tenant() {
    let user = User::of(&refusing("403 Forbidden", "").url);
    let error = user.failure(&["send", "x", "--tenant", "zzz"], "A2ACLI_ERR_AUTH_FAILED", 4);
    assert_eq!(error["hint"], "try another --tenant");
}

#[test]
fn lost_connection_hints_debug_only_for_sends_with_task_id() {
    for streams in [true, false] {
        for binding in ["JSONRPC", "HTTP+JSON"] {
            let fake = Fake::start(move |request, _, url| match request.target.as_str() {
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

/// An agent of 0.1 that answers with an error of this code.
fn old(code: i64) -> Fake {
    Fake::start(move |request, _, url| match request.rpc() {
        "" => {
            let card = json!({
                "name": "old", "description": "", "version": "1", "url": url, "capabilities": {},
                "authentication": { "schemes": [] }, "defaultInputModes": [],
                "defaultOutputModes": [], "skills": [],
            });
            ok("application/json", &card.to_string())
        }
        _ => {
            let error = json!({ "code": code, "message": "no" });
            let body = json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error });
            ok("application/json", &body.to_string())
        }
    })
}

#[test]
fn error_codes_of_0_1_map_to_current_error_names() {
    for (code, name, exit) in [
        (-32006, "UnsupportedOperationError", 1),
        (-32009, "UnsupportedOperationError", 1),
        (-32011, "PEREGRINE_ERR_OVERLOADED", 1),
        (-32007, "A2ACLI_ERR_CREDENTIALS_MISSING", 4),
        (-32008, "A2ACLI_ERR_AUTH_FAILED", 4),
        (-32001, "TaskNotFoundError", 1),
    ] {
        let user = User::of(&old(code).url).with("A2ACLI_A2A_VERSION", "0.1");
        assert_eq!(user.failure(&["task", "get", "t"], name, exit)["a2aCode"], code);
    }
}

#[test]
fn malformed_http_response_gives_a_named_error() {
    for (head, name) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: a\r\n\r\n", "InvalidAgentResponseError"),
        ("nonsense\r\n\r\n", "InvalidAgentResponseError"),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: lzma\r\nContent-Length: 2\r\n\r\n{}",
            "InvalidAgentResponseError",
        ),
    ] {
        let fake = Fake::start(move |request, _, url| match request.rpc() {
            "" => ok("application/json", &card(url, &json!({}))),
            _ => head.as_bytes().to_vec(),
        });
        User::of(&fake.url).failure(&["task", "get", "t"], name, 1);
        // An answer that is broken like this is not a card; a server without HTTP has none.
        let fake = Fake::start(move |_, _, _| head.as_bytes().to_vec());
        let (name, exit) = match head.starts_with("HTTP") {
            true => ("A2ACLI_ERR_CARD_INVALID", 1),
            false => ("A2ACLI_ERR_UNREACHABLE", 3),
        };
        User::of(&fake.url).failure(&["task", "get", "t"], name, exit);
    }
}
