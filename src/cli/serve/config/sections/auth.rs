//! `[auth]`: callers and their credentials; with any of its keys every operation needs an
//! authenticated caller.
//!
//! Invariant: a secret is hashed when it is read; its plain text is then dropped.

use peregrine::auth::{
    AuthRules, AuthRulesError, CertificateRule, IssuerRule, JwsAlgorithm, KeyLocation, KeyRule,
    KeySource, KnownCaller, Network, ProxyRule, ScopeSet, SecretDigest, TenantGrant, TokenKeys,
    TokenRules,
};
use peregrine::{
    limits::callers::PLAIN_KEY_BYTES_MIN,
    model::{is_agent_name, time::parse_rfc3339},
};
use zeroize::Zeroizing;

use super::super::{
    file,
    tree::{ConfigEntry, ConfigSection, Key, Shape, Wrong, key},
};

/// Milliseconds after which the keys of an issuer are fetched again, unless the issuer sets a time.
const REFRESH_MS: u64 = 600_000;

const TENANTS: Key =
    key("tenants", Shape::Texts, "", "Tenants that a caller may name, the default first; * is any")
        .live();
const SCOPES: Key = key("scopes", Shape::Texts, "", "Scopes, such as a2a:read").live();
const QUOTA: Key =
    key("quota", Shape::Text, "", "Name of the caller's quota in [quotas.named]").live();
const NAME: Key = key("name", Shape::Text, "", "Name of the caller").live();
const SHA256: Key = key(
    "sha256",
    Shape::Text,
    "",
    "SHA-256 of the secret in hexadecimal digits, instead of the secret itself",
)
.live();
const EXPIRES: Key =
    key("expires", Shape::Text, "", "Expiry of the secret, such as 2027-01-31T00:00:00Z").live();

const API_KEY: &[Key] = &[
    NAME,
    key("key", Shape::Text, "", "The key; prefer ${VARIABLE}").live().secret(),
    SHA256,
    EXPIRES,
    TENANTS,
    SCOPES,
    QUOTA,
];

const BEARER_TOKEN: &[Key] = &[
    NAME,
    key("token", Shape::Text, "", "The token; prefer ${VARIABLE}").live().secret(),
    SHA256,
    EXPIRES,
    TENANTS,
    SCOPES,
    QUOTA,
];

const ISSUER: &[Key] = &[
    key("issuer", Shape::Text, "", "The iss of its tokens, compared exactly").live(),
    key(
        "audiences",
        Shape::Texts,
        "",
        "Accepted audiences, one of which aud must have; default: any",
    )
    .live(),
    key("algorithms", Shape::Texts, "", "Algorithms, such as ES256; default: any that fits a key")
        .live(),
    key("keys_file", Shape::Path, "", "File with its keys: a JWK set or PEM").live(),
    key("keys_url", Shape::Text, "", "URL of its JWK set; default: OpenID discovery").live(),
    key("secret", Shape::Text, "", "A shared secret, for HS256 to HS512").live().secret(),
    key("name_claim", Shape::Text, "", "The claim with the caller's name; default sub").live(),
    key("tenants_claim", Shape::Text, "", "The claim with the caller's tenants").live(),
    key(
        "scope_claims",
        Shape::Texts,
        "",
        "The claims with the caller's scopes; default scope and scp",
    )
    .live(),
    key(
        "quota_claim",
        Shape::Text,
        "",
        "The claim with the name of the caller's quota; a name that is not in [quotas.named] means \
         [quotas.known]",
    )
    .live(),
    TENANTS,
    QUOTA,
];

const PROXY: &[Key] = &[
    key(
        "networks",
        Shape::Texts,
        "",
        "Networks from which trusted proxies connect, such as 10.0.0.0/8",
    )
    .live(),
    key("name_header", Shape::Text, "", "The field with the caller's name, such as X-User").live(),
    key("scopes_header", Shape::Text, "", "The field with the caller's scopes").live(),
    key("tenants_header", Shape::Text, "", "The field with the caller's tenants").live(),
    TENANTS,
    SCOPES,
    QUOTA,
];

const CERTIFICATES: &[Key] = &[TENANTS, SCOPES, QUOTA];

