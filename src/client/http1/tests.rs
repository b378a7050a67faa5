//! One connection: each state, its end, and its reuse.

use super::*;
use crate::{
    client::HttpOrigin,
    http::{FieldLines, FieldLinesBuf},
};

const LIMITS: ResponseLimits =
    ResponseLimits { head_bytes_max: 200, fields_max: 8, body_bytes_max: 100 };

/// The events of a response: statuses, bodies, ends.
#[derive(Debug, PartialEq)]
enum Seen {
    Head(u16),
    End { body: String, is_reusable: bool },
}

struct Client {
    http1: Http1Connection,
    response: ResponseBuf,
    body: Vec<u8>,
    seen: Vec<Seen>,
}

impl Client {
    /// A connection after its first request.
    fn with_request() -> Client {
        let (http1, response) = (Http1Connection::default(), ResponseBuf::default());
        let mut client = Client { http1, response, body: Vec::new(), seen: Vec::new() };
        client.send_request("/");
        client
    }

    fn begin(&mut self, method: HttpMethod, target: &str, fields: FieldLines<'_>) -> String {
        let origin = HttpOrigin::parse("http://h:81/").unwrap().origin;
        let request = HttpRequest {
            method,
            origin: &origin,
            target,
            fields,
            body: if method == HttpMethod::Post { b"{}" } else { b"" },
            version: HttpVersion::Http1,
            head_due_ms: 0,
            body_idle_ms: 0,
            is_repeatable: false,
        };
        let mut out = Vec::new();
        self.http1.begin(&request, false, &mut RequestHead::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn send_request(&mut self, target: &str) -> String {
        let head = self.begin(HttpMethod::Post, target, FieldLines::NONE);
        self.http1.sent();
        head
    }

    /// Reads `input` with `room` bytes for each piece of the body; returns how many bytes remain.
    fn read(&mut self, input: &[u8], room: usize) -> Result<usize, TransportError> {
        let mut rest = input;
        loop {
            let before = self.body.len();
            let step =
                self.http1.advance(rest, &mut self.response, &mut self.body, room, &LIMITS)?;
            assert!(step.consumed <= rest.len() && self.body.len() - before <= room);
            rest = &rest[step.consumed..];
            match step.event {
                Http1Event::Head => self.seen.push(Seen::Head(self.response.head().status())),
                Http1Event::End { is_reusable } => self.end(is_reusable),
                Http1Event::More if rest.is_empty() => return Ok(0),
                Http1Event::More => assert!(step.consumed > 0, "{rest:?} waits"),
            }
            if !matches!(step.event, Http1Event::More) && !self.http1.is_open() {
                return Ok(rest.len());
            }
        }
    }

    fn end(&mut self, is_reusable: bool) {
        let body = String::from_utf8(std::mem::take(&mut self.body)).unwrap();
        self.seen.push(Seen::End { body, is_reusable });
    }

    fn eof(&mut self) -> Result<(), TransportError> {
        let event = self.http1.eof(&self.response)?;
        assert_eq!(event, Http1Event::End { is_reusable: false });
        self.end(false);
        Ok(())
    }
}

impl Http1Connection {
    fn is_open(&self) -> bool {
        !matches!(self.state, Http1State::Idle | Http1State::Spent)
    }
}

/// Checks one response, split in several ways; the connection is not closed.
fn check(wire: &str, expected: &[Seen]) {
    for (size, room) in [(1, 1), (1, 9), (3, 2), (7, 100), (wire.len(), 3), (wire.len(), 999)] {
        let mut client = Client::with_request();
        for piece in wire.as_bytes().chunks(size) {
            client.read(piece, room).unwrap();
        }
        assert_eq!(client.seen, expected, "{wire:?} by {size}, room {room}");
    }
}

/// The error of one response, which is the same for every split.
fn refusal(wire: &str) -> TransportError {
    let errors = [1, 3, wire.len()].map(|size| {
        let mut client = Client::with_request();
        let error = wire.as_bytes().chunks(size).find_map(|piece| client.read(piece, 9).err());
        assert!(!client.http1.is_idle() && !client.http1.is_open(), "{wire:?}");
        error.unwrap()
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{wire:?}: {errors:?}");
    errors[0].clone()
}

fn end(body: &str, is_reusable: bool) -> Seen {
    Seen::End { body: body.to_owned(), is_reusable }
}

#[test]
fn request_with_content_has_content_length() {
    let mut client = Client::with_request();
    let refused = client.http1.begin_connect("a:1", FieldLines::NONE, &mut Vec::new());
    assert_eq!(refused, Err(RequestRefused::Busy));
    client.http1 = Http1Connection::default();
    let post = client.send_request("/x?y");
    assert_eq!(post, "POST /x?y HTTP/1.1\r\nHost: h:81\r\nContent-Length: 2\r\n\r\n");
    client.http1 = Http1Connection::default();
    let get = client.begin(HttpMethod::Get, "/x", FieldLines::NONE);
    assert_eq!(get, "GET /x HTTP/1.1\r\nHost: h:81\r\n\r\n");
    client.http1 = Http1Connection::default();
    let mut out = Vec::new();
    let refused = client.http1.begin_connect("a 1", FieldLines::NONE, &mut out);
    assert_eq!(
        (refused, out.len(), client.http1.is_idle()),
        (Err(RequestRefused::Target), 0, true)
    );
}

#[test]
fn response_bodies_of_every_framing_are_read() {
    for (fields, wire, body) in [
        ("Content-Length: 5\r\n", "hello", "hello"),
        ("Content-Length: 0\r\n", "", ""),
        ("Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3;a\r\nllo\r\n0\r\n\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "0\r\nX: y\r\n\r\n", ""),
    ] {
        let wire = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{wire}");
        check(&wire, &[Seen::Head(200), end(body, true)]);
    }
    check("HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", &[Seen::Head(204), end("", true)]);
    check("HTTP/1.1 304 x\r\n\r\n", &[Seen::Head(304), end("", true)]);
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    for version in ["1.0", "1.1"] {
        let mut client = Client::with_request();
        let wire = format!("HTTP/{version} 200 OK\r\nConnection: keep-alive\r\n\r\nall of it");
        assert_eq!(client.read(wire.as_bytes(), 4), Ok(0));
        assert_eq!(client.eof(), Ok(()));
        assert_eq!(client.seen, [Seen::Head(200), end("all of it", false)]);
    }
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(101));
    assert_eq!(refusal(&long), TransportError::TooLarge("body_bytes_max"));
}

#[test]
fn interim_responses_are_skipped_up_to_a_limit() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    check(&(interim.repeat(4) + last), &[Seen::Head(200), end("x", true)]);
    let many = interim.repeat(4) + "HTTP/1.1 102 Processing\r\n\r\n";
    assert_eq!(refusal(&many), TransportError::TooLarge("INTERIM_RESPONSES_MAX"));
    let mut client = Client::with_request();
    client.read(interim.as_bytes(), 9).unwrap();
    assert_eq!(client.eof(), Err(TransportError::Closed { before_response: false }));
}

#[test]
fn status_101_is_accepted_only_if_requested() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    let unasked = TransportError::Malformed("A 101 arrived that was not requested.");
    assert_eq!(refusal(switch), unasked);
    let mut client = Client::with_request();
    client.http1 = Http1Connection::default();
    let mut fields = FieldLinesBuf::default();
    fields.push("Upgrade", "websocket");
    client.begin(HttpMethod::Get, "/", fields.get());
    client.http1.sent();
    assert_eq!(client.read(format!("{switch}HTTP/1.1 200 OK").as_bytes(), 4), Ok(0));
    assert_eq!(
        (&client.seen[..], &client.body[..]),
        (&[Seen::Head(101)][..], &b"HTTP/1.1 200 OK"[..])
    );
    assert_eq!(client.eof(), Ok(()));
    assert!(!client.http1.is_idle());
}

#[test]
fn connect_opens_tunnel_or_returns_proxy_response() {
    let mut client = Client::with_request();
    client.http1 = Http1Connection::default();
    client.http1.begin_connect("a:1", FieldLines::NONE, &mut Vec::new()).unwrap();
    client.http1.sent();
    assert_eq!(client.read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nTLS...", 9), Ok(0));
    assert_eq!(client.body, b"TLS...");
    let mut client = Client::with_request();
    client.http1 = Http1Connection::default();
    client.http1.begin_connect("a:1", FieldLines::NONE, &mut Vec::new()).unwrap();
    client.http1.sent();
    assert_eq!(client.read(b"HTTP/1.1 407 x\r\nContent-Length: 2\r\n\r\nno", 9), Ok(0));
    assert_eq!(client.seen, [Seen::Head(407), end("no", true)]);
}

#[test]
fn connection_is_reused_if_response_allows_it() {
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\nx");
    check(&ok("Connection: close\r\n"), &[Seen::Head(200), end("x", false)]);
    // Bytes after the end belong to no request.
    let mut client = Client::with_request();
    assert_eq!(client.read((ok("") + "y").as_bytes(), 99), Ok(1));
    assert_eq!(client.seen, [Seen::Head(200), end("x", false)]);
    let old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
    check(old, &[Seen::Head(200), end("x", true)]);
    check(&old.replace("keep-alive", "x"), &[Seen::Head(200), end("x", false)]);
}

#[test]
fn early_response_ends_request_and_connection() {
    let mut client = Client::with_request();
    client.http1 = Http1Connection::default();
    client.begin(HttpMethod::Post, "/", FieldLines::NONE);
    assert!(client.http1.needs_request());
    client.read(b"HTTP/1.1 413 x\r\n", 9).unwrap();
    assert!(client.http1.needs_request());
    client.read(b"Content-Length: 1\r\n\r\nx", 9).unwrap();
    assert!(!client.http1.needs_request());
    assert_eq!(client.seen, [Seen::Head(413), end("x", false)]);
}

#[test]
fn bytes_before_a_request_are_refused() {
    let mut http1 = Http1Connection::default();
    let (mut response, mut body) = (ResponseBuf::default(), Vec::new());
    let quiet = http1.advance(b"", &mut response, &mut body, 9, &LIMITS);
    assert_eq!(quiet, Ok(Http1Step { consumed: 0, event: Http1Event::More }));
    let early = http1.advance(b"H", &mut response, &mut body, 9, &LIMITS);
    assert!(matches!(early, Err(TransportError::Malformed(_))), "{early:?}");
    assert!(!http1.is_idle());
}

#[test]
fn close_error_reports_if_response_had_begun() {
    let closed = |wire: &str| {
        let mut client = Client::with_request();
        client.read(wire.as_bytes(), 99).unwrap();
        client.eof()
    };
    let inside = Err(TransportError::Closed { before_response: false });
    assert_eq!(closed(""), Err(TransportError::Closed { before_response: true }));
    assert_eq!(closed("H"), inside);
    assert_eq!(closed("HTTP/1.1 200 OK\r\n"), inside);
    assert_eq!(closed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx"), inside);
    assert_eq!(closed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), inside);
    // The previous response left its head in the buffer.
    let mut client = Client::with_request();
    client.read(b"HTTP/1.1 204 x\r\n\r\n", 9).unwrap();
    client.send_request("/");
    assert_eq!(client.eof(), Err(TransportError::Closed { before_response: true }));
}

#[test]
fn invalid_response_is_malformed_or_names_the_limit() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (wire, limit) in [
        (format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(200)), "response_head_bytes_max"),
        (format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(9)), "response_fields_max"),
        (format!("{chunked}65\r\n"), "body_bytes_max"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n".to_owned(), "body_bytes_max"),
        (format!("{chunked}0\r\nA: {}", "x".repeat(200)), "response_head_bytes_max"),
    ] {
        assert_eq!(refusal(&wire), TransportError::TooLarge(limit));
    }
    for wire in ["HTTP/1.1 OK", "HTTP/1.1 200 OK\r\n A: b\r\n", &format!("{chunked}x")] {
        let refused = refusal(&format!("{wire}\r\n"));
        assert!(matches!(refused, TransportError::Malformed(_)), "{wire:?}: {refused:?}");
    }
}

#[test]
fn trailers_are_read_without_replacing_header_fields() {
    let mut client = Client::with_request();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: head\r\n\r\n";
    client.read(format!("{head}0\r\nA: trailer\r\nB: b\r\n\r\n").as_bytes(), 9).unwrap();
    let field = |name| client.response.field(name);
    assert_eq!((field("a"), field("b"), field("c")), (Some(&b"head"[..]), Some(&b"b"[..]), None));
    client.send_request("/");
    client.read(b"HTTP/1.1 204 x\r\n\r\n", 9).unwrap();
    assert_eq!(client.response.field("b"), None);
}
