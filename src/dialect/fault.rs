//! Error objects: codes and `data` as each generation and platform writes them (wire §2).
//!
//! The message of a fault about a parameter begins with the parameter; machine-readable details are
//! in `data`, in the form that the generation defines.

use crate::{
    fault::{Fault, FaultKind},
    json::write::{push_escaped, push_i64},
};

/// A2A 1.0 §9.5: `data` is an array of objects with `@type`.
pub(super) fn v1(out: &mut Vec<u8>, fault: &Fault) {
    head(out, fault.kind.row().code, fault);
    out.extend_from_slice(b",\"data\":");
    details(out, fault);
    out.push(b'}');
}

/// A2A 1.0 §11.6, AIP-193: the whole body; `http` is the status of the response.
pub(super) fn rest_v1(out: &mut Vec<u8>, fault: &Fault, http: u16) {
    out.extend_from_slice(b"{\"error\":{\"code\":");
    push_i64(out, i64::from(http));
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(fault.kind.row().status.name().as_bytes());
    out.extend_from_slice(b"\",\"message\":\"");
    sentence(out, fault);
    out.extend_from_slice(b"\",\"details\":");
    details(out, fault);
    out.extend_from_slice(b"}}");
}

/// The whole body in HTTP+JSON of 0.3: the specification does not define it, so this is the common
/// form of its SDKs (wire §2.4).
pub(super) fn rest_v03(out: &mut Vec<u8>, fault: &Fault) {
    v03(out, fault);
}

/// An array of objects with `@type`; the first is always ErrorInfo.
fn details(out: &mut Vec<u8>, fault: &Fault) {
    out.extend_from_slice(
        b"[{\"@type\":\"type.googleapis.com/google.rpc.ErrorInfo\",\"reason\":\"",
    );
    out.extend_from_slice(fault.kind.row().reason.as_bytes());
    out.extend_from_slice(b"\",\"domain\":\"a2a-protocol.org\"");
    if let Some(task) = &fault.task {
        out.extend_from_slice(b",\"metadata\":{\"taskId\":\"");
        out.extend_from_slice(task);
        out.extend_from_slice(b"\"}");
    }
    out.push(b'}');
    if let Some(seconds) = fault.retry_after_s() {
        out.extend_from_slice(
            b",{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"",
        );
        push_i64(out, seconds.into());
        out.extend_from_slice(b"s\"}");
    }
    if let Some(field) = fault.field {
        out.extend_from_slice(
            b",{\"@type\":\"type.googleapis.com/google.rpc.BadRequest\",\
            \"fieldViolations\":[{\"field\":\"",
        );
        push_escaped(out, field);
        out.extend_from_slice(b"\",\"description\":\"");
        push_escaped(out, fault.message());
        out.extend_from_slice(b"\"}]}");
    }
    out.push(b']');
}

/// 0.2 and 0.3: `data` may have any form; here it names the parameter, or the task that continues.
pub(super) fn v03(out: &mut Vec<u8>, fault: &Fault) {
    head(out, fault.kind.row().code, fault);
    field(out, fault);
}

/// 0.1: as 0.3, with its own codes from -32006 down.
pub(super) fn v01(out: &mut Vec<u8>, fault: &Fault) {
    head(out, fault.kind.row().code_v01, fault);
    field(out, fault);
}

/// Evo AI: the five codes of JSON-RPC, and -32000 "Agent error" for the rest; `data.details` has
/// the cause.
pub(super) fn evo_ai(out: &mut Vec<u8>, fault: &Fault) {
    let row = fault.kind.row();
    let (code, message) = match fault.kind {
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::MethodNotFound
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::Internal => (row.code, row.message),
        FaultKind::TaskNotFound
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
        | FaultKind::Unauthenticated
        | FaultKind::PermissionDenied
        | FaultKind::RateLimited
        | FaultKind::DeadlineExceeded
        | FaultKind::LoopDetected => (-32000, "Agent error"),
    };
    detailed(out, code, message, fault);
}

/// A code and a message of the kind; `data.details` has the cause.
pub(super) fn detailed(out: &mut Vec<u8>, code: i32, message: &str, fault: &Fault) {
    out.extend_from_slice(b"{\"code\":");
    push_i64(out, i64::from(code));
    out.extend_from_slice(b",\"message\":\"");
    push_escaped(out, message);
    out.extend_from_slice(b"\",\"data\":{\"details\":\"");
    sentence(out, fault);
    out.push(b'"');
    if let Some(task) = &fault.task {
        out.extend_from_slice(b",\"taskId\":\"");
        out.extend_from_slice(task);
        out.push(b'"');
    }
    out.extend_from_slice(b"}}");
}

fn head(out: &mut Vec<u8>, code: i32, fault: &Fault) {
    out.extend_from_slice(b"{\"code\":");
    push_i64(out, i64::from(code));
    out.extend_from_slice(b",\"message\":\"");
    sentence(out, fault);
    out.push(b'"');
}

fn field(out: &mut Vec<u8>, fault: &Fault) {
    if let Some(field) = fault.field {
        out.extend_from_slice(b",\"data\":{\"field\":\"");
        push_escaped(out, field);
        out.extend_from_slice(b"\"}");
    } else if let Some(task) = &fault.task {
        out.extend_from_slice(b",\"data\":{\"taskId\":\"");
        out.extend_from_slice(task);
        out.extend_from_slice(b"\"}");
    }
    out.push(b'}');
}

/// The cause, after the parameter and a colon.
fn sentence(out: &mut Vec<u8>, fault: &Fault) {
    if let Some(field) = fault.field {
        push_escaped(out, field);
        out.extend_from_slice(b": ");
    }
    push_escaped(out, fault.message());
}
