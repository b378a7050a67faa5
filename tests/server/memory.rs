//! The terms of the memory sum are upper bounds: each test drives one to its limit over real
//! sockets, and the resident memory of the process grows by no more.

#[cfg(feature = "auth")]
mod callers;
mod terms;
mod watched;
#[cfg(all(feature = "push", feature = "auth"))]
mod webhooks;

use std::{io::Write, net::TcpStream};

use peregrine::{agent::echo::Echo, limits::Limits, net::Server};

use crate::support::{
    ask::{OutgoingMessage, V1, get, post, rpc, say},
    binary::{Binary, Tcp, eventually, unread},
    ws,
};
use watched::{SLACK_BYTES, Watched, assert_within, growth};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The terms of HTTP/2.
const HTTP2: [&str; 2] = ["calls and tables of HTTP/2", "current HTTP/2 heads"];
/// The term of requests and answers in transfer.
const ON_ITS_WAY: &str = "partial requests and unsent output";
/// The term of one request and its answer.
const AT_HAND: &str = "the current request and answer";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal of less than 127 bytes, or of a length in three bytes (RFC 7541 §5.1).
fn text(block: &mut Vec<u8>, text: &[u8]) {
    match text.len().checked_sub(127) {
        None => block.push(text.len() as u8),
        Some(more) => {
            block.extend([127, (more % 128) as u8 | 128, (more / 128 % 128) as u8 | 128]);
            block.push((more / 128 / 128) as u8);
        }
    }
    block.extend_from_slice(text);
}

fn field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    text(block, name);
    text(block, value);
}

fn call(path: &[u8], media: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x41];
    // A host that the server accepts, since it holds nothing for a refused request.
    text(&mut block, b"a.example");
    field(&mut block, b":path", path);
    field(&mut block, b"content-type", media);
    block
}

const PING: u8 = 6;
/// GOAWAY before any stream, with ENHANCE_YOUR_CALM.
const REFUSED: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];

/// Sends a PING; its answer shows that the server has read everything before it.
fn ping(tcp: &mut Tcp) {
    tcp.write(&frame(PING, 0, 0, b"the last"));
    tcp.stream.set_nonblocking(true).unwrap();
}

/// Reads the available bytes; true: they answer the PING.
fn has_answered(tcp: &mut Tcp, received: &mut Vec<u8>) -> bool {
    has_read(tcp, received, b"the last")
}

/// Reads the available bytes; true: all bytes so far contain `words`.
fn has_read(tcp: &mut Tcp, received: &mut Vec<u8>, words: &[u8]) -> bool {
    use std::io::Read;
    let mut some = [0; 16 * 1024];
    while let Ok(count @ 1..) = tcp.stream.read(&mut some) {
        received.extend_from_slice(&some[..count]);
    }
    received.windows(words.len()).any(|some| some == words)
}

/// Waits until the server has read everything that these connections sent.
fn settled(watched: &Watched, all: &mut [Tcp]) -> u64 {
    all.iter_mut().for_each(ping);
    let mut received = vec![Vec::new(); all.len()];
    growth(watched, || {
        let mut each = all.iter_mut().zip(&mut received);
        each.all(|(tcp, received)| has_answered(tcp, received))
    })
}

/// gRPC calls with heads of nearly a hundred fields and no message.
#[test]
fn http2_calls_without_message_stay_within_memory_bound() {
    let streams = 1_500;
    let watched =
        Watched::new(&["http2_connections_max=2", &format!("http2_streams_max={streams}")]);
    let mut block = call(b"/lf.a2a.v1.A2AService/SendMessage", b"application/grpc");
    for n in 0..94 {
        field(&mut block, format!("x{n}").as_bytes(), &[b'v'; 100]);
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut tcp = watched.server.connect();
        tcp.write(PREFACE);
        for n in 0..streams {
            tcp.write(&frame(1, 4, 2 * n + 1, &block));
        }
        all.push(tcp);
    }
    let grown = settled(&watched, &mut all);
    watched.assert_within(grown, &HTTP2);
    // The server holds all of them.
    assert!(grown > 2 * u64::from(streams) * 1024, "{grown}");
    drop(all);
    watched.server.assert_lives();
}

