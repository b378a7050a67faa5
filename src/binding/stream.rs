//! Streams of events, each event in the envelope of its binding.
//!
//! A stream is a cursor and what its answers are written with. Every event is rendered straight
//! from the task into the output; all that is ready leaves in one piece, and what does not fit
//! under the high-water mark waits in the task, not in memory of the stream.

use std::{ops::Range, task::Waker};

use crate::{
    binding::{
        answer::{AnswerFormat, ResponseWriter},
        envelope::Envelope,
        grpc::{Code, Status, count::EventCount},
        kept_format::KeptFormat,
        responder::Responder,
    },
    dialect::{Encode, EncodeText},
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    json::write::push_u64,
    model::{Generation, RawText, TaskEvent},
    permits::Permit,
    service::{Cursor, Each, Follow, Service, StreamResponse},
    sse,
    ws::{self, OpCode},
};

/// What a subscriber hears when the server ends before its task.
const SUBSCRIBE_AGAIN: &str = "the server is shutting down; subscribe again to go on";

/// How the events of a stream travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFraming {
    /// As server-sent events.
    Sse,
    /// As messages of gRPC, which have no numbers, and a status in the trailers behind them.
    Grpc,
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
    /// What a subscriber counts whose events do not say their numbers.
    count: Option<Box<EventCount>>,
    /// The place among the open streams.
    _permit: Permit,
}

impl EventStream {
    /// A stream about a task that a call of `made` has made. Its head is written, or will have
    /// these fields where it names the first event.
    pub fn new(
        format: &AnswerFormat<'_>,
        (cursor, made): (Cursor, Generation),
        now_ms: u64,
        permit: Permit,
        fields: &mut FieldLinesBuf,
    ) -> EventStream {
        let encode = format.encode_for(made);
        let count = match format.events {
            EventFraming::Sse | EventFraming::Messages { .. } => None,
            EventFraming::Grpc => Some(Box::new(EventCount::new(&cursor, std::mem::take(fields)))),
        };
        let (format, wrote_ms) = (format.keep(), now_ms);
        EventStream { cursor, format, encode, wrote_ms, count, _permit: permit }
    }

    /// Writes what is ready, at most until `out` holds `high_water` bytes.
    ///
    /// On [`Follow::End`] and [`Follow::Gone`] the end of the stream is written, too.
    pub fn poll(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        writer: &mut ResponseWriter<'_>,
        high_water: usize,
    ) -> Follow {
        let EventStream { cursor, format, encode, count, .. } = self;
        let format = AnswerFormat { encode, ..format.get() };
        if let Some(count) = count {
            let follow = |each: &mut Each<'_>| service.follow(cursor, wake, each);
            let follow = poll_counted(count, &format, follow, writer, high_water);
            writer.shows(cursor.record);
            return follow;
        }
        let ResponseWriter { out, responder, record, .. } = writer;
        let mut follow = Follow::Pending;
        responder.piece(out, &mut |out| {
            let mut text_head = None;
            follow = service.follow(cursor, wake, &mut |item| {
                push_item(out, &format, &item, &mut text_head);
                out.len() < high_water
            });
            match follow {
                Follow::End => push_last(out, &format),
                Follow::Gone => {
                    let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
                    push_fault(out, &format, &fault);
                }
                Follow::Pending | Follow::More => {}
            }
        });
        *record = cursor.record.max(*record);
        if matches!(follow, Follow::End | Follow::Gone) {
            responder.finish(out);
        }
        follow
    }

    /// Writes a comment that keeps the connection alive, if events are framed by what has some.
    pub fn keep_alive(&self, writer: &mut ResponseWriter<'_>) {
        match self.format.get().events {
            EventFraming::Sse => {
                let push = &mut |out: &mut Vec<u8>| out.extend_from_slice(sse::KEEP_ALIVE);
                writer.responder.piece(writer.out, push);
            }
            EventFraming::Grpc | EventFraming::Messages { .. } => {}
        }
    }

