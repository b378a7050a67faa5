//! Valid tokens, invalid tokens, and tokens made by PyJWT.

#![allow(clippy::unwrap_used, clippy::panic)]

#[cfg(test)]
mod bad;
#[cfg(test)]
mod signer;

use crate::auth::{JwsAlgorithm, ScopeSet, TenantGrant, TokenKeys, jws::encode_url};

use super::*;

pub use signer::{ALGORITHMS, Issuer, SECRET, hmac};

pub const ISSUER: &str = "https://issuer.example";

/// 14 November 2023.
pub const NOW_MS: u64 = 1_700_000_000_000;

pub fn rules() -> TokenRules {
    TokenRules {
        audiences: vec!["peregrine".to_owned()],
        tenants_claim: Some("org".to_owned()),
        quota_claim: Some("plan".to_owned()),
        ..TokenRules::new(ISSUER)
    }
}

/// Valid claims, some of them replaced or removed.
pub fn claims_with(others: &[(&str, Option<&str>)]) -> String {
    let mut members: Vec<(&str, &str)> = vec![
        ("iss", r#""https://issuer.example""#),
        ("aud", r#"["other","peregrine"]"#),
        ("sub", r#""alice""#),
        ("iat", "1700000000"),
        ("nbf", "1700000000"),
        ("exp", "1700003600"),
        ("scope", r#""a2a:read a2a:send""#),
        ("scp", r#"["a2a:cancel"]"#),
        ("org", r#"["blue","red"]"#),
        ("plan", r#""gold""#),
    ];
    for (name, value) in others {
        members.retain(|(member, _)| member != name);
        members.extend(value.map(|value| (*name, value)));
    }
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

pub fn header_of(algorithm: JwsAlgorithm, kid: &str) -> String {
    format!(r#"{{"alg":"{}","typ":"JWT","kid":"{kid}"}}"#, algorithm.name())
}

pub fn verify(
    rules: &TokenRules,
    keys: &TokenKeys,
    token: &[u8],
    now_ms: u64,
) -> Result<VerifiedToken, TokenRefusal> {
    rules.verify(&UnverifiedToken::read(token)?, keys, now_ms)
}

/// Tokens signed by another implementation (PyJWT 2, on OpenSSL).
#[test]
fn pyjwt_tokens_are_verified() {
    let tokens = include_str!("../../../../tests/data/tokens/pyjwt.txt");
    let keys = include_bytes!("../../../../tests/data/tokens/keys.json");
    let keys = TokenKeys::read(keys).unwrap().and(TokenKeys::secret(SECRET.to_vec()).unwrap());
    let pem = include_bytes!("../../../../tests/data/tokens/keys.pem");
    let pem = TokenKeys::read(pem).unwrap().and(TokenKeys::secret(SECRET.to_vec()).unwrap());
    assert_eq!(tokens.lines().count(), ALGORITHMS.len());
    for token in tokens.lines() {
        for keys in [&keys, &pem] {
            let verified = verify(&rules(), keys, token.as_bytes(), NOW_MS).unwrap();
            let principal = verified.principal;
            assert_eq!((&*principal.issuer, &*principal.name), (ISSUER, "alice"));
            let scopes = ScopeSet::new([ScopeSet::READ, ScopeSet::SEND, ScopeSet::CANCEL]);
            assert_eq!(principal.scopes, scopes);
            let tenants = TenantGrant::Named(vec!["blue".into(), "red".into()]);
            assert_eq!((principal.tenants, principal.quota.unwrap()), (tenants, "gold".to_owned()));
            assert_eq!(verified.expires_unix_ms, 1_700_003_660_000);
        }
    }
}

#[test]
fn weak_rsa_keys_are_ignored() {
    let keys = include_bytes!("../../../../tests/data/tokens/weak.json");
    assert!(TokenKeys::read_set(keys).unwrap().is_empty());
    let token = include_str!("../../../../tests/data/tokens/weak.txt").trim();
    let refused = verify(&rules(), &TokenKeys::read_set(keys).unwrap(), token.as_bytes(), NOW_MS);
    assert_eq!(refused.unwrap_err(), TokenRefusal::UnknownKey);
}

#[test]
fn token_times_have_leeway_of_60_seconds() {
    let issuer = Issuer::new();
    let keys = issuer.keys();
    let at = |claims: &[(&str, Option<&str>)], now_ms| {
        let header = header_of(JwsAlgorithm::EdDsa, "ed");
        let token = issuer.token(JwsAlgorithm::EdDsa, &header, &claims_with(claims));
        verify(&rules(), &keys, token.as_bytes(), now_ms).map(|token| token.expires_unix_ms)
    };
    let wrong = |reason| Err(TokenRefusal::Expired(reason));
    assert_eq!(at(&[], NOW_MS - 60_000), Ok(1_700_003_660_000));
    assert_eq!(at(&[], NOW_MS - 60_001), wrong("the token is not valid yet"));
    assert_eq!(at(&[("nbf", None)], NOW_MS - 60_001), wrong("the token was issued in the future"));
    assert_eq!(at(&[("nbf", None), ("iat", None)], 0), Ok(1_700_003_660_000));
    assert_eq!(at(&[], 1_700_003_659_999), Ok(1_700_003_660_000));
    assert_eq!(at(&[], 1_700_003_660_000), wrong("the token has expired"));
    // A number of seconds may have a fraction, and exceed any time.
    assert_eq!(at(&[("exp", Some("1700000000.5"))], NOW_MS), Ok(1_700_000_060_500));
    assert_eq!(at(&[("exp", Some("1.7000036e9"))], NOW_MS), Ok(1_700_003_660_000));
    assert_eq!(at(&[("exp", Some("1e300"))], u64::MAX - 1), Ok(u64::MAX));
}

#[test]
fn principal_is_read_from_configured_claims() {
    let issuer = Issuer::new();
    let verify = |rules: &TokenRules, claims: &[(&str, Option<&str>)]| {
        let header = r#"{"alg":"ES256","kid":"p256","typ":"application/at+JWT"}"#;
        let token = issuer.token(JwsAlgorithm::Es256, header, &claims_with(claims));
        verify(rules, &issuer.keys(), token.as_bytes(), NOW_MS).map(|token| token.principal)
    };
    let none = TokenRules::new(ISSUER);
    let principal = verify(&none, &[("aud", None), ("scp", None), ("scope", None)]).unwrap();
    assert_eq!((principal.tenants, principal.quota), (TenantGrant::None, None));
    assert_eq!(principal.scopes, ScopeSet::default());
    let other = TokenRules {
        name_claim: "email".to_owned(),
        tenants_claim: Some("tid".to_owned()),
        scope_claims: vec!["roles".to_owned()],
        quota_claim: Some("tier".to_owned()),
        quota: Some("usual".to_owned()),
        ..TokenRules::new(ISSUER)
    };
    let email = ("email", Some(r#""a@b""#));
    let principal = verify(&other, &[email, ("tid", Some(r#""t""#))]).unwrap();
    assert_eq!((&*principal.name, principal.scopes), ("a@b", ScopeSet::default()));
    assert_eq!(principal.tenants, TenantGrant::Named(vec!["t".into()]));
    assert_eq!(principal.quota.as_deref(), Some("usual"));
    let more = [email, ("tid", Some("[]")), ("roles", Some(r#"["x  y","z"]"#))];
    let principal = verify(&other, &more).unwrap();
    assert_eq!(principal.scopes, ScopeSet::new(["x", "y", "z"]));
    assert_eq!(principal.tenants, TenantGrant::None);
    let fixed = TokenRules { tenants: TenantGrant::Any, ..TokenRules::new(ISSUER) };
    assert_eq!(verify(&fixed, &[]).unwrap().tenants, TenantGrant::Any);
    assert!(verify(&other, &[]).is_err());
}

#[test]
fn token_bytes_max() {
    let issuer = Issuer::new();
    let of = |len: usize| {
        let filler = format!("\"{}\"", "x".repeat(len));
        let claims = claims_with(&[("filler", Some(&filler))]);
        issuer.token(JwsAlgorithm::EdDsa, &header_of(JwsAlgorithm::EdDsa, "ed"), &claims)
    };
    let verify = |token: &str| verify(&rules(), &issuer.keys(), token.as_bytes(), NOW_MS);
    let len = (1..).find(|len| of(*len).len() > 8 * 1024).unwrap();
    assert!(verify(&of(len - 1)).is_ok());
    assert_eq!(verify(&of(len)).unwrap_err(), TokenRefusal::Wrong("the token is too long"));
}

/// Of nine matching keys the ninth is not tried.
#[test]
fn token_keys_tried_max() {
    let issuers: Vec<Issuer> = (0..9).map(|_| Issuer::new()).collect();
    let keys: Vec<String> = issuers.iter().map(|issuer| issuer.jwk("ed", "")).collect();
    let keys = TokenKeys::read_set(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes());
    let verify = |at: usize, header: &str| {
        let token = issuers[at].token(JwsAlgorithm::EdDsa, header, &claims_with(&[]));
        verify(&rules(), keys.as_ref().unwrap(), token.as_bytes(), NOW_MS)
    };
    for header in [r#"{"alg":"EdDSA"}"#, r#"{"alg":"Ed25519"}"#] {
        assert!(verify(7, header).is_ok());
        let refused = TokenRefusal::Wrong("the token's signature is invalid");
        assert_eq!(verify(8, header).unwrap_err(), refused);
    }
    // A token with a `kid` may be signed with an unnamed key, but the keys are fetched once more.
    assert!(verify(0, r#"{"alg":"EdDSA","kid":"x"}"#).is_ok());
    assert_eq!(verify(8, r#"{"alg":"EdDSA","kid":"x"}"#).unwrap_err(), TokenRefusal::UnknownKey);
}

/// A secret is not used for an HMAC with a digest longer than the secret.
#[test]
fn hmac_secret_shorter_than_digest_verifies_no_token() {
    let issuer = Issuer::new();
    for len in [31, 32, 47, 48, 63, 64] {
        let Ok(keys) = TokenKeys::secret(SECRET[..len].to_vec()) else {
            assert_eq!(len, 31);
            continue;
        };
        for (hash, name, least) in [
            (ring::hmac::HMAC_SHA256, "HS256", 32),
            (ring::hmac::HMAC_SHA384, "HS384", 48),
            (ring::hmac::HMAC_SHA512, "HS512", 64),
        ] {
            let header = encode_url(format!(r#"{{"alg":"{name}"}}"#).as_bytes());
            let signed = format!("{header}.{}", encode_url(claims_with(&[]).as_bytes()));
            let signature = encode_url(&hmac(hash, &SECRET[..len], signed.as_bytes()));
            let token = format!("{signed}.{signature}");
            let verified = verify(&rules(), &keys, token.as_bytes(), NOW_MS);
            assert_eq!(verified.is_ok(), len >= least, "{name} {len}");
            // The issuer's secret has 64 bytes.
            assert!(
                verify(&rules(), &issuer.keys(), token.as_bytes(), NOW_MS).is_ok() == (len == 64)
            );
        }
    }
}
