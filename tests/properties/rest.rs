//! Properties of HTTP+JSON for any path, query and body.
//!
//! - Each request gets one whole response; its content is JSON or a stream.
//! - A body means the same as the params of JSON-RPC: the same result, or the same fault.
//! - A query means the same as the same names and values as members of params.

use std::{sync::Arc, task::Waker};

use peregrine::{
    agent::{Agent, echo::Echo},
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    json::{Kind, Parser, Source},
    limits::Limits,
    service::{Entropy, Now, Peer},
};
use proptest::prelude::*;
use serde_json::Value;

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

/// A server with three tasks; two servers built alike answer alike.
pub struct Server {
    engine: Arc<Engine>,
    worker: Worker,
}

impl Server {
    /// A server with three tasks.
    pub fn new() -> Server {
        let agents: Vec<(_, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
        let limits = Limits { identifier_bytes_max: 64, json_depth_max: 16, ..Limits::default() };
        let setup = Setup { limits, agents, ..Setup::default() };
        let base_url = "http://a".to_owned();
        let start = Start { secret: 7, unix_ms: Arc::new(|| NOW.unix_ms), workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        let mut server = Server { engine, worker };
        for text in ["one", "two", "hold:9:1"] {
            let body = format!(
                r#"{{"message":{{"messageId":"m","contextId":"c","role":1,"parts":[{{"text":"{text}"}}]}},"configuration":{{"returnImmediately":true}}}}"#
            );
            let made = server.request("POST", "/message:send", body.as_bytes());
            assert!(made.starts_with(b"HTTP/1.1 200 "), "{}", made.escape_ascii());
        }
        server
    }

    /// The bytes sent at once in answer to one request on a new connection.
    pub fn request(&mut self, method: &str, target: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (mut conn, mut out) = (Conn::new(NOW), Vec::new());
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now: NOW,
            wake: Waker::noop(),
            out: &mut out,
            unsent: 0,
            peer: Peer::default(),
        };
        let input = [head.as_bytes(), body].concat();
        conn.advance(&mut cx, Source::from(&input), false);
        out
    }

    /// The status and the content of an answer; `None` if the call waits.
    fn json(&mut self, method: &str, target: &str, body: &[u8]) -> Option<(u16, Value)> {
        let answer = self.request(method, target, body);
        let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
        let at = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        Some((status, serde_json::from_slice(&answer[at..]).unwrap()))
    }
}

/// A target, a line break, and a body, with each method.
pub fn any_request_gets_a_valid_response(bytes: &[u8]) {
    let cut = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let (target, body) = (&bytes[..cut], bytes.get(cut + 1..).unwrap_or_default());
    let is_target = target.starts_with(b"/") && target.iter().all(u8::is_ascii_graphic);
    let Some(target) = std::str::from_utf8(target).ok().filter(|_| is_target) else { return };
    let mut server = Server::new();
    for method in ["GET", "POST", "DELETE", "PUT", "OPTIONS"] {
        let answer = server.request(method, target, body);
        if answer.is_empty() {
            // Only a message may wait.
            assert_eq!(method, "POST", "{target}");
            continue;
        }
        assert!(answer.starts_with(b"HTTP/1.1 "), "{method} {target}");
        let text = String::from_utf8(answer).expect("text");
        let (head, content) = text.split_once("\r\n\r\n").expect("a whole head");
        if head.contains("text/event-stream") {
            assert!(content.contains("data: {"), "{method} {target}");
        } else if !content.is_empty() {
            let value: Value = serde_json::from_str(content).expect("JSON");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length:"));
            assert_eq!(length.map(str::trim), Some(&*content.len().to_string()), "{target}");
            assert!(value.is_object(), "{method} {target}: {content}");
        }
    }
    assert!(server.request("GET", "/tasks", b"").starts_with(b"HTTP/1.1 200 "));
    rest_body_gives_the_same_result_as_rpc_params(body);
}

/// The result or error of a JSON-RPC answer, as HTTP+JSON writes it.
fn unwrapped(answer: &Value) -> (Option<&Value>, Option<(&Value, &Value)>) {
    let error = answer.get("error").map(|error| (&error["message"], &error["data"]));
    (answer.get("result"), error)
}

fn assert_same(rest: Option<(u16, Value)>, rpc: Option<(u16, Value)>, what: &str) {
    let (Some((status, rest)), Some((_, rpc))) = (&rest, &rpc) else {
        assert_eq!(rest.is_some(), rpc.is_some(), "{what}");
        return;
    };
    match unwrapped(rpc) {
        (Some(result), None) => assert_eq!((*status, rest), (200, result), "{what}"),
        (None, Some((message, data))) => {
            assert!(*status >= 400, "{what}: {rest}");
            let error = &rest["error"];
            assert_eq!((&error["message"], &error["details"]), (message, data), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// A JSON body gets the same result or fault as in params.
pub fn rest_body_gives_the_same_result_as_rpc_params(body: &[u8]) {
    let mut parser = Parser::new();
    // Other bodies get a different fault from the JSON-RPC envelope.
    if parser.parse(body, 16).ok().is_none_or(|value| value.kind() != Kind::Object) {
        return;
    }
    let wrapped = |method: &str| {
        let open = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":"#);
        [open.as_bytes(), body, b"}"].concat()
    };
    let rest = Server::new().json("POST", "/message:send", body);
    let rpc = Server::new().json("POST", "/", &wrapped("SendMessage"));
    assert_same(rest, rpc, "send");
}

/// A query gets the same page or fault as these members of params.
pub fn rest_query_gives_the_same_result_as_rpc_params(pairs: &[(String, String)]) {
    let hex = |text: &str| -> String { text.bytes().map(|b| format!("%{b:02X}")).collect() };
    let query: Vec<String> = pairs.iter().map(|(n, v)| format!("{}={}", hex(n), hex(v))).collect();
    let member = |(name, value): &(String, String)| {
        let is_flag =
            name.starts_with("include") && ["true", "false"].contains(&&*value.to_lowercase());
        let value = if is_flag { value.to_lowercase() } else { Value::from(&**value).to_string() };
        format!("{}:{value}", Value::from(&**name))
    };
    let members: Vec<String> = pairs.iter().map(member).collect();
    let params = format!("{{{}}}", members.join(","));
    let mut server = Server::new();
    let rpc = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{params}}}"#);
    let rpc = server.json("POST", "/", rpc.as_bytes());
    let rest = server.json("GET", &format!("/tasks?{}", query.join("&")), b"");
    assert_same(rest, rpc, &params);
}

/// Targets made of typical pieces of HTTP+JSON targets.
fn target() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/tasks",
        "/message:send",
        "/message:stream",
        "/v1",
        "/tenants",
        "/acme",
        "/agents",
        "/echo",
        "/a",
        ":cancel",
        ":subscribe",
        "/subscribe",
        "/pushNotificationConfigs",
        "/c",
        "/extendedAgentCard",
        "/card",
        "/",
        "%20",
        "%2e",
        ".",
        "%",
        "%C3",
        "\"",
        "?historyLength=",
        "?pageSize=1",
        "&",
        "1",
        "-1",
        "=",
        "lastEventId=1",
        "A2A-Version=0.3",
    ]);
    prop::collection::vec(piece, 0..7)
        .prop_map(|pieces| format!("/{}", pieces.concat()).replacen("//", "/", 1))
}

