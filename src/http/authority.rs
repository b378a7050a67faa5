//! `uri-host [":" port]`, the value of Host and the authority of a target.
//!
//! RFC 9110 §7.2, RFC 3986 §3.2.2, with restrictions: no user information, no comma, no zone, a
//! valid IPv6 address, and a port of at most sixteen bits.

use std::net::Ipv6Addr;

use super::escape::escape;

/// Whether `text` is a non-empty host with an optional port.
pub fn is_valid(text: &[u8]) -> bool {
    read(text).is_some()
}

/// The host of a valid authority; an IPv6 address has its brackets.
pub(super) fn host(text: &str) -> Option<&str> {
    let port_bytes = read(text.as_bytes())?.map_or(0, |port| port.len() + 1);
    text.get(..text.len() - port_bytes)
}

/// Whether `text` is a valid authority with a port, as CONNECT needs (RFC 9110 §9.3.6).
pub(super) fn is_valid_with_port(text: &[u8]) -> bool {
    read(text).flatten().is_some_and(|port| !port.is_empty())
}

/// The port of an authority; the outer `None`: the authority is invalid.
fn read(text: &[u8]) -> Option<Option<&[u8]>> {
    let rest = match text {
        [b'[', inside @ ..] => after_address(inside)?,
        _ => after_name(text)?,
    };
    match rest {
        [] => Some(None),
        [b':', port @ ..] if is_port(port) => Some(Some(port)),
        _ => None,
    }
}

/// RFC 3986 §3.2.2: the text after `IPv6address "]"`.
fn after_address(inside: &[u8]) -> Option<&[u8]> {
    let end = inside.iter().position(|&b| b == b']')?;
    std::str::from_utf8(&inside[..end]).ok()?.parse::<Ipv6Addr>().ok()?;
    Some(&inside[end + 1..])
}

/// RFC 3986 §3.2.2: the text after a name that is not empty; an IPv4 address is a name, too.
fn after_name(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        let len = rest.iter().position(|&b| !NAME[usize::from(b)]).unwrap_or(rest.len());
        rest = &rest[len..];
        match rest {
            [b'%', digits @ ..] => (_, rest) = escape(digits)?,
            _ => return (rest.len() < text.len()).then_some(rest),
        }
    }
}

/// RFC 3986 §3.2.3: `*DIGIT`, so a port may be empty.
fn is_port(port: &[u8]) -> bool {
    let add = |sum: u32, b: &u8| b.is_ascii_digit().then(|| sum * 10 + u32::from(b - b'0'));
    port.len() <= 5 && port.iter().try_fold(0, add).is_some_and(|port| port <= u16::MAX.into())
}

/// RFC 3986 §3.2.2: unreserved and sub-delims, without the comma.
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 128 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    let marks = b"-._~!$&'()*+;=";
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

    #[test]
    fn authority_syntax_is_validated() {
        for text in [
            "a",
            "a.b:1",
            "a:",
            "a!$&'()*+;=-_.~",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:80",
            "x_y",
            "a%41",
            "A-b",
        ] {
            assert!(is_valid(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            ":80",
            "a@b",
            "a/b",
            "a b",
            "a,b",
            "a:x",
            "a:65536",
            "a:000001",
            "[::1",
            "::1",
            "[::1]x",
            "[]",
            "[1.2.3.4]",
            "[fe80::1%25eth0]",
            "a%4",
            "a:1:2",
            "a?",
            "a#",
            "a\\b",
            "a\u{7f}",
            "ä",
            "[::1]]",
            "a]",
            "[[::1]]",
            "a:+1",
        ] {
            assert!(!is_valid(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn connect_needs_a_port() {
        assert!(is_valid_with_port(b"a:443") && is_valid_with_port(b"[::1]:443"));
        assert!(!is_valid_with_port(b"a") && !is_valid_with_port(b"a:"));
    }
}
