//! Reads the envelope, the method and the version of a request object.

use crate::{
    binding::{
        CallContext, Endpoint, RequestSource,
        answer::AnswerFormat,
        call::{in_flight, write_cx},
        negotiation::names,
    },
    dialect::{Dialect, Method, version},
    fault::{Fault, FaultKind},
    http::{Field, media},
    model::{Call, Generation, Op},
    rpc::{self, RpcRequest},
};

use super::format;

/// A request object with a callable method; its params are not read yet.
///
/// The request is large, so it is borrowed.
pub(super) struct RpcRequestHead<'r, 'p> {
    pub(super) method: &'static Method,
    pub(super) request: &'r RpcRequest<'p>,
    /// True: the client gets neither a result nor an error of the call.
    pub(super) is_silent: bool,
}

/// Why a request object is not a call.
pub(super) enum Rejected<'p> {
    /// The request is a notification.
    Silently,
    /// The operation if it is known, the format of the answer, and the error.
    With(Box<(Option<Op>, AnswerFormat<'p>, Fault)>),
}

impl<'p> RpcRequestHead<'_, 'p> {
    /// The format of the answer of `call`.
    #[inline(always)]
    pub(super) fn format(&self, cx: &CallContext<'_>, call: &Call<'p>) -> AnswerFormat<'p> {
        let method = self.method;
        AnswerFormat {
            method: Some(method),
            write: write_cx(method.op, call, cx.now),
            events: cx.source.events(),
            refuses_by_stream: method.op.is_streaming() && refuses_by_stream(cx, method),
            ..format(cx.endpoint, id_of(self.request), &method.wire.encode, method.op)
        }
    }

    /// The rejection of a request with invalid params.
    #[cold]
    pub(super) fn refused(&self, cx: &CallContext<'_>, fault: Fault) -> Rejected<'p> {
        match self.is_silent {
            true => Rejected::Silently,
            false => {
                let Method { wire, op, .. } = *self.method;
                let format = format(cx.endpoint, id_of(self.request), &wire.encode, op);
                Rejected::With(Box::new((Some(op), format, fault)))
            }
        }
    }
}

/// The rejection of an invalid request object.
#[cold]
pub(super) fn invalid<'p>(endpoint: Endpoint, invalid: &rpc::Invalid<'p>) -> Rejected<'p> {
    let format = format(endpoint, invalid.id, endpoint.dialect.fault_encode(b""), Op::Send);
    Rejected::With(Box::new((None, format, invalid.fault.clone())))
}

/// The rejection of a request object at a path of HTTP+JSON for another operation.
#[cold]
pub(super) fn other_method<'p>(endpoint: Endpoint, request: &RpcRequest<'p>) -> Rejected<'p> {
    let encode = endpoint.dialect.fault_encode(&request.method);
    let format = format(endpoint, id_of(request), encode, Op::Send);
    let detail = "the method does not match the operation of the path";
    let fault = Fault::because(FaultKind::InvalidRequest, detail);
    Rejected::With(Box::new((None, format, fault)))
}

/// Finds the method of a request object, and checks whether it may be called.
#[inline(always)]
pub(super) fn head<'r, 'p>(
    cx: &CallContext<'_>,
    version: Option<&[u8]>,
    request: &'r RpcRequest<'p>,
    in_batch: bool,
) -> Result<RpcRequestHead<'r, 'p>, Rejected<'p>> {
    let dialect = cx.endpoint.dialect;
    let method = dialect.method(&request.method);
    let is_silent = request.id.is_none() && is_notification(dialect, request, method, in_batch);
    let Some(method) = method else { return Err(unknown_method(cx.endpoint, request, is_silent)) };
    let head = RpcRequestHead { method, request, is_silent };
    match check(cx, version, method, request.by_position, in_batch) {
        Ok(()) => Ok(head),
        Err(fault) => Err(head.refused(cx, fault)),
    }
}

/// The id of the answer.
#[inline(always)]
fn id_of<'p>(request: &RpcRequest<'p>) -> &'p [u8] {
    request.id.unwrap_or(rpc::NULL_ID)
}

