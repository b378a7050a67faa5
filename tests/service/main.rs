//! What answers in place of agents: services of one's own behind every binding.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// A test that cannot go on has failed.

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
