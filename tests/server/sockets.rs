//! HTTP/1.1 on real sockets: coalesced writes, requests in pieces, slow readers, and a shortage of
//! descriptors.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::process::{connect, exchange, post, response};
use crate::support::{
    ask::{self, V1, rpc, say},
    binary::Binary,
};

#[test]
fn head_and_ready_events_are_sent_in_one_write() {
    let server = Binary::start(&[]);
    let mut peer = server.connect();
    let request = ask::post("/", &[], &rpc(V1.stream(), &V1.params(say("stream:3"))));
    for _ in 0..20 {
        peer.write(&request);
        // One read gets what one write sends.
        assert!(peer.read());
        let reply = peer.reply_at_hand().expect("the whole stream");
        assert_eq!((reply.complete, reply.events().len()), (true, 4));
    }
    // TCP_NODELAY: later bytes do not wait for the acknowledgement of earlier ones, which kernels
    // delay by 40 ms.
    let request = ask::post("/", &[], &rpc(V1.stream(), &V1.params(say("hold:1:3"))));
    let elapsed = (0..20).map(|_| {
        let began = Instant::now();
        peer.write(&request);
        assert_eq!(peer.reply().events().len(), 4);
        began.elapsed()
    });
    let fastest = elapsed.min().unwrap();
    assert!(fastest < Duration::from_millis(35), "{fastest:?}");
}

#[test]
fn connection_limit_fits_the_open_file_limit() {
    let flags = ["--workers", "1", "--test-echo", "/echo"];
    let server = Binary::start_with_files(60, &flags);
    let line = server.banner("files");
    // A limit that the system sets is reported as a fact, not as a shortage.
    assert!(line.ends_with("connections, because of the hard limit of open files (ulimit -Hn)"));
    let room = line.strip_prefix("at most ").unwrap();
    let room: usize = room.split(' ').next().unwrap().parse().unwrap();
    assert!((10..60).contains(&room), "{room}");
    let crowd: Vec<TcpStream> = (0..room).map(|_| connect(&server)).collect();
    crowd.iter().for_each(|stream| assert_eq!(exchange(stream, &post("/echo", b"x")).1, b"x"));
    for _ in 0..100 {
        let mut answer = String::new();
        BufReader::new(&connect(&server)).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    crowd.iter().for_each(|stream| assert_eq!(exchange(stream, &post("/echo", b"y")).1, b"y"));
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let flags = ["--workers", "1", "--test-echo", "/echo", "--limit", "connections_max=300"];
    let server = Binary::start_under("-Sn 64", &flags);
    let crowd: Vec<TcpStream> = (0..300).map(|_| connect(&server)).collect();
    crowd.iter().for_each(|stream| assert_eq!(exchange(stream, &post("/echo", b"x")).1, b"x"));
}

/// Agents and the rest of the process take descriptors, too.
#[cfg(target_os = "linux")]
#[test]
fn server_out_of_descriptors_waits_and_resumes() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let server = Binary::start_plain(&["--workers", "1", "--test-echo", "/echo"]);
    let pid = Pid::from_raw(server.pid() as i32);
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as u64;
    let few = Rlimit { current: Some(files + 20), maximum: Some(files + 20) };
    prlimit(pid, Resource::Nofile, few).unwrap();
    let crowd: Vec<TcpStream> = (0..60).map(|_| connect(&server)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = server.ticks();
    std::thread::sleep(Duration::from_millis(1000));
    assert!(server.ticks() - before < 20, "it spins");
    // Accepted connections are served, the last ones wait in the backlog.
    assert_eq!(exchange(&crowd[0], &post("/echo", b"one")).1, b"one");
    let waiting = crowd.into_iter().next_back().unwrap();
    assert_eq!(exchange(&waiting, &post("/echo", b"two")).1, b"two");
    assert_eq!(exchange(&connect(&server), &post("/echo", b"three")).1, b"three");
}

#[test]
fn slow_reader_receives_all_responses_in_order() {
    let server = Binary::start_plain(&["--workers", "1", "--test-echo", "/echo"]);
    let stream = connect(&server);
    let body = |n: usize| -> Vec<u8> { (0..400_000).map(|i| (i * 7 + n * 13) as u8).collect() };
    std::thread::scope(|scope| {
        scope
            .spawn(|| (0..30).for_each(|n| (&stream).write_all(&post("/echo", &body(n))).unwrap()));
        let mut reader = BufReader::with_capacity(8 * 1024, &stream);
        for n in 0..30 {
            std::thread::sleep(Duration::from_millis(n as u64 % 3 * 20));
            assert!(response(&mut reader).1 == body(n), "answer {n}");
        }
    });
}

#[test]
fn pipelined_requests_above_the_high_water_mark_are_answered() {
    let server = Binary::start_plain(&["--workers", "1", "--test-echo", "/echo"]);
    let stream = connect(&server);
    let text = |n: usize| format!("{n:0400}").into_bytes();
    let all: Vec<u8> = (0..5000).flat_map(|n| post("/echo", &text(n))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&all).unwrap());
        let mut reader = BufReader::new(&stream);
        (0..5000).for_each(|n| assert_eq!(response(&mut reader).1, text(n)));
    });
}

#[test]
fn a_large_body_in_pieces_is_one_request() {
    let server = Binary::start_plain(&["--test-echo", "/echo"]);
    let body: Vec<u8> = (0..1_500_000_u32).map(|n| (n % 253) as u8).collect();
    let mut chunked =
        b"POST /echo HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(70_001) {
        chunked.extend(format!("{:x}\r\n", chunk.len()).bytes().chain(chunk.iter().copied()));
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    for request in [post("/echo", &body), chunked] {
        let mut stream = connect(&server);
        stream.set_nodelay(true).unwrap();
        for piece in request.chunks(33_333) {
            stream.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(response(&mut BufReader::new(&stream)).1 == body);
    }
}

#[test]
fn idle_and_head_timeouts_end_connections() {
    let flags = ["--limit", "keep_alive_idle_ms=200", "--limit", "head_timeout_ms=300"];
    let server = Binary::start_plain(&flags);
    let start = Instant::now();
    assert_eq!(connect(&server).read(&mut [0]).unwrap(), 0);
    let idle = start.elapsed();
    assert!(idle >= Duration::from_millis(199) && idle < Duration::from_secs(20), "{idle:?}");
    let mut slow = connect(&server);
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
    assert!(response(&mut BufReader::new(&slow)).0.starts_with("HTTP/1.1 408 "));
}
