//! JSON-RPC over HTTP POST: one call or a batch in, one response, a batch or a stream out.
//!
//! The body is parsed once. Whatever can go wrong with a call is answered with its id, in the
//! spelling of its generation, and leaves the connection as it was.

use std::{borrow::Cow, task::Waker};

use smallvec::SmallVec;

use crate::{
    binding::{
        Exchange, Handled, Parked, Scratch, Site, cards,
        parked::{JSON, ParkedCall, finish_with},
        site::Permit,
        stream::{self, Pump},
    },
    dialect::{Dialect, Method, ReadCx, Wire, WriteCx, card::CardForm, version},
    fault::{Fault, FaultKind},
    http::{self, Field, Head, Version, query, response},
    json::{JsonError, Kind, Value},
    model::{Call, EventBuf, Generation, Op, Reply, SendMode, uuid},
    rpc,
    service::{AgentIndex, CallCx, Caller, Entropy, Followed, Now, Outcome, Service},
    sse,
};

/// Who speaks and who answers at the path of a request.
#[derive(Clone, Copy)]
pub struct Place {
    /// Who speaks.
    pub dialect: &'static Dialect,
    /// Who answers.
    pub agent: AgentIndex,
}

/// Handles the body of a POST to an RPC path.
pub fn handle(x: &mut Exchange<'_>, place: Place, body: &[u8]) -> Handled {
    let date = x.scratch.date(x.now);
    if !x.head.value(Field::ContentType).is_none_or(is_json) {
        let detail = "the body must be application/json";
        let fault = Fault::because(FaultKind::ContentTypeNotSupported, detail);
        let (dialect, status) = (place.dialect, place.dialect.quirks.media_http);
        answer_fault(x.out, &date, x.close, dialect, Known::NOTHING, &fault, status);
        return Handled::Answered;
    }
    let asked = asked_version(x.head);
    let extensions = joined_extensions(x.head);
    let Scratch { parser, pack, events, entropy, fresh_id, worker, .. } = &mut *x.scratch;
    let mut desk = Desk {
        place,
        service: x.service,
        site: x.site,
        pack,
        events,
        entropy: entropy.as_mut(),
        fresh_id,
        worker: *worker,
        out: x.out,
        now: x.now,
        wake: x.wake,
        head: x.head,
        asked,
        extensions,
        date,
        close: x.close,
    };
    // The envelope's levels, and a batch's, are not the peer's to spend.
    match parser.parse(body, desk.site.limits.json_depth_max + 2) {
        Ok(value) if value.kind() == Kind::Array => desk.batch(value),
        Ok(value) => desk.single(value),
        Err(error) => desk.fault(Known::NOTHING, &parse_fault(error)),
    }
}

/// A2A 1.0 §3.6.1: the version is a header, or else a query parameter of the same name.
fn asked_version<'h>(head: &Head<'h>) -> Option<Cow<'h, [u8]>> {
    if let Some(value) = head.value(Field::A2aVersion) {
        return Some(Cow::Borrowed(value));
    }
    let mut pairs = query::pairs(head.query()?).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version"))?;
    Some(match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    })
}

