//! The common writers of the generations before 1.0; a [`Spelling`] holds their differences.
//!
//! Invariant: strict output. Members that the generation of the spelling does not define are
//! omitted, and inexpressible values are mapped as in wire §1.9.

use crate::model::{
    Artifact, Content, Generation, Message, Part, RawText, Role, TaskState, TaskView,
    pack::{artifact_tag, message_tag},
};

use super::{
    json_out::{self, TaskRef},
    v1,
};

/// The wire format of a dialect's objects before 1.0.
pub(super) struct Spelling {
    /// The wire family, for rules of the generation beyond the format.
    pub generation: Generation,
    /// The text before a task's id, with the opening quote.
    pub task: &'static [u8],
    /// The text before a task's context id, with the opening quote.
    pub context: &'static [u8],
    /// The text before a message's id, with the opening quote.
    pub message: &'static [u8],
    /// The text before a second copy of the message's id, with the opening quote; empty: no copy.
    pub message_again: &'static [u8],
    /// The text before a part's text, with the opening quote.
    pub text: &'static [u8],
    /// The text before the members of a part's `file`.
    pub file: &'static [u8],
    /// The text before the value of a part's `data`.
    pub data: &'static [u8],
    /// True: all parts except text have the form of 1.0, and `file` and `data` are unused.
    pub parts_v1: bool,
    /// True: a task states whether it is `final`.
    pub task_final: bool,
    /// The name of a state.
    pub state: fn(TaskState) -> &'static [u8],
}

/// The fields of a status.
#[derive(Clone, Copy)]
pub(super) struct StatusOut<'a> {
    pub state: TaskState,
    pub at_ms: u64,
    pub message: Option<Message<'a>>,
}

/// Appends a task.
#[inline]
pub(super) fn task(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    view: &TaskView<'_>,
    history: Option<u32>,
) {
    listed_task(out, spelling, view, history, true);
}

/// Appends a task; its artifacts only if they are requested.
pub(super) fn listed_task(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    view: &TaskView<'_>,
    history: Option<u32>,
    artifacts: bool,
) {
    out.reserve(view.bytes() + 1024);
    let task_ref = TaskRef { task_id: view.id().raw(), context_id: view.context_id().raw() };
    let status_out = view.status();
    let status_out =
        StatusOut { state: status_out.state, at_ms: status_out.at_ms, message: status_out.message };
    task_head(out, spelling, status_out, task_ref);
    if artifacts {
        json_out::list(out, b",\"artifacts\":[", view.artifacts(), false, |out, whole| {
            artifact(out, spelling, whole.index(), whole.head(), whole.parts());
            out.push(b'}');
        });
    }
    // 0.1: history is sent only to clients that request it; the shared reader returns `None` if the
    // request does not mention it.
    let history = match spelling.generation {
        Generation::V01 => Some(history.unwrap_or(0)),
        Generation::V03 | Generation::V1 => history,
    };
    if history != Some(0) {
        let messages = view.history(history);
        json_out::list(out, b",\"history\":[", messages, false, |out, m| {
            message(out, spelling, m, task_ref)
        });
    }
    task_tail(out, spelling, status_out.state);
}

/// Appends the task that represents a direct message in dialects that answer only with tasks.
///
/// Wire §1.9: a completed task with `status.message`.
pub(super) fn direct_task(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    message: Message<'_>,
    at_ms: u64,
    task_ref: TaskRef<'_>,
) {
    let status_out = StatusOut { state: TaskState::Completed, at_ms, message: Some(message) };
    task_head(out, spelling, status_out, task_ref);
    task_tail(out, spelling, status_out.state);
}

fn task_head(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    status_out: StatusOut<'_>,
    task_ref: TaskRef<'_>,
) {
    json_out::id(out, spelling.task, task_ref.task_id);
    json_out::id(out, spelling.context, task_ref.context_id);
    status(out, spelling, status_out, task_ref);
}

