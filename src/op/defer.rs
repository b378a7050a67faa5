//! Turns that an agent answers later, from any thread.
//!
//! Invariant: a deferred turn that would start a task has only the reserved slot of the task, and
//! has stored nothing. The memory that a deferred turn holds of its call is charged to the store
//! until the turn ends. The memory of its answer, and its permit for a deferred call, are released
//! when the call has taken the answer.

use std::sync::Arc;

use crate::{
    agent::{Closed, DeferredHost, Ending, FailureNote, JobHost, NotKept},
    fault::{Fault, FaultKind},
    model::{EventBuf, Generation, Message, MessageBuf, RawText, SendMode, TaskEvent, TaskState},
    op::{
        Core,
        handover::By,
        idempotency::{SendKey, Sent, SentTask},
        send::FIRST_SEQ,
        turn::{message_of, push_status},
    },
    permits::Permit,
    service::{
        AgentIndex, CallCx, Cursor, Handle, LateAnswer, LateCall, Now, RunningShare, Scope,
        quota::CallerDeferredPermit,
    },
    store::{HeldBytes, Refused, ReservedBuf, TaskKey},
};

/// Bytes reserved when the first event is prepared: enough for an answer of a few events.
const PREPARED_BYTES: usize = 512;

/// The core's side of a deferred turn.
pub(super) struct DeferredTurn {
    pub core: Arc<Core>,
    pub call: Arc<LateCall>,
    pub agent: AgentIndex,
    /// The incarnation of the agent's program; a replaced program gets no further calls.
    pub incarnation: u32,
    pub key: TaskKey,
    pub stage: DeferredTask,
    pub mode: SendMode,
    pub generation: Generation,
    /// The events published before the turn was deferred.
    pub events: EventBuf,
    /// The bytes charged to the store, until they are released.
    pub held: Option<HeldBytes>,
    /// One of the `deferred_calls_max` permits.
    pub permit: Option<Permit>,
    /// The key of the first of equal sends, until its outcome is settled.
    pub first: Option<SendKey>,
}

/// The charge of an answer that its call has not taken yet.
pub(super) struct AnswerCharge {
    core: Arc<Core>,
    key: TaskKey,
    /// Bytes charged to the store.
    held_bytes: usize,
    _permit: Option<DeferredPermit>,
}

/// A permit for a deferred call.
pub(super) struct DeferredPermit {
    _permit: Permit,
    /// A permit of the caller's account, unless another limit bounds its deferred calls.
    _of_caller: Option<CallerDeferredPermit>,
}

impl DeferredPermit {
    /// A permit for a call that creates no task. The bytes are also charged to its caller's share.
    ///
    /// # Errors
    /// `RateLimited`, `Overloaded`.
    pub fn take(core: &Core, cx: &CallCx<'_>, bytes: usize) -> Result<DeferredPermit, Fault> {
        let share = cx.shared.shares.as_ref().and_then(|by| by.running(&cx.caller, cx.now));
        let of_caller =
            share.as_ref().map(|share| account_permit(share, bytes)).transpose()?.flatten();
        let permit = core.deferred.permit(cx.caller.worker);
        let permit = permit.ok_or_else(|| Fault::at_limit("deferred_calls_max"))?;
        Ok(DeferredPermit { _permit: permit, _of_caller: of_caller })
    }
}

/// A permit of the caller's account; `None`: the share has no account.
fn account_permit(
    share: &RunningShare,
    bytes: usize,
) -> Result<Option<CallerDeferredPermit>, Fault> {
    let Some(account) = &share.account else { return Ok(None) };
    let permit = CallerDeferredPermit::take(account, share).ok_or_else(|| {
        let most = share.most;
        let reason = "the caller has too many calls waiting for agents";
        let detail = format!("{reason} ({most}); retry when one has been answered");
        Fault::share_used_up("quotas.deferred", most, detail)
    })?;
    let permit = permit.with_bytes(bytes, share).ok_or_else(|| {
        let most = share.kib_max;
        let reason = "the caller's calls waiting for agents hold too many bytes";
        let detail = format!("{reason} ({most} KiB); retry when one has been answered");
        Fault::because(FaultKind::RateLimited, detail).of_limit("quotas.deferred")
    })?;
    Ok(Some(permit))
}

impl From<Permit> for DeferredPermit {
    /// The permit of a turn; the task of the turn already has a slot.
    fn from(permit: Permit) -> DeferredPermit {
        DeferredPermit { _permit: permit, _of_caller: None }
    }
}

