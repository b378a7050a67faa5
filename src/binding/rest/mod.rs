//! HTTP+JSON: an operation is a method and a path, its params are body, path and query.
//!
//! The waist is that of JSON-RPC, and so are the readers: where 1.0 sends an object as `params`,
//! here it is the body. What fails before the first event of a stream is an ordinary response.

mod answer;
pub mod path;
mod query;
mod stream;

use std::{borrow::Cow, cell::Cell};

use crate::{
    binding::{
        Endpoint, Exchange, Handled, Parked, Scratch, Site,
        asked::{asked_version, has_type, joined_extensions, last_event_id},
        cards,
        carrier::Carrier,
        jsonrpc::parse_fault,
        origin::Origin,
        parked::ParkedCall,
    },
    dialect::{Method, ReadCx, WriteCx, rest::Rest, version},
    fault::{Fault, FaultKind},
    http::{self, Field, Head, response},
    json::{Source, write::push_escaped},
    model::{Call, Op, Reply, uuid},
    service::{CallCx, Caller, Outcome, Peer, Scope, Service},
};

pub use answer::lost;
use answer::{is_read, media, refuse, refuse_with};
use path::Spot;

/// Where a request goes.
#[derive(Clone, Copy)]
pub struct At<'r> {
    /// Who speaks and who answers there.
    pub endpoint: Endpoint,
    /// The path of the endpoint.
    pub base: &'r str,
    /// What is named below it.
    pub spot: Spot<'r>,
    /// In the form whose path it is.
    pub form: &'static Rest,
}

/// Handles a request to a path of HTTP+JSON.
pub fn handle(x: &mut Exchange<'_>, at: At<'_>, body: Source<'_>) -> Handled {
    let method = x.head.method();
    if method == http::Method::Options {
        let date = x.means.scratch.date(x.means.now);
        response::simple(x.means.out, 204, "", b"", &date, at.spot.allow(), x.close, false);
        return Handled::Answered;
    }
    let media = media(x.head);
    let Some(op) = at.spot.op(method) else {
        let fault =
            Fault::because(FaultKind::UnsupportedOperation, "the method is not allowed here");
        return refuse_with(x, at.form, media, &fault, (405, at.spot.allow()));
    };
    let (asked, forms) = (asked_version(x.head), at.endpoint.dialect.routes.rest);
    let form = match version::rest(asked.as_deref(), at.form, forms, x.means.site.strict_version) {
        Ok(form) => form,
        Err(fault) => return refuse(x, at.form, media, &fault),
    };
    // Every form has a row for each operation.
    let Some(method) = form.method(op) else {
        return refuse(x, form, media, &FaultKind::MethodNotFound.into());
    };
    let at = At { form, ..at };
    // Without a body its type means nothing, but for what a page may send unasked.
    let is_post = x.head.method() == http::Method::Post;
    let is_page = is_post && x.head.value(Field::Origin).is_some();
    if (!body.bytes().is_empty() || is_page) && !has_type(x.head, is_read) {
        let detail = "the body must be application/json or application/a2a+json";
        let fault = Fault::because(FaultKind::ContentTypeNotSupported, detail);
        // A dialect that has a status of its own for this keeps it.
        let status = match at.endpoint.dialect.quirks.media_http {
            200 => (form.status)(&fault),
            own => own,
        };
        return refuse_with(x, form, media, &fault, (status, b""));
    }
    match answer(x, at, method, media, body) {
        Ok(handled) => handled,
        Err(fault) => refuse(x, form, media, &fault),
    }
}

/// Reads the call, and answers it unless that is an error.
fn answer(
    x: &mut Exchange<'_>,
    at: At<'_>,
    method: &'static Method,
    media: &'static str,
    body: Source<'_>,
) -> Result<Handled, Fault> {
    let date = x.means.scratch.date(x.means.now);
    let Scratch { parser, pack, params, events, entropy, fresh_id, worker, .. } =
        &mut *x.means.scratch;
    let (op, limits) = (method.op, &x.means.site.limits);
    let (text, is_optional) = match x.head.method() {
        http::Method::Post => (body, matches!(op, Op::Cancel | Op::Subscribe)),
        _ if query::params(params, op, x.head.query())? => (Source::from(&*params), false),
        _ => (Source::from(&[][..]), true),
    };
    let value = match text.bytes().is_empty() && is_optional {
        true => None,
        false => Some(parser.parse_from(text, limits.json_depth_max).map_err(parse_fault)?),
    };
    let task = at.spot.task().map(raw_id).transpose()?;
    let cx = ReadCx {
        op,
        limits,
        fresh_id: x.means.site.fresh_id(at.endpoint.dialect, method.wire.generation, fresh_id),
        after: (op == Op::Subscribe).then(|| last_event_id(x.head)).flatten(),
        task: task.as_deref(),
        tokens: Cell::default(),
    };
    let call = (method.wire.read)(&cx, value, pack)?;
    if let Call::Send(send) = &call
        && send.message.message_id().raw() == *fresh_id
    {
        *fresh_id = uuid(entropy.bits());
    }
    let extensions = joined_extensions(x.head);
    let caller = Caller {
        scope: Scope::of(at.endpoint.agent),
        worker: *worker,
        extensions: extensions.as_deref(),
        identity: x.means.peer.identity,
    };
    let (now, wake, entropy) = (x.means.now, x.means.wake, entropy.as_mut());
    let desk = Desk {
        at,
        method,
        media,
        date,
        cx: CallCx { caller, now, wake, entropy, events, held_bytes: &x.means.site.held_bytes },
        service: x.means.service,
        site: x.means.site,
        peer: x.means.peer,
        head: x.head,
        out: x.means.out,
        close: x.close,
    };
    if op.is_streaming() { desk.stream(call) } else { desk.unary(call) }
}

