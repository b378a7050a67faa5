//! gRPC over HTTP/2: messages as ProtoJSON by [`super::pb`], statuses and metadata.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{
    client::{Call, Fault, Item, Items, Junk, Link, Op},
    exchange::{Approach, Replies},
    h2::{Http2, Incoming},
    jsonrpc::version,
    model::Gen,
    pb::{self, Package},
};
use crate::support::reply::Reply;

pub struct Grpc {
    pub line: Http2,
    pub approach: Approach,
    pub generation: Gen,
}

/// An rpc: its name, request and response (wire §4.1).
type Rpc = (&'static str, &'static str, &'static str);

fn rpc(op: Op, generation: Gen) -> Rpc {
    match (op, generation) {
        (Op::Send, _) => ("SendMessage", "SendMessageRequest", "SendMessageResponse"),
        (Op::Stream, _) => ("SendStreamingMessage", "SendMessageRequest", "StreamResponse"),
        (Op::Get, _) => ("GetTask", "GetTaskRequest", "Task"),
        (Op::Cancel, _) => ("CancelTask", "CancelTaskRequest", "Task"),
        // 0.3 has no such rpc; the test uses the name of 1.0.
        (Op::List, Gen::V1) => ("ListTasks", "ListTasksRequest", "ListTasksResponse"),
        (Op::List, _) => ("ListTasks", "GetAgentCardRequest", "Task"),
        (Op::Subscribe, Gen::V1) => ("SubscribeToTask", "SubscribeToTaskRequest", "StreamResponse"),
        (Op::Subscribe, _) => ("TaskSubscription", "TaskSubscriptionRequest", "StreamResponse"),
        (Op::PushSet, Gen::V1) => (
            "CreateTaskPushNotificationConfig",
            "TaskPushNotificationConfig",
            "TaskPushNotificationConfig",
        ),
        (Op::PushSet, _) => (
            "CreateTaskPushNotificationConfig",
            "CreateTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        (Op::PushGet, _) => (
            "GetTaskPushNotificationConfig",
            "GetTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        (Op::PushList, Gen::V1) => (
            "ListTaskPushNotificationConfigs",
            "ListTaskPushNotificationConfigsRequest",
            "ListTaskPushNotificationConfigsResponse",
        ),
        (Op::PushList, _) => (
            "ListTaskPushNotificationConfig",
            "ListTaskPushNotificationConfigRequest",
            "ListTaskPushNotificationConfigResponse",
        ),
        (Op::PushDelete, _) => (
            "DeleteTaskPushNotificationConfig",
            "DeleteTaskPushNotificationConfigRequest",
            "TaskPushNotificationConfig",
        ),
        (Op::ExtendedCard, Gen::V1) => {
            ("GetExtendedAgentCard", "GetExtendedAgentCardRequest", "AgentCard")
        }
        (Op::ExtendedCard, _) => ("GetAgentCard", "GetAgentCardRequest", "AgentCard"),
    }
}

/// Wire §4.2: 0.3 names resources, not ids.
fn params(call: &Call, generation: Gen) -> Value {
    if generation == Gen::V1 || matches!(call.op, Op::Send | Op::Stream) {
        return call.params.clone();
    }
    let mut params = call.params.clone();
    let members = params.as_object_mut().expect("params");
    if let Some(id) = members.remove("id") {
        members.insert("name".to_owned(), json!(format!("tasks/{}", id.as_str().expect("an id"))));
    }
    if let Some(id) = members.remove("taskId") {
        let parent = format!("tasks/{}", id.as_str().expect("an id"));
        let config = json!({"name": format!("{parent}/pushNotificationConfigs/c"),
            "pushNotificationConfig": members["pushNotificationConfig"]});
        return json!({"parent": parent, "configId": "c", "config": config});
    }
    params
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).expect("a length").to_be_bytes());
    frame.extend_from_slice(message);
    Bytes::from(frame)
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The fault in trailers: `None` is OK (wire §2.4).
fn fault(trailers: &HeaderMap) -> Option<Fault> {
    let status = Status::from_header_map(trailers).expect("a status");
    if status.code() == Code::Ok {
        return None;
    }
    let code = status.code() as usize;
    let mut fault = Fault {
        status: Some(NAMES[code].to_owned()),
        message: status.message().to_owned(),
        ..Fault::default()
    };
    if status.details().is_empty() {
        return Some(fault);
    }
    let details = pb::RPC.read("Status", status.details());
    assert_eq!(details["code"], json!(code), "{details}");
    for detail in details["details"].as_array().map(Vec::as_slice).unwrap_or_default() {
        match detail["@type"].as_str().expect("a type") {
            "type.googleapis.com/google.rpc.ErrorInfo" => {
                assert_eq!(detail["domain"], "a2a-protocol.org", "{detail}");
                fault.reason = detail["reason"].as_str().map(str::to_owned);
            }
            "type.googleapis.com/google.rpc.BadRequest" => {
                for violation in detail["fieldViolations"].as_array().expect("violations") {
                    fault.fields.push(violation["field"].as_str().expect("a field").to_owned());
                }
            }
            "type.googleapis.com/google.rpc.RetryInfo" => {}
            other => panic!("a detail {other}"),
        }
    }
    Some(fault)
}