impl AnswerCharge {
    /// Charges the bytes to the store and takes over the permit for a deferred call.
    ///
    /// # Errors
    /// [`Refused::OutOfBytes`].
    pub fn take(
        core: Arc<Core>,
        key: TaskKey,
        held_bytes: usize,
        permit: Option<DeferredPermit>,
    ) -> Result<AnswerCharge, Refused> {
        core.store.hold_bytes(key, held_bytes)?;
        Ok(AnswerCharge { core, key, held_bytes, _permit: permit })
    }
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        self.core.store.release_bytes(self.key, self.held_bytes);
    }
}

/// The state of a deferred turn's task.
pub(super) enum DeferredTask {
    /// Reserved, not stored yet.
    New(ReservedBuf),
    /// Stored; the turn's message follows this event.
    Next { seq: u64 },
    /// Stored; no caller waits, because a resume timer started the turn.
    Resumed,
    /// Released.
    Released,
}

impl DeferredTurn {
    /// How the call continues after the task is stored.
    fn begun(&self, seq: u64, after: u64) -> LateAnswer {
        let (handle, generation) = (self.key.handle(), self.generation);
        match self.mode {
            SendMode::Return => LateAnswer::Task(handle),
            SendMode::Wait => LateAnswer::Wait { handle, after },
            SendMode::Stream => {
                let cursor = Cursor {
                    handle,
                    seq,
                    snapshot: true,
                    ends_at_input: true,
                    ..Cursor::default()
                };
                LateAnswer::Stream { cursor, generation }
            }
        }
    }

    /// Settles the outcome of the first of equal sends.
    fn settle(&mut self, sent: impl FnOnce(&DeferredTurn) -> Result<Sent, Fault>) {
        if let Some(first) = self.first.take() {
            self.core.settle_send(first, sent(self));
        }
    }

    /// Settles the outcome with the task of this send.
    fn settle_task(&mut self, seq: u64, after: u64, is_next: bool) {
        self.settle(|turn| {
            let (key, generation) = (turn.key, turn.generation);
            Ok(Sent::Task(SentTask { key, seq, after, end: None, is_next, generation }))
        });
    }

    /// Applies `events` to the stored task, which must not have ended. If a limit is exceeded, the
    /// task fails and the call returns the failed task.
    fn apply(&self, events: &EventBuf, now: Now) -> Result<(), Fault> {
        let applied = self.core.store.update(self.key, now, |edit| {
            if edit.task().state().is_terminal() || edit.incarnation() != self.incarnation {
                return Err(Refused::Terminal);
            }
            let _ = edit.apply_all(events, None);
            Ok(())
        });
        Ok(applied.ok_or(FaultKind::TaskNotFound)??)
    }

    fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.core.store.release_held(held);
        }
    }

    /// Answers with a message, which is retained until the call takes it.
    fn answer_message(&mut self, message: MessageBuf, context_id: Box<[u8]>) {
        // The bytes held for the call are no longer needed.
        self.release();
        let held_bytes = message.held_bytes() + context_id.len();
        let (core, permit) = (Arc::clone(&self.core), self.permit.take());
        match AnswerCharge::take(core, self.key, held_bytes, permit.map(Into::into)) {
            Ok(charge) => {
                let answer = LateAnswer::Message { message, context_id };
                self.call.answer_with(answer, Some(Box::new(charge)));
            }
            Err(refused) => self.call.answer(LateAnswer::Fault(refused.into())),
        }
    }

    /// Ends the task with the events published before, and this status.
    fn end(&mut self, state: TaskState, message: &MessageBuf) -> Result<(), Fault> {
        let (now, mut events) = (self.core.now(), std::mem::take(&mut self.events));
        push_status(&mut events, state, message, now);
        self.apply(&events, now)
    }
}

impl DeferredHost for DeferredTurn {
    fn unix_ms(&self) -> u64 {
        (self.core.unix_ms)()
    }

    fn prepare(&mut self, event: &TaskEvent<'_>) {
        if self.events.is_empty() {
            self.events.reserve(PREPARED_BYTES);
        }
        self.events.push(event);
    }

    fn keep(&mut self, bytes: Box<[u8]>) -> Result<(), NotKept> {
        if let Some((task, host)) = self.task() {
            return host.keep(task, &bytes);
        }
        match &mut self.stage {
            DeferredTask::New(_) if bytes.len() > self.core.limits.kept_bytes_max => {
                Err(NotKept::TooLong)
            }
            DeferredTask::New(reserved) => {
                reserved.keep(bytes);
                Ok(())
            }
            DeferredTask::Next { .. } | DeferredTask::Resumed | DeferredTask::Released => {
                Err(NotKept::Closed)
            }
        }
    }

