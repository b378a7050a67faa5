//! Errors in gRPC: code, message and details (wire §2.3, §2.4).

use crate::{
    dialect::{Encode, WriteCx},
    fault::{Fault, FaultKind},
    http::{FieldLines, FieldLinesBuf, field_lines},
    json::{base64, write::unescape},
    model::{Generation, Op},
    pb::Writer,
};

use super::fields::other::{
    any, bad_request, duration, error_info, field_violation, retry_info, status,
};

/// An entry of a map (Protocol Buffers, "Maps").
mod map_entry {
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
}

/// The trailers of a successful answer.
const OK_FIELDS: FieldLines<'static> = field_lines!("grpc-status": "0");

/// A status code of gRPC; the discriminants are the numbers of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// The client has disconnected.
    Cancelled = 1,
    /// An error of the client.
    InvalidArgument = 3,
    /// The client's deadline has expired.
    DeadlineExceeded = 4,
    /// Not found.
    NotFound = 5,
    /// Already exists.
    AlreadyExists = 6,
    /// Not permitted for this caller.
    PermissionDenied = 7,
    /// A limit is reached.
    ResourceExhausted = 8,
    /// Not possible in this state.
    FailedPrecondition = 9,
    /// Not supported.
    Unimplemented = 12,
    /// An error of the server.
    Internal = 13,
    /// Temporarily unavailable.
    Unavailable = 14,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The value of `grpc-message` before percent-encoding; empty: no message.
    pub message: String,
    /// The value of `grpc-status-details-bin` before base64, a `google.rpc.Status`; empty: no
    /// details.
    pub details: Vec<u8>,
}

impl Status {
    /// Success.
    pub const OK: Status = Status::plain(Code::Ok);

    const fn plain(code: Code) -> Status {
        Status { code, message: String::new(), details: Vec::new() }
    }

    /// A status outside of A2A faults, without details.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { message: message.into(), ..Status::plain(code) }
    }

    /// The status of a fault, in the format of `encode`.
    pub fn of(fault: &Fault, encode: &Encode) -> Status {
        let mut details = Vec::new();
        (encode.fault)(&mut details, fault, &WriteCx::new(Op::Send));
        match encode.generation {
            Generation::V1 => Status { code: code_v1(fault.kind), message: text(fault), details },
            Generation::V01 | Generation::V03 => {
                // Wire §2.4: a 0.3 client expects the name of the error before the text.
                let message = format!("{}: {}", name_v03(fault.kind), text(fault));
                Status { code: code_v03(fault.kind), message, details }
            }
        }
    }

    /// The client's deadline has expired.
    pub fn late() -> Status {
        Status::new(Code::DeadlineExceeded, "the deadline has passed")
    }

    /// The gRPC status for a request that is rejected with this HTTP status before its call is
    /// read. gRPC clients would map most HTTP statuses to UNKNOWN.
    pub fn of_http(status: u16, why: &str) -> Status {
        let code = match status {
            408 => Code::Cancelled,
            413 | 414 | 431 => Code::ResourceExhausted,
            421 => Code::PermissionDenied,
            500.. => Code::Unavailable,
            _ => Code::InvalidArgument,
        };
        Status::new(code, why)
    }

    /// The fields of the status, for trailers or for a response that has only trailers.
    pub fn fields(&self) -> FieldLinesBuf {
        if *self == Status::OK {
            return OK_FIELDS.into();
        }
        let mut fields = FieldLinesBuf::default();
        fields.push("grpc-status", &(self.code as u8).to_string());
        if !self.message.is_empty() {
            fields.push("grpc-message", &self.encoded_message());
        }
        if !self.details.is_empty() {
            fields.push("grpc-status-details-bin", &self.encoded_details());
        }
        fields
    }

    /// `grpc-message`: percent-encoded outside printable ASCII (gRPC over HTTP/2, "Responses").
    pub fn encoded_message(&self) -> String {
        let mut encoded = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b'%' | ..0x20 | 0x7f.. => encoded.push_str(&format!("%{byte:02X}")),
                _ => encoded.push(char::from(byte)),
            }
        }
        encoded
    }

    /// `grpc-status-details-bin`: base64 without padding.
    pub fn encoded_details(&self) -> String {
        base64::encode(&self.details).trim_end_matches('=').to_owned()
    }
}

/// The error text, with the field that is invalid.
fn text(fault: &Fault) -> String {
    match fault.field {
        Some(field) => format!("{field}: {}", fault.message()),
        None => fault.message().to_owned(),
    }
}

/// Wire §2.3, column gRPC 1.0.1+.
fn code_v1(kind: FaultKind) -> Code {
    match kind {
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::InvalidParams
        | FaultKind::ContentTypeNotSupported => Code::InvalidArgument,
        FaultKind::MethodNotFound => Code::Unimplemented,
        FaultKind::TaskNotFound => Code::NotFound,
        FaultKind::IdempotencyConflict => Code::AlreadyExists,
        FaultKind::Internal | FaultKind::InvalidAgentResponse => Code::Internal,
        FaultKind::TaskNotCancelable
        | FaultKind::PushNotificationNotSupported
        | FaultKind::UnsupportedOperation
        | FaultKind::StreamingNotSupported
        | FaultKind::TaskTerminal
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::LoopDetected
        | FaultKind::VersionNotSupported => Code::FailedPrecondition,
        FaultKind::Overloaded | FaultKind::RateLimited => Code::ResourceExhausted,
        FaultKind::ShuttingDown => Code::Unavailable,
        FaultKind::Unauthenticated => Code::Unauthenticated,
        FaultKind::PermissionDenied => Code::PermissionDenied,
        FaultKind::DeadlineExceeded => Code::DeadlineExceeded,
    }
}

