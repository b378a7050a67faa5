//! Reads the events of a stream: a status or an artifact.

use crate::{
    json::{Kind, Value},
    model::{JsonObject, ReadError, Received},
};

use super::{
    artifact::{self, ChunkFlags},
    boolean, identifier, object,
    reply::{ReplyCx, wrong},
    slots, task,
};

slots!(UpdateSlots {
    task_id: "taskId" | "task_id";
    id: "id";
    context_id: "contextId" | "context_id" | "sessionId" | "session_id";
    status: "status";
    is_final: "final";
    artifact: "artifact";
    append: "append";
    last_chunk: "lastChunk" | "last_chunk";
    metadata: "metadata";
});

/// The common part of both kinds of events.
fn begin(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    received: &mut Received,
) -> Result<UpdateSlots, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let mut slots = UpdateSlots::default();
    slots.fill(value);
    let read_cx = cx.read_cx();
    let task_id = identifier(value.at(slots.task_id), "taskId", &read_cx).map_err(wrong)?;
    let task_id = match task_id {
        // 0.1, and dialects derived from 0.1 (wire §1.6, §8).
        None => identifier(value.at(slots.id), "id", &read_cx).map_err(wrong)?,
        task_id => task_id,
    };
    let task_id = task_id.ok_or_else(|| ReadError::at("taskId", "is required"))?;
    let context_id = identifier(value.at(slots.context_id), "contextId", &read_cx);
    let context_id = context_id.map_err(wrong)?.unwrap_or_default();
    received.event_ids(&task_id, &context_id);
    if let Some(metadata) = object(value.at(slots.metadata), "metadata").map_err(wrong)? {
        received.put_metadata(JsonObject::known(metadata.raw()));
    }
    Ok(slots)
}

/// Reads a status event.
pub(super) fn status_update(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let slots = begin(cx, value, received)?;
    let status = value.at(slots.status).ok_or_else(|| ReadError::at("status", "is required"))?;
    let mut scratch = received.take_scratch();
    let read = task::status(cx, status, &mut scratch).map_err(|error| error.within("status"));
    let is_final = boolean(value.at(slots.is_final), "final").map_err(wrong);
    let read = read.and_then(|status| Ok((status, is_final?)));
    if let Ok((status, is_final)) = &read {
        received.set_status(status.state, status.at_ms, is_final.unwrap_or(false));
        if status.has_message {
            received.put_message(&scratch);
        }
    }
    received.keep_scratch(scratch);
    read.map(drop)
}

/// Reads an artifact event: a new artifact or a chunk of an existing one.
pub(super) fn artifact_update(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let slots = begin(cx, value, received)?;
    let artifact = value.at(slots.artifact);
    let artifact = artifact.ok_or_else(|| ReadError::at("artifact", "is required"))?;
    let inside = received.pack_artifact(|pack| artifact::read(cx, artifact, 0, pack));
    let ChunkFlags { append, last_chunk } = inside.map_err(|error| error.within("artifact"))?;
    let flag = |slot, field| boolean(value.at(slot), field).map_err(wrong);
    received.set_chunk(
        flag(slots.append, "append")?.unwrap_or(append),
        flag(slots.last_chunk, "lastChunk")?.unwrap_or(last_chunk),
    );
    Ok(())
}
