//! JSON-RPC over HTTP POST and over WebSocket. The body is one call or a batch; the answer is one
//! response, a batch or a stream.
//!
//! The body is parsed once. An error of a call has the id of the call, is in the wire format of its
//! generation, and does not close the connection.

mod batch;
mod read;

use crate::{
    binding::{
        CallContext, DecodeBuffers, Endpoint, Handled, RequestSource, answer::AnswerFormat,
        coded::CodingRefusal, envelope::Envelope, negotiation::has_type, stream::EventFraming,
    },
    dialect::{Encode, WriteCx},
    fault::{Fault, FaultKind},
    http::{FieldLines, media},
    json::{JsonError, Kind, Source, Value},
    model::Op,
    rpc,
};

use read::{Rejected, is_json};

/// Handles the body of a POST, or a message of a WebSocket.
#[inline(always)]
pub fn handle(cx: &mut CallContext<'_>, buffers: &mut DecodeBuffers, body: Source<'_>) -> Handled {
    cx.begin_call(body.bytes().len());
    if let Err(fault) = cx.take_request(body.bytes().len()) {
        refuse_unread(cx, &fault);
        cx.report_refused(None, &unknown(cx.endpoint), &fault);
        return Handled::Answered;
    }
    if let RequestSource::Http(head) = cx.source
        && !has_type(head, is_json)
    {
        let detail = "the body must be application/json";
        let fault = Fault::because(FaultKind::ContentTypeNotSupported, detail);
        let status = cx.endpoint.dialect.quirks.media_http;
        cx.writer.refuse_under(status, &unknown(cx.endpoint), &fault);
        cx.report_refused(None, &unknown(cx.endpoint), &fault);
        return Handled::Answered;
    }
    let version = cx.source.version();
    let version = version.as_deref();
    let DecodeBuffers { parser, pack, .. } = buffers;
    // The levels of the envelope and of a batch do not count against the limit.
    match parser.parse_from(body, cx.config.limits.json_depth_max + 2) {
        Ok(value) if value.kind() == Kind::Array => batch::answer(cx, pack, version, value),
        Ok(value) => single(cx, pack, version, value),
        Err(error) => not_read(cx, error),
    }
}

/// Handles a request object at a path of HTTP+JSON; its bytes were charged before. The request must
/// be for the operation of the path, and for the task in the path (`task`: its raw id).
#[cold]
pub fn handle_at_path(
    cx: &mut CallContext<'_>,
    buffers: &mut DecodeBuffers,
    body: Source<'_>,
    op: Op,
    task: Option<&[u8]>,
) -> Handled {
    let version = cx.source.version();
    let DecodeBuffers { parser, pack, .. } = buffers;
    let value = match parser.parse_from(body, cx.config.limits.json_depth_max + 2) {
        Ok(value) => value,
        Err(error) => return not_read(cx, error),
    };
    let request = match rpc::read(value, &cx.config.limits) {
        Ok(request) => request,
        Err(invalid) => return refuse(cx, read::invalid(cx.endpoint, &invalid)),
    };
    let method = cx.endpoint.dialect.method(&request.method);
    if method.is_none_or(|method| method.op != op) {
        return refuse(cx, read::other_method(cx.endpoint, &request));
    }
    let head = match read::head(cx, version.as_deref(), &request, false) {
        Ok(head) => head,
        Err(refused) => return refuse(cx, refused),
    };
    match cx.decode(head.method, task, request.params, pack) {
        Ok(ref call) => cx.answer(call, &head.format(cx, call)),
        Err(fault) => refuse(cx, head.refused(cx, fault)),
    }
}

/// Rejects an unreadable request object at a path of HTTP+JSON.
#[cold]
pub fn refuse_at_path(cx: &mut CallContext<'_>, fault: &Fault) -> Handled {
    let format = unknown(cx.endpoint);
    cx.refuse_call(None, &format, fault);
    Handled::Answered
}

/// Rejects a request with an unsupported or broken content coding; `body_bytes`: the length of the
/// body as received.
#[cold]
pub fn refuse_coding(
    cx: &mut CallContext<'_>,
    body_bytes: usize,
    refusal: &CodingRefusal,
) -> Handled {
    cx.begin_call(body_bytes);
    let format = unknown(cx.endpoint);
    match (cx.take_request(body_bytes), refusal.status) {
        (Err(fault), _) => {
            refuse_unread(cx, &fault);
            cx.report_refused(None, &format, &fault);
            return Handled::Answered;
        }
        (Ok(()), Some(status)) => cx.writer.refuse_under(status, &format, &refusal.fault),
        (Ok(()), None) => cx.writer.refuse(&format, &refusal.fault),
    }
    cx.report_refused(None, &format, &refusal.fault);
    Handled::Answered
}