/// The frames that they sent before the GOAWAY are not retained.
#[test]
fn refused_http2_connections_stay_within_memory_bound() {
    let (refused, rest) = (400, frame(0xfe, 0, 0, &[0; 16_000]).repeat(4));
    let watched = Watched::new(&["http2_connections_max=1", "linger_ms=5000"]);
    let mut all = vec![watched.server.connect()];
    all[0].write(PREFACE);
    all[0].write(&frame(PING, 0, 0, b"go on..."));
    all[0].read_until("go on...");
    for _ in 0..refused {
        let mut tcp = watched.server.connect();
        tcp.write(&[PREFACE, &rest].concat());
        all.push(tcp);
    }
    let mut received = vec![Vec::new(); all.len()];
    all.iter_mut().for_each(|tcp| tcp.stream.set_nonblocking(true).unwrap());
    let grown = growth(&watched, || {
        let mut each = all.iter_mut().zip(&mut received).skip(1);
        each.all(|(tcp, received)| has_read(tcp, received, REFUSED))
    });
    // The cost of a connection that waits for its peer to close.
    assert_within(grown, SLACK_BYTES + refused * 4096);
    drop(all);
    watched.server.assert_lives();
}

/// Each entry of the HPACK table keeps its receive buffer alive.
#[test]
fn hpack_tables_stay_within_memory_bound() {
    let watched = Watched::new(&["http2_connections_max=8", "http2_streams_max=8"]);
    let mut all: Vec<Tcp> = (0..8).map(|_| watched.server.connect()).collect();
    all.iter_mut().for_each(|tcp| tcp.write(PREFACE));
    for n in 0..110_u8 {
        // GET of a cached path, with a field that fills its frame.
        let mut block = vec![0x82, 0x86, 0x41, 0x01, b'x', 0x44, 0x02, b'/', b'!' + n % 90];
        field(&mut block, b"x-long", &[b'v'; 16_100]);
        for tcp in &mut all {
            tcp.write(&frame(1, 5, 2 * u32::from(n) + 1, &block));
            // No more at a time than the limit allows.
            if n % 4 == 3 {
                tcp.write(&frame(PING, 0, 0, b"go on..."));
                tcp.read_until("go on...");
                let _ = tcp.take();
            }
        }
    }
    let grown = settled(&watched, &mut all);
    watched.assert_within(grown, &HTTP2);
    assert!(grown > 4 * 1024 * 1024, "{grown}");
    drop(all);
    watched.server.assert_lives();
}

/// Heads without their last frame.
#[test]
fn unfinished_http2_heads_stay_within_memory_bound() {
    let watched = Watched::new(&["http2_connections_max=8", "http2_streams_max=1"]);
    let mut block = call(b"/lf.a2a.v1.A2AService/SendMessage", b"application/grpc");
    for n in 0..400 {
        field(&mut block, format!("{n:02x}").as_bytes(), b"");
    }
    let mut all = Vec::new();
    for _ in 0..8 {
        let mut tcp = watched.server.connect();
        tcp.write(PREFACE);
        tcp.write(&frame(PING, 0, 0, b"the last"));
        tcp.write(&frame(1, 0, 1, &block));
        // A field value of four frames.
        let mut more = vec![0, 1, b'x', 127, 0xff, 0xff, 0x07];
        more.resize(16_000, b'v');
        for _ in 0..4 {
            tcp.write(&frame(9, 0, 1, &more));
            more.fill(b'v');
        }
        all.push(tcp);
    }
    watched.wait_until_read(&all);
    let grown = watched.grown();
    watched.assert_within(grown, &HTTP2);
    drop(all);
    watched.server.assert_lives();
}

