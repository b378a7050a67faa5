//! The tokio driver: sockets, threads, time and randomness for the pure engine.
//!
//! In scope: listening, accepting within limits, one read, one `advance` and one write per event,
//! timers, back-pressure, signals and the drain. Out of scope: the meaning of the bytes. Every
//! worker is a thread with its own runtime; connections never move between workers.

mod accept;
mod admin;
mod admin_tasks;
#[cfg(feature = "gateway")]
mod adopted_tasks;
mod async_agent;
#[cfg(any(feature = "auth", feature = "push"))]
mod background;
mod bind;
mod blocking_agent;
mod blocking_pool;
#[cfg(feature = "client")]
mod client;
mod clock;
#[cfg(feature = "push")]
mod dead_letters;
pub(crate) mod descriptors;
mod detachable;
mod drive;
mod entropy;
mod error;
#[cfg(test)]
mod full_buffers;
#[cfg(feature = "gateway")]
mod function_agent;
#[cfg(feature = "gateway")]
mod function_answer;
mod held_back;
#[cfg(feature = "grpc")]
mod http2;
mod input_buffer;
#[cfg(feature = "auth")]
mod key_fetch;
#[cfg(feature = "push")]
mod last_posts;
mod line_rate;
#[cfg(feature = "gateway")]
mod line_turn;
mod local_addr;
#[cfg(feature = "logs")]
mod log;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
mod observers;
mod operating;
mod output_buffer;
#[cfg(feature = "push")]
mod own_address;
mod owned_turn;
#[cfg(feature = "gateway")]
mod owner_permits;
mod pages;
mod peer_table;
mod pool;
#[cfg(feature = "exec")]
mod process;
mod reload;
#[cfg(feature = "gateway")]
mod remote_agent;
mod report;
mod running;
#[cfg(feature = "metrics")]
mod scrape;
mod server;
mod server_state;
mod share;
mod signals;
mod slow_turn;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
#[cfg(feature = "otlp")]
mod traces;
mod transport;
#[cfg(feature = "gateway")]
mod turn_queue;
mod unix_socket;
#[cfg(feature = "gateway")]
mod upstream_card;
#[cfg(feature = "push")]
mod webhooks;
mod wheel;
mod worker;
#[cfg(feature = "gateway")]
mod worker_clients;
mod worker_state;

pub use async_agent::{AsyncAgent, async_agent, sleep};
#[cfg(feature = "cli")]
pub(crate) use background::BackgroundThread;
pub use blocking_agent::{BlockingAgent, blocking_agent};
#[cfg(feature = "client")]
pub use client::{
    BlockingClient, BlockingStream, ClientTls, ConnectGuard, HttpClient, HttpClientError,
    HttpClientOptions, HttpClientResponse, Proxies,
};
#[cfg(feature = "embed")]
pub(crate) use clock::unix_ms;
#[cfg(feature = "embed")]
pub(crate) use entropy::entropy;
pub use entropy::worker;
pub use error::ServerError;
#[cfg(feature = "gateway")]
pub use function_agent::{FunctionAgent, FunctionAgentError, FunctionOptions};
#[cfg(feature = "auth")]
pub use key_fetch::KeyFetcher;
#[cfg(feature = "logs")]
pub use log::{LogLevel, LoggedPrincipal};
#[cfg(all(feature = "internals", feature = "metrics"))]
pub use observers::counting;
pub use owned_turn::OwnedTurn;
#[cfg(all(feature = "ffi", unix))]
pub(crate) use process::set_up_processes;
#[cfg(feature = "exec")]
pub use process::{LinesAgent, ProcessAgent, ProcessCommand, ProcessCommandError, ProcessOptions};
pub use reload::{Controls, LIVE_LIMITS, Reload};
#[cfg(feature = "gateway")]
pub use remote_agent::{RemoteAgent, UpstreamLimits};
#[cfg(feature = "embed")]
pub(crate) use report::{agent_failure, info as report_line};
pub use running::Running;
pub use server::{LISTEN_DEFAULT, Server, start, workers_default};
pub use slow_turn::SlowTurn;
#[cfg(feature = "tls")]
pub use tls::{Tls, UsableTls};
#[cfg(feature = "otlp")]
pub use traces::{TraceCollector, TraceCollectorError};
#[cfg(feature = "push")]
pub use webhooks::WebhookWorker;
