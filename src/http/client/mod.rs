//! HTTP/1.1 client side as a strict, pure codec: responses to views, requests to bytes.
//!
//! Invariant: a response is as dangerous as a request. Bytes that two readers could measure
//! differently are refused, every refusal ([`ResponseReject`]) ends its connection, and nothing is
//! guessed. The rules for lines, lengths and chunks are those of the server. No bytes cause a
//! panic, and nothing is allocated once a [`ResponseLayout`] has memory for the fields of a head.
//!
//! The order of use: [`write_request`], [`ResponseLayout::read`] until the head is complete, then
//! the body according to its [`ResponseFraming`], with [`Chunked`](super::Chunked) for chunks.

mod framing;
mod head;
mod reject;
mod request;

pub use framing::ResponseFraming;
pub use head::{ReceivedHead, ResponseLayout};
pub use reject::ResponseReject;
pub use request::{RequestHead, RequestLine, SentTarget, UnsendableTarget, write_request};

/// The limits of a response; the codec has no limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Bytes of a head, including its final empty line, and of a trailer section.
    pub head_bytes_max: usize,
    /// Field lines in a head.
    pub fields_max: usize,
    /// Bytes of a body before its content is decoded. An event stream has no limit here, because
    /// its reader bounds each event.
    pub body_bytes_max: u64,
}

#[cfg(test)]
pub(crate) const TEST_LIMITS: ResponseLimits =
    ResponseLimits { head_bytes_max: 16 * 1024, fields_max: 10, body_bytes_max: 1_000 };
