//! The JSON forms of the generations, read strictly: a member that the form does not define, a
//! wrong discriminator or a status without its time is a failure.

use serde_json::{Map, Value, json};

use super::{
    message_spec::MessageSpec,
    model::{Answer, Artifact, Content, Event, Form, Gen, Last, Message, Page, Part, Role, Task},
};

// --- Writing -------------------------------------------------------------------------------------

impl Form {
    /// The params of send and stream: always with ten messages of history in the answer, since the
    /// generations differ in the default (wire §1.5).
    pub fn send_params(self, spec: &MessageSpec) -> Value {
        let parts: Vec<Value> = spec.parts.iter().map(|part| self.write_part(part)).collect();
        let mut message = match self {
            Form::V01 => json!({"role": "user", "parts": parts}),
            Form::V03 => json!({"kind": "message", "messageId": spec.id, "role": "user",
                "parts": parts}),
            Form::Proto03 => json!({"messageId": spec.id, "role": "ROLE_USER", "content": parts}),
            Form::V1 | Form::Canonical => {
                json!({"messageId": spec.id, "role": "ROLE_USER", "parts": parts})
            }
        };
        set(&mut message, "metadata", spec.metadata.clone());
        if self == Form::V01 {
            let id = spec.task.clone().unwrap_or_else(|| format!("client-{}", spec.id));
            let mut params = json!({"id": id, "message": message, "historyLength": 10});
            set(&mut params, "sessionId", spec.context.clone().into());
            return params;
        }
        let list = |texts: &[String]| if texts.is_empty() { Value::Null } else { json!(texts) };
        set(&mut message, "extensions", list(&spec.extensions));
        set(&mut message, "referenceTaskIds", list(&spec.references));
        set(&mut message, "taskId", spec.task.clone().into());
        set(&mut message, "contextId", spec.context.clone().into());
        let configuration = if self.is_v1() {
            json!({"returnImmediately": spec.at_once, "historyLength": 10})
        } else {
            json!({"blocking": !spec.at_once, "historyLength": 10})
        };
        json!({"message": message, "configuration": configuration})
    }

    fn write_part(self, part: &Part) -> Value {
        let part = &self.wrapped(part);
        let named = |mut object: Value, name: &str, media: &str| {
            set(&mut object, name, part.filename.clone().into());
            set(&mut object, media, part.media_type.clone().into());
            object
        };
        let mut out = match (self, &part.content) {
            (Form::V1 | Form::Canonical, content) => {
                let object = match content {
                    Content::Text(text) => json!({"text": text}),
                    Content::Raw(raw) => json!({"raw": raw}),
                    Content::Url(url) => json!({"url": url}),
                    Content::Data(data) => json!({"data": data}),
                };
                named(object, "filename", "mediaType")
            }
            (Form::Proto03, Content::Text(text)) => json!({"text": text}),
            (Form::Proto03, Content::Raw(raw)) => {
                json!({"file": named(json!({"fileWithBytes": raw}), "name", "mimeType")})
            }
            (Form::Proto03, Content::Url(url)) => {
                json!({"file": named(json!({"fileWithUri": url}), "name", "mimeType")})
            }
            (Form::Proto03, Content::Data(data)) => json!({"data": {"data": data}}),
            (_, Content::Text(text)) => self.tagged("text", "text", json!(text)),
            (_, Content::Raw(raw)) => {
                self.tagged("file", "file", named(json!({"bytes": raw}), "name", "mimeType"))
            }
            (_, Content::Url(url)) => {
                self.tagged("file", "file", named(json!({"uri": url}), "name", "mimeType"))
            }
            (_, Content::Data(data)) => self.tagged("data", "data", data.clone()),
        };
        set(&mut out, "metadata", part.metadata.clone());
        out
    }

    /// Wire §1.9: before 1.0, data other than an object is wrapped and marked; 0.1 also has arrays.
    fn wrapped(self, part: &Part) -> Part {
        let mut part = part.clone();
        match &part.content {
            Content::Data(data) if !self.allows_data(data) => {
                part.content = Content::Data(json!({"value": data}));
                if part.metadata.is_null() {
                    part.metadata = json!({});
                }
                part.metadata["data_part_compat"] = json!(true);
            }
            _ => {}
        }
        part
    }

    fn allows_data(self, data: &Value) -> bool {
        self.is_v1() || data.is_object() || self == Form::V01 && data.is_array()
    }

