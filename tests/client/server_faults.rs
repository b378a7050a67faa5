//! Servers with faults over each binding: the bytes that they send, and the client's expected
//! error.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, ClientErrorKind, SendRequest, TransportError,
        card::AgentCard,
    },
    net::HttpClient,
    ws::{self, Reader, ReaderRules, WsEvent},
};

use super::{
    frames::{
        self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, block, frame, headers,
    },
    http_fault_cases::cases,
    items::{ItemKind, Over, item},
    scripted::{TASK, card},
    wire::{gzip, hold, read_request},
};

/// The limit of an event's bytes for these clients.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;

/// An expected error; of an error with a sentence only the name is compared.
#[derive(Clone, Debug)]
pub enum Expected {
    Transport(TransportError),
    /// The connection closed, or the stream ended before its first event.
    Lost,
    Http2,
    NotA2a(u16),
    Unreadable,
    OtherTask,
    Redirect,
    Fault,
}

use Expected::{Fault, Http2, Lost, NotA2a, OtherTask, Redirect, Transport, Unreadable};

const BAD: Expected = Transport(TransportError::Malformed(""));

const fn too_large(limit: &'static str) -> Expected {
    Transport(TransportError::TooLarge(limit))
}

impl Expected {
    pub fn is(&self, kind: &ClientErrorKind) -> bool {
        use ClientErrorKind as Kind;
        use TransportError as Why;
        match (self, kind) {
            (Transport(Why::Malformed(_)), Kind::Transport(Why::Malformed(_)))
            | (Transport(Why::Coding(_)), Kind::Transport(Why::Coding(_)))
            | (Http2, Kind::Transport(Why::Http2(_)))
            | (Lost, Kind::StreamLost | Kind::Transport(Why::Closed { .. }))
            | (Unreadable, Kind::Unreadable(_))
            | (OtherTask, Kind::OtherTask)
            | (Redirect, Kind::Redirect(_))
            | (Fault, Kind::Fault(_)) => true,
            (Transport(expected), Kind::Transport(found)) => expected == found,
            (NotA2a(expected), Kind::NotA2a(found)) => expected == found,
            _ => false,
        }
    }
}

/// How a server answers a call.
pub struct ServerFault {
    pub name: &'static str,
    /// The answer; over HTTP/2 its argument is the stream, otherwise the id of the call.
    answer: Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>,
    /// Over WebSocket: the server sends it in answer to a call, not to the upgrade.
    upgrades: bool,
    /// The connection stays open, if the client wants it.
    stays_open: bool,
    /// The acceptable errors; calls and streams may differ.
    pub expected: Vec<Expected>,
}

impl ServerFault {
    /// Whether the server closes the connection of each call at once.
    #[allow(dead_code, reason = "only what is left behind depends on it")]
    pub fn closes(&self) -> bool {
        !self.stays_open && self.upgrades
    }
}

fn server_fault(
    name: &'static str,
    stays_open: bool,
    expected: &[Expected],
    answer: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) -> ServerFault {
    ServerFault {
        name,
        answer: Box::new(answer),
        upgrades: true,
        stays_open,
        expected: expected.to_vec(),
    }
}

/// All that end by themselves; a call of each ends with an error.
pub fn server_faults(over: Over) -> Vec<ServerFault> {
    let mut all = match over {
        Over::JsonRpc | Over::Rest => answers(over),
        Over::WebSocket => messages(),
        Over::Grpc => return frames_of_http2(),
    };
    all.extend(cases().into_iter().filter_map(|(name, answer, _, error)| {
        let expected = match error {
            TransportError::Timeout(_) => return None,
            TransportError::Closed { .. } => Lost,
            error => Transport(error),
        };
        let mut case = server_fault(name, false, &[expected], move |_| answer.to_vec());
        case.upgrades = false;
        Some(case)
    }));
    all
}

/// Sends nothing, and waits.
pub fn stall() -> ServerFault {
    server_fault("stalls", true, &[], |_| Vec::new())
}

/// A response over HTTP/1.1.
fn response(status: &str, fields: &str, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), content].concat()
}

const JSON: &str = "Content-Type: application/json\r\n";
const EVENTS: &str = "Content-Type: text/event-stream\r\n";

