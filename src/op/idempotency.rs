//! Sends that are safe to repeat: a send that equals an earlier one runs only once.
//!
//! Invariant: of equal sends only the first runs. The others receive its outcome, each in the mode
//! that it requests. A failed send is forgotten. A repeated send is rejected, not run again, if its
//! task is gone. Decision: `docs/adr/0022-a-repeated-send-is-recognised.md`.

mod content;
mod owners;
mod shard;
mod table;

use crate::{
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{
        Extension, Idempotency, MessageBuf, RawText, RepeatRules, Reply, Send, SendMode, Task,
        TaskEvent,
    },
    op::{
        Core, defer::AnswerCharge, missing::MISSING, send::SendAnswer, undecided::JOINED_CALL_BYTES,
    },
    service::{
        Answer, CallCx, CallLink, Caller, Cursor, Handle, LateAnswer, LateCall, Outcome, WaitHandle,
    },
    shares::Holder,
};

use content::SendHash;
use table::{JoinedSend, NamedSend, SendLook, SendTable};

pub(super) use table::{SendKey, Sent, SentMessage, SentTask};

/// How often a send repeats the lookup if an equal send arrives and fails meanwhile.
const LOOKS_MAX: u32 = 8;

/// The recognised sends, and the rules for which callers' sends are recognised.
pub(super) struct RecognisedSends {
    callers: Idempotency,
    hash: SendHash,
    table: SendTable,
}

/// The first of equal sends; its outcome is settled once.
pub(super) struct FirstSend<'c> {
    core: &'c Core,
    key: SendKey,
    /// True: the outcome is not settled yet.
    is_open: bool,
}

impl FirstSend<'_> {
    /// The key of this send, for a turn that settles the outcome later.
    pub fn key(&self) -> SendKey {
        self.key
    }

    /// Settles the outcome: a direct message.
    pub fn note_message(&mut self, message: &MessageBuf, context_id: &[u8]) {
        self.is_open = false;
        self.core.settle_send(self.key, Ok(Sent::message(message, context_id)));
    }

    /// Settles the outcome: a task that the send has created or continued.
    #[inline(always)]
    pub fn note_task(&mut self, sent: SentTask) {
        self.is_open = false;
        if let Some(joined) = self.core.sends.table.settle_task(self.key, sent) {
            self.core.notify_joined(joined, &Ok(Sent::Task(sent)));
        }
    }

    /// Leaves the outcome open: the turn was deferred and settles it later.
    pub fn defer(&mut self) {
        self.is_open = false;
    }

    /// Settles the outcome as a failure, unless another one was recorded: waiting calls receive the
    /// fault.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self, fault: &Fault) {
        if std::mem::take(&mut self.is_open) {
            self.core.settle_send(self.key, Err(fault.clone()));
        }
    }
}

impl Drop for FirstSend<'_> {
    /// Fails the waiting calls of a turn that panicked.
    #[inline]
    fn drop(&mut self) {
        if self.is_open {
            self.fail(&Fault::new(FaultKind::Internal));
        }
    }
}

impl SentTask {
    /// The last event of the turn, if the turn has ended.
    fn end_in(&self, task: &Task) -> Option<u64> {
        if self.end.is_some() {
            return self.end;
        }
        let is_over = task.state().is_terminal() || task.state().is_interrupted();
        if self.after < task.base_seq() {
            // The events in between have been evicted.
            return is_over.then(|| task.seq());
        }
        let (mut position, mut end) = (Default::default(), None);
        task.replay(self.after, &mut position, |replayed| {
            if let TaskEvent::Status { state, .. } = replayed.event
                && (state.is_terminal() || state.is_interrupted())
            {
                end = Some(replayed.seq);
            }
            end.is_none()
        });
        end
    }

    fn cursor(&self) -> Cursor {
        let (handle, seq) = (self.key.handle(), self.seq);
        Cursor { handle, seq, snapshot: true, ends_at_input: true, ..Cursor::default() }
    }

    /// The answer for a call that waited for this outcome.
    fn late(&self, mode: SendMode) -> LateAnswer {
        let (handle, generation) = (self.key.handle(), self.generation);
        match (mode, self.end) {
            (SendMode::Stream, _) => LateAnswer::Stream { cursor: self.cursor(), generation },
            (SendMode::Return, _) | (SendMode::Wait, Some(_)) => LateAnswer::Task(handle),
            (SendMode::Wait, None) => LateAnswer::Wait { handle, after: self.after },
        }
    }
}

