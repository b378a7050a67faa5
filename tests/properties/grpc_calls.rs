//! gRPC messages of the client, in both directions, with prost as the oracle.
//!
//! - A message as ProtoJSON equals the JSON of prost-reflect, and is read back as the same message.
//! - A call that our server reads is written by our client, and prost reads the same call from it.
//! - An answer of our server over gRPC, read by our client, is the JSON of our server's answer.

use std::{cell::Cell, sync::LazyLock};

use peregrine::{
    binding::{
        grpc::{
            frame, read,
            schemas::{self, Schema, push_json, push_message},
            structs::Bounds,
            write,
        },
        interfaces::Binding,
    },
    client::{Format, FormatBuffers, TransportError, WrittenCall, format},
    dialect::{self, ReadCx, WriteCx},
    json::Parser,
    limits::Limits,
    model::{
        ArtifactBuf, Call, Generation, MessageBuf, Op, OutgoingCall, PartBuf, PartsBuf, PushCall,
        PushConfigBuf, RawText, Received, Reply, Target, TaskBuf, TaskEvent, TaskState, call::Get,
    },
};
use proptest::prelude::*;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

use super::grpc_oracle::{object, part_v1, part_v03, text};
use crate::grpc_client::{v1, v03};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let bytes = include_bytes!("../../src/binding/grpc/proto/descriptors.bin");
    DescriptorPool::decode(&bytes[..]).unwrap()
});

/// The JSON of a message by prost-reflect.
fn theirs(name: &str, message: &[u8]) -> Value {
    let descriptor = POOL.get_message_by_name(name).unwrap();
    let message = DynamicMessage::decode(descriptor, message).unwrap();
    serde_json::to_value(message).unwrap()
}

fn ours(schema: &Schema, message: &[u8]) -> Vec<u8> {
    let (mut out, tokens) = (Vec::new(), Cell::new(usize::MAX));
    push_json(&mut out, schema, message, Bounds { depth_max: 64, tokens: &tokens }).unwrap();
    out
}

/// JSON with doubles for numbers, as in a `Struct`.
fn doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap()),
        Value::Array(all) => all.into_iter().map(doubles).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, doubles(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

/// Asserts that the JSON equals prost-reflect's, and that it reads back as the same message.
fn agree<M: Message + Default + PartialEq + std::fmt::Debug>(
    name: &str,
    schema: &Schema,
    message: &M,
) {
    let bytes = message.encode_to_vec();
    let text = ours(schema, &bytes);
    let shown = String::from_utf8_lossy(&text);
    let value: Value = serde_json::from_slice(&text).expect(&shown);
    assert_eq!(doubles(value), doubles(theirs(name, &bytes)), "{shown}");
    let (mut parser, mut back) = (Parser::new(), Vec::new());
    push_message(&mut back, schema, parser.parse(&text, 64).unwrap()).expect(&shown);
    assert_eq!(&M::decode(&*back).unwrap(), message, "{shown}");
}

fn message() -> impl Strategy<Value = v1::Message> {
    let lists = prop::array::uniform2(prop::collection::vec(text(), 0..3));
    let ids = prop::array::uniform3(text());
    (ids, 1..=2, prop::collection::vec(part_v1(), 1..4), prop::option::of(object()), lists)
        .prop_map(|([message_id, context_id, task_id], role, parts, metadata, lists)| {
            let message_id = format!("m{message_id}");
            let [extensions, reference_task_ids] = lists;
            v1::Message {
                message_id,
                context_id,
                task_id,
                role,
                parts,
                metadata,
                extensions,
                reference_task_ids,
            }
        })
}

fn task() -> impl Strategy<Value = v1::Task> {
    let time = prop::option::of((0..253_402_300_799_i64, 1..1000));
    let status = (0..=8, prop::option::of(message()), time).prop_map(|(state, message, time)| {
        let timestamp =
            time.map(|(seconds, ms)| prost_types::Timestamp { seconds, nanos: ms * 1_000_000 });
        v1::TaskStatus { state, message, timestamp }
    });
    let parts = prop::collection::vec(part_v1(), 0..3);
    let artifact = (prop::array::uniform3(text()), parts, prop::option::of(object())).prop_map(
        |([artifact_id, name, description], parts, metadata)| v1::Artifact {
            artifact_id,
            name,
            description,
            parts,
            metadata,
            extensions: Vec::new(),
        },
    );
    let lists = (prop::collection::vec(artifact, 0..3), prop::collection::vec(message(), 0..3));
    (prop::array::uniform2(text()), prop::option::of(status), lists, prop::option::of(object()))
        .prop_map(|([id, context_id], status, (artifacts, history), metadata)| v1::Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        })
}

