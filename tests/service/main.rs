//! Services in place of agents: an embedder's own service behind each binding.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// `unwrap`, `expect` and `panic!` fail the test.

#[path = "../support/grpc.rs"]
mod grpc_client;
#[path = "../support/mod.rs"]
mod support;

mod held_back;
mod journal;
mod later;
mod owned;
mod removed;
mod routed;
mod router;
mod setup;
mod silent;
mod spaces;
mod table;
mod tap;
