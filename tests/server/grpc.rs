//! gRPC against a real server: every rpc of both generations and of JSON in messages, errors with
//! their details, deadlines, streams and their resumption, health and reflection.

use std::{sync::Arc, thread, time::Duration};

use peregrine::{
    agent::{Agent, Extension, Profile, Provider, Skill, Turn},
    binding::interfaces::{Binding, Interface},
    limits::Limits,
    model::{JsonObjectBuf, MessageBuf, PartsBuf},
    net::Server,
};
use prost::Message as _;
use prost_types::{FileDescriptorProto, Struct, Value, value::Kind};
use serde_json::json;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status, Streaming};
use v1::{TaskState, part::Content, stream_response::Payload};

use crate::grpc_client::{
    Rig, google, message, reason, run, say, state, task, text, text_message_v03, v1, v03,
};
use crate::support::{
    ask::{get as http_get, post, rpc},
    binary::Tcp,
    callers::ByName,
    holding::Holding,
};

fn get(id: &str) -> v1::GetTaskRequest {
    v1::GetTaskRequest { id: id.to_owned(), ..Default::default() }
}

fn subscribe(id: &str) -> v1::SubscribeToTaskRequest {
    v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() }
}

fn cancel(id: &str) -> v1::CancelTaskRequest {
    v1::CancelTaskRequest { id: id.to_owned(), ..Default::default() }
}

fn other(mut request: v1::SendMessageRequest) -> v1::SendMessageRequest {
    request.tenant = "other".to_owned();
    request
}

fn event_id<T>(response: &tonic::Response<T>) -> u64 {
    response.metadata().get("a2a-event-id").unwrap().to_str().unwrap().parse().unwrap()
}

async fn all<T>(mut stream: Streaming<T>) -> Vec<T> {
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.unwrap());
    }
    items
}

fn kind(item: &v1::StreamResponse) -> &'static str {
    match item.payload.as_ref().unwrap() {
        Payload::Task(_) => "task",
        Payload::Message(_) => "message",
        Payload::StatusUpdate(_) => "status",
        Payload::ArtifactUpdate(_) => "artifact",
    }
}

fn number(value: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(value)) }
}

fn object(members: &[(&str, Value)]) -> Struct {
    let fields = members.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    Struct { fields: fields.collect() }
}

#[test]
fn parts_of_each_kind_round_trip_over_grpc() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let list = prost_types::ListValue { values: vec![number(1.5), Value { kind: None }] };
        let null = Value { kind: Some(Kind::NullValue(0)) };
        let data = object(&[
            ("a\n\"b", number(-3.0)),
            ("list", Value { kind: Some(Kind::ListValue(list)) }),
            ("text", Value { kind: Some(Kind::StringValue("\u{1f600}\\".to_owned())) }),
            ("yes", Value { kind: Some(Kind::BoolValue(true)) }),
            ("none", null.clone()),
        ]);
        let parts = vec![
            v1::Part { metadata: Some(data.clone()), ..text("caf\u{e9} \"\\\n\u{0}") },
            v1::Part {
                content: Some(Content::Raw((0..=255).collect::<Vec<u8>>().into())),
                filename: "f".to_owned(),
                media_type: "application/octet-stream".to_owned(),
                ..Default::default()
            },
            v1::Part {
                content: Some(Content::Url("https://x/y".to_owned())),
                ..Default::default()
            },
            v1::Part {
                content: Some(Content::Data(Value { kind: Some(Kind::StructValue(data)) })),
                ..Default::default()
            },
            v1::Part { content: Some(Content::Data(null.clone())), ..Default::default() },
        ];
        let task = task(client.send_message(message(parts.clone())).await.unwrap().into_inner());
        assert_eq!(state(&task), TaskState::Completed);
        assert!(task.status.as_ref().unwrap().timestamp.as_ref().unwrap().seconds > 0);
        // A value that is not set is null.
        let mut expected = parts;
        for part in &mut expected {
            let inner = match &mut part.content {
                Some(Content::Data(Value { kind: Some(Kind::StructValue(inner)) })) => Some(inner),
                _ => None,
            };
            for data in inner.into_iter().chain(&mut part.metadata) {
                let list = Value {
                    kind: Some(Kind::ListValue(prost_types::ListValue {
                        values: vec![number(1.5), null.clone()],
                    })),
                };
                data.fields.insert("list".to_owned(), list);
            }
        }
        assert_eq!(task.artifacts[0].parts, expected);
        assert_eq!(task.history[0].parts, expected);
        let again = client.get_task(get(&task.id)).await.unwrap().into_inner();
        assert_eq!(again, task);
    });
}

#[test]
fn task_is_readable_through_each_grpc_service() {
    let rig = Rig::echo();
    run(async {
        let (mut new, mut old, mut json) = (rig.v1().await, rig.v03().await, rig.json().await);
        let made = task(new.send_message(say("hello")).await.unwrap().into_inner());
        let name = format!("tasks/{}", made.id);
        let request = v03::GetTaskRequest { name, history_length: 0 };
        let seen = old.get_task(request).await.unwrap().into_inner();
        assert_eq!((seen.id, seen.context_id), (made.id.clone(), made.context_id.clone()));
        assert_eq!(seen.status.unwrap().state(), v03::TaskState::Completed);
        let part = seen.artifacts[0].parts[0].part.clone().unwrap();
        assert_eq!(part, v03::part::Part::Text("hello".to_owned()));
        assert_eq!(seen.history[0].content[0].part.clone().unwrap(), part);
        let payload = json!({ "id": made.id }).to_string().into_bytes();
        let payload = crate::grpc_client::json::JsonPayload { data: payload.into() };
        let seen = json.get_task(payload).await.unwrap().into_inner();
        let seen: serde_json::Value = serde_json::from_slice(&seen.data).unwrap();
        assert_eq!(seen["id"], json!(made.id));
        assert_eq!(seen["artifacts"][0]["parts"][0]["text"], "hello");
    });
}

