//! Peers that disconnect: the server frees what they held, however much they had sent.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::Value;
use socket2::SockRef;

use crate::support::{
    ask::{V1, get, post, rpc, say},
    binary::{Binary, eventually, unread},
    ws::upgrade,
};

const CARD: &str = "/.well-known/agent-card.json";

/// A call that waits for ten minutes, followed by more pipelined requests than the server reads
/// meanwhile.
fn call_and_flood(method: &str) -> Vec<u8> {
    let call = post("/", &[], &rpc(method, &V1.params(say("hold:600000:1"))));
    [call, get(CARD).repeat(1_000)].concat()
}

/// Waits until the server has room for one more connection.
fn assert_room(server: &Binary) {
    eventually("the place is given back", || {
        let mut tcp = server.connect();
        // Without room the server may reset before it has read.
        tcp.stream.write_all(&get(CARD)).is_ok() && tcp.read_first() == Some(200)
    });
}

#[test]
fn disconnect_after_a_pipelined_flood_frees_the_slot() {
    let server = Binary::start(&["--limit", "connections_max=2"]);
    // One of the two counts the tasks.
    let mut observer = server.connect();
    let mut tasks = || {
        observer.write(&post("/", &[], &rpc("ListTasks", &Value::Null)));
        observer.reply().result()["totalSize"].clone()
    };
    let mut calls = 0;
    for method in [V1.send(), V1.stream()] {
        for resets in [true, false] {
            let flood = call_and_flood(method);
            assert!(flood.len() > 3 * 16 * 1024);
            let mut tcp = server.connect();
            tcp.write(&flood);
            calls += 1;
            eventually("the call arrives", || tasks() == calls);
            if method == V1.stream() {
                tcp.read_until("TASK_STATE_SUBMITTED");
            } else {
                // The call is not answered, and its slot is taken.
                tcp.stream.set_nonblocking(true).unwrap();
                assert_eq!(tcp.stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
                assert_eq!(server.connect().read_first(), Some(503));
            }
            if resets {
                SockRef::from(&tcp.stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(tcp);
            assert_room(&server);
        }
    }
}

/// A pipelining client that ends its side and then reads slowly is served to the end.
#[test]
#[cfg(target_os = "linux")]
fn half_closed_client_gets_all_pipelined_answers() {
    let server = Binary::start(&["--limit", "output_bytes_max=4096"]);
    let mut tcp = server.connect();
    let requests = 20_000;
    let mut stream = tcp.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        stream.write_all(&get(CARD).repeat(requests)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    // The client does not read, so the server stops reading too: the queued bytes stay constant for
    // a while.
    let (mut before, mut same) = (0, 0);
    eventually("the server stops reading", || {
        let now = unread(&[&tcp.stream]);
        same = if now == before && now > 0 { same + 1 } else { 0 };
        before = now;
        same == 20
    });
    let answers = tcp.read_to_end();
    writer.join().unwrap();
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), requests);
}

/// Reads until nothing more comes; true: the connection was reset.
fn ends_by_reset(stream: &mut TcpStream) -> bool {
    let mut some = [0; 64 * 1024];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The kernel frees its socket buffers at once: after a close they would wait for minutes.
#[test]
fn websocket_without_pong_is_reset() {
    let server = Binary::limited(&["ws_ping_ms=200"]);
    let mut tcp = server.connect();
    tcp.write(&upgrade("/", ""));
    assert!(ends_by_reset(&mut tcp.stream));
}

#[test]
fn half_closed_stream_subscriber_is_reset() {
    let server = Binary::limited(&[]);
    let mut tcp = server.connect();
    tcp.write(&post("/", &[], &rpc(V1.stream(), &V1.params(say("hold:600000:1")))));
    tcp.read_until("TASK_STATE_SUBMITTED");
    tcp.stream.shutdown(Shutdown::Write).unwrap();
    assert!(ends_by_reset(&mut tcp.stream));
}

/// A client that ends in the middle of a request still gets the answers to its earlier requests.
#[test]
fn truncated_request_closes_without_a_reset() {
    let server = Binary::limited(&[]);
    for rest in ["GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9"] {
        let mut tcp = server.connect();
        tcp.write(&[&get(CARD)[..], rest.as_bytes()].concat());
        tcp.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(tcp.reply().status, 200);
        assert!(!ends_by_reset(&mut tcp.stream));
    }
}
