//! Evo AI as its platform documents it: the requests of its transcript with `x-api-key`, and the
//! limits on sizes and numbers for a caller.

use std::sync::Arc;

use peregrine::{
    auth::{AuthRules, Authenticator, Callers, KeyRule, KnownCaller, SecretDigest},
    engine::{Next, Setup},
    json::base64,
    limits::Limits,
};
use serde_json::{Value, json};

use crate::{
    support::{
        Lab,
        ask::{get, post, post_chunked, rpc},
        reply::Reply,
        with_push,
        ws::{frame, text},
    },
    transcripts::commands,
};

/// The path that the platform's clients use for the agent.
const EVO: &str = "/api/v1/a2a/echo";

const MIB: usize = 1024 * 1024;

/// A server with two keys.
fn lab() -> Lab {
    lab_with(Limits::default())
}

fn lab_with(limits: Limits) -> Lab {
    let rule = |key: &str, name: &str| KeyRule {
        digest: SecretDigest::of(key.as_bytes()),
        caller: KnownCaller { name: name.to_owned(), ..KnownCaller::default() },
        expires_unix_ms: None,
    };
    let api_keys = vec![rule("key of alice", "alice"), rule("key of bob", "bob")];
    let callers = Callers::new(AuthRules { api_keys, ..AuthRules::default() }).unwrap();
    let authenticator = Some(Arc::new(callers) as Arc<dyn Authenticator>);
    Lab::new(Setup { authenticator, limits, ..with_push() })
}

const ALICE: &[(&str, &str)] = &[("x-api-key", "key of alice")];
const BOB: &[(&str, &str)] = &[("x-api-key", "key of bob")];

fn send(parts: &Value) -> String {
    static SENT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    // A repeated message id would be a duplicate.
    let id = SENT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = format!("6dbc13b5-bd57-4c2b-b503-{id:012}");
    let message = json!({"messageId": id, "role": "user", "parts": parts});
    rpc("message/send", &json!({"message": message}))
}

fn file(bytes: usize) -> Value {
    json!({"type": "file", "file": {"name": "f", "bytes": base64::encode(&vec![7; bytes])}})
}

/// The details of an error, in addition to "Agent error" and similar messages.
fn details(reply: &Reply) -> String {
    let error = &reply.json()["error"];
    error["data"]["details"].as_str().unwrap_or_else(|| panic!("{}", reply.text())).to_owned()
}

/// `(method, params, expected result)` of each call in the transcript.
fn calls() -> Vec<(String, Value, String)> {
    let transcript = include_str!("../data/evo_ai/wire.txt");
    let commands = commands(transcript);
    let calls = commands.windows(2).filter_map(|pair| {
        let (call, expected) =
            (pair[0].1.strip_prefix("call ")?, pair[1].1.strip_prefix("gives ")?);
        let (method, params) = call.split_once(' ').unwrap_or((call, "null"));
        Some((method.to_owned(), serde_json::from_str(params).unwrap(), expected.to_owned()))
    });
    calls.collect()
}

#[test]
fn calls_of_the_transcript_are_answered_only_with_a_valid_key() {
    let calls = calls();
    assert!(calls.len() > 8, "{calls:?}");
    let mut lab = lab();
    let mut remaining = 100;
    for (method, params, expected) in &calls {
        let body = rpc(method, params);
        for (fields, why) in
            [(&[][..], "Authentication is required"), (&[("x-api-key", "key of mallory")][..], "")]
        {
            let reply = lab.ask(&post(EVO, fields, &body));
            assert_eq!((reply.status, reply.code()), (401, -32000), "{method}");
            assert_eq!(reply.json()["error"]["message"], "Agent error", "{method}");
            assert!(details(&reply).contains(why), "{}", reply.text());
            assert!(reply.field("www-authenticate").is_some() && reply.closes(), "{method}");
            assert!(reply.field("x-ratelimit-limit").is_none(), "{method}");
        }
        let reply = lab.ask(&post(EVO, ALICE, &body));
        assert_eq!(reply.status, 200, "{method} {}", reply.text());
        // An unreadable call counts towards the limit; its answer does not state the rest.
        remaining -= 1;
        if !expected.starts_with("refused InvalidParams") {
            assert_eq!(reply.field("x-ratelimit-limit"), Some("100"), "{method}");
            let remaining = remaining.to_string();
            assert_eq!(reply.field("x-ratelimit-remaining"), Some(&*remaining), "{method}");
            assert!(reply.field("x-ratelimit-reset").is_some(), "{method}");
        }
        match expected.split(' ').collect::<Vec<_>>()[..] {
            ["send", "Wait", ..] => assert!(reply.result()["status"]["state"].is_string()),
            ["send", "Stream", ..] => assert!(!reply.events().is_empty()),
            ["refused", "InvalidParams", ..] => assert_eq!(reply.code(), -32602),
            ["extended-card"] => assert_eq!(reply.result()["name"], "echo"),
            ["push", "delete", ..] if cfg!(feature = "push") => {
                assert_eq!(reply.result(), json!({"config": null}));
            }
            ["push", ..] if cfg!(feature = "push") => {
                assert_eq!(reply.result()["config"]["url"], "https://e", "{expected}");
            }
            // The task does not exist.
            _ => assert_eq!(reply.code(), -32000, "{expected}"),
        }
    }
}

