//! `peregrine serve`: serves agents until a signal ends it.

mod agents;
mod banner;
mod card_keys;
mod config;
#[cfg(feature = "embed")]
mod embedded;
mod flags;
mod gateway_command;
mod places;
mod remote_cards;
mod server_command;
mod webhook_keys;

use std::sync::Arc;

use clap::ArgMatches;
#[cfg(feature = "tls")]
use peregrine::net::Tls;
use peregrine::{
    auth::{Authenticator, Callers},
    net::{HttpClientOptions, Running, Server, ServerError},
};

use super::{nearest, print, usage::UsageError, warn};
use agents::Loaded;
use banner::Banner;
use config::{Config, ConfigOrigin, ConfigSection, Reloader, Serve, Stamp, TlsFiles};
use places::ServedPaths;
use remote_cards::RemoteCards;

#[cfg(feature = "embed")]
pub use agents::path_name;
#[cfg(feature = "embed")]
pub use config::Reloader as EmbeddedReloader;
#[cfg(feature = "embed")]
pub use embedded::{Embedded, EngineParts, HostSettings, engine_parts, start_embedded};
pub use flags::command;
pub use gateway_command::command as gateway_command;
pub use server_command::command as server_command;

/// Serves until a signal ends it, or runs a subcommand of `config`.
///
/// # Errors
/// An exit code and one line: 2 for an invalid configuration, 1 for an error of the system.
pub fn run(flags: &ArgMatches) -> Result<(), (u8, String)> {
    let wrong = |UsageError(line): UsageError| (2, line);
    if let Some(("config", words)) = flags.subcommand() {
        return config::run(flags, words);
    }
    let origin = ConfigOrigin::new(flags).map_err(wrong)?;
    let stamp = Stamp::of(&origin);
    let config = origin.read_to_start().map_err(wrong)?;
    serve(&origin, config, stamp)
}

/// Serves the agent that the flags of `server` name, until a signal ends it.
///
/// # Errors
/// As [`run`].
pub fn run_server(flags: &ArgMatches) -> Result<(), (u8, String)> {
    run_without_file(flags, server_command::apply)
}

/// Serves the remote agents that the arguments of `gateway` name, until a signal ends it.
///
/// # Errors
/// As [`run`].
pub fn run_gateway(flags: &ArgMatches) -> Result<(), (u8, String)> {
    run_without_file(flags, gateway_command::apply)
}

/// Serves the agents that `apply` sets.
fn run_without_file(
    flags: &ArgMatches,
    apply: fn(&ArgMatches, &mut Config) -> Result<(), UsageError>,
) -> Result<(), (u8, String)> {
    let wrong = |UsageError(line): UsageError| (2, line);
    let mut origin = ConfigOrigin::new(flags).map_err(wrong)?;
    // A configuration file has its own agents.
    origin.file = None;
    let mut config = origin.read_to_start().map_err(wrong)?;
    apply(flags, &mut config).map_err(wrong)?;
    let stamp = Stamp::of(&origin);
    serve(&origin, config, stamp)
}

/// Runs a server. `stamp` was taken before the file was read, so that every later change is
/// detected.
fn serve(origin: &ConfigOrigin, config: Config, stamp: Stamp) -> Result<(), (u8, String)> {
    let wrong = |UsageError(line): UsageError| (2, line);
    let agents = origin.agents(&config, &[]).map_err(wrong)?;
    let cards = Arc::new(RemoteCards::of(&agents));
    let mut reloader = Reloader::new(origin, &config, &agents, &cards, stamp);
    let passing: Vec<String> = agents.iter().filter_map(Loaded::passes_authorization).collect();
    let made = make(origin, config, agents).map_err(wrong)?;
    reloader.callers.clone_from(&made.callers);
    let server = match origin.file {
        Some(_) => made.server.reload(reloader),
        None => made.server,
    };
    let is_extended = made.is_extended;
    let greet = |running: &Running| {
        if is_extended {
            warn("--extended-card: the extended card is served to every client");
        }
        if let (None, [first, ..]) = (&made.callers, &passing[..]) {
            warn(&format!(
                "agents.{first}: pass_authorization without [auth]: the server cannot tell \
                 callers apart, so every caller sees the tasks created with another caller's \
                 credential"
            ));
        }
        begin_background_work(running, made.callers, &cards);
        print(&made.banner.text(running));
    };
    server.run_then(greet).map_err(|error| (code(&error), error.to_string()))
}

