//! Private keys of the operator that sign cards and webhook posts.
//!
//! Invariant: no output contains a private key, and key material stays in memory only in `ring`'s
//! key pairs. A key has one algorithm, and its thumbprint (RFC 7638) is its default name.

use std::fmt;

use ring::{
    digest,
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    },
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    auth::jws::{JwsAlgorithm, encode_url as encode},
    json::base64,
};

/// Maximum number of active keys: one of each kind, and its successor during a rotation. Each key
/// creates up to three signatures of a card, and verifiers check a few signatures; ours checks 16.
pub const SIGNING_KEYS_MAX: usize = 4;

/// Why a key cannot sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningKeyError {
    /// The document has no private key in PEM (`BEGIN PRIVATE KEY`, PKCS#8).
    NoKey,
    /// The key is not P-256 or Ed25519, or is broken.
    Kind,
    /// The key is not P-256, Ed25519 or RSA of 2048 to 4096 bits, or is broken.
    KindOrRsa,
    /// A key of this name exists already.
    SameKid(String),
    /// There are [`SIGNING_KEYS_MAX`] keys already.
    TooMany,
}

impl fmt::Display for SigningKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SigningKeyError::NoKey => f.write_str(
                "no private key in PKCS#8 (PEM, BEGIN PRIVATE KEY); openssl pkcs8 -topk8 -nocrypt \
                 converts other forms",
            ),
            SigningKeyError::Kind => f.write_str("the private key must be for P-256 or Ed25519"),
            SigningKeyError::KindOrRsa => f.write_str(
                "the private key must be for P-256, Ed25519 or RSA of 2048 to 4096 bits",
            ),
            SigningKeyError::SameKid(kid) => write!(f, "two keys have the key id {kid:?}"),
            SigningKeyError::TooMany => {
                write!(f, "more than {SIGNING_KEYS_MAX} signing keys")
            }
        }
    }
}

impl std::error::Error for SigningKeyError {}

/// A private key and its public half.
pub(super) struct SigningKey {
    /// The name.
    pub kid: String,
    pair: SigningPair,
    /// The public half, as a JWK with only the required members.
    jwk: Value,
}

enum SigningPair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(rsa::KeyPair),
}

impl SigningKey {
    /// The first private key of a document in PEM (PKCS#8): P-256 or Ed25519 and, with
    /// `allows_rsa`, RSA of 2048 to 4096 bits.
    pub fn read(
        pem: &[u8],
        kid: Option<&str>,
        allows_rsa: bool,
        random: &SystemRandom,
    ) -> Result<SigningKey, SigningKeyError> {
        let der = der(pem).ok_or(SigningKeyError::NoKey)?;
        let rsa = || rsa::KeyPair::from_pkcs8(&der).ok().map(SigningPair::Rs256);
        let (pair, wrong) = match allows_rsa {
            true => (curve(&der, random).or_else(rsa), SigningKeyError::KindOrRsa),
            false => (curve(&der, random), SigningKeyError::Kind),
        };
        Ok(SigningKey::new(pair.ok_or(wrong)?, kid))
    }

    fn new(pair: SigningPair, kid: Option<&str>) -> SigningKey {
        let jwk = pair.jwk();
        let kid = kid.map_or_else(|| thumbprint(&jwk), str::to_owned);
        SigningKey { kid, pair, jwk }
    }

    /// The signature algorithm.
    pub fn algorithm(&self) -> JwsAlgorithm {
        match self.pair {
            SigningPair::Es256(_) => JwsAlgorithm::Es256,
            SigningPair::EdDsa(_) => JwsAlgorithm::EdDsa,
            SigningPair::Rs256(_) => JwsAlgorithm::Rs256,
        }
    }

    /// The protected header of the key's signatures, in base64url (RFC 7515 §4.1).
    pub fn protected(&self, typ: &str) -> String {
        let header = json!({"alg": self.algorithm().name(), "kid": self.kid, "typ": typ});
        encode(header.to_string().as_bytes())
    }

