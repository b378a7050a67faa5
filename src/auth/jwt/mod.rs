//! Signed tokens of an issuer: JWT (RFC 7519) as JWS (RFC 7515), under the rules of RFC 8725.
//!
//! Invariant: trusted issuers are configured with their keys; a token only selects one of these
//! issuers. A signature is verified before a claim is used, and a token that cannot be verified is
//! rejected. An expired token is rejected before its signature is verified, since the result is the
//! same. The time is an argument, and no reason contains a secret.

mod claims;
mod strict;
#[cfg(test)]
pub(super) mod tests;
mod token;

use std::sync::Arc;

use crate::{
    auth::{Grant, jws::JwsAlgorithm, token_keys::TokenKeys},
    service::principal::{PrincipalBuf, TenantGrant},
};

pub(crate) use claims::is_name;
pub use strict::object;
pub use token::UnverifiedToken;

/// The requirements for an issuer's tokens, and the meaning of its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// `iss` of the issuer's tokens, compared byte by byte.
    pub issuer: String,
    /// One of these must be in `aud`; empty: `aud` is not checked.
    pub audiences: Vec<String>,
    /// The accepted algorithms; empty: every algorithm that the key supports.
    pub algorithms: Vec<JwsAlgorithm>,
    /// The claim with the caller's name.
    pub name_claim: String,
    /// The claim with the tenants, a text or an array of texts; `None`: tokens name no tenants.
    pub tenants_claim: Option<String>,
    /// The claims with scopes, each a text with blanks between the names, or an array.
    pub scope_claims: Vec<String>,
    /// The claim with the name of the caller's quota.
    pub quota_claim: Option<String>,
    /// The tenants of each caller, if [`TokenRules::tenants_claim`] is `None`.
    pub tenants: TenantGrant,
    /// The quota of a caller if its token names none.
    pub quota: Option<String>,
}

impl TokenRules {
    /// Rules for tokens of this issuer, for any audience: `sub` is the name, `scope` and `scp` are
    /// the scopes.
    pub fn new(issuer: impl Into<String>) -> TokenRules {
        TokenRules {
            issuer: issuer.into(),
            audiences: Vec::new(),
            algorithms: Vec::new(),
            name_claim: "sub".to_owned(),
            tenants_claim: None,
            scope_claims: vec!["scope".to_owned(), "scp".to_owned()],
            quota_claim: None,
            tenants: TenantGrant::None,
            quota: None,
        }
    }
}

/// The caller that a token authenticates.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// The caller.
    pub principal: PrincipalBuf,
    /// When the token expires, including the leeway, in ms since the Unix epoch.
    pub expires_unix_ms: u64,
    /// The grant of the key that signed the token.
    pub grant: Arc<Grant>,
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// No key of the issuer has the `kid` of the token. There may be newer keys.
    UnknownKey,
    /// The token has expired or is not valid yet; its signature was not verified.
    Expired(&'static str),
    /// The token is wrong, regardless of the keys.
    Wrong(&'static str),
}

impl From<&'static str> for TokenRefusal {
    fn from(reason: &'static str) -> TokenRefusal {
        TokenRefusal::Wrong(reason)
    }
}

impl TokenRules {
    /// Rejects a token that would be invalid even with a right signature; returns when the token
    /// expires.
    pub(super) fn check_unverified(
        &self,
        token: &UnverifiedToken<'_>,
        now_unix_ms: u64,
    ) -> Result<u64, TokenRefusal> {
        if token.issuer() != Some(self.issuer.as_str()) {
            return Err(TokenRefusal::Wrong("the token was issued by another issuer"));
        }
        // RFC 8725 §3.1: the application determines the algorithms, not the token.
        if !self.algorithms.is_empty() && !self.algorithms.contains(&token.algorithm) {
            return Err(TokenRefusal::Wrong("the algorithm of the token is not accepted"));
        }
        claims::check_time(&token.claims, now_unix_ms)
    }

    /// Verifies a token of this issuer with the issuer's keys, and that the token is valid now.
    ///
    /// # Errors
    /// [`TokenRefusal`]
    pub fn verify(
        &self,
        token: &UnverifiedToken<'_>,
        keys: &TokenKeys,
        now_unix_ms: u64,
    ) -> Result<VerifiedToken, TokenRefusal> {
        let expires_unix_ms = self.check_unverified(token, now_unix_ms)?;
        let mut is_tried = false;
        let signed_with = keys.fitting(token.kid(), token.algorithm).find(|key| {
            is_tried = true;
            key.verifies(token.algorithm, token.signed, &token.signature)
        });
        let Some(key) = signed_with else {
            return Err(match token.kid() {
                Some(kid) if !keys.has_name(kid) => TokenRefusal::UnknownKey,
                _ if is_tried => TokenRefusal::Wrong("the token's signature is invalid"),
                _ => TokenRefusal::Wrong("no key of the issuer fits the token"),
            });
        };
        claims::check(&token.claims, self)?;
        let principal = claims::principal(&token.claims, self)?;
        Ok(VerifiedToken { principal, expires_unix_ms, grant: Arc::clone(key.grant()) })
    }
}
