//! JWS signatures (RFC 7515) and the public keys that verify them (RFC 7517, RFC 7468), for cards
//! and for tokens.
//!
//! Invariant: the key, not the signer, determines the allowed algorithms. A public key is never
//! used for an HMAC, and private parts of a document are not retained.

use std::fmt;

use ring::signature::{self as ring_signature, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
#[cfg(feature = "auth")]
use x509_cert::{Certificate, der::Encode};
use x509_cert::{
    der::{
        Decode, Reader, SliceReader,
        asn1::{ObjectIdentifier, UintRef},
    },
    spki::SubjectPublicKeyInfoRef,
};

use crate::json::base64;

/// An algorithm of RFC 7518 §3.1 or RFC 8037 that authenticates the signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JwsAlgorithm {
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// ECDSA over P-384 with SHA-384.
    Es384,
    /// ECDSA over P-521 with SHA-512.
    Es512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// Ed25519.
    EdDsa,
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
}

const ALGORITHMS: &[(&str, JwsAlgorithm)] = &[
    ("ES256", JwsAlgorithm::Es256),
    ("ES384", JwsAlgorithm::Es384),
    ("ES512", JwsAlgorithm::Es512),
    ("RS256", JwsAlgorithm::Rs256),
    ("RS384", JwsAlgorithm::Rs384),
    ("RS512", JwsAlgorithm::Rs512),
    ("PS256", JwsAlgorithm::Ps256),
    ("PS384", JwsAlgorithm::Ps384),
    ("PS512", JwsAlgorithm::Ps512),
    ("EdDSA", JwsAlgorithm::EdDsa),
    ("HS256", JwsAlgorithm::Hs256),
    ("HS384", JwsAlgorithm::Hs384),
    ("HS512", JwsAlgorithm::Hs512),
    // RFC 9864: EdDSA under the name of its curve.
    ("Ed25519", JwsAlgorithm::EdDsa),
];

impl JwsAlgorithm {
    /// The algorithm with exactly this name; `none` is not an algorithm.
    pub fn named(name: &str) -> Option<JwsAlgorithm> {
        ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    /// The name of the algorithm.
    pub fn name(self) -> &'static str {
        let found = ALGORITHMS.iter().find(|(_, algorithm)| *algorithm == self);
        found.map_or("", |(name, _)| name)
    }

    /// True: the verification key can sign as well.
    pub fn is_symmetric(self) -> bool {
        use JwsAlgorithm::{Hs256, Hs384, Hs512};
        matches!(self, Hs256 | Hs384 | Hs512)
    }
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    /// An uncompressed point.
    P521(Vec<u8>),
    /// RFC 8032 §5.1.5.
    Ed25519(Vec<u8>),
    /// Modulus and exponent, big-endian, without leading zeros.
    Rsa {
        /// The modulus.
        n: Vec<u8>,
        /// The exponent.
        e: Vec<u8>,
    },
}

impl fmt::Debug for PublicKey {
    /// Only the kind: the numbers are useless in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PublicKey::P256(_) => "P-256",
            PublicKey::P384(_) => "P-384",
            PublicKey::P521(_) => "P-521",
            PublicKey::Ed25519(_) => "Ed25519",
            PublicKey::Rsa { .. } => "RSA",
        })
    }
}

impl PublicKey {
    /// Whether keys of this kind work with the algorithm.
    pub fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        use JwsAlgorithm::{EdDsa, Es256, Es384, Es512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        match self {
            PublicKey::P256(_) => algorithm == Es256,
            PublicKey::P384(_) => algorithm == Es384,
            PublicKey::P521(_) => algorithm == Es512,
            PublicKey::Ed25519(_) => algorithm == EdDsa,
            PublicKey::Rsa { .. } => {
                matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512)
            }
        }
    }

    /// The bits of an RSA modulus, which determine its strength; `None`: an elliptic curve.
    #[cfg(feature = "auth")]
    pub fn rsa_bits(&self) -> Option<usize> {
        let PublicKey::Rsa { n, .. } = self else { return None };
        Some(n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize))
    }

    /// Whether this key made the signature of the message.
    pub fn verifies(&self, algorithm: JwsAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let curve: (&'static dyn ring_signature::VerificationAlgorithm, &[u8]) = match self {
            _ if !self.fits(algorithm) => return false,
            PublicKey::P256(key) => (&ring_signature::ECDSA_P256_SHA256_FIXED, key),
            PublicKey::P384(key) => (&ring_signature::ECDSA_P384_SHA384_FIXED, key),
            PublicKey::Ed25519(key) => (&ring_signature::ED25519, key),
            PublicKey::P521(key) => return p521_verifies(key, message, signature),
            PublicKey::Rsa { n, e } => {
                let Some(algorithm) = rsa_parameters(algorithm) else { return false };
                let key = RsaPublicKeyComponents { n, e };
                return key.verify(algorithm, message, signature).is_ok();
            }
        };
        UnparsedPublicKey::new(curve.0, curve.1).verify(message, signature).is_ok()
    }
}

fn rsa_parameters(algorithm: JwsAlgorithm) -> Option<&'static ring_signature::RsaParameters> {
    use JwsAlgorithm::{EdDsa, Es256, Es384, Es512, Hs256, Hs384, Hs512};
    Some(match algorithm {
        JwsAlgorithm::Rs256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
        JwsAlgorithm::Rs384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
        JwsAlgorithm::Rs512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
        JwsAlgorithm::Ps256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
        JwsAlgorithm::Ps384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
        JwsAlgorithm::Ps512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
        Es256 | Es384 | Es512 | EdDsa | Hs256 | Hs384 | Hs512 => return None,
    })
}

