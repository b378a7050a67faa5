//! The pipeline: a call that was decoded is made, and answered, left pending, or becomes a stream.
//!
//! Law: JSON-RPC and HTTP+JSON decode a request into a call and the format of its answer, and hand
//! both to [`CallContext::answer`]; what happens then is the same for both. gRPC has a pipeline of
//! its own (`grpc`).

use std::{borrow::Cow, cell::Cell, task::Waker};

use crate::{
    binding::{
        CallScratch, Endpoint, Handled, ServerConfig,
        answer::{AnswerFormat, Opened, ResponseWriter, no_answer},
        cards,
        negotiation::last_event_id,
        origin::Origin,
        pending::{PendingBatch, PendingCall, PendingResponse},
        responder::Content,
        stream::EventStream,
        ws::Upgrade,
    },
    dialect::{Method, ReadCx, WriteCx},
    fault::Fault,
    http::{Head, ResponseFieldsBuf},
    json::Value,
    model::{Call, Op, uuid},
    service::{CallCx, Caller, Now, Outcome, Peer, Scope, Service},
};

/// One request and everything needed to answer it.
pub struct CallContext<'x> {
    /// The waist.
    pub service: &'x dyn Service,
    /// Mounts, agents and settings.
    pub config: &'x ServerConfig,
    /// What the worker reuses.
    pub scratch: &'x mut CallScratch,
    /// Where the answer goes.
    pub writer: ResponseWriter<'x>,
    /// The time.
    pub now: Now,
    /// Woken when a pending call or a stream may go on.
    pub wake: &'x Waker,
    /// What is known of the other side.
    pub peer: Peer<'x>,
    /// Who speaks and who answers, once that is known.
    pub endpoint: Endpoint,
    /// The path of the endpoint, without a slash at its end.
    pub base: &'x str,
    /// Where the request came from.
    pub source: RequestSource<'x>,
    /// True: the connection closes behind the answer.
    pub closes: bool,
    /// The extensions that it asks for, comma separated.
    pub extensions: Option<Cow<'x, str>>,
}

/// Where a request came from, and what was said beside its body: by its own head, or once for all
/// messages by the head that opened their WebSocket.
#[derive(Clone, Copy)]
pub enum RequestSource<'x> {
    /// A request of HTTP.
    Http(&'x Head<'x>),
    /// A message of a WebSocket.
    WebSocket {
        /// How it was opened.
        upgrade: &'x Upgrade,
        /// True: as many of its requests wait as may.
        is_full: bool,
    },
}

/// What a call says that its answer is written with.
pub(super) fn write_cx<'p>(method: &Method, call: &Call<'p>, now: Now) -> WriteCx<'p> {
    let (task_id, history) = match call {
        Call::Send(send) => (send.task_id.unwrap_or_default().raw(), send.history),
        Call::Get(_) | Call::List(_) | Call::Cancel(_) => (&[][..], None),
        Call::Subscribe(_) | Call::Push(_) | Call::ExtendedCard => (&[][..], None),
    };
    WriteCx { op: method.op, task_id, history, unix_ms: now.unix_ms }
}

impl<'x> CallContext<'x> {
    /// The last event that a returning subscriber has seen, if it was said beside the params.
    pub fn last_event_id(&self) -> Option<u64> {
        match self.source {
            RequestSource::Http(head) => last_event_id(head),
            RequestSource::WebSocket { .. } => None,
        }
    }

