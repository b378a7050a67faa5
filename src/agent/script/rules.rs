//! Rules and steps, checked and packed.
//!
//! Invariant: every [`Rule`] can run: no step follows the end of its task, and its counts fit a
//! token. Single values were already checked by the reader.

use std::cmp::Reverse;

use super::{
    ScriptError,
    reader::{Location, TomlElement},
    tables::{OptionalKey, PartTable, RuleTable, StepTable},
};
use crate::model::{
    ArtifactBuf, PartBuf, PartsBuf, Role, TaskState,
    pack::{Packer, message_tag},
};

/// The number of rules of a script, and of steps of a rule, must be lower: tokens have 16 bits for
/// each.
pub(super) const COUNT_MAX: usize = 1 << 16;

/// The steps for matching messages.
#[derive(Debug)]
pub(super) struct Rule {
    message_id: String,
    text: String,
    pub steps: Vec<ScriptStep>,
}

/// A step, executed once or repeatedly.
#[derive(Debug)]
pub(super) struct ScriptStep {
    /// The delay before each repetition.
    pub delay_ms: u64,
    pub repeat: u32,
    pub act: Act,
}

/// The events that a step publishes.
pub(super) enum Act {
    Status {
        state: TaskState,
        /// Packed fields of the message, except its id.
        message: Option<Vec<u8>>,
    },
    Artifact {
        artifact: ArtifactBuf,
        append: bool,
        last_chunk: bool,
    },
    /// A direct message.
    Message(PartsBuf),
    /// A direct message with the parsed form of a payload; this text describes how it is parsed.
    Parse(String),
}

impl std::fmt::Debug for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Act::Status { .. } => "Status",
            Act::Artifact { .. } => "Artifact",
            Act::Message(_) => "Message",
            Act::Parse(_) => "Parse",
        })
    }
}

impl Rule {
    /// The words after the prefix in the text of a message.
    pub fn words_of<'t>(&self, text: &'t str) -> &'t str {
        text.strip_prefix(&self.text).unwrap_or(text)
    }

    pub fn matches(&self, message_id: &str, text: &str) -> bool {
        message_id.starts_with(&self.message_id) && text.starts_with(&self.text)
    }
}

impl Act {
    /// True if no step can follow in the task.
    fn ends(&self) -> bool {
        match self {
            Act::Status { state, .. } => state.is_terminal(),
            Act::Artifact { .. } => false,
            Act::Message(_) | Act::Parse(_) => true,
        }
    }
}

/// All rules of the script, in the order in which they are tried.
pub(super) fn rules(
    root: &Location<'_>,
    tables: Vec<TomlElement<RuleTable>>,
) -> Result<Vec<Rule>, ScriptError> {
    if tables.len() >= COUNT_MAX {
        return Err(root.of("rule", COUNT_MAX - 1, &tables[COUNT_MAX - 1]).fail(
            "exceeds the \
             maximum number of \
             rules",
        ));
    }
    let mut rules: Vec<Rule> = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let at = root.of("rule", index, &table);
        let new = rule(&at, table.into_inner().0)?;
        let same = |old: &Rule| old.message_id == new.message_id && old.text == new.text;
        if let Some(first) = rules.iter().position(same) {
            return Err(at.fail(&format!("matches the same as rule {}", first + 1)));
        }
        rules.push(new);
    }
    let length = |rule: &Rule| rule.message_id.len() + rule.text.len();
    rules.sort_by_key(|rule| Reverse((length(rule), rule.message_id.len())));
    Ok(rules)
}

fn rule(at: &Location<'_>, table: RuleTable) -> Result<Rule, ScriptError> {
    if table.step.is_empty() || table.step.len() >= COUNT_MAX {
        return Err(at.fail("needs at least one [[rule.step]] and fewer than 65536"));
    }
    let mut steps: Vec<ScriptStep> = Vec::with_capacity(table.step.len());
    for (index, table) in table.step.into_iter().enumerate() {
        let at = at.of("step", index, &table);
        if steps.last().is_some_and(|last| last.act.ends()) {
            return Err(at.fail("the step before ends the task; nothing can follow"));
        }
        steps.push(step(&at, table.into_inner().0, index)?);
    }
    Ok(Rule { message_id: table.message_id, text: table.text, steps })
}

/// The keys that all steps may have, and those of each kind.
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
const PARSE: [&str; 1] = ["parse"];