#[test]
fn evo_ai_key_is_limited_to_100_calls_and_10_streams() {
    let mut lab = lab();
    let get = post(EVO, ALICE, &rpc("tasks/get", &json!({"id": "none"})));
    for _ in 0..100 {
        assert_eq!(lab.ask(&get).status, 200);
    }
    let reply = lab.ask(&get);
    assert_eq!((reply.status, reply.code()), (429, -32000));
    assert_eq!(reply.json()["error"]["message"], "Agent error");
    for (field, value) in [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "0")] {
        assert_eq!(reply.field(field), Some(value));
    }
    let reset: u64 = reply.field("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > lab.now.unix_ms / 1000 && reply.field("retry-after").is_some());
    assert!(!reply.closes());
    let hold = |n: usize| {
        let message = json!({"messageId": format!("hold-{n}"), "role": "user",
            "parts": [{"type": "text", "text": "hold:60000:1"}]});
        post(EVO, BOB, &rpc("message/stream", &json!({"message": message})))
    };
    let mut streams: Vec<_> = (0..11)
        .map(|n| {
            let peer = lab.open();
            lab.write(peer, &hold(n));
            peer
        })
        .collect();
    let eleventh = lab.reply(streams.pop().unwrap());
    assert_eq!((eleventh.status, eleventh.code()), (429, -32000));
    assert_eq!(eleventh.json()["error"]["message"], "Agent error");
    assert!(details(&eleventh).contains("streams"), "{}", eleventh.text());
    assert!(streams.iter().all(|peer| lab.peek(*peer).status == 200 && lab.is_open(*peer)));
    // A stream that ends frees its slot.
    lab.end(streams[0]);
    let peer = lab.open();
    lab.write(peer, &hold(11));
    assert_eq!(lab.peek(peer).status, 200);
}

#[test]
fn evo_ai_file_bytes_max() {
    let most = 1_000;
    let mut lab = lab_with(Limits { evo_ai_file_bytes_max: most, ..Limits::default() });
    let at = json!([file(most), {"raw": base64::encode(&vec![7; most])}]);
    assert!(lab.ask(&post(EVO, ALICE, &send(&at))).result().is_object());
    for parts in [
        json!([file(most + 1)]),
        json!([{"type": "text", "text": "hi"}, file(most), file(most + 1)]),
        json!([{"raw": base64::encode(&vec![7; most + 1])}]),
        json!([{"kind": "file", "file": {"fileWithBytes": base64::encode(&vec![7; most + 1])}}]),
    ] {
        let reply = lab.ask(&post(EVO, ALICE, &send(&parts)));
        assert_eq!((reply.status, reply.code()), (200, -32602));
        assert!(details(&reply).contains("evo_ai_file_bytes_max"), "{}", reply.text());
        // Other dialects have no such limit.
        let elsewhere = send(&parts).replace("\"type\"", "\"kind\"");
        assert!(lab.ask(&post("/", ALICE, &elsewhere)).result().is_object(), "{parts}");
    }
}

#[test]
fn evo_ai_message_bytes_max() {
    let most = 1_000;
    let mut lab = lab_with(Limits { evo_ai_message_bytes_max: most, ..Limits::default() });
    for files in [json!([]), json!([file(10)]), json!([file(2_000), file(3_000)])] {
        let at = lab.ask(&post(EVO, ALICE, &sized(most, &files)));
        assert!(at.result().is_object());
        let beyond = lab.ask(&post(EVO, ALICE, &sized(most + 1, &files)));
        assert_eq!((beyond.status, beyond.code()), (200, -32602));
        assert!(details(&beyond).contains("evo_ai_message_bytes_max"), "{}", beyond.text());
        let elsewhere = sized(most + 1, &files).replace("\"type\"", "\"kind\"");
        assert!(lab.ask(&post("/", ALICE, &elsewhere)).result().is_object());
    }
}

/// A message of this many bytes without its files.
fn sized(bytes: usize, files: &Value) -> String {
    let files = files.as_array().unwrap();
    let with = |text: &str| {
        let mut parts = vec![json!({"type": "text", "text": text})];
        parts.extend(files.iter().cloned());
        send(&Value::Array(parts))
    };
    let base64 = files.iter().map(|file| file["file"]["bytes"].as_str().unwrap().len());
    let body: Value = serde_json::from_str(&with("")).unwrap();
    let bare = body["params"]["message"].to_string().len() - base64.sum::<usize>();
    with(&"x".repeat(bytes - bare))
}

