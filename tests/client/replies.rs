//! How our client reads servers' answers: every generation, wrapped or bare; lenient where it does
//! no harm, and with an error that names the member where it would have to guess.

use peregrine::{
    binding::interfaces::Binding,
    client::{
        CallError, CallId, ClientLimits, Format, FormatBuffers, ReplyHead, format::push_json,
    },
    model::{Generation, Op, Received, ReceivedKind},
};

use Generation::{V01, V1, V03};

const HEAD: ReplyHead<'_> = ReplyHead { status: 200, content_type: Some(b"application/json") };

/// The canonical JSON of an HTTP+JSON body or of a bare JSON-RPC result.
fn read(generation: Generation, op: Op, result: &str) -> Result<String, String> {
    let envelope = format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#);
    let format = Format::standard(Binding::JsonRpc, generation);
    let mut received = Received::new();
    let mut buffers = FormatBuffers::default();
    format
        .read_reply(
            &mut buffers,
            CallId { op, rpc_id: 7 },
            HEAD,
            envelope.as_bytes(),
            &mut received,
        )
        .map_err(|error| error.to_string())?;
    Ok(json(&received, op))
}

fn json(received: &Received, op: Op) -> String {
    let mut out = Vec::new();
    push_json(&mut out, received, op);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_task_form_parses_to_the_same_task() {
    let expected = concat!(
        r#"{"task":{"id":"t1","contextId":"c1","#,
        r#""status":{"state":"TASK_STATE_CANCELED","timestamp":"2026-01-01T00:00:00.000Z"},"#,
        r#""artifacts":[{"artifactId":"a","parts":[{"text":"x"}]}]}}"#,
    );
    let tail = r#""artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"x"}]}]"#;
    for (generation, result) in [
        (V1, expected.to_owned()),
        // Bare, as in the documentation of a2a-rust; British; an offset; a number.
        (
            V1,
            format!(
                r#"{{"id":"t1","contextId":"c1","status":{{"state":"TASK_STATE_CANCELLED",
            "timestamp":"2026-01-01T01:00:00+01:00"}},{tail}}}"#
            ),
        ),
        (
            V1,
            format!(
                r#"{{"task":{{"id":"t1","context_id":"c1","status":{{"state":5,
            "timestamp":"2026-01-01T00:00:00.0009Z"}},{tail}}},"message":null,"more":[1]}}"#
            ),
        ),
        (
            V03,
            format!(
                r#"{{"kind":"task","id":"t1","contextId":"c1","status":{{"state":"canceled",
            "timestamp":"2026-01-01T00:00:00Z"}},{tail},"history":[],"metadata":null}}"#
            ),
        ),
        // A time without an offset, as in older Python servers; a dialect without `kind`.
        (
            V03,
            format!(
                r#"{{"id":"t1","contextId":"c1","status":{{"state":"cancelled",
            "timestamp":"2026-01-01T00:00:00.000000"}},{tail},"final":true}}"#
            ),
        ),
        (
            V01,
            r#"{"id":"t1","sessionId":"c1","status":{"state":"CANCELED",
            "timestamp":"2026-01-01T00:00:00Z"},"artifacts":[{"artifactId":"a",
            "parts":[{"type":"text","text":"x"}]}]}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(read(generation, Op::Send, &result).as_deref(), Ok(expected), "{result}");
    }
}

