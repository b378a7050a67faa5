//! The common part of every turn: it bounds and applies the events, and sets the agent's resume
//! timer.

use crate::{
    agent::{Ending, FailureNote, RequestView, Turn, panic_of},
    model::{EventBuf, Message, MessageBuf, PartsBuf, RawText, TaskEvent, TaskState},
    op::{
        Core,
        failure::BrokenTurn,
        handover::By,
        host::{NextTurn, TurnCall},
        timer::ResumeTimer,
    },
    service::{LastCall, Now, TickCx},
    store::{StoredTask, TaskKey},
};

/// The task of a turn, and the incarnation of the agent that the turn invokes.
#[derive(Clone, Copy)]
pub(super) struct TurnTask {
    pub key: TaskKey,
    pub incarnation: u32,
}

impl Core {
    /// Resumes the agent of an expired timer, unless its task has ended or was handed over.
    pub(super) fn resume(&self, cx: &mut TickCx<'_>, timer: &ResumeTimer) {
        let (key, incarnation) = (timer.key(), timer.incarnation);
        let begun = self.store.update(key, cx.now, |edit| {
            let (agent, task) = (edit.agent(), edit.task());
            if edit.incarnation() != incarnation || task.state().is_terminal() {
                return None;
            }
            let message = task.view().last_user_message()?.0.to_vec();
            let ids = (task.id().to_vec(), task.context_id().to_vec());
            let (state, scope, generation) = (task.state(), edit.scope(), task.generation());
            edit.begin_turn();
            Some((agent, message, ids, state, (scope, generation, edit.names())))
        });
        let Some(Some((agent, message, (task_id, context_id), state, of))) = begun else { return };
        let (scope, generation, names) = of;
        let registered = self.registered(cx.worker, agent).ok();
        let registered = registered.filter(|one| one.incarnation == incarnation);
        let registered = registered.or_else(|| self.agents.older(agent, incarnation));
        let Some(registered) = registered else {
            // The agent was changed in the meantime.
            self.store.update(key, cx.now, |edit| edit.end_turn());
            return self.hand_over(agent, key, By::Turn(&Ending::Resume { after_ms: 0, token: 0 }));
        };
        let mut ending = Ending::Returned;
        cx.events.clear();
        let (now, call) = (cx.now, TurnCall::of_resumed(cx.worker, agent, incarnation));
        let (core, began, seq, is_over) = (self, &registered, 0, false);
        let mut host = NextTurn { core, key, now, seq, generation, call, began, is_over };
        let turn = Turn {
            message: Message(&message),
            state: Some(state),
            task_id: RawText::known(&task_id),
            context_id: RawText::known(&context_id),
            request: RequestView::without_caller(
                scope,
                [names.tenant.as_deref(), names.owner.as_deref()],
            ),
            now: cx.now,
            entropy: cx.entropy,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        };
        *cx.last_call = LastCall { agent, at_ms: cx.now.mono_ms };
        if let Some(cause) = panic_of(|| registered.agent.resume(turn, timer.token)) {
            let turn = BrokenTurn { events: cx.events, ending: &mut ending, now: cx.now };
            self.fail_turn(FailureNote::of(agent, &task_id, cause), turn);
        }
        host.is_over = true;
        // No caller waits for a resumed turn.
        if let Err(fault) = host.call.end(&ending) {
            cx.events.clear();
            let message = message_of(fault.message());
            push_status(cx.events, TaskState::Failed, &message, cx.now);
        }
        self.finish_turn(cx.events, &ending, cx.now);
        let task = TurnTask { key, incarnation };
        self.commit(task, cx.events, None, cx.now, |_| ());
        cx.events.clear();
        self.schedule_resume(cx.worker, task, cx.now, &ending);
        self.hand_over_late(&registered, agent, key, &ending);
    }

