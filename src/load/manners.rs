//! What an agent does with the texts of the load generator, found out before load.

use crate::client::{Client, ClientError, EventKind, SendRequest, Transport};

use super::{AgentManners, LoadPlan, operation::has_text};

/// Events that are asked for to see whether the agent counts.
const EVENTS: u64 = 5;

impl AgentManners {
    /// Sends an agent a few messages, those that the plan needs, and sees what it does.
    ///
    /// # Errors
    /// [`ClientError`]: it does not answer.
    pub async fn of<T: Transport>(
        client: &Client<T>,
        plan: &LoadPlan,
    ) -> Result<AgentManners, ClientError> {
        const TEXT: &str = "peregrine bench: first call";
        let answer = client.send(&SendRequest::text(TEXT)).await?;
        let mut manners = AgentManners { echoes: has_text(&answer, TEXT), ..Self::default() };
        let mut calls = plan.calls.iter();
        if calls.any(|call| call.operation.is_streaming() || call.operation.needs_hold()) {
            manners.counts = events_of(client, &format!("stream:{EVENTS}")).await? == EVENTS;
            manners.holds = events_of(client, &format!("hold:1:{EVENTS}")).await? == EVENTS;
        }
        Ok(manners)
    }
}

/// How many changes of its task an agent streams for a text.
async fn events_of<T: Transport>(client: &Client<T>, text: &str) -> Result<u64, ClientError> {
    let mut stream = client.follow(&SendRequest::text(text)).await?;
    let mut changes = 0;
    while let Some(event) = stream.next().await {
        changes += u64::from(matches!(event?.kind(), EventKind::Change { .. }));
    }
    Ok(changes)
}
