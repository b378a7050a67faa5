//! What an upstream stream says, as events of the local task.

use crate::{
    agent::{Closed, Job},
    client::{EventKind, StreamEvent},
    model::{ArtifactView, MessageBuf, Role, TaskEvent, TaskState, TaskView, pack},
};

use super::message::without_ids;

/// Publishes what an event of the upstream stream says.
///
/// # Errors
/// [`Closed`]: the local task takes no more.
pub fn publish(job: &mut Job, event: &StreamEvent<'_>) -> Result<(), Closed> {
    match event.kind() {
        EventKind::Task(task) => publish_task(job, task),
        EventKind::Change { change, .. } => publish_change(job, change),
        // A message that follows the task: A2A has none, and what it says is not lost.
        EventKind::Message(message) => {
            let message = without_ids(message);
            job.status(TaskState::Completed, Some(&message))
        }
        EventKind::Gap { .. } => Ok(()),
    }
}

/// Publishes the task with which a stream begins, or which is the whole answer.
fn publish_task(job: &mut Job, task: TaskView<'_>) -> Result<(), Closed> {
    let status = task.status();
    let last = status.message.map(|message| message.message_id());
    for message in task.history(None).filter(|message| message.role() == Role::Agent) {
        if Some(message.message_id()) != last && !is_known(job, message.message_id().raw()) {
            job.status(TaskState::Working, Some(&without_ids(message)))?;
        }
    }
    for artifact in task.artifacts() {
        publish_artifact(job, &artifact)?;
    }
    publish_change(
        job,
        TaskEvent::Status {
            state: status.state,
            at_ms: status.at_ms,
            message: status.message,
            metadata: status.metadata,
        },
    )
}

/// Whether the local task has a message with this id already.
fn is_known(job: &Job, id: &[u8]) -> bool {
    let mut is_known = false;
    job.read(&mut |task| {
        is_known = task.history(None).any(|message| message.message_id().raw() == id);
    });
    is_known
}

fn publish_artifact(job: &mut Job, whole: &ArtifactView<'_>) -> Result<(), Closed> {
    let mut packed = Vec::new();
    let mut packer = pack::Packer(&mut packed);
    for (tag, bytes) in whole.fields() {
        packer.put(tag, bytes);
    }
    let artifact = pack::Artifact::new(&packed);
    job.publish(TaskEvent::Artifact { artifact, append: false, last_chunk: true, metadata: None })
}

fn publish_change(job: &mut Job, change: TaskEvent<'_>) -> Result<(), Closed> {
    match change {
        TaskEvent::Status { state, at_ms, message, metadata } => {
            let said: Option<MessageBuf> = message.map(without_ids);
            let message = said.as_ref().map(MessageBuf::view);
            // A state that has no meaning for clients counts as running.
            let state = match state {
                TaskState::Unspecified => TaskState::Working,
                state => state,
            };
            job.publish(TaskEvent::Status { state, at_ms, message, metadata })
        }
        TaskEvent::Artifact { .. } => job.publish(change),
        TaskEvent::UserMessage { .. } => Ok(()),
    }
}
