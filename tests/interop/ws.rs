//! WebSocket: JSON-RPC messages in text frames, all calls and streams of a client on one connection
//! (wire §8, a2a_rust).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{Value, json};
use tungstenite::{
    ClientRequestBuilder, Error, HandshakeError, Message, WebSocket,
    http::{HeaderName, HeaderValue, Response, Uri},
};

use super::{
    client::{By, Call, Fault, Item, Items, Junk, Link},
    exchange::{Approach, Replies},
    jsonrpc::{request, response},
    model::Gen,
    place::{Endpoint, Socket},
};
use crate::support::reply::Reply;

/// JSON-RPC over a WebSocket.
pub struct Ws {
    endpoint: Endpoint,
    approach: Approach,
    generation: Gen,
    line: Line,
    next_id: u64,
}

/// A connection that all its calls and streams share.
#[derive(Clone)]
struct Line(Arc<Mutex<Shared>>);

struct Shared {
    socket: WebSocket<Box<dyn Socket>>,
    /// Messages for other requests, by the id of the request.
    inbox: HashMap<String, VecDeque<Value>>,
    replies: Replies,
}

impl Line {
    /// Upgrades a connection; the version applies to all its calls.
    fn open(
        endpoint: &Endpoint,
        approach: &Approach,
        version: Option<(&str, By)>,
    ) -> Result<Line, Reply> {
        let mut url = approach.ws_url(endpoint);
        if let Some((version, By::Query)) = version {
            url += &format!("&A2A-Version={version}");
        }
        let uri: Uri = url.parse().expect("a URI");
        let mut builder = ClientRequestBuilder::new(uri).with_sub_protocol("a2a");
        if let Some((version, By::Field)) = version {
            builder = builder.with_header("A2A-Version", version);
        }
        for (name, value) in &approach.fields {
            builder = builder.with_header(*name, value);
        }
        let (socket, reply) = match tungstenite::client(builder, endpoint.dial()) {
            Ok(opened) => opened,
            Err(HandshakeError::Failure(Error::Http(reply))) => return Err(refusal(*reply)),
            Err(error) => panic!("no upgrade: {error}"),
        };
        assert_eq!(reply.headers()["sec-websocket-protocol"], "a2a");
        let replies = approach.replies.clone();
        Ok(Line(Arc::new(Mutex::new(Shared { socket, inbox: HashMap::new(), replies }))))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().expect("no panic elsewhere")
    }

    fn send(&self, text: &str) {
        self.shared().socket.send(Message::text(text)).expect("the server takes it");
    }

    /// The next message for a request, which must come.
    fn expect(&self, id: &Value) -> Value {
        self.receive(id).unwrap_or_else(|code| panic!("closed: {code}"))
    }

    /// The next message for a request, or the server's close code.
    fn receive(&self, id: &Value) -> Result<Value, u16> {
        let mut shared = self.shared();
        loop {
            let own = shared.inbox.get_mut(&id.to_string());
            if let Some(value) = own.and_then(VecDeque::pop_front) {
                return Ok(value);
            }
            match shared.socket.read().expect("a message") {
                Message::Text(text) => {
                    shared.replies.note_text(&text);
                    let value: Value = serde_json::from_str(&text).expect("JSON");
                    let inbox = shared.inbox.entry(value["id"].to_string());
                    inbox.or_default().push_back(value);
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(frame) => {
                    let code = frame.expect("a code").code.into();
                    shared.replies.note_close(code);
                    return Err(code);
                }
                other => panic!("no message of A2A: {other:?}"),
            }
        }
    }
}

/// The answer to a refused upgrade.
fn refusal(reply: Response<Option<Vec<u8>>>) -> Reply {
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().expect("a value").to_owned())
    };
    let fields = reply.headers().iter().map(field).collect();
    let status = reply.status().as_u16();
    Reply { status, fields, body: reply.into_body().unwrap_or_default(), complete: true }
}

impl Ws {
    pub fn new(endpoint: &Endpoint, approach: &Approach, generation: Gen) -> Ws {
        Ws::try_new(endpoint, approach, generation).expect("an upgrade")
    }

    /// Opens a WebSocket, or returns the refusal.
    pub fn try_new(endpoint: &Endpoint, approach: &Approach, generation: Gen) -> Result<Ws, Reply> {
        let version = (generation == Gen::V1).then_some(("1.0", By::Field));
        let line = Line::open(endpoint, approach, version)?;
        let (endpoint, approach) = (endpoint.clone(), approach.clone());
        Ok(Ws { endpoint, approach, generation, line, next_id: 0 })
    }

    /// Sends a request; returns the connection and the id of its answer.
    fn send(&mut self, call: &Call) -> (Line, Value) {
        self.next_id += 1;
        let mut request = request(self.next_id, call, self.generation);
        // There is no header and no query: the params have it, as a number or as its text.
        match call.after {
            Some((seq, By::Field)) => request["params"]["lastEventId"] = json!(seq),
            Some((seq, By::Query)) => request["params"]["lastEventId"] = json!(seq.to_string()),
            None => {}
        }
        let line = match call.version {
            Some(version) => {
                Line::open(&self.endpoint, &self.approach, Some(version)).expect("an upgrade")
            }
            None => self.line.clone(),
        };
        line.send(&request.to_string());
        (line, json!(self.next_id))
    }
}

impl Link for Ws {
    fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        let (line, id) = self.send(call);
        response(&id, &line.expect(&id))
    }

    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault> {
        let (line, id) = self.send(call);
        Ok(Box::new(Stream { line, id }))
    }

    fn junk(&mut self, junk: Junk) -> Option<Fault> {
        let method = if self.generation == Gen::V1 { "NoSuchMethod" } else { "message/nothing" };
        let (id, text) = match junk {
            Junk::Unreadable => (Value::Null, "{".to_owned()),
            Junk::NotARequest => (json!(7), json!({"jsonrpc": "2.0", "id": 7}).to_string()),
            Junk::NoSuchMethod => {
                let call = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}});
                (json!(7), call.to_string())
            }
            // A binary frame is an error of WebSocket itself (close code 1003).
            Junk::MediaType => return None,
        };
        self.line.send(&text);
        Some(response(&id, &self.line.expect(&id)).expect_err("an error"))
    }
}

/// One frame an event, then one that is marked as the last.
struct Stream {
    line: Line,
    id: Value,
}

impl Items for Stream {
    fn next(&mut self) -> Item {
        let Ok(mut value) = self.line.receive(&self.id) else { return Item::End };
        let seq = value.as_object_mut().and_then(|object| object.remove("eventId"));
        match response(&self.id, &value) {
            Ok(result) if result == json!({"status": "stream_complete"}) => Item::End,
            Ok(value) => Item::Event { seq: seq.and_then(|seq| seq.as_u64()), value },
            Err(fault) => Item::Fault(fault),
        }
    }
}