/// A task id in a path as the raw string that it is in JSON.
fn raw_id(segment: &str) -> Result<Cow<'_, [u8]>, Fault> {
    if !segment.bytes().any(|b| matches!(b, b'%' | b'"')) {
        return Ok(Cow::Borrowed(segment.as_bytes()));
    }
    let text = http::path::segment(segment)
        .map_err(|_| Fault::param("id", "must be percent-encoded UTF-8"))?;
    let mut raw = Vec::new();
    push_escaped(&mut raw, &text);
    Ok(Cow::Owned(raw))
}

/// A call that was understood, and what it is answered with.
struct Desk<'d> {
    at: At<'d>,
    method: &'static Method,
    media: &'static str,
    date: [u8; 29],
    cx: CallCx<'d>,
    service: &'d dyn Service,
    site: &'d Site,
    peer: Peer<'d>,
    head: &'d Head<'d>,
    out: &'d mut Vec<u8>,
    close: bool,
}

impl Desk<'_> {
    fn unary(mut self, call: Call<'_>) -> Result<Handled, Fault> {
        // The content of a page may be long: for nobody it is not made, so that what a request
        // costs shows in the output, which bounds how many are answered at a time.
        let is_head = self.head.method() == http::Method::Head;
        let is_safe = is_head || self.head.method() == http::Method::Get;
        let extra: &[u8] = if is_safe { answer::NO_STORE } else { b"" };
        let mark = response::begin(self.out, 200, self.media, &self.date, extra, self.close);
        let outcome = match call {
            Call::ExtendedCard => self.extended_card(),
            call => self.ask(call, |out, method, reply| {
                if !is_head {
                    (method.wire.reply)(out, &reply, &WriteCx::new(method.op));
                }
            }),
        };
        match outcome {
            Ok(Outcome::Answered) if is_head => response::finish_untold(self.out, mark),
            Ok(Outcome::Answered) => response::finish(self.out, mark),
            outcome => {
                response::rollback(self.out, mark);
                let Outcome::Pending(wait) = outcome? else {
                    return Err(FaultKind::Internal.into());
                };
                let call = ParkedCall { wait, id: None, method: self.method };
                return self.park(call);
            }
        }
        Ok(Handled::Answered)
    }

    /// Calls the service; `answer` writes what it says.
    fn ask(
        &mut self,
        call: Call<'_>,
        answer: impl Fn(&mut Vec<u8>, &Method, Reply<'_>),
    ) -> Result<Outcome, Fault> {
        let Desk { service, out, method, cx, .. } = self;
        service.call(cx, call, &mut |reply| answer(out, method, reply))
    }

    /// A2A 1.0 §3.1.11.
    fn extended_card(&mut self) -> Result<Outcome, Fault> {
        let (site, At { endpoint, base, form, .. }) = (self.site, self.at);
        let origin = Origin::of(site, self.peer, self.head);
        let card = cards::extended(self.service, site, &origin, endpoint, base, form.generation)?;
        self.out.extend_from_slice(&card);
        Ok(Outcome::Answered)
    }

    fn park(self, call: ParkedCall) -> Result<Handled, Fault> {
        let permit = self
            .site
            .parked
            .permit(self.cx.caller.worker)
            .ok_or_else(|| Fault::at_limit("connections_max"))?;
        Ok(Handled::Parked(Box::new(Parked {
            calls: vec![call],
            batch: None,
            status: self.at.form.status,
            media: self.media,
            answer_bytes_max: self.site.limits.answer_bytes_max,
            carrier: Carrier::Response,
            fields: Vec::new(),
            close: self.close,
            permit,
        })))
    }
}
