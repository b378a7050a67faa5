//! The agent card (A2A 1.0 §4.4) as a client knows it, whatever generation it was written for.
//!
//! Invariant: a card is kept as 1.0 says it. Members that 1.0 requires are written always, optional
//! ones where they were said, all others where they are not empty: the presence rules of A2A 1.0
//! §8.4.1, under which a card is signed. So what a client acts on is what a signature covers.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::{Extension, Generation};

use super::{CardInterface, SecurityRequirement, SecuritySchemes};

/// What an agent says of itself, read leniently by [`AgentCard::read`].
///
/// Texts may be empty: a card that lacks what its specification requires can still be used;
/// [`lint()`](super::lint()) says what it lacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// The agent's name; never empty.
    pub name: String,
    /// What it does, for humans.
    pub description: String,
    /// How it is reached, in its order of preference; at least one.
    #[serde(rename = "supportedInterfaces")]
    pub interfaces: Vec<CardInterface>,
    /// Its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<CardProvider>,
    /// The agent's own version.
    pub version: String,
    /// Where there is more to read about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// What it can do beside sending messages.
    pub capabilities: CardCapabilities,
    /// How callers can authenticate, by name.
    #[serde(skip_serializing_if = "SecuritySchemes::is_empty")]
    pub security_schemes: SecuritySchemes,
    /// Of which one must be met; empty: nothing is required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Media types it reads.
    pub default_input_modes: Vec<String>,
    /// Media types it writes.
    pub default_output_modes: Vec<String>,
    /// What it can be asked to do.
    pub skills: Vec<CardSkill>,
    /// Signatures, not yet verified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<CardSignature>,
    /// A picture of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
    /// The generation whose card it is: 1.0 when it lists `supportedInterfaces` (wire §10).
    #[serde(skip)]
    pub generation: Generation,
    /// The document as it came.
    #[serde(skip)]
    pub(super) raw: Box<str>,
}

/// The provider of an agent (A2A 1.0 §4.4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardProvider {
    /// URL of its pages.
    pub url: String,
    /// Name of the organization.
    pub organization: String,
}

/// What an agent can do beside sending messages (A2A 1.0 §4.4.3); `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardCapabilities {
    /// Streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Extensions of the protocol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<CardExtension>,
    /// A card that only callers with credentials are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
}

/// An extension of the protocol (A2A 1.0 §4.4.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CardExtension {
    /// Names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uri: String,
    /// What the agent does with it, for humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True: calls that do not name it are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// What the extension wants a client to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
}

/// What an agent can be asked to do (A2A 1.0 §4.4.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardSkill {
    /// Identifier.
    pub id: String,
    /// Title.
    pub name: String,
    /// For humans.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Messages that show what it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types it reads; empty: those of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types it writes; empty: those of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Of which one must be met; empty: those of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<SecurityRequirement>,
}

/// A signature over the card (A2A 1.0 §4.4.7, RFC 7515 §7.2), as it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CardSignature {
    /// The header that is signed, in base64url.
    pub protected: String,
    /// The signature, in base64url.
    pub signature: String,
    /// The header that is not signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Map<String, Value>>,
}

impl AgentCard {
    /// The document as it came.
    pub fn raw_json(&self) -> &str {
        &self.raw
    }

    /// The card as 1.0 writes it (A2A 1.0 §4.4.1), in one line, whatever it was read from: only
    /// members that 1.0 knows. Read again, it is the same.
    pub fn to_v1_json(&self) -> String {
        // Cannot fail: every key is a string, and nothing here fails to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it says that it streams.
    pub fn streams(&self) -> bool {
        self.capabilities.streaming == Some(true)
    }

    /// Whether it says that it sends push notifications.
    pub fn pushes(&self) -> bool {
        self.capabilities.push_notifications == Some(true)
    }

    /// Whether it says that there is an extended card.
    pub fn is_extendable(&self) -> bool {
        self.capabilities.extended_agent_card == Some(true)
    }

    /// Whether the server handles a message once that comes several times under its id
    /// ([`Extension::IDEMPOTENT_SEND`](crate::model::Extension::IDEMPOTENT_SEND)): those of all
    /// callers, or of authenticated callers, which the card must ask for.
    pub fn knows_sends_again(&self, has_credentials: bool) -> bool {
        let mut extensions = self.capabilities.extensions.iter();
        let declared = extensions.find(|one| one.uri == Extension::IDEMPOTENT_SEND);
        let params = declared.and_then(|one| one.params.as_ref());
        match params.and_then(|params| params.get("callers")).and_then(Value::as_str) {
            Some("all") => true,
            Some("authenticated") => has_credentials && !self.security_requirements.is_empty(),
            Some(_) | None => false,
        }
    }

    /// The URIs of the extensions without which calls are refused (A2A 1.0 §3.3.4).
    pub fn required_extensions(&self) -> impl Iterator<Item = &str> {
        let extensions = self.capabilities.extensions.iter();
        extensions.filter(|one| one.required).map(|one| one.uri.as_str())
    }
}
