//! Errors of a server, as received by a client.

use std::fmt;

use super::{CanonicalCode, FaultKind};

/// An error that a server returned instead of a result.
///
/// `kind` is derived from `reason` first, then from the code in its generation, never from an HTTP
/// status alone: servers disagree about HTTP statuses (wire §2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerFault {
    /// The kind, if the error is known.
    pub kind: Option<FaultKind>,
    /// The name of the error, if known.
    pub name: Option<PeerFaultName>,
    /// The JSON-RPC code; for an error received by name over another binding, the equivalent code.
    pub code: Option<i64>,
    /// The server's message for humans; untrusted, and at most some KiB.
    pub message: String,
    /// `reason` of `google.rpc.ErrorInfo`.
    pub reason: Option<String>,
    /// The name of the canonical status, as in AIP-193 and gRPC.
    pub status: Option<String>,
    /// The HTTP status, if the error came as an HTTP response.
    pub http: Option<u16>,
    /// `data` or `details` as received, in JSON.
    pub data: Option<String>,
}

/// The name of an error in the specification of A2A: `TaskNotFoundError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerFaultName(pub &'static str);

impl fmt::Display for PeerFaultName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Name, `reason` and code of an error of A2A 1.1, which servers of this crate never return.
const GENERATION_MISMATCH: (PeerFaultName, &str, i64) =
    (PeerFaultName("TaskGenerationMismatchError"), "TASK_GENERATION_MISMATCH", -32010);

impl FaultKind {
    /// The name of the error in the specification of A2A, or of JSON-RPC as cited by A2A.
    pub const fn error_name(self) -> &'static str {
        match self {
            FaultKind::Parse => "JSONParseError",
            FaultKind::InvalidRequest => "InvalidRequestError",
            FaultKind::MethodNotFound => "MethodNotFoundError",
            FaultKind::InvalidParams => "InvalidParamsError",
            FaultKind::IdempotencyConflict => "IdempotencyConflictError",
            FaultKind::Internal => "InternalError",
            FaultKind::TaskNotFound => "TaskNotFoundError",
            FaultKind::TaskNotCancelable => "TaskNotCancelableError",
            FaultKind::PushNotificationNotSupported => "PushNotificationNotSupportedError",
            FaultKind::UnsupportedOperation => "UnsupportedOperationError",
            FaultKind::StreamingNotSupported => "StreamingNotSupportedError",
            FaultKind::TaskTerminal => "InvalidTaskStateError",
            FaultKind::ContentTypeNotSupported => "ContentTypeNotSupportedError",
            FaultKind::InvalidAgentResponse => "InvalidAgentResponseError",
            FaultKind::ExtendedAgentCardNotConfigured => "ExtendedAgentCardNotConfiguredError",
            FaultKind::ExtensionSupportRequired => "ExtensionSupportRequiredError",
            FaultKind::VersionNotSupported => "VersionNotSupportedError",
            FaultKind::Overloaded => "ResourceExhaustedError",
            FaultKind::ShuttingDown => "UnavailableError",
            FaultKind::Unauthenticated => "AuthenticationRequiredError",
            FaultKind::PermissionDenied => "AuthorizationFailedError",
            FaultKind::RateLimited => "RateLimitExceededError",
            FaultKind::DeadlineExceeded => "DeadlineExceededError",
            FaultKind::LoopDetected => "LoopDetectedError",
        }
    }

    /// The kind with this `reason` of `google.rpc.ErrorInfo`.
    pub fn of_reason(reason: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.row().reason == reason)
    }

    /// The kind with this name, with or without its suffix `Error`.
    pub fn of_error_name(name: &str) -> Option<FaultKind> {
        let bare = name.strip_suffix("Error").unwrap_or(name);
        // Servers of 0.3 over gRPC, like this one, may form the name from the reason: PARSE_ERROR.
        let bare = if bare == "Parse" { "JSONParse" } else { bare };
        FaultKind::ALL
            .into_iter()
            .find(|kind| kind.error_name().strip_suffix("Error") == Some(bare))
    }
}

impl PeerFault {
    /// Derives `kind`, `name` and `code` from the other fields. `is_v01`: by the codes of 0.1, in
    /// which codes from -32006 down have other meanings (wire §2.2).
    #[must_use]
    pub fn decided(mut self, is_v01: bool) -> PeerFault {
        let by_reason = self.reason.as_deref().and_then(FaultKind::of_reason);
        let by_name = self.name.and_then(|name| FaultKind::of_error_name(name.0));
        let by_code = || self.code.and_then(|code| kind_of_code(code, is_v01));
        self.kind = by_reason.or(by_name).or_else(by_code);
        if self.kind.is_none() && self.is_generation_mismatch(is_v01) {
            self.name = Some(GENERATION_MISMATCH.0);
            self.code = self.code.or(Some(GENERATION_MISMATCH.2));
        }
        if let Some(kind) = self.kind {
            self.name = Some(PeerFaultName(kind.error_name()));
            self.code = self.code.or_else(|| {
                let row = kind.row();
                Some(i64::from(if is_v01 { row.code_v01 } else { row.code }))
            });
        }
        self
    }

