//! The wire format of protocol buffers: reads fields from bytes, and writes fields to bytes.
//!
//! Invariant: reading borrows and never copies, writing appends, and a length is filled in after
//! the content. Bytes that do not follow the encoding guide of proto3 are [`Malformed`]; no code
//! here recurses, allocates or panics on received bytes. Field numbers and types are left to the
//! caller.
//!
//! In scope: varints, fixed 32 and 64 bits, lengths, groups (which proto3 skips). Out of scope:
//! descriptors, packed lists, JSON.

mod read;
mod write;

pub use read::{Fields, Malformed, Value};
pub use write::{Nested, Writer};
