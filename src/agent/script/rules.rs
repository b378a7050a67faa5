//! Rules and steps, checked and packed.
//!
//! The law of this file: a [`Rule`] that exists can be run: its states, JSON and base64 are valid,
//! nothing follows the end of its task, and its counts fit a token.

use std::cmp::Reverse;

use super::{
    ScriptError,
    reader::{Node, suggest},
};
use crate::model::{
    ArtifactBuf, Json, JsonObject, PartBuf, PartsBuf, Role, TaskState, ValueError,
    pack::{Packer, message_tag},
};

/// One more than the rules of a script, and the steps of a rule: the tokens have 16 bits for each.
pub(super) const COUNT_MAX: usize = 1 << 16;

/// One more than the longest delay: a day, so that a typing error ends some day.
const DELAY_MS_END: u64 = 86_400_001;

/// One more than the most repetitions; a task of more has long outgrown its bytes.
const REPEAT_END: u64 = 1_000_001;

/// One more than the largest filler: the largest body, which is the most a client could send.
const PAYLOAD_BYTES_END: u64 = 4 * 1024 * 1024 + 1;

/// The states a script can name.
const STATES: [(&str, TaskState); 8] = [
    ("submitted", TaskState::Submitted),
    ("working", TaskState::Working),
    ("completed", TaskState::Completed),
    ("failed", TaskState::Failed),
    ("canceled", TaskState::Canceled),
    ("rejected", TaskState::Rejected),
    ("input-required", TaskState::InputRequired),
    ("auth-required", TaskState::AuthRequired),
];

/// What to do with which messages.
#[derive(Debug)]
pub(super) struct Rule {
    message_id: String,
    text: String,
    pub steps: Vec<Step>,
}

/// One thing to do, once or more often.
#[derive(Debug)]
pub(super) struct Step {
    /// Before each repetition.
    pub delay_ms: u64,
    pub repeat: u32,
    pub act: Act,
}

/// What a step publishes.
pub(super) enum Act {
    Status {
        state: TaskState,
        /// Packed fields of the message, all but its id.
        says: Option<Vec<u8>>,
    },
    Artifact {
        artifact: ArtifactBuf,
        append: bool,
        last_chunk: bool,
    },
    /// A direct message.
    Message(PartsBuf),
}

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Act::Status { .. } => "Status",
            Act::Artifact { .. } => "Artifact",
            Act::Message(_) => "Message",
        })
    }
}

impl Rule {
    pub fn matches(&self, message_id: &str, text: &str) -> bool {
        message_id.starts_with(&self.message_id) && text.starts_with(&self.text)
    }
}

impl Act {
    /// True when nothing can happen in the task afterwards.
    fn ends(&self) -> bool {
        match self {
            Act::Status { state, .. } => state.is_terminal(),
            Act::Artifact { .. } => false,
            Act::Message(_) => true,
        }
    }
}

/// All rules of the script, best match first.
pub(super) fn rules(root: &Node<'_>) -> Result<Vec<Rule>, ScriptError> {
    let nodes = root.tables("rule", "rule")?;
    if nodes.len() >= COUNT_MAX {
        return Err(root.wrong("rule", "is there too often"));
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let new = rule(node)?;
        let same = |old: &Rule| old.message_id == new.message_id && old.text == new.text;
        if let Some(first) = rules.iter().position(same) {
            return Err(node.fail(&format!("matches the same as rule {}", first + 1)));
        }
        rules.push(new);
    }
    let length = |rule: &Rule| rule.message_id.len() + rule.text.len();
    rules.sort_by_key(|rule| Reverse((length(rule), rule.message_id.len())));
    Ok(rules)
}

fn rule(node: &Node<'_>) -> Result<Rule, ScriptError> {
    node.allow(&["message_id", "text", "step"])?;
    let nodes = node.tables("step", "step")?;
    if nodes.is_empty() || nodes.len() >= COUNT_MAX {
        return Err(node.fail("needs at least one [[rule.step]] and fewer than 65536"));
    }
    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    for node in &nodes {
        if steps.last().is_some_and(|last| last.act.ends()) {
            return Err(node.fail("the step before ends the task; nothing can follow"));
        }
        let step = step(node)?;
        if matches!(step.act, Act::Message(_)) && (!steps.is_empty() || step.delay_ms > 0) {
            let why = "stands alone and without delay: whatever comes before it makes a task";
            return Err(node.wrong("message", why));
        }
        steps.push(step);
    }
    let prefix = |key| Ok(node.text(key)?.unwrap_or_default().to_owned());
    Ok(Rule { message_id: prefix("message_id")?, text: prefix("text")?, steps })
}

