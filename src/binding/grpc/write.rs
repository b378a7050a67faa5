//! Encodes answers from the views of a task to protocol buffers, while the task is locked.
//!
//! Invariant: messages have the same fields, under the same conditions, as the JSON of `dialect/v1`
//! and `dialect/v03`. Default values are omitted, except for the content of a part.

use crate::{
    model::{
        Artifact, ArtifactView, Generation, JsonObject, Message, Op, Part, Reply, Role, TaskEvent,
        TaskStatus, TaskView,
        pack::{artifact_tag, message_tag},
    },
    pb::Writer,
    service::StreamResponse,
};

use super::{
    fields::{other::timestamp, v1, v03},
    from_json::{struct_field, text_field},
    parts::{part_v1, part_v03},
    push,
};

/// The task and the context in which a message is shown; agent messages contain both ids.
#[derive(Clone, Copy)]
struct ShownIds<'a> {
    task_id: &'a [u8],
    context_id: &'a [u8],
}

/// Bytes that are sufficient for the ids and the state of most messages, in addition to their text.
const FRAME_GUESS: usize = 128;

/// Appends the message that answers `op`, or one piece of a page.
///
/// The pieces of a page are appended to one message, in order.
pub fn reply(out: &mut Vec<u8>, generation: Generation, op: Op, reply: &Reply<'_>) {
    // `SendMessageResponse` has the same field numbers in both generations.
    use v1::send_message_response as field;
    let mut writer = Writer(out);
    match *reply {
        Reply::Task { view, history } => match op {
            Op::Send | Op::Stream => {
                nested_task(&mut writer, generation, field::TASK, &view, history, true);
            }
            _ => task(&mut writer, generation, &view, history, true),
        },
        Reply::Message { message: agent_message, context_id } => {
            let ids = ShownIds { task_id: b"", context_id: context_id.raw() };
            message(&mut writer, generation, field::MESSAGE, agent_message, ids);
        }
        Reply::PageStart => {}
        Reply::PageTask { view, history, artifacts } => {
            let history = Some(history.unwrap_or(0));
            let number = v1::list_tasks_response::TASKS;
            nested_task(&mut writer, generation, number, &view, history, artifacts);
        }
        Reply::PageEnd { next, page_size, total } => {
            use v1::list_tasks_response as field;
            some_bytes(&mut writer, field::NEXT_PAGE_TOKEN, next.as_bytes());
            writer.number(field::PAGE_SIZE, u64::from(page_size));
            writer.number(field::TOTAL_SIZE, total.min(i32::MAX as u64));
        }
        Reply::Push(ref push_reply) => push::reply(&mut writer, generation, push_reply),
    }
}

/// Appends the `StreamResponse` of an item; false: the item has none, and no output was written.
///
/// `history`: the maximum number of messages in a snapshot.
#[inline(always)] // Into the row of each generation.
pub fn event(
    out: &mut Vec<u8>,
    generation: Generation,
    item: &StreamResponse<'_>,
    history: Option<u32>,
) -> bool {
    use v1::stream_response as field;
    let mut writer = Writer(out);
    match *item {
        StreamResponse::Snapshot(view) => {
            nested_task(&mut writer, generation, field::TASK, &view, history, true);
        }
        StreamResponse::Message { message: agent_message, context_id } => {
            let ids = ShownIds { task_id: b"", context_id: context_id.raw() };
            message(&mut writer, generation, field::MESSAGE, agent_message, ids);
        }
        StreamResponse::Event { ref event, task_id, context_id, last, .. } => {
            let ids = ShownIds { task_id: task_id.raw(), context_id: context_id.raw() };
            match *event {
                // A client's message is not an event of the protocol.
                TaskEvent::UserMessage { .. } => return false,
                TaskEvent::Status { state, at_ms, message, metadata } => {
                    let last = last || state.is_terminal();
                    let now = TaskStatus { state, at_ms, message, metadata };
                    status_update(&mut writer, generation, now, ids, last);
                }
                TaskEvent::Artifact { .. } => artifact_update(&mut writer, generation, event, ids),
            }
        }
    }
    true
}

