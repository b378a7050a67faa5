//! Public keys of who signs cards: as a JWK set (RFC 7517) or in PEM (RFC 7468).

use std::fmt;

use ring::signature::{self as ring_signature, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use x509_cert::{
    der::{Decode, asn1::ObjectIdentifier},
    spki::SubjectPublicKeyInfoRef,
};

use crate::json::base64;

use super::decode;

/// An algorithm of RFC 7518 §3.1 or RFC 8037 that proves who has signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JwsAlgorithm {
    Es256,
    Es384,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    EdDsa,
}

const ALGORITHMS: &[(&str, JwsAlgorithm)] = &[
    ("ES256", JwsAlgorithm::Es256),
    ("ES384", JwsAlgorithm::Es384),
    ("RS256", JwsAlgorithm::Rs256),
    ("RS384", JwsAlgorithm::Rs384),
    ("RS512", JwsAlgorithm::Rs512),
    ("PS256", JwsAlgorithm::Ps256),
    ("PS384", JwsAlgorithm::Ps384),
    ("PS512", JwsAlgorithm::Ps512),
    ("EdDSA", JwsAlgorithm::EdDsa),
    // RFC 9864: the same, by its curve.
    ("Ed25519", JwsAlgorithm::EdDsa),
];

pub(super) fn algorithm(name: &str) -> Option<JwsAlgorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

/// What a key is.
#[derive(Clone, Debug)]
enum KeyMaterial {
    /// A point, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// In DER (RFC 8017, `RSAPublicKey`).
    RsaDer(Vec<u8>),
}

/// A key, and what it says of itself.
#[derive(Clone, Debug)]
pub(super) struct CardKey {
    kid: Option<String>,
    algorithm: Option<JwsAlgorithm>,
    material: KeyMaterial,
}

/// The keys that a caller trusts.
#[derive(Clone, Debug, Default)]
pub struct CardKeys(Vec<CardKey>);

/// Why a document holds no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// It is neither a JWK (set) nor PEM.
    Unreadable,
    /// It has no public key of a kind that is known: P-256, P-384, Ed25519, RSA.
    NoKey,
    /// It has more keys than this.
    TooMany(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Unreadable => f.write_str("the keys are neither a JWK set nor PEM"),
            KeyError::NoKey => {
                f.write_str("there is no public key for P-256, P-384, Ed25519 or RSA")
            }
            KeyError::TooMany(max) => write!(f, "there are more than {max} keys"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Keys of one document.
pub const KEYS_MAX: usize = 64;

impl CardKeys {
    /// Reads a JWK set, a single JWK, or public keys in PEM; keys of another kind are passed over.
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
                // One more than allowed is enough to see that there are too many.
                listed.iter().filter_map(jwk).take(KEYS_MAX + 1).collect()
            }
        };
        match keys.len() {
            0 => Err(KeyError::NoKey),
            1..=KEYS_MAX => Ok(CardKeys(keys)),
            _ => Err(KeyError::TooMany(KEYS_MAX)),
        }
    }

    /// The keys with this `kid` that fit the algorithm; one without a name fits any.
    pub(super) fn fitting(
        &self,
        kid: Option<&str>,
        algorithm: JwsAlgorithm,
    ) -> impl Iterator<Item = &CardKey> {
        let is_named = move |key: &&CardKey| match (&key.kid, kid) {
            (Some(own), Some(kid)) => own == kid,
            (Some(_) | None, None) | (None, Some(_)) => true,
        };
        self.0.iter().filter(is_named).filter(move |key| key.fits(algorithm))
    }
}

