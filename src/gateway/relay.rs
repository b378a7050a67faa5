//! One message to the upstream agent, from its call to the end of its stream.

use std::{
    collections::HashSet,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use foldhash::fast::RandomState;

use crate::{
    agent::{Adopted, Canceled, Closed, Deferred, DeferredCancel, Job, NotKept},
    client::{Client, ClientError, ClientStream, EventKind, SendRequest, StreamEvent, Transport},
    fault::{Fault, FaultKind},
    model::{Generation, Message, MessageBuf, PartsBuf, RawText, TaskEvent, TaskState},
    service::{
        Scope,
        upstream::{UpstreamCall, UpstreamOutcome},
    },
};

use super::{
    EventPace,
    answer::{prepare, publish},
    call::RelayedCall,
    fault::{fault_of_call, is_unknown_task, outcome_of},
    ids::UpstreamIds,
    message::{self, SentIds},
    pace::EVENTS_AT_ONCE,
    references::TaskReferences,
    sent_id::sent_id,
};

/// The tasks of one upstream agent.
pub struct UpstreamTasks {
    /// The URL by which the agent is configured: ids from another URL do not belong to this agent.
    url: Box<str>,
    /// The local tasks of the upstream streams that are being read.
    followed: Mutex<HashSet<FollowedId, RandomState>>,
}

/// The scope and the id of a local task.
type FollowedId = (Scope, Box<[u8]>);

/// Marks a local task as followed until the mark is dropped.
struct FollowedNow<'f> {
    all: &'f UpstreamTasks,
    id: FollowedId,
}

impl UpstreamTasks {
    /// The tasks of the agent that is configured by this URL.
    pub fn of(url: &str) -> UpstreamTasks {
        UpstreamTasks { url: url.into(), followed: Mutex::default() }
    }

