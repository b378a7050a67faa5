//! Errors of calls, by the kinds that a report counts.

use std::borrow::Cow;

use crate::client::{ClientError, ClientErrorKind, TransportError};

/// The reason why a call counts as failed.
#[derive(Debug)]
pub(super) struct CallFailure {
    /// The kind, in lower-case words with underscores.
    pub kind: Cow<'static, str>,
    /// One sentence about this failure.
    pub detail: String,
}

impl CallFailure {
    /// An incorrect answer.
    pub fn wrong(kind: &'static str, detail: impl Into<String>) -> CallFailure {
        CallFailure { kind: Cow::Borrowed(kind), detail: detail.into() }
    }
}

impl From<ClientError> for CallFailure {
    fn from(error: ClientError) -> CallFailure {
        let kind = match &error.kind {
            ClientErrorKind::Transport(error) => Cow::Borrowed(transport_kind(error)),
            ClientErrorKind::NotA2a(status) => Cow::Owned(format!("http_{status}")),
            ClientErrorKind::Unauthorized => Cow::Borrowed("unauthorized"),
            ClientErrorKind::Forbidden => Cow::Borrowed("forbidden"),
            ClientErrorKind::Fault(fault) => match (fault.kind, fault.http) {
                (Some(kind), _) => Cow::Owned(snake_case(&format!("{kind:?}"))),
                (None, Some(status)) => Cow::Owned(format!("http_{status}")),
                (None, None) => Cow::Borrowed("unknown_fault"),
            },
            // JSON-RPC 2.0 §5: an answer has the id of its call.
            ClientErrorKind::Unreadable(error) if error.path == "id" => Cow::Borrowed("other_id"),
            ClientErrorKind::Unreadable(_) => Cow::Borrowed("unreadable"),
            ClientErrorKind::OtherTask => Cow::Borrowed("other_task"),
            ClientErrorKind::StreamLost => Cow::Borrowed("stream_lost"),
            ClientErrorKind::NotDeclared(_) => Cow::Borrowed("not_declared"),
            ClientErrorKind::NotExpressible(_) => Cow::Borrowed("not_expressible"),
            ClientErrorKind::Credentials(_) => Cow::Borrowed("credentials"),
            ClientErrorKind::Url(_)
            | ClientErrorKind::InvalidField
            | ClientErrorKind::Redirect(_)
            | ClientErrorKind::NoCard(_)
            | ClientErrorKind::Card(_)
            | ClientErrorKind::CardSignature(_)
            | ClientErrorKind::NoInterface
            | ClientErrorKind::BelowFloor { .. }
            | ClientErrorKind::NoTenant => Cow::Borrowed("client"),
        };
        CallFailure { kind, detail: error.detail.clone() }
    }
}

fn transport_kind(error: &TransportError) -> &'static str {
    match error {
        TransportError::Resolve(_) => "resolve",
        TransportError::Connect(_) => "connect",
        TransportError::Refused(_) => "refused",
        TransportError::Tls(_) => "tls",
        TransportError::Proxy(_) => "proxy",
        TransportError::NoHttp2 => "no_http2",
        TransportError::Timeout(_) => "timeout",
        TransportError::Closed { .. } => "closed",
        TransportError::Malformed(_) => "malformed",
        TransportError::TooLarge(_) => "too_large",
        TransportError::Coding(_) => "coding",
        TransportError::Http2(_) => "http2",
        TransportError::Io(_) => "io",
    }
}

/// A name in snake case: `TaskNotFound` becomes `task_not_found`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (index, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
