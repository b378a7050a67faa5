//! Transports of answers: HTTP/1.x and WebSocket write their syntax around the content; a driver
//! with its own syntax gets the answer in parts.
//!
//! A binding begins an answer with a status, a media type and fields, appends content to the
//! output, and finishes the answer or rolls it back. The content of a stream is written in pieces.
//! [`Http1`] and [`WebSocketMessages`] write to the output; [`ResponseParts`] collects the head and
//! the trailers.

use std::borrow::Cow;

use crate::{
    binding::response_parts::ResponseParts,
    http::{
        FieldLines, FieldLinesBuf, Head, Method, ReadyResponse, Version, field_lines, response,
    },
    sse,
    ws::{self, OpCode},
};

/// The head of an answer.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status of HTTP (RFC 9110 §15).
    pub status: u16,
    /// The media type of the content; empty: no `Content-Type`.
    pub media: &'static str,
    /// Fields of this answer, and fields of every answer to the request.
    pub fields: [FieldLines<'a>; 2],
    /// How the content is written.
    pub content: Content,
}

/// How the content of an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Completely, before [`Responder::finish`].
    Whole,
    /// Not at all: the request was HEAD, and no content is produced.
    Omitted,
    /// In pieces, when they are ready.
    Stream,
}

/// Receives one answer, all or nothing: `begin`, the content, then `finish` or `rollback`.
///
/// `out` is the same buffer in all calls. Content is appended to it by the caller: after `begin`
/// for [`Content::Whole`], in `piece` for [`Content::Stream`].
pub trait Responder {
    /// Begins an answer.
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>);

    /// Writes the next piece of a stream: `write` appends the piece, which may be empty, to `out`.
    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Ends the answer.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Removes the output since `begin`, as if `begin` had never been called.
    fn rollback(&mut self, out: &mut Vec<u8>);
}

/// The responders as an enum, so that the compiler can inline them.
#[repr(u8)] // The tag is read several times for each answer; a byte is read faster.
pub enum Transport<'x> {
    /// HTTP/1.x.
    Http1(Http1<'x>),
    /// WebSocket.
    WebSocket(WebSocketMessages),
    /// The parts, for a driver with its own syntax.
    Parts(&'x mut ResponseParts),
}

impl Transport<'_> {
    /// Whether an answer can have trailers, which gRPC needs.
    #[inline(always)]
    pub fn has_trailers(&self) -> bool {
        matches!(self, Transport::Parts(parts) if parts.takes_trailers())
    }

    /// The state of an HTTP/1.x answer that outlives this poll.
    #[inline]
    pub fn http1_state(&self) -> Http1ResponseState {
        match self {
            Transport::Http1(http) => http.state,
            Transport::WebSocket(_) | Transport::Parts(_) => Http1ResponseState::default(),
        }
    }
}

impl Responder for Transport<'_> {
    #[inline(always)]
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        match self {
            Transport::Http1(http) => http.begin(out, head),
            Transport::WebSocket(messages) => messages.begin(out, head),
            Transport::Parts(parts) => parts.begin(out, head),
        }
    }

    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>)) {
        match self {
            Transport::Http1(http) => http.piece(out, write),
            Transport::WebSocket(messages) => messages.piece(out, write),
            Transport::Parts(parts) => parts.piece(out, write),
        }
    }

    #[inline(always)]
    fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Transport::Http1(http) => http.finish(out),
            Transport::WebSocket(messages) => messages.finish(out),
            Transport::Parts(parts) => parts.finish(out),
        }
    }

    fn rollback(&mut self, out: &mut Vec<u8>) {
        match self {
            Transport::Http1(http) => http.rollback(out),
            Transport::WebSocket(messages) => messages.rollback(out),
            Transport::Parts(parts) => parts.rollback(out),
        }
    }
}

/// Retry in a second.
pub const RETRY_AFTER: FieldLines<'static> = field_lines!("Retry-After": "1");

/// Header fields of an event stream. Proxies must neither cache nor buffer the stream: nginx obeys
/// `X-Accel-Buffering`, and a compressing proxy buffers unless `no-transform` forbids compression
/// (RFC 9111 §5.2.2.6).
pub const STREAM_FIELDS: FieldLines<'static> =
    field_lines!("Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no");

/// The field `Retry-After` for the statuses 429 and 503 (RFC 9110 §10.2.3); `retry_s`: the time in
/// seconds, if known.
pub fn retry_after(status: u16, retry_s: Option<u32>) -> FieldLinesBuf {
    match retry_s {
        _ if !matches!(status, 429 | 503) => FieldLinesBuf::default(),
        None => RETRY_AFTER.into(),
        Some(seconds) => {
            let mut fields = FieldLinesBuf::default();
            fields.push("Retry-After", &seconds.to_string());
            fields
        }
    }
}

/// Responses of HTTP/1.1, and of HTTP/1.0.
#[derive(Debug)]
pub struct Http1<'d> {
    /// The value of `Date`.
    date: &'d [u8; 29],
    /// The state that outlives a poll of the connection.
    state: Http1ResponseState,
    begun: Begun,
}

/// The state of an incomplete HTTP/1.x response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http1ResponseState {
    /// True: the connection closes after the answer.
    pub closes: bool,
    /// True: the client uses HTTP/1.0, which has no chunks.
    pub is_http10: bool,
    /// True: the request was HEAD, so content is omitted.
    pub head_only: bool,
    /// True: the head of a stream is written, but not the end.
    pub is_stream: bool,
}

