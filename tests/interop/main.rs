//! One suite of scenarios over every pair of binding and generation, against the real binary.
//!
//! A scenario speaks in operations and canonical nouns ([`canon`]); a [`link::Link`] turns them
//! into the bytes of its binding on a socket, and [`spell`] turns the answers back, strictly. The
//! scenario has what every pair does alike; tables have the differences of generations: objects in
//! [`canon`], behaviour in [`variants`], codes in [`errors`]. Every pair runs twice: by hand, byte
//! by byte, and by our own client ([`ours`]).

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/certificates.rs"]
mod certificates;

mod access;
mod apart;
mod approach;
mod canon;
mod cards;
mod credentials;
mod dialects;
mod errors;
mod expect;
mod gateway;
mod grpc;
mod h2;
mod http;
mod jsonrpc;
mod life;
mod link;
mod listing;
mod message_spec;
mod operations;
mod ours;
mod pairs;
mod pb;
mod place;
mod rest;
mod server;
mod soak;
mod spell;
mod strangers;
mod streams;
mod theirs;
mod variants;
mod webhooks;
mod withdrawn;
mod ws;
