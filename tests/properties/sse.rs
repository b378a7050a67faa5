//! Properties of `peregrine::sse`: written events are read back, wherever the stream is cut.

use peregrine::sse::{
    KEEP_ALIVE, SseError, SseParser, begin, cancel, chunk_begin, chunk_end, chunk_last,
    error_event, finish,
};
use proptest::prelude::*;

/// Event type, data, last event id.
type Seen = (String, String, String);

/// All events of a stream fed piece by piece, and the error that ended it.
fn read<'b>(pieces: impl Iterator<Item = &'b [u8]>, max: usize) -> (Vec<Seen>, Option<SseError>) {
    let mut parser = SseParser::new(max);
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() {
            let step = match parser.advance(rest) {
                Ok(step) => step,
                Err(error) => return (seen, Some(error)),
            };
            assert!(step.ate > 0 && (step.event.is_some() || step.ate == rest.len()));
            seen.extend(step.event.map(|e| {
                let data = String::from_utf8_lossy(e.data).into_owned();
                (e.kind.into(), data, String::from_utf8_lossy(e.id).into_owned())
            }));
            rest = &rest[step.ate..];
        }
    }
    (seen, None)
}

/// The events are the same for the whole stream, cut in two at any position, or byte by byte; a
/// slow reading of the standard finds the same ones.
pub fn events_parse_the_same_however_cut(stream: &[u8]) {
    for max in [stream.len() * 3 + 1, 9] {
        let whole = read([stream].into_iter(), max);
        assert_eq!(read(stream.chunks(1), max), whole);
        for at in 0..=stream.len() {
            let (left, right) = stream.split_at(at);
            assert_eq!(read([left, right].into_iter(), max), whole, "cut at {at}");
        }
    }
    assert_eq!(read([stream].into_iter(), stream.len() * 3 + 1), (naive(stream), None));
}

/// The standard's algorithm on a whole stream.
fn naive(stream: &[u8]) -> Vec<Seen> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<_> = text.split('\n').collect();
    lines.pop(); // not ended
    let (mut seen, mut kind, mut data, mut id) = (vec![], "", String::new(), "");
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" if line.is_empty() => {
                if !data.is_empty() {
                    data.pop();
                    let kind = if kind.is_empty() { "message" } else { kind };
                    seen.push((kind.to_owned(), data.clone(), id.to_owned()));
                }
                data.clear();
                kind = "";
            }
            "event" => kind = value,
            "data" => data = data + value + "\n",
            "id" if !value.contains('\0') => id = value,
            _ => {}
        }
    }
    seen
}

/// One item that a server writes.
#[derive(Clone, Debug)]
enum Write {
    Frame(Option<u64>, String),
    Error(Option<u64>, String),
    Cancelled(Option<u64>, String),
    KeepAlive,
}

/// The written events, and no others, are read back, out of chunks of any size.
fn round_trip(chunks: &[Vec<Write>]) {
    let mut out = Vec::new();
    let mut expected = Vec::new();
    let mut last = String::new();
    for chunk in chunks {
        let start = out.len();
        let mark = chunk_begin(&mut out);
        for write in chunk {
            let (kind, id, data) = match write {
                Write::Frame(id, data) | Write::Error(id, data) => {
                    let error = matches!(write, Write::Error(..));
                    let open = if error { error_event } else { begin };
                    let mark = open(&mut out, *id);
                    out.extend_from_slice(data.as_bytes());
                    finish(&mut out, mark);
                    (if error { "error" } else { "message" }, id, data)
                }
                Write::Cancelled(id, data) => {
                    let mark = begin(&mut out, *id);
                    out.extend_from_slice(data.as_bytes());
                    cancel(&mut out, mark);
                    continue;
                }
                Write::KeepAlive => {
                    out.extend_from_slice(KEEP_ALIVE);
                    continue;
                }
            };
            last = id.map_or(last, |id| id.to_string());
            expected.push((kind.to_owned(), data.clone(), last.clone()));
        }
        if chunk_end(&mut out, mark) == 0 {
            assert_eq!(out.len(), start);
        }
    }
    chunk_last(&mut out);
    let body = unchunked(&out);
    assert_eq!(read([&body[..]].into_iter(), 1 << 16), (expected, None));
    events_parse_the_same_however_cut(&body);
}

/// The body of a chunked message that ends with `wire`.
fn unchunked(wire: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut rest = wire;
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let (data, after) = rest[line + 2..].split_at(size);
        rest = after.strip_prefix(b"\r\n").unwrap();
        if size == 0 {
            assert!(rest.is_empty());
            return body;
        }
        body.extend_from_slice(data);
    }
}

fn write() -> impl Strategy<Value = Write> {
    let id = || prop::option::of(any::<u64>());
    let data = || "[^\r\n]{0,12}";
    prop_oneof![
        4 => (id(), data()).prop_map(|(id, data)| Write::Frame(id, data)),
        1 => (id(), data()).prop_map(|(id, data)| Write::Error(id, data)),
        1 => (id(), data()).prop_map(|(id, data)| Write::Cancelled(id, data)),
        1 => Just(Write::KeepAlive),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn written_events_are_read_back(
        chunks in prop::collection::vec(prop::collection::vec(write(), 0..4), 0..4),
    ) {
        round_trip(&chunks);
    }

    #[test]
    fn events_are_the_same_however_a_stream_is_cut(lines in prop::collection::vec(
        ("(|data|event|id|retry|dat|: c|\u{feff})", "(|:|: |:  )", "[a-b0-1:é\0 ]{0,5}",
         "(\n|\r|\r\n|\n\n|\r\r|\r\n\r\n|\n\r)"),
        0..10,
    )) {
        let stream: String = lines.iter().map(|(a, b, c, d)| a.clone() + b + c + d).collect();
        events_parse_the_same_however_cut(stream.as_bytes());
    }

    #[test]
    fn any_bytes_give_the_same_events_however_cut(stream in prop::collection::vec(any::<u8>(), 0..60)) {
        events_parse_the_same_however_cut(&stream);
    }
}