/// Reads up to the answer to the PING; false: the connection was reset.
fn is_let_go_on(tcp: &mut Tcp) -> bool {
    use std::io::Read;
    let (mut received, mut some) = (Vec::new(), [0; 4096]);
    while !received.windows(8).any(|some| some == b"go on...") {
        match tcp.stream.read(&mut some) {
            Ok(count @ 1..) => received.extend_from_slice(&some[..count]),
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

/// First pieces of messages over HTTP/2, which would together be ten times the limit.
#[test]
fn partial_http2_requests_stay_within_memory_bound() {
    let watched = Watched::new(&[
        "http2_connections_max=4",
        "http2_streams_max=400",
        "buffers_bytes_max=4_000_000",
    ]);
    let block = call(b"/lf.a2a.v1.A2AService/SendMessage", b"application/grpc");
    let piece = [&b"\0\0\x10\0\0"[..], &[b'x'; 16_000]].concat();
    // The server accepts no new connection once the buffers are full.
    let mut all: Vec<Tcp> = (0..4).map(|_| watched.server.connect()).collect();
    for tcp in &mut all {
        tcp.write(&[PREFACE, &frame(PING, 0, 0, b"go on...")].concat());
        tcp.read_until("go on...");
        let _ = tcp.take();
    }
    let mut grown = 0;
    for tcp in &mut all {
        for n in 0..400 {
            let call = [frame(1, 4, 2 * n + 1, &block), frame(0, 0, 2 * n + 1, &piece)].concat();
            // The window of the connection must be open.
            let call = [call, frame(PING, 0, 0, b"go on...")].concat();
            // The server cuts off the connection that holds most.
            if tcp.stream.write_all(&call).is_err() || !is_let_go_on(tcp) {
                break;
            }
            grown = watched.grown().max(grown);
        }
    }
    watched.assert_within(grown, &[HTTP2[0], HTTP2[1], ON_ITS_WAY]);
    // One of them reached its limit.
    assert!(grown > 3_000_000, "{grown}");
    drop(all);
    watched.server.assert_lives();
}

/// Sends `count` messages one after the other on one connection.
fn send_all(server: &Binary, count: usize, words: &str) {
    let mut tcp = server.connect();
    let request = post("/", &[], &rpc(V1.send(), &V1.params(say(words))));
    let ahead = (64 * 1024 / request.len()).clamp(1, 32);
    for _ in 0..count / ahead {
        tcp.write(&request.repeat(ahead));
        for _ in 0..ahead {
            let reply = tcp.reply();
            assert_eq!(reply.status, 200);
        }
    }
}

#[test]
fn store_of_large_tasks_stays_within_memory_bound() {
    let mut watched = Watched::new(&["store_bytes_max=16_000_000"]);
    send_all(&watched.server, 10, "warm");
    watched.begin();
    // Each is in its history and in an artifact: three times the limit.
    send_all(&watched.server, 400, &"x".repeat(60_000));
    let grown = watched.grown();
    watched.assert_within(grown, &["store: task logs"]);
    assert!(grown > watched.bound(&["store: task logs"]) / 2, "{grown}");
}

#[test]
fn store_of_many_tasks_stays_within_memory_bound() {
    let mut watched = Watched::new(&["tasks_max=10_000", "store_bytes_max=8_000_000"]);
    send_all(&watched.server, 10, "warm");
    watched.begin();
    send_all(&watched.server, 16_000, "x");
    watched.assert_within(watched.grown(), &["store: task logs", "slots and indexes"]);
}

/// Some tasks keep running while tasks stored with them are evicted; the next tasks are larger, so
/// none fits into the freed memory.
#[test]
fn store_with_running_tasks_stays_within_memory_bound() {
    let mut watched = Watched::new(&["tasks_max=2_000", "store_bytes_max=6_000_000"]);
    send_all(&watched.server, 10, "warm");
    watched.begin();
    let mut tcp = watched.server.connect();
    for phase in 0..8 {
        let bytes = (9_000.0 * 1.13_f64.powi(phase)) as usize;
        for n in 0..6_000_000 / bytes / 20 {
            let sent = (0..20).map(|at| {
                let words = if at == n % 20 { "hold:600000:1" } else { "x" };
                let mut params =
                    V1.params(OutgoingMessage { at_once: true, history: Some(0), ..say(words) });
                let pad = "x".repeat(bytes - (n * 20 + at) % 300);
                params["message"]["metadata"] = serde_json::json!({ "pad": pad });
                post("/", &[], &rpc(V1.send(), &params))
            });
            tcp.write(&sent.collect::<Vec<_>>().concat());
            (0..20).for_each(|_| assert_eq!(tcp.reply().status, 200));
        }
    }
    // Tasks of each size have their own pages.
    let pages = 3 * SLACK_BYTES;
    assert_within(
        watched.grown(),
        watched.bound(&["store: task logs", "slots and indexes"]) + pages,
    );
}

#[test]
fn partial_http1_requests_stay_within_memory_bound() {
    let watched = Watched::new(&["buffers_bytes_max=8_000_000"]);
    let body = vec![b' '; 1_000_000];
    let mut head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000001\r\n".to_vec();
    head.extend_from_slice(b"Content-Type: application/json\r\n\r\n");
    let mut grown = 0;
    let mut all = Vec::new();
    for _ in 0..120 {
        let mut tcp = watched.server.connect();
        // The server cuts off a connection that needs more than there is.
        let sent = tcp.stream.write_all(&head).and_then(|()| tcp.stream.write_all(&body));
        if sent.is_ok() {
            all.push(tcp);
        }
        grown = watched.grown().max(grown);
    }
    watched.assert_within(grown, &[ON_ITS_WAY, "buffers kept for reuse"]);
}

#[test]
fn body_of_many_json_tokens_stays_within_memory_bound() {
    let watched = Watched::new(&[
        "body_bytes_max=2_000_000",
        "ws_message_bytes_max=2_000_000",
        "answer_bytes_max=1_000_000",
        "task_bytes_max=1_000_000",
    ]);
    let mut tcp = watched.server.connect();
    let tokens = "0,".repeat(watched.limits.json_tokens_max.min(990_000) / 2 - 100);
    tcp.write(&post("/", &[], &format!("[{tokens}0]")));
    let reply = tcp.reply();
    assert!(reply.status < 500, "{}", reply.status);
    watched.assert_within(watched.grown(), &["large bodies: parser", AT_HAND]);
}

#[test]
fn idle_connections_stay_within_memory_bound() {
    let watched = Watched::new(&["connections_max=400"]);
    let mut all: Vec<Tcp> = (0..400).map(|_| watched.server.connect()).collect();
    for tcp in &mut all {
        tcp.write(&get("/.well-known/agent-card.json"));
        assert_eq!(tcp.reply().status, 200);
    }
    let grown = watched.grown();
    assert_within(grown, watched.bound(&["connections: state"]) + SLACK_BYTES / 4);
}

/// Handshakes with a first message of the maximum length that lacks its end.
#[cfg(feature = "tls")]
#[test]
fn unfinished_tls_handshakes_stay_within_memory_bound() {
    let issued = crate::certificates::Authority::new("memory").server("server");
    let (cert, key) = (issued.cert_file.to_str().unwrap(), issued.key_file.to_str().unwrap());
    let limit = ["--limit", "connections_max=200"];
    let server = Binary::start(&[&["--tls-cert", cert, "--tls-key", key], &limit[..]].concat());
    let limits = Limits { connections_max: 200, ..Limits::default() };
    let watched = Watched::of(server, limits);
    // RFC 8446 §4: a ClientHello of 60,000 bytes, in records of 16 KiB.
    let mut hello = vec![1, 0, 0xea, 0x60];
    hello.resize(59_000, 0);
    let mut records = Vec::new();
    for piece in hello.chunks(16 * 1024) {
        records.extend([22, 3, 3]);
        records.extend((piece.len() as u16).to_be_bytes());
        records.extend_from_slice(piece);
    }
    let mut all: Vec<Tcp> = (0..200).map(|_| watched.server.connect()).collect();
    all.iter_mut().for_each(|tcp| tcp.write(&records));
    let streams: Vec<&TcpStream> = all.iter().map(|tcp| &tcp.stream).collect();
    eventually("everything is read", || unread(&streams) == 0);
    let grown = watched.grown();
    let bound = watched.limits.tls_bytes_term().1 + watched.bound(&["connections: state"]);
    assert_within(grown, bound + SLACK_BYTES);
}

/// A page of large tasks that its client does not read.
#[test]
fn unread_answer_stays_within_memory_bound() {
    let mut watched = Watched::new(&["answer_bytes_max=4_000_000", "task_bytes_max=4_000_000"]);
    send_all(&watched.server, 60, &"x".repeat(60_000));
    watched.begin();
    let request = post("/", &[], &rpc("ListTasks", &serde_json::json!({ "pageSize": 100 })));
    let mut tcp = watched.server.connect();
    tcp.write(&request);
    assert!(tcp.read());
    watched.server.assert_lives();
    watched.assert_within(watched.grown(), &[AT_HAND]);
}

/// One WebSocket message of the maximum length.
#[test]
fn largest_websocket_message_stays_within_memory_bound() {
    let watched = Watched::new(&["answer_bytes_max=1_000_000"]);
    let mut tcp = watched.server.connect();
    tcp.write(&ws::upgrade("/", ""));
    tcp.read_until("\r\n\r\n");
    let words = "x".repeat(watched.limits.ws_message_bytes_max - 1_000);
    let message = rpc("GetTask", &serde_json::json!({ "id": words }));
    tcp.write(&ws::text(&message));
    tcp.read_until("error");
    watched.assert_within(watched.grown(), &["large bodies: parser", AT_HAND]);
}

/// Streams of events over HTTP/2 that wait for their next event.
#[test]
fn waiting_http2_streams_stay_within_memory_bound() {
    let watched = Watched::new(&[
        "http2_connections_max=2",
        "http2_streams_max=500",
        "buffers_bytes_max=8_000_000",
    ]);
    let mut block = call(b"/", b"application/json");
    field(&mut block, b"a2a-version", b"1.0");
    let body = rpc(V1.stream(), &V1.params(say("hold:600000:3")));
    let mut all: Vec<Tcp> = (0..2).map(|_| watched.server.connect()).collect();
    for tcp in &mut all {
        tcp.write(PREFACE);
        for n in 0..500 {
            tcp.write(&frame(1, 4, 2 * n + 1, &block));
            tcp.write(&frame(0, 1, 2 * n + 1, body.as_bytes()));
        }
    }
    let grown = settled(&watched, &mut all);
    watched.assert_within(grown, &[HTTP2[0], HTTP2[1], ON_ITS_WAY]);
    // The server holds all of them.
    assert!(grown > 1_000 * 1024, "{grown}");
}

/// Calls that wait behind a message, each with many trailers in a frame of its own.
#[test]
fn trailers_of_http2_calls_stay_within_memory_bound() {
    let streams = 500;
    let watched =
        Watched::new(&["http2_connections_max=2", &format!("http2_streams_max={streams}")]);
    let block = call(b"/grpc.health.v1.Health/Watch", b"application/grpc");
    let mut trailers = Vec::new();
    for n in 0..450 {
        field(&mut trailers, format!("{n:03x}").as_bytes(), b"");
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut tcp = watched.server.connect();
        tcp.write(PREFACE);
        for n in 0..streams {
            tcp.write(&frame(1, 4, 2 * n + 1, &block));
            tcp.write(&frame(0, 0, 2 * n + 1, &[0; 5]));
            tcp.write(&frame(1, 5, 2 * n + 1, &trailers));
        }
        all.push(tcp);
    }
    let grown = settled(&watched, &mut all);
    watched.assert_within(grown, &HTTP2);
    drop(all);
    watched.server.assert_lives();
}

#[test]
fn server_limits_fit_memory_budget_or_start_fails() {
    let server = |bytes: u64| {
        let server = Server::new().agent(Echo::profile(), Echo).workers(1).listen("127.0.0.1:0");
        server.memory(bytes).start()
    };
    let running = server(1 << 30).unwrap();
    assert!(running.limits().memory_bytes_max(1, false) <= 1 << 30);
    drop(running);
    let error = server(1 << 20).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("1 MiB of memory are too little"), "{error}");
}

/// True: a resident page of the process contains these bytes.
fn holds(pid: u32, secret: &str) -> bool {
    use std::{fs::File, os::unix::fs::FileExt};
    const PAGE: usize = 4096;
    let [memory, pages] = ["mem", "pagemap"].map(|name| {
        let path = format!("/proc/{pid}/{name}");
        File::open(&path).expect(&path)
    });
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [range.0, range.1].map(|at| usize::from_str_radix(at, 16).unwrap());
        // Too large for a heap: a region of AddressSanitizer.
        if to - from > 1 << 36 {
            return false;
        }
        let mut entries = vec![0; (to - from) / PAGE * 8];
        let count = pages.read_at(&mut entries, (from / PAGE * 8) as u64).unwrap_or(0);
        // The highest bit marks a resident page.
        let is_there: Vec<bool> =
            entries[..count].chunks_exact(8).map(|entry| entry[7] & 0x80 != 0).collect();
        let mut at = from;
        is_there.chunk_by(|one, next| one == next).any(|run| {
            let start = at;
            at += run.len() * PAGE;
            let mut bytes = vec![0; if run[0] { run.len() * PAGE } else { 0 }];
            let count = memory.read_at(&mut bytes, start as u64).unwrap_or(0);
            memchr::memmem::find(&bytes[..count], secret.as_bytes()).is_some()
        })
    })
}