/// Answers one request object.
#[inline(never)] // Saves 60 instructions in the benchmark `get`.
fn single(
    cx: &mut CallContext<'_>,
    pack: &mut Vec<u8>,
    version: Option<&[u8]>,
    value: Value<'_>,
) -> Handled {
    let request = rpc::read(value, &cx.config.limits);
    let request = match &request {
        Ok(request) => request,
        Err(invalid) => return refuse(cx, read::invalid(cx.endpoint, invalid)),
    };
    let head = match read::head(cx, version, request, false) {
        Ok(head) => head,
        Err(refused) => return refuse(cx, refused),
    };
    // A call is large, so it is borrowed, not moved.
    match cx.decode(head.method, None, request.params, pack) {
        Ok(ref call) if head.is_silent => {
            cx.call_silently(call, &head.format(cx, call));
            refuse(cx, Rejected::Silently)
        }
        Ok(ref call) => cx.answer(call, &head.format(cx, call)),
        Err(fault) => refuse(cx, head.refused(cx, fault)),
    }
}

/// Answers an invalid call, or a notification.
#[cold]
fn refuse(cx: &mut CallContext<'_>, refused: Rejected<'_>) -> Handled {
    match refused {
        Rejected::With(refused) => {
            let (op, format, fault) = &*refused;
            cx.refuse_call(*op, format, fault);
        }
        // JSON-RPC 2.0 §4.1: a notification gets no response; over HTTP the response is empty.
        Rejected::Silently => cx.writer.empty(204, FieldLines::NONE),
    }
    Handled::Answered
}

/// Answers a body that cannot be parsed. RFC 9110 §15.5.14: 413 for too many tokens, as for too
/// many bytes.
#[cold]
fn not_read(cx: &mut CallContext<'_>, error: JsonError) -> Handled {
    let (format, fault) = (unknown(cx.endpoint), parse_fault(error));
    match error {
        JsonError::Tokens { .. } | JsonError::TooLarge => {
            cx.writer.refuse_under(413, &format, &fault);
        }
        JsonError::Empty
        | JsonError::Syntax { .. }
        | JsonError::Range { .. }
        | JsonError::Utf8
        | JsonError::Depth => cx.writer.refuse(&format, &fault),
    }
    cx.report_refused(None, &format, &fault);
    Handled::Answered
}

/// The format of an error for a request with an unknown method.
fn format<'p>(
    endpoint: Endpoint,
    id: &'p [u8],
    encode: &'static Encode,
    op: Op,
) -> AnswerFormat<'p> {
    AnswerFormat {
        envelope: Envelope::Rpc(id),
        method: None,
        encode,
        write: WriteCx::new(op),
        media: media::JSON,
        fields: &FieldLines::NONE,
        status: endpoint.dialect.fault_http(encode.generation),
        events: EventFraming::Sse,
        refuses_by_stream: false,
    }
}

/// The format of an error for a body that was not read.
fn unknown(endpoint: Endpoint) -> AnswerFormat<'static> {
    format(endpoint, rpc::NULL_ID, endpoint.dialect.fault_encode(b""), Op::Send)
}

/// Rejects a request of which only the head was read, in the format of its version.
pub fn refuse_unread(cx: &mut CallContext<'_>, fault: &Fault) {
    let version = cx.source.version();
    let encode = cx.endpoint.dialect.fault_encode_of(version.as_deref());
    let format = format(cx.endpoint, rpc::NULL_ID, encode, Op::Send);
    cx.writer.refuse(&format, fault);
}

/// Writes the error object for a body that was not read.
pub fn push_unread(out: &mut Vec<u8>, endpoint: Endpoint, fault: &Fault) {
    unknown(endpoint).push_fault(out, fault);
}

pub(super) fn parse_fault(error: JsonError) -> Fault {
    match error {
        JsonError::Empty => Fault::because(FaultKind::Parse, "the body is empty"),
        JsonError::Syntax { offset } => {
            Fault::because(FaultKind::Parse, format!("invalid JSON at byte {offset}"))
        }
        JsonError::Range { .. } => Fault::because(FaultKind::Parse, error.to_string()),
        JsonError::Utf8 => Fault::because(FaultKind::Parse, "the body is not UTF-8"),
        JsonError::Depth => Fault::because(FaultKind::InvalidRequest, "JSON is nested too deeply")
            .of_limit("json_depth_max"),
        JsonError::Tokens { .. } => {
            Fault::because(FaultKind::InvalidRequest, format!("{error} (json_tokens_max)"))
                .of_limit("json_tokens_max")
        }
        JsonError::TooLarge => Fault::because(FaultKind::InvalidRequest, "the body is too large")
            .of_limit("body_bytes_max"),
    }
}
