//! Credentials: the caller's, the ones that a card requires, and where they may be sent.
//!
//! Invariant: a credential is sent to the origin of the card, over TLS or to this machine, and
//! nowhere else unless the caller allows it. A client secret is sent to a token URL, or to the
//! token URL in the metadata of an issuer, that the *caller* named, never to a URL that a card
//! names. No `Debug`, `Display` or error contains a secret.

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

/// The credentials of a caller; the card decides which are used.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// For schemes of the kind `apiKey`.
    pub api_key: Option<Secret>,
    /// A token for bearer schemes, OAuth 2.0 and OpenID Connect.
    pub bearer: Option<Secret>,
    /// User and password for the scheme Basic (RFC 7617).
    pub basic: Option<(String, Secret)>,
    /// How to get a token if `bearer` is `None`.
    pub oauth: Option<OAuthClient>,
    /// True: each call brings the `Authorization` of the caller on whose behalf it is made, instead
    /// of `bearer`, `basic` and `oauth`. It is sent only to the origin of the card.
    pub passes_authorization: bool,
    /// True: the transport has a client certificate.
    pub has_certificate: bool,
    /// True: credentials may be sent to other machines over plain http.
    pub allows_plain_http: bool,
    /// True: credentials may be sent to interfaces on another origin than the card's.
    pub allows_other_origins: bool,
}
