//! The quotas of a caller: rates and permits, and the account on which they are counted.
//!
//! Invariant: the state of a rate is one word, the time at which all charges are paid off (GCRA,
//! ITU-T I.371). The word is compared and updated atomically, so concurrent calls of a caller
//! cannot exceed the rate. Dropping a permit returns it.

mod running;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    limits::{Limits, callers::CALLER_SHARES},
    service::Now,
};

pub(crate) use running::TenantPermits;
pub use running::{CallerDeferredPermit, RunningBytes, RunningPermit, RunningShare};

/// The unit of time of rates, in ns.
const MINUTE_NS: u64 = 60_000_000_000;

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number per minute; at least 1.
    pub per_minute: u32,
    /// The maximum burst after a pause; at least 1.
    pub burst: u32,
}

/// The limits of one caller; `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Calls; each call of a batch counts.
    pub calls: Option<Rate>,
    /// KiB of requests, heads included.
    pub request_kib: Option<Rate>,
    /// Open streams.
    pub streams: Option<u32>,
    /// Tasks that are neither finished nor waiting for their client. Counted separately with the
    /// same limit: calls for which an agent looks up a task that is not stored, or decides on a
    /// cancel.
    pub running_tasks: Option<u32>,
    /// KiB of all these tasks together; counted separately with the same limit: KiB of these calls.
    pub running_kib: Option<u32>,
    /// Waiting calls; the remaining calls of a batch count as one.
    pub waiting_calls: Option<u32>,
}

impl Quota {
    /// The default limits of each caller if callers are authenticated: the server's streams, tasks,
    /// bytes of tasks and waiting calls, divided by [`CALLER_SHARES`]. Deferred calls count as
    /// running tasks, so the smaller of `tasks_max` and `deferred_calls_max` is divided.
    pub fn share_of(limits: &Limits) -> Quota {
        let share = |all: usize| u32::try_from(all / CALLER_SHARES).unwrap_or(u32::MAX).max(1);
        Quota {
            streams: Some(share(limits.streams_max)),
            running_tasks: Some(share(limits.tasks_max.min(limits.deferred_calls_max))),
            running_kib: Some(share(limits.store_bytes_max / 1024)),
            waiting_calls: Some(share(limits.connections_max)),
            ..Quota::default()
        }
    }

    /// The streams and waiting calls of all anonymous callers together: half of the server's, if
    /// `self` is [`Quota::share_of`].
    pub(crate) fn of_strangers(self) -> Quota {
        let half = |share: u32| share.saturating_mul(CALLER_SHARES as u32 / 2);
        let (streams, waiting_calls) = (self.streams.map(half), self.waiting_calls.map(half));
        Quota { streams, waiting_calls, ..Quota::default() }
    }

    /// These limits; missing limits come from `other`.
    fn or(self, other: Quota) -> Quota {
        Quota {
            calls: self.calls.or(other.calls),
            request_kib: self.request_kib.or(other.request_kib),
            streams: self.streams.or(other.streams),
            running_tasks: self.running_tasks.or(other.running_tasks),
            running_kib: self.running_kib.or(other.running_kib),
            waiting_calls: self.waiting_calls.or(other.waiting_calls),
        }
    }

    /// This quota, with its limits on streams, running tasks and their bytes reduced to those of
    /// another quota.
    pub(crate) fn permits_of(self, other: Quota) -> Quota {
        let least = |own: Option<u32>, other: Option<u32>| match (own, other) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        Quota {
            streams: least(self.streams, other.streams),
            running_tasks: least(self.running_tasks, other.running_tasks),
            running_kib: least(self.running_kib, other.running_kib),
            ..self
        }
    }

    fn has_rate(&self) -> bool {
        self.calls.is_some() || self.request_kib.is_some()
    }
}

