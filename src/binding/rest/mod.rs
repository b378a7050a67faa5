//! HTTP+JSON: method and path determine the operation; its params are in the body, path and query.
//!
//! The binding uses the readers of JSON-RPC: the body is the `params` object of 1.0. A failure
//! before the first event of a stream is an ordinary response.

mod media;
pub mod path;
mod query;

use std::borrow::Cow;

use crate::{
    binding::{
        CallContext, DecodeBuffers, Handled,
        answer::AnswerFormat,
        call::write_cx,
        coded::CodingRefusal,
        cors,
        envelope::Envelope,
        jsonrpc::{self, parse_fault},
        negotiation::{has_type, version_of},
        responder::{Content, retry_after},
        route::RouteTarget,
        stream::EventFraming,
    },
    dialect::{Method, rest::HttpJson, version},
    fault::{Fault, FaultKind},
    http::{self, Field, FieldLines, FieldLinesBuf, Head, field_lines},
    json::{Source, write::push_escaped},
    model::{Call, Op, Params},
};

use media::is_read;
use path::RestResource;

/// RFC 9111 §3: a cache may store the answer to a GET for a time that it chooses. But a task
/// changes, and only its caller may see it.
const NO_STORE: FieldLines<'static> = field_lines!("Cache-Control": "no-store");

/// The target of a request.
#[derive(Clone, Copy)]
pub struct RestTarget<'r> {
    /// The endpoint and the agent.
    pub at: RouteTarget<'r>,
    /// The resource below the endpoint.
    pub resource: RestResource<'r>,
    /// The format of the path's generation.
    pub form: &'static HttpJson,
}

/// The answer to a rejected request.
struct RestRefusal {
    form: &'static HttpJson,
    fault: Fault,
    status: u16,
    fields: FieldLines<'static>,
}

/// Handles a request to a path of HTTP+JSON.
pub fn handle(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    target: RestTarget<'_>,
    buffers: &mut DecodeBuffers,
    mut body: Source<'_>,
) -> Handled {
    if head.method() == http::Method::Options {
        cors::options(cx, head, target.resource.allow());
        return Handled::Answered;
    }
    let media = media::media(head);
    cx.begin_call(body.bytes().len());
    cx.writer.is_head = head.method() == http::Method::Head;
    if let Err(fault) = cx.take_request(body.bytes().len()) {
        let handled = refuse_unread(cx, head, target, fault.clone());
        cx.report_refused_rest(None, target.form.generation, 429, &fault);
        return handled;
    }
    let (form, method) = match row(cx, head, &target, body.bytes().is_empty()) {
        Ok(row) => row,
        Err(refusal) => return refuse_call(cx, head, None, *refusal),
    };
    let is_send = matches!(method.op, Op::Send | Op::Stream);
    if !is_send && is_envelope(cx, head, buffers, body.tail(0)) {
        return enveloped(cx, &target, method.op, buffers, body);
    }
    let fault = match decode(cx, head, &target, method, buffers, body.tail(0)) {
        // A call is large, so it is borrowed, not moved.
        Ok(ref call) => {
            let format = AnswerFormat {
                envelope: Envelope::Bare,
                method: Some(method),
                encode: &method.wire.encode,
                write: write_cx(method.op, call, cx.now),
                media,
                fields: store(head),
                status: form.status,
                events: EventFraming::Sse,
                refuses_by_stream: false,
            };
            return cx.answer(call, &format);
        }
        Err(fault) => fault,
    };
    // An envelope has no message and fails as params, so a send is checked for one only after a
    // fault.
    if is_send && is_envelope(cx, head, buffers, body.tail(0)) {
        return enveloped(cx, &target, method.op, buffers, body);
    }
    refuse_call(cx, head, Some(method.op), plain(form, fault))
}

/// Whether a body is a JSON-RPC request object: the client of agno sends such bodies to paths of
/// HTTP+JSON.
#[cold]
fn is_envelope(
    cx: &CallContext<'_>,
    head: &Head<'_>,
    buffers: &mut DecodeBuffers,
    body: Source<'_>,
) -> bool {
    if head.method() != http::Method::Post || body.bytes().is_empty() {
        return false;
    }
    // The levels of the envelope do not count against the limit.
    let value = buffers.parser.parse_from(body, cx.config.limits.json_depth_max + 2);
    value.is_ok_and(|value| value.get("jsonrpc").is_some() && value.get("method").is_some())
}

