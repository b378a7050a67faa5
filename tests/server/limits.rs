//! One test, of the same name, for each limit that only a socket shows: what the peer sees at the
//! limit, what it sees one beyond, and that the server lives.

use std::{
    io::{ErrorKind, Write},
    time::{Duration, Instant},
};

use peregrine::{agent::Profile, limits::Limits, net::Server};
use serde_json::{Value, json};

use crate::blocking;
use crate::support::{
    ask::{Gen, V1, V03, get, post, post_chunked, rpc, say},
    binary::{Binary, PATIENCE, Tcp, eventually},
    holding::Holding,
    reply::Reply,
    ws::{frame, text, upgrade},
};

const CARD: &str = "/.well-known/agent-card.json";

/// Asserts that a time limit lasted at least its length, by a clock of whole milliseconds. The
/// upper bound depends on the machine, so it is generous.
fn assert_lasted(began: Instant, limit_ms: u64) {
    let lasted = began.elapsed();
    assert!(lasted >= Duration::from_millis(limit_ms - 1), "{lasted:?} of {limit_ms} ms");
}

/// The memory of a large document goes back to the system when no request follows.
#[test]
#[cfg(target_os = "linux")]
fn memory_of_a_large_body_is_released() {
    let server = Binary::limited(&[]);
    let resident = || -> u64 {
        let line = server.status("VmRSS").unwrap();
        line.trim_end_matches(" kB").parse().unwrap()
    };
    server.assert_lives();
    let before = resident();
    let brackets = format!("[{}", "[],".repeat(1_300_000));
    let mut peer = server.connect();
    for _ in 0..3 {
        peer.write(&post("/", &[], &brackets));
        assert_eq!(peer.reply().code(), -32600);
    }
    // The JSON marks of four million tokens, and a body buffer that is reused.
    let most = resident();
    assert!(most > before + 14_000, "{before} and {most} kB");
    eventually("it is given back", || resident() <= before + 10_000);
}

#[test]
fn write_stall_ms() {
    let server = Binary::limited(&["write_stall_ms=300"]);
    // Its answers exceed the kernel's buffers, and the client reads none.
    let mut stalled = server.connect();
    let body = rpc(V1.send(), &V1.params(say(&"x".repeat(1 << 20))));
    let request = post("/", &[], &body);
    let began = Instant::now();
    stalled.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    eventually("it is cut", || match stalled.stream.write(&request) {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            // The server has stopped reading. Other clients are served meanwhile.
            server.assert_lives();
            false
        }
        Err(_) => true,
    });
    assert_lasted(began, 300);
    server.assert_lives();
}

/// How many connections to `peers` the server's side still has, according to `/proc/net/tcp`.
#[cfg(target_os = "linux")]
fn queues_for(peers: &[Tcp]) -> usize {
    let ports = |tcp: &Tcp| {
        let [server, peer] = [tcp.stream.peer_addr(), tcp.stream.local_addr()];
        format!("0100007F:{:04X} 0100007F:{:04X}", server.unwrap().port(), peer.unwrap().port())
    };
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    peers.iter().filter(|tcp| table.contains(&ports(tcp))).count()
}

#[test]
#[cfg(target_os = "linux")]
fn kernel_queues_of_unread_answers_are_freed_by_write_stall_ms() {
    let server = Binary::limited(&["write_stall_ms=500", "linger_ms=1"]);
    // The answer fits into the queue of the kernel, and not into the peer's buffer.
    let body = rpc(V1.send(), &V1.params(say(&"x".repeat(10_000))));
    let request = post("/", &[("Connection", "close")], &body);
    let mut peers: Vec<_> = (0..8).map(|_| server.connect_narrow()).collect();
    let began = Instant::now();
    peers.iter_mut().for_each(|peer| peer.write(&request));
    server.assert_lives();
    eventually("the kernel holds nothing that nobody reads", || queues_for(&peers) == 0);
    assert_lasted(began, 500);
}

