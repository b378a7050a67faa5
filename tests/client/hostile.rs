//! Servers, cards and networks that are out to harm their client.

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
        Client, ClientBuilder, ClientErrorKind, EventKind, HttpRequest, HttpResponse, SendRequest,
        Transport, TransportError,
        card::AgentCard,
        credentials::{Credentials, CredentialsError, Secret},
    },
    service::Now,
    ws::{self, OpCode, Reader, ReaderRules, WsEvent},
};

/// What a response says next.
enum Piece {
    Bytes(Vec<u8>),
    /// Nothing ever again, and no end.
    Silence,
    /// Nothing, the first time that it is looked for.
    Wait,
    /// The connection breaks.
    Break,
}

struct Reply {
    status: u16,
    fields: Vec<(&'static str, String)>,
    pieces: VecDeque<Piece>,
    /// Of a WebSocket: what each call of JSON-RPC is answered with.
    results: Option<VecDeque<Vec<Piece>>>,
    reader: Reader,
}

impl Reply {
    fn of(status: u16, fields: &[(&'static str, &str)], body: &str) -> Reply {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let pieces = VecDeque::from([Piece::Bytes(body.as_bytes().to_vec())]);
        Reply { status, fields, pieces, results: None, reader: Reader::default() }
    }

    fn json(body: &str) -> Reply {
        Reply::of(200, &[("content-type", "application/json")], body)
    }

    /// A WebSocket that answers its calls with these, one after another.
    fn socket(request: &HttpRequest<'_>, results: Vec<Vec<Piece>>) -> Reply {
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
fn result(id: u64, result: &str) -> Piece {
    let mut out = Vec::new();
    let mark = ws::begin(&mut out);
    out.extend_from_slice(
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{result}}}"#).as_bytes(),
    );
    ws::finish(&mut out, mark, OpCode::Text);
    Piece::Bytes(out)
}

impl HttpResponse for Reply {
    fn status(&self) -> u16 {
        self.status
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        _: usize,
    ) -> Poll<Result<bool, TransportError>> {
        match self.pieces.pop_front() {
            Some(Piece::Bytes(bytes)) => {
                out.extend(bytes);
                Poll::Ready(Ok(true))
            }
            Some(Piece::Wait) => Poll::Pending,
            Some(Piece::Break) => {
                Poll::Ready(Err(TransportError::Closed { before_response: false }))
            }
            Some(Piece::Silence) => {
                self.pieces.push_front(Piece::Silence);
                Poll::Pending
            }
            // A WebSocket waits for its next call, if it takes another.
            None if self.results.as_ref().is_some_and(|results| !results.is_empty()) => {
                Poll::Pending
            }
            None => Poll::Ready(Ok(false)),
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

type Script = dyn Fn(&HttpRequest<'_>) -> Reply + Send + Sync;

/// Answers as it is told, and notes what it was asked.
struct Scripted {
    script: Box<Script>,
    asked: Arc<Mutex<Vec<String>>>,
    now_ms: AtomicU64,
}

impl Scripted {
    fn new(script: impl Fn(&HttpRequest<'_>) -> Reply + Send + Sync + 'static) -> Scripted {
        Scripted { script: Box::new(script), asked: Arc::default(), now_ms: AtomicU64::new(1) }
    }
}

impl Transport for Scripted {
    type Response = Reply;

    async fn request(&self, request: HttpRequest<'_>) -> Result<Reply, TransportError> {
        let has_token = request.fields.iter().any(|(name, _)| name == "Authorization");
        let token = if has_token { " with a token" } else { "" };
        let asked = format!("{}{}{token}", request.origin, request.target);
        self.asked.lock().unwrap().push(asked);
        Ok((self.script)(&request))
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

/// What comes of it; it waits for nothing but the clock, which nobody waits for.
fn settled<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return done;
        }
    }
    panic!("it hangs");
}

fn card(binding: &str, url: &str) -> String {
    let interface =
        format!(r#"{{"url":"{url}","protocolBinding":"{binding}","protocolVersion":"1.0"}}"#);
    format!(
        r#"{{"name":"A","supportedInterfaces":[{interface}],"capabilities":{{"streaming":true}}}}"#
    )
}

fn client(transport: Scripted, binding: &str, url: &str) -> Client<Scripted> {
    let card = AgentCard::read(card(binding, url).as_bytes()).unwrap();
    ClientBuilder::new().connect_over(transport, card, None).unwrap()
}

const MESSAGE: &str = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#;
const TASK: &str = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;

/// Where a card leads from one origin to another, whose interface is asked for a message: what was
/// asked, and what came of it.
fn redirected(from: &str, to: &'static str) -> (Vec<String>, Option<ClientErrorKind>) {
    let transport = Scripted::new(move |request| {
        let is_moved = request.origin.to_string() == to;
        match (is_moved, request.target) {
            (true, "/card") => Reply::json(&card("HTTP+JSON", to)),
            (true, _) => Reply::json(MESSAGE),
            (false, _) => Reply::of(302, &[("location", &format!("{to}/card"))], ""),
        }
    });
    let asked = Arc::clone(&transport.asked);
    let bearer = Some(Secret::new("hidden"));
    let builder =
        ClientBuilder::new().credentials(Credentials { bearer, ..Credentials::default() });
    let client = settled(builder.discover_over(transport, from)).unwrap();
    let sent = settled(client.send(&SendRequest::text("hello")));
    let asked = asked.lock().unwrap().clone();
    (asked, sent.err().map(|error| error.kind))
}

/// Who answers for plain http is anybody on the way.
#[test]
fn a_redirect_to_another_origin_takes_no_credentials_there() {
    for from in ["http://agent.test", "https://agent.test"] {
        let (asked, error) = redirected(from, "https://evil.test");
        let refused =
            matches!(error, Some(ClientErrorKind::Credentials(CredentialsError::OtherOrigin(_))));
        assert!(refused, "{error:?}");
        assert!(asked.iter().all(|line| !line.contains("token")), "{asked:?}");
    }
    let (asked, error) = redirected("http://agent.test", "https://agent.test");
    assert_eq!(error, None);
    assert_eq!(asked.last().unwrap(), "https://agent.test/message:send with a token");
}

#[test]
fn the_query_of_an_interface_stays_behind_the_path() {
    let transport = Scripted::new(|_| Reply::json(MESSAGE));
    let client = client(transport, "HTTP+JSON", "http://agent.test/a/?key=1");
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    let _ = settled(client.get_task("t", Some(3)));
    let asked = client.transport().asked.lock().unwrap().clone();
    assert_eq!(
        asked,
        [
            "http://agent.test/a/message:send?key=1",
            "http://agent.test/a/tasks/t?historyLength=3&key=1"
        ]
    );
}

/// Bytes that are no content, as those of an endless coding, never come as any.
#[test]
fn a_body_that_never_goes_on_has_the_time_of_its_call() {
    let transport = Scripted::new(|_| {
        let mut reply = Reply::json("{");
        reply.pieces.push_back(Piece::Silence);
        reply
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    let error = settled(client.send(&SendRequest::text("hello"))).unwrap_err();
    assert!(
        matches!(error.kind, ClientErrorKind::Transport(TransportError::Timeout(_))),
        "{error}"
    );
}

#[test]
fn a_session_that_its_server_has_left_is_not_called_over() {
    let opened = AtomicU64::new(0);
    let transport = Scripted::new(move |request| {
        // Each takes one call, and then closes.
        let id = opened.fetch_add(1, Relaxed) + 1;
        Reply::socket(request, vec![vec![result(id, MESSAGE)]])
    });
    let client = client(transport, "WEBSOCKET", "http://agent.test");
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    settled(client.send(&SendRequest::text("hello"))).unwrap();
    assert_eq!(client.transport().asked.lock().unwrap().len(), 2);
}

#[test]
fn a_session_that_says_nothing_is_not_waited_for() {
    let transport = Scripted::new(|request| {
        let first = vec![result(1, TASK), Piece::Silence];
        Reply::socket(request, vec![first, Vec::new()])
    });
    let client = client(transport, "WEBSOCKET", "http://agent.test");
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        assert!(stream.next().await.unwrap().is_err());
    });
}

/// A server that repeats itself and breaks off, over and over, is not asked for ever.
#[test]
fn what_was_seen_already_is_no_progress() {
    const FIELDS: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const UPDATE: &str = r#"{"statusUpdate":{"taskId":"t","contextId":"c",
        "status":{"state":"TASK_STATE_WORKING"}}}"#;
    let transport = Scripted::new(|_| {
        let update = UPDATE.replace('\n', "");
        let body = format!("id: 5\ndata: {TASK}\n\nid: 4\ndata: {update}\n\n");
        let mut reply = Reply::of(200, FIELDS, &body);
        reply.pieces.push_back(Piece::Break);
        reply
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        let next = stream.next().await;
        assert!(next.is_none_or(|event| event.is_err()));
    });
}

/// Who drops `next` while the subscription says nothing yet: what was missed before it is not lost.
#[test]
fn who_gives_up_while_a_stream_is_taken_up_misses_nothing() {
    const FIELDS: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const DONE: &str = r#""status":{"state":"TASK_STATE_COMPLETED"}"#;
    let transport = Scripted::new(|request| match request.target {
        "/message:stream" => {
            let mut reply = Reply::of(200, FIELDS, &format!("data: {TASK}\n\n"));
            reply.pieces.push_back(Piece::Break);
            reply
        }
        "/tasks/t:subscribe" => {
            let update = format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c",{DONE}}}}}"#);
            let mut reply = Reply::of(200, FIELDS, &format!("data: {update}\n\n"));
            reply.pieces.push_front(Piece::Wait);
            reply
        }
        _ => {
            let artifact = r#"{"artifactId":"a","parts":[{"text":"x"}]}"#;
            let task = format!(r#"{{"id":"t","contextId":"c",{DONE},"artifacts":[{artifact}]}}"#);
            Reply::json(&task)
        }
    });
    let client = client(transport, "HTTP+JSON", "http://agent.test");
    let mut stream = settled(client.stream(&SendRequest::text("hello"))).unwrap();
    settled(stream.next()).unwrap().unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(pin!(stream.next()).poll(cx).is_pending());
    let mut changes = 0;
    while let Some(event) = settled(stream.next()) {
        let is_change = matches!(event.unwrap().kind(), EventKind::Change { .. });
        changes += u32::from(is_change);
    }
    // The artifact, and the end.
    assert!(changes >= 2, "{changes}");
}
