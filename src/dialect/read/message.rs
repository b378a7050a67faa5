//! Reads a message into its packed form (A2A 1.0 §4.1.4).

use crate::{
    fault::Fault,
    json::{Value, ValueSlot},
    model::{
        Role,
        pack::{Packer, message_tag},
    },
};

use super::{
    RawString, ReadCx, Rules, canonical, identifier, is_list, missing, object, part, proto_slot,
    slots,
};

slots!(MessageSlots {
    message_id: "messageId" | "message_id";
    context_id: "contextId" | "context_id";
    task_id: "taskId" | "task_id";
    role: "role";
    parts: "parts";
    metadata: "metadata";
    extensions: "extensions";
    references: "referenceTaskIds" | "reference_task_ids";
});

/// The identifiers of a message.
pub(super) struct MessageIds<'p> {
    /// True: the message has its own id.
    pub has_id: bool,
    pub context_id: Option<RawString<'p>>,
    pub task_id: Option<RawString<'p>>,
}

/// Appends the packed message to `pack`. `REPLY`: a message of a server, which may lack an id, a
/// known role, and parts. Compiled separately for requests and replies, because the checks differ.
pub(super) fn read<'p, const REPLY: bool>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    message: Value<'p>,
    pack: &mut Vec<u8>,
) -> Result<MessageIds<'p>, Fault> {
    let mut slots = MessageSlots::default();
    slots.fill(message);
    let message_id = identifier(message.at(slots.message_id), "message.messageId", cx)?;
    let needs_id = !REPLY && (rules.strict || cx.fresh_id.is_empty());
    if needs_id && message_id.is_none() {
        return Err(missing("message.messageId"));
    }
    let context_id = identifier(message.at(slots.context_id), "message.contextId", cx)?;
    let task_id = identifier(message.at(slots.task_id), "message.taskId", cx)?;
    let role = match role(message.at(slots.role)) {
        // A server's message is from the agent, even if its role is unknown.
        Err(_) if REPLY && !rules.judges => Role::Agent,
        role => role?,
    };
    let metadata = object(message.at(slots.metadata), "message.metadata")?;
    let mut packer = Packer(pack);
    packer.put(message_tag::MESSAGE_ID, message_id.as_deref().unwrap_or(cx.fresh_id));
    packer.put_some(message_tag::CONTEXT_ID, context_id.as_deref());
    packer.put_some(message_tag::TASK_ID, task_id.as_deref());
    packer.put(message_tag::ROLE, &[role as u8]);
    if (rules.proto || REPLY) && slots.parts == ValueSlot::default() {
        // Wire §3.4: the proto of 0.3 names the parts of a message `content`.
        slots.parts = proto_slot(message, "content");
    }
    parts::<REPLY>(rules, cx, message.at(slots.parts), &mut packer)?;
    packer.put_some(message_tag::METADATA, metadata.map(|value| value.raw()));
    if let Some(list) = message.at(slots.extensions) {
        let (field, bytes_max) = ("message.extensions", cx.limits.string_bytes_max);
        strings(cx, list, field, bytes_max, message_tag::EXTENSION, &mut packer)?;
    }
    if let Some(list) = message.at(slots.references) {
        let (field, bytes_max) = ("message.referenceTaskIds", cx.limits.identifier_bytes_max);
        strings(cx, list, field, bytes_max, message_tag::REFERENCE, &mut packer)?;
    }
    Ok(MessageIds { has_id: message_id.is_some(), context_id, task_id })
}

/// Wire §1.6, Role: a role by any of its names or by its number.
#[inline(always)]
fn role(value: Option<Value<'_>>) -> Result<Role, Fault> {
    const ROLES: &str = "must be a role: ROLE_USER or ROLE_AGENT, user or agent";
    let value = value.ok_or_else(|| missing("message.role"))?;
    if value.str_eq("ROLE_USER") || value.str_eq("user") {
        return Ok(Role::User);
    }
    if value.str_eq("ROLE_AGENT") || value.str_eq("agent") {
        return Ok(Role::Agent);
    }
    match value.as_i64() {
        Some(1) => Ok(Role::User),
        Some(2) => Ok(Role::Agent),
        Some(_) | None => Err(Fault::param("message.role", ROLES)),
    }
}

fn parts<const REPLY: bool>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    value: Option<Value<'_>>,
    packer: &mut Packer<'_>,
) -> Result<(), Fault> {
    const FIELD: &str = "message.parts";
    // ProtoJSON omits an empty array.
    let Some(value) = value else {
        return if REPLY { Ok(()) } else { Err(missing(FIELD)) };
    };
    if !is_list(value) {
        return Err(Fault::param(FIELD, "must be an array"));
    }
    // A2A 1.0 §5.7: a required array has at least one element.
    if !REPLY && value.is_empty() {
        return Err(Fault::param(FIELD, "must have at least one part"));
    }
    for (index, value) in value.elements().enumerate() {
        if index >= cx.limits.parts_max {
            let most = cx.limits.parts_max;
            let why = format!("must not have more than {most} parts");
            return Err(Fault::param(FIELD, why).of_limit("parts_max"));
        }
        let nested = packer.open(message_tag::PART);
        part::read::<REPLY>(rules, cx, value, packer)
            .map_err(|wrong| Fault::param(FIELD, format!("part {index}: {wrong}")))?;
        packer.close(nested);
    }
    Ok(())
}

pub(super) fn strings(
    cx: &ReadCx<'_>,
    value: Value<'_>,
    field: &'static str,
    bytes_max: usize,
    tag: u8,
    packer: &mut Packer<'_>,
) -> Result<(), Fault> {
    if !is_list(value) {
        return Err(Fault::param(field, "must be an array"));
    }
    for (index, value) in value.elements().enumerate() {
        if index >= cx.limits.references_max {
            let most = cx.limits.references_max;
            let why = format!("must not have more than {most} elements");
            return Err(Fault::param(field, why).of_limit("references_max"));
        }
        packer.put(tag, &canonical(value, field, bytes_max)?);
    }
    Ok(())
}
