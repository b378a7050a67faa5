//! One turn of an agent of the program.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use crate::{
    agent::{Canceled, Closed, Deferred, Job, RequestInfo},
    binding::grpc::write,
    client::{EventKind, StreamEvent},
    dialect::canonical,
    fault::{Fault, FaultKind},
    gateway::{TaskReferences, prepare, publish, to_local},
    model::{
        ArtifactBuf, Generation, JsonObject, Message, MessageBuf, Op, PartsBuf, Reply, TaskEvent,
        TaskState, TaskView,
    },
    service::Scope,
};

use super::{EventField, HostError, HostQueue, events, queue::Queued};

/// One message to an agent of the program. All methods may be called from any thread.
///
/// The first event decides what the client gets: a message is the answer, without a task; an event
/// of a task creates the task. If a turn is dropped before its end, its task fails or, without a
/// task, its call.
pub struct HostTurn {
    task_id: String,
    context_id: String,
    scope: Scope,
    inner: Arc<Mutex<TurnInner>>,
}

pub(super) struct TurnInner {
    progress: TurnProgress,
    /// `None`: the program has not requested a notice of the end.
    notice: Option<Arc<EndNotice>>,
    /// Wakes the notice; `None`: no notice was requested, or it was sent.
    ended: Option<Canceled>,
    /// The state that was published last.
    state: Option<TaskState>,
}

/// The progress of the turn.
enum TurnProgress {
    /// The program has published nothing yet.
    Waiting(Deferred),
    /// The task exists.
    Running(Job),
    Over,
}

impl TurnProgress {
    /// Ready once the turn is obsolete: its task has ended, or its caller has left; `None`: it is
    /// over.
    fn canceled(&self) -> Option<Canceled> {
        match self {
            TurnProgress::Waiting(deferred) => Some(deferred.canceled()),
            TurnProgress::Running(job) => Some(job.canceled()),
            TurnProgress::Over => None,
        }
    }

    /// The job after an event with this state.
    fn of(job: Job, state: Option<TaskState>) -> TurnProgress {
        match state.is_some_and(TaskState::is_terminal) {
            true => TurnProgress::Over,
            false => TurnProgress::Running(job),
        }
    }
}

/// The receiver of the notice that a turn is obsolete.
enum NoticeTo {
    /// Into a queue. Weak: a notice may itself be in the queue.
    Queue(Weak<HostQueue>),
    /// A function; the program calls [`HostTurn::is_over`] later, not in this function.
    Function(Box<dyn Fn() + Send + Sync>),
}

/// Woken by every change of the turn's call or task. Each such change may be the end of the turn.
pub(super) struct EndNotice {
    number: u64,
    to: NoticeTo,
    turn: Weak<Mutex<TurnInner>>,
    /// True while the turn itself publishes: no notice is needed.
    is_publishing: AtomicBool,
}

impl Wake for EndNotice {
    fn wake(self: Arc<Self>) {
        // The turn checks for its end after publishing.
        if self.is_publishing.load(Ordering::Relaxed) {
            return;
        }
        match &self.to {
            NoticeTo::Queue(queue) => {
                if let Some(queue) = queue.upgrade() {
                    queue.push(Queued::Woken(self));
                }
            }
            NoticeTo::Function(notify) => notify(),
        }
    }
}

impl EndNotice {
    /// The number of the turn, if it is obsolete; otherwise the notice is woken again.
    pub fn ended(&self) -> Option<u64> {
        let turn = self.turn.upgrade()?;
        let mut inner = turn.lock().unwrap_or_else(PoisonError::into_inner);
        inner.has_ended().then_some(self.number)
    }
}

impl TurnInner {
    /// Whether the turn has become obsolete; true only once.
    fn has_ended(&mut self) -> bool {
        let (Some(ended), Some(notice)) = (&mut self.ended, &self.notice) else { return false };
        let waker = Waker::from(Arc::clone(notice));
        let is_over = Pin::new(ended).poll(&mut Context::from_waker(&waker)).is_ready();
        if is_over {
            self.ended = None;
        }
        is_over
    }

    /// Notifies the program if the turn has become obsolete.
    fn notify_end(&mut self) {
        if !self.has_ended() {
            return;
        }
        match self.notice.as_ref().map(|notice| (notice.number, &notice.to)) {
            Some((number, NoticeTo::Queue(queue))) => {
                if let Some(queue) = queue.upgrade() {
                    queue.push(Queued::Ended(number));
                }
            }
            Some((_, NoticeTo::Function(notify))) => notify(),
            None => {}
        }
    }

