//! The end of a gRPC call: `grpc-status`, `grpc-message`, `grpc-status-details-bin` (wire §2.3).
//!
//! Invariant: an unknown status is an error without a kind, and texts of the server are cut to 4
//! KiB. A response without a status did not come from gRPC.

use crate::{
    binding::grpc::fields::other::{any, duration, error_info, retry_info, status},
    fault::{FaultKind, PeerFault, PeerFaultName, grpc_code_name},
    json::base64,
    model::Generation,
    pb::{Fields, Value},
};

use super::{CallError, Format, ReplyHead};

/// Maximum bytes of a message; the rest is cut.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Maximum details to search.
const DETAILS_MAX: usize = 64;

/// The fields at the end of a gRPC response: in its trailers, or in its head if it has no content.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcEnd<'a> {
    /// `grpc-status`
    pub status: Option<&'a [u8]>,
    /// `grpc-message`
    pub message: Option<&'a [u8]>,
    /// `grpc-status-details-bin`
    pub details: Option<&'a [u8]>,
}

impl GrpcEnd<'_> {
    /// Milliseconds after which the server accepts a repetition: `retry_delay` of the first
    /// `google.rpc.RetryInfo` among the details.
    #[cold]
    pub fn retry_delay_ms(&self) -> Option<u64> {
        let info = decoded_details(self.details)?;
        let info = details(&info).find_map(|detail| detail.of(b"/google.rpc.RetryInfo"))?;
        let mut fields = Fields(info).filter_map(Result::ok);
        let (_, delay) = fields.find(|(number, _)| *number == retry_info::RETRY_DELAY)?;
        let (mut seconds, mut nanos) = (0, 0);
        for (number, field) in Fields(delay.bytes().ok()?).filter_map(Result::ok) {
            match (number, field) {
                (duration::SECONDS, Value::Varint(number)) => seconds = number,
                (duration::NANOS, Value::Varint(number)) => nanos = number,
                _ => {}
            }
        }
        // A negative delay, or nanoseconds of a second or more, is invalid.
        if seconds > i64::MAX as u64 || nanos >= 1_000_000_000 {
            return None;
        }
        Some(seconds.saturating_mul(1_000).saturating_add(nanos.div_ceil(1_000_000)))
    }
}

impl Format {
    /// Whether a gRPC call succeeded, by the end of its response.
    ///
    /// # Errors
    /// [`CallError::Fault`] with the name of the status; [`CallError::NotA2a`] without a status.
    pub fn grpc_end(&self, head: ReplyHead<'_>, end: GrpcEnd<'_>) -> Result<(), CallError> {
        let Some(code) = end.status else { return Err(head.not_a2a()) };
        let code = str::from_utf8(code).ok().and_then(|code| code.trim().parse::<usize>().ok());
        if code == Some(0) {
            return Ok(());
        }
        let name = grpc_code_name(code);
        let details = decoded_details(end.details);
        let message = decoded(end.message.unwrap_or_default());
        let fault = PeerFault {
            // Wire §2.3: 0.3 has no details, and begins the message with the error's name.
            name: message.split_once(':').and_then(|(name, _)| error_name(name)),
            reason: details.as_deref().and_then(reason),
            status: Some(name.to_owned()),
            message,
            ..PeerFault::default()
        };
        Err(fault.decided(self.generation() == Generation::V01).into())
    }
}

fn error_name(name: &str) -> Option<PeerFaultName> {
    FaultKind::of_error_name(name).map(|kind| PeerFaultName(kind.error_name()))
}

/// gRPC over HTTP/2, "Responses": an invalid escape is left unchanged.
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

/// The bytes of a `google.rpc.Status`.
fn decoded_details(text: Option<&[u8]>) -> Option<Vec<u8>> {
    base64::decode(str::from_utf8(text?).ok()?)
}

/// A `google.protobuf.Any`.
struct Detail<'a> {
    type_url: &'a [u8],
    value: &'a [u8],
}

impl<'a> Detail<'a> {
    /// The message, if it is of this type.
    fn of(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.type_url.ends_with(name).then_some(self.value)
    }
}

/// The first details of a `google.rpc.Status`.
fn details(status: &[u8]) -> impl Iterator<Item = Detail<'_>> {
    let all = Fields(status).filter_map(Result::ok).filter(|field| field.0 == status::DETAILS);
    all.take(DETAILS_MAX).filter_map(|(_, detail)| {
        let (mut type_url, mut value) = (&[][..], &[][..]);
        for (number, field) in Fields(detail.bytes().ok()?).filter_map(Result::ok) {
            match number {
                any::TYPE_URL => type_url = field.bytes().ok()?,
                any::VALUE => value = field.bytes().ok()?,
                _ => {}
            }
        }
        Some(Detail { type_url, value })
    })
}

/// The `reason` of the first `google.rpc.ErrorInfo` with a reason in a `google.rpc.Status`.
fn reason(status: &[u8]) -> Option<String> {
    details(status).find_map(|detail| {
        let info = detail.of(b"/google.rpc.ErrorInfo")?;
        let mut fields = Fields(info).filter_map(Result::ok);
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
        pb::Writer,
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
    fn fault_kind_is_read_from_grpc_error_reason() {
        for kind in FaultKind::ALL {
            let fields = status_of(&Fault::because(kind, "50% \u{e4}")).fields();
            let fields: Vec<_> = fields.get().iter().collect();
            let read = fault(end(Generation::V1, &fields));
            assert_eq!(read.reason.as_deref().and_then(FaultKind::of_reason), read.kind);
            assert!(read.message.contains("50% \u{e4}"), "{read:?}");
            // Some kinds have no reason, and some share one.
            assert_eq!(read.kind, FaultKind::of_reason(kind.row().reason));
        }
    }

    #[test]
    fn grpc_status_code_and_message_are_read() {
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

    #[test]
    fn retry_info_delay_is_read_or_ignored_if_invalid() {
        const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
        let read = |type_url: &[u8], seconds: i64, nanos: i64| {
            let mut bytes = Vec::new();
            let mut writer = Writer(&mut bytes);
            let detail = writer.open(status::DETAILS, 0);
            writer.bytes(any::TYPE_URL, type_url);
            let value = writer.open(any::VALUE, 0);
            let delay = writer.open(retry_info::RETRY_DELAY, 0);
            writer.number(duration::SECONDS, seconds as u64);
            writer.number(duration::NANOS, nanos as u64);
            [delay, value, detail].into_iter().for_each(|nested| writer.close(nested));
            let text = base64::encode(&bytes);
            GrpcEnd { details: Some(text.as_bytes()), ..GrpcEnd::default() }.retry_delay_ms()
        };
        for (seconds, nanos, expected) in [
            (0, 0, Some(0)),
            (2, 500_000_000, Some(2_500)),
            (2, 1, Some(2_001)),
            (i64::MAX, 999_999_999, Some(u64::MAX)),
            (-1, 0, None),
            (0, -1, None),
            (0, 1_000_000_000, None),
        ] {
            assert_eq!(read(RETRY_INFO, seconds, nanos), expected, "{seconds} {nanos}");
        }
        assert_eq!(read(b"type.googleapis.com/google.rpc.ErrorInfo", 2, 0), None);
        for details in [None, Some(&b"*"[..]), Some(b""), Some(b"Gv8")] {
            assert_eq!(GrpcEnd { details, ..GrpcEnd::default() }.retry_delay_ms(), None);
        }
    }
}
