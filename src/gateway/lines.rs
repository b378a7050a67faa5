//! The lines that agents of any language read and write: turns and cancels are their input, events
//! their output. HTTP functions receive the same turn as a request, and answer with the same
//! events.
//!
//! Invariants: a line is one JSON object without a line feed inside. Data and metadata pass byte
//! for byte, except for line feeds between their tokens. The module uses no pipes: `net` does. The
//! contract is docs/guide/any-language.md with its schema; a change that old agents do not
//! understand raises [`VERSION`].

use std::{borrow::Cow, fmt};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    dialect::canonical,
    json::write::{push_string, push_u64},
    limits::Limits,
    model::{
        ArtifactBuf, Json, JsonObject, JsonObjectBuf, Message, MessageBuf, PartBuf, PartsBuf,
        RawText, TaskState, ValueError,
    },
};

/// The version of the line format, which every turn contains.
pub const VERSION: u64 = 1;

/// The default id of an artifact.
const ARTIFACT_ID: &str = "output";

/// Why a line is not an event.
#[derive(Debug)]
pub enum LineError {
    /// The line is not an object, or its `turn` is not the number of a turn.
    Turn,
    /// The line is not an event in JSON.
    Json(serde_json::Error),
    /// A member has a wrong value.
    Value(&'static str, ValueError),
    /// The state is unknown.
    State(String),
    /// A part has no content, or more than one.
    Part,
    /// The event has none of `status`, `artifact` and `message`, or more than one, except for a
    /// status with a message.
    Kind,
    /// An artifact id is longer than `identifier_bytes_max`.
    Id,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Turn => f.write_str("not an object with the member turn, the id of a turn"),
            LineError::Json(error) => write!(f, "{error}"),
            LineError::Value(name, error) => write!(f, "{name}: {error}"),
            LineError::State(state) => write!(f, "status: unknown state {state:?}"),
            LineError::Part => f.write_str("parts: each must have one of text, data, raw and url"),
            LineError::Kind => {
                f.write_str("an event must have one of status, artifact and message")
            }
            LineError::Id => f.write_str("artifactId: too long (identifier_bytes_max)"),
        }
    }
}

impl std::error::Error for LineError {}

/// An event of an agent in a turn.
pub enum LineEvent {
    /// The task has this state.
    Status {
        /// The state.
        state: TaskState,
        /// A message with the status.
        message: Option<MessageBuf>,
        /// The event's metadata.
        metadata: Option<JsonObjectBuf>,
    },
    /// An artifact, or a chunk of an artifact.
    Artifact {
        /// The artifact.
        artifact: ArtifactBuf,
        /// True: the parts are appended to the existing parts.
        append: bool,
        /// True: this is the last chunk.
        last_chunk: bool,
        /// The event's metadata.
        metadata: Option<JsonObjectBuf>,
    },
    /// The answer: a direct message, or the final message of an existing task.
    Message(MessageBuf),
}

impl LineEvent {
    /// True: no more events of the turn are expected.
    pub fn ends_turn(&self) -> bool {
        match self {
            LineEvent::Status { state, .. } => state.is_terminal() || state.is_interrupted(),
            LineEvent::Message(_) => true,
            LineEvent::Artifact { .. } => false,
        }
    }
}

/// A line of an agent: a turn's number and its event.
pub struct EventLine {
    /// The number of the turn.
    pub turn: u64,
    /// The event.
    pub event: Result<LineEvent, LineError>,
}

impl EventLine {
    /// Reads a line, with or without its line feed.
    ///
    /// # Errors
    /// [`LineError`]: the line names no turn.
    pub fn read(line: &[u8]) -> Result<EventLine, LineError> {
        // serde would accept an array for an object.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(LineError::Turn);
        }
        match serde_json::from_slice::<EventMembers<'_>>(line) {
            Ok(fields) => Ok(EventLine { turn: number(fields.turn)?, event: fields.event() }),
            Err(error) => {
                let named: TurnField<'_> = serde_json::from_slice(line).map_err(LineError::Json)?;
                Ok(EventLine { turn: number(named.turn)?, event: Err(LineError::Json(error)) })
            }
        }
    }
}

/// Reads the answer of a function: an event, in which `turn` is optional, a string, which is a
/// message, or an array of events and strings.
///
/// # Errors
/// [`LineError`]
pub fn read_answer(json: &[u8]) -> Result<Vec<LineEvent>, LineError> {
    let json: &RawValue = serde_json::from_slice(json).map_err(LineError::Json)?;
    if !json.get().starts_with('[') {
        return read_event(json).map(|event| vec![event]);
    }
    let events: Vec<&RawValue> = serde_json::from_str(json.get()).map_err(LineError::Json)?;
    events.into_iter().map(read_event).collect()
}

