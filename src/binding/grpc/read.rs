//! Decodes requests from protocol buffers to a [`Call`], which is borrowed from the message and the
//! pack.
//!
//! Invariant: errors have the same kind and text as for a JSON request of the same generation. In
//! proto3 an empty string counts as unset. Of repeated singular fields the last is used; unknown
//! fields are ignored.

use crate::{
    dialect::{NO_GENERATIONS, ReadCx},
    fault::{Fault, FaultKind},
    model::{
        Call, Generation, Get, JsonObject, List, Message, Op, Params, PushConfig, RawText, Send,
        SendMode, Target, TaskState,
    },
    pb::{Fields, Malformed, Value},
};

use super::{
    fields::{other::timestamp, v1, v03},
    message::{self, canonical, missing, structure},
    push,
};

/// The call of a request, and its tenant (1.0; empty: no tenant).
pub struct DecodedRequest<'p> {
    /// The call.
    pub call: Call<'p>,
    /// `tenant`, unchecked.
    pub tenant: &'p str,
}

/// The fault of a malformed message, an error of the client.
pub(super) fn malformed(_: Malformed) -> Fault {
    Fault::because(FaultKind::InvalidRequest, "the message does not match its protobuf type")
}

/// Reads the request of an operation of 1.0 or 0.3.
///
/// # Errors
/// `InvalidRequest` when the bytes are not a message, `InvalidParams` with the invalid field.
pub fn call<'p>(
    cx: &ReadCx<'_>,
    generation: Generation,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    pack.clear();
    let is_v1 = generation == Generation::V1;
    match cx.op.params() {
        Params::Send => send(cx, generation, body, pack),
        Params::Get if is_v1 => get_v1(cx, body, pack),
        Params::Get => get_v03(cx, body, pack),
        Params::List => list(cx, body, pack),
        Params::Target(call) => {
            let (target, tenant) = target(cx, generation, body, pack)?;
            Ok(DecodedRequest { call: call(target), tenant })
        }
        Params::Push => push::read(cx, generation, body, pack),
        Params::Nothing => {
            let tenant = v1::get_extended_agent_card_request::TENANT;
            only_tenant(Call::ExtendedCard, if is_v1 { tenant } else { NONE }, body)
        }
    }
}

/// A number that no field has.
const NONE: u32 = 0;

/// Reads a request of which only the tenant is used.
fn only_tenant<'p>(
    call: Call<'p>,
    number: u32,
    body: &'p [u8],
) -> Result<DecodedRequest<'p>, Fault> {
    let mut tenant = "";
    for field in Fields(body) {
        let (found, value) = field.map_err(malformed)?;
        if found == number {
            tenant = value.text().map_err(malformed)?;
        }
    }
    Ok(DecodedRequest { call, tenant })
}

/// Reads a `SendMessageRequest`.
fn send<'p>(
    cx: &ReadCx<'_>,
    generation: Generation,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    use v1::send_message_request as new;
    use v03::send_message_request as old;
    let (mut tenant, mut message_bytes, mut configuration, mut metadata) = ("", None, None, None);
    let numbers = match generation {
        Generation::V1 => [new::TENANT, new::MESSAGE, new::CONFIGURATION, new::METADATA],
        Generation::V01 | Generation::V03 => {
            [NONE, old::REQUEST, old::CONFIGURATION, old::METADATA]
        }
    };
    for field in Fields(body) {
        let (number, value) = field.map_err(malformed)?;
        match numbers.iter().position(|field_number| *field_number == number) {
            Some(0) => tenant = value.text().map_err(malformed)?,
            Some(1) => message_bytes = Some(value.bytes().map_err(malformed)?),
            Some(2) => configuration = Some(value.bytes().map_err(malformed)?),
            Some(_) => metadata = Some(value.bytes().map_err(malformed)?),
            None => {}
        }
    }
    let message_bytes = message_bytes.ok_or_else(|| missing("message"))?;
    let ids = message::read(cx, generation, message_bytes, pack)?;
    let message_end = pack.len();
    let mut options = send_options(cx, generation, configuration, pack)?;
    if options.has_generation && ids.task_id.is_some() {
        let (field, detail) = NO_GENERATIONS;
        return Err(Fault::param(field, detail));
    }
    if cx.op == Op::Stream {
        options.mode = SendMode::Stream;
    }
    let metadata = match metadata {
        Some(metadata) => Some(structure(cx, "metadata", metadata, pack)?),
        None => None,
    };
    let push = match options.push {
        Some(push) => push::of_send(cx, generation, push, pack)?,
        None => None,
    };
    let pack: &'p [u8] = pack;
    let at = |range: Option<(usize, usize)>| range.and_then(|(start, end)| pack.get(start..end));
    let send = Send {
        message: Message(&pack[..message_end]),
        has_own_id: true,
        task_id: at(ids.task_id).map(RawText::known),
        client_chooses_id: false,
        context_id: at(ids.context_id).map(RawText::known),
        mode: options.mode,
        history: options.history,
        accepted_output_modes: at(options.modes),
        metadata: at(metadata).map(JsonObject::known),
        push: at(push).map(PushConfig),
        generation,
    };
    Ok(DecodedRequest { call: Call::Send(send), tenant })
}