fn step(at: &Location<'_>, table: StepTable, index: usize) -> Result<ScriptStep, ScriptError> {
    let delay_ms = table.delay_ms.map_or(0, |delay| delay.0);
    let repeat = table.repeat.as_ref().map_or(1, |repeat| repeat.get_ref().0 as u32);
    let kinds = [
        table.status.is_some(),
        table.artifact.is_some(),
        table.message.is_some(),
        table.parse.is_some(),
    ];
    let own = match kinds {
        [true, false, false, false] => &STATUS[..],
        [false, true, false, false] => &ARTIFACT,
        [false, false, true, false] => &MESSAGE,
        [false, false, false, true] => &PARSE,
        _ => {
            let kinds = "`status`, `artifact`, `message` and `parse`";
            return Err(at.fail(&format!("needs exactly one of {kinds}")));
        }
    };
    if let Some((key, start)) = foreign(&table, own) {
        return Err(at.unknown(key, start, &[own, &COMMON].concat()));
    }
    if index > 0 || delay_ms > 0 {
        let why = "must be the only step and have no delay: any step before it creates a task";
        if table.message.is_some() {
            return Err(at.wrong("message", &table.message, why));
        }
        if table.parse.is_some() {
            return Err(at.wrong("parse", &table.parse, why));
        }
    }
    let repeat_value = table.repeat.clone();
    let act = act(at, table)?;
    if repeat > 1 && act.ends() {
        return Err(at.wrong(
            "repeat",
            &repeat_value,
            "is not allowed on a step that ends the task",
        ));
    }
    Ok(ScriptStep { delay_ms, repeat, act })
}

/// The first key of a step that does not belong to its kind, and the position of its value.
fn foreign(table: &StepTable, own: &[&str]) -> Option<(&'static str, usize)> {
    fn start<T>(key: &OptionalKey<T>) -> Option<usize> {
        key.as_ref().map(|value| value.span().start)
    }
    let present = [
        ("text", start(&table.text)),
        ("payload_bytes", start(&table.payload_bytes)),
        ("name", start(&table.name)),
        ("description", start(&table.description)),
        ("parts", start(&table.parts)),
        ("metadata", start(&table.metadata)),
        ("append", start(&table.append)),
        ("last_chunk", start(&table.last_chunk)),
    ];
    let present = present.into_iter().filter_map(|(key, start)| Some((key, start?)));
    present.filter(|(key, _)| !own.contains(key)).min_by_key(|(_, start)| *start)
}

/// The action of a step; exactly one kind is present.
fn act(at: &Location<'_>, table: StepTable) -> Result<Act, ScriptError> {
    let filler = table.payload_bytes.map_or(0, |size| size.into_inner().0);
    let filler = (filler > 0).then(|| "x".repeat(filler as usize));
    if let Some(state) = table.status {
        let text = table.text.map(toml::Spanned::into_inner);
        return Ok(status(state.0, text.as_deref(), filler.as_deref()));
    }
    if let Some(words) = table.parse {
        return Ok(Act::Parse(words.into_inner().0));
    }
    let Some(artifact_id) = table.artifact else {
        return parts(at, "message", table.message, false).map(Act::Message);
    };
    let mut parts = parts(at, "parts", table.parts, filler.is_some())?;
    if let Some(filler) = &filler {
        parts = parts.text(filler);
    }
    let mut artifact = ArtifactBuf::new(&artifact_id.0, &parts);
    if let Some(name) = table.name {
        artifact = artifact.name(name.get_ref());
    }
    if let Some(description) = table.description {
        artifact = artifact.description(description.get_ref());
    }
    if let Some(metadata) = table.metadata {
        artifact = artifact.metadata(metadata.get_ref().0.view());
    }
    let append = table.append.is_some_and(|append| *append.get_ref());
    let last_chunk = table.last_chunk.is_some_and(|last| *last.get_ref());
    Ok(Act::Artifact { artifact, append, last_chunk })
}

fn status(state: TaskState, text: Option<&str>, filler: Option<&str>) -> Act {
    let mut message = Vec::new();
    let mut packer = Packer(&mut message);
    packer.put(message_tag::ROLE, &[Role::Agent as u8]);
    for text in [text, filler].into_iter().flatten() {
        packer.put(message_tag::PART, PartBuf::text(text).view().packed());
    }
    let message = (text.is_some() || filler.is_some()).then_some(message);
    Act::Status { state, message }
}

fn parts(
    at: &Location<'_>,
    key: &str,
    tables: OptionalKey<Vec<TomlElement<PartTable>>>,
    may_be_empty: bool,
) -> Result<PartsBuf, ScriptError> {
    let is_empty = tables.as_ref().is_none_or(|tables| tables.get_ref().is_empty());
    if is_empty && !may_be_empty {
        return Err(at.wrong(key, &tables, "must hold at least one part"));
    }
    let mut parts = PartsBuf::new();
    for (index, table) in tables.into_iter().flat_map(toml::Spanned::into_inner).enumerate() {
        let at = at.of("part", index, &table);
        parts = parts.part(&part(&at, table.into_inner().0)?);
    }
    Ok(parts)
}

fn part(at: &Location<'_>, table: PartTable) -> Result<PartBuf, ScriptError> {
    let mut part = match (table.text, table.url, table.bytes, table.data) {
        (Some(text), None, None, None) => PartBuf::text(&text),
        (None, Some(url), None, None) => PartBuf::url(&url),
        (None, None, Some(bytes), None) => bytes.0,
        (None, None, None, Some(data)) => data.0,
        _ => return Err(at.fail("needs exactly one of `text`, `url`, `bytes` and `data`")),
    };
    if let Some(filename) = table.filename {
        part = part.filename(&filename);
    }
    if let Some(media_type) = table.media_type {
        part = part.media_type(&media_type);
    }
    if let Some(metadata) = table.metadata {
        part = part.metadata(metadata.0.view());
    }
    Ok(part)
}