fn read_event(json: &RawValue) -> Result<LineEvent, LineError> {
    match json.get().as_bytes().first() {
        Some(b'"') => message(json).map(LineEvent::Message),
        Some(b'{') => {
            let members = serde_json::from_str::<EventMembers<'_>>(json.get());
            members.map_err(LineError::Json)?.event()
        }
        _ => Err(LineError::Kind),
    }
}

/// The number of a turn, as a string or a number.
fn number(turn: Option<&RawValue>) -> Result<u64, LineError> {
    let turn = turn.ok_or(LineError::Turn)?;
    turn.get().trim_matches('"').parse().map_err(|_| LineError::Turn)
}

#[derive(Deserialize)]
struct TurnField<'a> {
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventMembers<'a> {
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    artifact: Option<ArtifactMembers<'a>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    append: Option<bool>,
    last_chunk: Option<bool>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactMembers<'a> {
    #[serde(borrow)]
    artifact_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parts: Vec<PartMembers<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageMembers<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parts: Vec<PartMembers<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartMembers<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    raw: Option<Cow<'a, str>>,
    #[serde(borrow)]
    url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    filename: Option<Cow<'a, str>>,
    #[serde(borrow)]
    media_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl EventMembers<'_> {
    fn event(&self) -> Result<LineEvent, LineError> {
        let metadata = self.metadata.map(object).transpose()?.map(JsonObjectBuf::from);
        match (&self.status, &self.artifact, self.message) {
            (Some(status), None, message) => {
                let message = message.map(self::message).transpose()?;
                Ok(LineEvent::Status { state: state(status)?, message, metadata })
            }
            (None, Some(artifact), None) => {
                let append = self.append.unwrap_or_default();
                let last_chunk = self.last_chunk.unwrap_or(!append);
                let artifact = artifact.artifact()?;
                Ok(LineEvent::Artifact { artifact, append, last_chunk, metadata })
            }
            (None, None, Some(message)) => Ok(LineEvent::Message(self::message(message)?)),
            (None, None, None) | (Some(_), Some(_), _) | (None, Some(_), Some(_)) => {
                Err(LineError::Kind)
            }
        }
    }
}

impl ArtifactMembers<'_> {
    fn artifact(&self) -> Result<ArtifactBuf, LineError> {
        let id = self.artifact_id.as_deref().unwrap_or(ARTIFACT_ID);
        if id.is_empty() || id.len() > Limits::default().identifier_bytes_max {
            return Err(LineError::Id);
        }
        let mut artifact = ArtifactBuf::new(id, &parts(self.text.as_deref(), &self.parts)?);
        if let Some(name) = &self.name {
            artifact = artifact.name(name);
        }
        if let Some(description) = &self.description {
            artifact = artifact.description(description);
        }
        if let Some(metadata) = self.metadata {
            artifact = artifact.metadata(object(metadata)?);
        }
        Ok(artifact)
    }
}

impl PartMembers<'_> {
    fn part(&self) -> Result<PartBuf, LineError> {
        let mut part = match (&self.text, self.data, &self.raw, &self.url) {
            (Some(text), None, None, None) => PartBuf::text(text),
            (None, Some(data), None, None) => {
                let data = Json::parse(data.get());
                PartBuf::data(data.map_err(|error| LineError::Value("data", error))?)
            }
            (None, None, Some(raw), None) => {
                PartBuf::base64(raw).map_err(|error| LineError::Value("raw", error))?
            }
            (None, None, None, Some(url)) => PartBuf::url(url),
            _ => return Err(LineError::Part),
        };
        if let Some(filename) = &self.filename {
            part = part.filename(filename);
        }
        if let Some(media_type) = &self.media_type {
            part = part.media_type(media_type);
        }
        if let Some(metadata) = self.metadata {
            part = part.metadata(object(metadata)?);
        }
        Ok(part)
    }
}

