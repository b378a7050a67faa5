//! `uri-host [":" port]`, the value of Host and the authority of a target.
//!
//! RFC 9110 §7.2, RFC 3986 §3.2.2, narrowed: no user information, no comma, no zone, an IPv6
//! address that really is one, and a port that fits sixteen bits.

use std::net::Ipv6Addr;

use super::escape::escape;

/// Whether `text` is a non-empty host with an optional port.
pub(super) fn is_valid(text: &str) -> bool {
    split(text).is_some_and(|(host, port)| {
        let host_is_valid = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => is_reg_name(host.as_bytes()),
        };
        host_is_valid && port.is_none_or(is_port)
    })
}

/// Whether `text` is a valid authority whose port is there, as CONNECT needs (RFC 9110 §9.3.6).
pub(super) fn is_valid_with_port(text: &str) -> bool {
    is_valid(text) && split(text).is_some_and(|(_, port)| port.is_some_and(|p| !p.is_empty()))
}

fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let host_end = if text.starts_with('[') { text.find(']')? + 1 } else { 0 };
    match text[host_end..].find(':') {
        Some(0) if host_end == 0 => None,
        Some(at) => Some((&text[..host_end + at], Some(&text[host_end + at + 1..]))),
        None => Some((text, None)),
    }
}

/// RFC 3986 §3.2.3: `*DIGIT`, so it may be empty.
fn is_port(port: &str) -> bool {
    port.len() <= 5
        && port.bytes().all(|b| b.is_ascii_digit())
        && (port.is_empty() || port.parse::<u16>().is_ok())
}

/// RFC 3986 §3.2.2: unreserved / sub-delims without the comma / escapes; IPv4 is among them.
fn is_reg_name(host: &[u8]) -> bool {
    let mut rest = host;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => tail,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=' => tail,
            b'%' => match escape(tail) {
                Some((_, tail)) => tail,
                None => return false,
            },
            _ => return false,
        };
    }
    !host.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for text in
            ["a", "a.b:1", "a:", "127.0.0.1:65535", "[::1]", "[::1]:80", "x_y", "a%41", "A-b"]
        {
            assert!(is_valid(text), "{text}");
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
            assert!(!is_valid(text), "{text}");
        }
    }

    #[test]
    fn connect_needs_a_port() {
        assert!(is_valid_with_port("a:443") && is_valid_with_port("[::1]:443"));
        assert!(!is_valid_with_port("a") && !is_valid_with_port("a:"));
    }
}
