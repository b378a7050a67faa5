//! Properties of `peregrine::json` against serde_json, which shares no code with it.
//!
//! Intended differences:
//! - half a surrogate pair as an escape is refused (serde_json accepts it in a raw value);
//! - an exponent that is beyond a double and has more than three digits is refused;
//! - a byte order mark before the document is skipped;
//! - nesting deeper than `DEPTH_CAP` is refused (serde_json skips raw values at any depth).

use std::borrow::Cow;
use std::collections::BTreeMap;

use peregrine::json::write::{canonical_raw, push_escaped, push_string, unescape};
use peregrine::json::{
    BYTE_ORDER_MARK, DEPTH_CAP, JsonError, Kind, Parser, Source, Value, base64, check, is_text,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

/// A document is accepted exactly if serde_json accepts it, apart from the list above; its text is
/// unchanged, and an error has a position. [`check`] agrees, and so does [`is_text`] for the
/// content of strings.
pub fn parses_like_serde_json(bytes: &[u8]) {
    let mut parser = Parser::new();
    if bytes.starts_with(BYTE_ORDER_MARK) {
        let document = &bytes[BYTE_ORDER_MARK.len()..];
        let is_read = !document.starts_with(BYTE_ORDER_MARK) && check(document, DEPTH_CAP).is_ok();
        assert_eq!(parser.parse(bytes, DEPTH_CAP).is_ok(), is_read);
        return;
    }
    let ours = parser.parse(bytes, DEPTH_CAP);
    assert_eq!(check(bytes, DEPTH_CAP), ours.map(|_| ()));
    let quoted = [b"\"", bytes, b"\""].concat();
    assert_eq!(is_text(bytes), check(&quoted, 0).is_ok());
    let theirs = serde_json::from_slice::<&RawValue>(bytes);
    match (ours, theirs) {
        (Ok(value), Ok(raw)) => assert_eq!(value.raw_str(), raw.get()),
        (Ok(value), Err(error)) => panic!("accepted {value:?}: {error}"),
        (Err(JsonError::Syntax { offset }), Ok(raw)) => {
            assert!(offset < bytes.len());
            assert!(has_lone_surrogate(raw.get()), "refused {raw}");
        }
        (Err(JsonError::Depth), Ok(raw)) => assert!(depth(raw.get()) > DEPTH_CAP),
        // serde_json reports an overflow only when it reads a double, which a raw value is not.
        (Err(JsonError::Range { offset }), Ok(raw)) => {
            assert!(bytes[offset..].iter().any(|byte| matches!(byte, b'e' | b'E')), "{raw}");
        }
        (Err(error), Ok(raw)) => panic!("{error} in {raw}"),
        (Err(JsonError::Syntax { offset }), Err(_)) => assert!(offset <= bytes.len()),
        (Err(JsonError::Range { offset }), Err(_)) => assert!(offset < bytes.len()),
        (Err(JsonError::Utf8), Err(_)) => assert!(str::from_utf8(bytes).is_err()),
        (Err(JsonError::Empty), Err(_)) => assert!(bytes.trim_ascii().is_empty()),
        (
            Err(error @ (JsonError::Depth | JsonError::Tokens { .. } | JsonError::TooLarge)),
            Err(_),
        ) => panic!("{error}"),
    }
}

/// Each node of a document has the verbatim text that serde_json finds there, and the text parses
/// to the same value again, alone and in its document.
pub fn spans_are_verbatim(bytes: &[u8]) {
    let (mut parser, mut again) = (Parser::new(), Parser::new());
    let Ok(root) = parser.parse(bytes, DEPTH_CAP) else {
        return;
    };
    let mut pending = vec![root];
    while let Some(value) = pending.pop() {
        assert_eq!(value.raw_str().as_bytes(), &bytes[value.span()]);
        let alone = again.parse(value.raw_str().as_bytes(), DEPTH_CAP).unwrap();
        assert_same(value, alone);
        assert_matches_serde(value);
        pending.extend(value.elements());
        pending.extend(value.members().map(|(_, member)| member));
    }
}

/// A used parser reads like a new one; in a buffer with any bytes after the document it reads the
/// same and leaves the buffer unchanged.
pub fn reused_parser_reads_like_a_new_one(bytes: &[u8]) {
    let (mut used, mut fresh) = (Parser::new(), Parser::new());
    let mut buffer = [bytes, &bytes[bytes.len() / 3..], &[b'\\'; 64]].concat();
    for end in [bytes.len() / 2, bytes.len()] {
        let show = |value: Value<'_>| (value.raw_str().to_owned(), value.kind(), value.is_empty());
        let ours = used.parse(&bytes[..end], 8).map(show);
        assert_eq!(ours, used.parse_from(Source::roomy(&mut buffer, end), 8).map(show));
        assert_eq!(ours, fresh.parse(&bytes[..end], 8).map(show));
        assert!(buffer.starts_with(bytes) && buffer.ends_with(&[b'\\'; 64]));
        fresh = Parser::new();
    }
}

/// Escaping is the inverse of unescaping, and both agree with serde_json.
pub fn escaping_round_trips(text: &str) {
    let mut raw = Vec::new();
    push_escaped(&mut raw, text);
    let raw = String::from_utf8(raw).unwrap();
    assert_eq!(unescape(&raw), text);
    assert_eq!(canonical_raw(&raw), raw);
    let mut quoted = Vec::new();
    push_string(&mut quoted, text);
    assert_eq!(quoted, serde_json::to_vec(text).unwrap());
    let mut parser = Parser::new();
    let value = parser.parse(&quoted, 0).unwrap();
    assert_eq!(value.as_str().unwrap(), text);
    assert!(value.str_eq(text));
    // an invalid JSON string causes no panic and no wrong borrow
    let _ = canonical_raw(text);
}

/// Base64 decodes to the original bytes in each accepted form, and each accepted text has one
/// standard form.
pub fn base64_round_trips(bytes: &[u8]) {
    let standard = base64::encode(bytes);
    let url_safe = standard.replace('+', "-").replace('/', "_");
    for text in [&standard, &url_safe] {
        for text in [text.as_str(), text.trim_end_matches('=')] {
            assert_eq!(base64::decode(text).as_deref(), Some(bytes));
            assert_eq!(base64::normalise(text).as_deref(), Some(standard.as_str()));
        }
    }
    assert!(matches!(base64::normalise(&standard), Some(Cow::Borrowed(_))));
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let unescaped = unescape(text);
    let again = base64::decode(&unescaped).map(|bytes| base64::encode(&bytes));
    assert_eq!(base64::normalise(text).as_deref(), again.as_deref());
}

/// `as_i64` is the exact decimal value, or nothing.
pub fn integers_are_exact(value: i64, zeros: usize) {
    let mut parser = Parser::new();
    let mut read = |text: String| parser.parse(text.as_bytes(), 0).unwrap().as_i64();
    // a leading zero is not valid JSON
    let zeros = if value == 0 { 0 } else { zeros };
    let pad = "0".repeat(zeros);
    assert_eq!(read(format!("{value}")), Some(value));
    assert_eq!(read(format!("{value}.{pad}0")), Some(value));
    assert_eq!(read(format!("{value}{pad}e-{zeros}")), Some(value));
    assert_eq!(read(format!("{value}.{pad}1")), None);
    let shifted = 10_i64.checked_pow(zeros as u32).and_then(|by| value.checked_mul(by));
    assert_eq!(read(format!("{value}e{zeros}")), shifted);
}

fn assert_same(left: Value<'_>, right: Value<'_>) {
    assert_eq!(
        (left.kind(), left.raw_str(), left.is_empty()),
        (right.kind(), right.raw_str(), right.is_empty())
    );
    assert_eq!((left.as_str(), left.as_i64()), (right.as_str(), right.as_i64()));
    assert!(left.elements().map(|v| v.raw_str()).eq(right.elements().map(|v| v.raw_str())));
    let pair = |(k, v): (peregrine::json::MemberKey<'_>, Value<'_>)| {
        (k.raw().to_owned(), v.raw_str().len())
    };
    assert!(left.members().map(pair).eq(right.members().map(pair)));
}

fn name_of(key: &peregrine::json::MemberKey<'_>) -> String {
    String::from_utf8(key.text().into_owned()).unwrap()
}

fn assert_matches_serde(value: Value<'_>) {
    let raw = value.raw_str();
    match value.kind() {
        Kind::Null => assert_eq!(raw, "null"),
        Kind::Bool(truth) => assert_eq!(raw, truth.to_string()),
        Kind::Number => assert!(raw.starts_with(|c: char| c == '-' || c.is_ascii_digit())),
        Kind::String => {
            let text = serde_json::from_str::<String>(raw).unwrap();
            assert_eq!(value.as_str().unwrap(), text);
            assert!(value.str_eq(&text) && !value.str_eq(&format!("{text}\0")));
            assert_eq!(value.has_escapes(), raw.contains('\\'));
        }
        Kind::Array => {
            let theirs = serde_json::from_str::<Vec<&RawValue>>(raw).unwrap();
            assert!(value.elements().map(|v| v.raw_str()).eq(theirs.iter().map(|v| v.get())));
        }
        Kind::Object => {
            let theirs = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw).unwrap();
            // both use the last of equal keys
            let ours: BTreeMap<_, _> =
                value.members().map(|(k, v)| (name_of(&k), v.raw_str())).collect();
            assert!(ours.iter().map(|(k, v)| (k, *v)).eq(theirs.iter().map(|(k, v)| (k, v.get()))));
            for (key, _) in value.members() {
                let name = name_of(&key);
                assert!(key.eq(&name));
                let first = value.members().find(|(other, _)| other.eq(&name)).unwrap().1;
                assert_eq!(value.get(&name).unwrap().span(), first.span());
            }
        }
    }
}

