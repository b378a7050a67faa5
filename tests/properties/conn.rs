//! Properties of a whole connection for any bytes: bytes in, bytes out, no sockets.
//!
//! Inputs may name an existing task: [`TASK`] stands for its id.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

use peregrine::{
    agent::{Agent, echo::Echo},
    engine::{Conn, Cx, Engine, Mount, Next, Setup, Start, Worker},
    json::{Parser, Source},
    limits::Limits,
    service::{Entropy, Now, Peer},
};
use serde_json::value::RawValue;

/// In an input, the id of an existing task.
pub const TASK: &[u8; 36] = b"tttttttt-tttt-4ttt-8ttt-tttttttttttt";

/// Limits that short inputs reach.
fn limits() -> Limits {
    Limits {
        head_bytes_max: 1024,
        head_fields_max: 12,
        target_bytes_max: 256,
        query_bytes_max: 64,
        body_bytes_max: 4096,
        chunk_line_bytes_max: 32,
        trailer_bytes_max: 64,
        batch_calls_max: 6,
        rpc_id_bytes_max: 40,
        output_bytes_max: 4096,
        tasks_max: 6,
        task_bytes_max: 8192,
        turn_events_max: 40,
        event_ring_max: 16,
        ..Limits::default()
    }
}

/// The most output of one `advance`: a batch of pages of all tasks, above the output limit.
fn output_max(limits: &Limits) -> usize {
    let task = 4 * limits.task_bytes_max + 2048;
    limits.output_bytes_max + limits.batch_calls_max * limits.tasks_max * task
}

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A server with one connection.
struct Server {
    engine: Arc<Engine>,
    worker: Worker,
    conn: Conn,
    now: Now,
    bell: Arc<Bell>,
    /// Received and not consumed.
    input: Vec<u8>,
    /// All sent bytes.
    sent: Vec<u8>,
    is_over: bool,
}

