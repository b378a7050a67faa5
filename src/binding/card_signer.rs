//! The signer of cards, and which cards are signed (A2A 1.0 §8.4).
//!
//! Invariant: a signed card names only hosts that the operator has named, so a client can neither
//! get a card signed that points elsewhere, nor one card per invented tenant. All workers send the
//! same signatures for a card; a changed card gets new ones.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::binding::{Endpoint, ServerConfig, origin::Origin};

/// Signs cards, with several keys at once during a key rotation.
///
/// It is called on the threads that serve, once for each card; concurrently if several threads need
/// a new card at the same moment.
pub trait CardSigner: Send + Sync {
    /// The signatures of this card, which is JSON without `signatures` in one of the card formats;
    /// empty: it is sent unsigned.
    fn sign(&self, card: &[u8]) -> Vec<DetachedSignature>;

    /// The public keys, as a JWK set (RFC 7517 §5); they never change.
    fn jwks(&self) -> &[u8];
}

/// A signature with detached content (RFC 7515), as cards have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachedSignature {
    /// The protected header, in base64url.
    pub protected: String,
    /// The signature, in base64url.
    pub signature: String,
}

impl DetachedSignature {
    /// The header and the signature.
    pub(super) fn pair(&self) -> (&str, &str) {
        (&self.protected, &self.signature)
    }
}

/// The number of cached signed cards; the oldest is evicted first. An agent has one for each format
/// and each name of the server.
const SIGNED_CARDS_KEPT: usize = 256;

/// The cache of card signatures.
#[derive(Default)]
pub struct SignedCards(Mutex<VecDeque<SignedCard>>);

/// A signed card and its signatures.
type SignedCard = (Box<[u8]>, Arc<[DetachedSignature]>);

impl SignedCards {
    fn of(&self, signer: &dyn CardSigner, card: &[u8]) -> Arc<[DetachedSignature]> {
        if let Some(known) = find(&self.lock(), card) {
            return known;
        }
        let signatures: Arc<[DetachedSignature]> = signer.sign(card).into();
        let mut signed = self.lock();
        // ES256 signatures differ each time, and a card must have the same one everywhere: the
        // first wins.
        if let Some(known) = find(&signed, card) {
            return known;
        }
        if signed.len() == SIGNED_CARDS_KEPT {
            signed.pop_front();
        }
        signed.push_back((card.into(), Arc::clone(&signatures)));
        signatures
    }

    /// Signing happens outside the lock, which all workers take.
    fn lock(&self) -> MutexGuard<'_, VecDeque<SignedCard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(signed: &VecDeque<SignedCard>, card: &[u8]) -> Option<Arc<[DetachedSignature]>> {
    let found = signed.iter().find(|(known, _)| **known == *card);
    found.map(|(_, signatures)| Arc::clone(signatures))
}

/// The signatures of a card that names this origin; empty: it is sent unsigned.
pub fn signatures(
    config: &ServerConfig,
    origin: &Origin<'_>,
    card: &[u8],
) -> Arc<[DetachedSignature]> {
    match &config.card_signer {
        Some(signer) if is_named(config, origin) => config.signed_cards.of(&**signer, card),
        Some(_) | None => Arc::default(),
    }
}

/// Whether the operator has named this origin: a port or a prefix that only the client or a
/// forwarded header names is not signed.
fn is_named(config: &ServerConfig, origin: &Origin<'_>) -> bool {
    match (&config.public_url, origin.host) {
        (Some(_), _) => true,
        (None, Some(host)) => {
            let is_bare = origin.prefix.is_empty() && origin.port.is_none();
            is_bare && config.hosts.name(host, port_of(&config.base_url))
        }
        (None, None) => false,
    }
}

/// The port at the end of a URL without a path.
fn port_of(url: &str) -> Option<&str> {
    let (_, port) = url.rsplit_once(':')?;
    (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// The tenant in a path, unless it is an agent's name: a client can invent any number of tenants.
pub fn tenant_in<'b>(
    config: &ServerConfig,
    endpoint: Endpoint,
    agent: &str,
    base: &'b str,
) -> Option<&'b str> {
    let tenants = endpoint.dialect.routes.tenants?;
    let (before, name) = base.rsplit_once('/')?;
    let is_tenant = before.ends_with(tenants.trim_end_matches('/'))
        && name != agent
        && config.mounts.iter().all(|mount| mount.path != base);
    is_tenant.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs with its name, after calling a function.
    struct Named<'s>(&'s str, &'s (dyn Fn() + Send + Sync));

    impl CardSigner for Named<'_> {
        fn sign(&self, _card: &[u8]) -> Vec<DetachedSignature> {
            (self.1)();
            let signature = self.0.to_owned();
            vec![DetachedSignature { protected: String::new(), signature }]
        }

        fn jwks(&self) -> &[u8] {
            b"{}"
        }
    }

    #[test]
    fn signing_blocks_no_caller_and_the_first_signature_wins() {
        let cards = SignedCards::default();
        let by = |name: &str, meanwhile: &(dyn Fn() + Send + Sync)| {
            cards.of(&Named(name, meanwhile), b"card")[0].signature.clone()
        };
        let meanwhile = || {
            assert!(cards.0.try_lock().is_ok(), "it is signed under the lock");
            assert_eq!(by("first", &|| ()), "first");
        };
        assert_eq!(by("second", &meanwhile), "first");
        assert_eq!(by("third", &|| ()), "first");
        assert_eq!(cards.0.lock().unwrap().len(), 1);
    }
}
