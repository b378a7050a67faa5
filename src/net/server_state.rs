//! The state that all workers of a server share.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Instant,
};

use crate::engine::{Engine, Waiting};

use super::{
    admin::AdminSocket,
    peer_table::{PeerKey, PeerTable},
    reload::{LiveLimits, ReloadRequests},
    report::LimitReports,
    share::AllBuffers,
    slow_turn::{SlowTurnListener, SlowTurns},
    tls::Current,
    unix_socket::UnixSocket,
};
#[cfg(feature = "metrics")]
use super::{observers::Observers, operating::Observing};

/// The stages of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The server accepts and serves.
    Serving,
    /// The server accepts no new connections, and drains.
    Draining,
    /// The server ends now.
    Ending,
}

/// Counters of connections since the start.
#[derive(Default)]
pub(super) struct ServerCounts {
    /// Accepted connections.
    pub(super) accepted: AtomicU64,
    /// Completed TLS handshakes.
    #[cfg_attr(
        not(any(feature = "tls", feature = "metrics")),
        expect(dead_code, reason = "the server has no TLS")
    )]
    pub(super) handshakes: AtomicU64,
}

/// The state that all workers share.
pub(super) struct ServerState {
    /// The engine.
    pub(super) engine: Arc<Engine>,
    /// The time at which `Now::mono_ms` was 0.
    pub(super) epoch: Instant,
    /// Open connections.
    pub(super) connections: Arc<PeerTable>,
    /// Connections to `--admin`, which do not count as open connections.
    pub(super) admin_connections: Arc<PeerTable>,
    /// Counters since the start.
    pub(super) counts: ServerCounts,
    /// Refusals by limits.
    pub(super) limits: Arc<LimitReports>,
    /// The observers of calls, if any.
    #[cfg(feature = "metrics")]
    pub(super) observers: Option<Arc<Observers>>,
    /// The sender of spans, which ends with the last worker.
    #[cfg(feature = "otlp")]
    pub(super) traces: Option<Arc<super::traces::Traces>>,
    /// The listener for the operator, until a worker serves it.
    pub(super) admin: Mutex<Option<AdminSocket>>,
    /// The Unix sockets that agents are served on, until the first worker takes them.
    pub(super) unix_sockets: Mutex<Vec<UnixSocket>>,
    listening: AtomicUsize,
    /// Open HTTP/2 connections.
    #[cfg(feature = "grpc")]
    pub(super) http2: Arc<PeerTable>,
    /// Buffers that connections hold.
    pub(super) buffers: AllBuffers,
    /// The TLS configuration of accepted connections; `None`: no TLS.
    pub(super) tls: Option<Current>,
    /// The work that was still running when `drain_ms` had passed.
    pub(super) cut: OnceLock<Waiting>,
    /// The tasks that failed because the worker of their agent ended.
    lost: Mutex<usize>,
    /// The limits that can change.
    pub(super) live: LiveLimits,
    /// Requests reloads of the server's configuration.
    pub(super) reload_requests: OnceLock<ReloadRequests>,
    /// Reports agents that block their workers.
    pub(super) slow_turns: SlowTurns,
    /// The fetcher of the keys of issuers, which ends with the last worker.
    #[cfg(feature = "auth")]
    key_fetcher: Mutex<Option<super::KeyFetcher>>,
    /// The webhook worker, which ends with the last worker.
    #[cfg(feature = "push")]
    webhook_worker: Mutex<Option<super::WebhookWorker>>,
    #[cfg(feature = "push")]
    pub(super) last_posts: super::last_posts::LastPosts,
    stage: AtomicU8,
    /// The number of workers at the start.
    pub(super) workers_at_start: usize,
    workers: AtomicUsize,
    /// A waker for each worker's ticker, and for the thread that waits for the end.
    wakers: Mutex<Vec<Waker>>,
}

