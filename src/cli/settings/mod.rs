//! The settings of one call of the command line, and the source of each.
//!
//! Invariant: a flag overrides the environment, which overrides the local file, which overrides the
//! global file, which overrides the default. This does not depend on the command.

mod env_file;
mod show;
mod table;
mod values;

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use clap::{ArgMatches, Command};

use super::{failure::CommandFailure, redaction::Redaction};
use env_file::EnvFile;
use table::{SETTINGS, Setting, SettingKind};

pub use env_file::is_open;
pub use show::show;
pub use table::variable;
pub use values::{OutputFormat, milliseconds};

/// The path of `~/.config/a2a-cli` inside the user's home.
pub const CONFIG_FOLDER: &str = ".config/a2a-cli";

/// The text after the settings in a help.
pub const LONG_HELP: &str = "Options under a heading, except --stream, can also be set by a \
                             variable or in a .env file: --a2a-version is A2ACLI_A2A_VERSION. A \
                             flag overrides the environment, which overrides the nearest .env (or \
                             --config FILE), which overrides ~/.config/a2a-cli/.env. Show the \
                             values in force and their sources: peregrine config show.";

/// The source of a setting; a later variant overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingSource {
    /// The default.
    BuiltIn,
    /// The user's global file.
    Global(PathBuf),
    /// The nearest `.env`, or the file of `--config`.
    Local(PathBuf),
    /// The environment.
    Environment,
    /// A flag.
    Flag,
}

/// The environment of a call, which tests can replace.
pub struct Surroundings<'a> {
    /// Returns the value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The working directory of the call.
    pub folder: PathBuf,
    /// The home directory of the user.
    pub home: Option<PathBuf>,
}

/// The settings of one call.
#[derive(Debug)]
pub struct Settings {
    /// The value of each of [`SETTINGS`].
    held: Vec<HeldSetting>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The folder of the user's configuration.
    pub folder: Option<PathBuf>,
    redaction: OnceLock<Redaction>,
}

/// Converts the path of a file to a source.
type FileRank = fn(PathBuf) -> SettingSource;

#[derive(Clone, Debug)]
struct HeldSetting {
    values: Vec<String>,
    source: SettingSource,
}

/// Adds the flag of every setting to a command. The short help shows the settings that are common
/// for the command at `path`.
pub fn with_flags(command: Command, path: &str) -> Command {
    let hidden = |setting: &Setting| !table::is_common(path, setting.name);
    let flag = |setting| table::flag(setting).hide_short_help(hidden(setting));
    command.args(SETTINGS.iter().map(flag)).after_long_help(LONG_HELP)
}

/// Adds only the flags of these settings, for a command that calls no agent.
pub fn with_only(command: Command, names: &[&str]) -> Command {
    command.args(SETTINGS.iter().filter(|setting| names.contains(&setting.name)).map(table::flag))
}

impl Settings {
    /// Resolves the value of every setting. `flags`: the flags of the command, followed by the
    /// flags before the command.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage: an unreadable file.
    pub fn resolve(
        flags: &[&ArgMatches],
        around: &Surroundings<'_>,
    ) -> Result<Settings, CommandFailure> {
        let config = SETTINGS.iter().find(|setting| setting.kind == SettingKind::NotInFiles);
        let config = config.and_then(|setting| by_hand(setting, flags, around));
        let config = config.and_then(|held| held.values.last().cloned());
        let global = around.home.as_ref().map(|home| home.join(CONFIG_FOLDER));
        let local = match &config {
            Some(path) => Some(around.folder.join(path)),
            None => env_file::nearest_file(&around.folder),
        };
        let global_file = global.as_ref().map(|folder| folder.join(".env"));
        let global_file = global_file.filter(|path| path.is_file());
        // The user's configuration folder may be the working directory.
        let global_file = global_file.filter(|path| Some(path) != local.as_ref());
        let read = |path: Option<PathBuf>| path.map_or(Ok(EnvFile::default()), read_file);
        let files = [
            (read(local)?, SettingSource::Local as FileRank),
            (read(global_file)?, SettingSource::Global as fn(PathBuf) -> SettingSource),
        ];
        let held = SETTINGS.iter().map(|setting| {
            let by_hand = by_hand(setting, flags, around);
            by_hand.or_else(|| in_files(setting, &files)).unwrap_or_else(|| built_in(setting))
        });
        let held = held.collect();
        let mut warnings: Vec<String> = files.iter().flat_map(|(file, _)| warnings(file)).collect();
        warnings.extend(ignored(around));
        Ok(Settings { held, warnings, folder: global, redaction: OnceLock::new() })
    }

    fn held(&self, name: &str) -> &HeldSetting {
        let index = SETTINGS.iter().position(|setting| setting.name == name);
        // A name without a row in the table is a bug of this program, which its tests detect.
        &self.held[index.unwrap_or_else(|| unreachable!("unknown setting {name}"))]
    }

    /// The source of a setting.
    pub fn source(&self, name: &str) -> &SettingSource {
        &self.held(name).source
    }

