//! The server of a program: its configuration, its start and its end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{
    cli::serve::{Embedded, EmbeddedReloader, start_embedded},
    net::{Controls, Reload, Running, report_line},
};

use super::{HostAgent, HostEngine, HostError, HostSettings, OwnTime};

/// A running server. A drop ends it, and the calls of this process, at once.
pub struct HostServer {
    running: Running,
    banner: String,
    reloader: HostReloader,
    calls: CallEngine,
}

/// The engine for calls of this process; the first call creates it. Invariant: the server is
/// dropped before this engine; the drop of the engine ends the calls.
#[derive(Default)]
struct CallEngine(OnceLock<Arc<HostEngine>>);

impl Drop for CallEngine {
    fn drop(&mut self) {
        if let Some(engine) = self.0.get() {
            engine.cut();
        }
    }
}

/// Reads the configuration of a server again, which may include requests over the network. Separate
/// from the [`HostServer`], so that other threads can use and end the server meanwhile.
#[derive(Clone)]
pub struct HostReloader {
    reloader: Arc<Mutex<EmbeddedReloader>>,
    controls: Controls,
}

impl HostReloader {
    /// Reads the configuration again, as `serve` does on SIGHUP: this text, or the text of the last
    /// start or reload. Agents of the program stay; agents of the configuration, callers, quotas,
    /// TLS, the log and live limits change, all or none. The changes are logged. One reload runs at
    /// a time.
    ///
    /// # Errors
    /// [`HostError::Server`]: the reason, in one line; nothing has changed.
    pub fn reload(&self, text: Option<&str>) -> Result<(), HostError> {
        let mut reloader = self.reloader.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match text {
            Some(text) => reloader.reload_text(text, &self.controls),
            None => reloader.reload(&self.controls),
        };
        changed.map_err(HostError::Server)?.iter().for_each(|line| report_line(line));
        Ok(())
    }
}

impl HostServer {
    /// Starts a server with these settings and agents; the first agent answers at `/`. A non-empty
    /// `listen` replaces the key `listen`.
    ///
    /// # Errors
    /// [`HostError::Server`], in one line.
    pub fn start(
        settings: HostSettings,
        listen: Vec<String>,
        agents: Vec<HostAgent>,
    ) -> Result<HostServer, HostError> {
        let agents = agents.into_iter().map(|HostAgent { profile, agent }| (profile, agent));
        let started = start_embedded(settings, listen, agents.collect());
        let Embedded { running, banner, reloader } = started.map_err(HostError::Server)?;
        let (reloader, controls) = (Arc::new(Mutex::new(reloader)), running.controls());
        let reloader = HostReloader { reloader, controls };
        Ok(HostServer { running, banner, reloader, calls: CallEngine::default() })
    }

    /// The server itself.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Returns the reloader of the configuration.
    pub fn reloader(&self) -> HostReloader {
        self.reloader.clone()
    }

    /// The engine of the server, for calls of this process ([`HostCall`]).
    ///
    /// # Errors
    /// [`HostError::Server`]: the system provides no random bits.
    ///
    /// [`HostCall`]: super::HostCall
    pub fn engine(&self) -> Result<Arc<HostEngine>, HostError> {
        if let Some(engine) = self.calls.0.get() {
            return Ok(Arc::clone(engine));
        }
        let (engine, epoch) = self.running.engine();
        let time = Arc::new(OwnTime::since(epoch)?);
        let made = || HostEngine::of_server(engine, self.running.workers(), time);
        Ok(Arc::clone(self.calls.0.get_or_init(made)))
    }

    /// The text that the binary prints when it is ready: its addresses, and a call to try.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// The port of the first address; 0: the server listens only on sockets with a path.
    pub fn port(&self) -> u16 {
        self.running.addrs().first().map_or(0, |addr| addr.port())
    }

    /// Stops accepting, drains within `drain_ms`, then ends; returns at once.
    pub fn shutdown(&self) {
        self.running.shutdown();
    }

    /// Waits until the server has ended. Calls of this process do not delay the end: waiting calls
    /// then get an error, and their streams end.
    pub fn join(self) {
        self.running.join();
    }
}
