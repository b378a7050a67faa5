//! JSON-RPC over HTTP, and the envelope that WebSocket shares.

use serde_json::{Value, json};

use super::{
    client::{By, Call, Fault, Item, Items, Junk, Link, Op},
    http::{Blocks, Http, Request},
    model::Gen,
};
use crate::support::reply::Reply;

/// The method of an operation (wire §1.3); `None` where the generation has none.
pub fn method(op: Op, generation: Gen) -> Option<&'static str> {
    let names = match op {
        Op::Send => ["tasks/send", "message/send", "SendMessage"],
        Op::Stream => ["tasks/sendSubscribe", "message/stream", "SendStreamingMessage"],
        Op::Get => ["tasks/get", "tasks/get", "GetTask"],
        // Not in 0.1 nor in 0.3 over JSON-RPC: the name in the text of 0.3.
        Op::List => ["tasks/list", "tasks/list", "ListTasks"],
        Op::Cancel => ["tasks/cancel", "tasks/cancel", "CancelTask"],
        Op::Subscribe => ["tasks/resubscribe", "tasks/resubscribe", "SubscribeToTask"],
        Op::PushSet => [
            "tasks/pushNotification/set",
            "tasks/pushNotificationConfig/set",
            "CreateTaskPushNotificationConfig",
        ],
        Op::PushGet => [
            "tasks/pushNotification/get",
            "tasks/pushNotificationConfig/get",
            "GetTaskPushNotificationConfig",
        ],
        Op::PushList => {
            ["", "tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs"]
        }
        Op::PushDelete => {
            ["", "tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"]
        }
        Op::ExtendedCard => ["", "agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"],
    };
    Some(names[generation as usize]).filter(|name| !name.is_empty())
}

/// The request object.
pub fn request(id: u64, call: &Call, generation: Gen) -> Value {
    let method = method(call.op, generation).unwrap_or_else(|| panic!("no method for {call:?}"));
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": call.params})
}

/// The result of a response; the response has only the members of JSON-RPC 2.0 §5.
pub fn response(id: &Value, value: &Value) -> Result<Value, Fault> {
    let object = value.as_object().unwrap_or_else(|| panic!("no response: {value}"));
    assert_eq!((&value["jsonrpc"], &value["id"]), (&json!("2.0"), id), "{value}");
    assert_eq!(object.len(), 3, "exactly one of result and error: {value}");
    match object.get("error") {
        None => Ok(object["result"].clone()),
        Some(error) => Err(fault(error)),
    }
}

/// An error object: `data` is an array of `@type` objects in 1.0, and free before (wire §2.4).
fn fault(error: &Value) -> Fault {
    let known = ["code", "message", "data"];
    let object = error.as_object().expect("an error object");
    assert!(object.keys().all(|key| known.contains(&key.as_str())), "{error}");
    let message = error["message"].as_str().expect("a message").to_owned();
    assert!(!message.is_empty(), "{error}");
    let mut fault = Fault { code: error["code"].as_i64(), message, ..Fault::default() };
    assert!(fault.code.is_some(), "{error}");
    match &error["data"] {
        Value::Null => {}
        Value::Array(details) => read_details(details, &mut fault),
        data => fault.fields.extend(data["field"].as_str().map(str::to_owned)),
    }
    fault
}

/// ErrorInfo and BadRequest, in JSON (wire §2.4).
pub fn read_details(details: &[Value], fault: &mut Fault) {
    for detail in details {
        match detail["@type"].as_str().expect("a type") {
            "type.googleapis.com/google.rpc.ErrorInfo" => {
                assert_eq!(detail["domain"], "a2a-protocol.org", "{detail}");
                let reason = detail["reason"].as_str().expect("a reason").to_owned();
                assert!(fault.reason.replace(reason).is_none(), "two reasons");
            }
            "type.googleapis.com/google.rpc.BadRequest" => {
                for violation in detail["fieldViolations"].as_array().expect("violations") {
                    assert!(violation["description"].is_string(), "{violation}");
                    let field = violation["field"].as_str().expect("a field");
                    fault.fields.push(field.to_owned());
                }
            }
            "type.googleapis.com/google.rpc.RetryInfo" => {}
            other => panic!("a detail {other}"),
        }
    }
}