/// The quotas of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// The quota of authenticated callers without a named quota.
    pub known: Quota,
    /// The quota of each anonymous caller: an IPv4 address, or an IPv6 network of 64 bits.
    pub anonymous: Quota,
    /// Quotas by name ([`Principal::quota`](super::Principal::quota)).
    pub named: BTreeMap<String, Quota>,
    /// Quotas of all callers of a tenant together, by the name of the tenant, in addition to each
    /// caller's own quota. Their `running_kib` has no effect.
    pub tenants: BTreeMap<String, Quota>,
}

impl Quotas {
    /// These quotas; missing limits come from `other`.
    pub(crate) fn or(self, other: Quota) -> Quotas {
        let named = self.named.into_iter().map(|(name, quota)| (name, quota.or(other)));
        Quotas {
            known: self.known.or(other),
            anonymous: self.anonymous.or(other),
            named: named.collect(),
            tenants: self.tenants,
        }
    }

    /// Whether any quota has a rate.
    pub(crate) fn has_rate(&self) -> bool {
        self.known.has_rate()
            || self.anonymous.has_rate()
            || self.named.values().chain(self.tenants.values()).any(Quota::has_rate)
    }

    /// The quota with this name; for an unknown name the default of authenticated callers.
    pub(crate) fn of(&self, name: Option<&str>) -> Quota {
        let named = name.and_then(|name| self.named.get(name));
        *named.unwrap_or(&self.known)
    }
}

/// The unused part of a caller's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingRate {
    /// The number that may be used now.
    pub remaining: u32,
    /// Seconds until the whole burst may be used.
    pub reset_s: u32,
}

/// The rate is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedUp {
    /// Seconds until the charge fits the rate.
    pub retry_s: u32,
}

impl Rate {
    /// A rate with the number per minute as its burst.
    pub const fn per_minute(per_minute: u32) -> Rate {
        Rate { per_minute, burst: per_minute }
    }

    /// The smaller of each of the two numbers.
    pub(crate) fn at_most(self, other: Rate) -> Rate {
        Rate {
            per_minute: self.per_minute.min(other.per_minute),
            burst: self.burst.min(other.burst),
        }
    }

    fn interval_ns(self) -> u64 {
        MINUTE_NS / u64::from(self.per_minute.max(1))
    }

    /// Charges `count` to the rate with the state `paid_ns`; a `count` above the burst is accepted
    /// when all other charges are paid off.
    fn take(self, paid_ns: &AtomicU64, count: u32, now: Now) -> Result<RemainingRate, UsedUp> {
        let (now_ns, interval_ns) = (now.mono_ms.saturating_mul(1_000_000), self.interval_ns());
        let burst_ns = interval_ns.saturating_mul(self.burst.max(1).into());
        let cost_ns = interval_ns.saturating_mul(count.into());
        let room_ns = burst_ns.saturating_sub(cost_ns);
        let mut paid = paid_ns.load(Relaxed);
        loop {
            let from_ns = paid.max(now_ns);
            let ahead_ns = from_ns - now_ns;
            if ahead_ns > room_ns {
                return Err(UsedUp { retry_s: seconds(ahead_ns - room_ns) });
            }
            let until_ns = from_ns.saturating_add(cost_ns);
            match paid_ns.compare_exchange_weak(paid, until_ns, Relaxed, Relaxed) {
                Err(newer) => paid = newer,
                Ok(_) => {
                    let used_ns = until_ns - now_ns;
                    let remaining = burst_ns.saturating_sub(used_ns) / interval_ns;
                    let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
                    return Ok(RemainingRate { remaining, reset_s: seconds(used_ns) });
                }
            }
        }
    }
}

