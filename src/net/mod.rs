//! The tokio driver: sockets, threads, time and randomness for the pure engine.
//!
//! In scope: listening, accepting within limits, one read, one `advance` and one write per event,
//! timers, back-pressure, signals and the drain. Out of scope: what the bytes mean. Every worker is
//! a thread with a runtime of its own; connections never move between workers.

mod accept;
mod bind;
mod carrier;
mod clock;
mod descriptors;
mod drive;
mod entropy;
mod error;
#[cfg(feature = "grpc")]
mod http2;
mod input;
mod job;
mod local;
mod output;
mod pool;
mod report;
mod server;
mod share;
mod side;
mod signals;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod transport;
mod wheel;
mod worker;

pub use error::ServerError;
pub use job::{AsyncAgent, async_agent, sleep};
pub use server::{LISTEN_DEFAULT, Running, Server, workers_default};
#[cfg(feature = "tls")]
pub use tls::Tls;
