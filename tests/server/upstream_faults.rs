//! A remote agent that misbehaves: the task that it serves ends with a reason.

use std::{
    io::{Read, Write},
    sync::mpsc::channel,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{Binary, Tcp},
    by_hand::{ByHand, ReceivedRequest, STREAM, answer, event, remote},
};

fn task(state: &str) -> Value {
    json!({"id": "up-1", "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}})
}

fn status(id: &str, state: &str) -> Value {
    let status = json!({"state": format!("TASK_STATE_{state}")});
    json!({"statusUpdate": {"taskId": id, "contextId": "c-1", "status": status}})
}

fn artifact(text: &str) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
    json!({"artifactUpdate": {"taskId": "up-1", "contextId": "c-1", "artifact": artifact}})
}

fn error(request: &ReceivedRequest, code: i64, message: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": request.body["id"], "error": {"code": code, "message": message}
    });
    answer("200 OK", "application/json", &body.to_string())
}

fn gateway(remote: &ByHand, flags: &[&str]) -> Binary {
    let agent = format!("a2a:http://{}", remote.addr);
    Binary::start(&[&["--agent", &*agent], flags].concat())
}

fn send(server: &Binary) -> Tcp {
    let mut line = server.connect();
    let body = rpc(V1.send(), &V1.params(say("hello")));
    line.write(&post("/", &[("A2A-Version", "1.0")], &body));
    line
}

/// The state of a task and the text of its status and artifacts.
fn shown(task: &Value) -> String {
    let state = task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
    let text = &task["status"]["message"];
    let text = if text.is_object() { text_of(text) } else { "" };
    let artifacts = task["artifacts"].as_array().into_iter().flatten().map(text_of);
    format!("{state} [{}] {text}", artifacts.collect::<Vec<_>>().join(","))
}

/// The task of a stream that continues with these bytes after its first event, and ends; `later`
/// answers all other calls.
fn after(
    rest: impl Fn(&ReceivedRequest) -> String + Send + Sync + 'static,
    later: impl Fn(&ReceivedRequest) -> String + Send + Sync + 'static,
) -> String {
    let remote = remote(move |request, stream| {
        let text = match request.body["method"].as_str() {
            Some("SendStreamingMessage") => {
                format!(
                    "{STREAM}{}{}",
                    event(request, &json!({"task": task("WORKING")})),
                    rest(request)
                )
            }
            _ => later(request),
        };
        let _ = stream.write_all(text.as_bytes());
    });
    let server = gateway(&remote, &[]);
    shown(V1.task(&send(&server).reply().result()))
}

fn unknown(request: &ReceivedRequest) -> String {
    error(request, -32001, "there is no such task")
}

#[test]
fn an_invalid_stream_fails_its_task() {
    for (rest, expected) in [
        ("data: nonsense\n\n", "FAILED [] the stream of the upstream agent failed"),
        ("data: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}\n\n", "FAILED []"),
        ("data: {\"jsonrpc\":\"2.0\",\"resu", "FAILED []"),
        ("", "FAILED []"),
    ] {
        let shown = after(move |_| rest.to_owned(), unknown);
        assert!(shown.starts_with(expected), "{rest:?}: {shown}");
    }
    let other = after(|request| event(request, &status("up-2", "COMPLETED")), unknown);
    assert!(other.starts_with("FAILED []"), "{other}");
    let fault = after(
        |request| {
            let error = json!({"code": -32603, "message": "it broke"});
            let event = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
            format!("data: {event}\n\n")
        },
        unknown,
    );
    assert!(fault.starts_with("FAILED []") && fault.contains("it broke"), "{fault}");
}

