//! Options of an agent's processes.

use crate::limits::{AGENT_SILENCE_MS, AGENT_TURNS_MAX, AGENT_TURNS_QUEUED_MAX, PROCESSES_MAX};

/// Options of an agent's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Splits the output of a program into chunks, and is removed; `None`: each read is a chunk. A
    /// program that exchanges lines does not use it.
    pub separator: Option<String>,
    /// True: a client sees the last 4 KiB of the standard error of a failed process.
    pub show_errors: bool,
    /// Milliseconds without output after which a process with turns is killed.
    pub silence_ms: u64,
    /// Maximum number of concurrent processes.
    pub processes_max: usize,
    /// Maximum number of turns in flight in one process; a program that runs once for each message
    /// has one.
    pub turns_max: usize,
    /// Maximum number of turns that wait for a process; the next turn is refused (-32000,
    /// `turns_queued_max`).
    pub queue_max: usize,
    /// True: a turn that continues a task contains the earlier messages of the task.
    pub history: bool,
}

impl ProcessOptions {
    /// The defaults for a program that runs once for each message.
    pub fn text() -> ProcessOptions {
        ProcessOptions {
            separator: None,
            show_errors: false,
            silence_ms: AGENT_SILENCE_MS,
            processes_max: PROCESSES_MAX,
            turns_max: 1,
            queue_max: AGENT_TURNS_QUEUED_MAX,
            history: false,
        }
    }

    /// The defaults for a program that exchanges lines: one process, which can keep state in
    /// memory.
    pub fn lines() -> ProcessOptions {
        let (processes_max, turns_max) = (1, AGENT_TURNS_MAX);
        ProcessOptions { processes_max, turns_max, ..ProcessOptions::text() }
    }
}
