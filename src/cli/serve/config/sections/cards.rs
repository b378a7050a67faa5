//! The keys of `[agents.NAME]` about the agent's card: the tables, and the overrides of a profile.

use peregrine::{
    agent::{Extension, Profile, Provider, Skill},
    client::card::AgentCard,
    gateway::profile_of,
    limits::{LimitError, Limits, Unit},
    model::JsonObject,
};

use super::super::tree::{ConfigSection, Key, Shape, Wrong, key};

const PROVIDER: &[Key] = &[
    key("organization", Shape::Text, "", "Name of the organization").live(),
    key("url", Shape::Text, "", "URL of its website").live(),
];

const SKILL: &[Key] = &[
    key("id", Shape::Text, "", "Identifier").live(),
    key("name", Shape::Text, "", "Title; default: its id").live(),
    key("description", Shape::Text, "", "One paragraph; default: its name").live(),
    key("tags", Shape::Texts, "", "Keywords; default: its id").live(),
    key("examples", Shape::Texts, "[]", "Example messages").live(),
    key("input_modes", Shape::Texts, "[]", "Media types, if they differ from the agent's").live(),
    key("output_modes", Shape::Texts, "[]", "Media types, if they differ from the agent's").live(),
    key("scopes", Shape::Texts, "[]", "Scopes required to see it, on the extended card only")
        .live(),
];

const EXTENSION: &[Key] = &[
    key("uri", Shape::Text, "", "URI of the extension, with its version").live(),
    key("description", Shape::Text, "\"\"", "How the agent uses it").live(),
    key("required", Shape::Switch, "false", "Refuses clients that do not declare it").live(),
    key("params", Shape::Text, "", "Parameters for clients: a JSON object").live(),
];

/// The keys of `provider`.
pub fn provider_keys() -> &'static [Key] {
    PROVIDER
}

/// The keys of a skill.
pub fn skill_keys() -> &'static [Key] {
    SKILL
}

/// The keys of an extension.
pub fn extension_keys() -> &'static [Key] {
    EXTENSION
}

/// Overrides of a profile.
#[derive(Clone, Debug, Default)]
pub struct CardOverrides {
    /// One paragraph for people.
    pub description: Option<String>,
    version: Option<String>,
    provider: Option<Provider>,
    documentation_url: Option<String>,
    icon_url: Option<String>,
    input_modes: Option<Vec<String>>,
    output_modes: Option<Vec<String>>,
    streaming: Option<bool>,
    fields: Option<Vec<String>>,
    anonymous: Option<bool>,
    scopes: Option<Vec<String>>,
    reads_all_scopes: Option<bool>,
    quota: Option<String>,
    unfinished_idle_ms: Option<u64>,
    input_required_ttl_ms: Option<u64>,
    skills: Option<Vec<Skill>>,
    extensions: Option<Vec<Extension>>,
}

impl CardOverrides {
    /// The content of a whole card, except its URLs and its security.
    pub fn of_card(card: &AgentCard) -> CardOverrides {
        let profile = profile_of(&card.name, card);
        CardOverrides {
            description: Some(profile.description),
            version: Some(profile.version),
            provider: profile.provider,
            documentation_url: profile.documentation_url,
            icon_url: profile.icon_url,
            input_modes: Some(profile.input_modes),
            output_modes: Some(profile.output_modes),
            streaming: card.capabilities.streaming,
            skills: Some(profile.skills),
            extensions: Some(profile.extensions),
            ..CardOverrides::default()
        }
    }

    /// Replaces the members of a profile that have an override.
    pub fn over(&self, profile: &mut Profile) {
        fn put<T: Clone>(value: &Option<T>, member: &mut T) {
            if let Some(value) = value {
                member.clone_from(value);
            }
        }
        put(&self.description, &mut profile.description);
        put(&self.version, &mut profile.version);
        put(&self.input_modes, &mut profile.input_modes);
        put(&self.output_modes, &mut profile.output_modes);
        put(&self.streaming, &mut profile.streaming);
        put(&self.fields, &mut profile.fields);
        put(&self.anonymous, &mut profile.anonymous);
        put(&self.scopes, &mut profile.scopes);
        put(&self.reads_all_scopes, &mut profile.reads_all_scopes);
        put(&self.skills, &mut profile.skills);
        put(&self.extensions, &mut profile.extensions);
        profile.provider = self.provider.clone().or(profile.provider.take());
        let url = self.documentation_url.clone();
        profile.documentation_url = url.or(profile.documentation_url.take());
        let own = self.unfinished_idle_ms;
        profile.unfinished_idle_ms = own.or(profile.unfinished_idle_ms);
        let own = self.input_required_ttl_ms;
        profile.input_required_ttl_ms = own.or(profile.input_required_ttl_ms);
        profile.quota = self.quota.clone().or(profile.quota.take());
        profile.icon_url = self.icon_url.clone().or(profile.icon_url.take());
    }
}

