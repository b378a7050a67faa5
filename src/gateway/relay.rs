//! One message to the upstream agent, from its call to the end of its stream.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    agent::{Deferred, DeferredCancel, Job},
    client::{Client, ClientStream, EventKind, StreamEvent, Transport},
    fault::{Fault, FaultKind},
    model::{Generation, RawText, TaskState},
    service::Scope,
};

use super::{
    EventPace,
    answer::publish,
    fault::fault_of,
    ids::UpstreamIds,
    message::{self, FreshTask},
};

/// The local tasks whose upstream streams are followed now.
#[derive(Default)]
pub struct RelayedTasks(Mutex<HashSet<RelayedId>>);

/// The scope and the id of a local task.
type RelayedId = (Scope, Box<[u8]>);

/// A local task as long as its upstream stream is followed.
struct RelayedTask<'f> {
    all: &'f RelayedTasks,
    id: RelayedId,
}

impl RelayedTasks {
    /// The task of a turn; `None`: it is followed already.
    fn enter(&self, turn: &Deferred) -> Option<RelayedTask<'_>> {
        let id: RelayedId = (turn.request().scope(), turn.task_id().raw().into());
        let is_new = self.lock().insert(id.clone());
        is_new.then(|| RelayedTask { all: self, id })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RelayedId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RelayedTask<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

/// Sends the message of a turn to the upstream agent, and publishes the answer until the upstream
/// stream or the local task has ended. Where the stream of the task is followed already, it brings
/// the answer. `call` is dropped when the answer has begun.
pub async fn relay<T: Transport, C>(
    client: &Client<T>,
    turn: Deferred,
    followed: &RelayedTasks,
    call: C,
) {
    let ids = UpstreamIds::read(turn.kept());
    if turn.request().state().is_some() && ids.is_none() {
        let text = "the upstream agent has no task for this one";
        return turn.refuse(Fault::because(FaultKind::UnsupportedOperation, text));
    }
    let chooses_id = client.generation() == Generation::V01;
    let new =
        FreshTask { context_id: turn.context_id(), task_id: chooses_id.then(|| turn.task_id()) };
    let mut request = message::request(turn.message(), ids.as_ref(), &new);
    if let Some(metadata) = turn.request().metadata() {
        request = request.metadata(metadata);
    }
    let request = request.within(turn.request());
    let Some(followed) = followed.enter(&turn) else {
        return match client.send(&request.return_immediately()).await {
            // Without room for the turn the client is told.
            Ok(_) => turn.into_job().map_or((), Job::leave),
            Err(error) => turn.refuse(fault_of(&error)),
        };
    };
    let mut stream = match client.follow(&request).await {
        Ok(stream) => stream,
        Err(error) => return turn.refuse(fault_of(&error)),
    };
    let first = match stream.next().await {
        Some(Ok(event)) => event,
        Some(Err(error)) => return turn.refuse(fault_of(&error)),
        None => {
            let text = "the upstream agent answered with nothing";
            return turn.refuse(Fault::because(FaultKind::InvalidAgentResponse, text));
        }
    };
    drop(call);
    if let EventKind::Message(message) = first.kind() {
        return turn.reply(message::without_ids(message));
    }
    // Without room for the task the client is told.
    let Ok(mut job) = turn.into_job() else { return };
    if let Some(followed) = begin(&mut job, &first, followed) {
        follow(job, &mut stream, followed).await;
    }
}

/// Publishes the first event; `None`: nothing follows it.
fn begin<'f>(
    job: &mut Job,
    first: &StreamEvent<'_>,
    followed: RelayedTask<'f>,
) -> Option<RelayedTask<'f>> {
    if let EventKind::Task(task) = first.kind() {
        keep(job, task.id(), task.context_id());
    } else if let EventKind::Change { task_id, context_id, .. } = first.kind() {
        keep(job, task_id, context_id);
    }
    publish_next(job, first, followed)
}

/// Keeps the ids of the upstream task with the local one, which may have ended meanwhile.
fn keep(job: &mut Job, task_id: RawText<'_>, context_id: RawText<'_>) {
    let _ = job.keep(UpstreamIds::new(task_id, context_id).packed());
}

/// Publishes an event; `None`: the stream is followed no longer, since the task has ended or waits
/// for input, and the next message opens another stream. One that waits for a login is followed on.
fn publish_next<'f>(
    job: &mut Job,
    event: &StreamEvent<'_>,
    followed: RelayedTask<'f>,
) -> Option<RelayedTask<'f>> {
    // The task with which a stream begins may show the state before the message.
    let is_task = matches!(event.kind(), EventKind::Task(_));
    let asks = |state: TaskState| state == TaskState::InputRequired && !is_task;
    let ends = event.state().is_some_and(|state| state.is_terminal() || asks(state));
    // Before the client can see that state and answer.
    let followed = if ends { None } else { Some(followed) };
    publish(job, event).ok().and(followed)
}

/// Publishes the events of a stream until it or the local task has ended.
async fn follow<T: Transport>(
    mut job: Job,
    stream: &mut ClientStream<T>,
    mut followed: RelayedTask<'_>,
) {
    let (mut ended, mut pace) = (job.canceled(), EventPace::default());
    loop {
        pace.after_event().await;
        let Ok(event) = ended.race(stream.next()).await else { return };
        followed = match event {
            Some(Ok(event)) => match publish_next(&mut job, &event, followed) {
                Some(followed) => followed,
                None => return,
            },
            Some(Err(error)) => {
                let text = format!("the stream of the upstream agent failed: {error}");
                // A task that has ended needs no end.
                let _ = job.fail(&text);
                return;
            }
            None => return,
        };
    }
}

/// Cancels the upstream task of a local one, which then ends as that did.
pub async fn cancel<T: Transport>(client: &Client<T>, cancel: DeferredCancel) {
    let Some(ids) = UpstreamIds::read(cancel.kept()) else { return cancel.agree() };
    let task_id = ids.task_id().to_str().into_owned();
    match client.cancel_task(&task_id, None).await {
        Ok(answer) if answer.state() == Some(TaskState::Canceled) => cancel.agree(),
        Ok(_) => cancel.refuse("the upstream agent did not cancel the task"),
        Err(error) => cancel.refuse(fault_of(&error).message().to_owned()),
    }
}