/// Handles a JSON-RPC request object as a call for the task in the path.
#[cold]
fn enveloped(
    cx: &mut CallContext<'_>,
    target: &RestTarget<'_>,
    op: Op,
    buffers: &mut DecodeBuffers,
    body: Source<'_>,
) -> Handled {
    match target.resource.task().map(raw_id).transpose() {
        Ok(task) => jsonrpc::handle_at_path(cx, buffers, body, op, task.as_deref()),
        Err(fault) => jsonrpc::refuse_at_path(cx, &fault),
    }
}

/// Answers a call with a fault, and reports it.
#[cold]
fn refuse_call(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    op: Option<Op>,
    refusal: RestRefusal,
) -> Handled {
    let (form, status, fault) = (refusal.form, refusal.status, refusal.fault.clone());
    let handled = refuse(cx, head, media::media(head), refusal);
    cx.report_refused_rest(op, form.generation, status, &fault);
    handled
}

/// Rejects a request to an unknown path of HTTP+JSON.
pub fn not_found(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    form: &'static HttpJson,
    detail: &'static str,
) -> Handled {
    cx.begin_call(0);
    let fault = Fault::because(FaultKind::MethodNotFound, detail);
    refuse_call(cx, head, None, plain(form, fault))
}

/// Rejects a request of which only the head was read.
pub fn refuse_unread(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    target: RestTarget<'_>,
    fault: Fault,
) -> Handled {
    let (requested, forms) = (version_of(head), target.at.endpoint.dialect.routes.rest);
    // An unsupported version is ignored here, since `fault` takes precedence.
    let form =
        version::rest(requested.as_deref(), target.form, forms, false).unwrap_or(target.form);
    cx.writer.is_head = head.method() == http::Method::Head;
    refuse(cx, head, media::media(head), plain(form, fault))
}

/// Rejects a request with an unsupported or broken content coding; `body_bytes`: the length of the
/// body as received.
#[cold]
pub fn refuse_coding(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    target: RestTarget<'_>,
    body_bytes: usize,
    refusal: CodingRefusal,
) -> Handled {
    cx.begin_call(body_bytes);
    let CodingRefusal { mut fault, mut status } = refusal;
    if let Err(refused) = cx.take_request(body_bytes) {
        (fault, status) = (refused, None);
    }
    let (requested, forms) = (version_of(head), target.at.endpoint.dialect.routes.rest);
    let form =
        version::rest(requested.as_deref(), target.form, forms, false).unwrap_or(target.form);
    let status = status.unwrap_or_else(|| (form.status)(&fault));
    let fields = FieldLines::NONE;
    refuse_call(cx, head, None, RestRefusal { form, fault, status, fields })
}

/// Answers with a fault.
#[cold]
fn refuse(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    media: &'static str,
    refusal: RestRefusal,
) -> Handled {
    let RestRefusal { form, fault, status, fields } = refusal;
    // RFC 9110 §15.1: caches may store a 404 or 405, too.
    let retry = retry_after(status, fault.retry_s);
    let all = FieldLinesBuf::of(&[fields, retry.get(), *store(head)]);
    cx.writer.begin(status, media, all.get(), Content::Whole);
    (form.fault)(cx.writer.out, &fault, status);
    cx.writer.finish();
    Handled::Answered
}

/// A refusal with the status that the form defines for the fault.
fn plain(form: &'static HttpJson, fault: Fault) -> RestRefusal {
    let status = (form.status)(&fault);
    RestRefusal { form, fault, status, fields: FieldLines::NONE }
}

/// `Cache-Control` of an answer to this request.
fn store(head: &Head<'_>) -> &'static FieldLines<'static> {
    let is_safe = matches!(head.method(), http::Method::Get | http::Method::Head);
    if is_safe { &NO_STORE } else { &FieldLines::NONE }
}

