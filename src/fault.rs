//! All errors that a peer can receive, one row each; dialects choose codes from the row.

#[cfg(feature = "client")]
mod peer;

use std::{borrow::Cow, num::NonZeroU32};

#[cfg(feature = "client")]
pub use peer::{PeerFault, PeerFaultName};

/// What went wrong (A2A 1.0 §3.3.2 and §5.4; JSON-RPC 2.0 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The body is not JSON.
    Parse,
    /// JSON, but not a request.
    InvalidRequest,
    /// No such method.
    MethodNotFound,
    /// A parameter is missing, of the wrong type or out of range.
    InvalidParams,
    /// A different message was sent before under the same id; see `docs/guide/calls.md`.
    IdempotencyConflict,
    /// An error of this server.
    Internal,
    /// No such task, or a task that the caller may not see.
    TaskNotFound,
    /// The task cannot be canceled any more.
    TaskNotCancelable,
    /// Push notifications are not supported.
    PushNotificationNotSupported,
    /// The operation is not supported, or not in this state.
    UnsupportedOperation,
    /// Streaming is not supported; 0.1 has a separate code for this.
    StreamingNotSupported,
    /// The task is in a terminal state; 0.1 has a separate code for this.
    TaskTerminal,
    /// A media type is not accepted.
    ContentTypeNotSupported,
    /// The agent violated the protocol.
    InvalidAgentResponse,
    /// There is no extended card.
    ExtendedAgentCardNotConfigured,
    /// The client must declare an extension.
    ExtensionSupportRequired,
    /// The protocol version is not supported.
    VersionNotSupported,
    /// No room for another running task or stream; retry later.
    Overloaded,
    /// The server shuts down, or the authentication backend did not respond; retry later, or
    /// elsewhere.
    ShuttingDown,
    /// The caller must be authenticated (A2A 1.0 §7.4).
    Unauthenticated,
    /// The caller may not do this (A2A 1.0 §7.5).
    PermissionDenied,
    /// The caller has used its quota; retry later.
    RateLimited,
    /// The caller's deadline for the call has passed.
    DeadlineExceeded,
    /// The call has passed more agents than allowed (RFC 5842 §7.2).
    LoopDetected,
}

/// The canonical status of a fault (google.rpc.Code), used in AIP-193 bodies and gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanonicalCode {
    /// `INVALID_ARGUMENT`
    InvalidArgument,
    /// `NOT_FOUND`
    NotFound,
    /// `ALREADY_EXISTS`
    AlreadyExists,
    /// `RESOURCE_EXHAUSTED`
    ResourceExhausted,
    /// `FAILED_PRECONDITION`
    FailedPrecondition,
    /// `INTERNAL`
    Internal,
    /// `UNAVAILABLE`
    Unavailable,
    /// `UNAUTHENTICATED`
    Unauthenticated,
    /// `PERMISSION_DENIED`
    PermissionDenied,
    /// `DEADLINE_EXCEEDED`
    DeadlineExceeded,
}

impl CanonicalCode {
    /// The name of the status in an AIP-193 body.
    pub const fn name(self) -> &'static str {
        match self {
            CanonicalCode::InvalidArgument => "INVALID_ARGUMENT",
            CanonicalCode::NotFound => "NOT_FOUND",
            CanonicalCode::AlreadyExists => "ALREADY_EXISTS",
            CanonicalCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
            CanonicalCode::FailedPrecondition => "FAILED_PRECONDITION",
            CanonicalCode::Internal => "INTERNAL",
            CanonicalCode::Unavailable => "UNAVAILABLE",
            CanonicalCode::Unauthenticated => "UNAUTHENTICATED",
            CanonicalCode::PermissionDenied => "PERMISSION_DENIED",
            CanonicalCode::DeadlineExceeded => "DEADLINE_EXCEEDED",
        }
    }

    /// The corresponding HTTP status (A2A 1.0.1 §5.4).
    pub const fn http(self) -> u16 {
        match self {
            CanonicalCode::InvalidArgument | CanonicalCode::FailedPrecondition => 400,
            CanonicalCode::NotFound => 404,
            CanonicalCode::AlreadyExists => 409,
            CanonicalCode::ResourceExhausted => 429,
            CanonicalCode::Internal => 500,
            CanonicalCode::Unavailable => 503,
            CanonicalCode::Unauthenticated => 401,
            CanonicalCode::PermissionDenied => 403,
            CanonicalCode::DeadlineExceeded => 504,
        }
    }
}

/// The name of a gRPC status code; an unknown or missing code is `UNKNOWN` (gRPC over HTTP/2,
/// "Responses").
pub fn grpc_code_name(code: Option<usize>) -> &'static str {
    /// The names, indexed by their codes.
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
    code.and_then(|code| NAMES.get(code)).copied().unwrap_or("UNKNOWN")
}

