//! The head and the trailers of a response, buffered while its content is read.
//!
//! A head that arrives in one piece is read in place and copied once. A head that equals the head
//! of the previous exchange, except for values of fields, is not parsed again.

use crate::{
    client::{ClientLimits, TransportError},
    http::{
        HeadFields, Method,
        client::{ReceivedHead, ResponseLayout, ResponseLimits, ResponseReject},
    },
};

/// A response without its content; reused for each exchange.
#[derive(Debug, Default)]
pub struct ResponseBuf {
    bytes: Vec<u8>,
    layout: ResponseLayout,
    /// True: head and trailers belong to the previous exchange, for comparison.
    is_past: bool,
    /// Field lines, each with its CRLF.
    pub(super) trailers: Vec<u8>,
}

impl ResponseBuf {
    /// The final head, after [`Head`](super::Http1Event::Head) was reported.
    pub fn head(&self) -> ReceivedHead<'_> {
        self.layout.head(&self.bytes)
    }

    /// The trailer fields received so far, complete once the response has ended. Trailers follow
    /// the content, so none of them may describe it (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> HeadFields<'_> {
        HeadFields::of_lines(&self.trailers)
    }

    /// The first field of this name, in any case, in the head or else in the trailers.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.head().field(name).or_else(|| self.trailers().values(name).next())
    }

    /// Allocated bytes: a caller that reuses buffers may drop a large one.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.layout.held_bytes() + self.trailers.capacity()
    }

    /// True: no byte of a head has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.is_past || self.bytes.is_empty()
    }

    /// Clears the response and retains its memory for the next one.
    pub(super) fn clear(&mut self) {
        self.is_past = true;
        self.trailers.clear();
    }

    /// Continues reading a head. When the head is complete, copies it and returns how many bytes of
    /// `input` belong to it.
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
        // Usually a head arrives in one piece.
        if before == 0 {
            let whole = self.layout.read(input, method, limits)?;
            self.bytes.extend_from_slice(&input[..whole.unwrap_or(input.len())]);
            return Ok(whole);
        }
        // A head beyond the limit is judged by the part within the limit.
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
    /// The limits of one HTTP/1.x response.
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
