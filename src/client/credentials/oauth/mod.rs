//! OAuth 2.0 for clients (RFC 6749): client credentials, refresh, and the device flow (RFC 8628).
//!
//! Invariant: pure functions build requests and read responses; only `run` awaits a transport.
//! Every URL was named by the caller, or by the metadata of an issuer that the caller named (RFC
//! 8414, OpenID Connect Discovery), never by a card.

mod cache;
mod metadata;
mod request;
mod response;
mod run;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::fmt;

use crate::client::{HttpOrigin, HttpUrl, TransportError};

use super::Secret;

pub use cache::{HeldToken, TokenCache};
pub use metadata::{metadata_urls, read_metadata};
pub use request::OAuthRequest;
pub use response::{DeviceCode, DevicePoll, Token, read_device_code, read_token};
pub use run::{
    fetch_device_code, fetch_token, oauth_exchange, poll_device, refresh_token, resolve_server,
};

/// A client as registered at its authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthClient {
    /// The id.
    pub id: String,
    /// The secret; a public client has none and can only use the device flow.
    pub secret: Option<Secret>,
    /// The requested scopes; empty: the server's default.
    pub scopes: Vec<String>,
    /// The endpoints.
    pub source: OAuthSource,
    /// True: id and secret are sent in the body instead of `Authorization` (RFC 6749 §2.3.1).
    pub authenticates_in_body: bool,
    /// True: the source may be another machine over plain http.
    pub allows_plain_http: bool,
}

impl OAuthClient {
    /// A public client.
    pub fn new(id: impl Into<String>, source: OAuthSource) -> OAuthClient {
        OAuthClient {
            id: id.into(),
            secret: None,
            scopes: Vec::new(),
            source,
            authenticates_in_body: false,
            allows_plain_http: false,
        }
    }
}

/// The endpoints, as the caller names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OAuthSource {
    /// These URLs.
    Server(AuthorizationServer),
    /// The endpoints in the metadata of this issuer.
    Issuer(HttpUrl),
}

/// The endpoints of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// The token endpoint (RFC 6749 §3.2).
    pub token_url: HttpUrl,
    /// The device authorization endpoint (RFC 8628 §3.1).
    pub device_url: Option<HttpUrl>,
}

/// Why no token could be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OAuthError {
    /// The server refused the request, with an error code (RFC 6749 §5.2, RFC 8628 §3.5).
    Refused {
        /// The code: `invalid_client`, `invalid_grant`, ...
        code: String,
        /// The server's description, for people; may be empty.
        description: String,
    },
    /// The user has not answered yet.
    Pending,
    /// As [`OAuthError::Pending`], and the server requests longer intervals.
    SlowDown,
    /// The user refused.
    Denied,
    /// The user took too long.
    Expired,
    /// The response is not valid in OAuth; the reason.
    Unreadable(&'static str),
    /// The response has this status, and no error code.
    Status(u16),
    /// The secret would be sent to another machine over plain http.
    PlainHttp(HttpOrigin),
    /// The metadata belongs to another issuer.
    Issuer(String),
    /// The flow needs a secret, and the client has none.
    NoSecret,
    /// The server has no device flow, or its URL is missing.
    NoDeviceFlow,
    /// No response was received.
    Transport(TransportError),
}

impl fmt::Display for OAuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OAuthError::Refused { code, description } => {
                write!(f, "the authorization server refused: {code}")?;
                if description.is_empty() { Ok(()) } else { write!(f, " ({description})") }
            }
            OAuthError::Pending => f.write_str("the sign-in is not confirmed yet"),
            OAuthError::SlowDown => f.write_str("the authorization server is polled too often"),
            OAuthError::Denied => f.write_str("the sign-in was denied"),
            OAuthError::Expired => f.write_str("the sign-in was not confirmed in time"),
            OAuthError::Unreadable(why) => {
                write!(f, "the authorization server's response is not valid OAuth: {why}")
            }
            OAuthError::Status(status) => {
                write!(f, "the authorization server answered with HTTP {status}")
            }
            OAuthError::PlainHttp(origin) => {
                write!(f, "the client secret would be sent to {origin} without TLS")
            }
            OAuthError::Issuer(issuer) => {
                write!(f, "the metadata names the issuer {issuer:?}, which was not requested")
            }
            OAuthError::NoSecret => f.write_str("the OAuth client has no secret"),
            OAuthError::NoDeviceFlow => {
                f.write_str("the authorization server has no device authorization endpoint")
            }
            OAuthError::Transport(error) => write!(f, "cannot get a token: {error}"),
        }
    }
}

impl std::error::Error for OAuthError {}

impl From<TransportError> for OAuthError {
    fn from(error: TransportError) -> OAuthError {
        OAuthError::Transport(error)
    }
}
