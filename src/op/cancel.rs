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
        let key =
            self.store.find(cx.caller.scope, target.id.raw()).ok_or(FaultKind::TaskNotFound)?;
        let canceled = TaskEvent::Status {
            state: TaskState::Canceled,
            at_ms: cx.now.unix_ms,
            message: None,
            metadata: target.metadata,
        };
        let done = self.store.update(key, cx.now, |edit| {
            if !is_in(edit.task(), target.context_id) {
                return Err(FaultKind::TaskNotFound);
            }
            // A2A 1.0 §3.3.1: cancelling is idempotent; before 1.0 a second one is an error.
            let again =
                edit.task().state() == TaskState::Canceled && target.generation == Generation::V1;
            if !again {
                edit.apply(&canceled).map_err(|_| FaultKind::TaskNotCancelable)?;
            }
            answer(Reply::Task { view: edit.task().view(), history: None });
            Ok(())
        });
        done.unwrap_or(Err(FaultKind::TaskNotFound))?;
        Ok(Outcome::Answered)
    }
}
