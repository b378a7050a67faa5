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
    by_hand::{Asked, ByHand, STREAM, answer, event, remote},
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

fn error(asked: &Asked, code: i64, message: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": asked.body["id"], "error": {"code": code, "message": message}
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
    let said = &task["status"]["message"];
    let said = if said.is_object() { text_of(said) } else { "" };
    let artifacts = task["artifacts"].as_array().into_iter().flatten().map(text_of);
    format!("{state} [{}] {said}", artifacts.collect::<Vec<_>>().join(","))
}

/// The task of a stream that continues with these bytes after its first event, and ends; `later`
/// answers all other calls.
fn after(
    rest: impl Fn(&Asked) -> String + Send + Sync + 'static,
    later: impl Fn(&Asked) -> String + Send + Sync + 'static,
) -> String {
    let remote = remote(move |asked, stream| {
        let text = match asked.body["method"].as_str() {
            Some("SendStreamingMessage") => {
                format!(
                    "{STREAM}{}{}",
                    event(asked, &json!({"task": task("WORKING")})),
                    rest(asked)
                )
            }
            _ => later(asked),
        };
        let _ = stream.write_all(text.as_bytes());
    });
    let server = gateway(&remote, &[]);
    shown(V1.task(&send(&server).reply().result()))
}

fn unknown(asked: &Asked) -> String {
    error(asked, -32001, "there is no such task")
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
    let other = after(|asked| event(asked, &status("up-2", "COMPLETED")), unknown);
    assert!(other.starts_with("FAILED []"), "{other}");
    let fault = after(
        |asked| {
            let error = json!({"code": -32603, "message": "it broke"});
            let event = json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error});
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
            move |asked| format!("{}{half}", event(asked, &artifact("one"))),
            |asked| {
                if asked.body["method"] == "SubscribeToTask" {
                    return error(asked, -32004, "it has ended");
                }
                let mut whole = task("COMPLETED");
                whole["artifacts"] = json!([
                    {"artifactId": "a", "parts": [{"text": "one"}]},
                    {"artifactId": "b", "parts": [{"text": "two"}]},
                ]);
                let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": whole});
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
        move |asked| {
            format!(
                "{}{}",
                event(asked, &artifact(&text)),
                event(asked, &status("up-1", "COMPLETED"))
            )
        },
        unknown,
    );
    assert_eq!(shown, format!("COMPLETED [{large}] "));
}

#[test]
fn endless_upstream_stream_fails_task_at_task_bytes_max() {
    let (closed, is_closed) = channel();
    let remote = remote(move |asked, stream| {
        let _ = stream.write_all(STREAM.as_bytes());
        let _ = stream.write_all(event(asked, &json!({"task": task("WORKING")})).as_bytes());
        let mut chunk = artifact(&"x".repeat(1_000));
        chunk["artifactUpdate"]["append"] = json!(true);
        let chunk = event(asked, &chunk);
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
    let remote = remote(|asked, stream| {
        if asked.body["method"] == "CancelTask" {
            let result = task("CANCELED");
            let body = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result});
            let whole = answer("200 OK", "application/json", &body.to_string());
            return drop(stream.write_all(whole.as_bytes()));
        }
        let first = event(asked, &json!({"task": task("WORKING")}));
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