fn task_tail(out: &mut Vec<u8>, spelling: &Spelling, state: TaskState) {
    if spelling.task_final {
        json_out::flag(
            out,
            b",\"final\":",
            state.is_terminal() || state == TaskState::InputRequired,
        );
    }
    out.push(b'}');
}

/// Appends `,"status":{…}`.
pub(super) fn status(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    status_out: StatusOut<'_>,
    task_ref: TaskRef<'_>,
) {
    json_out::text(out, b",\"status\":{\"state\":\"", (spelling.state)(status_out.state));
    if let Some(status_message) = status_out.message {
        out.extend_from_slice(b",\"message\":");
        message(out, spelling, status_message, task_ref);
    }
    json_out::timestamp(out, status_out.at_ms);
    out.push(b'}');
}

/// Appends a message.
pub(super) fn message(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    message: Message<'_>,
    task_ref: TaskRef<'_>,
) {
    if let (Some((id, text)), true) = (message.as_user_text(), spelling.message_again.is_empty()) {
        match spelling.generation {
            Generation::V01 => out.extend_from_slice(b"{\"role\":\"user\",\"parts\":["),
            Generation::V03 | Generation::V1 => {
                out.extend_from_slice(spelling.message);
                out.extend_from_slice(id.raw());
                out.extend_from_slice(b"\",\"role\":\"user\",\"parts\":[");
            }
        }
        out.extend_from_slice(spelling.text);
        out.extend_from_slice(text.raw());
        out.extend_from_slice(b"\"}]}");
        return;
    }
    out.reserve(message.0.len() + 256);
    let role = message.role();
    match spelling.generation {
        Generation::V01 => out.push(b'{'),
        Generation::V03 | Generation::V1 => {
            message_ids(out, spelling, message, task_ref);
            out.push(b',');
        }
    }
    out.extend_from_slice(match role {
        Role::User => b"\"role\":\"user\",\"parts\":[",
        Role::Agent => b"\"role\":\"agent\",\"parts\":[",
    });
    json_out::list(out, b"", message.parts(), true, |out, p| part(out, spelling, p));
    json_out::object_some(out, b",\"metadata\":", message.metadata());
    if spelling.generation != Generation::V01 {
        let all = |tag: u8| message.fields().filter(move |f| f.0 == tag).map(|f| f.1);
        json_out::texts(out, b",\"extensions\":[", all(message_tag::EXTENSION));
        json_out::texts(out, b",\"referenceTaskIds\":[", all(message_tag::REFERENCE));
    }
    out.push(b'}');
}

fn message_ids(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    message: Message<'_>,
    task_ref: TaskRef<'_>,
) {
    json_out::text(out, spelling.message, message.message_id().raw());
    if !spelling.message_again.is_empty() {
        json_out::text(out, spelling.message_again, message.message_id().raw());
    }
    message_task_ref(out, message, task_ref);
}

/// Agent messages have the ids of their task and context; user messages the ids that they came
/// with.
#[inline]
pub(super) fn message_task_ref(out: &mut Vec<u8>, message: Message<'_>, task_ref: TaskRef<'_>) {
    let task_ref = match message.role() {
        Role::Agent => task_ref,
        Role::User => TaskRef { task_id: b"", context_id: b"" },
    };
    let non_empty = |id| Some(RawText::known(id)).filter(|id| !id.is_empty());
    json_out::text_some(
        out,
        b",\"contextId\":\"",
        message.context_id().or(non_empty(task_ref.context_id)),
    );
    json_out::text_some(out, b",\"taskId\":\"", message.task_id().or(non_empty(task_ref.task_id)));
}

#[inline]
fn text_part(out: &mut Vec<u8>, spelling: &Spelling, text: RawText<'_>) {
    out.extend_from_slice(spelling.text);
    out.extend_from_slice(text.raw());
    out.extend_from_slice(b"\"}");
}

#[inline]
fn part(out: &mut Vec<u8>, spelling: &Spelling, part: Part<'_>) {
    match part.as_text() {
        Some(text) => text_part(out, spelling, text),
        None => any_part(out, spelling, part),
    }
}

