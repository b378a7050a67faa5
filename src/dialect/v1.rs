//! Protocol 1.0 (wire §1.5 to §1.7): ProtoJSON, `{"task":…}` or `{"message":…}`, ErrorInfo.
//!
//! Invariant: camelCase names, full enum names, no defaults, no empty lists, and no member that the
//! proto does not have. This is the hot path: members are constants, values are copied unchanged.

use crate::{
    fault::Fault,
    json::Value,
    model::{
        Artifact, ArtifactView, Call, Content, Generation, Message, Op, Part, RawText, Reply, Role,
        TaskEvent, TaskState, TaskView,
        pack::{artifact_tag, message_tag, part_tag},
    },
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls;
use super::{
    Encode, EncodeText, ReadCx, Wire, WriteCx, fault,
    json_out::{self, TaskRef, Template},
    push_out, read,
};

/// Reader and writers of 1.0.
pub static WIRE: Wire = Wire {
    decode: read,
    encode: Encode {
        generation: Generation::V1,
        reply,
        event,
        text: Some(TEXT),
        fault: write_fault,
    },
    #[cfg(feature = "client")]
    calls: calls::Calls::V1,
};

/// The same output as [`update`] and [`only_text`].
const TEXT: EncodeText = EncodeText {
    head: artifact_head,
    between: AFTER_ID,
    tails: [
        b"\"}]}}}",
        b"\"}]},\"append\":true}}",
        b"\"}]},\"lastChunk\":true}}",
        b"\"}]},\"append\":true,\"lastChunk\":true}}",
    ],
};

const RULES: read::Rules = read::Rules::of(Generation::V1);

fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&RULES, cx, params, pack)
}

fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::v1(out, fault);
}

pub(super) fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match *reply {
        Reply::Task { view, history } => {
            // A2A 1.0 §9.4: a send is answered with a oneof, any other operation with the bare
            // task.
            let wrapped = matches!(cx.op, Op::Send | Op::Stream);
            if wrapped {
                out.extend_from_slice(b"{\"task\":");
            }
            task(out, &view, history, Artifacts::Some);
            if wrapped {
                out.push(b'}');
            }
        }
        Reply::Message { message, context_id } => direct(out, message, context_id),
        Reply::PageStart => json_out::page_start(out),
        Reply::PageTask { view, history, artifacts } => {
            json_out::page_comma(out);
            // A2A 1.0 §3.1.4: artifacts are omitted, or present even if empty.
            let artifacts = if artifacts { Artifacts::Always } else { Artifacts::Never };
            task(out, &view, Some(history.unwrap_or(0)), artifacts);
        }
        Reply::PageEnd { next, page_size, total } => {
            json_out::page_end(out, next, page_size, total)
        }
        Reply::Push(ref push) => push_out::v1(out, push),
    }
}

pub(super) fn direct(out: &mut Vec<u8>, direct_message: Message<'_>, context_id: RawText<'_>) {
    out.extend_from_slice(b"{\"message\":");
    message(out, direct_message, TaskRef { task_id: b"", context_id: context_id.raw() });
    out.push(b'}');
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => {
            out.extend_from_slice(b"{\"task\":");
            task(out, &view, cx.history, Artifacts::Some);
            out.push(b'}');
            true
        }
        StreamResponse::Message { message, context_id } => {
            direct(out, message, context_id);
            true
        }
        StreamResponse::Event { ref event, task_id, context_id, .. } => {
            update(out, event, task_id, context_id)
        }
    }
}

/// The texts before other members, with blanks for the ids of the task and the context.
const TASK: Template<95> = Template::new(
    b"{\"id\":\"------------------------------------\
    \",\"contextId\":\"------------------------------------\"",
);
const STATUS_UPDATE: Template<115> = Template::new(
    b"{\"statusUpdate\":{\"taskId\":\"------------------------------------\
    \",\"contextId\":\"------------------------------------\"",
);
const ARTIFACT_UPDATE: Template<144> = Template::new(
    b"{\"artifactUpdate\":{\"taskId\":\"------------------------------------\
    \",\"contextId\":\"------------------------------------\",\"artifact\":{\"artifactId\":\"",
);

pub(super) fn update(
    out: &mut Vec<u8>,
    event: &TaskEvent<'_>,
    task_id: RawText<'_>,
    context_id: RawText<'_>,
) -> bool {
    match *event {
        // The protocol has no event for a client's message.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { state, at_ms, message, metadata } => {
            let task_ref = TaskRef { task_id: task_id.raw(), context_id: context_id.raw() };
            STATUS_UPDATE.put(out, task_ref.task_id, task_ref.context_id);
            status(out, state, at_ms, message, task_ref);
            json_out::object_some(out, b",\"metadata\":", metadata);
            out.extend_from_slice(b"}}");
        }
        TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
            artifact_head(out, task_id, context_id);
            out.reserve(artifact.packed_len() + 512);
            chunk(out, artifact);
            json_out::chunk_flags(out, append, last_chunk);
            json_out::object_some(out, b",\"metadata\":", metadata);
            out.extend_from_slice(b"}}");
        }
    }
    true
}

