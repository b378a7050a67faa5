//! Properties of responses as a client reads them, for any bytes.
//!
//! A property is a function of bytes: the first selects the request, the others are the server's.

use peregrine::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpVersion, TransportError,
        http1::{Http1Connection, Http1Event, ResponseBuf},
    },
    http::{
        ChunkLimits, Chunked, FieldLines, FieldLinesBuf,
        client::{RequestHead, ResponseFraming, ResponseLimits},
    },
};
use proptest::prelude::*;

/// Limits that short inputs reach.
pub const LIMITS: ResponseLimits =
    ResponseLimits { head_bytes_max: 160, fields_max: 4, body_bytes_max: 60 };

/// The kind of request, on which the framing of the response depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestKind {
    Get,
    /// A GET with an upgrade to WebSocket.
    Upgrade,
    Connect,
}

/// A final head: status, fields.
pub type SeenHead = (u16, Vec<(String, Vec<u8>)>);

/// The result of reading a server's bytes followed by a close.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub head: Option<SeenHead>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, Vec<u8>)>,
    pub end: Result<Ended, TransportError>,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// By itself, after so many bytes; whether the connection is reusable.
    Whole { bytes: usize, is_reusable: bool },
    /// By the close of the connection.
    ByClose,
}

/// Reads a server's bytes in pieces, each piece of the body into at most `room` bytes.
pub fn read(
    kind: RequestKind,
    bytes: &[u8],
    limits: &ResponseLimits,
    piece: &mut dyn FnMut() -> usize,
) -> Seen {
    read_into(&mut ResponseBuf::default(), kind, bytes, limits, piece)
}

/// The same, into a buffer with an earlier response.
fn read_into(
    response: &mut ResponseBuf,
    kind: RequestKind,
    bytes: &[u8],
    limits: &ResponseLimits,
    piece: &mut dyn FnMut() -> usize,
) -> Seen {
    let mut http1 = begun(kind);
    let mut seen = Seen { head: None, body: vec![], trailers: vec![], end: Ok(Ended::ByClose) };
    let mut at = 0;
    let end = 'read: loop {
        if at == bytes.len() {
            break http1.eof(response).map(|_| Ended::ByClose);
        }
        let to = at + piece().clamp(1, bytes.len() - at);
        loop {
            let room = piece().max(1);
            let before = seen.body.len();
            let input = &bytes[at..to];
            let step = http1.advance(input, response, &mut seen.body, room, limits);
            let step = match step {
                Ok(step) => step,
                Err(error) => break 'read Err(error),
            };
            assert!(step.consumed <= input.len() && seen.body.len() - before <= room);
            at += step.consumed;
            match step.event {
                Http1Event::More if at == to => break,
                Http1Event::More => assert!(step.consumed > 0, "nothing moves"),
                Http1Event::Head => {
                    assert_eq!(seen.head, None, "one final head");
                    let fields = response.head().fields();
                    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_vec()));
                    seen.head = Some((response.head().status(), fields.collect()));
                }
                Http1Event::End { is_reusable } => {
                    let trailers = response.trailers();
                    seen.trailers = trailers.map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
                    assert!(!is_reusable || at == to, "bytes wait on a connection to be used");
                    assert_eq!(http1.is_idle(), is_reusable);
                    // The caller checks for bytes that arrive later.
                    let is_reusable = is_reusable && at == bytes.len();
                    break 'read Ok(Ended::Whole { bytes: at, is_reusable });
                }
            }
        }
    };
    assert!(response.held_bytes() <= 8 * limits.head_bytes_max + 4096, "bounded");
    seen.end = end;
    seen
}