fn body() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"message\":",
        "\"messageId\":\"m\"",
        "\"role\":1",
        "\"parts\":[{\"text\":\"hi\"}]",
        "\"metadata\":{}",
        "\"taskId\":\"t\"",
        "\"contextId\":\"c\"",
        "\"configuration\":{\"historyLength\":0}",
        "null",
        "1e400",
        "\"\\u00e9\"",
    ]);
    let whole = prop::sample::select(vec![
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#,
        r#"{"message":{"role":"user","parts":[{"text":"ping"}]}}"#,
        r#"{"message":{"messageId":"m","role":1,"parts":[]}}"#,
        r#"{"message":{"messageId":"m","role":1,"parts":[{"data":null}],"contextId":"c"},"configuration":{"historyLength":-1}}"#,
        r#"{"message":{"messageId":"m","role":1,"parts":[{"text":"hold:9:1"}]}}"#,
        r#"{"message":{"messageId":"m","role":1,"parts":[{"raw":"?"}]},"metadata":{"n":1e400}}"#,
        "",
    ]);
    prop_oneof![
        whole.prop_map(str::to_owned),
        prop::collection::vec(piece, 0..8).prop_map(|p| p.concat())
    ]
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(vec![
        "contextId",
        "context_id",
        "status",
        "pageSize",
        "page_size",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
        "include_artifacts",
        "x",
        "",
    ]);
    let value = prop::sample::select(vec![
        "",
        "c",
        "é\"\\ ",
        "1",
        "0",
        "-1",
        "100",
        "101",
        "2147483648",
        "1.0",
        "true",
        "FALSE",
        "working",
        "TASK_STATE_COMPLETED",
        "TASK_STATE_CANCELLED",
        "BAD",
        "2026-01-01T00:00:00Z",
        "2999-01-01T00:00:00+01:00",
        "null",
    ]);
    prop::collection::vec((name.prop_map(str::to_owned), value.prop_map(str::to_owned)), 0..4)
}

mod with_seeds {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn any_request_gets_a_valid_response(target in target(), body in body()) {
            super::any_request_gets_a_valid_response(format!("{target}\n{body}").as_bytes());
        }

        #[test]
        fn rest_body_gives_the_same_result_as_rpc_params(body in body()) {
            super::rest_body_gives_the_same_result_as_rpc_params(body.as_bytes());
        }

        #[test]
        fn rest_query_gives_the_same_result_as_rpc_params(pairs in pairs()) {
            super::rest_query_gives_the_same_result_as_rpc_params(&pairs);
        }
    }
}