fn any_part(out: &mut Vec<u8>, spelling: &Spelling, part: Part<'_>) {
    if spelling.parts_v1 {
        return v1::any_part(out, part);
    }
    let metadata = part.metadata();
    match part.content() {
        Content::Text(text) => json_out::text(out, spelling.text, text.raw()),
        Content::Raw(raw) => file(out, spelling, part, b"\"bytes\":\"", raw.raw()),
        Content::Url(url) => file(out, spelling, part, b"\"uri\":\"", url.raw()),
        Content::Data(data) => {
            let data = data.raw();
            out.extend_from_slice(spelling.data);
            // 0.3: an object; 0.1: an object or an array. Any other value is wrapped and marked.
            let fits = match (data.first(), spelling.generation) {
                (Some(b'{'), _) | (Some(b'['), Generation::V01) => true,
                (_, Generation::V01 | Generation::V03 | Generation::V1) => false,
            };
            if !fits {
                json_out::json(out, b"{\"value\":", data);
                out.push(b'}');
                json_out::wrapped_mark(out, metadata);
                out.push(b'}');
                return;
            }
            out.extend_from_slice(data);
        }
        Content::Unknown(part) => return out.extend_from_slice(part.raw()),
    }
    json_out::object_some(out, b",\"metadata\":", metadata);
    out.push(b'}');
}

fn file(out: &mut Vec<u8>, spelling: &Spelling, part: Part<'_>, key: &[u8], content: &[u8]) {
    out.extend_from_slice(spelling.file);
    let member = |out: &mut Vec<u8>, key: &[u8], value: &[u8]| {
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        json_out::text(out, key, value);
    };
    // 0.1: a file with only a name has no `uri`.
    let named_only = spelling.generation == Generation::V01
        && matches!(part.content(), Content::Url(url) if url.is_empty());
    if !named_only {
        member(out, key, content);
    }
    if let Some(name) = part.filename() {
        member(out, b"\"name\":\"", name.raw());
    }
    if let Some(media_type) = part.media_type() {
        member(out, b"\"mimeType\":\"", media_type.raw());
    }
    out.push(b'}');
}

/// Appends an artifact up to its closing brace, which the caller appends.
pub(super) fn artifact<'a>(
    out: &mut Vec<u8>,
    spelling: &Spelling,
    index: u32,
    head: Artifact<'a>,
    parts: impl Iterator<Item = Part<'a>>,
) {
    match spelling.generation {
        Generation::V01 => {
            out.extend_from_slice(b"{\"index\":");
            crate::json::write::push_u64(
                out,
                u64::from(artifact_index(head.artifact_id().raw(), index)),
            );
        }
        Generation::V03 | Generation::V1 => {
            json_out::text(out, b"{\"artifactId\":\"", head.artifact_id().raw());
        }
    }
    let fields = head.fields();
    if head.as_text().is_some() {
        // Omits the name, the description and the other members.
        json_out::list(out, b",\"parts\":[", parts, true, |out, p| part(out, spelling, p));
        return;
    }
    json_out::text_some(out, b",\"name\":\"", head.name());
    json_out::text_some(out, b",\"description\":\"", head.description());
    json_out::list(out, b",\"parts\":[", parts, true, |out, p| part(out, spelling, p));
    json_out::object_some(out, b",\"metadata\":", head.metadata());
    if spelling.generation != Generation::V01 {
        let extensions = fields.filter(|f| f.0 == artifact_tag::EXTENSION).map(|f| f.1);
        json_out::texts(out, b",\"extensions\":[", extensions);
    }
}

/// The `index` of an artifact in 0.1.
///
/// Wire §1.9: artifact id `"n"` has index n. The index of any other id is its position in the task,
/// which is the same in chunks, replays and the whole task.
fn artifact_index(id: &[u8], in_task: u32) -> u32 {
    let is_number = !id.is_empty() && id.len() <= 9 && id.iter().all(u8::is_ascii_digit);
    if is_number && (id == b"0" || id[0] != b'0') {
        return id.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
    }
    in_task
}