#[test]
fn list_pages_and_filters() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let mut ids = Vec::new();
        for n in 0..5 {
            let sent = client.send_message(say(&format!("task {n}"))).await.unwrap();
            ids.insert(0, task(sent.into_inner()).id);
        }
        let mut request = v1::ListTasksRequest { page_size: Some(2), ..Default::default() };
        let mut seen = Vec::new();
        loop {
            let page = client.list_tasks(request.clone()).await.unwrap().into_inner();
            assert_eq!((page.page_size, page.total_size), (2, 5));
            assert!(page.tasks.iter().all(|task| task.artifacts.is_empty()));
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        assert_eq!(seen, ids);
        let request = v1::ListTasksRequest {
            status: TaskState::Completed.into(),
            include_artifacts: Some(true),
            history_length: Some(1),
            status_timestamp_after: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            ..Default::default()
        };
        let page = client.list_tasks(request).await.unwrap().into_inner();
        assert!(page.tasks.iter().all(|t| t.artifacts.len() == 1 && t.history.len() == 1));
        let request =
            v1::ListTasksRequest { status: TaskState::Working.into(), ..Default::default() };
        assert_eq!(client.list_tasks(request).await.unwrap().into_inner().total_size, 0);
        let bad = v1::ListTasksRequest { page_size: Some(0), ..Default::default() };
        let status = client.list_tasks(bad).await.unwrap_err();
        assert_eq!(reason(&status, Code::InvalidArgument), "INVALID_PARAMS");
        assert!(status.message().starts_with("pageSize: "), "{}", status.message());
    });
}

#[test]
fn errors_carry_their_details() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let status = client.get_task(get("nobody")).await.unwrap_err();
        assert_eq!(reason(&status, Code::NotFound), "TASK_NOT_FOUND");
        let done = task(client.send_message(say("x")).await.unwrap().into_inner());
        let status = client.cancel_task(cancel(&done.id)).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "TASK_NOT_CANCELABLE");
        let status = client.subscribe_to_task(subscribe(&done.id)).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "UNSUPPORTED_OPERATION");
        let mut next = say("more");
        next.message.as_mut().unwrap().task_id = done.id.clone();
        let status = client.send_message(next).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "UNSUPPORTED_OPERATION");
        let status = client.send_message(message(Vec::new())).await.unwrap_err();
        assert_eq!(reason(&status, Code::InvalidArgument), "INVALID_PARAMS");
        let status = client.send_message(v1::SendMessageRequest::default()).await.unwrap_err();
        assert_eq!(reason(&status, Code::InvalidArgument), "INVALID_PARAMS");
        let mut request = say("x");
        request.message.as_mut().unwrap().role = 0;
        let status = client.send_message(request).await.unwrap_err();
        assert_eq!(status.message(), "message.role: is required");
        let mut request = say("x");
        request.message.as_mut().unwrap().message_id.clear();
        let status = client.send_message(request).await.unwrap_err();
        assert_eq!(status.message(), "message.messageId: is required");
        let config = v1::TaskPushNotificationConfig {
            task_id: done.id,
            url: "https://x".to_owned(),
            ..Default::default()
        };
        let status = client.create_task_push_notification_config(config.clone()).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "PUSH_NOTIFICATION_NOT_SUPPORTED");
        let mut request = say("x");
        request.configuration = Some(v1::SendMessageConfiguration {
            task_push_notification_config: Some(config),
            ..Default::default()
        });
        let status = client.send_message(request).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "PUSH_NOTIFICATION_NOT_SUPPORTED");
        let mut request = Request::new(get("x"));
        request.metadata_mut().insert("a2a-version", "99.0".parse().unwrap());
        let status = client.get_task(request).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "VERSION_NOT_SUPPORTED");
        let mut request = Request::new(get("x"));
        request.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
        assert_eq!(client.get_task(request).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn push_operations_without_push_are_refused_over_grpc() {
    let rig = Rig::echo();
    run(async {
        let (mut new, mut old) = (rig.v1().await, rig.v03().await);
        let refused = |status: Status| {
            assert_eq!(
                reason(&status, Code::FailedPrecondition),
                "PUSH_NOTIFICATION_NOT_SUPPORTED"
            );
        };
        let get = v1::GetTaskPushNotificationConfigRequest::default();
        refused(new.get_task_push_notification_config(get).await.unwrap_err());
        let list = v1::ListTaskPushNotificationConfigsRequest::default();
        refused(new.list_task_push_notification_configs(list).await.unwrap_err());
        let delete = v1::DeleteTaskPushNotificationConfigRequest::default();
        refused(new.delete_task_push_notification_config(delete).await.unwrap_err());
        let refused = |status: Status| {
            assert_eq!(status.code(), Code::Unimplemented);
            let name = "PushNotificationNotSupportedError: ";
            assert!(status.message().starts_with(name), "{}", status.message());
        };
        let create = v03::CreateTaskPushNotificationConfigRequest::default();
        refused(old.create_task_push_notification_config(create).await.unwrap_err());
        let get = v03::GetTaskPushNotificationConfigRequest::default();
        refused(old.get_task_push_notification_config(get).await.unwrap_err());
        let list = v03::ListTaskPushNotificationConfigRequest::default();
        refused(old.list_task_push_notification_config(list).await.unwrap_err());
        let delete = v03::DeleteTaskPushNotificationConfigRequest::default();
        refused(old.delete_task_push_notification_config(delete).await.unwrap_err());
    });
}

#[test]
fn stream_starts_with_its_task_and_resumes_by_event_id() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let response = client.send_streaming_message(say("stream:5")).await.unwrap();
        assert_eq!(event_id(&response), 1);
        let items = all(response.into_inner()).await;
        let kinds: Vec<_> = items.iter().map(kind).collect();
        assert_eq!(kinds, ["task", "status", "artifact", "artifact", "artifact", "status"]);
        let Some(Payload::Task(first)) = items[0].payload.clone() else { panic!("no task") };
        // A client that resumes after the first three messages gets the others, each once.
        let mut request = Request::new(subscribe(&first.id));
        request.metadata_mut().insert("a2a-last-event-id", "3".parse().unwrap());
        let response = client.subscribe_to_task(request).await.unwrap();
        assert_eq!(event_id(&response), 4);
        assert_eq!(all(response.into_inner()).await, items[3..]);
        let direct = client.send_streaming_message(say("ping")).await.unwrap();
        let items = all(direct.into_inner()).await;
        assert_eq!(items.iter().map(kind).collect::<Vec<_>>(), ["message"]);
        let pong = client.send_message(say("ping")).await.unwrap().into_inner();
        assert!(matches!(pong.payload, Some(v1::send_message_response::Payload::Message(_))));
    });
}

