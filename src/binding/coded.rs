//! Content with a coding (`Content-Encoding`), which is decoded after the caller was admitted. Each
//! response to such a request lists the accepted codings (RFC 9110 §12.5.3).
//!
//! Decoded content lives while its request is handled, in one poll of a worker. The request holds
//! the buffers of a large body (at most `large_bodies_max` requests do); the parser reads the
//! content in place, without a copy.

use crate::{
    binding::body_limit::{BodyLimit, RequestRefusal},
    fault::{Fault, FaultKind},
    http::{ACCEPTED_CODINGS, ContentCoding, FieldLinesBuf, Head, InflateError},
    json::{self, Source},
};

/// Decoded content.
pub struct DecodedBody(Vec<u8>);

impl DecodedBody {
    /// The content.
    pub fn source(&mut self) -> Source<'_> {
        let length = self.0.len().saturating_sub(json::PADDING);
        Source::roomy(&mut self.0, length)
    }
}

/// The refusal of content.
pub struct CodingRefusal {
    /// The fault.
    pub fault: Fault,
    /// The HTTP status; `None`: the status of the fault in the dialect.
    pub status: Option<u16>,
}

/// Adds the field that lists the accepted codings (RFC 9110 §12.5.3, and §15.5.16 for 415).
pub fn name_accepted(fields: &mut FieldLinesBuf) {
    fields.push("Accept-Encoding", ACCEPTED_CODINGS);
}

/// The decoded content of a request; `None`: the content has no coding.
///
/// # Errors
/// [`CodingRefusal`]: the coding is not supported, or the content is malformed or too large.
#[cold]
pub fn decode(
    head: &Head<'_>,
    body: &[u8],
    limit: BodyLimit,
) -> Result<Option<DecodedBody>, Box<CodingRefusal>> {
    let coding = match ContentCoding::of(head) {
        Ok(Some(coding)) if !body.is_empty() => coding,
        Ok(_) => return Ok(None),
        Err(name) => return Err(unsupported(&name)),
    };
    match coding.inflate(body, limit.bytes_max, json::PADDING) {
        Ok(content) => Ok(Some(DecodedBody(content))),
        Err(error) => Err(refusal(coding, error, limit)),
    }
}

fn unsupported(name: &str) -> Box<CodingRefusal> {
    let shown: String = name.chars().take(64).collect();
    let why = format!("Content-Encoding {shown:?} is not supported; accepted: {ACCEPTED_CODINGS}");
    let fault = Fault::because(FaultKind::ContentTypeNotSupported, why);
    Box::new(CodingRefusal { fault, status: Some(415) })
}

fn refusal(coding: ContentCoding, error: InflateError, limit: BodyLimit) -> Box<CodingRefusal> {
    let (fault, status) = match error {
        InflateError::Broken => {
            let why = format!("the content is not valid {}", coding.name());
            (Fault::because(FaultKind::Parse, why), None)
        }
        InflateError::TooLarge => {
            let RequestRefusal { status, why, limit } = limit.too_large();
            let fault = Fault::because(FaultKind::InvalidRequest, why);
            (Fault { limit, ..fault }, Some(status))
        }
    };
    Box::new(CodingRefusal { fault, status })
}
