//! The challenges of a 401 (RFC 9110 §11.6.1, RFC 6750 §3).
//!
//! Invariant: a challenge names each accepted kind of credential, and never repeats the client's
//! credential.

use std::fmt::Write;

use super::{
    AuthRefusal,
    remote_keys::{KeyLocation, OPEN_ID_PATH},
    rules::{AuthRules, KeySource},
};
use crate::model::{CardRequirement, CardScheme, CardSecurity};

pub(super) const KEY_UNKNOWN: &str = "the API key is unknown";
pub(super) const KEY_EXPIRED: &str = "the API key has expired";
pub(super) const NAME_REFUSED: &str = "the caller's name has invalid characters";

/// The value of `WWW-Authenticate` for a refusal.
pub(super) fn challenge(
    rules: &AuthRules,
    accepted: AcceptedKinds,
    refusal: &AuthRefusal,
) -> String {
    let mut value = String::new();
    let mut next = |challenge: &str, why: Option<&str>| {
        let separator = if value.is_empty() { "" } else { ", " };
        _ = write!(value, "{separator}{challenge}");
        if let Some(why) = why {
            // RFC 6750 §3.1. Reasons contain neither quotes nor backslashes.
            _ = write!(value, ", error=\"invalid_token\", error_description=\"{why}\"");
        }
    };
    let wrong = match refusal {
        AuthRefusal::Wrong(reason) | AuthRefusal::Expired(reason) => Some(*reason),
        AuthRefusal::Missing | AuthRefusal::Unavailable { .. } | AuthRefusal::TooMany { .. } => {
            None
        }
    };
    let is_of_bearer = |why: &&str| ![KEY_UNKNOWN, KEY_EXPIRED, NAME_REFUSED].contains(why);
    if accepted.bearer {
        next("Bearer realm=\"a2a\"", wrong.filter(is_of_bearer));
    }
    if accepted.api_key {
        let field = &rules.api_key_field;
        next(&format!("ApiKey realm=\"a2a\", header=\"{field}\""), None);
    }
    if rules.certificates.is_some() {
        next("Certificate realm=\"a2a\"", None);
    }
    // RFC 9110 §15.5.2: a 401 has a challenge, even if only a proxy can answer it.
    if value.is_empty() {
        value.push_str("Proxy realm=\"a2a\"");
    }
    value
}

/// The accepted credentials on a card: one credential suffices. The fields of a proxy are not
/// listed, since clients never send them.
pub(super) fn card_security(rules: &AuthRules) -> CardSecurity {
    let mut security = CardSecurity::default();
    let mut add = |scheme: CardScheme| {
        security.requirements.push(CardRequirement::of(&scheme.name, []));
        security.schemes.push(scheme);
    };
    if !rules.bearer_tokens.is_empty() || !rules.issuers.is_empty() {
        let format = if rules.issuers.is_empty() { "" } else { "JWT" };
        add(CardScheme::bearer("bearer", format));
    }
    for (number, issuer) in (1..).zip(&rules.issuers) {
        if let KeySource::Remote { location: KeyLocation::OpenId, .. } = issuer.keys {
            let url = format!("{}{OPEN_ID_PATH}", issuer.tokens.issuer.trim_end_matches('/'));
            let name = if number == 1 { "openid".to_owned() } else { format!("openid-{number}") };
            add(CardScheme::open_id_connect(&name, &url));
        }
    }
    if !rules.api_keys.is_empty() {
        add(CardScheme::api_key("api-key", &rules.api_key_field));
    }
    if rules.certificates.is_some() {
        add(CardScheme::mutual_tls("certificate"));
    }
    security
}

/// The kinds of credentials that a challenge can name.
#[derive(Clone, Copy)]
pub(super) struct AcceptedKinds {
    pub(super) bearer: bool,
    pub(super) api_key: bool,
}