    /// The last value; `None`: unset or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.held(name).values.last().map(String::as_str).filter(|text| !text.is_empty())
    }

    /// All values, in order.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.held(name).values.iter().map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Sets a value as a flag would.
    pub fn set(&mut self, name: &str, value: &str) {
        let index = SETTINGS.iter().position(|setting| setting.name == name);
        if let Some(held) = index.and_then(|index| self.held.get_mut(index)) {
            *held = HeldSetting { values: vec![value.to_owned()], source: SettingSource::Flag };
        }
    }

    /// The redaction of this call's secrets, shared by all of its parts.
    pub fn redaction(&self) -> Redaction {
        let redaction = || Redaction::of(self.secrets(), self.own_fields());
        self.redaction.get_or_init(redaction).clone()
    }

    /// The secret values, and the parts of values that are secret by themselves.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let rows = SETTINGS.iter().zip(&self.held).filter(|(setting, _)| setting.kind.is_secret());
        let values = rows.flat_map(|(setting, held)| {
            held.values.iter().flat_map(|value| secrets_in(setting.name, value))
        });
        values.map(str::trim).filter(|value| !value.is_empty())
    }

    /// The names of the fields that the user adds.
    pub fn own_fields(&self) -> impl Iterator<Item = &str> {
        self.list("svc-param").filter_map(|pair| Some(pair.split_once(':')?.0))
    }
}

/// The value from a flag or the environment. A flag after the command overrides a flag before it.
fn by_hand(
    setting: &Setting,
    flags: &[&ArgMatches],
    around: &Surroundings<'_>,
) -> Option<HeldSetting> {
    let values_of = |flags: &&ArgMatches| -> Option<Vec<String>> {
        let values = flags.try_get_many::<String>(setting.name).ok().flatten()?;
        Some(values.cloned().collect())
    };
    if let Some(values) = flags.iter().find_map(values_of) {
        return Some(HeldSetting { values, source: SettingSource::Flag });
    }
    if setting.kind == SettingKind::FlagOnly {
        return None;
    }
    let value = (around.variable)(&variable(setting))?;
    Some(HeldSetting { values: split(setting, &value), source: SettingSource::Environment })
}

fn in_files(setting: &Setting, files: &[(EnvFile, FileRank)]) -> Option<HeldSetting> {
    if matches!(setting.kind, SettingKind::FlagOnly | SettingKind::NotInFiles) {
        return None;
    }
    let name = variable(setting);
    files.iter().find_map(|(file, source)| {
        let (_, value) = file.values.iter().find(|(other, _)| *other == name)?;
        let source = source(file.path.clone());
        Some(HeldSetting { values: split(setting, value), source })
    })
}

/// The secret parts of a value: servers repeat a password without the user name, and a token
/// without its scheme.
fn secrets_in<'v>(setting: &str, value: &'v str) -> [&'v str; 2] {
    let after = |text: &'v str, sign| text.split_once(sign).map_or("", |(_, rest)| rest);
    match setting {
        "basic" => [value, after(value, ':')],
        "svc-param" => {
            let content = after(value, ':').trim();
            let name = value.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            let has_scheme = name.ends_with("authorization");
            [content, if has_scheme { after(content, ' ') } else { "" }]
        }
        _ => [value, ""],
    }
}

fn built_in(setting: &Setting) -> HeldSetting {
    let values = Some(setting.default.to_owned()).filter(|text| !text.is_empty());
    HeldSetting { values: values.into_iter().collect(), source: SettingSource::BuiltIn }
}

fn split(setting: &Setting, value: &str) -> Vec<String> {
    match setting.kind.separator() {
        Some(separator) => value.split(separator).map(|one| one.trim().to_owned()).collect(),
        None => vec![value.to_owned()],
    }
}

fn read_file(path: PathBuf) -> Result<EnvFile, CommandFailure> {
    env_file::read(&path).map_err(CommandFailure::usage)
}

/// Warnings about the environment: settings that only a flag can set.
fn ignored(around: &Surroundings<'_>) -> Vec<String> {
    let flags = SETTINGS.iter().filter(|setting| setting.kind == SettingKind::FlagOnly);
    let present = flags.filter(|setting| (around.variable)(&variable(setting)).is_some());
    let line = |setting: &Setting| {
        format!("{} has no effect: --{} can only be a flag", variable(setting), setting.name)
    };
    present.map(line).collect()
}

/// Warnings about a file: unknown lines, and secrets that every user can read.
fn warnings(file: &EnvFile) -> Vec<String> {
    let of = |name: &str| SETTINGS.iter().find(|setting| variable(setting) == name);
    let path = Path::new(&file.path).display();
    let mut warnings = Vec::new();
    for (name, _) in &file.values {
        match of(name).map(|setting| setting.kind) {
            Some(SettingKind::FlagOnly | SettingKind::NotInFiles) => {
                warnings.push(format!("{path}: {name} has no effect in a file"));
            }
            Some(kind) if kind.is_secret() && file.is_open => {
                warnings.push(format!(
                    "{path} has {name} and is readable by other users: chmod 600 {path}"
                ));
            }
            Some(_) => {}
            None => warnings.push(format!("{path}: {name} is not a setting of this program")),
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