    /// Watches the end of the current call or task.
    fn watch(&mut self) {
        self.ended = self.progress.canceled().filter(|_| self.notice.is_some());
        self.notify_end();
    }
}

/// A scope as an opaque text.
pub(super) fn scope_text(scope: Scope) -> String {
    format!("{}.{}.{}", scope.agent.0, scope.tenant.0, scope.owner.0)
}

/// Appends a task in protocol buffers.
pub(super) fn write_task(out: &mut Vec<u8>, view: TaskView<'_>) {
    let task = Reply::Task { view, history: None };
    write::reply(out, Generation::V1, Op::Get, &task);
}

impl HostTurn {
    pub(crate) fn new(deferred: Deferred) -> HostTurn {
        HostTurn {
            task_id: deferred.task_id().to_str().into_owned(),
            context_id: deferred.context_id().to_str().into_owned(),
            scope: deferred.request().scope(),
            inner: Arc::new(Mutex::new(TurnInner {
                progress: TurnProgress::Waiting(deferred),
                notice: None,
                ended: None,
                state: None,
            })),
        }
    }

    /// The id of the task; before the task exists, the id that it would get.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// The scope, which distinguishes the task from tasks of other owners and tenants with the same
    /// id.
    pub fn scope(&self) -> String {
        scope_text(self.scope)
    }

    /// The context id.
    pub fn context_id(&self) -> &str {
        &self.context_id
    }

    /// Puts [`HostItem::Ended`] into this queue when the turn is obsolete: its task has ended, or
    /// its caller has left. Returns the number of the item.
    ///
    /// [`HostItem::Ended`]: super::HostItem::Ended
    pub fn watch(&self, queue: &Arc<HostQueue>) -> u64 {
        let number = queue.number();
        self.watch_to(number, NoticeTo::Queue(Arc::downgrade(queue)));
        number
    }

    /// Calls a function, on any thread, when the turn may be obsolete: the function must neither
    /// use the turn nor wait. [`HostTurn::is_over`] then returns the answer, and arms the function
    /// again.
    pub fn watch_with(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.watch_to(0, NoticeTo::Function(Box::new(notify)));
    }

    fn watch_to(&self, number: u64, to: NoticeTo) {
        let notice = EndNotice {
            number,
            to,
            turn: Arc::downgrade(&self.inner),
            is_publishing: AtomicBool::new(false),
        };
        let mut inner = self.lock();
        let before = inner.notice.replace(Arc::new(notice));
        inner.watch();
        drop(inner);
        // Without the lock: this may drop the function.
        drop(before);
    }

    /// Whether events of the turn are refused: the turn has answered, its task has ended, or the
    /// caller has left before a task existed.
    pub fn is_over(&self) -> bool {
        let mut inner = self.lock();
        if inner.has_ended() {
            return true;
        }
        let ended = inner.progress.canceled();
        let mut cx = Context::from_waker(Waker::noop());
        ended.is_none_or(|mut ended| Pin::new(&mut ended).poll(&mut cx).is_ready())
    }

    /// The last state that the turn has published; `None`: it has published no state.
    pub fn last_state(&self) -> Option<TaskState> {
        self.lock().state
    }

    /// The text parts of the message; `None`: the turn is over.
    pub fn text(&self) -> Option<String> {
        self.ask(|message, _| message.text())
    }

    /// The message as JSON of A2A 1.0; `None`: the turn is over.
    pub fn message_json(&self) -> Option<Vec<u8>> {
        self.ask(|message, _| {
            let mut out = Vec::new();
            canonical::message(&mut out, message);
            out
        })
    }

    /// The `SendMessageRequest` of A2A 1.0 in protocol buffers: message, accepted output modes and
    /// metadata; `None`: the turn is over.
    pub fn request_protobuf(&self) -> Option<Vec<u8>> {
        self.ask(|message, info| {
            let mut out = Vec::with_capacity(message.packed().len() + 64);
            let metadata = info.metadata().map(JsonObject::as_str);
            write::send_request(&mut out, message, info.accepted_output_modes(), metadata);
            out
        })
    }

    /// The request's metadata, a JSON object.
    pub fn metadata_json(&self) -> Option<String> {
        self.ask(|_, info| Some(info.metadata()?.as_str().to_owned())).flatten()
    }

    /// The name of the caller, where callers are authenticated.
    pub fn caller(&self) -> Option<String> {
        self.ask(|_, info| info.principal().map(|principal| principal.name().to_owned())).flatten()
    }

    /// The tenant that the client named.
    pub fn tenant(&self) -> Option<String> {
        self.ask(|_, info| info.tenant().map(str::to_owned)).flatten()
    }

