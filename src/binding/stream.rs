//! Streams of events, each event in the envelope of its binding.
//!
//! A stream is a cursor and what its answers are written with. Every event is rendered straight
//! from the task into the output; all that is ready leaves in one piece, and what does not fit
//! under the high-water mark waits in the task, not in memory of the stream.

mod items;

use std::task::Waker;

use crate::{
    auth::{CallerPlace, CallerWatch},
    binding::{
        admission::Admitted,
        answer::{AnswerFormat, ResponseWriter},
        grpc::{Code, Status, count::EventCount, unwritable},
        kept_format::KeptFormat,
        observed::{Observed, held_bytes},
        responder::Responder,
    },
    dialect::Encode,
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    model::Generation,
    permits::Permit,
    service::{Cursor, Each, Follow, Now, Service, observe::CallEnd},
    sse,
};

use items::{number, push_item, push_last, push_message};

pub(super) use items::{push_fault, push_only_fault, push_only_item};

/// What a subscriber hears when the server ends before its task.
const TASK_ENDS: &str = "the server is shutting down, and the task ends with it";

/// What a subscriber hears whose credential has ended before its stream.
const EXPIRED: &str = "the credential is no longer valid; subscribe again with a valid one";

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
    /// When the subscriber no longer wants it, in ms of the monotonic clock.
    pub due_ms: Option<u64>,
    /// What a subscriber counts whose events do not say their numbers.
    count: Option<Box<EventCount>>,
    /// The place among the open streams.
    _permit: Permit,
    /// The caller that opened it.
    admission: Admitted,
    /// Wakes it when the credential of that caller is withdrawn.
    watch: Option<Box<CallerWatch>>,
    /// The place among that caller's streams.
    _place: Option<CallerPlace>,
    /// When the credential ends by which it was opened, in ms of the monotonic clock.
    pub expires_ms: u64,
    /// What is told when it ends.
    observed: Observed,
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
            _place: None,
            expires_ms,
            due_ms: None,
            observed: None,
        }
    }

    /// The same, of which this is told when it ends.
    #[must_use]
    pub fn observed(mut self, observed: Observed) -> EventStream {
        self.observed = observed;
        self
    }

    /// The same, with its caller.
    #[must_use]
    pub fn admitted(
        mut self,
        admission: Admitted,
        place: Option<CallerPlace>,
        now: Now,
    ) -> EventStream {
        self._place = place;
        self.expires_ms = admission.as_ref().map_or(u64::MAX, |by| by.expires_mono_ms(now));
        self.admission = admission;
        self
    }

    /// Whether the credential still holds by which it was opened; `wake` is woken when it is
    /// withdrawn.
    pub fn is_admitted(&mut self, now: Now, wake: &Waker) -> bool {
        let EventStream { admission, watch, .. } = self;
        admission.as_ref().is_none_or(|by| by.holds_or_wakes(watch, now, wake))
    }

    /// Ends the stream before its task does, because its credential has ended: as a connection that
    /// is cut would, so that the client comes back, with a credential that holds.
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
        let before = writer.out.len();
        let (follow, events) = self.write_ready(service, wake, writer, high_water);
        if let Some(observed) = &mut self.observed {
            observed.wrote(writer.out.len() - before);
            observed.followed(events, follow);
        }
        follow
    }

    /// Writes what is ready; says what may follow, and how many events were taken.
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
    pub fn cut(&mut self, writer: &mut ResponseWriter<'_>) {
        let fault = Fault::because(FaultKind::ShuttingDown, TASK_ENDS);
        self.give_up(writer, &fault, CallEnd::Cut);
    }

    /// Ends the stream with an error in place of what has not been said, for this reason.
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

    /// Goes on behind the event with this number, as the tests of frames ask.
    #[cfg(feature = "test-echo")]
    pub fn go_on_behind(&mut self, seq: u64) {
        (self.cursor.seq, self.cursor.snapshot) = (seq, false);
    }

    /// Bytes of its caller beyond those that a connection has for one.
    pub fn caller_bytes(&self) -> usize {
        self.admission.as_ref().map_or(0, |by| by.counted_bytes())
    }

    /// Bytes behind pointers.
    pub fn held_bytes(&self) -> usize {
        let count = |count: &EventCount| size_of::<EventCount>() + count.held_bytes();
        let observed = held_bytes(&self.observed);
        let observed = observed + self.caller_bytes();
        observed + self.format.held_bytes() + self.count.as_deref().map_or(0, count)
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
    let (start, mut is_behind, mut unwritable) = (writer.out.len(), false, None);
    let (envelope, event, write) = (format.envelope, format.encode.event, format.write);
    let out = &mut *writer.out;
    let follow = follow(&mut |item| {
        is_behind = !count.counts(number(&item));
        if is_behind {
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
        _ if is_behind => {
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