/// A row of the table of faults.
#[derive(Clone, Copy, Debug)]
pub struct FaultRow {
    /// JSON-RPC code in 0.2, 0.3 and 1.0.
    pub code: i32,
    /// JSON-RPC code in 0.1, where it differs (wire §2.2).
    pub code_v01: i32,
    /// HTTP status of the HTTP+JSON binding of 0.3 (wire §2.3); 1.0 uses the HTTP status of
    /// `status`.
    pub http_v03: u16,
    /// Canonical status (A2A 1.0.1 §5.4).
    pub status: CanonicalCode,
    /// `reason` of `google.rpc.ErrorInfo`.
    pub reason: &'static str,
    /// Default message.
    pub message: &'static str,
}

impl FaultKind {
    /// Every kind, for tables and tests.
    pub const ALL: [FaultKind; 24] = [
        FaultKind::Parse,
        FaultKind::InvalidRequest,
        FaultKind::MethodNotFound,
        FaultKind::InvalidParams,
        FaultKind::IdempotencyConflict,
        FaultKind::Internal,
        FaultKind::TaskNotFound,
        FaultKind::TaskNotCancelable,
        FaultKind::PushNotificationNotSupported,
        FaultKind::UnsupportedOperation,
        FaultKind::StreamingNotSupported,
        FaultKind::TaskTerminal,
        FaultKind::ContentTypeNotSupported,
        FaultKind::InvalidAgentResponse,
        FaultKind::ExtendedAgentCardNotConfigured,
        FaultKind::ExtensionSupportRequired,
        FaultKind::VersionNotSupported,
        FaultKind::Overloaded,
        FaultKind::ShuttingDown,
        FaultKind::Unauthenticated,
        FaultKind::PermissionDenied,
        FaultKind::RateLimited,
        FaultKind::DeadlineExceeded,
        FaultKind::LoopDetected,
    ];

