//! The claims of a token, once its signature is verified (RFC 7519 §4.1, RFC 9068 §2.2).
//!
//! Invariant: a claim of a wrong type makes the token invalid; it is never ignored.

use serde_json::{Map, Value};

use crate::{
    limits::callers::{CALLER_NAME_BYTES_MAX, TOKEN_LEEWAY_S},
    service::principal::{CredentialKind, PrincipalBuf, ScopeSet, TenantGrant},
};

use super::{TokenRefusal, TokenRules};

type Claims = Map<String, Value>;

/// Checks the issuer and the audience.
pub(super) fn check(claims: &Claims, rules: &TokenRules) -> Result<(), &'static str> {
    match claims.get("iss") {
        Some(Value::String(issuer)) if *issuer == rules.issuer => {}
        Some(_) => return Err("the token was issued by another issuer"),
        None => return Err("the token has no iss"),
    }
    let audiences = match claims.get("aud") {
        Some(claim) => {
            Some(texts(claim).ok_or("the token's aud must be a string or an array of strings")?)
        }
        None => None,
    };
    if !rules.audiences.is_empty() {
        let audiences = audiences.ok_or("the token has no aud")?;
        let is_ours = |one: &&str| rules.audiences.iter().any(|ours| ours == one);
        audiences.iter().find(|one| is_ours(one)).ok_or("the token is for another audience")?;
    }
    Ok(())
}

/// Checks that the token is valid now; returns when it expires, in ms since the Unix epoch.
pub(super) fn check_time(claims: &Claims, now_unix_ms: u64) -> Result<u64, TokenRefusal> {
    let leeway_ms = f64::from(TOKEN_LEEWAY_S) * 1000.0;
    let ms = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(claim) => claim.as_f64().map(|s| Some(s * 1000.0)).ok_or(()),
    };
    let now_ms = now_unix_ms as f64;
    let ends_ms = ms("exp").map_err(|()| "the token's exp must be a number")?;
    // The cast saturates: a larger time becomes the largest, a time before the epoch becomes 0.
    let ends_ms = (ends_ms.ok_or("the token has no exp")? + leeway_ms) as u64;
    if now_unix_ms >= ends_ms {
        return Err(TokenRefusal::Expired("the token has expired"));
    }
    let begins_ms = ms("nbf").map_err(|()| "the token's nbf must be a number")?;
    if begins_ms.is_some_and(|begins_ms| begins_ms > now_ms + leeway_ms) {
        return Err(TokenRefusal::Expired("the token is not valid yet"));
    }
    let made_ms = ms("iat").map_err(|()| "the token's iat must be a number")?;
    if made_ms.is_some_and(|made_ms| made_ms > now_ms + leeway_ms) {
        return Err(TokenRefusal::Expired("the token was issued in the future"));
    }
    Ok(ends_ms)
}

/// The caller that the token names.
pub(super) fn principal(claims: &Claims, rules: &TokenRules) -> Result<PrincipalBuf, &'static str> {
    let name = claims.get(&rules.name_claim).ok_or("the token does not name its caller")?;
    let name = name.as_str().filter(|name| is_name(name));
    let name = name.ok_or("the caller's name in the token has invalid characters")?;
    Ok(PrincipalBuf {
        kind: CredentialKind::Jwt,
        issuer: rules.issuer.clone(),
        name: name.to_owned(),
        tenants: tenants(claims, rules)?,
        scopes: scopes(claims, rules)?,
        quota: quota(claims, rules)?,
    })
}

/// Whether a text may name a caller: it is not empty, at most [`CALLER_NAME_BYTES_MAX`] bytes long,
/// and has no control characters.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= CALLER_NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn tenants(claims: &Claims, rules: &TokenRules) -> Result<TenantGrant, &'static str> {
    let Some(claim) = &rules.tenants_claim else { return Ok(rules.tenants.clone()) };
    let Some(claim) = claims.get(claim) else { return Ok(TenantGrant::None) };
    let names =
        texts(claim).ok_or("the token's tenants must be a string or an array of strings")?;
    if !names.iter().all(|name| is_name(name)) {
        return Err("a tenant in the token has invalid characters");
    }
    Ok(match names.is_empty() {
        true => TenantGrant::None,
        false => TenantGrant::Named(names.into_iter().map(Into::into).collect()),
    })
}

/// RFC 8693 §4.2: names separated by blanks. Some issuers send an array instead.
fn scopes(claims: &Claims, rules: &TokenRules) -> Result<ScopeSet, &'static str> {
    let mut names = Vec::new();
    for claim in rules.scope_claims.iter().filter_map(|name| claims.get(name)) {
        let values =
            texts(claim).ok_or("the token's scopes must be a string or an array of strings")?;
        names.extend(values.into_iter().flat_map(|value| value.split(' ')));
    }
    Ok(ScopeSet::new(names.into_iter().filter(|name| !name.is_empty())))
}

fn quota(claims: &Claims, rules: &TokenRules) -> Result<Option<String>, &'static str> {
    match rules.quota_claim.as_ref().and_then(|claim| claims.get(claim)) {
        None => Ok(rules.quota.clone()),
        Some(Value::String(name)) if is_name(name) => Ok(Some(name.clone())),
        Some(_) => Err("the token's quota is not a valid name"),
    }
}

/// A text, or an array of texts.
fn texts(claim: &Value) -> Option<Vec<&str>> {
    match claim {
        Value::String(text) => Some(vec![text]),
        Value::Array(entries) => entries.iter().map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}
