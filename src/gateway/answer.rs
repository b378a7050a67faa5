//! Translates upstream events into events of the local task.

use crate::{
    agent::{Closed, Deferred, Job},
    client::{EventKind, StreamEvent},
    model::{
        ArtifactView, Message, MessageBuf, Part, RawText, Role, TaskEvent, TaskState, TaskStatus,
        TaskView, pack,
    },
};

use super::{message::to_local, references::TaskReferences};

/// A local task, or the turn that becomes one.
pub trait EventSink {
    /// Publishes an event.
    ///
    /// # Errors
    /// [`Closed`]: the task accepts no more events.
    fn publish(&mut self, event: TaskEvent<'_>) -> Result<(), Closed>;
}

impl EventSink for Job {
    fn publish(&mut self, event: TaskEvent<'_>) -> Result<(), Closed> {
        Job::publish(self, event)
    }
}

impl EventSink for Deferred {
    fn publish(&mut self, event: TaskEvent<'_>) -> Result<(), Closed> {
        self.prepare(&event);
        Ok(())
    }
}

/// Publishes an event together with the task that a turn becomes; false: the event can be published
/// only after that.
pub fn prepare(turn: &mut Deferred, references: &TaskReferences, event: &StreamEvent<'_>) -> bool {
    let change = match event.kind() {
        EventKind::Change { change, .. } => Some(change),
        EventKind::Task(task) if turn.request().state().is_none() => {
            let has_messages = agent_messages(task).next().is_some();
            if has_messages || task.artifacts().next().is_some() {
                return false;
            }
            // A new task already has this status.
            let status = task.status();
            let is_begun = status.state == TaskState::Submitted && status.message.is_none();
            (!is_begun).then(|| status_change(task))
        }
        EventKind::Task(_) | EventKind::Message(_) | EventKind::Gap { .. } => return false,
    };
    change.is_none_or(|change| publish_change(turn, references, change).is_ok())
}

/// Publishes an event of the upstream stream.
///
/// # Errors
/// [`Closed`]: the local task accepts no more events.
pub fn publish(
    job: &mut Job,
    references: &TaskReferences,
    event: &StreamEvent<'_>,
) -> Result<(), Closed> {
    match event.kind() {
        EventKind::Task(task) => publish_task(job, references, task),
        EventKind::Change { change, .. } => publish_change(job, references, change),
        // A2A has no message after a task: its content becomes the final status message.
        EventKind::Message(message) => {
            let message = to_local(message, references);
            job.status(TaskState::Completed, Some(&message))
        }
        EventKind::Gap { .. } => Ok(()),
    }
}

/// Publishes the parts of the upstream task that the local task lacks, because a stream begins with
/// the whole task, and an agent without streams answers with the whole task.
fn publish_task(
    job: &mut Job,
    references: &TaskReferences,
    task: TaskView<'_>,
) -> Result<(), Closed> {
    let mut published = PublishedParts::default();
    job.read(&mut |local| published = PublishedParts::of(local, task));
    let messages = agent_messages(task).zip(&published.messages);
    for message in messages.filter(|(_, is_published)| !**is_published) {
        job.status(TaskState::Working, Some(&to_local(message.0, references)))?;
    }
    let artifacts = task.artifacts().zip(&published.artifacts);
    for (artifact, _) in artifacts.filter(|(_, is_published)| !**is_published) {
        publish_artifact(job, &artifact)?;
    }
    if published.status {
        return Ok(());
    }
    publish_change(job, references, status_change(task))
}

/// The status of a task as an event.
fn status_change(task: TaskView<'_>) -> TaskEvent<'_> {
    let TaskStatus { state, at_ms, message, metadata } = task.status();
    TaskEvent::Status { state, at_ms, message, metadata }
}

/// The parts of an upstream task that the local task has already.
#[derive(Default)]
struct PublishedParts {
    /// One entry for each of [`agent_messages`].
    messages: Vec<bool>,
    /// One entry for each artifact: true if the local task has the same whole artifact.
    artifacts: Vec<bool>,
    status: bool,
}

impl PublishedParts {
    fn of(local: TaskView<'_>, task: TaskView<'_>) -> PublishedParts {
        let has_message = |id: RawText<'_>| {
            let mut messages = local.history(None).chain(local.status().message);
            messages.any(|message| message.message_id() == id)
        };
        let has_artifact = |artifact: &ArtifactView<'_>| {
            let id = artifact.head().artifact_id();
            let own = local.artifacts().find(|own| own.head().artifact_id() == id);
            own.is_some_and(|own| {
                let same = own.parts().map(Part::packed).eq(artifact.parts().map(Part::packed));
                same && own.fields().eq(artifact.fields())
            })
        };
        let (own, status) = (local.status(), task.status());
        let id = |message: Option<Message<'_>>| {
            message.map(|message| message.message_id().raw().to_vec())
        };
        PublishedParts {
            messages: agent_messages(task)
                .map(|message| has_message(message.message_id()))
                .collect(),
            artifacts: task.artifacts().map(|artifact| has_artifact(&artifact)).collect(),
            status: own.state == status.state && id(own.message) == id(status.message),
        }
    }
}

/// The agent's messages before the message of the current status.
fn agent_messages(task: TaskView<'_>) -> impl Iterator<Item = Message<'_>> {
    let last = task.status().message.map(|message| message.message_id());
    let of_agent = |message: &Message<'_>| message.role() == Role::Agent;
    let is_before = move |message: &Message<'_>| Some(message.message_id()) != last;
    task.history(None).filter(of_agent).filter(is_before)
}

fn publish_artifact(job: &mut Job, whole: &ArtifactView<'_>) -> Result<(), Closed> {
    let mut packed = Vec::new();
    let mut packer = pack::Packer(&mut packed);
    whole.fields().for_each(|(tag, bytes)| packer.put(tag, bytes));
    whole.parts().for_each(|part| packer.put(pack::artifact_tag::PART, part.packed()));
    let artifact = pack::Artifact::new(&packed);
    job.publish(TaskEvent::Artifact { artifact, append: false, last_chunk: true, metadata: None })
}

fn publish_change(
    sink: &mut impl EventSink,
    references: &TaskReferences,
    change: TaskEvent<'_>,
) -> Result<(), Closed> {
    match change {
        TaskEvent::Status { state, at_ms, message, metadata } => {
            let owned: Option<MessageBuf> = message.map(|message| to_local(message, references));
            let message = owned.as_ref().map(MessageBuf::view);
            // An unspecified state has no meaning for clients and is published as working.
            let state = match state {
                TaskState::Unspecified => TaskState::Working,
                state => state,
            };
            sink.publish(TaskEvent::Status { state, at_ms, message, metadata })
        }
        TaskEvent::Artifact { .. } => sink.publish(change),
        TaskEvent::UserMessage { .. } => Ok(()),
    }
}
