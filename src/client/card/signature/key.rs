//! Public keys of card signers: as a JWK set (RFC 7517) or in PEM (RFC 7468).

use std::fmt;

use serde_json::Value;

use crate::auth::jws::{DocumentKey, JwsAlgorithm, PublicKey, pem_sections, read_jwk, read_spki};

/// The algorithm of this name; `None`: it is unknown or not for cards.
pub(super) fn algorithm(name: &str) -> Option<JwsAlgorithm> {
    let is_used =
        |algorithm: &JwsAlgorithm| !algorithm.is_symmetric() && *algorithm != JwsAlgorithm::Es512;
    JwsAlgorithm::named(name).filter(is_used)
}

/// The keys that a caller trusts.
#[derive(Clone, Debug, Default)]
pub struct CardKeys(Vec<DocumentKey>);

/// Why the keys of a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The document is neither a JWK (set) nor PEM.
    Unreadable,
    /// The document has no public key of a known kind: P-256, P-384, Ed25519, RSA.
    NoKey,
    /// The document has more keys than this.
    TooMany(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Unreadable => f.write_str("the keys must be a JWK set or PEM"),
            KeyError::NoKey => f.write_str("no public key for P-256, P-384, Ed25519 or RSA"),
            KeyError::TooMany(max) => write!(f, "more than {max} keys"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Maximum keys of one document.
pub const KEYS_MAX: usize = 64;

impl CardKeys {
    /// Reads a JWK set, a single JWK, or public keys in PEM; keys of another kind are skipped.
    ///
    /// # Errors
    /// [`KeyError`]
    pub fn read(document: &[u8]) -> Result<CardKeys, KeyError> {
        let text = str::from_utf8(document).map_err(|_| KeyError::Unreadable)?;
        let keys = match text.contains("-----BEGIN ") {
            true => pem(text),
            false => {
                let document: Value =
                    serde_json::from_str(text).map_err(|_| KeyError::Unreadable)?;
                let listed = document.get("keys").and_then(Value::as_array);
                let listed = listed.map_or(std::slice::from_ref(&document), Vec::as_slice);
                // One more than allowed is enough to detect too many.
                listed.iter().filter_map(jwk).take(KEYS_MAX + 1).collect()
            }
        };
        match keys.len() {
            0 => Err(KeyError::NoKey),
            1..=KEYS_MAX => Ok(CardKeys(keys)),
            _ => Err(KeyError::TooMany(KEYS_MAX)),
        }
    }

    /// The keys with this `kid` that fit the algorithm; a key without a `kid` fits any.
    pub(super) fn fitting(
        &self,
        kid: Option<&str>,
        algorithm: JwsAlgorithm,
    ) -> impl Iterator<Item = &DocumentKey> {
        let is_named = move |key: &&DocumentKey| match (&key.kid, kid) {
            (Some(own), Some(kid)) => own == kid,
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
        self.0.iter().filter(is_named).filter(move |key| key.fits(algorithm))
    }
}

/// Whether the key is of a kind that signs cards.
fn is_used(key: &DocumentKey) -> bool {
    !matches!(key.key, PublicKey::P521(_)) && !key.algorithm.is_some_and(JwsAlgorithm::is_symmetric)
}

fn jwk(jwk: &Value) -> Option<DocumentKey> {
    read_jwk(jwk).filter(is_used)
}

/// The sections `PUBLIC KEY` of a text.
fn pem(text: &str) -> Vec<DocumentKey> {
    let keys = pem_sections(text, "PUBLIC KEY", KEYS_MAX + 1).filter_map(|der| read_spki(&der));
    let keys = keys.map(|key| DocumentKey { kid: None, algorithm: None, key });
    keys.filter(is_used).collect()
}
