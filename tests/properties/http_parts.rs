//! Heads in parts: a reader with earlier heads reads each one like a fresh reader, and like the
//! same head in HTTP/1.1; and it retains no part of a head that may be a secret.

use peregrine::http::{
    Field, Head, HeadLimits, HeadMemo, Reject, RequestParts, Scan, TargetForm, find_head,
    parse_head,
};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 400,
    fields_max: 6,
    target_bytes_max: 60,
    query_bytes_max: 8,
    method_bytes_max: 8,
    body_bytes_max: 5_000,
};

/// A head that the caller has parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    method: Vec<u8>,
    target: Vec<u8>,
    authority: Option<Vec<u8>>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    has_body: bool,
    /// True: the number of fields is not known in advance.
    is_uncounted: bool,
}

// ---- the properties

/// Each head means the same after any earlier heads, and in a buffer that was used before.
pub fn heads_parse_the_same_after_earlier_heads(heads: &[Parts]) {
    let mut memo = HeadMemo::new(LIMITS);
    for head in heads.iter().chain(heads) {
        let expected = read(&mut HeadMemo::new(LIMITS), head);
        assert_eq!(read(&mut memo, head), expected, "{head:?} of {heads:?}");
    }
}

/// A head is refused for the same reason as in HTTP/1.1, and means the same, if HTTP/1.1 can
/// express it. Only a head that is too large may have another reason in HTTP/1.1, which looks for
/// control bytes first.
pub fn head_parts_parse_like_http1_text(parts: &Parts) {
    let Some(text) = parts.text() else { return };
    let whole = match find_head(&text, 0, &LIMITS) {
        Ok(Scan::Complete { head_len }) => {
            assert_eq!(head_len, text.len(), "{parts:?}");
            parse_head(&text, &LIMITS).map(|layout| words(&layout.head(&text)))
        }
        Ok(Scan::Partial { .. }) => panic!("a whole head is not all: {parts:?}"),
        Err(reject) => Err(reject),
    };
    let read = HeadMemo::new(LIMITS).read_parts(parts.request(parts.each()), has_known_hosts);
    let read = read.map(|head| words(&head.head())).map_err(|refused| refused.reject);
    match (&read, &whole) {
        (Err(Reject::HeadTooLarge), Err(_)) => assert!(text.len() > LIMITS.head_bytes_max),
        _ => assert_eq!(read, whole, "{}", text.escape_ascii()),
    }
}

/// Heads separated by NUL, with lines that end with a line feed: flags, method, target, authority,
/// and fields with a colon.
pub fn heads_of(bytes: &[u8]) -> Vec<Parts> {
    bytes.split(|byte| *byte == 0).take(64).map(parts_of).collect()
}

fn parts_of(bytes: &[u8]) -> Parts {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let flags = lines.next().and_then(|line| line.first()).copied().unwrap_or_default();
    let mut line = || lines.next().unwrap_or_default().to_vec();
    let (method, target, authority) = (line(), line(), line());
    let field = |line: &[u8]| match line.iter().position(|byte| *byte == b':') {
        Some(at) => (line[..at].to_vec(), line[at + 1..].to_vec()),
        None => (line.to_vec(), Vec::new()),
    };
    Parts {
        method,
        target,
        authority: (flags & 1 != 0).then_some(authority),
        fields: lines.map(field).collect(),
        has_body: flags & 2 != 0,
        is_uncounted: flags & 4 != 0,
    }
}

// ---- comparison

/// The parts of a head that a server reads, except the framing of the body, which only HTTP/1.1
/// has.
fn words(head: &Head<'_>) -> String {
    let form = match head.form() {
        TargetForm::Origin | TargetForm::Absolute => "a path",
        TargetForm::Authority | TargetForm::Asterisk => "no path",
    };
    let fields = head.fields().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
    let fields: Vec<_> = fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    format!(
        "{} {form} {:?} {:?} {:?} {fields:?}",
        head.method_text(),
        head.path_bytes(),
        head.query(),
        head.host()
    )
}

fn has_known_hosts(head: &Head<'_>, _: bool) -> bool {
    let forwarded = head.value(Field::XForwardedHost);
    head.host().is_some_and(|host| host.starts_with('a')) && forwarded != Some(b"evil")
}

/// All results of reading a head.
fn read(memo: &mut HeadMemo, parts: &Parts) -> String {
    let read = match parts.is_uncounted {
        true => memo.read_parts(parts.request(parts.each().filter(|_| true)), has_known_hosts),
        false => memo.read_parts(parts.request(parts.each()), has_known_hosts),
    };
    let output = format!("{read:?}");
    read.into_iter().for_each(|head| memo.reuse(head));
    output
}

