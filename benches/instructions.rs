//! User-space instructions per request of the pure engine, counted by callgrind.
//!
//! `cargo bench --bench instructions` runs itself under `valgrind --tool=callgrind` with two request
//! counts for each case and subtracts; the figures repeat exactly for one binary. A case above its
//! ceiling fails the run. `-- CASE COUNT` runs one case without valgrind, for profiles.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/prepared.rs"]
mod prepared;

use std::{process::Command, sync::Arc, task::Waker};

use peregrine::{
    agent::echo::Echo,
    client::SendRequest,
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    json::Source,
    service::{Entropy, Now, Peer},
};

/// Case, instructions per request at most, requests in one input.
///
/// What is counted, and some 0.7 % for what another build does.
const CASES: &[(&str, u64, u64)] = &[
    ("send", 8_900, 1),
    ("get", 4_850, 1),
    ("get_pipelined_16", 4_695, 16),
    ("batch_100", 353_850, 1),
    ("stream_3", 12_190, 1),
    ("stream_100", 77_050, 1),
    ("card", 1_120, 1),
    ("send_v03", 10_050, 1),
    ("get_v03", 5_340, 1),
    // Every request has a trace of its own, or a token and a name: `get` and 1,200 at most, and one
    // for each byte beyond 256 of a line.
    ("get_traced", 5_362, 1),
    ("get_authorized", 5_675, 1),
    ("get_authorized_4k", 8_077, 1),
    // Every request has a field that none before had, so every head is a new one.
    ("get_new", 9_640, 1),
    ("get_ws", 5_062, 1),
    ("stream_100_ws", 79_550, 1),
    ("rest_send", 8_273, 1),
    ("rest_get", 4_006, 1),
    // Sixteen tasks in turn: every target is a new one.
    ("rest_get_any", 4_307, 16),
    // The client: its request written and its answer read, without a socket.
    ("client_send", 6_000, 1),
    ("client_get", 6_000, 1),
    ("client_stream_100", 150_000, 1),
];

const TEXT: &str = "Please summarise the attached quarterly numbers and tell me which region grew \
                    the fastest this year.";

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

fn post(body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Type: application/json\r\nAccept: \
         application/json, text/event-stream\r\nA2A-Version: 1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The same with some more lines, in which [`ANOTHER`] is to be replaced.
fn post_with(lines: &str, body: &str) -> Vec<u8> {
    let plain = String::from_utf8(post(body)).unwrap();
    plain.replacen("Content-Length", &format!("{lines}Content-Length"), 1).into_bytes()
}

/// What is another one in each request.
const ANOTHER: &[u8] = b"<>";

/// A trace (W3C Trace Context).
const TRACE: &str = "traceparent: 00-<>f92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

/// Credentials in a line of so many bytes, and the name of a request.
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

fn send(method: &str, text: &str) -> Vec<u8> {
    post(&message(method, text))
}

fn message(method: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"messageId":"0123456789abcdef","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
    )
}

const CARD: &[u8] = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\
    Accept: application/json\r\n\r\n";

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nA2A-Version: 1.0\r\n\r\n";

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

struct Bench {
    engine: Arc<Engine>,
    worker: Worker,
    conn: Conn,
    out: Vec<u8>,
    /// What every answer begins with.
    begins: &'static [u8],
}

const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

impl Bench {
    fn new() -> Bench {
        let agents: Vec<(_, Arc<dyn peregrine::agent::Agent>)> =
            vec![(Echo::profile(), Arc::new(Echo))];
        let setup = Setup { agents, ..Setup::default() };
        let base_url = "http://127.0.0.1:3000".to_owned();
        let start = Start { secret: 7, unix_ms: || 1_790_000_000_000, workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        let (conn, out) = (Conn::new(NOW), Vec::with_capacity(1 << 20));
        Bench { engine, worker, conn, out, begins: b"HTTP/1.1 200 OK\r\n" }
    }

    /// The same on a WebSocket.
    fn upgrade(&mut self) {
        self.begins = b"HTTP/1.1 101 ";
        let (mut input, length) = with_room(UPGRADE.to_vec());
        self.round(&mut input, length);
        // Text, whole, not masked.
        self.begins = b"\x81";
    }

    /// One `advance` with the first `length` bytes of `input`; behind them there is room, as in
    /// the driver's buffers.
    fn round(&mut self, input: &mut [u8], length: usize) {
        self.out.clear();
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now: NOW,
            wake: Waker::noop(),
            out: &mut self.out,
            unsent: 0,
            peer: Peer::default(),
        };
        let progress = self.conn.advance(&mut cx, Source::roomy(input, length), false);
        assert_eq!(progress.consumed, length);
        assert!(self.out.starts_with(self.begins), "{}", self.text());
    }

