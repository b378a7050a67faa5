//! The bytes of a token, before its content is trusted (RFC 7515 §5.2, RFC 7519 §7.2).
//!
//! Invariant: a token has one accepted form. Key references in its header (`jku`, `jwk`, `x5u`,
//! `x5c`) are ignored; header members that would change its processing make it invalid.

use std::fmt;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::{auth::jws::JwsAlgorithm, limits::callers::TOKEN_BYTES_MAX};

use super::strict::{NoObject, base64url, object};

/// A parsed JWT; its signature is not verified yet.
pub struct UnverifiedToken<'t> {
    /// The signed bytes: the first two parts and the dot between them.
    pub(super) signed: &'t [u8],
    pub(super) signature: Zeroizing<Vec<u8>>,
    pub(super) algorithm: JwsAlgorithm,
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
}

impl fmt::Debug for UnverifiedToken<'_> {
    /// Omits the content of the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnverifiedToken")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl<'t> UnverifiedToken<'t> {
    /// Reads a JWT in compact form.
    ///
    /// # Errors
    /// Why the token is invalid; the text repeats nothing of the token.
    pub fn read(token: &'t [u8]) -> Result<UnverifiedToken<'t>, &'static str> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("the token is too long");
        }
        let text = str::from_utf8(token).map_err(|_| "the token is not base64url")?;
        let mut parts = text.split('.');
        let (header, claims, signature) = match (parts.next(), parts.next(), parts.next()) {
            (Some(header), Some(claims), Some(signature)) => (header, claims, signature),
            _ => return Err("the token must have three parts"),
        };
        match parts.count() {
            0 => {}
            // RFC 7516 §3.1.
            2 => return Err("the token is encrypted"),
            _ => return Err("the token must have three parts"),
        }
        let signed = &token[..header.len() + 1 + claims.len()];
        // RFC 7518 §3.6: an empty signature makes the token unsecured.
        if signature.is_empty() {
            return Err("the token is not signed");
        }
        let decode = |part| base64url(part).ok_or("the token is not base64url");
        let (header, claims, signature) = (decode(header)?, decode(claims)?, decode(signature)?);
        let header = object(&header).map_err(|why| match why {
            NoObject::Unreadable => "the token's header is not a JSON object",
            NoObject::Twice => "a member of the token's header appears twice",
        })?;
        let (algorithm, kid) = check_header(&header)?;
        let claims = object(&claims).map_err(|why| match why {
            NoObject::Unreadable => "the token's claims are not a JSON object",
            NoObject::Twice => "a claim of the token appears twice",
        })?;
        Ok(UnverifiedToken { signed, signature, algorithm, kid, claims })
    }

    /// The issuer that the token names; the token must be verified with the keys of this issuer.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// The `kid` of the token's key.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }
}

/// Checks a header; returns its algorithm and the name of its key.
fn check_header(
    header: &Map<String, Value>,
) -> Result<(JwsAlgorithm, Option<String>), &'static str> {
    // RFC 7515 §4.1.11: critical extensions must be understood; this server understands none.
    if header.contains_key("crit") {
        return Err("the token's header requires an extension (crit)");
    }
    // RFC 7516 §4.1.2, §4.1.3.
    if header.contains_key("enc") || header.contains_key("zip") {
        return Err("the token is encrypted");
    }
    // RFC 7797 §3: `b64` changes the signed bytes; §6 requires it to be in `crit`.
    if header.contains_key("b64") {
        return Err("the token's header requires an extension (b64)");
    }
    let algorithm = match header.get("alg") {
        Some(Value::String(name)) => JwsAlgorithm::named(name),
        Some(_) => None,
        None => return Err("the token's header has no alg"),
    };
    let algorithm = algorithm.ok_or("the algorithm of the token is not accepted")?;
    if let Some(kind) = header.get("typ") {
        let is_token = kind.as_str().is_some_and(is_token_type);
        is_token.then_some(()).ok_or("the token's typ is not JWT")?;
    }
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) if is_plain_name(kid) => Some(kid.clone()),
        Some(_) => return Err("the token's kid has invalid characters"),
    };
    Ok((algorithm, kid))
}

/// RFC 7519 §5.1, RFC 9068 §2.1; RFC 7515 §4.1.9: `application/` may be omitted.
fn is_token_type(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
}

/// Rejects characters that a file system, a shell or a log would interpret. Keys are looked up in
/// memory, so this protects logs that contain the name.
fn is_plain_name(kid: &str) -> bool {
    let is_path = kid.contains(['/', '\\']) || kid.contains("..");
    !kid.is_empty() && !is_path && !kid.chars().any(char::is_control)
}
