//! Protocol buffers from a table: what wire §4.2 says of every message, and nothing of the crate's.
//!
//! Messages are written from and read into ProtoJSON (wire §1.7), so that gRPC and HTTP+JSON share
//! their spelling. A field number that the table does not know is a failure.

use serde_json::{Map, Value, json};

/// A package: its messages, as `jsonName:number type` with `*` for repeated and `?` for optional.
pub struct Package {
    pub service: &'static str,
    messages: &'static [(&'static str, &'static str)],
    /// Names of the states by number; the two packages differ in one letter (wire §1.6).
    canceled: &'static str,
}

/// `lf.a2a.v1`.
pub const V1: Package = Package {
    service: "lf.a2a.v1.A2AService",
    canceled: "TASK_STATE_CANCELED",
    messages: &[
        (
            "SendMessageRequest",
            "tenant:1 string, message:2 Message, configuration:3 SendMessageConfiguration, metadata:4 Struct",
        ),
        (
            "SendMessageConfiguration",
            "acceptedOutputModes:1 string*, taskPushNotificationConfig:2 TaskPushNotificationConfig, historyLength:3 int32?, returnImmediately:4 bool",
        ),
        ("SendMessageResponse", "task:1 Task, message:2 Message"),
        (
            "StreamResponse",
            "task:1 Task, message:2 Message, statusUpdate:3 TaskStatusUpdateEvent, artifactUpdate:4 TaskArtifactUpdateEvent",
        ),
        (
            "Task",
            "id:1 string, contextId:2 string, status:3 TaskStatus, artifacts:4 Artifact*, history:5 Message*, metadata:6 Struct",
        ),
        ("TaskStatus", "state:1 TaskState, message:2 Message, timestamp:3 Timestamp"),
        (
            "Part",
            "text:1 string?, raw:2 bytes?, url:3 string?, data:4 Value, metadata:5 Struct, filename:6 string, mediaType:7 string",
        ),
        (
            "Message",
            "messageId:1 string, contextId:2 string, taskId:3 string, role:4 Role, parts:5 Part*, metadata:6 Struct, extensions:7 string*, referenceTaskIds:8 string*",
        ),
        (
            "Artifact",
            "artifactId:1 string, name:2 string, description:3 string, parts:4 Part*, metadata:5 Struct, extensions:6 string*",
        ),
        (
            "TaskStatusUpdateEvent",
            "taskId:1 string, contextId:2 string, status:3 TaskStatus, metadata:4 Struct",
        ),
        (
            "TaskArtifactUpdateEvent",
            "taskId:1 string, contextId:2 string, artifact:3 Artifact, append:4 bool, lastChunk:5 bool, metadata:6 Struct",
        ),
        (
            "TaskPushNotificationConfig",
            "tenant:1 string, id:2 string, taskId:3 string, url:4 string, token:5 string",
        ),
        ("GetTaskRequest", "tenant:1 string, id:2 string, historyLength:3 int32?"),
        (
            "ListTasksRequest",
            "tenant:1 string, contextId:2 string, status:3 TaskState, pageSize:4 int32?, pageToken:5 string, historyLength:6 int32?, includeArtifacts:8 bool?",
        ),
        (
            "ListTasksResponse",
            "tasks:1 Task*, nextPageToken:2 string, pageSize:3 int32, totalSize:4 int32",
        ),
        ("CancelTaskRequest", "tenant:1 string, id:2 string, metadata:3 Struct"),
        ("SubscribeToTaskRequest", "tenant:1 string, id:2 string"),
        ("GetExtendedAgentCardRequest", "tenant:1 string"),
        (
            "AgentCard",
            "name:1 string, description:2 string, supportedInterfaces:3 AgentInterface*, version:5 string, capabilities:7 AgentCapabilities, defaultInputModes:10 string*, defaultOutputModes:11 string*, skills:12 AgentSkill*",
        ),
        (
            "AgentInterface",
            "url:1 string, protocolBinding:2 string, tenant:3 string, protocolVersion:4 string",
        ),
        (
            "AgentCapabilities",
            "streaming:1 bool?, pushNotifications:2 bool?, extendedAgentCard:4 bool?",
        ),
        (
            "AgentSkill",
            "id:1 string, name:2 string, description:3 string, tags:4 string*, examples:5 string*",
        ),
    ],
};

