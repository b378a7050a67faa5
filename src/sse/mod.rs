//! The Server-Sent Events codec: frames appended to a buffer, and an incremental parser.
//!
//! Invariant: output is all or nothing: it starts with a mark that can roll back. A payload is
//! rendered directly into the output buffer. Input is bounded, may be cut at any byte, and is read
//! as the WHATWG event-stream standard defines.
//!
//! In scope: event frames, comments, chunked framing around them, parsing. Out of scope: the
//! content of payloads, the time of sending, reconnecting.

pub mod chunk;
pub mod frame;
#[cfg(any(feature = "client", feature = "internals"))]
pub mod parse;

pub use chunk::{chunk_begin, chunk_end, chunk_last};
pub use frame::{KEEP_ALIVE, begin, cancel, error_event, finish, finish_line};
#[cfg(any(feature = "client", feature = "internals"))]
#[cfg_attr(not(feature = "internals"), allow(unused_imports))]
pub use parse::{ParsedStep, SseError, SseEvent, SseParser};
