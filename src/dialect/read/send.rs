//! Reads the message of a send, and its options.

use crate::{
    fault::Fault,
    json::{Kind, Value, ValueSlot},
    model::{
        Call, ConfigPosition, Generation, JsonObject, Message, Op, PushConfig, PushForm, RawText,
        Send, SendMode,
    },
};

use super::{
    INT32_MAX, RawString, ReadCx, Rules, TextRef, boolean, count, identifier, is_list, keep,
    message, missing, object, proto_slot, push_config, slots, target::split_thread,
};

slots!(SendSlots {
    message: "message";
    configuration: "configuration";
    metadata: "metadata";
    id: "id";
    task_id: "taskId" | "task_id";
    context_id: "contextId" | "context_id";
    session_id: "sessionId" | "session_id";
    history: "historyLength" | "history_length";
    push: "pushNotification" | "push_notification";
    tenant: "tenant";
});

slots!(ConfigurationSlots {
    modes: "acceptedOutputModes" | "accepted_output_modes";
    history: "historyLength" | "history_length";
    blocking: "blocking";
    at_once: "returnImmediately" | "return_immediately";
    push: "taskPushNotificationConfig" | "task_push_notification_config"
        | "pushNotificationConfig" | "push_notification_config"
        | "pushNotification" | "push_notification";
    if_generation: "ifGenerationMatch" | "if_generation_match";
});

/// The error for `ifGenerationMatch` of A2A 1.1; this server serves at most 1.0. A2A 1.0 §5.7
/// requires servers to ignore unknown members, but then a client could overwrite a state that it
/// has not seen. So a message to a task is rejected if it has this member (`docs/adr/0024`).
pub const NO_GENERATIONS: (&str, &str) = (
    "configuration.ifGenerationMatch",
    "is part of A2A 1.1, which is not served here: send the message without it, or to a server of \
     1.1",
);

impl Rules {
    /// The value for an absent `historyLength`: in 0.1 it means none, while `None` means all.
    pub(super) fn history(&self, requested: Option<u32>) -> Option<u32> {
        match self.generation {
            Generation::V01 => Some(requested.unwrap_or(0)),
            Generation::V03 | Generation::V1 => requested,
        }
    }
}

/// Reads the params of send and stream.
pub(super) fn read<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    let params = params.ok_or_else(|| missing("message"))?;
    let mut slots = SendSlots::default();
    slots.fill(params);
    cx.tenant.set(slots.tenant);
    if rules.proto && slots.message == ValueSlot::default() {
        // Wire §3.4: the name in the proto, which the Python client sends.
        slots.message = proto_slot(params, "request");
    }
    let message = object(params.at(slots.message), "message")?.ok_or_else(|| missing("message"))?;
    let ids = message::read::<false>(rules, cx, message, pack)?;
    let message_end = pack.len();
    let options = send_options(rules, cx, params, &slots)?;
    let metadata = object(params.at(slots.metadata), "metadata")?;
    // 0.1 has no message ids.
    let has_own_id = ids.has_id && rules.generation != Generation::V01;
    let (task_id, context_id) = targets(rules, cx, params, &slots, ids)?;
    if options.has_generation && task_id.is_some() {
        let (field, detail) = NO_GENERATIONS;
        return Err(Fault::param(field, detail));
    }
    let task_id = task_id.map(|id| keep(pack, id));
    let context_id = context_id.map(|id| keep(pack, id));
    let push = match options.push {
        Some(push) => pack_push(rules, cx, push, pack)?,
        None => None,
    };
    let pack: &'p [u8] = pack;
    let bytes = |text: Option<TextRef<'p>>| text.map(|text| text.bytes(pack));
    Ok(Call::Send(Send {
        message: Message(pack.get(..message_end).unwrap_or_default()),
        has_own_id,
        task_id: bytes(task_id).map(RawText::known),
        client_chooses_id: rules.generation == Generation::V01,
        context_id: bytes(context_id).map(RawText::known),
        mode: options.mode,
        history: options.history,
        accepted_output_modes: options.modes.map(|modes| modes.raw()),
        metadata: metadata.map(|value| JsonObject::known(value.raw())),
        push: push.map(|start| PushConfig(pack.get(start..).unwrap_or_default())),
        generation: rules.generation,
    }))
}

type Id<'p> = Option<RawString<'p>>;

