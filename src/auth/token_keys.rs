//! The keys of an issuer, read from a document, or a secret shared with the issuer.
//!
//! Invariant: a key is ignored if it is not for signatures, of an unknown kind or too weak. A
//! caller stays admitted as long as its key exists: the key's [`Grant`] is passed on to the next
//! set that contains the key, and withdrawn by a set without the key.

use std::{fmt, sync::Arc};

use ring::{digest, hmac};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::limits::callers::{ISSUER_DOCUMENT_BYTES_MAX, ISSUER_KEYS_MAX, TOKEN_KEYS_TRIED_MAX};

use super::{
    Grant,
    jws::{
        DocumentKey, JwsAlgorithm, PublicKey, pem_sections, read_certificate_key, read_jwk,
        read_rsa, read_spki,
    },
    jwt::object,
};

/// The accepted bits of an RSA modulus. A shorter key is invalid (RFC 7518 §3.3), a longer key is
/// ignored.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Why no keys can be read from a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKeysError {
    /// The document is longer than [`ISSUER_DOCUMENT_BYTES_MAX`].
    TooLong,
    /// The document is neither a key set nor PEM.
    Unreadable,
    /// The document has more than [`ISSUER_KEYS_MAX`] keys.
    TooMany,
    /// The document has no public key for signatures: P-256, P-384, P-521, Ed25519, RSA of 2,048
    /// bits.
    NoKey,
    /// The secret is shorter than the digest of the shortest HMAC, 32 bytes (RFC 7518 §3.2).
    ShortSecret,
}

impl fmt::Display for TokenKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenKeysError::TooLong => {
                write!(f, "the keys have more than {ISSUER_DOCUMENT_BYTES_MAX} bytes")
            }
            TokenKeysError::Unreadable => f.write_str("the keys must be a JWK set or PEM"),
            TokenKeysError::TooMany => write!(f, "more than {ISSUER_KEYS_MAX} keys"),
            TokenKeysError::NoKey => {
                f.write_str("no public key for P-256, P-384, P-521, Ed25519 or RSA (2,048 bits)")
            }
            TokenKeysError::ShortSecret => f.write_str("a secret needs at least 32 bytes"),
        }
    }
}

impl std::error::Error for TokenKeysError {}

/// The verifying part of a key.
#[derive(Clone)]
enum Verifier {
    Public(PublicKey),
    /// A secret, for each HMAC that the secret is long enough for. `ring` stores states of the
    /// hash, not the secret.
    Secret(Vec<(JwsAlgorithm, hmac::Key)>),
}

/// A key of an issuer.
#[derive(Clone)]
pub struct TokenKey {
    kid: Option<String>,
    algorithm: Option<JwsAlgorithm>,
    verifier: Verifier,
    /// The hash of the key, without its name.
    thumbprint: [u8; 32],
    grant: Arc<Grant>,
}

/// The keys of an issuer.
#[derive(Clone, Default)]
pub struct TokenKeys(Vec<TokenKey>);

impl fmt::Debug for TokenKeys {
    /// Shows only the number of keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKeys({})", self.0.len())
    }
}

impl PartialEq for TokenKeys {
    /// Whether both have the same keys with the same names; grants are not compared.
    fn eq(&self, other: &TokenKeys) -> bool {
        let is_same = |(a, b): (&TokenKey, &TokenKey)| a.kid == b.kid && a.is_same_key(b);
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_same)
    }
}

impl TokenKeys {
    /// Reads the document at an issuer's URL: a JWK set (RFC 7517 §5), which may be empty.
    ///
    /// # Errors
    /// [`TokenKeysError`], but never `NoKey` or `ShortSecret`.
    pub fn read_set(document: &[u8]) -> Result<TokenKeys, TokenKeysError> {
        if document.len() > ISSUER_DOCUMENT_BYTES_MAX {
            return Err(TokenKeysError::TooLong);
        }
        let set = object(document).map_err(|_| TokenKeysError::Unreadable)?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or(TokenKeysError::Unreadable)?;
        if keys.len() > ISSUER_KEYS_MAX {
            return Err(TokenKeysError::TooMany);
        }
        Ok(TokenKeys::of(keys.iter().filter_map(read_jwk)))
    }