/// `a2a.v1`, as of 0.3.
pub const V03: Package = Package {
    service: "a2a.v1.A2AService",
    canceled: "TASK_STATE_CANCELLED",
    messages: &[
        (
            "SendMessageRequest",
            "message:1 Message, configuration:2 SendMessageConfiguration, metadata:3 Struct",
        ),
        (
            "SendMessageConfiguration",
            "acceptedOutputModes:1 string*, pushNotification:2 PushNotificationConfig, historyLength:3 int32, blocking:4 bool",
        ),
        ("SendMessageResponse", "task:1 Task, message:2 Message"),
        (
            "StreamResponse",
            "task:1 Task, message:2 Message, statusUpdate:3 TaskStatusUpdateEvent, artifactUpdate:4 TaskArtifactUpdateEvent",
        ),
        (
            "Task",
            "id:1 string, contextId:2 string, status:3 TaskStatus, artifacts:4 Artifact*, history:5 Message*, metadata:6 Struct",
        ),
        ("TaskStatus", "state:1 TaskState, message:2 Message, timestamp:3 Timestamp"),
        ("Part", "text:1 string?, file:2 FilePart, data:3 DataPart, metadata:4 Struct"),
        (
            "FilePart",
            "fileWithUri:1 string?, fileWithBytes:2 bytes?, mimeType:3 string, name:4 string",
        ),
        ("DataPart", "data:1 Struct"),
        (
            "Message",
            "messageId:1 string, contextId:2 string, taskId:3 string, role:4 Role, content:5 Part*, metadata:6 Struct, extensions:7 string*",
        ),
        (
            "Artifact",
            "artifactId:1 string, name:3 string, description:4 string, parts:5 Part*, metadata:6 Struct, extensions:7 string*",
        ),
        (
            "TaskStatusUpdateEvent",
            "taskId:1 string, contextId:2 string, status:3 TaskStatus, final:4 bool, metadata:5 Struct",
        ),
        (
            "TaskArtifactUpdateEvent",
            "taskId:1 string, contextId:2 string, artifact:3 Artifact, append:4 bool, lastChunk:5 bool, metadata:6 Struct",
        ),
        ("PushNotificationConfig", "id:1 string, url:2 string, token:3 string"),
        (
            "TaskPushNotificationConfig",
            "name:1 string, pushNotificationConfig:2 PushNotificationConfig",
        ),
        (
            "CreateTaskPushNotificationConfigRequest",
            "parent:1 string, configId:2 string, config:3 TaskPushNotificationConfig",
        ),
        ("GetTaskRequest", "name:1 string, historyLength:2 int32"),
        ("CancelTaskRequest", "name:1 string"),
        ("TaskSubscriptionRequest", "name:1 string"),
        ("GetAgentCardRequest", ""),
        (
            "AgentCard",
            "name:1 string, description:2 string, url:3 string, version:5 string, capabilities:7 AgentCapabilities, defaultInputModes:10 string*, defaultOutputModes:11 string*, skills:12 AgentSkill*, supportsAuthenticatedExtendedCard:13 bool, preferredTransport:14 string, additionalInterfaces:15 AgentInterface*, protocolVersion:16 string",
        ),
        ("AgentInterface", "url:1 string, transport:2 string"),
        ("AgentCapabilities", "streaming:1 bool, pushNotifications:2 bool"),
        (
            "AgentSkill",
            "id:1 string, name:2 string, description:3 string, tags:4 string*, examples:5 string*",
        ),
    ],
};

/// What `grpc-status-details-bin` holds (`google.rpc`).
pub const RPC: Package = Package {
    service: "",
    canceled: "",
    messages: &[
        ("Status", "code:1 int32, message:2 string, details:3 Any*"),
        ("Any", "typeUrl:1 string, value:2 bytes"),
        ("ErrorInfo", "reason:1 string, domain:2 string"),
        ("BadRequest", "fieldViolations:1 FieldViolation*"),
        ("FieldViolation", "field:1 string, description:2 string"),
    ],
};

const STATES: [&str; 9] = [
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
];
const ROLES: [&str; 3] = ["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"];

