//! Errors of calls, sorted by blame.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::{
    fault::{CanonicalCode, FaultKind, PeerFault},
    model::{NotExpressible, ReadError},
};

use super::{
    CallError, ProtocolVersion, TransportError, UrlError,
    card::{CardError, SignatureError},
    credentials::CredentialsError,
    redirect::RedirectError,
    retry::Failure,
};

/// Why a call has no result. The error has the size of a pointer, because every step of a call may
/// return it, and dereferences to [`ErrorDetails`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError(Box<ErrorDetails>);

/// The details of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDetails {
    /// The kind.
    pub kind: ClientErrorKind,
    /// One sentence for a person, without secrets.
    pub detail: String,
    /// Milliseconds after which the server accepts a repetition, if the server names a time.
    pub retry_after_ms: Option<u64>,
}

/// The kind of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientErrorKind {
    /// The URL cannot be called.
    Url(UrlError),
    /// A field of the caller cannot be sent.
    InvalidField,
    /// No response arrived, or only a part of it.
    Transport(TransportError),
    /// A redirect that the client does not follow.
    Redirect(RedirectError),
    /// The URL has no card; the HTTP status.
    NoCard(u16),
    /// The card cannot be used.
    Card(CardError),
    /// No key of the caller has signed the card.
    CardSignature(SignatureError),
    /// No interface of the card has a binding that the client speaks and the caller allows.
    NoInterface,
    /// All interfaces of the card are of versions below the floor.
    BelowFloor {
        /// The newest version of the interfaces.
        newest: ProtocolVersion,
        /// The floor.
        floor: ProtocolVersion,
    },
    /// The interface has no position for the tenant that the caller wants.
    NoTenant,
    /// The card does not declare this feature.
    NotDeclared(&'static str),
    /// The generation or dialect of the server cannot express the call.
    NotExpressible(NotExpressible),
    /// The credentials are missing, may not be sent to the interface, or could not be obtained.
    Credentials(CredentialsError),
    /// The server requires other credentials (HTTP 401, gRPC `UNAUTHENTICATED`).
    Unauthorized,
    /// The server denies permission (HTTP 403, gRPC `PERMISSION_DENIED`).
    Forbidden,
    /// The server answered with an error.
    Fault(Box<PeerFault>),
    /// The server's answer is invalid.
    Unreadable(Box<ReadError>),
    /// The response is not A2A; its HTTP status.
    NotA2a(u16),
    /// The server answered with another task, or sent an event of another task.
    OtherTask,
    /// The stream broke before it named its task, so it cannot be resumed.
    StreamLost,
}

impl Deref for ClientError {
    type Target = ErrorDetails;

    fn deref(&self) -> &ErrorDetails {
        &self.0
    }
}

impl DerefMut for ClientError {
    fn deref_mut(&mut self) -> &mut ErrorDetails {
        &mut self.0
    }
}

impl ClientError {
    /// An error with this sentence as its detail.
    #[cold]
    pub fn because(kind: ClientErrorKind, detail: impl Into<String>) -> ClientError {
        let detail = detail.into();
        ClientError(Box::new(ErrorDetails { kind, detail, retry_after_ms: None }))
    }

    #[cold]
    pub(super) fn stream_lost() -> ClientError {
        const WHY: &str = "the stream ended before it named its task";
        ClientError::because(ClientErrorKind::StreamLost, WHY)
    }

    #[cold]
    pub(super) fn of_another_task() -> ClientError {
        const WHY: &str = "the server answered with another task, or sent an event of another task";
        ClientError::because(ClientErrorKind::OtherTask, WHY)
    }

    /// The fault in the server's answer.
    pub fn fault(&self) -> Option<&PeerFault> {
        match &self.kind {
            ClientErrorKind::Fault(fault) => Some(fault),
            _ => None,
        }
    }

    /// The kind of the server's fault, if it is a known one.
    pub fn fault_kind(&self) -> Option<FaultKind> {
        self.fault().and_then(|fault| fault.kind)
    }

