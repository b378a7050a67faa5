//! Transports of answers: the syntax of HTTP/1.x and of WebSocket around the content, or the answer
//! in parts for a driver with its own syntax.
//!
//! A binding begins an answer with a status, a media type and fields, appends content to the
//! output, and finishes or rolls back; an answer in pieces is a stream. [`Http1`] and
//! [`WebSocketMessages`] write their syntax around the content, [`ResponseParts`] collects the
//! parts around it.

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
    /// The media type of the content; empty: none.
    pub media: &'static str,
    /// Fields of the answer, and of every answer to this request.
    pub fields: [FieldLines<'a>; 2],
    /// How the content comes.
    pub content: Content,
}

/// How the content of an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// At once, before [`Responder::finish`].
    Whole,
    /// Not at all: the request was HEAD, and the content was not produced.
    LeftOut,
    /// In pieces, as they become ready.
    Stream,
}

/// Takes one answer, all or nothing: `begin`, the content, `finish` or `rollback`.
///
/// Content is appended to `out`, the same buffer in all calls: for [`Content::Whole`] by the caller
/// after `begin`, for [`Content::Stream`] inside of `piece`.
pub trait Responder {
    /// Begins an answer.
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>);

    /// Takes the next piece of a stream: `write` appends it to `out`, or appends nothing.
    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Ends the answer.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Takes back everything since `begin`, as if it had never been called.
    fn rollback(&mut self, out: &mut Vec<u8>);
}

/// The responders as an enum, so that the compiler can inline them.
#[repr(u8)] // Each answer looks at it several times: a byte of its own is read faster.
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
    pub fn kept(&self) -> Http1Kept {
        match self {
            Transport::Http1(http) => http.kept,
            Transport::WebSocket(_) | Transport::Parts(_) => Http1Kept::default(),
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

/// Header fields of an event stream. Proxies must not cache it, nor buffer it: nginx obeys
/// `X-Accel-Buffering`, and a compressing proxy buffers unless `no-transform` forbids the coding
/// (RFC 9111 §5.2.2.6).
pub const STREAM_FIELDS: FieldLines<'static> =
    field_lines!("Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no");

/// When to retry, in seconds if known: a field for the statuses of a server that is full or ends,
/// or of a caller that has used up its share (RFC 9110 §10.2.3).
pub fn retry_after(status: u16, known_s: Option<u32>) -> FieldLinesBuf {
    match known_s {
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
    kept: Http1Kept,
    begun: Begun,
}

/// The state of an incomplete HTTP/1.x response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http1Kept {
    /// True: the connection closes after the answer.
    pub closes: bool,
    /// True: the client speaks HTTP/1.0, which has no chunks.
    pub is_http10: bool,
    /// True: the request was HEAD, so content is left out.
    pub head_only: bool,
    /// True: the head of a stream is written, and its end is not.
    pub is_stream: bool,
}

/// The written part of a response.
#[derive(Debug)]
enum Begun {
    /// Nothing, or all of it.
    None,
    /// A head; its length is filled in later.
    Whole(response::ResponseMark, Content),
    /// The head of a stream, from this offset on if it was written just now.
    Stream(usize),
}

impl<'d> Http1<'d> {
    /// Answers the request with this head; `closes`: the connection closes after the answer.
    #[inline]
    pub fn new(head: &Head<'_>, closes: bool, date: &'d [u8; 29]) -> Http1<'d> {
        let is_http10 = head.version() == Version::Http10;
        let head_only = head.method() == Method::Head;
        Http1::resume(Http1Kept { closes, is_http10, head_only, is_stream: false }, date)
    }

    /// Continues an answer.
    #[inline]
    pub fn resume(kept: Http1Kept, date: &'d [u8; 29]) -> Http1<'d> {
        let begun = if kept.is_stream { Begun::Stream(usize::MAX) } else { Begun::None };
        Http1 { date, kept, begun }
    }
}

impl Responder for Http1<'_> {
    #[inline(always)]
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        let Http1Kept { closes, is_http10, .. } = self.kept;
        let extra = match head.fields.map(FieldLines::lines) {
            [lines, []] | [[], lines] if !is_http10 => Cow::Borrowed(lines),
            fields => joined(fields, is_http10 && !closes && head.content != Content::Stream),
        };
        match head.content {
            Content::Stream => {
                self.begun = Begun::Stream(out.len());
                self.kept.is_stream = true;
                response::stream_head(out, head.media, self.date, closes, is_http10, &extra);
            }
            content if response::has_body(head.status) => {
                let mark = response::begin(out, head.status, head.media, self.date, &extra, closes);
                self.begun = Begun::Whole(mark, content);
            }
            Content::Whole | Content::LeftOut => {
                response::simple(out, head.status, "", b"", self.date, &extra, closes, false);
            }
        }
    }

    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>)) {
        if self.kept.is_http10 {
            return write(out);
        }
        let chunk = sse::chunk_begin(out);
        write(out);
        sse::chunk_end(out, chunk);
    }

    #[inline(always)]
    fn finish(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.begun, Begun::None) {
            Begun::Whole(mark, Content::LeftOut) => response::finish_untold(out, mark),
            Begun::Whole(mark, _) if self.kept.head_only => response::finish_head_only(out, mark),
            Begun::Whole(mark, _) => response::finish(out, mark),
            Begun::Stream(_) => self.end_stream(out),
            Begun::None => {}
        }
    }

    fn rollback(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.begun, Begun::None) {
            Begun::Whole(mark, _) => response::rollback(out, mark),
            Begun::Stream(start) => {
                self.kept.is_stream = false;
                out.truncate(start);
            }
            Begun::None => {}
        }
    }
}