impl RecognisedSends {
    pub fn new(limits: &Limits, rules: RepeatRules, secret: u128) -> RecognisedSends {
        let hash = SendHash::new(secret, rules.conflict);
        RecognisedSends { callers: rules.callers, hash, table: SendTable::new(limits) }
    }

    /// Whether this caller's sends are recognised.
    #[inline(always)]
    pub fn has(&self, caller: &Caller<'_>) -> bool {
        match self.callers {
            Idempotency::Off => false,
            Idempotency::Authenticated => caller.owner.is_some(),
            Idempotency::Everybody => true,
        }
    }

    /// Whether a message id identifies its send: by default only if the client activates the
    /// extension for that (A2A 1.0 §4.6), since other clients reuse ids for equal messages.
    #[inline(always)]
    fn names_by_id(&self, caller: &Caller<'_>) -> bool {
        match (self.callers, caller.extensions) {
            (Idempotency::Everybody, _) => true,
            (Idempotency::Off | Idempotency::Authenticated, None) => false,
            (Idempotency::Off | Idempotency::Authenticated, Some(named)) => {
                named.split(',').any(|uri| uri.trim() == Extension::IDEMPOTENT_SEND)
            }
        }
    }

    /// Drops the outcomes of a holder's sends, before its number is assigned to another caller.
    #[cold]
    pub fn forget_all_of(&self, holder: Holder) {
        self.table.forget_all_of(holder);
    }
}

