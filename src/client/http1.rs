//! The client side of an HTTP/1.x connection: requests into a buffer, bytes into responses.
//!
//! Invariants: one request at a time; each response answers the request before it, so unrequested
//! bytes end the connection. The end of each response reports once whether the connection can be
//! reused; in doubt, it cannot. Results do not depend on how the bytes were split, and a connection
//! between two requests holds no buffers.

mod response;

pub use crate::http::client::RequestHead;
pub use response::ResponseBuf;

use std::fmt;

use crate::http::{
    ChunkLimits, Chunked, FieldLines, Method,
    client::{
        RequestLine, ResponseFraming, ResponseLimits, ResponseReject, SentTarget, UnsendableTarget,
        write_request,
    },
};

use super::{HttpMethod, HttpRequest, HttpVersion, TransportError};

/// Maximum interim responses before the final one (RFC 9110 §15.2); curl and Go also stop after a
/// few.
pub const INTERIM_RESPONSES_MAX: u8 = 8;

/// Maximum bytes of a chunk's size line with its extensions, as in the server.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// One connection, for one request after another.
#[derive(Debug)]
pub struct Http1Connection {
    state: Http1State,
    /// The method of the request: CONNECT, or `Get` for all others (RFC 9112 §6.3 needs no more).
    method: Method,
    wants_upgrade: bool,
    is_sent: bool,
    keep_alive: bool,
    interim: u8,
}

/// The meaning of the next byte.
#[derive(Debug)]
enum Http1State {
    /// No request is open.
    Idle,
    /// A head, interim or final; `is_begun`: the buffer belongs to this exchange.
    Head {
        is_begun: bool,
    },
    /// The remaining bytes of a body.
    Length(u64),
    Chunked(Chunked),
    /// A body that ends with the connection; its maximum bytes.
    UntilClose(u64),
    /// The connection was upgraded or is a tunnel of CONNECT.
    Tunnel,
    /// The response has ended; the end is not reported yet.
    Ended,
    /// The connection cannot be used any more.
    Spent,
}

/// The result of one call of [`Http1Connection::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Step {
    /// Input bytes consumed. With [`Http1Event::More`], input remains only if the body had no more
    /// room.
    pub consumed: usize,
    /// The event.
    pub event: Http1Event,
}

/// An event of [`Http1Connection::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http1Event {
    /// More input or more room is needed; the body may have grown.
    More,
    /// The final head is in the [`ResponseBuf`]; call again with the rest of the input.
    Head,
    /// The response is whole; the body may have grown.
    End {
        /// The connection can be reused for the next request.
        is_reusable: bool,
    },
}

/// Why a request cannot begin; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefused {
    /// The connection has an open request, or cannot be reused.
    Busy,
    /// The target has bytes other than visible ASCII, or does not begin with a slash.
    Target,
}

impl Default for Http1Connection {
    fn default() -> Http1Connection {
        Http1Connection {
            state: Http1State::Idle,
            method: Method::Get,
            wants_upgrade: false,
            is_sent: false,
            keep_alive: false,
            interim: 0,
        }
    }
}

