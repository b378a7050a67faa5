//! A server for a program in another language: the base of the C interface and the Python wheel.
//!
//! The server ([`HostServer`]) has the configuration of the binary, and agents of the program. A
//! turn of such an agent goes into a [`HostQueue`]; a thread of the program takes the turn, and
//! answers through the [`HostTurn`], from any thread. So no worker waits for the program.
//!
//! A [`HostEngine`] has no sockets: the program hands over requests or the bytes of connections,
//! and provides the clock ([`HostTime`]). A [`HostCall`] is a call of the program itself.
//!
//! Limits: turns in queues count as waiting calls (`deferred_calls_max`), and their bytes like
//! those of other calls. Events have the limits of tasks.

mod agent;
mod answer;
mod call;
mod cancel;
mod engine;
mod error;
mod events;
mod queue;
mod server;
mod turn;

pub use agent::HostAgent;
pub use answer::HostAnswer;
pub use call::{HostCall, HostCaller, HostReply};
pub use cancel::HostCancel;
pub use engine::{HostCx, HostEngine, HostTime, OpenSlot, OwnTime};
pub use error::HostError;
pub use events::EventField;
pub use queue::{HostItem, HostQueue};
pub use server::{HostReloader, HostServer};
pub use turn::HostTurn;

pub use crate::cli::serve::HostSettings;