/// A connection with a sent request.
fn begun(kind: RequestKind) -> Http1Connection {
    let (mut http1, mut out) = (Http1Connection::default(), Vec::new());
    let origin = HttpOrigin::parse("http://h/").unwrap().origin;
    let mut fields = FieldLinesBuf::default();
    let begun = match kind {
        RequestKind::Connect => http1.begin_connect("h:1", FieldLines::NONE, &mut out),
        RequestKind::Get | RequestKind::Upgrade => {
            if kind == RequestKind::Upgrade {
                fields.push("Upgrade", "websocket");
            }
            let request = HttpRequest {
                method: HttpMethod::Get,
                origin: &origin,
                target: "/",
                fields: fields.get(),
                body: b"",
                version: HttpVersion::Http1,
                head_due_ms: 0,
                body_idle_ms: 0,
                is_repeatable: true,
            };
            http1.begin(&request, false, &mut RequestHead::default(), &mut out)
        }
    };
    begun.unwrap();
    http1.sent();
    http1
}

// ---- the properties

/// A response is the same, or refused for the same reason, however it is cut, with any room for its
/// body, and after any earlier response; and it equals a slow and simple reading of RFC 9112.
pub fn response_parses_the_same_however_cut(bytes: &[u8]) {
    let Some((seed, bytes)) = bytes.split_first() else { return };
    let kind = match seed % 4 {
        0 | 1 => RequestKind::Get,
        2 => RequestKind::Upgrade,
        _ => RequestKind::Connect,
    };
    let whole = read(kind, bytes, &LIMITS, &mut || usize::MAX);
    let same = |other: Seen, how: &str| {
        // The part of a body before an error depends on the sizes of the pieces.
        let is_whole = whole.end.is_ok();
        assert_eq!(other.end, whole.end, "{how}: {}", bytes.escape_ascii());
        assert_eq!(other.head, whole.head, "{how}: {}", bytes.escape_ascii());
        if is_whole {
            assert_eq!(other, whole, "{how}: {}", bytes.escape_ascii());
        }
    };
    same(read(kind, bytes, &LIMITS, &mut || 1), "byte by byte");
    let mut size = u32::from(*seed);
    let pieces = read(kind, bytes, &LIMITS, &mut || {
        size = size.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (size >> 16) as usize % 40
    });
    same(pieces, "in pieces");
    for before in [bytes, &with_another_line(bytes, usize::from(*seed))] {
        for kind_before in [kind, RequestKind::Connect] {
            let mut response = ResponseBuf::default();
            read_into(&mut response, kind_before, before, &LIMITS, &mut || usize::MAX);
            let how = format!("after {}", before.escape_ascii());
            same(read_into(&mut response, kind, bytes, &LIMITS, &mut || usize::MAX), &how);
        }
    }
    let naive = naive(kind, bytes);
    match (&whole.end, &naive) {
        (Ok(end), Some(slow)) => assert_eq!(
            (whole.head.as_ref(), &whole.body, *end),
            (Some(&slow.0), &slow.1, slow.2),
            "{}",
            bytes.escape_ascii()
        ),
        (Err(_), None) => {}
        _ => panic!("{whole:?} and {naive:?}: {}", bytes.escape_ascii()),
    }
}

/// The bytes of a response with one line longer or shorter by a byte.
fn with_another_line(bytes: &[u8], seed: usize) -> Vec<u8> {
    let ends: Vec<_> = bytes.windows(2).enumerate().filter(|(_, two)| *two == b"\r\n").collect();
    let mut other = bytes.to_vec();
    match ends.get(seed / 2 % ends.len().max(1)) {
        Some((at, _)) if seed.is_multiple_of(2) => other.insert(*at, b'0'),
        Some((at @ 1.., _)) => drop(other.remove(at - 1)),
        Some((0, _)) | None => {}
    }
    other
}

