//! Cancelling a task (A2A 1.0 §3.1.5).

use crate::{
    fault::{Fault, FaultKind},
    model::{Generation, Reply, Target, TaskEvent, TaskState},
    op::{Core, read::is_in},
    service::{Answer, CallCx, Outcome},
};

impl Core {
    /// Ends a running task; its agent finds its turn or job closed.
    pub(super) fn cancel(
        &self,
        cx: &CallCx<'_>,
        target: &Target<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let key = self.store.find(cx.caller.agent, target.id).ok_or(FaultKind::TaskNotFound)?;
        let at_ms = cx.now.unix_ms;
        let event = TaskEvent::Status {
            state: TaskState::Canceled,
            at_ms,
            message: None,
            metadata: target.metadata,
        };
        let mut refused = FaultKind::TaskNotFound;
        let applied = self.store.update(key, cx.now, &mut |task| {
            if !is_in(&task.view(), target.context_id) {
                return false;
            }
            refused = FaultKind::TaskNotCancelable;
            match task.state() {
                // A2A 1.0 §3.3.1: cancelling is idempotent; before that, a second one is an error.
                TaskState::Canceled if target.generation == Generation::V1 => {}
                state if state.is_terminal() => return false,
                _ => {
                    if task.apply(&event, &self.task_limits()).is_err() {
                        return false;
                    }
                }
            }
            answer(Reply::Task { view: task.view(), history: None });
            true
        });
        if applied { Ok(Outcome::Ready) } else { Err(refused.into()) }
    }
}
