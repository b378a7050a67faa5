//! gRPC: decodes the head and the single message of a request into a call and the format of its
//! answer.
//!
//! Invariant: this module is independent of HTTP/2. Requests are decoded directly into the call,
//! and answers are encoded directly from the task, each message after its prefix of five bytes. A
//! call ends with a status: in the trailers after its messages, or in a head without content.
//!
//! In scope: A2A 1.0 and 0.3, JSON in messages (a2a_rust), health and reflection (the driver runs
//! their streams, `net/http2/services.rs`), and gzip for requests and for long answers except
//! streams. Out of scope: other services.

mod card;
mod card_security;
pub mod count;
pub mod fields;
pub mod frame;
pub mod from_json;
pub mod health;
mod message;
mod parts;
mod push;
pub mod read;
// HTTP/2 only: without it, a call has only one message.
#[cfg(any(feature = "grpc", feature = "internals"))]
pub mod reflection;
mod rpcs;
// The server uses few schemas; the client uses all.
#[cfg_attr(not(any(feature = "client", feature = "internals")), allow(dead_code))]
pub mod schemas;
pub mod status;
pub mod structs;
mod timeout;
pub mod unwritable;
mod wire;
pub mod write;

use std::borrow::Cow;

use crate::{
    binding::{
        CallContext, DecodeBuffers, Endpoint, Handled, RequestSource,
        answer::{AnswerFormat, ResponseWriter},
        call::write_cx,
        extensions::{self, DeclaredExtensions},
        origin::Origin,
        responder::Content,
        stream::EventFraming,
        terms::CallTerms,
    },
    dialect::{STANDARD, WriteCx, version},
    fault::Fault,
    http::{Field, FieldLines, Head, Method, media},
    limits::{Limits, SERVICE_MESSAGE_BYTES_MAX},
    model::Call,
    service::RequestFields,
};

use frame::OnlyMessage;
use health::Serving;

#[cfg(any(feature = "client", feature = "internals"))]
pub use rpcs::GrpcService;
pub use rpcs::{GrpcMethod, Rpc, SERVICES, rpc};
pub use status::{Code, Status};
pub use timeout::timeout_ms;

/// gRPC over HTTP/2, "Requests": POST of `application/grpc`, or with a suffix or parameters.
pub fn is_request(head: &Head<'_>) -> bool {
    let media = head.value(Field::ContentType);
    head.method() == Method::Post && media.is_some_and(is_media)
}

/// Whether this is the media type of gRPC.
pub fn is_media(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(media::GRPC.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The size limit of a message in bytes: a low limit for health and reflection, which every client
/// may call.
pub fn message_bytes_max(path: &str, limits: &Limits) -> usize {
    match path.starts_with("/grpc.") {
        true => limits.body_bytes_max.min(SERVICE_MESSAGE_BYTES_MAX),
        false => limits.body_bytes_max,
    }
}

/// The metadata of a request.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'x> {
    /// `a2a-version`.
    pub version: Option<&'x [u8]>,
    /// `a2a-last-event-id`: the last event that a resuming subscriber has seen.
    pub last_event_id: Option<u64>,
    /// `a2a-tenant`: messages of 1.0 have a field for it, messages of 0.3 have none.
    pub tenant: Option<&'x str>,
    /// The head, for other terms of the call.
    pub head: Option<&'x Head<'x>>,
    /// The origin to which the client sent the request, for cards.
    pub origin: Origin<'x>,
    /// All header fields, for agents that name some in their profiles.
    pub fields: RequestFields<'x>,
}

impl<'x> Metadata<'x> {
    /// The terms of the call; `grpc-timeout` takes precedence over the header field of HTTP.
    pub fn terms(self) -> CallTerms<'x> {
        let Some(head) = self.head else { return CallTerms::default() };
        let terms = CallTerms::of(head);
        CallTerms { timeout_ms: timeout_ms(head).or(terms.timeout_ms), ..terms }
    }
}

