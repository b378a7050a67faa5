//! The form of the command line's documents: a type of A2A 1.0, read as ProtoJSON by the proto
//! files, which refuse unknown members, and the same when it is written again. Required members are
//! listed here by hand.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let files = include_bytes!("../../src/binding/grpc/proto/descriptors.bin");
    DescriptorPool::decode(&files[..]).unwrap()
});

/// The required members of each type (A2A 1.0 §4, marked as required in its proto file).
const REQUIRED: &[(&str, &[&str])] = &[
    ("Task", &["id", "contextId", "status"]),
    ("Message", &["messageId", "role", "parts"]),
    ("TaskStatusUpdateEvent", &["taskId", "contextId", "status"]),
    ("TaskArtifactUpdateEvent", &["taskId", "contextId", "artifact"]),
    ("ListTasksResponse", &["tasks", "nextPageToken", "pageSize", "totalSize"]),
    (
        "AgentCard",
        &[
            "name",
            "description",
            "supportedInterfaces",
            "version",
            "capabilities",
            "defaultInputModes",
            "defaultOutputModes",
            "skills",
        ],
    ),
    ("TaskPushNotificationConfig", &["taskId", "url"]),
];

/// The members of the two unions, of which exactly one is present, and their types.
const UNIONS: &[(&str, &[(&str, &str)])] = &[
    ("SendMessageResponse", &[("task", "Task"), ("message", "Message")]),
    (
        "StreamResponse",
        &[
            ("task", "Task"),
            ("message", "Message"),
            ("statusUpdate", "TaskStatusUpdateEvent"),
            ("artifactUpdate", "TaskArtifactUpdateEvent"),
        ],
    ),
];

/// Panics unless the document has this type.
pub fn assert_type(name: &str, document: &Value) {
    let descriptor = POOL.get_message_by_name(&format!("lf.a2a.v1.{name}")).unwrap();
    let read = DynamicMessage::deserialize(descriptor, document);
    let read = read.unwrap_or_else(|error| panic!("{name}: {error}: {document}"));
    let again = serde_json::to_value(&read).unwrap();
    assert_eq!(without_defaults(document), without_defaults(&again), "{name}");
    assert_required(name, document);
}

fn assert_required(name: &str, document: &Value) {
    for (_, members) in REQUIRED.iter().filter(|(of, _)| *of == name) {
        for member in *members {
            assert!(document.get(*member).is_some(), "{name} without {member}: {document}");
        }
    }
    for (_, members) in UNIONS.iter().filter(|(of, _)| *of == name) {
        assert_eq!(document.as_object().unwrap().len(), 1, "{name}: {document}");
        let here = members.iter().find(|(member, _)| document.get(*member).is_some());
        let (member, inner) = here.unwrap_or_else(|| panic!("{name}: {document}"));
        assert_required(inner, &document[*member]);
    }
    if name == "Task" {
        let state = document["status"]["state"].as_str().unwrap();
        assert!(state.starts_with("TASK_STATE_"), "{document}");
    }
}

/// ProtoJSON may omit default values, and has its own format of times.
fn without_defaults(value: &Value) -> Value {
    let is_default = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(_) => false,
    };
    match value {
        Value::Array(all) => all.iter().map(without_defaults).collect(),
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !is_default(value))
            .map(|(name, value)| (name.clone(), without_defaults(value)))
            .collect(),
        // ProtoJSON writes a whole second without a fraction, and reads any.
        Value::String(text) => match text.strip_suffix(".000Z") {
            Some(whole) => json!(format!("{whole}Z")),
            None => value.clone(),
        },
        // The numbers of a Struct are doubles.
        Value::Number(number) => json!(number.as_f64()),
        Value::Null | Value::Bool(_) => value.clone(),
    }
}