const KEYS: &[Key] = &[
    key("ask_scopes", Shape::Switch, "false", "Each operation requires a2a:read, send or cancel"),
    key("api_key_header", Shape::Text, "\"X-API-Key\"", "The header field of API keys").live(),
    key("api_keys", Shape::Sections(|| API_KEY), "", "API keys").live(),
    key("bearer_tokens", Shape::Sections(|| BEARER_TOKEN), "", "Bearer tokens").live(),
    key("issuers", Shape::Sections(|| ISSUER), "", "Issuers of JWTs").live(),
    key("proxy", Shape::Section(|| PROXY), "", "Proxies that authenticate the caller").live(),
    key(
        "certificates",
        Shape::Section(|| CERTIFICATES),
        "",
        "Permissions of clients with a certificate (tls.client_ca)",
    )
    .live(),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The rules for callers, even if they admit no caller; `None`: the section is empty, so callers
/// are not authenticated, or only by certificates.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection, requests_certificates: bool) -> Result<Option<AuthRules>, Wrong> {
    let Some(auth) = root.section("auth") else { return Ok(None) };
    let field = auth.text("api_key_header").map(str::to_owned);
    let keys = |name, secret| auth.sections(name).iter().map(move |one| key_rule(one, secret));
    let certificates = auth.section("certificates");
    if !requests_certificates && certificates.is_some_and(ConfigSection::is_set) {
        let line = "no certificate is requested from clients: add --tls-client-ca, or \
                    tls.client_ca";
        return Err(auth.wrong("certificates", line));
    }
    let is_enabled = names_callers(auth);
    let certificates = certificates.filter(|_| is_enabled && requests_certificates);
    let certificates = certificates.map(|section| {
        Ok(CertificateRule {
            tenants: tenants(section)?,
            scopes: scopes(section)?,
            quota: text(section, "quota"),
        })
    });
    let mut rules = AuthRules {
        api_keys: keys("api_keys", "key").collect::<Result<_, _>>()?,
        bearer_tokens: keys("bearer_tokens", "token").collect::<Result<_, _>>()?,
        issuers: auth.sections("issuers").iter().map(issuer).collect::<Result<_, _>>()?,
        proxy: proxy(auth)?,
        certificates: certificates.transpose()?,
        ..AuthRules::default()
    };
    rules.api_key_field = field.unwrap_or(rules.api_key_field);
    rules.check().map_err(|error| blame(auth, &error))?;
    Ok(Some(rules).filter(|_| is_enabled))
}

/// Whether `[auth]` turns authentication on: with `ask_scopes`, or with a key for callers, even an
/// empty one.
fn names_callers(auth: &ConfigSection) -> bool {
    let names = |name: &&str| match auth.entry(name) {
        Some(ConfigEntry::Section(section)) => section.is_set(),
        entry => entry.is_some(),
    };
    let requires_scopes = auth.switch("ask_scopes").unwrap_or(false);
    requires_scopes
        || ["api_keys", "bearer_tokens", "issuers", "proxy", "certificates"].iter().any(names)
}

/// Rejects rules that admit no caller before the start of a server. A running server accepts such
/// rules and then has no callers.
///
/// # Errors
/// [`Wrong`].
pub fn check_callers(root: &ConfigSection, rules: Option<&AuthRules>) -> Result<(), Wrong> {
    match rules.is_some_and(AuthRules::is_empty) {
        false => Ok(()),
        true => {
            let keys = "api_keys, bearer_tokens, issuers, proxy or tls.client_ca";
            Err(root.wrong("auth", format!("no caller can be authenticated: add {keys}")))
        }
    }
}

/// The position of an error of the rules.
fn blame(auth: &ConfigSection, error: &AuthRulesError) -> Wrong {
    let named = |tables: &[&str], key: &str, text: &str| {
        let sections = tables.iter().flat_map(|table| auth.sections(table));
        let mut of_it = sections.filter(|section| section.text(key) == Some(text));
        of_it.next_back().map(|section| section.wrong(key, error.to_string()))
    };
    let found = match error {
        AuthRulesError::Name(name) | AuthRulesError::SameSecret(name) => {
            named(&["api_keys", "bearer_tokens"], "name", name)
        }
        AuthRulesError::Issuer(issuer) | AuthRulesError::KeyLocation(issuer, _) => {
            named(&["issuers"], "issuer", issuer)
        }
        AuthRulesError::Field(name) if auth.text("api_key_header") == Some(name) => {
            Some(auth.wrong("api_key_header", error.to_string()))
        }
        AuthRulesError::Field(_) => Some(auth.wrong("proxy", error.to_string())),
        AuthRulesError::Digest | AuthRulesError::TooMany(_) => None,
    };
    found.unwrap_or_else(|| auth.wrong("api_keys", error.to_string()))
}

/// Whether each operation requires its scope.
pub fn requires_scopes(root: &ConfigSection) -> bool {
    root.section("auth").and_then(|auth| auth.switch("ask_scopes")).unwrap_or(false)
}