impl CardKey {
    fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        use JwsAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let fits = match &self.material {
            KeyMaterial::P256(_) => algorithm == Es256,
            KeyMaterial::P384(_) => algorithm == Es384,
            KeyMaterial::Ed25519(_) => algorithm == EdDsa,
            KeyMaterial::Rsa { .. } | KeyMaterial::RsaDer(_) => {
                [Rs256, Rs384, Rs512, Ps256, Ps384, Ps512].contains(&algorithm)
            }
        };
        fits && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// Whether the signature is one of this key over the message.
    pub fn verifies(&self, algorithm: JwsAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let rsa = match algorithm {
            JwsAlgorithm::Rs256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
            JwsAlgorithm::Rs384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
            JwsAlgorithm::Rs512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
            JwsAlgorithm::Ps256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
            JwsAlgorithm::Ps384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
            JwsAlgorithm::Ps512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
            JwsAlgorithm::Es256 | JwsAlgorithm::Es384 | JwsAlgorithm::EdDsa => {
                return self.verifies_curve(message, signature);
            }
        };
        match &self.material {
            KeyMaterial::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(rsa, message, signature).is_ok()
            }
            KeyMaterial::RsaDer(der) => {
                UnparsedPublicKey::new(rsa, der).verify(message, signature).is_ok()
            }
            KeyMaterial::P256(_) | KeyMaterial::P384(_) | KeyMaterial::Ed25519(_) => false,
        }
    }

    fn verifies_curve(&self, message: &[u8], signature: &[u8]) -> bool {
        let (algorithm, key): (&'static dyn ring_signature::VerificationAlgorithm, _) =
            match &self.material {
                KeyMaterial::P256(key) => (&ring_signature::ECDSA_P256_SHA256_FIXED, key),
                KeyMaterial::P384(key) => (&ring_signature::ECDSA_P384_SHA384_FIXED, key),
                KeyMaterial::Ed25519(key) => (&ring_signature::ED25519, key),
                KeyMaterial::Rsa { .. } | KeyMaterial::RsaDer(_) => return false,
            };
        UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
    }
}

/// RFC 7517 §4, RFC 7518 §6, RFC 8037 §2; `None`: no public key for signatures.
fn jwk(jwk: &Value) -> Option<CardKey> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let bytes = |name: &str| decode(text(name)?);
    // RFC 7517 §4.2, §4.3: a key that is not for signatures verifies none.
    let is_for_signatures = text("use").is_none_or(|purpose| purpose == "sig");
    let operations = jwk.get("key_ops").and_then(Value::as_array);
    let verifies = operations.is_none_or(|list| list.iter().any(|one| one == "verify"));
    if !is_for_signatures || !verifies {
        return None;
    }
    let point = |len: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        (x.len() == len && y.len() == len).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
    };
    let material = match (text("kty")?, text("crv")) {
        ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
        ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
        ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
        ("RSA", _) => KeyMaterial::Rsa { n: bytes("n")?, e: bytes("e")? },
        _ => return None,
    };
    // One that names an algorithm nobody knows is not used with another.
    let algorithm = match text("alg") {
        Some(name) => Some(algorithm(name)?),
        None => None,
    };
    Some(CardKey { kid: text("kid").map(str::to_owned), algorithm, material })
}

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The sections `PUBLIC KEY` of a text.
fn pem(text: &str) -> Vec<CardKey> {
    const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
    const END: &str = "-----END PUBLIC KEY-----";
    let sections = text.split(BEGIN).skip(1).take(KEYS_MAX + 1);
    let keys = sections.filter_map(|section| {
        let (body, _) = section.split_once(END)?;
        let digits: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let material = spki(&base64::decode(&digits)?)?;
        Some(CardKey { kid: None, algorithm: None, material })
    });
    keys.collect()
}

/// RFC 5280 §4.1.2.7 with the algorithms of RFC 3279, RFC 5480 and RFC 8410.
fn spki(der: &[u8]) -> Option<KeyMaterial> {
    let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
    let key = info.subject_public_key.as_bytes()?.to_vec();
    let curve = || info.algorithm.parameters_oid().ok();
    match info.algorithm.oid {
        RSA => Some(KeyMaterial::RsaDer(key)),
        EC if curve() == Some(P256) => Some(KeyMaterial::P256(key)),
        EC if curve() == Some(P384) => Some(KeyMaterial::P384(key)),
        ED25519 => Some(KeyMaterial::Ed25519(key)),
        _ => None,
    }
}
