//! Decides which credentials a card requires, and how each request carries them.
//!
//! Invariant: the client meets the first requirement of the card that it can meet, as a whole (A2A
//! 1.0 §4.5.1: a list is OR, a requirement AND). The destination is checked before a credential is
//! sent. A card chooses the position of an API key, except positions with another meaning.

use std::fmt;

use url::form_urlencoded::byte_serialize;

use crate::{
    client::{
        HttpOrigin,
        card::{AgentCard, ApiKeyLocation, SecurityRequirement, SecurityScheme},
    },
    http::{FieldLines, FieldLinesBuf},
    json::base64,
};

use super::{Credentials, CredentialsError, Secret};

/// The credentials of each request, planned once for a card and an origin.
#[derive(Default)]
pub struct CredentialPlan {
    fields: FieldLinesBuf,
    /// Percent-encoded parameters, joined by `&`.
    query: String,
    needs_token: bool,
    passes_on: bool,
}

impl fmt::Debug for CredentialPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.fields.get().iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("CredentialPlan");
        shown.field("fields", &names).field("has_query", &!self.query.is_empty());
        shown.field("needs_token", &self.needs_token).field("passes_on", &self.passes_on).finish()
    }
}

impl CredentialPlan {
    /// The fields.
    pub fn fields(&self) -> FieldLines<'_> {
        self.fields.get()
    }

    /// Adds the parameters of the query to a target, if there are any.
    pub fn add_query(&self, target: &mut String) {
        if !self.query.is_empty() {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(&self.query);
        }
    }

    /// True: each request also has an OAuth token, from the caller's
    /// [`OAuthClient`](super::OAuthClient).
    pub fn needs_token(&self) -> bool {
        self.needs_token
    }

    /// True: each request passes on the `Authorization` of the call that it serves.
    pub fn passes_on(&self) -> bool {
        self.passes_on
    }

    /// The plan without the fields that the caller sets: of two fields with one name, a server may
    /// use either (RFC 9110 §5.3).
    #[must_use]
    pub fn without(self, own: FieldLines<'_>) -> CredentialPlan {
        let is_own = |name: &str| own.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let mut fields = FieldLinesBuf::default();
        for (name, value) in self.fields.get().iter().filter(|(name, _)| !is_own(name)) {
            fields.push(name, value);
        }
        let needs_token = self.needs_token && !is_own("authorization");
        let passes_on = self.passes_on && !is_own("authorization");
        CredentialPlan { fields, needs_token, passes_on, ..self }
    }

    /// True: the plan adds nothing.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.query.is_empty() && !self.needs_token && !self.passes_on
    }
}

/// Plans the credentials of requests to `to`, an interface of `card`. `is_card_origin` is
/// [`ChosenInterface::is_card_origin`](crate::client::card::ChosenInterface::is_card_origin).
///
/// If a card requires nothing but declares schemes, the first scheme for which the caller has
/// credentials is used. If it declares none, a token or a password is still sent, because both have
/// only one position, `Authorization`.
///
/// # Errors
/// [`CredentialsError`]
pub fn plan(
    card: &AgentCard,
    credentials: &Credentials,
    to: &HttpOrigin,
    is_card_origin: bool,
) -> Result<CredentialPlan, CredentialsError> {
    let requirements = card.security_requirements.as_slice();
    let mut met = requirements.iter().filter_map(|one| met(card, credentials, one));
    // An empty requirement is used last, so that a client with credentials sends them.
    let is_free = requirements.is_empty() || requirements.iter().any(|one| one.schemes.is_empty());
    let uses = match met.find(|uses| !uses.is_empty()) {
        Some(uses) => uses,
        None if is_free => optional(card, credentials),
        None => return Err(CredentialsError::Missing(alternatives(card))),
    };
    let plan = write(credentials, &uses)?;
    if plan.passes_on && !is_card_origin {
        return Err(CredentialsError::OtherOrigin(to.clone()));
    }
    if !plan.is_empty() {
        may_go(credentials, to, is_card_origin)?;
    }
    Ok(plan)
}

