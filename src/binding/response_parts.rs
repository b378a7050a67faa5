//! An answer in parts: head, content, trailers. A driver with its own syntax takes the parts when
//! they are final.
//!
//! Invariant: a rollback removes all parts. The head of a single answer is final when the answer is
//! finished; the head of a stream is final at the end of the poll in which the stream began. No
//! part is taken earlier.

use super::responder::{Content, Responder, ResponseHead};
use crate::{
    binding::grpc::frame,
    http::{FieldLinesBuf, media, response},
};
#[cfg(feature = "compression")]
use crate::{http, limits::COMPRESSED_BYTES_MIN};

/// Receives an answer; the content is in the output buffer.
#[derive(Debug, Default)]
pub struct ResponseParts {
    /// True: the request was HEAD, so content is omitted.
    head_only: bool,
    /// True: trailers can follow the content.
    takes_trailers: bool,
    /// The offset of the content in the output.
    start: usize,
    head: Option<HeadParts>,
    trailers: FieldLinesBuf,
    is_complete: bool,
    /// True: the client accepts gzip over gRPC.
    accepts_gzip: bool,
}

/// The head of an answer.
#[derive(Debug)]
pub struct HeadParts {
    /// The status of HTTP (RFC 9110 §15).
    pub status: u16,
    /// The media type of the content; empty: no `Content-Type`.
    pub media: &'static str,
    /// The other fields.
    pub fields: FieldLinesBuf,
    /// How the content is written.
    pub content: Content,
    /// The length of the content in bytes, if it is final and no trailers follow; also for an
    /// answer to HEAD, which omits the content.
    pub content_length: Option<u64>,
}

impl ResponseParts {
    /// The parts of an answer; `head_only`: the request was HEAD; `takes_trailers`: trailers can
    /// follow the content.
    pub fn new(head_only: bool, takes_trailers: bool) -> ResponseParts {
        ResponseParts { head_only, takes_trailers, ..ResponseParts::default() }
    }

    /// Records that the client accepts gRPC messages compressed with gzip.
    pub fn accept_gzip(&mut self) {
        self.accepts_gzip = true;
    }

    /// Compresses the single message of a gRPC answer, if that saves bytes.
    #[cfg(feature = "compression")]
    fn compress(&mut self, out: &mut Vec<u8>) {
        let Some(head) = &mut self.head else { return };
        let message_at = self.start + frame::PREFIX;
        let is_grpc = head.media == media::GRPC;
        if !is_grpc || out.len() < message_at + COMPRESSED_BYTES_MIN {
            return;
        }
        let Some(coded) = out.get(message_at..).and_then(http::gzip) else { return };
        out.truncate(self.start);
        out.push(1);
        out.extend_from_slice(&(coded.len() as u32).to_be_bytes());
        out.extend_from_slice(&coded);
        head.fields.push("grpc-encoding", "gzip");
    }

    #[cfg(not(feature = "compression"))]
    fn compress(&mut self, _: &mut Vec<u8>) {}

    /// True: trailers can follow the content.
    pub fn takes_trailers(&self) -> bool {
        self.takes_trailers
    }

    /// Takes the head, once.
    pub fn take_head(&mut self) -> Option<HeadParts> {
        self.head.take()
    }

    /// Drops all parts that were not taken.
    pub fn restart(&mut self, out: &mut Vec<u8>) {
        self.start = 0;
        self.rollback(out);
        self.is_complete = false;
    }

    /// Sets the trailers.
    pub fn set_trailers(&mut self, trailers: FieldLinesBuf) {
        self.trailers = trailers;
    }

    /// The trailers of a complete answer.
    pub fn end(&self) -> Option<&FieldLinesBuf> {
        self.is_complete.then_some(&self.trailers)
    }

    /// True: there is a head that was not taken, or the answer is complete.
    pub fn has_news(&self) -> bool {
        self.head.is_some() || self.is_complete
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |head| head.fields.held_bytes());
        head + self.trailers.held_bytes()
    }
}

impl HeadParts {
    /// Passes the names and values of all fields to `each`, including content type and length.
    pub fn for_each_field(&self, mut each: impl FnMut(&str, &str)) {
        if !self.media.is_empty() {
            each("Content-Type", self.media);
        }
        if let Some(length) = self.content_length {
            each("Content-Length", &length.to_string());
        }
        if self.media == media::GRPC {
            each("grpc-accept-encoding", frame::ACCEPTED_ENCODINGS);
        }
        self.fields.get().iter().for_each(|(name, value)| each(name, value));
    }
}

impl Responder for ResponseParts {
    fn begin(&mut self, out: &mut Vec<u8>, head: &ResponseHead<'_>) {
        let ResponseHead { status, media, fields, content } = *head;
        self.start = out.len();
        let (fields, content_length) = (FieldLinesBuf::of(&fields), None);
        self.head = Some(HeadParts { status, media, fields, content, content_length });
    }

    fn piece(&mut self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>)) {
        write(out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.accepts_gzip {
            self.compress(out);
        }
        if let Some(head) = &mut self.head
            && head.content == Content::Whole
        {
            // RFC 9110 §8.6: an answer with a status without content has no `Content-Length`.
            let length = out.len().saturating_sub(self.start) as u64;
            let has_length = response::has_body(head.status) && self.trailers.is_empty();
            head.content_length = has_length.then_some(length);
            if self.head_only {
                out.truncate(self.start);
            }
        }
        self.is_complete = true;
    }

    fn rollback(&mut self, out: &mut Vec<u8>) {
        out.truncate(self.start);
        self.head = None;
        self.trailers = FieldLinesBuf::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{FieldLines, media};

    fn head(status: u16, content: Content) -> ResponseHead<'static> {
        ResponseHead { status, media: media::JSON, fields: [FieldLines::NONE; 2], content }
    }

    /// Status, length and content of an answer.
    fn answer(to_head: bool, status: u16, content: Content) -> (u16, Option<u64>, Vec<u8>) {
        let (mut parts, mut out) = (ResponseParts::new(to_head, false), Vec::new());
        parts.begin(&mut out, &head(500, Content::Whole));
        out.extend_from_slice(b"half of an ans");
        parts.rollback(&mut out);
        assert!(!parts.has_news());
        parts.begin(&mut out, &head(status, content));
        if response::has_body(status) && content != Content::Omitted {
            parts.piece(&mut out, &mut |out| out.extend_from_slice(b"{}"));
        }
        parts.finish(&mut out);
        assert!(parts.end().is_some());
        let head = parts.take_head();
        assert!(parts.take_head().is_none());
        let (status, length) = head.map_or((0, None), |head| (head.status, head.content_length));
        (status, length, out)
    }

    #[test]
    fn rollback_removes_the_earlier_answer() {
        assert_eq!(answer(false, 200, Content::Whole), (200, Some(2), b"{}".to_vec()));
        assert_eq!(answer(false, 200, Content::Stream), (200, None, b"{}".to_vec()));
    }

    #[test]
    fn rfc9110_8_6_head_has_content_length_204_and_304_do_not() {
        assert_eq!(answer(true, 200, Content::Whole), (200, Some(2), Vec::new()));
        assert_eq!(answer(true, 200, Content::Omitted), (200, None, Vec::new()));
        for status in [204, 304] {
            assert_eq!(answer(false, status, Content::Whole), (status, None, Vec::new()));
        }
    }
}
