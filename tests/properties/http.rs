//! Properties of the HTTP codec for any bytes.
//!
//! Each property is a function of bytes that panics if the property fails, so that a fuzz target
//! can call it; below, proptest calls it with random bytes and with bytes close to real requests.

use peregrine::http::{
    BodyFraming, ChunkLimits, Chunked, Field, Found, Head, HeadLimits, HeadMemo, Reject, Scan,
    Version, date, find_head, parse_head, path,
};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 * 1024,
    fields_max: 100,
    target_bytes_max: 8 * 1024,
    query_bytes_max: 4 * 1024,
    method_bytes_max: 32,
    body_bytes_max: 4 * 1024 * 1024,
};

/// Limits that random bytes reach.
const SMALL: HeadLimits = HeadLimits {
    head_bytes_max: 96,
    fields_max: 3,
    target_bytes_max: 24,
    query_bytes_max: 8,
    method_bytes_max: 8,
    body_bytes_max: 64,
};

const CHUNKS: ChunkLimits = ChunkLimits {
    body_bytes_max: 4 * 1024 * 1024,
    line_bytes_max: 256,
    trailer_bytes_max: 8 * 1024,
    overhead_bytes_max: 16 * 1024,
};

const SMALL_CHUNKS: ChunkLimits = ChunkLimits {
    body_bytes_max: 40,
    line_bytes_max: 20,
    trailer_bytes_max: 24,
    overhead_bytes_max: 12,
};

// ---- the properties

/// A head is found at the same position, or refused for the same reason, however it is cut.
pub fn head_end_is_the_same_however_cut(bytes: &[u8]) {
    for limits in [&LIMITS, &SMALL] {
        let whole = find_head(bytes, 0, limits);
        let mut scanned = 0;
        let mut bytewise = Ok(Scan::Partial { scanned });
        for end in 0..=bytes.len() {
            bytewise = find_head(&bytes[..end], scanned, limits);
            match bytewise {
                Ok(Scan::Partial { scanned: next }) => {
                    assert!(scanned <= next && next <= end, "the scan went back");
                    scanned = next;
                }
                Ok(Scan::Complete { .. }) | Err(_) => break,
            }
        }
        assert_eq!(whole, bytewise, "whole and bytewise: {}", bytes.escape_ascii());
        for cut in 0..=bytes.len().min(64) {
            let halves = match find_head(&bytes[..cut], 0, limits) {
                Ok(Scan::Partial { scanned }) => find_head(bytes, scanned, limits),
                other => other,
            };
            assert_eq!(whole, halves, "cut at {cut}: {}", bytes.escape_ascii());
        }
    }
}

/// A head is accepted exactly if a slow and simple reader of the RFC accepts it, with the same
/// framing.
pub fn heads_parse_like_the_simple_reader(bytes: &[u8]) {
    for limits in [&LIMITS, &SMALL] {
        let got = match find_head(bytes, 0, limits) {
            Ok(Scan::Partial { .. }) => continue,
            Ok(Scan::Complete { head_len }) => {
                let layout = parse_head(&bytes[..head_len], limits);
                layout.map(|layout| naive_words(layout.head(bytes), head_len)).ok()
            }
            Err(_) => None,
        };
        assert_eq!(got, naive::read(bytes, limits), "{}", bytes.escape_ascii());
    }
}

/// A head means the same with and without cached heads.
///
/// One cache reads `heads`, cut at `cut` and whole, then all of them again, and once more byte by
/// byte; each time the result must be that of a fresh reader.
pub fn cached_heads_parse_like_fresh_ones(heads: &[Vec<u8>], cut: usize) {
    for (limits, accepts_hosts) in [(LIMITS, true), (SMALL, false)] {
        let mut memo = HeadMemo::new(limits);
        for bytes in heads.iter().chain(heads) {
            let begun = &bytes[..cut.min(bytes.len())];
            let scanned = same_as_fresh(&mut memo, &limits, begun, 0, accepts_hosts);
            for scanned in [scanned.unwrap_or(0), 0, 0] {
                same_as_fresh(&mut memo, &limits, bytes, scanned, accepts_hosts);
            }
        }
        for bytes in heads.iter().filter(|_| accepts_hosts) {
            let mut scanned = Some(0);
            for end in 0..=bytes.len() {
                let Some(upto) = scanned else { break };
                scanned = same_as_fresh(&mut memo, &limits, &bytes[..end], upto, accepts_hosts);
            }
        }
    }
}

