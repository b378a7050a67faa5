//! Sending a message (A2A 1.0 §3.1.1, §3.1.2): to a new task, or to one that waits or runs.
//!
//! The agent runs first, on this thread, with its events in a list; then the task and all of them
//! are stored under one lock, and the answer is written under the same. A direct message leaves
//! nothing behind.

use crate::{
    agent::{Ending, Turn},
    fault::{Fault, FaultKind},
    model::{
        EventBuf, Generation, Message, MessageBuf, PartsBuf, RawText, Reply, Send, SendMode, Task,
        TaskEvent, TaskState,
    },
    op::{
        Core,
        agents::CurrentAgent,
        check::{check_extensions, check_media, removed},
        handover::By,
        host::{NewTurn, NextTurn},
        timer::ResumeTimer,
    },
    service::{Answer, CallCx, Cursor, Now, Outcome, TickCx, WaitHandle},
    store::{NewTask, TaskKey},
    waiter::Waiter,
};

/// The event after which a new task is shown to the subscriber that made it: `submitted`.
const FIRST_SEQ: u64 = 1;

impl Core {
    pub(super) fn send(
        &self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let registered = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
        if registered.is_removed {
            return Err(removed(&registered));
        }
        if send.mode == SendMode::Stream && !registered.profile.streaming {
            return Err(FaultKind::StreamingNotSupported.into());
        }
        check_extensions(&registered, cx.caller.extensions)?;
        check_media(&registered, send.message)?;
        let Some(id) = send.task_id else { return self.send_new(cx, &registered, send, answer) };
        match self.store.find(cx.caller.scope, id.raw()) {
            Some(key) => self.send_next(cx, &registered, key, send, answer),
            None if send.client_chooses_id => self.send_new(cx, &registered, send, answer),
            // A2A 1.0 §3.4.2: clients use only ids that a server made.
            None => Err(FaultKind::TaskNotFound.into()),
        }
    }

