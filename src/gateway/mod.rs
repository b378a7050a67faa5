//! Remote A2A agents behind this server, which sends each message to the upstream agent and
//! publishes the answers as events of a local task.
//!
//! Invariants: each message makes one upstream call, and each task has one upstream stream, for any
//! number of subscribers. Clients see only local ids; the upstream agent sees its own ids, and a
//! substitute for the local context id in a message that starts a conversation. The module opens no
//! sockets: `net` provides the transport and runs the futures.

mod answer;
mod call;
mod card;
mod fault;
mod ids;
#[cfg(not(feature = "internals"))]
#[cfg_attr(not(feature = "exec"), allow(dead_code, reason = "processes use the rest"))]
pub(crate) mod lines;
#[cfg(feature = "internals")]
pub mod lines;
mod message;
mod pace;
mod references;
mod relay;
mod sent_id;

#[cfg(feature = "embed")]
pub(crate) use answer::{prepare, publish};
pub use call::RelayedCall;
pub use card::profile_of;
pub use fault::{fault_of, outcome_of, transport_outcome};
#[cfg(feature = "embed")]
pub(crate) use message::to_local;
pub(crate) use pace::EventPace;
#[cfg(feature = "embed")]
pub(crate) use references::TaskReferences;
pub use relay::{UpstreamTasks, adopt, cancel, relay};
