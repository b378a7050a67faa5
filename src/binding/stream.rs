//! Streams of JSON-RPC responses, as server-sent events or as messages of a WebSocket.
//!
//! A stream is a cursor and the text of its id. Every event is rendered straight from the task
//! into the output; all that is ready leaves in one chunk, and what does not fit under the
//! high-water mark waits in the task, not in memory of the stream.

use std::task::Waker;

use crate::{
    binding::site::Permit,
    dialect::{Wire, WriteCx},
    fault::{Fault, FaultKind},
    json::write::push_u64,
    model::Op,
    rpc,
    service::{Cursor, Follow, Followed, Service},
    sse,
    ws::{self, OpCode},
};

/// A stream on its way to one subscriber.
pub struct Pump {
    /// Where it is.
    pub cursor: Cursor,
    /// The request's id, as it stood in the body.
    pub id: Box<[u8]>,
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
        let follow = service.follow(cursor, wake, &mut |followed| {
            frame(out, *framing, id, wire, &write, &followed);
            out.len() < high_water
        });
        if follow == Follow::Gone {
            let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
            error_frame(out, self.framing, &self.id, self.wire, &write, &fault);
        }
        self.framing.shut(out, chunk);
        match follow {
            Follow::End => self.framing.last(out, &self.id),
            Follow::Gone => self.framing.last_after_error(out),
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

    /// Ends the stream before its task does, with an error the client can tell from an end.
    pub fn cut(&self, out: &mut Vec<u8>, fault: &Fault) {
        let chunk = self.framing.open(out);
        error_frame(out, self.framing, &self.id, self.wire, &self.write_cx(), fault);
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
    fn last(self, out: &mut Vec<u8>, id: &[u8]) {
        match self {
            Framing::Chunked => sse::chunk_last(out),
            Framing::Bare => {}
            Framing::Messages { .. } => {
                let message = ws::begin(out);
                rpc::open_result(out, id);
                out.extend_from_slice(b"{\"status\":\"stream_complete\"}");
                rpc::close(out);
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
    id: &[u8],
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    let chunk = framing.open(out);
    let frame = sse::begin(out, None);
    push_error(out, id, wire, write, fault);
    sse::finish(out, frame);
    framing.shut(out, chunk);
    framing.last_after_error(out);
}

/// Writes a stream that consists of one message, behind its head.
pub fn only_message(
    out: &mut Vec<u8>,
    framing: Framing,
    id: &[u8],
    wire: &Wire,
    write: &WriteCx<'_>,
    message: &Followed<'_>,
) {
    let chunk = framing.open(out);
    frame(out, framing, id, wire, write, message);
    framing.shut(out, chunk);
    framing.last(out, id);
}

/// Writes one event as a frame, if the dialect has a form for it.
fn frame(
    out: &mut Vec<u8>,
    framing: Framing,
    id: &[u8],
    wire: &Wire,
    write: &WriteCx<'_>,
    followed: &Followed<'_>,
) {
    let number = match followed {
        Followed::Snapshot(view) => Some(view.seq()),
        Followed::Event { seq, .. } => Some(*seq),
        Followed::Message { .. } => None,
    };
    match framing {
        Framing::Chunked | Framing::Bare => {
            let frame = sse::begin(out, number);
            rpc::open_result(out, id);
            if (wire.event)(out, followed, write) {
                rpc::close(out);
                sse::finish(out, frame);
            } else {
                sse::cancel(out, frame);
            }
        }
        Framing::Messages { event_ids } => {
            let frame = ws::begin(out);
            rpc::open_result(out, id);
            if !(wire.event)(out, followed, write) {
                return ws::cancel(out, frame);
            }
            if let Some(number) = number.filter(|_| event_ids) {
                out.extend_from_slice(b",\"eventId\":");
                push_u64(out, number);
            }
            rpc::close(out);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}

/// Writes the error that ends a stream: an `event: error` frame (wire §3.5), or a message.
fn error_frame(
    out: &mut Vec<u8>,
    framing: Framing,
    id: &[u8],
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    match framing {
        Framing::Chunked | Framing::Bare => {
            let frame = sse::error_event(out, None);
            push_error(out, id, wire, write, fault);
            sse::finish(out, frame);
        }
        Framing::Messages { .. } => {
            let frame = ws::begin(out);
            push_error(out, id, wire, write, fault);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}

fn push_error(out: &mut Vec<u8>, id: &[u8], wire: &Wire, write: &WriteCx<'_>, fault: &Fault) {
    rpc::open_error(out, id);
    (wire.fault)(out, fault, write);
    rpc::close(out);
}
