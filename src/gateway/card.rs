//! The card of a relayed agent: its upstream agent's card, with the local name.

use crate::{
    client::card::{AgentCard, CardExtension, CardSkill},
    model::{Extension, JsonObject, Profile, Provider, Skill},
};

/// The profile under which an upstream agent is served. This server streams even if the upstream
/// agent does not, so the profile declares streaming.
pub fn profile_of(name: &str, card: &AgentCard) -> Profile {
    let mut profile = Profile::new(name, &card.description);
    profile.version.clone_from(&card.version);
    profile.provider = card.provider.as_ref().map(|provider| Provider {
        organization: provider.organization.clone(),
        url: provider.url.clone(),
    });
    profile.documentation_url.clone_from(&card.documentation_url);
    profile.icon_url.clone_from(&card.icon_url);
    if !card.default_input_modes.is_empty() {
        profile.input_modes.clone_from(&card.default_input_modes);
    }
    if !card.default_output_modes.is_empty() {
        profile.output_modes.clone_from(&card.default_output_modes);
    }
    if !card.skills.is_empty() {
        profile.skills = card.skills.iter().map(skill).collect();
    }
    profile.fields = vec!["traceparent".to_owned()];
    // A server of this crate declares these extensions itself; those of the upstream server apply
    // only to direct calls.
    let extensions = card.capabilities.extensions.iter();
    let extensions =
        extensions.filter(|extension| !Extension::OF_SERVERS.contains(&extension.uri.as_str()));
    profile.extensions = extensions.map(extension).collect();
    profile
}

fn skill(skill: &CardSkill) -> Skill {
    Skill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        input_modes: skill.input_modes.clone(),
        output_modes: skill.output_modes.clone(),
        ..Skill::default()
    }
}

fn extension(extension: &CardExtension) -> Extension {
    let params = extension.params.as_ref().and_then(|params| serde_json::to_string(params).ok());
    Extension {
        uri: extension.uri.clone(),
        description: extension.description.clone(),
        required: extension.required,
        params: params.and_then(|json| JsonObject::parse(&json).ok().map(Into::into)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn upstream_server_extensions_are_omitted_from_card() {
        let json = r#"{"name":"a","description":"d","version":"2",
            "supportedInterfaces":[{"url":"http://a.example","protocolBinding":"JSONRPC",
            "protocolVersion":"1.0"}],"capabilities":{"extensions":[
            {"uri":"urn:peregrine:idempotent-send:1"},{"uri":"urn:example:e","required":true}]},
            "defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[]}"#;
        let profile = profile_of("ours", &AgentCard::read(json.as_bytes()).unwrap());
        let uris: Vec<_> = profile.extensions.iter().map(|one| one.uri.as_str()).collect();
        assert_eq!((profile.name.as_str(), uris), ("ours", vec!["urn:example:e"]));
        assert_eq!((profile.version.as_str(), profile.skills.len()), ("2", 1));
    }
}
