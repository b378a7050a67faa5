//! Cards that are known already: one is used while it is fresh, and asked about after that
//! (A2A 1.0 §8.6, RFC 9111).
//!
//! Invariant: what is known is the public card, as the server at its URL gave it, and how it was
//! found. That redirects led to another origin than the caller named is a part of it, and stays one
//! however often the card is used or asked about.

use std::sync::{Arc, PoisonError};

use super::{
    Client, ClientError, HttpUrl, Transport,
    card::{AgentCard, CardFreshness, check_signed},
    client::SharedClient,
};
#[cfg(feature = "gateway")]
use crate::service::Now;

/// A card that was read from its URL: where it was asked for, where it came from, and how long its
/// server said that it is good.
///
/// [`Client::known_card`] gives the one of a client, and [`ClientBuilder::known_card`] takes it for
/// the next client of the same agent. Clones share the card.
///
/// [`ClientBuilder::known_card`]: super::ClientBuilder::known_card
#[derive(Clone, Debug)]
pub struct KnownCard {
    /// What the caller named.
    pub(super) asked: HttpUrl,
    /// Where it came from at last.
    pub(super) url: HttpUrl,
    /// True: redirects led to another origin than the caller named.
    pub(super) is_elsewhere: bool,
    /// The public one.
    pub(super) card: Arc<AgentCard>,
    pub(super) freshness: CardFreshness,
}

impl KnownCard {
    /// A card that its caller has from this URL; of how long it is good nothing is known.
    pub(super) fn at(url: HttpUrl, card: Arc<AgentCard>) -> KnownCard {
        let freshness = CardFreshness::default();
        KnownCard { asked: url.clone(), url, is_elsewhere: false, card, freshness }
    }
}

/// For an agent that calls another one for all workers of a server.
#[cfg(feature = "gateway")]
impl KnownCard {
    /// The card.
    pub(crate) fn card(&self) -> &Arc<AgentCard> {
        &self.card
    }

    /// Milliseconds for which its server said that it is good, from now on.
    pub(crate) fn left_ms(&self, now: Now) -> u64 {
        self.freshness.left_ms(now)
    }

    /// The same, to be asked about at once.
    pub(crate) fn stale(self) -> KnownCard {
        KnownCard { freshness: self.freshness.stale(), ..self }
    }
}

impl<T: Transport> SharedClient<T> {
    fn known(&self) -> Option<KnownCard> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts what was learned of the same card in its place, unless another call has read a new one
    /// meanwhile.
    fn keep(&self, renewed: KnownCard) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.card, &renewed.card)) {
            *known = Some(renewed);
        }
    }

    /// Puts a card in the place of what was known.
    fn replace(&self, read: KnownCard) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_card(Arc::clone(&read.card));
        *known = Some(read);
    }
}

impl<T: Transport> Client<T> {
    /// The public card as it was read last, for the next client of the same agent: whatever
    /// [`Client::extended_card`] has read since. `None` for a card that came from no URL, and for
    /// one whose server said `no-store`.
    pub fn known_card(&self) -> Option<KnownCard> {
        self.inner.known().filter(|known| known.freshness.may_be_kept())
    }

    /// Asks whether the card has changed since it was read, unless its server said that it is good
    /// for longer; true: it has, and is this client's from now on. One that is no longer where it
    /// came from is looked for as at first. The interface that was chosen stays. A card that came
    /// from no URL never changes.
    ///
    /// # Errors
    /// [`ClientError`]; the card that was this client's then stays.
    pub async fn refresh_card(&self) -> Result<bool, ClientError> {
        let inner = &self.inner;
        let Some(known) = inner.known() else { return Ok(false) };
        let renewed = inner.built.discovery(&inner.transport).renew(&known).await?;
        if Arc::ptr_eq(&renewed.card, &known.card) {
            inner.keep(renewed);
            return Ok(false);
        }
        check_signed(&renewed.card, inner.built.card_keys.as_ref())?;
        inner.replace(renewed);
        Ok(true)
    }
}