impl Http1<'_> {
    /// Begins JSON with status 200 and without further fields, if the answer needs nothing else;
    /// otherwise does nothing.
    #[inline(always)]
    pub fn begin_json(&mut self, out: &mut Vec<u8>) -> bool {
        let is_all = !self.kept.closes && !self.kept.is_http10;
        if is_all {
            self.begun = Begun::Whole(response::begin_json(out, self.date), Content::Whole);
        }
        is_all
    }

    /// Writes a whole prepared response, if it fits the connection and the request; otherwise does
    /// nothing.
    #[inline]
    pub fn put_ready(&mut self, out: &mut Vec<u8>, ready: &ReadyResponse) -> bool {
        let Http1Kept { closes, is_http10, head_only, .. } = self.kept;
        let suits = !closes && !is_http10 && !head_only;
        if suits {
            ready.put(out, self.date);
        }
        suits
    }

    fn end_stream(&mut self, out: &mut Vec<u8>) {
        self.kept.is_stream = false;
        // RFC 9112 §6.1: HTTP/1.0 has no chunks, so closing the connection ends the stream.
        match self.kept.is_http10 {
            true => self.kept.closes = true,
            false => sse::chunk_last(out),
        }
    }
}

/// Both blocks of fields, and the field that keeps an HTTP/1.0 connection open.
///
/// RFC 9112 §9.3: an HTTP/1.0 client that asked to keep the connection may do so if the answer
/// confirms it.
#[cold]
fn joined<'l>([one, other]: [&[u8]; 2], keeps_alive: bool) -> Cow<'l, [u8]> {
    let keep_alive = if keeps_alive { response::KEEP_ALIVE } else { b"" };
    Cow::Owned([keep_alive, one, other].concat())
}

/// Text messages of a WebSocket: one for each answer, and one for each event of a stream.
#[derive(Debug, Default)]
pub struct WebSocketMessages {
    mark: Option<ws::FrameMark>,
    /// The offset of the message that was begun last.
    start: usize,
}

impl Responder for WebSocketMessages {
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        // A notification has no answer, and an event has its own frame.
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
