//! JSON-RPC over HTTP POST and over WebSocket: one call or a batch in, one response, a batch or a
//! stream out.
//!
//! The body is parsed once. Whatever can go wrong with a call is answered with its id, in the
//! spelling of its generation, and leaves the connection as it was.

mod batch;
mod beside;
mod fault;
mod read;
mod stream;

use std::{borrow::Cow, task::Waker};

use crate::{
    binding::{
        Endpoint, Exchange, Handled, Means, Parked, Scratch, Site,
        asked::{asked_version, has_type, joined_extensions},
        cards,
        carrier::{Carrier, Mark},
        parked::ParkedCall,
        ws::Upgrade,
    },
    dialect::{Method, WriteCx},
    fault::{Fault, FaultKind},
    http::{media, response},
    json::{JsonError, Kind, Source, Value},
    model::{Call, EventBuf, Reply},
    rpc,
    service::{CallCx, Caller, Entropy, Now, Outcome, Peer, Scope, Service},
};

use beside::Beside;
pub(super) use fault::parse_fault;
pub use fault::push_unread;
use fault::{Known, answer_fault, push_fault};
use read::{Unready, is_json};

/// Handles the body of a POST to an RPC path.
pub fn handle(x: &mut Exchange<'_>, endpoint: Endpoint, body: Source<'_>) -> Handled {
    let date = x.means.scratch.date(x.means.now);
    if !has_type(x.head, is_json) {
        let detail = "the body must be application/json";
        let fault = Fault::because(FaultKind::ContentTypeNotSupported, detail);
        let (dialect, status) = (endpoint.dialect, endpoint.dialect.quirks.media_http);
        answer_fault(x.means.out, &date, x.close, dialect, Known::NOTHING, &fault, status);
        return Handled::Answered;
    }
    let asked = asked_version(x.head);
    let extensions = joined_extensions(x.head).map(Cow::Owned);
    let said = Said { endpoint, beside: Beside::Request(x.head), asked, extensions, date };
    answer(x.means.reborrow(), said, x.close, body)
}

/// Handles a text message of a WebSocket. With `is_full`, nothing that could wait is begun.
pub fn handle_message(means: Means<'_>, upgrade: &Upgrade, is_full: bool, body: &[u8]) -> Handled {
    let said = Said {
        endpoint: upgrade.endpoint(),
        beside: Beside::Message { upgrade, is_full },
        asked: upgrade.asked_version().map(Cow::Borrowed),
        extensions: upgrade.extensions().map(Cow::Borrowed),
        date: [b' '; 29],
    };
    answer(means, said, false, Source::from(body))
}

/// What is known of a body before it is read.
struct Said<'d> {
    endpoint: Endpoint,
    beside: Beside<'d>,
    asked: Option<Cow<'d, [u8]>>,
    extensions: Option<Cow<'d, str>>,
    /// For the heads of responses.
    date: [u8; 29],
}

// Both callers know what carries the answer, and leave out what the other one needs.
#[inline(always)]
fn answer(means: Means<'_>, said: Said<'_>, close: bool, body: Source<'_>) -> Handled {
    let Said { endpoint, beside, asked, extensions, date } = said;
    let Means { service, site, scratch, out, now, wake, peer } = means;
    let Scratch { parser, pack, events, entropy, fresh_id, worker, .. } = scratch;
    let mut desk = Desk {
        endpoint,
        service,
        site,
        pack,
        events,
        entropy: entropy.as_mut(),
        fresh_id,
        worker: *worker,
        out,
        now,
        wake,
        peer,
        beside,
        asked,
        extensions,
        date,
        close,
    };
    // The envelope's levels, and a batch's, are not the peer's to spend.
    match parser.parse_from(body, desk.site.limits.json_depth_max + 2) {
        Ok(value) if value.kind() == Kind::Array => desk.batch(value),
        Ok(value) => desk.single(value),
        Err(error) => desk.not_read(error),
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
            Call::Send(send) => (send.task_id.unwrap_or_default().raw(), send.history),
            Call::Get(_) | Call::List(_) | Call::Cancel(_) => (&[][..], None),
            Call::Subscribe(_) | Call::Push(_) | Call::ExtendedCard => (&[][..], None),
        };
        WriteCx { op: self.method.op, task_id, history, unix_ms: now.unix_ms }
    }
}

/// The parts of an exchange that a call needs, so that they can be borrowed side by side.
struct Desk<'d> {
    endpoint: Endpoint,
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
    peer: Peer<'d>,
    beside: Beside<'d>,
    asked: Option<Cow<'d, [u8]>>,
    extensions: Option<Cow<'d, str>>,
    date: [u8; 29],
    close: bool,
}