/// Requests one answer of 8 MB and reads at a limited rate; returns whether it arrived whole.
fn read_slowly(server: &Binary) -> bool {
    let mut tcp = server.connect();
    // The smaller the kernel's buffer, the steadier the rate that the server sees.
    socket2::SockRef::from(&tcp.stream).set_recv_buffer_size(64 * 1024).unwrap();
    let body = rpc(V1.send(), &V1.params(say(&"x".repeat(4_000_000))));
    tcp.write(&post("/", &[], &body));
    while tcp.read() {
        if tcp.reply_at_hand().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

#[test]
fn write_progress_bytes_min() {
    // It progresses, but in each window by less than the minimum.
    let strict = ["write_stall_ms=300", "write_progress_bytes_min=1_000_000_000"];
    let server = Binary::limited(&strict);
    assert!(!read_slowly(&server));
    server.assert_lives();
    // The same reader meets a lower minimum.
    assert!(read_slowly(&Binary::limited(&["write_stall_ms=5000"])));
}

#[test]
fn linger_ms() {
    let server = Binary::limited(&["linger_ms=200"]);
    let mut peer = server.connect();
    // The answer to bytes that are not HTTP arrives although the client keeps sending.
    let began = Instant::now();
    peer.write(b"\x16\x03\x01");
    let replies = Reply::parse_all(&peer.read_to_end(), true);
    assert_eq!((replies.len(), replies[0].status), (1, 400));
    eventually("the server listens no more", || peer.stream.write_all(b"more").is_err());
    assert_lasted(began, 200);
    server.assert_lives();
}

#[test]
fn drain_ms() {
    let mut server = Binary::limited(&["drain_ms=300"]);
    let mut endless = server.connect();
    endless.write(&post("/", &[], &rpc(V1.stream(), &V1.params(say("hold:600000:1")))));
    endless.read_until("TASK_STATE_SUBMITTED");
    let mut short = server.connect();
    short.write(&post("/", &[], &rpc(V03.stream(), &V03.params(say("hold:100:1")))));
    short.read_until("submitted");
    let began = Instant::now();
    server.terminate();
    // A call that ends within the time ends normally; a longer one gets the reason.
    let short = Reply::parse_all(&short.read_to_end(), true).remove(0);
    assert!(short.complete && short.text().contains("completed"), "{}", short.text());
    let endless = Reply::parse_all(&endless.read_to_end(), true).remove(0);
    let events = endless.events();
    assert!(endless.complete);
    assert_eq!(events.last().unwrap().name.as_deref(), Some("error"));
    assert_lasted(began, 300);
    assert!(server.wait(), "the end of a drain is a success");
    // Otherwise it would have waited for the task.
    assert!(began.elapsed() < Duration::from_secs(600));
}

#[test]
fn blocking_queue_max() {
    let (running, gate) = blocking::serve(1, 1, Limits::default());
    let (mut runs, _) = blocking::begun(&running, "wait");
    let (mut waits, _) = blocking::begun(&running, "second");
    for (generation, code) in [(V1, -32000), (V03, -32000), (Gen::V01, -32011)] {
        for method in [generation.send(), generation.stream()] {
            let refused = blocking::call(&running, generation, method, "third").reply();
            assert_eq!(refused.code(), code, "{}", refused.text());
            assert!(refused.text().contains("(blocking_queue_max)"), "{}", refused.text());
        }
    }
    gate.open.send(()).unwrap();
    for line in [&mut runs, &mut waits] {
        line.read_until("TASK_STATE_COMPLETED");
    }
    // There is room again as soon as a thread is idle.
    eventually("the next is served", || {
        let reply = blocking::call(&running, V1, V1.send(), "third").reply();
        reply.text().contains("TASK_STATE_COMPLETED")
    });
}

#[test]
fn connections_max() {
    let server = Binary::limited(&["connections_max=2"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    for peer in [&mut first, &mut second] {
        peer.write(&get(CARD));
        assert_eq!(peer.reply().status, 200);
    }
    let mut third = server.connect();
    let refusal = String::from_utf8(third.read_to_end()).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refusal}");
    assert!(refusal.contains("retry-after: 1") && refusal.contains("connection: close"));
    // Both continue, and a freed slot is given out again.
    first.write(&get(CARD));
    assert_eq!(first.reply().status, 200);
    drop(second);
    eventually("the place is given again", || {
        let mut again = server.connect();
        // The server may close a refused connection before the client writes.
        let _ = again.stream.write_all(&get(CARD));
        again.read_first() == Some(200)
    });
}

#[test]
fn large_bodies_max() {
    let (agent, blocked, go) = Holding::new();
    let limits = Limits { large_bodies_max: 1, ..Limits::default() };
    let server = Server::new().limits(limits).allow_host("*").agent(Profile::new("a", "b"), agent);
    let running = server.workers(2).listen("127.0.0.1:0").start().unwrap();
    let connect = || {
        let stream = std::net::TcpStream::connect(running.addrs()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let read = |mut stream: &std::net::TcpStream| -> std::io::Result<u16> {
        let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
        loop {
            let count = std::io::Read::read(&mut stream, &mut some)?;
            bytes.extend_from_slice(&some[..count]);
            match Reply::parse(&bytes, false, false) {
                Some((reply, _)) => return Ok(reply.status),
                None if count == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                None => {}
            }
        }
    };
    let call = |text: &str| rpc(V1.send(), &V1.params(say(text)));
    let filler = "x".repeat(200_000);
    // The server handles a large body, which holds its worker.
    let mut first = connect();
    first.write_all(&post("/", &[], &call(&format!("hold{filler}")))).unwrap();
    blocked.recv_timeout(PATIENCE).unwrap();
    // Connections of the other worker are answered.
    let mut others = Vec::new();
    for _ in 0..64 {
        let mut stream = connect();
        stream.write_all(&post("/", &[], &call("small"))).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        if read(&stream).is_ok() {
            others.push(stream);
        }
        if others.len() == 6 {
            break;
        }
    }
    assert_eq!(others.len(), 6, "the other worker answers small bodies");
    let mut socket = others.pop().unwrap();
    let raw = |mut stream: &std::net::TcpStream| {
        let mut some = [0; 512];
        std::io::Read::read(&mut stream, &mut some).map(|count| some[..count].to_vec())
    };
    socket.write_all(&upgrade("/", "")).unwrap();
    assert!(raw(&socket).unwrap().starts_with(b"HTTP/1.1 101"));
    // Bodies with a length and chunked bodies wait, in pieces of any size; one client disconnects.
    let large = call(&filler);
    for (at, stream) in others.iter_mut().enumerate() {
        let bytes = match at % 2 {
            0 => post("/", &[], &large),
            _ => post_chunked("/", &large, 60_000),
        };
        stream.write_all(&bytes).unwrap();
    }
    socket.write_all(&text(&large)).unwrap();
    assert!(others.iter().all(|stream| read(stream).is_err()), "they wait");
    assert!(raw(&socket).is_err(), "it waits");
    drop(others.remove(0));
    go.send(()).unwrap();
    for stream in [&first].into_iter().chain(&others) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(read(stream).expect("everybody is answered"), 200);
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = raw(&socket).unwrap();
    assert!(answer.windows(8).any(|some| some == b"\"result\""), "{answer:?}");
    // And again, on the connections that have waited.
    for stream in &mut others {
        stream.write_all(&post("/", &[], &large)).unwrap();
        assert_eq!(read(stream).unwrap(), 200);
    }
}

#[test]
fn reuse_bytes_max() {
    // Without a reused buffer, every call is served all the same.
    let server = Binary::limited(&["reuse_bytes_max=1"]);
    let body = rpc(V1.send(), &V1.params(say(&"x".repeat(300_000))));
    let mut peer = server.connect();
    for _ in 0..8 {
        peer.write(&post("/", &[], &body));
        assert_eq!(peer.reply().status, 200);
    }
}

#[test]
fn buffers_bytes_max() {
    let server = Binary::limited(&["buffers_bytes_max=262144"]);
    // An announced body takes the memory of the bytes sent, plus some room for more.
    let announce = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
          Content-Length: 1048576\r\n\r\n{";
    let mut idle: Vec<_> = (0..3).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|peer| peer.write(announce));
    server.assert_lives();
    drop(idle);
    // A body of 1 MiB would exceed the sum for all connections.
    let mut large = server.connect();
    large.write(announce);
    let _ = large.stream.write_all(&vec![b' '; 600_000]);
    assert!(large.read_to_end().is_empty(), "it is cut off without an answer");
    server.assert_lives();
    // Nor does a body that stops right after its buffer grew hold the unfilled part.
    let mut halted = server.connect();
    halted.write(announce);
    #[cfg(target_os = "linux")]
    server.wait_until_read(&[&halted.stream]);
    halted.write(&vec![b' '; 65_536 - announce.len()]);
    assert!(halted.read_to_end().is_empty(), "it is cut off without an answer");
    server.assert_lives();
    // Bodies that fit are served again and again: the sum falls with each answer.
    let body = rpc(V1.send(), &V1.params(say(&"x".repeat(50_000))));
    for _ in 0..8 {
        let mut small = server.connect();
        small.write(&post("/", &[], &body));
        assert_eq!(small.reply().status, 200);
    }
}

#[test]
fn the_connection_with_the_largest_buffers_is_cut_first() {
    let flags = ["--workers", "2", "--limit", "buffers_bytes_max=33554432"];
    let server = Binary::start_plain(&flags);
    let send = |method: &str, params: &Value| {
        let mut tcp = server.connect();
        tcp.write(&post("/", &[("Connection", "close")], &rpc(method, params)));
        tcp.reply().json()
    };
    // A task of 3 MB serializes to 6 MB: as message and as artifact.
    let task = send(V1.send(), &V1.params(say(&"x".repeat(3_000_000))));
    let body = rpc("GetTask", &json!({"id": V1.task(&task["result"])["id"]}));
    let request = post("/", &[("Connection", "close")], &body);
    // The observer is served, however much the others have requested without reading.
    let (mut readers, call) = (Vec::new(), V1.params(say(&"y".repeat(200_000))));
    for _ in 0..30 {
        let mut reader = server.connect_narrow();
        // The server may cut it before the next one connects.
        let _ = reader.stream.write_all(&request);
        readers.push(reader);
        assert!(send(V1.send(), &call).to_string().len() > 400_000);
    }
    // So are clients with bodies that take the room that is left.
    let late = post("/", &[], &rpc(V1.send(), &call));
    let mut slow: Vec<_> = (0..100).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|tcp| tcp.write(&late[..500]));
    assert!(send(V1.send(), &call).to_string().len() > 400_000);
    for tcp in &mut slow {
        tcp.write(&late[500..]);
        assert_eq!(tcp.reply().status, 200);
    }
    // The server cut the readers.
    let is_whole = |reader: &mut Tcp| reader.read_to_end().len() > 6_000_000;
    let whole = readers.iter_mut().map(is_whole).filter(|is_whole| *is_whole).count();
    assert!(whole < 20, "{whole}");
    server.assert_lives();
}

#[test]
fn list_pages_shrink_while_answers_are_unread() {
    let server = Binary::start_plain(&["--workers", "1", "--limit", "buffers_bytes_max=8388608"]);
    let mut observer = server.connect();
    for _ in 0..100 {
        observer.write(&post("/", &[], &rpc(V1.send(), &V1.params(say(&"x".repeat(5_000))))));
        assert_eq!(observer.reply().status, 200);
    }
    let params = json!({"includeArtifacts": true, "historyLength": 1, "pageSize": 100});
    let request = post("/", &[], &rpc("ListTasks", &params));
    let tasks = |tcp: &mut Tcp| {
        let page = tcp.reply().json();
        assert!(!page["result"]["nextPageToken"].as_str().unwrap().is_empty());
        page["result"]["tasks"].as_array().unwrap().len()
    };
    observer.write(&request);
    let alone = tasks(&mut observer);
    // A whole page is 1 MB. All requests are answered, and no connection is cut.
    let mut readers: Vec<_> = (0..100).map(|_| server.connect()).collect();
    readers.iter_mut().for_each(|reader| reader.write(&request));
    let pages: Vec<_> = readers.iter_mut().map(tasks).collect();
    let least = pages.iter().min().unwrap();
    assert!((10..100).contains(&alone) && (1..alone).contains(least), "{alone} {pages:?}");
    // The bytes that they have read are free again.
    observer.write(&request);
    assert_eq!(tasks(&mut observer), alone);
}

#[test]
fn waiting_batch_counts_toward_buffers_bytes_max() {
    let server = Binary::limited(&["buffers_bytes_max=30000"]);
    let call = |at: usize| {
        let params = V1.params(say("hold:60000:1"));
        let id = format!("{at:0>480}");
        json!({"jsonrpc": "2.0", "id": id, "method": V1.send(), "params": params})
    };
    let batch: Vec<Value> = (0..60).map(call).collect();
    // The ids alone of 60 waiting calls are 28,920 bytes.
    let mut peer = server.connect();
    peer.write(&post("/", &[], &Value::from(batch).to_string()));
    assert!(peer.read_to_end().is_empty(), "it is cut off without an answer");
    server.assert_lives();
}

#[test]
fn incomplete_websocket_message_counts_toward_buffers() {
    let server = Binary::limited(&["buffers_bytes_max=300000"]);
    let mut peer = server.connect();
    peer.write(&upgrade("/", ""));
    peer.read_until("\r\n\r\n");
    let bytes = frame(0x81, &vec![b' '; 2_000_000]);
    // The server may cut it off before it has read all of it.
    let _ = peer.stream.write_all(&bytes[..1_900_000]);
    peer.read_to_end();
    server.assert_lives();
}