    /// Whether the task had a different generation than the caller expected (A2A 1.1 §3.2.2).
    fn is_generation_mismatch(&self, is_v01: bool) -> bool {
        let (name, reason, code) = GENERATION_MISMATCH;
        match (self.reason.as_deref(), self.name) {
            (Some(received), _) => received == reason,
            (None, Some(received)) => received == name,
            // 0.1 uses this code for another error (wire §2.2).
            (None, None) => !is_v01 && self.code == Some(code),
        }
    }

    /// The canonical status, if this crate uses it.
    pub fn canonical(&self) -> Option<CanonicalCode> {
        let name = self.status.as_deref()?;
        let all = [
            CanonicalCode::InvalidArgument,
            CanonicalCode::NotFound,
            CanonicalCode::AlreadyExists,
            CanonicalCode::ResourceExhausted,
            CanonicalCode::FailedPrecondition,
            CanonicalCode::Internal,
            CanonicalCode::Unavailable,
            CanonicalCode::Unauthenticated,
            CanonicalCode::PermissionDenied,
            CanonicalCode::DeadlineExceeded,
        ];
        all.into_iter().find(|code| code.name() == name)
    }
}

/// The kind with this code; if several kinds share the code, the most general kind.
fn kind_of_code(code: i64, is_v01: bool) -> Option<FaultKind> {
    let of = |kind: &FaultKind| {
        let row = kind.row();
        i64::from(if is_v01 { row.code_v01 } else { row.code })
    };
    // Servers use -32000 for any error (wire §2.2), and this server maps several errors to it.
    if code == -32000 {
        return None;
    }
    FaultKind::ALL.into_iter().find(|kind| of(kind) == code)
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, self.code) {
            (Some(name), _) => write!(f, "{name}: ")?,
            (None, Some(code)) => write!(f, "error {code}: ")?,
            (None, None) => {}
        }
        match (self.message.as_str(), self.http) {
            ("", Some(http)) => write!(f, "the server gave no details: HTTP status {http}"),
            ("", None) => f.write_str("the server gave no details"),
            (message, _) => f.write_str(message),
        }
    }
}

impl std::error::Error for PeerFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(code: i64, is_v01: bool) -> PeerFault {
        PeerFault { code: Some(code), ..PeerFault::default() }.decided(is_v01)
    }

    #[test]
    fn reason_overrides_code_and_code_depends_on_generation() {
        let reason = Some("TASK_NOT_FOUND".to_owned());
        let both = PeerFault { code: Some(-32603), reason, ..PeerFault::default() }.decided(false);
        assert_eq!((both.kind, both.code), (Some(FaultKind::TaskNotFound), Some(-32603)));
        assert_eq!(coded(-32006, false).kind, Some(FaultKind::InvalidAgentResponse));
        assert_eq!(coded(-32006, true).kind, Some(FaultKind::StreamingNotSupported));
        assert_eq!(coded(-32009, true).kind, Some(FaultKind::TaskTerminal));
        assert_eq!(coded(-32009, false).kind, Some(FaultKind::VersionNotSupported));
        let (name, kind) = (coded(-32007, true).name, coded(-32007, true).kind);
        assert_eq!(name.map(|name| name.0), Some("AuthenticationRequiredError"));
        assert_eq!(kind, Some(FaultKind::Unauthenticated));
        for unknown in [0, 1, -32000, -32099, i64::MIN] {
            assert_eq!(coded(unknown, false).kind, None, "{unknown}");
        }
    }

    #[test]
    fn an_error_of_1_1_keeps_its_name() {
        let name = |fault: PeerFault| fault.name.map(|name| name.0);
        let mismatch = Some("TaskGenerationMismatchError");
        assert_eq!((name(coded(-32010, false)), coded(-32010, false).kind), (mismatch, None));
        let reason = Some("TASK_GENERATION_MISMATCH".to_owned());
        let by_reason = PeerFault { reason, ..PeerFault::default() }.decided(false);
        assert_eq!((by_reason.code, name(by_reason)), (Some(-32010), mismatch));
        assert_ne!(name(coded(-32010, true)), mismatch);
        // A reason takes precedence over a code.
        let reason = Some("QUOTA".to_owned());
        let other = PeerFault { code: Some(-32010), reason, ..PeerFault::default() };
        assert_eq!(name(other.decided(false)), None);
    }

    #[test]
    fn shared_error_code_maps_to_the_general_kind() {
        assert_eq!(coded(-32004, false).kind, Some(FaultKind::UnsupportedOperation));
        assert_eq!(coded(-32004, true).kind, Some(FaultKind::UnsupportedOperation));
        assert_eq!(coded(-32011, true).kind, Some(FaultKind::Overloaded));
    }

    #[test]
    fn error_name_is_parsed_with_or_without_suffix() {
        for kind in FaultKind::ALL {
            assert_eq!(FaultKind::of_error_name(kind.error_name()), Some(kind));
        }
        assert_eq!(FaultKind::of_error_name("TaskNotFound"), Some(FaultKind::TaskNotFound));
        assert_eq!(FaultKind::of_error_name("ParseError"), Some(FaultKind::Parse));
        assert_eq!(FaultKind::of_error_name(""), None);
    }
}
