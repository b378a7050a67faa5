//! The access log: one line a call, when it has ended.

use std::{
    hash::Hasher,
    sync::{
        OnceLock, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use siphasher::sip::SipHasher13;

use crate::{
    engine::Engine,
    service::{
        Principal,
        observe::{CallDetails, CallRecord},
        upstream::LoggedUpstream,
    },
};

use super::super::metrics::{generation_name, op_name};

/// What writes a line a call.
pub(in crate::net) struct AccessLog {
    /// One call of so many has a line; 0: none.
    one_of: AtomicU32,
    seen: AtomicU32,
    /// Without it the name behind the hash in a line cannot be found.
    key: u128,
    engine: OnceLock<Weak<Engine>>,
}

impl AccessLog {
    /// A log of one call of so many, under a secret key.
    pub(in crate::net) fn new(one_of: u32, key: u128) -> AccessLog {
        let (one_of, seen) = (AtomicU32::new(one_of), AtomicU32::new(0));
        AccessLog { one_of, seen, key, engine: OnceLock::new() }
    }

    /// Says whose agents are meant.
    pub(in crate::net) fn belong_to(&self, engine: Weak<Engine>) {
        // There is one engine.
        let _ = self.engine.set(engine);
    }

    /// From now on one call of so many has a line; 0: none.
    pub(in crate::net) fn set_one_of(&self, one_of: u32) {
        self.one_of.store(one_of, Relaxed);
    }

    /// Whether the next call has a line.
    pub(in crate::net) fn takes_next(&self) -> bool {
        match self.one_of.load(Relaxed) {
            0 => false,
            one_of => self.seen.fetch_add(1, Relaxed).is_multiple_of(one_of),
        }
    }

    /// Writes the line of a call, if it is to have one.
    pub(in crate::net) fn write(&self, call: &CallRecord, now_ns: u64) {
        let Some(details) = call.details.as_deref() else { return };
        let CallDetails { task, principal, trace_id, upstream, .. } = details;
        let engine = self.engine.get().and_then(Weak::upgrade);
        let agent = engine.and_then(|engine| engine.agent_name(call.agent)).unwrap_or_default();
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        let outcome = call.refusal.map_or("ok", |refusal| refusal.kind.row().reason);
        tracing::info!(
            target: "peregrine::access",
            method = op_name(call.op),
            binding = call.binding.word(),
            generation = generation_name(call.generation),
            agent,
            task = text(task),
            principal = principal.as_deref().map(|by| self.hash(by)),
            status = call.status,
            outcome,
            end = call.end.word(),
            bytes_in = call.bytes_in,
            bytes_out = call.bytes_out,
            us = now_ns.saturating_sub(call.began_ns) / 1_000,
            upstream = upstream.as_deref().and_then(LoggedUpstream::origin),
            upstream_us = upstream.as_deref().and_then(LoggedUpstream::answer_us),
            trace_id = trace_id.as_ref().map(|id| text(&id[..])),
        );
    }

    fn hash(&self, principal: &Principal) -> String {
        let mut hasher = SipHasher13::new_with_keys(self.key as u64, (self.key >> 64) as u64);
        hasher.write(principal.owner().as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_of_so_many_has_a_line() {
        for (one_of, lines) in [(0, 0), (1, 12), (4, 3), (5, 3)] {
            let log = AccessLog::new(one_of, 7);
            assert_eq!((0..12).filter(|_| log.takes_next()).count(), lines, "{one_of}");
        }
    }
}
