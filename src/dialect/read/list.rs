//! Reads the filters and the page of ListTasks (A2A 1.0 §3.1.4).

use std::ops::RangeInclusive;

use crate::{
    fault::Fault,
    json::Value,
    model::{List, RawText, TaskState, time},
};

use super::{
    INT32_MAX, RawString, ReadCx, TextRef, boolean, canonical, count, identifier, keep, slots,
};

slots!(ListSlots {
    context_id: "contextId" | "context_id" | "sessionId" | "session_id";
    status: "status";
    page_size: "pageSize" | "page_size";
    page_token: "pageToken" | "page_token";
    history: "historyLength" | "history_length";
    after: "statusTimestampAfter" | "status_timestamp_after";
    artifacts: "includeArtifacts" | "include_artifacts";
    tenant: "tenant";
});

/// All params of ListTasks, in every wire format.
const KNOWN: &[&str] = &[
    "contextId",
    "context_id",
    "sessionId",
    "session_id",
    "status",
    "pageSize",
    "page_size",
    "pageToken",
    "page_token",
    "historyLength",
    "history_length",
    "statusTimestampAfter",
    "status_timestamp_after",
    "includeArtifacts",
    "include_artifacts",
    "tenant",
    "metadata",
];

/// Whether ListTasks reads a member of this name. An unknown member may be a filter of another
/// version, such as `lastUpdatedAfter` of 1.0-rc: then the page contains more tasks than requested.
pub fn is_known_filter(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Wire §1.5: an explicit 0 is an error; absent means the default.
const PAGE_SIZES: RangeInclusive<u32> = 1..=100;

/// Reads the params of ListTasks; all of them are optional.
pub(super) fn read<'p>(
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<List<'p>, Fault> {
    let Some(params) = params else { return Ok(List::default()) };
    let mut slots = ListSlots::default();
    slots.fill(params);
    cx.tenant.set(slots.tenant);
    let context_id = identifier(params.at(slots.context_id), "contextId", cx)?;
    let page_token = match params.at(slots.page_token) {
        Some(value) => Some(canonical(value, "pageToken", cx.limits.string_bytes_max)?),
        None => None,
    };
    let page_size = count(params.at(slots.page_size), "pageSize", PAGE_SIZES)?;
    let status = state(params.at(slots.status))?;
    let history = count(params.at(slots.history), "historyLength", 0..=INT32_MAX)?;
    let after_ms = timestamp(params.at(slots.after))?;
    let include_artifacts =
        boolean(params.at(slots.artifacts), "includeArtifacts")?.unwrap_or(false);
    let mut pack_text = |text: Option<RawString<'p>>| text.map(|text| keep(pack, text));
    let (context_id, page_token) = (pack_text(context_id), pack_text(page_token));
    let pack: &'p [u8] = pack;
    let bytes = |text: Option<TextRef<'p>>| text.map(|text| text.bytes(pack));
    Ok(List {
        context_id: bytes(context_id).map(RawText::known),
        status,
        page_size,
        page_token: bytes(page_token),
        history,
        after_ms,
        include_artifacts,
    })
}

fn timestamp(value: Option<Value<'_>>) -> Result<Option<u64>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let ms = value.as_str().and_then(|text| time::parse_rfc3339(&text));
    ms.map(Some)
        .ok_or_else(|| Fault::param("statusTimestampAfter", "must be an RFC 3339 timestamp"))
}

/// A state by any of its names or by its number; the unspecified state is unset.
fn state(value: Option<Value<'_>>) -> Result<Option<TaskState>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let state = match value.text() {
        Some(name) => state_by_name(&name),
        None => value.as_i64().and_then(|n| u8::try_from(n).ok()).and_then(TaskState::from_number),
    };
    match state {
        Some(TaskState::Unspecified) => Ok(None),
        Some(state) => Ok(Some(state)),
        None => Err(Fault::param("status", "must be a task state")),
    }
}

/// Wire §1.6, TaskState: 1.0, 0.3 proto (`CANCELLED`) and 0.x names.
pub(super) fn state_by_name(name: &[u8]) -> Option<TaskState> {
    Some(match name {
        b"TASK_STATE_UNSPECIFIED" | b"unknown" | b"" => TaskState::Unspecified,
        b"TASK_STATE_SUBMITTED" | b"submitted" => TaskState::Submitted,
        b"TASK_STATE_WORKING" | b"working" => TaskState::Working,
        b"TASK_STATE_COMPLETED" | b"completed" => TaskState::Completed,
        b"TASK_STATE_FAILED" | b"failed" => TaskState::Failed,
        b"TASK_STATE_CANCELED" | b"TASK_STATE_CANCELLED" | b"canceled" => TaskState::Canceled,
        b"TASK_STATE_INPUT_REQUIRED" | b"input-required" => TaskState::InputRequired,
        b"TASK_STATE_REJECTED" | b"rejected" => TaskState::Rejected,
        b"TASK_STATE_AUTH_REQUIRED" | b"auth-required" => TaskState::AuthRequired,
        _ => return None,
    })
}