/// `application/json`, with parameters, or a type with the `+json` suffix (RFC 6839 §3.1).
fn is_json(value: &[u8]) -> bool {
    let media = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    media.eq_ignore_ascii_case(b"application/json")
        || (media.len() > 17
            && media[..12].eq_ignore_ascii_case(b"application/")
            && media[media.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

/// RFC 9110 §5.3: repeated extension headers are one list (wire §1.8).
fn joined_extensions(head: &Head<'_>) -> Option<String> {
    head.value(Field::A2aExtensions).or(head.value(Field::XA2aExtensions))?;
    let values = head.values("a2a-extensions").chain(head.values("x-a2a-extensions"));
    let values: Vec<_> = values.map(String::from_utf8_lossy).collect();
    Some(values.join(","))
}

/// Answers a path-level problem with a JSON-RPC error under `status`.
pub fn refuse_path(x: &mut Exchange<'_>, status: u16, detail: &'static str) {
    let date = x.scratch.date(x.now);
    refuse_http(x.out, status, detail, &date, b"", x.close, x.head.method() == http::Method::Head);
}

/// Writes a JSON-RPC error with a null id under an HTTP status of its own: what peers get for
/// trouble below JSON-RPC. For HEAD the content is left out (RFC 9110 §9.3.2).
pub fn refuse_http(
    out: &mut Vec<u8>,
    status: u16,
    detail: &'static str,
    date: &[u8; 29],
    extra: &[u8],
    close: bool,
    head_only: bool,
) {
    let mark = response::begin(out, status, JSON, date, extra, close);
    rpc::open_error(out, rpc::NULL_ID);
    out.extend_from_slice(b"{\"code\":-32600,\"message\":");
    crate::json::write::push_string(out, detail);
    out.push(b'}');
    rpc::close(out);
    if head_only {
        response::finish_head_only(out, mark);
    } else {
        response::finish(out, mark);
    }
}

/// What is known of a request that is refused.
#[derive(Clone, Copy)]
struct Known<'p> {
    id: &'p [u8],
    /// Who writes the fault.
    wire: Option<&'static Wire>,
    op: Op,
}

impl Known<'_> {
    const NOTHING: Known<'static> = Known { id: rpc::NULL_ID, wire: None, op: Op::Send };
}

/// Writes a response that holds one error, under an HTTP status.
fn answer_fault(
    out: &mut Vec<u8>,
    date: &[u8; 29],
    close: bool,
    dialect: &Dialect,
    known: Known<'_>,
    fault: &Fault,
    status: u16,
) {
    let mark = response::begin(out, 200, JSON, date, b"", close);
    push_fault(out, dialect, known, fault);
    finish_with(out, mark, status, date, b"", close);
}

fn push_fault(out: &mut Vec<u8>, dialect: &Dialect, known: Known<'_>, fault: &Fault) {
    let wire = known.wire.unwrap_or_else(|| dialect.fault_wire(b""));
    rpc::open_error(out, known.id);
    (wire.fault)(out, fault, &WriteCx::new(known.op));
    rpc::close(out);
}

fn parse_fault(error: JsonError) -> Fault {
    match error {
        JsonError::Empty => Fault::because(FaultKind::Parse, "the body is empty"),
        JsonError::Syntax { offset } => {
            Fault::because(FaultKind::Parse, format!("invalid JSON at byte {offset}"))
        }
        JsonError::Range { .. } => Fault::because(FaultKind::Parse, error.to_string()),
        JsonError::Utf8 => Fault::because(FaultKind::Parse, "the body is not UTF-8"),
        JsonError::Depth => Fault::because(FaultKind::InvalidRequest, "nested too deep"),
        JsonError::TooLarge => Fault::because(FaultKind::InvalidRequest, "the body is too large"),
    }
}

/// A call that was understood.
struct Ready<'p> {
    id: &'p [u8],
    /// True: done, but not answered.
    is_silent: bool,
    method: &'static Method,
    call: Call<'p>,
}

impl<'p> Ready<'p> {
    fn known(&self) -> Known<'p> {
        Known { id: self.id, wire: Some(self.method.wire), op: self.method.op }
    }

    fn write_cx(&self, now: Now) -> WriteCx<'p> {
        let (task_id, history) = match &self.call {
            Call::Send(send) => (send.task_id.unwrap_or_default(), send.history),
            Call::Get(_) | Call::List(_) | Call::Cancel(_) => (&[][..], None),
            Call::Subscribe(_) | Call::Push(_) | Call::ExtendedCard => (&[][..], None),
        };
        WriteCx { op: self.method.op, task_id, history, unix_ms: now.unix_ms }
    }
}

