//! The signer of cards, and the choice of the cards that are signed (A2A 1.0 §8.4).
//!
//! Invariant: a signed card contains only hosts that the operator has configured. A client can
//! neither get a signed card that points to another host, nor cause a signature for each invented
//! tenant. All workers send the same signatures for a card; a changed card gets new signatures.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::binding::{Endpoint, ServerConfig, origin::Origin};

/// Signs cards, with several keys at once during a key rotation.
///
/// Called on the serving threads, once for each card, and concurrently if several threads need a
/// new card at the same moment.
pub trait CardSigner: Send + Sync {
    /// The signatures of this card, which is JSON without `signatures` in one of the card formats;
    /// empty: the card is sent unsigned.
    fn sign(&self, card: &[u8]) -> Vec<DetachedSignature>;

    /// The public keys, as a JWK set (RFC 7517 §5); they never change.
    fn jwks(&self) -> &[u8];
}

/// A signature with detached content (RFC 7515), as in cards.
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

/// The number of cached signed cards; the oldest is evicted first. An agent has a signed card for
/// each format and each name of the server.
const SIGNED_CARDS_MAX: usize = 256;

/// The cache of card signatures.
#[derive(Default)]
pub struct SignedCards(Mutex<VecDeque<SignedCard>>);

/// A signed card and its signatures.
type SignedCard = (Box<[u8]>, Arc<[DetachedSignature]>);

impl SignedCards {
    fn of(&self, signer: &dyn CardSigner, card: &[u8]) -> Arc<[DetachedSignature]> {
        if let Some(cached) = find(&self.lock(), card) {
            return cached;
        }
        let signatures: Arc<[DetachedSignature]> = signer.sign(card).into();
        let mut signed = self.lock();
        // ES256 signatures differ each time, but all workers must send the same signature: the
        // first is used.
        if let Some(cached) = find(&signed, card) {
            return cached;
        }
        if signed.len() == SIGNED_CARDS_MAX {
            signed.pop_front();
        }
        signed.push_back((card.into(), Arc::clone(&signatures)));
        signatures
    }

    /// All workers take this lock, so signing happens outside of it.
    fn lock(&self) -> MutexGuard<'_, VecDeque<SignedCard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(signed: &VecDeque<SignedCard>, card: &[u8]) -> Option<Arc<[DetachedSignature]>> {
    let found = signed.iter().find(|(signed_card, _)| **signed_card == *card);
    found.map(|(_, signatures)| Arc::clone(signatures))
}

/// The signatures of a card for this origin; empty: the card is sent unsigned.
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

/// Whether the operator has configured this origin. A card with a port or prefix that only the
/// client or a forwarded header contains is not signed.
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

/// The tenant in a path, unless it is the name of an agent: a client can invent any number of
/// tenants.
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

    /// Calls a function, then signs with its name.
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
    fn signing_holds_no_lock_and_first_signature_is_cached() {
        let cards = SignedCards::default();
        let by = |name: &str, meanwhile: &(dyn Fn() + Send + Sync)| {
            cards.of(&Named(name, meanwhile), b"card")[0].signature.clone()
        };
        let meanwhile = || {
            assert!(cards.0.try_lock().is_ok(), "the signer runs under the lock");
            assert_eq!(by("first", &|| ()), "first");
        };
        assert_eq!(by("second", &meanwhile), "first");
        assert_eq!(by("third", &|| ()), "first");
        assert_eq!(cards.0.lock().unwrap().len(), 1);
    }
}
