//! The log of a process, through `tracing`: text where stderr is a terminal, JSON otherwise.
//!
//! Invariant: workers never wait for the reader of the log; lines that the sink cannot take are
//! counted. No line has a secret or a query; lines have names of callers only if the operator
//! configures this.

mod access;
mod sink;

use std::{io::IsTerminal, sync::OnceLock};

use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

pub(super) use access::AccessLog;
pub use access::LoggedPrincipal;
pub(super) use sink::{flush, lost_lines};

/// The level of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// No lines.
    Off,
    /// Failures.
    Error,
    /// Also warnings: reached limits, failed handshakes, lost spans.
    Warn,
    /// Also events of the server, such as reloads, blocking agents and the drain, and calls.
    Info,
    /// All lines.
    Debug,
}

impl LogLevel {
    /// All levels.
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// The name of the level.
    pub const fn word(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// The level with this name.
    pub fn of(word: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.word() == word)
    }

    /// Only our lines, not those of other crates.
    fn targets(self) -> Targets {
        let level = match self {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        Targets::new().with_target("peregrine", level)
    }
}

/// The filter of this process's log, if it has one.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Installs a log to stderr for this process. An existing log is not replaced: a program may have
/// its own subscriber.
pub(super) fn install(level: LogLevel) {
    if tracing::dispatcher::has_been_set() {
        return set_level(level);
    }
    let Some(sink) = sink::stderr() else { return };
    let (filter, handle) = reload::Layer::new(level.targets());
    let lines = match std::io::stderr().is_terminal() {
        true => fmt::layer().with_writer(sink).boxed(),
        false => fmt::layer().json().flatten_event(true).with_writer(sink).boxed(),
    };
    if tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().is_ok() {
        // A process has only one subscriber.
        let _ = FILTER.set(handle);
    }
}

/// Sets the level of the log from now on.
pub(super) fn set_level(level: LogLevel) {
    if let Some(filter) = FILTER.get() {
        // This fails only if the subscriber was dropped.
        let _ = filter.reload(level.targets());
    }
}