/// The written part of a response.
#[derive(Debug)]
enum Begun {
    /// Nothing is written, or the whole response.
    None,
    /// A head; its content length is filled in later.
    Whole(response::ResponseMark, Content),
    /// The head of a stream; its offset if the head was written in this poll.
    Stream(usize),
}

impl<'d> Http1<'d> {
    /// Answers the request with this head; `closes`: the connection closes after the answer.
    #[inline]
    pub fn new(head: &Head<'_>, closes: bool, date: &'d [u8; 29]) -> Http1<'d> {
        let is_http10 = head.version() == Version::Http10;
        let head_only = head.method() == Method::Head;
        Http1::resume(Http1ResponseState { closes, is_http10, head_only, is_stream: false }, date)
    }

    /// Continues an incomplete answer.
    #[inline]
    pub fn resume(state: Http1ResponseState, date: &'d [u8; 29]) -> Http1<'d> {
        let begun = if state.is_stream { Begun::Stream(usize::MAX) } else { Begun::None };
        Http1 { date, state, begun }
    }
}

impl Responder for Http1<'_> {
    #[inline(always)]
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        let Http1ResponseState { closes, is_http10, .. } = self.state;
        let extra = match head.fields.map(FieldLines::lines) {
            [lines, []] | [[], lines] if !is_http10 => Cow::Borrowed(lines),
            fields => joined(fields, is_http10 && !closes && head.content != Content::Stream),
        };
        match head.content {
            Content::Stream => {
                self.begun = Begun::Stream(out.len());
                self.state.is_stream = true;
                response::stream_head(out, head.media, self.date, closes, is_http10, &extra);
            }
            content if response::has_body(head.status) => {
                let mark = response::begin(out, head.status, head.media, self.date, &extra, closes);
                self.begun = Begun::Whole(mark, content);
            }
            Content::Whole | Content::Omitted => {
                response::simple(out, head.status, "", b"", self.date, &extra, closes, false);
            }
        }
    }

    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>)) {
        if self.state.is_http10 {
            return write(out);
        }
        let chunk = sse::chunk_begin(out);
        write(out);
        sse::chunk_end(out, chunk);
    }

    #[inline(always)]
    fn finish(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.begun, Begun::None) {
            Begun::Whole(mark, Content::Omitted) => response::finish_without_length(out, mark),
            Begun::Whole(mark, _) if self.state.head_only => response::finish_head_only(out, mark),
            Begun::Whole(mark, _) => response::finish(out, mark),
            Begun::Stream(_) => self.end_stream(out),
            Begun::None => {}
        }
    }

    fn rollback(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.begun, Begun::None) {
            Begun::Whole(mark, _) => response::rollback(out, mark),
            Begun::Stream(start) => {
                self.state.is_stream = false;
                out.truncate(start);
            }
            Begun::None => {}
        }
    }
}

impl Http1<'_> {
    /// Begins a JSON answer with status 200 and no further fields, if the connection stays open and
    /// is HTTP/1.1; false: the output is unchanged.
    #[inline(always)]
    pub fn begin_json(&mut self, out: &mut Vec<u8>) -> bool {
        let is_all = !self.state.closes && !self.state.is_http10;
        if is_all {
            self.begun = Begun::Whole(response::begin_json(out, self.date), Content::Whole);
        }
        is_all
    }

    /// Writes a complete prepared response, if it fits the connection and the request; false: the
    /// output is unchanged.
    #[inline]
    pub fn put_ready(&mut self, out: &mut Vec<u8>, ready: &ReadyResponse) -> bool {
        let Http1ResponseState { closes, is_http10, head_only, .. } = self.state;
        let suits = !closes && !is_http10 && !head_only;
        if suits {
            ready.put(out, self.date);
        }
        suits
    }

    fn end_stream(&mut self, out: &mut Vec<u8>) {
        self.state.is_stream = false;
        // RFC 9112 §6.1: HTTP/1.0 has no chunks, so closing the connection ends the stream.
        match self.state.is_http10 {
            true => self.state.closes = true,
            false => sse::chunk_last(out),
        }
    }
}

/// Both blocks of fields, after the field that keeps an HTTP/1.0 connection open if `keeps_alive`.
///
/// RFC 9112 §9.3: a connection of an HTTP/1.0 client stays open if the client requests it and the
/// answer confirms it.
#[cold]
fn joined<'l>([one, other]: [&[u8]; 2], keeps_alive: bool) -> Cow<'l, [u8]> {
    let keep_alive = if keeps_alive { response::KEEP_ALIVE } else { b"" };
    Cow::Owned([keep_alive, one, other].concat())
}

/// Text messages of a WebSocket: one for each answer, and one for each event of a stream.
#[derive(Debug, Default)]
pub struct WebSocketMessages {
    mark: Option<ws::FrameMark>,
    /// The offset of the message that began last.
    start: usize,
}

impl Responder for WebSocketMessages {
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        // The answer to a notification has no message, and each event has its own frame.
        let has_message = head.content == Content::Whole && response::has_body(head.status);
        self.start = out.len();
        self.mark = has_message.then(|| ws::begin(out));
    }

    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>)) {
        write(out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(mark) = self.mark.take() {
            ws::finish(out, mark, OpCode::Text);
        }
    }

    fn rollback(&mut self, out: &mut Vec<u8>) {
        self.mark = None;
        out.truncate(self.start);
    }
}