/// Starts the background work of a server: it fetches the keys of issuers and refreshes the cards
/// of remote agents.
fn begin_background_work(
    running: &Running,
    callers: Option<Arc<Callers>>,
    cards: &Arc<RemoteCards>,
) {
    if let Some(callers) = callers
        && let Err(error) = running.fetch_keys(callers, HttpClientOptions::default())
    {
        warn(&format!("keys of issuers cannot be fetched: {error}"));
    }
    if let Some(agents) = running.agents() {
        cards.watch(agents);
    }
}

/// A server before its start.
struct Made {
    server: Server,
    banner: Banner,
    is_extended: bool,
    /// The callers.
    callers: Option<Arc<Callers>>,
}

/// Adds callers, signing keys and agents to the setup, and checks it. Returns the callers of
/// `[auth]`, if the section is set.
///
/// # Errors
/// [`UsageError`]: the error and its position.
fn settle(
    origin: &ConfigOrigin,
    root: &ConfigSection,
    serve: &mut Serve,
    agents: Vec<Loaded>,
) -> Result<Option<Arc<Callers>>, UsageError> {
    let setup = &mut serve.setup;
    let callers = serve.auth.take().map(Callers::new).transpose();
    let callers = callers.map_err(|error| origin.line(&root.wrong("auth", error.to_string())))?;
    let callers = callers.map(Arc::new);
    if let Some(callers) = &callers {
        setup.authenticator = Some(Arc::clone(callers) as Arc<dyn Authenticator>);
    }
    let card_keys = card_keys::sign(setup, &serve.card_keys)
        .map_err(|message| origin.line(&root.wrong("card_keys", message)))?;
    webhook_keys::sign(setup, &serve.push_sign_keys, &card_keys).map_err(|message| {
        let section = root.section("push").unwrap_or(root);
        origin.line(&section.wrong("sign_keys", message))
    })?;
    setup.agents =
        agents.into_iter().map(|Loaded { profile, agent, .. }| (profile, agent)).collect();
    setup.check().map_err(|error| match config::blame(root, &error) {
        Some(wrong) => origin.line(&wrong),
        None => UsageError(error.to_string()),
    })?;
    Ok(callers)
}

/// Builds a server from the configuration and its agents.
///
/// # Errors
/// [`UsageError`]: the error and its source.
fn make(origin: &ConfigOrigin, config: Config, agents: Vec<Loaded>) -> Result<Made, UsageError> {
    let Config { root, mut serve, .. } = config;
    let callers = settle(origin, &root, &mut serve, agents)?;
    let Serve { setup, listen, workers, anonymous, tls, shows_memory, admin, .. } = serve;
    let (logs, counts_calls, traces) = (serve.logs, serve.counts_calls, serve.traces);
    let requests_certificates = tls.as_ref().is_some_and(|files| files.client_ca.is_some());
    let served_paths = ServedPaths::of(&setup, requests_certificates);
    let (connections_max, is_extended) = (
        setup.limits.connections_max,
        setup.extended_card && callers.is_none() && !requests_certificates,
    );
    let has_push = setup.push.is_some();
    let banner = Banner { served_paths, connections_max, has_push, shows_memory };
    let mut server = Server::with(setup).workers(workers).logs(logs.level, logs.access);
    server = server.logged_principal(logs.principal);
    if counts_calls {
        server = server.metrics();
    }
    if let Some(collector) = traces {
        server = server.traces(collector);
    }
    if let Some(address) = admin {
        server = server.admin(address);
    }
    if let Some(callers) = callers.clone() {
        server = server.ready_check("keys", move || callers.have_keys());
    }
    for address in listen {
        server = server.listen(address);
    }
    if anonymous {
        server = server.allow_anonymous();
    }
    let server = match tls {
        Some(files) => with_tls(server, files),
        None => server,
    };
    Ok(Made { server, banner, is_extended, callers })
}

#[cfg(feature = "tls")]
fn with_tls(server: Server, files: TlsFiles) -> Server {
    server.tls(files.into())
}

#[cfg(feature = "tls")]
impl From<TlsFiles> for Tls {
    fn from(TlsFiles { cert, key, client_ca }: TlsFiles) -> Tls {
        let files = Tls::new(cert, key);
        match client_ca {
            Some(file) => files.client_ca(file),
            None => files,
        }
    }
}

#[cfg(not(feature = "tls"))]
fn with_tls(server: Server, _files: TlsFiles) -> Server {
    server
}

/// The exit code: 2 for a contradiction in the settings, 1 for an error of the system, such as a
/// taken port.
fn code(error: &ServerError) -> u8 {
    match error {
        ServerError::Address(_)
        | ServerError::Public(_)
        | ServerError::Build(_)
        | ServerError::Memory(_) => 2,
        ServerError::Bind { .. }
        | ServerError::UnixSocket { .. }
        | ServerError::Tls { .. }
        | ServerError::Traces(_)
        | ServerError::System(_) => 1,
    }
}
