//! Text for people and for `grep`: one `Label: value` a line, and blocks.
//!
//! Invariant: a block is its label on its own line, its content and one empty line. An empty line
//! of the content gets a space, so that the first empty line ends the block. Text of a peer is
//! printed only as text: control characters are escaped.

use std::fmt::Write;

use peregrine::model::{
    Artifact, ArtifactView, Content, Json, JsonObject, Message, Part, Role, TaskState, TaskView,
    must_escape, time::rfc3339,
};

/// A text under construction.
#[derive(Default)]
pub struct TextOutput {
    /// The text so far.
    pub text: String,
    /// True: everything is shown.
    pub is_verbose: bool,
}

/// A changed status of a task for the output.
pub struct ShownStatus<'a> {
    /// The task.
    pub task_id: &'a str,
    /// The context of the task.
    pub context_id: &'a str,
    /// The new state.
    pub state: TaskState,
    /// The agent's message about the new state.
    pub message: Option<Message<'a>>,
    /// The metadata of the status.
    pub metadata: Option<JsonObject<'a>>,
}

impl TextOutput {
    /// An empty text.
    pub fn new(is_verbose: bool) -> TextOutput {
        TextOutput { text: String::new(), is_verbose }
    }

    /// One field on one line.
    pub fn field(&mut self, label: &str, value: &str) {
        let value = if value.is_empty() { "-" } else { value };
        // Writing to a String never fails.
        let _ = writeln!(self.text, "{label}: {}", one_line(value));
    }

    /// Content with any number of lines.
    pub fn block(&mut self, label: &str, content: &str) {
        let _ = writeln!(self.text, "{label}:");
        for line in content.lines() {
            let line = printable(line, true);
            self.text.push_str(if line.is_empty() { " " } else { &line });
            self.text.push('\n');
        }
        self.text.push('\n');
    }

    /// A task: its ids and its state, then its messages and artifacts.
    pub fn task(&mut self, view: TaskView<'_>, shows_history: bool) {
        let status = view.status();
        self.ids(&view.id().to_str(), &view.context_id().to_str(), status.state);
        if self.is_verbose && status.at_ms > 0 {
            self.field("Updated", &String::from_utf8_lossy(&rfc3339(status.at_ms)));
        }
        self.metadata(status.metadata);
        if shows_history || self.is_verbose {
            for message in view.history(None) {
                self.message(message, true);
            }
        }
        if let Some(message) = status.message {
            self.message(message, self.is_verbose);
        }
        for artifact in view.artifacts() {
            self.artifact(artifact);
        }
    }

    /// The common fields of every answer about a task.
    pub fn ids(&mut self, task_id: &str, context_id: &str, state: TaskState) {
        self.field("Task", task_id);
        self.field("Context", context_id);
        self.field("State", state_word(state));
    }

    /// A message with its parts.
    pub fn message(&mut self, message: Message<'_>, shows_role: bool) {
        self.field("Message", &message.message_id().to_str());
        if shows_role {
            let role = match message.role() {
                Role::User => "user",
                Role::Agent => "agent",
            };
            self.field("Role", role);
        }
        self.metadata(message.metadata());
        self.parts(message.parts());
    }

    /// A message that is the whole answer, with its context and its task, if they are set.
    pub fn direct_message(&mut self, message: Message<'_>) {
        for (label, id) in [("Task", message.task_id()), ("Context", message.context_id())] {
            if let Some(id) = id {
                self.field(label, &id.to_str());
            }
        }
        self.message(message, self.is_verbose);
    }

    /// A changed status.
    pub fn status_update(&mut self, update: &ShownStatus<'_>) {
        self.ids(update.task_id, update.context_id, update.state);
        self.metadata(update.metadata);
        if let Some(message) = update.message {
            self.message(message, self.is_verbose);
        }
    }

    /// A whole artifact, or a chunk that is appended to an artifact.
    pub fn artifact_update(&mut self, artifact: Artifact<'_>, is_appended: bool) {
        self.artifact_head(artifact);
        if is_appended {
            self.field("Appended", "true");
        }
        self.parts(artifact.parts());
    }

    fn artifact(&mut self, artifact: ArtifactView<'_>) {
        self.artifact_head(artifact.head());
        self.parts(artifact.parts());
    }

