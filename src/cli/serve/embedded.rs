//! A server for a program that brings agents of its own: with the configuration of `serve`, and
//! without its flags and the signals of the process.

use std::{path::PathBuf, sync::Arc};

use peregrine::{
    agent::{Agent, Profile},
    net::{HttpClientOptions, Running},
};

use super::{Loaded, Made, RemoteCards, UsageError, config::ConfigOrigin, make, warn};

/// What a program says of its server.
pub struct EmbeddedConfig {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The text of one, in its place.
    pub text: Option<Arc<str>>,
    /// Addresses; none: those of the configuration.
    pub listen: Vec<String>,
}

/// A server of agents of a program that has not started.
pub struct EmbeddedServer {
    made: Made,
    cards: Arc<RemoteCards>,
}

impl EmbeddedServer {
    /// A server of these agents, the first of which is the default one, and of those that the
    /// configuration names behind them.
    ///
    /// # Errors
    /// One line: what is wrong, and where.
    pub fn make(
        config: EmbeddedConfig,
        agents: Vec<(Profile, Arc<dyn Agent>)>,
    ) -> Result<EmbeddedServer, String> {
        let origin = ConfigOrigin::embedded(config.file, config.text).map_err(line)?;
        let mut read = origin.read_to_start().map_err(line)?;
        if !config.listen.is_empty() {
            read.serve.listen = config.listen;
        }
        let streaming = read.serve.streaming;
        let own = agents.into_iter().map(|(mut profile, agent)| {
            profile.streaming &= streaming;
            let made_of = format!("embedded {}", profile.name);
            Loaded::new(profile, agent, made_of)
        });
        let mut all: Vec<Loaded> = own.collect();
        if all.is_empty() || !read.serve.agents.is_empty() {
            all.extend(origin.agents(&read, &[]).map_err(line)?);
        }
        let cards = Arc::new(RemoteCards::of(&all));
        let made = make(&origin, read, all).map_err(line)?;
        Ok(EmbeddedServer { made, cards })
    }

    /// Starts it; the text is what `serve` prints when it is ready.
    ///
    /// # Errors
    /// One line: why it cannot start.
    pub fn start(self) -> Result<(Running, String), String> {
        let Made { server, banner, callers, .. } = self.made;
        let running = server.start().map_err(|error| error.to_string())?;
        if let Some(callers) = callers {
            let fetching = running.fetch_keys(callers, HttpClientOptions::default());
            if let Err(error) = fetching {
                warn(&format!("keys of issuers cannot be fetched: {error}"));
            }
        }
        if let Some(agents) = running.agents() {
            self.cards.watch(agents);
        }
        let text = banner.text(&running);
        Ok((running, text))
    }
}

fn line(UsageError(line): UsageError) -> String {
    line
}
