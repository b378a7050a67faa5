//! The gRPC message frame: five bytes, a flag and a length (gRPC over HTTP/2, "Length-Prefixed
//! Message").

use super::{Code, Status};
use crate::{
    http::{ContentCoding, InflateError},
    limits::SERVICE_MESSAGE_BYTES_MAX,
};

/// Bytes before every message.
pub const PREFIX: usize = 5;

/// The start of a message, for [`finish`].
#[must_use]
pub struct Frame(usize);

/// Begins a message.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> Frame {
    out.extend_from_slice(&[0; PREFIX]);
    Frame(out.len())
}

/// Ends a message: writes its length before it.
#[inline]
pub fn finish(out: &mut [u8], frame: Frame) {
    let length = (out.len() - frame.0) as u32;
    out[frame.0 - 4..frame.0].copy_from_slice(&length.to_be_bytes());
}

/// The start of the message that began at this offset.
#[inline]
pub fn begun_at(start: usize) -> Frame {
    Frame(start + PREFIX)
}

/// What the received bytes of a request contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed {
    /// An incomplete message, which needs at least this number of bytes.
    Partial(usize),
    /// A message of this length, after its prefix.
    Whole(usize),
    /// A compressed message of this length, after its prefix.
    Compressed(usize),
    /// A message longer than allowed.
    TooLarge,
}

/// The single message of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnlyMessage<'b> {
    /// The bytes as received.
    pub bytes: &'b [u8],
    /// True: the message is compressed.
    pub is_compressed: bool,
}

/// True: the first message is compressed; false also if its flag has not arrived.
pub fn is_compressed(body: &[u8]) -> bool {
    body.first().is_some_and(|flag| *flag != 0)
}

/// The single message of a request.
///
/// # Errors
/// The status of a request with no message, an incomplete or too large message, or more than one.
pub fn only(body: &[u8], bytes_max: usize) -> Result<OnlyMessage<'_>, Status> {
    let invalid = |why| Err(Status::new(Code::InvalidArgument, why));
    match look(body, bytes_max) {
        Framed::Whole(length) | Framed::Compressed(length) if body.len() > PREFIX + length => {
            invalid("the request has more than one message")
        }
        Framed::Whole(_) => Ok(OnlyMessage { bytes: &body[PREFIX..], is_compressed: false }),
        Framed::Compressed(_) => Ok(OnlyMessage { bytes: &body[PREFIX..], is_compressed: true }),
        Framed::Partial(_) if body.is_empty() => invalid("the request has no message"),
        Framed::Partial(_) => invalid("the message is cut short"),
        Framed::TooLarge => Err(too_large(bytes_max)),
    }
}

/// True: no further bytes could complete the single message of a request.
pub fn is_hopeless(body: &[u8], bytes_max: usize) -> bool {
    match look(body, bytes_max) {
        Framed::Partial(_) => false,
        Framed::Whole(length) | Framed::Compressed(length) => body.len() > PREFIX + length,
        Framed::TooLarge => true,
    }
}

/// The status of a message that is larger than allowed.
pub fn too_large(bytes_max: usize) -> Status {
    let limit = match bytes_max == SERVICE_MESSAGE_BYTES_MAX {
        true => "",
        false => " (body_bytes_max)",
    };
    let why = format!("the message is larger than {bytes_max} bytes{limit}");
    Status::new(Code::ResourceExhausted, why)
}

/// Decompresses a message; `encoding`: the value of `grpc-encoding`.
///
/// # Errors
/// The status of a message with an unsupported encoding, malformed content, or more than
/// `bytes_max` bytes when decompressed.
#[cold]
pub fn inflate(encoding: Option<&[u8]>, coded: &[u8], bytes_max: usize) -> Result<Vec<u8>, Status> {
    let internal = |why| Status::new(Code::Internal, why);
    match encoding {
        // gRPC, "Compression": a message with the flag needs the field.
        None | Some(b"identity") => Err(internal("a message is compressed without grpc-encoding")),
        Some(b"gzip") if cfg!(feature = "compression") => {
            ContentCoding::Gzip.inflate(coded, bytes_max, 0).map_err(|error| match error {
                InflateError::Broken => internal("the message is not valid gzip"),
                InflateError::TooLarge => too_large(bytes_max),
            })
        }
        Some(other) => {
            let other: String = String::from_utf8_lossy(other).chars().take(64).collect();
            let why = format!("grpc-encoding {other:?} is not supported: {ACCEPTED_ENCODINGS}");
            Err(Status::new(Code::Unimplemented, why))
        }
    }
}

/// The value of `grpc-accept-encoding` in the head of every answer.
pub const ACCEPTED_ENCODINGS: &str =
    if cfg!(feature = "compression") { "identity,gzip" } else { "identity" };

/// Examines the first message in `bytes`.
pub fn look(bytes: &[u8], bytes_max: usize) -> Framed {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Framed::Partial(PREFIX);
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    match prefix[0] {
        _ if length > bytes_max => Framed::TooLarge,
        _ if rest.len() < length => Framed::Partial(PREFIX + length),
        0 => Framed::Whole(length),
        _ => Framed::Compressed(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_written_and_parsed_incrementally() {
        let mut out = b"x".to_vec();
        let frame = begin(&mut out);
        out.extend_from_slice(b"hello");
        finish(&mut out, frame);
        assert_eq!(&out[1..], b"\0\0\0\0\x05hello");
        assert_eq!(look(&out[1..5], 9), Framed::Partial(5));
        assert_eq!(look(&out[1..8], 9), Framed::Partial(10));
        assert_eq!(look(&out[1..], 5), Framed::Whole(5));
        assert_eq!(look(&out[1..8], 4), Framed::TooLarge);
        assert_eq!(look(b"\x01\0\0\0\0", 4), Framed::Compressed(0));
        assert_eq!(look(b"\x01\0\0\0\x02h", 4), Framed::Partial(7));
    }

    #[test]
    fn request_body_must_be_exactly_one_message() {
        let message = |bytes, is_compressed| Ok(OnlyMessage { bytes, is_compressed });
        assert_eq!(only(b"\0\0\0\0\x02hi", 9), message(b"hi", false));
        assert_eq!(only(b"\x01\0\0\0\x02hi", 9), message(b"hi", true));
        assert_eq!(only(b"\0\0\0\0\0", 9), message(b"", false));
        for (body, code) in [
            (&b""[..], Code::InvalidArgument),
            (b"\0\0", Code::InvalidArgument),
            (b"\0\0\0\0\x02h", Code::InvalidArgument),
            (b"\0\0\0\0\x02hi\0", Code::InvalidArgument),
            (b"\0\0\0\0\x0ahi", Code::ResourceExhausted),
            (b"\x01\0\0\0\x02hi\0", Code::InvalidArgument),
        ] {
            assert_eq!(only(body, 9).map_err(|status| status.code), Err(code), "{body:?}");
        }
        for (body, hopeless) in [
            (&b""[..], false),
            (b"\0\0\0\0\x02h", false),
            (b"\0\0\0\0\x02hi", false),
            (b"\0\0\0\0\x02hi\0", true),
            (b"\0\0\0\0\x0a", true),
            (b"\x01\0\0\0\x02", false),
        ] {
            assert_eq!(is_hopeless(body, 9), hopeless, "{body:?}");
        }
    }
}
