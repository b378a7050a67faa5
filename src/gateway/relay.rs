//! One message to the upstream agent, from its call to the end of its stream.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    agent::{Adopted, Closed, Deferred, DeferredCancel, Job, NotKept},
    client::{Client, ClientStream, EventKind, StreamEvent, Transport},
    fault::{Fault, FaultKind},
    model::{Generation, Message, RawText, TaskEvent, TaskState},
    service::{
        Scope,
        upstream::{UpstreamCall, UpstreamOutcome},
    },
};

use super::{
    EventPace,
    answer::publish,
    call::RelayedCall,
    fault::{fault_of_call, outcome_of},
    ids::UpstreamIds,
    message::{self, SentIds},
    references::TaskReferences,
    sent_id::sent_id,
};

/// The tasks of one upstream agent.
pub struct UpstreamTasks {
    /// The URL by which the agent is configured: ids that another one has made are not its own.
    url: Box<str>,
    /// The local tasks whose upstream streams are followed now.
    followed: Mutex<HashSet<FollowedId>>,
}

/// The scope and the id of a local task.
type FollowedId = (Scope, Box<[u8]>);

/// A local task as long as its upstream stream is followed.
struct FollowedNow<'f> {
    all: &'f UpstreamTasks,
    id: FollowedId,
}

impl UpstreamTasks {
    /// Those of the agent that is configured by this URL.
    pub fn of(url: &str) -> UpstreamTasks {
        UpstreamTasks { url: url.into(), followed: Mutex::default() }
    }