fn read_cx(limits: &Limits, op: Op) -> ReadCx<'_> {
    let tokens = Cell::new(limits.json_tokens_max);
    let (after, task, tenant) = (None, None, Cell::default());
    ReadCx { op, limits, fresh_id: b"fresh", after, task, tokens, tenant }
}

/// Our server reads a request, and our client writes it.
fn through(generation: Generation, tenant: Option<&str>, request: &[u8]) -> Vec<u8> {
    let (limits, mut pack) = (Limits::default(), Vec::new());
    let decoded = read::call(&read_cx(&limits, Op::Send), generation, request, &mut pack).unwrap();
    let Call::Send(send) = decoded.call else { panic!("another call") };
    let mut written = WrittenCall::default();
    let call = OutgoingCall::Send(send);
    Format::standard(Binding::Grpc, generation).write(&call, 1, tenant, &mut written).unwrap();
    let service = if generation == Generation::V1 { "lf.a2a.v1" } else { "a2a.v1" };
    assert_eq!(written.path, format!("/{service}.A2AService/SendMessage"));
    assert_eq!(written.content_type, Some("application/grpc"));
    frame::only(&written.body, usize::MAX).unwrap().bytes.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn grpc_task_as_json_matches_prost(task in task()) {
        agree("lf.a2a.v1.Task", &schemas::v1::TASK, &task);
    }

    #[test]
    fn prost_decodes_the_client_send_request_of_1_0(
        message in message(),
        configuration in prop::option::of((prop::collection::vec(text(), 0..3), prop::option::of(0..9))),
        metadata in prop::option::of(object()),
        tenant in prop::option::of("[a-z]{1,5}"),
    ) {
        let configuration = configuration.map(|(accepted_output_modes, history_length)| {
            v1::SendMessageConfiguration {
                accepted_output_modes,
                task_push_notification_config: None,
                history_length,
                return_immediately: true,
            }
        });
        let tenant_text = tenant.clone().unwrap_or_default();
        let request = v1::SendMessageRequest {
            tenant: tenant_text, message: Some(message), configuration, metadata,
        };
        let written = through(Generation::V1, tenant.as_deref(), &request.encode_to_vec());
        prop_assert_eq!(v1::SendMessageRequest::decode(&*written).unwrap(), request);
    }

    #[test]
    fn prost_decodes_the_client_send_request_of_0_3(
        content in prop::collection::vec(part_v03(), 1..5),
        metadata in prop::option::of(object()),
        ids in prop::array::uniform3(text()),
        lists in prop::array::uniform2(prop::collection::vec(text(), 0..3)),
        history_length in 0..9,
        blocking in any::<bool>(),
    ) {
        let [message_id, context_id, task_id] = ids;
        let message_id = format!("m{message_id}");
        let [extensions, accepted_output_modes] = lists;
        let message = v03::Message {
            message_id, context_id, task_id, role: 1, content, metadata: metadata.clone(), extensions,
        };
        let mut configuration = v03::SendMessageConfiguration {
            accepted_output_modes, push_notification: None, history_length, blocking,
        };
        let mut request = v03::SendMessageRequest {
            request: Some(message), configuration: Some(configuration.clone()), metadata,
        };
        let written = through(Generation::V03, None, &request.encode_to_vec());
        // 0.3 cannot express 0, which means unset; some servers take unset for none.
        if configuration.history_length == 0 {
            configuration.history_length = i32::MAX;
        }
        request.configuration = Some(configuration);
        prop_assert_eq!(v03::SendMessageRequest::decode(&*written).unwrap(), request);
    }
}

