//! The format of a call's answer, and its writer, for all bindings.
//!
//! An [`AnswerFormat`] is data: an envelope, the writers of a generation, a media type and
//! statuses. A [`ResponseWriter`] writes the outcome of a call in this format, at once or later,
//! through the responder of its transport: a result, a fault, or a stream. While a call waits, no
//! output is written.

use crate::{
    binding::{
        envelope::Envelope,
        grpc::{self, Status},
        responder::{Content, Responder, ResponseHead, STREAM_FIELDS, Transport, retry_after},
        share,
        stream::{self, EventFraming},
    },
    dialect::{Encode, Method, WriteCx},
    fault::{Fault, FaultKind},
    http::{FieldLines, FieldLinesBuf, ReadyResponse, media},
    model::{Generation, Reply},
    service::{Answer, Cursor, Outcome, StreamResponse, WaitHandle},
};

/// The format of one call's answer.
#[derive(Clone, Copy)]
pub struct AnswerFormat<'p> {
    /// The envelope of a result or an error.
    pub envelope: Envelope<'p>,
    /// The called method; `None`: unknown.
    pub method: Option<&'static Method>,
    /// The writers of the method, or of an error without a method.
    pub encode: &'static Encode,
    /// The context of the writers.
    pub write: WriteCx<'p>,
    /// The media type of an answer that is not a stream.
    pub media: &'static str,
    /// Header fields of an answer that is not a stream.
    pub fields: &'static FieldLines<'static>,
    /// The HTTP status of a fault outside a batch or stream.
    pub status: fn(&Fault) -> u16,
    /// The framing of a stream's events.
    pub events: EventFraming,
    /// True: a fault of a streaming call is sent as a stream of one error.
    pub refuses_by_stream: bool,
}

impl<'p> AnswerFormat<'p> {
    /// The writers of an answer.
    #[inline(always)]
    fn encode_of(&self, reply: &Reply<'_>) -> &'static Encode {
        self.method.map_or(self.encode, |method| method.encode_of(reply))
    }

    /// The writers of a stream about a task that a call of generation `made` has created.
    pub fn encode_for(&self, made: Generation) -> &'static Encode {
        self.method.map_or(self.encode, |method| method.encode_for(made))
    }

    /// Whether the call requested a stream.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        self.write.op.is_streaming()
    }

    /// Opens the envelope and appends the reply that `execute` passes. After an answer, the caller
    /// closes the envelope; otherwise it rolls back the output.
    #[inline(always)]
    pub fn push_reply<R>(
        &self,
        out: &mut Vec<u8>,
        execute: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> R {
        self.envelope.open_result(out);
        execute(&mut |reply| (self.encode_of(&reply).reply)(out, &reply, &self.write))
    }

    /// Appends an encoded result in its envelope.
    pub fn push_bytes(&self, out: &mut Vec<u8>, result: &[u8]) {
        let start = out.len();
        self.envelope.open_result(out);
        out.extend_from_slice(result);
        self.envelope.close(out, start);
    }

    /// Appends an error in its envelope.
    pub fn push_fault(&self, out: &mut Vec<u8>, fault: &Fault) {
        let start = out.len();
        self.envelope.open_error(out);
        (self.encode.fault)(out, fault, &self.write);
        self.envelope.close(out, start);
    }

    /// The gRPC status of a call's end; `None`: the binding has no such status.
    #[inline(always)]
    pub fn status(&self, end: Result<(), &Fault>) -> Option<Status> {
        match (self.envelope, end) {
            (Envelope::Rpc(_) | Envelope::Bare, _) => None,
            (Envelope::Grpc { .. }, Ok(())) => Some(Status::OK),
            (Envelope::Grpc { .. }, Err(fault)) => Some(Status::of(fault, self.encode)),
        }
    }
}

/// The outcome of a call that requested a stream.
pub enum Opened {
    /// The answer is complete: a fault, or a stream with one item.
    Answered,
    /// The call waits; no output is written.
    Waits(WaitHandle),
    /// The head of the stream is written; the cursor yields its events.
    Stream(OpenedStream),
}

/// A stream that a call has opened.
pub struct OpenedStream {
    /// The position at which the stream begins.
    pub cursor: Cursor,
    /// The generation of the call that created the task.
    pub generation: Generation,
}

