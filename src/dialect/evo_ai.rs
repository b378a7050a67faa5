//! Evo AI: 0.3 methods, tasks without `kind` that state whether they are `final` (wire §8).
//!
//! Stream items have the 0.1 form (`{id, status, final}`), artifacts their 0.3 form. It has five
//! states: `rejected` becomes `failed`; the two states that wait for the client become
//! `input-required`, although the platform does not name them. A direct message is shown as a
//! completed task.
//!
//! The platform documents its size limits: a file of 5 MB when decoded, and a message of 1 MB, not
//! counting its files. So the limit of a body is larger than elsewhere.

use crate::{
    fault::Fault,
    json::Value,
    model::{Call, Generation, Op, Reply},
    service::StreamResponse,
};

#[cfg(feature = "client")]
use super::calls::{CallRules, Calls};
use super::{
    Dialect, DocumentedBody, DocumentedQuota, Encode, Method, Quirks, ReadCx, Routes, Wire,
    WriteCx, fault, method,
    pre_v1::Spelling,
    push_out,
    read::{self, sizes::Sizes},
    v01,
};

/// Evo AI.
pub static DIALECT: Dialect = Dialect {
    name: "evo_ai",
    methods: METHODS,
    quirks: Quirks {
        quota: Some(DocumentedQuota { calls_per_minute: 100, streams: 10 }),
        body: Some(DocumentedBody {
            bytes_max: |limits| limits.evo_ai_body_bytes_max,
            name: "evo_ai_body_bytes_max",
            too_large: "The body is larger than allowed (evo_ai_body_bytes_max).",
            absurd: "Content-Length is far too large (evo_ai_body_bytes_max).",
        }),
        ..Quirks::NONE
    },
    routes: Routes { by_name: Some("/api/v1/a2a/"), ..Routes::NONE },
};

static WIRE: Wire = Wire {
    decode: read,
    encode: Encode { generation: Generation::V03, reply, event, text: None, fault: write_fault },
    #[cfg(feature = "client")]
    calls: Calls::PreV1(&CallRules {
        configuration: false,
        context_in_params: true,
        push_headers: true,
        ..CallRules::of(&SPELLING, "evo_ai")
    }),
};

const METHODS: &[Method] = &[
    method("message/send", Op::Send, &WIRE),
    method("message/stream", Op::Stream, &WIRE),
    method("tasks/get", Op::Get, &WIRE),
    method("tasks/cancel", Op::Cancel, &WIRE),
    method("tasks/pushNotificationConfig/set", Op::PushSet, &WIRE),
    method("tasks/pushNotificationConfig/get", Op::PushGet, &WIRE),
    method("tasks/resubscribe", Op::Subscribe, &WIRE),
    method("agent/authenticatedExtendedCard", Op::ExtendedCard, &WIRE),
];

static SPELLING: Spelling = Spelling {
    generation: Generation::V03,
    task: b"{\"id\":\"",
    context: b",\"contextId\":\"",
    message: b"{\"messageId\":\"",
    message_again: b"",
    text: b"{\"type\":\"text\",\"text\":\"",
    file: b"{\"type\":\"file\",\"file\":{",
    data: b"{\"type\":\"data\",\"data\":",
    parts_v1: false,
    task_final: true,
    state: v01::state_name,
};

const RULES: read::Rules = read::Rules { push_headers: true, ..read::Rules::of(Generation::V03) };

fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    if let (Op::Send | Op::Stream, Some(params)) = (cx.op, params) {
        let sizes = Sizes {
            file: (cx.limits.evo_ai_file_bytes_max, "evo_ai_file_bytes_max"),
            message: (cx.limits.evo_ai_message_bytes_max, "evo_ai_message_bytes_max"),
        };
        sizes.check(params)?;
    }
    match cx.op {
        Op::PushSet | Op::PushGet => read::push_headers(cx, params, pack).map(Call::Push),
        _ => read::call(&RULES, cx, params, pack),
    }
}

fn reply(out: &mut Vec<u8>, reply: &Reply<'_>, cx: &WriteCx<'_>) {
    match reply {
        Reply::Push(push) => push_out::evo_ai(out, push),
        _ => v01::reply_in(out, &SPELLING, reply, cx),
    }
}

fn event(out: &mut Vec<u8>, item: &StreamResponse<'_>, cx: &WriteCx<'_>) -> bool {
    v01::event_in(out, &SPELLING, item, cx)
}

fn write_fault(out: &mut Vec<u8>, fault: &Fault, _cx: &WriteCx<'_>) {
    fault::evo_ai(out, fault);
}