    /// Where the client asked.
    fn origin(&self) -> Origin<'x> {
        match self.source {
            RequestSource::Http(head) => Origin::of(self.config, self.peer, head),
            RequestSource::WebSocket { upgrade, .. } => upgrade.origin(),
        }
    }

    /// The call that params are read into with this method; `task` is the id in a path.
    ///
    /// # Errors
    /// The fault of the reader.
    #[inline(always)]
    pub fn decode<'p>(
        &mut self,
        method: &'static Method,
        task: Option<&[u8]>,
        params: Option<Value<'p>>,
        pack: &'p mut Vec<u8>,
    ) -> Result<Call<'p>, Fault> {
        let (config, dialect) = (self.config, self.endpoint.dialect);
        let after = (method.op == Op::Subscribe).then(|| self.last_event_id());
        let fresh_id = &self.scratch.fresh_id;
        let cx = ReadCx {
            op: method.op,
            limits: &config.limits,
            fresh_id: config.fresh_id(dialect, method.generation(), fresh_id),
            after: after.flatten(),
            task,
            tokens: Cell::default(),
        };
        let call = (method.wire.decode)(&cx, params, pack)?;
        if let Call::Send(send) = &call
            && send.message.message_id().raw() == fresh_id
        {
            self.scratch.fresh_id = uuid(self.scratch.entropy.bits());
        }
        Ok(call)
    }

    /// Makes a call and answers it.
    #[inline]
    pub fn answer(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) -> Handled {
        if format.is_streaming() {
            return self.open_stream(call, format);
        }
        if let Call::ExtendedCard = call {
            return self.answer_card(format);
        }
        let (service, mut cx, writer) = self.split();
        let outcome = writer.begin_reply(format, |answer| service.call(&mut cx, *call, answer));
        match writer.end_reply(format, outcome) {
            None => Handled::Answered,
            Some(wait) => self.pend(format, vec![PendingCall::new(wait, format)], None),
        }
    }

    /// Makes a call that is answered by a stream.
    fn open_stream(&mut self, call: &Call<'_>, format: &AnswerFormat<'_>) -> Handled {
        let Some(permit) = self.config.streams.permit(self.scratch.worker) else {
            self.writer.refuse(format, &Fault::at_limit("streams_max"));
            return Handled::Answered;
        };
        let (service, mut cx, writer) = self.split();
        let outcome = writer.begin_opening(format, |answer| service.call(&mut cx, *call, answer));
        match writer.end_opening(format, outcome) {
            Opened::Answered => Handled::Answered,
            Opened::Stream(cursor, made) => {
                let at = (cursor, made);
                Handled::Stream(Box::new(EventStream::new(format, at, self.now.mono_ms, permit)))
            }
            Opened::Waits(wait) => {
                let (calls, fields) = (vec![PendingCall::new(wait, format)], self.take_fields());
                Handled::Pending(Box::new(PendingResponse::new(calls, None, fields, permit)))
            }
        }
    }

    /// A2A 1.0 §3.1.11: the card in the pure form of the caller's generation.
    fn answer_card(&mut self, format: &AnswerFormat<'_>) -> Handled {
        match self.extended_card(format) {
            Ok(card) => {
                let content = if self.writer.is_head { Content::LeftOut } else { Content::Whole };
                self.writer.begin(200, format.media, *format.fields, content);
                if !self.writer.is_head {
                    format.push_bytes(self.writer.out, &card);
                }
                self.writer.finish();
            }
            Err(fault) => self.writer.refuse(format, &fault),
        }
        Handled::Answered
    }

    fn extended_card(&self, format: &AnswerFormat<'_>) -> Result<Vec<u8>, Fault> {
        let (service, config) = (self.service, self.config);
        let generation = format.encode.generation;
        cards::extended(service, config, &self.origin(), self.endpoint, self.base, generation)
    }

    /// Makes one call of a batch and appends its answer.
    ///
    /// # Errors
    /// The fault of the call; what was appended is the caller's to take back, as it is for a call
    /// that waits.
    pub fn push_answer(
        &mut self,
        call: &Call<'_>,
        format: &AnswerFormat<'_>,
    ) -> Result<Option<PendingCall>, Fault> {
        if let Call::ExtendedCard = call {
            let card = self.extended_card(format)?;
            format.push_bytes(self.writer.out, &card);
            return Ok(None);
        }
        let (service, mut cx, writer) = self.split();
        let outcome = format.push_reply(writer.out, |answer| service.call(&mut cx, *call, answer));
        match outcome {
            Ok(Outcome::Answered) => {
                format.envelope.close(writer.out);
                Ok(None)
            }
            Ok(Outcome::Pending(wait)) => Ok(Some(PendingCall::new(wait, format))),
            outcome => Err(no_answer(outcome)),
        }
    }

    /// Makes a call of which nobody wants to know what became of it (JSON-RPC 2.0 §4.1): an answer
    /// is not even written, since a batch could ask for far more than it may be given.
    pub fn call_silently(&mut self, call: &Call<'_>) {
        let (service, mut cx, _) = self.split();
        if !matches!(call, Call::ExtendedCard) {
            let _ = service.call(&mut cx, *call, &mut |_| ());
        }
    }

    /// Leaves calls waiting, if they may.
    pub fn pend(
        &mut self,
        format: &AnswerFormat<'_>,
        calls: Vec<PendingCall>,
        batch: Option<PendingBatch>,
    ) -> Handled {
        match self.config.parked.permit(self.scratch.worker) {
            Some(permit) => {
                let fields = self.take_fields();
                Handled::Pending(Box::new(PendingResponse::new(calls, batch, fields, permit)))
            }
            None => {
                self.writer.refuse(format, &Fault::at_limit("connections_max"));
                Handled::Answered
            }
        }
    }

    fn take_fields(&mut self) -> ResponseFieldsBuf {
        std::mem::take(&mut self.writer.fields)
    }

    /// The service, what it may use, and where it answers.
    #[inline(always)]
    fn split(&mut self) -> (&'x dyn Service, CallCx<'_>, &mut ResponseWriter<'x>) {
        let CallScratch { worker, events, entropy, .. } = &mut *self.scratch;
        let caller = Caller {
            scope: Scope::of(self.endpoint.agent),
            worker: *worker,
            extensions: self.extensions.as_deref(),
            identity: self.peer.identity,
        };
        let (now, wake, entropy) = (self.now, self.wake, entropy.as_mut());
        let held_bytes = &*self.config.held_bytes;
        (self.service, CallCx { caller, now, wake, entropy, events, held_bytes }, &mut self.writer)
    }
}
