//! The sections of a configuration, one file each: the table of its keys, and their meaning.
//!
//! To add a section, add its file here, a row in the `KEYS` of its parent section (the root keys
//! are in `server.rs`), and its reader in [`read`]. An applier in `config/reload` applies it on a
//! reload.

mod agents;
mod auth;
mod cards;
mod functions;
mod limits;
mod logs;
mod mounts;
mod processes;
mod push;
mod quotas;
mod remote;
mod server;
mod tls;
mod traces;
mod upstream_credentials;

use std::path::PathBuf;

use peregrine::{
    auth::AuthRules,
    engine::{BuildError, Setup},
    net::TraceCollector,
};

use super::tree::{ConfigSection, Wrong};

pub use agents::{AgentSpec, Program};
pub use auth::check_callers;
pub use cards::CardOverrides;
pub use functions::FunctionSpec;
pub use logs::Logs;
pub use processes::ProcessSpec;
pub use remote::RemoteSpec;
pub use server::KEYS;
pub use tls::TlsFiles;

/// The settings of `serve`.
pub struct Serve {
    /// The setup of the engine, still without agents.
    pub setup: Setup,
    /// Addresses.
    pub listen: Vec<String>,
    /// Agents, the default agent first; empty: the echo agent.
    pub agents: Vec<AgentSpec>,
    /// Threads.
    pub workers: usize,
    /// True: every client that can reach the server may call the agents.
    pub anonymous: bool,
    /// True: streaming operations are served.
    pub streaming: bool,
    /// True: the banner lists the terms of the memory sum.
    pub shows_memory: bool,
    /// The address of the pages for operators.
    pub admin: Option<String>,
    /// The settings of the log.
    pub logs: Logs,
    /// True: calls are counted.
    pub counts_calls: bool,
    /// The collector of spans; `None`: tracing is off.
    pub traces: Option<TraceCollector>,
    /// Files of keys that sign cards, each with the id of its key.
    pub card_keys: Vec<(PathBuf, Option<String>)>,
    /// Files of keys that sign posts to webhooks.
    pub push_sign_keys: Vec<PathBuf>,
    /// Files for TLS.
    pub tls: Option<TlsFiles>,
    /// The rules for callers, even if they admit no caller; `None`: callers are not authenticated,
    /// or only by certificates.
    pub auth: Option<AuthRules>,
}

/// Interprets a configuration.
///
/// # Errors
/// [`Wrong`]: the first invalid value.
pub fn read(root: &ConfigSection, workers_default: usize) -> Result<Serve, Wrong> {
    let mut setup = server::setup(root)?;
    setup.mounts = mounts::read(root)?;
    setup.requires_scopes = auth::requires_scopes(root);
    setup.quotas = quotas::read(root)?;
    setup.push = push::read(root)?;
    let tls = tls::read(root)?;
    let workers = root.whole("workers").and_then(|number| usize::try_from(number).ok());
    let workers = workers.unwrap_or(workers_default);
    let memory = limits::memory(root)?;
    setup.limits = limits::read(root, memory, workers, tls.is_some())?;
    let auth = auth::read(root, tls.as_ref().is_some_and(|files| files.client_ca.is_some()))?;
    setup.trusted_proxies = auth::trusted_proxies(root, auth.as_ref())?;
    quotas::check_names(root)?;
    Ok(Serve {
        setup,
        listen: server::listen(root),
        agents: agents::read(root)?,
        workers,
        anonymous: root.switch("allow_anonymous").unwrap_or(false),
        streaming: root.switch("streaming").unwrap_or(true),
        shows_memory: root.switch("show_memory").unwrap_or(false),
        admin: root.text("admin").map(str::to_owned),
        logs: logs::logs(root)?,
        counts_calls: logs::counts_calls(root),
        traces: traces::read(root)?,
        card_keys: server::card_keys(root),
        push_sign_keys: push::sign_keys(root),
        auth,
        tls,
    })
}

/// The position of an error of the engine's setup; `None`: the error has no position.
pub fn blame(root: &ConfigSection, error: &BuildError) -> Option<Wrong> {
    let item = |name: &str, text: &str| {
        let items = root.texts(name)?;
        let index = items.iter().position(|item| item.text == *text)?;
        Some(root.wrong_item(name, index, error.to_string()))
    };
    let of_mount = |name: &str, text: &str| mounts::blame(root, name, text, error);
    match error {
        BuildError::Path(path) | BuildError::SameMount(path) | BuildError::PageMount(path) => {
            of_mount("path", path)
        }
        BuildError::Dialect(name) => of_mount("dialect", name),
        BuildError::Agent(name) => of_mount("agent", name),
        BuildError::Field(name) => agents::blame_field(root, name, error),
        BuildError::Tenant(name) => item("tenants", name),
        BuildError::Origin(text) => item("ws_origins", text),
        BuildError::Host(text) => item("allow_hosts", text),
        BuildError::PublicUrl(_) => Some(root.wrong("public_url", error.to_string())),
        BuildError::Interfaces(_) => Some(root.wrong("interfaces", error.to_string())),
        BuildError::Limit(name) => {
            root.section("limits").map(|limits| limits.wrong(name, error.to_string()))
        }
        BuildError::TooManyAgents | BuildError::Name(_) | BuildError::SameName(_) => {
            Some(root.wrong("agents", error.to_string()))
        }
        // The readers of the sections have already detected these errors.
        BuildError::NoAgent
        | BuildError::AgentsWithService
        | BuildError::Cors(_)
        | BuildError::Security(_) => None,
    }
}
