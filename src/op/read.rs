//! Reading one task, and pages of tasks (A2A 1.0 §3.1.3, §3.1.4).

use std::sync::atomic::Ordering;

use crate::{
    agent::Wanted,
    fault::{Fault, FaultKind},
    model::{Get, List, RawText, Reply, Task},
    op::{Core, missing::MissingTask},
    service::{Answer, CallCx, Outcome},
};

impl Core {
    pub(super) fn get(
        &self,
        cx: &mut CallCx<'_>,
        get: &Get<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let found = self.store.read_id(cx.caller.scope, get.id.raw(), |_, task| {
            let is_it = is_in(&task, get.context_id);
            if is_it {
                cx.shows(task.record());
                answer(Reply::Task { view: task.view(), history: get.history });
            }
            is_it
        });
        match found {
            Some(true) => Ok(Outcome::Answered),
            Some(false) => Err(FaultKind::TaskNotFound.into()),
            None => {
                let Get { id, context_id, history } = *get;
                let wanted = Wanted::Get { history };
                self.look_up(cx, &MissingTask { id, context_id, metadata: None, wanted })
            }
        }
    }

    pub(super) fn list(
        &self,
        cx: &mut CallCx<'_>,
        list: &List<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let (mut is_open, held) = (false, cx.held_bytes.load(Ordering::Relaxed));
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

/// A task outside the conversation that the caller named is not there for it.
pub(super) fn is_in(task: &Task, context_id: Option<RawText<'_>>) -> bool {
    context_id.is_none_or(|context_id| context_id.raw() == task.context_id())
}
