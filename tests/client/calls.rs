//! How calls are written: the exact bytes of each generation's frames.

use peregrine::{
    binding::interfaces::Binding,
    client::{Format, WrittenCall},
    model::{
        Generation, Get, JsonObject, List, MessageBuf, OutgoingCall, PartsBuf, PushCall,
        PushConfigBuf, RawText, Send, SendMode, Target, TaskState,
    },
};

use Generation::{V01, V1, V03};

fn raw(text: &str) -> RawText<'_> {
    RawText::parse(text).unwrap()
}

/// `method path body` of a call.
fn written(format: Format, call: &OutgoingCall<'_>, tenant: Option<&str>) -> String {
    let mut out = WrittenCall::default();
    format.write(call, 7, tenant, &mut out).unwrap();
    assert_eq!(out.content_type.is_some(), !out.body.is_empty());
    let body = String::from_utf8(out.body).unwrap();
    format!("{} {} {body}", out.method.name(), out.path).trim_end().to_owned()
}

/// Method and params of a JSON-RPC call.
fn rpc(generation: Generation, call: &OutgoingCall<'_>) -> String {
    params(Format::standard(Binding::JsonRpc, generation), call)
}

fn params(format: Format, call: &OutgoingCall<'_>) -> String {
    let text = written(format, call, None);
    let head = r#"POST  {"jsonrpc":"2.0","id":"7","method":""#;
    let text = text.strip_prefix(head).unwrap_or_else(|| panic!("{text}"));
    text.strip_suffix('}').unwrap().replace(r#"","params":"#, " ")
}

fn rest(generation: Generation, call: &OutgoingCall<'_>) -> String {
    written(Format::standard(Binding::HttpJson, generation), call, None)
}

fn send(message: &MessageBuf, mode: SendMode) -> Send<'_> {
    Send {
        has_own_id: true,
        message: message.view(),
        task_id: Some(raw("t")),
        client_chooses_id: false,
        context_id: Some(raw("c")),
        mode,
        history: None,
        accepted_output_modes: None,
        metadata: None,
        push: None,
        generation: V1,
    }
}