/// A message of 1.0 or 0.3 that our client writes.
fn written(generation: Generation, call: &OutgoingCall<'_>) -> Vec<u8> {
    let mut written = WrittenCall::default();
    Format::standard(Binding::Grpc, generation).write(call, 1, None, &mut written).unwrap();
    frame::only(&written.body, usize::MAX).unwrap().bytes.to_vec()
}

#[test]
fn prost_decodes_the_client_calls_about_a_task() {
    let id = RawText::parse("t\\n1").unwrap();
    let get = OutgoingCall::Get(Get { id, context_id: None, history: Some(3), wait: None });
    let new = v1::GetTaskRequest::decode(&*written(Generation::V1, &get)).unwrap();
    assert_eq!((new.id.as_str(), new.history_length), ("t\n1", Some(3)));
    let old = v03::GetTaskRequest::decode(&*written(Generation::V03, &get)).unwrap();
    assert_eq!((old.name.as_str(), old.history_length), ("tasks/t\n1", 3));
    let generation = Generation::V1;
    let target = Target { id, context_id: None, metadata: None, generation, after: None };
    let cancel = written(Generation::V03, &OutgoingCall::Cancel(target));
    assert_eq!(v03::CancelTaskRequest::decode(&*cancel).unwrap().name, "tasks/t\n1");
    let subscribe = written(Generation::V1, &OutgoingCall::Subscribe(target));
    assert_eq!(v1::SubscribeToTaskRequest::decode(&*subscribe).unwrap().id, "t\n1");
    let config = PushConfigBuf::new("https://h").task_id("t").id("c").token("x").bearer("y");
    let set = OutgoingCall::Push(PushCall::Set(config.view()));
    let new = v1::TaskPushNotificationConfig::decode(&*written(Generation::V1, &set)).unwrap();
    let authentication = new.authentication.unwrap();
    assert_eq!((new.id.as_str(), new.task_id.as_str(), new.url.as_str()), ("c", "t", "https://h"));
    assert_eq!(
        (authentication.scheme.as_str(), authentication.credentials.as_str()),
        ("Bearer", "y")
    );
    let old = written(Generation::V03, &set);
    let old = v03::CreateTaskPushNotificationConfigRequest::decode(&*old).unwrap();
    let inner = old.config.clone().unwrap().push_notification_config.unwrap();
    assert_eq!((old.parent.as_str(), old.config_id.as_str()), ("tasks/t", "c"));
    assert_eq!((inner.url.as_str(), inner.token.as_str()), ("https://h", "x"));
    let delete = OutgoingCall::Push(PushCall::Delete { task_id: id, id: Some(id) });
    let old = written(Generation::V03, &delete);
    let name = v03::DeleteTaskPushNotificationConfigRequest::decode(&*old).unwrap().name;
    assert_eq!(name, "tasks/t\n1/pushNotificationConfigs/t\n1");
}

/// A task with all members.
fn some_task(generation: Generation) -> TaskBuf {
    let mut task = TaskBuf::new("t-1", "c-1", generation).unwrap();
    let user = MessageBuf::user(&PartsBuf::new().text("hi")).id("m-1");
    task.user_message(user.view()).unwrap();
    let (raw, url) = (PartBuf::bytes(b"\0\xff"), PartBuf::url("https://u"));
    let parts = PartsBuf::new().text("").part(raw.view()).part(url.view());
    let artifact = ArtifactBuf::new("a", &parts);
    let artifact = artifact.view();
    let chunk = TaskEvent::Artifact { artifact, append: false, last_chunk: true, metadata: None };
    task.apply(&chunk).unwrap();
    let message_buf = MessageBuf::agent(&PartsBuf::new().text("done")).id("m-2");
    let (state, at_ms, message) =
        (TaskState::Canceled, 1_790_000_000_123, Some(message_buf.view()));
    task.apply(&TaskEvent::Status { state, at_ms, message, metadata: None }).unwrap();
    task
}