/// Plans the credentials of requests to a server without a card: an API key in `X-API-Key`, and a
/// token (the caller's, or one of OAuth) or a password in `Authorization`.
///
/// # Errors
/// [`CredentialsError::PlainHttp`], [`CredentialsError::Value`].
#[cfg(feature = "gateway")]
pub(crate) fn plan_without_card(
    credentials: &Credentials,
    to: &HttpOrigin,
) -> Result<CredentialPlan, CredentialsError> {
    let key =
        Use::ApiKey { name: "X-API-Key", location: ApiKeyLocation::Header, scheme: "api_key" };
    let key = credentials.api_key.as_ref().map(|_| key);
    let uses: Vec<_> = key.into_iter().chain(of_authorization(credentials)).collect();
    let plan = write(credentials, &uses)?;
    if !plan.is_empty() {
        may_go(credentials, to, true)?;
    }
    Ok(plan)
}

/// Whether credentials may be sent to `to`.
pub(super) fn may_go(
    credentials: &Credentials,
    to: &HttpOrigin,
    is_card_origin: bool,
) -> Result<(), CredentialsError> {
    if !is_card_origin && !credentials.allows_other_origins {
        return Err(CredentialsError::OtherOrigin(to.clone()));
    }
    if !to.is_secure() && !to.is_loopback() && !credentials.allows_plain_http {
        return Err(CredentialsError::PlainHttp(to.clone()));
    }
    Ok(())
}

/// A credential, and its scheme.
enum Use<'c> {
    ApiKey {
        name: &'c str,
        location: ApiKeyLocation,
        scheme: &'c str,
    },
    Bearer(&'c str),
    Basic(&'c str),
    Token,
    /// The `Authorization` of the caller that this call serves.
    Passed,
    Certificate,
}

/// The credentials that meet a requirement; `None`: the caller lacks one.
fn met<'c>(
    card: &'c AgentCard,
    credentials: &Credentials,
    requirement: &'c SecurityRequirement,
) -> Option<Vec<Use<'c>>> {
    let names = requirement.schemes.keys();
    names.map(|name| fitting(name, card.security_schemes.get(name), credentials)).collect()
}

/// The caller's credential for a scheme; a scheme that the card does not declare counts as unknown.
fn fitting<'c>(
    name: &'c str,
    scheme: Option<&'c SecurityScheme>,
    credentials: &Credentials,
) -> Option<Use<'c>> {
    let token = || match credentials.passes_authorization {
        true => Some(Use::Passed),
        false => {
            let own = credentials.bearer.as_ref().map(|_| Use::Bearer(name));
            own.or_else(|| credentials.oauth.as_ref().map(|_| Use::Token))
        }
    };
    match scheme {
        Some(SecurityScheme::ApiKey(key)) => {
            let api_key = Use::ApiKey { name: &key.name, location: key.location, scheme: name };
            credentials.api_key.as_ref().map(|_| api_key)
        }
        Some(SecurityScheme::Http(http)) if http.scheme.eq_ignore_ascii_case("bearer") => token(),
        Some(SecurityScheme::Http(http)) if http.scheme.eq_ignore_ascii_case("basic") => {
            let own = || credentials.basic.as_ref().map(|_| Use::Basic(name));
            credentials.passes_authorization.then_some(Use::Passed).or_else(own)
        }
        Some(SecurityScheme::Http(_)) => None,
        Some(SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_)) => token(),
        Some(SecurityScheme::MutualTls(_)) => {
            credentials.has_certificate.then_some(Use::Certificate)
        }
        // The card does not state the position of this API key.
        Some(SecurityScheme::Unknown(kind)) if kind == "apiKey" => None,
        // Schemes of 0.1 have only names; a token is always sent in `Authorization`.
        Some(SecurityScheme::Unknown(_)) | None => token(),
    }
}