    /// Marks a task as followed; `None`: the task is followed already.
    fn follow(&self, scope: Scope, task_id: RawText<'_>) -> Option<FollowedNow<'_>> {
        let id: FollowedId = (scope, task_id.raw().into());
        let is_new = self.lock().insert(id.clone());
        is_new.then(|| FollowedNow { all: self, id })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<FollowedId, RandomState>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FollowedNow<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

/// Sends the message of a turn to the upstream agent, and publishes the answer until the upstream
/// stream or the local task has ended. If another turn follows the task's stream already, that
/// stream delivers the answer.
pub async fn relay<T: Transport, P>(
    client: &Client<T>,
    mut turn: Deferred,
    tasks: &UpstreamTasks,
    mut call: RelayedCall<P>,
) {
    let continued = UpstreamIds::read(turn.kept(), &tasks.url);
    if turn.request().state().is_some() && continued.is_none() {
        call.end(UpstreamOutcome::Unsupported);
        let text = "the upstream agent has no matching task";
        return turn.refuse(Fault::because(FaultKind::UnsupportedOperation, text));
    }
    let mut references = match TaskReferences::of(&turn, &tasks.url) {
        Ok(references) => references,
        Err(fault) => {
            call.end(UpstreamOutcome::Unsupported);
            return turn.refuse(fault);
        }
    };
    let chooses_id = client.generation() == Generation::V01;
    let ids = TurnIds { continued: continued.as_ref(), references: &references, chooses_id };
    let request = request_of(&turn, &tasks.url, &ids);
    let mut followed = None;
    if continued.is_some() {
        followed = tasks.follow(turn.request().scope(), turn.task_id());
        if followed.is_none() {
            return send_to_followed(client, turn, request, call).await;
        }
    }
    // The stream of a silent agent may stay open for ever, so the end of the local task ends this
    // future. Without a task, this future is dropped when the caller disconnects.
    let mut ended = turn.request().state().map(|_| turn.canceled());
    let Ok(opened) = race(&mut ended, pin!(client.follow(&request))).await else { return };
    let mut stream = match opened {
        Ok(stream) => stream.through_logins(),
        Err(error) => {
            let refusal = RefusedMessage { turn, followed, references, continued };
            return Box::pin(refusal.settle(client, call, &error)).await;
        }
    };
    let Ok(first) = race(&mut ended, pin!(stream.next())).await else { return };
    let first = match first {
        Some(Ok(event)) => event,
        Some(Err(error)) => {
            let refusal = RefusedMessage { turn, followed, references, continued };
            return Box::pin(refusal.settle(client, call, &error)).await;
        }
        None => {
            call.end(UpstreamOutcome::InvalidAnswer);
            let text = "the upstream agent gave no answer";
            return turn.refuse(Fault::because(FaultKind::InvalidAgentResponse, text));
        }
    };
    let mut call = call.answered();
    if let EventKind::Message(message) = first.kind() {
        return turn.reply(message::to_local(message, &references));
    }
    let stored = store_ids(&mut turn, &mut references, &tasks.url, &first);
    if let (Err(error @ (NotKept::TooLong | NotKept::NoRoom)), false) = (stored, has_ended(&first))
    {
        // Without the upstream ids, the task could be neither continued nor canceled.
        let Ok(job) = turn.into_job() else { return };
        call.follow();
        call.end(UpstreamOutcome::Limit);
        let text = format!("the upstream ids of the task cannot be stored: {error}");
        let _: Result<(), Closed> = job.fail(&text);
        return;
    }
    // Events that arrived together are stored with the task in one step. `at_hand` is the result of
    // the stream that the task has not received yet; an inner `None` is the end of the stream.
    let (mut at_hand, mut is_over) = (Some(Some(Ok(first))), false);
    for _ in 0..EVENTS_AT_ONCE {
        match &at_hand {
            Some(Some(Ok(event))) if prepare(&mut turn, &references, event) => {
                is_over = ends_stream(event);
            }
            Some(_) | None => break,
        }
        at_hand = if is_over { None } else { now_or_never(pin!(stream.next())).await };
    }
    if is_over {
        // Unmarked before the client can see the new state and answer.
        followed = None;
    } else if followed.is_none() {
        followed = tasks.follow(turn.request().scope(), turn.task_id());
    }
    // An error means that there was no room for the task, and the client has been answered.
    let Ok(job) = turn.into_job() else { return };
    call.follow();
    let mut relayed = RelayedTask { job, references, followed, is_resumed: false, call };
    if is_over {
        relayed.call.end(UpstreamOutcome::Ok);
    } else if at_hand.is_none_or(|next| relayed.take(next)) {
        relayed.follow(&mut stream).await;
    }
}

/// The ids that the message of a turn refers to at the upstream agent.
struct TurnIds<'t> {
    continued: Option<&'t UpstreamIds>,
    references: &'t TaskReferences,
    /// In A2A 0.1 clients choose the ids of tasks.
    chooses_id: bool,
}

/// The message of a turn as it is sent to the upstream agent.
fn request_of(turn: &Deferred, upstream: &str, ids: &TurnIds<'_>) -> SendRequest {
    let TurnIds { continued, references, chooses_id } = *ids;
    // A context that the client names may already have an upstream id.
    let names_context = continued.is_none() && turn.message().context_id().is_some();
    let earlier =
        names_context.then(|| UpstreamIds::read(turn.kept_in_context(), upstream)).flatten();
    let upstream_context = earlier.as_ref().map(UpstreamIds::context_id);
    let names = [turn.request().tenant(), turn.request().owner()];
    let own = |id| sent_id(names, id);
    let (context_id, task_id) = (own(turn.context_id()), chooses_id.then(|| own(turn.task_id())));
    let context_id = RawText::known(&context_id);
    let ids = SentIds {
        continued,
        context_id: upstream_context.filter(|id| !id.is_empty()).unwrap_or(context_id),
        task_id: task_id.as_deref().map(RawText::known),
        references,
    };
    message::request(turn, &ids)
}

/// Sends the message of a turn to a task whose stream another turn follows; that stream delivers
/// the answer.
async fn send_to_followed<T: Transport, P>(
    client: &Client<T>,
    turn: Deferred,
    request: SendRequest,
    mut call: RelayedCall<P>,
) {
    match Box::pin(client.send(&request.return_immediately())).await {
        Ok(_) => {
            call.answered();
            // An error means that there was no room for the task, and the client has been answered.
            if let Ok(job) = turn.into_job() {
                job.leave();
            }
        }
        Err(error) => turn.refuse(call.failed(client, &error)),
    }
}

/// As [`Canceled::race`] if there is a task to cancel; otherwise only runs the future.
async fn race<F: Future>(
    ended: &mut Option<Canceled>,
    run: Pin<&mut F>,
) -> Result<F::Output, Closed> {
    match ended {
        Some(ended) => ended.race(run).await,
        None => Ok(run.await),
    }
}

/// Stores the upstream ids in an event with the local task.
///
/// # Errors
/// [`NotKept`].
fn store_ids(
    turn: &mut Deferred,
    references: &mut TaskReferences,
    upstream: &str,
    event: &StreamEvent<'_>,
) -> Result<(), NotKept> {
    let (task_id, context_id) = match event.kind() {
        EventKind::Task(task) => (task.id(), task.context_id()),
        EventKind::Change { task_id, context_id, .. } => (task_id, context_id),
        EventKind::Message(_) | EventKind::Gap { .. } => return Ok(()),
    };
    references.add(turn.task_id(), task_id);
    turn.keep(UpstreamIds::new(upstream, task_id, context_id).into_packed())
}

/// A message that the upstream agent did not accept.
struct RefusedMessage<'f> {
    turn: Deferred,
    followed: Option<FollowedNow<'f>>,
    references: TaskReferences,
    /// The upstream ids of the task that the message continues.
    continued: Option<UpstreamIds>,
}

impl RefusedMessage<'_> {
    /// Refuses the message for the client as well. If the upstream agent no longer has the task, or
    /// has ended it while the local task waited, the local task ends, because no other message
    /// could continue it.
    async fn settle<T: Transport, P>(
        self,
        client: &Client<T>,
        mut call: RelayedCall<P>,
        error: &ClientError,
    ) {
        let RefusedMessage { turn, followed, references, continued } = self;
        let fault = call.failed(client, error);
        let Some(ids) = continued.filter(|_| error.fault().is_some()) else {
            return turn.refuse(fault);
        };
        let task_id = ids.task_id().to_str().into_owned();
        let one = client.within(turn.request());
        let mut ended = turn.canceled();
        let Ok(task) = ended.race(pin!(one.get_task(&task_id, Some(0)))).await else { return };
        let is_over = match &task {
            Ok(task) => task.state().is_some_and(TaskState::is_terminal),
            Err(error) => is_unknown_task(error),
        };
        if !is_over {
            return turn.refuse(fault);
        }
        // An error means that there was no room for the task, and the client has been answered.
        let Ok(job) = turn.into_job() else { return };
        let mut stream = None;
        job.read(&mut |local| stream = Some(client.follow_task(ids.task_id(), local)));
        let Some(mut stream) = stream else { return };
        let (is_resumed, call) = (true, call.answered());
        let relayed = RelayedTask { job, references, followed, is_resumed, call };
        relayed.follow(&mut stream).await;
    }
}