#[test]
fn cancel_ends_the_streams_of_all_subscribers() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let mut request = other(say("go"));
        request.configuration =
            Some(v1::SendMessageConfiguration { return_immediately: true, ..Default::default() });
        let working = task(client.send_message(request).await.unwrap().into_inner());
        assert_eq!(state(&working), TaskState::Working);
        let attach = v1::SubscribeToTaskRequest { tenant: "other".into(), id: working.id.clone() };
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut stream = client.subscribe_to_task(attach.clone()).await.unwrap().into_inner();
            assert_eq!(kind(&stream.next().await.unwrap().unwrap()), "task");
            streams.push(stream);
        }
        let end = v1::CancelTaskRequest { tenant: "other".into(), ..cancel(&working.id) };
        let ended = client.cancel_task(end.clone()).await.unwrap().into_inner();
        assert_eq!(state(&ended), TaskState::Canceled);
        for stream in streams {
            let items = all(stream).await;
            assert_eq!(items.iter().map(kind).collect::<Vec<_>>(), ["status"]);
        }
        // A2A 1.0 §3.3.1: idempotent.
        assert_eq!(client.cancel_task(end).await.unwrap().into_inner().id, working.id);
    });
}

#[test]
fn grpc_tenant_selects_the_agent_of_its_name() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let paused = task(client.send_message(other(say("ask"))).await.unwrap().into_inner());
        assert_eq!(state(&paused), TaskState::InputRequired);
        // The default agent does not find another agent's task.
        assert_eq!(client.get_task(get(&paused.id)).await.unwrap_err().code(), Code::NotFound);
        let mut next = other(say("ask"));
        next.message.as_mut().unwrap().task_id = paused.id.clone();
        let again = task(client.send_message(next).await.unwrap().into_inner());
        assert_eq!((again.id, again.history.len()), (paused.id, 3));
    });
}

#[test]
fn blocking_send_is_answered_when_its_task_completes() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let held = task(client.send_message(say("hold:50:3")).await.unwrap().into_inner());
        assert_eq!(state(&held), TaskState::Completed);
    });
}

#[test]
fn v03_grpc_uses_its_own_errors_and_blocking_flag() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v03().await;
        let payload = |response: v03::SendMessageResponse| match response.payload.unwrap() {
            v03::send_message_response::Payload::Task(task) => task,
            v03::send_message_response::Payload::Msg(message) => panic!("{message:?}"),
        };
        let done =
            payload(client.send_message(text_message_v03("hi", true)).await.unwrap().into_inner());
        assert_eq!(done.status.as_ref().unwrap().state(), v03::TaskState::Completed);
        let held = text_message_v03("hold:60000:3", false);
        let early = payload(client.send_message(held).await.unwrap().into_inner());
        assert_eq!(early.status.as_ref().unwrap().state(), v03::TaskState::Submitted);
        let name = format!("tasks/{}", early.id);
        let request = v03::CancelTaskRequest { name: name.clone() };
        let ended = client.cancel_task(request.clone()).await.unwrap().into_inner();
        assert_eq!(ended.status.unwrap().state(), v03::TaskState::Cancelled);
        let status = client.cancel_task(request).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("TaskNotCancelableError: "), "{status:?}");
        let status = client.task_subscription(v03::TaskSubscriptionRequest { name }).await;
        assert_eq!(status.unwrap_err().code(), Code::Unimplemented);
        let stream =
            client.send_streaming_message(text_message_v03("stream:3", true)).await.unwrap();
        let items = all(stream.into_inner()).await;
        let Some(v03::stream_response::Payload::StatusUpdate(last)) = &items[3].payload else {
            panic!("{items:?}")
        };
        assert!(last.r#final);
        let card = client.get_agent_card(v03::GetAgentCardRequest {}).await.unwrap().into_inner();
        assert_eq!((card.name.as_str(), card.protocol_version.as_str()), ("echo", "0.3.0"));
        assert!(card.additional_interfaces.iter().any(|one| one.transport == "GRPC"));
    });
}

#[test]
fn v03_wraps_non_object_data() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let part = v1::Part { content: Some(Content::Data(number(7.0))), ..Default::default() };
        let made = task(client.send_message(message(vec![part])).await.unwrap().into_inner());
        let mut old = rig.v03().await;
        let name = format!("tasks/{}", made.id);
        let request = v03::GetTaskRequest { name, history_length: 0 };
        let seen = old.get_task(request).await.unwrap().into_inner();
        let part = seen.artifacts[0].parts[0].clone();
        let wrapped = v03::DataPart { data: Some(object(&[("value", number(7.0))])) };
        assert_eq!(part.part, Some(v03::part::Part::Data(wrapped)));
        let mark = Value { kind: Some(Kind::BoolValue(true)) };
        assert_eq!(part.metadata, Some(object(&[("data_part_compat", mark)])));
        // The wrapped message comes back unchanged.
        let mut request = text_message_v03("", true);
        request.request.as_mut().unwrap().content = vec![part];
        let response = old.send_message(request).await.unwrap().into_inner();
        let Some(v03::send_message_response::Payload::Task(back)) = response.payload else {
            panic!("no task")
        };
        let seen = client.get_task(get(&back.id)).await.unwrap().into_inner();
        let part = &seen.artifacts[0].parts[0];
        assert_eq!((&part.content, &part.metadata), (&Some(Content::Data(number(7.0))), &None));
    });
}

