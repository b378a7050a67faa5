//! The client's sockets: a call over a pooled connection allocates nothing, an idle connection is
//! small.

use std::{
    future::{Future, poll_fn},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::pin,
};

use peregrine::{
    client::{HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, Transport},
    http::FieldLines,
    net::{HttpClient, HttpClientOptions},
};

use super::{ALLOCATOR, COUNTING, fewest_allocations};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
    Content-Length: 2\r\n\r\n{}";

/// A server that answers without allocations: it takes each read for a request.
fn serve(listener: TcpListener, connections: usize) {
    std::thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::with_capacity(connections);
        let mut buffer = [0; 4096];
        // It answers each connection once, after all have connected.
        while streams.len() < connections {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut buffer).unwrap();
            streams.push(stream);
        }
        for stream in &mut streams {
            stream.write_all(ANSWER).unwrap();
        }
        // Then it serves the last connection, which the client reuses first.
        let mut last = streams.last().unwrap();
        while last.read(&mut buffer).is_ok_and(|count| count > 0) {
            last.write_all(ANSWER).unwrap();
        }
    });
}

/// A listener with a backlog for all connections at once: a refused one would retry after seconds.
fn listener() -> (TcpListener, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1024).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn client() -> HttpClient {
    let mut options = HttpClientOptions::default();
    options.limits.pool_per_origin_max = 100_000;
    HttpClient::new(options).unwrap()
}

async fn send_post(
    client: &HttpClient,
    origin: &HttpOrigin,
) -> <HttpClient as Transport>::Response {
    let request = HttpRequest {
        method: HttpMethod::Post,
        origin,
        target: "/",
        fields: FieldLines::of_lines("User-Agent: test\r\n", &[(10, 4)]),
        body: b"{}",
        version: HttpVersion::Any,
        head_due_ms: client.now().mono_ms + 20_000,
        body_idle_ms: 20_000,
        is_repeatable: false,
    };
    client.request(request).await.unwrap()
}

#[test]
fn call_over_a_pooled_connection_allocates_nothing() {
    let _counting = COUNTING.lock();
    let (listener, addr) = listener();
    serve(listener, 1);
    let origin = HttpOrigin::parse(&format!("http://{addr}/")).unwrap().origin;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = client();
    let mut content = Vec::new();
    let mut call = || {
        runtime.block_on(async {
            let mut response = send_post(&client, &origin).await;
            content.clear();
            while poll_fn(|cx| response.poll_read(cx, &mut content, 1024)).await.unwrap() {}
            assert_eq!((response.status(), &content[..]), (200, &b"{}"[..]));
        });
    };
    (0..100).for_each(|_| call());
    assert_eq!(fewest_allocations(|| (0..100).for_each(|_| call())), 0);
}

#[test]
fn request_future_is_at_most_768_bytes() {
    let _counting = COUNTING.lock();
    let origin = HttpOrigin::parse("http://127.0.0.1:1/").unwrap().origin;
    let client = client();
    let request = HttpRequest {
        method: HttpMethod::Get,
        origin: &origin,
        target: "/",
        fields: FieldLines::NONE,
        body: b"",
        version: HttpVersion::Any,
        head_due_ms: 0,
        body_idle_ms: 0,
        is_repeatable: true,
    };
    let size = size_of_val(&client.request(request));
    assert!(size <= 768, "{size}");
}

/// Bytes that stay allocated for so many idle connections.
fn idle_bytes(connections: usize) -> isize {
    let (listener, addr) = listener();
    serve(listener, connections);
    let origin = HttpOrigin::parse(&format!("http://{addr}/")).unwrap().origin;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated as isize - stats.bytes_deallocated as isize
    };
    runtime.block_on(async {
        let client = client();
        let before = held();
        let mut waiting: Vec<_> =
            (0..connections).map(|_| Box::pin(send_post(&client, &origin))).collect();
        let mut responses = Vec::new();
        poll_fn(|cx| {
            waiting.retain_mut(|request_future| match pin!(request_future).poll(cx) {
                std::task::Poll::Ready(response) => {
                    responses.push(response);
                    false
                }
                std::task::Poll::Pending => true,
            });
            match waiting.is_empty() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        drop(waiting);
        let mut content = Vec::with_capacity(16);
        for mut response in responses.drain(..) {
            content.clear();
            while poll_fn(|cx| response.poll_read(cx, &mut content, 16)).await.unwrap() {}
        }
        drop((responses, content));
        held() - before
    })
}

#[test]
fn idle_connection_holds_at_most_1_kib() {
    let _counting = COUNTING.lock();
    // The buffers for later requests are the same in both.
    let (few, many) = (idle_bytes(100), idle_bytes(900));
    let each = (many - few) / 800;
    assert!((1..=1024).contains(&each), "{each} bytes");
}
