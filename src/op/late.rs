//! Calls that their agents answer later.

use std::task::{Poll, Waker};

use crate::{
    fault::{Fault, FaultKind},
    model::{RawText, Reply},
    op::Core,
    service::{Answer, Cursor, LateAnswer, Outcome, WaitHandle, Waiter},
    store::TaskKey,
};

impl Core {
    /// Continues a call after its agent's answer.
    #[cold]
    pub(super) fn poll_late(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        let Poll::Ready(late) = wait.link.poll(wake) else {
            return self.poll_cancel(wait, wake, answer);
        };
        Poll::Ready(match late {
            LateAnswer::Message { message, context_id } => {
                let context_id = RawText::known(&context_id);
                answer(Reply::Message { message: message.view(), context_id });
                Ok(Outcome::Answered)
            }
            LateAnswer::Fault(fault) => Err(fault),
            LateAnswer::Task(handle) => {
                let shown = self.store.read(TaskKey::of(&handle), |task| {
                    wait.record = task.record();
                    answer(Reply::Task { view: task.view(), history: wait.history });
                });
                shown.map(|()| Outcome::Answered).ok_or_else(|| FaultKind::TaskNotFound.into())
            }
            LateAnswer::Copy(task) => {
                answer(Reply::Task { view: task.view(), history: wait.history });
                Ok(Outcome::Answered)
            }
            LateAnswer::Wait { handle, after } => {
                (wait.handle, wait.after, wait.waiter) = (handle, after, Waiter::default());
                let polled = self.store.poll(wait, wake, answer);
                return polled.map_ok(|()| Outcome::Answered);
            }
            LateAnswer::Stream { cursor, generation } => {
                let link = std::mem::take(&mut wait.link);
                let cursor = Cursor { link, ..cursor };
                Ok(Outcome::Stream { cursor, generation })
            }
        })
    }
}
