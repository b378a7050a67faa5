//! Pydantic AI (its library fasta2a 2.1): methods named as in 0.3, results shaped as in 1.0.
//!
//! A task or a message is wrapped in a member of its name. Parts have no `kind`. A stream item has
//! exactly one member and is never `final`. States and roles have their names of 0.3. The client of
//! the platform accepts an error of `tasks/get` only with an expected message, reads only streams
//! in answer to a streaming call, and requires media types of every skill. Methods with names of
//! 1.0 are also served, as in 1.0.

use crate::{
    fault::{Fault, FaultKind},
    model::{Generation, Message, Op, RawText, Reply, TaskEvent, TaskState},
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{
    Dialect, Encode, Method, Quirks, Routes, Wire, WriteCx, fault,
    json_out::{self, TaskRef},
    method,
    pre_v1::{self, Spelling, StatusOut},
    push_out, v1, v03,
};

/// Pydantic AI.
pub static DIALECT: Dialect = Dialect {
    name: "fasta2a",
    methods: METHODS,
    quirks: Quirks { card_v1: true, stream_faults: true, ..Quirks::NONE },
    routes: Routes::NONE,
};

static WIRE: Wire = Wire {
    decode: v03::read_lenient,
    encode: Encode { generation: Generation::V03, reply, event, text: None, fault: write_fault },
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules::of(&SPELLING, "fasta2a")),
};

const METHODS: &[Method] = &[
    method("message/send", Op::Send, &WIRE),
    method("message/stream", Op::Stream, &WIRE),
    method("tasks/get", Op::Get, &WIRE),
    method("tasks/list", Op::List, &WIRE),
    method("tasks/cancel", Op::Cancel, &WIRE),
    method("tasks/resubscribe", Op::Subscribe, &WIRE),
    method("tasks/pushNotification/set", Op::PushSet, &WIRE),
    method("tasks/pushNotification/get", Op::PushGet, &WIRE),
    method("tasks/pushNotificationConfig/list", Op::PushList, &WIRE),
    method("tasks/pushNotificationConfig/delete", Op::PushDelete, &WIRE),
    method("SendMessage", Op::Send, &v1::WIRE),
    method("SendStreamingMessage", Op::Stream, &v1::WIRE),
    method("GetTask", Op::Get, &v1::WIRE),
    method("ListTasks", Op::List, &v1::WIRE),
    method("CancelTask", Op::Cancel, &v1::WIRE),
    method("SubscribeToTask", Op::Subscribe, &v1::WIRE),
];

static SPELLING: Spelling = Spelling {
    generation: Generation::V03,
    task: b"{\"id\":\"",
    context: b",\"contextId\":\"",
    message: b"{\"messageId\":\"",
    message_again: b"",
    text: b"{\"text\":\"",
    file: b"",
    data: b"",
    parts_v1: true,
    task_final: false,
    state: state_name,
};

fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match *reply {
        Reply::Task { view, history } if matches!(cx.op, Op::Send | Op::Stream) => {
            out.extend_from_slice(b"{\"task\":");
            pre_v1::task(out, &SPELLING, &view, history);
            out.push(b'}');
        }
        Reply::Task { view, history } => pre_v1::task(out, &SPELLING, &view, history),
        Reply::Message { message, context_id } => direct(out, message, context_id),
        Reply::PageStart => json_out::page_start(out),
        Reply::PageTask { view, history, artifacts } => {
            json_out::page_comma(out);
            pre_v1::listed_task(out, &SPELLING, &view, Some(history.unwrap_or(0)), artifacts);
        }
        Reply::PageEnd { next, page_size, total } => {
            json_out::page_end(out, next, page_size, total)
        }
        Reply::Push(ref push) => push_out::v1(out, push),
    }
}

fn direct(out: &mut Vec<u8>, message: Message<'_>, context_id: RawText<'_>) {
    out.extend_from_slice(b"{\"message\":");
    pre_v1::message(
        out,
        &SPELLING,
        message,
        TaskRef { task_id: b"", context_id: context_id.raw() },
    );
    out.push(b'}');
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    match *item {
        StreamResponse::Snapshot(view) => {
            out.extend_from_slice(b"{\"task\":");
            pre_v1::task(out, &SPELLING, &view, cx.history);
            out.push(b'}');
        }
        StreamResponse::Message { message, context_id } => direct(out, message, context_id),
        StreamResponse::Event { ref event, artifact_index, task_id, context_id, .. } => {
            let task_ref = TaskRef { task_id: task_id.raw(), context_id: context_id.raw() };
            return update(out, event, artifact_index, task_ref);
        }
    }
    true
}

fn update(
    out: &mut Vec<u8>,
    event: &TaskEvent<'_>,
    artifact_index: u32,
    task_ref: TaskRef<'_>,
) -> bool {
    let metadata = match *event {
        // The protocol has no event for a client's message.
        TaskEvent::UserMessage { .. } => return false,
        TaskEvent::Status { state, at_ms, message, metadata } => {
            json_out::id(out, b"{\"statusUpdate\":{\"taskId\":\"", task_ref.task_id);
            json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
            pre_v1::status(out, &SPELLING, StatusOut { state, at_ms, message }, task_ref);
            metadata
        }
        TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
            json_out::id(out, b"{\"artifactUpdate\":{\"taskId\":\"", task_ref.task_id);
            json_out::id(out, b",\"contextId\":\"", task_ref.context_id);
            out.extend_from_slice(b",\"artifact\":");
            pre_v1::artifact(out, &SPELLING, artifact_index, artifact, artifact.parts());
            out.push(b'}');
            json_out::flag(out, b",\"append\":", append);
            json_out::flag(out, b",\"lastChunk\":", last_chunk);
            metadata
        }
    };
    json_out::object_some(out, b",\"metadata\":", metadata);
    out.extend_from_slice(b"}}");
    true
}

/// An unknown state has no name; the task has not ended.
fn state_name(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Unspecified => b"submitted",
        TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::InputRequired
        | TaskState::Rejected
        | TaskState::AuthRequired => v03::state_name(state),
    }
}

/// Messages are equal to the platform's; `data.details` has the cause.
fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    let row = fault.kind.row();
    let message = match fault.kind {
        FaultKind::TaskNotCancelable => "Task not cancelable",
        FaultKind::PushNotificationNotSupported => "Push notification not supported",
        FaultKind::UnsupportedOperation
        | FaultKind::StreamingNotSupported
        | FaultKind::TaskTerminal => FaultKind::UnsupportedOperation.row().message,
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::MethodNotFound
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::Internal
        | FaultKind::TaskNotFound
        | FaultKind::ContentTypeNotSupported
        | FaultKind::InvalidAgentResponse
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::VersionNotSupported
        | FaultKind::Overloaded
        | FaultKind::ShuttingDown
        | FaultKind::Unauthenticated
        | FaultKind::PermissionDenied
        | FaultKind::RateLimited
        | FaultKind::DeadlineExceeded
        | FaultKind::LoopDetected => row.message,
    };
    fault::detailed(out, row.code, message, fault);
}
