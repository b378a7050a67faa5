//! Turns whose agent panics, and what is told of errors and panics of agents.

use std::sync::atomic::Ordering;

use super::{
    Core,
    turn::{message_of, push_status},
};
use crate::{
    agent::{Ending, FailureCause, FailureNote, FailureRules},
    fault::{Fault, FaultKind},
    model::{EventBuf, RawText, TaskState},
    service::{AgentIndex, Now, Service},
};

/// What an agent was at when it panicked.
pub(super) struct BrokenCall<'b> {
    pub agent: AgentIndex,
    pub task_id: &'b [u8],
    /// Its panic.
    pub cause: FailureCause,
}

/// What a turn whose agent panicked has come to.
pub(super) struct BrokenTurn<'b> {
    pub events: &'b mut EventBuf,
    pub ending: &'b mut Ending,
    pub now: Now,
}

impl Core {
    /// Sets what becomes of failures of agents, once.
    pub fn report_failures(&self, rules: FailureRules) {
        self.failures.get_or_init(|| rules);
    }

    /// Tells the operator of a failure, and returns the text for the client.
    #[cold]
    pub(super) fn failure_text(&self, failed: FailureNote) -> String {
        let name = self.profile(failed.agent).map(|profile| profile.name.clone());
        // The time keeps the references of two processes apart.
        let (ms, number) = ((self.unix_ms)(), self.failed.fetch_add(1, Ordering::Relaxed));
        let failure = failed.named(name.unwrap_or_default(), format!("{ms:x}-{number:x}"));
        self.failures.get_or_init(FailureRules::default).tell(&failure)
    }

    /// The text for the client of an agent that has panicked.
    #[cold]
    fn broken_text(&self, call: BrokenCall<'_>) -> String {
        let BrokenCall { agent, task_id, cause } = call;
        let task_id = RawText::known(task_id).to_str().into_owned();
        self.failure_text(FailureNote { agent, task_id, cause })
    }

    /// Fails the task of a turn, unless its agent has let it out of the turn already: then it ended
    /// as the agent dropped it.
    #[cold]
    #[inline(never)]
    pub(super) fn fail_turn(&self, call: BrokenCall<'_>, turn: BrokenTurn<'_>) {
        let text = self.broken_text(call);
        match turn.ending {
            Ending::Returned | Ending::Replied(_) | Ending::Resume { .. } => {
                *turn.ending = Ending::Returned;
                push_status(turn.events, TaskState::Failed, &message_of(&text), turn.now);
            }
            Ending::Detached | Ending::Deferred | Ending::Refused(_) => {}
        }
    }

    /// What a call hears that is about no turn.
    #[cold]
    pub(super) fn broken_fault(&self, call: BrokenCall<'_>) -> Fault {
        Fault::because(FaultKind::Internal, self.broken_text(call))
    }
}