fn answers(over: Over) -> Vec<ServerFault> {
    let result = move |id: u32, result: &str| match over {
        Over::Rest => result.to_owned(),
        _ => format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{result}}}"#),
    };
    let error = r#"{"error":{"code":-32001,"message":"no such task"},"id":null,"jsonrpc":"2.0"}"#;
    let bomb = gzip(&vec![b'\n'; 1_000_000]);
    let coded = format!("{JSON}Content-Encoding: gzip\r\n");
    let fields = "X: y\r\n".repeat(200);
    vec![
        server_fault("garbage for an answer", true, &[Unreadable], |_| {
            response("200 OK", JSON, b"[{]")
        }),
        server_fault("another task", true, &[OtherTask, Unreadable], move |id| {
            response("200 OK", JSON, result(id, TASK).as_bytes())
        }),
        server_fault("the answer to another call", true, &[OtherTask, Unreadable], move |id| {
            response("200 OK", JSON, result(id + 1, TASK).as_bytes())
        }),
        server_fault("an event of another task", true, &[OtherTask, NotA2a(200)], move |id| {
            response("200 OK", EVENTS, &item(over, ItemKind::Task, id.into()))
        }),
        server_fault("half an event", false, &[Lost, NotA2a(200)], move |id| {
            let whole = item(over, ItemKind::Task, id.into());
            let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n");
            [head.as_bytes(), &whole[..whole.len() / 2]].concat()
        }),
        server_fault(
            "a mebibyte of an event",
            true,
            &[too_large("event_bytes_max"), NotA2a(200)],
            move |id| {
                let event = item(over, ItemKind::Artifact("asked", 1 << 20), id.into());
                response("200 OK", EVENTS, &event)
            },
        ),
        server_fault("a page", true, &[NotA2a(200)], |_| {
            response("200 OK", "Content-Type: text/html\r\n", b"<html>")
        }),
        server_fault("a redirect", true, &[Redirect], |_| {
            response("307 Temporary Redirect", "Location: /again\r\n", b"")
        }),
        server_fault("a gateway", true, &[NotA2a(503)], |_| response("503 No", "", b"")),
        server_fault("an error, and closes", false, &[Fault, Lost], move |_| {
            response("404 Not Found", JSON, error.as_bytes())
        }),
        server_fault("too many fields", true, &[too_large("response_fields_max")], move |_| {
            response("200 OK", &fields, b"")
        }),
        server_fault("a bomb of gzip", true, &[too_large("decoded_ratio_max")], move |_| {
            response("200 OK", &coded, &bomb)
        }),
    ]
}

/// A server's frame with this first byte, and its length in the second.
fn ws_frame(first: u8, content: &[u8]) -> Vec<u8> {
    [&[first, content.len() as u8], content].concat()
}

fn messages() -> Vec<ServerFault> {
    let over = Over::WebSocket;
    let mut refused = server_fault("no proof of an upgrade", true, &[BAD], |_| {
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            .to_vec()
    });
    refused.upgrades = false;
    vec![
        refused,
        server_fault("closes the connection", false, &[Lost], |_| Vec::new()),
        server_fault("says that it closes", false, &[Lost], |_| ws_frame(0x88, &[3, 232])),
        server_fault("half a message", false, &[Lost], move |id| {
            let whole = item(over, ItemKind::Task, id.into());
            whole[..whole.len() / 2].to_vec()
        }),
        server_fault("a masked frame", true, &[BAD], |_| vec![0x81, 0x82, 1, 2, 3, 4, 5, 6]),
        server_fault("a reserved bit", true, &[BAD], |_| ws_frame(0xc1, b"{}")),
        server_fault("a message of bytes", true, &[BAD], |_| ws_frame(0x82, b"{}")),
        server_fault("the rest of nothing", true, &[BAD], |_| ws_frame(0x80, b"{}")),
        server_fault("no UTF-8", true, &[BAD], |_| ws_frame(0x81, b"\xff\xff")),
        server_fault("a tebibyte", true, &[too_large("event_bytes_max")], |_| {
            vec![0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0]
        }),
        server_fault("garbage for an answer", true, &[Unreadable], move |id| {
            item(over, ItemKind::Garbage, id.into())
        }),
        server_fault("the answer to another call", true, &[Unreadable], move |id| {
            item(over, ItemKind::Task, u64::from(id) + 1)
        }),
        server_fault("another task", true, &[OtherTask, Unreadable], move |id| {
            item(over, ItemKind::Task, id.into())
        }),
        server_fault("two answers to one call", true, &[OtherTask, Unreadable], move |id| {
            item(over, ItemKind::Task, id.into()).repeat(2)
        }),
    ]
}