#[test]
fn grpc_json_payload_service_answers_calls() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.json().await;
        let payload = |value: serde_json::Value| crate::grpc_client::json::JsonPayload {
            data: value.to_string().into_bytes().into(),
        };
        let value = |payload: crate::grpc_client::json::JsonPayload| -> serde_json::Value {
            serde_json::from_slice(&payload.data).unwrap()
        };
        let words = |words: &str| {
            payload(json!({ "message": {
                "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": words }],
            } }))
        };
        let sent = value(client.send_message(words("hi")).await.unwrap().into_inner());
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        let stream = client.send_streaming_message(words("stream:3")).await.unwrap();
        assert_eq!(event_id(&stream), 1);
        let items: Vec<_> = all(stream.into_inner()).await.into_iter().map(value).collect();
        assert!(items[0]["task"].is_object() && items[3]["statusUpdate"].is_object());
        let page = value(client.list_tasks(payload(json!({}))).await.unwrap().into_inner());
        assert_eq!(page["totalSize"], 2);
        let none = json!({ "id": "nobody" });
        for status in [
            client.get_task(payload(none.clone())).await.unwrap_err(),
            client.cancel_task(payload(none.clone())).await.unwrap_err(),
            client.subscribe_to_task(payload(none)).await.unwrap_err(),
        ] {
            assert_eq!(reason(&status, Code::NotFound), "TASK_NOT_FOUND");
        }
        let broken = crate::grpc_client::json::JsonPayload { data: b"{".as_slice().into() };
        let status = client.send_message(broken).await.unwrap_err();
        assert_eq!(reason(&status, Code::InvalidArgument), "PARSE_ERROR");
        let card = client.get_extended_agent_card(payload(json!({}))).await.unwrap();
        assert_eq!(value(card.into_inner())["name"], "echo");
    });
}

#[cfg(feature = "push")]
#[test]
fn push_configurations_are_shared_by_all_grpc_services() {
    let push = peregrine::engine::PushSettings::default();
    let rig = Rig::with(|setup| setup.push = Some(push));
    run(async {
        let (mut new, mut old, mut json) = (rig.v1().await, rig.v03().await, rig.json().await);
        let task = task(new.send_message(say("hello")).await.unwrap().into_inner()).id;
        let url = "https://hooks.example/a2a".to_owned();
        let config = |id: &str| v1::TaskPushNotificationConfig {
            task_id: task.clone(),
            id: id.to_owned(),
            url: url.clone(),
            token: "tell".to_owned(),
            ..Default::default()
        };
        let set = new.create_task_push_notification_config(config("new")).await.unwrap();
        assert_eq!(set.into_inner(), config("new"));
        let inner = v03::PushNotificationConfig { url: url.clone(), ..Default::default() };
        let name = |id: &str| format!("tasks/{task}/pushNotificationConfigs/{id}");
        let set = old.create_task_push_notification_config(
            v03::CreateTaskPushNotificationConfigRequest {
                parent: format!("tasks/{task}"),
                config_id: "old".to_owned(),
                config: Some(v03::TaskPushNotificationConfig {
                    name: name("old"),
                    push_notification_config: Some(inner),
                }),
            },
        );
        assert_eq!(set.await.unwrap().into_inner().name, name("old"));
        let payload = |value: serde_json::Value| crate::grpc_client::json::JsonPayload {
            data: value.to_string().into_bytes().into(),
        };
        let value = |payload: crate::grpc_client::json::JsonPayload| -> serde_json::Value {
            serde_json::from_slice(&payload.data).unwrap()
        };
        let set = json!({ "taskId": task, "id": "json", "url": url });
        let set = json.create_task_push_notification_config(payload(set)).await.unwrap();
        assert_eq!(value(set.into_inner())["id"], "json");
        // Each binding lists the configurations of all bindings.
        let list = v1::ListTaskPushNotificationConfigsRequest {
            task_id: task.clone(),
            ..Default::default()
        };
        let listed = new.list_task_push_notification_configs(list).await.unwrap().into_inner();
        let ids: Vec<_> = listed.configs.iter().map(|config| &*config.id).collect();
        assert_eq!(ids, ["new", "old", "json"]);
        let list = v03::ListTaskPushNotificationConfigRequest {
            parent: format!("tasks/{task}"),
            ..Default::default()
        };
        let listed = old.list_task_push_notification_config(list).await.unwrap().into_inner();
        let names: Vec<_> = listed.configs.into_iter().map(|config| config.name).collect();
        assert_eq!(names, ["new", "old", "json"].map(name));
        let listed = payload(json!({ "taskId": task }));
        let listed =
            value(json.list_task_push_notification_configs(listed).await.unwrap().into_inner());
        assert_eq!(listed["configs"].as_array().unwrap().len(), 3);
        let get = payload(json!({ "taskId": task, "id": "old" }));
        let got = json.get_task_push_notification_config(get).await.unwrap().into_inner();
        assert_eq!(value(got)["url"], url);
        let get = v03::GetTaskPushNotificationConfigRequest { name: name("json") };
        let got = old.get_task_push_notification_config(get).await.unwrap().into_inner();
        assert_eq!(got.push_notification_config.unwrap().url, url);
        // And deletes a configuration that another binding has set.
        let delete = payload(json!({ "taskId": task, "id": "new" }));
        json.delete_task_push_notification_config(delete).await.unwrap();
        let delete = v03::DeleteTaskPushNotificationConfigRequest { name: name("json") };
        old.delete_task_push_notification_config(delete).await.unwrap();
        let delete = v1::DeleteTaskPushNotificationConfigRequest {
            task_id: task.clone(),
            id: "old".to_owned(),
            ..Default::default()
        };
        new.delete_task_push_notification_config(delete).await.unwrap();
        for id in ["new", "old", "json"] {
            let get = v1::GetTaskPushNotificationConfigRequest {
                task_id: task.clone(),
                id: id.to_owned(),
                ..Default::default()
            };
            let status = new.get_task_push_notification_config(get).await.unwrap_err();
            assert_eq!(reason(&status, Code::NotFound), "TASK_NOT_FOUND", "{id}");
        }
    });
}