fn text(section: &ConfigSection, name: &str) -> Option<String> {
    section.text(name).map(str::to_owned)
}

/// A required, non-empty string.
fn required(section: &ConfigSection, name: &str) -> Result<String, Wrong> {
    let text = text(section, name).filter(|text| !text.is_empty());
    text.ok_or_else(|| section.wrong(name, "must be a non-empty string"))
}

/// The tenants that a caller may select: names that are valid in a path, or `*` first.
fn tenants(section: &ConfigSection) -> Result<TenantGrant, Wrong> {
    let names = section.strings("tenants").unwrap_or_default();
    let is_any = names.first().is_some_and(|first| first == "*");
    if let Some(at) = names.iter().skip(usize::from(is_any)).position(|one| !is_agent_name(one)) {
        let at = at + usize::from(is_any);
        let line = format!("{:?} may only have letters, digits, '-', '_', '.'", names[at]);
        let line = if names[at] == "*" { "* must be the first tenant".to_owned() } else { line };
        return Err(section.wrong_item("tenants", at, line));
    }
    Ok(match names.is_empty() {
        true => TenantGrant::None,
        false if is_any => TenantGrant::Any,
        false => TenantGrant::Named(names.into_iter().map(Into::into).collect()),
    })
}

/// The scopes of a section.
///
/// # Errors
/// [`Wrong`]: an invalid scope.
fn scopes(section: &ConfigSection) -> Result<ScopeSet, Wrong> {
    check_scopes(section)?;
    Ok(ScopeSet::new(section.strings("scopes").unwrap_or_default()))
}

/// Checks that each scope of a section is valid by RFC 6749 §3.3: lists of scopes are separated by
/// spaces.
///
/// # Errors
/// [`Wrong`].
pub fn check_scopes(section: &ConfigSection) -> Result<(), Wrong> {
    let is_scope = |text: &String| {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        !text.is_empty() && text.bytes().all(plain)
    };
    let scopes = section.strings("scopes").unwrap_or_default();
    match scopes.iter().position(|scope| !is_scope(scope)) {
        None => Ok(()),
        Some(at) => {
            let line =
                format!("{:?} is not a scope such as a2a:read: a scope has no spaces", scopes[at]);
            Err(section.wrong_item("scopes", at, line))
        }
    }
}

/// Checks that a header field can carry a credential: clients cannot send any other credential.
///
/// # Errors
/// [`Wrong`].
fn check_sendable(section: &ConfigSection, secret: &str) -> Result<(), Wrong> {
    let text = section.text(secret).unwrap_or_default();
    // RFC 9110 §5.5: a field value excludes surrounding spaces; §11.2: a Bearer token has no
    // spaces.
    let is_sent = match secret {
        "token" => text.bytes().all(|byte| byte.is_ascii_graphic()),
        _ => text.trim() == text && !text.chars().any(char::is_control),
    };
    match is_sent {
        true => Ok(()),
        false => {
            let line = "has spaces or characters that no client can send: create one with \
                        `openssl rand -hex 32`";
            Err(section.wrong(secret, line))
        }
    }
}

/// The rule for a key or a token, which is configured as plain text or as its digest.
fn key_rule(section: &ConfigSection, secret: &str) -> Result<KeyRule, Wrong> {
    let digest = match (section.text(secret), section.text("sha256")) {
        (Some(text), None) if text.len() >= PLAIN_KEY_BYTES_MIN => {
            SecretDigest::of(text.as_bytes())
        }
        (None, Some(digits)) => {
            digits.parse().map_err(|error| section.wrong("sha256", format!("{error}")))?
        }
        (Some(text), None) => {
            let line = format!(
                "has {} bytes and needs at least {PLAIN_KEY_BYTES_MIN}: create one with `openssl \
                 rand -hex 32`",
                text.len()
            );
            return Err(section.wrong(secret, line));
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(section.wrong("name", format!("needs exactly one of {secret} and sha256")));
        }
    };
    check_sendable(section, secret)?;
    let caller = KnownCaller {
        name: required(section, "name")?,
        tenants: tenants(section)?,
        scopes: scopes(section)?,
        quota: text(section, "quota"),
    };
    let expires = section.text("expires").map(|text| {
        let line = "must be a time such as 2027-01-31T00:00:00Z";
        parse_rfc3339(text).ok_or_else(|| section.wrong("expires", line))
    });
    Ok(KeyRule { digest, caller, expires_unix_ms: expires.transpose()? })
}

