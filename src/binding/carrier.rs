//! What carries the answers of JSON-RPC: a response of HTTP, or one message of a WebSocket.
//!
//! The desk and parked calls write an answer between [`Carrier::begin`] and [`Mark::finish`] and
//! do not ask which of them it is.

use crate::{
    http::response,
    ws::{self, OpCode},
};

/// How answers travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Each as a response of its own.
    Response,
    /// Each as a text message.
    Message,
}

/// An answer that was begun: [`Mark::finish`] it or [`Mark::rollback`] it.
#[derive(Debug)]
#[must_use = "finish the answer or roll it back"]
pub enum Mark {
    /// See [`Carrier::Response`].
    Response(response::ResponseMark),
    /// See [`Carrier::Message`].
    Message(ws::FrameMark),
}

/// When to come back, said beside the statuses of a server that is full or ends (RFC 9110 §10.2.3).
pub fn retry_after(status: u16) -> &'static [u8] {
    if matches!(status, 429 | 503) { b"Retry-After: 1\r\n" } else { b"" }
}

impl Carrier {
    /// Begins an answer whose JSON the caller appends to `out`; the rest is for a response.
    #[inline]
    pub fn begin(
        self,
        out: &mut Vec<u8>,
        media: &str,
        date: &[u8; 29],
        extra: &[u8],
        close: bool,
    ) -> Mark {
        match self {
            Carrier::Response => {
                Mark::Response(response::begin(out, 200, media, date, extra, close))
            }
            Carrier::Message => Mark::Message(ws::begin(out)),
        }
    }
}

impl Mark {
    /// Ends the answer.
    #[inline]
    pub fn finish(self, out: &mut Vec<u8>) {
        match self {
            Mark::Response(mark) => response::finish(out, mark),
            Mark::Message(mark) => ws::finish(out, mark, OpCode::Text),
        }
    }

    /// Takes back everything since [`Carrier::begin`], as if it had never been called.
    #[inline]
    pub fn rollback(self, out: &mut Vec<u8>) {
        match self {
            Mark::Response(mark) => response::rollback(out, mark),
            Mark::Message(mark) => ws::cancel(out, mark),
        }
    }

    /// Ends the answer, under another HTTP status than 200 if need be; a message has none.
    #[inline]
    pub fn finish_with(
        self,
        out: &mut Vec<u8>,
        (status, media): (u16, &str),
        date: &[u8; 29],
        extra: &[u8],
        close: bool,
    ) {
        match self {
            Mark::Response(mark) if status != 200 => {
                let body = mark.take_body(out);
                let extra = [extra, retry_after(status)].concat();
                response::simple(out, status, media, &body, date, &extra, close, false);
            }
            mark => mark.finish(out),
        }
    }
}
