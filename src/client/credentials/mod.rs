//! The credentials of the caller, the requirements of a card, and where credentials may be sent.
//!
//! Invariant: a credential is sent to the origin of the card, over TLS or to this machine, and
//! nowhere else unless the caller allows it. A client secret is sent only to a token URL that the
//! *caller* named, or that is in the metadata of an issuer that the caller named, never to a URL of
//! a card. No `Debug`, `Display` or error contains a secret.

mod error;
mod field;
mod oauth;
mod plan;
mod secret;

pub use error::CredentialsError;
pub(super) use field::check_fields;
pub use oauth::{
    AuthorizationServer, DeviceCode, DevicePoll, HeldToken, OAuthClient, OAuthError, OAuthRequest,
    OAuthSource, Token, TokenCache, fetch_device_code, fetch_token, metadata_urls, oauth_exchange,
    poll_device, read_device_code, read_metadata, read_token, refresh_token, resolve_server,
};
#[cfg(feature = "gateway")]
pub(crate) use plan::plan_without_card;
pub use plan::{CredentialPlan, plan};
pub use secret::Secret;

/// The credentials of a caller; the card decides which of them are used.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The key for schemes of the kind `apiKey`.
    pub api_key: Option<Secret>,
    /// A token for bearer schemes, OAuth 2.0 and OpenID Connect.
    pub bearer: Option<Secret>,
    /// User and password for the scheme Basic (RFC 7617).
    pub basic: Option<(String, Secret)>,
    /// How to get a token if `bearer` is `None`.
    pub oauth: Option<OAuthClient>,
    /// True: each call passes on the `Authorization` of the caller that it serves, instead of
    /// `bearer`, `basic` and `oauth`. This field is sent only to the origin of the card.
    pub passes_authorization: bool,
    /// True: the transport has a client certificate.
    pub has_certificate: bool,
    /// True: credentials may be sent to other machines over plain http.
    pub allows_plain_http: bool,
    /// True: credentials may be sent to interfaces at origins other than the card's.
    pub allows_other_origins: bool,
}