/// The head of a gRPC response.
fn head(stream: u32) -> Vec<u8> {
    headers(stream, 0, &[(":status", "200"), ("content-type", "application/grpc")])
}

fn trailers(stream: u32, status: &str) -> Vec<u8> {
    headers(stream, END_STREAM, &[("grpc-status", status)])
}

/// The prefix of a message of `length` bytes, and the part of it that is sent.
fn message(stream: u32, first: u8, length: u32, content: &[u8]) -> Vec<u8> {
    let message = [&[first], length.to_be_bytes().as_slice(), content].concat();
    frame(DATA, 0, stream, &message)
}

fn task(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, &item(Over::Grpc, ItemKind::Task, 0))
}

fn frames_of_http2() -> Vec<ServerFault> {
    let go_away = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]);
    let mut all = vec![
        server_fault("closes the connection", false, &[Lost], |_| Vec::new()),
        server_fault("closes behind its head", false, &[Lost], head),
        server_fault("half a frame", false, &[Lost], |stream| {
            let task = task(stream);
            [&head(stream)[..], &task[..task.len() / 2]].concat()
        }),
        server_fault("a reset", true, &[Http2], |stream| {
            frame(RST_STREAM, 0, stream, &[0, 0, 0, 2])
        }),
        server_fault("a reset in the middle", true, &[Http2], |stream| {
            [head(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 2])].concat()
        }),
        server_fault("it goes in the middle", false, &[Http2], move |stream| {
            [head(stream), go_away.clone()].concat()
        }),
        server_fault("a longer frame than is allowed", false, &[Http2], |stream| {
            [head(stream), vec![255, 255, 255, DATA, 0, 0, 0, 0, stream as u8]].concat()
        }),
        server_fault("fields that are none", false, &[Http2], |stream| {
            frame(HEADERS, END_HEADERS, stream, &[0x80])
        }),
        server_fault("a head in the middle of another", false, &[Http2], |stream| {
            [frame(HEADERS, 0, stream, &block(&[(":status", "200")])), task(stream)].concat()
        }),
        server_fault("data before any head", false, &[Http2], task),
        server_fault("data for a stream of the server", false, &[Http2], |_| task(2)),
        server_fault("data behind the trailers", true, &[Http2, Lost], |stream| {
            let trailers = headers(stream, 0, &[("grpc-status", "0")]);
            [head(stream), trailers, task(stream)].concat()
        }),
    ];
    all.extend(wrong_answers());
    all
}

/// Responses that HTTP/2 allows, and gRPC does not.
fn wrong_answers() -> Vec<ServerFault> {
    let coding = Transport(TransportError::Coding(""));
    vec![
        server_fault("a redirect", true, &[Redirect], |stream| {
            let fields = [(":status", "307"), ("location", "/again")];
            headers(stream, END_STREAM, &fields)
        }),
        server_fault("a page", true, &[NotA2a(200)], |stream| {
            let fields = [(":status", "200"), ("content-type", "text/html")];
            let page = frame(DATA, END_STREAM, stream, b"<html></html>");
            [headers(stream, 0, &fields), page].concat()
        }),
        server_fault("a page behind a gateway", true, &[NotA2a(502)], |stream| {
            let fields = [(":status", "502"), ("content-type", "text/html")];
            let page = frame(DATA, END_STREAM, stream, b"<html></html>");
            [headers(stream, 0, &fields), page].concat()
        }),
        server_fault("no trailers", true, &[Lost, OtherTask], |stream| {
            [head(stream), frame(DATA, END_STREAM, stream, &item(Over::Grpc, ItemKind::Task, 0))]
                .concat()
        }),
        server_fault("no status in the trailers", true, &[NotA2a(200)], |stream| {
            [head(stream), headers(stream, END_STREAM, &[("x", "y")])].concat()
        }),
        server_fault("a status that is none", true, &[Fault], |stream| {
            [head(stream), trailers(stream, "none")].concat()
        }),
        server_fault("an error", true, &[Fault], |stream| {
            [head(stream), trailers(stream, "5")].concat()
        }),
        server_fault("no message", true, &[BAD, Lost], |stream| {
            [head(stream), trailers(stream, "0")].concat()
        }),
        server_fault("half a message", true, &[BAD, Lost], |stream| {
            [head(stream), message(stream, 0, 99, b"half"), trailers(stream, "0")].concat()
        }),
        server_fault(
            "a message that is too long",
            true,
            &[too_large("body_bytes_max"), too_large("event_bytes_max")],
            |stream| {
                [head(stream), message(stream, 0, u32::MAX, b"x"), trailers(stream, "0")].concat()
            },
        ),
        server_fault("a message that is compressed", true, &[coding], |stream| {
            [head(stream), message(stream, 1, 2, b"\x1f\x8b"), trailers(stream, "0")].concat()
        }),
        server_fault("garbage for a message", true, &[Unreadable], |stream| {
            let garbage = item(Over::Grpc, ItemKind::Garbage, 0);
            [head(stream), frame(DATA, 0, stream, &garbage), trailers(stream, "0")].concat()
        }),
        server_fault("another task", true, &[OtherTask, Unreadable], |stream| {
            [head(stream), task(stream), trailers(stream, "0")].concat()
        }),
    ]
}

