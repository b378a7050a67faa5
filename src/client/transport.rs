//! The interface to a client's environment: one HTTP exchange at a time, the time, and random bits.

use std::{
    fmt,
    future::Future,
    task::{Context, Poll},
};

use crate::{
    http::{FieldLines, client::ResponseReject},
    service::Now,
};

use super::HttpOrigin;

/// The methods that A2A uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpMethod {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
}

impl HttpMethod {
    /// The name in a request.
    pub const fn name(self) -> &'static str {
        match self {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Delete => "DELETE",
        }
    }
}

/// The HTTP version that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, or HTTP/2 if TLS negotiates it (ALPN).
    Any,
    /// HTTP/1.1: an upgrade to WebSocket.
    Http1,
    /// HTTP/2, by ALPN or over plain TCP by prior knowledge: gRPC.
    Http2,
}

/// One request, borrowed. The transport writes `Host` and `Content-Length`.
#[derive(Clone, Copy)]
pub struct HttpRequest<'a> {
    /// The method.
    pub method: HttpMethod,
    /// The origin.
    pub origin: &'a HttpOrigin,
    /// Path and query, percent-encoded; it begins with a slash.
    pub target: &'a str,
    /// The other fields of the head; their type guarantees that they are valid. A caller that wants
    /// compressed content adds `Accept-Encoding: gzip, deflate`; coded content is always decoded.
    pub fields: FieldLines<'a>,
    /// The content; empty with GET and DELETE, which then have no `Content-Length`.
    pub body: &'a [u8],
    /// The version that the request needs.
    pub version: HttpVersion,
    /// When to give up waiting for the head of the response, in ms of [`Now::mono_ms`].
    pub head_due_ms: u64,
    /// Ms without a byte of the content after which to give up; `u64::MAX`: never, for streams that
    /// are silent while nothing happens. Not applied after a 101.
    pub body_idle_ms: u64,
    /// True: the request may be sent again if a reused connection closed before any byte of a
    /// response. A POST is sent again only if the server cannot have read it.
    pub is_repeatable: bool,
}

/// The response to one request. Dropping it before its end closes its connection (HTTP/1.1) or
/// resets its stream (HTTP/2); after its end the connection is reused.
pub trait HttpResponse: Send {
    /// The final status, 101 for an upgrade; never another 1xx.
    fn status(&self) -> u16;

    /// The first field of this name in the head or, once the body was read to its end, in the
    /// trailers. `name` is in lower case.
    fn field(&self, name: &str) -> Option<&[u8]>;

    /// Passes each field of this name in the head to `each`, in their order: a list may be spread
    /// over several fields (RFC 9110 §5.3). The default passes only the first field.
    fn each_field(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        if let Some(value) = self.field(name) {
            each(value);
        }
    }

    /// Appends available content to `out`, without transfer and content codings; false: the content
    /// has ended. After a 101: bytes of the upgraded connection.
    ///
    /// At most `room` bytes are appended at once.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>>;

    /// After a 101: writes bytes to the upgraded connection; returns how many were accepted.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>>;
}

/// Sends requests to servers.
///
/// `net::HttpClient` uses sockets. Your own transport may sign requests, count them, or answer them
/// from an [`Exchange`](crate::engine::Exchange) in the same process.
pub trait Transport: Send + Sync {
    /// The type of the responses.
    type Response: HttpResponse + 'static;

    /// Sends a request and waits for the head of its response.
    fn request(
        &self,
        request: HttpRequest<'_>,
    ) -> impl Future<Output = Result<Self::Response, TransportError>> + Send;

    /// Waits until this time, in ms of [`Now::mono_ms`].
    fn sleep_until(&self, due_ms: u64) -> impl Future<Output = ()> + Send;

    /// The time.
    fn now(&self) -> Now;

    /// Only [`Now::mono_ms`], which each call needs; the Unix time is needed only after a failure.
    fn mono_ms(&self) -> u64 {
        self.now().mono_ms
    }

    /// 128 random bits from a cryptographic generator: ids of messages, jitter.
    fn random(&self) -> u128;

    /// Calls `tick` with [`Now::mono_ms`] every `ms` milliseconds, until `tick` returns false. The
    /// tick closes idle connections, and holds neither the client nor its transport. This default
    /// never calls `tick`: the next call closes idle connections.
    fn every(&self, ms: u64, tick: Tick) {
        let _ = (ms, tick);
    }
}

/// A periodic action, called with the time in ms of [`Now::mono_ms`]; false: stop.
pub type Tick = Box<dyn FnMut(u64) -> bool + Send>;

/// Why no complete response arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The name has no address.
    Resolve(String),
    /// No host accepted a connection.
    Connect(String),
    /// The client's address guard refuses all of the addresses.
    Refused(String),
    /// TLS failed: an unknown authority, another name, an expired certificate, no common version.
    Tls(String),
    /// The proxy refused, or could not be reached.
    Proxy(String),
    /// The server did not agree to HTTP/2, which the request needs.
    NoHttp2,
    /// No connection, response head or body byte arrived in time; the text names the missing one.
    Timeout(&'static str),
    /// The connection closed before the response was complete.
    Closed {
        /// True: no byte of the response had arrived.
        before_response: bool,
    },
    /// The bytes are not a valid response by RFC 9112, or one that a client must not trust.
    Malformed(&'static str),
    /// A limit of the client was exceeded; its name.
    TooLarge(&'static str),
    /// The content coding is unknown or broken.
    Coding(&'static str),
    /// HTTP/2 failed, by its error code (RFC 9113 §7).
    Http2(String),
    /// The operating system refused.
    Io(String),
}

impl TransportError {
    /// Whether the server did not answer with HTTP, and may speak TLS or something else.
    pub fn is_not_http(&self) -> bool {
        let why = ResponseReject::StatusLine.reason();
        *self == TransportError::Malformed(why)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportError::Resolve(why) => write!(f, "the name could not be resolved: {why}"),
            TransportError::Connect(why) => write!(f, "no connection: {why}"),
            TransportError::Refused(why) => write!(f, "the address is not allowed: {why}"),
            TransportError::Tls(why) => write!(f, "TLS failed: {why}"),
            TransportError::Proxy(why) => write!(f, "the proxy failed: {why}"),
            TransportError::NoHttp2 => f.write_str("the server does not support HTTP/2"),
            TransportError::Timeout(what) => write!(f, "no {what} in time"),
            TransportError::Closed { before_response: true } => {
                f.write_str("the connection closed before the response")
            }
            TransportError::Closed { before_response: false } => {
                f.write_str("the connection closed inside the response")
            }
            TransportError::Malformed(why) => write!(f, "invalid response: {why}"),
            TransportError::TooLarge(limit) => write!(f, "the response exceeds {limit}"),
            TransportError::Coding(why) => write!(f, "the content coding failed: {why}"),
            TransportError::Http2(why) => write!(f, "HTTP/2 failed: {why}"),
            TransportError::Io(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for TransportError {}
