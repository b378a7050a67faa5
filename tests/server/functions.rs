//! Agents that are HTTP functions: the real binary, and functions that answer by hand.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{Binary, Tcp, eventually},
    by_hand::{self, ByHand, ReceivedRequest, answer},
    reply::Reply,
};

/// A function that answers each request with `respond`, given the request's turn.
fn function(respond: impl Fn(&Value, &mut TcpStream) + Send + Sync + 'static) -> ByHand {
    ByHand::new(move |request, stream| respond(&request.body, stream))
}

/// A function that answers with these bytes, and closes.
fn fixed(answer: &str) -> ByHand {
    let answer = answer.to_owned();
    function(move |_, stream| stream.write_all(answer.as_bytes()).unwrap())
}

fn url(function: &ByHand) -> String {
    format!("http://{}/turn?a=b", function.addr)
}

/// A server with a function as its default agent.
fn serve(function: &ByHand) -> Binary {
    Binary::start(&["--agent", &format!("http:{}", url(function))])
}

fn call(server: &Binary, method: &str, params: &Value) -> Tcp {
    let mut line = server.connect();
    line.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
    line
}

fn send(server: &Binary, text: &str) -> Reply {
    call(server, V1.send(), &V1.params(say(text))).reply()
}

/// The task of a reply: its state, and the text of its artifacts and of its status.
fn shown(reply: &Reply) -> String {
    let result = reply.result();
    if result["message"].is_object() {
        return format!("message {}", text_of(&result["message"]));
    }
    let task = V1.task(&result);
    let parts = task["artifacts"].as_array().into_iter().flatten();
    let texts = parts.flat_map(|artifact| artifact["parts"].as_array().unwrap());
    let text: String = texts.map(|part| part["text"].as_str().unwrap()).collect();
    let state = task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
    match task["status"]["message"].is_object() {
        true => format!("{state} {text} | {}", text_of(&task["status"]["message"])),
        false => format!("{state} {text}"),
    }
}

