//! gRPC: writes calls as length-prefixed messages, and reads answers from them.
//!
//! Invariant: a message has the content of the ProtoJSON that its generation has over HTTP+JSON;
//! the schemas of the proto files convert between both. Statuses are read as leniently as faults in
//! JSON.

use std::{cell::Cell, fmt, ops::Range};

use crate::{
    binding::grpc::{
        GrpcService,
        fields::other::json_payload,
        frame::{self, Framed},
        schemas::{NoField, Schema, push_json, push_message, v1, v03},
        structs::{Bounds, NotJson},
    },
    dialect::{
        self,
        calls::{ALL_HISTORY, CallOut, Calls},
        push_name,
    },
    http::media,
    json::{Parser, write::push_u64},
    model::{
        Generation, NotExpressible, Op, OutgoingCall, PushCall, PushConfig, RawText, ReadError,
        Received,
    },
    pb::{Fields, Writer},
};

use super::{super::TransportError, CallError, Format, FormatBuffers, WrittenCall};

const BY: &str = "gRPC";

/// The JSON of a call before it becomes a message; reused for each call.
#[derive(Default)]
pub(super) struct GrpcScratch {
    json: Vec<u8>,
    parser: Parser,
}

impl Clone for GrpcScratch {
    fn clone(&self) -> GrpcScratch {
        GrpcScratch::default()
    }
}

impl fmt::Debug for GrpcScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcScratch").finish_non_exhaustive()
    }
}

impl Format {
    /// The gRPC service.
    fn service(&self) -> Option<GrpcService> {
        match (self.dialect.name, self.generation) {
            ("a2a_rust", Generation::V1) => Some(GrpcService::Json),
            (_, Generation::V1) => Some(GrpcService::V1),
            (_, Generation::V03) => Some(GrpcService::V03),
            (_, Generation::V01) => None,
        }
    }

    /// Whether the service has an rpc for the operation.
    pub(super) fn offers_rpc(&self, op: Op) -> bool {
        self.service().is_some_and(|service| service.rpc(op).is_some())
    }

    /// Finds the first message in the received bytes of a response and returns its range; the next
    /// message follows at its end. `None`: more bytes are needed. `limit` is the name of
    /// `bytes_max`.
    ///
    /// # Errors
    /// `TooLarge` if the message is longer than `bytes_max`, `Coding` if it is compressed.
    pub fn message_in(
        bytes: &[u8],
        bytes_max: usize,
        limit: &'static str,
    ) -> Result<Option<Range<usize>>, TransportError> {
        const COMPRESSED: &str = "a gRPC message is compressed, which was not requested";
        match frame::look(bytes, bytes_max) {
            Framed::Partial(_) => Ok(None),
            Framed::Whole(length) => Ok(Some(frame::PREFIX..frame::PREFIX + length)),
            Framed::Compressed(_) => Err(TransportError::Coding(COMPRESSED)),
            Framed::TooLarge => Err(TransportError::TooLarge(limit)),
        }
    }

    /// Reads a gRPC message, without its prefix: the answer to `op`, or an item of its stream. The
    /// result has no span.
    ///
    /// # Errors
    /// [`CallError::Unreadable`]; `received` is then empty.
    pub fn read_message(
        &self,
        buffers: &mut FormatBuffers,
        op: Op,
        message: &[u8],
        received: &mut Received,
    ) -> Result<(), CallError> {
        received.clear();
        let FormatBuffers { parser, depth_max, values, json, longest, .. } = buffers;
        json.clear();
        let (schemas, data): (Option<Schemas>, _) = match self.service() {
            Some(GrpcService::V1) => (Some(response_v1), message),
            Some(GrpcService::V03) => (Some(response_v03), message),
            Some(GrpcService::Json) | None => (None, payload(message)?),
        };
        let text = match schemas.map(|schemas| schemas(op)) {
            None => data,
            // Wire §4.1: `google.protobuf.Empty`.
            Some(None) => return Ok(()),
            Some(Some(schema)) => {
                let tokens = Cell::new(usize::MAX);
                let bounds = Bounds { depth_max: *depth_max, tokens: &tokens };
                push_json(json, schema, data, bounds).map_err(no_message)?;
                &json[..]
            }
        };
        *longest = text.len().max(*longest);
        let value = parser.parse(text, *depth_max).map_err(|error| {
            CallError::from(ReadError::new(format!("must be JSON in a message: {error}")))
        })?;
        dialect::read_reply(&self.reply_cx(values), op, Some(value), received)?;
        received.set_span(0..0);
        Ok(())
    }
}

