//! The server on real sockets: the binary as its users start it, or a `Server` in this process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/grpc.rs"]
mod grpc_client;
#[path = "../support/mod.rs"]
mod support;

mod admin;
mod agent_failures;
mod agents;
mod async_agents;
mod axum;
mod blocking;
mod calls;
#[cfg(feature = "compression")]
mod codings;
#[cfg(feature = "push")]
mod dead_letters;
mod disconnects;
mod fair;
#[cfg(feature = "gateway")]
mod functions;
#[cfg(feature = "gateway")]
mod gateway;
mod grpc;
mod hosts;
mod http2;
mod hyper;
mod idle;
#[cfg(feature = "auth")]
mod key_fetch;
mod limits;
mod listeners;
mod logs;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(feature = "push")]
mod owners;
mod pages;
mod peer_shares;
mod process;
#[cfg(all(feature = "exec", target_os = "linux"))]
mod process_lines;
#[cfg(all(feature = "exec", target_os = "linux"))]
mod processes;
mod refusals;
#[cfg(feature = "auth")]
mod repeats;
mod slow_turns;
#[cfg(target_os = "linux")]
mod soak;
mod sockets;
mod tenants;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(feature = "gateway")]
mod upstream_cards;
#[cfg(feature = "gateway")]
mod upstream_credentials;
#[cfg(feature = "gateway")]
mod upstream_faults;
#[cfg(feature = "gateway")]
mod upstream_frames;
#[cfg(feature = "gateway")]
mod upstream_restarts;
#[cfg(feature = "gateway")]
mod upstream_tasks;
#[cfg(feature = "gateway")]
mod upstreams;
#[cfg(feature = "push")]
mod webhooks;
mod websocket;