/// Appends a `SendMessageRequest` of 1.0: the message, the media types that the client accepts (a
/// JSON array of strings) and the metadata (a JSON object).
#[cfg(feature = "embed")]
pub fn send_request(
    out: &mut Vec<u8>,
    user_message: Message<'_>,
    accepted_output_modes: Option<&str>,
    metadata: Option<&str>,
) {
    use v1::{send_message_configuration as configuration, send_message_request as field};
    let mut writer = Writer(out);
    let ids = ShownIds { task_id: b"", context_id: b"" };
    message(&mut writer, Generation::V1, field::MESSAGE, user_message, ids);
    let modes = accepted_output_modes.unwrap_or_default();
    let modes: Vec<String> = serde_json::from_str(modes).unwrap_or_default();
    if !modes.is_empty() {
        let nested = writer.open(field::CONFIGURATION, modes.len());
        for mode in &modes {
            writer.bytes(configuration::ACCEPTED_OUTPUT_MODES, mode.as_bytes());
        }
        writer.close(nested);
    }
    if let Some(metadata) = metadata {
        struct_field(writer.0, field::METADATA, metadata.as_bytes());
    }
}

fn status_update(
    writer: &mut Writer<'_>,
    generation: Generation,
    now: TaskStatus<'_>,
    ids: ShownIds<'_>,
    last: bool,
) {
    use v1::task_status_update_event as field;
    let message_len = now.message.map_or(0, |message| message.0.len() + FRAME_GUESS);
    let update = writer.open(v1::stream_response::STATUS_UPDATE, 100 + message_len);
    writer.bytes(field::TASK_ID, ids.task_id);
    writer.bytes(field::CONTEXT_ID, ids.context_id);
    status(writer, generation, field::STATUS, now, ids);
    let metadata_field = match generation {
        Generation::V1 => field::METADATA,
        Generation::V01 | Generation::V03 => {
            writer.flag(v03::task_status_update_event::FINAL, last);
            v03::task_status_update_event::METADATA
        }
    };
    some_struct(writer, metadata_field, now.metadata);
    writer.close(update);
}

fn artifact_update(
    writer: &mut Writer<'_>,
    generation: Generation,
    event: &TaskEvent<'_>,
    ids: ShownIds<'_>,
) {
    // Both generations use the same field numbers.
    use v1::task_artifact_update_event as field;
    let TaskEvent::Artifact { artifact: chunk, append, last_chunk, metadata } = *event else {
        return;
    };
    let guess = ids.task_id.len() + ids.context_id.len() + chunk.packed_len();
    let update = writer.open(v1::stream_response::ARTIFACT_UPDATE, guess);
    writer.bytes(field::TASK_ID, ids.task_id);
    writer.bytes(field::CONTEXT_ID, ids.context_id);
    artifact(writer, generation, field::ARTIFACT, chunk, chunk.parts(), chunk.packed_len());
    writer.flag(field::APPEND, append);
    writer.flag(field::LAST_CHUNK, last_chunk);
    some_struct(writer, field::METADATA, metadata);
    writer.close(update);
}

fn nested_task(
    writer: &mut Writer<'_>,
    generation: Generation,
    number: u32,
    view: &TaskView<'_>,
    history: Option<u32>,
    artifacts: bool,
) {
    let nested = writer.open(number, view.bytes().max(FRAME_GUESS));
    task(writer, generation, view, history, artifacts);
    writer.close(nested);
}

fn task(
    writer: &mut Writer<'_>,
    generation: Generation,
    view: &TaskView<'_>,
    history: Option<u32>,
    artifacts: bool,
) {
    // Both generations use the same field numbers.
    use v1::task as field;
    writer.0.reserve(view.bytes() + 1024);
    let ids = ShownIds { task_id: view.id().raw(), context_id: view.context_id().raw() };
    writer.bytes(field::ID, ids.task_id);
    writer.bytes(field::CONTEXT_ID, ids.context_id);
    status(writer, generation, field::STATUS, view.status(), ids);
    if artifacts {
        for whole in view.artifacts() {
            self::whole(writer, generation, field::ARTIFACTS, whole);
        }
    }
    if history != Some(0) {
        for entry in view.history(history) {
            message(writer, generation, field::HISTORY, entry, ids);
        }
    }
}

fn status(
    writer: &mut Writer<'_>,
    generation: Generation,
    number: u32,
    now: TaskStatus<'_>,
    ids: ShownIds<'_>,
) {
    // Both generations use the same field numbers.
    use v1::task_status as field;
    let status =
        writer.open(number, now.message.map_or(0, |message| message.0.len() + FRAME_GUESS));
    writer.number(field::STATE, now.state as u64);
    if let Some(status_message) = now.message {
        message(writer, generation, field::MESSAGE, status_message, ids);
    }
    if now.at_ms != 0 {
        let time = writer.open(field::TIMESTAMP, 0);
        writer.number(timestamp::SECONDS, now.at_ms / 1000);
        let nanos = now.at_ms % 1000 * 1_000_000;
        if nanos != 0 {
            writer.number(timestamp::NANOS, nanos);
        }
        writer.close(time);
    }
    writer.close(status);
}

