//! A transport that gives scripted answers, with a clock that advances when a caller waits for it.

use std::{
    collections::VecDeque,
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use peregrine::{
    client::{
        Client, ClientBuilder, HttpRequest, HttpResponse, Transport, TransportError,
        card::AgentCard,
    },
    service::Now,
    ws::{self, OpCode, Reader, ReaderRules, WsEvent},
};

/// The next step of a response.
pub enum Piece {
    Bytes(Vec<u8>),
    /// Neither a byte nor the end, ever.
    Silence,
    /// Pending at the first poll.
    Wait,
    /// The clock advances by this many milliseconds.
    Passes(Arc<AtomicU64>, u64),
    /// The connection breaks.
    Break,
}

pub struct Reply {
    status: u16,
    fields: Vec<(&'static str, String)>,
    pub pieces: VecDeque<Piece>,
    /// The trailers that `field` returns once all has been read.
    trailers: Vec<(&'static str, String)>,
    /// Of a WebSocket: the answers to its JSON-RPC calls.
    results: Option<VecDeque<Vec<Piece>>>,
    reader: Reader,
}

impl Reply {
    pub fn of(status: u16, fields: &[(&'static str, &str)], body: &str) -> Reply {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let pieces = VecDeque::from([Piece::Bytes(body.as_bytes().to_vec())]);
        let (trailers, reader) = (Vec::new(), Reader::default());
        Reply { status, fields, pieces, trailers, results: None, reader }
    }

    /// Its trailers.
    pub fn trailers(mut self, fields: &[(&'static str, &str)]) -> Reply {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned()));
        self.trailers.extend(fields);
        self
    }

    pub fn json(body: &str) -> Reply {
        Reply::of(200, &[("content-type", "application/json")], body)
    }

    /// A WebSocket that answers its calls with these, one after another.
    pub fn socket(request: &HttpRequest<'_>, results: Vec<Vec<Piece>>) -> Reply {
        let key = request.fields.iter().find(|(name, _)| *name == "Sec-WebSocket-Key").unwrap().1;
        let accept = ws::accept(key.as_bytes()).unwrap();
        let accept = str::from_utf8(&accept).unwrap();
        let fields =
            [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-accept", accept)];
        let mut reply = Reply::of(101, &fields, "");
        (reply.pieces, reply.results) = (VecDeque::new(), Some(results.into()));
        reply
    }
}

/// A frame with a response to the call of this number.
pub fn result(id: u64, result: &str) -> Piece {
    frame(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{result}}}"#))
}

/// A frame of a WebSocket.
pub fn frame(text: &str) -> Piece {
    let mut out = Vec::new();
    let mark = ws::begin(&mut out);
    out.extend_from_slice(text.as_bytes());
    ws::finish(&mut out, mark, OpCode::Text);
    Piece::Bytes(out)
}

impl HttpResponse for Reply {
    fn status(&self) -> u16 {
        self.status
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_bytes())
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Poll<Result<bool, TransportError>> {
        while let Some(Piece::Passes(clock, ms)) = self.pieces.front() {
            clock.fetch_add(*ms, Relaxed);
            self.pieces.pop_front();
        }
        match self.pieces.pop_front() {
            Some(Piece::Bytes(bytes)) => {
                out.extend(bytes);
                Poll::Ready(Ok(true))
            }
            Some(Piece::Wait) => Poll::Pending,
            Some(Piece::Passes(..)) => unreachable!("it has passed"),
            Some(Piece::Break) => {
                Poll::Ready(Err(TransportError::Closed { before_response: false }))
            }
            Some(Piece::Silence) => {
                self.pieces.push_front(Piece::Silence);
                Poll::Pending
            }
            // A WebSocket waits for its next call, if it answers another.
            None if self.results.as_ref().is_some_and(|results| !results.is_empty()) => {
                Poll::Pending
            }
            None => {
                self.fields.append(&mut self.trailers);
                Poll::Ready(Ok(false))
            }
        }
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        let (frame_bytes_max, message_bytes_max) = (1 << 20, 1 << 20);
        let rules = ReaderRules { frame_bytes_max, message_bytes_max, binary: false, masked: true };
        let (_, event) = self.reader.advance(bytes, &mut Vec::new(), &rules).unwrap();
        if event == WsEvent::Text {
            let next = self.results.as_mut().and_then(VecDeque::pop_front);
            self.pieces.extend(next.into_iter().flatten());
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

pub type Script = dyn Fn(&HttpRequest<'_>) -> Reply + Send + Sync;
pub type FailureScript = dyn Fn(&HttpRequest<'_>) -> Option<TransportError> + Send + Sync;

/// Gives scripted answers, and records the requests.
pub struct Scripted {
    script: Box<Script>,
    /// The error of a request that fails before its answer.
    failure: Box<FailureScript>,
    pub requests: Arc<Mutex<Vec<String>>>,
    /// The fields of each request.
    pub fields: Arc<Mutex<Vec<String>>>,
    pub now_ms: Arc<AtomicU64>,
}

impl Scripted {
    pub fn new(script: impl Fn(&HttpRequest<'_>) -> Reply + Send + Sync + 'static) -> Scripted {
        Scripted {
            script: Box::new(script),
            failure: Box::new(|_| None),
            requests: Arc::default(),
            fields: Arc::default(),
            now_ms: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Answers with a message unless the request fails.
    pub fn failing(
        failure: impl Fn(&HttpRequest<'_>) -> Option<TransportError> + Send + Sync + 'static,
    ) -> Scripted {
        Scripted { failure: Box::new(failure), ..Scripted::new(|_| Reply::json(MESSAGE)) }
    }

    /// The same with a clock that the test moves, too.
    pub fn with_clock(
        now_ms: &Arc<AtomicU64>,
        script: impl Fn(&HttpRequest<'_>) -> Reply + Send + Sync + 'static,
    ) -> Scripted {
        Scripted { now_ms: Arc::clone(now_ms), ..Scripted::new(script) }
    }
}

impl Transport for Scripted {
    type Response = Reply;

    async fn request(&self, request: HttpRequest<'_>) -> Result<Reply, TransportError> {
        let has_token = request.fields.iter().any(|(name, _)| name == "Authorization");
        let token = if has_token { " with a token" } else { "" };
        let line = format!("{}{}{token}", request.origin, request.target);
        self.requests.lock().unwrap().push(line);
        let lines = String::from_utf8(request.fields.lines().to_vec()).unwrap();
        self.fields.lock().unwrap().push(lines);
        (self.failure)(&request).map_or_else(|| Ok((self.script)(&request)), Err)
    }

    async fn sleep_until(&self, due_ms: u64) {
        if due_ms == u64::MAX {
            return pending().await;
        }
        self.now_ms.fetch_max(due_ms, Relaxed);
    }

    fn now(&self) -> Now {
        let mono_ms = self.now_ms.load(Relaxed);
        Now { mono_ms, unix_ms: mono_ms }
    }

    fn random(&self) -> u128 {
        7
    }
}

/// Runs a future that waits for nothing but the scripted clock.
pub fn settled<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return done;
        }
    }
    panic!("it hangs");
}

pub fn card(binding: &str, url: &str) -> String {
    let interface =
        format!(r#"{{"url":"{url}","protocolBinding":"{binding}","protocolVersion":"1.0"}}"#);
    format!(
        r#"{{"name":"A","supportedInterfaces":[{interface}],"capabilities":{{"streaming":true}}}}"#
    )
}

pub fn client(transport: Scripted, binding: &str, url: &str) -> Client<Scripted> {
    let card = AgentCard::read(card(binding, url).as_bytes()).unwrap();
    ClientBuilder::new().connect_over(transport, card, None).unwrap()
}

pub const MESSAGE: &str =
    r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#;
pub const TASK: &str =
    r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