/// Compares the cache with a fresh reader; returns the number of bytes that need no second scan, if
/// the head is not complete yet.
fn same_as_fresh(
    memo: &mut HeadMemo,
    limits: &HeadLimits,
    bytes: &[u8],
    scanned: usize,
    accepts_hosts: bool,
) -> Option<usize> {
    let is_accepted = |head: &Head<'_>| accepts_hosts && has_accepted_hosts(head);
    let got = memo.read(bytes, scanned, |head, _| is_accepted(head));
    let fresh = match find_head(bytes, 0, limits) {
        Ok(Scan::Partial { scanned }) => {
            assert_eq!(got, Ok(Found::Partial { scanned }), "{}", bytes.escape_ascii());
            return Some(scanned);
        }
        Ok(Scan::Complete { head_len }) => parse_head(&bytes[..head_len], limits),
        Err(reject) => Err(reject),
    };
    let want = fresh.as_ref().map(Found::Complete).map_err(|reject| *reject);
    if let (Ok(Found::Complete(got)), Ok(want)) = (&got, &fresh) {
        assert_eq!(
            got.has_known_hosts(),
            is_accepted(&want.head(bytes)),
            "{}",
            bytes.escape_ascii()
        );
    }
    if got != want {
        // The fresh reader does not check hosts.
        let without_hosts =
            |found| format!("{found:?}").replace("has_known_hosts: true", "has_known_hosts: false");
        assert_eq!(without_hosts(got), without_hosts(want), "{}", bytes.escape_ascii());
    }
    None
}

/// The check of a server that accepts some hosts.
fn has_accepted_hosts(head: &Head<'_>) -> bool {
    let forwarded = head.value(Field::XForwardedHost);
    head.host().is_some_and(|host| host.starts_with('a'))
        && forwarded.is_none_or(|host| host == b"1")
}

/// A chunked body decodes to the same bytes, or is refused for the same reason, however it is cut;
/// a slow and simple reader gives the same result.
pub fn chunks_decode_the_same_however_cut(bytes: &[u8]) {
    for limits in [CHUNKS, SMALL_CHUNKS] {
        let whole = decode(bytes, bytes.len().max(1), limits);
        for size in [1, 2, 3, 7] {
            assert_eq!(whole, decode(bytes, size, limits), "by {size}: {}", bytes.escape_ascii());
        }
        let whole = whole.ok().filter(|d| d.done).map(|d| (d.consumed, d.body));
        assert_eq!(whole, naive::dechunk(bytes, &limits), "{}", bytes.escape_ascii());
    }
}

