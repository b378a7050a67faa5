//! Reads a server's error (wire §2.4): the error object of JSON-RPC, AIP-193, `problem+json`, and
//! the errors of servers that use none of these.
//!
//! Reading never fails: an unknown form is an error without a kind. Its text is truncated to some
//! KiB, because it is logged.

use crate::{
    fault::{FaultKind, PeerFault, PeerFaultName},
    json::{Kind, Value},
    model::Generation,
};

use super::slots;

/// Maximum bytes of a message that are retained.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of `data`. Longer `data` is dropped, because JSON cannot be truncated.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// Maximum elements of `data` that are searched for a reason.
const DETAILS_MAX: usize = 64;

slots!(FaultSlots {
    error: "error";
    code: "code";
    message: "message";
    data: "data";
    details: "details";
    status: "status";
    kind: "type";
    title: "title";
    detail: "detail";
});

/// Reads an error, or the body that contains it. `http` is the status of the response, if it has
/// its own.
pub fn read(value: Value<'_>, generation: Generation, http: Option<u16>) -> PeerFault {
    let mut fault = PeerFault { http, ..PeerFault::default() };
    if value.kind() == Kind::String {
        fault.message = cut(value);
        return fault;
    }
    let mut slots = FaultSlots::default();
    slots.fill(value);
    if let Some(error) = value.at(slots.error) {
        if error.kind() == Kind::Object {
            return read_object(error, fault, generation);
        }
        // `{"error": "…"}` of a web framework.
        if error.is_string() && value.at(slots.message).is_none() {
            fault.message = cut(error);
            return fault.decided(generation == Generation::V01);
        }
    }
    read_object(value, fault, generation)
}

/// Reads the error object itself.
fn read_object(value: Value<'_>, mut fault: PeerFault, generation: Generation) -> PeerFault {
    let mut slots = FaultSlots::default();
    slots.fill(value);
    let at = |slot| value.at(slot);
    let text = [slots.message, slots.detail, slots.title].into_iter().find_map(at);
    fault.message = text.map(cut).unwrap_or_default();
    let status = at(slots.status).filter(Value::is_string);
    fault.status = status.map(cut);
    // The code of AIP-193 is the HTTP status; codes of JSON-RPC are negative.
    let code = at(slots.code).and_then(|code| code.as_i64());
    fault.code = code.filter(|_| fault.status.is_none());
    let details = at(slots.details).or(at(slots.data));
    fault.reason = details.and_then(reason);
    fault.name = at(slots.kind).and_then(problem);
    let raw = details.map(|details| details.raw_str());
    fault.data = raw.filter(|data| data.len() <= DATA_BYTES_MAX).map(str::to_owned);
    fault.decided(generation == Generation::V01)
}

/// The text of a string, or another value as JSON, truncated to the maximum.
fn cut(value: Value<'_>) -> String {
    let text = value.as_str().unwrap_or_else(|| value.raw_str().into());
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    text[..end].to_owned()
}

/// `reason` of the first ErrorInfo in a list, or of the object itself.
fn reason(details: Value<'_>) -> Option<String> {
    let of = |value: Value<'_>| value.get("reason").filter(Value::is_string).map(cut);
    match details.kind() {
        Kind::Array => details.elements().take(DETAILS_MAX).find_map(of),
        Kind::Object => of(details),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => None,
    }
}

/// The name after `https://a2a-protocol.org/errors/`, such as `task-not-found` (1.0.0-rc, wire
/// §2.4).
fn problem(kind: Value<'_>) -> Option<PeerFaultName> {
    let url = kind.as_str()?;
    let name = url.strip_prefix("https://a2a-protocol.org/errors/")?;
    let reason = name.to_ascii_uppercase().replace('-', "_");
    FaultKind::of_reason(&reason).map(|kind| PeerFaultName(kind.error_name()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::json::Parser;

    fn read_from(text: &str, generation: Generation) -> PeerFault {
        let mut parser = Parser::new();
        read(parser.parse(text.as_bytes(), 32).unwrap(), generation, Some(400))
    }

    #[test]
    fn fault_kind_is_read_from_every_error_format() {
        let not_found = [
            r#"{"code":-32001,"message":"no such task"}"#,
            r#"{"error":{"code":-32001,"message":"no such task"}}"#,
            r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no such task",
                "details":[{"@type":"x"},{"reason":"TASK_NOT_FOUND"}]}}"#,
            r#"{"type":"https://a2a-protocol.org/errors/task-not-found","title":"Task not found",
                "status":404,"detail":"no such task"}"#,
            r#"{"code":-32603,"message":"no such task","data":[{"reason":"TASK_NOT_FOUND"}]}"#,
            r#"{"code":-32603,"message":"no such task","data":{"reason":"TASK_NOT_FOUND"}}"#,
        ];
        for text in not_found {
            let fault = read_from(text, Generation::V1);
            assert_eq!(fault.kind, Some(FaultKind::TaskNotFound), "{text}");
            assert_eq!(fault.message, "no such task", "{text}");
            assert_eq!(fault.name.map(|name| name.0), Some("TaskNotFoundError"), "{text}");
        }
    }

    #[test]
    fn http_status_alone_gives_no_fault_kind() {
        for (text, message) in [
            (r#"{"error":{"code":404,"status":"NOT_FOUND","message":"x"}}"#, "x"),
            (r#"{"message":"x"}"#, "x"),
            (r#"{"detail":"x"}"#, "x"),
            (r#"{"error":"x"}"#, "x"),
            (r#""x""#, "x"),
            (r#"{"message":{"a":1}}"#, r#"{"a":1}"#),
            ("{}", ""),
            ("[]", ""),
        ] {
            let fault = read_from(text, Generation::V1);
            assert_eq!((fault.kind, fault.code, fault.http), (None, None, Some(400)), "{text}");
            assert_eq!(fault.message, message, "{text}");
        }
    }

    #[test]
    fn long_fault_message_is_cut_and_long_data_dropped() {
        let long = "é".repeat(MESSAGE_BYTES_MAX);
        let data = "1".repeat(DATA_BYTES_MAX + 1);
        let text = format!(r#"{{"message":"{long}","data":"{data}","code":-32602}}"#);
        let fault = read_from(&text, Generation::V03);
        assert_eq!((fault.message.len(), fault.data), (MESSAGE_BYTES_MAX, None));
        assert_eq!(fault.kind, Some(FaultKind::InvalidParams));
    }
}
