//! A bounded load of calls over HTTP/2, of gRPC or of JSON-RPC: a number of connections, of
//! concurrent calls on each, and of calls in all.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use tokio::task::LocalSet;

use super::tonic_floor::messages;

/// More than any answer, so that a server never waits for the window.
const WINDOW: u32 = 1 << 24;

/// The concurrency of a load.
#[derive(Clone, Copy)]
pub struct Shape {
    pub connections: usize,
    /// Concurrent calls on each connection.
    pub at_once: usize,
}

impl Shape {
    pub const fn new(connections: usize, at_once: usize) -> Shape {
        Shape { connections, at_once }
    }
}

/// The same call, again and again.
pub struct Load {
    runtime: tokio::runtime::Runtime,
    local: LocalSet,
    connections: Vec<SendRequest<Bytes>>,
    call: Rc<Call>,
    at_once: usize,
}

struct Call {
    uri: Uri,
    headers: HeaderMap,
    request: Bytes,
    /// The number of messages in every answer; JSON: `None`, the answer is one result.
    messages: Option<usize>,
}

impl Load {
    /// Connections to a port of loopback, of gRPC calls.
    pub fn new(port: u16, name: &str, request: Bytes, messages: usize, shape: Shape) -> Load {
        let path = format!("/lf.a2a.v1.A2AService/{name}");
        let mut headers = HeaderMap::new();
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        Load::of(port, &path, headers, request, Some(messages), shape)
    }

    /// The same for JSON-RPC calls.
    pub fn json(port: u16, request: Bytes, shape: Shape) -> Load {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Load::of(port, "/", headers, request, None, shape)
    }

    fn of(
        port: u16,
        path: &str,
        mut headers: HeaderMap,
        request: Bytes,
        messages: Option<usize>,
        shape: Shape,
    ) -> Load {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = LocalSet::new();
        let connect = async {
            let mut all = Vec::new();
            for _ in 0..shape.connections {
                let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut builder = h2::client::Builder::new();
                builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
                let (send, connection) = builder.handshake(stream).await.unwrap();
                tokio::task::spawn_local(async move {
                    let _ = connection.await;
                });
                all.push(send);
            }
            all
        };
        let connections = local.block_on(&runtime, connect);
        let text = format!("http://127.0.0.1:{port}{path}");
        headers.insert(header::USER_AGENT, HeaderValue::from_static("grpc-bench/1"));
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        let call = Rc::new(Call { uri: text.parse().unwrap(), headers, request, messages });
        Load { runtime, local, connections, call, at_once: shape.at_once }
    }

    /// The body of the answer to one call.
    pub fn call_once(&mut self) -> Bytes {
        let (mut send, call) = (self.connections[0].clone(), Rc::clone(&self.call));
        self.local.block_on(&self.runtime, async move { call.make(&mut send).await })
    }

    /// Makes this many calls in all, asserting an answer to each. Returns the duration of each, the
    /// fastest first.
    pub fn run(&mut self, calls: usize) -> Vec<Duration> {
        let remaining = Rc::new(Cell::new(calls));
        let durations = Rc::new(RefCell::new(Vec::with_capacity(calls)));
        let slots: Vec<_> = (0..self.connections.len() * self.at_once)
            .map(|slot| {
                let mut send = self.connections[slot % self.connections.len()].clone();
                let call = Rc::clone(&self.call);
                let (remaining, durations) = (Rc::clone(&remaining), Rc::clone(&durations));
                self.local.spawn_local(async move {
                    while let Some(less) = remaining.get().checked_sub(1) {
                        remaining.set(less);
                        let start = Instant::now();
                        let body = call.make(&mut send).await;
                        durations.borrow_mut().push(start.elapsed());
                        call.check(&body);
                    }
                })
            })
            .collect();
        self.local.block_on(&self.runtime, async move {
            for slot in slots {
                slot.await.unwrap();
            }
        });
        let mut durations = durations.take();
        durations.sort();
        durations
    }
}

impl Call {
    fn check(&self, body: &Bytes) {
        match self.messages {
            Some(count) => assert_eq!(messages(body.clone()).len(), count),
            None => assert!(body.windows(9).any(|some| some == b"\"result\":"), "{body:?}"),
        }
    }

    async fn make(&self, send: &mut SendRequest<Bytes>) -> Bytes {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        std::future::poll_fn(|cx| send.poll_ready(cx)).await.unwrap();
        let (response, mut stream) = send.send_request(request, false).unwrap();
        stream.send_data(self.request.clone(), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let mut all = BytesMut::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            all.extend_from_slice(&piece);
        }
        if self.messages.is_none() {
            return all.freeze();
        }
        let trailers = body.trailers().await.unwrap().expect("trailers");
        assert_eq!(trailers.get("grpc-status").unwrap(), "0", "{trailers:?}");
        all.freeze()
    }
}
