//! Reloads the configuration of a running server.
//!
//! Invariant: everything is read, checked and prepared before the first change, and the changes
//! cannot fail. So a reload applies all live keys or none. A changed key that needs a restart is
//! reported.

mod agents;
mod difference;
mod parts;
mod watch;

use std::sync::Arc;

use peregrine::{
    auth::{Callers, Network},
    net::{Controls, Reload},
};

use super::{
    super::{agents::Loaded, make, remote_cards::RemoteCards},
    Config, ConfigOrigin, ConfigSection, UsageError,
};
use agents::AgentChanges;
use difference::held_back;
use parts::LiveParts;

pub use watch::Stamp;

/// Applies a prepared part of a configuration; this cannot fail.
type Commit = Box<dyn FnOnce(&Controls)>;

/// Reads and checks a part of a configuration, without a change of the server.
type Applier = fn(&ConfigOrigin, &Config, &Controls) -> Result<Commit, UsageError>;

/// The parts that a reload changes, in addition to the agents.
const APPLIERS: &[Applier] = &[
    limits,
    logs,
    quotas,
    #[cfg(feature = "tls")]
    tls,
];

/// The key that needs a restart and includes the networks of `auth.proxy`.
const TRUSTED_PROXIES: &str = "trusted_proxies";

/// The origin and the state of a server's configuration.
pub struct Reloader {
    origin: ConfigOrigin,
    /// The configuration at the start; its keys that are not live remain in effect.
    started: ConfigSection,
    /// The live keys in effect.
    live: LiveParts,
    /// The trusted proxies at the start.
    trusted_proxies: Vec<Network>,
    /// True: the file sets nothing.
    is_blank: bool,
    agents: AgentChanges,
    /// The agents of an embedding program.
    own: Vec<Loaded>,
    cards: Arc<RemoteCards>,
    watch: watch::Watch,
    /// The callers; `None`: the server does not authenticate callers, which a reload cannot change.
    pub callers: Option<Arc<Callers>>,
}

impl Reloader {
    /// The state of a server with this configuration; `stamp` is the stamp of the file before
    /// reading.
    pub fn new(
        origin: &ConfigOrigin,
        config: &Config,
        agents: &[Loaded],
        cards: &Arc<RemoteCards>,
        stamp: Stamp,
    ) -> Reloader {
        Reloader {
            origin: origin.clone(),
            started: config.root.clone(),
            live: LiveParts::of(&config.root),
            trusted_proxies: config.serve.setup.trusted_proxies.clone(),
            is_blank: config.is_blank,
            agents: AgentChanges::of(agents),
            own: Vec::new(),
            cards: Arc::clone(cards),
            watch: watch::Watch::new(stamp),
            callers: None,
        }
    }

    /// Serves `own` and then the agents of the configuration, now and after each reload.
    #[cfg(feature = "embed")]
    pub fn with_own(self, own: Vec<Loaded>) -> Reloader {
        Reloader { own, ..self }
    }

    /// As [`Reload::reload`], with `text` instead of the previous settings.
    ///
    /// # Errors
    /// As from [`Reload::reload`].
    #[cfg(feature = "embed")]
    pub fn reload_text(&mut self, text: &str, server: &Controls) -> Result<Vec<String>, String> {
        let before = self.origin.clone();
        self.origin.text = Some(text.into());
        let changed = self.reload(server);
        if changed.is_err() {
            self.origin = before;
        }
        changed
    }