type Schemas = fn(Op) -> Option<&'static Schema>;

/// Writes a call: its path, and one message with its prefix.
pub(super) fn write(
    format: &Format,
    call: &OutgoingCall<'_>,
    tenant: Option<&str>,
    out: &mut WrittenCall,
) -> Result<(), NotExpressible> {
    let op = call.op();
    let missing = NotExpressible { what: op.name(), by: format.name() };
    let service = format.service().ok_or(missing)?;
    let rpc = service.rpc(op).ok_or(missing)?;
    for part in ["/", service.name(), "/", rpc] {
        out.path.push_str(part);
    }
    let WrittenCall { body, grpc: GrpcScratch { json, parser }, .. } = out;
    json.clear();
    let cx = CallOut { tenant, event_id: false };
    match service {
        GrpcService::V1 | GrpcService::Json => Calls::V1.write(json, call, cx)?,
        GrpcService::V03 => params_v03(json, call, cx)?,
    }
    let start = frame::begin(body);
    let schema = match service {
        GrpcService::V1 => request_v1(op),
        GrpcService::V03 => request_v03(op),
        GrpcService::Json => {
            Writer(body).bytes(json_payload::DATA, json);
            frame::finish(body, start);
            out.content_type = Some(media::GRPC);
            return Ok(());
        }
    };
    // The client wrote this text, so only JSON of the caller in it can be invalid.
    let no_json = NotExpressible { what: "data that is not JSON", by: BY };
    let value = parser.parse(json, usize::MAX).map_err(|_| no_json)?;
    if pushed(call).is_some_and(|config| config.filter().is_some()) {
        return Err(NotExpressible { what: "the events of a push configuration", by: BY });
    }
    push_message(body, schema, value)
        .map_err(|NoField(_)| NotExpressible { what: "a member outside of a2a.proto", by: BY })?;
    frame::finish(body, start);
    out.content_type = Some(media::GRPC);
    Ok(())
}

/// The push configuration of a call.
fn pushed<'c>(call: &OutgoingCall<'c>) -> Option<PushConfig<'c>> {
    match *call {
        OutgoingCall::Send(ref send) => send.push,
        OutgoingCall::Push(PushCall::Set(config)) => Some(config),
        OutgoingCall::Push(_)
        | OutgoingCall::Get(_)
        | OutgoingCall::List(_)
        | OutgoingCall::Cancel(_)
        | OutgoingCall::Subscribe(_)
        | OutgoingCall::ExtendedCard => None,
    }
}

/// The params of 0.3 in ProtoJSON, with the members that HTTP+JSON has in its paths.
fn params_v03(
    out: &mut Vec<u8>,
    call: &OutgoingCall<'_>,
    cx: CallOut<'_>,
) -> Result<(), NotExpressible> {
    let start = out.len();
    // Writes the body of HTTP+JSON, or rejects a call that HTTP+JSON cannot express.
    Calls::V03Rest.write(out, call, cx)?;
    let (member, task_id, id) = match *call {
        OutgoingCall::Send(_) | OutgoingCall::Push(PushCall::Set(_)) => return Ok(()),
        OutgoingCall::List(_) | OutgoingCall::ExtendedCard => return Ok(()),
        OutgoingCall::Get(get) => ("name", get.id, None),
        OutgoingCall::Cancel(target) | OutgoingCall::Subscribe(target) => ("name", target.id, None),
        OutgoingCall::Push(PushCall::List { task_id, .. }) => ("parent", task_id, None),
        OutgoingCall::Push(PushCall::Get { task_id, id } | PushCall::Delete { task_id, id }) => {
            ("name", task_id, id)
        }
    };
    out.truncate(start);
    out.extend_from_slice(format!("{{\"{member}\":\"").as_bytes());
    out.extend_from_slice(&push_name(task_id.raw(), id.map(RawText::raw)));
    out.push(b'"');
    match *call {
        OutgoingCall::Get(get) => {
            // In 0.3 this field has no presence: a missing number is 0 (wire §1.5).
            number(out, "historyLength", Some(get.history.unwrap_or(ALL_HISTORY)));
        }
        OutgoingCall::Push(PushCall::List { page_size, page_token, .. }) => {
            number(out, "pageSize", page_size);
            if let Some(token) = page_token.map(RawText::raw) {
                out.extend_from_slice(b",\"pageToken\":\"");
                out.extend_from_slice(token);
                out.push(b'"');
            }
        }
        OutgoingCall::Send(_)
        | OutgoingCall::List(_)
        | OutgoingCall::Cancel(_)
        | OutgoingCall::Subscribe(_)
        | OutgoingCall::Push(_)
        | OutgoingCall::ExtendedCard => {}
    }
    out.push(b'}');
    Ok(())
}

