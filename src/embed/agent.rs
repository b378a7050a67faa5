//! Agents of the embedding program, which takes their turns from a queue.

use std::{fmt, sync::Arc};

use crate::{
    agent::{Agent, CancelRequest, Profile, Turn},
    cli::serve::path_name,
    client::card::AgentCard,
    gateway::profile_of,
};

use super::{HostCancel, HostError, HostQueue, HostTurn, queue::Queued};

/// An agent of the program.
pub struct HostAgent {
    pub(super) profile: Profile,
    pub(super) agent: Arc<dyn Agent>,
}

impl HostAgent {
    /// An agent with this profile. `decides_cancels`: a client's cancel waits for the program's
    /// decision; otherwise the task ends at once.
    pub fn new(profile: Profile, queue: Arc<HostQueue>, decides_cancels: bool) -> HostAgent {
        HostAgent { profile, agent: Arc::new(QueuedAgent { queue, decides_cancels }) }
    }

    /// An agent that the library implements.
    pub fn of(profile: Profile, agent: Arc<dyn Agent>) -> HostAgent {
        HostAgent { profile, agent }
    }

    /// The profile of an A2A card in JSON, of any generation, without its URLs and security: the
    /// server writes its own. The name in paths is the card's name, with hyphens instead of
    /// characters that paths cannot have.
    ///
    /// # Errors
    /// [`HostError::Card`] names the member.
    pub fn profile_of_card(json: &[u8]) -> Result<Profile, HostError> {
        let wrong = |error: &dyn fmt::Display| HostError::Card(error.to_string());
        let mut members: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(json).map_err(|error| wrong(&error))?;
        // The server writes its own URLs into the card, so a card without URLs is valid here.
        if !members.contains_key("url") && !members.contains_key("supportedInterfaces") {
            members.insert("url".to_owned(), "http://localhost/".into());
        }
        let json = serde_json::to_vec(&members).map_err(|error| wrong(&error))?;
        let card = AgentCard::read(&json).map_err(|error| wrong(&error))?;
        let name = path_name(&card.name);
        let mut profile = profile_of(&name, &card);
        profile.title = Some(card.name.clone()).filter(|title| *title != name);
        profile.streaming = card.capabilities.streaming.unwrap_or(true);
        Ok(profile)
    }

    /// Adds request header fields that are passed to the agent.
    #[must_use]
    pub fn fields(mut self, names: impl IntoIterator<Item = String>) -> HostAgent {
        self.profile.fields.extend(names);
        self
    }
}

struct QueuedAgent {
    queue: Arc<HostQueue>,
    decides_cancels: bool,
}

impl Agent for QueuedAgent {
    fn start(&self, turn: Turn<'_>) {
        // On an error no slot for a waiting call was free, and the client was answered.
        if let Ok(deferred) = turn.defer() {
            self.queue.push(Queued::Turn(HostTurn::new(deferred)));
        }
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        if self.decides_cancels
            && let Ok(deferred) = cancel.defer()
        {
            self.queue.push(Queued::Cancel(HostCancel::new(deferred)));
        }
    }
}