    fn tagged(self, kind: &str, member: &str, value: Value) -> Value {
        let tag = if self == Form::V01 { "type" } else { "kind" };
        json!({tag: kind, member: value})
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if !value.is_null() {
        object[key] = value;
    }
}

// --- Reading -------------------------------------------------------------------------------------

/// Takes the members of an object one by one; a member left at the end is unknown to the form.
struct Members<'v> {
    whole: &'v Value,
    remaining: Map<String, Value>,
}

impl<'v> Members<'v> {
    fn of(whole: &'v Value) -> Members<'v> {
        let remaining = whole.as_object().unwrap_or_else(|| panic!("no object: {whole}")).clone();
        Members { whole, remaining }
    }

    /// The member, or null.
    fn take(&mut self, key: &str) -> Value {
        self.remaining.remove(key).unwrap_or_default()
    }

    fn need(&mut self, key: &str) -> Value {
        let value = self.take(key);
        assert!(!value.is_null(), "no {key} in {}", self.whole);
        value
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.take(key);
        let text = value.as_str().map(str::to_owned);
        assert!(value.is_null() || text.is_some(), "{key} is no string in {}", self.whole);
        text
    }

    fn need_text(&mut self, key: &str) -> String {
        let text = self.text(key).unwrap_or_default();
        assert!(!text.is_empty(), "no {key} in {}", self.whole);
        text
    }

    fn flag(&mut self, key: &str) -> bool {
        let value = self.take(key);
        assert!(value.is_null() || value.is_boolean(), "{key} is no flag in {}", self.whole);
        value == true
    }

    /// A free-form object, or null.
    fn object(&mut self, key: &str) -> Value {
        let value = self.take(key);
        assert!(value.is_null() || value.is_object(), "{key} in {}", self.whole);
        value
    }

    fn list<T>(&mut self, key: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
        let value = self.take(key);
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(value.is_null() || value.is_array(), "{key} is no list in {}", self.whole);
        items.iter().map(read).collect()
    }

    fn kind(&mut self, form: Form, kind: &str) {
        if form == Form::V03 {
            assert_eq!(self.need_text("kind"), kind, "{}", self.whole);
        }
    }

    fn end(self) {
        assert!(
            self.remaining.is_empty(),
            "unknown members {:?} in {}",
            self.remaining,
            self.whole
        );
    }
}

impl Form {
    fn is_proto(self) -> bool {
        self == Form::Proto03 || self.is_v1()
    }

    /// Whether it has the names of 1.0.
    fn is_v1(self) -> bool {
        matches!(self, Form::V1 | Form::Canonical)
    }

    fn state(self, name: &str) -> String {
        if !self.is_proto() {
            assert_ne!(name, "", "a state");
            return name.to_owned();
        }
        let state = name.strip_prefix("TASK_STATE_").unwrap_or_else(|| panic!("state {name}"));
        // Wire §1.6: the proto of 0.3 has two Ls, 1.0 has one.
        let spelled = if self == Form::Proto03 { "CANCELLED" } else { "CANCELED" };
        assert!(!state.starts_with("CANCEL") || state == spelled, "{self:?}: {name}");
        let state = if state == spelled { "CANCELED" } else { state };
        state.to_lowercase().replace('_', "-")
    }

    fn part(self, value: &Value) -> Part {
        let mut members = Members::of(value);
        let mut part = Part::of(Content::Text(String::new()));
        part.metadata = members.object("metadata");
        let kind = match self {
            Form::V01 => Some(members.need_text("type")),
            Form::V03 => Some(members.need_text("kind")),
            Form::Proto03 | Form::V1 | Form::Canonical => None,
        };
        let kind = kind.unwrap_or_else(|| {
            let known = ["text", "raw", "url", "data", "file"];
            let named = |key: &&str| value.get(*key).is_some();
            let kinds: Vec<&str> = known.into_iter().filter(named).collect();
            assert_eq!(kinds.len(), 1, "one content: {value}");
            kinds[0].to_owned()
        });
        match (self, kind.as_str()) {
            (_, "text") => part.content = Content::Text(members.text("text").expect("text")),
            (Form::V1 | Form::Canonical, "raw") => {
                part.content = Content::Raw(members.need_text("raw"))
            }
            (Form::V1 | Form::Canonical, "url") => {
                part.content = Content::Url(members.need_text("url"))
            }
            (Form::V1 | Form::Canonical, "data") => {
                part.content = Content::Data(members.take("data"))
            }
            (Form::V01 | Form::V03 | Form::Proto03, "file") => {
                self.file(&mut part, &members.need("file"));
            }
            (Form::V01 | Form::V03, "data") => part.data(members.need("data"), self),
            (Form::Proto03, "data") => {
                let data = members.need("data");
                let mut inner = Members::of(&data);
                part.data(inner.need("data"), self);
                inner.end();
            }
            (form, kind) => panic!("{form:?} has no part {kind}: {value}"),
        }
        if self.is_v1() {
            part.filename = members.text("filename");
            part.media_type = members.text("mediaType");
        }
        members.end();
        part
    }