struct Field {
    name: &'static str,
    number: u64,
    kind: &'static str,
    repeated: bool,
    /// Present even with its default value.
    optional: bool,
}

fn field(text: &'static str) -> Field {
    let (name, rest) = text.trim().split_once(':').expect(text);
    let (number, kind) = rest.split_once(' ').expect(text);
    let base = kind.trim_end_matches(['*', '?']);
    Field {
        name,
        number: number.parse().expect(text),
        kind: base,
        repeated: kind.ends_with('*'),
        optional: kind.ends_with('?'),
    }
}

// --- Writing -------------------------------------------------------------------------------------

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn block(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Package {
    fn fields(&self, message: &str) -> Vec<Field> {
        let row = self.messages.iter().find(|(name, _)| *name == message);
        let (_, fields) = row.unwrap_or_else(|| panic!("no message {message}"));
        fields.split(", ").filter(|text| !text.is_empty()).map(field).collect()
    }

    /// A message from its ProtoJSON.
    pub fn write(&self, message: &str, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let fields = self.fields(message);
        for (key, value) in value.as_object().unwrap_or_else(|| panic!("{message}: {value}")) {
            let field = fields.iter().find(|field| field.name == key);
            let field = field.unwrap_or_else(|| panic!("{message} has no {key}"));
            match value {
                Value::Array(items) if field.repeated => {
                    items.iter().for_each(|item| self.write_field(&mut out, field, item));
                }
                value => self.write_field(&mut out, field, value),
            }
        }
        out
    }

    fn write_field(&self, out: &mut Vec<u8>, field: &Field, value: &Value) {
        let number = field.number;
        let mut integer = |value: u64| {
            if value != 0 || field.optional {
                varint(out, number << 3);
                varint(out, value);
            }
        };
        match field.kind {
            "bool" => integer(u64::from(value.as_bool().expect("a flag"))),
            "int32" => integer(value.as_i64().expect("a number") as u64),
            "TaskState" => integer(self.state_number(value.as_str().expect("a state"))),
            "Role" => integer(index_of(&ROLES, value.as_str().expect("a role"))),
            "string" => block(out, number, value.as_str().expect("a string").as_bytes()),
            "bytes" => block(out, number, &unbase64(value.as_str().expect("base64"))),
            "Struct" => block(out, number, &write_struct(value)),
            "Value" => block(out, number, &write_value(value)),
            message => block(out, number, &self.write(message, value)),
        }
    }

    fn state_number(&self, name: &str) -> u64 {
        if name == self.canceled { 5 } else { index_of(&STATES, name) }
    }
}

fn index_of(names: &[&str], name: &str) -> u64 {
    names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name}")) as u64
}

fn write_struct(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in value.as_object().expect("an object") {
        let mut entry = Vec::new();
        block(&mut entry, 1, key.as_bytes());
        block(&mut entry, 2, &write_value(value));
        block(&mut out, 1, &entry);
    }
    out
}

fn write_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Null => out.extend_from_slice(&[0x08, 0]),
        Value::Number(number) => {
            out.push(0x11);
            out.extend_from_slice(&number.as_f64().expect("a double").to_le_bytes());
        }
        Value::String(text) => block(&mut out, 3, text.as_bytes()),
        Value::Bool(flag) => out.extend_from_slice(&[0x20, u8::from(*flag)]),
        Value::Object(_) => block(&mut out, 5, &write_struct(value)),
        Value::Array(items) => {
            let mut list = Vec::new();
            items.iter().for_each(|item| block(&mut list, 1, &write_value(item)));
            block(&mut out, 6, &list);
        }
    }
    out
}

// --- Reading -------------------------------------------------------------------------------------

/// A field as it stands in a message.
enum Raw<'b> {
    Integer(u64),
    Double(f64),
    Bytes(&'b [u8]),
}

