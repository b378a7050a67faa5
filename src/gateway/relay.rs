//! One message to the upstream agent, from its call to the end of its stream.

use std::{future::poll_fn, pin::pin, task::Poll};

use crate::{
    agent::{Deferred, DeferredCancel, Job},
    client::{Client, ClientError, ClientStream, EventKind, StreamEvent, Transport},
    fault::{Fault, FaultKind},
    model::{MessageBuf, PartsBuf, TaskState},
};

use super::{answer::publish, fault::fault_of, ids::UpstreamIds, message};

/// Sends the message of a turn to the upstream agent, and publishes what it answers until it has
/// nothing more to say, or the local task has ended.
pub async fn relay<T: Transport>(client: &Client<T>, turn: Deferred) {
    let ids = UpstreamIds::read(turn.kept());
    if turn.request().state().is_some() && ids.is_none() {
        let text = "the upstream agent has no task for this one";
        return turn.refuse(Fault::because(FaultKind::UnsupportedOperation, text));
    }
    let mut request = message::request(turn.message(), ids.as_ref(), turn.context_id().raw());
    if let Some(metadata) = turn.request().metadata() {
        request = request.metadata(metadata);
    }
    let request = request.within(turn.request());
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
    if let EventKind::Message(message) = first.kind() {
        return turn.reply(message::without_ids(message));
    }
    // Without room for the task the client is told.
    let Ok(mut job) = turn.into_job() else { return };
    if begin(&mut job, &first) {
        follow(&mut job, &mut stream).await;
    }
}

/// Publishes the first event; false: the local task takes no more.
fn begin(job: &mut Job, first: &StreamEvent<'_>) -> bool {
    let (task_id, context_id) = match first.kind() {
        EventKind::Task(task) => (task.id(), task.context_id()),
        EventKind::Change { task_id, context_id, .. } => (task_id, context_id),
        EventKind::Message(_) | EventKind::Gap { .. } => return true,
    };
    let ids = UpstreamIds::new(task_id, context_id);
    job.keep(ids.packed()).is_ok() && publish(job, first).is_ok()
}

/// Publishes the events of a stream until it or the local task has ended.
async fn follow<T: Transport>(job: &mut Job, stream: &mut ClientStream<T>) {
    let mut ended = job.canceled();
    loop {
        let mut next = pin!(stream.next());
        let event = poll_fn(|cx| {
            if std::pin::Pin::new(&mut ended).poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            next.as_mut().poll(cx)
        });
        match event.await {
            Some(Ok(event)) => {
                if publish(job, &event).is_err() {
                    return;
                }
            }
            Some(Err(error)) => return fail(job, &error),
            None => return,
        }
    }
}

/// Fails the task: the upstream agent is gone for good.
fn fail(job: &mut Job, error: &ClientError) {
    let text = format!("the stream of the upstream agent failed: {error}");
    let message = MessageBuf::agent(&PartsBuf::new().text(&*text));
    // A task that has ended needs no end.
    let _ = job.status(TaskState::Failed, Some(&message));
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
