//! Protocol 0.1 (wire §1.5, §1.6, §1.9): only tasks, parts by `type`, artifacts by `index`.
//!
//! A stream carries status and artifact events and never a task: the status of a snapshot goes
//! in its place. A direct message is shown as a completed task with `status.message`, under the
//! id the client chose.

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Generation, Message, RawText, Reply, TaskEvent, TaskState},
    service::StreamResponse,
};

use super::{
    ReadCx, Wire, WriteCx, fault,
    old::{self, Now, Place, Style},
    put, read, v03,
};

/// The 0.1 pairs.
pub(super) static WIRE: Wire =
    Wire { generation: Generation::V01, read, reply, event, fault: write_fault };

/// Objects of 0.1.
const STYLE: Style = Style {
    generation: Generation::V01,
    task: b"{\"id\":\"",
    context: b",\"sessionId\":\"",
    message: b"",
    message_again: b"",
    text: b"{\"type\":\"text\",\"text\":\"",
    file: b"{\"type\":\"file\",\"file\":{",
    data: b"{\"type\":\"data\",\"data\":",
    parts_v1: false,
    task_final: false,
    state: state_name,
};

const RULES: read::Rules = read::Rules::of(Generation::V01);

fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&RULES, cx, params, pack)
}

fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::v01(out, fault);
}

fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    reply_in(out, &STYLE, reply, cx);
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    event_in(out, &STYLE, item, cx)
}

/// Appends a reply in a style that knows only tasks.
pub(super) fn reply_in(out: &mut Vec<u8>, style: &Style, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match *reply {
        Reply::Message { message, context_id } => {
            let place = direct_place(message, context_id, cx);
            old::direct_task(out, style, message, cx.unix_ms, place);
        }
        Reply::Task { .. } | Reply::PageStart | Reply::PageTask { .. } | Reply::PageEnd { .. } => {
            v03::reply_in(out, style, reply);
        }
    }
}

/// Where a direct message stands: no task exists, so the id is the one the client named, or
/// else the message's own, which is unique as well.
fn direct_place<'a>(message: Message<'a>, context_id: RawText<'a>, cx: &WriteCx<'a>) -> Place<'a> {
    let task_id = if cx.task_id.is_empty() { message.message_id().raw() } else { cx.task_id };
    Place { task_id, context_id: context_id.raw() }
}

/// Appends a stream item as `{id, status, final}` or `{id, artifact}`.
pub(super) fn event_in(
    out: &mut Vec<u8>,
    style: &Style,
    item: &StreamResponse<'_>,
    cx: &WriteCx<'_>,
) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => {
            let place = Place { task_id: view.id().raw(), context_id: view.context_id().raw() };
            let status = view.status();
            let now = Now { state: status.state, at_ms: status.at_ms, said: status.message };
            status_event(out, style, now, place, false);
            put::object_some(out, b",\"metadata\":", status.metadata);
        }
        StreamResponse::Message { message, context_id } => {
            let place = direct_place(message, context_id, cx);
            let state = TaskState::Completed;
            let now = Now { state, at_ms: cx.unix_ms, said: Some(message) };
            status_event(out, style, now, place, true);
        }
        StreamResponse::Event { event, artifact_index, task_id, context_id, last, .. } => {
            let place = Place { task_id: task_id.raw(), context_id: context_id.raw() };
            match event {
                // A client's message is no event of the protocol.
                TaskEvent::UserMessage { .. } => return false,
                TaskEvent::Status { state, at_ms, message, metadata } => {
                    let now = Now { state, at_ms, said: message };
                    status_event(out, style, now, place, last);
                    put::object_some(out, b",\"metadata\":", metadata);
                }
                TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
                    put::text(out, b"{\"id\":\"", task_id.raw());
                    out.extend_from_slice(b",\"artifact\":");
                    old::artifact(out, style, (artifact_index, artifact), artifact.parts());
                    put::flag(out, b",\"append\":", append);
                    put::flag(out, b",\"lastChunk\":", last_chunk);
                    out.push(b'}');
                    put::object_some(out, b",\"metadata\":", metadata);
                }
            }
        }
    }
    out.push(b'}');
    true
}

/// Appends a status event up to its closing brace.
fn status_event(out: &mut Vec<u8>, style: &Style, now: Now<'_>, place: Place<'_>, last: bool) {
    put::text(out, b"{\"id\":\"", place.task_id);
    old::status(out, style, now, place);
    put::flag(out, b",\"final\":", last || now.state.is_terminal());
}

/// Wire §1.6, TaskState: two states are younger than 0.1.
pub(super) fn state_name(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Rejected => b"failed",
        TaskState::AuthRequired => b"input-required",
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::InputRequired => v03::state_name(state),
    }
}
