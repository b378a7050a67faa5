//! How callers authenticate (A2A 1.0 §4.5), in the form of 1.0.
//!
//! Invariant: an unknown scheme stays on the card: what requires it is not free of charge.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};

/// Schemes by their names.
pub type SecuritySchemes = BTreeMap<String, SecurityScheme>;

/// One way to authenticate (A2A 1.0 §4.5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SecurityScheme {
    /// A key in a field, in the query or in a cookie.
    #[serde(rename = "apiKeySecurityScheme")]
    ApiKey(ApiKeyScheme),
    /// A scheme of RFC 9110 §11, mostly `Bearer` or `Basic`.
    #[serde(rename = "httpAuthSecurityScheme")]
    Http(HttpAuthScheme),
    /// OAuth 2.0.
    #[serde(rename = "oauth2SecurityScheme")]
    OAuth2(OAuth2Scheme),
    /// OpenID Connect.
    #[serde(rename = "openIdConnectSecurityScheme")]
    OpenIdConnect(OpenIdConnectScheme),
    /// A client certificate.
    #[serde(rename = "mtlsSecurityScheme")]
    MutualTls(MutualTlsScheme),
    /// One that is not known here, by its type as said; it is written as an empty object.
    #[serde(untagged, serialize_with = "empty_object")]
    Unknown(String),
}

/// A key that the server has given out (A2A 1.0 §4.5.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiKeyScheme {
    /// For humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it stands.
    pub location: ApiKeyLocation,
    /// The name of the field, of the query parameter or of the cookie.
    pub name: String,
}

/// Where an API key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiKeyLocation {
    /// In a field of the request.
    Header,
    /// In the query of the URL.
    Query,
    /// In a cookie.
    Cookie,
}

/// A scheme of HTTP (A2A 1.0 §4.5.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthScheme {
    /// For humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its name, in any case: `Bearer`, `Basic`.
    pub scheme: String,
    /// What bearer tokens are made of, for humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_format: String,
}

/// OAuth 2.0 (A2A 1.0 §4.5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2Scheme {
    /// For humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How tokens can be had. Cards of 0.x may name several flows, of which 1.0 has a place for
    /// the first.
    #[serde(serialize_with = "one_flow")]
    pub flows: Vec<OAuthFlow>,
    /// Where the authorization server describes itself (RFC 8414).
    #[serde(rename = "oauth2MetadataUrl", skip_serializing_if = "String::is_empty")]
    pub metadata_url: String,
}

/// How an access token is had (A2A 1.0 §4.5.7): what the *card* says of it. A client secret goes to
/// no URL from here; see the credentials' policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlow {
    /// Which flow it is.
    #[serde(skip)]
    pub kind: OAuthFlowKind,
    /// Where a human says yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    /// Where a device asks for its codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_authorization_url: Option<String>,
    /// Where tokens are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// Where tokens are renewed, if elsewhere.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refresh_url: String,
    /// Scopes and what they allow, for humans.
    pub scopes: BTreeMap<String, String>,
    /// Whether PKCE is required (RFC 7636).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pkce_required: bool,
}

/// The flows of OAuth 2.0 that cards name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OAuthFlowKind {
    /// RFC 6749 §4.1
    AuthorizationCode,
    /// RFC 6749 §4.4
    ClientCredentials,
    /// RFC 6749 §4.2
    Implicit,
    /// RFC 6749 §4.3
    Password,
    /// RFC 8628
    DeviceCode,
}

impl OAuthFlowKind {
    /// Every flow, in the order in which one is taken for 1.0, which has a place for one.
    pub const ALL: [OAuthFlowKind; 5] = [
        OAuthFlowKind::AuthorizationCode,
        OAuthFlowKind::ClientCredentials,
        OAuthFlowKind::Implicit,
        OAuthFlowKind::Password,
        OAuthFlowKind::DeviceCode,
    ];

    /// Its member in `flows`.
    pub const fn name(self) -> &'static str {
        match self {
            OAuthFlowKind::AuthorizationCode => "authorizationCode",
            OAuthFlowKind::ClientCredentials => "clientCredentials",
            OAuthFlowKind::Implicit => "implicit",
            OAuthFlowKind::Password => "password",
            OAuthFlowKind::DeviceCode => "deviceCode",
        }
    }
}

/// OpenID Connect (A2A 1.0 §4.5.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenIdConnectScheme {
    /// For humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where the issuer describes itself.
    pub open_id_connect_url: String,
}

/// A client certificate (A2A 1.0 §4.5.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MutualTlsScheme {
    /// For humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

impl SecurityScheme {
    /// What it is called in messages to humans.
    pub fn kind(&self) -> &str {
        match self {
            SecurityScheme::ApiKey(_) => "apiKey",
            SecurityScheme::Http(http) => &http.scheme,
            SecurityScheme::OAuth2(_) => "oauth2",
            SecurityScheme::OpenIdConnect(_) => "openIdConnect",
            SecurityScheme::MutualTls(_) => "mutualTLS",
            SecurityScheme::Unknown(kind) => kind,
        }
    }
}

/// Names of schemes of which *all* are needed, each with its scopes (A2A 1.0 §4.5.1); a list of
/// requirements is met when one of them is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityRequirement {
    /// Scopes by the name of their scheme.
    pub schemes: BTreeMap<String, Vec<String>>,
}

impl Serialize for SecurityRequirement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StringList<'a> {
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            list: &'a [String],
        }
        let lists = self.schemes.iter().map(|(name, list)| (name, StringList { list }));
        let mut map = serializer.serialize_map(Some(1))?;
        if !self.schemes.is_empty() {
            map.serialize_entry("schemes", &lists.collect::<BTreeMap<_, _>>())?;
        }
        map.end()
    }
}

// serde gives a reference to the field's type.
#[allow(clippy::ptr_arg)]
fn one_flow<S: Serializer>(flows: &Vec<OAuthFlow>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    if let Some(flow) = flows.first() {
        map.serialize_entry(flow.kind.name(), flow)?;
    }
    map.end()
}

#[allow(clippy::ptr_arg)]
fn empty_object<S: Serializer>(_: &String, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_map(Some(0))?.end()
}