#[test]
fn credentials_are_erased_from_memory_after_request() {
    // Far longer than the block of a hash function.
    let token = |name: &str| format!("{name}-{}", "0123456789abcdef".repeat(20));
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("secrets.toml");
    let [waits, whole, parts, unfinished] = ["waits", "whole", "parts", "left"].map(token);
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("[[auth.bearer_tokens]]\nname = \"a\"\nsha256 = \"{digest}\"\n");
    std::fs::write(&file, text).unwrap();
    let server =
        Binary::start(&["--config", file.to_str().unwrap(), "--limit", "head_timeout_ms=60000"]);
    let head = |line: &str, token: &str, rest: &str| {
        format!("{line} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer {token}\r\n{rest}\r\n")
    };
    let card = "GET /.well-known/agent-card.json";
    // A token in use is found, which shows that the search would find an expired one.
    let mut open = server.connect();
    open.write(&head(card, &waits, "").as_bytes()[..400]);
    server.wait_until_read(&[&open.stream]);
    let mut tcp = server.connect();
    for _ in 0..2 {
        tcp.write(head(card, &whole, "").as_bytes());
        assert_eq!(tcp.reply().status, 200);
        for byte in head(card, &parts, "").as_bytes().chunks(97) {
            tcp.write(byte);
        }
        assert_eq!(tcp.reply().status, 200);
        let body = rpc("ListTasks", &serde_json::json!({}));
        let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let lines = "A2A-Version: 1.0\r\nContent-Type: application/json\r\n\
            Transfer-Encoding: chunked\r\n";
        tcp.write(head("POST /", &parts, lines).as_bytes());
        tcp.write(chunks.as_bytes());
        assert_eq!(tcp.reply().status, 200);
    }
    let mut closing = server.connect();
    closing.write(&head(card, &unfinished, "").as_bytes()[..400]);
    server.wait_until_read(&[&closing.stream]);
    drop(closing);
    assert!(holds(server.pid(), &waits[..300]));
    for secret in [whole, parts, unfinished] {
        eventually(&secret[..5], || !holds(server.pid(), &secret[..300]));
    }
}