impl Raw<'_> {
    fn integer(&self) -> u64 {
        let Raw::Integer(value) = self else { panic!("no varint") };
        *value
    }

    fn bytes(&self) -> &[u8] {
        let Raw::Bytes(bytes) = self else { panic!("no bytes") };
        bytes
    }

    fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("UTF-8")
    }
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn raw_fields(mut bytes: &[u8]) -> Vec<(u64, Raw<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = take_varint(&mut bytes);
        let raw = match key & 7 {
            0 => Raw::Integer(take_varint(&mut bytes)),
            1 => {
                let (double, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Raw::Double(f64::from_le_bytes(*double))
            }
            2 => {
                let length = usize::try_from(take_varint(&mut bytes)).expect("a length");
                let (inside, rest) = bytes.split_at(length);
                bytes = rest;
                Raw::Bytes(inside)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, raw));
    }
    fields
}

impl Package {
    /// The ProtoJSON of a message. Members with default values are left out, but for the four of
    /// a list (wire §1.7).
    pub fn read(&self, message: &str, bytes: &[u8]) -> Value {
        let fields = self.fields(message);
        let mut object = Map::new();
        if message == "ListTasksResponse" {
            let all = json!({"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0});
            object = all.as_object().expect("an object").clone();
        }
        for (number, raw) in raw_fields(bytes) {
            let field = fields.iter().find(|field| field.number == number);
            let field = field.unwrap_or_else(|| panic!("{message} has no field {number}"));
            let value = self.read_field(field, &raw);
            if field.repeated {
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                list.as_array_mut().expect("a list").push(value);
            } else {
                object.insert(field.name.to_owned(), value);
            }
        }
        Value::Object(object)
    }

    fn read_field(&self, field: &Field, raw: &Raw<'_>) -> Value {
        match field.kind {
            "bool" => json!(raw.integer() != 0),
            "int32" => json!(raw.integer() as i32),
            "TaskState" if raw.integer() == 5 => json!(self.canceled),
            "TaskState" => json!(STATES[raw.integer() as usize]),
            "Role" => json!(ROLES[raw.integer() as usize]),
            "string" => json!(raw.text()),
            "bytes" => json!(base64(raw.bytes())),
            "Timestamp" => json!(timestamp(raw.bytes())),
            "Struct" => read_struct(raw.bytes()),
            "Value" => read_value(raw.bytes()),
            message => self.read(message, raw.bytes()),
        }
    }
}

fn read_struct(bytes: &[u8]) -> Value {
    let mut object = Map::new();
    for (number, raw) in raw_fields(bytes) {
        assert_eq!(number, 1, "a Struct");
        let (mut key, mut value) = (String::new(), Value::Null);
        for (number, raw) in raw_fields(raw.bytes()) {
            match number {
                1 => raw.text().clone_into(&mut key),
                2 => value = read_value(raw.bytes()),
                other => panic!("an entry has no field {other}"),
            }
        }
        object.insert(key, value);
    }
    Value::Object(object)
}

fn read_value(bytes: &[u8]) -> Value {
    let fields = raw_fields(bytes);
    let [(number, raw)] = &fields[..] else { panic!("a Value holds one kind") };
    match (number, raw) {
        (1, raw) => json!(raw.integer()).is_number().then_some(Value::Null).expect("null"),
        (2, Raw::Double(double)) => json!(double),
        (3, raw) => json!(raw.text()),
        (4, raw) => json!(raw.integer() != 0),
        (5, raw) => read_struct(raw.bytes()),
        (6, raw) => {
            raw_fields(raw.bytes()).iter().map(|(_, raw)| read_value(raw.bytes())).collect()
        }
        (other, _) => panic!("a Value has no field {other}"),
    }
}

/// RFC 3339 with milliseconds (wire §1.7).
fn timestamp(bytes: &[u8]) -> String {
    let (mut seconds, mut nanos) = (0, 0);
    for (number, raw) in raw_fields(bytes) {
        match number {
            1 => seconds = raw.integer(),
            2 => nanos = raw.integer(),
            other => panic!("a Timestamp has no field {other}"),
        }
    }
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        (days, month) = (days - length, month + 1);
    }
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let (day, milli) = (days + 1, nanos / 1_000_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

// --- Base64 (RFC 4648 §4) ------------------------------------------------------------------------

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// With or without padding, as metadata of gRPC may come.
pub fn unbase64(text: &str) -> Vec<u8> {
    let digits = text.trim_end_matches('=').bytes();
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = ALPHABET.iter().position(|known| *known == digit).expect("a digit");
        (bits, count) = (bits << 6 | value as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
