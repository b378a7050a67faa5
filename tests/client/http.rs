//! HTTP/1.1 over sockets: reused connections, retried requests, early answers.

use std::{
    future::poll_fn,
    io::{Read, Write},
    sync::{Mutex, mpsc},
    time::Duration,
};

use peregrine::{
    agent::{Profile, echo::Echo},
    client::{
        ClientBuilder, HttpResponse, HttpVersion, SendRequest, Transport, TransportError,
        card::AgentCard,
    },
    net::{Running, Server},
};

use crate::wire::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Our own server.
fn server() -> Running {
    let agent = Profile::new("a", "b");
    Server::new().agent(agent, Echo).workers(1).listen("127.0.0.1:0").start().unwrap()
}

fn own_url(server: &Running, path: &str) -> String {
    format!("http://{}{path}", server.addrs()[0])
}

#[test]
fn client_reads_card_and_calls_own_server() {
    let server = server();
    run(async {
        let client = client();
        let card = own_url(&server, "/.well-known/agent-card.json");
        let mut response = GET.head(&client, &card).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.field("content-type"), Some(&b"application/json"[..]));
        let content = body(&mut response).await.unwrap();
        assert!(content.starts_with(b"{") && response.field("etag").is_some());
        drop(response);
        let json = fields(&[("Content-Type", "application/json"), ("A2A-Version", "1.0")]);
        for _ in 0..10 {
            let call = br#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#;
            let request = Ask { fields: json.get(), ..post(call) };
            let (status, answer) = request.whole(&client, &own_url(&server, "/")).await.unwrap();
            assert!(status == 200 && answer.contains("-32001"), "{answer}");
        }
    });
}

/// A server that answers every request of a connection with `answer`.
fn answering(answer: &'static [u8]) -> RawServer {
    RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(answer).unwrap();
        }
    })
}

#[test]
fn connection_is_reused_once_its_response_is_read() {
    let server = answering(OK);
    run(async {
        let client = client();
        for _ in 0..5 {
            assert_eq!(GET.whole(&client, &server.url()).await.unwrap(), (200, "ok".to_owned()));
        }
        assert_eq!(server.connections(), 1);
        // A response that is dropped before its end closes its connection.
        let unread = GET.head(&client, &server.url()).await.unwrap();
        drop(unread);
        GET.whole(&client, &server.url()).await.unwrap();
        assert_eq!(server.connections(), 2);
        // Two concurrent requests need two connections; a clone shares the pool.
        let mut first = GET.head(&client, &server.url()).await.unwrap();
        GET.whole(&client.clone(), &server.url()).await.unwrap();
        body(&mut first).await.unwrap();
        GET.whole(&client, &server.url()).await.unwrap();
        assert_eq!(server.connections(), 3);
    });
}