/// Chunked bytes decode to the original, and the bytes after them are not consumed.
pub fn chunks_round_trip(bytes: &[u8]) {
    let (seed, data) = bytes.split_first().map_or((7, bytes), |(s, d)| (usize::from(*s), d));
    let mut wire = Vec::new();
    for (i, piece) in data.chunks(1 + seed % 19).enumerate() {
        let extension = ["", ";a", ";a=b", ";q=\"x\\\"y;\""][(seed + i) % 4];
        wire.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(if seed % 2 == 0 { b"0\r\n\r\n" } else { b"00\r\nX: y\r\n\r\n" });
    let len = wire.len();
    wire.extend_from_slice(b"GET / HTTP/1.1");
    let decoded = decode(&wire, wire.len(), CHUNKS).expect("own chunks decode");
    assert_eq!((decoded.consumed, decoded.done), (len, true));
    assert_eq!(decoded.body, data);
}

/// An accepted path has no `..`, no new slash and no NUL after any number of decodings.
pub fn accepted_paths_hide_no_dots(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Targets are visible ASCII before their path is checked.
    if !bytes.iter().all(u8::is_ascii_graphic) || path::check(text).is_err() {
        return;
    }
    let slashes = bytes.iter().filter(|&&b| b == b'/').count();
    let mut level = bytes.to_vec();
    loop {
        assert!(level.split(|&b| b == b'/').all(|s| s != b".." && s != b"."), "{text}");
        assert_eq!(level.iter().filter(|&&b| b == b'/').count(), slashes, "{text}");
        assert!(!level.contains(&b'\\') && (level == bytes || !level.contains(&0)), "{text}");
        let next = naive::percent_decode(&level);
        if next == level {
            return;
        }
        level = next;
    }
}

/// Each second with a date is parsed back from its date, and no text panics: neither a random one
/// nor a date with some bytes replaced.
pub fn dates_round_trip(bytes: &[u8]) {
    let _ = date::parse(bytes);
    let (word, edits) = bytes.split_at(bytes.len().min(8));
    let mut padded = [0; 8];
    padded[..word.len()].copy_from_slice(word);
    let unix_s = u64::from_le_bytes(padded) % 253_402_300_800;
    let mut text = date::imf_fixdate(unix_s);
    assert_eq!(date::parse(&text), Some(unix_s), "{}", text.escape_ascii());
    for edit in edits.chunks_exact(2) {
        text[usize::from(edit[0]) % text.len()] = edit[1];
        let _ = date::parse(&text);
    }
}

// ---- how the bytes are fed

#[derive(Debug, PartialEq)]
struct Decoded {
    body: Vec<u8>,
    consumed: usize,
    done: bool,
}

/// A head in the terms of the naive reader.
fn naive_words(head: Head<'_>, head_len: usize) -> naive::Read {
    naive::Read {
        head_len,
        method: head.method_text().as_bytes().to_vec(),
        path: head.path().as_bytes().to_vec(),
        query: head.query().map(|q| q.as_bytes().to_vec()),
        host: head.host().map(|h| h.as_bytes().to_vec()),
        old: head.version() == Version::Http10,
        body: head.body(),
        keep_alive: head.keep_alive(),
        fields: head.fields().map(|(n, v)| (n.as_bytes().to_vec(), v.to_vec())).collect(),
    }
}

fn decode(bytes: &[u8], size: usize, limits: ChunkLimits) -> Result<Decoded, Reject> {
    let mut chunked = Chunked::new(limits);
    let mut out = Decoded { body: Vec::new(), consumed: 0, done: false };
    for piece in bytes.chunks(size) {
        let step = chunked.advance(piece, &mut out.body)?;
        out.consumed += step.consumed;
        out.done = step.done;
        assert!(step.done || step.consumed == piece.len(), "bytes were left over");
        if step.done {
            break;
        }
    }
    Ok(out)
}

/// RFC 9112 literally: line by line, with copies, without regard to speed.
mod naive {
    use super::*;

    #[derive(Debug, PartialEq)]
    pub struct Read {
        pub head_len: usize,
        pub method: Vec<u8>,
        pub path: Vec<u8>,
        pub query: Option<Vec<u8>>,
        pub host: Option<Vec<u8>>,
        pub old: bool,
        pub body: BodyFraming,
        pub keep_alive: bool,
        pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    }

    fn tchar(b: u8) -> bool {
        b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
    }

    fn lower(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).to_ascii_lowercase()
    }

    fn ows(bytes: &[u8]) -> Vec<u8> {
        let blank = |b: &u8| *b == b' ' || *b == b'\t';
        let start = bytes.iter().take_while(|b| blank(b)).count();
        let end = bytes.iter().rev().take_while(|b| blank(b)).count();
        if start + end >= bytes.len() { vec![] } else { bytes[start..bytes.len() - end].to_vec() }
    }

    /// Lines before the first empty one, and the number of bytes up to it.
    fn lines(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
        let mut at = 0;
        while bytes[at..].starts_with(b"\r\n") {
            at += 2;
        }
        if at > 8 {
            return None;
        }
        let mut lines = vec![];
        loop {
            let len = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
            if len == 0 {
                return Some((lines, at + 2));
            }
            let line = &bytes[at..at + len];
            if line.iter().any(|&b| (b < 0x20 && b != b'\t') || b == 0x7f) {
                return None;
            }
            lines.push(line.to_vec());
            at += len + 2;
        }
    }

    pub fn read(bytes: &[u8], limits: &HeadLimits) -> Option<Read> {
        let (lines, head_len) = lines(bytes)?;
        let (first, rest) = lines.split_first()?;
        if head_len > limits.head_bytes_max || rest.len() > limits.fields_max {
            return None;
        }
        let parts: Vec<&[u8]> = first.split(|&b| b == b' ').collect();
        let [method, target, version] = parts[..] else { return None };
        if method.is_empty() || !method.iter().all(|&b| tchar(b)) {
            return None;
        }
        if method.len() > limits.method_bytes_max || target.len() > limits.target_bytes_max {
            return None;
        }
        let old = match version {
            b"HTTP/1.0" => true,
            v if v.len() == 8 && v.starts_with(b"HTTP/1.") && v[7].is_ascii_digit() => false,
            _ => return None,
        };
        let mut fields = vec![];
        for line in rest {
            let colon = line.iter().position(|&b| b == b':')?;
            let name = &line[..colon];
            if name.is_empty() || !name.iter().all(|&b| tchar(b)) {
                return None;
            }
            fields.push((name.to_vec(), ows(&line[colon + 1..])));
        }
        let all = |name: &str| -> Vec<Vec<u8>> {
            fields.iter().filter(|(n, _)| lower(n) == name).map(|(_, v)| v.clone()).collect()
        };
        let at_most_one =
            |name: &str| if all(name).len() > 1 { None } else { Some(all(name).pop()) };
        let host = at_most_one("host")?;
        at_most_one("authorization")?;
        if (host.is_none() && !old) || host.as_ref().is_some_and(|h| !authority(h, false)) {
            return None;
        }
        let (authority, path, query) = split_target(method, target, limits)?;
        let body = match (at_most_one("transfer-encoding")?, at_most_one("content-length")?) {
            (None, None) => BodyFraming::None,
            (Some(te), None) if !old && lower(&te) == "chunked" => BodyFraming::Chunked,
            (None, Some(cl)) if !cl.is_empty() && cl.iter().all(u8::is_ascii_digit) => {
                let length = String::from_utf8(cl).ok()?.parse().ok()?;
                (length <= limits.body_bytes_max).then_some(BodyFraming::Length(length))?
            }
            _ => return None,
        };
        if !old && all("expect").iter().any(|e| lower(e) != "100-continue") {
            return None;
        }
        let options: Vec<String> = all("connection")
            .iter()
            .flat_map(|v| v.split(|&b| b == b',').map(|o| lower(&ows(o))).collect::<Vec<_>>())
            .collect();
        let has_option = |option: &str| options.iter().any(|o| o == option);
        let keep_alive = !has_option("close") && (!old || has_option("keep-alive"));
        let host = authority.or(host);
        let method = method.to_vec();
        Some(Read { head_len, method, path, query, host, old, body, keep_alive, fields })
    }

    type Split = (Option<Vec<u8>>, Vec<u8>, Option<Vec<u8>>);

    fn split_target(method: &[u8], target: &[u8], limits: &HeadLimits) -> Option<Split> {
        if target.is_empty() || !target.iter().all(|b| b.is_ascii_graphic()) {
            return None;
        }
        if method == b"CONNECT" {
            return authority(target, true).then(|| (Some(target.to_vec()), vec![], None));
        }
        if method == b"OPTIONS" && target == b"*" {
            return Some((None, target.to_vec(), None));
        }
        let (host, rest) = if target[0] == b'/' {
            (None, target.to_vec())
        } else {
            let scheme = ["http://", "https://"].iter().find(|s| lower(target).starts_with(**s))?;
            let rest = &target[scheme.len()..];
            let end = rest.iter().take_while(|b| !b"/?#".contains(b)).count();
            let host = &rest[..end];
            if !authority(host, false) {
                return None;
            }
            (Some(host.to_vec()), rest[end..].to_vec())
        };
        let mark = rest.iter().position(|&b| b == b'?');
        let mut path = rest[..mark.unwrap_or(rest.len())].to_vec();
        // A fragment is cut off after a query, and refused after a path.
        let query = mark.map(|at| rest[at + 1..].split(|&b| b == b'#').next().unwrap().to_vec());
        if path.contains(&b'#') {
            return None;
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if query.as_ref().is_some_and(|q| q.len() > limits.query_bytes_max) {
            return None;
        }
        safe_path(&path).then_some((host, path, query))
    }

    fn safe_path(path: &[u8]) -> bool {
        let hex = |at: usize| path.get(at).is_some_and(u8::is_ascii_hexdigit);
        let whole = (0..path.len()).all(|i| path[i] != b'%' || (hex(i + 1) && hex(i + 2)));
        let slashes = path.iter().filter(|&&b| b == b'/').count();
        let mut level = path.to_vec();
        while percent_decode(&level) != level {
            level = percent_decode(&level);
        }
        whole
            && level.iter().filter(|&&b| b == b'/').count() == slashes
            && level.split(|&b| b == b'/').all(|s| s != b"." && s != b"..")
            && level.iter().all(|b| !matches!(b, 0..=0x1f | 0x7f | b'\\'))
            && level.iter().all(|b| !matches!(b, 0xc0 | 0xc1 | 0xf5..))
    }

    pub fn percent_decode(bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        let mut i = 0;
        while i < bytes.len() {
            let digits = bytes.get(i + 1..i + 3).and_then(|d| std::str::from_utf8(d).ok());
            let value = digits
                .filter(|d| bytes[i] == b'%' && d.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|d| u8::from_str_radix(d, 16).ok());
            out.push(value.unwrap_or(bytes[i]));
            i += if value.is_some() { 3 } else { 1 };
        }
        out
    }

    fn authority(text: &[u8], needs_port: bool) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        // The port follows the last colon outside of brackets.
        let (host, port) = match text.rfind(':').filter(|&at| at > text.rfind(']').unwrap_or(0)) {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let host_is_valid = if host.starts_with('[') && host.ends_with(']') && host.len() > 2 {
            host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            let decoded = percent_decode(host.as_bytes());
            let escapes = (host.len() - decoded.len()) / 2;
            !host.is_empty()
                && host.matches('%').count() == escapes
                && host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%".contains(&b))
        };
        let port_is_valid = port.is_none_or(|p| {
            p.len() <= 5
                && p.bytes().all(|b| b.is_ascii_digit())
                && (p.is_empty() || p.parse::<u32>().is_ok_and(|n| n < 65_536))
        });
        host_is_valid && port_is_valid && (!needs_port || port.is_some_and(|p| !p.is_empty()))
    }

    /// The number of bytes and the data, if there is a whole valid body.
    pub fn dechunk(bytes: &[u8], limits: &ChunkLimits) -> Option<(usize, Vec<u8>)> {
        let mut body = vec![];
        let mut at = 0;
        let mut overhead: i128 = 0;
        let line_at = |at: usize| -> Option<&[u8]> {
            let len = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
            let line = &bytes[at..at + len];
            (!line.iter().any(|&b| (b < 0x20 && b != b'\t') || b == 0x7f)).then_some(line)
        };
        loop {
            let line = line_at(at)?;
            let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
            if line.len() > limits.line_bytes_max || !(1..=16).contains(&digits) {
                return None;
            }
            let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
            if u128::from(size) + body.len() as u128 > u128::from(limits.body_bytes_max) {
                return None;
            }
            if !extensions(&line[digits..]) {
                return None;
            }
            overhead = (overhead + line.len() as i128 - 16 - 2 * i128::from(size)).max(0);
            if overhead > limits.overhead_bytes_max as i128 {
                return None;
            }
            at += line.len() + 2;
            if size == 0 {
                break;
            }
            let end = at + size as usize;
            body.extend_from_slice(bytes.get(at..end)?);
            if bytes.get(end..end + 2)? != b"\r\n" {
                return None;
            }
            at = end + 2;
        }
        let start = at;
        loop {
            let line = line_at(at)?;
            at += line.len() + 2;
            // The last LF does not count: the result is fixed at its CR.
            if at - start > limits.trailer_bytes_max + usize::from(line.is_empty()) {
                return None;
            }
            if line.is_empty() {
                return Some((at, body));
            }
            let colon = line.iter().position(|&b| b == b':')?;
            if colon == 0 || !line[..colon].iter().all(|&b| tchar(b)) {
                return None;
            }
        }
    }

    /// *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] ), to the end of the text.
    fn extensions(mut text: &[u8]) -> bool {
        let bws = |t: &[u8]| t.iter().take_while(|b| b" \t".contains(b)).count();
        let token = |t: &[u8]| t.iter().take_while(|&&b| tchar(b)).count();
        while !text.is_empty() {
            text = &text[bws(text)..];
            let Some(rest) = text.strip_prefix(b";") else { return false };
            let rest = &rest[bws(rest)..];
            let name = token(rest);
            if name == 0 {
                return false;
            }
            text = &rest[name..];
            let Some(value) = text[bws(text)..].strip_prefix(b"=") else { continue };
            let value = &value[bws(value)..];
            let len = if value.starts_with(b"\"") {
                let mut i = 1;
                while i < value.len() && value[i] != b'"' {
                    i += if value[i] == b'\\' { 2 } else { 1 };
                }
                i + 1
            } else {
                token(value)
            };
            if len == 0 || len > value.len() {
                return false;
            }
            text = &value[len..];
        }
        true
    }
}

// ---- the inputs

const PIECES: &[&str] = &[
    "GET ",
    "POST ",
    "OPTIONS ",
    "CONNECT ",
    "/",
    "/a",
    "*",
    "http://a",
    "a:80",
    "?q=1",
    "%2e",
    "..",
    "%252e",
    "%2f",
    "%",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/1.2",
    " HTTP/2.0",
    "\r\n",
    "\r\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\n",
    " ",
    "\t",
    "\0",
    "\x7f",
    ":",
    ": ",
    ",",
    "Host: a",
    "Host: a:1",
    "host:b",
    "Host: [::1]",
    "Content-Length: 5",
    "Content-Length: 1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Connection: close",
    "Connection: keep-alive",
    "X: y",
    "Expect: 100-continue",
    "Expect: x",
    "Authorization: b",
    "é",
    "hello",
    "#",
    "@",
];

const CHUNK_PIECES: &[&str] = &[
    "0",
    "1",
    "5",
    "a",
    "00",
    "ff",
    "\r\n",
    "\r\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\n",
    ";",
    ";a",
    ";a=b",
    "=",
    "\"",
    "\\",
    ";a=\"b\"",
    " ",
    "\t",
    "x",
    "hello",
    "X: y",
    ":",
    "\0",
    "é",
    "1\r\nx\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
];

const PATH_PIECES: &[&str] = &[
    "/", "/", ".", "..", "%2e", "%2E", "%25", "25", "2e", "2", "e", "f", "%", "%2f", "a", "%00",
    "\\",
];

fn pieces(of: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(of), 0..24).prop_map(|p| p.concat().into_bytes())
}

