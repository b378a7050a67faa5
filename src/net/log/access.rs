//! The access log: one line for each ended call, and one for each refused request.
//!
//! Invariant: refused requests, whether calls or not, have at most [`REFUSED_LINES_MAX`] lines in a
//! second, regardless of the sampling; further refusals are counted, and the count is logged.

use std::{
    fmt,
    hash::Hasher,
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Instant,
};

use siphasher::sip::SipHasher13;

use crate::{
    engine::Engine,
    limits::REFUSED_LINES_MAX,
    service::{
        Principal,
        observe::{CallDetails, CallRecord, RefusedRequest},
        upstream::LoggedUpstream,
    },
};

use super::super::{
    line_rate::{LineRate, LineVerdict},
    metrics::{generation_name, op_name},
};

/// The form of callers in the lines of calls.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum LoggedPrincipal {
    /// A hash under a key that each process generates.
    #[default]
    Hash,
    /// A hash under this key: equal after a restart, and on each server with the key.
    HashUnder(u128),
    /// The issuer, if the caller has one, and the name.
    Name,
}

impl fmt::Debug for LoggedPrincipal {
    /// The key is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoggedPrincipal::Hash => "Hash",
            LoggedPrincipal::HashUnder(_) => "HashUnder",
            LoggedPrincipal::Name => "Name",
        })
    }
}

/// Writes one line for each call.
pub(in crate::net) struct AccessLog {
    /// One call in this many is logged; 0: none.
    one_of: AtomicU32,
    seen: AtomicU32,
    /// The key of the hashes of names, without which a hash cannot be reversed. `None`: names are
    /// shown.
    key: Option<u128>,
    /// The rate limit of lines of refused requests.
    refused: Mutex<LineRate>,
    engine: OnceLock<Weak<Engine>>,
}

impl AccessLog {
    /// Logs one call in `one_of`, with hashes of names under `key`; without a key, with names.
    pub(in crate::net) fn new(one_of: u32, key: Option<u128>) -> AccessLog {
        let (one_of, seen) = (AtomicU32::new(one_of), AtomicU32::new(0));
        AccessLog { one_of, seen, key, refused: Mutex::default(), engine: OnceLock::new() }
    }

    /// Whether calls are logged.
    pub(in crate::net) fn is_on(&self) -> bool {
        self.one_of.load(Relaxed) > 0
    }

    /// Sets the engine that provides the agents' names.
    pub(in crate::net) fn belong_to(&self, engine: Weak<Engine>) {
        // There is only one engine.
        let _ = self.engine.set(engine);
    }

    /// Logs one call in `one_of` from now on; 0: none.
    pub(in crate::net) fn set_one_of(&self, one_of: u32) {
        self.one_of.store(one_of, Relaxed);
    }

    /// Whether the next call is logged.
    pub(in crate::net) fn samples_next(&self) -> bool {
        match self.one_of.load(Relaxed) {
            0 => false,
            one_of => self.seen.fetch_add(1, Relaxed).is_multiple_of(one_of),
        }
    }

    /// Writes the line of a call with details, unless the rate limit of refused requests is
    /// reached.
    pub(in crate::net) fn write(&self, call: &CallRecord, now_ns: u64) {
        let Some(details) = call.details.as_deref() else { return };
        if call.refusal.is_some() && !self.admits_refused(Instant::now()) {
            return;
        }
        let CallDetails { task, principal, peer, reason, trace_id, upstream, .. } = details;
        let engine = self.engine.get().and_then(Weak::upgrade);
        let agent = engine.and_then(|engine| engine.agent_name(call.agent)).unwrap_or_default();
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        let outcome = call.refusal.map_or("ok", |refusal| refusal.kind.row().reason);
        let reason = call.refusal.map(|refusal| match reason.is_empty() {
            true => refusal.kind.row().message,
            false => reason,
        });
        tracing::info!(
            target: "peregrine::access",
            method = op_name(call.op),
            binding = call.binding.word(),
            version = generation_name(call.generation),
            agent,
            task = text(task),
            peer = peer.map(shown),
            principal = principal.as_deref().map(|by| self.name(by)),
            status = call.status,
            outcome,
            reason,
            limit = call.refusal.and_then(|refusal| refusal.limit),
            end = call.end.word(),
            bytes_in = call.bytes_in,
            bytes_out = call.bytes_out,
            us = now_ns.saturating_sub(call.began_ns) / 1_000,
            upstream = upstream.as_deref().and_then(LoggedUpstream::origin),
            upstream_us = upstream.as_deref().and_then(LoggedUpstream::answer_us),
            trace_id = trace_id.as_ref().map(|id| text(&id[..])),
        );
    }