    /// The failure, for callers that decide whether to repeat the request.
    pub(super) fn failure(&self) -> Failure {
        match &self.kind {
            ClientErrorKind::Transport(error) => Failure::of_transport(error),
            ClientErrorKind::NotA2a(status) => {
                Failure::of_status(*status, self.retry_after_ms.is_some())
            }
            ClientErrorKind::Fault(fault) => match (fault.kind, fault.http) {
                (Some(FaultKind::Overloaded | FaultKind::RateLimited), _) => Failure::Unhandled,
                // The server also sends this fault to waiting calls, after their task was created.
                (Some(FaultKind::ShuttingDown), _) => Failure::Unknown,
                (None, Some(status)) => Failure::of_status(status, self.retry_after_ms.is_some()),
                (None, None) => {
                    Failure::of_canonical(fault.canonical(), self.retry_after_ms.is_some())
                }
                (Some(_), _) => Failure::Lasting,
            },
            _ => Failure::Lasting,
        }
    }

    /// Whether a repetition may get an answer later: the refusal is temporary, or there was no
    /// answer.
    pub(super) fn is_for_now(&self) -> bool {
        self.is_connection_lost() || self.failure() != Failure::Lasting
    }

    /// Whether the server rejected the call before doing anything, and may accept it with another
    /// token, in another version, or later.
    pub(super) fn is_passing_refusal(&self) -> bool {
        match &self.kind {
            ClientErrorKind::Unauthorized => true,
            ClientErrorKind::Fault(fault) => {
                fault.kind == Some(FaultKind::VersionNotSupported)
                    || self.failure() == Failure::Unhandled
            }
            _ => false,
        }
    }

    /// Whether the next poll of a task may succeed: the server is unreachable, refuses temporarily,
    /// reports an internal error (-32603, HTTP 500), or is a replica that does not have the task
    /// yet (-32001).
    pub fn may_pass(&self) -> bool {
        let is_of_server = |status: u16| matches!(status, 408 | 429 | 500..=599);
        let is_passing = match &self.kind {
            ClientErrorKind::NotA2a(status) => is_of_server(*status),
            ClientErrorKind::Fault(fault) => match fault.kind {
                Some(FaultKind::Internal | FaultKind::TaskNotFound) => true,
                Some(_) => false,
                None => match fault.http {
                    Some(status) => is_of_server(status) || status == 404,
                    None => fault.canonical().is_some_and(|code| {
                        matches!(code, CanonicalCode::Internal | CanonicalCode::NotFound)
                    }),
                },
            },
            _ => false,
        };
        is_passing || self.is_for_now()
    }

    /// Whether the server refused the stream and did nothing, so that the same message may be sent
    /// without a stream. Servers over HTTP+JSON may lack the path.
    pub fn refuses_stream(&self) -> bool {
        let lacks = |status: u16| matches!(status, 404 | 405 | 501);
        match &self.kind {
            ClientErrorKind::NotA2a(status) => lacks(*status),
            ClientErrorKind::Fault(fault) => match fault.kind {
                Some(kind) => matches!(
                    kind,
                    FaultKind::StreamingNotSupported
                        | FaultKind::UnsupportedOperation
                        | FaultKind::MethodNotFound
                ),
                None => fault.http.is_some_and(lacks),
            },
            _ => false,
        }
    }

    /// Whether there was no connection, so that nothing was sent.
    pub(super) fn is_unconnected(&self) -> bool {
        match &self.kind {
            ClientErrorKind::Transport(error) => match error {
                TransportError::Resolve(_)
                | TransportError::Connect(_)
                | TransportError::Tls(_)
                | TransportError::NoHttp2 => true,
                TransportError::Timeout(what) => *what == "connection",
                TransportError::Refused(_)
                | TransportError::Proxy(_)
                | TransportError::Closed { .. }
                | TransportError::Malformed(_)
                | TransportError::TooLarge(_)
                | TransportError::Coding(_)
                | TransportError::Http2(_)
                | TransportError::Io(_) => false,
            },
            _ => false,
        }
    }

    /// Whether the server sent no response.
    pub fn is_connection_lost(&self) -> bool {
        match &self.kind {
            ClientErrorKind::Transport(error) => error.is_connection_lost(),
            // A gateway has lost its own connection to the server.
            ClientErrorKind::NotA2a(status) => matches!(status, 502..=504),
            ClientErrorKind::Fault(fault) => match fault.kind {
                Some(kind) => kind == FaultKind::ShuttingDown,
                // gRPC gateways and libraries report a lost connection by this status.
                None => {
                    fault.http.is_none() && fault.canonical() == Some(CanonicalCode::Unavailable)
                }
            },
            _ => false,
        }
    }
}

