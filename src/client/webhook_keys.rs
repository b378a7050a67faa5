//! The keys that sign webhook posts.
//!
//! Invariant: the first key of each kind signs, and the others are published in advance: a receiver
//! that reads the keys finds the next key before it is used. These keys are separate from the keys
//! of cards: they never sign a card.

use std::fmt;

use ring::{digest, rand::SystemRandom};
use serde_json::json;

use super::signing_key::{self, SigningKey, SigningKeyError};
use crate::{
    auth::jws::encode_url as encode,
    json::base64,
    push::signature::{PostSigner, SignedPost},
};

/// Lifetime of a JWT: the maximum age that receivers accept (wire §6).
const JWT_S: u64 = 300;

/// The keys that sign webhook posts: RSA of 2048 to 4096 bits (RS256) and P-256 (ES256) create
/// JWTs, Ed25519 creates the signatures of Standard Webhooks.
///
/// ```no_run
/// use std::sync::Arc;
/// use peregrine::{client::WebhookKeys, engine::Setup};
///
/// let mut keys = WebhookKeys::default();
/// keys.add(&std::fs::read("webhook-key.pem")?)?;
/// let setup = Setup { webhook_signer: Some(Arc::new(keys)), ..Setup::default() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WebhookKeys {
    keys: Vec<SigningKey>,
    jwks: Vec<u8>,
    random: SystemRandom,
}

impl fmt::Debug for WebhookKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kids()).finish()
    }
}

impl Default for WebhookKeys {
    fn default() -> WebhookKeys {
        let jwks = signing_key::jwks([].iter());
        WebhookKeys { keys: Vec::new(), jwks, random: SystemRandom::new() }
    }
}

impl WebhookKeys {
    /// Adds the first private key of a document in PEM (PKCS#8), under its thumbprint (RFC 7638).
    ///
    /// # Errors
    /// [`SigningKeyError::NoKey`], [`SigningKeyError::KindOrRsa`]: the document has no usable key.
    /// [`SigningKeyError::SameKid`]: the key was added already. [`SigningKeyError::TooMany`]: four
    /// keys were added already.
    pub fn add(&mut self, pem: &[u8]) -> Result<(), SigningKeyError> {
        let key = SigningKey::read(pem, None, true, &self.random)?;
        signing_key::add(&mut self.keys, key)?;
        self.jwks = signing_key::jwks(self.keys.iter());
        Ok(())
    }

    /// The names of the keys.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.kid.as_str())
    }

    /// The public halves of Ed25519, as Standard Webhooks writes them.
    pub fn public_keys(&self) -> impl Iterator<Item = String> {
        let keys = self.keys.iter().filter_map(SigningKey::ed25519);
        keys.map(|key| format!("whpk_{}", base64::encode(key)))
    }
}

impl PostSigner for WebhookKeys {
    fn jwt(&self, post: &SignedPost<'_>) -> Option<String> {
        let key = self.keys.iter().find(|key| key.ed25519().is_none())?;
        let digest = digest::digest(&digest::SHA256, post.body);
        let iat = post.unix_s();
        let claims = json!({
            "aud": post.audience,
            "exp": iat + JWT_S,
            "iat": iat,
            "jti": post.id,
            "request_body_sha256": hex(digest.as_ref()),
            "taskId": post.task_id,
        });
        let mut jwt = key.protected("JWT");
        jwt.push('.');
        jwt.push_str(&encode(claims.to_string().as_bytes()));
        let signature = key.sign(jwt.as_bytes(), &self.random)?;
        jwt.push('.');
        jwt.push_str(&encode(&signature));
        Some(jwt)
    }

    fn signature(&self, content: &[u8]) -> Option<String> {
        let key = self.keys.iter().find(|key| key.ed25519().is_some())?;
        let signature = key.sign(content, &self.random)?;
        Some(format!("v1a,{}", base64::encode(&signature)))
    }

    fn jwks(&self) -> &[u8] {
        &self.jwks
    }
}