/// The options for the answer.
struct SendOptions<'p> {
    mode: SendMode,
    history: Option<u32>,
    /// The position of the output modes in the pack, as a JSON array.
    modes: Option<(usize, usize)>,
    push: Option<&'p [u8]>,
    /// True: the message requires a generation of its task (A2A 1.1).
    has_generation: bool,
}

/// `if_generation_match` of `SendMessageConfiguration` in the proto of A2A 1.1.
const IF_GENERATION_MATCH: u32 = 5;

fn send_options<'p>(
    cx: &ReadCx<'_>,
    generation: Generation,
    configuration: Option<&'p [u8]>,
    pack: &mut Vec<u8>,
) -> Result<SendOptions<'p>, Fault> {
    // Both generations have the same fields, but the meaning of the last field is inverted.
    use v1::send_message_configuration as field;
    let mut options = SendOptions {
        mode: SendMode::Wait,
        history: None,
        modes: None,
        push: None,
        has_generation: false,
    };
    let Some(configuration) = configuration else { return Ok(options) };
    let (mut last, mut modes) = (false, 0);
    let start = pack.len();
    for found in Fields(configuration) {
        let (number, value) = found.map_err(malformed)?;
        match number {
            field::ACCEPTED_OUTPUT_MODES => {
                const FIELD: &str = "configuration.acceptedOutputModes";
                pack.extend_from_slice(if modes == 0 { b"[\"" } else { b",\"" });
                canonical(FIELD, value, cx.limits.string_bytes_max, pack)?;
                pack.push(b'"');
                modes += 1;
            }
            field::TASK_PUSH_NOTIFICATION_CONFIG => {
                options.push = Some(value.bytes().map_err(malformed)?);
            }
            field::HISTORY_LENGTH => {
                let length = value.int32().map_err(malformed)?;
                options.history = history("configuration.historyLength", generation, length)?;
            }
            IF_GENERATION_MATCH => options.has_generation = true,
            field::RETURN_IMMEDIATELY => last = value.varint().map_err(malformed)? != 0,
            _ => {}
        }
    }
    if modes > 0 {
        pack.push(b']');
        options.modes = Some((start, pack.len()));
    }
    let at_once = match generation {
        Generation::V1 => last,
        // Wire §1.5: `blocking` has no presence, so a request with a configuration counts as one
        // that sets the field.
        Generation::V01 | Generation::V03 => !last,
    };
    if at_once {
        options.mode = SendMode::Return;
    }
    Ok(options)
}

/// `historyLength`; in 0.3 the value 0 means unset.
fn history(field: &'static str, generation: Generation, length: i32) -> Result<Option<u32>, Fault> {
    let length = u32::try_from(length)
        .map_err(|_| Fault::param(field, format!("must be from 0 to {}", i32::MAX)))?;
    Ok(Some(length).filter(|length| generation == Generation::V1 || *length > 0))
}

/// Reads a required identifier into the pack.
fn id<'p>(
    cx: &ReadCx<'_>,
    field: &'static str,
    value: Option<Value<'_>>,
    pack: &'p mut Vec<u8>,
) -> Result<&'p [u8], Fault> {
    let start = pack.len();
    if let Some(value) = value {
        canonical(field, value, cx.limits.identifier_bytes_max, pack)?;
    }
    if pack.len() == start { Err(missing(field)) } else { Ok(&pack[start..]) }
}

fn get_v1<'p>(
    cx: &ReadCx<'_>,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    use v1::get_task_request as field;
    let (mut tenant, mut named, mut most) = ("", None, None);
    for found in Fields(body) {
        match found.map_err(malformed)? {
            (field::TENANT, value) => tenant = value.text().map_err(malformed)?,
            (field::ID, value) => named = Some(value),
            (field::HISTORY_LENGTH, value) => {
                let length = value.int32().map_err(malformed)?;
                most = history("historyLength", Generation::V1, length)?;
            }
            _ => {}
        }
    }
    let id = id(cx, "id", named, pack)?;
    Ok(DecodedRequest {
        call: Call::Get(Get {
            id: RawText::known(id),
            context_id: None,
            history: most,
            wait: None,
        }),
        tenant,
    })
}

fn get_v03<'p>(
    cx: &ReadCx<'_>,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    use v03::get_task_request as field;
    let (mut named, mut most) = (None, None);
    for found in Fields(body) {
        match found.map_err(malformed)? {
            (field::NAME, value) => named = Some(resource(value)?),
            (field::HISTORY_LENGTH, value) => {
                let length = value.int32().map_err(malformed)?;
                most = history("historyLength", Generation::V03, length)?;
            }
            _ => {}
        }
    }
    let id = id(cx, "name", named, pack)?;
    Ok(DecodedRequest {
        call: Call::Get(Get {
            id: RawText::known(id),
            context_id: None,
            history: most,
            wait: None,
        }),
        tenant: "",
    })
}