/// A slow and simple reading of RFC 9112 §4 to §7 of all bytes that a server sends before it
/// closes; `None`: the response is refused or incomplete.
fn naive(kind: RequestKind, bytes: &[u8]) -> Option<(SeenHead, Vec<u8>, Ended)> {
    let mut at = 0;
    for _ in 0..=8 {
        let (head, version, head_len) = naive_head(&bytes[at..])?;
        at += head_len;
        let (framing, max, keeps) = naive_framing(kind, &head, version)?;
        match head.0 {
            101 if kind == RequestKind::Upgrade => {
                return Some((head, bytes[at..].to_vec(), Ended::ByClose));
            }
            101 => return None,
            100..=199 => continue,
            _ => {}
        }
        let rest = &bytes[at..];
        let whole = |bytes: usize, body: Vec<u8>| {
            let is_reusable = keeps && bytes == rest.len();
            Some((head.clone(), body, Ended::Whole { bytes: at + bytes, is_reusable }))
        };
        return match framing {
            ResponseFraming::None => whole(0, vec![]),
            ResponseFraming::Length(length) => {
                let length = usize::try_from(length).ok()?;
                whole(length, rest.get(..length)?.to_vec())
            }
            ResponseFraming::Chunked => {
                let (mut body, limits) = (Vec::new(), chunk_limits(max));
                let step = Chunked::new(limits).advance(rest, &mut body).ok()?;
                if step.done { whole(step.consumed, body) } else { None }
            }
            ResponseFraming::UntilClose if rest.len() as u64 > max => None,
            ResponseFraming::UntilClose | ResponseFraming::Tunnel => {
                Some((head, rest.to_vec(), Ended::ByClose))
            }
        };
    }
    None
}

fn chunk_limits(body_bytes_max: u64) -> ChunkLimits {
    ChunkLimits {
        body_bytes_max,
        line_bytes_max: 256,
        trailer_bytes_max: LIMITS.head_bytes_max,
        overhead_bytes_max: LIMITS.head_bytes_max,
    }
}

/// Status, fields, the minor version, bytes.
fn naive_head(bytes: &[u8]) -> Option<(SeenHead, u8, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    if end + 4 > LIMITS.head_bytes_max {
        return None;
    }
    let mut lines = Vec::new();
    for line in bytes[..end].split(|byte| *byte == b'\n') {
        let is_last = lines.len() == bytes[..end].iter().filter(|byte| **byte == b'\n').count();
        let line = if is_last { line } else { line.strip_suffix(b"\r")? };
        if line.iter().any(|byte| *byte != b'\t' && (*byte < b' ' || *byte == 0x7f)) {
            return None;
        }
        lines.push(line);
    }
    let (first, fields) = lines.split_first()?;
    let rest = first.strip_prefix(b"HTTP/1.")?;
    let [minor @ (b'0' | b'1'), b' ', digits @ ..] = rest else { return None };
    let (status, reason) = digits.split_at_checked(3)?;
    let is_apart = reason.is_empty() || reason.starts_with(b" ");
    if !is_apart || !status.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let status: u16 = str::from_utf8(status).ok()?.parse().ok()?;
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let fields = fields.iter().map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_named = !name.is_empty() && name.iter().all(token);
        let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let from = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
        let to = value.iter().rposition(|byte| !blank(byte)).map_or(from, |at| at + 1);
        is_named.then(|| (String::from_utf8(name.to_vec()).unwrap(), value[from..to].to_vec()))
    });
    let fields: Vec<_> = fields.collect::<Option<_>>()?;
    if status < 100 || fields.len() > LIMITS.fields_max {
        return None;
    }
    Some(((status, fields), *minor, end + 4))
}

/// The framing, the limit of the body, and whether the connection is reusable.
fn naive_framing(
    kind: RequestKind,
    head: &SeenHead,
    minor: u8,
) -> Option<(ResponseFraming, u64, bool)> {
    let (status, fields) = head;
    let all = |wanted: &str| -> Vec<String> {
        let named = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| String::from_utf8_lossy(value).to_lowercase()).collect()
    };
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    let media = all("content-type").last().cloned().unwrap_or_default();
    let is_stream = media.split(';').next().unwrap_or_default().trim() == "text/event-stream";
    let max = if is_stream { u64::MAX } else { LIMITS.body_bytes_max };
    let options = all("connection").join(",");
    let has = |option: &str| options.split(',').any(|one| one.trim_matches([' ', '\t']) == option);
    let keeps = !has("close") && (minor == b'1' || has("keep-alive"));
    if lengths.len() > 1 || codings.len() > 1 {
        return None;
    }
    let framing = match (lengths.first(), codings.first()) {
        _ if matches!(*status, 100..=199 | 204 | 304) => ResponseFraming::None,
        _ if kind == RequestKind::Connect && status / 100 == 2 => ResponseFraming::Tunnel,
        (None, Some(coding)) if coding == "chunked" && minor == b'1' => ResponseFraming::Chunked,
        (_, Some(_)) => return None,
        (Some(length), None) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            ResponseFraming::Length(length.parse().ok().filter(|length| *length <= max)?)
        }
        (Some(_), None) => return None,
        (None, None) => ResponseFraming::UntilClose,
    };
    Some((framing, max, keeps))
}

