//! User-space instructions per call of the client alone, counted by callgrind: its codec writes the
//! request and reads the answer, without a socket and a runtime.
//!
//! `cargo bench --bench client_instructions` counts as `instructions` does, in a separate binary:
//! the content of one binary changes what is inlined in the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, dead_code)]

#[path = "support/counted.rs"]
mod counted;
#[path = "support/engine.rs"]
mod engine;
#[path = "support/prepared.rs"]
mod prepared;

use peregrine::client::SendRequest;

use engine::{Bench, CARD, TEXT, get, message, post, with_room};

/// Case, instructions per call at most, calls in one input.
///
/// The limit is the counted number plus 0.7 % for other builds; `send` may take 6,000.
const CASES: &[(&str, u64, u64)] =
    &[("send", 6_020, 1), ("get", 5_820, 1), ("stream_100", 225_200, 1)];

/// Head and content of the engine's answer to a request.
fn answer(bench: &mut Bench, request: Vec<u8>) -> (String, String) {
    let (mut input, length) = with_room(request);
    bench.round(&mut input, length);
    let text = bench.text();
    let (head, content) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), content.to_owned())
}

/// The client's work on answers of the engine, `count` times.
fn run(case: &str, count: u64) {
    let mut bench = Bench::new();
    let id = bench.task_id("");
    let (_, card) = answer(&mut bench, CARD.to_vec());
    let transport = prepared::Prepared::default();
    let client = prepared::client(&transport, &card);
    let (text, stream) = (SendRequest::text(TEXT), SendRequest::text("stream:100"));
    let (media, request) = match case {
        "send" => ("application/json", message("SendMessage", TEXT)),
        "get" => ("application/json", get("GetTask", &id)),
        "stream_100" => ("text/event-stream", message("SendStreamingMessage", "stream:100")),
        other => panic!("no case {other}"),
    };
    // The client's ids are strings.
    let (envelope, rest) = request.split_once(",\"method\"").unwrap();
    let (version, _) = envelope.split_once("\"id\"").unwrap();
    let (head, content) =
        answer(&mut bench, post(&format!(r#"{version}"id":"{}","method"{rest}"#, prepared::ID)));
    let is_chunked = head.contains("Transfer-Encoding: chunked");
    transport.answer(media, &if is_chunked { without_chunks(&content) } else { content });
    for _ in 0..count {
        match case {
            "send" => {
                let answer = prepared::now(client.send(&text)).unwrap();
                assert!(answer.task().is_some());
            }
            "get" => {
                let answer = prepared::now(client.get_task(&*id, None)).unwrap();
                assert!(answer.task().is_some());
            }
            _ => {
                let mut stream = prepared::now(client.stream(&stream)).unwrap();
                let mut events = 0;
                while let Some(event) = prepared::now(stream.next()) {
                    event.unwrap();
                    events += 1;
                }
                assert_eq!(events, 101);
            }
        }
    }
}

/// The content of a chunked body.
fn without_chunks(body: &str) -> String {
    let (mut content, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        content.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            break;
        }
    }
    content
}

fn main() {
    counted::main(CASES, run);
}