    fn apply(&mut self, server: &Controls) -> Result<Vec<String>, UsageError> {
        let config = self.origin.read()?;
        let is_blank = config.is_blank;
        // A file that is being rewritten is empty for a moment; on a full disk it remains empty.
        if is_blank && !self.is_blank {
            let name = self.origin.name();
            let line = format!("{name}: the file is empty now; restart to run without a file");
            return Err(UsageError(line));
        }
        let agents = self.origin.agents_with_own(&self.own, &config, &self.cards.remotes())?;
        let commits = APPLIERS.iter().map(|applier| applier(&self.origin, &config, server));
        let commits = commits.collect::<Result<Vec<Commit>, _>>()?;
        let mut held = held_back(&self.started, &config.root);
        let rules = config.serve.auth.clone();
        if rules.is_some() != self.callers.is_some() {
            held.push("auth".to_owned());
        }
        let trusts = &config.serve.setup.trusted_proxies;
        if *trusts != self.trusted_proxies && !held.iter().any(|key| key == TRUSTED_PROXIES) {
            held.push(format!("auth.proxy.networks as {TRUSTED_PROXIES}"));
        }
        let (live, has_tls) = (LiveParts::of(&config.root), config.serve.tls.is_some());
        // A configuration with which the server could not start is rejected.
        let made = make(&self.origin, config, agents.clone())?;
        made.server.check().map_err(|error| UsageError(self.origin.server_line(&error)))?;
        let (changes, description) = self.agents.to(&agents, &mut held);
        let callers = self.callers.clone();
        // Callers are replaced before agents, so that a removed caller cannot reach an agent that
        // was not meant for it. The rules are valid, since callers were built from them just now.
        // Without rules no caller can authenticate until a restart.
        let admit = || {
            if let Some(callers) = &callers {
                let _ = callers.replace(rules.unwrap_or_default());
            }
        };
        // The lock prevents changes of cards while agents change.
        let mut cards = self.cards.lock();
        match server.agents() {
            Some(running) => {
                let wrong = |error| UsageError(format!("{}: agents: {error}", self.origin.name()));
                running.change_after(changes, admit).map_err(wrong)?;
            }
            None => admit(),
        }
        commits.into_iter().for_each(|commit| commit(server));
        self.agents.note_running(&agents);
        cards.note_running(&agents);
        drop(cards);
        if let Some(running) = server.agents() {
            self.cards.watch(running);
        }
        let can_change = |part: &str| match part {
            "auth" => callers.is_some(),
            "tls" => has_tls && !held.iter().any(|key| key == "tls"),
            _ => true,
        };
        let changed = self.live.changed(&live, can_change);
        let description = match changed.is_empty() {
            true => description,
            false => format!("{} changed; {description}", parts::list(&changed)),
        };
        (self.live, self.is_blank) = (live, is_blank);
        let name = self.origin.name();
        let mut lines = vec![format!("{name} was read again: {description}")];
        if !held.is_empty() {
            let held = held.join(", ");
            lines.push(format!("{name}: these keys changed and need a restart: {held}"));
        }
        Ok(lines)
    }
}

impl Reload for Reloader {
    fn has_changed(&mut self) -> bool {
        self.watch.has_changed(Stamp::of(&self.origin))
    }

    fn reload(&mut self, server: &Controls) -> Result<Vec<String>, String> {
        self.watch.reads(Stamp::of(&self.origin));
        self.apply(server)
            .map_err(|UsageError(line)| format!("{line}; the running configuration is unchanged"))
    }
}

fn limits(_: &ConfigOrigin, config: &Config, _: &Controls) -> Result<Commit, UsageError> {
    let limits = config.serve.setup.limits.clone();
    Ok(Box::new(move |server| server.set_limits(&limits)))
}

fn logs(_: &ConfigOrigin, config: &Config, _: &Controls) -> Result<Commit, UsageError> {
    let logs = config.serve.logs;
    Ok(Box::new(move |server| server.set_logs(logs.level, logs.access)))
}

fn quotas(_: &ConfigOrigin, config: &Config, _: &Controls) -> Result<Commit, UsageError> {
    let quotas = config.serve.setup.quotas.clone();
    Ok(Box::new(move |server| server.set_quotas(quotas)))
}

#[cfg(feature = "tls")]
fn tls(origin: &ConfigOrigin, config: &Config, server: &Controls) -> Result<Commit, UsageError> {
    let Some(files) = config.serve.tls.clone() else { return Ok(Box::new(|_| ())) };
    let wrong = |error| UsageError(origin.server_line(&error));
    let usable = server.read_tls(&files.into()).map_err(wrong)?;
    Ok(Box::new(move |server| server.set_tls(usable)))
}
