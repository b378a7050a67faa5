//! The store and its locks: many threads on one store, and the orders that a scheduler explores.
//!
//! The scheduler is shuttle's and replaces the threads of the system, so it needs a separate build:
//! `RUSTFLAGS="--cfg shuttle" cargo test --no-default-features --test concurrency`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(shuttle)]
mod scheduler;
#[cfg(not(shuttle))]
mod store;