    /// Reads a file: a JWK set, one JWK, or PEM with `PUBLIC KEY`, `RSA PUBLIC KEY` and
    /// `CERTIFICATE`. Only the key of a certificate is used. Private keys are ignored.
    ///
    /// # Errors
    /// [`TokenKeysError`], but never `ShortSecret`.
    pub fn read(document: &[u8]) -> Result<TokenKeys, TokenKeysError> {
        if document.len() > ISSUER_DOCUMENT_BYTES_MAX {
            return Err(TokenKeysError::TooLong);
        }
        let text = str::from_utf8(document).map_err(|_| TokenKeysError::Unreadable)?;
        let keys = match text.contains("-----BEGIN ") {
            true => {
                // One more section than allowed suffices to detect too many.
                let sections = |label| pem_sections(text, label, ISSUER_KEYS_MAX + 1);
                let keys = sections("PUBLIC KEY").filter_map(|der| read_spki(&der));
                let keys = keys.chain(sections("RSA PUBLIC KEY").filter_map(|der| read_rsa(&der)));
                let certificates = sections("CERTIFICATE");
                let keys = keys.chain(certificates.filter_map(|der| read_certificate_key(&der)));
                let keys: Vec<PublicKey> = keys.collect();
                if keys.len() > ISSUER_KEYS_MAX {
                    return Err(TokenKeysError::TooMany);
                }
                let named = |key| DocumentKey { kid: None, algorithm: None, key };
                TokenKeys::of(keys.into_iter().map(named))
            }
            false => {
                let jwk = object(document).map_err(|_| TokenKeysError::Unreadable)?;
                match jwk.contains_key("keys") {
                    true => TokenKeys::read_set(document)?,
                    false => TokenKeys::of(read_jwk(&Value::Object(jwk)).into_iter()),
                }
            }
        };
        if keys.0.is_empty() { Err(TokenKeysError::NoKey) } else { Ok(keys) }
    }

    /// A secret shared with the issuer, for each HMAC with a digest of at most its length
    /// (RFC 7518 §3.2).
    ///
    /// # Errors
    /// [`TokenKeysError::ShortSecret`]
    pub fn secret(secret: impl Into<Zeroizing<Vec<u8>>>) -> Result<TokenKeys, TokenKeysError> {
        let secret: Zeroizing<Vec<u8>> = secret.into();
        let algorithms = [
            (JwsAlgorithm::Hs256, hmac::HMAC_SHA256, 32),
            (JwsAlgorithm::Hs384, hmac::HMAC_SHA384, 48),
            (JwsAlgorithm::Hs512, hmac::HMAC_SHA512, 64),
        ];
        let fitting = algorithms.into_iter().filter(|(_, _, len)| secret.len() >= *len);
        let keys: Vec<(JwsAlgorithm, hmac::Key)> =
            fitting.map(|(name, hash, _)| (name, hmac::Key::new(hash, &secret))).collect();
        if keys.is_empty() {
            return Err(TokenKeysError::ShortSecret);
        }
        Ok(TokenKeys(vec![TokenKey {
            kid: None,
            algorithm: None,
            verifier: Verifier::Secret(keys),
            thumbprint: thumbprint(b"oct", &[&secret]),
            grant: Arc::default(),
        }]))
    }

    /// These keys and the keys of another document of the same issuer.
    #[must_use]
    pub fn and(mut self, others: TokenKeys) -> TokenKeys {
        self.0.extend(others.0);
        self.share_grants()
    }

    fn of(keys: impl Iterator<Item = DocumentKey>) -> TokenKeys {
        let is_strong = |key: &DocumentKey| {
            key.key.rsa_bits().is_none_or(|bits| RSA_BITS.contains(&bits))
                // RFC 7517 §4.4: `alg` is the only algorithm of the key, and the key must fit.
                && key.algorithm.is_none_or(|algorithm| key.key.fits(algorithm))
        };
        let keys = keys.filter(is_strong).map(|DocumentKey { kid, algorithm, key }| TokenKey {
            kid,
            algorithm,
            thumbprint: thumbprint_of(&key),
            verifier: Verifier::Public(key),
            grant: Arc::default(),
        });
        TokenKeys(keys.collect()).share_grants()
    }

