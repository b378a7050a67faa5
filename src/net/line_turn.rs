//! A turn of an agent in any language: the line of the turn is sent, its events are received.
//!
//! Processes and HTTP functions differ only in the source of the events.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

use crate::{
    agent::{Canceled, Closed, Deferred, Job},
    gateway::{
        EventPace,
        lines::{LineEvent, TurnLine, push_history},
    },
    model::{JsonObjectBuf, Message, MessageBuf, TaskEvent, TaskState},
    service::upstream::{UpstreamCall, UpstreamOutcome},
};

/// The next result of a turn.
pub(super) enum NextEvent {
    Event(LineEvent),
    /// The turn failed for this reason, which the client sees.
    Failed(String),
    /// The turn ended without an error.
    End,
}

/// The source of a turn's events.
pub(super) trait TurnEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextEvent>;

    /// The turn has ended: dropping the source must not cancel the turn.
    fn end(&mut self);
}

/// Appends the line of a turn with this number; `has_history`: with the task's earlier messages.
pub(super) fn write_turn(number: u64, deferred: &Deferred, has_history: bool, line: &mut Vec<u8>) {
    let (request, message) = (deferred.request(), deferred.message());
    let mut history = Vec::new();
    if has_history {
        deferred.read(&mut |task| {
            let id = message.message_id().raw();
            let earlier = |other: &Message<'_>| other.message_id().raw() != id;
            // The message of the task's status is not in its history yet.
            let messages = task.history(None).filter(earlier).chain(task.status().message);
            messages.for_each(|message| push_history(&mut history, message));
        });
    }
    let turn = TurnLine {
        turn: number,
        task_id: deferred.task_id(),
        context_id: deferred.context_id(),
        state: request.state(),
        message,
        metadata: request.metadata(),
        caller: request.principal().map(|principal| principal.name()),
        tenant: request.tenant(),
        deadline_unix_ms: request.deadline_unix_ms(),
        history: &history,
    };
    turn.write(line);
}

/// Waits for the next result.
///
/// # Errors
/// [`Closed`]: the turn is canceled.
pub(super) async fn next_event(
    source: &mut impl TurnEvents,
    canceled: &mut Canceled,
) -> Result<NextEvent, Closed> {
    canceled.race(pin!(poll_fn(|cx| source.poll_next(cx)))).await
}

/// Publishes the events of a turn, beginning with `first`, until the turn ends.
///
/// # Errors
/// [`Closed`]: the turn is canceled, or its task has ended.
pub(super) async fn publish_events(
    first: NextEvent,
    source: &mut impl TurnEvents,
    deferred: Deferred,
    mut call: UpstreamCall,
) -> Result<(), Closed> {
    if let NextEvent::Event(_) = first {
        call.answered();
    }
    let mut next = match first {
        NextEvent::Event(LineEvent::Message(message)) => {
            source.end();
            deferred.reply(message);
            return Ok(());
        }
        first => first,
    };
    let mut job = deferred.into_job()?;
    call.follow();
    let (mut canceled, mut pace) = (job.canceled(), EventPace::default());
    loop {
        pace.after_event().await;
        match next {
            NextEvent::Event(event) if event.ends_turn() => {
                source.end();
                call.end(UpstreamOutcome::Ok);
                return publish(&mut job, event);
            }
            NextEvent::Event(event) => publish(&mut job, event)?,
            NextEvent::Failed(reason) => {
                call.end(UpstreamOutcome::InvalidAnswer);
                return job.fail(&reason);
            }
            NextEvent::End => {
                call.end(UpstreamOutcome::Ok);
                return job.status(TaskState::Completed, None);
            }
        }
        next = next_event(source, &mut canceled).await?;
    }
}

fn publish(job: &mut Job, event: LineEvent) -> Result<(), Closed> {
    match event {
        LineEvent::Message(message) => job.status(TaskState::Completed, Some(&message)),
        LineEvent::Status { state, message, metadata } => {
            let message = message.as_ref().map(MessageBuf::view);
            let metadata = metadata.as_ref().map(JsonObjectBuf::view);
            let at_ms = job.unix_ms();
            job.publish(TaskEvent::Status { state, at_ms, message, metadata })
        }
        LineEvent::Artifact { artifact, append, last_chunk, metadata } => {
            let metadata = metadata.as_ref().map(JsonObjectBuf::view);
            let artifact = artifact.view();
            job.publish(TaskEvent::Artifact { artifact, append, last_chunk, metadata })
        }
    }
}
