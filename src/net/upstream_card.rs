//! The card of an upstream agent, read once for all workers and read again when it is due.
//!
//! Invariant: an unreadable, unverifiable or uncallable card never replaces a usable one.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::HttpClient;
use crate::{
    client::{ClientBuilder, ClientError, KnownCard, Transport},
    limits::{UPSTREAM_CARD_MS, UPSTREAM_CARD_MS_MIN},
};

/// Milliseconds for one request for a card.
const REQUEST_MS: u64 = 5_000;
/// Maximum milliseconds between two requests: a day.
const EVERY_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// The last usable card of an upstream agent.
pub(super) struct UpstreamCard {
    /// The configured milliseconds between two requests; 0: the card's server decides.
    every_ms: AtomicU64,
    /// The revision of the last card; 0: no card yet.
    revision: AtomicU64,
    state: Mutex<CardState>,
}

struct CardState {
    last: Option<CardRevision>,
    due: Instant,
}

/// A card, and its unique revision.
#[derive(Clone)]
pub(super) struct CardRevision {
    pub number: u64,
    pub cached: KnownCard,
}

impl UpstreamCard {
    /// Starts without a card; the card is due at once.
    pub fn new() -> UpstreamCard {
        let state = Mutex::new(CardState { last: None, due: Instant::now() });
        UpstreamCard { every_ms: AtomicU64::new(0), revision: AtomicU64::new(0), state }
    }

    /// Sets the milliseconds after which the card is read again.
    pub fn set_every(&self, ms: u64) {
        self.every_ms.store(ms, Ordering::Relaxed);
    }

    /// The revision of the last card; 0: no card yet.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The last card.
    pub fn last(&self) -> Option<CardRevision> {
        self.lock().last.clone()
    }

    /// Whether the card must be read again.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.lock().due
    }

    /// Reads the card if it has changed; returns the current card.
    ///
    /// # Errors
    /// [`ClientError`]: the last card stays in use, and is due again after a while.
    pub async fn read(
        &self,
        builder: &ClientBuilder,
        transport: &HttpClient,
        url: &str,
    ) -> Result<CardRevision, ClientError> {
        let builder = builder.clone().call_ms_max(REQUEST_MS);
        let builder = match self.last() {
            Some(last) => builder.known_card(last.cached.stale()),
            None => builder,
        };
        match builder.find_card(transport, url).await {
            Ok(found) => {
                let fresh_ms = found.remaining_ms(transport.now());
                Ok(self.put(found, fresh_ms))
            }
            Err(error) => {
                self.lock().due = self.after(UPSTREAM_CARD_MS_MIN);
                Err(error)
            }
        }
    }

    /// Stores a card; `fresh_ms` is the lifetime from its server, or 0 without a lifetime.
    fn put(&self, found: KnownCard, fresh_ms: u64) -> CardRevision {
        let every_ms = match fresh_ms {
            0 => UPSTREAM_CARD_MS,
            fresh_ms => fresh_ms.max(UPSTREAM_CARD_MS_MIN),
        };
        let mut state = self.lock();
        state.due = self.after(every_ms);
        let json = found.card().raw_json();
        let same = state.last.as_ref().filter(|last| last.cached.card().raw_json() == json);
        let number = same.map_or_else(|| self.revision() + 1, |same| same.number);
        let last = CardRevision { number, cached: found };
        state.last = Some(last.clone());
        self.revision.store(number, Ordering::Release);
        last
    }

    /// The time at which the card is due: after `ms`, or as configured.
    fn after(&self, ms: u64) -> Instant {
        let ms = match self.every_ms.load(Ordering::Relaxed) {
            0 => ms,
            every_ms => every_ms,
        };
        Instant::now() + Duration::from_millis(ms.min(EVERY_MS_MAX))
    }

    fn lock(&self) -> MutexGuard<'_, CardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
