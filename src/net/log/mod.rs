//! The log of a process, through `tracing`: text where stderr is a terminal, JSON otherwise.
//!
//! Invariant: workers never wait for the reader of the log; lines that the sink cannot take are
//! counted. No line has a secret or a query; lines have names of callers only if the operator wants
//! that.

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
    /// None.
    Off,
    /// Failures.
    Error,
    /// Failures, and warnings: limits that are hit, handshakes that fail, spans that are lost.
    Warn,
    /// Also events of the server: reloads, agents that block, the drain; calls.
    Info,
    /// All there is.
    Debug,
}

impl LogLevel {
    /// All of them.
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// The level of this name.
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

/// Makes this process write a log to stderr. If it has a log already, that one stays: a program may
/// have a subscriber of its own.
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
        // There is one at a time.
        let _ = FILTER.set(handle);
    }
}

/// Sets the level of the log from now on.
pub(super) fn set_level(level: LogLevel) {
    if let Some(filter) = FILTER.get() {
        // It fails only when the subscriber is gone.
        let _ = filter.reload(level.targets());
    }
}