/// Why there is nothing to call.
enum Unready<'p> {
    /// A notification: nobody hears what is wrong with it.
    Silent,
    /// What to answer instead.
    Refused(Known<'p>, Fault),
}

/// What became of one element of a batch.
enum Element {
    /// Its answer is written.
    Written,
    /// It needs no answer.
    Silent,
    /// It waits.
    Waits(ParkedCall),
}

/// The parts of an exchange that a call needs, so that they can be borrowed side by side.
struct Desk<'d> {
    place: Place,
    service: &'d dyn Service,
    site: &'d Site,
    pack: &'d mut Vec<u8>,
    events: &'d mut EventBuf,
    entropy: &'d mut (dyn Entropy + Send),
    fresh_id: &'d mut [u8; 36],
    worker: usize,
    out: &'d mut Vec<u8>,
    now: Now,
    wake: &'d Waker,
    head: &'d Head<'d>,
    asked: Option<Cow<'d, [u8]>>,
    extensions: Option<String>,
    date: [u8; 29],
    close: bool,
}

impl Desk<'_> {
    fn fault(&mut self, known: Known<'_>, fault: &Fault) -> Handled {
        let (dialect, date) = (self.place.dialect, &self.date);
        let status = (dialect.quirks.fault_http)(fault);
        answer_fault(self.out, date, self.close, dialect, known, fault, status);
        Handled::Answered
    }

    /// Answers one request object.
    fn single(&mut self, value: Value<'_>) -> Handled {
        let mut pack = std::mem::take(self.pack);
        let handled = match self.read(value, false, &mut pack) {
            Ok(ready) if ready.is_silent => {
                self.call_silently(&ready);
                self.no_content()
            }
            Ok(ready) if ready.method.op.is_streaming() => self.stream(&ready),
            Ok(ready) => self.unary(&ready),
            Err(Unready::Silent) => self.no_content(),
            Err(Unready::Refused(known, fault)) => self.fault(known, &fault),
        };
        *self.pack = pack;
        handled
    }

    /// JSON-RPC 2.0 §4.1: nothing to say, which HTTP says with an empty answer.
    fn no_content(&mut self) -> Handled {
        response::simple(self.out, 204, "", b"", &self.date, b"", self.close, false);
        Handled::Answered
    }

    /// Does what a notification asks for (JSON-RPC 2.0 §4.1): only the answer is left out.
    fn call_silently(&mut self, ready: &Ready<'_>) {
        let at = self.out.len();
        // Whatever becomes of it, the caller has said that it does not want to know.
        let _ = self.call(ready);
        self.out.truncate(at);
    }

    fn unary(&mut self, ready: &Ready<'_>) -> Handled {
        let extra = self.activated();
        let mark = response::begin(self.out, 200, JSON, &self.date, &extra, self.close);
        let known = ready.known();
        match self.call(ready) {
            Ok(Outcome::Ready) => {
                response::finish(self.out, mark);
                Handled::Answered
            }
            Ok(Outcome::Parked(ticket)) => {
                response::rollback(self.out, mark);
                let call = ParkedCall { ticket, id: ready.id.into(), method: ready.method };
                self.park(known, vec![call], None)
            }
            Ok(Outcome::Stream { .. }) => {
                response::rollback(self.out, mark);
                self.fault(known, &Fault::new(FaultKind::Internal))
            }
            Err(fault) => {
                response::rollback(self.out, mark);
                self.fault(known, &fault)
            }
        }
    }

    /// Calls the service and writes the envelope with its answer; on anything but an answer,
    /// what was written is the caller's to take back.
    fn call(&mut self, ready: &Ready<'_>) -> Result<Outcome, Fault> {
        rpc::open_result(self.out, ready.id);
        if let Call::ExtendedCard = ready.call {
            self.extended_card(ready)?;
            rpc::close(self.out);
            return Ok(Outcome::Ready);
        }
        let (out, write) = (&mut *self.out, ready.write_cx(self.now));
        let mut cx = CallCx {
            caller: Caller {
                agent: self.place.agent,
                worker: self.worker,
                extensions: self.extensions.as_deref(),
            },
            now: self.now,
            wake: self.wake,
            entropy: self.entropy,
            events: self.events,
        };
        let outcome = self.service.call(&mut cx, ready.call, &mut |reply| {
            (ready.method.wire_of(&reply).reply)(out, &reply, &write);
        })?;
        rpc::close(self.out);
        Ok(outcome)
    }

    /// A2A 1.0 §3.1.11: the card in the pure form of the caller's generation.
    fn extended_card(&mut self, ready: &Ready<'_>) -> Result<(), Fault> {
        if !self.site.extended_card {
            let detail = "this agent has no extended card";
            return Err(Fault::because(FaultKind::UnsupportedOperation, detail));
        }
        let form = match ready.method.wire.generation {
            Generation::V1 => CardForm::V1,
            Generation::V01 | Generation::V03 => CardForm::V03,
        };
        let base = self.head.path().strip_suffix('/').unwrap_or(self.head.path());
        let card = cards::body(self.service, self.site, self.head.host(), self.place, base, form);
        self.out.extend_from_slice(&card.ok_or(FaultKind::ExtendedAgentCardNotConfigured)?);
        Ok(())
    }

    /// Opens a stream; what fails before its first event is an ordinary error (wire §3.5).
    fn stream(&mut self, ready: &Ready<'_>) -> Handled {
        let known = ready.known();
        let Some(permit) = Permit::take(&self.site.streams, self.site.limits.streams_max) else {
            return self.fault(known, &Fault::new(FaultKind::Overloaded));
        };
        let chunked = self.head.version() == Version::Http11;
        let close = self.close || !chunked;
        let start = self.out.len();
        let extra = self.activated();
        response::stream_head(self.out, &self.date, self.close, !chunked, &extra);
        match self.open_stream(ready, chunked) {
            Ok(Outcome::Stream { cursor, generation }) => Handled::Stream(Box::new(Pump {
                cursor,
                id: ready.id.into(),
                op: ready.method.op,
                history: ready.write_cx(self.now).history,
                wire: ready.method.wire_for(generation),
                chunked,
                close,
                wrote_ms: self.now.mono_ms,
                permit,
            })),
            Ok(Outcome::Ready) => answered(close),
            Ok(Outcome::Parked(_)) => {
                self.out.truncate(start);
                self.fault(known, &Fault::new(FaultKind::Internal))
            }
            // Wire §3.5: before 1.0 a resubscription is answered by a stream whatever happens,
            // and its clients can read nothing else.
            Err(fault)
                if ready.method.op == Op::Subscribe
                    && ready.method.wire.generation != Generation::V1
                    && self.head.value(Field::Accept).is_some()
                    && !names(self.head.value(Field::Accept), b"application/json") =>
            {
                let write = ready.write_cx(self.now);
                stream::only_error(self.out, chunked, ready.id, ready.method.wire, &write, &fault);
                answered(close)
            }
            Err(fault) => {
                self.out.truncate(start);
                self.fault(known, &fault)
            }
        }
    }

    /// Calls the service; a direct message is written as a stream of one event (A2A 1.0 §3.1.2).
    fn open_stream(&mut self, ready: &Ready<'_>, chunked: bool) -> Result<Outcome, Fault> {
        let (out, write) = (&mut *self.out, ready.write_cx(self.now));
        let mut cx = CallCx {
            caller: Caller {
                agent: self.place.agent,
                worker: self.worker,
                extensions: self.extensions.as_deref(),
            },
            now: self.now,
            wake: self.wake,
            entropy: self.entropy,
            events: self.events,
        };
        self.service.call(&mut cx, ready.call, &mut |reply| {
            let Reply::Message { message, context_id } = reply else { return };
            let chunk = chunked.then(|| sse::chunk_begin(out));
            let followed = Followed::Message { message, context_id };
            stream::frame(out, ready.id, ready.method.wire, &write, &followed);
            if let Some(chunk) = chunk {
                sse::chunk_end(out, chunk);
                sse::chunk_last(out);
            }
        })
    }

    fn park(
        &mut self,
        known: Known<'_>,
        calls: Vec<ParkedCall>,
        batch: Option<Vec<u8>>,
    ) -> Handled {
        match Permit::take(&self.site.parked, self.site.limits.connections_max) {
            Some(permit) => Handled::Parked(Box::new(Parked {
                calls,
                batch,
                dialect: self.place.dialect,
                close: self.close,
                permit,
            })),
            None => self.fault(known, &Fault::new(FaultKind::Overloaded)),
        }
    }

    /// Answers a batch (JSON-RPC 2.0 §6).
    fn batch(&mut self, value: Value<'_>) -> Handled {
        let count = value.elements().take(self.site.limits.batch_calls_max + 1).count();
        if count == 0 || count > self.site.limits.batch_calls_max {
            let detail = if count == 0 { "the batch is empty" } else { "the batch is too long" };
            let fault = Fault::because(FaultKind::InvalidRequest, detail);
            return self.fault(Known::NOTHING, &fault);
        }
        let mark = response::begin(self.out, 200, JSON, &self.date, b"", self.close);
        self.out.push(b'[');
        let (body_at, mut waiting) = (self.out.len(), Vec::new());
        let mut pack = std::mem::take(self.pack);
        for element in value.elements() {
            let at = self.out.len();
            if at > body_at {
                self.out.push(b',');
            }
            match self.element(element, &mut pack) {
                Element::Written => {}
                Element::Silent => self.out.truncate(at),
                Element::Waits(call) => {
                    self.out.truncate(at);
                    waiting.push(call);
                }
            }
        }
        *self.pack = pack;
        if !waiting.is_empty() {
            let answers = self.out.split_off(body_at);
            response::rollback(self.out, mark);
            return self.park(Known::NOTHING, waiting, Some(answers));
        }
        if self.out.len() == body_at {
            response::rollback(self.out, mark);
            return self.no_content();
        }
        self.out.push(b']');
        response::finish(self.out, mark);
        Handled::Answered
    }

    fn element(&mut self, value: Value<'_>, pack: &mut Vec<u8>) -> Element {
        let at = self.out.len();
        let (known, fault) = match self.read(value, true, pack) {
            Err(Unready::Silent) => return Element::Silent,
            Err(Unready::Refused(known, fault)) => (known, fault),
            Ok(ready) if ready.is_silent => {
                self.call_silently(&ready);
                return Element::Silent;
            }
            Ok(ready) => match self.call(&ready) {
                Ok(Outcome::Ready) => return Element::Written,
                Ok(Outcome::Parked(ticket)) => {
                    let (id, method) = (ready.id.into(), ready.method);
                    return Element::Waits(ParkedCall { ticket, id, method });
                }
                Ok(Outcome::Stream { .. }) => (ready.known(), Fault::new(FaultKind::Internal)),
                Err(fault) => (ready.known(), fault),
            },
        };
        self.out.truncate(at);
        push_fault(self.out, self.place.dialect, known, &fault);
        Element::Written
    }

    /// From a value to a call: envelope, method, version, then the parameters.
    fn read<'p>(
        &mut self,
        value: Value<'p>,
        in_batch: bool,
        pack: &'p mut Vec<u8>,
    ) -> Result<Ready<'p>, Unready<'p>> {
        let dialect = self.place.dialect;
        let request = rpc::read(value, &self.site.limits).map_err(|invalid| {
            Unready::Refused(Known { id: invalid.id, ..Known::NOTHING }, invalid.fault)
        })?;
        let name = &*request.method;
        let method = dialect.method(name);
        let id = request.id.unwrap_or(rpc::NULL_ID);
        let is_silent =
            request.id.is_none() && is_notification(dialect, &request, method, in_batch);
        let Some(method) = method else {
            let known = Known { id, wire: Some(dialect.fault_wire(name)), op: Op::Send };
            let refused = Unready::Refused(known, FaultKind::MethodNotFound.into());
            return Err(if is_silent { Unready::Silent } else { refused });
        };
        let known = Known { id, wire: Some(method.wire), op: method.op };
        let refused = |fault| match is_silent {
            true => Unready::Silent,
            false => Unready::Refused(known, fault),
        };
        version::check(self.asked.as_deref(), method, self.site.strict_version).map_err(refused)?;
        if request.by_position {
            return Err(refused(Fault::param("params", "parameters go by name")));
        }
        if in_batch && method.op.is_streaming() {
            let detail = "streams cannot be part of a batch";
            return Err(refused(Fault::because(FaultKind::InvalidRequest, detail)));
        }
        if dialect.quirks.accept_required && !accepts(self.head.value(Field::Accept), method.op) {
            let detail = "Accept must name the media type of the answer";
            return Err(refused(Fault::because(FaultKind::InvalidRequest, detail)));
        }
        let cx = ReadCx {
            op: method.op,
            limits: &self.site.limits,
            fresh_id: &self.fresh_id[..],
            after: (method.op == Op::Subscribe).then(|| last_event_id(self.head)).flatten(),
        };
        let call = (method.wire.read)(&cx, request.params, pack).map_err(refused)?;
        if let Call::Send(send) = &call {
            debug_assert_eq!(send.mode == SendMode::Stream, method.op == Op::Stream);
            if send.message.message_id() == self.fresh_id {
                *self.fresh_id = uuid(self.entropy.bits());
            }
        }
        Ok(Ready { id, is_silent, method, call })
    }

    /// The extensions in force, echoed to the client (wire §1.8). None are implemented here, so
    /// none is activated and nothing is echoed.
    fn activated(&self) -> SmallVec<[u8; 64]> {
        SmallVec::new()
    }
}

