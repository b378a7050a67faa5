//! The agent card (A2A 1.0 §4.4), in one form for all generations.
//!
//! Invariant: a card is stored in the form of 1.0. It is serialized by the presence rules for
//! signed cards (A2A 1.0 §8.4.1): required members always, optional ones if they were present, all
//! others unless they are empty. So a signature covers every member that a client uses.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::{Extension, Generation};

use super::{CardInterface, SecurityRequirement, SecuritySchemes};

/// An agent's description of itself, read leniently by [`AgentCard::read`].
///
/// Texts may be empty: a card without members that its specification requires can still be used;
/// [`lint()`](super::lint()) reports them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// The agent's name; never empty.
    pub name: String,
    /// The purpose of the agent, for people.
    pub description: String,
    /// The agent's interfaces, in its order of preference; at least one.
    #[serde(rename = "supportedInterfaces")]
    pub interfaces: Vec<CardInterface>,
    /// The agent's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<CardProvider>,
    /// The agent's own version.
    pub version: String,
    /// The URL of the agent's documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// The agent's capabilities in addition to sending messages.
    pub capabilities: CardCapabilities,
    /// How callers can authenticate, by name.
    #[serde(skip_serializing_if = "SecuritySchemes::is_empty")]
    pub security_schemes: SecuritySchemes,
    /// Requirements, one of which a caller must meet; empty: callers need not authenticate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Media types that the agent reads.
    pub default_input_modes: Vec<String>,
    /// Media types that the agent writes.
    pub default_output_modes: Vec<String>,
    /// The agent's skills.
    pub skills: Vec<CardSkill>,
    /// Signatures, not yet verified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<CardSignature>,
    /// The URL of the agent's icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
    /// The generation of the card: 1.0 if it lists `supportedInterfaces` (wire §10).
    #[serde(skip)]
    pub generation: Generation,
    /// The document as received.
    #[serde(skip)]
    pub(super) raw: Box<str>,
}

/// The provider of an agent (A2A 1.0 §4.4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardProvider {
    /// URL of the provider's website.
    pub url: String,
    /// Name of the organization.
    pub organization: String,
}

/// Capabilities of an agent in addition to sending messages (A2A 1.0 §4.4.3); `None`: not declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardCapabilities {
    /// Whether the agent streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Whether the agent sends push notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Extensions of the protocol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<CardExtension>,
    /// Whether the agent has another card for authenticated callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
}

/// An extension of the protocol (A2A 1.0 §4.4.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CardExtension {
    /// The URI that identifies the extension.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uri: String,
    /// How the agent uses the extension, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True: calls that do not name the extension are rejected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Parameters of the extension for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
}

/// An ability of an agent (A2A 1.0 §4.4.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardSkill {
    /// Identifier.
    pub id: String,
    /// Title.
    pub name: String,
    /// Description, for people.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types that the skill reads; empty: the agent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types that the skill writes; empty: the agent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Requirements, one of which a caller must meet; empty: the agent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<SecurityRequirement>,
}

/// A signature over the card (A2A 1.0 §4.4.7, RFC 7515 §7.2), as received.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CardSignature {
    /// The signed header, in base64url.
    pub protected: String,
    /// The signature, in base64url.
    pub signature: String,
    /// The unsigned header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Map<String, Value>>,
}

impl AgentCard {
    /// The document as received.
    pub fn raw_json(&self) -> &str {
        &self.raw
    }

    /// The card as JSON of 1.0 (A2A 1.0 §4.4.1), from any generation: one line with only members of
    /// 1.0. Reading the text returns a card with the same members.
    pub fn to_v1_json(&self) -> String {
        // Cannot fail: every key is a string, and nothing here fails to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the card declares streaming.
    pub fn streams(&self) -> bool {
        self.capabilities.streaming == Some(true)
    }

    /// Whether the card declares push notifications.
    pub fn pushes(&self) -> bool {
        self.capabilities.push_notifications == Some(true)
    }

    /// Whether the card declares an extended card.
    pub fn is_extendable(&self) -> bool {
        self.capabilities.extended_agent_card == Some(true)
    }

    /// Whether the server handles a message with the same id once, even if it arrives several times
    /// ([`Extension::IDEMPOTENT_SEND`](crate::model::Extension::IDEMPOTENT_SEND)): for all callers,
    /// or for authenticated callers if the card requires authentication.
    pub fn deduplicates_sends(&self, has_credentials: bool) -> bool {
        let mut extensions = self.capabilities.extensions.iter();
        let declared = extensions.find(|one| one.uri == Extension::IDEMPOTENT_SEND);
        let params = declared.and_then(|one| one.params.as_ref());
        match params.and_then(|params| params.get("callers")).and_then(Value::as_str) {
            Some("all") => true,
            Some("authenticated") => has_credentials && !self.security_requirements.is_empty(),
            Some(_) | None => false,
        }
    }

    /// The URIs of the extensions that every call must name (A2A 1.0 §3.3.4).
    pub fn required_extensions(&self) -> impl Iterator<Item = &str> {
        let extensions = self.capabilities.extensions.iter();
        extensions.filter(|one| one.required).map(|one| one.uri.as_str())
    }
}
