//! One suite of scenarios over every pair of binding and generation, against the real binary.
//!
//! A scenario uses operations and canonical objects ([`model`]); a [`client::Link`] turns them into
//! the bytes of its binding on a socket, and [`wire_format`] reads the answers back, strictly. The
//! scenario has what every pair does alike; tables have the differences of generations: objects in
//! [`model`], behaviour in [`variants`], codes in [`errors`]. Every pair runs twice: by hand, byte
//! by byte, and by our own client ([`ours`]).

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/certificates.rs"]
mod certificates;

mod access;
mod cards;
mod client;
mod credentials;
mod dialects;
mod errors;
mod exchange;
mod expected_task;
mod gateway;
mod grpc;
mod h2;
mod http;
mod isolation;
mod jsonrpc;
mod life;
mod listing;
mod message_spec;
mod model;
mod operations;
mod ours;
mod pairs;
mod pb;
mod place;
mod rest;
mod server;
mod soak;
mod strangers;
mod streams;
mod theirs;
mod variants;
mod webhooks;
mod wire_format;
mod withdrawn;
mod ws;
