//! Reading one task, and pages of tasks (A2A 1.0 §3.1.3, §3.1.4).

use std::sync::atomic::Ordering;

use crate::{
    agent::Wanted,
    fault::{Fault, FaultKind},
    model::{Get, List, RawText, Reply, Task, TaskWait},
    op::{Core, missing::MissingTask},
    service::{Answer, CallCx, Now, Outcome, TaskLook, WaitHandle},
};

impl Core {
    pub(super) fn get(
        &self,
        cx: &mut CallCx<'_>,
        get: &Get<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let (now, mut waits) = (cx.now, None);
        let found = self.store.read_id(cx.caller.scope, get.id.raw(), |key, task| {
            let is_it = is_in(&task, get.context_id);
            if is_it && let Some(wait) = get.wait {
                waits = self.look(&wait, &task, now).map(|look| (key, look));
            }
            if is_it && waits.is_none() {
                cx.shows(task.record());
                answer(Reply::Task { view: task.view(), history: get.history });
            }
            is_it
        });
        match (found, waits) {
            (Some(true), None) => Ok(Outcome::Answered),
            (Some(true), Some((key, look))) => {
                let (handle, history, look) = (key.handle(), get.history, Some(look));
                let wait = WaitHandle { handle, history, look, ..WaitHandle::default() };
                Ok(Outcome::Pending(wait))
            }
            (Some(false), _) => Err(FaultKind::TaskNotFound.into()),
            (None, _) => {
                let Get { id, context_id, history, .. } = *get;
                let wanted = Wanted::Get { history };
                self.look_up(cx, &MissingTask { id, context_id, metadata: None, wanted })
            }
        }
    }

    /// The wait of a reader for news of a task; `None`: the call is answered at once.
    #[cold]
    fn look(&self, wait: &TaskWait, task: &Task, now: Now) -> Option<TaskLook> {
        let after = wait.after.unwrap_or_else(|| task.seq());
        let wait_ms = wait.wait_ms.min(self.limits.long_poll_ms_max);
        let look = TaskLook { after, due_ms: now.mono_ms + wait_ms, is_due: wait_ms == 0 };
        (!look.is_answered_by(task)).then_some(look)
    }

    pub(super) fn list(
        &self,
        cx: &mut CallCx<'_>,
        list: &List<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let (mut is_open, held) = (false, cx.shared.held_bytes.load(Ordering::Relaxed));
        let page = self.store.list(cx.caller.scope, list, held, &mut |view| {
            if !std::mem::replace(&mut is_open, true) {
                answer(Reply::PageStart);
            }
            let artifacts = list.include_artifacts;
            answer(Reply::PageTask { view, history: list.history, artifacts });
        })?;
        cx.shows(page.record);
        if !is_open {
            answer(Reply::PageStart);
        }
        let (next, page_size, total) = (page.next.as_str(), page.page_size, page.total);
        answer(Reply::PageEnd { next, page_size, total });
        Ok(Outcome::Answered)
    }
}

/// False for a task outside the conversation that the caller named: it is treated as not found.
pub(super) fn is_in(task: &Task, context_id: Option<RawText<'_>>) -> bool {
    context_id.is_none_or(|context_id| context_id.raw() == task.context_id())
}
