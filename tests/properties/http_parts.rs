//! Heads in parts: a reader that has seen others before reads each as a new one would, and keeps
//! nothing of it that may be a secret.

use peregrine::http::{Field, Head, HeadLimits, HeadMemo, RequestParts};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 400,
    fields_max: 6,
    target_bytes_max: 60,
    query_bytes_max: 8,
    method_bytes_max: 8,
    body_bytes_max: 5_000,
};

#[derive(Clone, Debug)]
struct Parts {
    method: &'static str,
    target: &'static str,
    authority: Option<&'static str>,
    fields: Vec<(&'static str, String)>,
    has_body: bool,
}

/// What a reader says of a head, to the last byte.
fn read(memo: &mut HeadMemo, parts: &Parts) -> String {
    let knows = |head: &Head<'_>, _| {
        let forwarded = head.value(Field::XForwardedHost);
        head.host().is_some_and(|host| host.starts_with('a')) && forwarded != Some(b"evil")
    };
    let request = RequestParts {
        method: parts.method.as_bytes(),
        target: parts.target.as_bytes(),
        authority: parts.authority.map(str::as_bytes),
        fields: parts.fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        has_body: parts.has_body,
        takes_trailers: true,
    };
    format!("{:?}", memo.read_parts(request, knows))
}

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
    const TARGETS: [&str; 7] = ["/", "/", "/a", "/a?b=1", "/a/../b", "*", ""];
    (
        prop::sample::select(&["POST", "POST", "GET", "G T"][..]),
        prop::sample::select(&TARGETS[..]),
        prop::sample::select(&[Some("a:1"), Some("a:1"), Some("b"), Some("a b"), None][..]),
        prop::collection::vec(field(), 0..8),
        any::<bool>(),
    )
        .prop_map(|(method, target, authority, fields, has_body)| Parts {
            method,
            target,
            authority,
            fields,
            has_body,
        })
}

/// Heads that differ little from each other.
fn heads() -> impl Strategy<Value = Vec<Parts>> {
    let change = (any::<prop::sample::Index>(), value(), 0..4_u8);
    (parts(), parts(), prop::collection::vec(change, 1..8)).prop_map(|(first, other, changes)| {
        let mut heads = vec![first, other];
        for (at, value, kind) in changes {
            let mut head = heads[heads.len() - 1 - usize::from(kind == 3)].clone();
            if !head.fields.is_empty() {
                let at = at.index(head.fields.len());
                match kind {
                    0 => head.fields[at].1 = value,
                    1 => drop(head.fields.remove(at)),
                    2 => head.fields.push((head.fields[at].0, value)),
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
    fn a_head_in_parts_is_read_as_if_none_had_come_before(heads in heads()) {
        let mut memo = HeadMemo::new(LIMITS);
        for head in heads.iter().chain(&heads) {
            let expected = read(&mut HeadMemo::new(LIMITS), head);
            prop_assert_eq!(read(&mut memo, head), expected);
        }
    }
}

#[test]
fn no_value_that_may_be_a_secret_is_kept_of_a_head_in_parts() {
    let mut memo = HeadMemo::new(LIMITS);
    let names = ["authorization", "x-api-key", "x-token", "cookie", "a2a-tenant"];
    for name in names {
        let fields = vec![("accept", "public".to_owned()), (name, "secret".to_owned())];
        let (method, target, authority) = ("POST", "/", Some("a"));
        let head = Parts { method, target, authority, fields, has_body: true };
        let said = read(&mut memo, &head);
        let bytes =
            |text: &str| format!("{:?}", text.as_bytes()).trim_matches(['[', ']']).to_owned();
        assert!(said.contains(&bytes("secret")), "{said}");
        let kept = format!("{memo:?}");
        assert!(kept.contains(&bytes("public")) && !kept.contains(&bytes("secret")), "{name}");
        // A query may hold one as well.
        let head = Parts { target: "/?secret", ..head };
        read(&mut memo, &head);
        assert!(!format!("{memo:?}").contains(&bytes("secret")));
    }
}