fn issuer(section: &ConfigSection) -> Result<IssuerRule, Wrong> {
    let default = TokenRules::new(required(section, "issuer")?);
    let algorithms = section.texts("algorithms").unwrap_or_default().iter().enumerate();
    let algorithms = algorithms.map(|(index, item)| {
        let wrong = || {
            let message = format!("unknown algorithm {:?}; use one such as ES256", item.text);
            section.wrong_item("algorithms", index, message)
        };
        JwsAlgorithm::named(&item.text).ok_or_else(wrong)
    });
    let tokens = TokenRules {
        audiences: section.strings("audiences").unwrap_or_default(),
        algorithms: algorithms.collect::<Result<_, _>>()?,
        name_claim: text(section, "name_claim").unwrap_or(default.name_claim),
        tenants_claim: text(section, "tenants_claim"),
        scope_claims: section.strings("scope_claims").unwrap_or(default.scope_claims),
        quota_claim: text(section, "quota_claim"),
        tenants: tenants(section)?,
        quota: text(section, "quota"),
        issuer: default.issuer,
    };
    check_algorithms(section, &tokens.algorithms)?;
    let sources = ["keys_file", "keys_url", "secret"].map(|name| section.value(name).is_some());
    if sources.iter().filter(|is_set| **is_set).count() > 1 {
        return Err(section.wrong("issuer", "needs at most one of keys_file, keys_url and secret"));
    }
    let keys = if let Some(path) = section.path("keys_file") {
        let wrong = |error: String| {
            section.wrong("keys_file", format!("cannot use {}: {error}", path.display()))
        };
        let document = file::read(&path).map_err(|error| wrong(error.to_string()))?;
        KeySource::Local(TokenKeys::read(&document).map_err(|error| wrong(error.to_string()))?)
    } else if let Some(secret) = section.text("secret") {
        let secret = Zeroizing::new(secret.as_bytes().to_vec());
        let keys = TokenKeys::secret(secret);
        KeySource::Local(keys.map_err(|error| section.wrong("secret", error.to_string()))?)
    } else {
        let location = section
            .text("keys_url")
            .map_or(KeyLocation::OpenId, |url| KeyLocation::Jwks(url.to_owned()));
        KeySource::Remote { location, refresh_ms: REFRESH_MS }
    };
    Ok(IssuerRule { tokens, keys })
}

/// Checks that the keys of an issuer fit these algorithms: a secret fits only HS256 to HS512, and
/// only a secret fits these.
///
/// # Errors
/// [`Wrong`].
fn check_algorithms(section: &ConfigSection, algorithms: &[JwsAlgorithm]) -> Result<(), Wrong> {
    let is_secret = section.text("secret").is_some();
    match algorithms.iter().position(|algorithm| algorithm.is_symmetric() != is_secret) {
        None => Ok(()),
        Some(at) => {
            let name = algorithms[at].name();
            let line = match is_secret {
                true => format!("{name} cannot be used with a secret: use HS256, HS384 or HS512"),
                false => format!("{name} needs a secret, not public keys"),
            };
            Err(section.wrong_item("algorithms", at, line))
        }
    }
}

fn proxy(auth: &ConfigSection) -> Result<Option<ProxyRule>, Wrong> {
    let Some(section) = auth.section("proxy").filter(|section| section.is_set()) else {
        return Ok(None);
    };
    Ok(Some(ProxyRule {
        networks: networks(section, "networks")?,
        name_field: required(section, "name_header")?,
        scopes_field: text(section, "scopes_header"),
        tenants_field: text(section, "tenants_header"),
        scopes: scopes(section)?,
        tenants: tenants(section)?,
        quota: text(section, "quota"),
    }))
}

/// Trusted hops that report the address of their client. A hop that may name the caller is also
/// trusted to report the address: otherwise the failures of all its clients would count as its own.
///
/// # Errors
/// [`Wrong`].
pub fn trusted_proxies(
    root: &ConfigSection,
    rules: Option<&AuthRules>,
) -> Result<Vec<Network>, Wrong> {
    let mut hops = networks(root, "trusted_proxies")?;
    hops.extend(rules.and_then(|rules| rules.proxy.as_ref()).iter().flat_map(|by| &by.networks));
    Ok(hops)
}

/// A list of networks.
///
/// # Errors
/// [`Wrong`].
fn networks(section: &ConfigSection, name: &str) -> Result<Vec<Network>, Wrong> {
    let items = section.texts(name).unwrap_or_default().iter().enumerate();
    let networks = items.map(|(index, item)| {
        let wrong = |error| section.wrong_item(name, index, format!("{:?}: {error}", item.text));
        item.text.parse().map_err(wrong)
    });
    networks.collect()
}
