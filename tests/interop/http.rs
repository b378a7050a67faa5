//! HTTP as the bindings need it: one answer, or the blocks of an event stream.

use std::net::SocketAddr;

use super::place::{Endpoint, Socket};
use crate::support::{
    binary::Line,
    reply::{Event, Reply},
};

/// A request; `Host` and the length are added.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    pub target: String,
    pub fields: Vec<(&'static str, String)>,
    pub body: Option<String>,
}

/// The blocks of an event stream.
pub trait Blocks {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Option<Event>;
}

/// A version of HTTP.
pub trait Http: Send {
    /// Requests a complete response.
    fn fetch(&mut self, request: &Request) -> Reply;

    /// Requests an event stream; any other response is an error.
    fn open(&mut self, request: &Request) -> Result<Box<dyn Blocks>, Reply>;
}

pub fn is_stream(reply: &Reply) -> bool {
    reply.field("content-type") == Some("text/event-stream")
}

/// HTTP/1.1: one connection for answers, one for each stream.
pub struct Http1 {
    endpoint: Endpoint,
    line: Line<Box<dyn Socket>>,
}

impl Http1 {
    pub fn new(endpoint: &Endpoint) -> Http1 {
        Http1 { endpoint: endpoint.clone(), line: Line::over(endpoint.dial()) }
    }
}

fn bytes(request: &Request, addr: SocketAddr) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: {addr}\r\n", request.method, request.target);
    for (name, value) in &request.fields {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = &request.body {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    format!("{head}\r\n{}", request.body.as_deref().unwrap_or_default()).into_bytes()
}

impl Http for Http1 {
    fn fetch(&mut self, request: &Request) -> Reply {
        self.line.write(&bytes(request, self.endpoint.addr));
        let reply = self.line.reply();
        if reply.closes() {
            assert_eq!(self.line.read_to_end(), b"", "nothing comes behind it");
            self.line = Line::over(self.endpoint.dial());
        }
        reply
    }

    fn open(&mut self, request: &Request) -> Result<Box<dyn Blocks>, Reply> {
        let mut line = Line::over(self.endpoint.dial());
        line.write(&bytes(request, self.endpoint.addr));
        loop {
            match line.peek() {
                Some(reply) if is_stream(&reply) => {
                    assert_eq!(reply.status, 200, "{reply:?}");
                    return Ok(Box::new(Blocks1 { line, seen: 0 }));
                }
                Some(reply) if reply.complete => return Err(reply),
                Some(_) | None => assert!(line.read(), "an end instead of an answer"),
            }
        }
    }
}

/// A stream in chunks.
struct Blocks1 {
    line: Line<Box<dyn Socket>>,
    seen: usize,
}

impl Blocks for Blocks1 {
    fn next(&mut self) -> Option<Event> {
        loop {
            let reply = self.line.peek().expect("a head");
            if let Some(event) = reply.events().get(self.seen) {
                self.seen += 1;
                return Some(event.clone());
            }
            if reply.complete {
                return None;
            }
            assert!(self.line.read(), "the connection ended within a stream");
        }
    }
}