    /// Notes that a task is followed; `None`: it is followed already.
    fn follow(&self, scope: Scope, task_id: RawText<'_>) -> Option<FollowedNow<'_>> {
        let id: FollowedId = (scope, task_id.raw().into());
        let is_new = self.lock().insert(id.clone());
        is_new.then(|| FollowedNow { all: self, id })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<FollowedId>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FollowedNow<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

/// Sends the message of a turn to the upstream agent, and publishes the answer until the upstream
/// stream or the local task has ended. Where the stream of the task is followed already, it brings
/// the answer.
pub async fn relay<T: Transport, P>(
    client: &Client<T>,
    turn: Deferred,
    tasks: &UpstreamTasks,
    mut call: RelayedCall<P>,
) {
    let continued = UpstreamIds::read(turn.kept(), &tasks.url);
    if turn.request().state().is_some() && continued.is_none() {
        call.end(UpstreamOutcome::Unsupported);
        let text = "the upstream agent has no task for this one";
        return turn.refuse(Fault::because(FaultKind::UnsupportedOperation, text));
    }
    let references = match TaskReferences::of(&turn, &tasks.url) {
        Ok(references) => references,
        Err(fault) => {
            call.end(UpstreamOutcome::Unsupported);
            return turn.refuse(fault);
        }
    };
    // A context that the client names may have an id of the upstream agent's own.
    let is_known = continued.is_none() && turn.message().context_id().is_some();
    let earlier = is_known.then(|| UpstreamIds::read(turn.kept_in_context(), &tasks.url)).flatten();
    let upstream_context = earlier.as_ref().map(UpstreamIds::context_id);
    let chooses_id = client.generation() == Generation::V01;
    let names = [turn.request().tenant(), turn.request().owner()];
    let own = |id| sent_id(names, id);
    let (context_id, task_id) = (own(turn.context_id()), chooses_id.then(|| own(turn.task_id())));
    let context_id = RawText::known(&context_id);
    let ids = SentIds {
        continued: continued.as_ref(),
        context_id: upstream_context.filter(|id| !id.is_empty()).unwrap_or(context_id),
        task_id: task_id.as_deref().map(RawText::known),
        references: &references,
    };
    let request = message::request(&turn, &ids);
    let Some(followed) = tasks.follow(turn.request().scope(), turn.task_id()) else {
        let sent = Box::pin(client.send(&request.return_immediately())).await;
        return match sent {
            Ok(_) => {
                call.answered();
                // Without room for the turn the client is told.
                turn.into_job().map_or((), Job::leave)
            }
            Err(error) => turn.refuse(call.failed(client, &error)),
        };
    };
    // The stream of an agent that says nothing may be open for ever.
    let mut ended = turn.canceled();
    let Ok(opened) = ended.race(pin!(client.follow(&request))).await else { return };
    let mut stream = match opened {
        Ok(stream) => stream.through_logins(),
        Err(error) => return turn.refuse(call.failed(client, &error)),
    };
    let Ok(first) = ended.race(pin!(stream.next())).await else { return };
    let first = match first {
        Some(Ok(event)) => event,
        Some(Err(error)) => return turn.refuse(call.failed(client, &error)),
        None => {
            call.end(UpstreamOutcome::InvalidAnswer);
            let text = "the upstream agent answered with nothing";
            return turn.refuse(Fault::because(FaultKind::InvalidAgentResponse, text));
        }
    };
    let mut call = call.answered();
    if let EventKind::Message(message) = first.kind() {
        return turn.reply(message::to_local(message, &references));
    }
    // Without room for the task the client is told.
    let Ok(job) = turn.into_job() else { return };
    call.follow();
    let (followed, is_resumed) = (Some(followed), false);
    let mut relayed = RelayedTask { job, references, followed, is_resumed, call };
    let kept = relayed.keep_ids(&first);
    if let (Err(not_kept @ (NotKept::TooLong | NotKept::NoRoom)), false) = (kept, has_ended(&first))
    {
        // It could be neither continued nor canceled.
        relayed.call.end(UpstreamOutcome::Limit);
        return relayed.fail(&format!("the upstream ids of the task cannot be kept: {not_kept}"));
    }
    match relayed.publish(&first) {
        true => relayed.follow(&mut stream).await,
        false => relayed.call.end(UpstreamOutcome::Ok),
    }
}

/// Goes on with a task that was relayed before its agent was changed: publishes what it lacks, and
/// then what comes. One that this upstream agent does not know fails.
pub async fn adopt<T: Transport>(
    client: &Client<T>,
    task: Adopted,
    tasks: &UpstreamTasks,
    call: UpstreamCall,
) {
    // Dropped, it fails and says that the agent was replaced.
    let Some(ids) = UpstreamIds::read(task.kept().to_vec(), &tasks.url) else { return };
    let mut stream = client.follow_task(ids.task_id(), task.task()).through_logins();
    let job = task.into_job();
    let Some(followed) = tasks.follow(job.request().scope(), job.task_id()) else { return };
    let mut references = TaskReferences::default();
    references.add(job.task_id(), ids.task_id());
    let (followed, is_resumed) = (Some(followed), true);
    let relayed = RelayedTask { job, references, followed, is_resumed, call };
    relayed.follow(&mut stream).await;
}

/// A local task and what its upstream stream needs to be published.
struct RelayedTask<'f> {
    job: Job,
    references: TaskReferences,
    /// `None`: it has ended or waits for input.
    followed: Option<FollowedNow<'f>>,
    /// True: what comes was read from the upstream task, and the local one may have its status.
    is_resumed: bool,
    call: UpstreamCall,
}

impl RelayedTask<'_> {
    /// Keeps the ids of the upstream task, which an event names, with the local one.
    ///
    /// # Errors
    /// [`NotKept`].
    fn keep_ids(&mut self, event: &StreamEvent<'_>) -> Result<(), NotKept> {
        let (task_id, context_id) = match event.kind() {
            EventKind::Task(task) => (task.id(), task.context_id()),
            EventKind::Change { task_id, context_id, .. } => (task_id, context_id),
            EventKind::Message(_) | EventKind::Gap { .. } => return Ok(()),
        };
        self.references.add(self.job.task_id(), task_id);
        let Some(followed) = &self.followed else { return Ok(()) };
        let ids = UpstreamIds::new(&followed.all.url, task_id, context_id);
        self.job.keep(ids.packed())
    }

    /// Fails the task and says why, unless it has ended.
    fn fail(self, text: &str) {
        let _: Result<(), Closed> = self.job.fail(text);
    }

    /// Publishes an event; false: the stream is followed no longer, since the task has ended or
    /// waits for input, and the next message opens another stream. One that waits for a login is
    /// followed on.
    fn publish(&mut self, event: &StreamEvent<'_>) -> bool {
        // The task with which a stream begins may show the state before the message.
        let is_task = matches!(event.kind(), EventKind::Task(_));
        let asks = |state: TaskState| state == TaskState::InputRequired && !is_task;
        if event.state().is_some_and(|state| state.is_terminal() || asks(state)) {
            // Before the client can see that state and answer.
            self.followed = None;
        }
        self.is_resumed |= matches!(event.kind(), EventKind::Gap { .. });
        let published = match self.is_resumed && self.has_status(event) {
            true => Ok(()),
            false => publish(&mut self.job, &self.references, event),
        };
        published.is_ok() && self.followed.is_some()
    }

    /// Whether a status is the one that the local task has, by its message.
    fn has_status(&mut self, event: &StreamEvent<'_>) -> bool {
        let EventKind::Change { change: TaskEvent::Status { state, message, .. }, .. } =
            event.kind()
        else {
            return false;
        };
        self.is_resumed = false;
        let id = |message: Option<Message<'_>>| message.map(|one| one.message_id().raw().to_vec());
        let mut is_same = false;
        self.job.read(&mut |local| {
            let own = local.status();
            is_same = own.state == state && message.is_some() && id(own.message) == id(message);
        });
        is_same
    }

    /// Publishes the events of a stream until it or the local task has ended.
    async fn follow<T: Transport>(mut self, stream: &mut ClientStream<T>) {
        let (mut ended, mut pace) = (self.job.canceled(), EventPace::default());
        loop {
            pace.after_event().await;
            let Ok(event) = ended.race(pin!(stream.next())).await else { return };
            match event {
                Some(Ok(event)) if self.publish(&event) => {}
                Some(Ok(_)) | None => return self.call.end(UpstreamOutcome::Ok),
                Some(Err(error)) => {
                    self.call.end(outcome_of(&error));
                    let text = format!("the stream of the upstream agent failed: {error}");
                    return self.fail(&text);
                }
            }
        }
    }
}

/// Whether an event says that the upstream task has ended.
fn has_ended(event: &StreamEvent<'_>) -> bool {
    event.state().is_some_and(TaskState::is_terminal)
}

/// Cancels the upstream task of a local one, which then ends as that did.
pub async fn cancel<T: Transport>(
    client: &Client<T>,
    cancel: DeferredCancel,
    tasks: &UpstreamTasks,
    mut call: UpstreamCall,
) {
    let Some(ids) = UpstreamIds::read(cancel.kept(), &tasks.url) else {
        call.end(UpstreamOutcome::Unsupported);
        return cancel.agree();
    };
    let task_id = ids.task_id().to_str().into_owned();
    let canceled = client.within(cancel.request()).cancel_task(&task_id, None).await;
    call.end(canceled.as_ref().map_or_else(outcome_of, |_| UpstreamOutcome::Ok));
    match canceled {
        Ok(answer) if answer.state() == Some(TaskState::Canceled) => cancel.agree(),
        Ok(_) => cancel.refuse("the upstream agent did not cancel the task"),
        Err(error) => cancel.refuse(fault_of_call(client, &error).message().to_owned()),
    }
}