impl ServerState {
    /// The state of a server with `workers` workers.
    pub(super) fn new(
        engine: Arc<Engine>,
        tls: Option<Current>,
        workers: usize,
        slow_turns: Option<SlowTurnListener>,
    ) -> ServerState {
        let limits = engine.limits();
        let connections = PeerTable::new(limits.connections_max);
        let admin_connections = PeerTable::new(limits.admin_connections_max);
        #[cfg(feature = "grpc")]
        let http2 = PeerTable::new(limits.http2_connections_max);
        let buffers = AllBuffers::new(engine.limits(), engine.held_bytes());
        let live = LiveLimits::new(engine.limits());
        ServerState {
            engine,
            epoch: Instant::now(),
            connections,
            admin_connections,
            counts: ServerCounts::default(),
            limits: Arc::default(),
            #[cfg(feature = "metrics")]
            observers: None,
            #[cfg(feature = "otlp")]
            traces: None,
            admin: Mutex::new(None),
            unix_sockets: Mutex::default(),
            listening: AtomicUsize::new(0),
            #[cfg(feature = "grpc")]
            http2,
            buffers,
            tls,
            cut: OnceLock::new(),
            lost: Mutex::default(),
            live,
            reload_requests: OnceLock::new(),
            slow_turns: SlowTurns::new(slow_turns),
            #[cfg(feature = "auth")]
            key_fetcher: Mutex::default(),
            #[cfg(feature = "push")]
            webhook_worker: Mutex::default(),
            #[cfg(feature = "push")]
            last_posts: Default::default(),
            stage: AtomicU8::new(0),
            workers_at_start: workers.max(1),
            workers: AtomicUsize::new(workers),
            wakers: Mutex::new(vec![Waker::noop().clone(); workers + 1]),
        }
    }

    /// The peer that a connection from this address counts for; behind a trusted proxy the peer is
    /// unknown until a request names the client.
    pub(super) fn peer_of(&self, address: IpAddr) -> PeerKey {
        let proxies = &self.engine.config.access.trusted_proxies;
        match proxies.iter().any(|hops| hops.contains(address.to_canonical())) {
            true => PeerKey::UNKNOWN,
            false => PeerKey::of(address),
        }
    }

    /// Logs one call in `one_of` from now on, if there is a log; 0: none.
    #[cfg(feature = "logs")]
    pub(super) fn set_access_log(&self, one_of: u32) {
        let log = self.observers.as_ref().and_then(|observers| observers.log.as_ref());
        log.into_iter().for_each(|log| log.set_one_of(one_of));
    }

    /// Sets the observers of calls.
    ///
    /// # Errors
    /// The system cannot start the thread of the traces.
    #[cfg(feature = "metrics")]
    pub(super) fn observed_by(&mut self, observing: Observing) -> std::io::Result<()> {
        let observers = observing.observers;
        #[cfg(feature = "logs")]
        let logs = observers.iter().filter_map(|observers| observers.log.as_ref());
        #[cfg(feature = "logs")]
        logs.for_each(|log| log.belong_to(Arc::downgrade(&self.engine)));
        if let Some(observers) = &observers {
            self.limits = Arc::clone(&observers.limits);
        }
        self.observers = observers;
        #[cfg(feature = "otlp")]
        if let Some(traces) = observing.traces {
            traces.start(Arc::downgrade(&self.engine))?;
            self.traces = Some(traces);
        }
        Ok(())
    }

    /// Notes that a connection was refused, or ended, because of a limit.
    pub(super) fn refused(&self, worker: usize, limit: &'static str) {
        let config = &self.engine.config;
        match config.observer {
            Some(_) => config.report_limit(worker, Some(limit), None),
            None => self.limits.hit(limit, None),
        }
    }

