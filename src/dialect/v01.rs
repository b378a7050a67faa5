//! Protocol 0.1 (wire §1.5, §1.6, §1.9): only tasks, parts by `type`, artifacts by `index`.
//!
//! A stream contains status and artifact events but no task: instead of a snapshot its status is
//! sent. A direct message is shown as a completed task with `status.message`, under the id that the
//! client chose.

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Generation, Message, RawText, Reply, TaskEvent, TaskState},
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{
    Encode, ReadCx, Wire, WriteCx, fault,
    json_out::{self, TaskRef},
    pre_v1::{self, Spelling, StatusOut},
    push_out, read, v03,
};

/// Reader and writers of 0.1.
pub(super) static WIRE: Wire = Wire {
    decode: read,
    encode: Encode { generation: Generation::V01, reply, event, text: None, fault: write_fault },
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules::of(&SPELLING, "0.1")),
};

/// Objects of 0.1.
static SPELLING: Spelling = Spelling {
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
    reply_in(out, &SPELLING, reply, cx);
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    event_in(out, &SPELLING, item, cx)
}

/// Appends a reply in a wire format that answers only with tasks.
pub(super) fn reply_in(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    reply: &Reply<'_>,
    cx: &WriteCx<'_>,
) {
    match *reply {
        Reply::Message { message, context_id } => {
            let task_ref = direct_task_ref(message, context_id, cx);
            pre_v1::direct_task(out, spelling, message, cx.unix_ms, task_ref);
        }
        Reply::Task { .. } | Reply::PageStart | Reply::PageTask { .. } | Reply::PageEnd { .. } => {
            v03::reply_in(out, spelling, reply);
        }
        Reply::Push(ref push) => push_out::v01(out, push),
    }
}

/// The ids of the task that stands for a direct message. No task exists, so the id is the one that
/// the client named, or else the message's id, which is unique as well.
fn direct_task_ref<'a>(
    message: Message<'a>,
    context_id: RawText<'a>,
    cx: &WriteCx<'a>,
) -> TaskRef<'a> {
    let task_id = if cx.task_id.is_empty() { message.message_id().raw() } else { cx.task_id };
    TaskRef { task_id, context_id: context_id.raw() }
}

/// Appends a stream item as `{id, status, final}` or `{id, artifact}`.
pub(super) fn event_in(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    item: &StreamResponse<'_>,
    cx: &WriteCx<'_>,
) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => {
            let task_ref =
                TaskRef { task_id: view.id().raw(), context_id: view.context_id().raw() };
            let status = view.status();
            let status_out =
                StatusOut { state: status.state, at_ms: status.at_ms, message: status.message };
            status_event(out, spelling, status_out, task_ref, false);
            json_out::object_some(out, b",\"metadata\":", status.metadata);
        }
        StreamResponse::Message { message, context_id } => {
            let task_ref = direct_task_ref(message, context_id, cx);
            let state = TaskState::Completed;
            let status_out = StatusOut { state, at_ms: cx.unix_ms, message: Some(message) };
            status_event(out, spelling, status_out, task_ref, true);
        }
        StreamResponse::Event { event, artifact_index, task_id, context_id, last, .. } => {
            let task_ref = TaskRef { task_id: task_id.raw(), context_id: context_id.raw() };
            match event {
                // The protocol has no event for a client's message.
                TaskEvent::UserMessage { .. } => return false,
                TaskEvent::Status { state, at_ms, message, metadata } => {
                    let status_out = StatusOut { state, at_ms, message };
                    status_event(out, spelling, status_out, task_ref, last);
                    json_out::object_some(out, b",\"metadata\":", metadata);
                }
                TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
                    json_out::text(out, b"{\"id\":\"", task_id.raw());
                    out.extend_from_slice(b",\"artifact\":");
                    pre_v1::artifact(out, spelling, artifact_index, artifact, artifact.parts());
                    json_out::flag(out, b",\"append\":", append);
                    json_out::flag(out, b",\"lastChunk\":", last_chunk);
                    out.push(b'}');
                    json_out::object_some(out, b",\"metadata\":", metadata);
                }
            }
        }
    }
    out.push(b'}');
    true
}

/// Appends a status event up to its closing brace.
fn status_event(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    status_out: StatusOut<'_>,
    task_ref: TaskRef<'_>,
    last: bool,
) {
    json_out::text(out, b"{\"id\":\"", task_ref.task_id);
    pre_v1::status(out, spelling, status_out, task_ref);
    json_out::flag(out, b",\"final\":", last || status_out.state.is_terminal());
}

/// Wire §1.6, TaskState: 0.1 lacks two states.
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
