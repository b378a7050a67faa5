//! HTTP/2 with prior knowledge, and by ALPN over TLS: the same requests as over HTTP/1.1, and the
//! additions that gRPC needs.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, client::SendRequest};
use http::{HeaderMap, Response};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::{Builder, Runtime},
};
use tokio_rustls::TlsConnector;

use super::{
    http::{Blocks, Http, Request, is_stream},
    place::Endpoint,
};
use crate::support::{
    binary::PATIENCE,
    reply::{Event, Reply},
};

/// A connection. It makes progress while a caller waits for one of its responses.
#[derive(Clone)]
pub struct Http2 {
    runtime: Arc<Runtime>,
    sender: SendRequest<Bytes>,
    endpoint: Endpoint,
}

/// A response as it arrives.
pub struct Incoming {
    runtime: Arc<Runtime>,
    body: RecvStream,
}

impl Http2 {
    pub fn new(endpoint: &Endpoint) -> Http2 {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let sender = runtime.block_on(async {
            let socket = TcpStream::connect(endpoint.addr).await.expect("a connection");
            socket.set_nodelay(true).expect("no delay");
            let Some(config) = endpoint.trust_for("h2") else { return handshake(socket).await };
            let connector = TlsConnector::from(config);
            let socket = connector.connect(Endpoint::name(), socket).await.expect("TLS");
            assert_eq!(socket.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            handshake(socket).await
        });
        Http2 { runtime: Arc::new(runtime), sender, endpoint: endpoint.clone() }
    }

    /// Sends a request, and waits for the head of the response.
    pub fn send(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, String)],
        body: Option<Bytes>,
    ) -> (Response<()>, Incoming) {
        let uri = format!("{}://{}{target}", self.endpoint.scheme(), self.endpoint.addr);
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let request = request.body(()).expect("a request");
        let response = in_time(&self.runtime, async {
            let mut sender = self.sender.clone().ready().await.expect("room for a stream");
            let sent = sender.send_request(request, body.is_none());
            let (response, mut stream) = sent.expect("a stream");
            if let Some(body) = body {
                stream.send_data(body, true).expect("a body");
            }
            response.await.expect("a response")
        });
        let (head, body) = response.into_parts();
        (Response::from_parts(head, ()), Incoming { runtime: Arc::clone(&self.runtime), body })
    }
}

async fn handshake<S>(socket: S) -> SendRequest<Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

fn in_time<T>(runtime: &Runtime, wait: impl Future<Output = T>) -> T {
    let wait = async { tokio::time::timeout(PATIENCE, wait).await };
    runtime.block_on(wait).expect("the server answers")
}

impl Incoming {
    /// Some more of the body; `None` at its end.
    pub fn data(&mut self) -> Option<Bytes> {
        let body = &mut self.body;
        in_time(&self.runtime, async move {
            let data = body.data().await?.expect("an orderly end");
            body.flow_control().release_capacity(data.len()).expect("capacity");
            Some(data)
        })
    }

    /// The trailers.
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        let body = &mut self.body;
        in_time(&self.runtime, async move { body.trailers().await.expect("an orderly end") })
    }
}

fn reply_of(head: &Response<()>) -> Reply {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().expect("a value").to_owned())
    };
    let fields: Vec<_> = head.headers().iter().map(field).collect();
    // RFC 9113 §8.2.2: connection-specific fields of HTTP/1.1 are not allowed.
    for (name, _) in &fields {
        let hop = ["connection", "transfer-encoding", "keep-alive", "upgrade"];
        assert!(!hop.contains(&name.as_str()), "{fields:?}");
    }
    Reply { status: head.status().as_u16(), fields, body: Vec::new(), complete: true }
}

impl Http2 {
    fn exchange(&self, request: &Request) -> (Reply, Incoming) {
        let body = request.body.clone().map(Bytes::from);
        let (head, incoming) = self.send(request.method, &request.target, &request.fields, body);
        (reply_of(&head), incoming)
    }
}

fn whole(mut reply: Reply, mut incoming: Incoming) -> Reply {
    while let Some(data) = incoming.data() {
        reply.body.extend_from_slice(&data);
    }
    reply
}

impl Http for Http2 {
    fn fetch(&mut self, request: &Request) -> Reply {
        let (reply, incoming) = self.exchange(request);
        whole(reply, incoming)
    }

    fn open(&mut self, request: &Request) -> Result<Box<dyn Blocks>, Reply> {
        let (reply, incoming) = self.exchange(request);
        if !is_stream(&reply) {
            return Err(whole(reply, incoming));
        }
        assert_eq!(reply.status, 200, "{reply:?}");
        Ok(Box::new(Blocks2 { incoming, text: String::new() }))
    }
}

struct Blocks2 {
    incoming: Incoming,
    text: String,
}

impl Blocks for Blocks2 {
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                if !block.starts_with(':') {
                    return Some(Event::parse(block.trim_end()));
                }
                continue;
            }
            let Some(data) = self.incoming.data() else {
                assert_eq!(self.text, "", "half an event");
                return None;
            };
            self.text += std::str::from_utf8(&data).expect("UTF-8");
        }
    }
}