    fn file(self, part: &mut Part, file: &Value) {
        let mut members = Members::of(file);
        let (bytes, uri) = match self {
            Form::Proto03 => ("fileWithBytes", "fileWithUri"),
            Form::V01 | Form::V03 | Form::V1 | Form::Canonical => ("bytes", "uri"),
        };
        part.content = match (members.text(bytes), members.text(uri)) {
            (Some(raw), None) => Content::Raw(raw),
            (None, Some(url)) => Content::Url(url),
            both => panic!("one content: {both:?} in {file}"),
        };
        (part.filename, part.media_type) = (members.text("name"), members.text("mimeType"));
        members.end();
    }

    pub fn message(self, value: &Value) -> Message {
        let mut members = Members::of(value);
        members.kind(self, "message");
        let role = members.need_text("role");
        let role = match (self.is_proto(), role.as_str()) {
            (true, "ROLE_USER") | (false, "user") => Role::User,
            (true, "ROLE_AGENT") | (false, "agent") => Role::Agent,
            (_, role) => panic!("{self:?} has no role {role}"),
        };
        let parts_key = if self == Form::Proto03 { "content" } else { "parts" };
        let parts = members.list(parts_key, |part| self.part(part));
        assert!(!parts.is_empty(), "a message has parts: {value}");
        let metadata = members.object("metadata");
        let mut id = String::new();
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let (mut extensions, mut references) = (Vec::new(), Vec::new());
        if self != Form::V01 {
            // 0.1 has neither, in any reading.
            id = members.text("messageId").unwrap_or_default();
            let is_bare = self == Form::Canonical && id.is_empty();
            assert!(is_bare || !id.is_empty(), "no messageId in {value}");
            let context = members.text("contextId");
            // A2A 1.0 §4.1.4: an agent's message names its conversation.
            assert!(
                is_bare || role == Role::User || context.is_some_and(|id| !id.is_empty()),
                "{value}"
            );
            members.text("taskId");
            extensions = members.list("extensions", text);
        }
        if self == Form::V03 || self.is_v1() {
            references = members.list("referenceTaskIds", text);
        }
        members.end();
        Message { id, role, parts, metadata, extensions, references }
    }

    fn artifact(self, members: &mut Members<'_>) -> Artifact {
        let id = match self {
            Form::V01 => members.need("index").to_string(),
            Form::V03 | Form::Proto03 | Form::V1 | Form::Canonical => {
                members.need_text("artifactId")
            }
        };
        let artifact = Artifact {
            id,
            name: members.text("name"),
            description: members.text("description"),
            parts: members.list("parts", |part| self.part(part)),
            metadata: members.object("metadata"),
        };
        assert!(!artifact.parts.is_empty(), "an artifact has parts: {}", members.whole);
        artifact
    }

    /// State and message of a status; its time is checked.
    fn status(self, value: &Value) -> (String, Option<Message>) {
        let mut members = Members::of(value);
        let state = self.state(&members.need_text("state"));
        let timestamp = members.need_text("timestamp");
        // A2A 1.0 §5.6.1: UTC, with milliseconds if available.
        assert!(timestamp.ends_with('Z') && timestamp.len() <= 24, "{timestamp}");
        let message = members.take("message");
        members.end();
        (state, (!message.is_null()).then(|| self.message(&message)))
    }

    pub fn task(self, value: &Value) -> Task {
        let mut members = Members::of(value);
        members.kind(self, "task");
        let (state, message) = self.status(&members.need("status"));
        let context_key = if self == Form::V01 { "sessionId" } else { "contextId" };
        let task = Task {
            id: members.need_text("id"),
            context: members.need_text(context_key),
            state,
            message,
            artifacts: members.list("artifacts", |artifact| {
                let mut members = Members::of(artifact);
                let artifact = self.artifact(&mut members);
                members.end();
                artifact
            }),
            history: members.list("history", |message| self.message(message)),
            metadata: members.object("metadata"),
        };
        members.end();
        task
    }

    /// The answer to a send (wire §1.5).
    pub fn answer(self, value: &Value) -> Answer {
        match self {
            Form::V01 => Answer::Task(self.task(value)),
            Form::V03 if value["kind"] == "message" => Answer::Message(self.message(value)),
            Form::V03 => Answer::Task(self.task(value)),
            Form::Proto03 | Form::V1 | Form::Canonical => match only_member(value) {
                ("task", task) => Answer::Task(self.task(task)),
                ("message", message) => Answer::Message(self.message(message)),
                (other, _) => panic!("a {other}: {value}"),
            },
        }
    }

