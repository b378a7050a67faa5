//! Agents that are programs of the system.
//!
//! Invariants: every process is in a group of its own, which is killed when its task has ended and
//! at the end of the server. A child gets three pipes and the environment that the configuration
//! lists. Nothing of a request is on a command line.

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
