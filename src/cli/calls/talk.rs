//! The output of a `chat` at a terminal: the agent's text, without labels.
//!
//! Invariant: characters that would control the terminal are escaped, as in all output. Pieces of
//! one artifact are appended as they arrive; everything else begins on its own line.

use peregrine::{
    client::{EventKind, StreamEvent},
    model::{Content, Json, Message, Part, TaskEvent, TaskView},
};

use super::super::text::{indented, one_line, several_lines, unknown_kind};

/// The text of a turn, as it arrives.
#[derive(Default)]
pub struct Talk {
    /// True: the last line has no line end yet.
    is_open: bool,
    /// The artifact of the last line.
    artifact: String,
}

impl Talk {
    /// The text of an event. `is_old`: the event is a snapshot of the task from before the turn.
    pub fn event(&mut self, event: &StreamEvent<'_>, is_old: bool) -> String {
        let mut text = String::new();
        match event.kind() {
            EventKind::Task(view) if !is_old => text = self.task(view),
            EventKind::Message(message) => text = self.message(message),
            EventKind::Change { change, .. } => match change {
                TaskEvent::Status { message: Some(message), .. } => text = self.message(message),
                TaskEvent::Artifact { artifact, append, .. } => {
                    let id = artifact.artifact_id().to_str().into_owned();
                    if !append || self.artifact != id {
                        text = self.end();
                    }
                    self.artifact = id;
                    self.parts(&mut text, artifact.parts());
                }
                TaskEvent::Status { message: None, .. } | TaskEvent::UserMessage { .. } => {}
            },
            EventKind::Task(_) | EventKind::Gap { .. } => {}
        }
        text
    }

    /// The text of a task: its status, and its artifacts.
    pub fn task(&mut self, view: TaskView<'_>) -> String {
        let mut text = self.end();
        if let Some(message) = view.status().message {
            text.push_str(&self.message(message));
        }
        for artifact in view.artifacts() {
            text.push_str(&self.end());
            self.artifact = artifact.head().artifact_id().to_str().into_owned();
            self.parts(&mut text, artifact.parts());
        }
        text
    }

    /// The text of a message.
    pub fn message(&mut self, message: Message<'_>) -> String {
        let mut text = self.end();
        self.parts(&mut text, message.parts());
        text.push_str(&self.end());
        text
    }

    /// Ends the open line.
    pub fn end(&mut self) -> String {
        self.artifact.clear();
        if std::mem::take(&mut self.is_open) { "\n".to_owned() } else { String::new() }
    }

    fn parts<'p>(&mut self, text: &mut String, parts: impl Iterator<Item = Part<'p>>) {
        for part in parts {
            if let Content::Text(words) = part.content() {
                let words = several_lines(&words.to_str());
                self.is_open = if words.is_empty() { self.is_open } else { !words.ends_with('\n') };
                text.push_str(&words);
                continue;
            }
            if std::mem::take(&mut self.is_open) {
                text.push('\n');
            }
            match part.content() {
                Content::Text(_) => {}
                Content::Data(data) => text.push_str(&several_lines(&indented(Json::as_str(data)))),
                Content::Unknown(part) => {
                    let kind = one_line(&unknown_kind(part));
                    text.push_str(&format!("[unknown kind of part: {kind}]"));
                }
                Content::Url(url) => text.push_str(&format!("[{}]", one_line(&url.to_str()))),
                Content::Raw(raw) => {
                    let name = part.filename().map(|name| name.to_str().into_owned());
                    let name = name.unwrap_or_else(|| "file".to_owned());
                    let size = raw.decode_base64().map_or(0, |bytes| bytes.len());
                    text.push_str(&format!("[{}: {size} bytes]", one_line(&name)));
                }
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use peregrine::model::{
        ArtifactBuf, Generation, MessageBuf, PartBuf, PartsBuf, TaskBuf, TaskState,
    };

    use super::*;

    #[test]
    fn chat_shows_task_text_without_labels() {
        let mut task = TaskBuf::new("t-1", "c-1", Generation::V1).unwrap();
        let parts = PartsBuf::new()
            .text("one ")
            .text("line\n\u{1b}[31mred")
            .part(&PartBuf::data(Json::parse("{\"n\":\"\u{9b}\"}").unwrap()))
            .part(&PartBuf::bytes(b"abc").filename("a.png"))
            .part(&PartBuf::url("https://a.example/x"));
        task.artifact(&ArtifactBuf::new("a-1", &parts)).unwrap();
        task.artifact(&ArtifactBuf::new("a-2", &PartsBuf::new().text("two"))).unwrap();
        let question = MessageBuf::agent(&PartsBuf::new().text("Size?")).id("m-1");
        task.status(TaskState::InputRequired, 1, Some(&question)).unwrap();
        let mut talk = Talk::default();
        let text = talk.task(task.view()) + &talk.end();
        assert_eq!(
            text,
            "Size?\none line\n\\u{1b}[31mred\n{\n  \"n\": \"\\u{9b}\"\n}\n[a.png: 3 bytes]\n\
             [https://a.example/x]\ntwo\n"
        );
        assert_eq!(talk.end(), "");
    }
}