/// A valid request with up to three bytes replaced, added or removed.
fn nearly_sound(of: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0..3u8, any::<u8>());
    (prop::sample::select(of), prop::collection::vec(edit, 0..4)).prop_map(|(text, edits)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, kind, byte) in edits {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

/// A request line and fields, each valid by itself; mostly with a Host.
fn from_lines() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(LINES);
    let host = prop::sample::select(HOSTS);
    let fields = prop::collection::vec(prop::sample::select(FIELDS), 0..4);
    (line, host, fields).prop_map(|(line, host, mut fields)| {
        fields.insert(fields.len() / 2, host);
        format!("{line}\r\n{}\r\n", fields.concat()).into_bytes()
    })
}

/// Chunks, each almost valid by itself, and an end.
fn from_chunks() -> impl Strategy<Value = Vec<u8>> {
    let chunk =
        (prop::sample::select(EXTENSIONS), 1..12usize, 0..8u8).prop_map(|(ext, len, odd)| {
            let data = &"0123456789\r\n"[..len];
            let end = if odd == 0 { "\n\n" } else { "\r\n" };
            format!("{:x}{ext}\r\n{data}{end}", len + usize::from(odd == 1))
        });
    let end =
        prop::sample::select(&["0\r\n\r\n", "00;a\r\nX: y\r\n\r\nG", "0\r\nX : y\r\n\r\n"][..]);
    (prop::collection::vec(chunk, 0..4), end)
        .prop_map(|(chunks, end)| (chunks.concat() + end).into_bytes())
}