#[test]
fn all_task_members_are_retained_when_read() {
    let task = concat!(
        r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":"#,
        r#"{"messageId":"m3","contextId":"c","taskId":"t","role":"ROLE_AGENT","parts":[{"text":"hm"}]}},"#,
        r#""artifacts":[{"artifactId":"a","name":"n","description":"d","parts":[{"text":"x"},"#,
        r#"{"raw":"AAA=","filename":"f","mediaType":"m/t"}],"extensions":["https://e"]}],"#,
        r#""history":[{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]},"#,
        r#"{"messageId":"m2","contextId":"c","taskId":"t","metadata":{"k":1},"role":"ROLE_AGENT","#,
        r#""parts":[{"data":[1.50,null]}],"extensions":["https://e"],"referenceTaskIds":["t0"]}],"#,
        r#""metadata":{"big":12345678901234567890}}"#,
    );
    assert_eq!(read(V1, Op::Get, task).as_deref(), Ok(task));
    // Read again into the same buffers: nothing of the last result is left.
    let page = format!(
        r#"{{"tasks":[{task},{{"id":"u","contextId":"","status":{{"state":"TASK_STATE_SUBMITTED"}}}}],"#
    );
    let page = format!(r#"{page}"nextPageToken":"more","pageSize":2,"totalSize":3}}"#);
    assert_eq!(read(V1, Op::List, &page).as_deref(), Ok(&*page));
}

#[test]
fn missing_members_of_a_page_are_empty_or_zero() {
    let empty = r#"{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}"#;
    for page in ["{}", "[]", r#"{"tasks":null,"nextPageToken":null}"#, empty] {
        assert_eq!(read(V1, Op::List, page).as_deref(), Ok(empty), "{page}");
    }
}

#[test]
fn message_response_is_parsed_wrapped_or_bare() {
    let expected = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#;
    for (generation, result) in [
        (V1, expected),
        (
            V03,
            r#"{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"x"}]}"#,
        ),
        (V03, r#"{"role":"agent","parts":[{"type":"text","text":"x"}],"message_id":"m"}"#),
        (V03, r#"{"msg":{"messageId":"m","role":2,"content":[{"text":"x","filename":""}]}}"#),
    ] {
        assert_eq!(read(generation, Op::Send, result).as_deref(), Ok(expected), "{result}");
    }
}

#[test]
fn events_are_identified_by_wrapper_kind_or_shape() {
    let status = r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let no_context = status.replace(r#""contextId":"c""#, r#""contextId":"""#);
    let artifact = concat!(
        r#"{"artifactUpdate":{"taskId":"t","contextId":"","artifact":{"artifactId":"3","#,
        r#""parts":[{"text":"x"}]},"append":true,"lastChunk":true}}"#,
    );
    for (generation, item, expected) in [
        (V1, status, status),
        (
            V03,
            r#"{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"working"},"final":false}"#,
            status,
        ),
        (
            V03,
            r#"{"status_update":{"task_id":"t","context_id":"c","status":{"state":"TASK_STATE_WORKING"}}}"#,
            status,
        ),
        (V03, r#"{"id":"t","status":{"state":"working"},"final":false}"#, &*no_context),
        (V01, r#"{"id":"t","status":{"state":"working"}}"#, &*no_context),
        (
            V01,
            r#"{"id":"t","artifact":{"index":3,"parts":[{"type":"text","text":"x"}],"append":true,"lastChunk":true}}"#,
            artifact,
        ),
        (
            V03,
            r#"{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"3","parts":[{"kind":"text","text":"x"}]},"append":true,"lastChunk":true}"#,
            artifact,
        ),
        (V1, r#"{"status":"stream_complete"}"#, "{}"),
        (V1, r#"{"stream_complete":true}"#, "{}"),
    ] {
        assert_eq!(read(generation, Op::Stream, item).as_deref(), Ok(expected), "{item}");
    }
}

#[test]
fn push_configurations_are_parsed_from_three_forms() {
    let expected = concat!(
        r#"{"id":"c","taskId":"t","url":"https://h","token":"k","#,
        r#""authentication":{"scheme":"Bearer","credentials":"s"}}"#,
    );
    let inner = r#""url":"https://h","token":"k","authentication":{"schemes":["Bearer","Basic"],"credentials":"s"}"#;
    for (generation, result) in [
        (V1, expected.to_owned()),
        (V03, format!(r#"{{"taskId":"t","pushNotificationConfig":{{"id":"c",{inner}}}}}"#)),
        (
            V03,
            format!(
                r#"{{"name":"tasks/t/pushNotificationConfigs/c","pushNotificationConfig":{{{inner}}}}}"#
            ),
        ),
    ] {
        assert_eq!(read(generation, Op::PushGet, &result).as_deref(), Ok(expected), "{result}");
        let list = format!(r#"{{"configs":[{expected}]}}"#);
        let configs = format!(r#"{{"configs":[{result}],"nextPageToken":""}}"#);
        for all in [configs, format!("[{result}]")] {
            assert_eq!(read(generation, Op::PushList, &all).as_deref(), Ok(&*list), "{all}");
        }
    }
    for none in ["null", r#"{"id":"t","pushNotificationConfig":null}"#] {
        assert_eq!(read(V01, Op::PushGet, none).as_deref(), Ok("{}"), "{none}");
    }
    for nothing in ["null", "{}", "[]", "true"] {
        assert_eq!(read(V03, Op::PushDelete, nothing).as_deref(), Ok("{}"), "{nothing}");
    }
}

#[test]
fn unreadable_member_is_named_in_the_error() {
    let status = r#""status":{"state":"TASK_STATE_WORKING"}"#;
    for (op, result, error) in [
        (Op::Send, "null".to_owned(), "result must be a task"),
        (Op::Send, "7".to_owned(), "result must be an object"),
        (Op::Send, "{}".to_owned(), "result must be a task or a message"),
        (Op::Get, r#"{"message":{}}"#.to_owned(), "result must be a task"),
        (
            Op::Stream,
            r#"{"task":{},"message":{}}"#.to_owned(),
            "result must be exactly one kind of event",
        ),
        (Op::Send, r#"{"task":{}}"#.to_owned(), "result.task.id is required"),
        (Op::Send, r#"{"task":{"id":7}}"#.to_owned(), "result.task.id must be a string"),
        (Op::Send, r#"{"task":{"id":"t"}}"#.to_owned(), "result.task.status is required"),
        (
            Op::Get,
            r#"{"id":"t","status":{"state":[]}}"#.to_owned(),
            "result.status.state must be a task state",
        ),
        (
            Op::Get,
            r#"{"id":"t","status":{"timestamp":"now"}}"#.to_owned(),
            "result.status.timestamp must be an RFC 3339 timestamp",
        ),
        (
            Op::Get,
            format!(r#"{{"id":"t",{status},"history":[{{"parts":7}}]}}"#),
            "result.history[0].parts must be an array",
        ),
        (
            Op::Get,
            format!(r#"{{"id":"t",{status},"artifacts":[{{"artifactId":7}}]}}"#),
            "result.artifacts[0].artifactId must be a string",
        ),
        (
            Op::Get,
            format!(r#"{{"id":"t",{status},"artifacts":[{{"artifactId":"a","parts":[7]}}]}}"#),
            "result.artifacts[0].parts[0] must be an object",
        ),
        (
            Op::List,
            format!(r#"{{"tasks":[{{"id":"t",{status}}},{{"id":"u"}}]}}"#),
            "result.tasks[1].status is required",
        ),
        (
            Op::Stream,
            format!(r#"{{"statusUpdate":{{{status}}}}}"#),
            "result.statusUpdate.taskId is required",
        ),
        (Op::PushSet, "{}".to_owned(), "result must be a push configuration"),
        (Op::ExtendedCard, "[]".to_owned(), "result must be a card"),
    ] {
        let expected = format!("the response cannot be read: {error}");
        assert_eq!(read(V1, op, &result), Err(expected), "{result}");
    }
}

#[test]
fn unknown_values_leave_an_answer_readable() {
    let of = |members: &str| {
        let read = read(V1, Op::Get, &format!(r#"{{"id":"t",{members}}}"#)).unwrap();
        read.strip_prefix(r#"{"id":"t","contextId":"","#).unwrap().to_owned()
    };
    for (members, expected) in [
        (r#""status":{"state":"PONDERING"}"#, r#""status":{"state":"TASK_STATE_WORKING"}}"#),
        (r#""status":{"state":99}"#, r#""status":{"state":"TASK_STATE_WORKING"}}"#),
        (
            r#""status":{"state":"completed"},"artifacts":[{},{"parts":[{"new":[1]}]}]"#,
            concat!(
                r#""status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"0","#,
                r#""parts":[]},{"artifactId":"1","parts":[{"new":[1]}]}]}"#
            ),
        ),
        (
            r#""status":{"message":{"role":"assistant","parts":[{"kind":"text","text":"x","data":null}]}}"#,
            concat!(
                r#""status":{"state":"TASK_STATE_UNSPECIFIED","message":{"messageId":"","#,
                r#""taskId":"t","role":"ROLE_AGENT","parts":[{"text":"x"}]}}}"#
            ),
        ),
        (
            r#""status":{"message":"hm"}"#,
            concat!(
                r#""status":{"state":"TASK_STATE_UNSPECIFIED","message":{"messageId":"","#,
                r#""taskId":"t","role":"ROLE_AGENT","parts":[{"text":"hm"}]}}}"#
            ),
        ),
    ] {
        assert_eq!(of(members), expected, "{members}");
    }
}

#[test]
fn response_over_a_client_limit_is_rejected() {
    let limits = ClientLimits {
        identifier_bytes_max: 4,
        string_bytes_max: 9,
        parts_max: 2,
        references_max: 1,
        artifacts_max: 1,
        page_tasks_max: 1,
        json_depth_max: 8,
        json_tokens_max: 99,
        ..ClientLimits::default()
    };
    let (mut buffers, mut received) = (FormatBuffers::new(&limits), Received::new());
    let format = Format::standard(Binding::HttpJson, V1);
    let status = r#""status":{}"#;
    let task = |more: &str| format!(r#"{{"id":"t",{status}{more}}}"#);
    let (text, list) = (r#"{"text":"any length is fine"}"#, r#"{"tasks":["#);
    let with_message = |more: &str| task(&format!(r#","history":[{{"role":"user"{more}}}]"#));
    let made = |more: &str| task(&format!(r#","artifacts":[{{"artifactId":"a"{more}}}]"#));
    for (op, body, error) in [
        (Op::Get, format!(r#"{{"id":"12345",{status}}}"#), "id must not be longer than 4 bytes"),
        (
            Op::Get,
            made(r#","name":"1234567890""#),
            "artifacts[0].name must not be longer than 9 bytes",
        ),
        (
            Op::Get,
            made(&format!(r#","parts":[{text},{text},{text}]"#)),
            "artifacts[0].parts[2] exceeds the limit of 2 parts",
        ),
        (Op::Get, made(r#"},{"artifactId":"b""#), "artifacts[1] exceeds the limit of 1 artifacts"),
        (
            Op::Get,
            with_message(&format!(r#","parts":[{text},{text},{text}]"#)),
            "history[0].parts must not have more than 2 parts",
        ),
        (
            Op::Get,
            with_message(r#","referenceTaskIds":["a","b"]"#),
            "history[0].referenceTaskIds must not have more than 1 elements",
        ),
        (
            Op::List,
            format!("{list}{},{}]}}", task(""), task("")),
            "tasks[1] exceeds the limit of 1 tasks",
        ),
        (
            Op::Get,
            task(r#","metadata":{"a":[[[[[[[[]]]]]]]]}"#),
            "it must be JSON: JSON is nested too deeply",
        ),
        (
            Op::Get,
            format!("[{}0]", "0,".repeat(99)),
            "it must be JSON: JSON has more than 99 tokens",
        ),
    ] {
        let read = format.read_reply(
            &mut buffers,
            CallId { op, rpc_id: 7 },
            HEAD,
            body.as_bytes(),
            &mut received,
        );
        let expected = format!("the response cannot be read: {error}");
        assert_eq!(read.map_err(|error| error.to_string()), Err(expected), "{body}");
        assert_eq!(received.kind(), ReceivedKind::Nothing);
    }
}

#[test]
fn an_answer_to_another_call_is_an_error() {
    let format = Format::standard(Binding::JsonRpc, V1);
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let task = r#"{"task":{"id":"t","status":{}}}"#;
    let mut of = |id: &str| {
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"result":{task}}}"#);
        format.read_item(&mut buffers, 7, text.as_bytes(), false, &mut received)
    };
    // Over HTTP the exchange identifies the call.
    for ours in [r#""id":"7","#, "", r#""id":null,"#] {
        assert_eq!(of(ours), Ok(()), "{ours}");
    }
    for other in [r#""id":7,"#, r#""id":"07","#, r#""id":"+7","#, r#""id":"8","#] {
        let Err(CallError::Unreadable(error)) = of(other) else { panic!("{other}") };
        assert_eq!(error.path, "id", "{other}");
    }
}

#[test]
fn error_response_is_a_fault_and_html_is_not_a2a() {
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let mut of = |binding, status, media: &str, body: &str| {
        let head = ReplyHead { status, content_type: Some(media.as_bytes()) };
        let format = Format::standard(binding, V1);
        match format.read_reply(
            &mut buffers,
            CallId { op: Op::Get, rpc_id: 7 },
            head,
            body.as_bytes(),
            &mut received,
        ) {
            Ok(()) => "understood".to_owned(),
            Err(CallError::Fault(fault)) => format!("{:?} {}", fault.kind, fault.message),
            Err(CallError::Unreadable(error)) => error.to_string(),
            Err(error @ CallError::NotA2a { .. }) => error.to_string(),
        }
    };
    let (rpc, rest) = (Binding::JsonRpc, Binding::HttpJson);
    let not_found = r#"{"jsonrpc":"2.0","id":"7","error":{"code":-32001,"message":"no"}}"#;
    assert_eq!(of(rpc, 200, "application/json", not_found), "Some(TaskNotFound) no");
    assert_eq!(of(rpc, 400, "application/json", not_found), "Some(TaskNotFound) no");
    assert_eq!(of(rpc, 401, "application/json", r#"{"detail":"who?"}"#), "None who?");
    assert_eq!(
        of(rest, 404, "application/json", r#"{"error":{"code":404,"message":"no"}}"#),
        "None no"
    );
    assert_eq!(
        of(rest, 502, "text/html; charset=utf-8", "<html>"),
        "the response is not A2A: HTTP status 502, text/html"
    );
    assert_eq!(
        of(rpc, 200, "text/html", "<html>"),
        "the response is not A2A: HTTP status 200, text/html"
    );
    assert_eq!(of(rpc, 200, "application/json", "{"), "it must be JSON: invalid JSON at byte 1");
    assert_eq!(
        of(rest, 200, "application/json", ""),
        "the response is not A2A: HTTP status 200, an empty body"
    );
}
