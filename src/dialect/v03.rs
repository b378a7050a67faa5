//! Protocols 0.2 and 0.3 (wire §1.5, §1.6): bare results with their `kind`, `final` events.
//!
//! A stream begins with the task, and its last event is `final`.

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Generation, Message, RawText, Reply, TaskEvent, TaskState},
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{
    Encode, EncodeText, ReadCx, Wire, WriteCx, fault,
    json_out::{self, TaskRef},
    pre_v1::{self, Spelling, StatusOut},
    push_out, read,
};

/// Reader and writers of 0.3.
pub(super) static WIRE: Wire = Wire {
    decode: read,
    encode: Encode {
        generation: Generation::V03,
        reply,
        event,
        text: Some(TEXT),
        fault: write_fault,
    },
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules::of(&SPELLING, "0.3")),
};

/// The same output as [`push_update`] and `pre_v1::artifact`.
const TEXT: EncodeText = EncodeText {
    head: |out, task_id, context_id| {
        json_out::id(out, ARTIFACT_UPDATE, task_id.raw());
        json_out::id(out, b",\"contextId\":\"", context_id.raw());
        out.extend_from_slice(b",\"artifact\":{\"artifactId\":\"");
    },
    between: b"\",\"parts\":[{\"kind\":\"text\",\"text\":\"",
    tails: [
        b"\"}]},\"append\":false,\"lastChunk\":false}",
        b"\"}]},\"append\":true,\"lastChunk\":false}",
        b"\"}]},\"append\":false,\"lastChunk\":true}",
        b"\"}]},\"append\":true,\"lastChunk\":true}",
    ],
};

const ARTIFACT_UPDATE: &[u8] = b"{\"kind\":\"artifact-update\",\"taskId\":\"";

/// Objects of 0.3.
pub(super) static SPELLING: Spelling = Spelling {
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

/// As 0.3, for platforms with clients that omit required members (wire §8).
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
    reply_in(out, &SPELLING, reply);
}

pub(super) fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    event_in(out, &SPELLING, item, cx)
}

/// Appends a reply in a wire format of this family.
pub(super) fn reply_in(out: &mut Vec<u8>, spelling: &Spelling, reply: &Reply<'_>) {
    match *reply {
        Reply::Task { view, history } => pre_v1::task(out, spelling, &view, history),
        Reply::Message { message, context_id } => direct(out, spelling, message, context_id),
        // No method of this family returns pages. If one did, it would use the page of 1.0 with
        // tasks of this family.
        Reply::PageStart => json_out::page_start(out),
        Reply::PageTask { view, history, artifacts: _ } => {
            json_out::page_comma(out);
            pre_v1::task(out, spelling, &view, Some(history.unwrap_or(0)));
        }
        Reply::PageEnd { next, page_size, total } => {
            json_out::page_end(out, next, page_size, total)
        }
        Reply::Push(ref push) => push_out::v03(out, push),
    }
}

fn direct(out: &mut Vec<u8>, spelling: &Spelling, message: Message<'_>, context_id: RawText<'_>) {
    pre_v1::message(out, spelling, message, TaskRef { task_id: b"", context_id: context_id.raw() });
}

/// Appends a stream item in a wire format of this family.
pub(super) fn event_in(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    item: &StreamResponse<'_>,
    cx: &WriteCx<'_>,
) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => pre_v1::task(out, spelling, &view, cx.history),
        StreamResponse::Message { message, context_id } => {
            direct(out, spelling, message, context_id)
        }
        StreamResponse::Event { event, artifact_index, task_id, context_id, last, .. } => {
            let task_ref = TaskRef { task_id: task_id.raw(), context_id: context_id.raw() };
            let update = StreamUpdate { event: &event, artifact_index, last };
            return push_update(out, spelling, update, task_ref);
        }
    }
    true
}

/// An event of a stream.
struct StreamUpdate<'e> {
    event: &'e TaskEvent<'e>,
    artifact_index: u32,
    /// True: the event ends the stream.
    last: bool,
}

fn push_update(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    update: StreamUpdate<'_>,
    task_ref: TaskRef<'_>,
) -> bool {
    let StreamUpdate { event, artifact_index, last } = update;
    let (head, metadata) = match *event {
        // The protocol has no event for a client's message.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { metadata, .. } => {
            (&b"{\"kind\":\"status-update\",\"taskId\":\""[..], metadata)
        }
        TaskEvent::Artifact { metadata, .. } => (ARTIFACT_UPDATE, metadata),
    };
    json_out::id(out, head, task_ref.task_id);
    json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
    match *event {
        TaskEvent::UserMessage { .. } => {}
        TaskEvent::Status { state, at_ms, message, .. } => {
            pre_v1::status(out, spelling, StatusOut { state, at_ms, message }, task_ref);
            json_out::flag(out, b",\"final\":", last || state.is_terminal());
        }
        TaskEvent::Artifact { artifact, append, last_chunk, .. } => {
            out.extend_from_slice(b",\"artifact\":");
            pre_v1::artifact(out, spelling, artifact_index, artifact, artifact.parts());
            out.push(b'}');
            json_out::flag(out, b",\"append\":", append);
            json_out::flag(out, b",\"lastChunk\":", last_chunk);
        }
    }
    json_out::object_some(out, b",\"metadata\":", metadata);
    out.push(b'}');
    true
}

/// Wire §1.6, TaskState.
pub(super) fn state_name(state: TaskState) -> &'static [u8] {
    state.word().as_bytes()
}