#[test]
fn function_may_answer_in_each_supported_media_type() {
    let lines = "{\"status\":\"working\"}\n\n{\"artifact\":{\"text\":\"a\"},\"lastChunk\":false}\n\
                 {\"artifact\":{\"text\":\"b\"},\"append\":true}";
    let events = ": hello\n\ndata: {\"artifact\":{\"text\":\"a\"}}\n\nevent: ping\ndata: \n\n\
                  data: {\"status\":\"completed\",\"message\":\"done\"}\n\ndata: [DONE]\n\n";
    for (media_type, body, expected) in [
        ("application/json", r#""HELLO""#, "message HELLO"),
        ("application/json; charset=utf-8", r#"{"message":"HELLO"}"#, "message HELLO"),
        ("application/json", r#"{"turn":"1","artifact":{"text":"a"}}"#, "COMPLETED a"),
        (
            "application/json",
            r#"{"status":"input-required","message":"size?"}"#,
            "INPUT_REQUIRED  | size?",
        ),
        (
            "application/json",
            r#"[{"status":"working"},{"artifact":{"text":"a"}},"b"]"#,
            "COMPLETED a | b",
        ),
        ("application/json", r#"{"status":"failed","message":"broken"}"#, "FAILED  | broken"),
        ("Application/X-NDJSON", lines, "COMPLETED ab"),
        ("text/event-stream", events, "COMPLETED a | done"),
        ("text/plain; charset=utf-8", "HELLO", "message HELLO"),
    ] {
        let function = fixed(&answer("200 OK", media_type, body));
        let reply = send(&serve(&function), "hello");
        assert_eq!(shown(&reply), expected, "{media_type} {body}");
    }
}

#[test]
fn function_receives_the_turn_as_its_request_body() {
    let function = fixed(&answer("200 OK", "application/json", "\"ok\""));
    let server = serve(&function);
    send(&server, "hello");
    let ReceivedRequest { head, body } = function.request();
    assert!(head.starts_with("POST /turn?a=b HTTP/1.1\r\n"), "{head}");
    for field in ["Content-Type: application/json", "A2A-Hops: 1"] {
        assert!(head.lines().any(|line| line == field), "{field}: {head}");
    }
    assert_eq!(body["type"], "turn");
    assert_eq!(body["version"], 1);
    assert_eq!(body["message"]["parts"], json!([{"text": "hello"}]));
    assert!(body["taskId"].is_string() && body["contextId"].is_string(), "{body}");
}

#[test]
fn an_invalid_answer_of_a_function_is_an_error() {
    let broken = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    for (answered, expected) in [
        (answer("500 Internal Server Error", "text/plain", "secret"), "HTTP 500"),
        (answer("404 Not Found", "application/json", "{}"), "HTTP 404"),
        (answer("200 OK", "text/html", "<html>"), "answered with text/html"),
        (answer("200 OK", "application/json", ""), "has no event"),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "has no event"),
        (answer("200 OK", "application/json", "[]"), "has no event"),
        (answer("200 OK", "application/json", "null"), "an event must have one of"),
        (answer("200 OK", "application/x-ndjson", "Traceback\n"), "invalid event"),
        (broken.to_owned(), "broke off"),
        ("nonsense\r\n\r\n".to_owned(), "cannot be called"),
        (String::new(), "cannot be called"),
    ] {
        let reply = send(&serve(&fixed(&answered)), "hello");
        assert!(reply.json()["error"].is_object(), "{answered}: {}", reply.text());
        assert!(reply.text().contains(expected), "{answered}: {}", reply.text());
        assert!(!reply.text().contains("secret"), "{}", reply.text());
    }
    let busy = answer("429 Too Many Requests\r\nRetry-After: 7", "text/plain", "");
    let reply = send(&serve(&fixed(&busy)), "hello");
    assert!(reply.text().contains("HTTP 429"), "{}", reply.text());
    assert_eq!(reply.field("retry-after"), Some("7"));
}

#[test]
fn function_error_after_first_event_fails_the_task() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 999\r\n\r\n";
    for (rest, expected) in [
        ("", "broke off"),
        ("Traceback\n", "invalid event"),
        ("{\"status\":\"tired\"}\n", "unknown state \"tired\""),
    ] {
        let answered = format!("{head}{{\"artifact\":{{\"text\":\"a\"}}}}\n{rest}");
        let reply = send(&serve(&fixed(&answered)), "hello");
        let shown = shown(&reply);
        assert!(shown.starts_with("FAILED a") && shown.contains(expected), "{rest}: {shown}");
    }
}

#[test]
fn an_answer_that_ends_within_an_event_fails_its_task() {
    let head = |media_type: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n\r\n");
    for (media_type, first, whole, half) in [
        (
            "application/x-ndjson",
            "{\"artifact\":{\"text\":\"a\"}}\n",
            "{\"status\":\"completed\",\"message\":\"done\"}",
            "{\"status\":\"comp",
        ),
        (
            "text/event-stream",
            "data: {\"artifact\":{\"text\":\"a\"}}\n\n",
            "data: {\"status\":\"completed\",\"message\":\"done\"}",
            "data: {\"status\":\"comp",
        ),
    ] {
        for (rest, expected) in [(whole, "COMPLETED a | done"), (half, "FAILED a | ")] {
            let reply =
                send(&serve(&fixed(&format!("{}{first}{rest}", head(media_type)))), "hello");
            assert!(shown(&reply).starts_with(expected), "{media_type} {rest}: {}", shown(&reply));
        }
    }
}

#[test]
fn function_event_over_4_mib_is_an_error() {
    let text = "x".repeat((4 << 20) + 1);
    for (media_type, body) in [
        ("text/plain", text.clone()),
        ("application/json", format!("\"{text}\"")),
        ("application/x-ndjson", format!("\"{text}\"\n")),
        ("text/event-stream", format!("data: \"{text}\"\n\n")),
    ] {
        let reply = send(&serve(&fixed(&answer("200 OK", media_type, &body))), "hello");
        assert!(reply.json()["error"].is_object(), "{media_type}: {:.200}", reply.text());
    }
}

#[test]
fn silent_function_times_out() {
    let function = function(|turn, stream| {
        if text_of(&turn["message"]) == "begin" {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n";
            writeln!(stream, "{head}\r\n{{\"artifact\":{{\"text\":\"a\"}}}}").unwrap();
        }
        // Until the server disconnects.
        let _ = stream.read(&mut [0]);
    });
    let url = url(&function);
    let server = configured(
        "silent-function",
        &format!("silence_ms = 100\n[agents.function.upstream]\nurl = \"{url}\"\ncall_ms = 100"),
    );
    let failed = shown(&send(&server, "begin"));
    assert!(failed.starts_with("FAILED a") && failed.contains("no byte of the body"), "{failed}");
    let reply = send(&server, "wait");
    assert!(reply.json()["error"].is_object(), "{}", reply.text());
    assert!(reply.text().contains("no response"), "{}", reply.text());
}

#[test]
fn endless_function_answer_fails_at_task_bytes_max() {
    let (closed, is_closed) = channel();
    let function = function(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n";
        let _ = stream.write_all(format!("{head}\r\n").as_bytes());
        let text = "x".repeat(1_000);
        let chunk = format!(
            "{{\"artifact\":{{\"text\":\"{text}\"}},\"append\":true,\"lastChunk\":false}}\n"
        );
        while stream.write_all(chunk.as_bytes()).is_ok() {}
        let _ = closed.send(());
    });
    let agent = format!("endless=http:{}", url(&function));
    let server = Binary::start(&["--agent", &agent, "--limit", "task_bytes_max=65536"]);
    let reply = send(&server, "hello");
    assert!(shown(&reply).starts_with("FAILED"), "{:.300}", reply.text());
    is_closed.recv_timeout(Duration::from_secs(10)).expect("the server closes the connection");
}

#[test]
fn a_connection_that_is_reset_is_an_error_or_fails_the_task() {
    let function = function(|turn, stream| {
        if text_of(&turn["message"]) == "begin" {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n";
            writeln!(stream, "{head}\r\n{{\"artifact\":{{\"text\":\"a\"}}}}").unwrap();
            // The server has read it once it closes the connection, or after a while.
            by_hand::stall(stream);
        }
        by_hand::reset(stream);
    });
    let server = serve(&function);
    let failed = shown(&send(&server, "begin"));
    assert!(failed.starts_with("FAILED a") && failed.contains("broke off"), "{failed}");
    let reply = send(&server, "reset");
    assert!(reply.text().contains("the function cannot be called"), "{}", reply.text());
}

#[test]
fn a_redirect_is_not_followed() {
    let other = fixed(&answer("200 OK", "application/json", "\"other\""));
    let to =
        answer(&format!("307 Temporary Redirect\r\nLocation: {}", url(&other)), "text/plain", "");
    let reply = send(&serve(&fixed(&to)), "hello");
    assert!(reply.text().contains("redirects are not followed"), "{}", reply.text());
    assert!(!other.has_request());
}

#[test]
fn unreachable_function_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("gone=http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let reply = send(&Binary::start(&["--agent", &flag]), "hello");
    assert!(reply.text().contains("the function cannot be called"), "{}", reply.text());
}

#[test]
fn events_arrive_at_once_and_a_cancel_closes_the_connection() {
    let (closed, is_closed) = channel();
    let function = function(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n";
        writeln!(stream, "{head}{{\"artifact\":{{\"text\":\"first\"}}}}").unwrap();
        closed.send(stream.read(&mut [0]).map_or(0, |read| read)).unwrap();
    });
    let server = serve(&function);
    let mut line = call(&server, V1.stream(), &V1.params(say("hello")));
    line.read_until("first");
    let events = line.peek().expect("events").events();
    let id = events[0].result()["task"]["id"].clone();
    call(&server, V1.cancel(), &json!({"id": id})).reply();
    line.read_until("TASK_STATE_CANCELED");
    assert_eq!(is_closed.recv_timeout(Duration::from_secs(10)), Ok(0));
}

