//! The canonical form of messages: every answer of every binding and generation is read into these
//! types, and compared here.
//!
//! What a generation cannot express is in [`Form`]: `Task::shown_in` and `Event::shown_in` are the
//! table of legitimate differences, each with its clause. Any other difference between two pairs is
//! a failure.

use serde_json::Value;

pub use crate::support::ask::{Gen, V01, V1, V03};

/// A JSON form of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON of 0.1.
    V01,
    /// JSON of 0.2 and 0.3, over JSON-RPC.
    V03,
    /// ProtoJSON of `a2a.v1`: REST of 0.3 (wire §3.4), and its gRPC.
    Proto03,
    /// ProtoJSON of `lf.a2a.v1`: everything of 1.0.
    V1,
    /// Our client's reading of any of them: the 1.0 form, without the fields that the other form
    /// lacks.
    Canonical,
}

/// A piece of content.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub content: Content,
    pub filename: Option<String>,
    pub media_type: Option<String>,
    pub metadata: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    /// Base64, as in the script and the requests: padded, of the standard alphabet.
    Raw(String),
    Url(String),
    Data(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Agent,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Empty where the generation has none.
    pub id: String,
    pub role: Role,
    pub parts: Vec<Part>,
    pub metadata: Value,
    pub extensions: Vec<String>,
    /// `referenceTaskIds`.
    pub references: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// 0.1: the index in decimal.
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub parts: Vec<Part>,
    pub metadata: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: String,
    pub context: String,
    /// In the form of 0.3.
    pub state: String,
    pub message: Option<Message>,
    pub artifacts: Vec<Artifact>,
    pub history: Vec<Message>,
    pub metadata: Value,
}

/// The answer to a send.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Task(Task),
    Message(Message),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Task(Task),
    Message(Message),
    Status { task: String, state: String, message: Option<Message>, last: Last },
    Artifact { task: String, artifact: Artifact, append: bool, last_chunk: bool },
}

/// `final`; `None` matches any: the generation has no such member, or the reader does not report
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Last(pub Option<bool>);

impl PartialEq for Last {
    fn eq(&self, other: &Last) -> bool {
        self.0.zip(other.0).is_none_or(|(one, other)| one == other)
    }
}

/// An event and its sequence number, if the binding has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
    pub seq: Option<u64>,
    pub event: Event,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub tasks: Vec<Task>,
    pub next: String,
    pub size: u64,
    pub total: u64,
}

impl Answer {
    pub fn task(self) -> Task {
        match self {
            Answer::Task(task) => task,
            Answer::Message(message) => panic!("no task: {message:?}"),
        }
    }
}

impl Part {
    pub fn of(content: Content) -> Part {
        Part { content, filename: None, media_type: None, metadata: Value::Null }
    }

    pub fn text(text: &str) -> Part {
        Part::of(Content::Text(text.to_owned()))
    }

    pub fn file(self, filename: &str, media_type: &str) -> Part {
        let (filename, media_type) = (Some(filename.to_owned()), Some(media_type.to_owned()));
        Part { filename, media_type, ..self }
    }

    fn shown_in(&self, form: Form) -> Part {
        let mut part = self.clone();
        let is_file = matches!(part.content, Content::Raw(_) | Content::Url(_));
        // Wire §1.9: the file name and media type of text and data are lost before 1.0.
        if form != Form::V1 && !is_file {
            (part.filename, part.media_type) = (None, None);
        }
        part
    }
}

impl Message {
    pub fn of_text(id: &str, role: Role, text: &str) -> Message {
        let parts = vec![Part::text(text)];
        Message {
            id: id.to_owned(),
            role,
            parts,
            metadata: Value::Null,
            extensions: Vec::new(),
            references: Vec::new(),
        }
    }

    pub fn shown_in(&self, form: Form) -> Message {
        let mut message = self.clone();
        message.parts = self.parts.iter().map(|part| part.shown_in(form)).collect();
        if form == Form::V01 {
            // Wire §1.6, Message: 0.1 has no `messageId` and no `extensions`.
            message.id.clear();
            message.extensions.clear();
        }
        if matches!(form, Form::V01 | Form::Proto03) {
            // Wire §4.2, Message: the proto of 0.3 has no reference ids.
            message.references.clear();
        }
        message
    }