/// A message: a string, or an object with `text` or `parts`.
fn message(json: &RawValue) -> Result<MessageBuf, LineError> {
    if json.get().starts_with('"') {
        let text: Cow<'_, str> = serde_json::from_str(json.get()).map_err(LineError::Json)?;
        return Ok(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
    let fields: MessageMembers<'_> = serde_json::from_str(json.get()).map_err(LineError::Json)?;
    let message = MessageBuf::agent(&parts(fields.text.as_deref(), &fields.parts)?);
    Ok(match fields.metadata {
        Some(metadata) => message.metadata(object(metadata)?),
        None => message,
    })
}

/// Parts from one text, or from a list of parts.
fn parts(text: Option<&str>, parts: &[PartMembers<'_>]) -> Result<PartsBuf, LineError> {
    match text {
        Some(text) if parts.is_empty() => Ok(PartsBuf::new().text(text)),
        None if !parts.is_empty() => {
            parts.iter().try_fold(PartsBuf::new(), |parts, fields| Ok(parts.part(&fields.part()?)))
        }
        Some(_) | None => Err(LineError::Part),
    }
}

fn object(json: &RawValue) -> Result<JsonObject<'_>, LineError> {
    JsonObject::parse(json.get()).map_err(|error| LineError::Value("metadata", error))
}

fn state(name: &str) -> Result<TaskState, LineError> {
    TaskState::of_word(name).ok_or_else(|| LineError::State(name.chars().take(64).collect()))
}

/// A message to an agent.
pub struct TurnLine<'a> {
    /// The number of the turn, which its events repeat.
    pub turn: u64,
    /// The id of the task, also of a task that the turn starts.
    pub task_id: RawText<'a>,
    /// The id of the conversation.
    pub context_id: RawText<'a>,
    /// The state of the task that the message continues.
    pub state: Option<TaskState>,
    /// The message.
    pub message: Message<'a>,
    /// The metadata of the request.
    pub metadata: Option<JsonObject<'a>>,
    /// The name of an authenticated caller.
    pub caller: Option<&'a str>,
    /// The tenant that the caller named.
    pub tenant: Option<&'a str>,
    /// The caller's deadline, in ms since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    /// Earlier messages of the task as JSON, from [`push_history`]; empty: none.
    pub history: &'a [u8],
}

impl TurnLine<'_> {
    /// Appends the line with its line feed.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        head(out, "turn", self.turn, self.task_id);
        out.extend_from_slice(b",\"contextId\":\"");
        out.extend_from_slice(self.context_id.raw());
        out.extend_from_slice(b"\",\"version\":");
        push_u64(out, VERSION);
        text(out, "state", self.state.map(TaskState::word));
        text(out, "caller", self.caller);
        text(out, "tenant", self.tenant);
        if let Some(deadline) = self.deadline_unix_ms {
            out.extend_from_slice(b",\"deadlineUnixMs\":");
            push_u64(out, deadline);
        }
        out.extend_from_slice(b",\"message\":");
        canonical::message(out, self.message);
        if let Some(metadata) = self.metadata {
            out.extend_from_slice(b",\"metadata\":");
            out.extend_from_slice(metadata.raw());
        }
        if !self.history.is_empty() {
            out.extend_from_slice(b",\"history\":[");
            out.extend_from_slice(self.history);
            out.push(b']');
        }
        end(out, start);
    }
}

/// Appends a message to a list of messages.
pub fn push_history(list: &mut Vec<u8>, message: Message<'_>) {
    if !list.is_empty() {
        list.push(b',');
    }
    canonical::message(list, message);
}

/// Appends the line that cancels a turn: its events are no longer wanted.
pub fn write_cancel(out: &mut Vec<u8>, turn: u64, task_id: RawText<'_>) {
    let start = out.len();
    head(out, "cancel", turn, task_id);
    end(out, start);
}

fn head(out: &mut Vec<u8>, kind: &str, turn: u64, task_id: RawText<'_>) {
    out.extend_from_slice(b"{\"type\":");
    push_string(out, kind);
    out.extend_from_slice(b",\"turn\":\"");
    push_u64(out, turn);
    out.extend_from_slice(b"\",\"taskId\":\"");
    out.extend_from_slice(task_id.raw());
    out.push(b'"');
}

fn text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        out.push(b',');
        push_string(out, name);
        out.push(b':');
        push_string(out, value);
    }
}