/// A server with one function of these keys in its configuration.
fn configured(test: &str, keys: &str) -> Binary {
    let file = std::env::temp_dir().join(format!("peregrine-{test}-{}.toml", std::process::id()));
    fs::write(&file, format!("[agents.function]\nkind = \"http\"\n{keys}\n")).unwrap();
    let server = Binary::start(&["--config", file.to_str().expect("a path")]);
    fs::remove_file(file).unwrap();
    server
}

#[test]
fn a_function_gets_credentials_and_history_and_shows_its_errors() {
    let function = function(|turn, stream| {
        let answered = match turn["state"].as_str() {
            None => {
                answer("200 OK", "application/json", r#"{"status":"input-required","message":"?"}"#)
            }
            Some(_) => answer("500 No", "text/plain", "it is broken\n"),
        };
        stream.write_all(answered.as_bytes()).unwrap();
    });
    let url = url(&function);
    let keys = format!(
        "history = true\nshow_errors = true\n[agents.function.upstream]\nurl = \"{url}\"\n\
         api_key = \"key-0123456789abcdef\"\nbasic = \"me:word\""
    );
    let server = configured("function", &keys);
    let first = send(&server, "one").result();
    let task = V1.task(&first);
    let message = json!({"messageId": "m-2", "role": "ROLE_USER", "taskId": task["id"],
                         "parts": [{"text": "two"}]});
    let second = call(&server, V1.send(), &json!({"message": message})).reply();
    assert!(second.text().contains("HTTP 500: it is broken"), "{}", second.text());
    let head = function.request().head;
    for field in ["X-API-Key: key-0123456789abcdef", "Authorization: Basic bWU6d29yZA=="] {
        assert!(head.lines().any(|line| line == field), "{field}: {head}");
    }
    let turn = function.request().body;
    assert_eq!((&turn["state"], &turn["taskId"]), (&json!("input-required"), &task["id"]));
    let history = turn["history"].as_array().expect("a history");
    let texts: Vec<&str> = history.iter().map(text_of).collect();
    assert_eq!(texts, ["one", "?"]);
}

#[test]
fn turn_over_the_queue_limit_is_refused() {
    let (open, gate) = channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let function = function(move |_, stream| {
        let _ = gate.lock().unwrap().recv();
        let whole = answer("200 OK", "application/json", "\"ok\"");
        stream.write_all(whole.as_bytes()).unwrap();
    });
    let keys =
        format!("turns = 1\nqueue = 1\n[agents.function.upstream]\nurl = \"{}\"", url(&function));
    let server = configured("queue", &keys);
    let mut first = call(&server, V1.send(), &V1.params(say("one")));
    function.request();
    let mut second = call(&server, V1.send(), &V1.params(say("two")));
    eventually("the second turn waits", || {
        send(&server, "three").text().contains("turns_queued_max")
    });
    drop(open);
    for line in [&mut first, &mut second] {
        assert_eq!(shown(&line.reply()), "message ok");
    }
}

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn node_example_function_requests_input() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/agents/function.mjs");
    let node = Command::new("node")
        .arg(script)
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .spawn();
    // Without Node the test does nothing.
    let Ok(node) = node.map(Running) else { return };
    eventually("the function listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let server = Binary::start(&["--agent", &format!("http://127.0.0.1:{port}/")]);
    let first = send(&server, "coffee");
    assert_eq!(shown(&first), "INPUT_REQUIRED  | What size?");
    let message = json!({"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "large"}],
                         "taskId": V1.task(&first.result())["id"]});
    let second = call(&server, V1.send(), &json!({"message": message})).reply();
    assert_eq!(shown(&second), "COMPLETED one large coffee");
    drop(node);
}

#[test]
fn function_receives_the_traceparent_of_its_caller() {
    let function = fixed(&answer("200 OK", "application/json", "\"ok\""));
    let server = serve(&function);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut line = server.connect();
    let body = rpc(V1.send(), &V1.params(say("hello")));
    line.write(&post("/", &[("A2A-Version", "1.0"), ("traceparent", parent)], &body));
    line.reply();
    let head = function.request().head;
    assert!(head.contains(&format!("traceparent: {parent}")), "{head}");
}