/// The credential to use if nothing is required: the first one for a declared scheme, or that for
/// `Authorization` if no scheme is declared.
fn optional<'c>(card: &'c AgentCard, credentials: &Credentials) -> Vec<Use<'c>> {
    let schemes = card.security_schemes.iter();
    let mut fitting = schemes.filter_map(|(name, scheme)| fitting(name, Some(scheme), credentials));
    let first = fitting.find(|one| !matches!(one, Use::Certificate));
    if first.is_some() || !card.security_schemes.is_empty() {
        return first.into_iter().collect();
    }
    of_authorization(credentials).into_iter().collect()
}

/// The content of `Authorization` without a card.
fn of_authorization(credentials: &Credentials) -> Option<Use<'static>> {
    let passed = credentials.passes_authorization.then_some(Use::Passed);
    let bearer = || credentials.bearer.as_ref().map(|_| Use::Bearer("bearer"));
    let token = || credentials.oauth.as_ref().map(|_| Use::Token);
    let basic = || credentials.basic.as_ref().map(|_| Use::Basic("basic"));
    passed.or_else(bearer).or_else(token).or_else(basic)
}

fn alternatives(card: &AgentCard) -> Vec<Vec<(String, String)>> {
    let kind = |name: &String| match card.security_schemes.get(name) {
        Some(scheme) => (name.clone(), scheme.kind().to_owned()),
        None => (name.clone(), "not declared".to_owned()),
    };
    let requirements = card.security_requirements.iter();
    requirements.map(|one| one.schemes.keys().map(kind).collect()).collect()
}

fn write(credentials: &Credentials, uses: &[Use<'_>]) -> Result<CredentialPlan, CredentialsError> {
    let mut plan = CredentialPlan::default();
    let mut cookies: Vec<String> = Vec::new();
    let mut authorization: Option<String> = None;
    for one in uses {
        match one {
            Use::ApiKey { name, location, scheme } => {
                let key = credentials.api_key.as_ref().map_or("", Secret::expose);
                let is_value = |is_allowed: fn(u8) -> bool| match key.bytes().all(is_allowed) {
                    true if !key.is_empty() => Ok(()),
                    true | false => Err(CredentialsError::Value((*scheme).to_owned())),
                };
                check_name(name, *location)?;
                match location {
                    ApiKeyLocation::Header => {
                        is_value(is_field_byte)?;
                        plan.fields.push(name, key.trim());
                    }
                    ApiKeyLocation::Query => {
                        is_value(|_| true)?;
                        let separator = if plan.query.is_empty() { "" } else { "&" };
                        plan.query.push_str(separator);
                        plan.query.extend(byte_serialize(name.as_bytes()));
                        plan.query.push('=');
                        plan.query.extend(byte_serialize(key.as_bytes()));
                    }
                    ApiKeyLocation::Cookie => {
                        is_value(is_cookie_byte)?;
                        cookies.push(format!("{name}={key}"));
                    }
                }
            }
            Use::Bearer(scheme) => {
                let token = credentials.bearer.as_ref().map_or("", Secret::expose).trim();
                authorization = Some(bearer(token, scheme)?);
            }
            Use::Basic(scheme) => authorization = Some(basic(credentials, scheme)?),
            Use::Token => plan.needs_token = true,
            Use::Passed => plan.passes_on = true,
            Use::Certificate => {}
        }
    }
    if let Some(authorization) = authorization {
        plan.fields.push("Authorization", &authorization);
    }
    if !cookies.is_empty() {
        plan.fields.push("Cookie", &cookies.join("; "));
    }
    Ok(plan)
}

/// The value of `Authorization` with a token (RFC 6750 §2.1).
pub(super) fn bearer(token: &str, scheme: &str) -> Result<String, CredentialsError> {
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = is_token.then(|| format!("Bearer {token}"));
    value.ok_or_else(|| CredentialsError::Value(scheme.to_owned()))
}

fn basic(credentials: &Credentials, scheme: &str) -> Result<String, CredentialsError> {
    let value = || {
        let (user, password) = credentials.basic.as_ref()?;
        // RFC 7617 §2: no colon in the user name, no control characters in name and password.
        let is_text = !user.contains(':')
            && !user.chars().chain(password.expose().chars()).any(char::is_control);
        let pair = format!("{user}:{}", password.expose());
        is_text.then(|| format!("Basic {}", base64::encode(pair.as_bytes())))
    };
    value().ok_or_else(|| CredentialsError::Value(scheme.to_owned()))
}

/// Fields with a meaning in HTTP, in A2A or for a proxy.
const RESERVED: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "accept",
    "accept-encoding",
    "cookie",
    "last-event-id",
    "origin",
    "via",
    "forwarded",
];
const RESERVED_PREFIXES: &[&str] = &["content-", "proxy-", "a2a-", "sec-", "grpc-", "if-"];

