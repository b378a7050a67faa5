//! HTTP+JSON: paths, queries and error bodies of both generations that have it (wire §3).

use serde_json::{Value, json};

use super::{
    client::{Call, Fault, Item, Items, Junk, Link, Op},
    http::{Blocks, Http, Request},
    jsonrpc::{add_parameters, read_details},
    model::Gen,
};

/// HTTP+JSON over a version of HTTP.
pub struct Rest {
    pub http: Box<dyn Http>,
    pub generation: Gen,
    /// The number of subscriptions: POST and GET alternate (wire §3.1).
    pub subscribed: usize,
}

impl Rest {
    fn request(&mut self, call: &Call) -> Request {
        let base = if self.generation == Gen::V1 { "" } else { "/v1" };
        let id = call.params["id"].as_str().or(call.params["taskId"].as_str()).unwrap_or_default();
        let (method, path, body) = match call.op {
            Op::Send => ("POST", "/message:send".to_owned(), Some(call.params.clone())),
            Op::Stream => ("POST", "/message:stream".to_owned(), Some(call.params.clone())),
            Op::Get => ("GET", format!("/tasks/{id}{}", query(&call.params, "id")), None),
            Op::List => ("GET", format!("/tasks{}", query(&call.params, "")), None),
            Op::Cancel => ("POST", format!("/tasks/{id}:cancel"), Some(tenant(&call.params))),
            Op::Subscribe => {
                self.subscribed += 1;
                let method = ["GET", "POST"][self.subscribed % 2];
                let query = query(&tenant(&call.params), "");
                (method, format!("/tasks/{id}:subscribe{query}"), None)
            }
            Op::PushSet => {
                let path = format!("/tasks/{id}/pushNotificationConfigs");
                let mut config = push_config(&call.params, self.generation);
                if let Some(tenant) = call.params.get("tenant") {
                    config["tenant"] = tenant.clone();
                }
                ("POST", path, Some(config))
            }
            Op::PushList | Op::PushGet | Op::PushDelete => {
                let method = if call.op == Op::PushDelete { "DELETE" } else { "GET" };
                let one = if call.op == Op::PushList { "" } else { "/c" };
                let query = query(&tenant(&call.params), "");
                (method, format!("/tasks/{id}/pushNotificationConfigs{one}{query}"), None)
            }
            Op::ExtendedCard if self.generation == Gen::V1 => {
                ("GET", "/extendedAgentCard".to_owned(), None)
            }
            Op::ExtendedCard => ("GET", "/card".to_owned(), None),
        };
        let mut fields = Vec::new();
        if body.is_some() {
            fields.push(("Content-Type", "application/json".to_owned()));
        }
        let body = body.map(|body| body.to_string());
        let mut request = Request { method, target: format!("{base}{path}"), fields, body };
        add_parameters(&mut request, call, self.generation);
        request
    }

    /// The body of a refusal (wire §2.4).
    fn fault(&self, reply: &crate::support::reply::Reply) -> Fault {
        assert!(reply.status >= 400, "{reply:?}");
        Fault { http: Some(reply.status), ..read_fault(self.generation, &reply.json()) }
    }
}

/// 1.0: AIP-193. 0.3: unspecified; code and message of JSON-RPC, as the SDKs write them.
pub fn read_fault(generation: Gen, body: &Value) -> Fault {
    if generation != Gen::V1 {
        let mut fault = Fault { code: body["code"].as_i64(), ..Fault::default() };
        body["message"].as_str().expect("a message").clone_into(&mut fault.message);
        fault.fields.extend(body["data"]["field"].as_str().map(str::to_owned));
        return fault;
    }
    let whole = body.as_object().expect("an object");
    assert_eq!(whole.len(), 1, "{body}");
    let error = &body["error"];
    let known = ["code", "status", "message", "details"];
    let members = error.as_object().expect("an error object");
    assert!(members.keys().all(|key| known.contains(&key.as_str())), "{body}");
    let mut fault = Fault {
        http: error["code"].as_u64().and_then(|code| u16::try_from(code).ok()),
        status: error["status"].as_str().map(str::to_owned),
        message: error["message"].as_str().expect("a message").to_owned(),
        ..Fault::default()
    };
    assert!(fault.http.is_some() && fault.status.is_some(), "{body}");
    read_details(error["details"].as_array().expect("details"), &mut fault);
    fault
}

/// The params as a query, without the one in the path (wire §3.2).
fn query(params: &Value, path_key: &str) -> String {
    let mut query = String::new();
    for (key, value) in params.as_object().expect("params") {
        if key == path_key {
            continue;
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let separator = if query.is_empty() { '?' } else { '&' };
        query += &format!("{separator}{key}={}", escaped(&text));
    }
    query
}

/// Percent-encodes all characters that are not unreserved (RFC 3986 §2.3).
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The tenant in the params.
fn tenant(params: &Value) -> Value {
    params.get("tenant").map_or_else(|| json!({}), |name| json!({"tenant": name}))
}

/// Wire §3.4: 0.3 wraps the configuration, and names the parent.
fn push_config(params: &Value, generation: Gen) -> Value {
    if generation == Gen::V1 {
        return params.clone();
    }
    let name =
        format!("tasks/{}/pushNotificationConfigs/c", params["taskId"].as_str().expect("id"));
    json!({"config": {"name": name, "pushNotificationConfig": params["pushNotificationConfig"]}})
}

impl Link for Rest {
    fn call(&mut self, call: &Call) -> Result<Value, Fault> {
        let request = self.request(call);
        let reply = self.http.fetch(&request);
        if reply.status == 200 { Ok(reply.json()) } else { Err(self.fault(&reply)) }
    }

    fn open(&mut self, call: &Call) -> Result<Box<dyn Items>, Fault> {
        let mut request = self.request(call);
        request.fields.push(("Accept", "text/event-stream".to_owned()));
        match self.http.open(&request) {
            Ok(blocks) => Ok(Box::new(Stream { blocks, generation: self.generation })),
            Err(reply) => Err(self.fault(&reply)),
        }
    }

    fn junk(&mut self, junk: Junk) -> Option<Fault> {
        let send = Call::new(Op::Send, json!({"message": {}}));
        let mut request = self.request(&send);
        match junk {
            Junk::Unreadable => request.body = Some("{".to_owned()),
            // Its paths are its methods, and any JSON is params.
            Junk::NotARequest => return None,
            Junk::NoSuchMethod => request.target += "-nothing",
            Junk::MediaType => request.fields[0].1 = "text/plain".to_owned(),
        }
        let reply = self.http.fetch(&request);
        Some(self.fault(&reply))
    }
}

/// Events without envelopes (wire §3.5).
struct Stream {
    blocks: Box<dyn Blocks>,
    generation: Gen,
}

impl Items for Stream {
    fn next(&mut self) -> Item {
        let Some(event) = self.blocks.next() else { return Item::End };
        match event.name.as_deref() {
            None => Item::Event { seq: event.id, value: event.data },
            Some("error") => Item::Fault(read_fault(self.generation, &event.data)),
            Some(other) => panic!("an event {other}"),
        }
    }
}