/// Writes the answer of one request.
pub struct ResponseWriter<'x> {
    /// Content is appended here.
    pub out: &'x mut Vec<u8>,
    /// The transport.
    pub responder: Transport<'x>,
    /// Header fields of every answer, such as the extensions in effect.
    pub fields: FieldLinesBuf,
    /// True: no content is written (the request was HEAD).
    pub is_head: bool,
    /// True: the head of the stream was sent in an earlier poll, so a fault is sent as an event.
    pub has_early_head: bool,
    /// The newest record of the tasks that the answer shows; 0: none.
    pub record: u64,
    /// The offset of the current answer's content in `out`.
    content_at: usize,
}

impl<'x> ResponseWriter<'x> {
    /// A writer of an answer without fields.
    #[inline]
    pub fn new(out: &'x mut Vec<u8>, responder: Transport<'x>) -> ResponseWriter<'x> {
        ResponseWriter {
            out,
            responder,
            fields: FieldLinesBuf::default(),
            is_head: false,
            has_early_head: false,
            record: 0,
            content_at: 0,
        }
    }

    /// Notes that the answer shows a task with this last record; 0: the server has no journal.
    #[inline]
    pub fn shows(&mut self, record: u64) {
        self.record = self.record.max(record);
    }

    /// Begins an answer; the caller appends its content.
    #[inline]
    pub fn begin(
        &mut self,
        status: u16,
        media: &'static str,
        fields: FieldLines<'_>,
        content: Content,
    ) {
        let head = ResponseHead { status, media, fields: [fields, self.fields.get()], content };
        self.responder.begin(self.out, &head);
        self.content_at = self.out.len();
    }

    /// Begins a result in this format.
    #[inline(always)]
    fn begin_result(&mut self, format: &AnswerFormat<'_>) {
        if let Transport::Http1(http) = &mut self.responder
            && format.fields.is_empty()
            && self.fields.is_empty()
            && format.media == media::JSON
            && http.begin_json(self.out)
        {
            self.content_at = self.out.len();
            return;
        }
        self.begin(200, format.media, *format.fields, Content::Whole);
    }

    /// Ends an answer.
    #[inline]
    pub fn finish(&mut self) {
        self.responder.finish(self.out);
    }

    /// Sets the trailers of the answer, before it ends; a transport without trailers drops them.
    pub fn trailers(&mut self, trailers: FieldLinesBuf) {
        if let Transport::Parts(parts) = &mut self.responder {
            parts.set_trailers(trailers);
        }
    }

    /// Ends a complete answer in this format.
    #[inline(always)]
    fn end(&mut self, format: &AnswerFormat<'_>) {
        if let Some(status) = format.status(Ok(())) {
            let fault = grpc::unwritable::take();
            let status = fault.map_or(status, |fault| Status::of(&fault, format.encode));
            self.trailers(status.fields());
        }
        self.finish();
    }

    /// Answers with an encoded result.
    pub fn whole(&mut self, format: &AnswerFormat<'_>, result: &[u8]) {
        let content = if self.is_head { Content::Omitted } else { Content::Whole };
        self.begin(200, format.media, *format.fields, content);
        if !self.is_head {
            format.push_bytes(self.out, result);
        }
        self.end(format);
    }

    /// Answers with a prepared response; `fields` are its additional fields.
    pub fn ready(&mut self, ready: &ReadyResponse, fields: FieldLines<'_>) {
        if let Transport::Http1(http) = &mut self.responder
            && self.fields.is_empty()
            && http.put_ready(self.out, ready)
        {
            return;
        }
        self.begin(200, media::JSON, fields, Content::Whole);
        self.out.extend_from_slice(ready.content());
        self.finish();
    }

    /// Rolls back an answer, unless its head was sent.
    pub fn rollback(&mut self) {
        if !self.has_early_head {
            self.responder.rollback(self.out);
        }
    }

    /// Answers without content.
    pub fn empty(&mut self, status: u16, fields: FieldLines<'_>) {
        self.begin(status, "", fields, Content::Whole);
        self.finish();
    }

    /// Answers with a fault.
    #[cold]
    pub fn refuse(&mut self, format: &AnswerFormat<'_>, fault: &Fault) {
        match self.has_early_head {
            true => self.end_stream(format, fault),
            false => self.refuse_under((format.status)(fault), format, fault),
        }
    }

    /// Ends a stream with a fault instead of its items.
    fn end_stream(&mut self, format: &AnswerFormat<'_>, fault: &Fault) {
        let push = match format.refuses_by_stream {
            true => stream::push_only_fault,
            false => stream::push_fault,
        };
        self.responder.piece(self.out, &mut |out| push(out, format, fault));
        self.finish();
    }

    /// Answers with a fault under this HTTP status.
    #[cold]
    pub fn refuse_under(&mut self, status: u16, format: &AnswerFormat<'_>, fault: &Fault) {
        share::push_limit_fields(&mut self.fields, fault);
        if let Some(status) = format.status(Err(fault)) {
            grpc::refuse(self, &status);
            return;
        }
        let retry = retry_after(status, fault.retry_s);
        let fields = FieldLinesBuf::of(&[retry.get(), *format.fields]);
        self.begin(status, format.media, fields.get(), Content::Whole);
        format.push_fault(self.out, fault);
        self.finish();
    }

    /// Begins the single answer of a call, and writes the reply that `execute` passes. The caller
    /// then calls [`ResponseWriter::end_reply`], or rolls the answer back.
    #[inline(always)]
    pub fn begin_reply<R>(
        &mut self,
        format: &AnswerFormat<'_>,
        execute: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> R {
        if self.is_head {
            // The content is not produced: unsent output bounds the number of requests in progress,
            // so a HEAD request must not do work that its output does not show.
            self.begin(200, format.media, *format.fields, Content::Omitted);
            return execute(&mut |_| ());
        }
        self.begin_result(format);
        format.push_reply(self.out, execute)
    }

    /// Ends the answer of [`ResponseWriter::begin_reply`]. A call that waits is returned, and its
    /// output is rolled back.
    #[inline(always)]
    pub fn end_reply(
        &mut self,
        format: &AnswerFormat<'_>,
        outcome: Result<Outcome, Fault>,
    ) -> Option<WaitHandle> {
        if let Ok(Outcome::Answered) = outcome {
            if !self.is_head {
                format.envelope.close(self.out, self.content_at);
            }
            self.end(format);
            return None;
        }
        self.rollback();
        match outcome {
            Ok(Outcome::Pending(wait)) => Some(wait),
            outcome => {
                self.refuse(format, &no_answer(outcome));
                None
            }
        }
    }

    /// Begins a stream, unless its head was sent, and writes the single item that `execute` may
    /// pass. The caller then calls [`ResponseWriter::end_opening`], or rolls the answer back.
    pub fn begin_opening<R>(
        &mut self,
        format: &AnswerFormat<'_>,
        execute: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> R {
        if !self.has_early_head {
            self.begin_stream(format);
        }
        let ResponseWriter { out, responder, .. } = self;
        // A2A 1.0 §3.1.2: a direct message or a finished task is a stream of one event.
        execute(&mut |reply| {
            let item = match reply {
                Reply::Message { message, context_id } => {
                    StreamResponse::Message { message, context_id }
                }
                Reply::Task { view, .. } => StreamResponse::Snapshot(view),
                Reply::PageStart
                | Reply::PageTask { .. }
                | Reply::PageEnd { .. }
                | Reply::Push(_) => return,
            };
            responder.piece(out, &mut |out| stream::push_only_item(out, format, &item));
        })
    }

    /// Writes the head of a stream.
    pub fn begin_stream(&mut self, format: &AnswerFormat<'_>) {
        let (media, fields) = match format.events {
            EventFraming::Sse | EventFraming::Messages { .. } => {
                (media::EVENT_STREAM, STREAM_FIELDS)
            }
            EventFraming::Grpc => (format.media, *format.fields),
        };
        self.begin(200, media, fields, Content::Stream);
    }

    /// Ends the opening of a stream by [`ResponseWriter::begin_opening`]. A failure before the
    /// first event is an ordinary error (A2A 1.0 §3.1.2), except for clients that only read
    /// streams.
    pub fn end_opening(
        &mut self,
        format: &AnswerFormat<'_>,
        outcome: Result<Outcome, Fault>,
    ) -> Opened {
        match outcome {
            Ok(Outcome::Answered) => self.end(format),
            Ok(Outcome::Stream { cursor, generation }) => {
                if let EventFraming::Grpc = format.events {
                    // The head contains the number of the first event, which is not known yet.
                    self.rollback();
                }
                return Opened::Stream(OpenedStream { cursor, generation });
            }
            Ok(Outcome::Pending(wait)) => {
                self.rollback();
                return Opened::Waits(wait);
            }
            Err(fault) if format.refuses_by_stream => self.end_stream(format, &fault),
            Err(fault) => {
                self.rollback();
                self.refuse(format, &fault);
            }
        }
        Opened::Answered
    }
}

/// The fault of a call that neither waits nor was answered: the fault in `outcome`, or an internal
/// error if the service opened a stream that was not requested.
pub(super) fn no_answer(outcome: Result<Outcome, Fault>) -> Fault {
    outcome.err().unwrap_or_else(|| {
        Fault::because(FaultKind::Internal, "the service opened a stream that was not requested")
    })
}