/// A response that has begun.
struct Answer {
    head: HeaderMap,
    incoming: Incoming,
    received: Vec<u8>,
    replies: Replies,
    /// All of the messages.
    body: Vec<u8>,
}

impl Answer {
    /// How the call ended.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Option<Fault> {
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().expect("a value").to_owned())
        };
        let all = self.head.iter().chain(trailers.iter().flatten());
        let (fields, body) = (all.map(field).collect(), std::mem::take(&mut self.body));
        self.replies.note(&Reply { status: 200, fields, body, complete: true });
        fault(trailers.as_ref().unwrap_or(&self.head))
    }

    /// The next message, or how the call ended.
    fn next(&mut self) -> Result<Vec<u8>, Option<Fault>> {
        // A response of trailers only (gRPC over HTTP/2, "Responses").
        if self.head.contains_key("grpc-status") {
            return Err(self.end(None));
        }
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<5>() {
                assert_eq!(head[0], 0, "not compressed");
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if rest.len() >= length {
                    let message = rest[..length].to_vec();
                    self.received.drain(..5 + length);
                    return Ok(message);
                }
            }
            match self.incoming.data() {
                Some(data) => {
                    self.body.extend_from_slice(&data);
                    self.received.extend_from_slice(&data);
                }
                None => {
                    assert!(self.received.is_empty(), "half a message");
                    let trailers = self.incoming.trailers().expect("trailers");
                    return Err(self.end(Some(trailers)));
                }
            }
        }
    }
}

impl Grpc {
    fn package(&self) -> &'static Package {
        match self.generation {
            _ if self.approach.has_json_messages => &pb::JSON,
            Gen::V1 => &pb::V1,
            Gen::V01 | Gen::V03 => &pb::V03,
        }
    }

    fn send(&self, method: &str, message: &[u8], more: &[(&'static str, String)]) -> Answer {
        let target = format!("/{}/{method}", self.package().service);
        let mut fields =
            vec![("te", "trailers".to_owned()), ("content-type", "application/grpc".to_owned())];
        fields.extend_from_slice(more);
        fields.extend(self.approach.fields.iter().cloned());
        let body = Some(framed(message));
        let (head, incoming) = self.line.send("POST", &target, &fields, body);
        assert_eq!(head.status(), 200, "gRPC has its own statuses: {head:?}");
        assert_eq!(head.headers()["content-type"], "application/grpc", "{head:?}");
        let (head, replies) = (head.headers().clone(), self.approach.replies.clone());
        Answer { head, incoming, received: Vec::new(), replies, body: Vec::new() }
    }

    fn begin(&self, call: &Call) -> Answer {
        let (method, request, _) = rpc(call.op, self.generation);
        let message = self.package().write(request, &params(call, self.generation));
        let mut fields = Vec::new();
        // Only metadata: gRPC has no query.
        let version = version(call, self.generation);
        fields.extend(version.map(|(version, _)| ("a2a-version", version.to_owned())));
        fields.extend(call.after.map(|(seq, _)| ("a2a-last-event-id", seq.to_string())));
        self.send(method, &message, &fields)
    }
}

impl Link for Grpc {
    fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        let mut answer = self.begin(call);
        match answer.next() {
            Err(fault) => Err(fault.expect("a message or a fault")),
            Ok(message) => {
                assert_eq!(answer.next(), Err(None), "one message, and OK");
                Ok(self.package().read(rpc(call.op, self.generation).2, &message))
            }
        }
    }

    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault> {
        let answer = self.begin(call);
        let first = answer.head.get("a2a-event-id");
        let seq = first.map(|id| id.to_str().expect("text").parse().expect("a number"));
        Ok(Box::new(Stream { answer, seq, package: self.package() }))
    }

    fn junk(&mut self, junk: Junk) -> Option<Fault> {
        let mut answer = match junk {
            Junk::Unreadable => self.send("GetTask", &[0x0f, 0xff], &[]),
            Junk::NoSuchMethod => self.send("Nothing", &[], &[]),
            // Its methods are paths, and every readable payload is a message.
            Junk::NotARequest => return None,
            // With another type it is not gRPC.
            Junk::MediaType => return None,
        };
        answer.next().expect_err("a fault")
    }
}

/// The initial metadata has the number of the first message; the others follow consecutively.
struct Stream {
    answer: Answer,
    seq: Option<u64>,
    package: &'static Package,
}

impl Items for Stream {
    fn next(&mut self) -> Item {
        match self.answer.next() {
            Ok(message) => {
                let seq = self.seq;
                self.seq = seq.map(|seq| seq + 1);
                Item::Event { seq, value: self.package.read("StreamResponse", &message) }
            }
            Err(None) => Item::End,
            Err(Some(fault)) => Item::Fault(fault),
        }
    }
}