    /// Ends the stream before its task does, because the server ends, with the error that calls
    /// get which still wait.
    pub fn cut(&self, writer: &mut ResponseWriter<'_>) {
        let fault = Fault::because(FaultKind::ShuttingDown, SUBSCRIBE_AGAIN);
        let format = AnswerFormat { encode: self.encode, ..self.format.get() };
        if self.count.as_ref().is_some_and(|count| count.has_no_head()) {
            return writer.refuse(&format, &fault);
        }
        match format.status(Err(&fault)) {
            Some(status) => writer.trailers(status.fields()),
            None => {
                let ResponseWriter { out, responder, .. } = writer;
                responder.piece(out, &mut |out| push_fault(out, &format, &fault));
            }
        }
        writer.finish();
    }

    /// Goes on behind the event with this number, as the tests of frames ask.
    #[cfg(feature = "test-echo")]
    pub fn go_on_behind(&mut self, seq: u64) {
        (self.cursor.seq, self.cursor.snapshot) = (seq, false);
    }

    /// Bytes behind pointers.
    pub fn held_bytes(&self) -> usize {
        let count = |count: &EventCount| size_of::<EventCount>() + count.held_bytes();
        self.format.held_bytes() + self.count.as_deref().map_or(0, count)
    }
}

/// [`EventStream::poll`] for a subscriber that counts.
fn poll_counted(
    count: &mut EventCount,
    format: &AnswerFormat<'_>,
    follow: impl FnOnce(&mut Each<'_>) -> Follow,
    writer: &mut ResponseWriter<'_>,
    high_water: usize,
) -> Follow {
    let (start, mut is_behind) = (writer.out.len(), false);
    let (envelope, event, write) = (format.envelope, format.encode.event, format.write);
    let out = &mut *writer.out;
    let follow = follow(&mut |item| {
        is_behind = !count.counts(number(&item));
        if !is_behind {
            push_message(out, envelope, |out| event(out, &item, &write));
        }
        !is_behind && out.len() < high_water
    });
    count.write_head(writer, format, start);
    let end = match follow {
        _ if is_behind => {
            let why = "the subscriber fell behind; subscribe again to go on";
            Status::new(Code::Unavailable, why)
        }
        Follow::End => Status::OK,
        Follow::Gone => {
            let fault = Fault::because(FaultKind::TaskNotFound, "the task left the store");
            Status::of(&fault, format.encode)
        }
        Follow::Pending | Follow::More => return follow,
    };
    writer.trailers(end.fields());
    writer.finish();
    if is_behind { Follow::Gone } else { follow }
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
    push_item(out, format, item, &mut None);
    push_last(out, format);
}

/// Writes one item in its envelope alone, if `write` has a form for it.
#[inline(always)]
fn push_message(
    out: &mut Vec<u8>,
    envelope: Envelope<'_>,
    write: impl FnOnce(&mut Vec<u8>) -> bool,
) {
    let start = out.len();
    envelope.open_result(out);
    match write(out) {
        true => envelope.close(out, start),
        false => out.truncate(start),
    }
}

/// The number of an item in its task, if it has one.
#[inline(always)]
fn number(item: &StreamResponse<'_>) -> Option<u64> {
    match item {
        StreamResponse::Snapshot(view) => Some(view.seq()),
        StreamResponse::Event { seq, .. } => Some(*seq),
        StreamResponse::Message { .. } => None,
    }
}

/// Where the output of one poll has the beginning of the newest piece of text, which the next one
/// repeats if it is of the same artifact.
struct TextHead {
    /// From the envelope to the text.
    at: Range<usize>,
    artifact_id: Range<usize>,
}

/// Writes one item, if the dialect has a form for it.
#[inline(always)]
fn push_item(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
    text_head: &mut Option<TextHead>,
) {
    let (number, start) = (number(item), out.len());
    let AnswerFormat { envelope, encode, .. } = *format;
    match format.events {
        EventFraming::Grpc => {
            push_message(out, envelope, |out| (encode.event)(out, item, &format.write));
        }
        EventFraming::Sse => {
            let frame = sse::begin(out, number);
            match push_result(out, format, item, text_head) {
                Pushed::Nothing => sse::cancel(out, frame),
                Pushed::Text => {
                    envelope.close(out, start);
                    // Raw text has no control characters.
                    sse::finish_line(out, frame);
                }
                Pushed::Json => {
                    envelope.close(out, start);
                    sse::finish(out, frame);
                }
            }
        }
        EventFraming::Messages { event_ids } => {
            let frame = ws::begin(out);
            if let Pushed::Nothing = push_result(out, format, item, text_head) {
                return ws::cancel(out, frame);
            }
            if let Some(number) = number.filter(|_| event_ids) {
                out.extend_from_slice(b",\"eventId\":");
                push_u64(out, number);
            }
            envelope.close(out, start);
            if !ws::finish(out, frame, OpCode::Text) {
                // What was to be repeated is not where it was.
                *text_head = None;
            }
        }
    }
}

/// What was written of an item.
enum Pushed {
    /// The dialect has nothing to say about it.
    Nothing,
    /// A piece of text.
    Text,
    /// Anything else.
    Json,
}

/// Opens the envelope and writes an item into it.
#[inline(always)]
fn push_result(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
    text_head: &mut Option<TextHead>,
) -> Pushed {
    if let StreamResponse::Event { event, task_id, context_id, .. } = item
        && let TaskEvent::Artifact { artifact, append, last_chunk, metadata: None } = *event
        && let Some(encode) = &format.encode.text
        && let Some((id, text)) = artifact.as_text()
    {
        let at = out.len();
        match text_head {
            Some(before) if out[before.artifact_id.clone()] == *id.raw() => {
                let by = at - before.at.start;
                out.extend_from_within(before.at.clone());
                before.at = at..out.len();
                before.artifact_id = before.artifact_id.start + by..before.artifact_id.end + by;
            }
            _ => {
                *text_head = Some(push_text_head(out, format, encode, (*task_id, *context_id), id))
            }
        }
        out.extend_from_slice(text.raw());
        out.extend_from_slice(encode.tail(append, last_chunk));
        return Pushed::Text;
    }
    format.envelope.open_result(out);
    match (format.encode.event)(out, item, &format.write) {
        true => Pushed::Json,
        false => Pushed::Nothing,
    }
}

#[inline(never)]
fn push_text_head(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    encode: &EncodeText,
    (task_id, context_id): (RawText<'_>, RawText<'_>),
    artifact_id: RawText<'_>,
) -> TextHead {
    let start = out.len();
    format.envelope.open_result(out);
    (encode.head)(out, task_id, context_id);
    let id = out.len();
    out.extend_from_slice(artifact_id.raw());
    let artifact_id = id..out.len();
    out.extend_from_slice(encode.between);
    TextHead { at: start..out.len(), artifact_id }
}

/// Writes the error that ends a stream: an `event: error` frame, or a message.
fn push_fault(out: &mut Vec<u8>, format: &AnswerFormat<'_>, fault: &Fault) {
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
        // It is in the trailers.
        EventFraming::Grpc => {}
    }
}

/// Writes what comes behind the last event of a stream that is complete: on a WebSocket a result
/// that says so (docs/dialects.md, a2a_rust).
fn push_last(out: &mut Vec<u8>, format: &AnswerFormat<'_>) {
    match format.events {
        EventFraming::Sse | EventFraming::Grpc => {}
        EventFraming::Messages { .. } => {
            let frame = ws::begin(out);
            let start = out.len();
            format.envelope.open_result(out);
            out.extend_from_slice(b"{\"status\":\"stream_complete\"}");
            format.envelope.close(out, start);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}
