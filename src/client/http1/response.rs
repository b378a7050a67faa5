//! The head and the trailers of a response, kept while its content is read.
//!
//! A head is read where it arrives, if it comes in one piece, and copied once; one that is the same
//! as that of the exchange before, but for values of fields, is known from there.

use crate::{
    client::{ClientLimits, TransportError},
    http::{
        HeadFields, Method,
        client::{ReceivedHead, ResponseLayout, ResponseLimits, ResponseReject},
    },
};

/// A response but for its content; reused from exchange to exchange.
#[derive(Debug, Default)]
pub struct ResponseBuf {
    bytes: Vec<u8>,
    layout: ResponseLayout,
    /// Both are those of the exchange before, to compare with.
    is_past: bool,
    /// Field lines, each with its CRLF.
    pub(super) trailers: Vec<u8>,
}

impl ResponseBuf {
    /// The final head, once [`Head`](super::Http1Event::Head) has said that it is there.
    pub fn head(&self) -> ReceivedHead<'_> {
        self.layout.head(&self.bytes)
    }

    /// The trailer fields that have come, all of them once the response has ended. They were sent
    /// behind the content, so none of them says what the content is (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> HeadFields<'_> {
        HeadFields::of_lines(&self.trailers)
    }

    /// The first field of this name in the head, else in the trailers; a name in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.head().field(name).or_else(|| self.trailers().values(name).next())
    }

    /// Bytes behind pointers: a caller that reuses buffers may drop a large one.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.layout.held_bytes() + self.trailers.capacity()
    }

    /// True: not a byte of a head has come.
    pub(super) fn is_empty(&self) -> bool {
        self.is_past || self.bytes.is_empty()
    }

    /// Forgets the response, and keeps the room for the next one.
    pub(super) fn clear(&mut self) {
        self.is_past = true;
        self.trailers.clear();
    }

    /// Reads on in a head; says how many bytes of `input` were its last ones, and copies it.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        method: Method,
        limits: &ResponseLimits,
    ) -> Result<Option<usize>, ResponseReject> {
        if std::mem::take(&mut self.is_past) {
            if let Some(whole) = self.layout.read_again(&self.bytes, input, method, limits) {
                self.bytes.clear();
                self.bytes.extend_from_slice(&input[..whole]);
                return Ok(Some(whole));
            }
            self.bytes.clear();
            self.layout.clear();
        }
        let before = self.bytes.len();
        // As a rule a head comes in one piece.
        if before == 0 {
            let whole = self.layout.read(input, method, limits)?;
            self.bytes.extend_from_slice(&input[..whole.unwrap_or(input.len())]);
            return Ok(whole);
        }
        // A head that goes on behind what fits is refused for what does.
        let room = limits.head_bytes_max.saturating_sub(before);
        self.bytes.extend_from_slice(&input[..input.len().min(room)]);
        let whole = self.layout.read(&self.bytes, method, limits)?;
        Ok(whole.map(|head_len| {
            self.bytes.truncate(head_len);
            head_len.saturating_sub(before)
        }))
    }
}

impl ClientLimits {
    /// Those of one response of HTTP/1.x.
    pub fn of_response(&self) -> ResponseLimits {
        ResponseLimits {
            head_bytes_max: self.response_head_bytes_max,
            fields_max: self.response_fields_max,
            body_bytes_max: self.body_bytes_max as u64,
        }
    }
}

impl From<ResponseReject> for TransportError {
    fn from(reject: ResponseReject) -> TransportError {
        match reject.limit() {
            Some(limit) => TransportError::TooLarge(limit),
            None => TransportError::Malformed(reject.reason()),
        }
    }
}
