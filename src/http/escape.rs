//! Percent escapes (RFC 3986 §2.1), for paths and queries.
//!
//! An escape is `%` and exactly two hexadecimal digits; a broken escape is refused, never copied.
//! Text without escapes is borrowed, decoded text must be UTF-8.

use std::borrow::Cow;

use super::Reject;

/// The value of a hexadecimal digit.
pub(super) const fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Decodes `text` once; with `plus`, `+` means a space as in HTML forms.
///
/// # Errors
/// [`Reject::EscapeInvalid`] if an escape is incomplete or the result is not UTF-8.
pub(super) fn decode(text: &str, plus: bool) -> Result<Cow<'_, str>, Reject> {
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(|&b| b == b'%' || (plus && b == b'+')) else {
        return Ok(Cow::Borrowed(text));
    };
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let (value, tail) = escape(rest).ok_or(Reject::EscapeInvalid)?;
                out.push(value);
                rest = tail;
            }
            b'+' if plus => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| Reject::EscapeInvalid)
}

/// The value of the two digits after a `%`, and the rest of the text.
pub(super) fn escape(digits: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], rest) = digits.split_first_chunk::<2>()?;
    Some((hex(high)? << 4 | hex(low)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_decode_once() {
        assert_eq!(decode("a%20b+c", false).as_deref(), Ok("a b+c"));
        assert_eq!(decode("a%20b+c", true).as_deref(), Ok("a b c"));
        assert_eq!(decode("%252e", false).as_deref(), Ok("%2e"));
        assert_eq!(decode("%C3%84", false).as_deref(), Ok("Ä"));
        assert!(matches!(decode("plain", true), Ok(Cow::Borrowed("plain"))));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["%", "%a", "%g0", "%0g", "a%", "%%41", "%+1", "%c3", "%ff"] {
            assert_eq!(decode(text, true), Err(Reject::EscapeInvalid), "{text}");
        }
    }
}