fn check_name(name: &str, location: ApiKeyLocation) -> Result<(), CredentialsError> {
    let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
    let lower = name.to_ascii_lowercase();
    let is_reserved = RESERVED.contains(&&*lower)
        || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    let is_fine = match location {
        ApiKeyLocation::Header => is_token && !is_reserved,
        ApiKeyLocation::Cookie => is_token,
        // A2A 1.0 §3.6.1: the query may hold `A2A-Version`.
        ApiKeyLocation::Query => !name.is_empty() && !lower.starts_with("a2a-"),
    };
    if is_fine { Ok(()) } else { Err(CredentialsError::Place(name.to_owned())) }
}

/// RFC 9110 §5.6.2
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9110 §5.5, without bytes that break HTTP/2 and proxies.
fn is_field_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' '
}

/// RFC 6265 §4.1.1
fn is_cookie_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::client::credentials::{OAuthClient, OAuthSource};

    fn card(schemes: &str, requirements: &str) -> AgentCard {
        let json = format!(
            r#"{{"name":"A","url":"https://h","protocolVersion":"0.3","securitySchemes":{{
            "key":{{"type":"apiKey","in":"header","name":"X-Key"}},
            "query":{{"type":"apiKey","in":"query","name":"k y"}},
            "cookie":{{"type":"apiKey","in":"cookie","name":"c"}},
            "bearer":{{"type":"http","scheme":"Bearer"}},"basic":{{"type":"http","scheme":"BASIC"}},
            "digest":{{"type":"http","scheme":"digest"}},"oauth":{{"type":"oauth2","flows":{{}}}},
            "oidc":{{"type":"openIdConnect","openIdConnectUrl":"https://i"}},
            "mtls":{{"type":"mutualTLS"}},"new":{{"type":"pigeon"}}{schemes}}},
            "security":{requirements}}}"#
        );
        AgentCard::read(json.as_bytes()).unwrap()
    }

    fn all() -> Credentials {
        Credentials {
            api_key: Some(Secret::new("k=/1")),
            bearer: Some(Secret::new("tok")),
            basic: Some(("me".to_owned(), Secret::new("pä:ss"))),
            ..Credentials::default()
        }
    }

    fn oauth() -> OAuthClient {
        OAuthClient::new("id", OAuthSource::Issuer(HttpOrigin::parse("https://i").unwrap()))
    }

    fn origin(url: &str) -> HttpOrigin {
        HttpOrigin::parse(url).unwrap().origin
    }

    fn planned(requirements: &str, credentials: &Credentials) -> Result<String, CredentialsError> {
        let plan = plan(&card("", requirements), credentials, &origin("https://h"), true)?;
        let mut target = "/a".to_owned();
        plan.add_query(&mut target);
        let fields = str::from_utf8(plan.fields().lines()).unwrap().replace("\r\n", "|");
        let token = if plan.needs_token() { "+token" } else { "" };
        Ok(format!("{target} {fields}{token}"))
    }

    #[test]
    fn credential_is_sent_as_its_scheme_declares() {
        for (requirements, expected) in [
            (r#"[{"key":[]}]"#, "/a X-Key: k=/1|"),
            (r#"[{"query":[]}]"#, "/a?k+y=k%3D%2F1 "),
            (r#"[{"cookie":[]}]"#, "/a Cookie: c=k=/1|"),
            (r#"[{"bearer":[]}]"#, "/a Authorization: Bearer tok|"),
            (r#"[{"basic":[]}]"#, "/a Authorization: Basic bWU6cMOkOnNz|"),
            (r#"[{"oauth":["s"]}]"#, "/a Authorization: Bearer tok|"),
            (r#"[{"oidc":[]}]"#, "/a Authorization: Bearer tok|"),
            (r#"[{"new":[]}]"#, "/a Authorization: Bearer tok|"),
            (r#"[{"undeclared":[]}]"#, "/a Authorization: Bearer tok|"),
            (r#"[{"key":[],"bearer":[]}]"#, "/a X-Key: k=/1|Authorization: Bearer tok|"),
            // OR: the first requirement that can be met as a whole.
            (r#"[{"key":[],"mtls":[]},{"digest":[]},{"cookie":[]}]"#, "/a Cookie: c=k=/1|"),
            (r#"[{},{"key":[]}]"#, "/a X-Key: k=/1|"),
        ] {
            assert_eq!(planned(requirements, &all()).as_deref(), Ok(expected), "{requirements}");
        }
        let certificate = Credentials { has_certificate: true, ..Credentials::default() };
        assert_eq!(planned(r#"[{"mtls":[]}]"#, &certificate).as_deref(), Ok("/a "));
        let oauth = Credentials { oauth: Some(oauth()), ..Credentials::default() };
        assert_eq!(planned(r#"[{"oidc":[]}]"#, &oauth).as_deref(), Ok("/a +token"));
    }

    #[test]
    fn missing_credentials_are_named_by_scheme() {
        let none = Credentials::default();
        let error = planned(r#"[{"key":[],"oauth":[]},{"mtls":[]},{"gone":[]}]"#, &none);
        let error = error.unwrap_err().to_string();
        let message = "missing credentials required by the agent: key (apiKey) and oauth \
                    (oauth2), or mtls (mutualTLS), or gone (not declared)";
        assert_eq!(error, message);
        assert!(planned(r#"[{"digest":[]}]"#, &all()).is_err());
        assert_eq!(planned(r#"[{"key":[]},{}]"#, &none).as_deref(), Ok("/a "));
        assert_eq!(planned("[]", &none).as_deref(), Ok("/a "));
    }

    #[test]
    fn declared_scheme_is_used_if_none_is_required() {
        assert_eq!(planned("[]", &all()).as_deref(), Ok("/a Authorization: Basic bWU6cMOkOnNz|"));
        let bare = AgentCard::read(br#"{"name":"A","url":"https://h"}"#).unwrap();
        let plan = plan(&bare, &all(), &origin("https://h"), true).unwrap();
        assert_eq!(plan.fields().lines(), b"Authorization: Bearer tok\r\n");
        let key = Credentials { bearer: None, basic: None, ..all() };
        assert!(super::plan(&bare, &key, &origin("https://h"), true).unwrap().is_empty());
    }

    #[test]
    fn credentials_are_not_sent_to_disallowed_origins() {
        let needed = card("", r#"[{"bearer":[]}]"#);
        let to = |url: &str, is_card_origin: bool, credentials: &Credentials| {
            plan(&needed, credentials, &origin(url), is_card_origin).map(|plan| plan.is_empty())
        };
        let (plain, far) = (origin("http://h"), origin("https://far"));
        assert_eq!(to("http://h", true, &all()), Err(CredentialsError::PlainHttp(plain)));
        assert_eq!(to("https://far", false, &all()), Err(CredentialsError::OtherOrigin(far)));
        assert_eq!(to("http://127.0.0.1:9", true, &all()), Ok(false));
        let allows = Credentials { allows_plain_http: true, ..all() };
        assert_eq!(to("http://h", true, &allows), Ok(false));
        let allows = Credentials { allows_other_origins: true, ..all() };
        assert_eq!(to("https://far", false, &allows), Ok(false));
        assert!(to("http://far", false, &allows).is_err());
        // Without credentials any target is allowed.
        let free = card("", "[]");
        assert!(plan(&free, &Credentials::default(), &origin("http://far"), false).is_ok());
    }

    #[test]
    fn reserved_api_key_header_or_bad_value_is_rejected() {
        for name in ["Host", "content-length", "A2A-Version", "Transfer-Encoding", "a b", "x\\r"] {
            let schemes = format!(r#","bad":{{"type":"apiKey","in":"header","name":"{name}"}}"#);
            let card = card(&schemes, r#"[{"bad":[]}]"#);
            let error = plan(&card, &all(), &origin("https://h"), true).unwrap_err();
            assert!(matches!(error, CredentialsError::Place(_)), "{name}");
        }
        for (requirements, key) in [
            (r#"[{"key":[]}]"#, "a\r\nHost: b"),
            (r#"[{"key":[]}]"#, ""),
            (r#"[{"cookie":[]}]"#, "a; b=c"),
            (r#"[{"query":[]}]"#, ""),
        ] {
            let credentials = Credentials { api_key: Some(Secret::new(key)), ..all() };
            let error = planned(requirements, &credentials).unwrap_err();
            assert!(matches!(error, CredentialsError::Value(_)), "{key:?}");
        }
        let credentials = Credentials { bearer: Some(Secret::new("a b")), ..all() };
        assert!(planned(r#"[{"bearer":[]}]"#, &credentials).is_err());
        let credentials = Credentials { basic: Some(("a:b".to_owned(), Secret::new(""))), ..all() };
        assert!(planned(r#"[{"basic":[]}]"#, &credentials).is_err());
    }

    #[test]
    fn plan_debug_and_errors_contain_no_secret() {
        let oauth = OAuthClient { secret: Some(Secret::new("hunter2")), ..oauth() };
        let credentials = Credentials {
            api_key: Some(Secret::new("hunter2")),
            bearer: Some(Secret::new("hunter2")),
            basic: Some(("me".to_owned(), Secret::new("hunter2"))),
            oauth: Some(oauth),
            ..Credentials::default()
        };
        let mut shown = format!("{credentials:?}");
        for requirements in [r#"[{"key":[],"bearer":[]}]"#, r#"[{"query":[],"cookie":[]}]"#] {
            let card = card("", requirements);
            shown +=
                &format!("{:?}", plan(&card, &credentials, &origin("https://h"), true).unwrap());
            let error = plan(&card, &credentials, &origin("http://h"), true).unwrap_err();
            shown += &format!("{error:?} {error}");
        }
        let broken = Credentials { api_key: Some(Secret::new("hunter2\r")), ..credentials };
        let error = planned(r#"[{"key":[]}]"#, &broken).unwrap_err();
        shown += &format!("{error:?} {error}");
        assert!(!shown.contains("hunter2") && shown.contains("[secret]"), "{shown}");
    }

    #[test]
    fn forwarded_authorization_stays_at_card_origin() {
        let credentials = Credentials {
            passes_authorization: true,
            allows_other_origins: true,
            ..Credentials::default()
        };
        let passes = |requirements: &str, to: &str, is_card_origin: bool| {
            let plan = plan(&card("", requirements), &credentials, &origin(to), is_card_origin)?;
            Ok(plan.passes_on())
        };
        for scheme in ["[]", r#"[{"basic":[]}]"#, r#"[{"bearer":[]}]"#] {
            assert_eq!(passes(scheme, "https://h", true), Ok(true), "{scheme}");
            assert_eq!(passes(scheme, "http://127.0.0.1", true), Ok(true), "{scheme}");
            let other = Err(CredentialsError::OtherOrigin(origin("https://h")));
            assert_eq!(passes(scheme, "https://h", false), other, "{scheme}");
            let plain = Err(CredentialsError::PlainHttp(origin("http://h")));
            assert_eq!(passes(scheme, "http://h", true), plain, "{scheme}");
        }
        let missing = passes(r#"[{"mtls":[]}]"#, "https://h", true);
        assert!(matches!(missing, Err(CredentialsError::Missing(_))), "{missing:?}");
    }
}