impl Core {
    /// Looks for an equal send. `None`: execute this one; `first` then receives its outcome for
    /// duplicates.
    #[inline(always)]
    pub(super) fn look_up_send<'c>(
        &'c self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        answer: &mut Answer<'_>,
        first: &mut Option<FirstSend<'c>>,
    ) -> Option<Result<Outcome, Fault>> {
        let by_id = self.sends.names_by_id(&cx.caller);
        let named = self.sends.hash.of(&cx.caller, send, by_id)?;
        match self.sends.table.enter(named, cx.holder(), cx.now) {
            SendLook::First(key) => {
                *first = Some(FirstSend { core: self, key, is_open: true });
                None
            }
            look => self.answer_duplicate(cx, send, named, look, SendAnswer { answer, first }),
        }
    }

    /// Answers a send that duplicates an earlier one.
    #[cold]
    #[inline(never)]
    fn answer_duplicate<'c>(
        &'c self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        named: NamedSend,
        mut look: SendLook,
        answer: SendAnswer<'_, '_, 'c>,
    ) -> Option<Result<Outcome, Fault>> {
        let SendAnswer { answer, first } = answer;
        for _ in 0..LOOKS_MAX {
            match look {
                SendLook::First(key) => {
                    *first = Some(FirstSend { core: self, key, is_open: true });
                    return None;
                }
                SendLook::Unknown => return None,
                SendLook::Conflict => {
                    return Some(Err(conflict(cx.caller.idempotency_key.is_some())));
                }
                SendLook::Evicted => return Some(Err(FaultKind::TaskNotFound.into())),
                SendLook::Sent(Sent::Task(sent)) => {
                    return Some(self.repeat(cx, send, &sent, answer));
                }
                SendLook::Sent(Sent::Message(sent)) => {
                    let context_id = RawText::known(&sent.context_id);
                    answer(Reply::Message { message: sent.message.view(), context_id });
                    return Some(Ok(Outcome::Answered));
                }
                SendLook::Undecided => match self.join_send(cx, send, &named) {
                    Ok(None) => look = self.sends.table.enter(named, cx.holder(), cx.now),
                    Ok(Some(wait)) => return Some(Ok(Outcome::Pending(wait))),
                    Err(fault) => return Some(Err(fault)),
                },
            }
        }
        Some(Err(Fault::at_limit("idempotency_entries_max")))
    }

    /// Waits for the outcome of an equal send; `None`: the outcome has just been settled.
    fn join_send(
        &self,
        cx: &CallCx<'_>,
        send: &Send<'_>,
        named: &NamedSend,
    ) -> Result<Option<WaitHandle>, Fault> {
        let (link, call) = CallLink::late();
        let core = self.this.upgrade().ok_or(FaultKind::ShuttingDown)?;
        let at = self.store.position_of(cx.caller.worker, cx.now);
        let charge = AnswerCharge::take(core, at, JOINED_CALL_BYTES, None)?;
        call.count_by(Box::new(charge));
        let joined = JoinedSend { call, mode: send.mode };
        let is_joined = self.sends.table.join(named, joined).is_ok();
        let (handle, history) = (Handle { hint: MISSING, ..Handle::default() }, send.history);
        Ok(is_joined.then(|| WaitHandle { handle, history, link, ..WaitHandle::default() }))
    }

    /// Passes the outcome of the first of equal sends to all waiting calls, and stores it for later
    /// duplicates.
    pub(super) fn settle_send(&self, key: SendKey, sent: Result<Sent, Fault>) {
        let joined = match &sent {
            Ok(Sent::Task(task)) => self.sends.table.settle_task(key, *task),
            Ok(Sent::Message(sent)) => self.sends.table.settle(key, Some(sent)),
            Err(_) => self.sends.table.settle(key, None),
        };
        if let Some(joined) = joined {
            self.notify_joined(joined, &sent);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_joined(&self, joined: Vec<JoinedSend>, sent: &Result<Sent, Fault>) {
        for JoinedSend { call, mode } in joined {
            match sent {
                Ok(Sent::Task(task)) => call.answer(task.late(mode)),
                Ok(Sent::Message(sent)) => self.answer_again(&call, sent),
                Err(fault) => call.answer(LateAnswer::Fault(fault.clone())),
            }
        }
    }

    /// Answers with a copy of a message; its bytes are charged until the call takes it.
    fn answer_again(&self, call: &LateCall, sent: &SentMessage) {
        let SentMessage { message, context_id } = sent.clone();
        let Some(core) = self.this.upgrade() else { return };
        let at = self.store.position_of(0, self.now());
        let held_bytes = JOINED_CALL_BYTES + message.held_bytes() + context_id.len();
        match AnswerCharge::take(core, at, held_bytes, None) {
            Ok(charge) => {
                let answer = LateAnswer::Message { message, context_id };
                call.answer_with(answer, Some(Box::new(charge)));
            }
            Err(refused) => call.answer(LateAnswer::Fault(refused.into())),
        }
    }

    /// Answers with the task that an equal send has created or continued.
    #[cold]
    fn repeat(
        &self,
        cx: &mut CallCx<'_>,
        send: &Send<'_>,
        sent: &SentTask,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        if send.mode == SendMode::Stream {
            let current = self.registered(cx.caller.worker, cx.caller.scope.agent)?;
            if !current.profile.streaming {
                return Err(FaultKind::StreamingNotSupported.into());
            }
        }
        let read = self.store.read(sent.key, |task| {
            let end = match send.mode {
                SendMode::Stream => return (false, 0),
                SendMode::Wait | SendMode::Return => sent.end_in(&task),
            };
            if end.is_none() && send.mode == SendMode::Wait {
                return (false, 0);
            }
            // Later messages of the task do not answer this one.
            let own = end.filter(|end| sent.is_next && *end >= task.base_seq());
            let view = own.map_or_else(|| task.view(), |end| task.view_at(end));
            answer(Reply::Task { view, history: send.history });
            (true, task.record())
        });
        let (is_answered, record) = read.ok_or(FaultKind::TaskNotFound)?;
        cx.shows(record);
        if is_answered {
            return Ok(Outcome::Answered);
        }
        if send.mode == SendMode::Stream {
            let (cursor, generation) = (sent.cursor(), sent.generation);
            return Ok(Outcome::Stream { cursor, generation });
        }
        let (handle, after, history) = (sent.key.handle(), sent.after, send.history);
        Ok(Outcome::Pending(WaitHandle { handle, after, history, ..WaitHandle::default() }))
    }
}

#[cold]
fn conflict(by_field: bool) -> Fault {
    let field = if by_field { "Idempotency-Key" } else { "message.messageId" };
    let detail = "this id was already used for another message";
    Fault { field: Some(field), ..Fault::because(FaultKind::IdempotencyConflict, detail) }
}
