//! The agent card (A2A 1.0 §4.4), in one form for all generations.
//!
//! Invariant: a card is stored in the form of 1.0. It is written by the presence rules of A2A 1.0
//! §8.4.1, under which a card is signed: members that 1.0 requires always, optional ones if they
//! were present, all others unless they are empty. So a signature covers everything that a client
//! acts on.

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
    /// Its purpose, for people.
    pub description: String,
    /// Its interfaces, in its order of preference; at least one.
    #[serde(rename = "supportedInterfaces")]
    pub interfaces: Vec<CardInterface>,
    /// Its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<CardProvider>,
    /// The agent's own version.
    pub version: String,
    /// The URL of its documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// Its capabilities in addition to sending messages.
    pub capabilities: CardCapabilities,
    /// How callers can authenticate, by name.
    #[serde(skip_serializing_if = "SecuritySchemes::is_empty")]
    pub security_schemes: SecuritySchemes,
    /// Requirements, of which one must be met; empty: nothing is required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Media types it reads.
    pub default_input_modes: Vec<String>,
    /// Media types it writes.
    pub default_output_modes: Vec<String>,
    /// The tasks that it can do.
    pub skills: Vec<CardSkill>,
    /// Signatures, not yet verified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<CardSignature>,
    /// The URL of its icon.
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
    /// URL of its pages.
    pub url: String,
    /// Name of the organization.
    pub organization: String,
}

/// Capabilities of an agent in addition to sending messages (A2A 1.0 §4.4.3); `None`: not declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardCapabilities {
    /// Whether it streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Whether it sends push notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Extensions of the protocol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<CardExtension>,
    /// Whether it has another card for authenticated callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
}

/// An extension of the protocol (A2A 1.0 §4.4.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CardExtension {
    /// Its identifier.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uri: String,
    /// How the agent uses it, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True: calls that do not name it are rejected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Parameters of the extension for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
}

/// A task that an agent can do (A2A 1.0 §4.4.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardSkill {
    /// Identifier.
    pub id: String,
    /// Title.
    pub name: String,
    /// For people.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types it reads; empty: the agent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types it writes; empty: the agent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Requirements, of which one must be met; empty: the agent's.
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

    /// The card in the form of 1.0 (A2A 1.0 §4.4.1), in one line, from any generation; it has only
    /// members of 1.0. Reading it gives the same card.
    pub fn to_v1_json(&self) -> String {
        // Cannot fail: every key is a string, and nothing here fails to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it declares streaming.
    pub fn streams(&self) -> bool {
        self.capabilities.streaming == Some(true)
    }

    /// Whether it declares push notifications.
    pub fn pushes(&self) -> bool {
        self.capabilities.push_notifications == Some(true)
    }

    /// Whether it declares an extended card.
    pub fn is_extendable(&self) -> bool {
        self.capabilities.extended_agent_card == Some(true)
    }

    /// Whether the server handles a message with the same id once, even if it arrives several times
    /// ([`Extension::IDEMPOTENT_SEND`](crate::model::Extension::IDEMPOTENT_SEND)): for all callers,
    /// or for authenticated callers if the card requires authentication.
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

    /// The URIs of the extensions that every call must name (A2A 1.0 §3.3.4).
    pub fn required_extensions(&self) -> impl Iterator<Item = &str> {
        let extensions = self.capabilities.extensions.iter();
        extensions.filter(|one| one.required).map(|one| one.uri.as_str())
    }
}
