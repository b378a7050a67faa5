//! The tables of a script, their keys, and the values that are valid by themselves.

use serde::Deserialize;
use toml::Spanned;

use super::{
    reader::{TomlElement, TomlTable, Whole, texts},
    suggest::suggest,
};
use crate::model::{
    Extension, Json, JsonObject, JsonObjectBuf, PartBuf, Profile, Provider, Skill, TaskState,
    ValueError,
};

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub agent: Option<TomlTable<AgentTable>>,
    #[serde(default)]
    pub rule: Vec<TomlElement<RuleTable>>,
}

/// The fields of the card.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentTable {
    name: Option<String>,
    description: Option<String>,
    version: Option<String>,
    provider: Option<TomlTable<ProviderTable>>,
    documentation_url: Option<String>,
    icon_url: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    input_modes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "texts")]
    output_modes: Option<Vec<String>>,
    streaming: Option<bool>,
    #[serde(default)]
    skills: Vec<TomlTable<SkillTable>>,
    #[serde(default)]
    extensions: Vec<TomlTable<ExtensionTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderTable {
    organization: Name,
    url: Name,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillTable {
    id: Name,
    name: Option<String>,
    description: Option<String>,
    #[serde(default, deserialize_with = "texts")]
    tags: Option<Vec<String>>,
    #[serde(default, deserialize_with = "texts")]
    examples: Option<Vec<String>>,
    #[serde(default, deserialize_with = "texts")]
    input_modes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "texts")]
    output_modes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "texts")]
    scopes: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtensionTable {
    uri: Name,
    #[serde(default)]
    description: String,
    #[serde(default)]
    required: bool,
    params: Option<Object>,
}

/// The steps for matching messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    #[serde(default)]
    pub message_id: String,
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub step: Vec<TomlElement<StepTable>>,
}

/// At most a day, to bound the effect of a typing error.
pub(super) type DelayMs = Whole<0, 86_400_000>;

/// More repetitions would exceed the maximum bytes of a task.
pub(super) type Repeat = Whole<1, 1_000_000>;

/// At most the largest body that a client could send.
pub(super) type PayloadBytes = Whole<0, { 4 * 1024 * 1024 }>;

/// An optional key, with the position of its value.
pub(super) type OptionalKey<T> = Option<Spanned<T>>;

/// A step; the valid combinations of keys depend on its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepTable {
    pub delay_ms: Option<DelayMs>,
    pub repeat: OptionalKey<Repeat>,
    pub payload_bytes: OptionalKey<PayloadBytes>,
    pub status: Option<TaskStateName>,
    pub text: OptionalKey<String>,
    pub artifact: Option<Name>,
    pub name: OptionalKey<String>,
    pub description: OptionalKey<String>,
    pub parts: OptionalKey<Vec<TomlElement<PartTable>>>,
    pub metadata: OptionalKey<Object>,
    pub append: OptionalKey<bool>,
    pub last_chunk: OptionalKey<bool>,
    pub message: OptionalKey<Vec<TomlElement<PartTable>>>,
    pub parse: OptionalKey<Name>,
}

/// A part of a message or an artifact.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartTable {
    pub text: Option<String>,
    pub url: Option<String>,
    pub bytes: Option<Base64>,
    pub data: Option<Data>,
    pub filename: Option<String>,
    pub media_type: Option<String>,
    pub metadata: Option<Object>,
}

/// A string that is not empty.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub String);

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Name, &'static str> {
        if text.is_empty() { Err("must be a non-empty string") } else { Ok(Name(text)) }
    }
}

/// The name of a task's state.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct TaskStateName(pub TaskState);

impl TryFrom<String> for TaskStateName {
    type Error = String;

    fn try_from(name: String) -> Result<TaskStateName, String> {
        let words = TaskState::ALL.map(TaskState::word);
        // The first state, `unknown`, must not be published by agents.
        TaskState::of_word(&name)
            .map(TaskStateName)
            .ok_or_else(|| format!("cannot be `{name}`; {}", suggest(&name, &words[1..])))
    }
}

/// Bytes in base64, as the content of a part.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Base64(pub PartBuf);

impl TryFrom<String> for Base64 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Base64, &'static str> {
        PartBuf::base64(&text).map(Base64).map_err(|_| "is not base64")
    }
}

/// Any JSON in a string, as the content of a part.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Data(pub PartBuf);

impl TryFrom<String> for Data {
    type Error = String;

    fn try_from(text: String) -> Result<Data, String> {
        Json::parse(&text).map(|json| Data(PartBuf::data(json))).map_err(not_json)
    }
}

/// A JSON object in a string.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Object(pub JsonObjectBuf);

impl TryFrom<String> for Object {
    type Error = String;

    fn try_from(text: String) -> Result<Object, String> {
        JsonObject::parse(&text).map(|object| Object(object.into())).map_err(not_json)
    }
}

fn not_json(error: ValueError) -> String {
    match error {
        ValueError::Json(error) => format!("is not JSON: {error}"),
        other => format!("cannot be used: {other}"),
    }
}

impl From<AgentTable> for Profile {
    fn from(agent: AgentTable) -> Profile {
        let name = agent.name.as_deref().unwrap_or("script");
        let description = agent.description.as_deref().unwrap_or("Answers as its script defines");
        let own = Profile::new(name, description);
        let skills: Vec<Skill> = agent.skills.into_iter().map(|table| table.0.into()).collect();
        Profile {
            version: agent.version.unwrap_or(own.version),
            provider: agent.provider.map(|table| table.0.into()),
            documentation_url: agent.documentation_url,
            icon_url: agent.icon_url,
            input_modes: agent.input_modes.unwrap_or(own.input_modes),
            output_modes: agent.output_modes.unwrap_or(own.output_modes),
            skills: if skills.is_empty() { own.skills } else { skills },
            streaming: agent.streaming.unwrap_or(own.streaming),
            extensions: agent.extensions.into_iter().map(|table| table.0.into()).collect(),
            ..own
        }
    }
}

impl From<ProviderTable> for Provider {
    fn from(provider: ProviderTable) -> Provider {
        Provider { organization: provider.organization.0, url: provider.url.0 }
    }
}

impl From<SkillTable> for Skill {
    fn from(skill: SkillTable) -> Skill {
        let id = skill.id.0;
        let name = skill.name.unwrap_or_else(|| id.clone());
        Skill {
            description: skill.description.unwrap_or_else(|| name.clone()),
            tags: skill.tags.unwrap_or_else(|| vec![id.clone()]),
            examples: skill.examples.unwrap_or_default(),
            input_modes: skill.input_modes.unwrap_or_default(),
            output_modes: skill.output_modes.unwrap_or_default(),
            security: Vec::new(),
            scopes: skill.scopes.unwrap_or_default(),
            id,
            name,
        }
    }
}

impl From<ExtensionTable> for Extension {
    fn from(extension: ExtensionTable) -> Extension {
        let ExtensionTable { uri, description, required, params } = extension;
        Extension { uri: uri.0, description, required, params: params.map(|object| object.0) }
    }
}
