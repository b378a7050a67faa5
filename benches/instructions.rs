//! User-space instructions per request of the pure engine, counted by callgrind.
//!
//! `cargo bench --bench instructions` runs itself under `valgrind --tool=callgrind` with two request
//! counts for each case and subtracts; the figures repeat exactly for one binary. A case above its
//! ceiling fails the run. `-- CASE COUNT` runs one case without valgrind, for profiles.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/callers.rs"]
mod callers;
#[path = "support/counted.rs"]
mod counted;
#[path = "support/engine.rs"]
mod engine;
#[path = "support/posts.rs"]
mod posts;

use peregrine::engine::Setup;

use engine::{Bench, CARD, TEXT, get, message, post, send, with_room};

/// Case, instructions per request at most, requests in one input.
///
/// The ceiling is the counted number plus 0.7 % for other builds. Before the store had equal
/// shares, `send` took 9,318, `send_key` 12,192 and `send_key_once` 12,634.
const CASES: &[(&str, u64, u64)] = &[
    ("send", 9_440, 1),
    ("get", 5_150, 1),
    // Like `get`, counted for `/metrics`.
    ("get_counted", 5_340, 1),
    ("get_pipelined_16", 4_950, 16),
    ("batch_100", 361_380, 1),
    ("stream_3", 12_950, 1),
    ("stream_100", 78_180, 1),
    ("card", 1_365, 1),
    ("send_v03", 10_600, 1),
    ("get_v03", 5_620, 1),
    // Every request has a trace of its own, or a token and a name: `get` and 1,200 at most, and one
    // for each byte beyond 256 of a line.
    ("get_traced", 5_680, 1),
    ("get_authorized", 5_990, 1),
    ("get_authorized_4k", 8_410, 1),
    // Every request has a new field, so every head is new.
    ("get_new", 10_020, 1),
    // Authenticated callers, and the same bytes for anonymous callers: 600 more at most.
    ("get_key_anonymous", 5_750, 1),
    ("get_key", 6_475, 1),
    ("get_key_quota", 7_090, 1),
    ("get_token_anonymous", 5_880, 1),
    ("get_token", 7_440, 1),
    // The same with a new head.
    ("get_new_key_anonymous", 10_620, 1),
    ("get_new_key", 11_320, 1),
    // Messages with their own ids, with and without detection of repeats: 200 more at most.
    ("send_key", 12_350, 1),
    ("send_key_once", 12_880, 1),
    ("get_ws", 5_290, 1),
    ("stream_100_ws", 77_340, 1),
    ("rest_send", 8_880, 1),
    ("rest_get", 4_430, 1),
    // Sixteen tasks in turn: every target is a new one.
    ("rest_get_any", 4_690, 16),
    // A webhook event: the request is made, and reported as delivered. There is no socket.
    ("webhook", 8_840, 1),
];

/// The same with some more lines, in which [`ANOTHER`] is to be replaced.
fn post_with(lines: &str, body: &str) -> Vec<u8> {
    let plain = String::from_utf8(post(body)).unwrap();
    plain.replacen("Content-Length", &format!("{lines}Content-Length"), 1).into_bytes()
}

/// Replaced by a different text in each request.
const ANOTHER: &[u8] = b"<>";

/// Replaced by the number of its turn in each request.
const NUMBER: &[u8] = b"<number>";

/// A trace (W3C Trace Context).
const TRACE: &str = "traceparent: 00-<>f92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

/// Credentials in a line of this many bytes, and the name of a request.
fn credentials(bytes: usize) -> String {
    let token = "0123456789abcdef".repeat(bytes / 16 + 1);
    format!(
        "Authorization: Bearer <>{}\r\nX-Request-Id: <>d9c2a4-3d53-4b39-8a3e-0f6f2f0c9d11\r\n",
        &token[..bytes - 26]
    )
}

fn rest(line: &str, body: &str) -> Vec<u8> {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    format!(
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nAccept: application/json, text/event-stream\r\n\
         A2A-Version: 1.0\r\n{length}\r\n{body}"
    )
    .into_bytes()
}