    /// Applies an agent's events to a stored task, and shows the task; `first` as in
    /// [`Edit::apply_all`](crate::store::Edit::apply_all).
    ///
    /// The turn that creates a task is not counted as a running turn of the task.
    ///
    /// If the task ended meanwhile, or belongs to another program, it rejects the events: the work
    /// of the agent is lost, and clients see the task unchanged.
    pub(super) fn commit(
        &self,
        task: TurnTask,
        events: &EventBuf,
        first: Option<Message<'_>>,
        now: Now,
        show: impl FnOnce(StoredTask<'_>),
    ) {
        self.store.update(task.key, now, |edit| {
            if edit.incarnation() == task.incarnation {
                let _ = edit.apply_all(events, first);
            }
            if first.is_none() {
                edit.end_turn();
            }
            show(edit.stored());
        });
    }

    #[inline(always)] // Most turns do not ask for a resume.
    pub(super) fn schedule_resume(&self, worker: usize, task: TurnTask, now: Now, ending: &Ending) {
        if let Ending::Resume { after_ms, token } = *ending {
            let TurnTask { key: TaskKey { position, check }, incarnation } = task;
            let due_ms = now.mono_ms.saturating_add(after_ms);
            let timer = ResumeTimer { due_ms, number: 0, position, check, incarnation, token };
            self.push_timer(worker, timer, now);
        }
    }

    #[inline(never)]
    fn push_timer(&self, worker: usize, timer: ResumeTimer, now: Now) {
        let key = timer.key();
        let runs = |key| self.store.read(key, |task| !task.state().is_terminal());
        let runs = |key| runs(key).unwrap_or(false);
        if !self.timers.push(worker, timer, now.mono_ms, runs) {
            self.refuse_resume(key, now);
        }
    }

    /// Fails a task after its resume timer was rejected: no code would ever continue it.
    fn refuse_resume(&self, key: TaskKey, now: Now) {
        let why = "too many tasks are waiting for their agent to be called again (tasks_max)";
        let text = PartsBuf::new().text(why);
        let message = MessageBuf::agent(&text).id("resume-limit");
        let (state, at_ms, message) = (TaskState::Failed, now.unix_ms, Some(message.view()));
        let failed = TaskEvent::Status { state, at_ms, message, metadata: None };
        // A task that has ended meanwhile needs no status.
        let _ = self.store.update(key, now, |edit| edit.apply(&failed));
    }

    /// Bounds the events of a turn. Returns true if they exceeded the limit, which fails the task.
    #[inline]
    pub(super) fn bound_turn(&self, events: &mut EventBuf, now: Now) -> bool {
        let is_beyond = events.len() > self.limits.turn_events_max;
        if is_beyond {
            fail_beyond(events, now);
        }
        is_beyond
    }

    /// Bounds the events of a turn, and adds the event of its ending.
    #[inline]
    pub(super) fn finish_turn(&self, events: &mut EventBuf, ending: &Ending, now: Now) {
        self.bound_turn(events, now);
        if let Ending::Replied(message) = ending {
            // A2A 1.0 §3.1.1: if the task exists, a direct message completes it.
            push_status(events, TaskState::Completed, message, now);
        }
    }
}

/// Replaces the events of a turn that exceeded the limit with a failure.
#[cold]
fn fail_beyond(events: &mut EventBuf, now: Now) {
    events.clear();
    let why = "the agent published too many events in one invocation (turn_events_max)";
    let text = PartsBuf::new().text(why);
    let message = MessageBuf::agent(&text).id("turn-limit");
    push_status(events, TaskState::Failed, &message, now);
}

pub(super) fn push_status(events: &mut EventBuf, state: TaskState, message: &MessageBuf, now: Now) {
    let (at_ms, message) = (now.unix_ms, Some(message.view()));
    events.push(&TaskEvent::Status { state, at_ms, message, metadata: None });
}

/// A message of the server on behalf of an agent.
#[cold]
pub(super) fn message_of(text: &str) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(text)).id("turn-refused")
}