/// Serves a connection of a server that answers each request with `next`.
pub fn serve<'b>(over: Over, mut stream: TcpStream, next: impl Fn() -> &'b ServerFault) {
    let answer = |id: u32, stream: &mut TcpStream| {
        let server_fault = next();
        let is_sent = stream.write_all(&(server_fault.answer)(id)).is_ok();
        is_sent && server_fault.stays_open
    };
    match over {
        Over::Grpc => {
            frames::serve(&mut stream, answer);
        }
        Over::JsonRpc | Over::Rest => {
            while let Some(request) = read_request(&mut stream) {
                if !answer(call_id(&request), &mut stream) {
                    break;
                }
            }
        }
        Over::WebSocket => {
            let Some(request) = read_request(&mut stream) else { return };
            if next().upgrades {
                upgrade(&mut stream, &request);
                while let Some(call) = read_message(&mut stream) {
                    if !answer(call_id(&call), &mut stream) {
                        break;
                    }
                }
            } else {
                answer(0, &mut stream);
            }
        }
    }
    // Closing a socket with unread bytes discards the answer.
    if stream.shutdown(Shutdown::Write).is_ok() {
        hold(stream);
    }
}

/// The id of a JSON-RPC call; 0: it has none.
fn call_id(request: &str) -> u32 {
    let id = request.split_once(r#""id":""#).and_then(|(_, rest)| rest.split_once('"'));
    id.and_then(|(id, _)| id.parse().ok()).unwrap_or(0)
}

fn upgrade(stream: &mut TcpStream, request: &str) {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = ws::accept(key.as_bytes()).unwrap();
    let accept = str::from_utf8(&accept).unwrap();
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    let _ = stream.write_all(format!("{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").as_bytes());
}

/// A text message of the client; `None`: the client has disconnected.
fn read_message(stream: &mut TcpStream) -> Option<String> {
    let (frame_bytes_max, message_bytes_max) = (1 << 20, 1 << 20);
    let rules = ReaderRules { frame_bytes_max, message_bytes_max, binary: false, masked: true };
    let (mut reader, mut input, mut message) = (Reader::default(), Vec::new(), Vec::new());
    loop {
        let (ate, event) = reader.advance(&input, &mut message, &rules).ok()?;
        input.drain(..ate);
        match event {
            WsEvent::Text => return String::from_utf8(message).ok(),
            WsEvent::Close(_) => return None,
            WsEvent::Binary | WsEvent::Ping | WsEvent::Pong => {}
            WsEvent::Partial => {
                let mut some = [0; 4096];
                let count = stream.read(&mut some).ok().filter(|count| *count > 0)?;
                input.extend_from_slice(&some[..count]);
            }
        }
    }
}

/// A client of an agent at this address.
pub fn agent(
    over: Over,
    address: std::net::SocketAddr,
    http: HttpClient,
    builder: ClientBuilder,
) -> Client<HttpClient> {
    let card = AgentCard::read(card(over.binding(), &format!("http://{address}")).as_bytes());
    builder.connect_over(http, card.unwrap(), None).unwrap()
}

/// One way to call; each is about the task `asked`.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Send,
    Get,
    Stream,
}

pub const WAYS: [Way; 3] = [Way::Send, Way::Get, Way::Stream];

impl Way {
    /// The result of the call.
    pub async fn call(self, client: &Client<HttpClient>) -> Result<(), ClientError> {
        let request = SendRequest::text("hello").task_id("asked");
        match self {
            Way::Send => client.send(&request).await.map(|_| ()),
            Way::Get => client.get_task("asked", None).await.map(|_| ()),
            Way::Stream => {
                let mut stream = client.stream(&request).await?;
                while let Some(event) = stream.next().await {
                    event?;
                }
                Ok(())
            }
        }
    }
}
