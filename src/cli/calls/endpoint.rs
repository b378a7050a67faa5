//! `--endpoint`: an interface to call without a card.

use peregrine::client::{Binding, card::AgentCard};
use serde_json::{Value, json};

use super::super::{
    failure::CommandFailure,
    settings::{SettingSource, Settings},
};

/// The card for an endpoint: one interface, everything declared, and a scheme for each of the
/// user's credentials; `None`: no endpoint is named.
///
/// # Errors
/// A [`CommandFailure`] of usage: an agent is also named, or the number of transports is not one.
pub fn endpoint_card(settings: &Settings) -> Result<Option<AgentCard>, CommandFailure> {
    let Some(url) = settings.text("endpoint") else { return Ok(None) };
    if *settings.source("agent-card") == SettingSource::Flag {
        let line = "two agents are given: by --endpoint, which needs no card, and by --agent-card";
        return Err(CommandFailure::usage(line));
    }
    let transports = settings.transports()?;
    let &[word] = &transports[..] else {
        let line = "--endpoint needs exactly one --transport, as there is no card";
        return Err(CommandFailure::usage(line)
            .hint("such as -e http://localhost:3000 --transport jsonrpc"));
    };
    let binding = Binding::ALL.into_iter().find(|binding| binding.word() == word);
    let binding = binding.unwrap_or(Binding::JsonRpc);
    let url = match (binding, url.split_once("://")) {
        (_, None) => {
            let line = format!("--endpoint {url:?} must be a URL such as http://localhost:3000");
            return Err(CommandFailure::usage(line));
        }
        // The transport determines the scheme of a WebSocket URL.
        (Binding::WebSocket, Some(("http", rest))) => format!("ws://{rest}"),
        (Binding::WebSocket, Some(("https", rest))) => format!("wss://{rest}"),
        (_, Some(_)) => url.to_owned(),
    };
    let version = settings.text("a2a-version").unwrap_or("1.0");
    let interface = json!({
        "url": url, "protocolBinding": binding.name(), "protocolVersion": version,
    });
    let mut card = json!({
        "name": "endpoint", "description": "", "version": "",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": true, "pushNotifications": true, "extendedAgentCard": true},
        "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    });
    if let Some((schemes, requirement)) = security(settings) {
        card["securitySchemes"] = schemes;
        card["securityRequirements"] = json!([{ "schemes": requirement }]);
    }
    let read = AgentCard::read(card.to_string().as_bytes());
    read.map(Some).map_err(|error| CommandFailure::usage(format!("--endpoint {url:?}: {error}")))
}

/// Schemes for the credentials of the settings, and the requirement of all these schemes.
fn security(settings: &Settings) -> Option<(Value, Value)> {
    let http = |scheme: &str| json!({"httpAuthSecurityScheme": {"scheme": scheme}});
    let mut schemes = serde_json::Map::new();
    let mut add = |setting: &str, scheme: Value| {
        if settings.text(setting).is_some() {
            schemes.insert(setting.to_owned(), scheme);
        }
    };
    let key = json!({"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}});
    add("api-key", key);
    add("bearer", http("Bearer"));
    add("basic", http("Basic"));
    add("cert", json!({"mtlsSecurityScheme": {}}));
    let token_url = settings.text("token-url").unwrap_or_default();
    let flows = json!({"clientCredentials": {"tokenUrl": token_url, "scopes": {}}});
    add("client-secret", json!({"oauth2SecurityScheme": {"flows": flows}}));
    let requirement = schemes.keys().map(|name| (name.clone(), json!({"list": []})));
    let requirement: serde_json::Map<String, Value> = requirement.collect();
    (!schemes.is_empty()).then_some((Value::Object(schemes), Value::Object(requirement)))
}
