//! HTTP+JSON of 0.3 (wire §3.4): the ProtoJSON of `a2a.v1`, which differs from the JSON of
//! JSON-RPC.
//!
//! The parts of a message are its `content`, files and data are separate messages, enums have their
//! full names, results and stream items are wrapped. False or empty members are omitted.

use crate::{
    fault::Fault,
    json::Value,
    model::{
        Artifact, Call, Content, Generation, Message, Op, Part, RawText, Reply, Role, TaskEvent,
        TaskState, TaskView,
        pack::{artifact_tag, message_tag},
    },
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::Calls;
use super::{
    Encode, ReadCx, Wire, WriteCx, fault,
    json_out::{self, TaskRef},
    pre_v1::message_task_ref,
    push_out, read,
};

/// Reader and writers of 0.3 over HTTP+JSON.
pub(super) static WIRE: Wire = Wire {
    decode: read,
    encode: Encode { generation: Generation::V03, reply, event, text: None, fault: write_fault },
    #[cfg(feature = "client")]
    calls: Calls::V03Rest,
};

const RULES: read::Rules =
    read::Rules { proto: true, strict: true, ..read::Rules::of(Generation::V03) };

fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&RULES, cx, params, pack)
}

fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::rest_v03(out, fault);
}

fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match *reply {
        Reply::Task { view, history } => {
            let is_sent = matches!(cx.op, Op::Send | Op::Stream);
            if is_sent {
                out.extend_from_slice(b"{\"task\":");
            }
            task(out, &view, history, true);
            if is_sent {
                out.push(b'}');
            }
        }
        Reply::Message { message, context_id } => direct(out, message, context_id),
        // The proto of 0.3 has no list, but the text of its specification has one; this is the page
        // of 1.0.
        Reply::PageStart => json_out::page_start(out),
        Reply::PageTask { view, history, artifacts } => {
            json_out::page_comma(out);
            task(out, &view, Some(history.unwrap_or(0)), artifacts);
        }
        Reply::PageEnd { next, page_size, total } => {
            json_out::page_end(out, next, page_size, total)
        }
        Reply::Push(ref push) => push_out::v03_rest(out, push),
    }
}

fn direct(out: &mut Vec<u8>, direct_message: Message<'_>, context_id: RawText<'_>) {
    out.extend_from_slice(b"{\"message\":");
    message(out, direct_message, TaskRef { task_id: b"", context_id: context_id.raw() });
    out.push(b'}');
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => {
            out.extend_from_slice(b"{\"task\":");
            task(out, &view, cx.history, true);
            out.push(b'}');
            true
        }
        StreamResponse::Message { message, context_id } => {
            direct(out, message, context_id);
            true
        }
        StreamResponse::Event { ref event, task_id, context_id, last, .. } => update(
            out,
            event,
            TaskRef { task_id: task_id.raw(), context_id: context_id.raw() },
            last,
        ),
    }
}

fn update(out: &mut Vec<u8>, event: &TaskEvent<'_>, task_ref: TaskRef<'_>, last: bool) -> bool {
    let (head, metadata) = match *event {
        // The protocol has no event for a client's message.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { metadata, .. } => (&b"{\"statusUpdate\":{\"taskId\":\""[..], metadata),
        TaskEvent::Artifact { metadata, .. } => {
            (&b"{\"artifactUpdate\":{\"taskId\":\""[..], metadata)
        }
    };
    json_out::id(out, head, task_ref.task_id);
    json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
    match *event {
        TaskEvent::UserMessage { .. } => {}
        TaskEvent::Status { state, at_ms, message, .. } => {
            status(out, state, at_ms, message, task_ref);
            if last || state.is_terminal() {
                out.extend_from_slice(b",\"final\":true");
            }
        }
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            out.extend_from_slice(b",\"artifact\":");
            self::artifact(out, artifact, artifact.parts());
            json_out::chunk_flags(out, append, last_chunk);
        }
    }
    json_out::object_some(out, b",\"metadata\":", metadata);
    out.extend_from_slice(b"}}");
    true
}

