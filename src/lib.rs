//! Peregrine: a low-level, zero-copy A2A (Agent2Agent) protocol engine.

pub mod http;
pub mod json;
pub mod sse;
