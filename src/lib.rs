//! Peregrine: a low-level, zero-copy A2A (Agent2Agent) protocol engine.

pub mod agent;
pub mod binding;
pub mod dialect;
pub mod engine;
pub mod fault;
pub mod http;
pub mod json;
pub mod limits;
pub mod model;
#[cfg(feature = "net")]
pub mod net;
pub mod op;
pub mod rpc;
pub mod service;
pub mod sse;
pub mod store;
pub mod waiter;

/// The programs of the README, compiled by `cargo test`.
#[cfg(all(doctest, feature = "net"))]
#[doc = include_str!("../README.md")]
struct Readme;
