//! LangSmith (LangGraph, langgraph-api 0.16): methods of 1.0, and four of 0.3 with threads, each
//! answered in the wire family of its name; strict HTTP (wire §8).
//!
//! In methods of 0.3, `contextId` is the thread, which get and cancel may name; `thread:run` is
//! accepted as a task id (see `read::target::split_thread`). Resuming needs no special code: a text
//! part, or a data part `{"resume":[{"id","value"}]}`, reaches the agent unchanged. Cancel works,
//! unlike on the platform.

use crate::{
    fault::{Fault, FaultKind},
    json::Value,
    model::{Call, Generation, Op},
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{Dialect, Method, Quirks, ReadCx, Routes, Wire, method, read, v1, v03};

/// LangSmith.
pub static DIALECT: Dialect = Dialect {
    name: "langsmith",
    methods: METHODS,
    quirks: Quirks { accept_required: true, fault_http, media_http: 400, ..Quirks::NONE },
    routes: Routes { by_name: Some("/a2a/"), card_query: Some("assistant_id"), ..Routes::NONE },
};

static WIRE: Wire = Wire {
    decode: read,
    encode: v03::WIRE.encode,
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules {
        configuration: false,
        threads: true,
        history_max: 10,
        ..CallRules::of(&v03::SPELLING, "langsmith")
    }),
};

const METHODS: &[Method] = &[
    method("message/send", Op::Send, &WIRE),
    method("message/stream", Op::Stream, &WIRE),
    method("tasks/get", Op::Get, &WIRE),
    method("tasks/cancel", Op::Cancel, &WIRE),
    method("SendMessage", Op::Send, &v1::WIRE),
    method("SendStreamingMessage", Op::Stream, &v1::WIRE),
    method("GetTask", Op::Get, &v1::WIRE),
    method("ListTasks", Op::List, &v1::WIRE),
    method("CancelTask", Op::Cancel, &v1::WIRE),
    method("GetExtendedAgentCard", Op::ExtendedCard, &v1::WIRE),
];

const RULES: read::Rules = read::Rules {
    threads: true,
    history_max: 10,
    proto: false,
    ..read::Rules::of(Generation::V03)
};

fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    read::call(&RULES, cx, params, pack)
}

/// Errors of the client are 400, errors of the server 500; in 1.0 the status is always 200
/// (`Dialect::fault_http`).
fn fault_http(fault: &Fault) -> u16 {
    match fault.kind {
        FaultKind::Internal | FaultKind::InvalidAgentResponse => 500,
        FaultKind::Overloaded | FaultKind::RateLimited => 429,
        FaultKind::Unauthenticated => 401,
        FaultKind::PermissionDenied => 403,
        FaultKind::ShuttingDown => 503,
        FaultKind::DeadlineExceeded => 504,
        FaultKind::LoopDetected => 508,
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::MethodNotFound
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::TaskNotFound
        | FaultKind::TaskNotCancelable
        | FaultKind::PushNotificationNotSupported
        | FaultKind::UnsupportedOperation
        | FaultKind::StreamingNotSupported
        | FaultKind::TaskTerminal
        | FaultKind::ContentTypeNotSupported
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::VersionNotSupported => 400,
    }
}
