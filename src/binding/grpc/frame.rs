//! Messages between the five bytes of gRPC: a flag and a length (gRPC over HTTP/2, "Length-Prefixed
//! Message").

use super::{Code, Status};
use crate::limits::SERVICE_MESSAGE_BYTES_MAX;

/// Bytes in front of every message.
pub const PREFIX: usize = 5;

/// Where a message begins; give it back to [`finish`].
#[must_use]
pub struct Frame(usize);

/// Begins a message.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> Frame {
    out.extend_from_slice(&[0; PREFIX]);
    Frame(out.len())
}

/// Ends a message by writing its length in front of it.
#[inline]
pub fn finish(out: &mut [u8], frame: Frame) {
    let length = (out.len() - frame.0) as u32;
    out[frame.0 - 4..frame.0].copy_from_slice(&length.to_be_bytes());
}

/// The message that was begun at this offset.
#[inline]
pub fn begun_at(start: usize) -> Frame {
    Frame(start + PREFIX)
}

/// What the bytes of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed {
    /// More is needed: so many bytes in all, as far as can be told.
    Partial(usize),
    /// A message of this length, behind its prefix.
    Whole(usize),
    /// A message that is compressed, which nobody has offered to read.
    Compressed,
    /// A message longer than allowed.
    TooLarge,
}

/// The one message of a request that has one.
///
/// # Errors
/// The status of a request that has none, more than one or half of one, or one that is not read.
pub fn only(body: &[u8], bytes_max: usize) -> Result<&[u8], Status> {
    let invalid = |why| Err(Status::new(Code::InvalidArgument, why));
    match look(body, bytes_max) {
        Framed::Whole(length) if body.len() > PREFIX + length => {
            invalid("the request has more than one message")
        }
        Framed::Whole(_) => Ok(&body[PREFIX..]),
        Framed::Partial(_) if body.is_empty() => invalid("the request has no message"),
        Framed::Partial(_) => invalid("the message is cut short"),
        Framed::TooLarge => Err(too_large(bytes_max)),
        Framed::Compressed => Err(compressed()),
    }
}

/// True: no bytes behind these could make them the one message of a request.
pub fn is_hopeless(body: &[u8], bytes_max: usize) -> bool {
    match look(body, bytes_max) {
        Framed::Partial(_) => false,
        Framed::Whole(length) => body.len() > PREFIX + length,
        Framed::Compressed | Framed::TooLarge => true,
    }
}

/// What a message ends with that is larger than it may be.
pub fn too_large(bytes_max: usize) -> Status {
    let limit = match bytes_max == SERVICE_MESSAGE_BYTES_MAX {
        true => "",
        false => " (body_bytes_max)",
    };
    let why = format!("the message is larger than {bytes_max} bytes{limit}");
    Status::new(Code::ResourceExhausted, why)
}

/// What a compressed message ends with.
pub fn compressed() -> Status {
    Status::new(Code::Unimplemented, "compressed messages are not read")
}

/// Looks at the first message in `bytes`.
pub fn look(bytes: &[u8], bytes_max: usize) -> Framed {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Framed::Partial(PREFIX);
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    match prefix[0] {
        _ if length > bytes_max => Framed::TooLarge,
        0 if rest.len() < length => Framed::Partial(PREFIX + length),
        0 => Framed::Whole(length),
        _ => Framed::Compressed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_looked_at_as_it_comes() {
        let mut out = b"x".to_vec();
        let frame = begin(&mut out);
        out.extend_from_slice(b"hello");
        finish(&mut out, frame);
        assert_eq!(&out[1..], b"\0\0\0\0\x05hello");
        assert_eq!(look(&out[1..5], 9), Framed::Partial(5));
        assert_eq!(look(&out[1..8], 9), Framed::Partial(10));
        assert_eq!(look(&out[1..], 5), Framed::Whole(5));
        assert_eq!(look(&out[1..8], 4), Framed::TooLarge);
        assert_eq!(look(b"\x01\0\0\0\0", 4), Framed::Compressed);
    }

    #[test]
    fn a_request_has_one_message_and_a_status_otherwise() {
        assert_eq!(only(b"\0\0\0\0\x02hi", 9), Ok(&b"hi"[..]));
        assert_eq!(only(b"\0\0\0\0\0", 9), Ok(&b""[..]));
        for (body, code) in [
            (&b""[..], Code::InvalidArgument),
            (b"\0\0", Code::InvalidArgument),
            (b"\0\0\0\0\x02h", Code::InvalidArgument),
            (b"\0\0\0\0\x02hi\0", Code::InvalidArgument),
            (b"\0\0\0\0\x0ahi", Code::ResourceExhausted),
            (b"\x01\0\0\0\x02hi", Code::Unimplemented),
        ] {
            assert_eq!(only(body, 9).map_err(|status| status.code), Err(code), "{body:?}");
        }
        for (body, hopeless) in [
            (&b""[..], false),
            (b"\0\0\0\0\x02h", false),
            (b"\0\0\0\0\x02hi", false),
            (b"\0\0\0\0\x02hi\0", true),
            (b"\0\0\0\0\x0a", true),
            (b"\x01\0\0\0\x02", true),
        ] {
            assert_eq!(is_hopeless(body, 9), hopeless, "{body:?}");
        }
    }
}
