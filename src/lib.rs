//! Peregrine: an A2A (Agent2Agent) server, gateway and client for every generation of the protocol.
//!
//! One port answers clients of 0.1, 0.2, 0.3 and 1.0 over JSON-RPC, HTTP+JSON, gRPC and WebSocket;
//! a task created through one of them is readable through all. Agents are functions and values of
//! this program, other programs, or remote agents.
//!
//! # How it works
//!
//! Bytes go into [`engine::Conn`] and bytes come out; a request that another library has parsed
//! goes into [`engine::Exchange`]. Time, randomness and wake-ups are arguments. The values of a
//! request are borrowed from its body, and a task is stored once, as the log of its events, from
//! which answers and streams are written straight into the output.
//!
//! In scope: HTTP/1.1 and WebSocket on the server's side, JSON-RPC 2.0 with batches, HTTP+JSON,
//! server-sent events, the messages of gRPC, the wire families 0.1, 0.2/0.3 and 1.0 and some
//! platforms' dialects, a bounded store in memory, webhooks, agents inside the process, in programs
//! and on other servers; and a client of all of these bindings and families. Features, all on by
//! default, add the tokio driver (`net`), compressed requests (`compression`), HTTP/2 and with it
//! gRPC on the same port (`grpc`), TLS (`tls`), the agent that follows a file (`script`), the
//! client (`client`), remote A2A agents and HTTP functions as agents (`gateway`), programs as
//! agents (`exec`), authenticated callers (`auth`), webhooks (`push`), `/metrics` (`metrics`), the
//! load generator (`load`), the log (`logs`), traces (`otlp`), and the command line, which is the
//! binary (`cli`). Two more are for the tests of this repository: `internals` and `test-echo`. Off
//! by default: `ffi`, the C interface, and `embed`, the common part of `ffi` and the Python
//! package.
//!
//! Out of scope so far: persistence.
//!
//! Start with [`agent::Agent`] to answer messages, `net::Server` to serve them,
//! [`engine::Exchange`] to serve them below an HTTP server of your own, [`service::Service`] to
//! answer calls without agents of this crate, and `client::Client` to call agents.

// The command line imports the library by its name, like any other program.
#[cfg(feature = "cli")]
extern crate self as peregrine;

pub mod agent;
pub mod auth;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "embed")]
pub mod embed;
pub mod engine;
pub mod fault;
#[cfg(feature = "ffi")]
pub mod ffi;
#[cfg(feature = "gateway")]
pub mod gateway;
mod histogram;
pub mod limits;
#[cfg(feature = "load")]
pub mod load;
pub mod model;
#[cfg(feature = "net")]
pub mod net;
pub mod service;

// All other modules are internal: public only for the tests, benches and fuzz targets of this
// repository, with the feature `internals`.
#[cfg(not(feature = "internals"))]
mod binding;
#[cfg(feature = "internals")]
pub mod binding;
#[cfg(not(feature = "internals"))]
mod dialect;
#[cfg(feature = "internals")]
pub mod dialect;
#[cfg(not(feature = "internals"))]
mod http;
#[cfg(feature = "internals")]
pub mod http;
#[cfg(not(feature = "internals"))]
mod json;
#[cfg(feature = "internals")]
pub mod json;
#[cfg(not(feature = "internals"))]
mod network;
#[cfg(feature = "internals")]
pub mod network;
#[cfg(not(feature = "internals"))]
mod op;
#[cfg(feature = "internals")]
pub mod op;
#[cfg(not(feature = "internals"))]
mod pb;
#[cfg(feature = "internals")]
pub mod pb;
#[cfg(not(feature = "internals"))]
mod permits;
#[cfg(feature = "internals")]
pub mod permits;
#[cfg(feature = "push")]
pub mod push;
#[cfg(not(feature = "internals"))]
mod rpc;
#[cfg(feature = "internals")]
pub mod rpc;
#[cfg(not(feature = "internals"))]
mod shares;
#[cfg(feature = "internals")]
pub mod shares;
#[cfg(not(feature = "internals"))]
mod sse;
#[cfg(feature = "internals")]
pub mod sse;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
pub mod store;
#[cfg(not(feature = "internals"))]
mod waiter;
#[cfg(feature = "internals")]
pub mod waiter;
#[cfg(not(feature = "internals"))]
mod watch;
#[cfg(feature = "internals")]
pub mod watch;
#[cfg(not(feature = "internals"))]
mod ws;
#[cfg(feature = "internals")]
pub mod ws;

/// The examples of the client guide, compiled by `cargo test`.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../docs/guide/client.md")]
struct ClientGuide;

/// The examples of the features page, compiled by `cargo test`.
#[cfg(all(doctest, feature = "net"))]
#[doc = include_str!("../docs/reference/features.md")]
struct FeaturesPage;