    /// Makes keys that differ only in their names share one grant.
    fn share_grants(mut self) -> TokenKeys {
        for at in 1..self.0.len() {
            let (before, rest) = self.0.split_at_mut(at);
            let Some(key) = rest.first_mut() else { break };
            if let Some(same) = before.iter().find(|other| other.is_same_key(key)) {
                key.grant = Arc::clone(&same.grant);
            }
        }
        self
    }

    /// A copy of the keys that has not admitted a caller yet.
    #[must_use]
    pub fn anew(&self) -> TokenKeys {
        let mut keys = self.clone();
        keys.0.iter_mut().for_each(|key| key.grant = Arc::default());
        keys.share_grants()
    }

    /// These keys, with the grants of the same keys in `before`.
    #[must_use]
    pub fn after(mut self, before: &TokenKeys) -> TokenKeys {
        for key in &mut self.0 {
            if let Some(same) = before.0.iter().find(|other| other.is_same_key(key)) {
                key.grant = Arc::clone(&same.grant);
            }
        }
        self
    }

    /// Releases callers that were admitted by a key which `after` lacks.
    pub fn withdraw_but(&self, after: &TokenKeys) {
        for key in &self.0 {
            if !after.0.iter().any(|other| Arc::ptr_eq(&other.grant, &key.grant)) {
                key.grant.withdraw();
            }
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True: there are no keys, so no caller is admitted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the keys.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|key| key.kid.as_deref())
    }

    /// Whether a key has this name.
    pub(super) fn has_name(&self, kid: &str) -> bool {
        self.0.iter().any(|key| key.kid.as_deref() == Some(kid))
    }

    /// The keys that a token may be signed with, at most [`TOKEN_KEYS_TRIED_MAX`]: the keys with
    /// its `kid`, or all keys if it has no `kid`; then keys without a name.
    pub(super) fn fitting(
        &self,
        kid: Option<&str>,
        algorithm: JwsAlgorithm,
    ) -> impl Iterator<Item = &TokenKey> {
        let named = self.0.iter().filter(move |key| key.kid.is_some());
        let named = named.filter(move |key| kid.is_none() || key.kid.as_deref() == kid);
        let keys = named.chain(self.0.iter().filter(|key| key.kid.is_none()));
        keys.filter(move |key| key.fits(algorithm)).take(TOKEN_KEYS_TRIED_MAX)
    }
}

impl TokenKey {
    fn is_same_key(&self, other: &TokenKey) -> bool {
        self.thumbprint == other.thumbprint && self.algorithm == other.algorithm
    }

    fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        let fits = match &self.verifier {
            Verifier::Public(key) => key.fits(algorithm),
            Verifier::Secret(keys) => keys.iter().any(|(own, _)| *own == algorithm),
        };
        fits && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// Whether this key made the signature of the message.
    pub(super) fn verifies(
        &self,
        algorithm: JwsAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        match &self.verifier {
            Verifier::Public(key) => key.verifies(algorithm, message, signature),
            Verifier::Secret(keys) => {
                let key = keys.iter().find(|(own, _)| *own == algorithm);
                key.is_some_and(|(_, key)| hmac::verify(key, message, signature).is_ok())
            }
        }
    }

    pub(super) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}

fn thumbprint_of(key: &PublicKey) -> [u8; 32] {
    match key {
        PublicKey::P256(point) => thumbprint(b"P-256", &[point]),
        PublicKey::P384(point) => thumbprint(b"P-384", &[point]),
        PublicKey::P521(point) => thumbprint(b"P-521", &[point]),
        PublicKey::Ed25519(point) => thumbprint(b"Ed25519", &[point]),
        PublicKey::Rsa { n, e } => thumbprint(b"RSA", &[n, e]),
    }
}