fn artifact_head(out: &mut Vec<u8>, task_id: RawText<'_>, context_id: RawText<'_>) {
    ARTIFACT_UPDATE.put(out, task_id.raw(), context_id.raw());
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Artifacts {
    Never,
    Some,
    Always,
}

/// A completed task without a status message, up to the end of its status; the time is filled in,
/// too.
const COMPLETED: Template<176> = Template::new(
    b"{\"id\":\"------------------------------------\
    \",\"contextId\":\"------------------------------------\"\
    ,\"status\":{\"state\":\"TASK_STATE_COMPLETED\",\"timestamp\":\"0000-00-00T00:00:00.000Z\"}",
);

pub(super) fn task(
    out: &mut Vec<u8>,
    view: &TaskView<'_>,
    history: Option<u32>,
    artifacts: Artifacts,
) {
    // The log is about as large as the JSON without punctuation, for which 1 KiB is usually enough.
    out.reserve(view.bytes() + 1024);
    let task_ref = TaskRef { task_id: view.id().raw(), context_id: view.context_id().raw() };
    let now = view.status();
    if let (TaskState::Completed, None, 1..) = (now.state, now.message, now.at_ms) {
        COMPLETED.put(out, task_ref.task_id, task_ref.context_id);
        json_out::stamp(out, 2, now.at_ms);
    } else {
        TASK.put(out, task_ref.task_id, task_ref.context_id);
        status(out, now.state, now.at_ms, now.message, task_ref);
    }
    if artifacts != Artifacts::Never {
        let even_empty = artifacts == Artifacts::Always;
        json_out::list(out, b",\"artifacts\":[", view.artifacts(), even_empty, whole);
    }
    // A2A 1.0 §3.2.4: 0 means none; the member is then omitted.
    if history != Some(0) {
        let messages = view.history(history);
        json_out::list(out, b",\"history\":[", messages, false, |out, m| message(out, m, task_ref));
    }
    out.push(b'}');
}

fn status(
    out: &mut Vec<u8>,
    state: TaskState,
    at_ms: u64,
    status_message: Option<Message<'_>>,
    task_ref: TaskRef<'_>,
) {
    out.extend_from_slice(status_head(state));
    if let Some(status_message) = status_message {
        out.extend_from_slice(b",\"message\":");
        message(out, status_message, task_ref);
    }
    json_out::timestamp(out, at_ms);
    out.push(b'}');
}

/// Wire §1.6, TaskState.
fn status_head(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Unspecified => b",\"status\":{\"state\":\"TASK_STATE_UNSPECIFIED\"",
        TaskState::Submitted => b",\"status\":{\"state\":\"TASK_STATE_SUBMITTED\"",
        TaskState::Working => b",\"status\":{\"state\":\"TASK_STATE_WORKING\"",
        TaskState::Completed => b",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"",
        TaskState::Failed => b",\"status\":{\"state\":\"TASK_STATE_FAILED\"",
        TaskState::Canceled => b",\"status\":{\"state\":\"TASK_STATE_CANCELED\"",
        TaskState::InputRequired => b",\"status\":{\"state\":\"TASK_STATE_INPUT_REQUIRED\"",
        TaskState::Rejected => b",\"status\":{\"state\":\"TASK_STATE_REJECTED\"",
        TaskState::AuthRequired => b",\"status\":{\"state\":\"TASK_STATE_AUTH_REQUIRED\"",
    }
}

