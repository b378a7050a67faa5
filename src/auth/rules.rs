//! The rules of a server's configuration for callers: API keys, tokens, issuers, proxies and
//! certificates.
//!
//! Invariant: a secret is hashed when it is read, and then dropped; no value here can reveal it.

use std::{collections::HashSet, fmt, str::FromStr};

use ring::digest;
use zeroize::{Zeroize, Zeroizing};

use crate::{
    limits::callers::{CALLER_KEYS_MAX, ISSUERS_MAX, PROXY_NETWORKS_MAX},
    service::principal::{ScopeSet, TenantGrant},
};

use super::{
    Network,
    jwt::{TokenRules, is_name},
    remote_keys::{KeyLocation, KeyLocationError, RemoteKeys},
    token_keys::TokenKeys,
};

/// The default field of API keys.
pub const API_KEY_FIELD: &str = "X-API-Key";

/// The SHA-256 of a key or a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest of this secret.
    pub fn of(secret: &[u8]) -> SecretDigest {
        let digest = digest::digest(&digest::SHA256, secret);
        SecretDigest(digest.as_ref().try_into().unwrap_or_default())
    }

    /// The digest of this secret; the secret is wiped.
    pub fn take(mut secret: String) -> SecretDigest {
        let digest = SecretDigest::of(secret.as_bytes());
        secret.zeroize();
        digest
    }
}

impl FromStr for SecretDigest {
    type Err = AuthRulesError;

    /// Reads 64 hexadecimal digits, optionally after `sha256:`.
    fn from_str(text: &str) -> Result<SecretDigest, AuthRulesError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(AuthRulesError::Digest);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let (high, low) = digit(0).zip(digit(1)).ok_or(AuthRulesError::Digest)?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(SecretDigest(bytes))
    }
}

impl fmt::Debug for SecretDigest {
    /// Omits the digest: the digest of a short secret is as sensitive as the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest")
    }
}

/// A caller in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownCaller {
    /// The name of the caller. Two keys of one kind with the same name belong to one caller.
    pub name: String,
    /// The tenants that the caller may name.
    pub tenants: TenantGrant,
    /// The scopes of the caller.
    pub scopes: ScopeSet,
    /// The name of the caller's quota; `None`: the default quota.
    pub quota: Option<String>,
}

/// An API key or bearer token in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The digest of the key or token.
    pub digest: SecretDigest,
    /// The caller with this key or token.
    pub caller: KnownCaller,
    /// When the key or token expires, in ms since the Unix epoch; `None`: never.
    pub expires_unix_ms: Option<u64>,
}

/// The fields in which trusted proxies name the caller. A proxy must remove these fields from its
/// clients' requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRule {
    /// The addresses of the proxies; the fields of other peers are ignored.
    pub networks: Vec<Network>,
    /// The field with the caller's name.
    pub name_field: String,
    /// The field with the caller's scopes, separated by blanks or commas.
    pub scopes_field: Option<String>,
    /// The field with the caller's tenants, separated by blanks or commas.
    pub tenants_field: Option<String>,
    /// The scopes of each caller, if `scopes_field` is `None`.
    pub scopes: ScopeSet,
    /// The tenants of each caller, if `tenants_field` is `None`.
    pub tenants: TenantGrant,
    /// The quota of each caller.
    pub quota: Option<String>,
}

/// The rights of callers with a certificate; the certificate names the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRule {
    /// The tenants that these callers may name.
    pub tenants: TenantGrant,
    /// The scopes of these callers.
    pub scopes: ScopeSet,
    /// The name of the quota of these callers.
    pub quota: Option<String>,
}

/// The source of an issuer's keys.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// From the configuration.
    Local(TokenKeys),
    /// From a URL.
    Remote {
        /// The location.
        location: KeyLocation,
        /// The number of ms after which the keys are fetched again, unless the server states
        /// another time.
        refresh_ms: u64,
    },
}

/// A trusted issuer of tokens.
#[derive(Clone, Debug)]
pub struct IssuerRule {
    /// The requirements for its tokens.
    pub tokens: TokenRules,
    /// The keys that verify its tokens.
    pub keys: KeySource,
}

/// The callers that a server accepts, and their credentials.
#[derive(Clone, Debug)]
pub struct AuthRules {
    /// The field of API keys.
    pub api_key_field: String,
    /// The API keys.
    pub api_keys: Vec<KeyRule>,
    /// Bearer tokens that are compared as a whole.
    pub bearer_tokens: Vec<KeyRule>,
    /// Issuers of JWTs.
    pub issuers: Vec<IssuerRule>,
    /// Trusted proxies.
    pub proxy: Option<ProxyRule>,
    /// Client certificates that TLS has verified.
    pub certificates: Option<CertificateRule>,
}

impl Default for AuthRules {
    /// No callers.
    fn default() -> AuthRules {
        AuthRules {
            api_key_field: API_KEY_FIELD.to_owned(),
            api_keys: Vec::new(),
            bearer_tokens: Vec::new(),
            issuers: Vec::new(),
            proxy: None,
            certificates: None,
        }
    }
}

