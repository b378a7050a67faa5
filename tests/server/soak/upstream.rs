//! Faults between a gateway and its upstream agent.

use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use serde_json::{Value, json};

use super::{COMPLETED, ERROR, FAILED, FaultCase, soak_upstream};
use crate::support::by_hand::{
    ByHand, ReceivedRequest, STREAM, answer, event, remote, reset, stall,
};

const LARGE_BYTES: usize = 1 << 20;

#[rustfmt::skip]
const FAULTS: [FaultCase; 21] = [
    FaultCase { word: "good", ends: COMPLETED },
    FaultCase { word: "reset", ends: FAILED },
    FaultCase { word: "close", ends: COMPLETED },
    FaultCase { word: "stall", ends: FAILED },
    FaultCase { word: "garbage", ends: FAILED },
    FaultCase { word: "half", ends: FAILED },
    FaultCase { word: "wrong-id", ends: FAILED },
    FaultCase { word: "other-task", ends: FAILED },
    FaultCase { word: "error-event", ends: FAILED },
    FaultCase { word: "large", ends: COMPLETED },
    FaultCase { word: "flood", ends: COMPLETED },
    FaultCase { word: "endless", ends: FAILED },
    FaultCase { word: "html", ends: ERROR },
    FaultCase { word: "broken", ends: ERROR },
    FaultCase { word: "redirect", ends: ERROR },
    FaultCase { word: "silence", ends: ERROR },
    FaultCase { word: "no-http", ends: ERROR },
    FaultCase { word: "no-answer", ends: ERROR },
    FaultCase { word: "early-reset", ends: ERROR },
    FaultCase { word: "no-event", ends: ERROR },
    FaultCase { word: "half-head", ends: ERROR },
];

fn task(id: &str, state: &str) -> Value {
    json!({"id": id, "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")}})
}

fn status(id: &str, state: &str) -> Value {
    let status = json!({"state": format!("TASK_STATE_{state}")});
    json!({"statusUpdate": {"taskId": id, "contextId": "c", "status": status}})
}

fn chunk(id: &str, bytes: usize) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{"text": "x".repeat(bytes)}]});
    json!({"artifactUpdate":
        {"taskId": id, "contextId": "c", "artifact": artifact, "append": true}})
}

/// The fault in place of a stream; `None`: a stream begins.
fn no_stream(word: &str, stream: &mut TcpStream) -> Option<String> {
    let redirect = "307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/";
    Some(match word {
        "html" => answer("200 OK", "text/html", "<html>"),
        "broken" => answer("500 Internal Server Error", "text/plain", "oh"),
        "redirect" => answer(redirect, "text/plain", ""),
        "no-http" => "nonsense\r\n\r\n".to_owned(),
        "no-answer" => String::new(),
        "half-head" => "HTTP/1.1 200 OK\r\nContent-Ty".to_owned(),
        "no-event" => STREAM.to_owned(),
        "silence" => {
            stall(stream);
            String::new()
        }
        "early-reset" => {
            reset(stream);
            String::new()
        }
        _ => return None,
    })
}

/// The rest of a stream after its first event.
fn rest(request: &ReceivedRequest, id: &str, word: &str, stream: &mut TcpStream) {
    let completed = event(request, &status(id, "COMPLETED"));
    let text = match word {
        "reset" => return reset(stream),
        "stall" => return stall(stream),
        "close" => return,
        "garbage" => "data: nonsense\n\n".to_owned(),
        "half" => "data: {\"jsonrpc\":\"2.0\",\"resu".to_owned(),
        "wrong-id" => "data: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}\n\n".to_owned(),
        "other-task" => event(request, &status("up-other", "COMPLETED")),
        "error-event" => {
            let error = json!({"code": -32603, "message": "it broke"});
            format!(
                "data: {}\n\n",
                json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error})
            )
        }
        "large" => event(request, &chunk(id, LARGE_BYTES)) + &completed,
        "flood" => event(request, &chunk(id, 64)).repeat(1_000) + &completed,
        "endless" => {
            let chunk = event(request, &chunk(id, 64 * 1024));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
            return;
        }
        _ => completed,
    };
    let _ = stream.write_all(text.as_bytes());
}

/// Answers a call about a task by the word that its id begins with.
fn later(request: &ReceivedRequest) -> String {
    let id = request.body["params"]["id"].as_str().unwrap();
    let error = |code, message| json!({"error": {"code": code, "message": message}});
    let mut body = match (request.body["method"].as_str(), id.starts_with("close-")) {
        (Some("CancelTask"), _) => json!({"result": task(id, "CANCELED")}),
        (Some("GetTask"), true) => json!({"result": task(id, "COMPLETED")}),
        (_, true) => error(-32004, "it has ended"),
        (_, false) => error(-32001, "there is no such task"),
    };
    body["jsonrpc"] = json!("2.0");
    body["id"] = request.body["id"].clone();
    answer("200 OK", "application/json", &body.to_string())
}

/// An agent that does what the text of a message says.
fn misbehaving() -> ByHand {
    let tasks = AtomicUsize::new(0);
    remote(move |request, stream| {
        if request.body["method"] != "SendStreamingMessage" {
            return drop(stream.write_all(later(request).as_bytes()));
        }
        let text = &request.body["params"]["message"]["parts"][0]["text"];
        let word = text.as_str().unwrap();
        if let Some(text) = no_stream(word, stream) {
            return drop(stream.write_all(text.as_bytes()));
        }
        let id = format!("{word}-{}", tasks.fetch_add(1, Relaxed));
        let first = event(request, &json!({"task": task(&id, "WORKING")}));
        let _ = stream.write_all(format!("{STREAM}{first}").as_bytes());
        rest(request, &id, word, stream);
    })
}

fn soak(count: usize) {
    let remote = misbehaving();
    soak_upstream("upstream", &format!("a2a:http://{}", remote.addr), &FAULTS, count);
}

#[test]
fn hundreds_of_upstream_faults_leak_no_resources() {
    soak(300);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_upstream_faults_leak_no_resources() {
    soak(10_000);
}
