//! Errors and panics of agents: what the operator and the client are told of them.
//!
//! Invariant: the text of a failure is for the operator. The client is shown it where the server is
//! set so, and else a reference, which the operator is told as well.

use std::{
    any::Any,
    cell::Cell,
    fmt::{Display, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    DeferredHost, JobHost,
    ids::{FreshIds, TurnKey},
};
use crate::{
    fault::{Fault, FaultKind},
    model::{MessageBuf, PartsBuf, RawText, TaskEvent, TaskState},
    service::{AgentIndex, Handle},
};

/// Bytes of an error or panic that are told; the rest is cut.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// An agent has returned an error, or has panicked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentFailure {
    /// The name of the agent.
    pub agent: String,
    /// The task, or the one that its call would have made.
    pub task_id: String,
    /// The text of the error or panic, at most 4 KiB.
    pub text: String,
    /// What the client is told where it is not shown the text: hexadecimal digits with a hyphen.
    pub reference: String,
    /// True: a panic, and not an error.
    pub is_panic: bool,
}

/// What becomes of the failures of agents.
#[derive(Clone, Default)]
pub struct FailureRules {
    /// Whether clients are shown the texts. `None`: they are where `net::Server` listens on this
    /// machine's loopback alone.
    pub shows_errors: Option<bool>,
    /// Told of each failure, on the thread on which it happened.
    pub listener: Option<FailureListener>,
}

/// The function that is told of failures.
pub type FailureListener = Arc<dyn Fn(&AgentFailure) + Send + Sync>;

impl FailureRules {
    /// Tells the listener, and returns the text for the client.
    #[cold]
    pub(crate) fn tell(&self, failure: &AgentFailure) -> String {
        if let Some(listener) = &self.listener {
            // The turn ends whatever the listener does; its panic was reported where it happened.
            let _ = caught(|| listener(failure));
        }
        match self.shows_errors.unwrap_or(false) {
            true if failure.is_panic => format!("the agent has panicked: {}", failure.text),
            true => failure.text.clone(),
            false => format!("the agent has failed (reference {})", failure.reference),
        }
    }
}

/// A failure as the server is told of it.
pub struct FailureNote {
    /// Whose it is.
    pub agent: AgentIndex,
    /// As [`AgentFailure`] has it.
    pub task_id: String,
    /// Why.
    pub cause: FailureCause,
}

/// Why a turn has failed: an error or a panic.
pub struct FailureCause {
    /// Its text.
    pub text: String,
    /// As [`AgentFailure`] has it.
    pub is_panic: bool,
}

impl FailureCause {
    /// An error with this text.
    pub(super) fn error(text: String) -> FailureCause {
        FailureCause { text, is_panic: false }
    }

    /// A panic with this payload.
    #[cold]
    fn panic(payload: &(dyn Any + Send)) -> FailureCause {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("without a message").to_owned();
        FailureCause { text, is_panic: true }
    }
}

impl FailureNote {
    /// The failure of an agent at the task with this raw id.
    #[cold]
    pub(crate) fn of(agent: AgentIndex, task_id: &[u8], cause: FailureCause) -> FailureNote {
        FailureNote { agent, task_id: RawText::known(task_id).to_str().into_owned(), cause }
    }

    /// The failure, with the name of the agent.
    pub(crate) fn named(self, agent: String, reference: String) -> AgentFailure {
        let FailureCause { mut text, is_panic } = self.cause;
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        AgentFailure { agent, task_id: self.task_id, text, reference, is_panic }
    }
}

/// The text of an error, in its alternate form (`{:#}`), which has its sources with `anyhow`.
pub(super) fn text_of(error: &dyn Display) -> String {
    let written = caught(|| {
        let mut text = String::new();
        write!(text, "{error:#}").map(|()| text)
    });
    written.ok().and_then(Result::ok).unwrap_or_else(|| "an error without a text".to_owned())
}

/// Runs code of an agent that may panic.
fn caught<R>(run: impl FnOnce() -> R) -> Result<R, FailureCause> {
    catch_unwind(AssertUnwindSafe(run)).map_err(cause_of)
}

/// What a panic says.
#[cold]
fn cause_of(payload: Box<dyn Any + Send>) -> FailureCause {
    let cause = FailureCause::panic(&*payload);
    // The payload is the agent's, and its end may panic as well.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    cause
}

