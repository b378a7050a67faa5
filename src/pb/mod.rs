//! Protocol buffers, the wire format alone: fields out of bytes, fields into bytes.
//!
//! Invariant: reading borrows and never copies, writing appends, and a length is filled in after
//! the content. A message follows the encoding guide of proto3 or it is [`Malformed`]; no code here
//! recurses, allocates or panics on bytes. Field numbers and types belong to the reader.
//!
//! In scope: varints, fixed 32 and 64 bits, lengths, groups (which proto3 skips). Out of scope:
//! descriptors, packed lists, JSON.

mod read;
mod write;

pub use read::{Fields, Malformed, Value};
pub use write::{Nested, Writer};
