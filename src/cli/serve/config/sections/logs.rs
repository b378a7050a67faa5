//! `[logs]` and `[metrics]`: what a server writes of what happens, and what it counts.

use peregrine::net::LogLevel;

use super::super::tree::{ConfigSection, Key, Shape, key};

const LEVEL: Shape = Shape::Choice(&["off", "error", "warn", "info", "debug"]);
const ONE_OF: Shape = Shape::Whole { min: 0, max: u32::MAX as u64 };

const LOGS: &[Key] = &[
    key("level", LEVEL, "\"info\"", "What is written to stderr").flag("log").live(),
    key("access", ONE_OF, "0", "One call of so many has a line: 1 each, 0 none")
        .flag("access-log")
        .live(),
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

/// What a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logs {
    /// Which lines.
    pub level: LogLevel,
    /// One call of so many has one; 0: none.
    pub access: u32,
}

/// The log.
pub fn logs(root: &ConfigSection) -> Logs {
    let section = root.section("logs");
    let level = section.and_then(|logs| logs.text("level")).and_then(LogLevel::of);
    let access = section.and_then(|logs| logs.whole("access"));
    Logs {
        level: level.unwrap_or(LogLevel::Info),
        // The shape has seen to it that it fits.
        access: access.and_then(|one_of| u32::try_from(one_of).ok()).unwrap_or(0),
    }
}

/// Whether calls are counted.
pub fn counts_calls(root: &ConfigSection) -> bool {
    root.section("metrics").and_then(|metrics| metrics.switch("enabled")).unwrap_or(true)
}
