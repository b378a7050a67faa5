//! Properties with seeds for any input, and the inputs that fuzzers found.
//!
//! A property is a function of bytes; the files that fuzz targets share (`fuzz/fuzz_targets`)
//! depend only on the crates in `fuzz/Cargo.toml`. Comparisons with an oracle that fuzzers do not
//! build are in separate files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/grpc.rs"]
mod grpc_client;
#[path = "../support/mod.rs"]
mod support;

mod admission;
mod answers;
mod cards;
mod carriers;
mod config;
mod conn;
mod corpus;
mod dialect;
mod engine;
mod exchange;
mod grpc;
mod grpc_calls;
mod grpc_oracle;
mod http;
mod http_client;
mod http_client_oracle;
mod http_parts;
mod inverse;
mod json;
mod lines;
mod replies;
mod rest;
mod sse;
mod store;
mod stream;
mod task;
mod tokens;
mod ws;
mod ws_oracle;