/// Cached tokens stay within their term, even with names, tenants and scopes of some kilobytes
/// each.
#[cfg(feature = "auth")]
#[test]
fn cached_tokens_stay_within_memory_bound() {
    use callers::SECRET;

    let file = std::env::temp_dir().join(format!("peregrine-memory-{}.toml", std::process::id()));
    let text = format!(
        "[agents.one]\nkind = \"echo\"\nreads_all_scopes = true\n[agents.two]\nkind = \"echo\"\n\
         [limits]\ncredentials_max = 512\n\
         [[auth.issuers]]\nissuer = \"https://i.example\"\nsecret = \"{SECRET}\"\n\
         tenants_claim = \"tenants\"\n"
    );
    for text in [text.clone(), text.replace("= true", "= false")] {
        std::fs::write(&file, &text).unwrap();
        let server = Binary::start(&["--config", file.to_str().unwrap()]);
        let limits = Limits { credentials_max: 512, ..Limits::default() };
        let mut watched = Watched::of(server, limits);
        let token = |number: usize, texts: usize| {
            let texts: Vec<String> = (0..texts).map(|n| format!("{number}-{n}")).collect();
            callers::token(&serde_json::json!({
                "iss": "https://i.example", "sub": format!("caller-{number}"),
                "exp": 4_000_000_000_u64, "scope": texts.join(" "), "tenants": texts,
            }))
        };
        let mut tcp = watched.server.connect();
        let mut send = |token: &str| {
            let authorization = format!("Bearer {token}");
            let fields = [("Authorization", &*authorization), ("A2A-Version", "1.0")];
            tcp.write(&post("/", &fields, &rpc("ListTasks", &serde_json::json!({}))));
            assert_eq!(tcp.reply().status, 200);
        };
        // The code paths that serve them have run once.
        (0..50).for_each(|number| send(&token(number, 200)));
        watched.begin();
        for number in 0..1_500 {
            // Half of them are small, so that all slots are taken.
            send(&token(number, if number % 2 == 0 { 200 } else { 2 }));
        }
        let grown = watched.grown();
        watched.assert_within(grown, &["credentials and peers"]);
    }
    std::fs::remove_file(&file).unwrap();
}
