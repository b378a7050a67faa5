//! The keys of an issuer at a URL: a JWK set, or the metadata that names a JWK set (OpenID Connect
//! Discovery 1.0 §4, RFC 8414).
//!
//! Invariants: nothing here blocks or fetches. A verifier polls [`RemoteKeys::poll`]; the driver
//! with sockets gets its fetches from [`RemoteKeys::next_fetch`]. One fetch is in flight at a time.
//! The number of waiting verifiers is bounded. Keys are not dropped while the issuer is down.

mod fetch;
mod location;

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::{
    limits::callers::{
        ISSUER_KID_MS, ISSUER_KIDS_ASKED_MAX, ISSUER_PEER_WAITERS_MAX, ISSUER_RETRY_MS,
        ISSUER_RETRY_MS_MAX, ISSUER_WAIT_MS, ISSUER_WAITERS_MAX,
    },
    service::Now,
};

use self::{fetch::fresh_ms, location::check_url};
use super::{AuthRefusal, peer_bits, rules::SecretDigest, token_keys::TokenKeys};

pub use fetch::{FetchedDocument, KeyFetch};
pub use location::{KeyLocation, KeyLocationError};

/// OpenID Connect Discovery 1.0 §4.
pub(super) const OPEN_ID_PATH: &str = "/.well-known/openid-configuration";

/// The keys of one issuer.
pub struct RemoteKeys {
    issuer: String,
    location: KeyLocation,
    /// The first URL to fetch.
    url: String,
    /// True: the URL is plain HTTP on this machine, and further URLs may be plain HTTP as well.
    is_plain: bool,
    refresh_ms: u64,
    state: Mutex<RemoteState>,
}

#[derive(Default)]
struct RemoteState {
    keys: Option<Arc<TokenKeys>>,
    /// When the keys were fetched.
    fetched_unix_ms: Option<u64>,
    /// The number of the fetch in flight, and when that fetch counts as failed.
    under_way: Option<(u64, u64)>,
    fetches: u64,
    /// When the next fetch starts; 0: now.
    due_ms: u64,
    /// Consecutive failures, and the reason of the last one.
    failures: u32,
    problem: Option<String>,
    /// The time until which requests wait for the first keys.
    first_until_ms: Option<u64>,
    /// The time until which requests wait for newer keys, after an unknown `kid`.
    newer_until_ms: Option<u64>,
    /// When an unknown `kid` may cause a fetch again.
    kid_due_ms: u64,
    /// Unknown kids that the next fetch decides.
    kids_pending: Vec<SecretDigest>,
    /// Kids that the last fetch did not contain.
    kids_refused: Vec<SecretDigest>,
    /// The wakers of waiting requests, each with its peer as the bits of its address.
    waiters: Vec<(Waker, Option<u128>)>,
    /// Wakes the fetcher.
    fetcher: Option<Waker>,
    /// True: the rules were replaced, and these keys admit no more callers.
    is_closed: bool,
}

/// A request that waits for keys.
#[derive(Clone, Copy)]
pub struct KeyWaiter<'a> {
    /// Woken when the keys are available.
    pub wake: &'a Waker,
    /// The client address of the request.
    pub address: Option<IpAddr>,
}

/// The status of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The issuer.
    pub issuer: String,
    /// The number of usable keys; `None`: the keys were never fetched.
    pub keys: Option<usize>,
    /// When the keys were fetched.
    pub fetched_unix_ms: Option<u64>,
    /// Why the last fetch failed; `None`: it succeeded.
    pub problem: Option<String>,
}

/// The next step of the fetcher.
#[derive(Debug)]
pub enum NextFetch {
    /// Fetch this document.
    Fetch(KeyFetch),
    /// Wait until this time, in ms of [`Now::mono_ms`], or until woken.
    Wait(u64),
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = &self.state().keys.as_ref().map(|keys| keys.len());
        f.debug_struct("RemoteKeys").field("url", &self.url).field("keys", keys).finish()
    }
}

impl RemoteKeys {
    /// The keys of this issuer. They are fetched again after `refresh_ms`, or as the
    /// `Cache-Control` of their server states.
    ///
    /// # Errors
    /// [`KeyLocationError`]
    pub fn new(
        issuer: &str,
        location: KeyLocation,
        refresh_ms: u64,
    ) -> Result<RemoteKeys, KeyLocationError> {
        let url = match &location {
            KeyLocation::Jwks(url) => url.clone(),
            // OpenID Connect Discovery 1.0 §3: without a query or a fragment.
            KeyLocation::OpenId if issuer.contains(['?', '#']) => {
                return Err(KeyLocationError::Url);
            }
            // §4.1: a slash at the end is removed.
            KeyLocation::OpenId => {
                let base = issuer.strip_suffix('/').unwrap_or(issuer);
                format!("{base}{OPEN_ID_PATH}")
            }
        };
        let is_plain = check_url(&url)?;
        let (issuer, state) = (issuer.to_owned(), Mutex::default());
        Ok(RemoteKeys { issuer, location, url, is_plain, refresh_ms, state })
    }

