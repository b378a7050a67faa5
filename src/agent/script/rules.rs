//! Rules and steps, checked and packed.
//!
//! The law of this file: a [`Rule`] that exists can be run: its states, JSON and base64 are valid,
//! nothing follows the end of its task, and its counts fit a token.

use std::cmp::Reverse;

use super::{
    ScriptError,
    reader::{Node, suggest},
};
use crate::{
    json::{Parser, base64::normalise},
    limits::Limits,
    model::{
        Message, PartsBuf, Role, TaskState,
        build::put_text,
        pack::{Packer, artifact_tag, message_tag, part_tag},
    },
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
        /// Packed artifact.
        packed: Vec<u8>,
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
    const ARTIFACT: [&str; 7] =
        ["artifact", "name", "description", "parts", "append", "last_chunk", "payload_bytes"];
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
        put_text_part(&mut packer, message_tag::PART, text);
    }
    let says = (text.is_some() || filler.is_some()).then_some(says);
    Ok(Act::Status { state, says })
}

fn artifact(node: &Node<'_>) -> Result<Act, ScriptError> {
    let mut packed = Vec::new();
    let mut packer = Packer(&mut packed);
    put_text(&mut packer, artifact_tag::ARTIFACT_ID, node.need_text("artifact")?);
    if let Some(name) = node.text("name")? {
        put_text(&mut packer, artifact_tag::NAME, name);
    }
    if let Some(description) = node.text("description")? {
        put_text(&mut packer, artifact_tag::DESCRIPTION, description);
    }
    let filler = filler(node)?;
    let parts = node.tables("parts", "part")?;
    if parts.is_empty() && filler.is_none() {
        return Err(node.wrong("parts", "must hold at least one part"));
    }
    for part in &parts {
        put_part(&mut packer, artifact_tag::PART, part)?;
    }
    if let Some(filler) = filler {
        put_text_part(&mut packer, artifact_tag::PART, &filler);
    }
    let append = node.flag("append")?.unwrap_or(false);
    let last_chunk = node.flag("last_chunk")?.unwrap_or(false);
    Ok(Act::Artifact { packed, append, last_chunk })
}

fn message(node: &Node<'_>) -> Result<Act, ScriptError> {
    let mut packed = Vec::new();
    let parts = node.tables("message", "part")?;
    if parts.is_empty() {
        return Err(node.wrong("message", "must hold at least one part"));
    }
    for part in &parts {
        put_part(&mut Packer(&mut packed), message_tag::PART, part)?;
    }
    Ok(Act::Message(Message(&packed).parts().fold(PartsBuf::new(), PartsBuf::part)))
}

fn filler(node: &Node<'_>) -> Result<Option<String>, ScriptError> {
    let size = node.number("payload_bytes", 0..PAYLOAD_BYTES_END)?;
    Ok(size.filter(|size| *size > 0).map(|size| "x".repeat(size as usize)))
}

fn put_text_part(packer: &mut Packer<'_>, tag: u8, text: &str) {
    let part = packer.open(tag);
    put_text(packer, part_tag::TEXT, text);
    packer.close(part);
}

fn put_part(packer: &mut Packer<'_>, tag: u8, node: &Node<'_>) -> Result<(), ScriptError> {
    node.allow(&["text", "url", "bytes", "data", "filename", "media_type"])?;
    let content = ["text", "url", "bytes", "data"];
    if content.iter().filter(|key| node.has(key)).count() != 1 {
        return Err(node.fail("needs exactly one of `text`, `url`, `bytes` and `data`"));
    }
    let part = packer.open(tag);
    if let Some(text) = node.text("text")? {
        put_text(packer, part_tag::TEXT, text);
    }
    if let Some(url) = node.text("url")? {
        put_text(packer, part_tag::URL, url);
    }
    if let Some(bytes) = node.text("bytes")? {
        let bytes = normalise(bytes).ok_or_else(|| node.wrong("bytes", "is not base64"))?;
        packer.put(part_tag::RAW, bytes.as_bytes());
    }
    if let Some(data) = node.text("data")? {
        let depth = Limits::default().json_depth_max;
        if let Err(error) = Parser::new().parse(data.as_bytes(), depth) {
            return Err(node.wrong("data", &format!("is not JSON: {error}")));
        }
        packer.put(part_tag::DATA, data.trim().as_bytes());
    }
    if let Some(filename) = node.text("filename")? {
        put_text(packer, part_tag::FILENAME, filename);
    }
    if let Some(media_type) = node.text("media_type")? {
        put_text(packer, part_tag::MEDIA_TYPE, media_type);
    }
    packer.close(part);
    Ok(())
}
