//! Reads a task, its status, and a page of tasks.

use crate::{
    json::{Kind, Value, ValueSlot},
    model::{
        Artifact, JsonObject, Message, ReadError, Received, ReceivedKind, TaskState,
        received::ReadStatus, time,
    },
};

use super::{
    artifact, count, identifier, is_list, list, object,
    reply::{ReplyCx, read_message, refused, wrong},
    slots,
};

slots!(TaskSlots {
    id: "id";
    task_id: "taskId" | "task_id";
    context_id: "contextId" | "context_id" | "sessionId" | "session_id";
    status: "status";
    artifacts: "artifacts";
    history: "history";
    metadata: "metadata";
});

slots!(StatusSlots {
    state: "state";
    message: "message" | "update";
    timestamp: "timestamp";
});

slots!(PageSlots {
    tasks: "tasks";
    next: "nextPageToken" | "next_page_token";
    page_size: "pageSize" | "page_size";
    total: "totalSize" | "total_size";
});

/// Reads a task, and adds it to the received tasks.
pub(super) fn read(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    received: &mut Received,
) -> Result<(), ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let mut slots = TaskSlots::default();
    slots.fill(value);
    let read_cx = cx.read_cx();
    let id = identifier(value.at(slots.id), "id", &read_cx).map_err(wrong)?;
    let id = match id {
        None => identifier(value.at(slots.task_id), "id", &read_cx).map_err(wrong)?,
        id => id,
    };
    let id = id.ok_or_else(|| ReadError::at("id", "is required"))?;
    let context_id = identifier(value.at(slots.context_id), "contextId", &read_cx);
    let context_id = context_id.map_err(wrong)?.unwrap_or_default();
    let metadata = object(value.at(slots.metadata), "metadata").map_err(wrong)?;
    let status = value.at(slots.status).ok_or_else(|| ReadError::at("status", "is required"))?;
    let mut scratch = received.take_scratch();
    let (history, artifacts) = (value.at(slots.history), value.at(slots.artifacts));
    let filled = received.begin_task(&id, &context_id, cx.generation).map_err(refused);
    let filled = filled.and_then(|mut task| {
        each(history, "history", |message| {
            scratch.clear();
            read_message(cx, message, &mut scratch)?;
            task.message(Message(&scratch)).map_err(refused)
        })?;
        let mut index = 0;
        each(artifacts, "artifacts", |artifact| {
            if index >= cx.artifacts_max {
                let most = cx.artifacts_max;
                return Err(ReadError::new(format!("exceeds the limit of {most} artifacts")));
            }
            scratch.clear();
            let last_chunk = artifact::read(cx, artifact, index, &mut scratch)?.last_chunk;
            index += 1;
            task.artifact(Artifact::new(&scratch), last_chunk).map_err(refused)
        })?;
        scratch.clear();
        let status = self::status(cx, status, &mut scratch).map_err(|e| e.within("status"))?;
        task.status(status, &scratch).map_err(refused)?;
        if let Some(metadata) = metadata {
            task.metadata(JsonObject::known(metadata.raw()));
        }
        Ok(())
    });
    received.keep_scratch(scratch);
    filled
}

/// Passes the elements of an optional list to `each`.
pub(super) fn each(
    list: Option<Value<'_>>,
    member: &'static str,
    mut each: impl FnMut(Value<'_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let Some(list) = list else { return Ok(()) };
    if !is_list(list) {
        return Err(ReadError::at(member, "must be an array"));
    }
    for (index, element) in list.elements().enumerate() {
        each(element).map_err(|error| error.element(index).within(member))?;
    }
    Ok(())
}

/// Reads a status; its message is packed to the end of `pack`.
pub(super) fn status(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    pack: &mut Vec<u8>,
) -> Result<ReadStatus, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let mut slots = StatusSlots::default();
    slots.fill(value);
    let state = state(cx, value.at(slots.state))?;
    let at_ms = timestamp(value.at(slots.timestamp))?;
    // Some servers write an empty message: an empty text, object or list.
    let is_present = |message: &Value<'_>| {
        !(message.raw() == b"\"\"" || is_list(*message) && message.is_empty())
    };
    let message = value.at(slots.message).filter(is_present);
    if let Some(message) = message {
        read_message(cx, message, pack).map_err(|error| error.within("message"))?;
    }
    Ok(ReadStatus { state, at_ms, has_message: message.is_some() })
}