/// The bytes in lower-case hex.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
    use serde_json::Value;

    use super::*;
    use crate::{
        auth::jws::{DocumentKey, JwsAlgorithm, decode_url, read_jwk},
        client::card::SigningKeys,
    };

    const RSA: &[u8] = include_bytes!("../../tests/data/webhooks/rsa2048.pem");
    const SHORT: &[u8] = include_bytes!("../../tests/data/webhooks/rsa1024.pem");
    const POST: SignedPost<'static> = SignedPost {
        id: "0197-9",
        unix_ms: 1_800_000_000_250,
        task_id: "a \"task\"",
        audience: "https://hooks.example",
        body: "{\"ä\":1}".as_bytes(),
    };

    fn pem(der: &[u8]) -> Vec<u8> {
        let body = base64::encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n").into_bytes()
    }

    fn p256() -> Vec<u8> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        pem(EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap().as_ref())
    }

    fn ed25519() -> Vec<u8> {
        pem(Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref())
    }

    fn keys(pems: &[&[u8]]) -> WebhookKeys {
        let mut keys = WebhookKeys::default();
        pems.iter().for_each(|pem| keys.add(pem).unwrap());
        keys
    }

    /// The public keys, as a verifier reads them.
    fn public(keys: &WebhookKeys) -> Vec<DocumentKey> {
        let set: Value = serde_json::from_slice(keys.jwks()).unwrap();
        let list = set["keys"].as_array().unwrap();
        assert!(list.iter().all(|key| key["use"] == "sig" && key.get("d").is_none()));
        list.iter().map(|jwk| read_jwk(jwk).unwrap()).collect()
    }

    /// The header and the claims of a JWT that a key of the set has signed.
    fn verified(keys: &WebhookKeys, jwt: &str) -> (Value, Value) {
        let (message, signature) = jwt.rsplit_once('.').unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let [header, claims] = [header, claims]
            .map(|part| serde_json::from_slice::<Value>(&decode_url(part).unwrap()).unwrap());
        let algorithm = JwsAlgorithm::named(header["alg"].as_str().unwrap()).unwrap();
        let all = public(keys);
        let key = all.iter().find(|key| key.kid.as_deref() == header["kid"].as_str()).unwrap();
        assert!(key.fits(algorithm));
        let signature = decode_url(signature).unwrap();
        assert!(key.key.verifies(algorithm, message.as_bytes(), &signature));
        assert!(!key.key.verifies(algorithm, b"another", &signature));
        (header, claims)
    }

    #[test]
    fn webhook_jwt_identifies_delivery_and_expires_in_5_min() {
        for (pem, alg) in [(RSA, "RS256"), (&p256(), "ES256")] {
            let keys = keys(&[pem]);
            let (header, claims) = verified(&keys, &keys.jwt(&POST).unwrap());
            let kid = keys.kids().next().unwrap();
            assert_eq!(header, json!({"alg": alg, "kid": kid, "typ": "JWT"}));
            let digest = "735cf7b354374809aa89cce3cf8638d1a5daa493d99bd3d7cac81bdf277c3760";
            assert_eq!(
                claims,
                json!({
                    "aud": "https://hooks.example", "iat": 1_800_000_000, "exp": 1_800_000_300,
                    "jti": "0197-9", "request_body_sha256": digest, "taskId": "a \"task\"",
                })
            );
            assert_eq!(keys.signature(b"x"), None);
        }
    }

    #[test]
    fn ed25519_key_signs_standard_webhooks_and_no_jwt() {
        let keys = keys(&[&ed25519()]);
        assert_eq!(keys.jwt(&POST), None);
        let signature = keys.signature(b"id.1.body").unwrap();
        let bytes = base64::decode(signature.strip_prefix("v1a,").unwrap()).unwrap();
        let public = &public(&keys)[0];
        assert!(public.key.verifies(JwsAlgorithm::EdDsa, b"id.1.body", &bytes));
        let shown = keys.public_keys().next().unwrap();
        let x = base64::decode(shown.strip_prefix("whpk_").unwrap()).unwrap();
        let set: Value = serde_json::from_slice(keys.jwks()).unwrap();
        let jwk = &set["keys"][0];
        assert_eq!((&jwk["kty"], &jwk["x"]), (&json!("OKP"), &json!(encode(&x))));
    }

    #[test]
    fn first_key_of_a_kind_signs_and_all_are_published() {
        let (one, two, ed) = (p256(), p256(), [ed25519(), ed25519()]);
        let before = keys(&[&one, &ed[0], &two, &ed[1]]);
        let after = keys(&[&two, &ed[1], &one, &ed[0]]);
        let kid = |keys: &WebhookKeys| verified(keys, &keys.jwt(&POST).unwrap()).0["kid"].clone();
        assert_ne!(kid(&before), kid(&after));
        // A signature created after the rotation verifies with the keys from before the rotation.
        verified(&before, &after.jwt(&POST).unwrap());
        assert_ne!(before.signature(b"x"), after.signature(b"x"));
        assert_eq!(public(&before).len(), 4);
    }

    #[test]
    fn unusable_webhook_keys_are_rejected() {
        let (pem, broken) = (p256(), pem(b"none"));
        let mut keys = keys(&[&pem, RSA]);
        let kid = keys.kids().next().unwrap().to_owned();
        assert_eq!(keys.add(&pem), Err(SigningKeyError::SameKid(kid.clone())));
        assert_eq!(keys.add(b""), Err(SigningKeyError::NoKey));
        for bad in [SHORT, &broken] {
            assert_eq!(keys.add(bad), Err(SigningKeyError::KindOrRsa));
        }
        keys.add(&ed25519()).unwrap();
        keys.add(&ed25519()).unwrap();
        assert_eq!(keys.add(&ed25519()), Err(SigningKeyError::TooMany));
        // A key is identified by its thumbprint, even if it has another name for cards.
        let mut cards = SigningKeys::default();
        assert_eq!(cards.add(RSA, None), Err(SigningKeyError::Kind));
        cards.add(&pem, Some("card")).unwrap();
        assert!(cards.has_key(&kid) && cards.has_key("card") && !cards.has_key("other"));
        let text = String::from_utf8(pem).unwrap();
        assert!(!format!("{keys:?}{cards:?}").contains(text.lines().nth(1).unwrap()));
    }
}
