//! The server of a program: its configuration, its start and its end.

use std::{path::PathBuf, sync::Arc};

use crate::{
    cli::serve::{EmbeddedConfig, EmbeddedServer},
    net::Running,
};

use super::{HostAgent, HostError};

/// Where the settings of a server come from; the variables of the environment go before them, as
/// they do for the binary (`docs/guide/configuration.md`).
#[derive(Clone, Debug, Default)]
pub enum HostSettings {
    /// What is built in, or the file that `PEREGRINE_CONFIG` names.
    #[default]
    Default,
    /// A file.
    File(PathBuf),
    /// The text of such a file.
    Text(String),
}

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
        let (file, text) = match settings {
            HostSettings::Default => (None, None),
            HostSettings::File(file) => (Some(file), None),
            HostSettings::Text(text) => (None, Some(text)),
        };
        let config = EmbeddedConfig { file, text: text.map(Arc::from), listen };
        let made = EmbeddedServer::make(config, agents.collect()).map_err(HostError::Server)?;
        let (running, banner) = made.start().map_err(HostError::Server)?;
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