/// SHA-256 over the kind and the numbers of a key, each with its length.
fn thumbprint(kind: &[u8], numbers: &[&[u8]]) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in [kind].iter().chain(numbers) {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finish().as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SET: &[u8] = include_bytes!("../../tests/data/tokens/keys.json");
    const PEM: &str = include_str!("../../tests/data/tokens/keys.pem");
    const CERTIFICATE: &str = include_str!("../../tests/data/tokens/certificate.pem");

    fn thumbprints(keys: &TokenKeys) -> Vec<[u8; 32]> {
        keys.0.iter().map(|key| key.thumbprint).collect()
    }

    #[test]
    fn key_has_same_thumbprint_in_jwks_pem_and_certificate() {
        let set = TokenKeys::read(SET).unwrap();
        assert_eq!((set.len(), TokenKeys::read_set(SET).unwrap()), (5, set.clone()));
        let pem = TokenKeys::read(PEM.as_bytes()).unwrap();
        // The RSA key is listed twice, in both of its forms.
        assert_eq!(thumbprints(&pem)[..5], thumbprints(&set));
        assert_eq!(thumbprints(&pem)[5], thumbprints(&set)[0]);
        assert!(Arc::ptr_eq(pem.0[5].grant(), pem.0[0].grant()));
        let certificate = TokenKeys::read(CERTIFICATE.as_bytes()).unwrap();
        assert_eq!(thumbprints(&certificate), thumbprints(&set)[1..2]);
        let set: Value = serde_json::from_slice(SET).unwrap();
        let one = TokenKeys::read(set["keys"][4].to_string().as_bytes()).unwrap();
        assert_eq!(thumbprints(&one), thumbprints(&pem)[4..5]);
        // The private members are ignored.
        let mut private = set["keys"][4].clone();
        private["d"] = "AAAA".into();
        assert_eq!(TokenKeys::read(private.to_string().as_bytes()), Ok(one));
    }

    #[test]
    fn invalid_key_documents_return_specific_errors() {
        let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----";
        for (document, error) in [
            ("", TokenKeysError::Unreadable),
            ("x", TokenKeysError::Unreadable),
            ("{}", TokenKeysError::NoKey),
            ("{\"keys\":[]}", TokenKeysError::NoKey),
            ("{\"keys\":7}", TokenKeysError::Unreadable),
            (r#"{"kty":"oct","k":"AAAA"}"#, TokenKeysError::NoKey),
            (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, TokenKeysError::NoKey),
            (r#"{"kty":"RSA","n":"AAAA","e":"AQAB"}"#, TokenKeysError::NoKey),
            (private, TokenKeysError::NoKey),
            (broken, TokenKeysError::NoKey),
        ] {
            assert_eq!(TokenKeys::read(document.as_bytes()), Err(error), "{document}");
        }
        let many = PEM.repeat(17);
        assert_eq!(TokenKeys::read(many.as_bytes()), Err(TokenKeysError::TooMany));
        let long = " ".repeat(ISSUER_DOCUMENT_BYTES_MAX + 1);
        assert_eq!(TokenKeys::read(long.as_bytes()), Err(TokenKeysError::TooLong));
        assert_eq!(TokenKeys::read_set(long.as_bytes()), Err(TokenKeysError::TooLong));
        assert_eq!(TokenKeys::secret(vec![0; 31]), Err(TokenKeysError::ShortSecret));
    }

    /// A key that another set restricts to one algorithm is a different key.
    #[test]
    fn key_restricted_to_an_algorithm_is_a_different_key() {
        let set: Value = serde_json::from_slice(SET).unwrap();
        let read = |algorithm: Option<&str>| {
            let mut key = set["keys"][0].clone();
            if let Some(algorithm) = algorithm {
                key["alg"] = algorithm.into();
            }
            TokenKeys::read(key.to_string().as_bytes()).unwrap()
        };
        let (any, only) = (read(None), read(Some("RS256")));
        assert_ne!(any, only);
        let after = only.after(&any);
        any.withdraw_but(&after);
        assert!(any.0[0].grant().is_withdrawn() && !after.0[0].grant().is_withdrawn());
    }
}
