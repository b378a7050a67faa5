//! The expected behaviour of the agent of `tests/data/interop.toml`, in the form of 1.0.

use serde_json::{Value, json};

use super::{
    message_spec::MessageSpec,
    model::{
        Artifact, Content, Event, Form, Gen, Last, Message, Numbered, Part, Role, Task, is_terminal,
    },
};

/// One part of each kind, with all members that a part can have.
pub fn rich_parts() -> Vec<Part> {
    let metadata = json!({"k": {"deep": [1.5, "é\"\\"]}});
    vec![
        Part { metadata, ..Part::text("more \u{1f427} text") },
        Part::of(Content::Raw("AAEC/w==".to_owned())).file("a.bin", "application/octet-stream"),
        Part::of(Content::Url("https://example.com/x?y=1".to_owned())).file("x", "text/plain"),
        Part::of(Content::Data(json!({"n": 0.5, "o": {"list": [null, false, "x"]}}))),
        Part::of(Content::Data(json!(["not", "an", "object"]))),
    ]
}

fn text_artifact(id: &str, text: &str) -> Artifact {
    Artifact {
        id: id.to_owned(),
        name: None,
        description: None,
        parts: vec![Part::text(text)],
        metadata: Value::Null,
    }
}

/// A task of the agent, and its expected events.
#[derive(Clone, Debug)]
pub struct Expected {
    pub task: Task,
    pub seq: u64,
    /// The script's number of its next message, less the events of this turn: it counts from the
    /// task before the turn, and before the first turn there is none.
    base: u64,
    /// All messages, in order.
    messages: Vec<Message>,
    /// The message that is still in the status; the others are history (wire §5.1).
    current: Option<usize>,
}

impl Expected {
    /// The task that a message began; `submitted` is its first event.
    pub fn begun(id: &str, context: &str, spec: &MessageSpec) -> Expected {
        let task = Task {
            id: id.to_owned(),
            context: context.to_owned(),
            state: "submitted".to_owned(),
            message: None,
            artifacts: Vec::new(),
            history: vec![message_of(spec)],
            metadata: Value::Null,
        };
        Expected { messages: task.history.clone(), task, seq: 1, base: 1, current: None }
    }

    /// The current task, as a stream or an answer shows it.
    pub fn shown(&self) -> Numbered {
        Numbered { seq: Some(self.seq), event: Event::Task(self.task.clone()) }
    }

    /// Another message.
    pub fn add_message(&mut self, spec: &MessageSpec) {
        self.base = 0;
        self.messages.push(message_of(spec));
        self.remember();
    }

    fn remember(&mut self) {
        let messages = self.messages.iter().enumerate();
        let history = messages.filter(|(at, _)| Some(*at) != self.current);
        self.task.history = history.map(|(_, message)| message.clone()).collect();
    }

    /// The agent changes the state; at input-required a stream of 0.3 ends.
    pub fn status(&mut self, state: &str, message: &str) -> Numbered {
        self.seq += 1;
        self.task.state = state.to_owned();
        let id = format!("{}-{}", self.task.id, self.seq - self.base);
        self.task.message =
            (!message.is_empty()).then(|| Message::of_text(&id, Role::Agent, message));
        self.current = self.task.message.as_ref().map(|_| self.messages.len());
        self.messages.extend(self.task.message.clone());
        self.remember();
        let event = Event::Status {
            task: self.task.id.clone(),
            state: state.to_owned(),
            message: self.task.message.clone(),
            last: Last(Some(is_terminal(state) || state == "input-required")),
        };
        Numbered { seq: Some(self.seq), event }
    }

    fn artifact(&mut self, artifact: Artifact, append: bool, last_chunk: bool) -> Numbered {
        self.seq += 1;
        let existing = self.task.artifacts.iter_mut().find(|existing| existing.id == artifact.id);
        match existing {
            Some(existing) if append => existing.parts.extend_from_slice(&artifact.parts),
            Some(existing) => *existing = artifact.clone(),
            None => self.task.artifacts.push(artifact.clone()),
        }
        let task = self.task.id.clone();
        let event = Event::Artifact { task, artifact, append, last_chunk };
        Numbered { seq: Some(self.seq), event }
    }

    /// `chunk`, `chunk more` and `chunk last`.
    pub fn chunk(&mut self, text: &str, append: bool, last_chunk: bool) -> Numbered {
        self.artifact(text_artifact("out", text), append, last_chunk)
    }

    /// The whole turn of `done`.
    pub fn done(&mut self) -> Vec<Numbered> {
        let named = Artifact {
            name: Some("The result".to_owned()),
            description: Some("In two chunks".to_owned()),
            ..text_artifact("out", "one")
        };
        let file = |content: Content, name: &str, media: &str| Part::of(content).file(name, media);
        let parts = vec![
            file(Content::Raw("AAEC/w==".to_owned()), "a.bin", "application/octet-stream"),
            file(Content::Url("https://example.com/a.txt".to_owned()), "a.txt", "text/plain"),
            Part::of(Content::Data(json!({"n": 1.5, "list": [true, null, "x"]}))),
        ];
        vec![
            self.artifact(named, false, false),
            self.artifact(text_artifact("out", "two"), true, true),
            self.artifact(Artifact { parts, ..text_artifact("files", "") }, false, false),
            self.status("completed", "That is all."),
        ]
    }

    /// The task in a form, without what its maker's generation cannot determine.
    pub fn in_form(&self, form: Form, made: Gen) -> Task {
        self.task.clone().without_generated_ids(made).shown_in(form)
    }
}

fn message_of(spec: &MessageSpec) -> Message {
    Message {
        id: spec.id.clone(),
        role: Role::User,
        parts: spec.parts.clone(),
        metadata: spec.metadata.clone(),
        extensions: spec.extensions.clone(),
        references: spec.references.clone(),
    }
}

/// The events of a stream in a form, with their numbers, for a task of this generation.
pub fn stream_in(form: Form, made: Gen, expected: &[Numbered]) -> Vec<Numbered> {
    let events: Vec<Event> =
        expected.iter().map(|one| one.event.clone().without_generated_ids(made)).collect();
    let shown = super::model::stream_in(form, &events).into_iter();
    shown.zip(expected).map(|(event, one)| Numbered { seq: one.seq, event }).collect()
}
