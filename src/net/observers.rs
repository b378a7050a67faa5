//! Who is told how calls end: whoever counts, and whoever logs.

use std::{sync::Arc, time::Instant};

use crate::service::observe::{AuthOutcome, CallObserver, CallRecord};

#[cfg(feature = "logs")]
use super::log::AccessLog;
use super::{metrics::Metrics, report};

/// The observer of a server.
pub(super) struct Observers {
    pub(super) epoch: Instant,
    pub(super) metrics: Option<Arc<Metrics>>,
    #[cfg(feature = "logs")]
    pub(super) log: Option<Arc<AccessLog>>,
}

impl Observers {
    /// Whether there is anybody to tell.
    pub(super) fn hear(&self) -> bool {
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
        self.epoch.elapsed().as_nanos() as u64
    }

    #[inline]
    fn wants_details(&self) -> bool {
        #[cfg(feature = "logs")]
        let wants = self.log.as_ref().is_some_and(|log| log.takes_next());
        #[cfg(not(feature = "logs"))]
        let wants = false;
        wants
    }

    fn call_ended(&self, call: &CallRecord) {
        let now_ns = self.clock_ns();
        if let Some(metrics) = &self.metrics {
            metrics.count(call, now_ns);
        }
        #[cfg(feature = "logs")]
        if call.details.is_some()
            && let Some(log) = &self.log
        {
            log.write(call, now_ns);
        }
        if let Some(limit) = call.refusal.and_then(|refusal| refusal.limit) {
            report::limit(limit);
        }
    }

    fn caller_asked(&self, worker: usize, outcome: AuthOutcome) {
        if let Some(metrics) = &self.metrics {
            metrics.count_caller(worker, outcome);
        }
    }
}

/// What counts the calls of a server, for the benches of this repository.
#[cfg(feature = "internals")]
pub fn counting(workers: usize, agents_max: usize) -> Arc<dyn CallObserver> {
    let metrics = Some(Arc::new(Metrics::new(workers, agents_max)));
    Arc::new(Observers {
        epoch: Instant::now(),
        metrics,
        #[cfg(feature = "logs")]
        log: None,
    })
}
