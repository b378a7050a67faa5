//! What can go wrong with a call, sorted by whose doing it is.

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

/// Why a call has no result. As small as a pointer, since every step of a call may return it; it
/// reads as the [`ErrorDetails`] that it points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError(Box<ErrorDetails>);

/// What there is to say about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDetails {
    /// What went wrong.
    pub kind: ClientErrorKind,
    /// One sentence for a human, without secrets.
    pub detail: String,
    /// After how many milliseconds the server wants to be asked again, if it said so.
    pub retry_after_ms: Option<u64>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientErrorKind {
    /// The URL cannot be called.
    Url(UrlError),
    /// A field that the caller adds cannot be sent.
    InvalidField,
    /// There is no response, or none that is whole.
    Transport(TransportError),
    /// A redirect that is not followed.
    Redirect(RedirectError),
    /// There is no card at the URL; the HTTP status.
    NoCard(u16),
    /// The card is none that can be used.
    Card(CardError),
    /// The card is not one that a key of the caller has signed, and the caller has named keys.
    CardSignature(SignatureError),
    /// No interface of the card has a binding that is spoken here and asked for.
    NoInterface,
    /// All interfaces of the card are of versions below the floor.
    BelowFloor {
        /// The newest of their versions.
        newest: ProtocolVersion,
        /// The floor.
        floor: ProtocolVersion,
    },
    /// The interface has no place for the tenant that the caller wants.
    NoTenant,
    /// The card says that the agent does not do it; what.
    NotDeclared(&'static str),
    /// The generation or dialect of the server has no way to say it.
    NotExpressible(NotExpressible),
    /// The credentials are missing, may not go there, or could not be obtained.
    Credentials(CredentialsError),
    /// The server wants other credentials (HTTP 401, gRPC `UNAUTHENTICATED`).
    Unauthorized,
    /// The server does not allow it (HTTP 403, gRPC `PERMISSION_DENIED`).
    Forbidden,
    /// The server answered with an error.
    Fault(Box<PeerFault>),
    /// The server answered with what is not understood.
    Unreadable(Box<ReadError>),
    /// The response is none of A2A; its HTTP status.
    NotA2a(u16),
    /// The server answered with another task, or sent an event of one.
    OtherTask,
    /// The stream broke before it said its task, so it cannot be resumed.
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
    /// An error with a sentence of its own.
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

    /// The fault that the server answered with.
    pub fn fault(&self) -> Option<&PeerFault> {
        match &self.kind {
            ClientErrorKind::Fault(fault) => Some(fault),
            _ => None,
        }
    }

    /// The kind of fault that the server answered with, where it is one that is known.
    pub fn fault_kind(&self) -> Option<FaultKind> {
        self.fault().and_then(|fault| fault.kind)
    }

    /// What the failure says about the request, for callers that would repeat it.
    pub(super) fn failure(&self) -> Failure {
        match &self.kind {
            ClientErrorKind::Transport(error) => Failure::of_transport(error),
            ClientErrorKind::NotA2a(status) => {
                Failure::of_status(*status, self.retry_after_ms.is_some())
            }
            ClientErrorKind::Fault(fault) => match (fault.kind, fault.http) {
                (Some(FaultKind::Overloaded | FaultKind::RateLimited), _) => Failure::Unhandled,
                // Said of calls that wait, too, whose task there is already.
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

    /// True: the same may be answered later: the server refuses it for now, or it is unknown what
    /// it would have said.
    pub(super) fn is_for_now(&self) -> bool {
        self.is_connection_lost() || self.failure() != Failure::Lasting
    }

    /// True: the server has refused the call before it did anything for it, but may not refuse it
    /// with another token, in another version, or later.
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

    /// True: another look at a task may succeed that failed so while the task is waited for: the
    /// server is out of reach or refuses for now, has failed itself (-32603, HTTP 500), or is a
    /// replica that does not know the task yet (-32001).
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

    /// True: the server has no streams, or not this one, and has done nothing: the same message may
    /// be sent without one. Servers over HTTP+JSON may lack the path.
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

    /// True: there was no connection, so that nothing was sent.
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

    /// True: there was no response of the server.
    pub fn is_connection_lost(&self) -> bool {
        match &self.kind {
            ClientErrorKind::Transport(error) => error.is_connection_lost(),
            // A gateway on the way has lost its own connection.
            ClientErrorKind::NotA2a(status) => matches!(status, 502..=504),
            ClientErrorKind::Fault(fault) => match fault.kind {
                Some(kind) => kind == FaultKind::ShuttingDown,
                // What gateways and libraries of gRPC say of the same.
                None => {
                    fault.http.is_none() && fault.canonical() == Some(CanonicalCode::Unavailable)
                }
            },
            _ => false,
        }
    }
}

impl TransportError {
    /// True: a connection was waited for, for as long as it may take.
    pub(super) fn is_connect_timeout(&self) -> bool {
        matches!(self, TransportError::Timeout("connection"))
    }

    /// True: the server did not refuse anything, its connection is gone or was never there.
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

/// A caller without permission gets that from HTTP or gRPC, whatever is said beside it.
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
    fn a_server_that_ends_may_have_begun_the_task() {
        let failure = |kind| {
            let fault = PeerFault { kind: Some(kind), http: Some(503), ..PeerFault::default() };
            ClientError::from(CallError::Fault(Box::new(fault))).failure()
        };
        assert_eq!(failure(FaultKind::ShuttingDown), Failure::Unknown);
        assert_eq!(failure(FaultKind::Overloaded), Failure::Unhandled);
        assert_eq!(failure(FaultKind::TaskNotFound), Failure::Lasting);
    }

    #[test]
    fn who_may_not_call_is_told_so_over_grpc_as_over_http() {
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