/// Why rules are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthRulesError {
    /// The text is not the SHA-256 of a secret in hexadecimal digits.
    Digest,
    /// The name of a caller is empty, has control characters or is longer than
    /// [`CALLER_NAME_BYTES_MAX`](crate::limits::callers::CALLER_NAME_BYTES_MAX).
    Name(String),
    /// The name is not a field name, or the field has another meaning.
    Field(String),
    /// Two entries have the same key or token.
    SameSecret(String),
    /// An issuer is listed twice, or has no name.
    Issuer(String),
    /// The keys of this issuer cannot be fetched.
    KeyLocation(String, KeyLocationError),
    /// More entries than the limit allows.
    TooMany(&'static str),
}

impl fmt::Display for AuthRulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthRulesError::Digest => f.write_str("a SHA-256 must have 64 hexadecimal digits"),
            AuthRulesError::Name(name) => write!(f, "{name:?} is not a valid caller name"),
            AuthRulesError::Field(name) => {
                write!(f, "{name:?} is not a valid header field for credentials")
            }
            AuthRulesError::SameSecret(name) => {
                write!(f, "the key or token of {name:?} is configured twice")
            }
            AuthRulesError::Issuer(issuer) => {
                write!(f, "the issuer {issuer:?} is empty or configured twice")
            }
            AuthRulesError::KeyLocation(issuer, why) => {
                write!(f, "the keys of {issuer:?} cannot be fetched: {why}")
            }
            AuthRulesError::TooMany(what) => write!(f, "too many {what}"),
        }
    }
}

impl std::error::Error for AuthRulesError {}

impl AuthRules {
    /// True: no rule admits a caller.
    pub fn is_empty(&self) -> bool {
        let has_keys = !self.api_keys.is_empty() || !self.bearer_tokens.is_empty();
        let has_others = !self.issuers.is_empty() || self.proxy.is_some();
        !has_keys && !has_others && self.certificates.is_none()
    }

    /// Checks the rules.
    ///
    /// # Errors
    /// [`AuthRulesError`], but never `Digest`.
    pub fn check(&self) -> Result<(), AuthRulesError> {
        check_keys(&self.api_keys, "API keys")?;
        check_keys(&self.bearer_tokens, "bearer tokens")?;
        check_field(&self.api_key_field)?;
        if self.issuers.len() > ISSUERS_MAX {
            return Err(AuthRulesError::TooMany("issuers"));
        }
        let mut issuers = HashSet::new();
        for IssuerRule { tokens, keys } in &self.issuers {
            let issuer = &tokens.issuer;
            if issuer.is_empty() || !issuers.insert(issuer) {
                return Err(AuthRulesError::Issuer(issuer.clone()));
            }
            if let KeySource::Remote { location, refresh_ms } = keys {
                let remote = RemoteKeys::new(issuer, location.clone(), *refresh_ms);
                remote.map_err(|why| AuthRulesError::KeyLocation(issuer.clone(), why))?;
            }
        }
        if let Some(proxy) = &self.proxy {
            if proxy.networks.len() > PROXY_NETWORKS_MAX {
                return Err(AuthRulesError::TooMany("networks"));
            }
            check_field(&proxy.name_field)?;
            proxy.scopes_field.iter().try_for_each(|name| check_field(name))?;
            proxy.tenants_field.iter().try_for_each(|name| check_field(name))?;
        }
        Ok(())
    }
}

fn check_keys(rules: &[KeyRule], what: &'static str) -> Result<(), AuthRulesError> {
    if rules.len() > CALLER_KEYS_MAX {
        return Err(AuthRulesError::TooMany(what));
    }
    let mut digests = HashSet::new();
    for KeyRule { digest, caller, .. } in rules {
        if !is_name(&caller.name) {
            return Err(AuthRulesError::Name(caller.name.clone()));
        }
        if !digests.insert(digest) {
            return Err(AuthRulesError::SameSecret(caller.name.clone()));
        }
    }
    Ok(())
}

/// RFC 9110 §5.1: a field name is a token. Fields that frame or route a request cannot carry
/// credentials, and `Authorization` has its own meaning.
fn check_field(name: &str) -> Result<(), AuthRulesError> {
    const OTHERS: [&str; 10] = [
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_other = OTHERS.iter().any(|other| other.eq_ignore_ascii_case(name));
    match !name.is_empty() && name.bytes().all(is_token) && !is_other {
        true => Ok(()),
        false => Err(AuthRulesError::Field(name.to_owned())),
    }
}

impl KeySource {
    /// A secret that the server shares with the issuer; `secret` is wiped.
    ///
    /// # Errors
    /// [`TokenKeysError::ShortSecret`](super::token_keys::TokenKeysError::ShortSecret)
    pub fn secret(secret: String) -> Result<KeySource, super::token_keys::TokenKeysError> {
        TokenKeys::secret(Zeroizing::new(secret.into_bytes())).map(KeySource::Local)
    }
}