#[test]
fn truncated_stream_is_completed_from_upstream_task() {
    for half in ["", "data: {\"jsonrpc\""] {
        let shown = after(
            move |request| format!("{}{half}", event(request, &artifact("one"))),
            |request| {
                if request.body["method"] == "SubscribeToTask" {
                    return error(request, -32004, "it has ended");
                }
                let mut whole = task("COMPLETED");
                whole["artifacts"] = json!([
                    {"artifactId": "a", "parts": [{"text": "one"}]},
                    {"artifactId": "b", "parts": [{"text": "two"}]},
                ]);
                let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": whole});
                answer("200 OK", "application/json", &body.to_string())
            },
        );
        assert_eq!(shown, "COMPLETED [one,two] ", "{half}");
    }
}

#[test]
fn a_large_event_arrives_whole() {
    let large = "x".repeat(1 << 20);
    let text = large.clone();
    let shown = after(
        move |request| {
            format!(
                "{}{}",
                event(request, &artifact(&text)),
                event(request, &status("up-1", "COMPLETED"))
            )
        },
        unknown,
    );
    assert_eq!(shown, format!("COMPLETED [{large}] "));
}

#[test]
fn endless_upstream_stream_fails_task_at_task_bytes_max() {
    let (closed, is_closed) = channel();
    let remote = remote(move |request, stream| {
        let _ = stream.write_all(STREAM.as_bytes());
        let _ = stream.write_all(event(request, &json!({"task": task("WORKING")})).as_bytes());
        let mut chunk = artifact(&"x".repeat(1_000));
        chunk["artifactUpdate"]["append"] = json!(true);
        let chunk = event(request, &chunk);
        while stream.write_all(chunk.as_bytes()).is_ok() {}
        let _ = closed.send(());
    });
    let server = gateway(&remote, &["--limit", "task_bytes_max=65536"]);
    let reply = send(&server).reply();
    assert!(shown(V1.task(&reply.result())).starts_with("FAILED"), "{}", reply.text());
    is_closed.recv_timeout(Duration::from_secs(10)).expect("the gateway closes the connection");
}

#[test]
fn invalid_upstream_answer_fails_the_call() {
    for (answered, expected) in [
        (String::new(), "cannot be reached"),
        ("nonsense\r\n\r\n".to_owned(), "the upstream"),
        (answer("200 OK", "text/html", "<html>"), "the upstream call failed"),
        (answer("500 Internal Server Error", "text/plain", "oh"), "the upstream"),
        (answer("404 Not Found", "text/plain", ""), "the upstream"),
        (
            answer("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/", "text/plain", ""),
            "the upstream",
        ),
        (STREAM.to_owned(), "the upstream"),
        (format!("{STREAM}data: nonsense\n\n"), "the upstream"),
    ] {
        let text = answered.clone();
        let remote = remote(move |_, stream| drop(stream.write_all(text.as_bytes())));
        let reply = send(&gateway(&remote, &[])).reply();
        assert!(reply.json()["error"].is_object(), "{answered}: {}", reply.text());
        assert!(reply.text().contains(expected), "{answered}: {}", reply.text());
    }
}

#[test]
fn cancel_reaches_an_agent_with_a_silent_stream() {
    let remote = remote(|request, stream| {
        if request.body["method"] == "CancelTask" {
            let result = task("CANCELED");
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            let whole = answer("200 OK", "application/json", &body.to_string());
            return drop(stream.write_all(whole.as_bytes()));
        }
        let first = event(request, &json!({"task": task("WORKING")}));
        let _ = stream.write_all(format!("{STREAM}{first}").as_bytes());
        // Until the gateway closes.
        let _ = stream.read(&mut [0]);
    });
    let server = gateway(&remote, &[]);
    let mut line = server.connect();
    let body = rpc(V1.stream(), &V1.params(say("hello")));
    line.write(&post("/", &[("A2A-Version", "1.0")], &body));
    line.read_until("TASK_STATE_WORKING");
    let id = line.peek().expect("events").events()[0].result()["task"]["id"].clone();
    let mut other = server.connect();
    let body = rpc(V1.cancel(), &json!({"id": id}));
    other.write(&post("/", &[("A2A-Version", "1.0")], &body));
    assert_eq!(other.reply().result()["status"]["state"], "TASK_STATE_CANCELED");
    line.read_until("TASK_STATE_CANCELED");
}