    /// The signature over a message, in the form of JWS (RFC 7518 §3); `None`: no randomness is
    /// available.
    pub fn sign(&self, message: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match &self.pair {
            SigningPair::Es256(pair) => Some(pair.sign(random, message).ok()?.as_ref().to_vec()),
            SigningPair::EdDsa(pair) => Some(pair.sign(message).as_ref().to_vec()),
            SigningPair::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }

    /// Whether this is the name or the thumbprint of the key.
    #[cfg(feature = "push")]
    pub fn is(&self, name: &str) -> bool {
        self.kid == name || thumbprint(&self.jwk) == name
    }

    /// The public half of an Ed25519 key.
    #[cfg(feature = "push")]
    pub fn ed25519(&self) -> Option<&[u8]> {
        match &self.pair {
            SigningPair::EdDsa(pair) => Some(pair.public_key().as_ref()),
            SigningPair::Es256(_) | SigningPair::Rs256(_) => None,
        }
    }

    /// The public half as a JWK (RFC 7517 §4).
    fn public(&self) -> Value {
        let mut jwk = self.jwk.clone();
        let alg = self.algorithm().name();
        for (name, value) in [("kid", self.kid.as_str()), ("alg", alg), ("use", "sig")] {
            jwk[name] = value.into();
        }
        jwk
    }
}

impl SigningPair {
    fn jwk(&self) -> Value {
        match self {
            SigningPair::Es256(pair) => {
                // SEC 1 §2.3.3: a byte 4, then x and y.
                let point = pair.public_key().as_ref();
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                json!({"crv": "P-256", "kty": "EC", "x": encode(x), "y": encode(y)})
            }
            SigningPair::EdDsa(pair) => {
                json!({"crv": "Ed25519", "kty": "OKP", "x": encode(pair.public_key().as_ref())})
            }
            SigningPair::Rs256(pair) => {
                let rsa::PublicKeyComponents::<Vec<u8>> { n, e } = pair.public().into();
                json!({"e": encode(&e), "kty": "RSA", "n": encode(&n)})
            }
        }
    }
}

/// Adds a signing key.
pub(super) fn add(keys: &mut Vec<SigningKey>, key: SigningKey) -> Result<(), SigningKeyError> {
    if keys.len() == SIGNING_KEYS_MAX {
        return Err(SigningKeyError::TooMany);
    }
    if keys.iter().any(|other| other.kid == key.kid) {
        return Err(SigningKeyError::SameKid(key.kid));
    }
    keys.push(key);
    Ok(())
}

/// The public halves as a JWK set (RFC 7517 §5).
pub(super) fn jwks<'k>(keys: impl Iterator<Item = &'k SigningKey>) -> Vec<u8> {
    let keys: Vec<_> = keys.map(SigningKey::public).collect();
    json!({ "keys": keys }).to_string().into_bytes()
}

fn curve(der: &[u8], random: &SystemRandom) -> Option<SigningPair> {
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    if let Ok(pair) = EcdsaKeyPair::from_pkcs8(algorithm, der, random) {
        return Some(SigningPair::Es256(pair));
    }
    // RFC 8410 §7: the public half may be missing, as in keys of OpenSSL.
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(SigningPair::EdDsa)
}

/// RFC 7638 §3: the digest of the key's required members, in lexicographic order.
fn thumbprint(jwk: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(jwk).unwrap_or_default();
    encode(digest::digest(&digest::SHA256, &canonical).as_ref())
}

/// RFC 7468 §10: the first private key of a document.
fn der(pem: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
    const END: &str = "-----END PRIVATE KEY-----";
    let text = str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once(BEGIN)?;
    let (body, _) = rest.split_once(END)?;
    let mut digits = Zeroizing::new(String::with_capacity(body.len()));
    digits.extend(body.chars().filter(|c| !c.is_ascii_whitespace()));
    base64::decode(&digits).map(Zeroizing::new)
}
