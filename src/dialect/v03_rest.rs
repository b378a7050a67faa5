//! HTTP+JSON of 0.3 (wire §3.4): the ProtoJSON of `a2a.v1`, which is not the JSON of JSON-RPC.
//!
//! Parts are the `content` of a message, files and data are messages of their own, enums have
//! their full names, results and stream items are wrapped. What is false or empty is left out.

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

use super::{
    ReadCx, Wire, WriteCx, fault,
    old::{Place, message_place},
    put, read,
};

/// The pairs of 0.3 over HTTP+JSON.
pub(super) static WIRE: Wire =
    Wire { generation: Generation::V03, read, reply, event, fault: write_fault };

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
        // The proto of 0.3 has no list; its text has one, and 1.0 the frame for it.
        Reply::PageStart => put::page_start(out),
        Reply::PageTask { view, history, artifacts } => {
            put::page_comma(out);
            task(out, &view, Some(history.unwrap_or(0)), artifacts);
        }
        Reply::PageEnd { next, page_size, total } => put::page_end(out, next, page_size, total),
    }
}

fn direct(out: &mut Vec<u8>, said: Message<'_>, context_id: RawText<'_>) {
    out.extend_from_slice(b"{\"message\":");
    message(out, said, Place { task_id: b"", context_id: context_id.raw() });
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
        StreamResponse::Event { ref event, task_id, context_id, last, .. } => {
            update(out, event, Place { task_id: task_id.raw(), context_id: context_id.raw() }, last)
        }
    }
}

fn update(out: &mut Vec<u8>, event: &TaskEvent<'_>, place: Place<'_>, last: bool) -> bool {
    let (head, metadata) = match *event {
        // A client's message is no event of the protocol.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { metadata, .. } => (&b"{\"statusUpdate\":{\"taskId\":\""[..], metadata),
        TaskEvent::Artifact { metadata, .. } => {
            (&b"{\"artifactUpdate\":{\"taskId\":\""[..], metadata)
        }
    };
    put::id(out, head, place.task_id);
    put::id(out, b",\"contextId\":\"", place.context_id);
    match *event {
        TaskEvent::UserMessage { .. } => {}
        TaskEvent::Status { state, at_ms, message, .. } => {
            status(out, state, at_ms, message, place);
            if last || state.is_terminal() {
                out.extend_from_slice(b",\"final\":true");
            }
        }
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            out.extend_from_slice(b",\"artifact\":");
            self::artifact(out, artifact, artifact.parts());
            if append {
                out.extend_from_slice(b",\"append\":true");
            }
            if last_chunk {
                out.extend_from_slice(b",\"lastChunk\":true");
            }
        }
    }
    put::object_some(out, b",\"metadata\":", metadata);
    out.extend_from_slice(b"}}");
    true
}

fn task(out: &mut Vec<u8>, view: &TaskView<'_>, history: Option<u32>, artifacts: bool) {
    out.reserve(view.bytes() + 1024);
    let place = Place { task_id: view.id().raw(), context_id: view.context_id().raw() };
    put::id(out, b"{\"id\":\"", place.task_id);
    put::id(out, b",\"contextId\":\"", place.context_id);
    let now = view.status();
    status(out, now.state, now.at_ms, now.message, place);
    if artifacts {
        put::list(out, b",\"artifacts\":[", view.artifacts(), false, |out, whole| {
            artifact(out, whole.head(), whole.parts());
        });
    }
    if history != Some(0) {
        let messages = view.history(history);
        put::list(out, b",\"history\":[", messages, false, |out, m| message(out, m, place));
    }
    out.push(b'}');
}

fn status(
    out: &mut Vec<u8>,
    state: TaskState,
    at_ms: u64,
    said: Option<Message<'_>>,
    place: Place<'_>,
) {
    put::text(out, b",\"status\":{\"state\":\"", state_name(state));
    if let Some(said) = said {
        out.extend_from_slice(b",\"message\":");
        message(out, said, place);
    }
    put::timestamp(out, at_ms);
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

fn message(out: &mut Vec<u8>, message: Message<'_>, place: Place<'_>) {
    out.reserve(message.0.len() + 256);
    put::text(out, b"{\"messageId\":\"", message.message_id().raw());
    message_place(out, message, place);
    let role: &[u8] = match message.role() {
        Role::Agent => b"ROLE_AGENT",
        Role::User => b"ROLE_USER",
    };
    put::text(out, b",\"role\":\"", role);
    put::list(out, b",\"content\":[", message.parts(), true, part);
    put::object_some(out, b",\"metadata\":", message.metadata());
    // The proto has no referenceTaskIds.
    let extensions = message.fields().filter(|f| f.0 == message_tag::EXTENSION).map(|f| f.1);
    put::texts(out, b",\"extensions\":[", extensions);
    out.push(b'}');
}

fn part(out: &mut Vec<u8>, part: Part<'_>) {
    let metadata = part.metadata();
    match part.content() {
        Content::Text(text) => put::text(out, b"{\"text\":\"", text.raw()),
        Content::Raw(raw) => file(out, part, b"{\"file\":{\"fileWithBytes\":\"", raw.raw()),
        Content::Url(url) => file(out, part, b"{\"file\":{\"fileWithUri\":\"", url.raw()),
        Content::Data(data) if data.as_object().is_some() => {
            put::json(out, b"{\"data\":{\"data\":", data.raw());
            out.push(b'}');
        }
        Content::Data(data) => {
            // A Struct is an object. All else is wrapped, and marked (wire §1.9).
            put::json(out, b"{\"data\":{\"data\":{\"value\":", data.raw());
            out.extend_from_slice(b"}}");
            put::wrapped_mark(out, metadata);
            out.push(b'}');
            return;
        }
    }
    put::object_some(out, b",\"metadata\":", metadata);
    out.push(b'}');
}

fn file(out: &mut Vec<u8>, part: Part<'_>, key: &[u8], content: &[u8]) {
    put::text(out, key, content);
    put::text_some(out, b",\"mimeType\":\"", part.media_type());
    put::text_some(out, b",\"name\":\"", part.filename());
    out.push(b'}');
}

fn artifact<'a>(out: &mut Vec<u8>, head: Artifact<'a>, parts: impl Iterator<Item = Part<'a>>) {
    put::text(out, b"{\"artifactId\":\"", head.artifact_id().raw());
    let fields = head.fields();
    put::text_some(out, b",\"name\":\"", head.name());
    put::text_some(out, b",\"description\":\"", head.description());
    put::list(out, b",\"parts\":[", parts, true, part);
    put::object_some(out, b",\"metadata\":", head.metadata());
    let extensions = fields.filter(|f| f.0 == artifact_tag::EXTENSION).map(|f| f.1);
    put::texts(out, b",\"extensions\":[", extensions);
    out.push(b'}');
}
