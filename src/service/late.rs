//! A call that is answered later: the shared state of the waiting and the answering side.
//!
//! Invariant: at most one answer is accepted, from any thread, and wakes the waiting call. Watchers
//! are notified at once of a caller that disconnects before its answer. The charge of an answer
//! lives until the answer is taken, or can no longer be taken.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use super::{Cursor, Handle, Outcome};
use crate::{
    fault::Fault,
    model::{Generation, MessageBuf, TaskBuf},
    waiter::{SharedWaker, Waiter},
};

/// The waiting side of a call. Dropping it before the answer means that the caller has
/// disconnected.
#[derive(Default)]
pub struct CallLink(Option<WaitingSide>);

/// Behind one pointer because most calls have none: dropping a link checks only that pointer.
struct WaitingSide(Arc<LateCall>);

/// The answering side.
pub struct LateCall(Mutex<CallState>);

/// The answer of a call.
pub enum LateAnswer {
    /// A direct message.
    Message {
        /// The message.
        message: MessageBuf,
        /// Raw id of the context.
        context_id: Box<[u8]>,
    },
    /// The call fails.
    Fault(Fault),
    /// The task as it is now.
    Task(Handle),
    /// A task that no store has: the only item of the answer, even if a stream was requested.
    Copy(Box<TaskBuf>),
    /// The task, once it has ended or is interrupted.
    Wait {
        /// The task.
        handle: Handle,
        /// An interrupted state counts only if it was entered after this event.
        after: u64,
    },
    /// A stream of the task.
    Stream {
        /// The position at which the stream begins.
        cursor: Cursor,
        /// The wire family of the call that created the task.
        generation: Generation,
    },
}

/// A charge on an account or limit, released on drop.
pub(crate) type Charge = Box<dyn Any + Send>;

struct CallState {
    stage: CallStage,
    /// The charge of the answer.
    charge: Option<Charge>,
    waiting: Option<Waker>,
    /// Woken when the caller disconnects.
    watchers: Vec<Arc<SharedWaker>>,
}

enum CallStage {
    /// [`LateCall::answer`] answers the call; `Some`: the answer is not taken yet.
    Late(Option<LateAnswer>),
    /// The task answers the call.
    Task,
    Answered,
    Disconnected {
        /// True: the call was never answered, neither before nor after the disconnect.
        unanswered: bool,
    },
}

impl CallLink {
    /// A call that waits for [`LateCall::answer`], and its answering side.
    pub fn late() -> (CallLink, Arc<LateCall>) {
        CallLink::of(CallStage::Late(None))
    }

    /// A call that its task answers, and the side that is notified when the caller disconnects.
    pub fn of_task() -> (CallLink, Arc<LateCall>) {
        CallLink::of(CallStage::Task)
    }

    fn of(stage: CallStage) -> (CallLink, Arc<LateCall>) {
        let state = CallState { stage, charge: None, waiting: None, watchers: Vec::new() };
        let call = Arc::new(LateCall(Mutex::new(state)));
        (CallLink(Some(WaitingSide(Arc::clone(&call)))), call)
    }

    /// True when the call has an answering side.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// True when [`LateCall::answer`] answers the call, not its task.
    pub fn is_late(&self) -> bool {
        let is_late = |side: &WaitingSide| matches!(side.0.lock().stage, CallStage::Late(_));
        self.0.as_ref().is_some_and(is_late)
    }