fn seconds(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

/// The quota usage of one caller.
#[derive(Debug, Default)]
pub struct CallerAccount {
    calls: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of unfinished tasks without an owner.
    running_bytes: RunningBytes,
    /// Bytes of calls for which an agent looks up a task, or decides on a cancel.
    deferred_bytes: RunningBytes,
    streams: AtomicU32,
    /// Unfinished tasks without an owner.
    running: AtomicU32,
    /// Calls for which an agent looks up a task, or decides on a cancel.
    deferred: AtomicU32,
    waiting: AtomicU32,
}

impl CallerAccount {
    /// Charges the KiB of a request.
    ///
    /// # Errors
    /// [`UsedUp`]; nothing is charged.
    pub fn take_kib(&self, quota: &Quota, kib: u32, now: Now) -> Result<(), UsedUp> {
        quota.request_kib.map_or(Ok(()), |rate| rate.take(&self.bytes, kib, now).map(drop))
    }

    /// Charges a call.
    ///
    /// # Errors
    /// [`UsedUp`]; nothing is charged.
    pub fn take_call(&self, quota: &Quota, now: Now) -> Result<Option<RemainingRate>, UsedUp> {
        quota.calls.map(|rate| rate.take(&self.calls, 1, now)).transpose()
    }

    /// The bytes of the tasks that are counted here.
    pub(crate) fn running_bytes(&self) -> &RunningBytes {
        &self.running_bytes
    }

    /// Whether no permit is taken, no byte is charged and all rates are paid off.
    fn is_idle(&self, now_ns: u64) -> bool {
        let is_paid = |word: &AtomicU64| word.load(Relaxed) <= now_ns;
        let permits = [&self.streams, &self.running, &self.deferred, &self.waiting];
        let has_permits = permits.iter().any(|word| word.load(Relaxed) > 0);
        let holds = has_permits || self.running_bytes.count() > 0;
        // Calls in `deferred` hold bytes only as long as their permits.
        !holds && is_paid(&self.calls) && is_paid(&self.bytes)
    }

    /// The cost of evicting the account.
    pub fn worth(&self, now: Now) -> u64 {
        let now_ns = now.mono_ms.saturating_mul(1_000_000);
        match self.is_idle(now_ns) {
            // An empty slot is worth 0.
            true => 1,
            false => self.calls.load(Relaxed).max(self.bytes.load(Relaxed)).max(now_ns),
        }
    }
}

/// Takes one of `most` permits; false: no permit is free.
fn take_one(used: &AtomicU32, most: u32) -> bool {
    let more = |used: u32| (used < most).then(|| used + 1);
    used.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// The kinds of a caller's concurrency limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitKind {
    /// An open stream.
    Stream,
    /// A waiting call.
    WaitingCall,
}

impl PermitKind {
    /// The limit in a quota; `None`: unlimited.
    pub(crate) fn most(self, quota: &Quota) -> Option<u32> {
        match self {
            PermitKind::Stream => quota.streams,
            PermitKind::WaitingCall => quota.waiting_calls,
        }
    }

    fn used(self, account: &CallerAccount) -> &AtomicU32 {
        match self {
            PermitKind::Stream => &account.streams,
            PermitKind::WaitingCall => &account.waiting,
        }
    }
}

/// A permit of a caller; dropping it returns it.
#[derive(Debug)]
pub struct CallerPermit {
    kind: PermitKind,
    account: Arc<CallerAccount>,
    strangers: Option<Arc<CallerAccount>>,
    tenant: Option<Arc<CallerAccount>>,
}

impl CallerPermit {
    /// Takes a permit; `None`: `most` are taken already.
    pub fn take(kind: PermitKind, account: &Arc<CallerAccount>, most: u32) -> Option<CallerPermit> {
        let is_acquired = take_one(kind.used(account), most);
        let (strangers, tenant) = (None, None);
        is_acquired.then(|| CallerPermit { kind, account: Arc::clone(account), strangers, tenant })
    }

    /// The same permit, which also counts among those of all anonymous callers; `None`: `most` of
    /// these are taken already.
    pub(crate) fn of_strangers(
        mut self,
        all: &Arc<CallerAccount>,
        most: u32,
    ) -> Option<CallerPermit> {
        self.strangers = take_one(self.kind.used(all), most).then(|| Arc::clone(all));
        self.strangers.is_some().then_some(self)
    }

    /// The same permit, which also counts among those of the tenant; `None`: `most` of these are
    /// taken already.
    pub(crate) fn of_tenant(mut self, all: &Arc<CallerAccount>, most: u32) -> Option<CallerPermit> {
        self.tenant = take_one(self.kind.used(all), most).then(|| Arc::clone(all));
        self.tenant.is_some().then_some(self)
    }
}

impl Drop for CallerPermit {
    fn drop(&mut self) {
        for account in std::iter::once(&self.account).chain(&self.strangers).chain(&self.tenant) {
            self.kind.used(account).fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { mono_ms: ms, unix_ms: 0 }
    }

    #[test]
    fn burst_is_available_at_once_and_refills_over_time() {
        let (rate, word) = (Rate { per_minute: 60, burst: 3 }, AtomicU64::new(0));
        for remaining in [2, 1, 0] {
            let charged = rate.take(&word, 1, at(0)).unwrap();
            assert_eq!((charged.remaining, charged.reset_s), (remaining, 3 - remaining));
        }
        assert_eq!(rate.take(&word, 1, at(0)), Err(UsedUp { retry_s: 1 }));
        assert_eq!(rate.take(&word, 1, at(999)), Err(UsedUp { retry_s: 1 }));
        assert!(rate.take(&word, 1, at(1_000)).is_ok());
        assert!(rate.take(&word, 1, at(1_000)).is_err());
        assert_eq!(rate.take(&word, 1, at(10_000)).unwrap().remaining, 2);
    }

    #[test]
    fn charge_above_the_burst_waits_until_the_rate_is_paid_off() {
        let (rate, word) = (Rate { per_minute: 60, burst: 2 }, AtomicU64::new(0));
        assert!(rate.take(&word, 100, at(0)).is_ok());
        assert_eq!(rate.take(&word, 1, at(0)), Err(UsedUp { retry_s: 99 }));
        assert!(rate.take(&word, 100, at(99_999)).is_err());
        assert!(rate.take(&word, 100, at(100_000)).is_ok());
    }

    #[test]
    fn concurrent_threads_cannot_exceed_a_rate() {
        let (rate, word) = (Rate::per_minute(1_000), AtomicU64::new(0));
        let accepted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        accepted.fetch_add(rate.take(&word, 1, at(0)).is_ok().into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!(accepted.into_inner(), 1_000);
    }

    #[test]
    fn caller_account_with_its_key_fits_100_bytes() {
        let of_arc = 2 * size_of::<usize>();
        let entry = size_of::<Option<(u128, Arc<CallerAccount>)>>();
        assert!(size_of::<CallerAccount>() + of_arc + entry <= 100);
    }

    #[test]
    fn dropped_permits_are_returned() {
        let account = Arc::new(CallerAccount::default());
        let two = [
            CallerPermit::take(PermitKind::Stream, &account, 2),
            CallerPermit::take(PermitKind::Stream, &account, 2),
        ];
        assert!(
            two.iter().all(Option::is_some)
                && CallerPermit::take(PermitKind::Stream, &account, 2).is_none()
        );
        drop(two);
        assert!(
            account.is_idle(0) && CallerPermit::take(PermitKind::Stream, &account, 1).is_some()
        );
        let one = RunningShare::of_owner(1);
        let permit = RunningPermit::take(&account, &one);
        assert!(!account.is_idle(0) && RunningPermit::take(&account, &one).is_none());
        drop(permit);
        assert!(account.is_idle(0) && RunningPermit::take(&account, &one).is_some());
        let permit = CallerPermit::take(PermitKind::WaitingCall, &account, 1);
        assert!(
            !account.is_idle(0)
                && CallerPermit::take(PermitKind::WaitingCall, &account, 1).is_none()
        );
        drop(permit);
        assert!(
            account.is_idle(0)
                && CallerPermit::take(PermitKind::WaitingCall, &account, 1).is_some()
        );
    }
}
