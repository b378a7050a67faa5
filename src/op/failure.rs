//! Errors and panics of agents: the task or call fails, and the operator receives the text.

use std::sync::atomic::Ordering;

use super::{
    Core,
    turn::{message_of, push_status},
};
use crate::{
    agent::{Ending, FailureNote, FailureRules},
    fault::{Fault, FaultKind},
    model::{EventBuf, TaskState},
    service::{Now, Service},
};

/// The context of a turn that ended in a panic.
pub(super) struct BrokenTurn<'b> {
    pub events: &'b mut EventBuf,
    pub ending: &'b mut Ending,
    pub now: Now,
}

impl Core {
    /// Sets how failures of agents are reported; only the first call has an effect.
    pub fn report_failures(&self, rules: FailureRules) {
        self.failures.get_or_init(|| rules);
    }

    /// Reports a failure to the operator, and returns the text for the client.
    #[cold]
    pub(super) fn failure_text(&self, failed: FailureNote) -> String {
        let name = self.profile(failed.agent).map(|profile| profile.name.clone());
        // The time distinguishes the references of two processes.
        let (ms, number) = ((self.unix_ms)(), self.failed.fetch_add(1, Ordering::Relaxed));
        let failure = failed.named(name.unwrap_or_default(), format!("{ms:x}-{number:x}"));
        self.failures.get_or_init(FailureRules::default).tell(&failure)
    }

    /// Fails the task of a turn. If the turn detached its task, the drop of its job has already
    /// ended the task.
    #[cold]
    #[inline(never)]
    pub(super) fn fail_turn(&self, panicked: FailureNote, turn: BrokenTurn<'_>) {
        let text = self.failure_text(panicked);
        match turn.ending {
            Ending::Returned | Ending::Replied(_) | Ending::Resume { .. } => {
                *turn.ending = Ending::Returned;
                push_status(turn.events, TaskState::Failed, &message_of(&text), turn.now);
            }
            Ending::Detached | Ending::Deferred | Ending::Refused(_) => {}
        }
    }

    /// The fault of a call that panicked outside a turn.
    #[cold]
    pub(super) fn broken_fault(&self, panicked: FailureNote) -> Fault {
        Fault::because(FaultKind::Internal, self.failure_text(panicked))
    }
}
