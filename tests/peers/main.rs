//! Our client against servers of the official SDKs, Python and JavaScript, 1.0 and 0.3.
//!
//! What they answered once is kept in `tests/data/peers` and read here without them. The tests of
//! `live` need them: `tests/peers/run.sh cargo test --test peers -- --include-ignored`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod captured;
mod cut;
mod expected;
mod guarded;
mod live;
mod plain;
mod talk;
