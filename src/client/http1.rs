//! A connection of HTTP/1.x on the client's side: requests into a buffer, bytes into responses.
//!
//! Invariants: one request at a time; a response is answered for by the request before it, so bytes
//! that no request asked for end the connection. Whether it can be used again is said once, with
//! the end of each response, and what was not certain is a no. What is found does not depend on how
//! the bytes were cut, and a connection between two requests holds no buffers.

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

/// Interim responses before the final one (RFC 9110 §15.2); curl and Go stop after a few, too.
pub const INTERIM_RESPONSES_MAX: u8 = 8;

/// Bytes of a chunk's size line with its extensions, as the server has it.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// One connection, from request to request.
#[derive(Debug)]
pub struct Http1Connection {
    state: Http1State,
    /// What the request was: CONNECT, or any other (RFC 9112 §6.3 asks for no more).
    method: Method,
    wants_upgrade: bool,
    is_sent: bool,
    keep_alive: bool,
    interim: u8,
}

/// What the next byte belongs to.
#[derive(Debug)]
enum Http1State {
    /// Nothing: no request is open.
    Idle,
    /// A head, interim or final; whether the buffer is that of this exchange.
    Head {
        is_begun: bool,
    },
    /// So many bytes of a body.
    Length(u64),
    Chunked(Chunked),
    /// A body that the close ends, of so many bytes at most.
    UntilClose(u64),
    /// What an upgrade or CONNECT has made of the connection.
    Tunnel,
    /// Nothing: the response has ended, and that is not said yet.
    Ended,
    /// Nothing ever again.
    Spent,
}

/// What one call of [`Http1Connection::advance`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Step {
    /// Bytes of the input that were used up. With [`Http1Event::More`]: less than all of them only
    /// when there was no more room for the body.
    pub consumed: usize,
    /// What they were.
    pub event: Http1Event,
}

/// What [`Http1Connection::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http1Event {
    /// More input or more room is needed; the body may have grown.
    More,
    /// The final head is in the [`ResponseBuf`]; call again with the rest of the input.
    Head,
    /// The response is whole; the body may have grown.
    End {
        /// The next request may go over the same connection.
        is_reusable: bool,
    },
}

/// Why a request cannot be begun; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefused {
    /// The connection has a request, or cannot have another one.
    Busy,
    /// The target is not of visible ASCII beginning with a slash.
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
    /// Appends the head of a request to `out`, from `known` if it is the same but for its length.
    /// Its content is the caller's to send behind it, and [`Http1Connection::sent`] is to be called
    /// when all of it has gone out. With `to_proxy` the target is absolute, as plain http through a
    /// proxy needs it (RFC 9112 §3.2.2).
    ///
    /// # Errors
    /// [`RequestRefused`].
    pub fn begin(
        &mut self,
        request: &HttpRequest<'_>,
        to_proxy: bool,
        (known, out): (&mut RequestHead, &mut Vec<u8>),
    ) -> Result<(), RequestRefused> {
        let HttpRequest { method, origin, target, fields, body, .. } = *request;
        let target = if to_proxy { SentTarget::Absolute } else { SentTarget::Origin }(target);
        // RFC 9110 §8.6: a POST says its length even if it is 0; GET and DELETE have no content.
        let has_length = method == HttpMethod::Post || !body.is_empty();
        let line = RequestLine { method: method.name(), target, authority: origin.authority() };
        self.open(Method::Get)?;
        known
            .write(out, line, fields, has_length.then_some(body.len()))
            .map_err(|UnsendableTarget| self.refuse())?;
        self.wants_upgrade = request.version == HttpVersion::Http1
            && fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        Ok(())
    }

    /// Appends a CONNECT to a proxy, for a tunnel to `authority`, which has its port. A response of
    /// 2xx makes the tunnel: what the transport does next is not HTTP/1.1 of this connection.
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

    /// The whole request has gone out.
    pub fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Whether the rest of the request is worth sending: not once the final head has come. A
    /// connection whose request was never whole is not used again.
    pub fn needs_request(&self) -> bool {
        matches!(self.state, Http1State::Head { .. }) && !self.is_sent
    }

    /// Whether a request can be begun.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, Http1State::Idle)
    }

    /// Reads what has arrived: appends at most `room` bytes of the body to `body`, decoded of their
    /// transfer coding. After an upgrade or CONNECT they are the bytes of the tunnel.
    ///
    /// To be called again with what it did not consume, even if that is nothing, until
    /// [`Http1Event::More`] says that nothing is left to do. `response` stays the same from the
    /// beginning of a request to the end of its response.
    ///
    /// # Errors
    /// [`TransportError::Malformed`], [`TransportError::TooLarge`]; the connection is then spent.
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

    /// The peer has closed its side, orderly (with TLS: by close_notify), and all input before that
    /// has been read. `Ok`: a response may end there.
    ///
    /// # Errors
    /// [`TransportError::Closed`].
    pub fn eof(&mut self, response: &ResponseBuf) -> Result<Http1Event, TransportError> {
        let before_response = match self.state {
            Http1State::UntilClose(_) | Http1State::Tunnel | Http1State::Ended => {
                self.state = Http1State::Spent;
                return Ok(Http1Event::End { is_reusable: false });
            }
            // An empty buffer may be that of an interim response, too.
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

    /// Nothing was written, so nothing is open.
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
            // A response before the request may belong to another request.
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
            Http1State::Length(left) => {
                let data = first(fits, *left);
                body.extend_from_slice(data);
                *left -= data.len() as u64;
                if *left > 0 { more(data.len()) } else { Ok(self.end(input, data.len())) }
            }
            Http1State::Chunked(chunked) => {
                let trailers = &mut response.trailers;
                let step = chunked
                    .advance_with(fits, body, |byte| trailers.push(byte))
                    .map_err(ResponseReject::from)?;
                if step.done { Ok(self.end(input, step.consumed)) } else { more(step.consumed) }
            }
            Http1State::UntilClose(left) => {
                if fits.len() as u64 > *left {
                    return Err(TransportError::TooLarge("body_bytes_max"));
                }
                *left -= fits.len() as u64;
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
                // RFC 9110 §15.2.2: a server switches only to what the client has asked for.
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

    /// The response is whole; so many bytes of the input were its last.
    fn end(&mut self, input: &[u8], consumed: usize) -> Http1Step {
        // RFC 9112 §9.3 and §6.3: not after a request that was not whole, nor before bytes that
        // belong to no response.
        let is_reusable = self.keep_alive && self.is_sent && consumed == input.len();
        self.state = if is_reusable { Http1State::Idle } else { Http1State::Spent };
        Http1Step { consumed, event: Http1Event::End { is_reusable } }
    }
}

/// The beginning of `bytes`, of `count` bytes at most.
fn first(bytes: &[u8], count: u64) -> &[u8] {
    &bytes[..usize::try_from(count).map_or(bytes.len(), |count| count.min(bytes.len()))]
}

impl fmt::Display for RequestRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestRefused::Busy => "the connection accepts no request now",
            RequestRefused::Target => "the target is not a path of visible ASCII",
        })
    }
}

impl std::error::Error for RequestRefused {}

#[cfg(test)]
mod tests;
