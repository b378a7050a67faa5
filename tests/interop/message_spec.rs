//! A client's message, independent of the wire format.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::Value;

use super::model::{Part, Task};

/// A message to send.
#[derive(Clone, Debug)]
pub struct MessageSpec {
    /// Unique; a fresh 0.1 task is named after it.
    pub id: String,
    pub parts: Vec<Part>,
    pub metadata: Value,
    pub extensions: Vec<String>,
    pub references: Vec<String>,
    pub task: Option<String>,
    pub context: Option<String>,
    /// True: the server answers as soon as there is a task.
    pub at_once: bool,
}

/// A message that begins a task.
pub fn text_spec(text: &str) -> MessageSpec {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    MessageSpec {
        id: format!("m-{}", NEXT.fetch_add(1, Relaxed)),
        parts: vec![Part::text(text)],
        metadata: Value::Null,
        extensions: Vec::new(),
        references: Vec::new(),
        task: None,
        context: None,
        at_once: false,
    }
}

impl MessageSpec {
    /// The next message to a task.
    pub fn to(self, task: &Task) -> MessageSpec {
        MessageSpec { task: Some(task.id.clone()), ..self }
    }

    /// In a conversation.
    pub fn within(self, context: &str) -> MessageSpec {
        MessageSpec { context: Some(context.to_owned()), ..self }
    }

    pub fn at_once(self) -> MessageSpec {
        MessageSpec { at_once: true, ..self }
    }

    /// With more parts after the text.
    pub fn with(mut self, parts: &[Part]) -> MessageSpec {
        self.parts.extend_from_slice(parts);
        self
    }
}