    fn send_new(
        &self,
        cx: &mut CallCx<'_>,
        registered: &CurrentAgent<'_>,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        if self.is_draining() {
            return Err(FaultKind::ShuttingDown.into());
        }
        let new = NewTask {
            scope: cx.caller.scope,
            incarnation: registered.incarnation,
            context_id: send.context_id.map(RawText::raw),
            chosen_id: send.task_id.map(RawText::raw).filter(|_| send.client_chooses_id),
            bits: [cx.entropy.bits(), cx.entropy.bits()],
            worker: cx.caller.worker,
        };
        let reserving = self.store.reserve(new, cx.now);
        let reserved = reserving.as_ref().map_err(|refused| *refused)?;
        let (key, context_id) = (reserved.key(), RawText::known(reserved.context_id()));
        let mut ending = Ending::Returned;
        let (generation, message, now) = (send.generation, send.message, cx.now);
        let incarnation = registered.incarnation;
        // What a turn left that panicked or was refused is nobody else's.
        cx.events.clear();
        let mut host =
            NewTurn { core: self, reserved, generation, message, now, incarnation, refused: None };
        registered.agent.start(Turn {
            message,
            state: None,
            task_id: RawText::known(reserved.id()),
            context_id,
            metadata: send.metadata,
            extensions: cx.caller.extensions,
            identity: cx.caller.identity,
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        });
        if let Some(fault) = host.refused.take() {
            return Err(fault);
        }
        if let (false, Ending::Replied(message)) = (reserved.is_kept(), &ending) {
            // The reservation gives its place back: no trace is left.
            cx.events.clear();
            answer(Reply::Message { message: message.view(), context_id });
            return Ok(Outcome::Answered);
        }
        self.finish_turn(cx.events, &ending, cx.now);
        let mut answered = false;
        let show = |task: &Task| answered = show(send, task, 0, &ending, answer);
        let committed = if reserved.is_kept() {
            self.commit((key, incarnation), cx.events, Some(message), cx.now, show);
            Ok(())
        } else {
            self.store.commit_new(reserved, generation, message, cx.events, cx.now, show)
        };
        cx.events.clear();
        committed?;
        self.schedule_resume(cx.caller.worker, (key, incarnation), cx.now, &ending);
        self.hand_over_late(registered, (cx.caller.scope.agent, key), &ending);
        Ok(outcome(send, key, answered, StreamStart { seq: FIRST_SEQ, after: 0, generation }))
    }

    fn send_next(
        &self,
        cx: &mut CallCx<'_>,
        registered: &CurrentAgent<'_>,
        key: TaskKey,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let incarnation = registered.incarnation;
        let Some(continued) = self.continue_task(cx.now, (key, incarnation), send)? else {
            // There was a change, of which the task or this call does not know yet.
            self.hand_over(cx.caller.scope.agent, key, By::Call);
            return self.send(cx, send, answer);
        };
        let mut ending = Ending::Returned;
        cx.events.clear();
        let mut host = NextTurn { core: self, key, incarnation, now: cx.now, is_over: false };
        registered.agent.start(Turn {
            message: send.message,
            state: Some(continued.state),
            task_id: send.task_id.unwrap_or_default(),
            context_id: RawText::known(&continued.context_id),
            metadata: send.metadata,
            extensions: cx.caller.extensions,
            identity: cx.caller.identity,
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        });
        host.is_over = true;
        self.finish_turn(cx.events, &ending, cx.now);
        let mut answered = false;
        self.commit((key, incarnation), cx.events, None, cx.now, |task| {
            answered = show(send, task, continued.seq, &ending, answer);
        });
        cx.events.clear();
        self.schedule_resume(cx.caller.worker, (key, incarnation), cx.now, &ending);
        self.hand_over_late(registered, (cx.caller.scope.agent, key), &ending);
        let (seq, generation) = (continued.seq, continued.generation);
        Ok(outcome(send, key, answered, StreamStart { seq, after: seq, generation }))
    }

    /// Adds the message to the history of a task that can still take one; `None`: the task belongs
    /// to another incarnation of its agent.
    fn continue_task(
        &self,
        now: Now,
        (key, incarnation): (TaskKey, u32),
        send: &Send<'_>,
    ) -> Result<Option<ContinuedTask>, Fault> {
        let continued = self.store.update(key, now, |edit| {
            if edit.incarnation() != incarnation && !edit.task().state().is_terminal() {
                return Ok(None);
            }
            if send.context_id.is_some_and(|id| id.raw() != edit.task().context_id()) {
                // A2A 1.0 §3.4.3: a mismatch is refused.
                let detail = "the task belongs to another context";
                return Err(Fault::param("message.contextId", detail));
            }
            edit.user_message(send.message)?;
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

    /// Calls an agent again whose time has come, unless its task has ended or was handed over.
    pub(super) fn resume(&self, cx: &mut TickCx<'_>, timer: &ResumeTimer) {
        let (key, incarnation) = (timer.key(), timer.incarnation);
        let known = self.store.update(key, cx.now, |edit| {
            let (agent, task) = (edit.agent(), edit.task());
            if edit.incarnation() != incarnation || task.state().is_terminal() {
                return None;
            }
            let message = task.view().last_user_message()?.0.to_vec();
            let ids = (task.id().to_vec(), task.context_id().to_vec());
            let state = task.state();
            edit.begin_turn();
            Some((agent, message, ids, state))
        });
        let Some(Some((agent, message, (task_id, context_id), state))) = known else { return };
        let registered = self.registered(cx.worker, agent).ok();
        let Some(registered) = registered.filter(|one| one.incarnation == incarnation) else {
            // It was changed just now.
            self.store.update(key, cx.now, |edit| edit.end_turn());
            return self.hand_over(agent, key, By::Turn(&Ending::Resume { after_ms: 0, token: 0 }));
        };
        let mut ending = Ending::Returned;
        cx.events.clear();
        let mut host = NextTurn { core: self, key, incarnation, now: cx.now, is_over: false };
        let turn = Turn {
            message: Message(&message),
            state: Some(state),
            task_id: RawText::known(&task_id),
            context_id: RawText::known(&context_id),
            metadata: None,
            extensions: None,
            identity: None,
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        };
        registered.agent.resume(turn, timer.token);
        host.is_over = true;
        self.finish_turn(cx.events, &ending, cx.now);
        self.commit((key, incarnation), cx.events, None, cx.now, |_| ());
        cx.events.clear();
        self.schedule_resume(cx.worker, (key, incarnation), cx.now, &ending);
        self.hand_over_late(&registered, (agent, key), &ending);
    }

    /// Applies an agent's events to a task that exists, and shows it; `first` as in
    /// [`Edit::apply_all`](crate::store::Edit::apply_all).
    ///
    /// The turn that makes a task is not counted among those at work at it.
    ///
    /// What a task refuses that ended meanwhile, or belongs to another program, is lost for its
    /// agent, not for its clients.
    fn commit(
        &self,
        (key, incarnation): (TaskKey, u32),
        events: &EventBuf,
        first: Option<Message<'_>>,
        now: Now,
        show: impl FnOnce(&Task),
    ) {
        self.store.update(key, now, |edit| {
            if edit.incarnation() == incarnation {
                let _ = edit.apply_all(events, first);
            }
            if first.is_none() {
                edit.end_turn();
            }
            show(edit.task());
        });
    }

    #[inline]
    fn schedule_resume(
        &self,
        worker: usize,
        (key, incarnation): (TaskKey, u32),
        now: Now,
        ending: &Ending,
    ) {
        if let Ending::Resume { after_ms, token } = *ending {
            let (due_ms, TaskKey { place, check }) = (now.mono_ms.saturating_add(after_ms), key);
            let timer = ResumeTimer { due_ms, number: 0, place, check, incarnation, token };
            self.push_timer(worker, timer, now);
        }
    }

    fn push_timer(&self, worker: usize, timer: ResumeTimer, now: Now) {
        let key = timer.key();
        let runs = |key| self.store.read(key, |task| !task.state().is_terminal());
        let runs = |key| runs(key).unwrap_or(false);
        if !self.timers.push(worker, timer, now.mono_ms, runs) {
            self.refuse_resume(key, now);
        }
    }

    /// Nobody would ever go on with the task.
    fn refuse_resume(&self, key: TaskKey, now: Now) {
        let text = PartsBuf::new().text("too many agents wait to be called again");
        let message = MessageBuf::agent(&text).id("resume-limit");
        let (state, at_ms, message) = (TaskState::Failed, now.unix_ms, Some(message.view()));
        let failed = TaskEvent::Status { state, at_ms, message, metadata: None };
        // A task that ended meanwhile needs no end.
        let _ = self.store.update(key, now, |edit| edit.apply(&failed));
    }

    /// Bounds what a turn published, and adds what its ending means.
    #[inline]
    fn finish_turn(&self, events: &mut EventBuf, ending: &Ending, now: Now) {
        if events.len() > self.limits.turn_events_max {
            fail_turn(events, now);
        }
        if let Ending::Replied(message) = ending {
            // A2A 1.0 §3.1.1: once a task exists, a direct message is how it completes.
            push_status(events, TaskState::Completed, message, now);
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A task that took another message.
struct ContinuedTask {
    /// The last event before the message.
    seq: u64,
    state: TaskState,
    generation: Generation,
    context_id: Vec<u8>,
}

/// Where the answer of a send begins.
struct StreamStart {
    /// The event after which a stream shows the task first.
    seq: u64,
    /// A waiting call is answered by an interruption after this event.
    after: u64,
    generation: Generation,
}

fn outcome(send: &Send<'_>, key: TaskKey, answered: bool, start: StreamStart) -> Outcome {
    let StreamStart { seq, after, generation } = start;
    match send.mode {
        SendMode::Stream => {
            let (handle, waiter) = (key.handle(), Waiter::default());
            let cursor = Cursor { handle, seq, snapshot: true, ends_at_input: true, waiter };
            Outcome::Stream { cursor, generation }
        }
        SendMode::Wait | SendMode::Return if answered => Outcome::Answered,
        SendMode::Wait | SendMode::Return => {
            let (handle, history, waiter) = (key.handle(), send.history, Waiter::default());
            Outcome::Pending(WaitHandle { handle, after, history, waiter })
        }
    }
}

/// Answers a unary send with the task as it is, if it need not wait (A2A 1.0 §3.2.2).
///
/// A turn that is over without a result has nothing more to wait for.
fn show(
    send: &Send<'_>,
    task: &Task,
    after: u64,
    ending: &Ending,
    answer: &mut Answer<'_>,
) -> bool {
    let state = task.state();
    let is_over = matches!(ending, Ending::Returned | Ending::Replied(_));
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
    shows
}

/// What an agent said that said too much.
#[cold]
fn fail_turn(events: &mut EventBuf, now: Now) {
    events.clear();
    let text = PartsBuf::new().text("the agent published too many events in one turn");
    let message = MessageBuf::agent(&text).id("turn-limit");
    push_status(events, TaskState::Failed, &message, now);
}

fn push_status(events: &mut EventBuf, state: TaskState, message: &MessageBuf, now: Now) {
    let (at_ms, message) = (now.unix_ms, Some(message.view()));
    events.push(&TaskEvent::Status { state, at_ms, message, metadata: None });
}