/// Whether a valid raw document has an escaped surrogate without its pair.
fn has_lone_surrogate(raw: &str) -> bool {
    let mut rest = raw;
    let mut high = false;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        let mut unit = 0;
        if c == '\\' {
            length = if rest[1..].starts_with('u') { 6 } else { 2 };
            unit = rest.get(2..length).map_or(0, |h| u32::from_str_radix(h, 16).unwrap_or(0));
        }
        if high != (0xdc00..0xe000).contains(&unit) {
            return true;
        }
        high = (0xd800..0xdc00).contains(&unit);
        rest = &rest[length..];
    }
    high
}

/// The deepest nesting of a valid raw document.
fn depth(raw: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in raw.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Text of JSON documents: odd white space, odd escapes, numbers of any size, repeated keys.
fn document() -> impl Strategy<Value = String> {
    let white = || "[ \t\n\r]{0,2}";
    let number = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,22})?([eE][+-]?[0-9]{1,5})?";
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number.prop_map(|number| number),
        string(),
    ];
    let nested = scalar.prop_recursive(5, 40, 6, move |inner| {
        let item = (white(), inner.clone(), white()).prop_map(|(a, v, b)| a + &v + &b);
        let member = (white(), string(), white(), item.clone())
            .prop_map(|(a, key, b, item)| format!("{a}{key}{b}:{item}"));
        prop_oneof![
            prop::collection::vec(item, 1..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 1..6)
                .prop_map(|items| format!("{{{}}}", items.join(","))),
            white().prop_map(|w| format!("[{w}]")),
            white().prop_map(|w| format!("{{{w}}}")),
        ]
    });
    (white(), nested, white()).prop_map(|(a, v, b)| a + &v + &b)
}