/// The fields of 0.3 in every card. gRPC messages have no field for the events that a webhook gets,
/// and the card says so.
#[cfg(feature = "push")]
#[test]
fn card_lists_the_bindings_that_support_push_events() {
    let push = peregrine::engine::PushSettings::default();
    let rig = Rig::with(|setup| {
        setup.push = Some(push);
        setup.allow_hosts.push("a.example".to_owned());
    });
    let mut line = Tcp::to(rig.0.addrs()[0]);
    let mut send = |request: &[u8]| {
        line.write(request);
        line.reply().json()
    };
    let card = send(&http_get("/.well-known/agent-card.json"));
    let extensions = card["capabilities"]["extensions"].as_array().unwrap();
    let one = extensions.iter().find(|one| one["uri"] == "urn:peregrine:push-events:1").unwrap();
    let with = Binding::ALL.into_iter().filter(|binding| *binding != Binding::Grpc);
    assert_eq!(one["params"]["bindings"], json!(with.map(Binding::name).collect::<Vec<_>>()));
    run(async {
        let mut client = rig.v1().await;
        let task = task(client.send_message(say("hello")).await.unwrap().into_inner()).id;
        let url = "https://hooks.example/a2a".to_owned();
        let (task_id, id) = (task.clone(), "one".to_owned());
        let config = v1::TaskPushNotificationConfig { task_id, id, url, ..Default::default() };
        let set = client.create_task_push_notification_config(config.clone()).await.unwrap();
        assert_eq!(set.into_inner(), config);
        let mut named = json!({ "taskId": task, "id": "one", "url": config.url });
        let get = rpc("GetTaskPushNotificationConfig", &json!({ "taskId": task, "id": "one" }));
        let shown = send(&post("/", &[], &get));
        assert_eq!(shown["result"].get("events"), None, "{shown}");
        // In reverse: the same configuration over another binding.
        named["events"] = json!(["final"]);
        let set = rpc("CreateTaskPushNotificationConfig", &named);
        assert_eq!(send(&post("/", &[], &set))["result"]["events"], json!(["final"]));
        let get = v1::GetTaskPushNotificationConfigRequest {
            task_id: task,
            id: "one".to_owned(),
            ..Default::default()
        };
        let got = client.get_task_push_notification_config(get).await.unwrap().into_inner();
        assert_eq!(got, config);
    });
}

async fn old_card(rig: &Rig) -> v03::AgentCard {
    let request = v03::GetAgentCardRequest::default();
    rig.v03().await.get_agent_card(request).await.unwrap().into_inner()
}

#[test]
fn card_lists_the_served_interfaces() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let own = v1::GetExtendedAgentCardRequest { tenant: String::new() };
        let card = client.get_extended_agent_card(own).await.unwrap().into_inner();
        let authority = rig.0.base_url().trim_start_matches("http://").to_owned();
        let grpc: Vec<_> = card
            .supported_interfaces
            .iter()
            .filter(|one| one.protocol_binding == "GRPC")
            .map(|one| (one.url.clone(), one.protocol_version.as_str(), one.tenant.as_str()))
            .collect();
        assert_eq!(grpc, [(authority.clone(), "1.0", ""), (authority.clone(), "0.3", "")]);
        assert_eq!(card.capabilities.unwrap().streaming, Some(true));
        let other = v1::GetExtendedAgentCardRequest { tenant: "other".to_owned() };
        let card = client.get_extended_agent_card(other).await.unwrap().into_inner();
        assert_eq!(card.name, "other");
        let grpc = card.supported_interfaces.iter().filter(|one| one.protocol_binding == "GRPC");
        let grpc: Vec<_> = grpc.map(|one| (&one.url, one.tenant.as_str())).collect();
        assert_eq!(grpc, [(&authority, "other")]);
        // 0.3 has one operation for cards, without a tenant.
        let old = old_card(&rig).await;
        assert!(old.supports_authenticated_extended_card);
        assert_eq!(old.preferred_transport, "JSONRPC");
        let listed: Vec<&str> =
            old.additional_interfaces.iter().map(|one| one.transport.as_str()).collect();
        assert_eq!(listed[..3], ["JSONRPC", "HTTP+JSON", "GRPC"]);
        assert_eq!((listed.len(), &old.additional_interfaces[2].url), (4, &authority));
    });
    let rig = Rig::with(|setup| {
        let url = Some("http://grpc.example:1".to_owned());
        setup.interfaces = vec![Interface { binding: Binding::Grpc, url }];
    });
    run(async {
        let old = old_card(&rig).await;
        assert_eq!(
            (old.url.as_str(), old.preferred_transport.as_str()),
            ("http://grpc.example:1", "GRPC")
        );
    });
    let rig = Rig::with(|setup| setup.extended_card = false);
    run(async {
        let request = v1::GetExtendedAgentCardRequest::default();
        let status = rig.v1().await.get_extended_agent_card(request).await.unwrap_err();
        assert_eq!(reason(&status, Code::FailedPrecondition), "UNSUPPORTED_OPERATION");
        assert!(status.message().contains("--extended-card"), "{}", status.message());
        assert!(!old_card(&rig).await.supports_authenticated_extended_card);
    });
}

#[test]
fn grpc_message_over_body_bytes_max_is_refused() {
    let rig = Rig::limited(|limits| limits.body_bytes_max = 100_000);
    run(async {
        let mut client = rig.v1().await;
        let status = client.send_message(say(&"x".repeat(100_001))).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        let words = "x".repeat(99_000);
        let large = task(client.send_message(say(&words)).await.unwrap().into_inner());
        assert_eq!(large.artifacts[0].parts[0], text(&words));
    });
}

#[test]
fn grpc_message_of_3_mb_round_trips() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let raw: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let content = Some(Content::Raw(raw.into()));
        let part = v1::Part { content, ..Default::default() };
        let sent = client.send_message(message(vec![part.clone()])).await.unwrap();
        assert_eq!(task(sent.into_inner()).artifacts[0].parts, [part]);
    });
}

#[test]
fn large_grpc_message_waits_for_a_parse_slot() {
    let (agent, blocked, go) = Holding::new();
    let limits = Limits { large_bodies_max: 1, ..Limits::default() };
    let server = Server::new().limits(limits).agent(Profile::new("a", "b"), agent).workers(2);
    let rig = Rig(server.listen("127.0.0.1:0").start().unwrap());
    let filler = "x".repeat(200_000);
    let (short, large) = (Duration::from_millis(300), say(&filler));
    thread::scope(|scope| {
        let first = say(&format!("hold{filler}"));
        let first = scope.spawn(|| run(async { rig.v1().await.send_message(first).await }));
        blocked.recv_timeout(Duration::from_secs(20)).unwrap();
        run(async {
            // A connection of the other worker is answered.
            let mut client = loop {
                let mut client = rig.v1().await;
                let small = tokio::time::timeout(short, client.send_message(say("small")));
                if small.await.is_ok() {
                    break client;
                }
            };
            let mut other = client.clone();
            let waits = large.clone();
            let waits = tokio::spawn(async move { other.send_message(waits).await });
            let mut late = Request::new(large.clone());
            late.set_timeout(short);
            let late = client.send_message(late).await;
            let waited = !waits.is_finished();
            go.send(()).unwrap();
            let status = late.unwrap_err();
            assert!(
                matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
                "{status:?}"
            );
            assert!(waited && waits.await.unwrap().is_ok());
            assert!(client.send_message(large).await.is_ok());
        });
        assert!(first.join().unwrap().is_ok());
    });
}

