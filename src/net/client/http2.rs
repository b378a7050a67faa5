//! One HTTP/2 connection for each origin, shared by all its requests. The crate h2 implements the
//! protocol.
//!
//! Invariants: only one connection to an origin that may speak HTTP/2 is opened at a time, and
//! other requests wait for it. A request that the server declares unprocessed (RFC 9113 §8.7) is
//! repeated on a new connection; a request that the server may have processed is repeated only if
//! the caller allows it. If a request times out and its connection has received nothing in this
//! time, the connection accepts no new requests; its other requests wait for their own timeouts.

mod response;
mod slot;
mod watched;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, client::SendRequest};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    client::{ClientLimits, HttpMethod, HttpRequest, TransportError},
    net::tls::pem::one_line,
};

use super::{
    due::{ClientClock, Due},
    link::Link,
};

pub(super) use response::Http2Response;
use response::IdleTimer;
pub(super) use slot::{Claim, Http2Slot};
pub(super) use watched::Http2Mark;
use watched::WatchedLink;

/// Bytes that a server may send before they are read: for one response, and for a connection.
/// Chrome and Go allow some megabytes; these windows suffice for a round trip of 20 ms at 100
/// Mbit/s.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How long an unused connection tries to send its GOAWAY, because a server that reads nothing
/// would keep it open for ever.
const GOODBYE: Duration = Duration::from_secs(1);

/// A sender of requests on a connection; clones share the connection.
#[derive(Clone)]
pub(super) struct Http2Sender {
    send: SendRequest<Bytes>,
    /// Shared only with the requests, so that its count shows whether requests are in flight.
    in_use: Arc<Http2Mark>,
}

impl Http2Sender {
    /// Identifies the connection.
    pub(super) fn in_use(&self) -> Arc<Http2Mark> {
        Arc::clone(&self.in_use)
    }
}

/// Why there is no response.
pub(super) struct Http2Failure {
    pub(super) error: TransportError,
    /// True: the request may be repeated.
    pub(super) may_repeat: bool,
    /// True: the connection accepts no more requests.
    pub(super) is_over: bool,
}

/// Opens a connection. A task of the current runtime drives it until no sender and no request is
/// left, then at most [`GOODBYE`] longer, to send GOAWAY.
///
/// # Errors
/// [`TransportError::Http2`], [`TransportError::Closed`].
pub(super) async fn start(
    link: Link,
    limits: &ClientLimits,
    clock: ClientClock,
) -> Result<Http2Sender, TransportError> {
    let head_bytes = u32::try_from(limits.response_head_bytes_max).unwrap_or(u32::MAX);
    let (in_use, seen, unused) = Http2Mark::new();
    let link = WatchedLink::new(link, seen, clock);
    let begun = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(head_bytes)
        .handshake(link)
        .await;
    let (send, connection) = begun.map_err(|error| failure(&error, true))?;
    tokio::spawn(drive(connection, unused));
    Ok(Http2Sender { send, in_use })
}

/// Drives a connection to its end. The requests receive the error of the connection.
async fn drive(connection: impl Future, mut unused: oneshot::Receiver<Infallible>) {
    let mut connection = pin!(connection);
    let becomes_unused = poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => Pin::new(&mut unused).poll(cx).map(|_| true),
    });
    if becomes_unused.await {
        let _ = timeout(GOODBYE, connection).await;
    }
}

