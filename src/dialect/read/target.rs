//! Reads the task of a call: get, cancel, subscribe.

use std::borrow::Cow;

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Get, JsonObject, Op, RawText, Target, TaskWait},
};

use super::{
    RawString, ReadCx, Rules, TextRef, count, identifier, keep, missing, object, slots, too_long,
};

slots!(TargetSlots {
    id: "id";
    task_id: "taskId" | "task_id";
    context_id: "contextId" | "context_id" | "sessionId" | "session_id";
    metadata: "metadata";
    history: "historyLength" | "history_length";
    after: "lastEventId" | "last_event_id";
    wait: "wait";
    after_event: "afterEvent" | "after_event";
    tenant: "tenant";
});

struct TargetIds<'p> {
    id: TextRef<'p>,
    context_id: Option<TextRef<'p>>,
}

/// Reads the params of cancel and subscribe.
pub(super) fn read<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Target<'p>, Fault> {
    let after = cx.after.filter(|_| cx.op == Op::Subscribe);
    let generation = rules.generation;
    let Some(params) = params else {
        let id = named(cx, pack)?.ok_or_else(|| missing("id"))?;
        let id = id.bytes(pack);
        return Ok(Target {
            id: RawText::known(id),
            context_id: None,
            metadata: None,
            generation,
            after,
        });
    };
    let mut slots = TargetSlots::default();
    slots.fill(params);
    cx.tenant.set(slots.tenant);
    let ids = ids(rules, cx, params, &slots, pack)?;
    let metadata = object(params.at(slots.metadata), "metadata")?;
    let after = match cx.after {
        None if cx.op == Op::Subscribe => event_id(params.at(slots.after), "lastEventId")?,
        after => after.filter(|_| cx.op == Op::Subscribe),
    };
    let pack: &'p [u8] = pack;
    Ok(Target {
        id: RawText::known(ids.id.bytes(pack)),
        context_id: ids.context_id.map(|id| RawText::known(id.bytes(pack))),
        metadata: metadata.map(|value| JsonObject::known(value.raw())),
        generation,
        after,
    })
}

/// The resume position of a subscriber that cannot send a header, as over WebSocket: the number of
/// the last event it has seen. ProtoJSON writes 64-bit numbers as strings.
fn event_id(value: Option<Value<'_>>, field: &'static str) -> Result<Option<u64>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let number = match value.as_str() {
        Some(text) => text.parse().ok(),
        None => value.as_i64().and_then(|number| u64::try_from(number).ok()),
    };
    number.map(Some).ok_or_else(|| Fault::param(field, "must be the number of an event"))
}

/// Reads the params of get.
pub(super) fn get<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    let Some(params) = params else {
        let id = named(cx, pack)?.ok_or_else(|| missing("id"))?;
        let id = id.bytes(pack);
        return Ok(Call::Get(Get {
            id: RawText::known(id),
            context_id: None,
            history: rules.history(None),
            wait: None,
        }));
    };
    let mut slots = TargetSlots::default();
    slots.fill(params);
    cx.tenant.set(slots.tenant);
    let ids = ids(rules, cx, params, &slots, pack)?;
    let history = count(params.at(slots.history), "historyLength", 0..=rules.history_max)?;
    let wait = wait(params.at(slots.wait), params.at(slots.after_event))?;
    let pack: &'p [u8] = pack;
    Ok(Call::Get(Get {
        id: RawText::known(ids.id.bytes(pack)),
        context_id: ids.context_id.map(|id| RawText::known(id.bytes(pack))),
        history: rules.history(history),
        wait,
    }))
}

/// How long a reader waits for an event, and after which event (`docs/guide/calls.md`).
#[inline(always)] // Few requests wait.
fn wait(seconds: Option<Value<'_>>, after: Option<Value<'_>>) -> Result<Option<TaskWait>, Fault> {
    let Some(seconds) = count(seconds, "wait", 0..=u32::MAX)? else { return Ok(None) };
    let (wait_ms, after) = (u64::from(seconds) * 1000, event_id(after, "afterEvent")?);
    Ok(Some(TaskWait { wait_ms, after }))
}

/// The task id in the path.
pub(super) fn named<'p>(cx: &ReadCx<'_>, pack: &mut Vec<u8>) -> Result<Option<TextRef<'p>>, Fault> {
    let Some(id) = cx.task else { return Ok(None) };
    if id.len() > cx.limits.identifier_bytes_max {
        return Err(too_long("id", cx.limits.identifier_bytes_max));
    }
    let start = pack.len();
    pack.extend_from_slice(id);
    Ok(Some(TextRef::Pack(start, pack.len())))
}

fn ids<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Value<'p>,
    slots: &TargetSlots,
    pack: &mut Vec<u8>,
) -> Result<TargetIds<'p>, Fault> {
    if let Some(id) = named(cx, pack)? {
        return Ok(TargetIds { id, context_id: None });
    }
    let id = match identifier(params.at(slots.id), "id", cx)? {
        None => identifier(params.at(slots.task_id), "taskId", cx)?,
        id => id,
    };
    let id = id.ok_or_else(|| missing("id"))?;
    if !rules.threads {
        return Ok(TargetIds { id: keep(pack, id), context_id: None });
    }
    let context_id = identifier(params.at(slots.context_id), "contextId", cx)?;
    let (id, context_id) = split_thread(id, context_id);
    Ok(TargetIds { id: keep(pack, id), context_id: context_id.map(|id| keep(pack, id)) })
}

/// LangSmith's compound task ids (wire §8): `thread:run` is run `run` of thread `thread`, if the
/// call names that thread as its context, or no context; otherwise the colon is part of the id.
pub(super) fn split_thread<'p>(
    id: RawString<'p>,
    context_id: Option<RawString<'p>>,
) -> (RawString<'p>, Option<RawString<'p>>) {
    let Some(at) = id.iter().position(|byte| *byte == b':') else { return (id, context_id) };
    let named = context_id.as_deref().is_none_or(|context| *context == id[..at]);
    if !named || at == 0 || at + 1 == id.len() {
        return (id, context_id);
    }
    let thread = |id: RawString<'p>| match id {
        Cow::Borrowed(id) => (Cow::Borrowed(&id[at + 1..]), Cow::Borrowed(&id[..at])),
        Cow::Owned(id) => (Cow::Owned(id[at + 1..].to_owned()), Cow::Owned(id[..at].to_owned())),
    };
    let (run, thread) = thread(id);
    (run, context_id.or(Some(thread)))
}
