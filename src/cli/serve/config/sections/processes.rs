//! The keys of `[agents.NAME]` for an agent that is a program.

use peregrine::net::ProcessOptions;

use super::super::tree::{ConfigSection, Wrong};

/// The kind of an agent with a program that exchanges lines.
pub const LINES: &str = "exec+jsonl";

/// A program that runs an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The command line.
    pub command: String,
    /// True: the program exchanges lines and keeps running.
    pub is_lines: bool,
    /// True: a shell runs the command line, with the whole environment.
    pub is_shell: bool,
    /// Names of the variables that the program receives in addition to `PATH`.
    pub environment: Vec<String>,
    /// The options of the program's processes.
    pub options: ProcessOptions,
}

impl ProcessSpec {
    /// A program that is run for each message.
    pub fn text(command: &str) -> ProcessSpec {
        let (command, options) = (command.to_owned(), ProcessOptions::text());
        ProcessSpec { command, is_lines: false, is_shell: false, environment: Vec::new(), options }
    }

    /// A shell command; clients receive its error texts.
    pub fn shell(command: &str, separator: Option<String>) -> ProcessSpec {
        let options = ProcessOptions { separator, show_errors: true, ..ProcessOptions::text() };
        ProcessSpec { is_shell: true, options, ..ProcessSpec::text(command) }
    }

    /// A program that exchanges lines.
    pub fn lines(command: &str) -> ProcessSpec {
        let options = ProcessOptions::lines();
        ProcessSpec { is_lines: true, options, ..ProcessSpec::text(command) }
    }
}

/// The keys that need a command.
const OPTIONS: &[&str] = &[
    "environment",
    "chunk",
    "show_errors",
    "silence_ms",
    "processes",
    "queue",
    "turns",
    "history",
];

/// The program of an agent; `None`: the agent has no program.
///
/// # Errors
/// [`Wrong`].
pub fn read(agent: &ConfigSection) -> Result<Option<ProcessSpec>, Wrong> {
    let Some(command) = agent.text("command") else {
        return match OPTIONS.iter().find(|key| agent.value(key).is_some()) {
            Some(key) => Err(agent.wrong(key, "is only for agents with a command")),
            None => Ok(None),
        };
    };
    let mut spec = match agent.text("kind") {
        Some(LINES) => ProcessSpec::lines(command),
        Some(_) | None => ProcessSpec::text(command),
    };
    let foreign: &[&str] = if spec.is_lines { &["chunk"] } else { &["turns", "history"] };
    if let Some(key) = foreign.iter().find(|key| agent.value(key).is_some()) {
        let kind = if spec.is_lines { "exec" } else { LINES };
        return Err(agent.wrong(key, format!("is only for the agent kind {kind}")));
    }
    spec.environment = agent.strings("environment").unwrap_or_default();
    let options = &mut spec.options;
    options.separator = agent.text("chunk").map(str::to_owned);
    options.show_errors = agent.switch("show_errors").unwrap_or_default();
    options.silence_ms = agent.millis("silence_ms")?.unwrap_or(options.silence_ms);
    let whole = |name, default| agent.whole(name).map_or(default, |number| number as usize);
    options.processes_max = whole("processes", options.processes_max);
    options.queue_max = whole("queue", options.queue_max);
    options.turns_max = whole("turns", options.turns_max);
    options.history = agent.switch("history").unwrap_or_default();
    Ok(Some(spec))
}
