//! Detects the behaviour of an agent with the texts of the load generator, before the load.

use crate::{
    client::{Client, ClientError, EventKind, SendRequest, Transport},
    model::TaskEvent,
};

use super::{
    AgentBehaviour, PlannedCall,
    answer_check::{chunk_number, has_text},
};

/// Number of events to request for the check whether the agent counts.
const EVENTS: u64 = 5;

impl AgentBehaviour {
    /// Sends an agent messages of the kinds that these calls need, and returns its behaviour.
    ///
    /// # Errors
    /// [`ClientError`]: the agent does not answer.
    pub async fn of<'p, T: Transport>(
        client: &Client<T>,
        mut calls: impl Iterator<Item = &'p PlannedCall>,
    ) -> Result<AgentBehaviour, ClientError> {
        const TEXT: &str = "peregrine bench: first call";
        let answer = client.send(&SendRequest::text(TEXT)).await?;
        let mut seen = AgentBehaviour { echoes: has_text(&answer, TEXT), ..Self::default() };
        if calls.any(|call| call.operation.is_streaming() || call.operation.needs_hold()) {
            let events = events_of(client, &format!("stream:{EVENTS}")).await?;
            seen.counts = events.changes == EVENTS;
            seen.numbers = seen.counts && events.numbered_chunks == EVENTS - 2;
            seen.holds = events_of(client, &format!("hold:1:{EVENTS}")).await?.changes == EVENTS;
        }
        Ok(seen)
    }
}

/// The events of an agent's stream for a text.
#[derive(Default)]
struct SeenEvents {
    /// Changes of the task.
    changes: u64,
    /// Changes that are the next chunk according to the number in their text.
    numbered_chunks: u64,
}

async fn events_of<T: Transport>(
    client: &Client<T>,
    text: &str,
) -> Result<SeenEvents, ClientError> {
    let mut stream = client.follow(&SendRequest::text(text)).await?;
    let mut seen = SeenEvents::default();
    while let Some(event) = stream.next().await {
        let EventKind::Change { change, .. } = event?.kind() else { continue };
        seen.changes += 1;
        let TaskEvent::Artifact { artifact, .. } = change else { continue };
        let number = artifact.parts().next().and_then(chunk_number);
        seen.numbered_chunks += u64::from(number == Some(seen.numbered_chunks + 1));
    }
    Ok(seen)
}