/// Continues a task that was relayed before its agent was replaced: publishes the missing events
/// and then new events. A task that this upstream agent does not know fails.
pub async fn adopt<T: Transport>(
    client: &Client<T>,
    task: Adopted,
    tasks: &UpstreamTasks,
    call: UpstreamCall,
) {
    // Dropping the task fails it with the reason that its agent was replaced.
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

/// A local task, and the state for publishing its upstream stream.
struct RelayedTask<'f> {
    job: Job,
    references: TaskReferences,
    /// `None`: the task has ended or waits for input.
    followed: Option<FollowedNow<'f>>,
    /// True: events come from reading the upstream task, and the local task may already have its
    /// status.
    is_resumed: bool,
    call: UpstreamCall,
}

impl RelayedTask<'_> {
    /// Publishes an event. False: the stream is no longer followed, since the task has ended or
    /// waits for input, and the next message opens another stream. A task that waits for a login is
    /// still followed.
    fn publish(&mut self, event: &StreamEvent<'_>) -> bool {
        if ends_stream(event) {
            // Unmarked before the client can see the new state and answer.
            self.followed = None;
        }
        self.is_resumed |= matches!(event.kind(), EventKind::Gap { .. });
        let published = match self.is_resumed && self.has_status(event) {
            true => Ok(()),
            false => publish(&mut self.job, &self.references, event),
        };
        published.is_ok() && self.followed.is_some()
    }

    /// Whether the local task has this status already, compared by its message.
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

    /// Publishes the events of a stream until the stream or the local task has ended.
    async fn follow<T: Transport>(mut self, stream: &mut ClientStream<T>) {
        let (mut ended, mut pace) = (self.job.canceled(), EventPace::default());
        loop {
            pace.after_event().await;
            let Ok(next) = ended.race(pin!(stream.next())).await else { return };
            if !self.take(next) {
                return;
            }
        }
    }

    /// Publishes one result of the stream; false: the stream is no longer followed.
    fn take(&mut self, next: Option<Result<StreamEvent<'_>, ClientError>>) -> bool {
        match next {
            Some(Ok(event)) if self.publish(&event) => return true,
            Some(Ok(_)) | None => self.call.end(UpstreamOutcome::Ok),
            Some(Err(error)) => {
                self.call.end(outcome_of(&error));
                let text = format!("the stream of the upstream agent failed: {error}");
                let message = MessageBuf::agent(&PartsBuf::new().text(&text));
                // If the task has already ended, it cannot fail.
                let _: Result<(), Closed> = self.job.status(TaskState::Failed, Some(&message));
            }
        }
        false
    }
}

/// Polls a future once; returns its output if it is ready.
async fn now_or_never<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Whether the stream of a task ends with an event: the task has ended, or waits for input.
fn ends_stream(event: &StreamEvent<'_>) -> bool {
    // The task with which a stream begins may show the state before the message.
    let is_task = matches!(event.kind(), EventKind::Task(_));
    let requests_input = |state: TaskState| state == TaskState::InputRequired && !is_task;
    event.state().is_some_and(|state| state.is_terminal() || requests_input(state))
}

/// Whether an event ends the upstream task.
fn has_ended(event: &StreamEvent<'_>) -> bool {
    event.state().is_some_and(TaskState::is_terminal)
}

/// Cancels the upstream task of a local task; the local task then receives the final state of the
/// upstream task.
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
        // The agent was restarted without its tasks, or has evicted this task.
        Err(error) if is_unknown_task(&error) => cancel.agree(),
        Err(error) => cancel.refuse(fault_of_call(client, &error).message().to_owned()),
    }
}
