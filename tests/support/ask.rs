//! Requests in the format of each generation.

use serde_json::{Value, json};

/// A POST of JSON with more fields.
pub fn post(path: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n");
    let named = |name: &str| fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name));
    if !named("content-type") {
        head += "Content-Type: application/json\r\n";
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The same POST with its body in chunks of `size` bytes.
pub fn post_chunked(path: &str, body: &str, size: usize) -> Vec<u8> {
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for chunk in body.as_bytes().chunks(size.max(1)) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A GET.
pub fn get(path: &str) -> Vec<u8> {
    get_with(path, "")
}

/// A GET with more field lines.
pub fn get_with(path: &str, lines: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n").into_bytes()
}

/// A request object with id 1; params that are null are left out.
pub fn rpc(method: &str, params: &Value) -> String {
    rpc_id("1", method, params)
}

/// A request object with any text as its id; params that are null are left out.
pub fn rpc_id(id: &str, method: &str, params: &Value) -> String {
    let params = if params.is_null() { String::new() } else { format!(r#","params":{params}"#) };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#)
}

/// A wire family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gen {
    /// 0.1
    V01,
    /// 0.2 and 0.3
    V03,
    /// 1.0
    V1,
}

pub use Gen::{V01, V1, V03};

/// A message to send, for any generation.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutgoingMessage<'a> {
    /// The text of its one part.
    pub text: &'a str,
    /// Its id; `m` when empty.
    pub id: &'a str,
    /// The task it belongs to.
    pub task: Option<&'a str>,
    /// The context it belongs to.
    pub context: Option<&'a str>,
    /// True: answer at once (0.1 has no such option).
    pub at_once: bool,
    /// The history length for the answer.
    pub history: Option<u64>,
}

/// A message that starts a task.
pub fn say(text: &str) -> OutgoingMessage<'_> {
    OutgoingMessage { text, ..OutgoingMessage::default() }
}

impl Gen {
    /// All families.
    pub const ALL: [Gen; 3] = [V01, V03, V1];

    /// Method names: send, stream, get, cancel, subscribe.
    fn methods(self) -> [&'static str; 5] {
        match self {
            V01 => ["tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel", RESUBSCRIBE],
            V03 => ["message/send", "message/stream", "tasks/get", "tasks/cancel", RESUBSCRIBE],
            V1 => {
                ["SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"]
            }
        }
    }

    /// Send and wait.
    pub fn send(self) -> &'static str {
        self.methods()[0]
    }

    /// Send and stream.
    pub fn stream(self) -> &'static str {
        self.methods()[1]
    }

    /// Read.
    pub fn get(self) -> &'static str {
        self.methods()[2]
    }

    /// Cancel.
    pub fn cancel(self) -> &'static str {
        self.methods()[3]
    }

    /// Attach.
    pub fn subscribe(self) -> &'static str {
        self.methods()[4]
    }

    /// The params of send and stream.
    pub fn params(self, outgoing: OutgoingMessage<'_>) -> Value {
        let id = if outgoing.id.is_empty() { "m" } else { outgoing.id };
        let mut message = match self {
            V01 => json!({"role": "user", "parts": [{"type": "text", "text": outgoing.text}]}),
            V03 => json!({"kind": "message", "messageId": id, "role": "user",
                "parts": [{"kind": "text", "text": outgoing.text}]}),
            V1 => json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": outgoing.text}]}),
        };
        if self == V01 {
            let fresh = format!("client-{id}");
            let mut params = json!({"id": outgoing.task.unwrap_or(&fresh), "message": message});
            set(&mut params, "sessionId", outgoing.context);
            set(&mut params, "historyLength", outgoing.history);
            return params;
        }
        set(&mut message, "taskId", outgoing.task);
        set(&mut message, "contextId", outgoing.context);
        let mut params = json!({"message": message, "configuration": {}});
        let configuration = &mut params["configuration"];
        set(configuration, "historyLength", outgoing.history);
        match self {
            V03 => set(configuration, "blocking", Some(!outgoing.at_once)),
            V01 | V1 => set(configuration, "returnImmediately", Some(outgoing.at_once)),
        }
        params
    }

    /// The task in the result of a send.
    pub fn task(self, result: &Value) -> &Value {
        let task = if self == V1 { &result["task"] } else { result };
        assert!(task["id"].is_string(), "{self:?}: no task in {result}");
        task
    }

    /// The name in this family for a state of 0.3.
    pub fn state(self, name: &str) -> String {
        match (self, name) {
            (V01, "rejected") => "failed".to_owned(),
            (V01, "auth-required") => "input-required".to_owned(),
            (V01 | V03, name) => name.to_owned(),
            (V1, name) => format!("TASK_STATE_{}", name.to_uppercase().replace('-', "_")),
        }
    }

    /// The member of a task with its context.
    pub fn context_key(self) -> &'static str {
        if self == V01 { "sessionId" } else { "contextId" }
    }
}

const RESUBSCRIBE: &str = "tasks/resubscribe";

fn set<T: Into<Value>>(object: &mut Value, key: &str, value: Option<T>) {
    if let Some(value) = value {
        object[key] = value.into();
    }
}

/// The text of the first part of an artifact, a message or an artifact event.
pub fn text_of(holder: &Value) -> &str {
    holder["parts"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {holder}"))
}