impl TransportError {
    /// Whether connecting took the whole time limit.
    pub(super) fn is_connect_timeout(&self) -> bool {
        matches!(self, TransportError::Timeout("connection"))
    }

    /// Whether the connection was lost or not established, without a refusal of the server.
    pub fn is_connection_lost(&self) -> bool {
        match self {
            TransportError::Resolve(_)
            | TransportError::Connect(_)
            | TransportError::Timeout(_)
            | TransportError::Closed { .. }
            | TransportError::Http2(_)
            | TransportError::Io(_) => true,
            TransportError::Tls(_)
            | TransportError::Proxy(_)
            | TransportError::NoHttp2
            | TransportError::Refused(_)
            | TransportError::Malformed(_)
            | TransportError::TooLarge(_)
            | TransportError::Coding(_) => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for ClientError {}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::Transport(error), detail)
    }
}

impl From<UrlError> for ClientError {
    fn from(error: UrlError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::Url(error), detail)
    }
}

impl From<RedirectError> for ClientError {
    fn from(error: RedirectError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::Redirect(error), detail)
    }
}

impl From<CredentialsError> for ClientError {
    fn from(error: CredentialsError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::Credentials(error), detail)
    }
}

impl From<CardError> for ClientError {
    fn from(error: CardError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::Card(error), detail)
    }
}

impl From<SignatureError> for ClientError {
    fn from(error: SignatureError) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::CardSignature(error), detail)
    }
}

impl From<NotExpressible> for ClientError {
    fn from(error: NotExpressible) -> ClientError {
        let detail = error.to_string();
        ClientError::because(ClientErrorKind::NotExpressible(error), detail)
    }
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> ClientError {
        let detail = error.to_string();
        let kind = match error {
            CallError::Fault(fault) => kind_of(fault),
            CallError::Unreadable(error) => ClientErrorKind::Unreadable(error),
            CallError::NotA2a { status: 401, .. } => ClientErrorKind::Unauthorized,
            CallError::NotA2a { status: 403, .. } => ClientErrorKind::Forbidden,
            CallError::NotA2a { status, .. } => ClientErrorKind::NotA2a(status),
        };
        ClientError::because(kind, detail)
    }
}

/// The HTTP or gRPC status reports a missing permission, unless the body has another known fault.
fn kind_of(fault: Box<PeerFault>) -> ClientErrorKind {
    match (fault.kind, fault.http, fault.status.as_deref()) {
        (Some(FaultKind::Unauthenticated) | None, Some(401), _)
        | (Some(FaultKind::Unauthenticated), None, Some("UNAUTHENTICATED"))
        | (None, None, Some("UNAUTHENTICATED")) => ClientErrorKind::Unauthorized,
        (Some(FaultKind::PermissionDenied) | None, Some(403), _)
        | (Some(FaultKind::PermissionDenied), None, Some("PERMISSION_DENIED"))
        | (None, None, Some("PERMISSION_DENIED")) => ClientErrorKind::Forbidden,
        (Some(_) | None, _, _) => ClientErrorKind::Fault(fault),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        binding::interfaces::Binding,
        client::format::{Format, GrpcEnd, ReplyHead},
        model::Generation,
    };

    #[test]
    fn shutdown_fault_leaves_call_outcome_unknown() {
        let failure = |kind| {
            let fault = PeerFault { kind: Some(kind), http: Some(503), ..PeerFault::default() };
            ClientError::from(CallError::Fault(Box::new(fault))).failure()
        };
        assert_eq!(failure(FaultKind::ShuttingDown), Failure::Unknown);
        assert_eq!(failure(FaultKind::Overloaded), Failure::Unhandled);
        assert_eq!(failure(FaultKind::TaskNotFound), Failure::Lasting);
    }

    #[test]
    fn grpc_auth_statuses_map_to_unauthorized_and_forbidden() {
        let head = ReplyHead { status: 200, content_type: Some(b"application/grpc") };
        let format = Format::standard(Binding::Grpc, Generation::V1);
        for (code, kind) in
            [("16", ClientErrorKind::Unauthorized), ("7", ClientErrorKind::Forbidden)]
        {
            let end = GrpcEnd { status: Some(code.as_bytes()), ..GrpcEnd::default() };
            let error = format.grpc_end(head, end).unwrap_err();
            assert_eq!(ClientError::from(error).kind, kind, "{code}");
        }
    }
}
