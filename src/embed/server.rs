//! The server of a program: its configuration, its start and its end.

use crate::{cli::serve::start_embedded, net::Running};

use super::{HostAgent, HostError, HostSettings};

/// A server that runs. Dropping it ends it at once.
pub struct HostServer {
    running: Running,
    banner: String,
}

impl HostServer {
    /// Starts a server of these settings and agents; the first agent answers at `/`. `listen`, if
    /// there is anything in it, takes the place of the key of that name.
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
        let (running, banner) = started.map_err(HostError::Server)?;
        Ok(HostServer { running, banner })
    }

    /// The server itself.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// What the binary prints when it is ready: where the server listens, and a call to try.
    pub fn banner(&self) -> &str {
        &self.banner
    }

    /// The port of the first address that it listens on; 0: it listens on sockets with a path
    /// alone.
    pub fn port(&self) -> u16 {
        self.running.addrs().first().map_or(0, |addr| addr.port())
    }

    /// Stops accepting, lets what runs end within `drain_ms`, then ends; returns at once.
    pub fn shutdown(&self) {
        self.running.shutdown();
    }

    /// Waits until the server has ended.
    pub fn join(self) {
        self.running.join();
    }
}