const LINES: &[&str] = &[
    "GET / HTTP/1.1",
    "GET / HTTP/1.1",
    "POST /a/b?c=d HTTP/1.1",
    "POST / HTTP/1.0",
    "G / HTTP/1.7",
    "GET http://b:2?q HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT c:3 HTTP/1.1",
    "GET /%2e HTTP/1.1",
    "GET /a%20. HTTP/1.0",
    "GET /%41%25 HTTP/1.1",
    "GET * HTTP/1.1",
    "GET /.. HTTP/1.1",
];

const HOSTS: &[&str] = &[
    "Host: a\r\n",
    "Host: a\r\n",
    "Host: a\r\n",
    "hOsT:a.b:65535 \r\n",
    "Host: [::1]:1\r\n",
    "",
    "Host: a:65536\r\n",
    "Host: a:000001\r\n",
    "Host: a@b\r\n",
    "Host:\r\n",
    "Host: %41:\r\n",
];

const FIELDS: &[&str] = &[
    "X: y\r\n",
    "X:\t y z \t\r\n",
    "Connection: close\r\n",
    "connection: x, Keep-Alive\r\n",
    "Connection: keep-alive,CLOSE\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 065\r\n",
    "content-length: 9999999\r\n",
    "Content-Length: 1, 1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "Transfer-Encoding: Chunked\r\n",
    "Authorization: b\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "X: a\x7fb\r\n",
    "X: a\rb\r\n",
    "X: caf\u{e9}\r\n",
    "X : y\r\n",
    "X: y\r\n z\r\n",
    "Content_Length: 7\r\n",
    "Host: b\r\n",
    "Connection: closed\r\n",
];

