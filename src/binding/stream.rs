//! Streams of events, each event in the envelope of its binding.
//!
//! A stream is a cursor and the format of its answers. Every event is written from the task
//! directly into the output. All ready events are one piece of output; events beyond the high-water
//! mark wait in the task and need no memory of the stream.

mod items;

use std::task::Waker;

use crate::{
    auth::{CallerPermit, CallerWatch},
    binding::{
        admission::Admitted,
        answer::{AnswerFormat, OpenedStream, ResponseWriter},
        grpc::{Code, Status, count::EventCount, unwritable},
        kept_format::RetainedFormat,
        observed::{Observed, held_bytes},
        responder::Responder,
    },
    dialect::Encode,
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    permits::Permit,
    service::{Cursor, Each, Follow, Now, Service, observe::CallEnd},
    sse,
};

use items::{number, push_item, push_last, push_message};

pub(super) use items::{push_fault, push_only_fault, push_only_item};

/// The error of a stream if its task ends with the server.
const TASK_ENDS: &str = "the server is shutting down, and the task ends with it";

/// The error of a stream if its credential has expired or was withdrawn.
const EXPIRED: &str = "the credential is no longer valid; subscribe again with a valid one";

/// The framing of a stream's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFraming {
    /// Server-sent events.
    Sse,
    /// gRPC messages without event numbers, then a status in the trailers.
    Grpc,
    /// WebSocket text messages, then a message that ends the stream.
    Messages {
        /// True: each message has the number of its event in addition to the result.
        event_ids: bool,
    },
}

/// A stream for one subscriber.
pub struct EventStream {
    /// The position in the events of the task.
    cursor: Cursor,
    /// The format of the answer.
    format: RetainedFormat,
    /// The writers of events.
    encode: &'static Encode,
    /// When output was last written, in ms of the monotonic clock.
    pub wrote_ms: u64,
    /// The deadline of the subscriber, in ms of the monotonic clock.
    pub due_ms: Option<u64>,
    /// The count of events, if the framing has no event numbers.
    count: Option<Box<EventCount>>,
    /// The permit among all open streams.
    _permit: Permit,
    /// The caller that opened the stream.
    admission: Admitted,
    /// Wakes the stream when the caller's credential is withdrawn.
    watch: Option<Box<CallerWatch>>,
    /// The permit among the caller's streams.
    _caller_permit: Option<CallerPermit>,
    /// When the caller's credential expires, in ms of the monotonic clock.
    pub expires_ms: u64,
    /// The data to report when the stream ends.
    observed: Observed,
}

impl EventStream {
    /// A stream with a written head. Over gRPC the head is written with the first event, and gets
    /// these fields.
    pub fn new(
        format: &AnswerFormat<'_>,
        opened: OpenedStream,
        now_ms: u64,
        permit: Permit,
        fields: &mut FieldLinesBuf,
    ) -> EventStream {
        let OpenedStream { cursor, generation } = opened;
        let encode = format.encode_for(generation);
        let count = match format.events {
            EventFraming::Sse | EventFraming::Messages { .. } => None,
            EventFraming::Grpc => Some(Box::new(EventCount::new(&cursor, std::mem::take(fields)))),
        };
        let (format, wrote_ms) = (format.keep(), now_ms);
        let (admission, expires_ms) = (None, u64::MAX);
        EventStream {
            cursor,
            format,
            encode,
            wrote_ms,
            count,
            _permit: permit,
            admission,
            watch: None,
            _caller_permit: None,
            expires_ms,
            due_ms: None,
            observed: None,
        }
    }

    /// The same stream, with the data to report when it ends.
    #[must_use]
    pub fn observed(mut self, observed: Observed) -> EventStream {
        self.observed = observed;
        self
    }

    /// The same stream, with its caller.
    #[must_use]
    pub fn admitted(
        mut self,
        admission: Admitted,
        caller_permit: Option<CallerPermit>,
        now: Now,
    ) -> EventStream {
        self._caller_permit = caller_permit;
        self.expires_ms = admission.as_ref().map_or(u64::MAX, |by| by.expires_mono_ms(now));
        self.admission = admission;
        self
    }

    /// Whether the credential of the caller is still valid; `wake` is woken when the credential is
    /// withdrawn.
    pub fn is_admitted(&mut self, now: Now, wake: &Waker) -> bool {
        let EventStream { admission, watch, .. } = self;
        admission.as_ref().is_none_or(|by| by.holds_or_wakes(watch, now, wake))
    }

    /// Ends the stream before its task, because the credential is no longer valid. The end looks
    /// like an interruption, so that the client resumes with a valid credential.
    pub fn expire(&mut self, writer: &mut ResponseWriter<'_>) {
        self.observed.iter_mut().for_each(|observed| observed.end_by(CallEnd::Expired));
        let fault = Fault::because(FaultKind::Unauthenticated, EXPIRED);
        let format = AnswerFormat { encode: self.encode, ..self.format.get() };
        if self.count.as_ref().is_some_and(|count| count.has_no_head()) {
            return writer.refuse(&format, &fault);
        }
        if let Some(status) = format.status(Err(&fault)) {
            writer.trailers(status.fields());
        }
        writer.finish();
    }

    /// Writes ready events, until the output has `high_water` bytes.
    ///
    /// On [`Follow::End`] and [`Follow::Gone`] the end of the stream is written, too.
    pub fn poll(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        writer: &mut ResponseWriter<'_>,
        high_water: usize,
    ) -> Follow {
        let before = writer.out.len();
        let (follow, events) = self.write_ready(service, wake, writer, high_water);
        if let Some(observed) = &mut self.observed {
            observed.wrote(writer.out.len() - before);
            observed.followed(events, follow);
        }
        follow
    }

