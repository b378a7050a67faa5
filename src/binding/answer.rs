//! How the answer of one call is spelled and written: the same for every binding.
//!
//! An [`AnswerFormat`] is data: an envelope, the writers of a generation, a media type, statuses. A
//! [`ResponseWriter`] writes in it what became of a call, at once or later, through the responder
//! of its transport: a result, a fault, or a stream. Nothing is written of a call that waits.

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

/// What the answer of one call is written with.
#[derive(Clone, Copy)]
pub struct AnswerFormat<'p> {
    /// What stands around a result or an error.
    pub envelope: Envelope<'p>,
    /// The method that was called; `None`: none that is known.
    pub method: Option<&'static Method>,
    /// The writers of the method, or of an error without one.
    pub encode: &'static Encode,
    /// What they may use beside the answer.
    pub write: WriteCx<'p>,
    /// The media type of an answer that is no stream.
    pub media: &'static str,
    /// Fields of such an answer.
    pub fields: &'static FieldLines<'static>,
    /// The HTTP status of a fault that is answered alone.
    pub status: fn(&Fault) -> u16,
    /// How the events of a stream travel.
    pub events: EventFraming,
    /// True: what is refused of a streaming call is a stream of one error.
    pub refuses_by_stream: bool,
}

impl<'p> AnswerFormat<'p> {
    /// The writers of an answer.
    #[inline(always)]
    fn encode_of(&self, reply: &Reply<'_>) -> &'static Encode {
        self.method.map_or(self.encode, |method| method.encode_of(reply))
    }

    /// The writers of a stream about a task that a call of `made` has made.
    pub fn encode_for(&self, made: Generation) -> &'static Encode {
        self.method.map_or(self.encode, |method| method.encode_for(made))
    }

    /// Whether the call asked for a stream.
    #[inline]
    pub fn is_streaming(&self) -> bool {
        self.write.op.is_streaming()
    }

    /// Opens the envelope and appends what `ask` gives. Behind an answer the caller closes it; of
    /// anything else nothing is worth keeping.
    #[inline(always)]
    pub fn push_reply<R>(&self, out: &mut Vec<u8>, ask: impl FnOnce(&mut Answer<'_>) -> R) -> R {
        self.envelope.open_result(out);
        ask(&mut |reply| (self.encode_of(&reply).reply)(out, &reply, &self.write))
    }

    /// Appends a result that is written already, in its envelope.
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

    /// The status of gRPC that says how a call has ended; `None`: the binding has no such thing.
    #[inline(always)]
    pub fn status(&self, end: Result<(), &Fault>) -> Option<Status> {
        match (self.envelope, end) {
            (Envelope::Rpc(_) | Envelope::Bare, _) => None,
            (Envelope::Grpc { .. }, Ok(())) => Some(Status::OK),
            (Envelope::Grpc { .. }, Err(fault)) => Some(Status::of(fault, self.encode)),
        }
    }
}

/// What became of a call that asked for a stream.
pub enum Opened {
    /// The answer is complete: a fault, or a stream of one item.
    Answered,
    /// Nothing is written: the call waits.
    Waits(WaitHandle),
    /// The head of the stream is written; the cursor brings its events.
    Stream(Cursor, Generation),
}

/// Where the answer of one request goes.
pub struct ResponseWriter<'x> {
    /// Content is appended here.
    pub out: &'x mut Vec<u8>,
    /// The transport.
    pub responder: Transport<'x>,
    /// Fields of whatever is answered: the extensions in effect.
    pub fields: FieldLinesBuf,
    /// True: content is not even made (the request was HEAD).
    pub is_head: bool,
    /// True: the head of the stream has left in an earlier turn, so what is refused is an event.
    pub has_early_head: bool,
    /// The newest record of the tasks that the answer shows; 0: there is none.
    pub record: u64,
    /// Where the content of what was begun begins.
    content_at: usize,
}

impl<'x> ResponseWriter<'x> {
    /// A writer of an answer that has no fields yet.
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

    /// Notes that the answer shows a task whose last record is this one; 0: there is no journal.
    #[inline]
    pub fn shows(&mut self, record: u64) {
        self.record = self.record.max(record);
    }