    /// The extensions that the client requests, comma-separated.
    pub fn extensions(&self) -> Option<String> {
        self.ask(|_, info| info.extensions().map(str::to_owned)).flatten()
    }

    /// The state of the task before the message; `None`: the message starts a new task, or the turn
    /// is over.
    pub fn state(&self) -> Option<TaskState> {
        self.ask(|_, info| info.state()).flatten()
    }

    /// The value of a header field that is passed to the agent.
    pub fn header(&self, name: &str) -> Option<String> {
        self.ask(|_, info| info.header(name).map(str::to_owned)).flatten()
    }

    /// The task as it is now, in protocol buffers; `None`: no task exists.
    pub fn task_protobuf(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut push = |view: TaskView<'_>| write_task(&mut out, view);
        let is_shown = match &self.lock().progress {
            TurnProgress::Waiting(deferred) => deferred.read(&mut push),
            TurnProgress::Running(job) => job.read(&mut push),
            TurnProgress::Over => false,
        };
        is_shown.then_some(out)
    }

    pub(crate) fn ask<R>(&self, read: impl FnOnce(Message<'_>, &RequestInfo) -> R) -> Option<R> {
        match &self.lock().progress {
            TurnProgress::Waiting(deferred) => Some(read(deferred.message(), deferred.request())),
            TurnProgress::Running(job) => Some(read(job.message(), job.request())),
            TurnProgress::Over => None,
        }
    }

    /// Publishes an event of A2A 1.0 in protocol buffers. A message ends the turn: without a task
    /// it is the answer, otherwise it completes the task. A final state ends the turn.
    ///
    /// # Errors
    /// [`HostError::Event`] and [`HostError::OtherTask`], which leave the turn unchanged;
    /// [`HostError::Closed`].
    pub fn publish_protobuf(&self, field: EventField, bytes: &[u8]) -> Result<(), HostError> {
        events::with_protobuf(field, bytes, |event| self.publish(&event))
    }

    /// Publishes an event: a `StreamResponse` of A2A 1.0 in JSON.
    ///
    /// # Errors
    /// As from [`HostTurn::publish_protobuf`].
    pub fn publish_json(&self, json: &[u8]) -> Result<(), HostError> {
        events::with_json(json, |event| self.publish(&event))
    }

    fn publish(&self, event: &StreamEvent<'_>) -> Result<(), HostError> {
        let references = TaskReferences::own();
        if let EventKind::Message(message) = event.kind() {
            return self.answer(&to_local(message, &references));
        }
        if event.task_id().is_some_and(|id| id != *self.task_id) {
            return Err(HostError::OtherTask(self.task_id.clone()));
        }
        let state = event.state();
        self.advance(state, |progress| {
            let (mut job, is_published) = match progress {
                TurnProgress::Waiting(mut deferred) => {
                    let is_prepared = prepare(&mut deferred, &references, event);
                    (deferred.into_job()?, is_prepared)
                }
                TurnProgress::Running(job) => (job, false),
                TurnProgress::Over => return Err(HostError::Closed),
            };
            if !is_published {
                publish(&mut job, &references, event)?;
            }
            Ok(TurnProgress::of(job, state))
        })
    }

    /// Publishes a status, with a text of the agent, if any.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn status(&self, state: TaskState, text: Option<&str>) -> Result<(), HostError> {
        let message = text.map(text_message);
        let message = message.as_ref().map(MessageBuf::view);
        let at_ms = match &self.lock().progress {
            TurnProgress::Waiting(deferred) => deferred.unix_ms(),
            TurnProgress::Running(job) => job.unix_ms(),
            TurnProgress::Over => return Err(HostError::Closed),
        };
        self.publish_change(&TaskEvent::Status { state, at_ms, message, metadata: None })
    }

