//! The settings of a server's operator pages, logs, metrics and traces.

#[cfg(feature = "metrics")]
use std::sync::Arc;

#[cfg(feature = "otlp")]
use super::traces::{TraceCollector, TracedObservers, Traces};
use super::{Server, pages::ReadyCheck};
#[cfg(feature = "logs")]
use super::{
    entropy::Chacha,
    log::{self, AccessLog, LogLevel, LoggedPrincipal},
};
#[cfg(feature = "metrics")]
use super::{error::ServerError, metrics::Metrics, observers::Observers};
#[cfg(feature = "logs")]
use crate::service::Entropy;
#[cfg(feature = "metrics")]
use crate::service::observe::CallObserver;
#[cfg(feature = "otlp")]
use crate::service::trace::Tracer;

impl Server {
    /// Serves `/healthz`, `/readyz` and `/metrics` on a separate listener, and no longer together
    /// with the agents. The address is an IP address or host name and a port, or `unix:PATH`, to
    /// which only the user of this process may connect. Every client of the listener sees these
    /// pages. The listener also serves dead letters and tasks: to every client if the address is a
    /// loopback address or a path, otherwise to callers with the scope
    /// [`ScopeSet::ADMIN`](crate::auth::ScopeSet::ADMIN), and with the server's TLS, if configured.
    #[must_use]
    pub fn admin(mut self, address: impl Into<String>) -> Server {
        self.admin = Some(address.into());
        self
    }

    /// Adds a readiness check to `/readyz`: its name, one word, and a function that returns the
    /// error in one sentence. The function is called at each request, so it must not wait.
    #[must_use]
    pub fn ready_check(
        mut self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Server {
        self.checks.push(ReadyCheck { name, check: Box::new(check) });
        self
    }

    /// Writes the log of the process to stderr: lines of this level, and a line for one call in
    /// `one_of`; 0: for none. The log is text if stderr is a terminal, otherwise JSON. If the
    /// program has a `tracing` subscriber, that subscriber receives the lines instead. A
    /// [`Setup::observer`] is then not notified of calls.
    ///
    /// [`Setup::observer`]: crate::engine::Setup::observer
    #[cfg(feature = "logs")]
    #[must_use]
    pub fn logs(mut self, level: LogLevel, one_of: u32) -> Server {
        self.log = Some((level, one_of));
        self
    }

    /// Sets how the lines of calls show callers; by default as hashes under a key of each process.
    #[cfg(feature = "logs")]
    #[must_use]
    pub fn logged_principal(mut self, shown: LoggedPrincipal) -> Server {
        self.logged_principal = shown;
        self
    }

    /// Counts calls, for `/metrics`. A [`Setup::observer`] is then not notified of calls.
    ///
    /// [`Setup::observer`]: crate::engine::Setup::observer
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self) -> Server {
        self.counts_calls = true;
        self
    }

    /// Sends the spans of traced calls, and of the agents' turns in these calls, to an
    /// OpenTelemetry collector. A caller's `traceparent` decides whether its call is traced;
    /// without it, [`TraceCollector::sample_one_of`] decides. Agents that receive `traceparent`
    /// receive the span of their turn. A [`Setup::observer`] is then not notified of calls.
    ///
    /// [`Setup::observer`]: crate::engine::Setup::observer
    #[cfg(feature = "otlp")]
    #[must_use]
    pub fn traces(mut self, collector: TraceCollector) -> Server {
        self.traces = Some(collector);
        self
    }

    /// Sets the observer of calls, if any.
    #[cfg(feature = "metrics")]
    pub(super) fn observe(&mut self, workers: usize) -> Result<Observing, ServerError> {
        let agents_max = self.setup.limits.agents_max;
        let metrics = self.counts_calls.then(|| Arc::new(Metrics::new(workers, agents_max)));
        let observers = Observers {
            metrics,
            #[cfg(feature = "logs")]
            log: self
                .log
                .map(|(level, one_of)| open_log(level, one_of, self.logged_principal))
                .transpose()?,
            ..Observers::new(workers)
        };
        #[cfg(feature = "otlp")]
        if let Some(collector) = self.traces.take() {
            return self.trace(collector, Arc::new(observers));
        }
        let observers = observers.is_active().then(|| Arc::new(observers));
        if let Some(observers) = &observers {
            self.setup.observer = Some(Arc::clone(observers) as Arc<dyn CallObserver>);
        }
        Ok(Observing {
            observers,
            #[cfg(feature = "otlp")]
            traces: None,
        })
    }

    /// Sets the tracer, in addition to the observers of calls.
    #[cfg(feature = "otlp")]
    fn trace(
        &mut self,
        collector: TraceCollector,
        observers: Arc<Observers>,
    ) -> Result<Observing, ServerError> {
        let traces = Traces::new(collector).map_err(ServerError::Traces)?;
        let traces = Arc::new(traces);
        let (others, shared) = (Arc::clone(&observers), Arc::clone(&traces));
        self.setup.observer = Some(Arc::new(TracedObservers { others, traces: shared }));
        self.setup.tracer = Some(Arc::clone(&traces) as Arc<dyn Tracer>);
        Ok(Observing { observers: Some(observers), traces: Some(traces) })
    }
}

/// The observers of calls, if any.
#[cfg(feature = "metrics")]
pub(super) struct Observing {
    pub(super) observers: Option<Arc<Observers>>,
    #[cfg(feature = "otlp")]
    pub(super) traces: Option<Arc<Traces>>,
}

/// Opens the log of the process, and creates the access log.
#[cfg(feature = "logs")]
fn open_log(
    level: LogLevel,
    one_of: u32,
    shown: LoggedPrincipal,
) -> Result<Arc<AccessLog>, ServerError> {
    log::install(level);
    let key = match shown {
        LoggedPrincipal::Hash => Some(Chacha::new().map_err(ServerError::System)?.bits()),
        LoggedPrincipal::HashUnder(key) => Some(key),
        LoggedPrincipal::Name => None,
    };
    Ok(Arc::new(AccessLog::new(one_of, key)))
}