const EXTENSIONS: &[&str] = &[
    "",
    "",
    "",
    ";a",
    ";a=b;c",
    ";a=\"b;\\\"c\"",
    " ; a = \"\"",
    " ",
    ";",
    ";a=",
    ";aaaaaaaaaaaaaaaaaa",
];

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /a?b HTTP/1.1\r\nHost: a:1\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET http://a/b%20c HTTP/1.0\r\nConnection: keep-alive, x\r\nX:  y \r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
    "\r\nOPTIONS * HTTP/1.1\r\nHost: a%41\r\nExpect: 100-continue\r\n\r\n",
];

const CHUNKED: &[&str] = &[
    "5\r\nhello\r\n0\r\n\r\n",
    "3;a=b;c=\"d\\\"e\"\r\nabc\r\n0a\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET",
    "1 ; a = b ;c\r\nx\r\n1;aaaaaaaaaaaaaaa\r\ny\r\n000\r\n\r\n",
];

/// Heads as a few clients send them: each repeatedly, with other lengths, or with one byte
/// replaced, added or removed.
fn repeated_heads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let base = prop_oneof![from_lines(), nearly_sound(REQUESTS)];
    let turn = (any::<prop::sample::Index>(), 0..4u8, any::<prop::sample::Index>(), any::<u8>());
    (prop::collection::vec(base, 1..7), prop::collection::vec(turn, 1..16)).prop_map(
        |(bases, turns)| {
            let vary =
                |(base, kind, at, byte): (prop::sample::Index, u8, prop::sample::Index, u8)| {
                    let mut bytes = bases[base.index(bases.len())].clone();
                    let at = at.index(bytes.len().max(1));
                    match kind {
                        0 if at < bytes.len() => bytes[at] = byte,
                        1 => {
                            let is_length = |w: &[u8]| w.eq_ignore_ascii_case(b"-length:");
                            let from = bytes.windows(8).position(is_length).unwrap_or(bytes.len());
                            let value = bytes[from..].iter_mut().take_while(|b| **b != b'\r');
                            for digit in value.filter(|b| b.is_ascii_digit()) {
                                *digit = b'0' + digit.wrapping_add(byte) % 10;
                            }
                        }
                        2 => bytes.extend_from_slice(b"GET / HTTP/1.1\r\n"),
                        _ => {}
                    }
                    bytes
                };
            turns.into_iter().map(vary).collect()
        },
    )
}

