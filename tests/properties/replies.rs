//! Properties of a server's answers, in any generation and over any binding.
//!
//! - An answer is read or refused with a named error, never a panic.
//! - A read answer is JSON of 1.0, which reads as the same answer.

use peregrine::{
    client::{
        Binding, CallError, CallId, ClientLimits, Format, FormatBuffers, ReplyHead,
        format::push_json,
    },
    json::{DEPTH_CAP, Kind, MemberKey, Parser, Value},
    model::{Generation, Op, Received, ReceivedKind},
};
use proptest::prelude::*;

const OPS: [Op; 11] = [
    Op::Send,
    Op::Stream,
    Op::Get,
    Op::List,
    Op::Cancel,
    Op::Subscribe,
    Op::PushSet,
    Op::PushGet,
    Op::PushList,
    Op::PushDelete,
    Op::ExtendedCard,
];

const HEAD: ReplyHead<'_> = ReplyHead { status: 200, content_type: Some(b"application/json") };

/// A byte that selects the format and the operation, and the content of the answer.
pub fn server_answer_is_read_or_refused(bytes: &[u8]) {
    let (choice, content) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let op = OPS[usize::from(choice) % OPS.len()];
    let generations = [Generation::V1, Generation::V03, Generation::V01];
    let generation = generations[usize::from(choice) / OPS.len() % 3];
    let limits = ClientLimits { parts_max: 8, artifacts_max: 8, ..ClientLimits::default() };
    let mut buffers = FormatBuffers::new(&limits);
    let (mut received, mut again) = (Received::new(), Received::new());
    for binding in [Binding::JsonRpc, Binding::HttpJson] {
        let format = Format::standard(binding, generation);
        for status in [200, 400] {
            let head = ReplyHead { status, ..HEAD };
            let read = format.read_reply(
                &mut buffers,
                CallId { op, rpc_id: 7 },
                head,
                content,
                &mut received,
            );
            assert_reads_the_same_again(read, op, &received, &mut again);
        }
        for is_error in [false, true] {
            let read = format.read_item(&mut buffers, 7, content, is_error, &mut received);
            assert_reads_the_same_again(read, Op::Stream, &received, &mut again);
        }
    }
}

/// The received answer is written, and read as an answer of 1.0.
fn assert_reads_the_same_again(
    read: Result<(), CallError>,
    op: Op,
    received: &Received,
    again: &mut Received,
) {
    if let Err(error) = read {
        assert!(!error.to_string().is_empty());
        assert_eq!(received.kind(), ReceivedKind::Nothing);
        return;
    }
    let mut json = Vec::new();
    push_json(&mut json, received, op);
    // Only a delete, a get of a missing configuration and the end of a stream have an empty answer.
    if received.kind() == ReceivedKind::Nothing {
        assert_eq!(json, b"{}");
        return;
    }
    // A bare answer may be wrapped now, one level deeper.
    let json_depth_max = ClientLimits::default().json_depth_max + 1;
    let limits = ClientLimits { json_depth_max, ..ClientLimits::default() };
    let (mut buffers, mut twice) = (FormatBuffers::new(&limits), Vec::new());
    let format = Format::standard(Binding::HttpJson, Generation::V1);
    let read = format.read_reply(&mut buffers, CallId { op, rpc_id: 7 }, HEAD, &json, again);
    read.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json)));
    push_json(&mut twice, again, op);
    // The ids that an agent's message lacks are written after its own members: the order may differ.
    assert_eq!(with_sorted_members(&twice), with_sorted_members(&json));
    assert_eq!(again.kind(), received.kind());
    assert_eq!(again.task_id(), received.task_id());
    assert_eq!(again.state(), received.state());
}

/// A valid document whose objects list their members by name; names and scalars stay as written.
/// serde_json cannot compare them: it has no value for a number such as `1e999`.
fn with_sorted_members(json: &[u8]) -> String {
    fn sorted(value: Value<'_>) -> String {
        match value.kind() {
            Kind::Array => {
                format!("[{}]", value.elements().map(sorted).collect::<Vec<_>>().join(","))
            }
            Kind::Object => {
                let member = |(name, value): (MemberKey<'_>, Value<'_>)| {
                    format!("\"{}\":{}", String::from_utf8_lossy(name.raw()), sorted(value))
                };
                let mut members: Vec<_> = value.members().map(member).collect();
                members.sort();
                format!("{{{}}}", members.join(","))
            }
            _ => value.raw_str().to_owned(),
        }
    }
    let mut parser = Parser::new();
    let document = parser.parse(json, DEPTH_CAP);
    sorted(document.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(json))))
}

