//! The settings of a server with their sources: a flag, the environment, the file, or the default.
//!
//! Invariant: for every key, a flag overrides a variable, which overrides the file, which overrides
//! the default. A list replaces the whole list of a lower source.

mod command;
pub mod file;
mod flags;
mod reload;
mod schema;
mod sections;
mod show;
mod tree;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ArgMatches;
use peregrine::net::{self, ServerError};

#[cfg(feature = "embed")]
use super::HostSettings;
use super::{
    UsageError,
    agents::{self, Loaded, ServedRemote},
    code, make, nearest, print,
};
use tree::{Variables, Wrong};

pub use command::run;
pub use reload::{Reloader, Stamp};
pub use sections::{
    AgentSpec, CardOverrides, FunctionSpec, ProcessSpec, Program, RemoteSpec, Serve, TlsFiles,
    blame,
};
pub use tree::ConfigSection;

/// The sources of a configuration, which can be read again.
#[derive(Clone)]
pub struct ConfigOrigin {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The text that replaces the file.
    text: Option<Arc<str>>,
    variables: Variables,
    flags: ArgMatches,
}

/// A configuration.
pub struct Config {
    /// The settings with their sources.
    pub root: ConfigSection,
    /// The interpreted settings.
    pub serve: Serve,
    /// True: there is no file, or the file sets no key.
    pub is_blank: bool,
}

impl ConfigOrigin {
    /// Uses the flags of `serve` and the environment of the process.
    ///
    /// # Errors
    /// [`UsageError`]: the value of a variable of this program is not UTF-8.
    pub fn new(flags: &ArgMatches) -> Result<ConfigOrigin, UsageError> {
        let mut variables = Vec::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => variables.push((name, value)),
                Err(_) if name.starts_with("PEREGRINE_") => {
                    return Err(UsageError(format!("{name}: the value is not UTF-8")));
                }
                Err(_) => {}
            }
        }
        let pairs = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(ConfigOrigin::with(flags, Variables::new(pairs)))
    }

    /// Uses these settings and the environment of the process, without flags.
    ///
    /// # Errors
    /// As from [`ConfigOrigin::new`].
    #[cfg(feature = "embed")]
    pub fn embedded(settings: HostSettings) -> Result<ConfigOrigin, UsageError> {
        let flags = super::command().try_get_matches_from(["serve"]);
        let flags = flags.map_err(|error| UsageError(error.to_string()))?;
        let origin = ConfigOrigin::new(&flags)?;
        Ok(match settings {
            HostSettings::Default => origin,
            HostSettings::File(file) => ConfigOrigin { file: Some(file), ..origin },
            HostSettings::Text(text) => {
                ConfigOrigin { file: None, text: Some(text.into()), ..origin }
            }
        })
    }

    /// Uses the flags of `serve` and these variables.
    pub fn with(flags: &ArgMatches, variables: Variables) -> ConfigOrigin {
        let of_flag = flags.get_many::<OsString>("config").and_then(|mut all| all.next_back());
        let file = of_flag.map(PathBuf::from).or_else(|| variables.config().map(PathBuf::from));
        ConfigOrigin { file, text: None, variables, flags: flags.clone() }
    }

    /// Reads the whole configuration.
    ///
    /// # Errors
    /// [`UsageError`]: the first error, and its position.
    pub fn read(&self) -> Result<Config, UsageError> {
        let mut root = match (&self.text, &self.file) {
            (None, None) => ConfigSection::new(sections::KEYS, String::new(), None),
            (Some(text), _) => {
                let root = tree::read(text, sections::KEYS, Path::new(""), &self.variables);
                root.map_err(|wrong| self.line(&wrong))?
            }
            (None, Some(file)) => {
                let text = text(file).map_err(UsageError)?;
                let folder = file.parent().unwrap_or(Path::new(""));
                let root = tree::read(&text, sections::KEYS, folder, &self.variables);
                root.map_err(|wrong| self.line(&wrong))?
            }
        };
        let is_blank = root.is_empty();
        tree::with_variables(&mut root, &self.variables).map_err(|wrong| self.line(&wrong))?;
        flags::with_flags(&mut root, &self.flags)?;
        let serve = sections::read(&root, net::workers_default());
        #[cfg_attr(not(feature = "test-echo"), expect(unused_mut))]
        let mut serve = serve.map_err(|wrong| self.line(&wrong))?;
        root.forget_secrets();
        #[cfg(feature = "test-echo")]
        {
            let path = self.flags.get_many::<String>("test-echo");
            serve.setup.test_echo = path.and_then(|mut all| all.next_back()).cloned();
        }
        Ok(Config { root, serve, is_blank })
    }

    /// Reads the whole configuration of a server before its start.
    ///
    /// # Errors
    /// The errors of [`ConfigOrigin::read`], and authentication that admits no caller.
    pub fn read_to_start(&self) -> Result<Config, UsageError> {
        let config = self.read()?;
        let checked = sections::check_callers(&config.root, config.serve.auth.as_ref());
        checked.map_err(|wrong| self.line(&wrong))?;
        Ok(config)
    }

    /// Loads the agents of a configuration; a remote agent in `running` is reused.
    ///
    /// # Errors
    /// [`UsageError`]: an agent cannot be loaded.
    pub fn agents(
        &self,
        config: &Config,
        running: &[ServedRemote],
    ) -> Result<Vec<Loaded>, UsageError> {
        let Serve { agents, streaming, .. } = &config.serve;
        agents::load(agents, *streaming, running)
            .map_err(|(spec, message)| self.line(&Wrong { message, ..spec.at.clone() }))
    }

    /// As [`ConfigOrigin::agents`], with the agents of `own` first. If `own` is not empty, the
    /// configuration needs no agents.
    ///
    /// # Errors
    /// As from [`ConfigOrigin::agents`].
    pub fn agents_with_own(
        &self,
        own: &[Loaded],
        config: &Config,
        running: &[ServedRemote],
    ) -> Result<Vec<Loaded>, UsageError> {
        let mut all = own.to_vec();
        if all.is_empty() || !config.serve.agents.is_empty() {
            all.extend(self.agents(config, running)?);
        }
        Ok(all)
    }

    /// An error of the configuration in one line.
    pub fn line(&self, wrong: &Wrong) -> UsageError {
        UsageError(wrong.line(&self.name()))
    }

    /// An error of the whole server in one line.
    pub fn server_line(&self, error: &ServerError) -> String {
        match &self.file {
            Some(_) => format!("{}: {error}", self.name()),
            None => error.to_string(),
        }
    }

    /// The name of the configuration file.
    pub fn name(&self) -> String {
        if self.text.is_some() {
            return "settings".to_owned();
        }
        self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default()
    }
}

/// The text of a file.
///
/// # Errors
/// One line: the file cannot be read, is longer than 1 MiB, or does not end.
pub fn text(path: &Path) -> Result<String, String> {
    file::read_text(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
