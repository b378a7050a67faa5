//! How long the body of a response is (RFC 9112 §6.3).
//!
//! One function follows the numbered steps of the RFC for a client. The rules that requests share
//! are those of the server: two lengths, even equal ones, a length in addition to a coding, and any
//! coding that is not exactly `chunked` are refused. An intermediary could read them differently,
//! and the next response would then not belong to the next request.

use crate::http::{BodyFraming, Method, Reject, Version, framing, response};

/// How the body of a response is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// The response has no body.
    None,
    /// Exactly this number of bytes follows the head, possibly 0.
    Length(u64),
    /// The body is a sequence of chunks (RFC 9112 §7.1).
    Chunked,
    /// The body ends when the server closes the connection.
    UntilClose,
    /// Bytes of another protocol follow: the connection is now a tunnel.
    Tunnel,
}

/// The status line of a response (RFC 9112 §4), without its reason phrase.
#[derive(Clone, Copy)]
pub(super) struct StatusLine {
    pub(super) version: Version,
    pub(super) status: u16,
}

/// The framing of the body of a response to a request with `method`. The caller has checked that
/// each field appears at most once.
///
/// # Errors
/// [`Reject::EncodingOnHttp10`], [`Reject::LengthAndEncoding`], [`Reject::EncodingInvalid`],
/// [`Reject::EncodingUnknown`], [`Reject::LengthInvalid`], [`Reject::LengthAbsurd`],
/// [`Reject::BodyTooLarge`].
pub(super) fn body(
    method: Method,
    line: StatusLine,
    transfer_encoding: Option<&[u8]>,
    content_length: Option<&[u8]>,
    body_bytes_max: u64,
) -> Result<ResponseFraming, Reject> {
    let StatusLine { version, status } = line;
    // RFC 9112 §6.3 (1): HEAD, 1xx, 204 and 304 end at the empty line, whatever the fields are.
    if method == Method::Head || !response::has_body(status) {
        return Ok(ResponseFraming::None);
    }
    // RFC 9112 §6.3 (2): 2xx to CONNECT opens a tunnel, and a client MUST ignore both fields.
    if method == Method::Connect && matches!(status, 200..=299) {
        return Ok(ResponseFraming::Tunnel);
    }
    // RFC 9112 §6.3 (3) to (6), and §6.1: as strict as for a request. (4) allows a client to read
    // another final coding until the close, and (5) a list of equal lengths: both are refused.
    match framing::body(version, transfer_encoding, content_length, body_bytes_max)? {
        BodyFraming::Chunked => Ok(ResponseFraming::Chunked),
        BodyFraming::Length(length) => Ok(ResponseFraming::Length(length)),
        // RFC 9112 §6.3 (7) is about requests; (8): a response without both fields ends with the
        // close.
        BodyFraming::None => Ok(ResponseFraming::UntilClose),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        method: Method,
        status: u16,
        te: Option<&str>,
        cl: Option<&str>,
    ) -> Result<ResponseFraming, Reject> {
        let line = StatusLine { version: Version::Http11, status };
        body(method, line, te.map(str::as_bytes), cl.map(str::as_bytes), 1000)
    }

    #[test]
    fn rfc9112_6_3_1_bodyless_responses_ignore_framing_fields() {
        let none = Ok(ResponseFraming::None);
        for status in [100, 101, 103, 199, 204, 304] {
            assert_eq!(of(Method::Get, status, None, Some("5")), none, "{status}");
            assert_eq!(of(Method::Post, status, Some("chunked"), None), none, "{status}");
        }
        assert_eq!(of(Method::Head, 200, Some("gzip"), Some("x")), none);
    }

    #[test]
    fn rfc9112_6_3_2_successful_connect_response_is_a_tunnel() {
        for status in [200, 201, 299] {
            let tunnel = of(Method::Connect, status, Some("chunked"), Some("5"));
            assert_eq!(tunnel, Ok(ResponseFraming::Tunnel));
        }
        assert_eq!(of(Method::Connect, 407, None, Some("5")), Ok(ResponseFraming::Length(5)));
        assert_eq!(of(Method::Get, 200, None, None), Ok(ResponseFraming::UntilClose));
    }

    #[test]
    fn rfc9112_6_3_3_to_6_invalid_framing_is_rejected() {
        let get = |te, cl| of(Method::Get, 200, te, cl);
        assert_eq!(get(Some("Chunked"), None), Ok(ResponseFraming::Chunked));
        assert_eq!(get(Some("chunked"), Some("5")), Err(Reject::LengthAndEncoding));
        for coding in ["gzip", "chunked, gzip", "chunked, chunked", "identity", ""] {
            assert_eq!(get(Some(coding), None), Err(Reject::EncodingInvalid), "{coding}");
        }
        assert_eq!(get(Some("gzip, chunked"), None), Err(Reject::EncodingUnknown));
        assert_eq!(get(None, Some("0")), Ok(ResponseFraming::Length(0)));
        for bad in ["", "5, 5", "5,6", "+5", "-0", "0x5", "5 "] {
            assert_eq!(get(None, Some(bad)), Err(Reject::LengthInvalid), "{bad}");
        }
        assert_eq!(get(None, Some("1001")), Err(Reject::BodyTooLarge));
        assert_eq!(get(None, Some("99999999999999999999999")), Err(Reject::LengthAbsurd));
        let line = StatusLine { version: Version::Http10, status: 200 };
        let old = body(Method::Get, line, Some(b"chunked"), None, 9);
        assert_eq!(old, Err(Reject::EncodingOnHttp10));
    }
}