#[test]
fn message_of_the_documented_maximum_sizes_is_accepted() {
    let limits = Limits::default();
    let (file_max, message_max) = (limits.evo_ai_file_bytes_max, limits.evo_ai_message_bytes_max);
    assert_eq!((file_max, message_max), (5 * MIB, MIB));
    let mut lab = lab();
    let largest = post(EVO, ALICE, &sized(message_max, &json!([file(file_max)])));
    let reply = lab.ask(&largest);
    assert_eq!(
        (reply.status, reply.result()["status"]["state"].as_str()),
        (200, Some("completed"))
    );
    for beyond in [sized(message_max + 1, &json!([])), send(&json!([file(file_max + 1)]))] {
        let reply = lab.ask(&post(EVO, ALICE, &beyond));
        assert_eq!((reply.status, reply.code()), (200, -32602));
    }
}

/// A valid call of this many bytes.
fn padded(bytes: usize) -> String {
    let bare = rpc("tasks/get", &json!({"id": "none"}));
    format!("{}{bare}", " ".repeat(bytes - bare.len()))
}

fn with_limits(evo: usize, others: usize) -> Lab {
    Lab::limited(|limits| {
        (limits.evo_ai_body_bytes_max, limits.body_bytes_max) = (evo, others);
        (limits.ws_frame_bytes_max, limits.ws_message_bytes_max) = (others, others);
    })
}

#[test]
fn evo_ai_body_bytes_max() {
    let head = |path: &str, length: u64, lines: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {length}\r\n\r\n")
    };
    // Only its own limit applies there, whichever is larger.
    for (evo, others) in [(2_000, 200), (200, 2_000)] {
        let mut lab = with_limits(evo, others);
        for (path, most, name) in
            [(EVO, evo, "(evo_ai_body_bytes_max)"), ("/", others, "(body_bytes_max)")]
        {
            let mut refused = |status: u16, request: &[u8]| {
                let peer = lab.open();
                lab.write(peer, request);
                let reply = lab.reply(peer);
                assert_eq!((reply.status, reply.code()), (status, -32600), "{path}");
                let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains(name), "{path}: {message}");
                assert_eq!((reply.closes(), lab.next(peer)), (true, Next::Close));
            };
            // The head alone decides.
            refused(413, head(path, most as u64 + 1, "").as_bytes());
            refused(413, head(path, most as u64 + 1, "Expect: 100-continue\r\n").as_bytes());
            refused(413, head(path, 100 * most as u64, "").as_bytes());
            refused(400, head(path, 100 * most as u64 + 1, "").as_bytes());
            refused(400, head(path, u64::MAX, "").as_bytes());
            refused(413, &post_chunked(path, &padded(most + 1), 90));
            for at in [post(path, &[], &padded(most)), post_chunked(path, &padded(most), 90)] {
                let reply = lab.ask(&at);
                assert!(reply.status == 200 && [-32000, -32001].contains(&reply.code()), "{path}");
            }
        }
        // The path of a card has the general limit.
        let card = "/api/v1/a2a/echo/.well-known/agent-card.json";
        assert_eq!(lab.ask(head(card, others as u64 + 1, "").as_bytes()).status, 413);
        assert_eq!(lab.ask(&get(card)).status, 200);
    }
    // The default admits a file of the largest size, but not a larger body.
    let mut lab = lab();
    let most = Limits::default().evo_ai_body_bytes_max;
    assert_eq!(most, 8 * MIB);
    assert_eq!(lab.ask(&post(EVO, ALICE, &padded(most))).status, 200);
    assert_eq!(lab.ask(&post(EVO, ALICE, &padded(most + 1))).status, 413);
    assert_eq!(lab.ask(&post("/", ALICE, &padded(4 * MIB + 1))).status, 413);
}

#[test]
fn evo_ai_body_limit_applies_to_websocket_messages() {
    for (evo, others) in [(2_000, 200), (200, 2_000)] {
        let mut lab = with_limits(evo, others);
        for (path, most, name) in [(EVO, evo, "evo_ai_body_bytes_max"), ("/", others, "ws_")] {
            let peer = lab.socket(path, "");
            assert!(lab.say(peer, &padded(most))[0].get("error").is_some());
            let call = padded(most);
            let (a, b) = call.split_at(90);
            lab.write(peer, &[frame(1, a.as_bytes()), frame(0x80, b.as_bytes())].concat());
            assert_eq!(lab.frames(peer).len(), 1);
            lab.write(peer, &text(&padded(most + 1))[..8]);
            let sent = lab.frames(peer);
            let [error, close] = &sent[..] else { panic!("{sent:?}") };
            assert!(error.json().to_string().contains(name), "{sent:?}");
            assert_eq!((close.close_code(), lab.next(peer)), (1009, Next::Close));
        }
    }
}
