//! Sending a message (A2A 1.0 §3.1.1, §3.1.2): to a new task, or to one that waits or runs.
//!
//! The agent runs first, on this thread, and its events are collected in a list. Then the new task
//! and all events are stored under one lock, and the answer is written under the same lock. A
//! direct message creates no task. A message to an existing task joins its history before the agent
//! runs.

use crate::{
    agent::{Ending, FailureNote, RequestView, Turn, panic_of},
    fault::{Fault, FaultKind},
    model::{Generation, RawText, Reply, Send, SendMode, TaskState},
    op::{
        Core,
        agents::{CurrentAgent, RegisteredAgent},
        check::{check_extensions, check_media, removed},
        failure::BrokenTurn,
        handover::By,
        host::{NewTurn, NextTurn, TurnCall},
        idempotency::{FirstSend, SentTask},
        push::CheckedWebhook,
        turn::TurnTask,
    },
    service::{Answer, CallCx, CallLink, Caller, Cursor, Outcome, WaitHandle},
    shares::Holder,
    store::{NewTask, StoredTask, TaskKey},
};

/// The event after which a new task is shown to the subscriber that created it: `submitted`.
pub(super) const FIRST_SEQ: u64 = 1;

impl Core {
    #[inline(always)]
    pub(super) fn send(
        &self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
        first: &mut Option<FirstSend<'_>>,
    ) -> Result<Outcome, Fault> {
        let current = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
        let registered: &RegisteredAgent = &current;
        if registered.is_removed {
            return Err(removed(registered));
        }
        if send.mode == SendMode::Stream && !registered.profile.streaming {
            return Err(FaultKind::StreamingNotSupported.into());
        }
        let webhook = if send.push.is_some() { self.check_inline(cx, send)? } else { None };
        check_extensions(registered, cx.caller.extensions)?;
        check_media(registered, send.message)?;
        let target = SendTarget { current: &current, registered, webhook: webhook.as_deref() };
        let answer = SendAnswer { answer, first };
        let Some(id) = send.task_id else { return self.send_new(cx, target, send, answer) };
        match self.store.find(cx.caller.scope, id.raw()) {
            Some(key) => self.send_next(cx, target, key, send, answer),
            None if send.client_chooses_id => self.send_new(cx, target, send, answer),
            // A2A 1.0 §3.4.2: clients use only ids that a server has created.
            None => Err(FaultKind::TaskNotFound.into()),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn send_again(
        &self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
        first: &mut Option<FirstSend<'_>>,
    ) -> Result<Outcome, Fault> {
        self.send(cx, send, answer, first)
    }

    fn send_new(
        &self,
        cx: &mut CallCx<'_>,
        target: SendTarget<'_>,
        send: &Send<'_>,
        answer: SendAnswer<'_, '_, '_>,
    ) -> Result<Outcome, Fault> {
        let SendTarget { current, registered, webhook } = target;
        let SendAnswer { answer, first } = answer;
        self.check_begins()?;
        let bits = [cx.entropy.bits(), cx.entropy.bits()];
        let new = new_task(&cx.caller, send, registered.incarnation, bits, cx.peer_holder());
        let reserving = self.store.reserve(new, cx.now);
        let reserved = reserving.as_ref().map_err(|refused| *refused)?;
        let _webhooks = self.watch_new(cx, reserved, webhook)?;
        let (key, context_id) = (reserved.key(), RawText::known(reserved.context_id()));
        let (generation, message, now) = (send.generation, send.message, cx.now);
        let (core, incarnation, mut ending) = (self, registered.incarnation, Ending::Returned);
        // A turn that panicked or was rejected leaves no events for the next turn.
        cx.events.clear();
        let call = TurnCall::of(send, &cx.caller, incarnation, first);
        let (began, is_over) = (current, false);
        let mut host = NewTurn { core, reserved, generation, message, now, call, began, is_over };
        let turn = Turn {
            message,
            state: None,
            task_id: RawText::known(reserved.id()),
            context_id,
            request: request_of(&cx.caller, registered, send),
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        };
        if let Some(cause) = panic_of(|| registered.agent.start(turn)) {
            let agent = cx.caller.scope.agent;
            let panicked = FailureNote::of(agent, reserved.id(), cause);
            let turn = BrokenTurn { events: cx.events, ending: &mut ending, now: cx.now };
            self.fail_turn(panicked, turn);
        }
        let (is_deferred, link) = host.call.end(&ending)?;
        if is_deferred {
            first.iter_mut().for_each(FirstSend::defer);
            return Ok(Outcome::Pending(deferred(send, key, link)));
        }
        host.is_over = true;
        if let (false, Ending::Replied(message)) = (reserved.is_used_up(), &ending) {
            // Dropping the reservation frees its slot, so nothing of the task is stored.
            cx.events.clear();
            first.iter_mut().for_each(|first| first.note_message(message, reserved.context_id()));
            answer(Reply::Message { message: message.view(), context_id });
            return Ok(Outcome::Answered);
        }
        self.finish_turn(cx.events, &ending, cx.now);
        let mut shown = (false, 0, 0);
        let show = |task: StoredTask<'_>| shown = show(send, task, 0, &ending, answer);
        let task = TurnTask { key, incarnation };
        let committed = if reserved.is_used_up() {
            self.commit(task, cx.events, Some(message), cx.now, show);
            Ok(())
        } else {
            self.store.commit_new(reserved, generation, message, cx.events, cx.now, show)
        };
        cx.events.clear();
        committed?;
        cx.shows(shown.1);
        let start = StreamStart { seq: FIRST_SEQ, after: 0, generation };
        note(first, key, false, &start, ends_turn(&ending).then_some(shown.2));
        self.schedule_resume(cx.caller.worker, task, cx.now, &ending);
        self.hand_over_late(current, cx.caller.scope.agent, key, &ending);
        Ok(outcome(send, key, shown.0, start, link))
    }

    /// Sends to a task that does not belong to the current program.
    #[cold]
    #[inline(never)]
    fn send_after_change(
        &self,
        cx: &mut CallCx<'_>,
        webhook: Option<&CheckedWebhook<'_>>,
        key: TaskKey,
        send: &Send<'_>,
        answer: SendAnswer<'_, '_, '_>,
    ) -> Result<Outcome, Fault> {
        let agent = cx.caller.scope.agent;
        if let Some(older) = self.older_program(agent, key) {
            let target = SendTarget { current: &older, registered: &older, webhook };
            return self.send_next(cx, target, key, send, answer);
        }
        // The agent changed, but the task or this call still has the earlier incarnation.
        self.hand_over(agent, key, By::Call);
        self.send_again(cx, send, answer.answer, answer.first)
    }

    fn send_next(
        &self,
        cx: &mut CallCx<'_>,
        target: SendTarget<'_>,
        key: TaskKey,
        send: &Send<'_>,
        answer: SendAnswer<'_, '_, '_>,
    ) -> Result<Outcome, Fault> {
        let SendTarget { current, registered, webhook } = target;
        let incarnation = registered.incarnation;
        let task = TurnTask { key, incarnation };
        if let Some(webhook) = webhook {
            self.check_next(cx, key, webhook)?;
        }
        let Some(continued) = self.continue_task(cx, task, send)? else {
            return self.send_after_change(cx, webhook, key, send, answer);
        };
        let SendAnswer { answer, first } = answer;
        if let (Some(webhook), Some(id)) = (webhook, send.task_id) {
            self.watch_next(cx, key, id.raw(), continued.seq, webhook);
        }
        let mut ending = Ending::Returned;
        cx.events.clear();
        let (seq, generation) = (continued.seq, continued.generation);
        let (now, call) = (cx.now, TurnCall::of(send, &cx.caller, incarnation, first));
        let (core, began, is_over) = (self, current, false);
        let mut host = NextTurn { core, key, now, seq, generation, call, began, is_over };
        let turn = Turn {
            message: send.message,
            state: Some(continued.state),
            task_id: send.task_id.unwrap_or_default(),
            context_id: RawText::known(&continued.context_id),
            request: request_of(&cx.caller, registered, send),
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        };
        if let Some(cause) = panic_of(|| registered.agent.start(turn)) {
            let task_id = send.task_id.unwrap_or_default().raw();
            let panicked = FailureNote::of(cx.caller.scope.agent, task_id, cause);
            let turn = BrokenTurn { events: cx.events, ending: &mut ending, now: cx.now };
            self.fail_turn(panicked, turn);
        }
        host.is_over = true;
        let link = match host.call.end(&ending) {
            Ok((false, link)) => link,
            refused_or_deferred => {
                self.store.update(key, cx.now, |edit| edit.end_turn());
                self.hand_over_late(current, cx.caller.scope.agent, key, &ending);
                let (_, link) = refused_or_deferred?;
                first.iter_mut().for_each(FirstSend::defer);
                return Ok(Outcome::Pending(deferred(send, key, link)));
            }
        };
        self.finish_turn(cx.events, &ending, cx.now);
        let mut shown = (false, 0, 0);
        self.commit(task, cx.events, None, cx.now, |task| {
            shown = show(send, task, continued.seq, &ending, answer);
        });
        cx.events.clear();
        cx.shows(shown.1);
        let start = StreamStart { seq, after: seq, generation };
        note(first, key, true, &start, ends_turn(&ending).then_some(shown.2));
        self.schedule_resume(cx.caller.worker, task, cx.now, &ending);
        self.hand_over_late(current, cx.caller.scope.agent, key, &ending);
        Ok(outcome(send, key, shown.0, start, link))
    }

    /// Adds the message to the history of a task that accepts messages; `None`: the task belongs to
    /// another incarnation of its agent.
    fn continue_task(
        &self,
        cx: &CallCx<'_>,
        task: TurnTask,
        send: &Send<'_>,
    ) -> Result<Option<ContinuedTask>, Fault> {
        let continued = self.store.update(task.key, cx.now, |edit| {
            if edit.incarnation() != task.incarnation && !edit.task().state().is_terminal() {
                return Ok(None);
            }
            if send.context_id.is_some_and(|id| id.raw() != edit.task().context_id()) {
                // A2A 1.0 §3.4.3: a mismatch is rejected.
                let detail = "the task belongs to another context";
                return Err(Fault::param("message.contextId", detail));
            }
            edit.user_message(send.message, cx.caller.running)?;
            edit.begin_turn();
            let task = edit.task();
            Ok(Some(ContinuedTask {
                seq: task.seq(),
                state: task.state(),
                generation: task.generation(),
                context_id: task.context_id().to_vec(),
            }))
        });
        continued.unwrap_or(Err(FaultKind::TaskNotFound.into()))
    }

    /// A draining server creates no task.
    #[inline]
    fn check_begins(&self) -> Result<(), Fault> {
        match self.draining.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(FaultKind::ShuttingDown.into()),
            false => Ok(()),
        }
    }
}

/// The program that receives a message, and the webhook that comes with the message.
struct SendTarget<'c> {
    current: &'c CurrentAgent<'c>,
    /// The agent in `current`.
    registered: &'c RegisteredAgent,
    webhook: Option<&'c CheckedWebhook<'c>>,
}