/// A text message as a client sends it (RFC 6455 §5.3), of 126 bytes to 64 KiB or shorter.
fn masked(text: &str) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = match text.len() {
        short @ 0..126 => vec![0x81, 0x80 | short as u8],
        long => vec![0x81, 0xfe, (long >> 8) as u8, long as u8],
    };
    frame.extend_from_slice(&key);
    frame.extend(text.bytes().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Whether a case has authenticated callers.
fn authenticates_callers(case: &str) -> bool {
    case.contains("_key") && !case.ends_with("_anonymous") || case == "get_token"
}

fn run(case: &str, count: u64) {
    if case == "webhook" {
        return posts::run(count);
    }
    let mut bench = match case {
        "get_counted" => {
            let observer = Some(peregrine::net::counting(1, 1_024));
            Bench::with(Setup { observer, ..Setup::default() })
        }
        case if authenticates_callers(case) => {
            Bench::with(callers::setup(case.ends_with("_quota"), case.ends_with("_once")))
        }
        _ => Bench::new(),
    };
    let lines = match case {
        "get_token" => callers::TOKEN,
        case if authenticates_callers(case) => callers::KEY,
        _ => "",
    };
    // The first message has the same head as in the case to compare with.
    let lines = match case {
        "get_key_anonymous" => callers::KEY,
        "get_token_anonymous" => callers::TOKEN,
        _ => lines,
    };
    let id = bench.task_id(lines);
    let (input, expected) = match case {
        "send" => (send("SendMessage", TEXT), "TASK_STATE_COMPLETED"),
        "get" | "get_counted" => (post(&get("GetTask", &id)), "TASK_STATE_COMPLETED"),
        "get_traced" => (post_with(TRACE, &get("GetTask", &id)), "TASK_STATE_COMPLETED"),
        "get_authorized" => {
            (post_with(&credentials(256), &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "get_authorized_4k" => {
            (post_with(&credentials(4096), &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "get_key" | "get_key_anonymous" | "get_key_quota" => {
            (post_with(callers::KEY, &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "get_token" | "get_token_anonymous" => {
            (post_with(callers::TOKEN, &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "get_new_key" | "get_new_key_anonymous" => {
            let lines = format!("X-<>: 1\r\n{}", callers::KEY);
            (post_with(&lines, &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "send_key" | "send_key_once" => {
            let body = message("SendMessage", TEXT).replace("0123456789abcdef", "<number>89abcdef");
            (post_with(callers::KEY, &body), "TASK_STATE_COMPLETED")
        }
        "get_new" => (post_with("X-<>: 1\r\n", &get("GetTask", &id)), "TASK_STATE_COMPLETED"),
        "get_pipelined_16" => (post(&get("GetTask", &id)).repeat(16), "TASK_STATE_COMPLETED"),
        "batch_100" => {
            (post(&format!("[{}]", vec![get("GetTask", &id); 100].join(","))), "},{\"jsonrpc\"")
        }
        "stream_3" => (send("SendStreamingMessage", "stream:3"), "\r\n0\r\n\r\n"),
        "stream_100" => (send("SendStreamingMessage", "stream:100"), "\r\n0\r\n\r\n"),
        "card" => (CARD.to_vec(), "supportedInterfaces"),
        "send_v03" => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{{"message":{{"kind":"message","messageId":"0123456789abcdef","role":"user","parts":[{{"kind":"text","text":"{TEXT}"}}]}}}}}}"#
            );
            (post(&body), "\"completed\"")
        }
        "rest_send" => {
            let body = format!(
                r#"{{"message":{{"messageId":"0123456789abcdef","role":"ROLE_USER","parts":[{{"text":"{TEXT}"}}]}}}}"#
            );
            (rest("POST /message:send", &body), "TASK_STATE_COMPLETED")
        }
        "rest_get" => (rest(&format!("GET /tasks/{id}"), ""), "TASK_STATE_COMPLETED"),
        "rest_get_any" => {
            let tasks: Vec<Vec<u8>> =
                (0..16).map(|_| rest(&format!("GET /tasks/{}", bench.task_id("")), "")).collect();
            (tasks.concat(), "TASK_STATE_COMPLETED")
        }
        "get_v03" => (post(&get("tasks/get", &id)), "\"completed\""),
        "get_ws" | "stream_100_ws" => {
            bench.upgrade();
            match case {
                "get_ws" => (masked(&get("GetTask", &id)), "TASK_STATE_COMPLETED"),
                _ => {
                    (masked(&message("SendStreamingMessage", "stream:100")), "\"stream_complete\"")
                }
            }
        }
        other => panic!("no case {other}"),
    };
    let (mut input, length) = with_room(input);
    let positions = |mark: &[u8]| -> Vec<usize> {
        (0..input.len()).filter(|at| input[*at..].starts_with(mark)).collect()
    };
    let (others, numbers) = (positions(ANOTHER), positions(NUMBER));
    for turn in 0..count {
        for &at in &others {
            // Far more values than the cache holds.
            input[at] = b'a' + (turn % 6) as u8;
            input[at + 1] = b'0' + (turn / 6 % 10) as u8;
        }
        for &at in &numbers {
            input[at..at + NUMBER.len()].copy_from_slice(format!("{turn:08}").as_bytes());
        }
        bench.round(&mut input, length);
    }
    assert!(bench.text().contains(expected), "{}", bench.text());
}

fn main() {
    counted::main(CASES, run);
}
