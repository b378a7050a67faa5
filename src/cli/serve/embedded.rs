//! A server for a program that brings agents of its own: with the configuration of `serve`, and
//! without its flags and the signals of the process.

use std::{path::PathBuf, sync::Arc};

use peregrine::{
    agent::{Agent, Profile},
    net::Running,
};

use super::{
    Loaded, Made, RemoteCards, UsageError, begin_background_work, config::ConfigOrigin, make,
};

/// Where the settings of a program's server come from; the variables of the environment go before
/// them, as they do for the binary (`docs/guide/configuration.md`).
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

/// Starts a server of these agents, the first of which is the default one, and of those that the
/// configuration names behind them. `listen`, if there is anything in it, takes the place of the
/// key of that name. The text is what `serve` prints when it is ready.
///
/// # Errors
/// One line: what is wrong with the configuration, and where, or why the server cannot start.
pub fn start_embedded(
    settings: HostSettings,
    listen: Vec<String>,
    agents: Vec<(Profile, Arc<dyn Agent>)>,
) -> Result<(Running, String), String> {
    let line = |UsageError(line): UsageError| line;
    let origin = ConfigOrigin::embedded(settings).map_err(line)?;
    let mut config = origin.read_to_start().map_err(line)?;
    if !listen.is_empty() {
        config.serve.listen = listen;
    }
    let streaming = config.serve.streaming;
    let own = agents.into_iter().map(|(mut profile, agent)| {
        profile.streaming &= streaming;
        let made_of = format!("embedded {}", profile.name);
        Loaded::new(profile, agent, made_of)
    });
    let mut all: Vec<Loaded> = own.collect();
    if all.is_empty() || !config.serve.agents.is_empty() {
        all.extend(origin.agents(&config, &[]).map_err(line)?);
    }
    let cards = Arc::new(RemoteCards::of(&all));
    let Made { server, banner, callers, .. } = make(&origin, config, all).map_err(line)?;
    let running = server.start().map_err(|error| error.to_string())?;
    begin_background_work(&running, callers, &cards);
    let text = banner.text(&running);
    Ok((running, text))
}