impl Http1Connection {
    /// Appends the head of a request to `out`, from `cached` if only the length differs. The caller
    /// sends the content after the head, and calls [`Http1Connection::sent`] after the last byte.
    /// With `to_proxy` the target is absolute, as plain http through a proxy needs it (RFC 9112
    /// §3.2.2).
    ///
    /// # Errors
    /// [`RequestRefused`].
    pub fn begin(
        &mut self,
        request: &HttpRequest<'_>,
        to_proxy: bool,
        cached: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestRefused> {
        let HttpRequest { method, origin, target, fields, body, .. } = *request;
        let target = if to_proxy { SentTarget::Absolute } else { SentTarget::Origin }(target);
        // RFC 9110 §8.6: a POST has a length even if it is 0; GET and DELETE have no content.
        let has_length = method == HttpMethod::Post || !body.is_empty();
        let line = RequestLine { method: method.name(), target, authority: origin.authority() };
        self.open(Method::Get)?;
        cached
            .write(out, line, fields, has_length.then_some(body.len()))
            .map_err(|UnsendableTarget| self.refuse())?;
        self.wants_upgrade = request.version == HttpVersion::Http1
            && fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        Ok(())
    }

    /// Appends a CONNECT to a proxy, for a tunnel to `authority`, which includes a port. A 2xx
    /// response opens the tunnel: later bytes are not HTTP/1.1 of this connection.
    ///
    /// # Errors
    /// [`RequestRefused`].
    pub fn begin_connect(
        &mut self,
        authority: &str,
        fields: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestRefused> {
        self.open(Method::Connect)?;
        let line = RequestLine { method: "CONNECT", target: SentTarget::Authority, authority };
        write_request(out, line, fields, None).map_err(|UnsendableTarget| self.refuse())
    }

    /// Reports that the whole request was sent.
    pub fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Whether the rest of the request is still needed: not after the final head. A connection with
    /// an incomplete request is not reused.
    pub fn needs_request(&self) -> bool {
        matches!(self.state, Http1State::Head { .. }) && !self.is_sent
    }

    /// Whether a request can begin.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, Http1State::Idle)
    }

    /// Reads received bytes: appends at most `room` bytes of the body to `body`, without their
    /// transfer coding. After an upgrade or CONNECT, `body` receives the bytes of the tunnel.
    ///
    /// Call this again with the bytes that were not consumed, even if none remain, until it returns
    /// [`Http1Event::More`] and needs more input. `response` must stay the same from the start of a
    /// request to the end of its response.
    ///
    /// # Errors
    /// [`TransportError::Malformed`], [`TransportError::TooLarge`]; the connection can then not be
    /// reused.
    pub fn advance(
        &mut self,
        input: &[u8],
        response: &mut ResponseBuf,
        body: &mut Vec<u8>,
        room: usize,
        limits: &ResponseLimits,
    ) -> Result<Http1Step, TransportError> {
        match self.step(input, response, body, room, limits) {
            Ok(step) => Ok(step),
            Err(error) => {
                self.state = Http1State::Spent;
                Err(error)
            }
        }
    }

    /// Reports that the peer has closed its side properly (with TLS: by close_notify), after all
    /// input was read. `Ok`: a response may end this way.
    ///
    /// # Errors
    /// [`TransportError::Closed`].
    pub fn eof(&mut self, response: &ResponseBuf) -> Result<Http1Event, TransportError> {
        let before_response = match self.state {
            Http1State::UntilClose(_) | Http1State::Tunnel | Http1State::Ended => {
                self.state = Http1State::Spent;
                return Ok(Http1Event::End { is_reusable: false });
            }
            // An empty buffer may also belong to an interim response.
            Http1State::Head { is_begun } => !is_begun || self.interim == 0 && response.is_empty(),
            Http1State::Idle => true,
            Http1State::Length(_) | Http1State::Chunked(_) | Http1State::Spent => false,
        };
        self.state = Http1State::Spent;
        Err(TransportError::Closed { before_response })
    }

    fn open(&mut self, method: Method) -> Result<(), RequestRefused> {
        if !self.is_idle() {
            return Err(RequestRefused::Busy);
        }
        *self = Http1Connection {
            state: Http1State::Head { is_begun: false },
            method,
            ..Http1Connection::default()
        };
        Ok(())
    }

    /// Returns to idle after an invalid target; nothing was written.
    fn refuse(&mut self) -> RequestRefused {
        self.state = Http1State::Idle;
        RequestRefused::Target
    }

    fn step(
        &mut self,
        input: &[u8],
        response: &mut ResponseBuf,
        body: &mut Vec<u8>,
        room: usize,
        limits: &ResponseLimits,
    ) -> Result<Http1Step, TransportError> {
        let more = |consumed| Ok(Http1Step { consumed, event: Http1Event::More });
        let (fits, _) = input.split_at(input.len().min(room));
        match &mut self.state {
            // A response that arrives before its request may belong to another request.
            Http1State::Idle if !input.is_empty() => {
                Err(TransportError::Malformed("Bytes arrived that belong to no request."))
            }
            Http1State::Idle => more(0),
            Http1State::Head { is_begun } => {
                if !input.is_empty() && !std::mem::replace(is_begun, true) {
                    response.clear();
                }
                self.head(input, response, limits)
            }
            Http1State::Length(remaining) => {
                let data = first(fits, *remaining);
                body.extend_from_slice(data);
                *remaining -= data.len() as u64;
                if *remaining > 0 { more(data.len()) } else { Ok(self.end(input, data.len())) }
            }
            Http1State::Chunked(chunked) => {
                let trailers = &mut response.trailers;
                let step = chunked
                    .advance_with(fits, body, |byte| trailers.push(byte))
                    .map_err(ResponseReject::from)?;
                if step.done { Ok(self.end(input, step.consumed)) } else { more(step.consumed) }
            }
            Http1State::UntilClose(remaining) => {
                if fits.len() as u64 > *remaining {
                    return Err(TransportError::TooLarge("body_bytes_max"));
                }
                *remaining -= fits.len() as u64;
                body.extend_from_slice(fits);
                more(fits.len())
            }
            Http1State::Tunnel => {
                body.extend_from_slice(fits);
                more(fits.len())
            }
            Http1State::Ended => Ok(self.end(input, 0)),
            Http1State::Spent => {
                Err(TransportError::Malformed("The connection cannot be used again."))
            }
        }
    }

    /// Reads interim heads and the final one.
    fn head(
        &mut self,
        input: &[u8],
        response: &mut ResponseBuf,
        limits: &ResponseLimits,
    ) -> Result<Http1Step, TransportError> {
        let mut consumed = 0;
        loop {
            let Some(count) = response.read(&input[consumed..], self.method, limits)? else {
                return Ok(Http1Step { consumed: input.len(), event: Http1Event::More });
            };
            consumed += count;
            match response.head().status() {
                // RFC 9110 §15.2.2: a server switches only to a protocol that the client requested.
                101 if !self.wants_upgrade => {
                    return Err(TransportError::Malformed("A 101 arrived that was not requested."));
                }
                100 | 102..=199 => {
                    self.interim += 1;
                    if self.interim > INTERIM_RESPONSES_MAX {
                        return Err(TransportError::TooLarge("INTERIM_RESPONSES_MAX"));
                    }
                    response.clear();
                }
                _ => break,
            }
        }
        let head = response.head();
        self.keep_alive = head.keep_alive();
        self.state = match head.framing() {
            ResponseFraming::None if head.status() == 101 => Http1State::Tunnel,
            ResponseFraming::None | ResponseFraming::Length(0) => Http1State::Ended,
            ResponseFraming::Length(length) => Http1State::Length(length),
            ResponseFraming::Chunked => Http1State::Chunked(Chunked::new(ChunkLimits {
                body_bytes_max: head.body_bytes_max(),
                line_bytes_max: CHUNK_LINE_BYTES_MAX,
                trailer_bytes_max: limits.head_bytes_max,
                overhead_bytes_max: limits.head_bytes_max,
            })),
            ResponseFraming::UntilClose => Http1State::UntilClose(head.body_bytes_max()),
            ResponseFraming::Tunnel => Http1State::Tunnel,
        };
        Ok(Http1Step { consumed, event: Http1Event::Head })
    }

    /// Ends the response; the first `consumed` bytes of the input belong to it.
    fn end(&mut self, input: &[u8], consumed: usize) -> Http1Step {
        // RFC 9112 §9.3 and §6.3: not reusable after an incomplete request, or before bytes that
        // belong to no response.
        let is_reusable = self.keep_alive && self.is_sent && consumed == input.len();
        self.state = if is_reusable { Http1State::Idle } else { Http1State::Spent };
        Http1Step { consumed, event: Http1Event::End { is_reusable } }
    }
}

/// The first `count` bytes of `bytes` at most.
fn first(bytes: &[u8], count: u64) -> &[u8] {
    &bytes[..usize::try_from(count).map_or(bytes.len(), |count| count.min(bytes.len()))]
}

impl fmt::Display for RequestRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestRefused::Busy => "the connection has an open request or cannot be reused",
            RequestRefused::Target => "the target is not a path of visible ASCII",
        })
    }
}

impl std::error::Error for RequestRefused {}

#[cfg(test)]
mod tests;
