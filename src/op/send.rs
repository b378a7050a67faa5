//! Sending a message (A2A 1.0 §3.1.1, §3.1.2): to a new task, or to one that waits or runs.
//!
//! The agent runs first, on this thread, with its events in a list; then the task and all of them
//! are stored under one lock, and the answer is written under the same. A direct message leaves
//! nothing behind.

use crate::{
    agent::{Closed, Ending, Turn},
    fault::{Fault, FaultKind},
    model::{
        Generation, Message, MessageBuf, Reply, Send, SendMode, TaskEvent, TaskLimits, TaskState,
        TaskView, view::ReplayPlace,
    },
    op::{
        Core, Resident, TickCx,
        host::{NewTurn, NextTurn},
        timer::Wish,
    },
    service::{AgentIndex, Answer, CallCx, Cursor, Now, Outcome, TaskKey, Ticket},
    store::NewTask,
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
        let resident = self.resident(cx.caller.agent)?;
        if send.mode == SendMode::Stream && !resident.profile.streaming {
            return Err(FaultKind::StreamingNotSupported.into());
        }
        check_media(resident, send.message)?;
        let Some(id) = send.task_id else { return self.send_new(cx, resident, send, answer) };
        match self.store.find(cx.caller.agent, id) {
            Some(key) => self.send_next(cx, resident, key, send, answer),
            None if send.client_chooses_id => self.send_new(cx, resident, send, answer),
            // A2A 1.0 §3.4.2: clients use only ids that a server made.
            None => Err(FaultKind::TaskNotFound.into()),
        }
    }

    fn send_new(
        &self,
        cx: &mut CallCx<'_>,
        resident: &Resident,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        if self.is_draining() {
            return Err(Fault::because(FaultKind::Overloaded, "the server is shutting down"));
        }
        let made_context;
        let context_id = match send.context_id {
            Some(context_id) => context_id,
            None => {
                made_context = self.store.new_context_id(cx.entropy.bits());
                &made_context[..]
            }
        };
        let id = send.task_id.filter(|_| send.client_chooses_id);
        let new = self
            .store
            .reserve(cx.caller.agent, id, context_id, send.generation, send.message, cx.entropy)
            .map_err(|_| Fault::new(FaultKind::Overloaded))?;
        let key = new.key();
        let mut ending = Ending::Returned;
        let mut host = NewTurn { core: self, new, now: cx.now, stored: false };
        let id_text = host.new.id_text();
        resident.agent.start(Turn {
            message: send.message,
            state: None,
            task_id: &id_text,
            context_id,
            metadata: send.metadata,
            now: cx.now,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        });
        let NewTurn { new, stored, .. } = host;
        if let Ending::Replied(message) = &ending
            && !stored
        {
            self.store.release(new);
            cx.events.clear();
            answer(Reply::Message { message: message.view(), context_id });
            return Ok(Outcome::Ready);
        }
        self.bound_events(cx.events, cx.now);
        if let Ending::Replied(message) = &ending {
            push_completed(cx.events, message, cx.now);
        }
        let is_over = matches!(ending, Ending::Returned | Ending::Replied(_));
        let mut answered = false;
        let mut show = |view: TaskView<'_>| {
            if answers_now(send.mode, &view, 0, is_over) {
                answer(Reply::Task { view, history: send.history });
                answered = true;
            }
        };
        if stored {
            let _ = self.store.commit(key, cx.events, cx.now, &mut show);
        } else {
            self.store.commit_new(&new, cx.events, cx.now, &mut show);
        }
        cx.events.clear();
        self.note_resume(cx.caller.worker, cx.caller.agent, key, cx.now, &ending);
        Ok(self.outcome(send, key, answered, FIRST_SEQ, 0, send.generation))
    }

    fn send_next(
        &self,
        cx: &mut CallCx<'_>,
        resident: &Resident,
        key: TaskKey,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let joined = self.join(cx.now, key, send)?;
        let mut ending = Ending::Returned;
        let mut host = NextTurn { core: self, key, now: cx.now };
        resident.agent.start(Turn {
            message: send.message,
            state: Some(joined.state),
            task_id: send.task_id.unwrap_or_default(),
            context_id: &joined.context_id,
            metadata: send.metadata,
            now: cx.now,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        });
        self.bound_events(cx.events, cx.now);
        if let Ending::Replied(message) = &ending {
            push_completed(cx.events, message, cx.now);
        }
        let is_over = matches!(ending, Ending::Returned | Ending::Replied(_));
        let mut answered = false;
        // What a task that ended meanwhile refuses is lost for its agent, not for its clients.
        let _ = self.store.commit(key, cx.events, cx.now, &mut |view| {
            if answers_now(send.mode, &view, joined.seq, is_over) {
                answer(Reply::Task { view, history: send.history });
                answered = true;
            }
        });
        cx.events.clear();
        self.note_resume(cx.caller.worker, cx.caller.agent, key, cx.now, &ending);
        Ok(self.outcome(send, key, answered, joined.seq, joined.seq, joined.generation))
    }

    /// Adds the message to the history of a task that can still take one.
    fn join(&self, now: Now, key: TaskKey, send: &Send<'_>) -> Result<Joined, Fault> {
        let mut joined = Err(FaultKind::TaskNotFound.into());
        self.store.update(key, now, &mut |task| {
            let matches = send.context_id.is_none_or(|id| id == task.context_id());
            joined = if !matches {
                // A2A 1.0 §3.4.3: a mismatch is refused.
                let detail = "the task belongs to another context";
                Err(Fault::param("message.contextId", detail))
            } else if task.state().is_terminal() {
                Err(FaultKind::TaskTerminal.into())
            } else {
                let seq = task.seq();
                let turn = TaskEvent::Turn { message: send.message };
                match task.apply(&turn, &self.task_limits()) {
                    Ok(_) => Ok(Joined {
                        seq,
                        state: task.state(),
                        generation: task.generation(),
                        context_id: task.context_id().to_vec(),
                    }),
                    Err(_) => {
                        let detail = "the task has reached its size limit";
                        Err(Fault::because(FaultKind::UnsupportedOperation, detail))
                    }
                }
            };
            joined.is_ok()
        });
        joined
    }

    /// Calls an agent again whose time has come, unless its task has ended.
    pub(super) fn resume(&self, cx: &mut TickCx<'_>, wish: &Wish) {
        let key = wish.key();
        let Ok(resident) = self.resident(wish.agent()) else { return };
        let mut known = None;
        self.store.read(key, &mut |view| {
            let state = view.status().state;
            if !state.is_terminal() {
                let message = view.last_turn().map(|message| message.0.to_vec());
                let ids = (view.id().to_vec(), view.context_id().to_vec());
                known = message.map(|message| (message, ids, state));
            }
        });
        let Some((message, (task_id, context_id), state)) = known else { return };
        let mut ending = Ending::Returned;
        let mut host = NextTurn { core: self, key, now: cx.now };
        let turn = Turn {
            message: Message(&message),
            state: Some(state),
            task_id: &task_id,
            context_id: &context_id,
            metadata: None,
            now: cx.now,
            events: cx.events,
            ending: &mut ending,
            host: &mut host,
        };
        resident.agent.resume(turn, wish.token);
        self.bound_events(cx.events, cx.now);
        if let Ending::Replied(message) = &ending {
            push_completed(cx.events, message, cx.now);
        }
        // A task that was canceled meanwhile takes nothing more, as it should.
        let _ = self.store.commit(key, cx.events, cx.now, &mut |_| {});
        cx.events.clear();
        self.note_resume(cx.worker, wish.agent(), key, cx.now, &ending);
    }

    fn note_resume(
        &self,
        worker: usize,
        agent: AgentIndex,
        key: TaskKey,
        now: Now,
        ending: &Ending,
    ) {
        if let Ending::Resume { after_ms, token } = ending
            && let Some(timers) = self.timers.get(worker % self.timers.len())
        {
            timers.push(agent, key, now.mono_ms.saturating_add(*after_ms), *token);
        }
    }

    /// A turn that publishes without end is cut off with a failure.
    fn bound_events(&self, events: &mut crate::model::EventBuf, now: Now) {
        if events.len() > self.limits.turn_events_max {
            events.clear();
            push_failed(events, "the agent published too many events in one turn", now);
        }
    }

    fn outcome(
        &self,
        send: &Send<'_>,
        key: TaskKey,
        answered: bool,
        seq: u64,
        after: u64,
        generation: Generation,
    ) -> Outcome {
        match send.mode {
            SendMode::Stream => {
                let place = ReplayPlace::default();
                let cursor = Cursor { key, seq, snapshot: true, place };
                Outcome::Stream { cursor, generation }
            }
            SendMode::Wait | SendMode::Return if answered => Outcome::Ready,
            SendMode::Wait | SendMode::Return => {
                Outcome::Parked(Ticket { key, after, history: send.history })
            }
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn task_limits(&self) -> TaskLimits {
        TaskLimits {
            bytes_max: self.limits.task_bytes_max,
            history_max: self.limits.history_max,
            artifacts_max: self.limits.artifacts_max,
            replay_max: self.limits.event_ring_max,
        }
    }
}

/// A task that took another message.
struct Joined {
    /// The last event before the message.
    seq: u64,
    state: TaskState,
    generation: Generation,
    context_id: Vec<u8>,
}

/// Whether a unary send can be answered with the task as it is (A2A 1.0 §3.2.2).
///
/// A turn that is over without a result has nothing more to wait for.
fn answers_now(mode: SendMode, view: &TaskView<'_>, after: u64, is_over: bool) -> bool {
    let state = view.status().state;
    match mode {
        SendMode::Stream => false,
        SendMode::Return => true,
        SendMode::Wait => {
            is_over || state.is_terminal() || (state.is_interrupted() && view.seq() > after)
        }
    }
}

/// A2A 1.0 §3.1.1: once a task exists, a direct message is how it completes.
fn push_completed(events: &mut crate::model::EventBuf, message: &MessageBuf, now: Now) {
    events.push(&TaskEvent::Status {
        state: TaskState::Completed,
        at_ms: now.unix_ms,
        message: Some(message.view()),
        metadata: None,
    });
}

fn push_failed(events: &mut crate::model::EventBuf, text: &str, now: Now) {
    let parts = crate::model::PartsBuf::new().text(text);
    let message = MessageBuf::agent("server-limit", &parts);
    events.push(&TaskEvent::Status {
        state: TaskState::Failed,
        at_ms: now.unix_ms,
        message: Some(message.view()),
        metadata: None,
    });
}

/// A2A 1.0 §3.1.1: a part of a media type that the agent does not declare is refused.
fn check_media(resident: &Resident, message: Message<'_>) -> Result<(), Fault> {
    if resident.any_media {
        return Ok(());
    }
    for part in message.parts() {
        let Some(media) = part.media_type() else { continue };
        let media = media.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let known = resident.profile.input_modes.iter().any(|mode| {
            let mode = mode.as_bytes();
            mode.eq_ignore_ascii_case(media)
                || mode.strip_suffix(b"*").is_some_and(|kind| {
                    media.len() > kind.len() && media[..kind.len()].eq_ignore_ascii_case(kind)
                })
        });
        if !known {
            return Err(FaultKind::ContentTypeNotSupported.into());
        }
    }
    Ok(())
}

impl From<Closed> for Fault {
    fn from(_: Closed) -> Fault {
        FaultKind::TaskTerminal.into()
    }
}