    /// The current [`Now::mono_ms`](crate::service::Now::mono_ms) of all workers.
    #[cfg(feature = "push")]
    pub(super) fn mono_ms(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    /// Takes the Unix sockets, for the worker that serves them.
    pub(super) fn take_unix_sockets(&self) -> Vec<UnixSocket> {
        std::mem::take(&mut *self.unix_sockets.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the listener for the operator, for the worker that serves it.
    pub(super) fn take_admin(&self) -> Option<AdminSocket> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Counts a listener that accepts, until the result is dropped.
    pub(super) fn listens(self: &Arc<ServerState>) -> Listening {
        self.listening.fetch_add(1, Ordering::Relaxed);
        Listening(Arc::clone(self))
    }

    /// How many listeners accept.
    pub(super) fn listening(&self) -> usize {
        self.listening.load(Ordering::Relaxed)
    }

    /// The stage of the server.
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Ending,
        }
    }

    /// Enters a later stage, and wakes every worker.
    pub(super) fn enter(&self, stage: Stage) {
        if stage >= Stage::Draining {
            self.engine.drain();
            #[cfg(feature = "otlp")]
            self.traces.iter().for_each(|traces| traces.drain());
        }
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.wake_all();
    }

    /// Answers the calls that still wait, and ends open streams, when their connections are
    /// advanced next.
    pub(super) fn cut(&self) {
        self.cut.get_or_init(|| self.engine.waiting());
        self.engine.cut();
    }

    /// Ends the agents of a worker and counts the tasks that fail with them.
    pub(super) fn count_lost(&self, end_agents: impl FnOnce()) {
        // Workers end one after the other, so each difference belongs to one worker.
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.engine.unfinished_tasks();
        end_agents();
        *lost += before.saturating_sub(self.engine.unfinished_tasks());
    }

    /// Tasks that the end of the process loses: failed with their worker, or still unfinished.
    pub(super) fn lost_tasks(&self) -> usize {
        let failed = *self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        failed + self.engine.unfinished_tasks()
    }

    /// Registers the ticker of a worker, which a new stage wakes.
    pub(super) fn listen(&self, index: usize, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers[index].clone_from(waker);
    }

    /// Registers a waker for the end of a worker.
    pub(super) fn listen_for_end(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = wakers.last_mut() {
            last.clone_from(waker);
        }
    }

    /// True when at most one worker runs.
    pub(super) fn has_one_worker(&self) -> bool {
        self.workers.load(Ordering::Acquire) <= 1
    }

    /// Notes that a worker has ended.
    pub(super) fn worker_ended(&self) {
        let _before = self.workers.fetch_sub(1, Ordering::AcqRel);
        #[cfg(feature = "auth")]
        if _before == 1 {
            self.keep_key_fetcher(None);
        }
        #[cfg(feature = "push")]
        if _before == 1 {
            let webhook_worker =
                self.webhook_worker.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Dropping the webhook worker waits for its thread, so the lock was released before.
            drop(webhook_worker);
        }
        #[cfg(feature = "otlp")]
        if _before == 1 {
            self.traces.iter().for_each(|traces| traces.end());
        }
        self.wake_all();
    }

    /// Starts the webhook worker, if there are webhooks; it runs until the last worker ends.
    ///
    /// # Errors
    /// [`HttpClientError`](super::HttpClientError)
    #[cfg(feature = "push")]
    pub(super) fn start_webhook_worker(
        &self,
        options: super::HttpClientOptions,
    ) -> Result<(), super::HttpClientError> {
        let Some(outbox) = self.engine.outbox() else { return Ok(()) };
        if let Some(webhooks) = self.engine.webhooks() {
            webhooks.set_letter_listener(super::report::webhook_stopped);
        }
        let epoch = self.epoch;
        let mono_ms = move || epoch.elapsed().as_millis() as u64;
        let webhook_worker = super::WebhookWorker::start(outbox, options, mono_ms)?;
        *self.webhook_worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(webhook_worker);
        Ok(())
    }

    /// Stores the fetcher of keys until the last worker has ended; an earlier fetcher ends now.
    #[cfg(feature = "auth")]
    pub(super) fn keep_key_fetcher(&self, fetcher: Option<super::KeyFetcher>) {
        let mut current = self.key_fetcher.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = self.workers.load(Ordering::Acquire) == 0;
        let before = std::mem::replace(&mut *current, fetcher.filter(|_| !is_over));
        drop(current);
        // Dropping the fetcher waits for its thread.
        drop(before);
    }

    fn wake_all(&self) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Counts a listener that accepts, until this value is dropped.
pub(super) struct Listening(Arc<ServerState>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::Relaxed);
    }
}
