//! The store and its locks: many threads on one, and every order that a scheduler tries.
//!
//! The scheduler is shuttle's and stands in for the threads of the system, so it has a build of its
//! own: `RUSTFLAGS="--cfg shuttle" cargo test --no-default-features --test concurrency`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(shuttle)]
mod scheduler;
#[cfg(not(shuttle))]
mod store;
