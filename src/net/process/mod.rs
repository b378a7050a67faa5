//! Agents that are programs of the system.
//!
//! Invariants: every process has a separate group, which is killed when the process exits, when its
//! only task has ended, and when the server ends. A child gets three pipes and the environment that
//! the configuration lists. A command line contains no data of a request.

mod command;
mod group;
mod line_process;
mod lines_agent;
mod options;
mod output;
mod pool;
mod stderr;
mod text_agent;

#[cfg(all(feature = "ffi", unix))]
pub(crate) use command::set_up_processes;
pub use command::{ProcessCommand, ProcessCommandError};
pub use lines_agent::LinesAgent;
pub use options::ProcessOptions;
pub use text_agent::ProcessAgent;