    /// Publishes an artifact with one text, or a chunk of an artifact: `append` adds the text to
    /// the artifact with this id; `last`: no chunk follows.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn artifact(
        &self,
        artifact_id: &str,
        text: &str,
        append: bool,
        last: bool,
    ) -> Result<(), HostError> {
        let artifact = ArtifactBuf::new(artifact_id, &PartsBuf::new().text(text));
        let artifact = artifact.view();
        let (last_chunk, metadata) = (last, None);
        self.publish_change(&TaskEvent::Artifact { artifact, append, last_chunk, metadata })
    }

    fn publish_change(&self, change: &TaskEvent<'_>) -> Result<(), HostError> {
        let state = match change {
            TaskEvent::Status { state, .. } => Some(*state),
            TaskEvent::Artifact { .. } | TaskEvent::UserMessage { .. } => None,
        };
        self.advance(state, |progress| {
            let job = match progress {
                TurnProgress::Waiting(mut deferred) => {
                    deferred.prepare(change);
                    deferred.into_job()?
                }
                TurnProgress::Running(mut job) => {
                    job.publish(*change)?;
                    job
                }
                TurnProgress::Over => return Err(HostError::Closed),
            };
            Ok(TurnProgress::of(job, state))
        })
    }

    /// Answers with a direct message of this text; the message completes a task that exists.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn reply(&self, text: &str) -> Result<(), HostError> {
        self.answer(&text_message(text))
    }

    fn answer(&self, message: &MessageBuf) -> Result<(), HostError> {
        self.finish(|deferred| deferred.reply(message.clone()), |job| job.reply(message))
    }

    /// Ends the turn with an error: the task fails with this text; a call without a task fails with
    /// an internal error and this text.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn fail(&self, text: &str) -> Result<(), HostError> {
        self.finish_task(|deferred| deferred.fail(text.to_owned()), |job| job.fail(text))
    }

    /// Ends the turn with an error of the program. The operator receives the text, at most 4 KiB;
    /// the client receives it if the server shows errors, otherwise a reference.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn fail_for(&self, text: &str) -> Result<(), HostError> {
        let task = |job: Job| {
            job.fail_for(&text);
            Ok(())
        };
        self.finish_task(|deferred| deferred.fail_for(&text), task)
    }

    /// As `finish`, but if the turn is deferred and its message continues a task, it calls `task`,
    /// not `call`.
    fn finish_task(
        &self,
        call: impl FnOnce(Deferred),
        task: impl Fn(Job) -> Result<(), Closed>,
    ) -> Result<(), HostError> {
        let waiting = |deferred: Deferred| match deferred.request().state() {
            // A task that has ended meanwhile needs no end.
            Some(_) => drop(deferred.into_job().and_then(&task)),
            None => call(deferred),
        };
        self.finish(waiting, &task)
    }

    /// Refuses the message with an error of A2A: the call fails, and no task is created; a task
    /// that exists fails with the text.
    ///
    /// # Errors
    /// [`HostError::Closed`].
    pub fn refuse(&self, kind: FaultKind, text: &str) -> Result<(), HostError> {
        let refuse = |deferred: Deferred| deferred.refuse(Fault::because(kind, text.to_owned()));
        self.finish(refuse, |job| job.fail(text))
    }

    /// Ends the turn without another event. A task that has neither ended nor waits for its client
    /// fails, as does a call without an answer.
    pub fn end(&self) {
        // A turn that has ended already stays as it is.
        let _ = self.finish(drop, |job| {
            drop(job);
            Ok(())
        });
    }

    /// Ends the turn: a call that waits, or a task.
    fn finish(
        &self,
        call: impl FnOnce(Deferred),
        task: impl FnOnce(Job) -> Result<(), Closed>,
    ) -> Result<(), HostError> {
        self.advance(None, |progress| {
            match progress {
                TurnProgress::Waiting(deferred) => call(deferred),
                TurnProgress::Running(job) => task(job)?,
                TurnProgress::Over => return Err(HostError::Closed),
            }
            Ok(TurnProgress::Over)
        })
    }

    /// Replaces the progress by the result of `step`. After an error the turn is over, because its
    /// task accepts no more events.
    fn advance(
        &self,
        state: Option<TaskState>,
        step: impl FnOnce(TurnProgress) -> Result<TurnProgress, HostError>,
    ) -> Result<(), HostError> {
        let mut inner = self.lock();
        let was_waiting = matches!(inner.progress, TurnProgress::Waiting(_));
        if was_waiting {
            inner.ended = None;
        }
        let notice = inner.notice.clone();
        let set_publishing = |is_publishing| {
            if let Some(notice) = &notice {
                notice.is_publishing.store(is_publishing, Ordering::Relaxed);
            }
        };
        set_publishing(true);
        let progress = std::mem::replace(&mut inner.progress, TurnProgress::Over);
        let outcome = step(progress);
        set_publishing(false);
        let outcome = outcome.map(|next| {
            inner.progress = next;
            inner.state = state.or(inner.state);
        });
        match &inner.progress {
            TurnProgress::Over => inner.ended = None,
            TurnProgress::Running(_) if was_waiting => inner.watch(),
            TurnProgress::Running(_) | TurnProgress::Waiting(_) => inner.notify_end(),
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, TurnInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_message(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text))
}