    /// Takes the answer, or registers `wake`. After [`LateAnswer::Wait`] and [`LateAnswer::Stream`]
    /// the task answers the call; other answers are final.
    pub fn poll(&self, wake: &Waker) -> Poll<LateAnswer> {
        let Some(WaitingSide(call)) = &self.0 else { return Poll::Pending };
        let mut state = call.lock();
        if let CallStage::Late(answer) = &mut state.stage
            && let Some(answer) = answer.take()
        {
            state.stage = match answer {
                LateAnswer::Wait { .. } | LateAnswer::Stream { .. } => CallStage::Task,
                LateAnswer::Message { .. } | LateAnswer::Fault(_) => CallStage::Answered,
                LateAnswer::Task(_) | LateAnswer::Copy(_) => CallStage::Answered,
            };
            let charge = state.charge.take();
            drop(state);
            drop(charge);
            return Poll::Ready(answer);
        }
        if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(wake)) {
            state.waiting = Some(wake.clone());
        }
        Poll::Pending
    }

    /// The call is answered; a later drop does not count as a disconnect.
    #[inline]
    pub fn finish(&mut self) {
        if let Some(side) = self.0.take() {
            side.0.finish();
        }
    }
}

impl Clone for CallLink {
    /// A copy has no answering side.
    fn clone(&self) -> CallLink {
        CallLink(None)
    }
}

impl fmt::Debug for CallLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallLink").field(&self.0.is_some()).finish()
    }
}

impl Drop for WaitingSide {
    #[cold]
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Outcome {
    /// Drops the outcome of a call if its client wants no answer; this does not count as a
    /// disconnect.
    pub(crate) fn finish(self) {
        match self {
            Outcome::Answered => {}
            Outcome::Pending(mut wait) => wait.link.finish(),
            Outcome::Stream { mut cursor, .. } => cursor.link.finish(),
        }
    }
}

impl LateCall {
    #[cold]
    fn finish(&self) {
        let mut state = self.lock();
        let stage = std::mem::replace(&mut state.stage, CallStage::Answered);
        let (watchers, charge) = (std::mem::take(&mut state.watchers), state.charge.take());
        drop(state);
        drop((stage, charge));
        // A watcher of several calls now watches another one.
        wake_all(&watchers);
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the call, unless it has ended.
    pub fn answer(&self, answer: LateAnswer) {
        self.answer_with(answer, None);
    }

    /// Answers the call as [`LateCall::answer`] does; `charge` is dropped when the answer is taken,
    /// or can no longer be taken.
    pub(crate) fn answer_with(&self, answer: LateAnswer, charge: Option<Charge>) {
        let mut state = self.lock();
        match &mut state.stage {
            CallStage::Late(pending @ None) => *pending = Some(answer),
            CallStage::Disconnected { unanswered } => return *unanswered = false,
            CallStage::Late(Some(_)) | CallStage::Task | CallStage::Answered => return,
        }
        let before = charge.and_then(|charge| state.charge.replace(charge));
        let waiting = state.waiting.take();
        drop(state);
        drop(before);
        waiting.inspect(Waker::wake_by_ref);
    }

    /// Holds `charge` for the call until it ends.
    pub(crate) fn count_by(&self, charge: Charge) {
        self.lock().charge = Some(charge);
    }

    /// True when the caller has disconnected without its answer.
    pub fn has_disconnected(&self) -> bool {
        matches!(self.lock().stage, CallStage::Disconnected { .. })
    }

    /// True when the call ended with its answer, or wants none.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.lock().stage, CallStage::Answered)
    }

    /// Ready when the caller has disconnected without its answer; otherwise registers `wake`.
    pub fn poll_disconnected(&self, waiter: &mut Waiter, wake: &Waker) -> Poll<()> {
        match self.poll_over(waiter, wake) {
            Poll::Ready(true) => Poll::Ready(()),
            Poll::Ready(false) | Poll::Pending => Poll::Pending,
        }
    }

    /// Ready when the call has ended, with true if its caller disconnected without its answer;
    /// otherwise registers `wake`. Check and registration are atomic: a waker is never called for
    /// an earlier end.
    pub(crate) fn poll_over(&self, waiter: &mut Waiter, wake: &Waker) -> Poll<bool> {
        let mut state = self.lock();
        match state.stage {
            CallStage::Disconnected { .. } => return Poll::Ready(true),
            CallStage::Answered => return Poll::Ready(false),
            CallStage::Late(_) | CallStage::Task => {}
        }
        state.watch(waiter, wake);
        Poll::Pending
    }