    /// A copy of the keys that has not admitted a caller yet.
    pub(super) fn anew(&self) -> RemoteKeys {
        let state = {
            let state = self.state();
            RemoteState {
                keys: state.keys.as_ref().map(|keys| Arc::new(keys.anew())),
                fetched_unix_ms: state.fetched_unix_ms,
                due_ms: if state.under_way.is_some() { 0 } else { state.due_ms },
                failures: state.failures,
                problem: state.problem.clone(),
                kid_due_ms: state.kid_due_ms,
                ..RemoteState::default()
            }
        };
        RemoteKeys {
            issuer: self.issuer.clone(),
            location: self.location.clone(),
            url: self.url.clone(),
            is_plain: self.is_plain,
            refresh_ms: self.refresh_ms,
            state: Mutex::new(state),
        }
    }

    /// Stops admitting callers by these keys, and releases the callers that the keys admitted.
    pub(super) fn close(&self) {
        let woken = {
            let mut state = self.state();
            state.is_closed = true;
            if let Some(keys) = state.keys.take() {
                keys.withdraw_but(&TokenKeys::default());
            }
            state.end_fetch()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, RemoteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The location of the keys, and the ms after which they are fetched again.
    pub fn location(&self) -> (&KeyLocation, u64) {
        (&self.location, self.refresh_ms)
    }

    /// The status of the keys.
    pub fn status(&self) -> KeyStatus {
        let state = self.state();
        KeyStatus {
            issuer: self.issuer.clone(),
            keys: state.keys.as_ref().map(|keys| keys.len()),
            fetched_unix_ms: state.fetched_unix_ms,
            problem: state.problem.clone(),
        }
    }

    /// Returns the keys. Requests wait only for the first fetch; if this fetch fails, requests get
    /// an error until keys are available.
    ///
    /// # Errors
    /// [`AuthRefusal::Unavailable`]
    pub fn poll(
        &self,
        now: Now,
        waiter: KeyWaiter<'_>,
    ) -> Poll<Result<Arc<TokenKeys>, AuthRefusal>> {
        let mut state = self.state();
        if let Some(keys) = &state.keys {
            return Poll::Ready(Ok(Arc::clone(keys)));
        }
        let until_ms = now.mono_ms.saturating_add(ISSUER_WAIT_MS);
        let until_ms = *state.first_until_ms.get_or_insert(until_ms);
        if state.failures > 0 || state.is_closed || now.mono_ms >= until_ms {
            return Poll::Ready(Err(state.unreadable(now)));
        }
        state.wait(waiter)
    }

    /// Returns newer keys than `seen`, which lack the `kid` of a token. An unknown `kid` causes a
    /// fetch at most once in [`ISSUER_KID_MS`].
    ///
    /// # Errors
    /// [`AuthRefusal::Wrong`] if a fetch for this `kid` did not contain it; before such a fetch
    /// [`AuthRefusal::Unavailable`], with the seconds until the next fetch.
    pub fn poll_newer(
        &self,
        seen: &Arc<TokenKeys>,
        kid: &str,
        now: Now,
        waiter: KeyWaiter<'_>,
    ) -> Poll<Result<Arc<TokenKeys>, AuthRefusal>> {
        let kid = SecretDigest::of(kid.as_bytes());
        let mut state = self.state();
        match &state.keys {
            Some(keys) if !Arc::ptr_eq(keys, seen) => return Poll::Ready(Ok(Arc::clone(keys))),
            Some(_) | None => {}
        }
        match state.newer_until_ms {
            Some(until_ms) if now.mono_ms < until_ms => {
                state.add_pending_kid(kid);
                return state.wait(waiter);
            }
            None if now.mono_ms >= state.kid_due_ms => state.add_pending_kid(kid),
            None if state.kids_refused.contains(&kid) => {
                return Poll::Ready(Err(AuthRefusal::Wrong(UNKNOWN_KID)));
            }
            Some(_) => return Poll::Ready(Err(state.unreadable(now))),
            None if state.failures > 0 => return Poll::Ready(Err(state.unreadable(now))),
            None => {
                state.add_pending_kid(kid);
                let next_ms = state.due_ms.min(state.kid_due_ms);
                let (why, retry_s) = (LATER_KID, seconds_until(next_ms, now));
                return Poll::Ready(Err(AuthRefusal::Unavailable { why, retry_s }));
            }
        }
        let waiting = state.wait(waiter);
        if waiting.is_pending() {
            state.kid_due_ms = now.mono_ms.saturating_add(ISSUER_KID_MS);
            state.newer_until_ms = Some(now.mono_ms.saturating_add(ISSUER_WAIT_MS));
            state.due_ms = 0;
            let fetcher = state.fetcher.take();
            drop(state);
            fetcher.into_iter().for_each(Waker::wake);
        }
        waiting
    }

    /// The fetch to start now; `wake` is woken when the answer changes.
    pub fn next_fetch(self: &Arc<RemoteKeys>, now: Now, wake: &Waker) -> NextFetch {
        let mut state = self.state();
        if !state.fetcher.as_ref().is_some_and(|fetcher| fetcher.will_wake(wake)) {
            state.fetcher = Some(wake.clone());
        }
        if let Some((number, until_ms)) = state.under_way {
            if now.mono_ms < until_ms {
                return NextFetch::Wait(until_ms);
            }
            // The fetcher has disappeared, or is too slow.
            let woken = state.fail(number, now, "the fetch timed out".to_owned());
            let due_ms = state.due_ms;
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            return NextFetch::Wait(due_ms);
        }
        if now.mono_ms < state.due_ms {
            return NextFetch::Wait(state.due_ms);
        }
        state.fetches += 1;
        let (number, due_ms) = (state.fetches, now.mono_ms.saturating_add(ISSUER_WAIT_MS));
        state.under_way = Some((number, due_ms));
        let is_metadata = self.location == KeyLocation::OpenId;
        let (source, url) = (Arc::clone(self), self.url.clone());
        NextFetch::Fetch(KeyFetch { source, number, url, is_metadata, due_ms })
    }

    /// Stores fetched keys.
    fn take(&self, number: u64, now: Now, keys: TokenKeys, cache_control: Option<&str>) {
        let woken = {
            let mut state = self.state();
            if state.under_way.is_none_or(|(under_way, _)| under_way != number) {
                return;
            }
            let old = state.keys.take();
            let keys = match &old {
                Some(old) => keys.after(old),
                None => keys,
            };
            if let Some(old) = &old {
                old.withdraw_but(&keys);
            }
            // Names of current keys are found before this list is checked. Names of keys that the
            // issuer has removed are wrong as well.
            let removed = old.iter().flat_map(|old| old.names()).filter(|kid| !keys.has_name(kid));
            let removed = removed.map(|kid| SecretDigest::of(kid.as_bytes()));
            state.kids_refused = state.kids_pending.drain(..).chain(removed).collect();
            state.keys = Some(Arc::new(keys));
            state.fetched_unix_ms = Some(now.unix_ms);
            (state.failures, state.problem) = (0, None);
            state.due_ms = now.mono_ms.saturating_add(fresh_ms(cache_control, self.refresh_ms));
            state.end_fetch()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl RemoteState {
    /// Records an unknown `kid` until the next fetch. Beyond [`ISSUER_KIDS_ASKED_MAX`] kids, it
    /// stays undecided, and its tokens are [`AuthRefusal::Unavailable`].
    fn add_pending_kid(&mut self, kid: SecretDigest) {
        if self.kids_pending.len() < ISSUER_KIDS_ASKED_MAX && !self.kids_pending.contains(&kid) {
            self.kids_pending.push(kid);
        }
    }

    fn unreadable(&self, now: Now) -> AuthRefusal {
        let (why, retry_s) = (UNREADABLE, seconds_until(self.due_ms, now));
        AuthRefusal::Unavailable { why, retry_s }
    }

    fn wait<T>(&mut self, waiter: KeyWaiter<'_>) -> Poll<Result<T, AuthRefusal>> {
        let KeyWaiter { wake, address } = waiter;
        if !self.waiters.iter().any(|(waker, _)| waker.will_wake(wake)) {
            let peer = address.map(peer_bits);
            let of_peer = || self.waiters.iter().filter(|(_, of)| *of == peer).count();
            if self.waiters.len() >= ISSUER_WAITERS_MAX
                || (peer.is_some() && of_peer() >= ISSUER_PEER_WAITERS_MAX)
            {
                return Poll::Ready(Err(CROWDED));
            }
            self.waiters.push((wake.clone(), peer));
        }
        Poll::Pending
    }

    /// Ends the fetch in flight; returns the wakers of the waiting requests.
    fn end_fetch(&mut self) -> Vec<Waker> {
        (self.under_way, self.newer_until_ms) = (None, None);
        std::mem::take(&mut self.waiters).into_iter().map(|(wake, _)| wake).collect()
    }

    fn fail(&mut self, number: u64, now: Now, problem: String) -> Vec<Waker> {
        if self.under_way.is_none_or(|(under_way, _)| under_way != number) {
            return Vec::new();
        }
        self.failures = self.failures.saturating_add(1);
        self.problem = Some(problem);
        let doubled = ISSUER_RETRY_MS << (self.failures - 1).min(16);
        self.due_ms = now.mono_ms.saturating_add(doubled.min(ISSUER_RETRY_MS_MAX));
        self.end_fetch()
    }
}

/// The time until `due_ms` in whole seconds, at least one.
fn seconds_until(due_ms: u64, now: Now) -> u32 {
    let seconds = due_ms.saturating_sub(now.mono_ms).div_ceil(1_000);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

const UNREADABLE: &str = "the keys of the issuer cannot be fetched; retry later";
const LATER_KID: &str =
    "no key of the issuer has the token's kid; the keys are fetched again later";
const CROWDED: AuthRefusal = AuthRefusal::Unavailable {
    why: "too many requests are waiting for the issuer's keys; retry later",
    retry_s: 1,
};
const UNKNOWN_KID: &str = "no key of the issuer has the token's kid";

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
