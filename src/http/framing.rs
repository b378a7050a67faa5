//! How long the body of a request is (RFC 9112 §6.3).
//!
//! One function follows the numbered steps of the RFC. Framing that two readers could measure
//! differently is refused: two lengths, a length in addition to an encoding, an encoding that is
//! not exactly `chunked`.

use super::{Reject, Version, fields};

/// A length this many times above the limit is a probe, not a client's mistake: 400, not 413.
const ABSURD: u64 = 100;

/// How the body of a request is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyFraming {
    /// Neither Content-Length nor Transfer-Encoding: no body.
    None,
    /// Exactly this number of bytes follows the head, possibly 0.
    Length(u64),
    /// The body is a sequence of chunks (RFC 9112 §7.1).
    Chunked,
}

impl BodyFraming {
    /// Whether bytes may follow the head.
    pub const fn is_expected(self) -> bool {
        !matches!(self, Self::None | Self::Length(0))
    }
}

/// The framing of a request body. The caller has checked that each field appears at most once.
///
/// # Errors
/// [`Reject::EncodingOnHttp10`], [`Reject::LengthAndEncoding`], [`Reject::EncodingInvalid`],
/// [`Reject::EncodingUnknown`], [`Reject::LengthInvalid`], [`Reject::LengthAbsurd`],
/// [`Reject::BodyTooLarge`].
pub fn body(
    version: Version,
    transfer_encoding: Option<&[u8]>,
    content_length: Option<&[u8]>,
    body_bytes_max: u64,
) -> Result<BodyFraming, Reject> {
    // RFC 9112 §6.3 (1) and (2) are about responses.
    match (transfer_encoding, content_length) {
        // RFC 9112 §6.1: an HTTP/1.0 message with Transfer-Encoding has faulty framing.
        (Some(_), _) if version == Version::Http10 => Err(Reject::EncodingOnHttp10),
        // RFC 9112 §6.3 (3): both "might indicate an attempt to perform request smuggling".
        (Some(_), Some(_)) => Err(Reject::LengthAndEncoding),
        // RFC 9112 §6.3 (4): chunked must be the final coding; here it is the only supported one.
        (Some(codings), None) => encoding(codings),
        // RFC 9112 §6.3 (5) and (6): an invalid length is an unrecoverable error.
        (None, Some(length)) => {
            content_length_value(length, body_bytes_max).map(BodyFraming::Length)
        }
        // RFC 9112 §6.3 (7): a request without both fields has no body.
        (None, None) => Ok(BodyFraming::None),
    }
}

fn encoding(codings: &[u8]) -> Result<BodyFraming, Reject> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(codings) {
        return Ok(BodyFraming::Chunked);
    }
    // RFC 9112 §6.3 (4): if chunked is not final the server MUST answer 400.
    // RFC 9112 §6.1: a sender MUST NOT apply chunked more than once.
    let last_is_chunked = codings.rsplit(|&b| b == b',').next().map(fields::trim);
    if !last_is_chunked.is_some_and(is_chunked)
        || fields::list(codings).filter(|coding| is_chunked(coding)).count() != 1
        || codings.split(|&b| b == b',').any(|coding| fields::trim(coding).is_empty())
    {
        return Err(Reject::EncodingInvalid);
    }
    // RFC 9112 §6.1: 501 for a transfer coding that the server does not understand.
    Err(Reject::EncodingUnknown)
}

/// RFC 9110 §8.6: the value of Content-Length.
pub(super) fn content_length_value(text: &[u8], body_bytes_max: u64) -> Result<u64, Reject> {
    // RFC 9110 §8.6: Content-Length = 1*DIGIT; no sign, no list, no space.
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Reject::LengthInvalid);
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add((digit - b'0').into());
    // RFC 9110 §8.6: a number that overflows is an error, never a wrapped length.
    let length = text.iter().try_fold(0, add).ok_or(Reject::LengthAbsurd)?;
    if length > body_bytes_max.saturating_mul(ABSURD) {
        return Err(Reject::LengthAbsurd);
    }
    if length > body_bytes_max { Err(Reject::BodyTooLarge) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(te: Option<&str>, cl: Option<&str>) -> Result<BodyFraming, Reject> {
        body(Version::Http11, te.map(str::as_bytes), cl.map(str::as_bytes), 1000)
    }

    #[test]
    fn rfc9112_6_3_content_length_is_parsed_strictly() {
        assert_eq!(of(None, None), Ok(BodyFraming::None));
        assert_eq!(of(None, Some("0")), Ok(BodyFraming::Length(0)));
        assert_eq!(of(None, Some("0042")), Ok(BodyFraming::Length(42)));
        assert_eq!(of(None, Some("1000")), Ok(BodyFraming::Length(1000)));
        for huge in ["1001", "99999", "100000"] {
            assert_eq!(of(None, Some(huge)), Err(Reject::BodyTooLarge), "{huge}");
        }
        for huge in [
            "100001",
            "9223372036854775808",
            "18446744073709551616",
            "18446744073709551621",
            &"9".repeat(40),
        ] {
            assert_eq!(of(None, Some(huge)), Err(Reject::LengthAbsurd), "{huge}");
        }
        for bad in ["", "+5", "-5", "0x5", "5.0", "5 5", "5, 5", "5,5", "5e0", "٥", "5_0", "\"5\""]
        {
            assert_eq!(of(None, Some(bad)), Err(Reject::LengthInvalid), "{bad}");
        }
    }

    #[test]
    fn rfc9112_6_1_only_chunked_encoding_is_accepted() {
        assert_eq!(of(Some("chunked"), None), Ok(BodyFraming::Chunked));
        assert_eq!(of(Some("Chunked"), None), Ok(BodyFraming::Chunked));
        for unknown in ["gzip, chunked", "gzip,chunked", "a;b=c, chunked"] {
            assert_eq!(of(Some(unknown), None), Err(Reject::EncodingUnknown), "{unknown}");
        }
        for bad in [
            "",
            ",",
            "chunked,",
            ",chunked",
            "chunked, chunked",
            "chunked, gzip",
            "identity",
            "xchunked",
            "chunked;q=1",
            "\"chunked\"",
            "chunked chunked",
            "gzip,,chunked",
        ] {
            assert_eq!(of(Some(bad), None), Err(Reject::EncodingInvalid), "{bad}");
        }
        assert_eq!(of(Some("chunked"), Some("5")), Err(Reject::LengthAndEncoding));
        let old = body(Version::Http10, Some(b"chunked"), None, 9);
        assert_eq!(old, Err(Reject::EncodingOnHttp10));
    }

    #[test]
    fn only_nonempty_bodies_are_expected() {
        assert!(!BodyFraming::None.is_expected() && !BodyFraming::Length(0).is_expected());
        assert!(BodyFraming::Length(1).is_expected() && BodyFraming::Chunked.is_expected());
    }
}
