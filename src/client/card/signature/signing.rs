//! Signs cards (A2A 1.0 §8.4, RFC 7515, RFC 8785) with keys of the operator.
//!
//! Invariant: a card is signed in the forms that readers verify: first the members of 1.0, as the
//! specification requires; the served document, if it has other members; and the form without empty
//! members, as the SDKs write it.

use std::fmt;

use ring::rand::SystemRandom;

use crate::{
    binding::card_signer::{CardSigner, DetachedSignature},
    client::signing_key::{self, SigningKey, SigningKeyError},
    model::Generation,
};

use super::{
    super::AgentCard,
    encode,
    form::{SignedForm, payloads},
};

/// The keys that sign cards: P-256 for ES256 and Ed25519 for EdDSA.
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

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kids()).finish()
    }
}

impl Default for SigningKeys {
    fn default() -> SigningKeys {
        let jwks = signing_key::jwks([].iter());
        SigningKeys { keys: Vec::new(), jwks, random: SystemRandom::new() }
    }
}

impl SigningKeys {
    /// Adds the first private key of a document in PEM (PKCS#8) with this name; the default is the
    /// key's thumbprint (RFC 7638).
    ///
    /// # Errors
    /// [`SigningKeyError`].
    pub fn add(&mut self, pem: &[u8], kid: Option<&str>) -> Result<(), SigningKeyError> {
        let key = SigningKey::read(pem, kid, false, &self.random)?;
        signing_key::add(&mut self.keys, key)?;
        self.jwks = signing_key::jwks(self.keys.iter());
        Ok(())
    }

    /// The names of the keys.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.kid.as_str())
    }

    /// Whether a key has this name, or this thumbprint.
    #[cfg(feature = "push")]
    pub fn has_key(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.is(name))
    }

    fn signature(&self, key: &SigningKey, payload: &str) -> Option<DetachedSignature> {
        let protected = key.protected("JOSE");
        let message = format!("{protected}.{payload}");
        let signature = encode(&key.sign(message.as_bytes(), &self.random)?);
        Some(DetachedSignature { protected, signature })
    }
}

impl CardSigner for SigningKeys {
    fn sign(&self, card: &[u8]) -> Vec<DetachedSignature> {
        let Ok(card) = AgentCard::read(card) else { return Vec::new() };
        let is_v1 = card.generation == Generation::V1;
        let is_signed = |form: SignedForm| match form {
            // A card of 0.3 does not have the members of 1.0.
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
