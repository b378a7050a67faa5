//! Every kind of fault, provoked through a connection and answered in the caller's dialect.

use std::collections::HashSet;

use peregrine::{
    engine::Setup,
    fault::FaultKind::{self, *},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, V01, V1, V03, post, rpc, rpc_id, say},
    echo,
    reply::Reply,
    script,
};

const ID: &str = r#""é\"-1.0""#;

/// A server on which a fault occurs, and the request that provokes it.
struct Case {
    kind: FaultKind,
    lab: Lab,
    fields: Vec<(&'static str, &'static str)>,
    /// The method and params in each generation.
    request: fn(Gen) -> (&'static str, Value),
}

fn case(kind: FaultKind, lab: Lab, request: fn(Gen) -> (&'static str, Value)) -> Case {
    Case { kind, lab, fields: Vec::new(), request }
}

/// A server with a finished task that has a valid id in every generation.
fn with_done_task() -> Lab {
    let mut lab = Lab::echo();
    lab.result(V01.send(), &V01.params(OutgoingMessage { task: Some("done"), ..say("hi") }));
    lab
}

fn to_done(generation: Gen) -> Value {
    generation.params(OutgoingMessage { task: Some("done"), ..say("more") })
}

fn image(generation: Gen) -> Value {
    let mut params = generation.params(say(""));
    params["message"]["parts"][0] = match generation {
        V01 => json!({"type": "file", "file": {"bytes": "AAAA", "mimeType": "image/png"}}),
        V03 => json!({"kind": "file", "file": {"bytes": "AAAA", "mimeType": "image/png"}}),
        V1 => json!({"raw": "AAAA", "mediaType": "image/png"}),
    };
    params
}

fn push(generation: Gen) -> (&'static str, Value) {
    let method = match generation {
        V01 => "tasks/pushNotification/set",
        V03 => "tasks/pushNotificationConfig/set",
        V1 => "CreateTaskPushNotificationConfig",
    };
    (method, json!({"id": "t", "taskId": "t", "url": "http://a"}))
}

fn extended(generation: Gen) -> (&'static str, Value) {
    match generation {
        // 0.1 has no such method; this is another name of the method of 0.3.
        V01 => ("agent/getAuthenticatedExtendedCard", Value::Null),
        V03 => ("agent/authenticatedExtendedCard", Value::Null),
        V1 => ("GetExtendedAgentCard", Value::Null),
    }
}

/// Every fault in answer to a well-formed request of a known method.
fn cases() -> Vec<Case> {
    let full = || Lab::limited(|limits| limits.streams_max = 1);
    let mut crowded = full();
    crowded.stream(V1.stream(), &V1.params(say("hold:1000:1")));
    let mut non_streaming = echo();
    non_streaming.0.streaming = false;
    let mut text_only = echo();
    text_only.0.input_modes = vec!["text/plain".to_owned()];
    let with = |agent| Lab::new(Setup { agents: vec![agent], ..Setup::default() });
    let mut cases = vec![
        case(InvalidParams, Lab::echo(), |g| (g.send(), json!({"id": "t", "message": 7}))),
        case(TaskNotFound, Lab::echo(), |g| (g.subscribe(), json!({"id": "nowhere"}))),
        case(TaskNotCancelable, with_done_task(), |g| (g.cancel(), json!({"id": "done"}))),
        case(PushNotificationNotSupported, Lab::echo(), push),
        case(ExtendedAgentCardNotConfigured, Lab::echo(), extended),
        case(StreamingNotSupported, with(non_streaming), |g| (g.stream(), g.params(say("hi")))),
        case(TaskTerminal, with_done_task(), |g| (g.send(), to_done(g))),
        case(ContentTypeNotSupported, with(text_only), |g| (g.send(), image(g))),
        case(Overloaded, crowded, |g| (g.stream(), g.params(say("hi")))),
    ];
    let request = |g: Gen| (g.get(), json!({"id": "t"}));
    let version = case(VersionNotSupported, Lab::echo(), request);
    cases.push(Case { fields: vec![("A2A-Version", "99.0")], ..version });
    cases
}

/// The kind of a fault in this generation: only 0.3 has an error for an extended card that is off;
/// A2A 1.0 §3.1.11 uses `UnsupportedOperation`.
fn kind_in(kind: FaultKind, generation: Gen) -> FaultKind {
    let is_new_card = kind == ExtendedAgentCardNotConfigured && generation == V1;
    if is_new_card { UnsupportedOperation } else { kind }
}

/// The generation that defines the form of a method's faults: shared names belong to 0.3.
fn form_of(generation: Gen, method: &str) -> Gen {
    let is_shared = matches!(method, "tasks/get" | "tasks/cancel" | "tasks/resubscribe");
    let is_v03 = is_shared || method.starts_with("agent/");
    if generation == V01 && is_v03 { V03 } else { generation }
}

fn assert_form(error: &Value, kind: FaultKind, form: Gen, what: &str) {
    let row = kind.row();
    let code = if form == V01 { row.code_v01 } else { row.code };
    assert_eq!(error["code"], code, "{what}: {error}");
    assert!(!error["message"].as_str().unwrap().is_empty());
    let members: HashSet<_> = ["code", "message", "data"].into();
    assert!(error.as_object().unwrap().keys().all(|key| members.contains(key.as_str())));
    match form {
        V1 => {
            let info = &error["data"][0];
            assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{what}");
            assert_eq!(
                (&info["reason"], &info["domain"]),
                (&json!(row.reason), &json!("a2a-protocol.org"))
            );
            let details = &error["data"][1];
            if kind == InvalidParams {
                assert_eq!(details["@type"], "type.googleapis.com/google.rpc.BadRequest");
                let violation = &details["fieldViolations"][0];
                assert!(violation["field"].is_string() && violation["description"].is_string());
            }
        }
        V01 | V03 if error["data"]["taskId"].is_string() => assert_eq!(kind, ShuttingDown),
        // The `data` of 1.0 does not exist in earlier versions.
        V01 | V03 if kind == InvalidParams => assert_eq!(error["data"]["field"], "message"),
        V01 | V03 => assert!(error.get("data").is_none(), "{what}: {error}"),
    }
}

#[test]
fn fault_has_the_format_of_its_version_and_its_request_id() {
    for mut case in cases() {
        for generation in Gen::ALL {
            let (method, params) = (case.request)(generation);
            let kind = kind_in(case.kind, generation);
            let what = format!("{kind:?} {method}");
            let body = rpc_id(ID, method, &params);
            let reply = case.lab.ask(&post("/", &case.fields, &body));
            // A retryable fault has an HTTP status and field for proxies; all others use JSON-RPC
            // alone.
            let is_overload = matches!(case.kind, Overloaded);
            assert_eq!(reply.status, if is_overload { 429 } else { 200 }, "{what}");
            assert_eq!(reply.field("retry-after").is_some(), is_overload, "{what}");
            assert!(reply.text().starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{ID},"error":"#)));
            assert_form(&reply.json()["error"], kind, form_of(generation, method), &what);
            // The same inside a batch.
            let reply = case.lab.ask(&post("/", &case.fields, &format!("[{body}]")));
            let error = &reply.json()[0]["error"];
            if !method.contains("tream") && !method.contains("ubscribe") {
                assert_form(error, kind, form_of(generation, method), &what);
            } else if case.kind != VersionNotSupported {
                assert_form(error, InvalidRequest, form_of(generation, method), &what);
            }
        }
    }
}

/// The equivalent request over HTTP+JSON.
fn over_rest(method: &str, params: &Value, base: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let id = params.get("taskId").or(params.get("id")).and_then(Value::as_str).unwrap_or("x");
    let (verb, path) = match method {
        "SendMessage" | "message/send" => ("POST", "/message:send".to_owned()),
        "SendStreamingMessage" | "message/stream" => ("POST", "/message:stream".to_owned()),
        "GetTask" | "tasks/get" => ("GET", format!("/tasks/{id}")),
        "CancelTask" | "tasks/cancel" => ("POST", format!("/tasks/{id}:cancel")),
        "SubscribeToTask" | "tasks/resubscribe" => ("POST", format!("/tasks/{id}:subscribe")),
        "CreateTaskPushNotificationConfig" | "tasks/pushNotificationConfig/set" => {
            ("POST", format!("/tasks/{id}/pushNotificationConfigs"))
        }
        "GetExtendedAgentCard" => ("GET", "/extendedAgentCard".to_owned()),
        "agent/authenticatedExtendedCard" => ("GET", "/card".to_owned()),
        other => panic!("{other}"),
    };
    let mut bytes = post(&format!("{base}{path}"), fields, &params.to_string());
    bytes.splice(..4, verb.bytes());
    bytes
}

#[test]
fn http_json_fault_has_the_format_of_its_version() {
    for mut case in cases() {
        for (generation, base) in [(V1, ""), (V03, "/v1")] {
            let (method, params) = (case.request)(generation);
            let kind = kind_in(case.kind, generation);
            let (row, what) = (kind.row(), format!("{kind:?} {method}"));
            let reply = case.lab.ask(&over_rest(method, &params, base, &case.fields));
            let is_overload = matches!(case.kind, Overloaded);
            assert_eq!(reply.field("retry-after").is_some(), is_overload, "{what}");
            let body = reply.json();
            if generation == V03 {
                assert_eq!(reply.status, row.http_v03, "{what}: {body}");
                assert_eq!(body["code"], row.code, "{what}");
                assert!(!body["message"].as_str().unwrap().is_empty());
                continue;
            }
            // A2A 1.0.1 §5.4, and AIP-193 around it.
            assert_eq!(reply.status, row.status.http(), "{what}: {body}");
            let error = &body["error"];
            assert_eq!(error["code"], row.status.http(), "{what}");
            assert_eq!(error["status"], row.status.name(), "{what}");
            // The details are those of JSON-RPC.
            let rpc = case.lab.ask(&post("/", &case.fields, &rpc_id(ID, method, &params)));
            let rpc = &rpc.json()["error"];
            assert_eq!(error["details"], rpc["data"], "{what}");
            // Each binding serves its own set of versions.
            assert!(error["message"] == rpc["message"] || case.kind == VersionNotSupported);
        }
    }
}

/// Wire §2.3, the columns of 1.0.1 and of 0.3.
#[test]
fn http_json_statuses_match_the_specifications() {
    use peregrine::fault::CanonicalCode::{
        AlreadyExists, FailedPrecondition, Internal as InternalStatus, InvalidArgument, NotFound,
        ResourceExhausted, Unavailable,
    };
    for (kind, status, http, http_v03) in [
        (Parse, InvalidArgument, 400, 400),
        (InvalidRequest, InvalidArgument, 400, 400),
        (MethodNotFound, NotFound, 404, 404),
        (InvalidParams, InvalidArgument, 400, 422),
        (Internal, InternalStatus, 500, 500),
        (TaskNotFound, NotFound, 404, 404),
        (TaskNotCancelable, FailedPrecondition, 400, 409),
        (PushNotificationNotSupported, FailedPrecondition, 400, 501),
        (UnsupportedOperation, FailedPrecondition, 400, 501),
        (StreamingNotSupported, FailedPrecondition, 400, 501),
        (IdempotencyConflict, AlreadyExists, 409, 409),
        (TaskTerminal, FailedPrecondition, 400, 501),
        (ContentTypeNotSupported, InvalidArgument, 400, 415),
        (InvalidAgentResponse, InternalStatus, 500, 502),
        (ExtendedAgentCardNotConfigured, FailedPrecondition, 400, 404),
        (ExtensionSupportRequired, FailedPrecondition, 400, 400),
        (VersionNotSupported, FailedPrecondition, 400, 400),
        (Overloaded, ResourceExhausted, 429, 429),
        (ShuttingDown, Unavailable, 503, 503),
    ] {
        let row = kind.row();
        assert_eq!(
            (row.status, row.status.http(), row.http_v03),
            (status, http, http_v03),
            "{kind:?}"
        );
    }
}

#[test]
fn malformed_call_error_has_the_readable_request_id() {
    let mut lab = Lab::echo();
    for body in ["", "{", "[", "{\"id\":1}x", "\u{feff}{", "{}\u{feff}"] {
        let error = lab.ask(&post("/", &[], body)).json();
        assert_eq!(error["id"], Value::Null);
        assert_form(&error["error"], Parse, V1, body);
    }
    for (body, id) in [
        ("1", Value::Null),
        ("{}", Value::Null),
        (r#"{"id":"x","method":"GetTask"}"#, json!("x")),
        (r#"{"jsonrpc":"1.0","id":5,"method":"GetTask"}"#, json!(5)),
        (r#"{"jsonrpc":"2.0","id":5}"#, json!(5)),
    ] {
        let error = lab.ask(&post("/", &[], body)).json();
        assert_eq!(error["id"], id, "{body}");
        assert_form(&error["error"], InvalidRequest, V1, body);
    }
    // An unknown method is answered in the form of the generation that its name resembles.
    for (method, form) in [("NoSuch", V1), ("tasks/nosuch", V03), ("message/sent", V03)] {
        let error = lab.call(method, &json!({}));
        assert_form(&error["error"], MethodNotFound, form, method);
    }
}

#[test]
fn unsupported_content_type_is_a_json_rpc_error() {
    let mut lab = Lab::echo();
    for media in ["text/plain", "application/xml", "application/jsonx", "multipart/form-data"] {
        let body = rpc("ListTasks", &Value::Null);
        let reply = lab.ask(&post("/", &[("Content-Type", media)], &body));
        assert_eq!(reply.status, 200, "{media}");
        assert_form(&reply.json()["error"], ContentTypeNotSupported, V1, media);
    }
    for media in ["application/json", "Application/JSON; charset=utf-8", "application/a2a+json"] {
        let body = rpc("ListTasks", &Value::Null);
        lab.ask(&post("/", &[("Content-Type", media)], &body)).result();
    }
}

/// Opens a stream that does not end, in every generation.
fn endless(lab: &mut Lab) -> Vec<(Gen, Peer)> {
    let open = |generation: Gen| {
        let message = OutgoingMessage { id: generation.send(), ..say("hold:60000:1") };
        (generation, lab.stream(generation.stream(), &generation.params(message)))
    };
    Gen::ALL.into_iter().map(open).collect()
}

#[test]
fn server_shutdown_ends_streams_with_an_error_event() {
    let mut lab = Lab::echo();
    let streams = endless(&mut lab);
    lab.engine.drain();
    lab.engine.cut();
    lab.pass(15_000);
    for (generation, peer) in streams {
        let reply = lab.reply(peer);
        let last = reply.events().pop().unwrap();
        assert_eq!((last.name.as_deref(), &last.data["id"]), (Some("error"), &json!(1)));
        assert_form(&last.data["error"], ShuttingDown, generation, "cut");
        assert!(reply.complete && !lab.is_open(peer));
    }
    // After the drain no task is created.
    let answer = lab.call(V1.send(), &V1.params(say("hi")));
    assert_form(&answer["error"], ShuttingDown, V1, "drained");
}

/// Calls with this text that wait in every generation, and the ids of their tasks.
fn waiting(lab: &mut Lab, text: &str) -> Vec<(Gen, Peer, Value)> {
    let wait = |generation: Gen| {
        let message = OutgoingMessage { id: generation.send(), ..say(text) };
        let peer = lab.stream(generation.send(), &generation.params(message));
        let page = lab.result("ListTasks", &json!({"pageSize": 1}));
        (generation, peer, page["tasks"][0]["id"].clone())
    };
    Gen::ALL.into_iter().map(wait).collect()
}

#[test]
fn server_shutdown_error_names_the_task_of_each_waiting_call() {
    let mut lab = Lab::echo();
    let calls = waiting(&mut lab, "hold:60000:1");
    let rest = lab.open();
    lab.write(rest, &post("/message:send", &[], &V1.params(say("hold:60000:1")).to_string()));
    let batch = lab.open();
    let done = rpc_id("7", V1.send(), &V1.params(say("hi")));
    let held = rpc_id("8", V1.send(), &V1.params(say("hold:60000:1")));
    lab.write(batch, &post("/", &[], &format!("[{done},{held}]")));
    lab.engine.drain();
    lab.settle_all();
    assert!(calls.iter().all(|(_, peer, _)| lab.received(*peer).is_empty()), "they may end");
    lab.engine.cut();
    lab.settle_all();
    for (generation, peer, id) in calls {
        let reply = lab.reply(peer);
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
        let error = &reply.json()["error"];
        assert_form(error, ShuttingDown, generation, "cut");
        let data = &error["data"];
        let named = if generation == V1 { &data[0]["metadata"] } else { data };
        assert_eq!(named["taskId"], id, "{error}");
        assert!(error["message"].as_str().unwrap().contains(id.as_str().unwrap()));
        if generation == V1 {
            let retry =
                json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"});
            assert_eq!(data[1], retry);
        }
        assert!(!lab.is_open(peer));
    }
    let reply = lab.reply(rest);
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    let error = &reply.json()["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!(503), &json!("UNAVAILABLE")));
    let id = error["details"][0]["metadata"]["taskId"].clone();
    // The task still runs and can be read.
    let task = lab.result("GetTask", &json!({"id": id}));
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
    let answers = lab.reply(batch).json();
    assert_eq!(answers[0]["id"], 7);
    assert!(answers[0]["result"].is_object(), "{answers}");
    assert_form(&answers[1]["error"], ShuttingDown, V1, "batch");
}

#[test]
fn evicting_a_task_ends_its_streams_with_an_error() {
    // A stream of a finished task that its peer has not read to the end.
    let mut lab = Lab::limited(|limits| {
        limits.tasks_max = 1;
        limits.output_bytes_max = 4_096;
    });
    let peer = lab.open();
    lab.set_reads(peer, false);
    lab.write(peer, &post("/", &[], &rpc(V03.stream(), &V03.params(say("stream:100")))));
    lab.result(V1.send(), &V1.params(say("another")));
    lab.set_reads(peer, true);
    let reply = lab.reply(peer);
    let last = reply.events().pop().unwrap();
    assert_eq!(last.name.as_deref(), Some("error"));
    assert_form(&last.data["error"], TaskNotFound, V03, "evicted");
    // The connection itself still works.
    lab.write(peer, &post("/", &[], &rpc("ListTasks", &Value::Null)));
    lab.reply(peer).result();
}

#[test]
fn error_before_first_event_is_json_and_keeps_the_connection() {
    let mut lab = with_done_task();
    let peer = lab.open();
    for generation in Gen::ALL {
        lab.write(peer, &post("/", &[], &rpc(generation.stream(), &to_done(generation))));
        let reply: Reply = lab.reply(peer);
        assert_form(&reply.json()["error"], TaskTerminal, generation, "stream");
    }
    assert!(lab.is_open(peer));
}

#[test]
fn waiting_call_returns_its_task_when_it_is_canceled() {
    // The wait of a call ends with its task, here by another caller's cancel.
    let toml = "[[rule]]\n[[rule.step]]\nstatus = \"working\"\n[[rule.step]]\ndelay_ms = 60000\nstatus = \"completed\"\n";
    let setup = Setup { agents: vec![script("slow", toml)], ..Setup::default() };
    let mut lab = Lab::new(setup);
    let mut waiting = Vec::new();
    for generation in Gen::ALL {
        let message = OutgoingMessage { id: generation.send(), ..say("hi") };
        waiting.push((generation, lab.stream(generation.send(), &generation.params(message))));
    }
    assert!(waiting.iter().all(|(_, peer)| lab.received(*peer).is_empty()));
    let page = lab.result("ListTasks", &Value::Null);
    for task in page["tasks"].as_array().unwrap() {
        lab.result("CancelTask", &json!({"id": task["id"]}));
    }
    for (generation, peer) in waiting {
        let result = lab.reply(peer).result();
        let task = generation.task(&result);
        assert_eq!(task["status"]["state"], generation.state("canceled"));
    }
}

#[test]
fn overload_error_of_a_waiting_call_has_its_request_id() {
    let mut lab = Lab::limited(|limits| limits.connections_max = 1);
    let hold = V03.params(say("hold:1000:1"));
    let waits = lab.stream(V03.send(), &hold);
    let reply = lab.ask(&post("/", &[], &rpc_id(ID, V03.send(), &hold)));
    assert!(reply.text().starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{ID},"#)));
    assert_form(&reply.json()["error"], Overloaded, V03, "no room");
    assert!(reply.text().contains("connections_max"), "{}", reply.text());
    let rest = lab.ask(&post("/v1/message:send", &[], &hold.to_string()));
    assert!(rest.text().contains("connections_max"), "{}", rest.text());
    lab.pass(1_000);
    lab.reply(waits).result();
}

/// Each fault must be provoked by a test or listed here.
#[test]
fn every_fault_kind_is_tested_or_listed() {
    let mut seen: HashSet<FaultKind> = cases().iter().map(|case| case.kind).collect();
    seen.extend([Parse, InvalidRequest, MethodNotFound, Internal, ShuttingDown]);
    // The store refuses events out of order, so no test can provoke this fault; the task continues.
    seen.insert(InvalidAgentResponse);
    seen.insert(kind_in(ExtendedAgentCardNotConfigured, V1));
    // See `repeats.rs`.
    seen.insert(IdempotencyConflict);
    // See `terms.rs`.
    seen.extend([DeadlineExceeded, LoopDetected]);
    // No agent of these cases requires an extension; see `extensions.rs`.
    seen.insert(ExtensionSupportRequired);
    // For unauthenticated or unauthorized callers see `callers.rs`.
    seen.extend([Unauthenticated, PermissionDenied, RateLimited]);
    assert_eq!(seen.len(), FaultKind::ALL.len());
}
