//! Paths that have the same meaning for every reader (RFC 3986 §3.3).
//!
//! A path that [`check`] has accepted has no dot segment, hidden separator or control byte, even if
//! a later hop decodes it several times. Here each segment is decoded once.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{Reject, escape};

/// Refuses a path that another reader could take for another path.
///
/// `path` must be visible ASCII, as every request target is.
///
/// Percent escapes are reduced until none remains (`%252e` is a dot, too). This takes linear time:
/// two escapes never overlap, so reducing them at once on a stack has the same result as decoding
/// the whole path repeatedly.
///
/// # Errors
/// [`Reject::EscapeInvalid`] for a broken escape or a byte that UTF-8 never uses,
/// [`Reject::PathDots`] for a segment `.` or `..`, [`Reject::PathSeparator`] for a backslash, an
/// encoded slash or an encoded control byte.
pub fn check(path: &str) -> Result<(), Reject> {
    check_bytes(path.as_bytes())
}

/// Decodes one segment of a path that [`check`] has accepted, once.
///
/// # Errors
/// [`Reject::EscapeInvalid`] if the result is not UTF-8.
pub fn segment(segment: &str) -> Result<Cow<'_, str>, Reject> {
    escape::decode(segment, false)
}

/// As [`check`], for a path that may not be text.
pub(super) fn check_bytes(bytes: &[u8]) -> Result<(), Reject> {
    let (escapes, backslashes) = bytes
        .iter()
        .fold((false, false), |(e, b), &byte| (e | (byte == b'%'), b | (byte == b'\\')));
    if backslashes {
        return Err(Reject::PathSeparator);
    }
    if !escapes {
        return check_dots(bytes);
    }
    for (i, _) in bytes.iter().enumerate().filter(|&(_, &b)| b == b'%') {
        escape::escape(&bytes[i + 1..]).ok_or(Reject::EscapeInvalid)?;
    }
    let mut stack: SmallVec<[u8; 256]> = SmallVec::new();
    for &byte in bytes {
        stack.push(byte);
        while let Some(byte) = reducible(&stack) {
            match byte {
                b'/' | b'\\' | 0..=0x1f | 0x7f => return Err(Reject::PathSeparator),
                // RFC 3629 §1: these octets never appear in UTF-8, only in overlong forms.
                0xc0 | 0xc1 | 0xf5..=0xff => return Err(Reject::EscapeInvalid),
                _ => {}
            }
            stack.truncate(stack.len() - 3);
            stack.push(byte);
        }
    }
    check_dots(&stack)
}

/// The byte that the last three bytes stand for, if they are an escape.
fn reducible(stack: &[u8]) -> Option<u8> {
    let (_, &[mark, high, low]) = stack.split_last_chunk::<3>()?;
    if mark != b'%' {
        return None;
    }
    Some(escape::hex(high)? << 4 | escape::hex(low)?)
}

/// RFC 3986 §3.3: `.` and `..` are relative steps; a client removes them before it sends.
fn check_dots(path: &[u8]) -> Result<(), Reject> {
    // The number of dots since the last slash, or more than two if the segment has another byte.
    let mut dots = 0u8;
    for &byte in path {
        dots = match byte {
            b'/' if dots == 1 || dots == 2 => return Err(Reject::PathDots),
            b'/' => 0,
            b'.' => dots.saturating_add(1),
            _ => u8::MAX,
        };
    }
    if dots == 1 || dots == 2 { Err(Reject::PathDots) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_pass() {
        for path in ["/", "/a/b", "/.well-known/agent-card.json", "/a..b/...", "/x%20y", "/100%25"]
        {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn rfc3986_3_3_plain_and_encoded_dot_segments_are_rejected() {
        for path in [
            "/..",
            "/../a",
            "/a/../b",
            "..",
            "/.",
            "/./a",
            "/%2e%2e/",
            "/%2E.",
            "/.%2e/x",
            "/%252e%252e",
            "/%25252e.",
            "/%25%32%65%2e",
            "/a/%2e",
        ] {
            assert_eq!(check(path), Err(Reject::PathDots), "{path}");
        }
    }

    #[test]
    fn rfc3986_2_2_hidden_separators_are_rejected() {
        for path in [
            "/a\\b", "/%5c", "/%5Cx", "/a%2fb", "/%2F", "/%252f", "/%25%32f", "/%00", "/%2500",
            "/%0d%0a", "/%7f",
        ] {
            assert_eq!(check(path), Err(Reject::PathSeparator), "{path}");
        }
    }

    #[test]
    fn rfc3986_2_1_broken_escapes_are_rejected() {
        for path in ["/%", "/%4", "/%zz", "/%%41", "/a%g0", "/%c0%ae", "/%ff"] {
            assert_eq!(check(path), Err(Reject::EscapeInvalid), "{path}");
        }
    }

    #[test]
    fn deeply_encoded_dot_segment_is_rejected() {
        let path = format!("/%{}2e", "25".repeat(4_000));
        assert_eq!(check(&path), Err(Reject::PathDots));
    }

    #[test]
    fn segments_decode_once() {
        assert_eq!(segment("a%20b+%2541").as_deref(), Ok("a b+%41"));
        assert_eq!(segment("%C3%A9").as_deref(), Ok("é"));
        assert_eq!(segment("%C3"), Err(Reject::EscapeInvalid));
    }
}