/// The task id in a resource name of 0.3 (wire §4.2: `tasks/{id}`); a bare id is accepted.
fn resource(value: Value<'_>) -> Result<Value<'_>, Fault> {
    let name = value.bytes().map_err(malformed)?;
    Ok(Value::Bytes(name.strip_prefix(b"tasks/").unwrap_or(name)))
}

/// Reads the target task of an operation, and the tenant.
fn target<'p>(
    cx: &ReadCx<'_>,
    generation: Generation,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<(Target<'p>, &'p str), Fault> {
    // Cancel and subscribe have the same first fields; only cancel has `metadata`.
    use v1::cancel_task_request as new;
    let is_v1 = generation == Generation::V1;
    let (mut tenant, mut named, mut metadata) = ("", None, None);
    for found in Fields(body) {
        match found.map_err(malformed)? {
            (v03::cancel_task_request::NAME, value) if !is_v1 => named = Some(resource(value)?),
            (new::TENANT, value) if is_v1 => tenant = value.text().map_err(malformed)?,
            (new::ID, value) if is_v1 => named = Some(value),
            (new::METADATA, value) if is_v1 && cx.op == Op::Cancel => {
                metadata = Some(value.bytes().map_err(malformed)?);
            }
            _ => {}
        }
    }
    let id_end = id(cx, if is_v1 { "id" } else { "name" }, named, pack)?.len();
    let metadata = match metadata {
        Some(metadata) => Some(structure(cx, "metadata", metadata, pack)?),
        None => None,
    };
    let pack: &'p [u8] = pack;
    let target = Target {
        id: RawText::known(&pack[..id_end]),
        context_id: None,
        metadata: metadata.and_then(|(start, end)| pack.get(start..end)).map(JsonObject::known),
        generation,
        after: cx.after.filter(|_| cx.op == Op::Subscribe),
    };
    Ok((target, tenant))
}

fn list<'p>(
    cx: &ReadCx<'_>,
    body: &'p [u8],
    pack: &'p mut Vec<u8>,
) -> Result<DecodedRequest<'p>, Fault> {
    use v1::list_tasks_request as field;
    let (mut tenant, mut context, mut token, mut list) = ("", None, None, List::default());
    for found in Fields(body) {
        let (number, value) = found.map_err(malformed)?;
        match number {
            field::TENANT => tenant = value.text().map_err(malformed)?,
            field::CONTEXT_ID => context = Some(value),
            field::STATUS => {
                let state = u8::try_from(value.int32().map_err(malformed)?).ok();
                let state = state.and_then(TaskState::from_number);
                let state = state.ok_or_else(|| Fault::param("status", "must be a task state"))?;
                list.status = Some(state).filter(|state| *state != TaskState::Unspecified);
            }
            field::PAGE_SIZE => {
                let size = u32::try_from(value.int32().map_err(malformed)?).ok();
                let size = size.filter(|size| (1..=100).contains(size));
                let wrong = || Fault::param("pageSize", "must be from 1 to 100");
                list.page_size = Some(size.ok_or_else(wrong)?);
            }
            field::PAGE_TOKEN => token = Some(value),
            field::HISTORY_LENGTH => {
                let length = value.int32().map_err(malformed)?;
                list.history = history("historyLength", Generation::V1, length)?;
            }
            field::STATUS_TIMESTAMP_AFTER => {
                list.after_ms = Some(after_ms(value.bytes().map_err(malformed)?)?);
            }
            field::INCLUDE_ARTIFACTS => {
                list.include_artifacts = value.varint().map_err(malformed)? != 0;
            }
            _ => {}
        }
    }
    if let Some(context) = context {
        canonical("contextId", context, cx.limits.identifier_bytes_max, pack)?;
    }
    let context_end = pack.len();
    if let Some(token) = token {
        canonical("pageToken", token, cx.limits.string_bytes_max, pack)?;
    }
    let pack: &'p [u8] = pack;
    let (context, token) = pack.split_at(context_end);
    list.context_id = Some(RawText::known(context)).filter(|context| !context.is_empty());
    list.page_token = Some(token).filter(|token| !token.is_empty());
    Ok(DecodedRequest { call: Call::List(list), tenant })
}

/// `google.protobuf.Timestamp` in milliseconds, rounded up so that the filter "at or after" stays
/// exact.
fn after_ms(message: &[u8]) -> Result<u64, Fault> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for field in Fields(message) {
        match field.map_err(malformed)? {
            (timestamp::SECONDS, value) => seconds = value.varint().map_err(malformed)? as i64,
            (timestamp::NANOS, value) => nanos = value.int32().map_err(malformed)?,
            _ => {}
        }
    }
    // The type allows the years of RFC 3339. A time before 1970 becomes 0, before every task.
    if seconds > 253_402_300_799 || !(0..1_000_000_000).contains(&nanos) {
        return Err(Fault::param("statusTimestampAfter", "must be a timestamp"));
    }
    let ms = seconds.saturating_mul(1000).saturating_add(i64::from(nanos).div_euclid(1_000_000));
    let ms = ms + i64::from(nanos % 1_000_000 > 0);
    Ok(u64::try_from(ms).unwrap_or(0))
}
