//! Base64 as text: input is checked and normalised, rarely decoded.
//!
//! Accepts what proto3 JSON accepts for `bytes`: the standard or the URL-safe alphabet (RFC 4648
//! §4, §5; not a mix), with all of its padding or without any. Line ends are skipped, as in the
//! parsers of Go and Python (RFC 2045 §6.8 requires a line end after 76 digits); other white space
//! is invalid. Output always uses the standard alphabet, with padding and zero unused bits.

use std::borrow::Cow;

use super::text::unescape;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The entry of a byte that is not a digit of either alphabet.
const INVALID: u8 = 0xff;

/// The six bits of each byte in either alphabet.
const SEXTETS: [u8; 256] = {
    let mut table = [INVALID; 256];
    let mut at = 0;
    while at < 64 {
        table[ALPHABET[at] as usize] = at as u8;
        at += 1;
    }
    table[b'-' as usize] = 62;
    table[b'_' as usize] = 63;
    table
};

/// The standard padded form of the base64 between the quotes of a JSON string.
///
/// Borrowed when `raw` already has that form; `None` when it is not base64.
#[must_use]
pub fn normalise(raw: &str) -> Option<Cow<'_, str>> {
    standard_spelling(unescape(raw))
}

/// The standard padded form of unescaped base64.
fn standard_spelling(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let Some(digits) = checked_digits(&text) else {
        return standard_spelling(Cow::Owned(without_line_ends(&text)?));
    };
    let last = digits.last().map_or(0, |&b| SEXTETS[b as usize]);
    let unused = last & unused_bits(digits.len());
    let padded = digits.len().next_multiple_of(4) == text.len();
    if padded && unused == 0 && !digits.iter().any(|b| matches!(b, b'-' | b'_')) {
        return Some(text);
    }
    let mut out = String::with_capacity(digits.len().next_multiple_of(4));
    out.extend(digits.iter().map(|&b| char::from(ALPHABET[SEXTETS[b as usize] as usize])));
    if unused != 0 {
        out.pop();
        out.push(char::from(ALPHABET[(last & !unused) as usize]));
    }
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    Some(Cow::Owned(out))
}

/// The bytes of unescaped base64 in any accepted form; `None` when it is not base64.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = checked_digits(text) else {
        return decode(&without_line_ends(text)?);
    };
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    push_digits(&mut out, digits);
    Some(out)
}

/// The number of bytes that the base64 between the quotes of a JSON string decodes to, if it is
/// base64.
#[must_use]
pub fn decoded_len(raw: &str) -> usize {
    let text = unescape(raw);
    let digits = text.trim_end_matches(['=', '\r', '\n']);
    let line_ends = digits.bytes().filter(|byte| is_line_end(*byte)).count();
    (digits.len() - line_ends) * 3 / 4
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The text without its line ends; `None`: the text has none.
#[cold]
fn without_line_ends(text: &str) -> Option<String> {
    text.bytes().any(is_line_end).then(|| text.replace(['\r', '\n'], ""))
}

/// Appends the bytes of unescaped base64 in any accepted form; nothing when it is not base64.
pub fn push_decoded(out: &mut Vec<u8>, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let Some(digits) = checked_digits(text) else {
        return out.extend(decode(text).unwrap_or_default());
    };
    out.reserve(digits.len() / 4 * 3 + 2);
    push_digits(out, digits);
}

fn push_digits(out: &mut Vec<u8>, digits: &[u8]) {
    let groups = digits.chunks_exact(4);
    let last = groups.remainder();
    for group in groups {
        let bits = group.iter().fold(0_u32, |bits, &b| bits << 6 | SEXTETS[b as usize] as u32);
        out.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    if !last.is_empty() {
        let bits = last.iter().fold(0_u32, |bits, &b| bits << 6 | SEXTETS[b as usize] as u32);
        let bytes = (bits << (32 - 6 * last.len())).to_be_bytes();
        out.extend_from_slice(&bytes[..last.len() - 1]);
    }
}

/// Appends `bytes` in the standard alphabet, padded; the text needs no JSON escape.
pub fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let mut digits = [18, 12, 6, 0].map(|by| ALPHABET[(bits >> by & 63) as usize]);
        digits[group.len() + 1..].fill(b'=');
        out.extend_from_slice(&digits);
    }
}

/// `bytes` in the standard alphabet, padded.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    push_encoded(&mut out, bytes);
    // ASCII by construction.
    String::from_utf8(out).unwrap_or_default()
}

/// The digits of `text` without its padding, if it is base64.
fn checked_digits(text: &str) -> Option<&[u8]> {
    let digits = text.trim_end_matches('=').as_bytes();
    let padding = text.len() - digits.len();
    let whole = match digits.len() % 4 {
        0 => padding == 0,
        2 => padding == 0 || padding == 2,
        3 => padding == 0 || padding == 1,
        _ => false,
    };
    let mut invalid = false;
    let mut standard = false;
    let mut url_safe = false;
    for &byte in digits {
        invalid |= SEXTETS[byte as usize] == INVALID;
        standard |= (byte == b'+') | (byte == b'/');
        url_safe |= (byte == b'-') | (byte == b'_');
    }
    (whole && !invalid && !(standard && url_safe)).then_some(digits)
}

/// The bits of the last digit that belong to no byte.
fn unused_bits(digits: usize) -> u8 {
    match digits % 4 {
        2 => 0b1111,
        3 => 0b11,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4648_test_vectors_encode_and_decode() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decoded_len(text), bytes.len());
            assert_eq!(decoded_len(text.trim_end_matches('=')), bytes.len());
            assert!(matches!(normalise(text), Some(Cow::Borrowed(same)) if same == text));
            assert_eq!(normalise(text.trim_end_matches('=')).as_deref(), Some(text));
        }
    }

    #[test]
    fn both_alphabets_are_normalised_to_the_standard_alphabet() {
        assert_eq!(normalise("-_-_").as_deref(), Some("+/+/"));
        assert_eq!(normalise(r"+\/+\/").as_deref(), Some("+/+/"));
        assert_eq!(normalise("__8").as_deref(), Some("//8="));
        assert_eq!(decode("-_8="), decode("+/8"));
        // RFC 4648 §3.5: unused bits are zero in the output
        assert_eq!(normalise("Zh").as_deref(), Some("Zg=="));
        assert_eq!(normalise("Zm9=").as_deref(), Some("Zm8="));
        assert_eq!(normalise("Zm8=").as_deref(), Some("Zm8="));
    }

    #[test]
    fn line_ends_are_skipped() {
        for raw in ["Zm9v\\nYmE=\\n", "Zm9v\\r\\nYmE", "\\nZm9vYmE=", "Zm9\\u000avYm\\nE="] {
            assert_eq!(normalise(raw).as_deref(), Some("Zm9vYmE="), "{raw}");
            assert_eq!(decode(&unescape(raw)).as_deref(), Some(&b"fooba"[..]), "{raw}");
            assert_eq!(decoded_len(raw), 5, "{raw}");
        }
    }

    #[test]
    fn invalid_base64_is_rejected() {
        for bad in [
            "Z", "Zg=", "Zg===", "Zm9v=", "=", "====", "Zg==Zg==", "Zm9 v", "Zm\\t9v", "Zm9v\\nY",
            "Z\u{e9}", "+_+_", "Zm9*", "Zm9vY", "\\n=",
        ] {
            assert_eq!(normalise(bad), None, "{bad}");
        }
        // After line ends are removed, the text is not unescaped again.
        assert_eq!(normalise("\\ra/\\\\r"), None);
    }
}
