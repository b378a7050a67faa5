//! Recognises the caller's credential fields by their names.
//!
//! Invariant: a field that may hold a credential is sent only where credentials may be sent. A name
//! wrongly taken for a credential costs the caller a permission, a missed name discloses a secret:
//! so the rule prefers to match too much.

use crate::{
    client::{
        HttpOrigin,
        card::{AgentCard, ApiKeyLocation, SecurityScheme},
    },
    http::FieldLines,
};

use super::{Credentials, CredentialsError, plan::may_go};

/// Parts of a name, without hyphens, that mark a credential.
const PARTS: &[&str] = &[
    "accesskey",
    "apikey",
    "authentic",
    "authkey",
    "authoriz",
    "clientcert",
    "cookie",
    "credential",
    "dpop",
    "hmac",
    "jwt",
    "masterkey",
    "passphr",
    "passw",
    "privatekey",
    "pwd",
    "secret",
    "session",
    "subscriptionkey",
    "token",
];
/// Words between hyphens that mark a credential; as parts they would match too many names.
const WORDS: &[&str] = &["auth", "bearer", "key", "otp", "pin", "sid", "sign", "signature"];
/// Names with one of these words that hold no credential.
const HARMLESS: &[&str] = &["idempotency-key"];

/// Whether a field of this name is a credential: `Authorization`, `Proxy-Authorization`, `Cookie`,
/// `X-Api-Key`, `X-Auth-Token` and the like.
pub(super) fn names_credential(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    if HARMLESS.contains(&lower.as_str()) {
        return false;
    }
    let mut words = lower.split(['-', '_', '.']);
    let joined: String = lower.split(['-', '_', '.']).collect();
    words.any(|word| WORDS.contains(&word)) || PARTS.iter().any(|part| joined.contains(part))
}

/// Checks that the caller's fields may be sent to `to`, an interface of `card`; see
/// [`plan`](super::plan()). A field in which the card requires an API key also counts as a
/// credential.
///
/// # Errors
/// [`CredentialsError::OtherOrigin`], [`CredentialsError::PlainHttp`].
pub(in crate::client) fn check_fields(
    fields: FieldLines<'_>,
    card: &AgentCard,
    credentials: &Credentials,
    to: &HttpOrigin,
    is_card_origin: bool,
) -> Result<(), CredentialsError> {
    let is_key_of_card = |name: &str| {
        card.security_schemes.values().any(|scheme| match scheme {
            SecurityScheme::ApiKey(key) => {
                key.location == ApiKeyLocation::Header && key.name.eq_ignore_ascii_case(name)
            }
            SecurityScheme::Http(_)
            | SecurityScheme::OAuth2(_)
            | SecurityScheme::OpenIdConnect(_)
            | SecurityScheme::MutualTls(_)
            | SecurityScheme::Unknown(_) => false,
        })
    };
    match fields.iter().any(|(name, _)| names_credential(name) || is_key_of_card(name)) {
        true => may_go(credentials, to, is_card_origin),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_fields_are_detected_by_name() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "X-Forwarded-Authorization",
            "Cookie",
            "X-API-Key",
            "apikey",
            "api_key",
            "Ocp-Apim-Subscription-Key",
            "X-Auth",
            "X-Auth-Token",
            "x-amz-security-token",
            "X-Session-Id",
            "PRIVATE-TOKEN",
            "X-Client-Secret",
            "x-hub-signature",
            "CB-ACCESS-PASSPHRASE",
            "CB-ACCESS-SIGN",
            "X-AuthKey",
            "X-MasterKey",
            "X-Pwd",
            "X-GitHub-OTP",
            "DPoP",
            "X-Shopify-Hmac-Sha256",
            "X-Forwarded-Client-Cert",
        ] {
            assert!(names_credential(name), "{name}");
        }
        for name in [
            "X-Tenant",
            "Author",
            "X-Authority",
            "Idempotency-Key",
            "traceparent",
            "X-Request-Id",
            "X-Keyboard",
            "Monkey",
        ] {
            assert!(!names_credential(name), "{name}");
        }
    }
}