    fn artifact_head(&mut self, artifact: Artifact<'_>) {
        self.field("Artifact", &artifact.artifact_id().to_str());
        if let Some(name) = artifact.name() {
            self.field("Artifact name", &name.to_str());
        }
        if let Some(text) = artifact.description().filter(|_| self.is_verbose) {
            self.field("Artifact description", &text.to_str());
        }
        self.metadata(artifact.metadata());
    }

    fn metadata(&mut self, metadata: Option<JsonObject<'_>>) {
        if let Some(metadata) = metadata.filter(|_| self.is_verbose) {
            self.block("Metadata", &indented(metadata.as_str()));
        }
    }

    /// Parts in their order. Consecutive pieces of text are one block, unless everything is shown.
    fn parts<'p>(&mut self, parts: impl Iterator<Item = Part<'p>>) {
        let mut open = String::new();
        for part in parts {
            if let Some(text) = part.as_text().filter(|_| !self.is_verbose) {
                open.push_str(&text.to_str());
                continue;
            }
            self.text_so_far(&mut open);
            self.part(part);
        }
        self.text_so_far(&mut open);
    }

    fn text_so_far(&mut self, open: &mut String) {
        if !open.is_empty() {
            self.block("Text", open);
            open.clear();
        }
    }

    fn part(&mut self, part: Part<'_>) {
        let content = part.content();
        let media_type = part.media_type();
        let (label, size, url) = match content {
            Content::Text(_) => ("Text", None, None),
            Content::Data(_) => ("Data", None, None),
            Content::Unknown(part) => {
                return self.field("Unknown part", &unknown_kind(part));
            }
            Content::Raw(raw) => ("File", raw.decode_base64().map(|bytes| bytes.len()), None),
            Content::Url(url) => ("File", None, Some(url)),
        };
        if label == "File" {
            let name = part.filename();
            self.field("File", &name.map(|name| name.to_str()).unwrap_or_default());
        } else if let Some(name) = part.filename() {
            self.field("File name", &name.to_str());
        }
        if let Some(media_type) = media_type {
            self.field("Media type", &media_type.to_str());
        } else if label == "File" {
            self.field("Media type", "unknown");
        }
        if let Some(url) = url {
            self.field("URL", &url.to_str());
        }
        if label == "File" {
            let size = size.map_or("unknown".to_owned(), |size| format!("{size} bytes"));
            self.field("Size", &size);
        }
        self.metadata(part.metadata());
        match content {
            Content::Text(text) => self.block("Text", &text.to_str()),
            Content::Data(data) => self.block("Data", &indented(Json::as_str(data))),
            Content::Raw(_) | Content::Url(_) | Content::Unknown(_) => {}
        }
    }
}

/// The label of a part of an unknown kind: its `kind` or `type`, or else its members.
pub fn unknown_kind(part: JsonObject<'_>) -> String {
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(part.as_str()).unwrap_or_default();
    let named = ["kind", "type"].iter().find_map(|name| members.get(*name)?.as_str());
    let others = members.keys().filter(|name| *name != "metadata").map(String::as_str);
    named.map_or_else(|| others.collect::<Vec<_>>().join(", "), str::to_owned)
}

/// The short name of a state (the command line's specification, §9.1).
pub fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "UNSPECIFIED",
        TaskState::Submitted => "SUBMITTED",
        TaskState::Working => "WORKING",
        TaskState::Completed => "COMPLETED",
        TaskState::Failed => "FAILED",
        TaskState::Canceled => "CANCELED",
        TaskState::InputRequired => "INPUT_REQUIRED",
        TaskState::Rejected => "REJECTED",
        TaskState::AuthRequired => "AUTH_REQUIRED",
    }
}

/// The text on one line, with line ends and terminal control characters escaped.
pub fn one_line(text: &str) -> String {
    printable(text, false)
}

/// The text on several lines, with terminal control characters escaped.
pub fn several_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| printable(line, true)).collect();
    lines.join("\n")
}

fn printable(text: &str, with_tabs: bool) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' if with_tabs => line.push(letter),
            _ if must_escape(letter) => line.extend(letter.escape_default()),
            _ => line.push(letter),
        }
    }
    line
}