/// A head as a client sends it, repeated with up to three lines edited.
fn edited_heads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let some = any::<prop::sample::Index>;
    let edit = (some(), 0..9u8, some());
    let turn = prop::collection::vec(edit, 0..4);
    let names = prop::sample::subsequence(&NAMES[..SOUND_NAMES], 0..SOUND_NAMES).prop_shuffle();
    let values = prop::collection::vec(some(), SOUND_NAMES);
    let base = (prop::sample::select(&TARGETS[..SOUND_TARGETS]), names, values);
    let framing = prop::sample::subsequence(FRAMING, 0..=FRAMING.len());
    (base, framing, prop::collection::vec(turn, 1..12)).prop_map(|(base, framing, turns)| {
        let (target, names, values) = base;
        let value = |at: &prop::sample::Index| VALUES[at.index(VALUES.len())];
        let sound = |at: &prop::sample::Index| VALUES[at.index(SOUND_VALUES)];
        let mut first = vec![("GET ", target)];
        first.extend(names.iter().copied().zip(values.iter().map(sound)));
        let middle = 1 + names.len() / 2;
        first.insert(middle, ("Host: ", "a:1"));
        first.splice(middle..middle, framing);
        let vary = |edits: Vec<(prop::sample::Index, u8, prop::sample::Index)>| {
            let mut lines = first.clone();
            for (line, kind, other) in edits {
                let at = line.index(lines.len());
                match kind {
                    0 => lines[0].1 = TARGETS[other.index(TARGETS.len())],
                    5..7 => {
                        let is_length = |line: &&mut (&str, &str)| line.0.starts_with("Content-L");
                        for line in lines.iter_mut().filter(is_length) {
                            line.1 = LENGTHS[other.index(LENGTHS.len())];
                        }
                    }
                    1 if at > 0 => lines[at].0 = NAMES[other.index(NAMES.len())],
                    2 if at > 0 => drop(lines.remove(at)),
                    3 if at > 0 => lines.insert(at, lines[at]),
                    _ if at > 0 => lines[at].1 = value(&other),
                    _ => {}
                }
            }
            let (line, fields) = lines.split_at(1);
            let fields: String = fields.iter().map(|(n, v)| format!("{n}{v}\r\n")).collect();
            format!("{}{} HTTP/1.1\r\n{fields}\r\nbody", line[0].0, line[0].1).into_bytes()
        };
        std::iter::once(vary(vec![])).chain(turns.into_iter().map(vary)).collect()
    })
}

/// The first ones are valid.
const TARGETS: &[&str] = &[
    "/",
    "/tasks/a",
    "/tasks/abcdef",
    "/tasks/%61.b",
    "/tasks?key=a",
    "/tasks?key=abcdef#x",
    "/a/target/longer/than/most",
    "/..",
    "/a#b",
    "/a b",
    "",
    "*",
    "http://b/",
];
const SOUND_TARGETS: usize = 6;

/// Names with their colons, and mostly a space; the first ones may occur together in any head.
const NAMES: &[&str] = &[
    "traceparent: ",
    "X-Request-Id:",
    "Authorization: ",
    "X-API-Key: ",
    "x-api-key: ",
    "Cookie: ",
    "Last-Event-ID: ",
    "If-None-Match:",
    "X-Forwarded-For: ",
    "Sec-WebSocket-Key: ",
    "Accept: ",
    "Content-Type: ",
    "A2A-Extensions: ",
    "Traceparent: ",
    "authorization:",
    "Content-Length: ",
    "Content-Length:",
    "Transfer-Encoding: ",
    "Connection: ",
    "Expect: ",
    "Host: ",
    "X-Forwarded-Host: ",
];
const SOUND_NAMES: usize = 13;

/// Fields that change the meaning of a head.
const FRAMING: &[(&str, &str)] = &[
    ("Content-Length: ", "12"),
    ("Connection: ", "close"),
    ("Expect: ", "100-continue"),
    ("X-Forwarded-Host: ", "1"),
];

const LENGTHS: &[&str] =
    &["", "7", "34", "012", "12 ", "4194304", "4194305", "18446744073709551617", "1x"];

/// The first ones are valid in most fields.
const VALUES: &[&str] = &[
    "",
    " ",
    " \t ",
    "1",
    "12",
    "12 ",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "\tBearer x\t ",
    "caf\u{e9}",
    "99999999999999999999",
    "chunked",
    "close",
    "keep-alive, Upgrade",
    "100-continue",
    "a\x7f",
    "a\x01b",
    "a\0",
    "a\r\n b",
    "a\r\nX: y",
    "a\rb",
    "a\nb",
    "x\r\n\r\n",
];
const SOUND_VALUES: usize = 11;

proptest! {
    #[test]
    fn repeated_heads_parse_the_same_with_cache(heads in repeated_heads(), cut in 0..200usize) {
        cached_heads_parse_like_fresh_ones(&heads, cut);
    }

    #[test]
    fn edited_heads_parse_the_same_with_cache(heads in edited_heads(), cut in 0..200usize) {
        cached_heads_parse_like_fresh_ones(&heads, cut);
    }

    #[test]
    fn any_head_parses_like_the_simple_reader(bytes in prop_oneof![
        pieces(PIECES), nearly_sound(REQUESTS), from_lines(), from_lines(), prop::collection::vec(any::<u8>(), 0..64),
    ]) {
        head_end_is_the_same_however_cut(&bytes);
        heads_parse_like_the_simple_reader(&bytes);
    }

    #[test]
    fn chunked_body_decodes_the_same_however_cut(bytes in prop_oneof![
        pieces(CHUNK_PIECES), nearly_sound(CHUNKED), from_chunks(), prop::collection::vec(any::<u8>(), 0..64),
    ]) {
        chunks_decode_the_same_however_cut(&bytes);
        chunks_round_trip(&bytes);
    }

    #[test]
    fn decoding_an_accepted_path_adds_no_dots_or_slashes(bytes in pieces(PATH_PIECES)) {
        accepted_paths_hide_no_dots(&bytes);
    }

    #[test]
    fn http_dates_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
        dates_round_trip(&bytes);
    }
}

// ---- the table of requests

