//! The request line: `method SP request-target SP HTTP-version` (RFC 9112 §3).
//!
//! Exactly one space is between the three parts, and none after the last. The version is
//! case-sensitive; a minor version above 1 is read as 1.1 (RFC 9110 §2.5).

use super::{HeadLimits, Reject};

/// The request method (RFC 9110 §9); names are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `PUT`
    Put,
    /// `PATCH` (RFC 5789)
    Patch,
    /// `TRACE`
    Trace,
    /// `CONNECT`
    Connect,
    /// Any other token; its text is `Head::method_text`.
    Other,
}

impl Method {
    pub(super) fn of(text: &[u8]) -> Self {
        match text {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PUT" => Self::Put,
            b"PATCH" => Self::Patch,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// The protocol version that governs the message (RFC 9112 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0: closes by default and has no chunks.
    Http10,
    /// HTTP/1.1, or a later minor version, which must be answered as 1.1 (RFC 9110 §2.5).
    Http11,
}

/// The three parts of a request line; the target is not parsed yet.
pub(super) struct Line<'b> {
    pub(super) method: Method,
    pub(super) method_len: usize,
    /// The target begins one byte after the method.
    pub(super) target: &'b [u8],
    pub(super) version: Version,
}

/// Bytes of ` HTTP/1.1`: every version with its space has this length.
pub(super) const VERSION_BYTES: usize = 9;

/// Maximum length of a request line within the limits, without CRLF.
pub(super) const fn bytes_max(limits: &HeadLimits) -> usize {
    limits.method_bytes_max.saturating_add(limits.target_bytes_max).saturating_add(10)
}

/// Splits a request line without its CRLF.
pub(super) fn parse<'b>(line: &'b [u8], limits: &HeadLimits) -> Result<Line<'b>, Reject> {
    let version = version(line)?;
    let method_len = method(line, limits)?.ok_or(Reject::RequestLine)?;
    // `version` proved that the line is at least VERSION_BYTES long.
    let target_end = line.len() - VERSION_BYTES;
    let target = line.get(method_len + 1..target_end).ok_or(Reject::RequestLine)?;
    if target.is_empty() {
        return Err(Reject::RequestLine);
    }
    if target.len() > limits.target_bytes_max {
        return Err(Reject::TargetTooLong);
    }
    Ok(Line { method: Method::of(&line[..method_len]), method_len, target, version })
}

/// The length of the method; `None`: the space after it has not arrived yet.
///
/// Reads at most `method_bytes_max + 1` bytes, so that garbage is refused at once.
pub(super) fn method(bytes: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Reject> {
    for (i, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' if i > 0 => return Ok(Some(i)),
            _ if i >= limits.method_bytes_max => return Err(Reject::MethodTooLong),
            b'\n' => return Err(Reject::BareLineFeed),
            _ if !is_token(byte) => return Err(Reject::MethodInvalid),
            _ => {}
        }
    }
    Ok(None)
}

/// The version at the end of a request line.
pub(super) fn version(line: &[u8]) -> Result<Version, Reject> {
    let Some((_, tail)) = line.split_last_chunk::<VERSION_BYTES>() else {
        return Err(Reject::RequestLine);
    };
    match tail {
        b" HTTP/1.0" => Ok(Version::Http10),
        // RFC 9110 §2.5: a higher minor version is processed as the highest known one.
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Ok(Version::Http11),
        [b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Err(Reject::VersionUnsupported)
        }
        [b' ', ..] => Err(Reject::VersionInvalid),
        // RFC 9112 §2.3: a line without a version is HTTP/0.9, which is not supported.
        _ => Err(Reject::RequestLine),
    }
}

/// RFC 9110 §5.6.2: tchar.
pub(super) const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 128 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TEST_LIMITS as LIMITS;

    fn refusal(line: &str) -> Option<Reject> {
        parse(line.as_bytes(), &LIMITS).err()
    }

    #[test]
    fn rfc9110_9_1_methods_are_case_sensitive() {
        let all = ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH", "TRACE", "CONNECT"];
        for name in all {
            let line = format!("{name} / HTTP/1.1");
            let read = parse(line.as_bytes(), &LIMITS).ok().map(|l| (l.method, l.method_len));
            let len = name.len();
            assert!(read.is_some_and(|(m, l)| m != Method::Other && l == len), "{name}");
        }
        assert_eq!(parse(b"get / HTTP/1.1", &LIMITS).ok().map(|l| l.method), Some(Method::Other));
    }

    #[test]
    fn rfc9112_3_request_line_has_exactly_three_parts() {
        let line = parse(b"POST /a?b HTTP/1.0", &LIMITS).ok();
        let parts = line.map(|l| (l.method, l.target, l.version));
        assert_eq!(parts, Some((Method::Post, &b"/a?b"[..], Version::Http10)));
        for line in ["", "GET", "GET HTTP/1.1", "GET  HTTP/1.1", "GET / HTTP/1.1 ", "GET /"] {
            assert_eq!(refusal(line), Some(Reject::RequestLine), "{line}");
        }
        assert_eq!(refusal(" / HTTP/1.1"), Some(Reject::MethodInvalid));
        assert_eq!(refusal("G(T / HTTP/1.1"), Some(Reject::MethodInvalid));
    }

    #[test]
    fn rfc9112_2_3_only_http_1_versions_are_accepted() {
        assert_eq!(version(b" HTTP/1.1"), Ok(Version::Http11));
        assert_eq!(version(b" HTTP/1.9"), Ok(Version::Http11));
        assert_eq!(version(b" HTTP/1.0"), Ok(Version::Http10));
        assert_eq!(version(b" HTTP/3.0"), Err(Reject::VersionUnsupported));
        assert_eq!(version(b" http/1.1"), Err(Reject::VersionInvalid));
        assert_eq!(version(b" HTTP/1.x"), Err(Reject::VersionInvalid));
    }

    #[test]
    fn method_and_target_length_limits_are_exact() {
        let line = |method: usize, target: usize| {
            format!("{} {} HTTP/1.1", "A".repeat(method), "/".repeat(target))
        };
        assert_eq!(refusal(&line(32, 8192)), None);
        assert_eq!(line(32, 8192).len(), bytes_max(&LIMITS));
        assert_eq!(refusal(&line(33, 1)), Some(Reject::MethodTooLong));
        assert_eq!(refusal(&line(1, 8193)), Some(Reject::TargetTooLong));
    }
}