/// Handles a request with a complete body.
pub fn handle<'x>(
    cx: &mut CallContext<'x>,
    head: &'x Head<'x>,
    buffers: &mut DecodeBuffers,
    body: &[u8],
) -> Handled {
    // A path with a query is unknown.
    let path = if head.query().is_none() { head.path() } else { "" };
    let Some(rpc) = rpc(path) else { return refuse_request(cx, 404, &no_rpc()) };
    if let Rpc::A2a(method) = rpc
        && let Err(fault) = cx.take_request(body.len())
    {
        cx.begin_call(body.len());
        cx.report_refused(Some(method.op), &format(method), &fault);
        return refuse_unread(&mut cx.writer, head, &fault);
    }
    let limits = &cx.config.limits;
    let bytes_max = match rpc {
        Rpc::A2a(_) => limits.body_bytes_max,
        Rpc::HealthCheck | Rpc::HealthWatch | Rpc::Reflection => message_bytes_max(path, limits),
    };
    let inflated;
    let message = match frame::only(body, bytes_max) {
        Ok(OnlyMessage { bytes, is_compressed: false }) => bytes,
        Ok(OnlyMessage { bytes, is_compressed: true }) => {
            match frame::inflate(head.values("grpc-encoding").next(), bytes, bytes_max) {
                Ok(message) => {
                    inflated = message;
                    &inflated
                }
                Err(status) => {
                    return refuse_message(cx, &status);
                }
            }
        }
        Err(status) => {
            return refuse_message(cx, &status);
        }
    };
    let last_event_id = head.value(Field::A2aLastEventId).and_then(number);
    let origin = Origin::of(cx.config, cx.peer, head);
    let version = head.value(Field::A2aVersion);
    // A text that is not UTF-8 becomes an invalid name.
    let tenant = head.value(Field::A2aTenant).map(|name| str::from_utf8(name).unwrap_or("?"));
    let fields = RequestFields::of(head);
    let metadata = Metadata { version, last_event_id, tenant, head: Some(head), origin, fields };
    cx.source = RequestSource::Grpc(metadata);
    cx.extensions = extensions::joined(head).map(Cow::Owned);
    match rpc {
        Rpc::A2a(method) => {
            cx.report_admitted();
            call(cx, method, buffers, message)
        }
        Rpc::HealthCheck => check_health(cx, message),
        Rpc::HealthWatch | Rpc::Reflection => {
            let why = "this rpc is not available over this transport";
            refuse_request(cx, 404, &Status::new(Code::Unimplemented, why))
        }
    }
}

/// Rejects a message that is too large or malformed.
fn refuse_message(cx: &mut CallContext<'_>, status: &Status) -> Handled {
    let is_too_large = status.code == Code::ResourceExhausted;
    let limit = is_too_large.then_some("body_bytes_max");
    cx.config.report_limit(cx.scratch.worker, limit, None);
    cx.report_request_refused(if is_too_large { 413 } else { 400 }, &status.message, limit);
    refuse(&mut cx.writer, status)
}

/// Rejects a request that is not a call, and reports it under the HTTP status.
fn refuse_request(cx: &mut CallContext<'_>, http: u16, status: &Status) -> Handled {
    cx.report_request_refused(http, &status.message, None);
    refuse(&mut cx.writer, status)
}

fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.trim().parse().ok()
}

/// The status of a fault, for clients of 1.0.
#[cfg(any(feature = "grpc", feature = "internals"))]
pub fn status_of(fault: &Fault) -> Status {
    Status::of(fault, &wire::V1.encode)
}

/// The status of a call to an unknown rpc.
pub fn no_rpc() -> Status {
    Status::new(Code::Unimplemented, "no such rpc")
}

/// Ends a call without messages: the response has only trailers.
#[cold]
pub fn refuse(writer: &mut ResponseWriter<'_>, status: &Status) -> Handled {
    writer.begin(200, media::GRPC, status.fields().get(), Content::Whole);
    writer.finish();
    Handled::Answered
}