/// Ends a line. A client's JSON may have line feeds between its tokens, and nowhere else.
fn end(out: &mut Vec<u8>, start: usize) {
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use crate::model::Content;

    use super::*;

    fn event(line: &str) -> LineEvent {
        let line = EventLine::read(line.as_bytes()).unwrap();
        assert_eq!(line.turn, 7);
        line.event.unwrap()
    }

    fn wrong(line: &str) -> String {
        let line = EventLine::read(line.as_bytes()).unwrap();
        line.event.err().expect("an error").to_string()
    }

    #[test]
    fn user_json_is_preserved_byte_for_byte() {
        let data = r#"{"n": 1.50, "e":"\u0041", "n": 2}"#;
        let line = format!(
            r#"{{"turn":"7","artifact":{{"parts":[{{"data":{data},"metadata":{{"a" :1}}}}]}}}}"#
        );
        let LineEvent::Artifact { artifact, append, last_chunk, .. } = event(&line) else {
            panic!("not an artifact")
        };
        assert_eq!((append, last_chunk), (false, true));
        let artifact = artifact.view();
        assert_eq!(artifact.artifact_id(), "output");
        let part = artifact.parts().next().unwrap();
        assert_eq!(part.content(), Content::Data(Json::parse(data).unwrap()));
        assert_eq!(part.metadata().unwrap().as_str(), r#"{"a" :1}"#);
    }

    #[test]
    fn messages_are_strings_or_objects() {
        for message in [r#""a\nb""#, r#"{"text":"a\nb"}"#, r#"{"parts":[{"text":"a\nb"}]}"#] {
            let line = format!(r#"{{"turn":7,"message":{message},"unknown":[]}}"#);
            let LineEvent::Message(message) = event(&line) else { panic!("not a message") };
            assert_eq!(message.view().text(), "a\nb");
        }
        let line = r#"{"turn":"7","status":"input-required","message":"size?"}"#;
        let event = event(line);
        assert!(event.ends_turn());
        assert!(matches!(event, LineEvent::Status { state: TaskState::InputRequired, .. }));
    }

    #[test]
    fn invalid_event_line_error_gives_reason() {
        for (members, expected) in [
            ("", "one of status"),
            (r#","status":"tired""#, "tired"),
            (r#","status":7"#, "invalid type"),
            (r#","message":{"parts":[{}]}"#, "parts"),
            (r#","message":{"parts":[{"text":"a","url":"b"}]}"#, "parts"),
            (r#","message":{}"#, "parts"),
            (r#","artifact":{"parts":[{"raw":"!"}]}"#, "raw"),
            (r#","artifact":{"text":"a","metadata":[]}"#, "metadata"),
            (r#","artifact":{"text":"a"},"message":"b""#, "one of status"),
        ] {
            let line = format!(r#"{{"turn":"7"{members}}}"#);
            assert!(wrong(&line).contains(expected), "{line}: {}", wrong(&line));
        }
        for line in ["", "Traceback", "{}", r#"{"turn":"x","status":"working"}"#, "[7]"] {
            assert!(EventLine::read(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn http_answer_needs_no_turn_member() {
        let kinds = |json: &str| -> Result<String, String> {
            let events = read_answer(json.as_bytes()).map_err(|error| error.to_string())?;
            let kind = |event: &LineEvent| match event {
                LineEvent::Status { .. } => 's',
                LineEvent::Artifact { .. } => 'a',
                LineEvent::Message(_) => 'm',
            };
            Ok(events.iter().map(kind).collect())
        };
        for (json, expected) in [
            (r#" "hello" "#, "m"),
            (r#"{"message":"hello"}"#, "m"),
            (r#"{"turn":"7","status":"completed","message":"hello"}"#, "s"),
            (r#"[{"status":"working"},{"artifact":{"text":"a"}},"done"]"#, "sam"),
            ("[]", ""),
        ] {
            assert_eq!(kinds(json).as_deref(), Ok(expected), "{json}");
        }
        for (json, expected) in [
            ("", "EOF"),
            ("null", "one of status"),
            ("7", "one of status"),
            ("{}", "one of status"),
            ("[[]]", "one of status"),
            (r#"{"answer":"hello"}"#, "one of status"),
            ("<html>", "expected value"),
        ] {
            assert!(kinds(json).unwrap_err().contains(expected), "{json}: {:?}", kinds(json));
        }
    }

    #[test]
    fn turn_is_written_as_one_line() {
        let metadata = JsonObject::parse("{\"a\":\n1}").unwrap();
        let message = MessageBuf::user(&PartsBuf::new().text("a\nb")).id("m");
        let mut out = Vec::new();
        let mut history = Vec::new();
        push_history(&mut history, message.view());
        let turn = TurnLine {
            turn: 7,
            task_id: RawText::known(b"t"),
            context_id: RawText::known(b"c"),
            state: Some(TaskState::InputRequired),
            message: message.view(),
            metadata: Some(metadata),
            caller: Some("alice \"a\""),
            tenant: None,
            deadline_unix_ms: Some(9),
            history: &history,
        };
        turn.write(&mut out);
        write_cancel(&mut out, 7, RawText::known(b"t"));
        let text = String::from_utf8(out).unwrap();
        let message = r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a\nb"}]}"#;
        let expected = [
            r#"{"type":"turn","turn":"7","taskId":"t","contextId":"c","version":1,"#,
            r#""state":"input-required","caller":"alice \"a\"","deadlineUnixMs":9,"#,
            &format!(r#""message":{message},"metadata":{{"a": 1}},"history":[{message}]}}"#),
            "\n",
            r#"{"type":"cancel","turn":"7","taskId":"t"}"#,
            "\n",
        ];
        assert_eq!(text, expected.concat());
    }
}