fn message(
    writer: &mut Writer<'_>,
    generation: Generation,
    number: u32,
    message: Message<'_>,
    ids: ShownIds<'_>,
) {
    // Both generations use the same numbers for their common fields.
    use v1::message as field;
    let nested = writer.open(number, message.0.len());
    let role = message.role();
    let (mut context_id, mut task_id) = (None, None);
    for (tag, bytes) in message.fields() {
        match tag {
            message_tag::MESSAGE_ID => text_field(writer, field::MESSAGE_ID, bytes),
            message_tag::CONTEXT_ID => context_id = Some(bytes),
            message_tag::TASK_ID => task_id = Some(bytes),
            _ => {}
        }
    }
    if role == Role::Agent {
        // A2A 1.0 §4.1.4: an agent's message contains the id of its context.
        context_id = context_id.or(Some(ids.context_id).filter(|id| !id.is_empty()));
        task_id = task_id.or(Some(ids.task_id).filter(|id| !id.is_empty()));
    }
    some_text(writer, field::CONTEXT_ID, context_id);
    some_text(writer, field::TASK_ID, task_id);
    writer.number(field::ROLE, role as u64);
    for (tag, bytes) in message.fields() {
        match tag {
            message_tag::PART => part(writer, generation, field::PARTS, Part(bytes)),
            message_tag::METADATA => struct_field(writer.0, field::METADATA, bytes),
            message_tag::EXTENSION => text_field(writer, field::EXTENSIONS, bytes),
            message_tag::REFERENCE if generation == Generation::V1 => {
                text_field(writer, field::REFERENCE_TASK_IDS, bytes);
            }
            _ => {}
        }
    }
    writer.close(nested);
}

fn whole(writer: &mut Writer<'_>, generation: Generation, number: u32, whole: ArtifactView<'_>) {
    let head = whole.head();
    artifact(writer, generation, number, head, whole.parts(), head.packed_len());
}

fn artifact<'a>(
    writer: &mut Writer<'_>,
    generation: Generation,
    number: u32,
    head: Artifact<'a>,
    parts: impl Iterator<Item = Part<'a>>,
    guess: usize,
) {
    use v1::artifact as new;
    use v03::artifact as old;
    let nested = writer.open(number, guess);
    let [name, description, part_field, metadata, extensions] = match generation {
        Generation::V1 => [new::NAME, new::DESCRIPTION, new::PARTS, new::METADATA, new::EXTENSIONS],
        Generation::V01 | Generation::V03 => {
            [old::NAME, old::DESCRIPTION, old::PARTS, old::METADATA, old::EXTENSIONS]
        }
    };
    for (tag, bytes) in head.fields() {
        match tag {
            artifact_tag::ARTIFACT_ID => text_field(writer, new::ARTIFACT_ID, bytes),
            artifact_tag::NAME => text_field(writer, name, bytes),
            artifact_tag::DESCRIPTION => text_field(writer, description, bytes),
            artifact_tag::METADATA => struct_field(writer.0, metadata, bytes),
            artifact_tag::EXTENSION => text_field(writer, extensions, bytes),
            _ => {}
        }
    }
    for each in parts {
        part(writer, generation, part_field, each);
    }
    writer.close(nested);
}

fn part(writer: &mut Writer<'_>, generation: Generation, number: u32, part: Part<'_>) {
    let nested = writer.open(number, part.0.len());
    match generation {
        Generation::V1 => part_v1(writer, part),
        Generation::V01 | Generation::V03 => part_v03(writer, part),
    }
    writer.close(nested);
}

pub(super) fn some_text(writer: &mut Writer<'_>, number: u32, raw: Option<&[u8]>) {
    if let Some(raw) = raw.filter(|raw| !raw.is_empty()) {
        text_field(writer, number, raw);
    }
}

fn some_bytes(writer: &mut Writer<'_>, number: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        writer.bytes(number, bytes);
    }
}

pub(super) fn some_struct(writer: &mut Writer<'_>, number: u32, json: Option<JsonObject<'_>>) {
    if let Some(json) = json {
        struct_field(writer.0, number, json.raw());
    }
}
