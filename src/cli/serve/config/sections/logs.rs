//! `[logs]` and `[metrics]`: the server's log and counters.

use peregrine::net::{LogLevel, LoggedPrincipal};
use ring::digest;

use super::super::{
    file,
    tree::{ConfigSection, Key, Shape, Wrong, key},
};

const LEVEL: Shape = Shape::Choice(&["off", "error", "warn", "info", "debug"]);
const ONE_OF: Shape = Shape::Whole { min: 0, max: u32::MAX as u64 };

const LOGS: &[Key] = &[
    key("level", LEVEL, "\"info\"", "Level of the log on stderr").flag("log").live(),
    key("access", ONE_OF, "0", "Logs one call in this many; 1: every call, 0: none")
        .flag("access-log")
        .live(),
    key(
        "principal",
        Shape::Choice(&["hash", "name"]),
        "\"hash\"",
        "Form of the caller in log lines of calls",
    ),
    key("hash_key", Shape::Text, "", "Key under which names are hashed; prefer ${VARIABLE}")
        .secret(),
    key("hash_key_file", Shape::Path, "", "File with the key, instead of hash_key"),
];

const METRICS: &[Key] =
    &[key("enabled", Shape::Switch, "true", "Calls are counted, and /metrics is served")];

/// The keys of `[logs]`.
pub fn log_keys() -> &'static [Key] {
    LOGS
}

/// The keys of `[metrics]`.
pub fn metrics_keys() -> &'static [Key] {
    METRICS
}

/// Minimum bytes of a key for hashes.
const HASH_KEY_BYTES_MIN: usize = 16;

/// The settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The level of the log.
    pub level: LogLevel,
    /// One call in this many is logged; 0: none.
    pub access: u32,
    /// The form of callers in log lines.
    pub principal: LoggedPrincipal,
}

/// Reads the settings of the log.
///
/// # Errors
/// [`Wrong`]: an invalid key for the hashes of names.
pub fn logs(root: &ConfigSection) -> Result<Logs, Wrong> {
    let section = root.section("logs");
    let level = section.and_then(|logs| logs.text("level")).and_then(LogLevel::of);
    let access = section.and_then(|logs| logs.whole("access"));
    Ok(Logs {
        level: level.unwrap_or(LogLevel::Info),
        // The shape has checked that the number fits.
        access: access.and_then(|one_of| u32::try_from(one_of).ok()).unwrap_or(0),
        principal: section.map_or(Ok(LoggedPrincipal::Hash), logged_principal)?,
    })
}

fn logged_principal(logs: &ConfigSection) -> Result<LoggedPrincipal, Wrong> {
    let key = match (logs.text("hash_key"), logs.path("hash_key_file")) {
        (Some(_), Some(_)) => {
            return Err(logs.wrong("hash_key_file", "hash_key is also set: set only one of them"));
        }
        (Some(key), None) => Some(("hash_key", key.as_bytes().to_vec())),
        (None, Some(path)) => {
            let content = file::read(&path).map_err(|error| {
                logs.wrong("hash_key_file", format!("cannot use {}: {error}", path.display()))
            })?;
            Some(("hash_key_file", content.trim_ascii().to_vec()))
        }
        (None, None) => None,
    };
    match (logs.text("principal"), key) {
        (Some("name"), Some((name, _))) => {
            Err(logs.wrong(name, "is unused with principal = \"name\""))
        }
        (Some("name"), None) => Ok(LoggedPrincipal::Name),
        (_, None) => Ok(LoggedPrincipal::Hash),
        // A reader of the log could find the names by trying every short key.
        (_, Some((name, key))) if key.len() < HASH_KEY_BYTES_MIN => {
            let line = format!(
                "has {} bytes and needs at least {HASH_KEY_BYTES_MIN}: create one with `openssl \
                 rand -hex 32`",
                key.len()
            );
            Err(logs.wrong(name, line))
        }
        (_, Some((_, key))) => {
            let digest = digest::digest(&digest::SHA256, &key);
            let (half, _) = digest.as_ref().split_first_chunk().unwrap_or((&[0; 16], &[]));
            Ok(LoggedPrincipal::HashUnder(u128::from_be_bytes(*half)))
        }
    }
}

/// Whether calls are counted.
pub fn counts_calls(root: &ConfigSection) -> bool {
    root.section("metrics").and_then(|metrics| metrics.switch("enabled")).unwrap_or(true)
}