#[test]
fn grpc_reply_reads_as_the_same_json_as_a_json_reply() {
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let write_cx = WriteCx::new(Op::Get);
    for generation in [Generation::V1, Generation::V03] {
        let task = some_task(generation);
        let reply = Reply::Task { view: task.view(), history: None };
        for op in [Op::Send, Op::Get] {
            let (mut message, mut expected, mut out) = (Vec::new(), Vec::new(), Vec::new());
            write::reply(&mut message, generation, op, &reply);
            let format = Format::standard(Binding::Grpc, generation);
            format.read_message(&mut buffers, op, &message, &mut received).unwrap();
            format::push_json(&mut out, &received, Op::Get);
            (dialect::V1.encode.reply)(&mut expected, &reply, &write_cx);
            let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
            assert_eq!(read(&out), read(&expected), "{generation:?} {op:?}");
            assert!(received.span().is_empty());
        }
    }
}

#[test]
fn grpc_card_as_json_matches_prost() {
    let scopes = [("a".to_owned(), "b".to_owned())].into_iter().collect();
    let flow =
        v1::ClientCredentialsOAuthFlow { token_url: "t".into(), scopes, ..Default::default() };
    let flow = v1::o_auth_flows::Flow::ClientCredentials(flow);
    let flows = Some(v1::OAuthFlows { flow: Some(flow) });
    let scheme = v1::OAuth2SecurityScheme { flows, ..Default::default() };
    let scheme = v1::security_scheme::Scheme::Oauth2SecurityScheme(scheme);
    let scheme = v1::SecurityScheme { scheme: Some(scheme) };
    let list = v1::StringList { list: vec!["x".into()] };
    let schemes = [("o".to_owned(), list)].into_iter().collect();
    let card = v1::AgentCard {
        name: "n".into(),
        security_schemes: [("o".to_owned(), scheme)].into_iter().collect(),
        security_requirements: vec![v1::SecurityRequirement { schemes }],
        capabilities: Some(v1::AgentCapabilities { streaming: Some(false), ..Default::default() }),
        skills: vec![v1::AgentSkill { tags: vec!["t".into()], ..Default::default() }],
        ..Default::default()
    };
    let bytes = card.encode_to_vec();
    let text = ours(&schemas::v1::AGENT_CARD, &bytes);
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value, theirs("lf.a2a.v1.AgentCard", &bytes));
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let format = Format::standard(Binding::Grpc, Generation::V1);
    format.read_message(&mut buffers, Op::ExtendedCard, &bytes, &mut received).unwrap();
    assert_eq!(received.card().map(|card| card.as_str().as_bytes().to_vec()), Some(text));
}

#[test]
fn a2a_rust_messages_carry_the_json_of_1_0() {
    let format = Format::of_dialect(Binding::Grpc, Generation::V1, "a2a_rust").unwrap();
    let id = RawText::parse("t").unwrap();
    let mut written = WrittenCall::default();
    let call = OutgoingCall::Get(Get { id, context_id: None, history: None, wait: None });
    format.write(&call, 1, Some("acme"), &mut written).unwrap();
    assert_eq!(written.path, "/a2a.v1.A2aService/GetTask");
    let message = frame::only(&written.body, usize::MAX).unwrap().bytes;
    let payload = crate::grpc_client::json::JsonPayload::decode(message).unwrap();
    assert_eq!(&payload.data[..], br#"{"tenant":"acme","id":"t"}"#);
    let response = br#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let payload = crate::grpc_client::json::JsonPayload { data: response.to_vec().into() };
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let message = payload.encode_to_vec();
    format.read_message(&mut buffers, Op::Send, &message, &mut received).unwrap();
    assert!(received.task_id().is_some_and(|id| id == "t"));
    assert_eq!(received.state(), Some(TaskState::Working));
}

#[test]
fn grpc_message_is_found_once_its_frame_is_complete() {
    let mut bytes = Vec::new();
    for message in [&b"ab"[..], b""] {
        let frame = frame::begin(&mut bytes);
        bytes.extend_from_slice(message);
        frame::finish(&mut bytes, frame);
    }
    let found = |bytes: &[u8], max: usize| Format::message_in(bytes, max, "bytes_max");
    assert_eq!(found(&bytes[..6], 9), Ok(None));
    assert_eq!(found(&bytes, 9), Ok(Some(5..7)));
    assert_eq!(found(&bytes[7..], 9), Ok(Some(5..5)));
    assert_eq!(found(&bytes, 1), Err(TransportError::TooLarge("bytes_max")));
    bytes[0] = 1;
    assert!(matches!(found(&bytes, 9), Err(TransportError::Coding(_))));
}
