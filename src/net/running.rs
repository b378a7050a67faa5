//! A running server: the controls for the embedding program, and the end of the server.

#[cfg(feature = "embed")]
use std::time::Instant;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

#[cfg(feature = "embed")]
use crate::engine::Engine;
use crate::{engine::Agents, limits::Limits};

#[cfg(feature = "logs")]
use super::log::{self, LogLevel};
#[cfg(feature = "embed")]
use super::reload::Controls;
use super::{
    error::ServerError,
    server_state::{ServerState, Stage},
    tls::Current,
    worker,
};

/// A running server. Dropping this value ends the server at once; [`Running::join`] waits instead.
pub struct Running {
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) paths: Vec<String>,
    pub(super) base_url: String,
    pub(super) workers: usize,
    pub(super) server: Arc<ServerState>,
    pub(super) admin: Option<String>,
    pub(super) shows_errors: bool,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// The addresses of the server, with the ports that the system chose.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The Unix sockets that the server listens on as well, each as `unix:PATH`.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// A URL at which this machine can reach the server, without a slash at the end.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The address of the separate listener of [`Server::admin`]: a URL, or `unix:PATH`.
    ///
    /// [`Server::admin`]: crate::net::Server::admin
    pub fn admin(&self) -> Option<&str> {
        self.admin.as_deref()
    }

    /// Sets the level of the log of [`Server::logs`](crate::net::Server::logs) from now on.
    #[cfg(feature = "logs")]
    pub fn set_log_level(&self, level: LogLevel) {
        log::set_level(level);
    }

    /// Logs one call in `one_of` from now on, if there is a log; 0: none.
    #[cfg(feature = "logs")]
    pub fn set_access_log(&self, one_of: u32) {
        self.server.set_access_log(one_of);
    }

    /// Reads the files of [`tls`](crate::net::Server::tls) again, for new connections; open
    /// connections keep their files. Does nothing without TLS.
    ///
    /// # Errors
    /// [`ServerError::Tls`]; the current files stay in use.
    pub fn reload_tls(&self) -> Result<(), ServerError> {
        self.server.tls.as_ref().map_or(Ok(()), Current::reload)
    }

    /// Failed TLS handshakes since the start: the peer spoke another protocol, sent no acceptable
    /// certificate, took too long, or disconnected.
    pub fn tls_handshakes_failed(&self) -> u64 {
        self.server.tls.as_ref().map_or(0, Current::failed)
    }

    /// Fetches the keys of the issuers that these callers trust, until the server ends, on a
    /// separate thread with its own connections. An earlier fetcher ends.
    ///
    /// # Errors
    /// [`HttpClientError`](super::HttpClientError)
    #[cfg(feature = "auth")]
    pub fn fetch_keys(
        &self,
        callers: Arc<crate::auth::Callers>,
        options: super::HttpClientOptions,
    ) -> Result<(), super::HttpClientError> {
        let epoch = self.server.epoch;
        let mono_ms = move || epoch.elapsed().as_millis() as u64;
        let fetcher = super::KeyFetcher::start(callers, options, mono_ms)?;
        self.server.keep_key_fetcher(Some(fetcher));
        Ok(())
    }

    /// The controls for changes while the server runs.
    #[cfg(feature = "embed")]
    pub(crate) fn controls(&self) -> Controls {
        Controls::of(&self.server)
    }

    /// The engine, and the start of its monotonic clock: for calls from this process.
    #[cfg(feature = "embed")]
    pub(crate) fn engine(&self) -> (Arc<Engine>, Instant) {
        (Arc::clone(&self.server.engine), self.server.epoch)
    }

    /// The agents, to add, replace and remove some while the server runs; `None`: a service answers
    /// instead of agents.
    pub fn agents(&self) -> Option<&Agents> {
        self.server.engine.agents()
    }

    /// The limits, adjusted to the system: see [`crate::net::Server::start`].
    pub fn limits(&self) -> &Limits {
        self.server.engine.limits()
    }

    /// Whether notifications are sent to webhooks.
    #[cfg(feature = "push")]
    pub fn has_push(&self) -> bool {
        self.server.engine.webhooks().is_some()
    }

    /// Whether clients receive the texts of errors and panics of agents.
    pub fn shows_errors(&self) -> bool {
        self.shows_errors
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Stops accepting, drains within `drain_ms`, then ends; returns at once.
    pub fn shutdown(&self) {
        self.server.enter(Stage::Draining);
    }

    /// True when every worker has ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until every worker has ended.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            // A panic of a worker was reported when it happened.
            let _ = thread.join();
        }
    }

    /// Starts the last workers, with one thread for each element of `sockets`.
    pub(super) fn spawn(&mut self, sockets: Vec<Vec<TcpListener>>) -> Result<(), ServerError> {
        let (sender, receiver) = mpsc::channel();
        let first = self.workers - sockets.len();
        for (index, sockets) in (first..).zip(sockets) {
            let (server, sender) = (Arc::clone(&self.server), sender.clone());
            let life = WorkerEnd(Arc::clone(&server));
            let work = move || {
                let _life = life;
                // The receiver was dropped only if another worker has failed to start.
                let ready = move |outcome| drop(sender.send(outcome));
                worker::run(worker::WorkerThread::Own(index), server, sockets, ready);
            };
            let thread = std::thread::Builder::new().name(format!("peregrine-{index}"));
            self.threads.push(thread.spawn(work).map_err(ServerError::System)?);
        }
        drop(sender);
        receiver.into_iter().collect::<io::Result<()>>().map_err(ServerError::System)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.server.enter(Stage::Ending);
        }
    }
}

/// A worker's thread holds this; dropping it reports the thread's end.
pub(super) struct WorkerEnd(pub(super) Arc<ServerState>);

impl Drop for WorkerEnd {
    fn drop(&mut self) {
        self.0.worker_ended();
    }
}