/// P-521, the curve that ring lacks.
#[cfg(feature = "auth")]
fn p521_verifies(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    use p521::ecdsa::{Signature, VerifyingKey, signature::Verifier};
    let Ok(key) = VerifyingKey::from_sec1_bytes(key) else { return false };
    let Ok(signature) = Signature::from_slice(signature) else { return false };
    key.verify(message, &signature).is_ok()
}

/// Only tokens use P-521, and they need the feature `auth`.
#[cfg(not(feature = "auth"))]
fn p521_verifies(_key: &[u8], _message: &[u8], _signature: &[u8]) -> bool {
    false
}

/// A public key in a document.
#[derive(Clone, Debug)]
pub struct DocumentKey {
    /// The `kid` of the key.
    pub kid: Option<String>,
    /// The only algorithm that the key may be used with; `None`: any that fits.
    pub algorithm: Option<JwsAlgorithm>,
    /// The key itself.
    pub key: PublicKey,
}

impl DocumentKey {
    /// Whether the key may be used with the algorithm.
    pub fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        self.key.fits(algorithm) && self.algorithm.is_none_or(|own| own == algorithm)
    }
}

/// RFC 7517 §4, RFC 7518 §6, RFC 8037 §2; `None`: not a public key for signatures.
pub fn read_jwk(jwk: &Value) -> Option<DocumentKey> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let bytes = |name: &str| decode_url(text(name)?);
    // RFC 7517 §4.2, §4.3: a key for another use verifies no signature.
    let is_for_signatures = jwk.get("use").is_none_or(|purpose| purpose == "sig");
    let verifies = match jwk.get("key_ops") {
        Some(operations) => {
            operations.as_array().is_some_and(|list| list.iter().any(|one| one == "verify"))
        }
        None => true,
    };
    if !is_for_signatures || !verifies {
        return None;
    }
    let point = |len: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        (x.len() == len && y.len() == len).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
    };
    let key = match (text("kty")?, text("crv")) {
        ("EC", Some("P-256")) => PublicKey::P256(point(32)?),
        ("EC", Some("P-384")) => PublicKey::P384(point(48)?),
        ("EC", Some("P-521")) => PublicKey::P521(point(66)?),
        ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
        ("RSA", _) => rsa(&bytes("n")?, &bytes("e")?),
        _ => return None,
    };
    // A key for an unknown algorithm is not used with another algorithm.
    let algorithm = match jwk.get("alg") {
        Some(name) => Some(JwsAlgorithm::named(name.as_str()?)?),
        None => None,
    };
    Some(DocumentKey { kid: text("kid").map(str::to_owned), algorithm, key })
}

/// RFC 7518 §6.3.1.1 forbids a leading zero, but some documents have one.
fn rsa(n: &[u8], e: &[u8]) -> PublicKey {
    let number = |bytes: &[u8]| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes[zeros..].to_vec()
    };
    PublicKey::Rsa { n: number(n), e: number(e) }
}

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The sections of a text with this label (RFC 7468 §2), at most `sections_max`.
pub fn pem_sections<'t>(
    text: &'t str,
    label: &str,
    sections_max: usize,
) -> impl Iterator<Item = Vec<u8>> + use<'t> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let sections: Vec<&str> = text.split(begin.as_str()).skip(1).take(sections_max).collect();
    sections.into_iter().filter_map(move |section| {
        let (body, _) = section.split_once(end.as_str())?;
        let digits: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        base64::decode(&digits)
    })
}

/// RFC 5280 §4.1.2.7 with the algorithms of RFC 3279, RFC 5480 and RFC 8410.
pub fn read_spki(der: &[u8]) -> Option<PublicKey> {
    let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
    let key = info.subject_public_key.as_bytes()?;
    let curve = || info.algorithm.parameters_oid().ok();
    let point = |len: usize| (key.len() == 2 * len + 1 && key[0] == 4).then(|| key.to_vec());
    match info.algorithm.oid {
        RSA => read_rsa(key),
        EC if curve() == Some(P256) => Some(PublicKey::P256(point(32)?)),
        EC if curve() == Some(P384) => Some(PublicKey::P384(point(48)?)),
        EC if curve() == Some(P521) => Some(PublicKey::P521(point(66)?)),
        ED25519 if key.len() == 32 => Some(PublicKey::Ed25519(key.to_vec())),
        _ => None,
    }
}

/// RFC 8017 §A.1.1, `RSAPublicKey`.
pub fn read_rsa(der: &[u8]) -> Option<PublicKey> {
    let mut reader = SliceReader::new(der).ok()?;
    let numbers = reader.sequence(|reader| {
        Ok::<_, x509_cert::der::Error>((UintRef::decode(reader)?, UintRef::decode(reader)?))
    });
    let (n, e) = numbers.ok()?;
    reader.finish().ok()?;
    Some(rsa(n.as_bytes(), e.as_bytes()))
}

/// The key of a certificate. The rest of the certificate is not checked: it is trusted by
/// configuration.
#[cfg(feature = "auth")]
pub fn read_certificate_key(der: &[u8]) -> Option<PublicKey> {
    let certificate = Certificate::from_der(der).ok()?;
    let info = certificate.tbs_certificate().subject_public_key_info();
    read_spki(&info.to_der().ok()?)
}

/// RFC 7515 §2: the URL-safe alphabet, without padding.
pub fn encode_url(bytes: &[u8]) -> String {
    base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// RFC 7515 §2; `None`: another alphabet, padding, or empty.
pub fn decode_url(text: &str) -> Option<Vec<u8>> {
    let is_plain = !text.is_empty() && !text.contains(['=', '+', '/']);
    is_plain.then(|| base64::decode(text)).flatten()
}