/// A state by any of its names or by its number; ProtoJSON omits the unspecified state. A task in
/// an unknown state counts as unfinished.
fn state(cx: &ReplyCx<'_>, value: Option<Value<'_>>) -> Result<TaskState, ReadError> {
    let Some(value) = value else { return Ok(TaskState::Unspecified) };
    let state = match value.text() {
        Some(name) => list::state_by_name(&name).or_else(|| state_by_other_name(&name)),
        None => match value.as_i64() {
            Some(number) => u8::try_from(number).ok().and_then(TaskState::from_number),
            None => return Err(ReadError::at("state", "must be a task state")),
        },
    };
    match state {
        None if cx.is_strict => Err(ReadError::at("state", "must be a task state")),
        state => Ok(state.unwrap_or(TaskState::Working)),
    }
}

/// A state by a name in another case, or by the British form in any case (wire §8, §10 trap 16).
#[cold]
fn state_by_other_name(name: &[u8]) -> Option<TaskState> {
    if name.len() > 32 {
        return None;
    }
    let mut name = name.to_ascii_lowercase();
    name.iter_mut().filter(|byte| **byte == b'_').for_each(|byte| *byte = b'-');
    match name.strip_prefix(b"task-state-").unwrap_or(&name) {
        b"cancelled" => Some(TaskState::Canceled),
        b"unspecified" => Some(TaskState::Unspecified),
        other => list::state_by_name(other),
    }
}

/// Milliseconds since the Unix epoch; 0: no time. A time without an offset is read as UTC, as A2A
/// recommends.
fn timestamp(value: Option<Value<'_>>) -> Result<u64, ReadError> {
    let Some(value) = value else { return Ok(0) };
    let expected = || ReadError::at("timestamp", "must be an RFC 3339 timestamp");
    let text = value.as_str().ok_or_else(expected)?;
    if text.is_empty() {
        return Ok(0);
    }
    time::parse_rfc3339(&text).or_else(|| without_offset(&text)).ok_or_else(expected)
}

#[cold]
fn without_offset(text: &str) -> Option<u64> {
    (text.len() < 40).then(|| time::parse_rfc3339(&format!("{text}Z"))).flatten()
}

/// Reads a page of tasks. Members that servers omit are empty or zero (wire §1.5).
pub(super) fn page(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let mut slots = PageSlots::default();
    let tasks = match value.kind() {
        Kind::Object => {
            slots.fill(value);
            value.at(slots.tasks)
        }
        Kind::Array => Some(value),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => {
            return Err(ReadError::new("must be a page of tasks"));
        }
    };
    let of = |slot: ValueSlot| value.at(slot);
    let page_size = count(of(slots.page_size), "pageSize", 0..=u32::MAX).map_err(wrong)?;
    let total = count(of(slots.total), "totalSize", 0..=u32::MAX).map_err(wrong)?;
    each(tasks, "tasks", |task| match received.tasks_len() < cx.tasks_max {
        true => read(cx, task, received),
        false => Err(ReadError::new(format!("exceeds the limit of {} tasks", cx.tasks_max))),
    })?;
    next_page(cx, of(slots.next), received)?;
    let shown = received.tasks_len() as u64;
    received.set_page(page_size.unwrap_or(0), total.map_or(0, u64::from).max(shown));
    received.set_kind(ReceivedKind::Page);
    Ok(())
}

/// Stores the token of the next page.
pub(super) fn next_page(
    cx: &ReplyCx<'_>,
    token: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let Some(token) = token else { return Ok(()) };
    let most = cx.limits.string_bytes_max;
    let token = super::canonical(token, "nextPageToken", most).map_err(wrong)?;
    if !token.is_empty() {
        received.put_next_page(&token);
    }
    Ok(())
}