/// True for a request without id that is left without an answer.
///
/// In a batch, and for a dialect that keeps to JSON-RPC 2.0, that is every one. A2A itself has no
/// notifications, and its servers answer one with a null id; only what no A2A client sends, an
/// unknown method without parameters by name, is taken for a real notification.
fn is_notification(
    dialect: &Dialect,
    request: &rpc::Request<'_>,
    method: Option<&Method>,
    in_batch: bool,
) -> bool {
    in_batch
        || dialect.quirks.silent_notifications
        || (method.is_none() && request.params.is_none())
}

fn answered(close: bool) -> Handled {
    if close { Handled::AnsweredLast } else { Handled::Answered }
}

/// LangSmith (wire §8): `Accept` must name the type of the answer, or a range that holds it.
fn accepts(accept: Option<&[u8]>, op: Op) -> bool {
    names(accept, if op.is_streaming() { b"text/event-stream" } else { b"application/json" })
}

/// Whether `Accept` names a media type or a range that holds it (RFC 9110 §12.5.1).
fn names(accept: Option<&[u8]>, wanted: &[u8]) -> bool {
    http::list(accept.unwrap_or_default()).any(|range| {
        let range = range.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let kind = wanted.split(|b| *b == b'/').next().unwrap_or_default();
        range.eq_ignore_ascii_case(wanted)
            || range == b"*/*"
            || range.strip_suffix(b"/*").is_some_and(|r| r.eq_ignore_ascii_case(kind))
    })
}

/// The last event a returning subscriber has seen: the header, or `lastEventId` in the query.
fn last_event_id(head: &Head<'_>) -> Option<u64> {
    if let Some(value) = head.value(Field::LastEventId) {
        return std::str::from_utf8(value).ok()?.trim().parse().ok();
    }
    let mut pairs = query::pairs(head.query()?).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key == "lastEventId")?;
    value.parse().ok()
}