impl Server {
    fn new(limits: Limits) -> Server {
        let agents: Vec<(_, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
        let mount = |path: &str, dialect: &str| Mount {
            path: path.to_owned(),
            dialect: dialect.to_owned(),
            agent: None,
        };
        let mounts = vec![mount("/rpc", "a2a_rust"), mount("/tutorial", "tutorial")];
        let setup = Setup { limits, agents, mounts, ..Setup::default() };
        let base_url = "http://a".to_owned();
        let start =
            Start { secret: 7, unix_ms: Arc::new(|| 1_790_000_000_000), workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        let now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };
        let (input, sent) = (Vec::new(), Vec::new());
        let bell = Arc::default();
        Server { engine, worker, conn: Conn::new(now), now, bell, input, sent, is_over: false }
    }

    /// A server with a task, and its id.
    fn with_task(limits: Limits) -> (Server, Vec<u8>) {
        let mut server = Server::new(limits);
        server.feed(&post("/", "A2A-Version: 1.0\r\n", SEND.as_bytes()));
        let text = String::from_utf8(std::mem::take(&mut server.sent)).unwrap();
        let at = text.find("\"task\":{\"id\":\"").expect("a task") + 14;
        (server, text.as_bytes()[at..at + 36].to_vec())
    }

    /// Advances until no step makes progress; each step but the last reads or writes.
    fn advance(&mut self, eof: bool) {
        let bound = output_max(self.engine.limits());
        let waker = Waker::from(Arc::clone(&self.bell));
        while !self.is_over {
            let mut out = Vec::new();
            let mut cx = Cx {
                engine: &self.engine,
                worker: &mut self.worker,
                now: self.now,
                wake: &waker,
                out: &mut out,
                unsent: 0,
                peer: Peer::default(),
            };
            // The room for output makes no difference: some steps get a buffer and some do not.
            let length = self.input.len();
            let before = self.input.clone();
            let progress = if length.is_multiple_of(2) {
                self.conn.advance(&mut cx, &self.input, eof)
            } else {
                self.input.resize(length + 64, b'\\');
                let input = Source::roomy(&mut self.input, length);
                self.conn.advance(&mut cx, input, eof)
            };
            self.input.truncate(length);
            assert!(progress.consumed <= length && self.input == before);
            assert!(out.len() <= bound, "{} bytes of output", out.len());
            self.input.drain(..progress.consumed);
            self.is_over = progress.next != Next::Open;
            self.sent.extend_from_slice(&out);
            let has_time = progress.deadline_ms.is_none_or(|due| due > self.now.mono_ms);
            assert!(has_time || self.is_over || !out.is_empty(), "a deadline in the past");
            if progress.consumed == 0 && out.is_empty() {
                return;
            }
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.advance(false);
    }

    /// Feeds bytes in pieces, ends the input, and returns all sent bytes.
    fn talk(&mut self, bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> &[u8] {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            self.feed(now);
            rest = later;
        }
        self.end();
        &self.sent
    }

    /// Lets a minute pass for the agents and the connection, then ends the input.
    fn end(&mut self) {
        for _ in 0..12 {
            self.now.mono_ms += 5_000;
            let waker = Waker::from(Arc::clone(&self.bell));
            self.engine.tick(&mut self.worker, self.now, &waker);
            self.advance(false);
        }
        self.advance(true);
        assert!(self.is_over, "a connection ends with its input");
    }
}

const SEND: &str = r#"{"jsonrpc":"2.0","id":0,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;

fn post(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn replace(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let is_it = rest.starts_with(what);
        out.extend_from_slice(if is_it { with } else { &rest[..1] });
        rest = &rest[if is_it { what.len() } else { 1 }..];
    }
    out
}

/// All bytes sent in answer to `bytes` in pieces, without interim answers, which depend on the
/// pieces.
fn answers(bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> String {
    let (mut server, id) = Server::with_task(limits());
    let bytes = replace(bytes, TASK, &id);
    let sent = server.talk(&bytes, piece);
    let sent = replace(sent, b"HTTP/1.1 100 Continue\r\n\r\n", b"");
    sent.escape_ascii().to_string()
}

/// Whole, byte by byte, and in pieces of sizes that the first byte selects, the same bytes get the
/// same answers.
pub fn responses_are_the_same_however_cut(bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    assert_same_however_cut(*seed, |piece| answers(bytes, piece));
}

fn assert_same_however_cut(seed: u8, answers: impl Fn(&mut dyn FnMut() -> usize) -> String) {
    let whole = answers(&mut || usize::MAX);
    assert_eq!(answers(&mut || 1), whole, "byte by byte");
    let mut size = u32::from(seed);
    let pieces = answers(&mut || {
        size = size.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (size >> 16) as usize % 70
    });
    assert_eq!(pieces, whole, "in pieces");
}

/// The same for any bytes after an upgrade; the output consists of whole frames, and a close frame
/// is the last. The output limit is never reached, since otherwise the order of calls and streams
/// would depend on when the peer reads.
pub fn websocket_output_is_the_same_however_cut(bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    assert_same_however_cut(*seed, |piece| {
        let limits = Limits {
            output_bytes_max: 1 << 24,
            ws_frame_bytes_max: 1_024,
            ws_message_bytes_max: 2_048,
            ws_in_flight_max: 3,
            ..limits()
        };
        let (mut server, id) = Server::with_task(limits);
        server.feed(UPGRADE);
        assert!(server.sent.starts_with(b"HTTP/1.1 101 ") && server.sent.ends_with(b"\r\n\r\n"));
        server.sent.clear();
        let sent = server.talk(&replace(bytes, TASK, &id), piece);
        check_frames(sent);
        sent.escape_ascii().to_string()
    });
}

const UPGRADE: &[u8] = b"GET /?eventIds=1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// Whole unmasked frames: text that is JSON, control frames, and a close at the end.
fn check_frames(mut sent: &[u8]) {
    while let [first, second, rest @ ..] = sent {
        let (length, rest) = match second {
            0..126 => (usize::from(*second), rest),
            126 => (usize::from(rest[0]) << 8 | usize::from(rest[1]), &rest[2..]),
            _ => (u64::from_be_bytes(*rest.first_chunk().unwrap()) as usize, &rest[8..]),
        };
        let (payload, rest) = rest.split_at(length);
        match first {
            0x81 => drop(serde_json::from_slice::<Box<RawValue>>(payload).expect("JSON")),
            0x88 => assert!(rest.is_empty() && length <= 125),
            0x89 | 0x8a => assert!(length <= 125),
            other => panic!("a frame that begins with {other:x}"),
        }
        sent = rest;
    }
    assert!(sent.is_empty());
}

/// A body gets one response, or one for each call of a batch except notifications, with the id as
/// written in the body; each response is JSON-RPC 2.0.
pub fn each_call_gets_one_response(bytes: &[u8]) {
    let Some((selector, body)) = bytes.split_first() else { return };
    let (mut server, id) = Server::with_task(limits());
    let body = replace(body, TASK, &id);
    if body.len() > server.engine.limits().body_bytes_max {
        return;
    }
    let path = ["/", "/rpc", "/tutorial"][usize::from(*selector) % 3];
    let version = ["", "A2A-Version: 1.0\r\n", "A2A-Version: 0.3\r\n"];
    let version = version[usize::from(*selector) / 3 % 3];
    server.feed(&post(path, version, &body));
    server.end();
    let at = server.sent.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    let (head, answer) = server.sent.split_at(at);
    let head = str::from_utf8(head).unwrap();
    let mut parser = Parser::new();
    let depth = server.engine.limits().json_depth_max + 2;
    let calls = match parser.parse(&body, depth) {
        Err(_) => vec![Wanted::Id("null".to_owned())],
        Ok(value) if value.raw().starts_with(b"[") => {
            let calls: Vec<&RawValue> = serde_json::from_slice(value.raw()).unwrap();
            match calls.len() {
                0 => vec![Wanted::Id("null".to_owned())],
                n if n > server.engine.limits().batch_calls_max => {
                    vec![Wanted::Id("null".to_owned())]
                }
                _ => calls.into_iter().map(|call| wanted(call.get())).collect(),
            }
        }
        Ok(value) => vec![match wanted(str::from_utf8(value.raw()).unwrap()) {
            Wanted::Nothing if head.starts_with("HTTP/1.1 204") => Wanted::Nothing,
            Wanted::Nothing => Wanted::Id("null".to_owned()),
            id => id,
        }],
    };
    let mut expected: Vec<_> = calls
        .into_iter()
        .filter_map(|call| match call {
            Wanted::Id(id) => Some(id),
            Wanted::Nothing => None,
        })
        .collect();
    let mut found = ids_of(head, answer);
    if head.contains("text/event-stream") {
        assert!(!found.is_empty() && found.iter().all(|id| *id == expected[0]));
        return;
    }
    // A call that waits is answered after the others, which JSON-RPC 2.0 §6 allows.
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// The expected answer to a request.
enum Wanted {
    Id(String),
    Nothing,
}

/// A slow and simple reading of JSON-RPC 2.0 §4.
fn wanted(call: &str) -> Wanted {
    let null = Wanted::Id("null".to_owned());
    let Ok(Members(members)) = serde_json::from_str(call) else { return null };
    let all = |name: &str| -> Vec<&str> {
        members.iter().filter(|(key, _)| key == name).map(|(_, value)| value.get()).collect()
    };
    let text = |raw: &str| serde_json::from_str::<String>(raw).ok();
    let [versions, ids, methods, params] = ["jsonrpc", "id", "method", "params"].map(all);
    let is_scalar = |raw: &str| !raw.starts_with(['{', '[', 'n']);
    let is_request = [&versions, &ids, &methods, &params].iter().all(|found| found.len() <= 1)
        && versions.first().is_some_and(|raw| text(raw).as_deref() == Some("2.0"))
        && methods.first().is_some_and(|raw| text(raw).is_some())
        && !params.first().is_some_and(|raw| is_scalar(raw));
    match ids.first() {
        None if is_request => Wanted::Nothing,
        None => null,
        // With two ids, neither counts.
        Some(_) if ids.len() > 1 => null,
        Some(id) if id.starts_with(['{', '[', 't', 'f']) => null,
        Some(id) if id.len() > limits().rpc_id_bytes_max => null,
        Some(id) => Wanted::Id((*id).to_owned()),
    }
}

/// The members of an object in order, with duplicates.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct Visit;
        impl<'de> serde::de::Visitor<'de> for Visit {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Visit)
    }
}

/// The ids in an answer; asserts that each response follows JSON-RPC 2.0 §5.
fn ids_of(head: &str, answer: &[u8]) -> Vec<String> {
    let answer = str::from_utf8(answer).expect("answers are UTF-8");
    let id_of = |response: &str| {
        let Members(members) = serde_json::from_str(response).expect(response);
        let all = |name| members.iter().filter(|(key, _)| key == name).collect::<Vec<_>>();
        assert_eq!(all("jsonrpc")[0].1.get(), "\"2.0\"", "{response}");
        assert_eq!(all("result").len() + all("error").len(), 1, "{response}");
        assert_eq!((members.len(), all("id").len()), (3, 1), "{response}");
        all("id")[0].1.get().to_owned()
    };
    if head.contains("text/event-stream") {
        return answer.lines().filter_map(|line| line.strip_prefix("data: ")).map(id_of).collect();
    }
    let length = format!("Content-Length: {:>10}", answer.len());
    let is_whole = head.lines().any(|line| line.replace(' ', "") == length.replace(' ', ""));
    if head.starts_with("HTTP/1.1 204") {
        assert!(answer.is_empty());
        return Vec::new();
    }
    assert!(is_whole, "{head}{answer}");
    match answer.strip_prefix('[') {
        None => vec![id_of(answer)],
        Some(_) => {
            let responses: Vec<&RawValue> = serde_json::from_str(answer).expect(answer);
            assert!(!responses.is_empty());
            responses.iter().map(|response| id_of(response.get())).collect()
        }
    }
}