    pub fn first_text(&self) -> &str {
        match &self.parts[0].content {
            Content::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }
}

impl Artifact {
    /// `index`: its number in the task.
    fn shown_in(&self, form: Form, index: usize) -> Artifact {
        let mut artifact = self.clone();
        artifact.parts = self.parts.iter().map(|part| part.shown_in(form)).collect();
        if form == Form::V01 {
            // Wire §1.6, Artifact: 0.1 identifies it by `index`.
            artifact.id = index.to_string();
        }
        artifact
    }
}

/// Wire §1.6, TaskState: two states are younger than 0.1.
pub fn state_in(form: Form, state: &str) -> String {
    match (form, state) {
        (Form::V01, "rejected") => "failed",
        (Form::V01, "auth-required") => "input-required",
        (_, state) => state,
    }
    .to_owned()
}

impl Task {
    pub fn shown_in(&self, form: Form) -> Task {
        let artifacts = self.artifacts.iter().enumerate();
        Task {
            state: state_in(form, &self.state),
            message: self.message.as_ref().map(|message| message.shown_in(form)),
            artifacts: artifacts.map(|(index, artifact)| artifact.shown_in(form, index)).collect(),
            history: self.history.iter().map(|message| message.shown_in(form)).collect(),
            ..self.clone()
        }
    }

    /// The expected task without what no test can know: a 0.1 message has no id, so the server
    /// generates one (wire §1.9, G0.1→G0.3).
    pub fn without_generated_ids(mut self, made: Gen) -> Task {
        if made == V01 {
            let users = self.history.iter_mut().filter(|message| message.role == Role::User);
            users.for_each(|message| message.id.clear());
        }
        self
    }

    pub fn shows(&self) -> Vec<&str> {
        self.history.iter().map(Message::first_text).collect()
    }
}

const TERMINAL: [&str; 4] = ["completed", "failed", "canceled", "rejected"];

pub fn is_terminal(state: &str) -> bool {
    TERMINAL.contains(&state)
}

impl Event {
    /// As [`Task::without_generated_ids`].
    pub fn without_generated_ids(self, made: Gen) -> Event {
        match self {
            Event::Task(task) => Event::Task(task.without_generated_ids(made)),
            other => other,
        }
    }

    /// `indexes`: the artifacts of the task in the order of their first chunk.
    fn shown_in(&self, form: Form, indexes: &[String]) -> Event {
        match self {
            // Wire §1.9: a stream of 0.1 has no task; the status goes in its place.
            Event::Task(task) if form == Form::V01 => Event::Status {
                task: task.id.clone(),
                state: state_in(form, &task.state),
                message: task.message.as_ref().map(|message| message.shown_in(form)),
                last: Last(Some(is_terminal(&task.state))),
            },
            Event::Task(task) => Event::Task(task.shown_in(form)),
            Event::Message(message) => Event::Message(message.shown_in(form)),
            Event::Status { task, state, message, last } => Event::Status {
                task: task.clone(),
                state: state_in(form, state),
                message: message.as_ref().map(|message| message.shown_in(form)),
                // Wire §1.6: 1.0 has no `final`.
                last: if form == Form::V1 { Last(None) } else { *last },
            },
            Event::Artifact { task, artifact, append, last_chunk } => {
                let index = indexes.iter().position(|id| *id == artifact.id);
                Event::Artifact {
                    task: task.clone(),
                    artifact: artifact.shown_in(form, index.expect("an artifact of the task")),
                    append: *append,
                    last_chunk: *last_chunk,
                }
            }
        }
    }
}

/// A whole stream in `form`; `events` are in the form of 1.0, with `last` as in a stream of 0.3.
pub fn stream_in(form: Form, events: &[Event]) -> Vec<Event> {
    let mut indexes: Vec<String> = Vec::new();
    let mut know = |artifact: &Artifact| {
        if !indexes.contains(&artifact.id) {
            indexes.push(artifact.id.clone());
        }
    };
    for event in events {
        match event {
            Event::Task(task) => task.artifacts.iter().for_each(&mut know),
            Event::Artifact { artifact, .. } => know(artifact),
            Event::Message(_) | Event::Status { .. } => {}
        }
    }
    events.iter().map(|event| event.shown_in(form, &indexes)).collect()
}
