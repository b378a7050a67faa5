//! The "Request/Response Structure" tutorial (wire §8): 0.3, parts by `type`, HTTP statuses.
//!
//! Its clients look for `message_id` and for `type` in parts, clients of 0.3 for `messageId` and
//! `kind`: this dialect writes both. Results are tasks and messages as in 0.3.

use crate::{
    fault::{Fault, FaultKind},
    model::{Generation, Op, Reply},
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{
    Dialect, Encode, Method, Quirks, Routes, Wire, WriteCx, method, pre_v1::Spelling, v03,
};

/// The tutorial.
pub static DIALECT: Dialect = Dialect {
    name: "tutorial",
    methods: METHODS,
    quirks: Quirks { fault_http, ..Quirks::NONE },
    routes: Routes::NONE,
};

/// 0.3 with the names of both.
pub(super) static WIRE: Wire = Wire {
    decode: v03::read_lenient,
    encode: Encode {
        generation: Generation::V03,
        reply,
        event,
        text: None,
        fault: v03::write_fault,
    },
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules::of(&SPELLING, "tutorial")),
};

const METHODS: &[Method] = &[
    method("message/send", Op::Send, &WIRE),
    // In the singular, which is in no specification.
    method("task/subscribe", Op::Subscribe, &WIRE),
    // The other methods of 0.3: without them a client could neither start a task nor read it.
    method("message/stream", Op::Stream, &WIRE),
    method("tasks/get", Op::Get, &WIRE),
    method("tasks/cancel", Op::Cancel, &WIRE),
    method("tasks/resubscribe", Op::Subscribe, &WIRE),
];

static SPELLING: Spelling = Spelling {
    generation: Generation::V03,
    task: b"{\"kind\":\"task\",\"id\":\"",
    context: b",\"contextId\":\"",
    message: b"{\"kind\":\"message\",\"messageId\":\"",
    message_again: b",\"message_id\":\"",
    text: b"{\"kind\":\"text\",\"type\":\"text\",\"text\":\"",
    file: b"{\"kind\":\"file\",\"type\":\"file\",\"file\":{",
    data: b"{\"kind\":\"data\",\"type\":\"data\",\"data\":",
    parts_v1: false,
    task_final: false,
    state: v03::state_name,
};

fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, _cx: &WriteCx<'_>) {
    v03::reply_in(out, &SPELLING, reply);
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    v03::event_in(out, &SPELLING, item, cx)
}

/// The statuses of the TypeScript variant of the tutorial; for any other fault 200.
fn fault_http(fault: &Fault) -> u16 {
    match fault.kind {
        FaultKind::InvalidRequest => 400,
        FaultKind::MethodNotFound => 405,
        FaultKind::Unauthenticated => 401,
        FaultKind::PermissionDenied => 403,
        FaultKind::RateLimited => 429,
        FaultKind::Parse
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::Internal
        | FaultKind::TaskNotFound
        | FaultKind::TaskNotCancelable
        | FaultKind::PushNotificationNotSupported
        | FaultKind::UnsupportedOperation
        | FaultKind::StreamingNotSupported
        | FaultKind::TaskTerminal
        | FaultKind::ContentTypeNotSupported
        | FaultKind::InvalidAgentResponse
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::VersionNotSupported
        | FaultKind::Overloaded
        | FaultKind::ShuttingDown
        | FaultKind::DeadlineExceeded
        | FaultKind::LoopDetected => 200,
    }
}
