//! Describes errors of the transport.

use peregrine::{client::TransportError, fault::FaultKind};

use super::{
    super::super::{failure::FailureCode, reference::is_loopback},
    Invocation, cut_hint, named,
};

/// The code of a transport error.
pub fn transport_code(on: &Invocation<'_>, error: &TransportError) -> FailureCode {
    match error {
        TransportError::Resolve(_)
        | TransportError::Connect(_)
        | TransportError::Refused(_)
        | TransportError::Tls(_)
        | TransportError::Proxy(_)
        | TransportError::NoHttp2
        | TransportError::Timeout(_)
        | TransportError::Closed { .. }
        | TransportError::Http2(_)
        | TransportError::Io(_) => FailureCode::Unreachable,
        // The host responds, but not as an agent.
        error if on.card().is_none() && error.is_not_http() => FailureCode::Unreachable,
        // The response is malformed; the first response is the card.
        TransportError::Malformed(_) | TransportError::TooLarge(_) | TransportError::Coding(_) => {
            match on.card() {
                Some(_) => named(FaultKind::InvalidAgentResponse),
                None => FailureCode::CardInvalid,
            }
        }
    }
}

/// The hint for a transport error.
pub fn transport_hint(on: &Invocation<'_>, error: &TransportError) -> Option<String> {
    let reference = on.settings.text("agent-card").unwrap_or_default();
    let is_bare = !reference.contains("://") && !is_loopback(reference);
    match error {
        TransportError::Tls(_) if reference.starts_with("http://") && on.card().is_some() => {
            let card = on.card()?;
            let url = card.interfaces.iter().find(|one| one.url.starts_with("https:"))?.url.clone();
            Some(format!(
                "the card names {url}; if the agent has no TLS the card is wrong: use --endpoint \
                 URL --transport NAME instead"
            ))
        }
        TransportError::Tls(_) => Some(
            "trust another authority with --ca FILE; use http:// for an agent without TLS"
                .to_owned(),
        ),
        TransportError::Connect(_) if is_bare => Some(format!(
            "a host without a scheme is called over https; for http use -a http://{reference}"
        )),
        error if error.is_not_http() && !reference.starts_with("https:") => {
            Some("if the agent uses TLS, add https:// in front".to_owned())
        }
        TransportError::NoHttp2 => Some("--transport jsonrpc, or http+json".to_owned()),
        TransportError::Timeout(_)
        | TransportError::Closed { .. }
        | TransportError::Http2(_)
        | TransportError::Io(_)
        | TransportError::Malformed(_)
        | TransportError::TooLarge(_)
        | TransportError::Coding(_) => cut_hint(on),
        TransportError::Connect(_)
        | TransportError::Resolve(_)
        | TransportError::Refused(_)
        | TransportError::Proxy(_) => None,
    }
}