impl Desk<'_> {
    fn fault(&mut self, known: Known<'_>, fault: &Fault) -> Handled {
        self.fault_under((self.endpoint.dialect.quirks.fault_http)(fault), known, fault)
    }

    /// RFC 9110 §15.5.14: more tokens than are read are too much content, like more bytes.
    #[cold]
    fn not_read(&mut self, error: JsonError) -> Handled {
        let fault = parse_fault(error);
        match error {
            JsonError::Tokens { .. } | JsonError::TooLarge => {
                self.fault_under(413, Known::NOTHING, &fault)
            }
            JsonError::Empty
            | JsonError::Syntax { .. }
            | JsonError::Range { .. }
            | JsonError::Utf8
            | JsonError::Depth => self.fault(Known::NOTHING, &fault),
        }
    }

    fn fault_under(&mut self, status: u16, known: Known<'_>, fault: &Fault) -> Handled {
        let dialect = self.endpoint.dialect;
        let mark = self.begin();
        push_fault(self.out, dialect, known, fault);
        mark.finish_with(self.out, (status, media::JSON), &self.date, b"", self.close);
        Handled::Answered
    }

    /// Begins an answer.
    fn begin(&mut self) -> Mark {
        self.beside.carrier().begin(self.out, media::JSON, &self.date, b"", self.close)
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
        match self.beside.carrier() {
            Carrier::Response => {
                response::simple(self.out, 204, "", b"", &self.date, b"", self.close, false);
            }
            Carrier::Message => {}
        }
        Handled::Answered
    }

    /// Does what a notification asks for (JSON-RPC 2.0 §4.1): only the answer is left out.
    fn call_silently(&mut self, ready: &Ready<'_>) {
        if let Call::ExtendedCard = ready.call {
            return;
        }
        // An answer is not even written: a batch could ask for far more than it may be given.
        // Whatever becomes of it, the caller has said that it does not want to know.
        let _ = self.ask(ready, |_, _, _| ());
    }

    fn unary(&mut self, ready: &Ready<'_>) -> Handled {
        let mark = self.begin();
        let known = ready.known();
        match self.call(ready) {
            Ok(Outcome::Answered) => {
                mark.finish(self.out);
                Handled::Answered
            }
            Ok(Outcome::Pending(wait)) => {
                mark.rollback(self.out);
                let call = ParkedCall { wait, id: Some(ready.id.into()), method: ready.method };
                self.park(known, vec![call], None)
            }
            Ok(Outcome::Stream { .. }) => {
                mark.rollback(self.out);
                self.fault(known, &Fault::new(FaultKind::Internal))
            }
            Err(fault) => {
                mark.rollback(self.out);
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
            return Ok(Outcome::Answered);
        }
        let outcome = self.ask(ready, |out, reply, write| {
            (ready.method.wire_of(reply).reply)(out, reply, write);
        })?;
        rpc::close(self.out);
        Ok(outcome)
    }

    /// Calls the service; `answer` writes what it says.
    fn ask(
        &mut self,
        ready: &Ready<'_>,
        answer: impl Fn(&mut Vec<u8>, &Reply<'_>, &WriteCx<'_>),
    ) -> Result<Outcome, Fault> {
        let (out, write) = (&mut *self.out, ready.write_cx(self.now));
        let mut cx = CallCx {
            caller: Caller {
                scope: Scope::of(self.endpoint.agent),
                worker: self.worker,
                extensions: self.extensions.as_deref(),
                identity: self.peer.identity,
            },
            now: self.now,
            wake: self.wake,
            entropy: self.entropy,
            events: self.events,
            held_bytes: &self.site.held_bytes,
        };
        self.service.call(&mut cx, ready.call, &mut |reply| answer(out, &reply, &write))
    }

    /// A2A 1.0 §3.1.11: the card in the pure form of the caller's generation.
    fn extended_card(&mut self, ready: &Ready<'_>) -> Result<(), Fault> {
        let path = self.beside.path();
        let base = path.strip_suffix('/').unwrap_or(path);
        let origin = self.beside.origin(self.site, self.peer);
        let (service, site) = (self.service, self.site);
        let generation = ready.method.wire.generation;
        let card = cards::extended(service, site, &origin, self.endpoint, base, generation)?;
        self.out.extend_from_slice(&card);
        Ok(())
    }

    fn park(
        &mut self,
        known: Known<'_>,
        calls: Vec<ParkedCall>,
        batch: Option<Vec<u8>>,
    ) -> Handled {
        match self.site.parked.permit(self.worker) {
            Some(permit) => Handled::Parked(Box::new(Parked {
                calls,
                batch,
                status: self.endpoint.dialect.quirks.fault_http,
                media: media::JSON,
                answer_bytes_max: self.site.limits.answer_bytes_max,
                carrier: self.beside.carrier(),
                fields: Vec::new(),
                close: self.close,
                permit,
            })),
            None => self.fault(known, &Fault::at_limit("connections_max")),
        }
    }
}
