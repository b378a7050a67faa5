//! Our client and the command line against servers of the official SDKs, Python and JavaScript, of
//! 1.0 and 0.3.
//!
//! Recorded answers are in `tests/data/peers` and are read here without the servers. The tests of
//! `live` need the servers, as do those of `cli`, which run the binary:
//! `tests/peers/run.sh cargo test --test peers -- --include-ignored`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod captured;
mod cli;
mod cut;
mod expected;
mod gateway;
mod guarded;
mod live;
mod plain;
#[allow(dead_code, reason = "the tests of the command line use the rest")]
#[path = "../cli/run.rs"]
mod run;
mod talk;
#[path = "../cli/types.rs"]
mod types;