/// Wire §2.3, column gRPC 1.0.0; servers of 0.3 use the same codes.
fn code_v03(kind: FaultKind) -> Code {
    match kind {
        FaultKind::PushNotificationNotSupported
        | FaultKind::UnsupportedOperation
        | FaultKind::StreamingNotSupported
        | FaultKind::TaskTerminal
        | FaultKind::VersionNotSupported => Code::Unimplemented,
        FaultKind::Parse
        | FaultKind::InvalidRequest
        | FaultKind::MethodNotFound
        | FaultKind::InvalidParams
        | FaultKind::IdempotencyConflict
        | FaultKind::Internal
        | FaultKind::TaskNotFound
        | FaultKind::TaskNotCancelable
        | FaultKind::ContentTypeNotSupported
        | FaultKind::InvalidAgentResponse
        | FaultKind::ExtendedAgentCardNotConfigured
        | FaultKind::ExtensionSupportRequired
        | FaultKind::Overloaded
        | FaultKind::ShuttingDown
        | FaultKind::Unauthenticated
        | FaultKind::PermissionDenied
        | FaultKind::RateLimited
        | FaultKind::DeadlineExceeded
        | FaultKind::LoopDetected => code_v1(kind),
    }
}

/// The name of an error: its `reason` in camel case with the suffix `Error` (wire §2.3).
fn name_v03(kind: FaultKind) -> String {
    if kind == FaultKind::Parse {
        return "JSONParseError".to_owned();
    }
    let mut name = String::new();
    for word in kind.row().reason.split('_') {
        name.push_str(&word[..1]);
        name.push_str(&word[1..].to_ascii_lowercase());
    }
    if !name.ends_with("Error") {
        name.push_str("Error");
    }
    name
}

/// Appends a `google.rpc.Status` with ErrorInfo; for a parameter also BadRequest, and if the time
/// of a retry is known also RetryInfo. Other faults have no RetryInfo, because client libraries
/// would repeat even a call that has created a task.
pub(super) fn details(out: &mut Vec<u8>, fault: &Fault) {
    out.reserve(256);
    let mut writer = Writer(out);
    writer.number(status::CODE, code_v1(fault.kind) as u64);
    writer.bytes(status::MESSAGE, text(fault).as_bytes());
    detail(&mut writer, b"type.googleapis.com/google.rpc.ErrorInfo", |writer| {
        writer.bytes(error_info::REASON, fault.kind.row().reason.as_bytes());
        writer.bytes(error_info::DOMAIN, b"a2a-protocol.org");
        if let Some(task) = &fault.task {
            let task = unescape(std::str::from_utf8(task).unwrap_or_default());
            let entry = writer.open(error_info::METADATA, task.len());
            writer.bytes(map_entry::KEY, b"taskId");
            writer.bytes(map_entry::VALUE, task.as_bytes());
            writer.close(entry);
        }
    });
    if let Some(seconds) = fault.retry_after_s() {
        detail(&mut writer, b"type.googleapis.com/google.rpc.RetryInfo", |writer| {
            let delay = writer.open(retry_info::RETRY_DELAY, 0);
            writer.number(duration::SECONDS, seconds.into());
            writer.close(delay);
        });
    }
    if let Some(field) = fault.field {
        detail(&mut writer, b"type.googleapis.com/google.rpc.BadRequest", |writer| {
            let violation = writer.open(bad_request::FIELD_VIOLATIONS, field.len());
            writer.bytes(field_violation::FIELD, field.as_bytes());
            writer.bytes(field_violation::DESCRIPTION, fault.message().as_bytes());
            writer.close(violation);
        });
    }
}

fn detail(writer: &mut Writer<'_>, type_url: &[u8], write: impl FnOnce(&mut Writer<'_>)) {
    let detail = writer.open(status::DETAILS, 0);
    writer.bytes(any::TYPE_URL, type_url);
    let value = writer.open(any::VALUE, 0);
    write(writer);
    writer.close(value);
    writer.close(detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_of_0_3_match_the_specification() {
        assert_eq!(name_v03(FaultKind::TaskNotFound), "TaskNotFoundError");
        assert_eq!(name_v03(FaultKind::Internal), "InternalError");
        assert_eq!(name_v03(FaultKind::Parse), "JSONParseError");
        assert_eq!(name_v03(FaultKind::InvalidParams), "InvalidParamsError");
    }

    #[test]
    fn grpc_message_is_percent_encoded() {
        let status = Status::new(Code::Internal, "50% of \u{e9}\n~ ok");
        assert_eq!(status.encoded_message(), "50%25 of %C3%A9%0A~ ok");
    }
}