fn task(out: &mut Vec<u8>, view: &TaskView<'_>, history: Option<u32>, artifacts: bool) {
    out.reserve(view.bytes() + 1024);
    let task_ref = TaskRef { task_id: view.id().raw(), context_id: view.context_id().raw() };
    json_out::id(out, b"{\"id\":\"", task_ref.task_id);
    json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
    let now = view.status();
    status(out, now.state, now.at_ms, now.message, task_ref);
    if artifacts {
        json_out::list(out, b",\"artifacts\":[", view.artifacts(), false, |out, whole| {
            artifact(out, whole.head(), whole.parts());
        });
    }
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
    json_out::text(out, b",\"status\":{\"state\":\"", state_name(state));
    if let Some(status_message) = status_message {
        out.extend_from_slice(b",\"message\":");
        message(out, status_message, task_ref);
    }
    json_out::timestamp(out, at_ms);
    out.push(b'}');
}

/// Wire §1.6, TaskState; `CANCELLED` has two Ls here.
fn state_name(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Unspecified => b"TASK_STATE_UNSPECIFIED",
        TaskState::Submitted => b"TASK_STATE_SUBMITTED",
        TaskState::Working => b"TASK_STATE_WORKING",
        TaskState::Completed => b"TASK_STATE_COMPLETED",
        TaskState::Failed => b"TASK_STATE_FAILED",
        TaskState::Canceled => b"TASK_STATE_CANCELLED",
        TaskState::InputRequired => b"TASK_STATE_INPUT_REQUIRED",
        TaskState::Rejected => b"TASK_STATE_REJECTED",
        TaskState::AuthRequired => b"TASK_STATE_AUTH_REQUIRED",
    }
}

pub(super) fn message(out: &mut Vec<u8>, message: Message<'_>, task_ref: TaskRef<'_>) {
    out.reserve(message.0.len() + 256);
    json_out::text(out, b"{\"messageId\":\"", message.message_id().raw());
    message_task_ref(out, message, task_ref);
    let role: &[u8] = match message.role() {
        Role::Agent => b"ROLE_AGENT",
        Role::User => b"ROLE_USER",
    };
    json_out::text(out, b",\"role\":\"", role);
    json_out::list(out, b",\"content\":[", message.parts(), true, part);
    json_out::object_some(out, b",\"metadata\":", message.metadata());
    // The proto has no referenceTaskIds.
    let extensions = message.fields().filter(|f| f.0 == message_tag::EXTENSION).map(|f| f.1);
    json_out::texts(out, b",\"extensions\":[", extensions);
    out.push(b'}');
}

fn part(out: &mut Vec<u8>, part: Part<'_>) {
    let metadata = part.metadata();
    match part.content() {
        Content::Text(text) => json_out::text(out, b"{\"text\":\"", text.raw()),
        Content::Raw(raw) => file(out, part, b"{\"file\":{\"fileWithBytes\":\"", raw.raw()),
        Content::Url(url) => file(out, part, b"{\"file\":{\"fileWithUri\":\"", url.raw()),
        Content::Data(data) if data.as_object().is_some() => {
            json_out::json(out, b"{\"data\":{\"data\":", data.raw());
            out.push(b'}');
        }
        Content::Data(data) => {
            // A Struct is an object. Any other value is wrapped and marked (wire §1.9).
            json_out::json(out, b"{\"data\":{\"data\":{\"value\":", data.raw());
            out.extend_from_slice(b"}}");
            json_out::wrapped_mark(out, metadata);
            out.push(b'}');
            return;
        }
        Content::Unknown(part) => return out.extend_from_slice(part.raw()),
    }
    json_out::object_some(out, b",\"metadata\":", metadata);
    out.push(b'}');
}

fn file(out: &mut Vec<u8>, part: Part<'_>, key: &[u8], content: &[u8]) {
    json_out::text(out, key, content);
    json_out::text_some(out, b",\"mimeType\":\"", part.media_type());
    json_out::text_some(out, b",\"name\":\"", part.filename());
    out.push(b'}');
}

fn artifact<'a>(out: &mut Vec<u8>, head: Artifact<'a>, parts: impl Iterator<Item = Part<'a>>) {
    json_out::text(out, b"{\"artifactId\":\"", head.artifact_id().raw());
    let fields = head.fields();
    json_out::text_some(out, b",\"name\":\"", head.name());
    json_out::text_some(out, b",\"description\":\"", head.description());
    json_out::list(out, b",\"parts\":[", parts, true, part);
    json_out::object_some(out, b",\"metadata\":", head.metadata());
    let extensions = fields.filter(|f| f.0 == artifact_tag::EXTENSION).map(|f| f.1);
    json_out::texts(out, b",\"extensions\":[", extensions);
    out.push(b'}');
}
