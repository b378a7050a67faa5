//! Reading one task, and pages of tasks (A2A 1.0 §3.1.3, §3.1.4).

use crate::{
    fault::{Fault, FaultKind},
    model::{Get, List, Reply, TaskView},
    op::Core,
    service::{Answer, CallCx, Outcome},
};

/// Page size when the client names none (A2A 1.0 §3.1.4).
const PAGE_SIZE: u32 = 50;

impl Core {
    pub(super) fn get(
        &self,
        cx: &CallCx<'_>,
        get: &Get<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let found = self.store.get(cx.caller.agent, get.id, &mut |view| {
            if !is_in(&view, get.context_id) {
                return false;
            }
            answer(Reply::Task { view, history: get.history });
            true
        });
        if found { Ok(Outcome::Ready) } else { Err(FaultKind::TaskNotFound.into()) }
    }

    pub(super) fn list(
        &self,
        cx: &CallCx<'_>,
        list: &List<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let page_size = list.page_size.unwrap_or(PAGE_SIZE);
        let list = List { page_size: Some(page_size), ..*list };
        let mut started = false;
        let page = self.store.list(cx.caller.agent, &list, &mut |view| {
            if !std::mem::replace(&mut started, true) {
                answer(Reply::PageStart);
            }
            answer(Reply::PageTask {
                view,
                history: list.history,
                artifacts: list.include_artifacts,
            });
        })?;
        if !started {
            answer(Reply::PageStart);
        }
        answer(Reply::PageEnd { next: &page.next, page_size, total: page.total });
        Ok(Outcome::Ready)
    }
}

/// A task outside the conversation that the caller named is not there for it.
pub(super) fn is_in(view: &TaskView<'_>, context_id: Option<&[u8]>) -> bool {
    context_id.is_none_or(|context_id| context_id == view.context_id())
}
