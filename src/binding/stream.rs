//! Streams of events as server-sent events, each in the envelope of its binding.
//!
//! A stream is a cursor and the text of its id. Every event is rendered straight from the task
//! into the output; all that is ready leaves in one chunk, and what does not fit under the
//! high-water mark waits in the task, not in memory of the stream.

use std::task::Waker;

use crate::{
    binding::{envelope::Envelope, site::Permit},
    dialect::{Wire, WriteCx},
    fault::{Fault, FaultKind},
    model::{Message, Op},
    service::{Cursor, Follow, Followed, Service},
    sse,
};

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
    /// False on HTTP/1.0: no chunks, the close ends the stream.
    pub chunked: bool,
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
        let chunk = self.chunked.then(|| sse::chunk_begin(out));
        let write = self.write_cx();
        let Pump { cursor, id, wire, .. } = self;
        let envelope = Envelope::of(id.as_deref());
        let follow = service.follow(cursor, wake, &mut |followed| {
            frame(out, envelope, wire, &write, &followed);
            out.len() < high_water
        });
        if follow == Follow::Gone {
            let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
            error_frame(out, envelope, wire, &write, &fault);
        }
        self.end_chunk(out, chunk);
        if matches!(follow, Follow::End | Follow::Gone) {
            self.end(out);
        }
        follow
    }

    /// Writes a comment that keeps the connection alive.
    pub fn keep_alive(&self, out: &mut Vec<u8>) {
        let chunk = self.chunked.then(|| sse::chunk_begin(out));
        out.extend_from_slice(sse::KEEP_ALIVE);
        self.end_chunk(out, chunk);
    }

    /// Ends the stream before its task does, with an error the client can tell from an end.
    pub fn cut(&self, out: &mut Vec<u8>, fault: &Fault) {
        let chunk = self.chunked.then(|| sse::chunk_begin(out));
        let envelope = Envelope::of(self.id.as_deref());
        error_frame(out, envelope, self.wire, &self.write_cx(), fault);
        self.end_chunk(out, chunk);
        self.end(out);
    }

    fn write_cx(&self) -> WriteCx<'static> {
        WriteCx { history: self.history, ..WriteCx::new(self.op) }
    }

    fn end_chunk(&self, out: &mut Vec<u8>, chunk: Option<sse::ChunkMark>) {
        if let Some(chunk) = chunk {
            sse::chunk_end(out, chunk);
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.chunked {
            sse::chunk_last(out);
        }
    }
}

/// Writes a stream that consists of one error, behind its head.
pub fn only_error(
    out: &mut Vec<u8>,
    chunked: bool,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    let chunk = chunked.then(|| sse::chunk_begin(out));
    let frame = sse::begin(out, None);
    push_error(out, envelope, wire, write, fault);
    sse::finish(out, frame);
    if let Some(chunk) = chunk {
        sse::chunk_end(out, chunk);
        sse::chunk_last(out);
    }
}

/// Writes a stream that consists of one direct message, behind its head (A2A 1.0 §3.1.2).
pub fn only_message(
    out: &mut Vec<u8>,
    chunked: bool,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    (message, context_id): (Message<'_>, &[u8]),
) {
    let chunk = chunked.then(|| sse::chunk_begin(out));
    frame(out, envelope, wire, write, &Followed::Message { message, context_id });
    if let Some(chunk) = chunk {
        sse::chunk_end(out, chunk);
        sse::chunk_last(out);
    }
}

/// Writes one event as a frame, if the dialect has a form for it.
pub fn frame(
    out: &mut Vec<u8>,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    followed: &Followed<'_>,
) {
    let number = match followed {
        Followed::Snapshot(view) => Some(view.seq()),
        Followed::Event { seq, .. } => Some(*seq),
        Followed::Message { .. } => None,
    };
    let frame = sse::begin(out, number);
    envelope.open_result(out);
    if (wire.event)(out, followed, write) {
        envelope.close(out);
        sse::finish(out, frame);
    } else {
        sse::cancel(out, frame);
    }
}

/// Writes an `event: error` frame (wire §3.5).
fn error_frame(
    out: &mut Vec<u8>,
    envelope: Envelope<'_>,
    wire: &Wire,
    write: &WriteCx<'_>,
    fault: &Fault,
) {
    let frame = sse::error_event(out, None);
    push_error(out, envelope, wire, write, fault);
    sse::finish(out, frame);
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
