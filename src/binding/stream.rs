//! Streams of events, as server-sent events or as messages of a WebSocket, each in the envelope of
//! its binding.
//!
//! A stream is a cursor and the text of its id. Every event is rendered straight from the task
//! into the output; all that is ready leaves in one chunk, and what does not fit under the
//! high-water mark waits in the task, not in memory of the stream.

use std::task::Waker;

use crate::{
    binding::envelope::Envelope,
    dialect::{Wire, WriteCx},
    fault::{Fault, FaultKind},
    http::Version,
    json::write::push_u64,
    model::{Message, Op, RawText},
    permits::Permit,
    service::{Cursor, Follow, Service, StreamResponse},
    sse,
    ws::{self, OpCode},
};

/// What a subscriber hears when the server ends before its task.
pub const SHUTTING_DOWN: &str = "the server is shutting down; subscribe again to go on";

/// A stream on its way to one subscriber.
pub struct Pump {
    /// Where it is.
    pub cursor: Cursor,
    /// The id that every event repeats, as it stood in the body; `None` over HTTP+JSON.
    pub id: Option<Box<[u8]>>,
    /// The operation that opened it.
    pub op: Op,
    /// At most this many messages of history in a snapshot.
    pub history: Option<u32>,
    /// The spelling of its events.
    pub wire: &'static Wire,
    /// How its events travel.
    pub framing: Framing,
    /// True: the connection closes behind the stream.
    pub close: bool,
    /// When something was last written, for keep-alive comments.
    pub wrote_ms: u64,
    /// The place among the open streams.
    pub permit: Permit,
}

impl Pump {
    /// Writes what is ready, at most until `out` holds `high_water` bytes.
    ///
    /// On [`Follow::End`] and [`Follow::Gone`] the end of the stream is written, too.
    pub fn pump(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        out: &mut Vec<u8>,
        high_water: usize,
    ) -> Follow {
        let chunk = self.framing.open(out);
        let write = self.write_cx();
        let Pump { cursor, id, wire, framing, .. } = self;
        let (framing, envelope) = (*framing, Envelope::of(id.as_deref()));
        let follow = service.follow(cursor, wake, &mut |followed| {
            frame(out, framing, envelope, wire, &write, &followed);
            out.len() < high_water
        });
        if follow == Follow::Gone {
            let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
            error_frame(out, framing, envelope, wire, &write, &fault);
        }
        framing.shut(out, chunk);
        match follow {
            Follow::End => framing.last(out, envelope),
            Follow::Gone => framing.last_after_error(out),
            Follow::Pending | Follow::More => {}
        }
        follow
    }

    /// Writes a comment that keeps the connection alive.
    pub fn keep_alive(&self, out: &mut Vec<u8>) {
        let chunk = self.framing.open(out);
        out.extend_from_slice(sse::KEEP_ALIVE);
        self.framing.shut(out, chunk);
    }

    /// Ends the stream before its task does, because the server ends, with the error that calls
    /// get which still wait.
    pub fn cut(&self, out: &mut Vec<u8>) {
        let fault = &Fault::because(FaultKind::ShuttingDown, SHUTTING_DOWN);
        let chunk = self.framing.open(out);
        let envelope = Envelope::of(self.id.as_deref());
        error_frame(out, self.framing, envelope, self.wire, &self.write_cx(), fault);
        self.framing.shut(out, chunk);
        self.framing.last_after_error(out);
    }

    fn write_cx(&self) -> WriteCx<'static> {
        WriteCx { history: self.history, ..WriteCx::new(self.op) }
    }
}

/// How the events of a stream travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As server-sent events in chunks.
    Chunked,
    /// As server-sent events on HTTP/1.0: no chunks, the close ends the stream.
    Bare,
    /// Each as a text message of a WebSocket, and one more that says that there are no others.
    Messages {
        /// True: beside its result each event has its number.
        event_ids: bool,
    },
}