    /// Head and content of the answer to a request.
    fn answer(&mut self, request: Vec<u8>) -> (String, String) {
        let (mut input, length) = with_room(request);
        self.round(&mut input, length);
        let text = self.text();
        let (head, content) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), content.to_owned())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    fn task_id(&mut self) -> String {
        let (mut input, length) = with_room(send("SendMessage", TEXT));
        self.round(&mut input, length);
        let text = self.text();
        let at = text.find(r#""task":{"id":""#).expect("a task") + 14;
        text[at..at + 36].to_owned()
    }
}

/// What the client does with answers that the engine gave, `count` times.
fn run_client(case: &str, count: u64) {
    let mut bench = Bench::new();
    let id = bench.task_id();
    let (_, card) = bench.answer(CARD.to_vec());
    let transport = prepared::Prepared::default();
    let client = prepared::client(&transport, &card);
    let (text, stream) = (SendRequest::text(TEXT), SendRequest::text("stream:100"));
    let (media, request) = match case {
        "client_send" => ("application/json", message("SendMessage", TEXT)),
        "client_get" => ("application/json", get("GetTask", &id)),
        "client_stream_100" => ("text/event-stream", message("SendStreamingMessage", "stream:100")),
        other => panic!("no case {other}"),
    };
    // The client's ids are strings.
    let (envelope, rest) = request.split_once(",\"method\"").unwrap();
    let (version, _) = envelope.split_once("\"id\"").unwrap();
    let (head, content) =
        bench.answer(post(&format!(r#"{version}"id":"{}","method"{rest}"#, prepared::ID)));
    let is_chunked = head.contains("Transfer-Encoding: chunked");
    transport.answer(media, &if is_chunked { without_chunks(&content) } else { content });
    for _ in 0..count {
        match case {
            "client_send" => {
                let answer = prepared::now(client.send(&text)).unwrap();
                assert!(answer.task().is_some());
            }
            "client_get" => {
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
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        content.push_str(&behind[..size]);
        rest = behind[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            break;
        }
    }
    content
}

/// A block of room behind the input, and the length of the input.
fn with_room(mut input: Vec<u8>) -> (Vec<u8>, usize) {
    let length = input.len();
    input.resize(length + 64, 0);
    (input, length)
}

fn get(method: &str, id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"id":"{id}"}}}}"#)
}

fn run(case: &str, count: u64) {
    if case.starts_with("client_") {
        return run_client(case, count);
    }
    let mut bench = Bench::new();
    let id = bench.task_id();
    let (input, expected) = match case {
        "send" => (send("SendMessage", TEXT), "TASK_STATE_COMPLETED"),
        "get" => (post(&get("GetTask", &id)), "TASK_STATE_COMPLETED"),
        "get_traced" => (post_with(TRACE, &get("GetTask", &id)), "TASK_STATE_COMPLETED"),
        "get_authorized" => {
            (post_with(&credentials(256), &get("GetTask", &id)), "TASK_STATE_COMPLETED")
        }
        "get_authorized_4k" => {
            (post_with(&credentials(4096), &get("GetTask", &id)), "TASK_STATE_COMPLETED")
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
                (0..16).map(|_| rest(&format!("GET /tasks/{}", bench.task_id()), "")).collect();
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
    let is_another = |at: &usize| input[*at..].starts_with(ANOTHER);
    let others: Vec<usize> = (0..input.len()).filter(is_another).collect();
    for turn in 0..count {
        for &at in &others {
            // Far more than are remembered.
            input[at] = b'a' + (turn % 6) as u8;
            input[at + 1] = b'0' + (turn / 6 % 10) as u8;
        }
        bench.round(&mut input, length);
    }
    assert!(bench.text().contains(expected), "{}", bench.text());
}

/// Instructions of a whole run of `count` rounds, as callgrind says them.
fn instructions(case: &str, count: u64) -> u64 {
    let me = std::env::current_exe().expect("own path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args([case, &count.to_string()])
        .output()
        .expect("valgrind is installed");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let line = log.lines().find(|line| line.contains("Collected :")).expect("a count");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [case, count] = &args[..] {
        return run(case, count.parse().expect("a count"));
    }
    let mut above = 0;
    for &(case, ceiling, requests) in CASES {
        if args.first().is_some_and(|only| only != case) {
            continue;
        }
        let (few, many) = (100, 600);
        let spent = instructions(case, many) - instructions(case, few);
        let each = spent / (many - few) / requests;
        let verdict = if each <= ceiling { "ok" } else { "ABOVE" };
        above += u32::from(each > ceiling);
        println!("{case:20} {each:>8} instructions per request (ceiling {ceiling}) {verdict}");
    }
    assert_eq!(above, 0, "cases above their ceilings");
}
