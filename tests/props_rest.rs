//! The properties of HTTP+JSON, with seeds; the properties live in `props/rest.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "props/rest.rs"]
mod rest;

use proptest::prelude::*;

/// Targets made of what targets of HTTP+JSON are made of.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_request_is_answered(target in target(), body in body()) {
        rest::any_request_is_answered(format!("{target}\n{body}").as_bytes());
    }

    #[test]
    fn a_body_is_params(body in body()) {
        rest::a_body_is_params(body.as_bytes());
    }

    #[test]
    fn a_query_is_params(pairs in pairs()) {
        rest::a_query_is_params(&pairs);
    }
}