fn unescape(text: &str) -> Vec<u8> {
    let mut out = vec![];
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (byte, len) = match rest.as_bytes()[at + 1] {
            b'r' => (b'\r', 2),
            b'n' => (b'\n', 2),
            b't' => (b'\t', 2),
            b'0' => (0, 2),
            b'\\' => (b'\\', 2),
            b'x' => (u8::from_str_radix(&rest[at + 2..at + 4], 16).unwrap(), 4),
            b'{' => {
                let end = at + rest[at..].find('}').unwrap();
                let (count, byte) = rest[at + 2..end].split_once(':').unwrap();
                out.extend(vec![byte.as_bytes()[0]; count.parse::<usize>().unwrap() - 1]);
                (byte.as_bytes()[0], end + 1 - at)
            }
            other => panic!("unknown escape {}", other.escape_ascii()),
        };
        out.push(byte);
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// The results for the messages in `bytes`, in the table's notation.
fn replay(bytes: &[u8]) -> String {
    let mut words = vec![];
    let mut rest = bytes;
    while !rest.is_empty() {
        match message(rest) {
            Ok(Some((len, keep_alive))) => {
                words.push(if keep_alive { "ok" } else { "ok/close" }.to_string());
                rest = if keep_alive { &rest[len..] } else { &[] };
            }
            Ok(None) => {
                words.push("wait".to_string());
                break;
            }
            Err(reject) => {
                words.push(format!("{reject:?}"));
                break;
            }
        }
    }
    words.join(" ")
}

/// The length of the first message and whether the connection persists.
fn message(bytes: &[u8]) -> Result<Option<(usize, bool)>, Reject> {
    let Scan::Complete { head_len } = find_head(bytes, 0, &LIMITS)? else { return Ok(None) };
    let layout = parse_head(&bytes[..head_len], &LIMITS)?;
    let (head, body) = bytes.split_at(head_len);
    let head = layout.head(head);
    let body_len = match head.body() {
        BodyFraming::None => 0,
        BodyFraming::Length(len) if (body.len() as u64) < len => return Ok(None),
        BodyFraming::Length(len) => len as usize,
        BodyFraming::Chunked => {
            let step = Chunked::new(CHUNKS).advance(body, &mut Vec::new())?;
            if !step.done {
                return Ok(None);
            }
            step.consumed
        }
    };
    Ok(Some((head_len + body_len, head.keep_alive())))
}

fn table() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    include_str!("../data/http/requests.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.splitn(3, " | ");
            let mut next = || parts.next().expect(line);
            (next(), next(), unescape(next()))
        })
}

#[test]
fn request_table_rows_give_their_expected_result() {
    let wrong: Vec<String> = table()
        .filter(|(want, _, bytes)| replay(bytes) != *want)
        .map(|(want, clause, bytes)| {
            let start = bytes[..bytes.len().min(200)].escape_ascii();
            format!("want {want}, got {}: {clause}: {start}", replay(&bytes))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn request_table_parses_the_same_with_cached_heads() {
    let heads: Vec<_> = table().map(|(_, _, bytes)| bytes).filter(|b| b.len() < 2_000).collect();
    cached_heads_parse_like_fresh_ones(&heads, 20);
    // Two heads in sequence that differ in one byte.
    for head in &heads {
        for at in (0..head.len()).step_by(3) {
            let mut other = head.clone();
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            cached_heads_parse_like_fresh_ones(&[head.clone(), other], at);
        }
    }
}

#[test]
fn request_table_satisfies_the_parser_properties() {
    for (_, _, bytes) in table().filter(|(_, _, bytes)| bytes.len() < 2_000) {
        head_end_is_the_same_however_cut(&bytes);
        heads_parse_like_the_simple_reader(&bytes);
        chunks_decode_the_same_however_cut(&bytes);
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            chunks_decode_the_same_however_cut(&bytes[at + 4..]);
        }
    }
}

/// Each reason must be provoked by a row of the table.
#[test]
fn request_table_covers_each_reject_reason() {
    // Both need many lines and are provoked below.
    let elsewhere = [Reject::TooManyFields, Reject::ChunkOverhead];
    for reject in Reject::ALL.iter().filter(|r| !elsewhere.contains(r)) {
        let name = format!("{reject:?}");
        assert!(table().any(|(want, ..)| want.split(' ').any(|w| w == name)), "{name}");
    }
}

#[test]
fn rfc6585_5_too_many_fields() {
    let head = |n| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(n));
    assert_eq!(replay(head(99).as_bytes()), "ok");
    assert_eq!(replay(head(100).as_bytes()), "TooManyFields");
}

#[test]
fn rfc9112_7_1_1_chunk_overhead() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = |ext: usize| format!("1;{}\r\nx\r\n", "a".repeat(ext));
    let body = |ext, n| format!("{head}{}0\r\n\r\n", chunk(ext).repeat(n));
    assert_eq!(replay(body(14, 10_000).as_bytes()), "ok");
    assert_eq!(replay(body(254, 10).as_bytes()), "ok");
    assert_eq!(replay(body(254, 100).as_bytes()), "ChunkOverhead");
}