/// Reads the overrides in the section of an agent.
///
/// # Errors
/// [`Wrong`].
pub fn read(agent: &ConfigSection) -> Result<CardOverrides, Wrong> {
    let text = |name| agent.text(name).map(str::to_owned);
    let skills = agent.sections("skills").iter().map(skill).collect::<Result<Vec<_>, _>>()?;
    let extensions = agent.sections("extensions").iter().map(extension);
    let extensions = extensions.collect::<Result<Vec<_>, _>>()?;
    Ok(CardOverrides {
        description: text("description"),
        version: text("version"),
        provider: provider(agent)?,
        documentation_url: text("documentation_url"),
        icon_url: text("icon_url"),
        input_modes: agent.strings("input_modes"),
        output_modes: agent.strings("output_modes"),
        streaming: agent.switch("streaming"),
        fields: agent.strings("fields"),
        anonymous: agent.switch("anonymous"),
        scopes: agent.strings("scopes"),
        reads_all_scopes: agent.switch("reads_all_scopes"),
        quota: text("quota"),
        unfinished_idle_ms: limit(agent, "unfinished_idle_ms")?,
        input_required_ttl_ms: limit(agent, "input_required_ttl_ms")?,
        skills: Some(skills).filter(|skills| !skills.is_empty()),
        extensions: Some(extensions).filter(|extensions| !extensions.is_empty()),
    })
}

/// The agent's own value of the limit with this name, within the bounds of the limit.
fn limit(agent: &ConfigSection, name: &'static str) -> Result<Option<u64>, Wrong> {
    let Some(text) = agent.text(name) else { return Ok(None) };
    let mut limits = Limits::default();
    limits.set(name, text).map_err(|error| {
        agent.wrong(
            name,
            match error {
                LimitError::Unit => format!("{text:?} is not {}", Unit::of(name).examples()),
                LimitError::Name | LimitError::Value => {
                    format!(
                        "{text:?} must be a whole number above zero and within the range of this \
                         limit"
                    )
                }
            },
        )
    })?;
    let row = limits.rows().into_iter().find(|(row, _)| *row == name);
    Ok(row.map(|(_, value)| value))
}

fn provider(agent: &ConfigSection) -> Result<Option<Provider>, Wrong> {
    let Some(provider) = agent.section("provider").filter(|section| !section.is_empty()) else {
        return Ok(None);
    };
    let (organization, url) = (required(provider, "organization")?, required(provider, "url")?);
    Ok(Some(Provider { organization, url }))
}

fn skill(section: &ConfigSection) -> Result<Skill, Wrong> {
    let id = required(section, "id")?;
    let name = section.text("name").map_or_else(|| id.clone(), str::to_owned);
    let list = |key| section.strings(key).unwrap_or_default();
    Ok(Skill {
        description: section.text("description").map_or_else(|| name.clone(), str::to_owned),
        tags: section.strings("tags").unwrap_or_else(|| vec![id.clone()]),
        examples: list("examples"),
        input_modes: list("input_modes"),
        output_modes: list("output_modes"),
        security: Vec::new(),
        scopes: list("scopes"),
        id,
        name,
    })
}

fn extension(section: &ConfigSection) -> Result<Extension, Wrong> {
    let params = section.text("params").map(|text| match JsonObject::parse(text) {
        Ok(object) => Ok(object.into()),
        Err(error) => Err(section.wrong("params", format!("must be a JSON object: {error}"))),
    });
    Ok(Extension {
        uri: required(section, "uri")?,
        description: section.text("description").unwrap_or_default().to_owned(),
        required: section.switch("required").unwrap_or(false),
        params: params.transpose()?,
    })
}

/// A required, non-empty string.
fn required(section: &ConfigSection, name: &str) -> Result<String, Wrong> {
    match section.text(name) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(section.wrong(name, "must be a non-empty string")),
    }
}