    fn begin(
        mut self: Box<Self>,
        message: Message<'_>,
    ) -> Result<(Handle, Arc<dyn JobHost>), Closed> {
        let (core, now) = (Arc::clone(&self.core), self.core.now());
        // The bytes held for the call are now part of the task.
        self.release();
        let mut start = (0, 0, true);
        let (stored, answer) = match std::mem::replace(&mut self.stage, DeferredTask::Released) {
            DeferredTask::New(reserved) => {
                start = (FIRST_SEQ, 0, false);
                let stored = core.store.reopen(reserved, |reserved| {
                    let generation = self.generation;
                    core.store.commit_new(reserved, generation, message, &self.events, now, |_| ())
                });
                (stored.map_err(Fault::from), self.begun(FIRST_SEQ, 0))
            }
            DeferredTask::Next { seq } => {
                start = (seq, seq, true);
                (self.apply(&self.events, now), self.begun(seq, seq))
            }
            DeferredTask::Resumed | DeferredTask::Released => {
                (self.apply(&self.events, now), self.begun(0, 0))
            }
        };
        match stored {
            Ok(()) => {
                let (seq, after, is_next) = start;
                self.settle_task(seq, after, is_next);
                self.call.answer(answer);
                if !core.agents.is_current(self.agent, self.incarnation) {
                    // A program that was replaced meanwhile has created a task for its successor.
                    core.hand_over(self.agent, self.key, By::Turn(&Ending::Detached));
                }
                Ok((self.key.job_handle(self.incarnation), core))
            }
            Err(fault) => {
                if !start.2 {
                    core.forget_webhooks(self.key);
                }
                self.settle(|_| Err(fault.clone()));
                self.call.answer(LateAnswer::Fault(fault));
                Err(Closed)
            }
        }
    }

    fn reply(mut self: Box<Self>, message: MessageBuf) {
        self.release();
        let answer = match std::mem::replace(&mut self.stage, DeferredTask::Released) {
            DeferredTask::New(reserved) => {
                let context_id: Box<[u8]> = reserved.context_id().into();
                self.core.store.give_back(reserved);
                self.core.forget_webhooks(self.key);
                self.settle(|_| Ok(Sent::message(&message, &context_id)));
                return self.answer_message(message, context_id);
            }
            DeferredTask::Next { seq } => match self.end(TaskState::Completed, &message) {
                Ok(()) => {
                    self.settle_task(seq, seq, true);
                    self.begun(seq, seq)
                }
                Err(fault) => {
                    self.settle(|_| Err(fault.clone()));
                    LateAnswer::Fault(fault)
                }
            },
            // No caller waits, and a task that has ended meanwhile needs no status.
            DeferredTask::Resumed | DeferredTask::Released => {
                return drop(self.end(TaskState::Completed, &message));
            }
        };
        self.call.answer(answer);
    }

    fn failed(&self, failed: FailureNote) -> String {
        self.core.failure_text(failed)
    }

    fn refuse(mut self: Box<Self>, fault: Fault) {
        if let DeferredTask::Resumed = self.stage {
            self.events.clear();
            let text = fault.message().to_owned();
            let _ = self.end(TaskState::Failed, &message_of(&text));
        }
        self.settle(|_| Err(fault.clone()));
        self.call.answer(LateAnswer::Fault(fault));
    }

    fn task(&self) -> Option<(Handle, Arc<dyn JobHost>)> {
        let is_stored = matches!(self.stage, DeferredTask::Next { .. } | DeferredTask::Resumed);
        is_stored.then(|| {
            (self.key.job_handle(self.incarnation), Arc::clone(&self.core) as Arc<dyn JobHost>)
        })
    }

    fn kept_with(&self, scope: Scope, task_id: RawText<'_>) -> Vec<u8> {
        self.core.store.private_bytes_of(scope, task_id.raw())
    }

    fn kept_in_context(&self, scope: Scope, context_id: RawText<'_>) -> Vec<u8> {
        self.core.store.private_bytes_in_context(scope, context_id.raw())
    }
}

impl Drop for DeferredTurn {
    fn drop(&mut self) {
        self.release();
        self.settle(|_| Err(FaultKind::Internal.into()));
        if let DeferredTask::New(reserved) =
            std::mem::replace(&mut self.stage, DeferredTask::Released)
        {
            self.core.store.give_back(reserved);
            self.core.forget_webhooks(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent::{Deferred, RequestInfo},
        limits::DEFERRED_CALL_BYTES,
    };

    #[test]
    fn deferred_call_uses_at_most_its_charged_memory() {
        let call = size_of::<LateCall>() + 2 * size_of::<usize>();
        let turn = size_of::<DeferredTurn>() + size_of::<Deferred>() + size_of::<RequestInfo>();
        // Two ids and three blocks, each with the allocator's overhead.
        let ids = 2 * (36 + 16) + 4 * 16;
        assert!((call + turn + ids) as u64 <= DEFERRED_CALL_BYTES, "{call} {turn} {ids}");
    }
}