/// Ends a call of which only the head was read, in the format of its service.
pub fn refuse_unread(writer: &mut ResponseWriter<'_>, head: &Head<'_>, fault: &Fault) -> Handled {
    let encode = match rpc(head.path()) {
        Some(Rpc::A2a(method)) => &method.wire.encode,
        Some(Rpc::HealthCheck | Rpc::HealthWatch | Rpc::Reflection) | None => &wire::V1.encode,
    };
    refuse(writer, &Status::of(fault, encode))
}

fn check_health(cx: &mut CallContext<'_>, message: &[u8]) -> Handled {
    match health::is_known(message).map(|exists| Serving::of(exists, cx.closes)) {
        Ok(Serving::Unknown) => refuse(&mut cx.writer, &health::no_service()),
        Ok(serving) => {
            cx.writer.begin(200, media::GRPC, FieldLines::NONE, Content::Whole);
            health::push(cx.writer.out, serving);
            cx.writer.trailers(Status::OK.fields());
            cx.writer.finish();
            Handled::Answered
        }
        Err(status) => refuse(&mut cx.writer, &status),
    }
}

/// The format of a method's answers before its call is read.
fn format<'p>(method: &'static GrpcMethod) -> AnswerFormat<'p> {
    AnswerFormat {
        envelope: wire::envelope(method.wire),
        method: None,
        encode: &method.wire.encode,
        write: WriteCx::new(method.op),
        media: media::GRPC,
        fields: &FieldLines::NONE,
        status: |_| 200,
        events: EventFraming::Grpc,
        refuses_by_stream: false,
    }
}

/// Decodes and executes the call of a message; its source is [`RequestSource::Grpc`].
pub fn call(
    cx: &mut CallContext<'_>,
    method: &'static GrpcMethod,
    buffers: &mut DecodeBuffers,
    message: &[u8],
) -> Handled {
    cx.begin_call(message.len());
    let format = format(method);
    let strict = cx.config.strict_version;
    let decoded = version::check(cx.source.version().as_deref(), method.generation(), strict)
        .and_then(|()| decode(cx, method, buffers, message));
    match decoded {
        Ok(ref call) => {
            cx.endpoint = Endpoint::own(&STANDARD, cx.agent);
            name_extensions(cx);
            if let Call::ExtendedCard = call {
                return card::answer(cx, &format);
            }
            let write = write_cx(method.op, call, cx.now);
            cx.answer(call, &AnswerFormat { write, ..format })
        }
        Err(fault) => {
            cx.refuse_call(Some(method.op), &format, &fault);
            Handled::Answered
        }
    }
}

fn decode<'p>(
    cx: &mut CallContext<'_>,
    method: &'static GrpcMethod,
    buffers: &'p mut DecodeBuffers,
    message: &'p [u8],
) -> Result<Call<'p>, Fault> {
    let mut tenant = "";
    let call = cx.decode_by(method.op, method.generation(), None, |read_cx| {
        let request = (method.wire.decode)(read_cx, message, buffers)?;
        tenant = request.tenant;
        Ok(request.call)
    })?;
    // A2A 1.0 §8.3.2: clients send the tenant of the interface that they have chosen; over gRPC it
    // names the agent.
    if let RequestSource::Grpc(metadata) = cx.source {
        cx.outside_tenant = metadata.tenant;
    }
    cx.address(Some(tenant))?;
    Ok(call)
}

/// A2A 1.0 §3.2.6: the answer names the extensions in effect.
fn name_extensions(cx: &mut CallContext<'_>) {
    let Some(named) = &cx.extensions else { return };
    let Some(profile) = cx.service.profile(cx.endpoint.agent) else { return };
    let is_authenticated = cx.admission.is_some();
    let declared = DeclaredExtensions { profile: &profile, config: cx.config, is_authenticated };
    let uris = extensions::in_effect(declared, named);
    if !uris.is_empty() {
        cx.writer.fields.push("a2a-extensions", &uris.join(", "));
    }
}