/// Runs one step of an agent's own code; `None`: it has not panicked.
#[inline(always)] // It is what every turn runs in.
pub(crate) fn panic_of(run: impl FnOnce()) -> Option<FailureCause> {
    catch_unwind(AssertUnwindSafe(run)).err().map(cause_of)
}

/// A job or deferred turn that its agent has dropped before its end.
pub(crate) struct DroppedTurn {
    pub agent: AgentIndex,
    pub task_id: String,
    pub ids: FreshIds,
    pub end: DroppedEnd,
}

/// How a dropped turn can be ended.
pub(crate) enum DroppedEnd {
    /// By the last status of its task.
    Task(Handle, Arc<dyn JobHost>),
    /// By the answer of its call.
    Call(Box<dyn DeferredHost>),
}

impl DroppedTurn {
    /// Ends it; without a cause there was just no result.
    pub fn end(mut self, cause: Option<FailureCause>) {
        let (agent, task_id) = (self.agent, self.task_id);
        let failed = cause.map(|cause| FailureNote { agent, task_id, cause });
        match self.end {
            DroppedEnd::Task(task, host) => {
                let mut is_over = true;
                host.read(task, &mut |task| is_over = task.status().state.is_terminal());
                // A task that has ended needs no end, and its agent may have failed for just that.
                if is_over {
                    return;
                }
                let text = match failed {
                    Some(failed) => host.failed(failed),
                    None => "the agent ended without a result".to_owned(),
                };
                let message = MessageBuf::agent(&PartsBuf::new().text(&text)).id(&self.ids.next());
                let (state, at_ms) = (TaskState::Failed, host.unix_ms());
                let message = Some(message.view());
                let status = TaskEvent::Status { state, at_ms, message, metadata: None };
                let _ = host.publish(task, &status);
            }
            DroppedEnd::Call(host) => {
                let text = match failed {
                    Some(failed) => host.failed(failed),
                    None => "the agent ended without an answer".to_owned(),
                };
                host.refuse(Fault::because(FaultKind::Internal, text));
            }
        }
    }

    /// Ends it when the function of its turn has returned, which may say why; at once, where it was
    /// dropped elsewhere.
    #[cold]
    pub fn end_with_its_function(self) {
        let is_its_own = STEP.try_with(Cell::get).is_ok_and(|step| step == Some(self.ids.key()));
        if !is_its_own {
            return self.end(None);
        }
        let mut dropped = Some(self);
        // Without the slot, of a thread that ends, it is still there.
        let before = DROPPED.try_with(|slot| slot.replace(dropped.take())).ok().flatten();
        before.into_iter().chain(dropped).for_each(|dropped| dropped.end(None));
    }
}

thread_local! {
    /// The turn whose function runs on this thread now.
    static STEP: Cell<Option<TurnKey>> = const { Cell::new(None) };
    /// What that function has dropped of its turn.
    static DROPPED: Cell<Option<DroppedTurn>> = const { Cell::new(None) };
}

/// What the function of an agent returns: nothing, or a result whose error fails its task or call.
pub trait AgentOutcome {
    /// The text of the error, if it is one.
    fn into_error(self) -> Option<String>;
}

impl AgentOutcome for () {
    fn into_error(self) -> Option<String> {
        None
    }
}

impl<T, E: Display> AgentOutcome for Result<T, E> {
    fn into_error(self) -> Option<String> {
        self.err().map(|error| text_of(&error))
    }
}

/// Runs a step of the function of a turn, which returns `None` where it goes on; says whether it is
/// over. Then, and where it panics, the turn ends if the function has dropped it without an end.
#[cfg(feature = "net")]
pub(crate) fn run_step<R: AgentOutcome>(
    turn: Option<TurnKey>,
    step: impl FnOnce() -> Option<R>,
) -> bool {
    let outer = STEP.replace(turn);
    let returned = caught(step);
    STEP.set(outer);
    let dropped = DROPPED.take();
    let (is_over, cause) = match returned {
        Ok(None) => (false, None),
        // An error of the agent's own type may panic when it is written or dropped.
        Ok(Some(outcome)) => match caught(|| outcome.into_error()) {
            Ok(error) => (true, error.map(FailureCause::error)),
            Err(cause) => (true, Some(cause)),
        },
        Err(cause) => (true, Some(cause)),
    };
    if let Some(dropped) = dropped {
        dropped.end(cause);
    }
    is_over
}
