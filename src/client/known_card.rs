//! Cached cards: a fresh one is used, a stale one is revalidated (A2A 1.0 §8.6, RFC 9111).
//!
//! Invariant: a cached card is the public card as its server sent it. The cache retains, across
//! uses and revalidations, whether redirects led to an origin other than the one that the caller
//! named.

use std::sync::{Arc, PoisonError};

use super::{
    Client, ClientError, HttpUrl, Transport,
    card::{AgentCard, CardFreshness, check_signed},
    client::SharedClient,
};
#[cfg(feature = "gateway")]
use crate::service::Now;

/// A card that was read from its URL: the requested URL, the final URL, and the card's lifetime.
///
/// [`Client::known_card`] returns the card of a client, and [`ClientBuilder::known_card`] takes it
/// for the next client of the same agent. Clones share the card.
///
/// [`ClientBuilder::known_card`]: super::ClientBuilder::known_card
#[derive(Clone, Debug)]
pub struct KnownCard {
    /// The URL that the caller named.
    pub(super) requested: HttpUrl,
    /// The URL of the last response with the card.
    pub(super) url: HttpUrl,
    /// True: redirects led to an origin other than the one that the caller named.
    pub(super) is_elsewhere: bool,
    /// The public card.
    pub(super) card: Arc<AgentCard>,
    pub(super) freshness: CardFreshness,
}

impl KnownCard {
    /// A card that the caller has from this URL; the lifetime of the card is unknown.
    pub(super) fn at(url: HttpUrl, card: Arc<AgentCard>) -> KnownCard {
        let freshness = CardFreshness::default();
        KnownCard { requested: url.clone(), url, is_elsewhere: false, card, freshness }
    }
}

/// For an agent that calls another agent for all workers of a server.
#[cfg(feature = "gateway")]
impl KnownCard {
    /// The card.
    pub(crate) fn card(&self) -> &Arc<AgentCard> {
        &self.card
    }

    /// Milliseconds for which the card is still fresh.
    pub(crate) fn remaining_ms(&self, now: Now) -> u64 {
        self.freshness.remaining_ms(now)
    }

    /// The same card marked as stale, to revalidate it at once.
    pub(crate) fn stale(self) -> KnownCard {
        KnownCard { freshness: self.freshness.stale(), ..self }
    }
}

impl<T: Transport> SharedClient<T> {
    fn cached_card(&self) -> Option<KnownCard> {
        self.cached_card.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the result of a revalidation, unless another call has read a new card meanwhile.
    fn keep(&self, renewed: KnownCard) {
        let mut cached = self.cached_card.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.as_ref().is_some_and(|cached| Arc::ptr_eq(&cached.card, &renewed.card)) {
            *cached = Some(renewed);
        }
    }

    /// Replaces the cached card.
    fn replace(&self, read: KnownCard) {
        let mut cached = self.cached_card.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_card(Arc::clone(&read.card));
        *cached = Some(read);
    }
}

impl<T: Transport> Client<T> {
    /// The public card as last read, for the next client of the same agent;
    /// [`Client::extended_card`] does not change it. `None` for a card without a URL, or with
    /// `no-store`.
    pub fn known_card(&self) -> Option<KnownCard> {
        self.inner.cached_card().filter(|cached| cached.freshness.may_be_stored())
    }

    /// Revalidates the card unless it is fresh. True: the card has changed, and this client uses
    /// the new one. If the URL has no card any more, a new discovery starts. The chosen interface
    /// stays. A card without a URL never changes.
    ///
    /// # Errors
    /// [`ClientError`]; the client then keeps its card.
    pub async fn refresh_card(&self) -> Result<bool, ClientError> {
        let inner = &self.inner;
        let Some(cached) = inner.cached_card() else { return Ok(false) };
        let renewed = inner.built.discovery(&inner.transport).renew(&cached).await?;
        if Arc::ptr_eq(&renewed.card, &cached.card) {
            inner.keep(renewed);
            return Ok(false);
        }
        check_signed(&renewed.card, inner.built.card_keys.as_ref())?;
        inner.replace(renewed);
        Ok(true)
    }
}
