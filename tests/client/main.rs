//! The client, from its codecs to sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/certificates.rs"]
mod certificates;

mod calls;
mod codings;
mod counting;
mod fault_errors;
mod frames;
mod grpc_floods;
mod grpc_repeats;
mod hostile_servers;
mod http;
mod http2;
mod http2_ends;
mod http_fault_cases;
mod http_faults;
mod http_floods;
mod identity;
mod in_process;
mod items;
mod known_cards;
mod limits;
mod operations;
mod proxy;
mod redirects;
mod refused_streams;
mod repeats;
mod replies;
mod scripted;
mod server_faults;
mod signed;
mod sockets;
mod stream_faults;
mod streams;
mod tls;
mod traces;
mod wire;