    /// Ready when the caller has disconnected before any answer; otherwise registers `wake`.
    pub fn poll_disconnected_unanswered(&self, waiter: &mut Waiter, wake: &Waker) -> Poll<()> {
        let mut state = self.lock();
        match state.stage {
            CallStage::Disconnected { unanswered: true } => return Poll::Ready(()),
            CallStage::Late(None) => state.watch(waiter, wake),
            CallStage::Disconnected { unanswered: false } | CallStage::Late(Some(_)) => {}
            CallStage::Task | CallStage::Answered => {}
        }
        Poll::Pending
    }

    #[cold]
    fn leave(&self) {
        let mut state = self.lock();
        if matches!(state.stage, CallStage::Answered) {
            return;
        }
        // An answer that can no longer be taken is dropped, too.
        let unanswered = matches!(state.stage, CallStage::Late(None));
        let stage = std::mem::replace(&mut state.stage, CallStage::Disconnected { unanswered });
        let watchers = std::mem::take(&mut state.watchers);
        let charge = state.charge.take();
        state.waiting = None;
        drop(state);
        drop((stage, charge));
        wake_all(&watchers);
    }
}

fn wake_all(watchers: &[Arc<SharedWaker>]) {
    watchers.iter().filter_map(|watcher| watcher.take()).for_each(Waker::wake);
}

impl CallState {
    /// Registers a watcher for the disconnect of the caller.
    fn watch(&mut self, waiter: &mut Waiter, wake: &Waker) {
        if let Some(waker) = waiter.arm(wake) {
            self.watchers.retain(SharedWaker::is_awaited);
            self.watchers.push(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;

    fn fault() -> LateAnswer {
        LateAnswer::Fault(FaultKind::Internal.into())
    }

    #[test]
    fn late_call_accepts_one_answer_and_returns_it_once() {
        let (link, call) = CallLink::late();
        assert!(link.is_late() && link.poll(Waker::noop()).is_pending());
        call.answer(fault());
        call.answer(LateAnswer::Task(Handle::default()));
        assert!(matches!(link.poll(Waker::noop()), Poll::Ready(LateAnswer::Fault(_))));
        assert!(link.poll(Waker::noop()).is_pending() && !link.is_late());
        drop(link);
        assert!(!call.has_disconnected());
    }

    #[test]
    fn disconnected_caller_is_detected() {
        for (link, call) in [CallLink::late(), CallLink::of_task()] {
            let mut waiter = Waiter::default();
            assert!(call.poll_disconnected(&mut waiter, Waker::noop()).is_pending());
            drop(link);
            assert!(
                call.has_disconnected()
                    && call.poll_disconnected(&mut waiter, Waker::noop()).is_ready()
            );
            call.answer(fault());
        }
        let (mut link, call) = CallLink::of_task();
        link.finish();
        drop(link);
        assert!(!call.has_disconnected());
    }

    #[test]
    fn disconnect_after_the_answer_is_not_reported_as_unanswered() {
        let is_vain = |call: &LateCall| {
            call.poll_disconnected_unanswered(&mut Waiter::default(), Waker::noop()).is_ready()
        };
        let (link, call) = CallLink::late();
        assert!(!is_vain(&call));
        drop(link);
        assert!(is_vain(&call));
        call.answer(fault());
        assert!(!is_vain(&call));
        let (link, call) = CallLink::late();
        call.answer(LateAnswer::Wait { handle: Handle::default(), after: 0 });
        drop(link);
        assert!(!is_vain(&call) && call.has_disconnected());
    }

    #[test]
    fn dropped_watchers_are_removed() {
        let (_link, call) = CallLink::late();
        for _ in 0..1_000 {
            assert!(call.poll_disconnected(&mut Waiter::default(), Waker::noop()).is_pending());
        }
        assert!(call.lock().watchers.len() <= 2);
    }
}