/// The task id and the context id of the message.
fn targets<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Value<'p>,
    slots: &SendSlots,
    message: message::MessageIds<'p>,
) -> Result<(Id<'p>, Id<'p>), Fault> {
    let task_id = match rules.generation {
        // 0.1: the client chooses `id`, which always names the task.
        Generation::V01 => {
            let id = identifier(params.at(slots.id), "id", cx)?;
            let id =
                if id.is_none() { identifier(params.at(slots.task_id), "id", cx)? } else { id };
            Some(id.or(message.task_id).ok_or_else(|| missing("id"))?)
        }
        Generation::V03 | Generation::V1 => match message.task_id {
            Some(id) => Some(id),
            None => identifier(params.at(slots.task_id), "taskId", cx)?,
        },
    };
    let mut context_id = message.context_id;
    if context_id.is_none() {
        context_id = identifier(params.at(slots.context_id), "contextId", cx)?;
    }
    if context_id.is_none() {
        context_id = identifier(params.at(slots.session_id), "sessionId", cx)?;
    }
    match task_id {
        Some(id) if rules.threads => {
            let (id, context_id) = split_thread(id, context_id);
            Ok((Some(id), context_id))
        }
        task_id => Ok((task_id, context_id)),
    }
}

/// The options for the answer.
struct SendOptions<'p> {
    mode: SendMode,
    history: Option<u32>,
    modes: Option<Value<'p>>,
    push: Option<Value<'p>>,
    /// True: the message is only for a certain generation of the task (A2A 1.1).
    has_generation: bool,
}

fn send_options<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Value<'p>,
    slots: &SendSlots,
) -> Result<SendOptions<'p>, Fault> {
    let position = ConfigPosition::of_message(PushForm::of(rules.generation));
    let mut push = object(params.at(slots.push), "pushNotification")?;
    let mut history = count(params.at(slots.history), "historyLength", 0..=INT32_MAX)?;
    let (mut at_once, mut blocking, mut modes) = (None, None, None);
    let (mut unsaid, mut has_generation) = (false, false);
    if let Some(configuration) = object(params.at(slots.configuration), "configuration")? {
        let mut slots = ConfigurationSlots::default();
        slots.fill(configuration);
        let of = |slot| configuration.at(slot);
        push = object(of(slots.push), position.whole())?.or(push);
        let own = count(of(slots.history), "configuration.historyLength", 0..=INT32_MAX)?;
        history = own.or(history);
        at_once = boolean(of(slots.at_once), "configuration.returnImmediately")?;
        blocking = boolean(of(slots.blocking), "configuration.blocking")?;
        modes = of(slots.modes);
        has_generation = of(slots.if_generation).is_some();
        // ProtoJSON omits false, so an absent `blocking` means false.
        unsaid = rules.proto;
    }
    let at_once = match rules.generation {
        // 0.1 has no option for an early answer.
        Generation::V01 => false,
        Generation::V03 => blocking.map(|wait| !wait).or(at_once).unwrap_or(unsaid),
        Generation::V1 => at_once.or(blocking.map(|wait| !wait)).unwrap_or(false),
    };
    let mode = if cx.op == Op::Stream {
        SendMode::Stream
    } else if at_once {
        SendMode::Return
    } else {
        SendMode::Wait
    };
    if let Some(list) = modes {
        let is_array = list.kind() == Kind::Array;
        if !is_list(list) || list.elements().any(|mode| !mode.is_string()) {
            let field = "configuration.acceptedOutputModes";
            return Err(Fault::param(field, "must be an array of strings"));
        }
        modes = Some(list).filter(|_| is_array);
    }
    Ok(SendOptions { mode, history: rules.history(history), modes, push, has_generation })
}

/// Packs a configuration after the packed message, and returns its position; `None`: it has no URL
/// and is ignored (wire §10, trap 30).
#[cold] // Few clients send a configuration.
#[inline(never)]
fn pack_push(
    rules: &Rules,
    cx: &ReadCx<'_>,
    value: Value<'_>,
    pack: &mut Vec<u8>,
) -> Result<Option<usize>, Fault> {
    let tenant = cx.tenant.get();
    let position = ConfigPosition::of_message(PushForm::of(rules.generation));
    let mut fields = push_config::fields(cx, value, position)?;
    // The call itself has the tenant and names the task.
    cx.tenant.set(tenant);
    fields.task_id = None;
    if fields.url.is_none() {
        return Ok(None);
    }
    fields.check(position)?;
    let start = pack.len();
    fields.pack(pack);
    if rules.push_headers {
        push_config::pack_headers(cx, fields.headers, position, pack)?;
    }
    Ok(Some(start))
}