/// Finds the method of a request, in the form of its version.
fn row(
    cx: &CallContext<'_>,
    head: &Head<'_>,
    target: &RestTarget<'_>,
    is_empty: bool,
) -> Result<(&'static HttpJson, &'static Method), Box<RestRefusal>> {
    let Some(op) = target.resource.op(head.method()) else {
        let detail = "the method is not allowed at this path; see the field Allow";
        let fault = Fault::because(FaultKind::UnsupportedOperation, detail);
        let (form, fields) = (target.form, target.resource.allow());
        return Err(Box::new(RestRefusal { form, fault, status: 405, fields }));
    };
    let (requested, forms) = (version_of(head), target.at.endpoint.dialect.routes.rest);
    let form = version::rest(requested.as_deref(), target.form, forms, cx.config.strict_version)
        .map_err(|fault| Box::new(plain(target.form, fault)))?;
    // The media type is irrelevant if the request has no body, except for a POST of a web page,
    // which may be sent without a preflight.
    let is_post = head.method() == http::Method::Post;
    let is_page = is_post && head.value(Field::Origin).is_some();
    if (!is_empty || is_page) && !has_type(head, is_read) {
        let detail = "the body must be application/json or application/a2a+json";
        let fault = Fault::because(FaultKind::ContentTypeNotSupported, detail);
        // A dialect may define its own status for this fault.
        return Err(Box::new(match target.at.endpoint.dialect.quirks.media_http {
            200 => plain(form, fault),
            status => RestRefusal { form, fault, status, fields: FieldLines::NONE },
        }));
    }
    let method = form.method(op);
    let method = method.ok_or_else(|| Box::new(plain(form, FaultKind::MethodNotFound.into())))?;
    Ok((form, method))
}

/// Reads the call.
#[inline(always)]
fn decode<'p>(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    target: &RestTarget<'_>,
    method: &'static Method,
    buffers: &'p mut DecodeBuffers,
    body: Source<'p>,
) -> Result<Call<'p>, Fault> {
    if let RestResource::Config(..) = target.resource {
        return decode_config(cx, head, target, method, buffers);
    }
    let DecodeBuffers { parser, pack, params } = buffers;
    let op = method.op;
    if op == Op::List {
        let pairs = http::query::pairs(head.query().unwrap_or_default());
        pairs.flatten().for_each(|(name, _)| cx.note_filter(name));
    }
    let omits_optional_body = body.bytes().is_empty() && matches!(op.params(), Params::Target(_));
    let (text, is_optional) = match head.method() {
        http::Method::Post if !omits_optional_body => (body, false),
        _ if query::params(params, op, head.query())? => (Source::from(&*params), false),
        _ => (Source::from(&[][..]), true),
    };
    let depth_max = cx.config.limits.json_depth_max;
    let value = match text.bytes().is_empty() && is_optional {
        true => None,
        false => Some(parser.parse_from(text, depth_max).map_err(parse_fault)?),
    };
    let task = target.resource.task().map(raw_id).transpose()?;
    cx.decode(method, task.as_deref(), value, pack)
}

/// Reads a call about the configuration in the path: the id of the configuration becomes one of the
/// params; the body is ignored.
#[cold]
#[inline(never)]
fn decode_config<'p>(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    target: &RestTarget<'_>,
    method: &'static Method,
    buffers: &'p mut DecodeBuffers,
) -> Result<Call<'p>, Fault> {
    let DecodeBuffers { parser, pack, params } = buffers;
    let id = raw_id(target.resource.config().unwrap_or_default())?;
    // The id is appended to the params of the query: of members with the same name the last is
    // used.
    match query::params(params, method.op, head.query())? {
        true => *params.last_mut().unwrap_or(&mut 0) = b',',
        false => params.push(b'{'),
    }
    params.extend_from_slice(b"\"configId\":\"");
    params.extend_from_slice(&id);
    params.extend_from_slice(b"\"}");
    let text = Source::from(&*params);
    let value = parser.parse_from(text, cx.config.limits.json_depth_max).map_err(parse_fault)?;
    let task = target.resource.task().map(raw_id).transpose()?;
    cx.decode(method, task.as_deref(), Some(value), pack)
}

/// An id in a path, as the raw text of a JSON string.
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