#[test]
fn send_is_encoded_for_each_generation_and_binding() {
    let message = MessageBuf::user(&PartsBuf::new().text("hi")).id("m");
    let call = OutgoingCall::Send(send(&message, SendMode::Wait));
    let ids = r#""contextId":"c","taskId":"t","#;
    let v1 = format!(
        r#"{{"message":{{{ids}"messageId":"m","role":"ROLE_USER","parts":[{{"text":"hi"}}]}}}}"#
    );
    assert_eq!(rpc(V1, &call), format!("SendMessage {v1}"));
    assert_eq!(rest(V1, &call), format!("POST /message:send {v1}"));
    assert_eq!(
        rpc(V03, &call),
        format!(
            r#"message/send {{"message":{{{ids}"kind":"message","messageId":"m","role":"user","parts":[{{"kind":"text","text":"hi"}}]}},"configuration":{{"acceptedOutputModes":[],"blocking":true}}}}"#
        )
    );
    assert_eq!(
        rest(V03, &call),
        format!(
            r#"POST /v1/message:send {{"message":{{{ids}"messageId":"m","role":"ROLE_USER","content":[{{"text":"hi"}}]}},"configuration":{{"historyLength":2147483647,"blocking":true}}}}"#
        )
    );
    assert_eq!(
        rpc(V01, &call),
        r#"tasks/send {"id":"t","sessionId":"c","message":{"role":"user","parts":[{"type":"text","text":"hi"}]}}"#
    );
    let evo_ai = Format::of_dialect(Binding::JsonRpc, V03, "evo_ai").unwrap();
    assert_eq!(
        params(evo_ai, &call),
        r#"message/send {"message":{"taskId":"t","messageId":"m","role":"user","parts":[{"type":"text","text":"hi"}]},"contextId":"c"}"#
    );
    let config = PushConfigBuf::new("https://h").token("k").bearer("s");
    let call = OutgoingCall::Send(Send {
        history: Some(3),
        accepted_output_modes: Some(br#"["a/b"]"#),
        metadata: JsonObject::parse(r#"{ "k" : 1e400 }"#).ok(),
        push: Some(config.view()),
        ..send(&message, SendMode::Return)
    });
    let tail = r#""metadata":{ "k" : 1e400 }}"#;
    let v1 = format!(
        r#""configuration":{{"acceptedOutputModes":["a/b"],"taskPushNotificationConfig":{{"url":"https://h","token":"k","authentication":{{"scheme":"Bearer","credentials":"s"}}}},"historyLength":3,"returnImmediately":true}},{tail}"#
    );
    assert!(rpc(V1, &call).ends_with(&v1), "{}", rpc(V1, &call));
    let v03 = format!(
        r#""configuration":{{"acceptedOutputModes":["a/b"],"historyLength":3,"pushNotificationConfig":{{"url":"https://h","token":"k","authentication":{{"schemes":["Bearer"],"credentials":"s"}}}},"blocking":false}},{tail}"#
    );
    assert!(rpc(V03, &call).ends_with(&v03), "{}", rpc(V03, &call));
}

#[test]
fn task_operations_are_encoded_as_rpc_methods_or_paths() {
    let get =
        OutgoingCall::Get(Get {
            id: raw("a:b é"), context_id: None, history: Some(2), wait: None
        });
    assert_eq!(rpc(V1, &get), r#"GetTask {"id":"a:b é","historyLength":2}"#);
    assert_eq!(rpc(V01, &get), r#"tasks/get {"id":"a:b é","historyLength":2}"#);
    assert_eq!(rest(V1, &get), "GET /tasks/a%3Ab%20%C3%A9?historyLength=2");
    assert_eq!(rest(V03, &get), "GET /v1/tasks/a%3Ab%20%C3%A9?historyLength=2");
    let metadata = JsonObject::parse(r#"{"w":1}"#).ok();
    let target =
        Target { id: raw("t"), context_id: None, metadata, generation: V1, after: Some(4) };
    let cancel = OutgoingCall::Cancel(target);
    assert_eq!(rpc(V1, &cancel), r#"CancelTask {"id":"t","metadata":{"w":1}}"#);
    assert_eq!(rest(V1, &cancel), r#"POST /tasks/t:cancel {"id":"t","metadata":{"w":1}}"#);
    let subscribe = OutgoingCall::Subscribe(Target { metadata: None, ..target });
    assert_eq!(rpc(V1, &subscribe), r#"SubscribeToTask {"id":"t"}"#);
    assert_eq!(rpc(V03, &subscribe), r#"tasks/resubscribe {"id":"t"}"#);
    assert_eq!(
        params(Format::standard(Binding::WebSocket, V1), &subscribe),
        r#"SubscribeToTask {"id":"t","lastEventId":"4"}"#
    );
    assert_eq!(rest(V1, &subscribe), r#"POST /tasks/t:subscribe {"id":"t"}"#);
    assert_eq!(rest(V03, &subscribe), "GET /v1/tasks/t:subscribe");
    let list = OutgoingCall::List(List {
        context_id: Some(raw("c&d")),
        status: Some(TaskState::Working),
        page_size: Some(10),
        page_token: Some(b"p=1"),
        history: Some(0),
        after_ms: Some(0),
        include_artifacts: true,
    });
    assert_eq!(
        rest(V1, &list),
        "GET /tasks?contextId=c%26d&status=TASK_STATE_WORKING&pageSize=10&pageToken=p%3D1\
         &historyLength=0&statusTimestampAfter=1970-01-01T00%3A00%3A00.000Z&includeArtifacts=true"
    );
    assert_eq!(
        rpc(V1, &list),
        r#"ListTasks {"contextId":"c&d","status":"TASK_STATE_WORKING","pageSize":10,"pageToken":"p=1","historyLength":0,"statusTimestampAfter":"1970-01-01T00:00:00.000Z","includeArtifacts":true}"#
    );
}

#[test]
fn push_config_calls_are_encoded_for_each_generation() {
    let config = PushConfigBuf::new("https://h").task_id("t").id("c").bearer("s");
    let set = OutgoingCall::Push(PushCall::Set(config.view()));
    let old =
        r#"{"id":"c","url":"https://h","authentication":{"schemes":["Bearer"],"credentials":"s"}}"#;
    let new = r#"{"id":"c","taskId":"t","url":"https://h","authentication":{"scheme":"Bearer","credentials":"s"}}"#;
    assert_eq!(rpc(V1, &set), format!("CreateTaskPushNotificationConfig {new}"));
    assert_eq!(rest(V1, &set), format!("POST /tasks/t/pushNotificationConfigs {new}"));
    assert_eq!(
        rpc(V03, &set),
        format!(
            r#"tasks/pushNotificationConfig/set {{"taskId":"t","pushNotificationConfig":{old}}}"#
        )
    );
    assert_eq!(
        rest(V03, &set),
        format!(
            r#"POST /v1/tasks/t/pushNotificationConfigs {{"parent":"tasks/t","configId":"c","config":{{"name":"tasks/t/pushNotificationConfigs/c","pushNotificationConfig":{old}}}}}"#
        )
    );
    let bare = PushConfigBuf::new("https://h").task_id("t");
    let set = OutgoingCall::Push(PushCall::Set(bare.view()));
    assert_eq!(
        rpc(V01, &set),
        r#"tasks/pushNotification/set {"id":"t","pushNotificationConfig":{"url":"https://h"}}"#
    );
    let headers = PushConfigBuf::new("https://h").bearer("s");
    let set = OutgoingCall::Push(PushCall::Set(headers.view()));
    assert_eq!(
        params(Format::of_dialect(Binding::JsonRpc, V03, "evo_ai").unwrap(), &set),
        r#"tasks/pushNotificationConfig/set {"config":{"url":"https://h","headers":{"Authorization":"Bearer s"}}}"#
    );
    let (task_id, id) = (raw("t"), raw("c"));
    let get = OutgoingCall::Push(PushCall::Get { task_id, id: Some(id) });
    assert_eq!(rpc(V1, &get), r#"GetTaskPushNotificationConfig {"taskId":"t","id":"c"}"#);
    assert_eq!(
        rpc(V03, &get),
        r#"tasks/pushNotificationConfig/get {"id":"t","pushNotificationConfigId":"c"}"#
    );
    assert_eq!(rest(V1, &get), "GET /tasks/t/pushNotificationConfigs/c");
    let (page_size, page_token) = (Some(5), Some(raw("p")));
    let list = OutgoingCall::Push(PushCall::List { task_id, page_size, page_token });
    assert_eq!(
        rpc(V1, &list),
        r#"ListTaskPushNotificationConfigs {"taskId":"t","pageSize":5,"pageToken":"p"}"#
    );
    assert_eq!(rest(V1, &list), "GET /tasks/t/pushNotificationConfigs?pageSize=5&pageToken=p");
    let delete = OutgoingCall::Push(PushCall::Delete { task_id, id: Some(id) });
    assert_eq!(rest(V1, &delete), "DELETE /tasks/t/pushNotificationConfigs/c");
    assert_eq!(
        rpc(V03, &delete),
        r#"tasks/pushNotificationConfig/delete {"id":"t","pushNotificationConfigId":"c"}"#
    );
}

#[test]
fn tenant_is_encoded_as_rpc_member_or_path_prefix() {
    let card = OutgoingCall::ExtendedCard;
    let of = |binding, dialect| Format::of_dialect(binding, V1, dialect).unwrap();
    assert_eq!(
        written(of(Binding::JsonRpc, "standard"), &card, Some("a\"b")),
        r#"POST  {"jsonrpc":"2.0","id":"7","method":"GetExtendedAgentCard","params":{"tenant":"a\"b"}}"#
    );
    assert_eq!(
        written(of(Binding::JsonRpc, "standard"), &card, None),
        r#"POST  {"jsonrpc":"2.0","id":"7","method":"GetExtendedAgentCard"}"#
    );
    let rest = |dialect| written(of(Binding::HttpJson, dialect), &card, Some("a/b"));
    assert_eq!(rest("standard"), "GET /a%2Fb/extendedAgentCard");
    assert_eq!(rest("a2a_rust"), "GET /tenants/a%2Fb/extendedAgentCard");
}

#[test]
fn headers_follow_the_generation() {
    let of = |generation| Format::standard(Binding::JsonRpc, generation);
    assert_eq!(of(V1).version_header(), Some("1.0"));
    assert_eq!(of(V03).version_header(), Some("0.3"));
    assert_eq!(of(V01).version_header(), None);
    assert_eq!(of(V1).extension_headers(), ["A2A-Extensions"]);
    assert_eq!(of(V03).extension_headers(), ["X-A2A-Extensions", "A2A-Extensions"]);
    assert!(of(V01).extension_headers().is_empty());
}
