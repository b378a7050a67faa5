//! Calls to our server without a socket: over a gRPC exchange, and in WebSocket frames.

use std::task::Waker;

use peregrine::{
    client::{Format, ReplyHead, WrittenCall, format::GrpcEnd},
    engine::{Cx, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Worker},
    model::Generation,
    service,
    ws::{self, OpCode, Reader, ReaderRules, WsEvent},
};

use crate::support::{Counter, Lab, Peer};

/// The response to a gRPC call.
#[derive(Default)]
pub struct RpcAnswer {
    status: u16,
    /// The fields of the head and the trailers.
    fields: Vec<(String, String)>,
    content: Vec<u8>,
    is_over: bool,
}

impl ResponseSink for RpcAnswer {
    fn head(&mut self, head: &HeadParts) {
        self.status = head.status;
        head.for_each_field(|name, value| {
            self.fields.push((name.to_ascii_lowercase(), value.to_owned()));
        });
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.content.append(bytes);
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        self.is_over = true;
        let trailers = trailers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.fields.extend(trailers);
    }
}

impl RpcAnswer {
    fn field(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| field.0 == name)?;
        Some(field.1.as_bytes())
    }

    pub fn head(&self) -> ReplyHead<'_> {
        ReplyHead { status: self.status, content_type: self.field("content-type") }
    }

    /// The status of the call.
    pub fn end(&self) -> GrpcEnd<'_> {
        GrpcEnd {
            status: self.field("grpc-status"),
            message: self.field("grpc-message"),
            details: self.field("grpc-status-details-bin"),
        }
    }

    /// The messages, as a client splits them.
    pub fn messages(&self) -> Vec<&[u8]> {
        let (mut rest, mut messages) = (&self.content[..], Vec::new());
        while let Some(range) = Format::message_in(rest, 1 << 24, "bytes_max").unwrap() {
            messages.push(&rest[range.clone()]);
            rest = &rest[range.end..];
        }
        assert!(rest.is_empty(), "half a message");
        messages
    }
}

/// gRPC calls to the engine of a lab.
pub struct Exchanges(Worker);

impl Exchanges {
    pub fn new(lab: &Lab) -> Exchanges {
        Exchanges(Worker::new(0, lab.engine.limits(), Box::new(Counter(3))))
    }

    /// Sends a call that the client wrote.
    pub fn call(&mut self, lab: &Lab, format: &Format, written: &WrittenCall) -> RpcAnswer {
        let mut out = Vec::new();
        let version =
            format.version_header().map(|version| (&b"a2a-version"[..], version.as_bytes()));
        let media = written.content_type.expect("a message");
        let fields = [(&b"content-type"[..], media.as_bytes()), (b"te", b"trailers")];
        let request = RequestParts {
            method: written.method.name().as_bytes(),
            target: written.path.as_bytes(),
            authority: Some(b"127.0.0.1"),
            fields: fields.into_iter().chain(version),
            has_body: true,
            takes_trailers: true,
        };
        let mut answer = RpcAnswer::default();
        let mut cx = Cx {
            engine: &lab.engine,
            worker: &mut self.0,
            now: lab.now,
            wake: Waker::noop(),
            out: &mut out,
            unsent: 0,
            peer: service::Peer::default(),
        };
        let mut exchange = Exchange::new(&mut cx, request);
        exchange.push(lab.engine.limits(), &written.body);
        exchange.end();
        for _ in 0..100 {
            if exchange.poll(&mut cx, &mut answer).is_ready() {
                break;
            }
        }
        assert!(answer.is_over, "the call does not end");
        answer
    }
}

/// Open WebSockets, one for each generation.
#[derive(Default)]
pub struct Sockets(Vec<(Generation, Peer)>);

impl Sockets {
    /// Sends a call that the client wrote in one of its frames, and returns the messages in the
    /// frames of the answer, as a client reads them.
    pub fn call(&mut self, lab: &mut Lab, format: &Format, body: &[u8]) -> Vec<Vec<u8>> {
        let generation = format.generation();
        let open = self.0.iter().find(|(existing, _)| *existing == generation).map(|open| open.1);
        let peer = open.unwrap_or_else(|| {
            let version = format.version_header();
            let lines = version.map(|version| format!("A2A-Version: {version}\r\n"));
            let peer = lab.socket("/", &lines.unwrap_or_default());
            self.0.push((generation, peer));
            peer
        });
        let mut frame = Vec::new();
        let mark = ws::client::begin(&mut frame);
        frame.extend_from_slice(body);
        ws::client::finish(&mut frame, mark, OpCode::Text, [1, 2, 3, body.len() as u8]);
        lab.write(peer, &frame);
        let bytes = lab.take(peer);
        let (frame_bytes_max, message_bytes_max) = (1 << 24, 1 << 24);
        let rules =
            ReaderRules { frame_bytes_max, message_bytes_max, binary: false, masked: false };
        let (mut reader, mut rest, mut messages) = (Reader::default(), &bytes[..], Vec::new());
        while !rest.is_empty() {
            let mut message = Vec::new();
            let (ate, event) = reader.advance(rest, &mut message, &rules).unwrap();
            assert_eq!(event, WsEvent::Text, "{}", rest.escape_ascii());
            messages.push(message);
            rest = &rest[ate..];
        }
        messages
    }
}
