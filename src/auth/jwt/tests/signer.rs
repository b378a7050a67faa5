//! An issuer with a key of each kind, which signs any input.

use p521::ecdsa::signature::Signer as _;
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{self as rs, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair},
};

use crate::auth::{
    jws::{JwsAlgorithm, encode_url},
    token_keys::TokenKeys,
};

const RSA_PKCS8: &[u8] = include_bytes!("../../../../tests/data/tokens/rsa_2048.pk8");

/// 64 bytes, enough for each HMAC.
pub const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Each algorithm, with the `kid` of its key.
pub const ALGORITHMS: [(JwsAlgorithm, &str); 13] = [
    (JwsAlgorithm::Rs256, "rsa"),
    (JwsAlgorithm::Rs384, "rsa"),
    (JwsAlgorithm::Rs512, "rsa"),
    (JwsAlgorithm::Ps256, "rsa"),
    (JwsAlgorithm::Ps384, "rsa"),
    (JwsAlgorithm::Ps512, "rsa"),
    (JwsAlgorithm::Es256, "p256"),
    (JwsAlgorithm::Es384, "p384"),
    (JwsAlgorithm::Es512, "p521"),
    (JwsAlgorithm::EdDsa, "ed"),
    (JwsAlgorithm::Hs256, "secret"),
    (JwsAlgorithm::Hs384, "secret"),
    (JwsAlgorithm::Hs512, "secret"),
];

pub struct Issuer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    p521: p521::ecdsa::SigningKey,
    ed: Ed25519KeyPair,
    random: SystemRandom,
}

impl Issuer {
    pub fn new() -> Issuer {
        let random = SystemRandom::new();
        let curve = |algorithm| {
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap()
        };
        let mut scalar = [0; 66];
        ring::rand::SecureRandom::fill(&random, &mut scalar[1..]).unwrap();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Issuer {
            rsa: RsaKeyPair::from_pkcs8(RSA_PKCS8).unwrap(),
            p256: curve(&rs::ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: curve(&rs::ECDSA_P384_SHA384_FIXED_SIGNING),
            p521: p521::ecdsa::SigningKey::from_slice(&scalar).unwrap(),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
            random,
        }
    }

    /// The public key of a `kid`, as a JWK with these further members.
    pub fn jwk(&self, kid: &str, more: &str) -> String {
        let point = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at(point.len() / 2);
            let (x, y) = (encode_url(x), encode_url(y));
            format!(r#""kty":"EC","crv":"{curve}","x":"{x}","y":"{y}""#)
        };
        let members = match kid {
            "rsa" => {
                let numbers = PublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
                let (n, e) = (encode_url(&numbers.n), encode_url(&numbers.e));
                format!(r#""kty":"RSA","n":"{n}","e":"{e}""#)
            }
            "p256" => point("P-256", self.p256.public_key().as_ref()),
            "p384" => point("P-384", self.p384.public_key().as_ref()),
            "p521" => point("P-521", self.p521.verifying_key().to_sec1_point(false).as_bytes()),
            "ed" => {
                let x = encode_url(self.ed.public_key().as_ref());
                format!(r#""kty":"OKP","crv":"Ed25519","x":"{x}""#)
            }
            other => panic!("no key {other}"),
        };
        format!("{{{members}{more}}}")
    }

    /// The public keys, each by its `kid`.
    pub fn jwks(&self) -> String {
        let kids = ["rsa", "p256", "p384", "p521", "ed"];
        let keys = kids.map(|kid| self.jwk(kid, &format!(r#","kid":"{kid}","use":"sig""#)));
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    /// All keys, and the secret.
    pub fn keys(&self) -> TokenKeys {
        let public = TokenKeys::read_set(self.jwks().as_bytes()).unwrap();
        public.and(TokenKeys::secret(SECRET.to_vec()).unwrap())
    }

    /// The public keys as an attacker would use them: as the secret of an HMAC.
    pub fn public_bytes(&self) -> Vec<Vec<u8>> {
        let n = PublicKeyComponents::<Vec<u8>>::from(self.rsa.public()).n;
        let kids = ["rsa", "p256", "p384", "p521", "ed"];
        let mut all: Vec<Vec<u8>> = kids.iter().map(|kid| self.jwk(kid, "").into_bytes()).collect();
        all.extend([
            n,
            self.rsa.public_key().as_ref().to_vec(),
            self.p256.public_key().as_ref().to_vec(),
            self.p384.public_key().as_ref().to_vec(),
            self.ed.public_key().as_ref().to_vec(),
            self.jwks().into_bytes(),
        ]);
        all
    }

    /// The signature of a message.
    pub fn sign(&self, algorithm: JwsAlgorithm, message: &[u8]) -> Vec<u8> {
        let rsa = |encoding: &'static dyn rs::RsaEncoding| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(encoding, &self.random, message, &mut signature).unwrap();
            signature
        };
        let ec = |key: &EcdsaKeyPair| key.sign(&self.random, message).unwrap().as_ref().to_vec();
        match algorithm {
            JwsAlgorithm::Rs256 => rsa(&rs::RSA_PKCS1_SHA256),
            JwsAlgorithm::Rs384 => rsa(&rs::RSA_PKCS1_SHA384),
            JwsAlgorithm::Rs512 => rsa(&rs::RSA_PKCS1_SHA512),
            JwsAlgorithm::Ps256 => rsa(&rs::RSA_PSS_SHA256),
            JwsAlgorithm::Ps384 => rsa(&rs::RSA_PSS_SHA384),
            JwsAlgorithm::Ps512 => rsa(&rs::RSA_PSS_SHA512),
            JwsAlgorithm::Es256 => ec(&self.p256),
            JwsAlgorithm::Es384 => ec(&self.p384),
            JwsAlgorithm::Es512 => {
                let signature: p521::ecdsa::Signature = self.p521.sign(message);
                signature.to_bytes().to_vec()
            }
            JwsAlgorithm::EdDsa => self.ed.sign(message).as_ref().to_vec(),
            JwsAlgorithm::Hs256 => hmac(hmac::HMAC_SHA256, SECRET, message),
            JwsAlgorithm::Hs384 => hmac(hmac::HMAC_SHA384, SECRET, message),
            JwsAlgorithm::Hs512 => hmac(hmac::HMAC_SHA512, SECRET, message),
        }
    }

    /// A token of this header and these claims.
    pub fn token(&self, algorithm: JwsAlgorithm, header: &str, claims: &str) -> String {
        self.token_of_parts(
            algorithm,
            &encode_url(header.as_bytes()),
            &encode_url(claims.as_bytes()),
        )
    }

    /// A token with these first two parts.
    pub fn token_of_parts(&self, algorithm: JwsAlgorithm, header: &str, claims: &str) -> String {
        let signed = format!("{header}.{claims}");
        let signature = encode_url(&self.sign(algorithm, signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

pub fn hmac(hash: hmac::Algorithm, secret: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hash, secret), message).as_ref().to_vec()
}