/// JSON-RPC over a version of HTTP.
pub struct JsonRpc {
    pub http: Box<dyn Http>,
    pub generation: Gen,
    pub next_id: u64,
}

impl JsonRpc {
    fn request(&mut self, call: &Call) -> (Value, Request) {
        self.next_id += 1;
        let body = request(self.next_id, call, self.generation);
        let mut request = post(&body.to_string(), "application/json");
        add_parameters(&mut request, call, self.generation);
        (json!(self.next_id), request)
    }
}

/// Adds the version and the last event seen to the request.
pub fn add_parameters(request: &mut Request, call: &Call, generation: Gen) {
    let mut add = |field: &'static str, parameter: &str, value: String, by: By| match by {
        By::Field => request.fields.push((field, value)),
        By::Query => {
            let separator = if request.target.contains('?') { '&' } else { '?' };
            request.target += &format!("{separator}{parameter}={value}");
        }
    };
    if let Some((version, by)) = version(call, generation) {
        add("A2A-Version", "A2A-Version", version.to_owned(), by);
    }
    if let Some((seq, by)) = call.after {
        add("Last-Event-ID", "lastEventId", seq.to_string(), by);
    }
}

/// A2A 1.0 §3.6.1: its clients send the version in every request; older ones do not.
pub fn version(call: &Call, generation: Gen) -> Option<(&'static str, By)> {
    call.version.or((generation == Gen::V1).then_some(("1.0", By::Field)))
}

fn post(body: &str, media: &str) -> Request {
    Request {
        method: "POST",
        target: "/".to_owned(),
        fields: vec![("Content-Type", media.to_owned())],
        body: Some(body.to_owned()),
    }
}

/// The expected id in an answer: null in a refusal (401, 429) that was sent before the body was
/// read.
fn id_in<'i>(reply: &Reply, id: &'i Value) -> &'i Value {
    let is_strangers = matches!(reply.status, 401 | 429) && reply.json()["id"].is_null();
    if is_strangers { &Value::Null } else { id }
}

impl Link for JsonRpc {
    fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        let (id, request) = self.request(call);
        let reply = self.http.fetch(&request);
        let answer = response(id_in(&reply, &id), &reply.json());
        answer.map_err(|fault| Fault { http: Some(reply.status), ..fault })
    }

    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault> {
        let (id, mut request) = self.request(call);
        request.fields.push(("Accept", "text/event-stream, application/json".to_owned()));
        match self.http.open(&request) {
            Ok(blocks) => Ok(Box::new(Stream { id, blocks })),
            Err(reply) => {
                let answer = response(id_in(&reply, &id), &reply.json());
                Err(Fault { http: Some(reply.status), ..answer.expect_err("an error") })
            }
        }
    }

    fn junk(&mut self, junk: Junk) -> Option<Fault> {
        let method = if self.generation == Gen::V1 { "NoSuchMethod" } else { "message/nothing" };
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}});
        let no_call = json!({"jsonrpc": "2.0", "id": 7});
        let (id, request) = match junk {
            Junk::Unreadable => (Value::Null, post("{", "application/json")),
            Junk::NotARequest => (json!(7), post(&no_call.to_string(), "application/json")),
            Junk::NoSuchMethod => (json!(7), post(&call.to_string(), "application/json")),
            Junk::MediaType => (Value::Null, post(&call.to_string(), "text/plain")),
        };
        let reply = self.http.fetch(&request);
        let answer = response(&id, &reply.json());
        Some(Fault { http: Some(reply.status), ..answer.expect_err("an error") })
    }
}

/// Events in envelopes: each repeats the request's id (wire §3.5).
struct Stream {
    id: Value,
    blocks: Box<dyn Blocks>,
}

impl Items for Stream {
    fn next(&mut self) -> Item {
        let Some(event) = self.blocks.next() else { return Item::End };
        let is_error = event.name.as_deref() == Some("error");
        assert!(is_error || event.name.is_none(), "{event:?}");
        match response(&self.id, &event.data) {
            Ok(value) => Item::Event { seq: event.id, value },
            Err(fault) => {
                assert!(is_error, "{event:?}");
                Item::Fault(fault)
            }
        }
    }
}