/// A string with its quotes; short keys repeat, long runs cross SIMD blocks.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-c]{0,3}",
        1 => "[ -!#-\\[\\]-~]{0,70}",
        1 => "[{}\\[\\]:, ]{0,4}",
        1 => "\\\\[\"\\\\/bfnrt]",
        1 => "\\\\u[0-9a-cA-C][0-9a-fA-F]{3}",
        1 => "\\\\ud[89abAB][0-9a-f]{2}\\\\ud[c-fC-F][0-9a-f]{2}",
        1 => "[à-ÿ漢\u{1f600}]{1,3}",
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// A document with a few bytes changed, removed or inserted.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(b"{}[]:,\"\\ \n0123456789.eE+-truefalsnudDc\0\x1f/".to_vec()),
        any::<u8>(),
    ];
    let edit = (any::<prop::sample::Index>(), 0..3_u8, byte);
    (document(), prop::collection::vec(edit, 0..4)).prop_map(|(text, edits)| {
        let mut bytes = text.into_bytes();
        for (at, what, byte) in edits {
            let at = at.index(bytes.len() + 1);
            match what {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        bytes
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn valid_documents_parse_like_serde_json(text in document()) {
        match Parser::new().parse(text.as_bytes(), DEPTH_CAP) {
            Ok(_) | Err(JsonError::Range { .. }) => {}
            Err(error) => panic!("{error} in {text}"),
        }
        parses_like_serde_json(text.as_bytes());
        spans_are_verbatim(text.as_bytes());
    }

    #[test]
    fn damaged_documents_parse_like_serde_json(bytes in damaged()) {
        parses_like_serde_json(&bytes);
        spans_are_verbatim(&bytes);
        reused_parser_reads_like_a_new_one(&bytes);
    }

    #[test]
    fn any_bytes_parse_like_serde_json(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        parses_like_serde_json(&bytes);
        base64_round_trips(&bytes);
    }

    #[test]
    fn json_like_text_parses_like_serde_json(text in "[\\[\\]{}:,\"0-9eE.+\\-truefalsn\\\\ ud]{0,12}") {
        parses_like_serde_json(text.as_bytes());
        reused_parser_reads_like_a_new_one(text.as_bytes());
    }

    #[test]
    fn string_escapes_round_trip(text in ".{0,80}|[\\x00-\\x7f]{0,80}|(\\\\u?[0-9d]{0,4}){0,6}") {
        escaping_round_trips(&text);
    }

    #[test]
    fn base64_text_round_trips(text in "[A-Za-z0-9+/=_\\-\\\\]{0,9}") {
        base64_round_trips(text.as_bytes());
    }

    #[test]
    fn integers_parse_exactly(value in any::<i64>(), digits in 0..19_u32, zeros in 0..25_usize) {
        integers_are_exact(value, zeros);
        integers_are_exact(value / 10_i64.pow(digits), zeros);
    }
}

#[test]
fn nesting_near_the_cap_parses_like_serde_json() {
    for depth in [DEPTH_CAP - 1, DEPTH_CAP, DEPTH_CAP + 1, 5000] {
        parses_like_serde_json(("[".repeat(depth) + &"]".repeat(depth)).as_bytes());
        parses_like_serde_json(("[".repeat(depth) + &"]".repeat(depth - 1)).as_bytes());
    }
}

#[test]
fn lone_surrogate_escape_is_rejected() {
    for raw in [r#""\ud800""#, r#"["\udfff"]"#, r#""\ud800\u0041""#, r#"{"\udc00\ud800":1}"#] {
        assert!(has_lone_surrogate(raw));
        assert!(Parser::new().parse(raw.as_bytes(), 8).is_err());
        parses_like_serde_json(raw.as_bytes());
    }
}
