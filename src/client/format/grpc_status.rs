//! How a call of gRPC ended: `grpc-status`, `grpc-message`, `grpc-status-details-bin` (wire §2.3).
//!
//! Law: what is not understood is an error without a kind, and what a server says is cut to some
//! KiB. A response without a status did not come from gRPC.

use crate::{
    binding::grpc::fields::other::{any, error_info, status},
    fault::{FaultKind, PeerFault, PeerFaultName},
    json::base64,
    model::Generation,
    pb::Fields,
};

use super::{CallError, Format, ReplyHead};

/// Bytes of a message that are kept.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Details that are looked at for one that has a reason.
const DETAILS_MAX: usize = 64;

/// The fields with which a response of gRPC ends: in its trailers, or in its head if nothing else
/// is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcEnd<'a> {
    /// `grpc-status`
    pub status: Option<&'a [u8]>,
    /// `grpc-message`
    pub message: Option<&'a [u8]>,
    /// `grpc-status-details-bin`
    pub details: Option<&'a [u8]>,
}

/// The codes of gRPC by their names, from 0.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Format {
    /// Whether a call of gRPC succeeded, by how its response ended.
    ///
    /// # Errors
    /// [`CallError::Fault`] with the status by its name; [`CallError::NotA2a`] where there is none.
    pub fn grpc_end(&self, head: ReplyHead<'_>, end: GrpcEnd<'_>) -> Result<(), CallError> {
        let Some(code) = end.status else { return Err(head.not_a2a()) };
        let code = str::from_utf8(code).ok().and_then(|code| code.trim().parse::<usize>().ok());
        if code == Some(0) {
            return Ok(());
        }
        // gRPC over HTTP/2, "Responses": an unknown code is UNKNOWN.
        let name = code.and_then(|code| NAMES.get(code)).unwrap_or(&NAMES[2]);
        let details = end.details.and_then(|text| base64::decode(str::from_utf8(text).ok()?));
        let message = decoded(end.message.unwrap_or_default());
        let fault = PeerFault {
            // Wire §2.3: 0.3 has no details, and says its name in front.
            name: message.split_once(':').and_then(|(name, _)| error_name(name)),
            reason: details.as_deref().and_then(reason),
            status: Some((*name).to_owned()),
            message,
            ..PeerFault::default()
        };
        Err(fault.decided(self.generation() == Generation::V01).into())
    }
}

fn error_name(name: &str) -> Option<PeerFaultName> {
    FaultKind::of_error_name(name).map(|kind| PeerFaultName(kind.error_name()))
}

/// gRPC over HTTP/2, "Responses": what is no valid escape stays as it is.
fn decoded(message: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = message;
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        let escape = tail.first_chunk().filter(|_| byte == b'%');
        let escape = escape.and_then(|[a, b]| Some((hex(a)? * 16 + hex(b)?) as u8));
        bytes.push(escape.unwrap_or(byte));
        rest = if escape.is_some() { &tail[2..] } else { tail };
        if bytes.len() >= MESSAGE_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `reason` of the first `google.rpc.ErrorInfo` in a `google.rpc.Status`.
fn reason(details: &[u8]) -> Option<String> {
    let all = Fields(details).filter_map(Result::ok).filter(|field| field.0 == status::DETAILS);
    all.take(DETAILS_MAX).find_map(|(_, detail)| {
        let (mut type_url, mut value) = (&[][..], &[][..]);
        for (number, field) in Fields(detail.bytes().ok()?).filter_map(Result::ok) {
            match number {
                any::TYPE_URL => type_url = field.bytes().ok()?,
                any::VALUE => value = field.bytes().ok()?,
                _ => {}
            }
        }
        if !type_url.ends_with(b"/google.rpc.ErrorInfo") {
            return None;
        }
        let mut fields = Fields(value).filter_map(Result::ok);
        let (_, reason) = fields.find(|(number, _)| *number == error_info::REASON)?;
        reason.text().ok().filter(|reason| reason.len() <= MESSAGE_BYTES_MAX).map(str::to_owned)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        binding::{grpc::status_of, interfaces::Binding},
        fault::Fault,
    };

    const HEAD: ReplyHead<'static> =
        ReplyHead { status: 200, content_type: Some(b"application/grpc") };

    fn end(generation: Generation, fields: &[(&str, &str)]) -> Result<(), CallError> {
        let field =
            |name: &str| fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes());
        let end = GrpcEnd {
            status: field("grpc-status"),
            message: field("grpc-message"),
            details: field("grpc-status-details-bin"),
        };
        Format::standard(Binding::Grpc, generation).grpc_end(HEAD, end)
    }

    fn fault(end: Result<(), CallError>) -> PeerFault {
        let Err(CallError::Fault(fault)) = end else { panic!("{end:?}") };
        *fault
    }

    #[test]
    fn every_fault_of_ours_is_known_by_its_reason() {
        for kind in FaultKind::ALL {
            let fields = status_of(&Fault::because(kind, "50% \u{e4}")).fields();
            let fields: Vec<_> = fields.get().iter().collect();
            let read = fault(end(Generation::V1, &fields));
            assert_eq!(read.reason.as_deref().and_then(FaultKind::of_reason), read.kind);
            assert!(read.message.contains("50% \u{e4}"), "{read:?}");
            // Some have no reason, and some share one.
            assert_eq!(read.kind, FaultKind::of_reason(kind.row().reason));
        }
    }

    #[test]
    fn a_status_has_a_code_and_a_message() {
        assert_eq!(end(Generation::V1, &[("grpc-status", "0")]), Ok(()));
        for (code, name) in [("5", "NOT_FOUND"), ("16", "UNAUTHENTICATED"), ("99", "UNKNOWN")] {
            let fields = [("grpc-status", code), ("grpc-message", "a%20b%zz%2")];
            let read = fault(end(Generation::V1, &fields));
            assert_eq!(read.status.as_deref(), Some(name));
            assert_eq!((read.message.as_str(), read.kind), ("a b%zz%2", None));
        }
        let old = [("grpc-status", "5"), ("grpc-message", "TaskNotFoundError: no such task")];
        assert_eq!(fault(end(Generation::V03, &old)).kind, Some(FaultKind::TaskNotFound));
        assert!(matches!(end(Generation::V1, &[]), Err(CallError::NotA2a { status: 200, .. })));
        let long = "x".repeat(MESSAGE_BYTES_MAX + 9);
        let read = fault(end(Generation::V1, &[("grpc-status", "2"), ("grpc-message", &long)]));
        assert_eq!(read.message.len(), MESSAGE_BYTES_MAX);
    }
}