// ---- random responses

fn line() -> impl Strategy<Value = String> {
    let lines = [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 ",
        "HTTP/1.1 200",
        "HTTP/1.0 404 Not Found",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 304 x",
        "HTTP/1.1 100 Continue",
        "HTTP/1.1 103 Early Hints",
        "HTTP/1.1 101 Switching Protocols",
        "HTTP/1.2 200 OK",
        "HTTP/1.1 099 x",
        "HTTP/1.1 999 x",
        "HTTP/2 200",
    ];
    prop::sample::select(lines.to_vec()).prop_map(str::to_owned)
}

fn field() -> impl Strategy<Value = String> {
    let fields = [
        "Content-Length: 5",
        "Content-Length: 5",
        "content-length: 0",
        "Content-Length: 5, 5",
        "Content-Length: 61",
        "Content-Length: +5",
        "Content-Length: 18446744073709551616",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "transfer-encoding: Chunked ",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Connection: close",
        "Connection: x, keep-alive",
        "Content-Type: application/json",
        "Content-Type: text/event-stream; charset=utf-8",
        "A:",
        "A: \tb \t",
        "A : b",
        " folded",
        "A: \u{1}",
        "A: \u{e4}",
        ": b",
        "A",
    ];
    prop::sample::select(fields.to_vec()).prop_map(str::to_owned)
}

fn head() -> impl Strategy<Value = String> {
    (line(), prop::collection::vec(field(), 0..4)).prop_map(|(line, fields)| {
        let lines: Vec<String> = [line].into_iter().chain(fields).collect();
        lines.join("\r\n") + "\r\n\r\n"
    })
}

/// Mostly valid: heads, a body, and further bytes.
pub fn wire() -> impl Strategy<Value = Vec<u8>> {
    let bodies = [
        "hello",
        "",
        "hello, world",
        "5\r\nhello\r\n0\r\n\r\n",
        "2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
        "0\r\n\r\n",
        "40\r\n",
        "5\r\nhel",
    ];
    let change =
        (any::<prop::sample::Index>(), prop::sample::select(b"\r\n\t\0 :;,015aA\x7f".to_vec()));
    let parts = (
        prop::collection::vec(head(), 1..4),
        prop::sample::select(bodies.to_vec()),
        prop::sample::select(&["", "", "x", "HTTP/1.1 200 OK\r\n\r\n"][..]),
        prop::collection::vec(change, 0..2),
        prop::bool::weighted(0.3),
    );
    parts.prop_map(|(heads, body, more, changes, is_changed)| {
        // Interim heads, and a final one.
        let interim = heads.len() - 1;
        let mut wire = String::new();
        for (at, head) in heads.iter().enumerate() {
            let is_interim = at < interim && head.contains(" 10");
            if is_interim || at == interim {
                wire += head;
            }
        }
        let mut wire = (wire + body + more).into_bytes();
        for (at, byte) in changes.into_iter().filter(|_| is_changed) {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        wire
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    #[test]
    fn responses_are_the_same_however_they_are_cut(seed in any::<u8>(), wire in wire()) {
        response_parses_the_same_however_cut(&[&[seed][..], &wire].concat());
    }

    #[test]
    fn any_bytes_parse_the_same_however_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        response_parses_the_same_however_cut(&bytes);
    }
}
