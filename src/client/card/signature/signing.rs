//! Signs cards (A2A 1.0 §8.4, RFC 7515, RFC 8785) with keys of the operator's.
//!
//! Law: what is signed is what a reader acts on: the members of 1.0 first, as the specification has
//! it; the document as it goes out, where it has others beside them; and without what is empty, as
//! the SDKs make it. No key is shown, and none stays in memory but in `ring`'s pairs.

use std::fmt;

use ring::{
    digest,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use serde_json::json;
use zeroize::Zeroizing;

use crate::{
    binding::card_signer::{CardSigner, DetachedSignature},
    json::base64,
    model::Generation,
};

use super::{
    super::AgentCard,
    encode,
    form::{SignedForm, payloads},
};

/// Keys that sign at the same time: one, and the next one while it takes its place. Each makes up
/// to three signatures, and verifiers look at a few; ours at 16.
pub const SIGNING_KEYS_MAX: usize = 4;

/// The keys that cards are signed with: P-256 for ES256 and Ed25519 for EdDSA.
///
/// ```no_run
/// use std::sync::Arc;
/// use peregrine::{client::card::SigningKeys, engine::Setup};
///
/// let mut keys = SigningKeys::default();
/// keys.add(&std::fs::read("card-key.pem")?, None)?;
/// let setup = Setup {
///     card_signer: Some(Arc::new(keys)),
///     public_url: Some("https://agents.example".to_owned()),
///     ..Setup::default()
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SigningKeys {
    keys: Vec<SigningKey>,
    jwks: Vec<u8>,
    random: SystemRandom,
}

struct SigningKey {
    kid: String,
    pair: SigningPair,
    /// The header of its signatures, in base64url.
    protected: String,
    /// Its public half, as a JWK without a name.
    jwk: serde_json::Value,
}

enum SigningPair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// Why a key cannot sign cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningKeyError {
    /// The document holds no private key in PEM (`BEGIN PRIVATE KEY`, PKCS#8).
    NoKey,
    /// The key is none of P-256 or Ed25519, or broken.
    Kind,
    /// There is a key of this name already.
    SameKid(String),
    /// There are as many as [`SIGNING_KEYS_MAX`].
    TooMany,
}

impl fmt::Display for SigningKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SigningKeyError::NoKey => f.write_str(
                "there is no private key in PKCS#8 (PEM, BEGIN PRIVATE KEY); \
                 openssl pkcs8 -topk8 -nocrypt makes one of another form",
            ),
            SigningKeyError::Kind => f.write_str("the private key is none for P-256 or Ed25519"),
            SigningKeyError::SameKid(kid) => write!(f, "two keys are called {kid:?}"),
            SigningKeyError::TooMany => {
                write!(f, "there are more than {SIGNING_KEYS_MAX} keys that sign")
            }
        }
    }
}

impl std::error::Error for SigningKeyError {}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.kid)).finish()
    }
}

impl Default for SigningKeys {
    fn default() -> SigningKeys {
        SigningKeys { keys: Vec::new(), jwks: jwks(&[]), random: SystemRandom::new() }
    }
}

impl SigningKeys {
    /// Adds the first private key of a document in PEM (PKCS#8), under this name or, without one,
    /// under its thumbprint (RFC 7638).
    ///
    /// # Errors
    /// [`SigningKeyError`].
    pub fn add(&mut self, pem: &[u8], kid: Option<&str>) -> Result<(), SigningKeyError> {
        if self.keys.len() == SIGNING_KEYS_MAX {
            return Err(SigningKeyError::TooMany);
        }
        let der = der(pem).ok_or(SigningKeyError::NoKey)?;
        let key = SigningKey::new(self.pair(&der)?, kid);
        if self.keys.iter().any(|other| other.kid == key.kid) {
            return Err(SigningKeyError::SameKid(key.kid));
        }
        self.keys.push(key);
        self.jwks = jwks(&self.keys);
        Ok(())
    }

    /// The names of the keys.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.kid.as_str())
    }

    fn pair(&self, der: &[u8]) -> Result<SigningPair, SigningKeyError> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(algorithm, der, &self.random) {
            return Ok(SigningPair::Es256(pair));
        }
        // RFC 8410 §7: the public half may be left out, and OpenSSL does so.
        match Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            Ok(pair) => Ok(SigningPair::EdDsa(pair)),
            Err(_) => Err(SigningKeyError::Kind),
        }
    }

    fn signature(&self, key: &SigningKey, payload: &str) -> Option<DetachedSignature> {
        let protected = key.protected.clone();
        let message = format!("{protected}.{payload}");
        let signature = match &key.pair {
            SigningPair::Es256(pair) => {
                encode(pair.sign(&self.random, message.as_bytes()).ok()?.as_ref())
            }
            SigningPair::EdDsa(pair) => encode(pair.sign(message.as_bytes()).as_ref()),
        };
        Some(DetachedSignature { protected, signature })
    }
}

impl CardSigner for SigningKeys {
    fn sign(&self, card: &[u8]) -> Vec<DetachedSignature> {
        let Ok(card) = AgentCard::read(card) else { return Vec::new() };
        let is_v1 = card.generation == Generation::V1;
        let is_signed = |form: SignedForm| match form {
            // The members of 1.0 are not what a card of 0.3 is.
            SignedForm::Strict => is_v1,
            SignedForm::AsServed | SignedForm::Cleaned => true,
            // RFC 8785 forbids the escapes.
            SignedForm::CleanedEscaped => false,
        };
        let payloads: Vec<String> = payloads(&card)
            .into_iter()
            .filter(|(form, _)| is_signed(*form))
            .map(|(_, payload)| encode(&payload))
            .collect();
        let pairs = self.keys.iter().flat_map(|key| payloads.iter().map(move |one| (key, one)));
        pairs.filter_map(|(key, payload)| self.signature(key, payload)).collect()
    }

    fn jwks(&self) -> &[u8] {
        &self.jwks
    }
}

impl SigningKey {
    fn new(pair: SigningPair, kid: Option<&str>) -> SigningKey {
        let (alg, jwk) = match &pair {
            SigningPair::Es256(pair) => {
                // SEC 1 §2.3.3: 4, x, y.
                let point = pair.public_key().as_ref();
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                ("ES256", json!({"crv": "P-256", "kty": "EC", "x": encode(x), "y": encode(y)}))
            }
            SigningPair::EdDsa(pair) => {
                let x = encode(pair.public_key().as_ref());
                ("EdDSA", json!({"crv": "Ed25519", "kty": "OKP", "x": x}))
            }
        };
        let kid = kid.map_or_else(|| thumbprint(&jwk), str::to_owned);
        let header = json!({"alg": alg, "kid": kid, "typ": "JOSE"});
        SigningKey { kid, pair, protected: encode(header.to_string().as_bytes()), jwk }
    }

    /// RFC 7517 §4.
    fn public(&self) -> serde_json::Value {
        let mut jwk = self.jwk.clone();
        let alg = if let SigningPair::Es256(_) = self.pair { "ES256" } else { "EdDSA" };
        for (name, value) in [("kid", self.kid.as_str()), ("alg", alg), ("use", "sig")] {
            jwk[name] = value.into();
        }
        jwk
    }
}

fn jwks(keys: &[SigningKey]) -> Vec<u8> {
    let keys: Vec<_> = keys.iter().map(SigningKey::public).collect();
    json!({ "keys": keys }).to_string().into_bytes()
}

/// RFC 7638 §3: the digest of the members that make the key what it is, in their order.
fn thumbprint(jwk: &serde_json::Value) -> String {
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