impl Framing {
    /// That of server-sent events in a response to a request of this version.
    pub fn of(version: Version) -> Framing {
        match version {
            Version::Http11 => Framing::Chunked,
            Version::Http10 => Framing::Bare,
        }
    }

    fn open(self, out: &mut Vec<u8>) -> Option<sse::ChunkMark> {
        match self {
            Framing::Chunked => Some(sse::chunk_begin(out)),
            Framing::Bare | Framing::Messages { .. } => None,
        }
    }

    fn shut(self, out: &mut Vec<u8>, chunk: Option<sse::ChunkMark>) {
        if let Some(chunk) = chunk {
            sse::chunk_end(out, chunk);
        }
    }

    /// Ends a stream that is complete. On a WebSocket that is a last result (wire §8, a2a_rust).
    fn last(self, out: &mut Vec<u8>, envelope: Envelope<'_>) {
        match self {
            Framing::Chunked => sse::chunk_last(out),
            Framing::Bare => {}
            Framing::Messages { .. } => {
                let message = ws::begin(out);
                envelope.open_result(out);
                out.extend_from_slice(b"{\"status\":\"stream_complete\"}");
                envelope.close(out);
                ws::finish(out, message, OpCode::Text);
            }
        }
    }

    /// Ends a stream behind an error, which is the last answer that its request gets.
    fn last_after_error(self, out: &mut Vec<u8>) {
        match self {
            Framing::Chunked => sse::chunk_last(out),
            Framing::Bare | Framing::Messages { .. } => {}
        }
    }
}

/// Writes a stream that consists of one error, behind its head.
pub fn only_error(
    out: &mut Vec<u8>,
    framing: Framing,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    let chunk = framing.open(out);
    let frame = sse::begin(out, None);
    push_error(out, envelope, wire, write, fault);
    sse::finish(out, frame);
    framing.shut(out, chunk);
    framing.last_after_error(out);
}

/// Writes a stream that consists of one direct message, behind its head (A2A 1.0 §3.1.2).
pub fn only_message(
    out: &mut Vec<u8>,
    framing: Framing,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    (message, context_id): (Message<'_>, RawText<'_>),
) {
    let chunk = framing.open(out);
    let followed = StreamResponse::Message { message, context_id };
    frame(out, framing, envelope, wire, write, &followed);
    framing.shut(out, chunk);
    framing.last(out, envelope);
}

/// Writes one event as a frame, if the dialect has a form for it.
fn frame(
    out: &mut Vec<u8>,
    framing: Framing,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    followed: &StreamResponse<'_>,
) {
    let number = match followed {
        StreamResponse::Snapshot(view) => Some(view.seq()),
        StreamResponse::Event { seq, .. } => Some(*seq),
        StreamResponse::Message { .. } => None,
    };
    match framing {
        Framing::Chunked | Framing::Bare => {
            let frame = sse::begin(out, number);
            envelope.open_result(out);
            if (wire.event)(out, followed, write) {
                envelope.close(out);
                sse::finish(out, frame);
            } else {
                sse::cancel(out, frame);
            }
        }
        Framing::Messages { event_ids } => {
            let frame = ws::begin(out);
            envelope.open_result(out);
            if !(wire.event)(out, followed, write) {
                return ws::cancel(out, frame);
            }
            if let Some(number) = number.filter(|_| event_ids) {
                out.extend_from_slice(b",\"eventId\":");
                push_u64(out, number);
            }
            envelope.close(out);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}

/// Writes the error that ends a stream: an `event: error` frame (wire §3.5), or a message.
fn error_frame(
    out: &mut Vec<u8>,
    framing: Framing,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    match framing {
        Framing::Chunked | Framing::Bare => {
            let frame = sse::error_event(out, None);
            push_error(out, envelope, wire, write, fault);
            sse::finish(out, frame);
        }
        Framing::Messages { .. } => {
            let frame = ws::begin(out);
            push_error(out, envelope, wire, write, fault);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}

fn push_error(
    out: &mut Vec<u8>,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    envelope.open_error(out);
    (wire.fault)(out, fault, write);
    envelope.close(out);
}