#[test]
fn connection_of_204_response_is_reused_without_a_read() {
    let server = answering(b"HTTP/1.1 204 No Content\r\n\r\n");
    run(async {
        let client = client();
        for _ in 0..3 {
            assert_eq!(GET.head(&client, &server.url()).await.unwrap().status(), 204);
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn server_closing_after_each_response_causes_no_error() {
    let server = RawServer::saying(OK, drop);
    run(async {
        let client = client();
        for count in 1..=20 {
            let answer = GET.whole(&client, &server.url()).await;
            assert_eq!(answer, Ok((200, "ok".to_owned())), "{count}");
        }
    });
    assert_eq!(server.connections(), 20);
}

/// Closes the connection at its second request; reports which requests came.
fn closing_on_second() -> (RawServer, mpsc::Receiver<String>) {
    let (sender, received) = mpsc::channel();
    let server = RawServer::new(move |number, mut stream| {
        let answers = if number == 0 { 1 } else { 10 };
        for answered in 0.. {
            let Some(request) = read_request(&mut stream) else { return };
            sender.send(request).unwrap();
            if answered == answers {
                return;
            }
            stream.write_all(OK).unwrap();
        }
    });
    (server, received)
}

#[test]
fn a_dead_pooled_connection_retries_only_repeatable_requests() {
    run(async {
        let (server, received) = closing_on_second();
        let client = client();
        for _ in 0..2 {
            GET.whole(&client, &server.url()).await.unwrap();
        }
        assert_eq!((server.connections(), received.try_iter().count()), (2, 3));

        let (server, received) = closing_on_second();
        post(b"1").whole(&client, &server.url()).await.unwrap();
        let closed = post(b"2").whole(&client, &server.url()).await;
        assert_eq!(closed, Err(TransportError::Closed { before_response: true }));
        assert_eq!((server.connections(), received.try_iter().count()), (1, 2));

        let (server, received) = closing_on_second();
        post(b"1").whole(&client, &server.url()).await.unwrap();
        let repeatable = Ask { is_repeatable: true, ..post(b"2") };
        repeatable.whole(&client, &server.url()).await.unwrap();
        assert_eq!((server.connections(), received.try_iter().count()), (2, 3));
    });
}

/// Chunk framing takes room as well; the content is still complete.
#[test]
fn chunked_content_is_complete_for_any_read_size() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        1;x=y\r\na\r\n00002\r\nbc\r\n3\r\ndef\r\n0\r\nX: y\r\n\r\n";
    let server = RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(chunked).unwrap();
        }
    });
    run(async {
        let client = client();
        for room in 1..80 {
            let (mut response, mut content) =
                (GET.head(&client, &server.url()).await.unwrap(), Vec::new());
            while poll_fn(|cx| response.poll_read(cx, &mut content, room)).await.unwrap() {}
            assert_eq!(content, b"abcdef", "{room}");
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn unsolicited_bytes_close_a_pooled_connection() {
    // A second response after the first would be taken as the answer to the next request.
    let smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\
        Content-Length: 4\r\n\r\nevil";
    let server = RawServer::new(move |number, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(if number == 0 { smuggled } else { OK }).unwrap();
        }
    });
    let late = RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(OK).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        }
    });
    run(async {
        let client = client();
        for _ in 0..3 {
            assert_eq!(GET.whole(&client, &server.url()).await.unwrap().1, "ok");
        }
        assert_eq!(server.connections(), 2);
        for _ in 0..2 {
            assert_eq!(GET.whole(&client, &late.url()).await.unwrap().1, "ok");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(late.connections(), 2);
    });
}