pub(super) fn message(out: &mut Vec<u8>, message: Message<'_>, task_ref: TaskRef<'_>) {
    match message.as_user_text() {
        Some((id, text)) => {
            out.extend_from_slice(b"{\"messageId\":\"");
            out.extend_from_slice(id.raw());
            out.extend_from_slice(b"\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"");
            out.extend_from_slice(text.raw());
            out.extend_from_slice(b"\"}]}");
        }
        None => any_message(out, message, task_ref),
    }
}

fn any_message(out: &mut Vec<u8>, message: Message<'_>, task_ref: TaskRef<'_>) {
    out.reserve(message.0.len() + 256);
    json_out::text(out, b"{\"messageId\":\"", message.message_id().raw());
    let mut role = Role::Agent;
    let (mut has_context, mut has_task, mut has_lists) = (false, false, false);
    for (tag, bytes) in message.fields() {
        match tag {
            message_tag::CONTEXT_ID => {
                has_context = true;
                json_out::text(out, b",\"contextId\":\"", bytes);
            }
            message_tag::TASK_ID => {
                has_task = true;
                json_out::text(out, b",\"taskId\":\"", bytes);
            }
            message_tag::ROLE if bytes == [Role::User as u8] => role = Role::User,
            message_tag::METADATA => json_out::json(out, b",\"metadata\":", bytes),
            message_tag::EXTENSION | message_tag::REFERENCE => has_lists = true,
            _ => {}
        }
    }
    match role {
        Role::User => out.extend_from_slice(b",\"role\":\"ROLE_USER\",\"parts\":["),
        Role::Agent => {
            // A2A 1.0 §4.1.4: an agent's message names its context.
            if !has_context && !task_ref.context_id.is_empty() {
                json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
            }
            if !has_task && !task_ref.task_id.is_empty() {
                json_out::id(out, b",\"taskId\":\"", task_ref.task_id);
            }
            out.extend_from_slice(b",\"role\":\"ROLE_AGENT\",\"parts\":[");
        }
    }
    parts(out, message.parts());
    if has_lists {
        let all = |tag: u8| message.fields().filter(move |f| f.0 == tag).map(|f| f.1);
        json_out::texts(out, b",\"extensions\":[", all(message_tag::EXTENSION));
        json_out::texts(out, b",\"referenceTaskIds\":[", all(message_tag::REFERENCE));
    }
    out.push(b'}');
}

/// Appends parts and the closing bracket.
#[inline]
fn parts<'a>(out: &mut Vec<u8>, parts: impl Iterator<Item = Part<'a>>) {
    json_out::list(out, b"", parts, true, part);
}

#[inline]
fn part(out: &mut Vec<u8>, part: Part<'_>) {
    match part.as_text() {
        Some(text) => {
            out.extend_from_slice(b"{\"text\":\"");
            out.extend_from_slice(text.raw());
            out.extend_from_slice(b"\"}");
        }
        None => any_part(out, part),
    }
}

pub(super) fn any_part(out: &mut Vec<u8>, part: Part<'_>) {
    match part.content() {
        Content::Text(text) => json_out::text(out, b"{\"text\":\"", text.raw()),
        Content::Raw(raw) => json_out::text(out, b"{\"raw\":\"", raw.raw()),
        Content::Url(url) => json_out::text(out, b"{\"url\":\"", url.raw()),
        Content::Data(data) => json_out::json(out, b"{\"data\":", data.raw()),
        Content::Unknown(part) => return out.extend_from_slice(part.raw()),
    }
    for (tag, bytes) in part.fields() {
        match tag {
            part_tag::METADATA => json_out::json(out, b",\"metadata\":", bytes),
            part_tag::FILENAME => json_out::text(out, b",\"filename\":\"", bytes),
            part_tag::MEDIA_TYPE => json_out::text(out, b",\"mediaType\":\"", bytes),
            _ => {}
        }
    }
    out.push(b'}');
}

/// An artifact of a task.
#[inline]
fn whole(out: &mut Vec<u8>, artifact: ArtifactView<'_>) {
    let head = artifact.head();
    out.extend_from_slice(b"{\"artifactId\":\"");
    match head.as_text().filter(|_| artifact.is_whole()) {
        Some((id, text)) => only_text(out, id, text),
        None => described(out, head, artifact.parts()),
    }
}

/// An artifact of an event, beginning with the text of its id.
#[inline]
fn chunk(out: &mut Vec<u8>, artifact: Artifact<'_>) {
    match artifact.as_text() {
        Some((id, text)) => only_text(out, id, text),
        None => described(out, artifact, artifact.parts()),
    }
}

/// The part between the id of an artifact and its text.
const AFTER_ID: &[u8] = b"\",\"parts\":[{\"text\":\"";

/// The same output as [`described`] for an artifact of one text part.
#[inline]
fn only_text(out: &mut Vec<u8>, id: RawText<'_>, text: RawText<'_>) {
    out.extend_from_slice(id.raw());
    out.extend_from_slice(AFTER_ID);
    out.extend_from_slice(text.raw());
    out.extend_from_slice(b"\"}]}");
}

/// An artifact, beginning with the text of its id.
fn described<'a>(out: &mut Vec<u8>, head: Artifact<'a>, all_parts: impl Iterator<Item = Part<'a>>) {
    json_out::text(out, b"", head.artifact_id().raw());
    let mut has_extensions = false;
    for (tag, bytes) in head.fields() {
        match tag {
            artifact_tag::NAME => json_out::text(out, b",\"name\":\"", bytes),
            artifact_tag::DESCRIPTION => json_out::text(out, b",\"description\":\"", bytes),
            artifact_tag::METADATA => json_out::json(out, b",\"metadata\":", bytes),
            artifact_tag::EXTENSION => has_extensions = true,
            _ => {}
        }
    }
    out.extend_from_slice(b",\"parts\":[");
    parts(out, all_parts);
    if has_extensions {
        let extensions = head.fields().filter(|f| f.0 == artifact_tag::EXTENSION).map(|f| f.1);
        json_out::texts(out, b",\"extensions\":[", extensions);
    }
    out.push(b'}');
}