impl Parts {
    fn each(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    fn request<'r, F>(&'r self, fields: F) -> RequestParts<'r, F> {
        RequestParts {
            method: &self.method,
            target: &self.target,
            authority: self.authority.as_deref(),
            fields,
            has_body: self.has_body,
            takes_trailers: true,
        }
    }

    /// The same head in HTTP/1.1; `None`: HTTP/1.1 cannot express it.
    fn text(&self) -> Option<Vec<u8>> {
        let is_line = |bytes: &[u8]| !bytes.iter().any(|byte| b"\r\n".contains(byte));
        let is_word = |word: &[u8]| !word.is_empty() && is_line(word) && !word.contains(&b' ');
        if !is_word(&self.method) || !is_word(&self.target) {
            return None;
        }
        let mut text = [&self.method[..], b" ", &self.target, b" HTTP/1.1\r\n"].concat();
        let host = self.authority.iter().map(|authority| (&b"host"[..], &authority[..]));
        // Connection fields have no meaning in parts, and an authority is the only host.
        let unsaid = ["connection", "transfer-encoding", "expect", "upgrade"];
        let is_unsaid = |name: &[u8]| {
            unsaid.iter().any(|unsaid| name.eq_ignore_ascii_case(unsaid.as_bytes()))
                || self.authority.is_some() && name.eq_ignore_ascii_case(b"host")
        };
        for (name, value) in host.chain(self.each().filter(|(name, _)| !is_unsaid(name))) {
            let begins_line = name.first().is_some_and(|byte| !b" \t".contains(byte));
            if !begins_line || name.contains(&b':') || !is_line(name) || !is_line(value) {
                return None;
            }
            text.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
        text.extend_from_slice(b"\r\n");
        Some(text)
    }
}

// ---- random heads

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&["a", "b", "evil", "12", "4999", "5001", "", "application/json"][..])
            .prop_map(str::to_owned),
        1 => prop::sample::select(&[" a", "a ", " ", "\t1", "a\u{7f}", "\u{1}b", "\u{e4}"][..])
            .prop_map(str::to_owned),
        1 => (0_usize..300).prop_map(|length| "x".repeat(length)),
    ]
}

fn field() -> impl Strategy<Value = (&'static str, String)> {
    let names = [
        "content-type",
        "accept",
        "a2a-version",
        "authorization",
        "grpc-timeout",
        "x-forwarded-host",
        "content-length",
        "host",
        "connection",
        "user-agent",
        "X-Y",
        "x y",
    ];
    (prop::sample::select(names.to_vec()), value())
}

fn parts() -> impl Strategy<Value = Parts> {
    const TARGETS: [&str; 9] =
        ["/", "/", "/a", "/a?b=1", "/a?bcd=10000", "/a/../b", "http://a/b", "*", ""];
    (
        prop::sample::select(&["POST", "POST", "GET", "G T", "OPTIONS", "CONNECT"][..]),
        prop::sample::select(&TARGETS[..]),
        prop::sample::select(&[Some("a:1"), Some("a:1"), Some("b"), Some("a b"), None][..]),
        prop::collection::vec(field(), 0..8),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(method, target, authority, fields, has_body, is_uncounted)| Parts {
            method: method.into(),
            target: target.into(),
            authority: authority.map(Into::into),
            fields: fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            has_body,
            is_uncounted,
        })
}

/// Heads that differ little.
fn heads() -> impl Strategy<Value = Vec<Parts>> {
    let change = (any::<prop::sample::Index>(), value(), 0..4_u8);
    (parts(), parts(), prop::collection::vec(change, 1..8)).prop_map(|(first, other, changes)| {
        let mut heads = vec![first, other];
        for (at, value, kind) in changes {
            let mut head = heads[heads.len() - 1 - usize::from(kind == 3)].clone();
            if !head.fields.is_empty() {
                let at = at.index(head.fields.len());
                match kind {
                    0 => head.fields[at].1 = value.into(),
                    1 => drop(head.fields.remove(at)),
                    2 => head.fields.push((head.fields[at].0.clone(), value.into())),
                    _ => {}
                }
            }
            heads.push(head);
        }
        heads
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn parsed_head_is_read_the_same_after_any_earlier_heads(heads in heads()) {
        heads_parse_the_same_after_earlier_heads(&heads);
    }

    #[test]
    fn parsed_head_is_read_like_an_http1_head(parts in parts()) {
        head_parts_parse_like_http1_text(&parts);
    }
}

#[test]
fn head_cache_retains_no_secret_values() {
    let mut memo = HeadMemo::new(LIMITS);
    let names = ["authorization", "x-api-key", "x-token", "cookie", "a2a-tenant"];
    for name in names {
        let fields = [("accept", "public"), (name, "secret")];
        let fields = fields.map(|(name, value)| (name.into(), value.into())).to_vec();
        let (method, target, authority) = ("POST".into(), "/".into(), Some("a".into()));
        let head = Parts { method, target, authority, fields, has_body: true, is_uncounted: false };
        let output = read(&mut memo, &head);
        let bytes =
            |text: &str| format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned();
        assert!(output.contains(&bytes("secret")), "{output}");
        let cached = format!("{memo:?}");
        assert!(cached.contains(&bytes("public")) && !cached.contains(&bytes("secret")), "{name}");
        // A query may hold a secret as well.
        let head = Parts { target: "/?secret".into(), ..head };
        read(&mut memo, &head);
        assert!(!format!("{memo:?}").contains(&bytes("secret")));
    }
}
