//! gRPC messages to ProtoJSON and back, by reflection on the proto files: so gRPC and HTTP+JSON
//! share their JSON form (wire §1.7), and nothing of the crate's codec is used.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage,
    Value::{List, Message as Nested},
};
use serde_json::{Value, json};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let files = include_bytes!("../../src/binding/grpc/proto/descriptors.bin");
    DescriptorPool::decode(&files[..]).expect("descriptors")
});

/// The messages of one package.
pub struct Package {
    name: &'static str,
    pub service: &'static str,
}

pub const V1: Package = Package { name: "lf.a2a.v1", service: "lf.a2a.v1.A2AService" };

/// As of 0.3.
pub const V03: Package = Package { name: "a2a.v1", service: "a2a.v1.A2AService" };

/// JSON in every message, as in dialect a2a_rust.
pub const JSON: Package = Package { name: "", service: "a2a.v1.A2aService" };

/// The only message of this package.
#[derive(Clone, PartialEq, Message)]
struct JsonPayload {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

/// The types in `grpc-status-details-bin`.
pub const RPC: Package = Package { name: "google.rpc", service: "" };

impl Package {
    fn descriptor(&self, message: &str) -> MessageDescriptor {
        let name = format!("{}.{message}", self.name);
        POOL.get_message_by_name(&name).unwrap_or_else(|| panic!("no message {name}"))
    }

    /// A message from its ProtoJSON.
    pub fn write(&self, message: &str, value: &Value) -> Vec<u8> {
        if self.service == JSON.service {
            return JsonPayload { data: value.to_string().into_bytes() }.encode_to_vec();
        }
        let read = DynamicMessage::deserialize(self.descriptor(message), value);
        read.unwrap_or_else(|error| panic!("{message}: {error}: {value}")).encode_to_vec()
    }

    /// The ProtoJSON of a message. Members with default values are omitted, except the four of a
    /// list (wire §1.7).
    pub fn read(&self, message: &str, bytes: &[u8]) -> Value {
        if self.service == JSON.service {
            let payload = JsonPayload::decode(bytes).expect(message);
            return serde_json::from_slice(&payload.data).expect(message);
        }
        let read = DynamicMessage::decode(self.descriptor(message), bytes).expect(message);
        assert_known_fields(&read);
        let mut value = serde_json::to_value(&read).expect(message);
        if message == "ListTasksResponse" {
            let all = json!({"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0});
            for (key, default) in all.as_object().expect("an object") {
                value.as_object_mut().expect("an object").entry(key).or_insert(default.clone());
            }
        }
        value
    }
}

/// A field number that is not in the proto files is a failure.
fn assert_known_fields(message: &DynamicMessage) {
    let name = message.descriptor().full_name().to_owned();
    assert_eq!(message.unknown_fields().count(), 0, "{name} has fields that nobody knows");
    for (_, value) in message.fields() {
        match value {
            Nested(message) => assert_known_fields(message),
            List(items) => {
                items.iter().filter_map(|item| item.as_message()).for_each(assert_known_fields)
            }
            _ => {}
        }
    }
}