/// The receivers of a send's outcome.
pub(super) struct SendAnswer<'f, 'a, 'c> {
    pub answer: &'f mut Answer<'a>,
    /// Receives the outcome for duplicates, if this is the first of equal sends.
    pub first: &'f mut Option<FirstSend<'c>>,
}

/// The agent's view of a send.
#[inline(always)] // The view is large, and copying it is slow.
fn request_of<'a>(
    caller: &Caller<'a>,
    registered: &'a RegisteredAgent,
    send: &Send<'a>,
) -> RequestView<'a> {
    RequestView::of(caller, &registered.profile, send.metadata, send.accepted_output_modes)
}

/// Records where the turn of the first of equal sends began; `end`: its last event, if it has
/// ended.
#[inline(always)] // Most sends are not recorded.
fn note(
    first: &mut Option<FirstSend<'_>>,
    key: TaskKey,
    is_next: bool,
    start: &StreamStart,
    end: Option<u64>,
) {
    if let Some(first) = first {
        let StreamStart { seq, after, generation } = *start;
        first.note_task(SentTask { key, seq, after, end, is_next, generation });
    }
}

/// Whether a turn ends without further events.
fn ends_turn(ending: &Ending) -> bool {
    matches!(ending, Ending::Returned | Ending::Replied(_))
}

