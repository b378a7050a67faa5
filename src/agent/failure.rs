//! Errors and panics of agents, and their reports to the operator and the client.
//!
//! Invariant: the text of a failure is for the operator. The client receives the text only if the
//! server is configured to show it; otherwise it receives a reference, as does the operator.

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

/// Maximum bytes of an error or panic that are reported; the rest is truncated.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// An error or panic of an agent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentFailure {
    /// The name of the agent.
    pub agent: String,
    /// The task, or the task that the call would have created.
    pub task_id: String,
    /// The text of the error or panic, at most 4 KiB.
    pub text: String,
    /// The text for a client that may not see the error: hexadecimal digits with a hyphen.
    pub reference: String,
    /// True for a panic, false for an error.
    pub is_panic: bool,
}

/// How failures of agents are reported.
#[derive(Clone, Default)]
pub struct FailureRules {
    /// Whether clients see the texts. `None`: only if `net::Server` listens only on the loopback
    /// interface.
    pub shows_errors: Option<bool>,
    /// Called for each failure, on the thread where it happened.
    pub listener: Option<FailureListener>,
}

/// The function that is called for each failure.
pub type FailureListener = Arc<dyn Fn(&AgentFailure) + Send + Sync>;

impl FailureRules {
    /// Calls the listener, and returns the text for the client.
    #[cold]
    pub(crate) fn tell(&self, failure: &AgentFailure) -> String {
        if let Some(listener) = &self.listener {
            // The turn ends even if the listener panics; the panic hook has reported that panic.
            let _ = caught(|| listener(failure));
        }
        match self.shows_errors.unwrap_or(false) {
            true if failure.is_panic => format!("the agent has panicked: {}", failure.text),
            true => failure.text.clone(),
            false => format!("the agent has failed (reference {})", failure.reference),
        }
    }
}

/// A failure as reported to the server.
pub struct FailureNote {
    /// The agent that failed.
    pub agent: AgentIndex,
    /// See [`AgentFailure`].
    pub task_id: String,
    /// The cause.
    pub cause: FailureCause,
}

/// Why a turn has failed: an error or a panic.
pub struct FailureCause {
    /// The text of the error or panic.
    pub text: String,
    /// See [`AgentFailure`].
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

/// The text of an error in its alternate form (`{:#}`), which with `anyhow` includes the sources.
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

/// The text of a panic.
#[cold]
fn cause_of(payload: Box<dyn Any + Send>) -> FailureCause {
    let cause = FailureCause::panic(&*payload);
    // The payload belongs to the agent, and its drop may panic as well.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    cause
}

/// Runs one step of an agent's code; `None`: the step has not panicked.
#[inline(always)] // Every turn runs in it.
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

/// How to end a dropped turn.
pub(crate) enum DroppedEnd {
    /// By setting the last status of its task.
    Task(Handle, Arc<dyn JobHost>),
    /// By answering its call.
    Call(Box<dyn DeferredHost>),
}

impl DroppedTurn {
    /// Ends the turn; without a cause, the agent has only failed to produce a result.
    pub fn end(mut self, cause: Option<FailureCause>) {
        let (agent, task_id) = (self.agent, self.task_id);
        let failed = cause.map(|cause| FailureNote { agent, task_id, cause });
        match self.end {
            DroppedEnd::Task(task, host) => {
                let mut is_over = true;
                host.read(task, &mut |task| is_over = task.status().state.is_terminal());
                // A task that has ended needs no end; its end may even be the cause of the failure.
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

    /// Ends the turn when its function has returned, since the function may return the cause; if
    /// the turn was dropped outside its function, ends it at once.
    #[cold]
    pub fn end_with_its_function(self) {
        let is_its_own = STEP.try_with(Cell::get).is_ok_and(|step| step == Some(self.ids.key()));
        if !is_its_own {
            return self.end(None);
        }
        let mut dropped = Some(self);
        // If the thread is ending and its slot is destroyed, the turn stays in `dropped`.
        let before = DROPPED.try_with(|slot| slot.replace(dropped.take())).ok().flatten();
        before.into_iter().chain(dropped).for_each(|dropped| dropped.end(None));
    }
}

thread_local! {
    /// The turn of the function that is running on this thread.
    static STEP: Cell<Option<TurnKey>> = const { Cell::new(None) };
    /// The job or deferred turn of that turn, if the function has dropped it.
    static DROPPED: Cell<Option<DroppedTurn>> = const { Cell::new(None) };
}

/// The result of an agent's function: nothing, or a `Result`; its error fails the task or the call.
pub trait AgentOutcome {
    /// The text of the error, if there is one.
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

/// Runs a step of a turn's function, which returns `None` to continue; returns true if the function
/// has ended. After its end or a panic, ends the turn if the function has dropped it without a
/// result.
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
        // An error of the agent's own type may panic when it is formatted or dropped.
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
