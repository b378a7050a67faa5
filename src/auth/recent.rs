//! The callers that a worker admitted recently.
//!
//! Each worker has its own copy of the gate's cache, so that calls of one caller on two workers do
//! not write shared memory. An entry is valid for [`RECENT_MS`]; then the gate checks the
//! credential again, and marks its own entry as used.

use std::sync::Arc;

use super::gate::{AdmittedCaller, CREDENTIAL_HELD_BYTES};
use crate::{limits::callers::RECENT_CALLERS, service::Now};

/// How long an entry is valid.
pub(super) const RECENT_MS: u64 = 1_000;

/// A worker's own cache of credentials; see `limits/memory.rs`.
pub struct RecentCallers(Box<[Option<RecentCaller>]>);

/// A verified credential.
struct RecentCaller {
    /// The gate's keyed hash of the credential.
    hash: u128,
    caller: Arc<AdmittedCaller>,
    /// The end of the entry, in ms of the monotonic clock.
    until_ms: u64,
    /// [`RequiredScopes::number`](crate::service::RequiredScopes::number) when the caller's scopes
    /// were filtered; 0: they are complete.
    scopes: u64,
}

impl Default for RecentCallers {
    fn default() -> RecentCallers {
        RecentCallers((0..RECENT_CALLERS).map(|_| None).collect())
    }
}

impl RecentCallers {
    /// The caller with the credential of this hash, if its entry is still valid; `scopes_number`
    /// returns the number of the currently required scopes.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u128,
        scopes_number: impl FnOnce() -> u64,
        now: Now,
    ) -> Option<&Arc<AdmittedCaller>> {
        let recent = self.0[hash as usize % RECENT_CALLERS].as_ref()?;
        let is_it = recent.hash == hash
            && now.mono_ms < recent.until_ms
            && (recent.scopes == 0 || recent.scopes == scopes_number())
            && recent.caller.holds(now);
        is_it.then_some(&recent.caller)
    }

    /// Caches a copy of the gate's caller, unless it is large; returns the caller.
    pub(super) fn keep(
        &mut self,
        hash: u128,
        caller: Arc<AdmittedCaller>,
        gate: GateEntry,
        now: Now,
    ) -> Arc<AdmittedCaller> {
        if caller.held_bytes() > CREDENTIAL_HELD_BYTES {
            return caller;
        }
        let GateEntry { until_ms, scopes } = gate;
        let until_ms = until_ms.min(now.mono_ms.saturating_add(RECENT_MS));
        let caller = Arc::new(AdmittedCaller::clone(&caller));
        let recent = RecentCaller { hash, caller: Arc::clone(&caller), until_ms, scopes };
        self.0[hash as usize % RECENT_CALLERS] = Some(recent);
        caller
    }
}

/// The state of the gate's own entry.
pub(super) struct GateEntry {
    /// When the gate's entry expires, in ms of the monotonic clock.
    pub until_ms: u64,
    /// As in an entry of [`RecentCallers`].
    pub scopes: u64,
}