#[test]
fn health_check_and_watch_report_the_serving_status() {
    use crate::grpc_client::health::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    let rig = Rig::limited(|limits| limits.drain_ms = 300);
    run(async {
        let mut client = HealthClient::new(rig.channel().await);
        let health_request = |service: &str| HealthCheckRequest { service: service.to_owned() };
        for service in ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"] {
            let status = client.check(health_request(service)).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving);
        }
        assert_eq!(
            client.check(health_request("nobody")).await.unwrap_err().code(),
            Code::NotFound
        );
        // A name is short.
        let long = client.check(health_request(&"x".repeat(4_096))).await.unwrap_err();
        assert_eq!(long.code(), Code::ResourceExhausted, "{long:?}");
        let mut unknown = client.watch(health_request("nobody")).await.unwrap().into_inner();
        let status = unknown.next().await.unwrap().unwrap().status();
        assert_eq!(status, ServingStatus::ServiceUnknown);
        let mut watch = client.watch(health_request("")).await.unwrap().into_inner();
        assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        rig.0.shutdown();
        assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        let over = watch.next().await.unwrap().unwrap_err();
        assert_eq!(over.code(), Code::Unavailable);
    });
}

/// Opens `count` watches, each from one of these addresses; returns how many were accepted.
async fn watches(rig: &Rig, origins: &[&str], count: usize) -> (usize, Vec<WatchStream>) {
    use crate::grpc_client::health::{HealthCheckRequest, health_client::HealthClient};
    let mut client = HealthClient::new(rig.channel().await);
    let mut open = Vec::new();
    for n in 0..count {
        let mut request = Request::new(HealthCheckRequest::default());
        let origin = origins[n % origins.len()].parse().unwrap();
        request.metadata_mut().insert("x-forwarded-for", origin);
        match client.watch(request).await {
            Ok(stream) => open.push(stream.into_inner()),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert!(status.message().contains("service_streams_"), "{status:?}");
            }
        }
    }
    // `Check` is not a stream.
    assert!(client.check(HealthCheckRequest::default()).await.is_ok());
    (open.len(), open)
}

type WatchStream = Streaming<crate::grpc_client::health::HealthCheckResponse>;