#[cold]
fn unknown_method<'p>(
    endpoint: Endpoint,
    request: &RpcRequest<'p>,
    is_silent: bool,
) -> Rejected<'p> {
    if is_silent {
        return Rejected::Silently;
    }
    let encode = endpoint.dialect.fault_encode(&request.method);
    let format = format(endpoint, id_of(request), encode, Op::Send);
    let kind = FaultKind::MethodNotFound;
    let fault = match endpoint.dialect.method_of_any_case(&request.method) {
        Some(suggested) => {
            Fault::because(kind, ["Method not found: did you mean ", suggested.name, "?"].concat())
        }
        None => kind.into(),
    };
    Rejected::With(Box::new((None, format, fault)))
}

/// Checks whether a method may be called.
#[inline(always)]
fn check(
    cx: &CallContext<'_>,
    version: Option<&[u8]>,
    method: &'static Method,
    by_position: bool,
    in_batch: bool,
) -> Result<(), Fault> {
    version::check(version, method.generation(), cx.config.strict_version)?;
    let invalid = |detail: &'static str| Fault::because(FaultKind::InvalidRequest, detail);
    if by_position {
        return Err(Fault::param("params", "parameters must be passed by name"));
    }
    if in_batch && method.op.is_streaming() {
        return Err(invalid("streams cannot be part of a batch"));
    }
    match cx.source {
        RequestSource::Http(head) => {
            let quirks = &cx.endpoint.dialect.quirks;
            if quirks.accept_required && !accepts(head.value(Field::Accept), method.op) {
                return Err(invalid("Accept must name the media type of the answer"));
            }
        }
        RequestSource::WebSocket { is_full, .. } if is_full && can_wait(method.op) => {
            return Err(in_flight());
        }
        RequestSource::WebSocket { .. } | RequestSource::Grpc(_) => {}
    }
    Ok(())
}

/// Whether a fault of a streaming call must be sent as a stream. Before 1.0 the answer to a
/// resubscription is always a stream (A2A 0.3 §7.9), and clients that accept only streams cannot
/// read other answers. Clients of some platforms only read streams.
fn refuses_by_stream(cx: &CallContext<'_>, method: &Method) -> bool {
    let RequestSource::Http(head) = cx.source else { return false };
    if method.generation() == Generation::V1 {
        return false;
    }
    let accept = head.value(Field::Accept);
    let reads_only_streams = || accept.is_some() && !names(accept, media::JSON);
    cx.endpoint.dialect.quirks.stream_faults || (method.op == Op::Subscribe && reads_only_streams())
}

/// Whether a call of this operation can wait for its task.
fn can_wait(op: Op) -> bool {
    matches!(op, Op::Send | Op::Stream | Op::Subscribe)
}

/// `application/json`, with parameters, or a type with the `+json` suffix (RFC 6839 §3.1).
#[inline(always)]
pub(super) fn is_json(value: &[u8]) -> bool {
    if value == media::JSON.as_bytes() {
        return true;
    }
    let name = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(media::JSON.as_bytes())
        || (name.len() > 17
            && name[..12].eq_ignore_ascii_case(b"application/")
            && name[name.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

/// Whether a request without an id gets no answer.
///
/// In a batch, and in a dialect that follows JSON-RPC 2.0, every request without an id is a
/// notification. A2A itself has no notifications, and its servers answer with a null id; only an
/// unknown method without params, which A2A clients never send, counts as a notification.
fn is_notification(
    dialect: &Dialect,
    request: &RpcRequest<'_>,
    method: Option<&Method>,
    in_batch: bool,
) -> bool {
    in_batch
        || dialect.quirks.silent_notifications
        || (method.is_none() && request.params.is_none())
}

/// LangSmith (wire §8): `Accept` must contain the media type of the answer, or a range that
/// includes it.
fn accepts(accept: Option<&[u8]>, op: Op) -> bool {
    names(accept, if op.is_streaming() { media::EVENT_STREAM } else { media::JSON })
}
