//! Translates errors of the upstream call into faults for the caller.

use crate::{
    client::{
        Client, ClientError, ClientErrorKind, Transport, TransportError,
        credentials::{CredentialsError, OAuthError},
    },
    fault::{CanonicalCode, Fault, FaultKind},
    service::upstream::UpstreamOutcome,
};

/// The upstream agent's own fault, if it answered with a fault; otherwise a fault with the reason
/// why it did not answer.
pub fn fault_of(error: &ClientError) -> Fault {
    let (kind, detail) = match &error.kind {
        ClientErrorKind::Fault(fault) => {
            let kind = fault.kind.unwrap_or_else(|| kind_of_status(fault.http, fault.canonical()));
            (kind, fault.message.clone())
        }
        ClientErrorKind::NotA2a(429) => {
            (FaultKind::Overloaded, format!("the upstream agent refused the call: {error}"))
        }
        // The upstream agent's version, binding or card cannot express the call.
        ClientErrorKind::NotExpressible(_) | ClientErrorKind::NotDeclared(_) => (
            FaultKind::UnsupportedOperation,
            format!("the upstream agent does not support this: {error}"),
        ),
        // The gateway's own credentials were refused; its caller cannot fix that.
        ClientErrorKind::Unauthorized | ClientErrorKind::Forbidden => (
            FaultKind::Internal,
            format!("the upstream agent rejected the gateway's credentials: {error}"),
        ),
        ClientErrorKind::Credentials(CredentialsError::OAuth(OAuthError::Transport(_))) => {
            (FaultKind::ShuttingDown, format!("the upstream agent cannot be called: {error}"))
        }
        ClientErrorKind::Credentials(_) => {
            (FaultKind::Internal, format!("the gateway cannot call the upstream agent: {error}"))
        }
        _ if error.is_connection_lost() => {
            (FaultKind::ShuttingDown, format!("the upstream agent cannot be reached: {error}"))
        }
        _ => (FaultKind::InvalidAgentResponse, format!("the upstream call failed: {error}")),
    };
    let retry_s =
        error.retry_after_ms.map(|ms| u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX));
    Fault { retry_s, ..Fault::because(kind, detail) }
}

/// True: the upstream agent does not know the requested task.
pub fn is_unknown_task(error: &ClientError) -> bool {
    error.fault().is_some_and(|fault| match fault.kind {
        Some(kind) => kind == FaultKind::TaskNotFound,
        None => fault.canonical() == Some(CanonicalCode::NotFound),
    })
}

/// The kind of fault for a status without an A2A reason, as sent by proxies and gRPC libraries.
fn kind_of_status(http: Option<u16>, canonical: Option<CanonicalCode>) -> FaultKind {
    match (http, canonical) {
        (Some(429), _) | (_, Some(CanonicalCode::ResourceExhausted)) => FaultKind::Overloaded,
        (Some(502..=504), _) | (_, Some(CanonicalCode::Unavailable)) => FaultKind::ShuttingDown,
        (_, _) => FaultKind::Internal,
    }
}

/// The fault of a call of this client. If the client sends the caller's credential, its rejection
/// is reported as an error of the caller.
pub fn fault_of_call<T: Transport>(client: &Client<T>, error: &ClientError) -> Fault {
    let kind = match &error.kind {
        ClientErrorKind::Unauthorized => FaultKind::Unauthenticated,
        ClientErrorKind::Forbidden => FaultKind::PermissionDenied,
        _ => return fault_of(error),
    };
    match client.passes_authorization() {
        true => Fault::because(kind, format!("the upstream agent rejected the caller: {error}")),
        false => fault_of(error),
    }
}

/// The outcome of a failed upstream call.
pub fn outcome_of(error: &ClientError) -> UpstreamOutcome {
    match &error.kind {
        ClientErrorKind::Fault(_) => UpstreamOutcome::Fault,
        ClientErrorKind::Unauthorized
        | ClientErrorKind::Forbidden
        | ClientErrorKind::Credentials(_) => UpstreamOutcome::Unauthorized,
        ClientErrorKind::NotExpressible(_)
        | ClientErrorKind::NotDeclared(_)
        | ClientErrorKind::NoTenant
        | ClientErrorKind::NoInterface
        | ClientErrorKind::BelowFloor { .. } => UpstreamOutcome::Unsupported,
        ClientErrorKind::Transport(error) => transport_outcome(error),
        _ if error.is_connection_lost() => UpstreamOutcome::Unreachable,
        _ => UpstreamOutcome::InvalidAnswer,
    }
}

/// As [`outcome_of`], for a call without a complete response.
pub fn transport_outcome(error: &TransportError) -> UpstreamOutcome {
    match error {
        TransportError::Timeout(_) => UpstreamOutcome::Timeout,
        TransportError::Malformed(_)
        | TransportError::TooLarge(_)
        | TransportError::Coding(_)
        | TransportError::NoHttp2 => UpstreamOutcome::InvalidAnswer,
        TransportError::Resolve(_)
        | TransportError::Connect(_)
        | TransportError::Refused(_)
        | TransportError::Tls(_)
        | TransportError::Proxy(_)
        | TransportError::Closed { .. }
        | TransportError::Http2(_)
        | TransportError::Io(_) => UpstreamOutcome::Unreachable,
    }
}
