//! Streams of events, each event in the envelope of its binding.
//!
//! A stream is a cursor and what its answers are written with. Every event is rendered straight
//! from the task into the output; all that is ready leaves in one piece, and what does not fit
//! under the high-water mark waits in the task, not in memory of the stream.

use std::task::Waker;

use crate::{
    binding::{
        answer::{AnswerFormat, KeptFormat, ResponseWriter},
        responder::Responder,
    },
    dialect::Encode,
    fault::{Fault, FaultKind},
    json::write::push_u64,
    model::Generation,
    permits::Permit,
    service::{Cursor, Follow, Service, StreamResponse},
    sse,
    ws::{self, OpCode},
};

/// What a subscriber hears when the server ends before its task.
pub const SHUTTING_DOWN: &str = "the server is shutting down; subscribe again to go on";

/// How the events of a stream travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFraming {
    /// As server-sent events.
    Sse,
    /// Each as a text message of a WebSocket, and one more that says that there are no others.
    Messages {
        /// True: beside its result each event has its number.
        event_ids: bool,
    },
}

/// A stream on its way to one subscriber.
pub struct EventStream {
    /// Where it is.
    cursor: Cursor,
    /// What it is written with.
    format: KeptFormat,
    /// The writers of its events.
    encode: &'static Encode,
    /// When something was last written, for keep-alive comments.
    pub wrote_ms: u64,
    /// The place among the open streams.
    _permit: Permit,
}

impl EventStream {
    /// A stream whose head is written, about a task that a call of `made` has made.
    pub fn new(
        format: &AnswerFormat<'_>,
        (cursor, made): (Cursor, Generation),
        now_ms: u64,
        permit: Permit,
    ) -> EventStream {
        let encode = format.encode_for(made);
        EventStream { cursor, format: format.keep(), encode, wrote_ms: now_ms, _permit: permit }
    }

    /// Writes what is ready, at most until `out` holds `high_water` bytes.
    ///
    /// On [`Follow::End`] and [`Follow::Gone`] the end of the stream is written, too.
    pub fn poll(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        ResponseWriter { out, responder, .. }: &mut ResponseWriter<'_>,
        high_water: usize,
    ) -> Follow {
        let EventStream { cursor, format, encode, .. } = self;
        let format = format.get();
        let mut follow = Follow::Pending;
        responder.piece(out, &mut |out| {
            follow = service.follow(cursor, wake, &mut |item| {
                push_item(out, &format, encode, &item);
                out.len() < high_water
            });
            match follow {
                Follow::End => push_last(out, &format),
                Follow::Gone => {
                    let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
                    push_fault(out, &format, encode, &fault);
                }
                Follow::Pending | Follow::More => {}
            }
        });
        if matches!(follow, Follow::End | Follow::Gone) {
            responder.finish(out);
        }
        follow
    }

    /// Writes a comment that keeps the connection alive, if events are framed by what has some.
    pub fn keep_alive(&self, writer: &mut ResponseWriter<'_>) {
        writer.responder.piece(writer.out, &mut |out| out.extend_from_slice(sse::KEEP_ALIVE));
    }

    /// Ends the stream before its task does, because the server ends, with the error that calls
    /// get which still wait.
    pub fn cut(&self, writer: &mut ResponseWriter<'_>) {
        let ResponseWriter { out, responder, .. } = writer;
        let fault = Fault::because(FaultKind::ShuttingDown, SHUTTING_DOWN);
        let format = self.format.get();
        responder.piece(out, &mut |out| push_fault(out, &format, self.encode, &fault));
        responder.finish(out);
    }

    /// Goes on behind the event with this number, as the tests of frames ask.
    #[cfg(feature = "test-echo")]
    pub fn go_on_behind(&mut self, seq: u64) {
        (self.cursor.seq, self.cursor.snapshot) = (seq, false);
    }

    /// Bytes behind pointers.
    pub fn held_bytes(&self) -> usize {
        self.format.held_bytes()
    }
}

/// Writes a stream that consists of one error: an ordinary event, since it is what was asked for.
pub(super) fn push_only_fault(out: &mut Vec<u8>, format: &AnswerFormat<'_>, fault: &Fault) {
    let frame = sse::begin(out, None);
    format.push_fault(out, fault);
    sse::finish(out, frame);
}

/// Writes a stream that consists of one item.
pub(super) fn push_only_item(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
) {
    push_item(out, format, format.encode, item);
    push_last(out, format);
}

/// Writes one item, if the dialect has a form for it.
#[inline(always)]
fn push_item(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    encode: &Encode,
    item: &StreamResponse<'_>,
) {
    let number = match item {
        StreamResponse::Snapshot(view) => Some(view.seq()),
        StreamResponse::Event { seq, .. } => Some(*seq),
        StreamResponse::Message { .. } => None,
    };
    let envelope = format.envelope;
    match format.events {
        EventFraming::Sse => {
            let frame = sse::begin(out, number);
            envelope.open_result(out);
            if (encode.event)(out, item, &format.write) {
                envelope.close(out);
                sse::finish(out, frame);
            } else {
                sse::cancel(out, frame);
            }
        }
        EventFraming::Messages { event_ids } => {
            let frame = ws::begin(out);
            envelope.open_result(out);
            if !(encode.event)(out, item, &format.write) {
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

/// Writes the error that ends a stream: an `event: error` frame, or a message.
fn push_fault(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    encode: &'static Encode,
    fault: &Fault,
) {
    let format = AnswerFormat { encode, ..*format };
    match format.events {
        EventFraming::Sse => {
            let frame = sse::error_event(out, None);
            format.push_fault(out, fault);
            sse::finish(out, frame);
        }
        EventFraming::Messages { .. } => {
            let frame = ws::begin(out);
            format.push_fault(out, fault);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}

/// Writes what comes behind the last event of a stream that is complete: on a WebSocket a result
/// that says so (docs/dialects.md, a2a_rust).
fn push_last(out: &mut Vec<u8>, format: &AnswerFormat<'_>) {
    match format.events {
        EventFraming::Sse => {}
        EventFraming::Messages { .. } => {
            let frame = ws::begin(out);
            format.envelope.open_result(out);
            out.extend_from_slice(b"{\"status\":\"stream_complete\"}");
            format.envelope.close(out);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}