fn step(node: &Node<'_>) -> Result<Step, ScriptError> {
    const COMMON: [&str; 2] = ["delay_ms", "repeat"];
    const STATUS: [&str; 3] = ["status", "text", "payload_bytes"];
    const ARTIFACT: [&str; 8] = [
        "artifact",
        "name",
        "description",
        "parts",
        "metadata",
        "append",
        "last_chunk",
        "payload_bytes",
    ];
    const MESSAGE: [&str; 1] = ["message"];
    // A misspelled key first: it may be the reason why the kind of step is unclear.
    node.allow(&[&COMMON[..], &STATUS, &ARTIFACT, &MESSAGE].concat())?;
    let kinds = ["status", "artifact", "message"].map(|key| node.has(key));
    let (own, act) = match kinds {
        [true, false, false] => (&STATUS[..], status(node)?),
        [false, true, false] => (&ARTIFACT[..], artifact(node)?),
        [false, false, true] => (&MESSAGE[..], message(node)?),
        _ => return Err(node.fail("needs exactly one of `status`, `artifact` and `message`")),
    };
    node.allow(&[own, &COMMON].concat())?;
    let repeat = node.number("repeat", 1..REPEAT_END)?.unwrap_or(1) as u32;
    if repeat > 1 && act.ends() {
        return Err(node.wrong("repeat", "is not for a step that ends the task"));
    }
    let delay_ms = node.number("delay_ms", 0..DELAY_MS_END)?.unwrap_or(0);
    Ok(Step { delay_ms, repeat, act })
}

fn status(node: &Node<'_>) -> Result<Act, ScriptError> {
    let name = node.need_text("status")?;
    let Some(&(_, state)) = STATES.iter().find(|(known, _)| *known == name) else {
        let hint = suggest(name, &STATES.map(|(name, _)| name));
        return Err(node.wrong("status", &format!("cannot be `{name}`; {hint}")));
    };
    let (text, filler) = (node.text("text")?, filler(node)?);
    let mut says = Vec::new();
    let mut packer = Packer(&mut says);
    packer.put(message_tag::ROLE, &[Role::Agent as u8]);
    for text in [text, filler.as_deref()].into_iter().flatten() {
        packer.put(message_tag::PART, PartBuf::text(text).view().packed());
    }
    let says = (text.is_some() || filler.is_some()).then_some(says);
    Ok(Act::Status { state, says })
}

fn artifact(node: &Node<'_>) -> Result<Act, ScriptError> {
    let artifact_id = node.need_text("artifact")?;
    let filler = filler(node)?;
    let mut parts = parts(node, "parts", filler.is_some())?;
    if let Some(filler) = &filler {
        parts = parts.text(filler);
    }
    let mut artifact = ArtifactBuf::new(artifact_id, &parts);
    if let Some(name) = node.text("name")? {
        artifact = artifact.name(name);
    }
    if let Some(description) = node.text("description")? {
        artifact = artifact.description(description);
    }
    if let Some(metadata) = object(node, "metadata")? {
        artifact = artifact.metadata(metadata);
    }
    let append = node.flag("append")?.unwrap_or(false);
    let last_chunk = node.flag("last_chunk")?.unwrap_or(false);
    Ok(Act::Artifact { artifact, append, last_chunk })
}

fn message(node: &Node<'_>) -> Result<Act, ScriptError> {
    parts(node, "message", false).map(Act::Message)
}

fn parts(node: &Node<'_>, key: &str, may_be_empty: bool) -> Result<PartsBuf, ScriptError> {
    let nodes = node.tables(key, "part")?;
    if nodes.is_empty() && !may_be_empty {
        return Err(node.wrong(key, "must hold at least one part"));
    }
    let mut parts = PartsBuf::new();
    for node in &nodes {
        parts = parts.part(&part(node)?);
    }
    Ok(parts)
}

fn filler(node: &Node<'_>) -> Result<Option<String>, ScriptError> {
    let size = node.number("payload_bytes", 0..PAYLOAD_BYTES_END)?;
    Ok(size.filter(|size| *size > 0).map(|size| "x".repeat(size as usize)))
}

fn part(node: &Node<'_>) -> Result<PartBuf, ScriptError> {
    node.allow(&["text", "url", "bytes", "data", "filename", "media_type", "metadata"])?;
    let content = ["text", "url", "bytes", "data"].map(|key| node.text(key));
    let mut part = match content {
        [Ok(Some(text)), Ok(None), Ok(None), Ok(None)] => PartBuf::text(text),
        [Ok(None), Ok(Some(url)), Ok(None), Ok(None)] => PartBuf::url(url),
        [Ok(None), Ok(None), Ok(Some(bytes)), Ok(None)] => {
            PartBuf::base64(bytes).map_err(|_| node.wrong("bytes", "is not base64"))?
        }
        [Ok(None), Ok(None), Ok(None), Ok(Some(data))] => {
            let data = Json::parse(data);
            PartBuf::data(data.map_err(|error| node.wrong("data", &not_json(error)))?)
        }
        [Err(error), ..] | [_, Err(error), ..] | [_, _, Err(error), _] | [.., Err(error)] => {
            return Err(error);
        }
        _ => return Err(node.fail("needs exactly one of `text`, `url`, `bytes` and `data`")),
    };
    if let Some(filename) = node.text("filename")? {
        part = part.filename(filename);
    }
    if let Some(media_type) = node.text("media_type")? {
        part = part.media_type(media_type);
    }
    if let Some(metadata) = object(node, "metadata")? {
        part = part.metadata(metadata);
    }
    Ok(part)
}

/// A JSON object in a string.
pub(super) fn object<'t>(
    node: &Node<'t>,
    key: &str,
) -> Result<Option<JsonObject<'t>>, ScriptError> {
    let Some(text) = node.text(key)? else { return Ok(None) };
    let object = JsonObject::parse(text);
    object.map(Some).map_err(|error| node.wrong(key, &not_json(error)))
}

fn not_json(error: ValueError) -> String {
    match error {
        ValueError::Json(error) => format!("is not JSON: {error}"),
        other => format!("cannot be used: {other}"),
    }
}
