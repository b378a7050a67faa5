//! Faults between the server and an HTTP function.

use std::{io::Write, net::TcpStream};

use super::{COMPLETED, ERROR, FAILED, FaultCase, soak_upstream};
use crate::support::by_hand::{ByHand, answer, reset, stall};

/// Larger than an event may be (`AGENT_LINE_BYTES_MAX`).
const OVERSIZED_BYTES: usize = (4 << 20) + 1;

/// A word is the form of the answer and its fault.
#[rustfmt::skip]
const FAULTS: [FaultCase; 38] = [
    FaultCase { word: "lines good", ends: COMPLETED },
    FaultCase { word: "lines close", ends: COMPLETED },
    FaultCase { word: "lines cut", ends: FAILED },
    FaultCase { word: "lines reset", ends: FAILED },
    FaultCase { word: "lines half", ends: FAILED },
    FaultCase { word: "lines garbage", ends: FAILED },
    FaultCase { word: "lines wrong", ends: FAILED },
    FaultCase { word: "lines stall", ends: FAILED },
    FaultCase { word: "lines flood", ends: COMPLETED },
    FaultCase { word: "lines endless", ends: FAILED },
    FaultCase { word: "lines oversized", ends: FAILED },
    FaultCase { word: "events good", ends: COMPLETED },
    FaultCase { word: "events close", ends: COMPLETED },
    FaultCase { word: "events cut", ends: FAILED },
    FaultCase { word: "events reset", ends: FAILED },
    FaultCase { word: "events half", ends: FAILED },
    FaultCase { word: "events garbage", ends: FAILED },
    FaultCase { word: "events wrong", ends: FAILED },
    FaultCase { word: "events stall", ends: FAILED },
    FaultCase { word: "events flood", ends: COMPLETED },
    FaultCase { word: "events endless", ends: FAILED },
    FaultCase { word: "events oversized", ends: FAILED },
    FaultCase { word: "json good", ends: COMPLETED },
    FaultCase { word: "json cut", ends: ERROR },
    FaultCase { word: "json reset", ends: ERROR },
    FaultCase { word: "json garbage", ends: ERROR },
    FaultCase { word: "json stall", ends: ERROR },
    FaultCase { word: "json oversized", ends: ERROR },
    FaultCase { word: "json nothing", ends: ERROR },
    FaultCase { word: "head html", ends: ERROR },
    FaultCase { word: "head broken", ends: ERROR },
    FaultCase { word: "head busy", ends: ERROR },
    FaultCase { word: "head redirect", ends: ERROR },
    FaultCase { word: "head no-http", ends: ERROR },
    FaultCase { word: "head no-answer", ends: ERROR },
    FaultCase { word: "head reset", ends: ERROR },
    FaultCase { word: "head half", ends: ERROR },
    FaultCase { word: "head silence", ends: ERROR },
];

/// The answer in place of a 2xx in a supported form.
fn head(fault: &str, stream: &mut TcpStream) -> String {
    let redirect = "307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/";
    match fault {
        "html" => answer("200 OK", "text/html", "<html>"),
        "broken" => answer("500 Internal Server Error", "text/plain", "oh"),
        "busy" => answer("503 Service Unavailable", "text/plain", "later"),
        "redirect" => answer(redirect, "text/plain", ""),
        "no-http" => "nonsense\r\n\r\n".to_owned(),
        "half" => "HTTP/1.1 200 OK\r\nContent-Ty".to_owned(),
        "reset" => {
            reset(stream);
            String::new()
        }
        "silence" => {
            stall(stream);
            String::new()
        }
        _ => String::new(),
    }
}

/// One faulty JSON value.
fn json(fault: &str, stream: &mut TcpStream) -> String {
    let whole = |body: &str| answer("200 OK", "application/json", body);
    let half = || {
        let whole = whole(r#"{"artifact":{"text":"a"}}"#);
        whole[..whole.len() - 9].to_owned()
    };
    match fault {
        "cut" => half(),
        "reset" => {
            reset(stream);
            half()
        }
        "stall" => {
            let _ = stream.write_all(half().as_bytes());
            stall(stream);
            String::new()
        }
        "garbage" => whole("Traceback"),
        "oversized" => whole(&format!("{{\"message\":\"{}\"}}", "x".repeat(OVERSIZED_BYTES))),
        "nothing" => whole(""),
        _ => whole(r#"{"artifact":{"text":"a"}}"#),
    }
}

/// Events of which the first is valid; `framed` encodes one in this form.
fn events(fault: &str, media_type: &str, framed: fn(&str) -> String, stream: &mut TcpStream) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n");
    let artifact = |bytes: usize| {
        let text = "x".repeat(bytes);
        framed(&format!(r#"{{"artifact":{{"text":"{text}"}},"append":true,"lastChunk":false}}"#))
    };
    let (first, completed) = (artifact(1), framed(r#"{"status":"completed"}"#));
    // Answers with a length announce more than they send.
    let length = match fault {
        "cut" | "reset" | "stall" => "Content-Length: 99999\r\n",
        _ => "",
    };
    let _ = stream.write_all(format!("{head}{length}\r\n{first}").as_bytes());
    let rest = match fault {
        "cut" | "close" => return,
        "reset" => return reset(stream),
        "stall" => return stall(stream),
        "half" => completed[..completed.len() - 9].to_owned(),
        "garbage" => framed("Traceback"),
        "wrong" => framed(r#"{"status":"tired"}"#),
        "flood" => artifact(64).repeat(1_000) + &completed,
        "endless" => {
            let chunk = artifact(64 * 1024);
            while stream.write_all(chunk.as_bytes()).is_ok() {}
            return;
        }
        "oversized" => artifact(OVERSIZED_BYTES),
        _ => completed,
    };
    let _ = stream.write_all(rest.as_bytes());
}

/// A function that does what the text of a message says.
fn misbehaving() -> ByHand {
    ByHand::new(|request, stream| {
        let word = request.body["message"]["parts"][0]["text"].as_str().unwrap();
        let (form, fault) = word.split_once(' ').unwrap();
        let text = match form {
            "lines" => {
                return events(fault, "application/x-ndjson", |json| format!("{json}\n"), stream);
            }
            "events" => {
                let framed = |json: &str| format!("data: {json}\n\n");
                return events(fault, "text/event-stream", framed, stream);
            }
            "json" => json(fault, stream),
            _ => head(fault, stream),
        };
        let _ = stream.write_all(text.as_bytes());
    })
}

fn soak(count: usize) {
    let function = misbehaving();
    soak_upstream("functions", &format!("http://{}/turn", function.addr), &FAULTS, count);
}

#[test]
fn hundreds_of_http_function_faults_leak_no_resources() {
    soak(380);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_http_function_faults_leak_no_resources() {
    soak(10_000);
}