/// JSON close to an answer: real names, with fitting and other values.
fn answers() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "task",
        "message",
        "msg",
        "statusUpdate",
        "artifactUpdate",
        "kind",
        "id",
        "taskId",
        "contextId",
        "sessionId",
        "status",
        "state",
        "timestamp",
        "artifacts",
        "history",
        "metadata",
        "artifact",
        "artifactId",
        "index",
        "append",
        "lastChunk",
        "final",
        "parts",
        "content",
        "role",
        "messageId",
        "text",
        "data",
        "file",
        "tasks",
        "nextPageToken",
        "pageSize",
        "totalSize",
        "configs",
        "url",
        "token",
        "authentication",
        "schemes",
        "scheme",
        "credentials",
        "pushNotificationConfig",
        "name",
        "description",
        "extensions",
        "error",
        "code",
        "details",
        "reason",
        "st\\u0061te",
        "stream_complete",
        "x",
    ]);
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "false",
        "0",
        "1",
        "6",
        "-32001",
        "1e400",
        "\"\"",
        "\"t\"",
        "\"task\"",
        "\"status-update\"",
        "\"working\"",
        "\"TASK_STATE_CANCELLED\"",
        "\"ROLE_AGENT\"",
        "\"user\"",
        "\"2026-01-01T00:00:00\"",
        "\"aGk\"",
        "\"\\u00e9\\/\"",
        "[]",
        "{}",
        "\"tasks/t/pushNotificationConfigs/c\"",
        "{\"text\":\"x\"}",
        "{\"state\":\"completed\"}",
    ]);
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(5, 60, 8, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(n, v)| format!("\"{n}\":{v}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec(member, 0..8).prop_map(|list| format!("{{{}}}", list.join(","))),
        ]
    })
}

/// One member of a valid answer is replaced.
fn nearly_right() -> impl Strategy<Value = String> {
    (answers(), answers(), 0..10_usize).prop_map(|(odd, other, variant)| {
        let agent_message = r#"{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}"#;
        let status = format!(r#"{{"state":"TASK_STATE_WORKING","message":{agent_message}}}"#);
        let task = |members: String| format!(r#"{{"task":{{"id":"t","contextId":"c",{members}}}}}"#);
        match variant {
            0 => task(format!(r#""status":{odd}"#)),
            1 => task(format!(r#""status":{status},"artifacts":[{odd},{other}]"#)),
            2 => task(format!(r#""status":{status},"history":[{odd},{agent_message}]"#)),
            3 => task(format!(r#""status":{{"state":{odd},"timestamp":{other}}}"#)),
            4 => format!(r#"{{"statusUpdate":{{"taskId":"t","status":{status},"metadata":{odd}}}}}"#),
            5 => format!(r#"{{"taskId":{odd},"status":{status},"final":{other}}}"#),
            6 => format!(r#"{{"artifactUpdate":{{"taskId":"t","artifact":{odd},"append":{other}}}}}"#),
            7 => format!(
                r#"{{"taskId":"t","artifact":{{"artifactId":"a","parts":[{odd}],"index":{other}}}}}"#
            ),
            8 => format!(r#"{{"tasks":[{odd}],"totalSize":{other}}}"#),
            _ => format!(r#"{{"taskId":{odd},"url":"u","id":"c","authentication":{other}}}"#),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_server_answer_is_read_or_refused(
        choice in any::<u8>(),
        result in prop_oneof![answers(), nearly_right()],
        is_rpc in any::<bool>(),
    ) {
        let mut bytes = vec![choice];
        match is_rpc {
            true => bytes.extend(format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#).bytes()),
            false => bytes.extend(result.bytes()),
        }
        server_answer_is_read_or_refused(&bytes);
    }
}