    /// Writes ready events; returns the state of the stream, and the number of events.
    #[inline(always)]
    fn write_ready(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        writer: &mut ResponseWriter<'_>,
        high_water: usize,
    ) -> (Follow, u64) {
        let EventStream { cursor, format, encode, count, observed, .. } = self;
        let format = AnswerFormat { encode, ..format.get() };
        let mut details = observed.as_mut().and_then(|observed| observed.details());
        let mut events = 0;
        if let Some(count) = count {
            let follow = |each: &mut Each<'_>| {
                service.follow(cursor, wake, &mut |item| {
                    events += 1;
                    details.iter_mut().for_each(|details| details.note_item(&item));
                    each(item)
                })
            };
            let follow = poll_counted(count, &format, follow, writer, high_water);
            writer.shows(cursor.record);
            return (follow, events);
        }
        let ResponseWriter { out, responder, record, .. } = writer;
        let mut follow = Follow::Pending;
        responder.piece(out, &mut |out| {
            let mut text_head = None;
            follow = service.follow(cursor, wake, &mut |item| {
                events += 1;
                if let Some(details) = &mut details {
                    details.note_item(&item);
                }
                push_item(out, &format, &item, &mut text_head);
                out.len() < high_water
            });
            match follow {
                Follow::End => push_last(out, &format),
                Follow::Gone => {
                    let fault = Fault::because(
                        FaultKind::TaskNotFound,
                        "the task was evicted from the store",
                    );
                    push_fault(out, &format, &fault);
                }
                Follow::Pending | Follow::More => {}
            }
        });
        *record = cursor.record.max(*record);
        if matches!(follow, Follow::End | Follow::Gone) {
            responder.finish(out);
        }
        (follow, events)
    }

    /// Writes a comment that keeps the connection alive, if the framing has comments.
    pub fn keep_alive(&self, writer: &mut ResponseWriter<'_>) {
        match self.format.get().events {
            EventFraming::Sse => {
                let push = &mut |out: &mut Vec<u8>| out.extend_from_slice(sse::KEEP_ALIVE);
                writer.responder.piece(writer.out, push);
            }
            EventFraming::Grpc | EventFraming::Messages { .. } => {}
        }
    }

    /// Ends the stream before its task with an error, because the server shuts down.
    pub fn cut(&mut self, writer: &mut ResponseWriter<'_>) {
        let fault = Fault::because(FaultKind::ShuttingDown, TASK_ENDS);
        self.give_up(writer, &fault, CallEnd::Cut);
    }

    /// Ends the stream with an error instead of its remaining events, for this reason.
    pub fn give_up(&mut self, writer: &mut ResponseWriter<'_>, fault: &Fault, end: CallEnd) {
        self.observed.iter_mut().for_each(|observed| observed.end_by(end));
        let format = AnswerFormat { encode: self.encode, ..self.format.get() };
        if self.count.as_ref().is_some_and(|count| count.has_no_head()) {
            return writer.refuse(&format, fault);
        }
        match format.status(Err(fault)) {
            Some(status) => writer.trailers(status.fields()),
            None => {
                let ResponseWriter { out, responder, .. } = writer;
                responder.piece(out, &mut |out| push_fault(out, &format, fault));
            }
        }
        writer.finish();
    }

    /// Continues after the event with this number, for framing tests.
    #[cfg(feature = "test-echo")]
    pub fn resume_after(&mut self, seq: u64) {
        (self.cursor.seq, self.cursor.snapshot) = (seq, false);
    }

    /// Bytes of the caller that the connection does not account for.
    pub fn caller_bytes(&self) -> usize {
        self.admission.as_ref().map_or(0, |by| by.counted_bytes())
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        let count = |count: &EventCount| size_of::<EventCount>() + count.held_bytes();
        let observed = held_bytes(&self.observed);
        let observed = observed + self.caller_bytes();
        observed + self.format.held_bytes() + self.count.as_deref().map_or(0, count)
    }
}

/// [`EventStream::poll`] for a subscriber that counts events.
fn poll_counted(
    count: &mut EventCount,
    format: &AnswerFormat<'_>,
    follow: impl FnOnce(&mut Each<'_>) -> Follow,
    writer: &mut ResponseWriter<'_>,
    high_water: usize,
) -> Follow {
    let (start, mut is_lagging, mut unwritable) = (writer.out.len(), false, None);
    let (envelope, event, write) = (format.envelope, format.encode.event, format.write);
    let out = &mut *writer.out;
    let follow = follow(&mut |item| {
        is_lagging = !count.counts(number(&item));
        if is_lagging {
            return false;
        }
        let before = out.len();
        push_message(out, envelope, |out| event(out, &item, &write));
        unwritable = unwritable::take();
        if unwritable.is_some() {
            out.truncate(before);
        }
        unwritable.is_none() && out.len() < high_water
    });
    count.write_head(writer, format, start);
    let (end, follow) = match (follow, unwritable) {
        _ if is_lagging => {
            let why = "the subscriber fell behind; subscribe again to resume";
            (Status::new(Code::Unavailable, why), Follow::Gone)
        }
        (_, Some(fault)) => (Status::of(&fault, format.encode), Follow::Gone),
        (Follow::End, None) => (Status::OK, follow),
        (Follow::Gone, None) => {
            let fault =
                Fault::because(FaultKind::TaskNotFound, "the task was evicted from the store");
            (Status::of(&fault, format.encode), follow)
        }
        (Follow::Pending | Follow::More, None) => return follow,
    };
    writer.trailers(end.fields());
    writer.finish();
    follow
}