    /// An item of a stream (wire §1.2).
    pub fn event(self, value: &Value) -> Event {
        let (kind, body) = match self {
            Form::V01 if value.get("artifact").is_some() => ("artifact", value),
            Form::V01 => ("status", value),
            Form::V03 => (value["kind"].as_str().expect("a kind"), value),
            Form::Proto03 | Form::V1 | Form::Canonical => only_member(value),
        };
        match kind {
            "task" => Event::Task(self.task(body)),
            "message" => Event::Message(self.message(body)),
            "status" | "status-update" | "statusUpdate" => self.status_event(body),
            "artifact" | "artifact-update" | "artifactUpdate" => self.artifact_event(body),
            other => panic!("an event {other}: {value}"),
        }
    }

    fn task_id(self, members: &mut Members<'_>) -> String {
        if self == Form::V01 {
            return members.need_text("id");
        }
        let context = members.text("contextId");
        assert!(self == Form::Canonical || context.is_some_and(|id| !id.is_empty()));
        members.need_text("taskId")
    }

    fn status_event(self, value: &Value) -> Event {
        let mut members = Members::of(value);
        members.kind(self, "status-update");
        let (state, message) = self.status(&members.need("status"));
        let last = match self {
            // Wire §1.6: required in 0.3, and written in 0.1; ProtoJSON omits false.
            Form::V01 | Form::V03 => Some(members.need("final") == true),
            Form::Proto03 => Some(members.flag("final")),
            Form::V1 | Form::Canonical => None,
        };
        let task = self.task_id(&mut members);
        members.object("metadata");
        members.end();
        Event::Status { task, state, message, last: Last(last) }
    }

    fn artifact_event(self, value: &Value) -> Event {
        let mut members = Members::of(value);
        members.kind(self, "artifact-update");
        let artifact_value = members.need("artifact");
        let mut inside = Members::of(&artifact_value);
        let artifact = self.artifact(&mut inside);
        // Wire §1.6, Artifact: 0.1 has them inside.
        let flags = if self == Form::V01 { &mut inside } else { &mut members };
        let (append, last_chunk) = (flags.flag("append"), flags.flag("lastChunk"));
        inside.end();
        let task = self.task_id(&mut members);
        members.object("metadata");
        members.end();
        Event::Artifact { task, artifact, append, last_chunk }
    }

    /// A page of a list, with all four members (wire §1.7).
    pub fn page(self, value: &Value) -> Page {
        assert!(self.is_proto(), "{self:?} has no list");
        let mut members = Members::of(value);
        assert!(value["tasks"].is_array(), "{value}");
        let number = |value: Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
        let page = Page {
            tasks: members.list("tasks", |task| self.task(task)),
            next: members.text("nextPageToken").expect("a token, even if it is empty"),
            size: number(members.need("pageSize")),
            total: number(members.need("totalSize")),
        };
        members.end();
        page
    }
}

impl Part {
    /// Wire §1.9: data other than an object is wrapped, and marked in the part's metadata; 0.1 also
    /// has arrays.
    fn data(&mut self, data: Value, form: Form) {
        assert!(form.allows_data(&data), "{form:?}: {data}");
        let is_wrapped = self.metadata["data_part_compat"] == true;
        if !is_wrapped {
            self.content = Content::Data(data);
            return;
        }
        let mut members = Members::of(&data);
        self.content = Content::Data(members.take("value"));
        members.end();
        let metadata = self.metadata.as_object_mut().expect("an object");
        metadata.remove("data_part_compat");
        if metadata.is_empty() {
            self.metadata = Value::Null;
        }
    }
}

fn only_member(value: &Value) -> (&str, &Value) {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    assert_eq!(object.len(), 1, "one of them: {value}");
    let (key, inner) = object.iter().next().expect("one");
    (key, inner)
}

/// The form in which a pair answers about a task: over JSON-RPC and WebSocket, method names that
/// the slash generations share are answered in the form of the task's maker (wire Appendix B step
/// 2).
pub fn form_of(is_rpc: bool, generation: Gen, made: Gen) -> Form {
    match (is_rpc, generation, made) {
        (_, Gen::V1, _) => Form::V1,
        (false, _, _) => Form::Proto03,
        (true, _, Gen::V01) => Form::V01,
        (true, _, Gen::V03 | Gen::V1) => Form::V03,
    }
}