/// Makes a request and waits for the head of its response.
///
/// # Errors
/// [`Http2Failure`].
pub(super) async fn send_request(
    sender: Http2Sender,
    request: &HttpRequest<'_>,
    clock: ClientClock,
    limits: &ClientLimits,
) -> Result<Http2Response, Http2Failure> {
    let head = head(request).map_err(|error| {
        let (may_repeat, is_over) = (false, false);
        Http2Failure { error, may_repeat, is_over }
    })?;
    let Http2Sender { mut send, in_use } = sender;
    let (mut due, reads) = (Due::default(), in_use.reads());
    let late = |what| {
        let (error, is_over) = (TransportError::Timeout(what), in_use.waited(reads));
        Http2Failure { error, may_repeat: false, is_over }
    };
    let failed = |error: &h2::Error, is_repeatable: bool| {
        let why = in_use.cause().unwrap_or_else(|| failure(error, true));
        let is_closed = matches!(why, TransportError::Closed { .. });
        Http2Failure {
            may_repeat: is_unprocessed(error) || is_repeatable && is_closed,
            is_over: error.is_go_away() || error.is_io(),
            error: why,
        }
    };
    // Before the connection accepts the request, the server cannot have seen it.
    let ready = poll_fn(|cx| match send.poll_ready(cx) {
        Poll::Ready(ready) => Poll::Ready(ready.map_err(|error| {
            let failure = failed(&error, true);
            let may_repeat = failure.error != TransportError::NoHttp2;
            Http2Failure { may_repeat, is_over: true, ..failure }
        })),
        Poll::Pending => due.poll(cx, clock, request.head_due_ms).map(|()| Err(late("connection"))),
    });
    ready.await?;
    let sent = send.send_request(head, request.body.is_empty());
    let (mut response, mut stream) = sent.map_err(|error| failed(&error, true))?;
    if !request.body.is_empty() {
        // An error of the stream is an error of its response.
        let _ = stream.send_data(Bytes::copy_from_slice(request.body), true);
    }
    let head = poll_fn(|cx| match Pin::new(&mut response).poll(cx) {
        Poll::Ready(head) => Poll::Ready(head.map_err(|e| failed(&e, request.is_repeatable))),
        Poll::Pending => due.poll(cx, clock, request.head_due_ms).map(|()| Err(late("response"))),
    });
    let (head, body) = head.await?.into_parts();
    if head.headers.len() > limits.response_fields_max {
        let error = TransportError::TooLarge("response_fields_max");
        return Err(Http2Failure { error, may_repeat: false, is_over: false });
    }
    let idle = IdleTimer { due, clock, idle_ms: request.body_idle_ms };
    Ok(Http2Response::new(head, body, limits, idle, in_use))
}

/// The head in h2's form.
fn head(request: &HttpRequest<'_>) -> Result<Request<()>, TransportError> {
    let HttpRequest { method, origin, target, fields, .. } = *request;
    let unsendable = |what: &str| TransportError::Io(format!("{what} cannot be sent"));
    let scheme = if origin.is_secure() { "https" } else { "http" };
    let uri = Uri::builder().scheme(scheme).authority(origin.authority()).path_and_query(target);
    let mut head = Request::new(());
    *head.uri_mut() = uri.build().map_err(|_| unsendable("the target"))?;
    *head.version_mut() = Version::HTTP_2;
    *head.method_mut() = match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Delete => Method::DELETE,
    };
    for (name, value) in fields.iter() {
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable(name))?;
        let value = HeaderValue::from_str(value).map_err(|_| unsendable(name))?;
        head.headers_mut().append(field, value);
    }
    Ok(head)
}

/// RFC 9113 §8.7: the stream was refused before processing, or is beyond the last stream of a
/// GOAWAY.
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

/// Translates an error of h2, by its code.
fn failure(error: &h2::Error, before_response: bool) -> TransportError {
    match error.get_io() {
        // An alert after the handshake: h2 preserves only the text of a TLS error.
        Some(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            TransportError::Tls(one_line(error))
        }
        Some(_) => TransportError::Closed { before_response },
        None => TransportError::Http2(one_line(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_connection_ends_even_if_the_server_never_closes_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mark, _, unused) = Http2Mark::new();
            let (request, driven) =
                (Arc::clone(&mark), drive(std::future::pending::<()>(), unused));
            let mut driven = pin!(driven);
            drop(mark);
            let is_driven = timeout(2 * GOODBYE, driven.as_mut()).await.is_err();
            assert!(is_driven, "a request uses the connection");
            drop(request);
            driven.await;
        });
    }

    #[test]
    fn wait_without_received_bytes_ends_the_connection() {
        let (mark, seen, _) = Http2Mark::new();
        let reads = mark.reads();
        seen.note_read(b"x");
        assert!(!mark.waited(reads) && !mark.is_over());
        seen.note_read(b"");
        assert!(mark.waited(reads + 1) && mark.is_over());
        // Bytes that arrive later do not revive the connection.
        seen.note_read(b"x");
        assert!(mark.waited(reads) && mark.is_over());
    }
}
