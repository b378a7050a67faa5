//! HTTP/1.1 as a strict, pure codec: bytes to views, values to bytes. This module is the server's
//! side, `client` the client's.
//!
//! Invariant: bytes that RFC 9112 allows a server to refuse are refused, and every such refusal
//! ([`Reject`]) closes the connection. Of A2A the codec has only the names of its fields
//! ([`Field`]); it uses no sockets, clocks or threads. No bytes cause a panic, and no loop is
//! longer than its input.
//!
//! The order of use: [`find_head`] until it is complete, [`parse_head`] once (or [`HeadMemo`] for
//! both), then either `Content-Length` bytes or [`Chunked`], then [`response`].
//! [`HeadMemo::read_parts`] reads a head that comes in parts ([`RequestParts`]).

#[cfg(any(feature = "client", feature = "internals"))]
pub mod client;
pub mod date;
pub mod entity_tag;
pub mod framing;
pub mod media;
pub mod path;
pub mod query;
pub mod response;

mod authority;
mod chunked;
mod coding;
mod escape;
mod field_lines;
mod fields;
mod head;
mod host;
mod kept;
mod kept_parts;
mod line;
mod memo;
mod parse;
mod ready;
mod reject;
mod request_parts;
mod scan;
mod secret;
mod target;

pub use authority::is_valid as is_authority;
pub use chunked::{ChunkLimits, Chunked};
#[cfg(feature = "compression")]
pub use coding::gzip;
pub use coding::{ACCEPTED_CODINGS, ContentCoding, InflateError};
#[cfg(feature = "client")]
pub(crate) use field_lines::USER_AGENT;
pub(crate) use field_lines::field_lines;
pub use field_lines::{FieldLines, FieldLinesBuf};
pub use fields::{HeadFields, list};
pub use framing::BodyFraming;
pub use head::{Field, HEAD_BYTES_CEILING, Head, HeadLayout};
pub use host::{CACHED_HOST_BYTES_MAX, Host};
pub use line::{Method, Version};
pub use memo::{Found, HeadMemo};
#[cfg(feature = "internals")]
pub use parse::parse_head;
pub use ready::ReadyResponse;
pub use reject::Reject;
pub use request_parts::{HeadBuf, PartsReject, RequestParts};
pub use scan::{Scan, find_head};
pub use secret::SecretBytes;
#[cfg(feature = "net")]
pub use secret::wipe;
pub use target::TargetForm;

/// The limits of a request head; the codec has no limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of a whole head, including leading empty lines and the final empty line (at most
    /// [`HEAD_BYTES_CEILING`]); above: 431.
    pub head_bytes_max: usize,
    /// Field lines in a head (at most `FIELDS_CEILING`); above: 431.
    pub fields_max: usize,
    /// Bytes of the request target; above: 414.
    pub target_bytes_max: usize,
    /// Bytes of the query inside the target; above: 414.
    pub query_bytes_max: usize,
    /// Bytes of the method; above: 400 (RFC 9112 §3).
    pub method_bytes_max: usize,
    /// Bytes of a body; a larger Content-Length is refused at once with 413.
    pub body_bytes_max: u64,
}

#[cfg(test)]
pub(crate) const TEST_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 * 1024,
    fields_max: 100,
    target_bytes_max: 8 * 1024,
    query_bytes_max: 4 * 1024,
    method_bytes_max: 32,
    body_bytes_max: 4 * 1024 * 1024,
};