#[test]
fn service_streams_max() {
    let rig = Rig::with(|setup| {
        (setup.limits.service_streams_max, setup.limits.streams_max) = (3, 1);
        setup.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    run(async {
        let origins = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
        let (count, open) = watches(&rig, &origins, 4).await;
        assert_eq!(count, 3);
        // A client with the maximum of watches takes no slot of a call.
        let mut client = rig.v1().await;
        assert!(client.send_streaming_message(say("hi")).await.is_ok());
        drop(open);
        while watches(&rig, &origins, 3).await.0 < 3 {}
    });
}

#[test]
fn service_streams_peer_max() {
    let rig = Rig::with(|setup| {
        setup.limits.service_streams_peer_max = 2;
        setup.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    run(async {
        let one = ["2001:db8::1", "2001:db8::2"];
        let (count, open) = watches(&rig, &one, 4).await;
        assert_eq!(count, 2);
        let (count, _others) = watches(&rig, &["192.0.2.1"], 2).await;
        assert_eq!(count, 2);
        drop(open);
        while watches(&rig, &one, 2).await.0 < 2 {}
    });
}

#[test]
fn shutdown_ends_grpc_streams_with_unavailable() {
    let rig = Rig::limited(|limits| limits.drain_ms = 300);
    run(async {
        let mut client = rig.v1().await;
        let held = client.send_streaming_message(say("hold:60000:3")).await.unwrap();
        let mut stream = held.into_inner();
        assert_eq!(kind(&stream.next().await.unwrap().unwrap()), "task");
        rig.0.shutdown();
        let over = stream.next().await.unwrap().unwrap_err();
        assert_eq!(over.code(), Code::Unavailable, "{over:?}");
    });
    rig.0.join();
}

#[test]
fn shutdown_ends_waiting_grpc_calls_with_unavailable() {
    let rig = Rig::limited(|limits| limits.drain_ms = 300);
    run(async {
        let (mut new, mut old, mut other) = (rig.v1().await, rig.v03().await, rig.v1().await);
        let call = async move { new.send_message(say("hold:60000:3")).await.unwrap_err() };
        let before = async move {
            old.send_message(text_message_v03("hold:60000:3", true)).await.unwrap_err()
        };
        let stop = async {
            // Both tasks are there.
            let tasks = loop {
                let all = other.list_tasks(v1::ListTasksRequest::default()).await.unwrap();
                let tasks = all.into_inner().tasks;
                if tasks.len() == 2 {
                    break tasks;
                }
            };
            rig.0.shutdown();
            tasks
        };
        let (status, before, tasks) = tokio::join!(call, before, stop);
        assert_eq!(reason(&status, Code::Unavailable), "UNAVAILABLE");
        let details = google::Status::decode(status.details()).unwrap().details;
        let info = google::ErrorInfo::decode(&*details[0].value).unwrap();
        assert!(tasks.iter().any(|task| task.id == info.metadata["taskId"]), "{info:?}");
        assert_eq!(details[1].type_url, "type.googleapis.com/google.rpc.RetryInfo");
        assert_eq!(&*details[1].value, b"\x0a\x02\x08\x01");
        assert_eq!(before.code(), Code::Unavailable);
        assert!(tasks.iter().any(|task| before.message().contains(&task.id)), "{before:?}");
    });
    rig.0.join();
}

macro_rules! reflects {
    ($name:ident, $module:ident) => {
        #[test]
        fn $name() {
            use crate::grpc_client::$module::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest,
                server_reflection_response::MessageResponse,
            };
            let rig = Rig::echo();
            run(async {
                let mut client = ServerReflectionClient::new(rig.channel().await);
                let symbol = |name: &str| MessageRequest::FileContainingSymbol(name.to_owned());
                let questions = [
                    MessageRequest::ListServices(String::new()),
                    symbol("lf.a2a.v1.A2AService"),
                    MessageRequest::FileByFilename("google/protobuf/struct.proto".to_owned()),
                    symbol("no.such.thing"),
                    MessageRequest::AllExtensionNumbersOfType("lf.a2a.v1.Task".to_owned()),
                ];
                let questions: Vec<_> = questions
                    .into_iter()
                    .map(|question| ServerReflectionRequest {
                        host: String::new(),
                        message_request: Some(question),
                    })
                    .collect();
                let requests = tokio_stream::iter(questions.clone());
                let answers = client.server_reflection_info(requests).await.unwrap();
                let answers = all(answers.into_inner()).await;
                let originals: Vec<_> =
                    answers.iter().map(|one| one.original_request.clone().unwrap()).collect();
                assert_eq!(originals, questions);
                let answers: Vec<_> =
                    answers.into_iter().map(|one| one.message_response.unwrap()).collect();
                let MessageResponse::ListServicesResponse(list) = &answers[0] else { panic!() };
                assert!(list.service.iter().any(|one| one.name == "lf.a2a.v1.A2AService"));
                for (answer, package) in
                    [(&answers[1], "lf.a2a.v1"), (&answers[2], "google.protobuf")]
                {
                    let MessageResponse::FileDescriptorResponse(files) = answer else { panic!() };
                    let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]);
                    assert_eq!(file.unwrap().package(), package);
                }
                for answer in &answers[3..] {
                    let MessageResponse::ErrorResponse(error) = answer else { panic!() };
                    assert_eq!(error.error_code, Code::NotFound as i32);
                }
            });
        }
    };
}

reflects!(reflection_describes_every_service, reflection);
reflects!(reflection_speaks_its_older_version, reflection_alpha);

#[test]
fn client_disconnect_does_not_stop_its_task() {
    let rig = Rig::echo();
    run(async {
        let mut client = rig.v1().await;
        let held = client.send_streaming_message(say("hold:100:3")).await.unwrap();
        let mut stream = held.into_inner();
        let first = stream.next().await.unwrap().unwrap();
        let Some(Payload::Task(first)) = first.payload else { panic!("no task") };
        drop(stream);
        let mut seen = TaskState::Submitted;
        for _ in 0..200 {
            seen = state(&client.get_task(get(&first.id)).await.unwrap().into_inner());
            if seen == TaskState::Completed {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(seen, TaskState::Completed);
    });
}

#[test]
fn cards_of_both_generations_contain_the_profile_fields() {
    let rig = Rig::with(|setup| {
        let (profile, _) = &mut setup.agents[0];
        let [organization, url] = ["O", "https://o/"].map(str::to_owned);
        profile.provider = Some(Provider { organization, url });
        profile.documentation_url = Some("https://o/docs".to_owned());
        profile.icon_url = Some("https://o/icon.png".to_owned());
        profile.skills[0].input_modes = vec!["text/plain".to_owned()];
        profile.skills[0].output_modes = vec!["image/png".to_owned()];
        let params = JsonObjectBuf::parse(r#"{"n":7}"#).ok();
        profile.extensions =
            vec![Extension { uri: "urn:x".to_owned(), params, ..Extension::default() }];
    });
    run(async {
        let own = v1::GetExtendedAgentCardRequest::default();
        let card = rig.v1().await.get_extended_agent_card(own).await.unwrap().into_inner();
        let provider = card.provider.unwrap();
        assert_eq!((&*provider.organization, &*provider.url), ("O", "https://o/"));
        assert_eq!(card.documentation_url.as_deref(), Some("https://o/docs"));
        assert_eq!(card.icon_url.as_deref(), Some("https://o/icon.png"));
        assert_eq!(card.skills[0].input_modes, ["text/plain"]);
        assert_eq!(card.skills[0].output_modes, ["image/png"]);
        let extension = &card.capabilities.unwrap().extensions[0];
        assert_eq!(extension.params.as_ref().unwrap().fields["n"], number(7.0));
        let card = rig.v03().await.get_agent_card(v03::GetAgentCardRequest {}).await;
        let card = card.unwrap().into_inner();
        let provider = card.provider.unwrap();
        assert_eq!((&*provider.organization, &*provider.url), ("O", "https://o/"));
        assert_eq!(
            (&*card.documentation_url, &*card.icon_url),
            ("https://o/docs", "https://o/icon.png")
        );
        assert_eq!(card.skills[0].input_modes, ["text/plain"]);
        assert_eq!(card.skills[0].output_modes, ["image/png"]);
        let extension = &card.capabilities.unwrap().extensions[0];
        assert_eq!(extension.params.as_ref().unwrap().fields["n"], number(7.0));
    });
}

/// Wire §1.8: the initial metadata names the active extensions, and nothing else. The agent answers
/// with the metadata that it gets.
struct Shown;

impl Agent for Shown {
    fn start(&self, turn: Turn<'_>) {
        let shown =
            ["traceparent", "X-Shop", "x-secret"].map(|name| turn.request.headers.value(name));
        let text = format!("{shown:?}");
        turn.reply(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
}

#[test]
fn agent_receives_only_the_metadata_in_its_profile() {
    let rig = Rig::with(|setup| {
        let fields = ["Traceparent", "x-shop"].map(str::to_owned).to_vec();
        let profile = Profile { fields, ..Profile::new("shown", "Says what it is shown.") };
        setup.agents = vec![(profile, Arc::new(Shown))];
    });
    run(async {
        let mut client = rig.v1().await;
        for shop in [["1", "2"], ["3", "4"]] {
            let mut request = Request::new(say("?"));
            request.metadata_mut().insert("traceparent", "00-a-b-01".parse().unwrap());
            request.metadata_mut().insert("x-secret", "s".parse().unwrap());
            for value in shop {
                request.metadata_mut().append("x-shop", value.parse().unwrap());
            }
            let answer = client.send_message(request).await.unwrap().into_inner();
            let output = format!("{:?}", answer.payload);
            let expected = format!(r#"[Some(\"00-a-b-01\"), Some(\"{}\"), None]"#, shop.join(", "));
            assert!(output.contains(&expected), "{output}");
        }
    });
}

#[test]
fn activated_extensions_are_returned_in_grpc_metadata() {
    let rig = Rig::with(|setup| {
        let uri = "urn:x".to_owned();
        let (profile, _) = &mut setup.agents[0];
        profile.extensions = vec![Extension { uri, ..Extension::default() }];
    });
    run(async {
        let mut client = rig.v1().await;
        for (requested, named) in [("urn:y, urn:x", Some("urn:x")), ("urn:y", None)] {
            let message_with = |words: &str| {
                let mut request = Request::new(say(words));
                request.metadata_mut().insert("a2a-extensions", requested.parse().unwrap());
                request
            };
            let unary = client.send_message(message_with("hi")).await.unwrap();
            let waited = client.send_message(message_with("hold:50:2")).await.unwrap();
            let stream = client.send_streaming_message(message_with("stream:3")).await.unwrap();
            for metadata in [unary.metadata(), waited.metadata(), stream.metadata()] {
                let value = metadata.get("a2a-extensions").map(|value| value.to_str().unwrap());
                assert_eq!(value, named, "{requested}");
            }
        }
    });
}

#[test]
fn the_card_has_security_schemes_and_signatures() {
    use peregrine::{
        client::card::{AgentCard, CardKeys, SignatureOutcome, SigningKeys, verify},
        engine::CardSigner,
        model::{CardRequirement, CardScheme, CardSchemeKind, CardSecurity, JsonObjectBuf},
    };

    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    let mut keys = SigningKeys::default();
    keys.add(pem.as_bytes(), Some("k")).unwrap();
    let public = CardKeys::read(keys.jwks()).unwrap();
    // A flow that 0.3 has no field for.
    let flow = JsonObjectBuf::parse(
        r#"{"deviceAuthorizationUrl":"https://i/d","tokenUrl":"https://i/t","scopes":{"a":"A"}}"#,
    );
    let kind = CardSchemeKind::OAuth2 {
        flows: vec![("deviceCode".to_owned(), flow.unwrap())],
        metadata_url: String::new(),
    };
    let oauth = CardScheme { name: "oauth".to_owned(), description: String::new(), kind };
    let rig = Rig::with(|setup| {
        setup.card_signer = Some(Arc::new(keys));
        setup.public_url = Some("https://agents.example".to_owned());
        setup.security = CardSecurity {
            schemes: vec![CardScheme::api_key("key", "X-API-Key"), oauth],
            requirements: vec![
                CardRequirement::of("key", []),
                CardRequirement::of("oauth", ["a", "b"]),
            ],
        };
        setup.agents[0].0.skills[0].security = vec![CardRequirement::of("key", [])];
    });
    run(async {
        let own = v1::GetExtendedAgentCardRequest::default();
        let card = rig.v1().await.get_extended_agent_card(own).await.unwrap().into_inner();
        use v1::{o_auth_flows::Flow, security_scheme::Scheme};
        let Some(Scheme::ApiKeySecurityScheme(key)) = &card.security_schemes["key"].scheme else {
            panic!("{card:?}");
        };
        assert_eq!((&*key.location, &*key.name), ("header", "X-API-Key"));
        let Some(Scheme::Oauth2SecurityScheme(oauth)) = &card.security_schemes["oauth"].scheme
        else {
            panic!("{card:?}");
        };
        let Some(Flow::DeviceCode(flow)) = &oauth.flows.as_ref().unwrap().flow else {
            panic!("{oauth:?}");
        };
        assert_eq!((&*flow.token_url, &*flow.scopes["a"]), ("https://i/t", "A"));
        assert_eq!(card.security_requirements[1].schemes["oauth"].list, ["a", "b"]);
        assert!(card.skills[0].security_requirements[0].schemes.contains_key("key"));
        // The signature is over the 1.0 card that JSON returns.
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"});
        let shown = http_post(&rig, &request.to_string()).await;
        assert_eq!(card.signatures[0].signature, shown["signatures"][0]["signature"]);
        let shown = AgentCard::read(shown.to_string().as_bytes()).unwrap();
        assert!(matches!(verify(&shown, &public), SignatureOutcome::Verified { .. }));
        let old = old_card(&rig).await;
        assert_eq!(old.security[1].schemes["oauth"].list, ["a", "b"]);
        let names: Vec<&String> = old.security_schemes.keys().collect();
        assert_eq!(names, ["key"], "an incomplete scheme is listed");
        assert_eq!((old.skills[0].security.len(), old.signatures.is_empty()), (1, false));
    });
}

#[test]
fn card_shows_only_skills_that_the_caller_may_use() {
    let rig = Rig::with(|setup| {
        setup.authenticator = Some(Arc::new(ByName::default()));
        let skills = &mut setup.agents[0].0.skills;
        let scopes = vec!["art".to_owned()];
        skills.push(Skill { id: "draw".to_owned(), scopes, ..Skill::default() });
    });
    fn from<T>(token: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        request
    }
    run(async {
        for (token, shown) in [("alice art", true), ("bob", false), ("carol art", true)] {
            let own = v1::GetExtendedAgentCardRequest::default();
            let card = rig.v1().await.get_extended_agent_card(from(token, own)).await;
            let card = card.unwrap().into_inner();
            let drawing = card.skills.iter().find(|skill| skill.id == "draw");
            assert_eq!((drawing.is_some(), card.skills.len()), (shown, 1 + usize::from(shown)));
            let scopes = drawing.map(|skill| &skill.security_requirements[0].schemes["token"].list);
            assert_eq!(scopes.is_some_and(|list| list[..] == ["art"]), shown);
            let any = v03::GetAgentCardRequest::default();
            let card = rig.v03().await.get_agent_card(from(token, any)).await.unwrap().into_inner();
            let drawing = card.skills.iter().find(|skill| skill.id == "draw");
            let scopes = drawing.map(|skill| &skill.security[0].schemes["token"].list);
            assert_eq!(scopes.is_some_and(|list| list[..] == ["art"]), shown);
            assert_eq!(drawing.is_some(), shown);
        }
    });
}

/// The result of a JSON-RPC 1.0 call.
async fn http_post(rig: &Rig, body: &str) -> serde_json::Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: test.example\r\nA2A-Version: 1.0\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (_, json) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<serde_json::Value>(json).unwrap()["result"].take()
}
