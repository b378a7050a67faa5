//! Every error that a peer can provoke, in every pair, as in wire §2.
//!
//! [`ROWS`] is the suite's own copy of wire §2.1 to §2.3 (1.0.1 columns): nothing here is taken
//! from the crate.

use serde_json::{Value, json};

use super::{
    client::{By, Call, Client, Fault, Junk, Op},
    message_spec::{MessageSpec, text_spec},
    model::{Content, Part, V01, V1, V03},
    server::Server,
    variants::{Binding, Speaker, VARIANTS, Variant, every_way},
};

/// The codes of an error in each binding.
struct Row {
    name: &'static str,
    code: i64,
    /// The code of 0.1 (wire §2.2).
    code_v01: i64,
    http: u16,
    /// The status of 0.3 (wire §2.3, "HTTP py0.3").
    http_v03: u16,
    status: &'static str,
    reason: &'static str,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("Parse", -32700, -32700, 400, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
    row("InvalidRequest", -32600, -32600, 400, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    row("MethodNotFound", -32601, -32601, 404, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
    row("InvalidParams", -32602, -32602, 400, 422, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    row("TaskNotFound", -32001, -32001, 404, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    row("TaskNotCancelable", -32002, -32002, 400, 409, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    row("PushNotificationNotSupported", -32003, -32003, 400, 501, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    row("UnsupportedOperation", -32004, -32004, 400, 501, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    // 0.1: StreamingNotSupported and InvalidTaskState.
    row("NoStreaming", -32004, -32006, 400, 501, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    row("TerminalTask", -32004, -32009, 400, 501, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    row("ContentTypeNotSupported", -32005, -32005, 400, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    row("ExtendedCardNotConfigured", -32007, -32004, 400, 404, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    // 0.1 has no such error, and -32009 means something else there.
    row("VersionNotSupported", -32009, -32600, 400, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    row("Internal", -32603, -32603, 500, 500, "INTERNAL", "INTERNAL_ERROR"),
    // Not in the tables (wire §2.5: unspecified, 429). 0.1: RateLimitExceeded is about the caller,
    // ResourceUnavailable about the server.
    row("Overloaded", -32000, -32011, 429, 429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
    // docs/guide/calls.md: another message under the same name.
    row("IdempotencyConflict", -32602, -32602, 409, 409, "ALREADY_EXISTS", "IDEMPOTENCY_CONFLICT"),
    // Wire §2.3: "custom" in JSON-RPC; the names are 0.1's.
    row("Unauthenticated", -32000, -32007, 401, 401, "UNAUTHENTICATED", "AUTHENTICATION_REQUIRED"),
    row("PermissionDenied", -32000, -32008, 403, 403, "PERMISSION_DENIED", "AUTHORIZATION_FAILED"),
    row("RateLimited", -32000, -32010, 429, 429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"),
    row("ShuttingDown", -32000, -32011, 503, 503, "UNAVAILABLE", "UNAVAILABLE"),
];

const fn row(
    name: &'static str,
    code: i64,
    code_v01: i64,
    http: u16,
    http_v03: u16,
    status: &'static str,
    reason: &'static str,
) -> Row {
    Row { name, code, code_v01, http, http_v03, status, reason }
}

impl Row {
    /// The gRPC status before 1.0.1 (wire §2.3, column gRPC 1.0.0), which 0.3 uses.
    fn status_v03(&self) -> &'static str {
        match self.reason {
            "PUSH_NOTIFICATION_NOT_SUPPORTED"
            | "UNSUPPORTED_OPERATION"
            | "VERSION_NOT_SUPPORTED" => "UNIMPLEMENTED",
            _ => self.status,
        }
    }

    /// The name of the error: the reason in camel case, and `Error` (wire §2.3).
    fn error_name(&self) -> String {
        let words = self.reason.trim_end_matches("_ERROR").split('_');
        let camel = words.map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()));
        camel.collect::<String>() + "Error"
    }
}

/// Panics unless a pair reports this error of this operation in the form of its generation.
pub fn assert_fault(variant: Variant, op: Op, name: &str, fault: &Fault) {
    let row = ROWS.iter().find(|row| row.name == name).expect("a row");
    let what = format!("{variant:?} {op:?} {name}: {fault:?}");
    // Our client reports the error by one name for all pairs.
    if variant.speaker == Speaker::Client {
        assert_eq!(fault.reason, Some(row.error_name()), "{what}");
        return;
    }
    // Wire §1.2: a method name that 0.1 shares with 0.3 counts as 0.3, unless a task decides
    // otherwise.
    let is_v01 = variant.generation == V01
        && matches!(op, Op::Send | Op::Stream | Op::PushSet | Op::PushGet);
    let code = if is_v01 { row.code_v01 } else { row.code };
    // Wire §1.4: 200 for all JSON-RPC errors; these are errors of HTTP.
    let of_http = ["Overloaded", "Unauthenticated", "PermissionDenied", "RateLimited"];
    let is_of_http = of_http.contains(&name);
    match variant.binding {
        Binding::JsonRpc => {
            assert_eq!(fault.code, Some(code), "{what}");
            assert_eq!(fault.http, Some(if is_of_http { row.http } else { 200 }), "{what}");
        }
        Binding::WebSocket => assert_eq!((fault.code, fault.http), (Some(code), None), "{what}"),
        Binding::Grpc if variant.generation == V03 && name != "MethodNotFound" => {
            assert_eq!(fault.status.as_deref(), Some(row.status_v03()), "{what}");
            // Wire §2.4: `<ErrorName>: <text>`.
            let (error_name, text) = fault.message.split_once(": ").expect(&what);
            assert_eq!((error_name, text.is_empty()), (&*row.error_name(), false), "{what}");
        }
        Binding::Grpc => {
            // An unknown rpc is an error of gRPC itself (wire §2.3: UNIMPLEMENTED with js).
            let status = if name == "MethodNotFound" { "UNIMPLEMENTED" } else { row.status };
            assert_eq!(fault.status.as_deref(), Some(status), "{what}");
        }
        // Wire §2.4: HTTP+JSON of 0.3 has the code of JSON-RPC; its status is that of Python's SDK
        // (wire §2.3, last column).
        Binding::Rest if variant.generation == V03 => {
            assert_eq!(fault.code, Some(code), "{what}");
            assert_eq!(fault.http, Some(row.http_v03), "{what}");
        }
        Binding::Rest => {
            assert_eq!(fault.http, Some(row.http), "{what}");
            assert_eq!(fault.status.as_deref(), Some(row.status), "{what}");
        }
    }
    // Wire §2.4: 1.0 introduced ErrorInfo; every A2A error has it.
    let is_a2a = variant.binding != Binding::Grpc || name != "MethodNotFound";
    let reason = (variant.generation == V1 && is_a2a).then_some(row.reason);
    assert_eq!(fault.reason.as_deref(), reason, "{what}");
    // Wire §2.4: validation errors name the field, in 1.0 in a BadRequest.
    if !matches!(name, "InvalidParams" | "IdempotencyConflict") {
        assert!(fault.fields.is_empty(), "{what}");
    }
    assert!(!fault.message.is_empty(), "{what}");
}

/// Panics unless a stream reports that the server ends before its task. No HTTP status can follow.
pub fn assert_cut(variant: Variant, fault: &Fault) {
    if variant.binding == Binding::Grpc {
        // The status by which gRPC tells its clients to retry elsewhere.
        assert_eq!(fault.status.as_deref(), Some("UNAVAILABLE"), "{variant:?}: {fault:?}");
        return;
    }
    let is_rest_v1 = variant.binding == Binding::Rest && variant.generation == V1;
    let http = match variant.binding {
        Binding::JsonRpc => Some(200),
        Binding::Rest => Some(503),
        Binding::WebSocket | Binding::Grpc => None,
    };
    if is_rest_v1 {
        assert_eq!(fault.http, http, "{fault:?}");
    }
    assert_fault(variant, Op::Stream, "ShuttingDown", &Fault { http, ..fault.clone() });
}

/// Runs a scenario in every pair, by hand: it sends what our client would not.
fn by_hand(server: &Server, mut scenario: impl FnMut(&mut Client)) {
    for &variant in VARIANTS {
        eprintln!("in {variant:?}:");
        scenario(&mut server.client(variant));
    }
}

/// Runs a scenario in every pair, by hand and by our client.
fn in_every_way(server: &Server, mut scenario: impl FnMut(&mut Client)) {
    for variant in every_way() {
        eprintln!("in {variant:?}:");
        scenario(&mut server.client(variant));
    }
}

fn assert_refused(client: &mut Client, name: &str, call: &Call) {
    let fault = client.fault(call);
    assert_fault(client.variant, call.op, name, &fault);
}

fn send(client: &Client, op: Op, spec: &MessageSpec) -> Call {
    Call::new(op, client.variant.value_form(client.variant.form()).send_params(spec))
}

fn about(op: Op, id: &str) -> Call {
    Call::new(op, json!({"id": id}))
}

/// A task that has ended.
fn ended(client: &mut Client) -> super::model::Task {
    client.send(&text_spec("done")).expect("an answer").task()
}

#[test]
fn an_invalid_call_is_refused_and_the_connection_survives() {
    let server = Server::start();
    by_hand(&server, |client| {
        for (junk, name) in [
            (Junk::Unreadable, "Parse"),
            (Junk::NotARequest, "InvalidRequest"),
            (Junk::NoSuchMethod, "MethodNotFound"),
            (Junk::MediaType, "ContentTypeNotSupported"),
        ] {
            // Bytes that are not a protobuf are not JSON that failed to parse.
            let is_proto = client.variant.binding == Binding::Grpc && junk == Junk::Unreadable;
            let name = if is_proto { "InvalidRequest" } else { name };
            let Some(fault) = client.link.junk(junk) else {
                eprintln!("cannot be expressed in {:?}: {junk:?}", client.variant);
                continue;
            };
            // An invalid call has no generation; JSON-RPC answers it in the first form of the
            // dialect, or in the form that its method suggests.
            let looks_old = junk == Junk::NoSuchMethod && client.variant.generation != V1;
            let generation = match client.variant.binding {
                Binding::JsonRpc | Binding::WebSocket if looks_old => V03,
                Binding::JsonRpc | Binding::WebSocket => V1,
                Binding::Rest | Binding::Grpc => client.variant.generation,
            };
            assert_fault(Variant { generation, ..client.variant }, Op::Get, name, &fault);
            ended(client);
        }
    });
}

#[test]
fn unknown_tasks_are_not_found_by_any_operation() {
    let server = Server::start();
    by_hand(&server, |client| {
        for op in [Op::Get, Op::Cancel, Op::Subscribe] {
            assert_refused(client, "TaskNotFound", &about(op, "nowhere"));
        }
        if client.variant.names_tasks() {
            return;
        }
        let mut spec = text_spec("done");
        spec.task = Some("nowhere".to_owned());
        for op in [Op::Send, Op::Stream] {
            let call = send(client, op, &spec);
            assert_refused(client, "TaskNotFound", &call);
        }
    });
}

#[test]
fn finished_task_rejects_message_cancel_and_subscribe() {
    let server = Server::start();
    by_hand(&server, |client| {
        for text in ["done", "refuse", "fail"] {
            let task = client.send(&text_spec(text)).expect("an answer").task();
            let again = text_spec("more").to(&task);
            for op in [Op::Send, Op::Stream] {
                let call = send(client, op, &again);
                assert_refused(client, "TerminalTask", &call);
            }
            assert_refused(client, "TaskNotCancelable", &about(Op::Cancel, &task.id));
            // Wire §2.5: UnsupportedOperation, although 0.1 has its own code for sends.
            assert_refused(client, "UnsupportedOperation", &about(Op::Subscribe, &task.id));
        }
    });
}

#[test]
fn invalid_message_is_rejected_naming_its_field() {
    let server = Server::start();
    by_hand(&server, |client| {
        let task = client.send(&text_spec("ask")).expect("an answer").task();
        let empty = MessageSpec { parts: Vec::new(), ..text_spec("") };
        let elsewhere = text_spec("more").to(&task).within("elsewhere");
        for op in [Op::Send, Op::Stream] {
            for spec in [&empty, &elsewhere] {
                let call = send(client, op, spec);
                let fault = client.fault(&call);
                assert_fault(client.variant, op, "InvalidParams", &fault);
                assert!(client.variant.names_fields() != fault.fields.is_empty(), "{fault:?}");
            }
        }
        // A missing id: a REST path always has one.
        if client.variant.binding != Binding::Rest {
            for op in [Op::Get, Op::Cancel, Op::Subscribe] {
                assert_refused(client, "InvalidParams", &Call::new(op, json!({})));
            }
        }
        // The task got none of these messages.
        let target = client.target(&task);
        assert_eq!(client.get(&target).expect("a task").shows(), ["ask"]);
    });
}

#[test]
fn push_configs_are_rejected_by_a_server_without_push() {
    let server = Server::start();
    in_every_way(&server, |client| {
        let task = client.send(&text_spec("hold")).expect("an answer").task();
        let url = "http://127.0.0.1:9/hook";
        // Our client takes params in the form of 1.0 for every generation.
        let params = match (client.variant.speaker, client.variant.generation) {
            (Speaker::Client, _) | (_, V1) => json!({"taskId": task.id, "url": url}),
            (_, V03) => json!({"taskId": task.id, "pushNotificationConfig": {"url": url}}),
            (_, V01) => json!({"id": task.id, "pushNotificationConfig": {"url": url}}),
        };
        assert_refused(client, "PushNotificationNotSupported", &Call::new(Op::PushSet, params));
        let mut call = send(client, Op::Send, &text_spec("done"));
        match client.variant.value_form(client.variant.form()) {
            super::model::Form::V01 => call.params["pushNotification"] = json!({"url": url}),
            super::model::Form::V03 => {
                call.params["configuration"]["pushNotificationConfig"] = json!({"url": url});
            }
            super::model::Form::Proto03 => {
                call.params["configuration"]["pushNotification"] = json!({"url": url});
            }
            super::model::Form::V1 | super::model::Form::Canonical => {
                call.params["configuration"]["taskPushNotificationConfig"] = json!({"url": url});
            }
        }
        assert_refused(client, "PushNotificationNotSupported", &call);
    });
}

#[test]
fn part_with_unsupported_media_type_is_rejected() {
    let server = Server::start();
    by_hand(&server, |client| {
        let image = Part::of(Content::Raw("AAAA".to_owned())).file("a.png", "image/png");
        for op in [Op::Send, Op::Stream] {
            let call = send(client, op, &text_spec("done").with(std::slice::from_ref(&image)));
            assert_refused(client, "ContentTypeNotSupported", &call);
        }
    });
}

#[test]
fn an_unknown_version_is_refused_by_every_operation() {
    let server = Server::start();
    by_hand(&server, |client| {
        let task = client.send(&text_spec("hold")).expect("an answer").task();
        let mut calls: Vec<Call> = Vec::new();
        for op in [Op::Send, Op::Stream] {
            calls.push(send(client, op, &text_spec("done")));
        }
        for op in [Op::Get, Op::Cancel, Op::Subscribe] {
            calls.push(about(op, &task.id));
        }
        for call in calls {
            for by in [By::Field, By::Query] {
                let call = Call { version: Some(("99.0", by)), ..call.clone() };
                assert_refused(client, "VersionNotSupported", &call);
            }
        }
        let target = client.target(&task);
        assert_eq!(client.get(&target).expect("a task").state, "working");
    });
}

#[test]
fn server_without_streaming_rejects_stream_and_subscribe() {
    let server = Server::with(&["--no-streaming"]);
    by_hand(&server, |client| {
        let task = client.send(&text_spec("hold")).expect("an answer").task();
        let call = send(client, Op::Stream, &text_spec("done"));
        assert_refused(client, "NoStreaming", &call);
        assert_refused(client, "NoStreaming", &about(Op::Subscribe, &task.id));
    });
}

#[test]
fn unconfigured_extended_card_is_not_served() {
    let server = Server::start();
    in_every_way(&server, |client| {
        if client.variant.generation == V01 {
            // Wire §1.3: 0.1 has no extended card.
            return;
        }
        let call = Call::new(Op::ExtendedCard, json!({}));
        if client.variant.has_one_card() {
            let card = client.link.call(&call).expect("a card");
            assert_ne!(card["supportsAuthenticatedExtendedCard"], true, "{card}");
            assert_ne!(card["capabilities"]["extendedAgentCard"], true, "{card}");
            return;
        }
        // 0.3 has a code for it; in 1.0 that code is for a card that is announced and missing.
        let is_v1 = client.variant.generation == V1;
        let name = if is_v1 { "UnsupportedOperation" } else { "ExtendedCardNotConfigured" };
        assert_refused(client, name, &call);
    });
}

#[test]
fn stream_above_streams_max_is_rejected_until_another_ends() {
    let server = Server::with(&["--limit", "streams_max=1"]);
    by_hand(&server, |client| {
        let mut first = client.stream(&text_spec("hold")).expect("a stream");
        let (id, _) = first.begin();
        let call = send(client, Op::Stream, &text_spec("done"));
        assert_refused(client, "Overloaded", &call);
        client
            .cancel(&super::client::Target { id, made: client.variant.generation })
            .expect("a task");
        first.rest();
        let second = client.stream(&text_spec("done")).expect("a stream");
        second.rest();
    });
}

#[test]
fn invalid_list_params_and_lists_before_1_0_are_rejected() {
    let server = Server::start();
    by_hand(&server, |client| {
        if !client.variant.lists() {
            let fault = client.fault(&Call::new(Op::List, json!({})));
            assert_fault(client.variant, Op::List, "MethodNotFound", &fault);
            return;
        }
        for (key, value) in [
            ("pageSize", json!(0)),
            ("pageSize", json!(101)),
            ("pageSize", json!(-1)),
            ("pageToken", json!("x")),
            ("historyLength", json!(-1)),
        ] {
            let params: Value = json!({key: value});
            assert_refused(client, "InvalidParams", &Call::new(Op::List, params));
        }
        // A value that a protobuf cannot express.
        if client.variant.is_json() {
            for (key, value) in
                [("status", json!("TASK_STATE_DONE")), ("statusTimestampAfter", json!("yesterday"))]
            {
                let params: Value = json!({key: value});
                assert_refused(client, "InvalidParams", &Call::new(Op::List, params));
            }
        }
    });
}
