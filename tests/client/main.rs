//! The client, from its codecs to sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/certificates.rs"]
mod certificates;

mod behaviours;
mod bindings;
mod calls;
mod clear_errors;
mod codings;
mod counting;
mod floods;
mod frames;
mod grpc_floods;
mod grpc_repeats;
mod hostile;
mod http;
mod http2;
mod http2_ends;
mod identity;
mod in_process;
mod items;
mod known_cards;
mod limits;
mod misbehaving;
mod misbehaviours;
mod operations;
mod proxy;
mod redirects;
mod refusals;
mod repeats;
mod replies;
mod scripted;
mod signed;
mod sockets;
mod streams;
mod tls;
mod traces;
mod wire;
