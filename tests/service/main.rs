//! What answers in place of agents: services of one's own behind every binding.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// A test that cannot go on has failed.

#[path = "../support/mod.rs"]
mod support;

mod owned;
mod setup;
