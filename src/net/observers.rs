//! The observers of calls: metrics and logs.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crossbeam_utils::CachePadded;

use crate::service::observe::{
    AnsweredCall, AuthOutcome, CallObserver, CallRecord, LimitHit, RefusedRequest,
};

#[cfg(feature = "logs")]
use super::log::AccessLog;
use super::{
    clock::monotonic_ns,
    metrics::Metrics,
    report::{self, LimitReports},
};

/// The last reading of a worker on the clock of [`monotonic_ns`].
pub(super) type Turned = Arc<CachePadded<AtomicU64>>;

/// The observer of a server.
pub(super) struct Observers {
    /// The last reading of each worker on the clock.
    pub(super) turned: Box<[Turned]>,
    pub(super) metrics: Option<Arc<Metrics>>,
    /// Refusals by limits.
    pub(super) limits: Arc<LimitReports>,
    #[cfg(feature = "logs")]
    pub(super) log: Option<Arc<AccessLog>>,
}

impl Observers {
    /// The observer of a server with this many workers, without metrics and logs.
    pub(super) fn new(workers: usize) -> Observers {
        let turned = || Turned::new(CachePadded::new(AtomicU64::new(monotonic_ns())));
        Observers {
            turned: std::iter::repeat_with(turned).take(workers.max(1)).collect(),
            metrics: None,
            limits: Arc::default(),
            #[cfg(feature = "logs")]
            log: None,
        }
    }

    /// Where a worker stores its last reading.
    pub(super) fn turned(&self, worker: usize) -> &Turned {
        self.turned.get(worker).unwrap_or(&self.turned[0])
    }

    /// Reads the clock for a worker, and stores the reading.
    #[inline]
    fn read(&self, worker: usize) -> u64 {
        let now_ns = monotonic_ns();
        self.turned(worker).store(now_ns, Relaxed);
        now_ns
    }

    /// Whether there are metrics or logs.
    pub(super) fn is_active(&self) -> bool {
        #[cfg(feature = "logs")]
        let logs = self.log.is_some();
        #[cfg(not(feature = "logs"))]
        let logs = false;
        logs || self.metrics.is_some()
    }
}

impl CallObserver for Observers {
    #[inline]
    fn clock_ns(&self) -> u64 {
        monotonic_ns()
    }

    #[inline]
    fn turned_ns(&self, worker: usize) -> u64 {
        self.turned(worker).load(Relaxed)
    }

    /// A worker of a server is a thread, which reports one call at a time.
    fn keeps_turns(&self) -> bool {
        true
    }

    fn call_answered(&self, call: &AnsweredCall) {
        let turned = self.turned(call.worker);
        let (began_ns, now_ns) = (turned.load(Relaxed), monotonic_ns());
        turned.store(now_ns, Relaxed);
        if let Some(metrics) = &self.metrics {
            metrics.count_answered(call, now_ns.saturating_sub(began_ns));
        }
    }

    #[inline]
    fn wants_details(&self) -> bool {
        self.wants_line()
    }

    fn wants_refusals(&self) -> bool {
        self.logs_refusals()
    }

    fn request_refused(&self, refused: &RefusedRequest<'_>) {
        self.log_refused(refused);
    }

    fn call_ended(&self, call: &CallRecord) {
        self.record_call(call, call.details.is_some());
    }

    fn limit_hit(&self, hit: &LimitHit<'_>) {
        if let Some(metrics) = &self.metrics {
            metrics.count_limit(hit);
        }
        self.limits.hit(hit.limit, hit.owner);
    }

    fn filter_ignored(&self, name: &str) {
        report::warn(&format_args!(
            "a client filters tasks by {name:?}, an unknown parameter: the filter is ignored"
        ));
    }

    fn peer_slowed(&self, address: IpAddr) {
        report::peer_slowed(address);
    }

    fn caller_checked(&self, worker: usize, outcome: AuthOutcome) {
        if let Some(metrics) = &self.metrics {
            metrics.count_caller(worker, outcome);
        }
    }
}

impl Observers {
    /// Whether the next call has a line in the log.
    #[inline]
    pub(super) fn wants_line(&self) -> bool {
        #[cfg(feature = "logs")]
        let wants = self.log.as_ref().is_some_and(|log| log.samples_next());
        #[cfg(not(feature = "logs"))]
        let wants = false;
        wants
    }

    /// Whether a request that is refused may have a line in the log.
    pub(super) fn logs_refusals(&self) -> bool {
        #[cfg(feature = "logs")]
        let logs = self.log.as_ref().is_some_and(|log| log.is_on());
        #[cfg(not(feature = "logs"))]
        let logs = false;
        logs
    }

    /// Writes a line for a refused request that is not a call.
    pub(super) fn log_refused(&self, refused: &RefusedRequest<'_>) {
        #[cfg(feature = "logs")]
        if let Some(log) = &self.log {
            log.write_refused(refused);
        }
        #[cfg(not(feature = "logs"))]
        let _ = refused;
    }

    /// Writes the number of refused requests without a line, if their second is over or `at_end`.
    pub(super) fn log_unlogged(&self, at_end: bool) {
        #[cfg(feature = "logs")]
        if let Some(log) = &self.log {
            log.write_unlogged(at_end);
        }
        #[cfg(not(feature = "logs"))]
        let _ = at_end;
    }

    /// Counts a call that has ended, and writes a line for it if `is_sampled` or it was refused.
    #[inline(always)]
    pub(super) fn record_call(&self, call: &CallRecord, is_sampled: bool) {
        let now_ns = self.read(call.worker);
        if let Some(metrics) = &self.metrics {
            metrics.count(call, now_ns);
        }
        #[cfg(feature = "logs")]
        if (is_sampled || call.refusal.is_some())
            && let Some(log) = &self.log
        {
            log.write(call, now_ns);
        }
        #[cfg(not(feature = "logs"))]
        let _ = is_sampled;
        if let Some(limit) = call.refusal.and_then(|refusal| refusal.limit) {
            let of_log = || call.details.as_ref()?.principal.as_ref();
            let caller = call.refused.as_ref().or_else(of_log);
            self.limits.hit(limit, caller.map(|caller| caller.owner()));
        }
    }
}

/// An observer that counts the calls of a server, for the benches of this repository.
#[cfg(feature = "internals")]
pub fn counting(workers: usize, agents_max: usize) -> Arc<dyn CallObserver> {
    let metrics = Some(Arc::new(Metrics::new(workers, agents_max)));
    Arc::new(Observers { metrics, ..Observers::new(workers) })
}