/// The reservation of a message's task.
#[inline(always)] // The reservation is large, and copying it is slow.
fn new_task<'a>(
    caller: &Caller<'a>,
    send: &Send<'a>,
    incarnation: u32,
    bits: [u128; 2],
    peer: Holder,
) -> NewTask<'a> {
    NewTask {
        scope: caller.scope,
        incarnation,
        context_id: send.context_id.map(RawText::raw),
        chosen_id: send.task_id.map(RawText::raw).filter(|_| send.client_chooses_id),
        bits,
        worker: caller.worker,
        share: caller.running,
        peer,
    }
}

/// A task that accepted a further message.
struct ContinuedTask {
    /// The last event before the message.
    seq: u64,
    state: TaskState,
    generation: Generation,
    context_id: Vec<u8>,
}

/// The position where the answer of a send begins.
struct StreamStart {
    /// The event after which a stream first shows the task.
    seq: u64,
    /// A waiting call is answered by the first interruption after this event.
    after: u64,
    generation: Generation,
}

#[inline(always)]
fn outcome(
    send: &Send<'_>,
    key: TaskKey,
    answered: bool,
    start: StreamStart,
    mut link: CallLink,
) -> Outcome {
    if answered {
        link.finish();
        return Outcome::Answered;
    }
    let StreamStart { seq, after, generation } = start;
    let handle = key.handle();
    match send.mode {
        SendMode::Stream => {
            let position = Cursor { handle, seq, snapshot: true, ..Cursor::default() };
            let cursor = Cursor { ends_at_input: true, link, ..position };
            Outcome::Stream { cursor, generation }
        }
        SendMode::Wait | SendMode::Return => {
            let history = send.history;
            Outcome::Pending(WaitHandle { handle, after, history, link, ..WaitHandle::default() })
        }
    }
}

/// The wait of a call for its deferred turn.
fn deferred(send: &Send<'_>, key: TaskKey, link: CallLink) -> WaitHandle {
    let (handle, history) = (key.handle(), send.history);
    WaitHandle { handle, history, link, ..WaitHandle::default() }
}

/// Answers a unary send with the current task, unless the call must wait (A2A 1.0 §3.2.2). Returns
/// whether it answered, the last record of the task, and its last event.
///
/// A call never waits for a turn that ended without a result.
fn show(
    send: &Send<'_>,
    task: StoredTask<'_>,
    after: u64,
    ending: &Ending,
    answer: &mut Answer<'_>,
) -> (bool, u64, u64) {
    let state = task.state();
    let is_over = ends_turn(ending);
    let shows = match send.mode {
        SendMode::Stream => false,
        SendMode::Return => true,
        SendMode::Wait => {
            is_over || state.is_terminal() || (state.is_interrupted() && task.seq() > after)
        }
    };
    if shows {
        answer(Reply::Task { view: task.view(), history: send.history });
    }
    (shows, task.record(), task.seq())
}
