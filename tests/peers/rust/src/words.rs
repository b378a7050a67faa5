//! The agent's steps, word by word, as events in the JSON of 1.0, which both SDKs read.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde_json::{Value, json};

pub const PAUSE: Duration = Duration::from_millis(200);
const BIG: u64 = (1 << 53) + 1;

/// One step of the agent.
pub enum Step {
    Pause,
    Event(Value),
}

/// A message to the agent.
pub struct Call {
    pub task_id: String,
    pub context_id: String,
    pub text: String,
    /// The message, if the SDK does not create a new task by itself.
    pub begins_with: Option<Value>,
    /// Whether the message continues a task.
    pub is_continued: bool,
}

impl Call {
    pub fn steps(&self) -> Vec<Step> {
        let (word, rest) = self.text.split_once(' ').unwrap_or((&self.text, ""));
        if word == "message" {
            let mut message = self.message(rest);
            message.as_object_mut().unwrap().remove("taskId");
            return vec![Step::Event(json!({ "message": message }))];
        }
        let mut steps = Vec::new();
        if self.is_continued {
            steps.push(self.status("WORKING", None));
            steps.push(self.artifact("answer", json!([{"text": self.text}]), false, false));
            steps.push(self.status("COMPLETED", None));
            return steps;
        }
        if let Some(message) = &self.begins_with {
            steps.push(Step::Event(json!({"task": {
                "id": self.task_id, "contextId": self.context_id,
                "status": {"state": "TASK_STATE_SUBMITTED"}, "history": [message],
            }})));
        }
        steps.push(self.status("WORKING", None));
        self.work(word, rest, &mut steps);
        steps.push(match word {
            "input" => self.status("INPUT_REQUIRED", Some("what else?")),
            "auth" => self.status("AUTH_REQUIRED", Some("sign in first")),
            "fail" => self.status("FAILED", Some("it failed as asked")),
            "reject" => self.status("REJECTED", Some("it is refused as asked")),
            _ => self.status("COMPLETED", None),
        });
        steps
    }

    /// The steps before the last status.
    fn work(&self, word: &str, rest: &str, steps: &mut Vec<Step>) {
        let count: u32 = rest.parse().unwrap_or(0);
        match word {
            "echo" => steps.push(self.artifact("echo", json!([{"text": rest}]), false, false)),
            "stream" => steps.extend((0..count).map(|n| {
                let parts = json!([{"text": format!("chunk {n} ")}]);
                self.artifact("stream", parts, n > 0, n + 1 == count)
            })),
            "slow" => {
                for n in 0..count {
                    steps.push(Step::Pause);
                    steps.push(self.status("WORKING", Some(&format!("step {n}"))));
                }
                steps.push(Step::Pause);
            }
            "history" => {
                let texts = ["one", "two", "three"];
                let events = texts.map(|text| self.status("WORKING", Some(text)));
                steps.extend(events);
            }
            "data" => {
                let list = json!([1, -2.5, "three", null, true, {"deep": {}}]);
                let nested = json!({"list": list, "text": "größe 🦅"});
                let parts = json!([{"data": {"big": BIG, "nested": nested}}]);
                steps.push(self.artifact("data", parts, false, false));
            }
            "file" => steps.push(self.artifact("file", files(), false, false)),
            _ => {}
        }
    }

    fn message(&self, text: &str) -> Value {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        json!({
            "messageId": format!("said-{}", COUNT.fetch_add(1, Relaxed)), "role": "ROLE_AGENT",
            "taskId": self.task_id, "contextId": self.context_id, "parts": [{"text": text}],
        })
    }

    fn status(&self, state: &str, text: Option<&str>) -> Step {
        let mut status = json!({"state": format!("TASK_STATE_{state}")});
        if let Some(text) = text {
            status["message"] = self.message(text);
        }
        Step::Event(json!({"statusUpdate": {
            "taskId": self.task_id, "contextId": self.context_id, "status": status,
        }}))
    }

    fn artifact(&self, name: &str, parts: Value, append: bool, last_chunk: bool) -> Step {
        let artifact = json!({"artifactId": name, "name": name, "parts": parts});
        Step::Event(json!({"artifactUpdate": {
            "taskId": self.task_id, "contextId": self.context_id, "artifact": artifact,
            "append": append, "lastChunk": last_chunk,
        }}))
    }
}

/// All 256 bytes, and a link.
fn files() -> Value {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = (0..=255).collect();
    let mut raw = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n)) as usize & 63] as char;
            raw.push(if n <= three.len() { digit } else { '=' });
        }
    }
    json!([
        {"raw": raw, "filename": "all.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.com/o.txt", "filename": "o.txt", "mediaType": "text/plain"},
    ])
}

/// The card of a server that listens here.
pub fn card(name: &str, http: &str, grpc: u16) -> Value {
    let interface = |binding, url| {
        json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"})
    };
    json!({
        "name": name, "description": "An agent for tests of clients", "version": "1.2.3",
        "supportedInterfaces": [
            interface("JSONRPC", format!("{http}/rpc")),
            interface("HTTP+JSON", http.to_owned()),
            interface("GRPC", format!("127.0.0.1:{grpc}")),
        ],
        "capabilities": {"streaming": true},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [{"id": "words", "name": "Words", "tags": ["test"],
            "description": "Does what the first word says"}],
    })
}