#[test]
fn response_before_end_of_request_is_returned() {
    // The server only ever reads the head, and answers; the client sends more than all buffers
    // hold. Some systems let a buffer grow to this size.
    let open = Mutex::new(Vec::new());
    let server = RawServer::new(move |_, mut stream| {
        socket2::SockRef::from(&stream).set_recv_buffer_size(64 * 1024).unwrap();
        read_head(&mut stream).unwrap();
        let refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(refused).unwrap();
        open.lock().unwrap().push(stream);
    });
    run(async {
        let client = client();
        let large = vec![b'x'; 32 * 1024 * 1024];
        let answer = post(&large).whole(&client, &server.url()).await;
        assert_eq!(answer, Ok((401, "no".to_owned())));
        // The rest of the request was never sent: the connection is not reused.
        GET.whole(&client, &server.url()).await.unwrap();
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn request_content_of_any_size_is_sent_completely() {
    let server = RawServer::new(|_, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            let body = request.split_once("\r\n\r\n").unwrap().1;
            let sum = body.bytes().map(u64::from).sum::<u64>().to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{sum}", sum.len());
            stream.write_all(head.as_bytes()).unwrap();
        }
    });
    run(async {
        let client = client();
        for length in [0, 1, 16 * 1024, 16 * 1024 + 1, 3_000_000] {
            let content: Vec<u8> = (0..length).map(|n| (n % 100) as u8).collect();
            let sum = content.iter().map(|byte| u64::from(*byte)).sum::<u64>().to_string();
            let answer = post(&content).whole(&client, &server.url()).await;
            assert_eq!(answer, Ok((200, sum)), "{length}");
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn chunked_response_of_any_chunk_size_is_read_completely() {
    let server = RawServer::new(|_, mut stream| {
        read_request(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        for size in [1, 100, 20_000, 500_000] {
            write!(stream, "{size:x}\r\n{}\r\n", "y".repeat(size)).unwrap();
        }
        stream.write_all(b"0\r\nDone: yes\r\n\r\n").unwrap();
        hold(stream);
    });
    run(async {
        let client = client();
        let mut response = GET.head(&client, &server.url()).await.unwrap();
        let mut content = Vec::new();
        loop {
            let before = content.len();
            let is_more = poll_fn(|cx| response.poll_read(cx, &mut content, 7_000)).await.unwrap();
            assert!(content.len() - before <= 7_000);
            if !is_more {
                break;
            }
        }
        assert_eq!(content.len(), 520_101);
        assert!(content.iter().all(|byte| *byte == b'y'));
        // The trailers are there, and the connection returns to the pool.
        assert_eq!(response.field("done"), Some(&b"yes"[..]));
    });
}

#[test]
fn upgraded_connection_carries_raw_bytes() {
    let server = RawServer::new(|_, mut stream| {
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains("Upgrade: test\r\n"), "{head}");
        let upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: test\r\n\
            Connection: upgrade\r\n\r\nhello";
        stream.write_all(upgraded).unwrap();
        let mut received = [0; 5];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    run(async {
        let client = client();
        let upgrade = fields(&[("Connection", "Upgrade"), ("Upgrade", "test")]);
        let request = Ask { fields: upgrade.get(), version: HttpVersion::Http1, idle_ms: 1, ..GET };
        let mut response = request.head(&client, &server.url()).await.unwrap();
        assert_eq!(response.status(), 101);
        let mut content = Vec::new();
        assert!(poll_fn(|cx| response.poll_read(cx, &mut content, 100)).await.unwrap());
        assert_eq!(content, b"hello");
        let count = poll_fn(|cx| response.poll_write(cx, b"world")).await.unwrap();
        assert_eq!(count, 5);
        while poll_fn(|cx| response.poll_read(cx, &mut content, 100)).await.unwrap() {}
        assert_eq!(content, b"helloworld");
    });
}

#[test]
fn response_head_and_body_waits_time_out() {
    let silent = RawServer::new(|_, stream| hold(stream));
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let stalls = RawServer::saying(half, hold);
    run(async {
        let client = client();
        let request = Ask { head_ms: 50, ..GET };
        let late = request.whole(&client, &silent.url()).await;
        assert_eq!(late, Err(TransportError::Timeout("response")));
        let request = Ask { idle_ms: 50, ..GET };
        let late = request.whole(&client, &stalls.url()).await;
        assert_eq!(late, Err(TransportError::Timeout("byte of the body")));
        // A stream may be silent: the client just waits.
        let request = Ask { idle_ms: u64::MAX, ..GET };
        let url = stalls.url();
        let waiting = request.whole(&client, &url);
        assert!(tokio::time::timeout(Duration::from_millis(100), waiting).await.is_err());
    });
}

#[test]
fn idle_connection_is_closed_after_pool_idle_ms() {
    let (sender, closed) = mpsc::channel();
    let server = RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            stream.write_all(OK).unwrap();
        }
        sender.send(()).unwrap();
    });
    run(async {
        let client = client_with(|options| options.limits.pool_idle_ms = 40);
        GET.whole(&client, &server.url()).await.unwrap();
        // Without another request, and while the client lives.
        tokio::task::spawn_blocking(move || closed.recv_timeout(PATIENCE)).await.unwrap().unwrap();
        GET.whole(&client, &server.url()).await.unwrap();
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn pool_retains_at_most_pool_per_origin_max_connections() {
    let server = answering(OK);
    run(async {
        let client = client_with(|options| options.limits.pool_per_origin_max = 1);
        for expected in [2, 3] {
            let mut first = GET.head(&client, &server.url()).await.unwrap();
            let mut second = GET.head(&client, &server.url()).await.unwrap();
            body(&mut first).await.unwrap();
            body(&mut second).await.unwrap();
            assert_eq!(server.connections(), expected);
        }
    });
}

#[test]
fn client_clock_advances_and_random_values_differ() {
    run(async {
        let client = client();
        let began = client.now();
        client.sleep_until(began.mono_ms + 20).await;
        let now = client.now();
        assert!(now.mono_ms >= began.mono_ms + 20 && now.unix_ms >= began.unix_ms);
        assert_ne!(client.random(), client.random());
    });
}

#[test]
fn activated_extensions_are_read_from_repeated_fields() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 72\r\nA2A-Extensions: https://a, \
        https://b\r\nX: y\r\na2a-extensions: https://c\r\n\r\n\
        {\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_AGENT\",\"parts\":[{\"text\":\"x\"}]}}";
    let server = answering(ANSWER);
    let card = crate::scripted::card("HTTP+JSON", &server.url());
    run(async {
        let card = AgentCard::read(card.as_bytes()).unwrap();
        let client = ClientBuilder::new().connect_over(client(), card, None).unwrap();
        let answer = client.send(&SendRequest::text("hello")).await.unwrap();
        let activated: Vec<&str> = answer.activated_extensions().collect();
        assert_eq!(activated, ["https://a", "https://b", "https://c"]);
    });
}