    /// Begins an answer whose content the caller appends.
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

    /// Begins an answer that is a result in this format.
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

    /// Says what comes behind the content of the answer, before it ends; a transport that has no
    /// trailers leaves them out.
    pub fn trailers(&mut self, trailers: FieldLinesBuf) {
        if let Transport::Parts(parts) = &mut self.responder {
            parts.set_trailers(trailers);
        }
    }

    /// Ends an answer in this format that is complete.
    #[inline(always)]
    fn end(&mut self, format: &AnswerFormat<'_>) {
        if let Some(status) = format.status(Ok(())) {
            let fault = grpc::unwritable::take();
            let status = fault.map_or(status, |fault| Status::of(&fault, format.encode));
            self.trailers(status.fields());
        }
        self.finish();
    }

    /// Answers with a result that is written already.
    pub fn whole(&mut self, format: &AnswerFormat<'_>, result: &[u8]) {
        let content = if self.is_head { Content::LeftOut } else { Content::Whole };
        self.begin(200, format.media, *format.fields, content);
        if !self.is_head {
            format.push_bytes(self.out, result);
        }
        self.end(format);
    }

    /// Answers with what was written before; these are its fields.
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

    /// Takes an answer back, but for a head that has left.
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

    /// Ends a stream with a fault in place of its items.
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
        share::name_taken(&mut self.fields, fault);
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

    /// Begins the one answer of a call, and writes it as far as `ask` gives it. The caller then
    /// ends it by [`ResponseWriter::end_reply`], or takes it back.
    #[inline(always)]
    pub fn begin_reply<R>(
        &mut self,
        format: &AnswerFormat<'_>,
        ask: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> R {
        if self.is_head {
            // A page may be long: what a request costs is to show in the output, which bounds how
            // many are answered at a time.
            self.begin(200, format.media, *format.fields, Content::LeftOut);
            return ask(&mut |_| ());
        }
        self.begin_result(format);
        format.push_reply(self.out, ask)
    }

    /// Ends what [`ResponseWriter::begin_reply`] began; a call that waits is given back, and
    /// nothing of it is written.
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

    /// Begins a stream, unless its head has left, and writes the one item that `ask` may give. The
    /// caller then ends the beginning by [`ResponseWriter::end_opening`], or takes it back.
    pub fn begin_opening<R>(
        &mut self,
        format: &AnswerFormat<'_>,
        ask: impl FnOnce(&mut Answer<'_>) -> R,
    ) -> R {
        if !self.has_early_head {
            self.begin_stream(format);
        }
        let ResponseWriter { out, responder, .. } = self;
        // A2A 1.0 §3.1.2: a direct message is a stream of one event, and so is a finished task.
        ask(&mut |reply| {
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

    /// Begins a stream: its head.
    pub fn begin_stream(&mut self, format: &AnswerFormat<'_>) {
        let (media, fields) = match format.events {
            EventFraming::Sse | EventFraming::Messages { .. } => {
                (media::EVENT_STREAM, STREAM_FIELDS)
            }
            EventFraming::Grpc => (format.media, *format.fields),
        };
        self.begin(200, media, fields, Content::Stream);
    }

    /// Ends what [`ResponseWriter::begin_opening`] began. What fails before the first event is an
    /// ordinary error (A2A 1.0 §3.1.2), but for clients that read nothing but streams.
    pub fn end_opening(
        &mut self,
        format: &AnswerFormat<'_>,
        outcome: Result<Outcome, Fault>,
    ) -> Opened {
        match outcome {
            Ok(Outcome::Answered) => self.end(format),
            Ok(Outcome::Stream { cursor, generation }) => {
                if let EventFraming::Grpc = format.events {
                    // Its head names the first event, which is not known yet.
                    self.rollback();
                }
                return Opened::Stream(cursor, generation);
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

/// Why a call that neither waits nor was answered has no answer: a fault, or a service that opens
/// a stream where none was asked for.
pub(super) fn no_answer(outcome: Result<Outcome, Fault>) -> Fault {
    outcome.err().unwrap_or_else(|| {
        Fault::because(FaultKind::Internal, "the service opened a stream for a call without one")
    })
}
