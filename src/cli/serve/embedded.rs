//! A server for a program with its own agents. It has the configuration of `serve`, but no flags,
//! and it does not handle the signals of the process.

use std::{path::PathBuf, sync::Arc};

use peregrine::{
    agent::{Agent, Profile},
    auth::Callers,
    engine::Setup,
    net::Running,
};

use super::{
    Loaded, Made, RemoteCards, UsageError, begin_background_work,
    config::{Config, ConfigOrigin, Program, Reloader, Stamp},
    make, settle,
};

/// The source of the settings of a program's server; environment variables override it, as in the
/// binary (`docs/guide/configuration.md`).
#[derive(Clone, Debug, Default)]
pub enum HostSettings {
    /// The defaults, or the file that `PEREGRINE_CONFIG` names.
    #[default]
    Default,
    /// A file.
    File(PathBuf),
    /// The text of a configuration file.
    Text(String),
}

/// A running server of a program.
pub struct Embedded {
    /// The server.
    pub running: Running,
    /// The banner of `serve`.
    pub banner: String,
    /// Reads the configuration again.
    pub reloader: Reloader,
}

/// Starts a server with `agents` (the first is the default agent), followed by the agents that the
/// configuration names. A non-empty `listen` replaces the key of that name.
///
/// # Errors
/// One line: the error of the configuration with its position, or the reason why the server cannot
/// start.
pub fn start_embedded(
    settings: HostSettings,
    listen: Vec<String>,
    agents: Vec<(Profile, Arc<dyn Agent>)>,
) -> Result<Embedded, String> {
    let line = |UsageError(line): UsageError| line;
    let origin = ConfigOrigin::embedded(settings).map_err(line)?;
    let stamp = Stamp::of(&origin);
    let mut config = origin.read_to_start().map_err(line)?;
    if !listen.is_empty() {
        config.serve.listen = listen;
    }
    let own = own(agents, &config);
    let all = origin.agents_with_own(&own, &config, &[]).map_err(line)?;
    let cards = Arc::new(RemoteCards::of(&all));
    let mut reloader = Reloader::new(&origin, &config, &all, &cards, stamp).with_own(own);
    let Made { server, banner, callers, .. } = make(&origin, config, all).map_err(line)?;
    reloader.callers.clone_from(&callers);
    let running = server.start().map_err(|error| error.to_string())?;
    begin_background_work(&running, callers, &cards);
    let banner = banner.text(&running);
    Ok(Embedded { running, banner, reloader })
}

/// The agents of the program.
fn own(agents: Vec<(Profile, Arc<dyn Agent>)>, config: &Config) -> Vec<Loaded> {
    let own = agents.into_iter().map(|(mut profile, agent)| {
        profile.streaming &= config.serve.streaming;
        let made_of = format!("embedded {}", profile.name);
        Loaded::new(profile, agent, made_of)
    });
    own.collect()
}

/// The parts of an engine without sockets.
pub struct EngineParts {
    /// The setup, without webhooks: an engine without sockets cannot post.
    pub setup: Setup,
    /// The number of workers.
    pub workers: usize,
    /// The callers of the configuration; `None`: callers are not authenticated.
    pub callers: Option<Arc<Callers>>,
}

/// Reads the configuration of an engine without sockets, for `agents` followed by the agents that
/// the configuration names. Keys of listeners, TLS, logs, metrics and webhooks have no effect.
///
/// # Errors
/// One line: the error of the configuration with its position. The configuration may name only the
/// echo agent and scripts; other agents need the server.
pub fn engine_parts(
    settings: HostSettings,
    agents: Vec<(Profile, Arc<dyn Agent>)>,
) -> Result<EngineParts, String> {
    let line = |UsageError(line): UsageError| line;
    let origin = ConfigOrigin::embedded(settings).map_err(line)?;
    let mut config = origin.read_to_start().map_err(line)?;
    for spec in &config.serve.agents {
        let needs_server = match &spec.program {
            Program::Echo | Program::Script(_) => false,
            Program::Remote(_) | Program::Function(_) | Program::Process(_) => spec.is_enabled,
        };
        if needs_server {
            let mut wrong = spec.at.clone();
            let text = "this agent kind needs a server with sockets: an engine has only the kinds \
                        echo and script";
            wrong.message = text.to_owned();
            return Err(line(origin.line(&wrong)));
        }
    }
    let all = origin.agents_with_own(&own(agents, &config), &config, &[]).map_err(line)?;
    let callers = settle(&origin, &config.root, &mut config.serve, all).map_err(line)?;
    let (mut setup, workers) = (config.serve.setup, config.serve.workers);
    (setup.push, setup.webhook_signer) = (None, None);
    Ok(EngineParts { setup, workers, callers })
}
