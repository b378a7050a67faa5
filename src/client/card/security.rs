//! How callers authenticate (A2A 1.0 §4.5), in the form of 1.0.
//!
//! Invariant: an unknown scheme stays on the card, so that its requirement is not lost.

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
    /// An unknown scheme, by its type on the card; it is written as an empty object.
    #[serde(untagged, serialize_with = "empty_object")]
    Unknown(String),
}

/// A key that the server issued (A2A 1.0 §4.5.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiKeyScheme {
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The position of the key.
    pub location: ApiKeyLocation,
    /// The name of the field, of the query parameter or of the cookie.
    pub name: String,
}

/// The position of an API key.
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

/// An HTTP scheme (A2A 1.0 §4.5.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthScheme {
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The name, in upper or lower case: `Bearer`, `Basic`.
    pub scheme: String,
    /// The format of bearer tokens, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer_format: String,
}

/// OAuth 2.0 (A2A 1.0 §4.5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2Scheme {
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How to get tokens. Cards of 0.x may have several flows, cards of 1.0 have one.
    #[serde(serialize_with = "one_flow")]
    pub flows: Vec<OAuthFlow>,
    /// The URL of the authorization server's metadata (RFC 8414).
    #[serde(rename = "oauth2MetadataUrl", skip_serializing_if = "String::is_empty")]
    pub metadata_url: String,
}

/// How to get an access token (A2A 1.0 §4.5.7) according to the *card*. A client secret is never
/// sent to the URLs of a card; see the credentials' policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlow {
    /// The flow.
    #[serde(skip)]
    pub kind: OAuthFlowKind,
    /// The URL where the user grants access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    /// The URL where a device requests its codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_authorization_url: Option<String>,
    /// The token endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// The endpoint that renews tokens; empty: the token endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refresh_url: String,
    /// Scopes and their meaning, for people.
    pub scopes: BTreeMap<String, String>,
    /// Whether PKCE is required (RFC 7636).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pkce_required: bool,
}

/// The OAuth 2.0 flows on cards.
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
    /// All flows, in the order of preference: a card of 1.0 has only one of them.
    pub const ALL: [OAuthFlowKind; 5] = [
        OAuthFlowKind::AuthorizationCode,
        OAuthFlowKind::ClientCredentials,
        OAuthFlowKind::Implicit,
        OAuthFlowKind::Password,
        OAuthFlowKind::DeviceCode,
    ];

    /// The name of the flow's member in `flows`.
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
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The URL of the issuer's metadata.
    pub open_id_connect_url: String,
}

/// A client certificate (A2A 1.0 §4.5.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MutualTlsScheme {
    /// Description, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

impl SecurityScheme {
    /// The name of the scheme in messages for people.
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

/// Schemes that are *all* required, each with its scopes (A2A 1.0 §4.5.1). A list of requirements
/// is met if one of the requirements is met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityRequirement {
    /// Scopes by the name of the scheme.
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

// serde passes a reference to the field's type.
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