    /// Writes the line of a refused request that is not a call, unless the rate limit is reached.
    pub(in crate::net) fn write_refused(&self, refused: &RefusedRequest<'_>) {
        if !self.is_on() || !self.admits_refused(Instant::now()) {
            return;
        }
        let RefusedRequest { peer, principal, status, reason, limit } = *refused;
        tracing::info!(
            target: "peregrine::access",
            peer = peer.map(shown),
            principal = principal.map(|by| self.name(by)),
            status,
            outcome = "refused",
            reason,
            limit,
        );
    }

    /// Whether a refused request has a line in the current second; otherwise the request is
    /// counted.
    fn admits_refused(&self, now: Instant) -> bool {
        let LineVerdict { is_written, skipped } = self.rate().take(now, REFUSED_LINES_MAX);
        log_unlogged(skipped);
        is_written
    }

    /// Writes the number of refused requests without a line, if their second is over or `at_end`.
    pub(in crate::net) fn write_unlogged(&self, at_end: bool) {
        let skipped = self.rate().take_skipped(Instant::now(), at_end);
        log_unlogged(skipped);
    }

    fn rate(&self) -> MutexGuard<'_, LineRate> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The form of a caller in a line.
    fn name(&self, principal: &Principal) -> String {
        let Some(key) = self.key else {
            return match principal.issuer() {
                "" => principal.name().to_owned(),
                issuer => format!("{issuer} {}", principal.name()),
            };
        };
        let mut hasher = SipHasher13::new_with_keys(key as u64, (key >> 64) as u64);
        hasher.write(principal.owner().as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

/// Writes the number of refused requests that had no line in their second.
fn log_unlogged(unlogged: u64) {
    if unlogged > 0 {
        tracing::info!(
            target: "peregrine::access",
            outcome = "refused",
            unlogged,
            "at most {REFUSED_LINES_MAX} refused requests a second are logged; the others are \
             counted",
        );
    }
}

/// An address in its usual form: IPv4 even if an IPv6 socket accepted the connection.
fn shown(peer: IpAddr) -> tracing::field::DisplayValue<IpAddr> {
    tracing::field::display(peer.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn access_log_samples_one_of_n_calls() {
        for (one_of, lines) in [(0, 0), (1, 12), (4, 3), (5, 3)] {
            let log = AccessLog::new(one_of, Some(7));
            assert_eq!((0..12).filter(|_| log.samples_next()).count(), lines, "{one_of}");
        }
    }

    #[test]
    fn refused_requests_beyond_a_hundred_a_second_are_counted() {
        let (log, begin) = (AccessLog::new(1, None), Instant::now());
        let admitted =
            |after: Duration| (0..250).filter(|_| log.admits_refused(begin + after)).count();
        let (second, ns) = (Duration::from_secs(1), Duration::from_nanos(1));
        assert_eq!(admitted(Duration::ZERO), REFUSED_LINES_MAX as usize);
        assert_eq!(log.rate().take_skipped(begin, false), 0);
        assert_eq!(log.rate().take_skipped(begin, true), 150);
        assert_eq!(admitted(second - ns), 0);
        assert_eq!(admitted(second), REFUSED_LINES_MAX as usize);
        // The lines of the previous second were reported.
        assert_eq!(log.rate().take_skipped(begin + second, true), 150);
        assert_eq!(log.rate().take_skipped(begin + second, true), 0);
    }
}
