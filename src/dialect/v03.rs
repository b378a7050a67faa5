//! Protocols 0.2 and 0.3 (wire §1.5, §1.6): bare results that say their `kind`, `final` events.
//!
//! A stream begins with the task, and the event that closes it is `final`.

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Generation, Message, RawText, Reply, TaskEvent, TaskState},
    service::StreamResponse,
};

use super::{
    ReadCx, Wire, WriteCx, fault,
    old::{self, Now, Place, Style},
    put, read,
};

/// The 0.3 pairs.
pub(super) static WIRE: Wire =
    Wire { generation: Generation::V03, read, reply, event, fault: write_fault };

/// Objects of 0.3.
const STYLE: Style = Style {
    generation: Generation::V03,
    task: b"{\"kind\":\"task\",\"id\":\"",
    context: b",\"contextId\":\"",
    message: b"{\"kind\":\"message\",\"messageId\":\"",
    message_again: b"",
    text: b"{\"kind\":\"text\",\"text\":\"",
    file: b"{\"kind\":\"file\",\"file\":{",
    data: b"{\"kind\":\"data\",\"data\":",
    parts_v1: false,
    task_final: false,
    state: state_name,
};

const RULES: read::Rules = read::Rules { strict: true, ..read::Rules::of(Generation::V03) };
const LENIENT: read::Rules = read::Rules::of(Generation::V03);

pub(super) fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&RULES, cx, params, pack)
}

/// As 0.3, for platforms whose clients leave out what it requires (wire §8).
pub(super) fn read_lenient<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&LENIENT, cx, params, pack)
}

pub(super) fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::v03(out, fault);
}

pub(super) fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, _cx: &WriteCx<'_>) {
    reply_in(out, &STYLE, reply);
}

pub(super) fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    event_in(out, &STYLE, item, cx)
}

/// Appends a reply in a style of this family.
pub(super) fn reply_in(out: &mut Vec<u8>, style: &Style, reply: &Reply<'_>) {
    match *reply {
        Reply::Task { view, history } => old::task(out, style, &view, history),
        Reply::Message { message, context_id } => direct(out, style, message, context_id),
        // No method of this family pages; the frame is that of 1.0 around tasks of this one.
        Reply::PageStart => put::page_start(out),
        Reply::PageTask { view, history, artifacts: _ } => {
            put::page_comma(out);
            old::task(out, style, &view, Some(history.unwrap_or(0)));
        }
        Reply::PageEnd { next, page_size, total } => put::page_end(out, next, page_size, total),
    }
}

fn direct(out: &mut Vec<u8>, style: &Style, message: Message<'_>, context_id: RawText<'_>) {
    old::message(out, style, message, Place { task_id: b"", context_id: context_id.raw() });
}

/// Appends a stream item in a style of this family.
pub(super) fn event_in(
    out: &mut Vec<u8>,
    style: &Style,
    item: &StreamResponse<'_>,
    cx: &WriteCx<'_>,
) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => old::task(out, style, &view, cx.history),
        StreamResponse::Message { message, context_id } => direct(out, style, message, context_id),
        StreamResponse::Event { event, artifact_index, task_id, context_id, last, .. } => {
            let place = Place { task_id: task_id.raw(), context_id: context_id.raw() };
            return update(out, style, (&event, artifact_index), place, last);
        }
    }
    true
}

fn update(
    out: &mut Vec<u8>,
    style: &Style,
    (event, index): (&TaskEvent<'_>, u32),
    place: Place<'_>,
    last: bool,
) -> bool {
    let (head, metadata) = match *event {
        // A client's message is no event of the protocol.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { metadata, .. } => {
            (&b"{\"kind\":\"status-update\",\"taskId\":\""[..], metadata)
        }
        TaskEvent::Artifact { metadata, .. } => {
            (&b"{\"kind\":\"artifact-update\",\"taskId\":\""[..], metadata)
        }
    };
    put::id(out, head, place.task_id);
    put::id(out, b",\"contextId\":\"", place.context_id);
    match *event {
        TaskEvent::UserMessage { .. } => {}
        TaskEvent::Status { state, at_ms, message, .. } => {
            old::status(out, style, Now { state, at_ms, said: message }, place);
            put::flag(out, b",\"final\":", last || state.is_terminal());
        }
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            out.extend_from_slice(b",\"artifact\":");
            old::artifact(out, style, (index, artifact), artifact.parts());
            out.push(b'}');
            put::flag(out, b",\"append\":", append);
            put::flag(out, b",\"lastChunk\":", last_chunk);
        }
    }
    put::object_some(out, b",\"metadata\":", metadata);
    out.push(b'}');
    true
}

/// Wire §1.6, TaskState.
pub(super) fn state_name(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Unspecified => b"unknown",
        TaskState::Submitted => b"submitted",
        TaskState::Working => b"working",
        TaskState::Completed => b"completed",
        TaskState::Failed => b"failed",
        TaskState::Canceled => b"canceled",
        TaskState::InputRequired => b"input-required",
        TaskState::Rejected => b"rejected",
        TaskState::AuthRequired => b"auth-required",
    }
}