/// JSON with one member per line. Every number and string remains as written.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut is_escaped) = (0usize, false, false);
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut letters = json.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_text {
            (in_text, is_escaped) = (is_escaped || letter != '"', !is_escaped && letter == '\\');
            out.push(letter);
            continue;
        }
        match letter {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                out.push(letter);
                while letters.peek().is_some_and(char::is_ascii_whitespace) {
                    letters.next();
                }
                if let Some(end) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_text = letter == '"';
                out.push(letter);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use peregrine::model::{
        ArtifactBuf, Generation, JsonObject, MessageBuf, PartBuf, PartsBuf, TaskBuf,
    };

    use super::*;

    fn data(json: &str) -> PartBuf {
        PartBuf::data(Json::parse(json).unwrap())
    }

    fn task() -> TaskBuf {
        let mut task = TaskBuf::new("t-1", "c-1", Generation::V1).unwrap();
        let picture = PartBuf::bytes(b"abc").filename("a.png").media_type("image/png");
        let parts = PartsBuf::new()
            .text("one ")
            .text("line\n\n\u{1b}[31mred")
            .part(&data(r#"{"n":1.50,"e":{}}"#))
            .part(&picture)
            .part(&PartBuf::url("https://a.example/x"));
        task.artifact(&ArtifactBuf::new("a-1", &parts).name("report")).unwrap();
        let question = MessageBuf::agent(&PartsBuf::new().text("Size?")).id("m-1");
        task.status(TaskState::InputRequired, 1, Some(&question)).unwrap();
        task
    }

    #[test]
    fn task_is_printed_as_fields_and_blocks() {
        let task = task();
        let mut output = TextOutput::new(false);
        output.task(task.view(), false);
        assert_eq!(
            output.text,
            "Task: t-1\nContext: c-1\nState: INPUT_REQUIRED\nMessage: m-1\nText:\nSize?\n\n\
             Artifact: a-1\nArtifact name: report\nText:\none line\n \n\\u{1b}[31mred\n\n\
             Data:\n{\n  \"n\": 1.50,\n  \"e\": {}\n}\n\n\
             File: a.png\nMedia type: image/png\nSize: 3 bytes\n\
             File: -\nMedia type: unknown\nURL: https://a.example/x\nSize: unknown\n"
        );
    }

    #[test]
    fn verbose_output_shows_each_part_separately() {
        let task = task();
        let mut output = TextOutput::new(true);
        output.task(task.view(), false);
        assert!(output.text.contains("Text:\none \n\nText:\nline\n"), "{}", output.text);
        assert!(output.text.contains("Updated: 1970-01-01T00:00:00.001Z\n"));
        assert!(output.text.contains("Role: agent\n"));
    }

    #[test]
    fn metadata_is_shown_only_in_verbose_output() {
        let metadata = JsonObject::parse(r#"{"k":[1,2]}"#).unwrap();
        let part = PartBuf::text("x").metadata(metadata);
        let message = MessageBuf::agent(&PartsBuf::new().part(&part)).id("m").task_id("t");
        let shown = |is_verbose| {
            let mut output = TextOutput::new(is_verbose);
            output.direct_message(message.view());
            output.text
        };
        assert_eq!(shown(false), "Task: t\nMessage: m\nText:\nx\n\n");
        let all = "Task: t\nMessage: m\nRole: agent\nMetadata:\n{\n  \"k\": [\n    1,\n    2\n  ]\n\
                   }\n\nText:\nx\n\n";
        assert_eq!(shown(true), all);
    }

    #[test]
    fn field_value_is_printed_on_one_line() {
        let mut output = TextOutput::new(false);
        output.field("Error", "a\nState: COMPLETED\r\u{9b}2J\u{202e}\u{2066}\u{2028}\u{7f}");
        assert_eq!(output.text.lines().count(), 1);
        assert!(output.text.starts_with("Error: a\\nState"), "{}", output.text);
        assert!(output.text.trim_end().chars().all(|letter| !letter.is_control()));
        assert!(output.text.is_ascii(), "{}", output.text);
    }

    #[test]
    fn indented_json_keeps_strings_and_numbers() {
        let text = r#"{"a":"x, {\"y\": [1]}\\","b":[ ],"c":[1e400,-0.0],"d":{ "e" : null}}"#;
        let spaced = indented(text);
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(bare(&spaced), bare(text));
        assert!(spaced.contains("\"b\": []") && spaced.contains("1e400,\n"), "{spaced}");
    }
}