    /// The limit that causes faults of this kind, unless the fault names another
    /// ([`Fault::limit`]); `None`: not caused by a limit.
    pub const fn limit(self) -> Option<&'static str> {
        match self {
            FaultKind::Overloaded => Some("overload"),
            FaultKind::RateLimited => Some("quotas"),
            FaultKind::LoopDetected => Some("hops_max"),
            FaultKind::Parse
            | FaultKind::InvalidRequest
            | FaultKind::MethodNotFound
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
            | FaultKind::ShuttingDown
            | FaultKind::Unauthenticated
            | FaultKind::PermissionDenied
            | FaultKind::DeadlineExceeded => None,
        }
    }

    /// HTTP status of the HTTP+JSON binding of 1.0.
    pub const fn http(self) -> u16 {
        match self {
            // RFC 5842 §7.2.
            FaultKind::LoopDetected => 508,
            _ => self.row().status.http(),
        }
    }

    /// The row of this kind (wire §2.1 to §2.3, the 1.0.1 columns).
    #[rustfmt::skip]
    pub const fn row(self) -> FaultRow {
        const fn row(
            code: i32, code_v01: i32, http_v03: u16, status: CanonicalCode, reason: &'static str, message: &'static str,
        ) -> FaultRow {
            FaultRow { code, code_v01, http_v03, status, reason, message }
        }
        use CanonicalCode::{
            AlreadyExists, DeadlineExceeded, FailedPrecondition, Internal, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted,
            Unauthenticated, Unavailable,
        };
        match self {
            FaultKind::Parse => row(-32700, -32700, 400, InvalidArgument, "PARSE_ERROR", "Invalid JSON payload"),
            FaultKind::InvalidRequest => row(-32600, -32600, 400, InvalidArgument, "INVALID_REQUEST", "Request payload validation error"),
            FaultKind::MethodNotFound => row(-32601, -32601, 404, NotFound, "METHOD_NOT_FOUND", "Method not found"),
            FaultKind::InvalidParams => row(-32602, -32602, 422, InvalidArgument, "INVALID_PARAMS", "Invalid parameters"),
            FaultKind::IdempotencyConflict => row(-32602, -32602, 409, AlreadyExists, "IDEMPOTENCY_CONFLICT", "This id was already used for another message"),
            FaultKind::Internal => row(-32603, -32603, 500, Internal, "INTERNAL_ERROR", "Internal error"),
            FaultKind::TaskNotFound => row(-32001, -32001, 404, NotFound, "TASK_NOT_FOUND", "Task not found"),
            FaultKind::TaskNotCancelable => row(-32002, -32002, 409, FailedPrecondition, "TASK_NOT_CANCELABLE", "Task cannot be canceled"),
            FaultKind::PushNotificationNotSupported => row(-32003, -32003, 501, FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED", "Push Notification is not supported"),
            FaultKind::UnsupportedOperation => row(-32004, -32004, 501, FailedPrecondition, "UNSUPPORTED_OPERATION", "This operation is not supported"),
            FaultKind::StreamingNotSupported => row(-32004, -32006, 501, FailedPrecondition, "UNSUPPORTED_OPERATION", "Streaming is not supported"),
            FaultKind::TaskTerminal => row(-32004, -32009, 501, FailedPrecondition, "UNSUPPORTED_OPERATION", "The task is in a terminal state"),
            FaultKind::ContentTypeNotSupported => row(-32005, -32005, 415, InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED", "Incompatible content types"),
            FaultKind::InvalidAgentResponse => row(-32006, -32603, 502, Internal, "INVALID_AGENT_RESPONSE", "Invalid agent response"),
            FaultKind::ExtendedAgentCardNotConfigured => row(-32007, -32004, 404, FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", "Authenticated Extended Card is not configured"),
            FaultKind::ExtensionSupportRequired => row(-32008, -32004, 400, FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED", "Extension support required"),
            FaultKind::VersionNotSupported => row(-32009, -32600, 400, FailedPrecondition, "VERSION_NOT_SUPPORTED", "Version not supported"),
            FaultKind::Overloaded => row(-32000, -32011, 429, ResourceExhausted, "RESOURCE_EXHAUSTED", "The server is at capacity, retry later"),
            FaultKind::ShuttingDown => row(-32000, -32011, 503, Unavailable, "UNAVAILABLE", "The server is shutting down, retry later"),
            FaultKind::Unauthenticated => row(-32000, -32007, 401, Unauthenticated, "AUTHENTICATION_REQUIRED", "Authentication is required"),
            FaultKind::PermissionDenied => row(-32000, -32008, 403, PermissionDenied, "AUTHORIZATION_FAILED", "This is not allowed"),
            FaultKind::RateLimited => row(-32000, -32010, 429, ResourceExhausted, "RATE_LIMIT_EXCEEDED", "Too many requests, retry later"),
            FaultKind::DeadlineExceeded => row(-32000, -32011, 504, DeadlineExceeded, "DEADLINE_EXCEEDED", "The deadline of the call has passed"),
            FaultKind::LoopDetected => row(-32000, -32011, 508, FailedPrecondition, "LOOP_DETECTED", "The call passed through too many agents"),
        }
    }
}

/// A fault with the details of this occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// One sentence for humans; the row's message when empty. Ordinary text, not yet escaped.
    pub detail: Cow<'static, str>,
    /// The offending parameter, as a path from `params`.
    pub field: Option<&'static str>,
    /// Raw id of the task that continues although its call ends with this fault.
    pub task: Option<Box<[u8]>>,
    /// Seconds after which the same call may succeed, if known.
    pub retry_s: Option<u32>,
    /// The limit that was reached, if any.
    pub limit: Option<&'static str>,
    /// The caller's share of the limit, in items or KiB, if the share is used up.
    pub share: Option<NonZeroU32>,
}

impl Fault {
    /// A fault with the default message of its row.
    pub const fn new(kind: FaultKind) -> Fault {
        let detail = Cow::Borrowed("");
        Fault { kind, detail, field: None, task: None, retry_s: None, limit: None, share: None }
    }

    /// A fault with its own message.
    pub fn because(kind: FaultKind, detail: impl Into<Cow<'static, str>>) -> Fault {
        Fault { detail: detail.into(), ..Fault::new(kind) }
    }

    /// The limit with this name is reached.
    #[cold]
    pub fn at_limit(name: &'static str) -> Fault {
        let kind = FaultKind::Overloaded;
        Fault::because(kind, format!("{} ({name})", kind.row().message)).of_limit(name)
    }

    /// The same fault, caused by this limit.
    #[must_use]
    pub fn of_limit(self, name: &'static str) -> Fault {
        Fault { limit: Some(name), ..self }
    }

    /// The caller has used its share of this limit, in items or KiB.
    #[cold]
    pub fn share_used_up(limit: &'static str, share: u32, detail: String) -> Fault {
        let share = NonZeroU32::new(share);
        Fault { share, ..Fault::because(FaultKind::RateLimited, detail).of_limit(limit) }
    }

    /// The limit that was reached, if any: the label of the metric of refusals.
    pub fn limit_hit(&self) -> Option<&'static str> {
        self.limit.or(self.kind.limit())
    }

    /// Invalid parameters: the field, and the error in it.
    pub fn param(field: &'static str, detail: impl Into<Cow<'static, str>>) -> Fault {
        let detail = detail.into();
        Fault { detail, field: Some(field), ..Fault::new(FaultKind::InvalidParams) }
    }

    /// Seconds in `RetryInfo`: `retry_s`, or 1 if the server shuts down. `None` for other limits of
    /// this server, since client libraries would retry automatically.
    pub fn retry_after_s(&self) -> Option<u32> {
        self.retry_s.or((self.kind == FaultKind::ShuttingDown).then_some(1))
    }

    /// The message to show.
    pub fn message(&self) -> &str {
        if self.detail.is_empty() { self.kind.row().message } else { &self.detail }
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault::new(kind)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Fault {}
