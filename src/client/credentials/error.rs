//! Errors of credentials.

use std::fmt;

use super::OAuthError;
use crate::client::HttpOrigin;

/// Why a call cannot be made with the caller's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialsError {
    /// The card requires one of these alternatives, each with all of its schemes by name and kind.
    Missing(Vec<Vec<(String, String)>>),
    /// The credentials would be sent to another machine over plain http.
    PlainHttp(HttpOrigin),
    /// The credentials would be sent to an origin other than the card's.
    OtherOrigin(HttpOrigin),
    /// The card puts a credential into a field, parameter or cookie that must not hold one.
    Place(String),
    /// The credential for this scheme has bytes that its position does not allow.
    Value(String),
    /// An `Authorization` of another caller cannot be passed on over WebSocket, because calls of
    /// several callers share a connection.
    WebSocket,
    /// No OAuth token is available.
    OAuth(OAuthError),
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialsError::Missing(alternatives) => {
                f.write_str("missing credentials required by the agent: ")?;
                for (at, schemes) in alternatives.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", or " })?;
                    for (at, (name, kind)) in schemes.iter().enumerate() {
                        f.write_str(if at == 0 { "" } else { " and " })?;
                        write!(f, "{name} ({kind})")?;
                    }
                }
                Ok(())
            }
            CredentialsError::PlainHttp(origin) => {
                write!(f, "credentials would go to {origin} without TLS, which is not allowed")
            }
            CredentialsError::OtherOrigin(origin) => {
                write!(f, "credentials would go to {origin}, which is not the origin of the card")
            }
            CredentialsError::Place(name) => {
                write!(f, "the card requires a credential in {name:?}, which cannot carry one")
            }
            CredentialsError::Value(name) => {
                write!(f, "the credential for {name} is empty or has bytes that cannot be sent")
            }
            CredentialsError::WebSocket => {
                f.write_str("WebSocket cannot forward callers' Authorization")
            }
            CredentialsError::OAuth(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for CredentialsError {}

impl From<OAuthError> for CredentialsError {
    fn from(error: OAuthError) -> CredentialsError {
        CredentialsError::OAuth(error)
    }
}