fn number(out: &mut Vec<u8>, key: &str, number: Option<u32>) {
    let Some(number) = number else { return };
    out.extend_from_slice(format!(",\"{key}\":").as_bytes());
    push_u64(out, number.into());
}

fn request_v1(op: Op) -> &'static Schema {
    match op {
        Op::Send | Op::Stream => &v1::SEND_MESSAGE_REQUEST,
        Op::Get => &v1::GET_TASK_REQUEST,
        Op::List => &v1::LIST_TASKS_REQUEST,
        Op::Cancel => &v1::CANCEL_TASK_REQUEST,
        Op::Subscribe => &v1::SUBSCRIBE_TO_TASK_REQUEST,
        Op::PushSet => &v1::TASK_PUSH_NOTIFICATION_CONFIG,
        Op::PushGet => &v1::GET_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        Op::PushList => &v1::LIST_TASK_PUSH_NOTIFICATION_CONFIGS_REQUEST,
        Op::PushDelete => &v1::DELETE_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        Op::ExtendedCard => &v1::GET_EXTENDED_AGENT_CARD_REQUEST,
    }
}

fn request_v03(op: Op) -> &'static Schema {
    match op {
        Op::Send | Op::Stream => &v03::SEND_MESSAGE_REQUEST,
        Op::Get => &v03::GET_TASK_REQUEST,
        Op::Cancel => &v03::CANCEL_TASK_REQUEST,
        Op::Subscribe => &v03::TASK_SUBSCRIPTION_REQUEST,
        Op::PushSet => &v03::CREATE_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        Op::PushGet => &v03::GET_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        Op::PushList => &v03::LIST_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        Op::PushDelete => &v03::DELETE_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST,
        // There is no rpc for a list.
        Op::ExtendedCard | Op::List => &v03::GET_AGENT_CARD_REQUEST,
    }
}

/// The schema of an operation's answer; `None`: the answer is empty.
fn response_v1(op: Op) -> Option<&'static Schema> {
    Some(match op {
        Op::Send => &v1::SEND_MESSAGE_RESPONSE,
        Op::Stream | Op::Subscribe => &v1::STREAM_RESPONSE,
        Op::Get | Op::Cancel => &v1::TASK,
        Op::List => &v1::LIST_TASKS_RESPONSE,
        Op::PushSet | Op::PushGet => &v1::TASK_PUSH_NOTIFICATION_CONFIG,
        Op::PushList => &v1::LIST_TASK_PUSH_NOTIFICATION_CONFIGS_RESPONSE,
        Op::PushDelete => return None,
        Op::ExtendedCard => &v1::AGENT_CARD,
    })
}

fn response_v03(op: Op) -> Option<&'static Schema> {
    Some(match op {
        Op::Send => &v03::SEND_MESSAGE_RESPONSE,
        Op::Stream | Op::Subscribe => &v03::STREAM_RESPONSE,
        Op::Get | Op::Cancel => &v03::TASK,
        Op::PushSet | Op::PushGet => &v03::TASK_PUSH_NOTIFICATION_CONFIG,
        Op::PushList => &v03::LIST_TASK_PUSH_NOTIFICATION_CONFIG_RESPONSE,
        Op::PushDelete | Op::List => return None,
        Op::ExtendedCard => &v03::AGENT_CARD,
    })
}

/// The JSON in a `JsonPayload`; an empty payload is an empty object.
fn payload(message: &[u8]) -> Result<&[u8], CallError> {
    let mut data = &b"{}"[..];
    for field in Fields(message) {
        let (number, value) = field.map_err(|wrong| no_message(wrong.into()))?;
        if number == json_payload::DATA {
            data = value.bytes().map_err(|wrong| no_message(wrong.into()))?;
        }
    }
    Ok(data)
}

#[cold]
fn no_message(wrong: NotJson) -> CallError {
    ReadError::new(match wrong {
        NotJson::Malformed => "must be a message of its type",
        NotJson::Depth => "must not be nested more deeply than json_depth_max",
        NotJson::Tokens => "must not have more tokens than json_tokens_max",
        NotJson::Number => "must not hold numbers that are not finite",
    })
    .into()
}
