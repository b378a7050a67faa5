//! Calls about tasks that are not stored: the agent may answer now, later or not at all.
//!
//! Invariant: agents are never asked for stored tasks, nor for other callers' tasks under ids that
//! the store has created. Ids that clients choose are looked up within their scope only, so a
//! caller cannot find out whether another caller's task has an id. The store has no entry for such
//! a lookup, which only holds a permit of its caller's share. The memory of the waiting call is
//! charged to the store until the lookup is answered. The memory of the answer, and the permit for
//! a deferred call, are released when the call has taken the answer.

use std::sync::Arc;

use crate::{
    agent::{
        Closed, FailureNote, LookupAnswer, LookupHost, RequestView, TaskLookup, Wanted, panic_of,
    },
    fault::{Fault, FaultKind},
    model::{JsonObject, RawText, Target, TaskBuf, TaskState},
    op::{
        Core,
        defer::{AnswerCharge, DeferredPermit},
    },
    service::{CallCx, CallLink, Handle, LateAnswer, LateCall, Outcome, WaitHandle},
    store::TaskKey,
};

/// Marks the handle of a call that waits for a task that is not stored.
pub(super) const MISSING: u64 = 2;

/// The task that is not stored, and the purpose of the call.
#[derive(Clone, Copy)]
pub(super) struct MissingTask<'c> {
    pub id: RawText<'c>,
    pub context_id: Option<RawText<'c>>,
    pub metadata: Option<JsonObject<'c>>,
    pub wanted: Wanted,
}

impl<'c> MissingTask<'c> {
    pub fn of(target: &Target<'c>, wanted: Wanted) -> MissingTask<'c> {
        let Target { id, context_id, metadata, .. } = *target;
        MissingTask { id, context_id, metadata, wanted }
    }
}

impl Core {
    /// Asks the agent for a task that the store does not have.
    #[cold]
    #[inline(never)]
    pub(super) fn look_up(
        &self,
        cx: &CallCx<'_>,
        missing: &MissingTask<'_>,
    ) -> Result<Outcome, Fault> {
        let caller = &cx.caller;
        if self.store.has_made(missing.id.raw()) {
            // The agent would have to know the owner of each task that it stores.
            return Err(FaultKind::TaskNotFound.into());
        }
        let registered = self.registered(caller.worker, caller.scope.agent)?;
        let link = CallLink::default();
        let mut host = LookingUp { core: self, cx, missing: *missing, link, full: None };
        let lookup = TaskLookup {
            task_id: missing.id,
            context_id: missing.context_id,
            wanted: missing.wanted,
            request: RequestView::of(caller, &registered.profile, missing.metadata, None),
            host: &mut host,
        };
        if let Some(cause) = panic_of(|| registered.agent.missing(lookup)) {
            let panicked = FailureNote::of(caller.scope.agent, missing.id.raw(), cause);
            return Err(self.broken_fault(panicked));
        }
        if let Some(fault) = host.full {
            return Err(fault);
        }
        if !host.link.is_late() {
            return Err(FaultKind::TaskNotFound.into());
        }
        let history = match missing.wanted {
            Wanted::Get { history } => history,
            Wanted::Cancel | Wanted::Subscribe => None,
        };
        let (handle, link) = (Handle { hint: MISSING, ..Handle::default() }, host.link);
        Ok(Outcome::Pending(WaitHandle { handle, history, link, ..WaitHandle::default() }))
    }
}

/// The core's side while an agent looks up a task.
struct LookingUp<'t, 'c> {
    core: &'t Core,
    cx: &'t CallCx<'c>,
    missing: MissingTask<'t>,
    link: CallLink,
    /// The fault if the call cannot wait.
    full: Option<Fault>,
}

impl LookupHost for LookingUp<'_, '_> {
    fn defer(
        &mut self,
        held_bytes: usize,
    ) -> Result<(Arc<LateCall>, Box<dyn LookupAnswer>), Closed> {
        let core = self.core.this.upgrade().ok_or(Closed)?;
        let MissingTask { id, context_id, wanted, .. } = self.missing;
        let own = id.raw().len() + context_id.map_or(0, |context_id| context_id.raw().len());
        let held_bytes = held_bytes + own;
        let permit = match DeferredPermit::take(&core, self.cx, held_bytes) {
            Ok(permit) => Some(permit),
            Err(fault) => {
                self.full = Some(fault);
                return Err(Closed);
            }
        };
        let key = core.store.position_of(self.cx.caller.worker, self.cx.now);
        if let Err(refused) = core.store.hold_bytes(key, held_bytes) {
            self.full = Some(refused.into());
            return Err(Closed);
        }
        let (link, call) = CallLink::late();
        self.link = link;
        let (id, context_id) = (id.raw().into(), context_id.map(|id| id.raw().into()));
        let late = Arc::clone(&call);
        let found = Lookup { core, key, call, id, context_id, wanted, held_bytes, permit };
        Ok((late, Box::new(found)))
    }
}

/// A lookup that an agent answers later.
struct Lookup {
    core: Arc<Core>,
    /// The task key to which the bytes of this lookup are charged.
    key: TaskKey,
    call: Arc<LateCall>,
    id: Box<[u8]>,
    context_id: Option<Box<[u8]>>,
    wanted: Wanted,
    /// Bytes charged to the store.
    held_bytes: usize,
    permit: Option<DeferredPermit>,
}

impl Lookup {
    fn check(&self, task: &TaskBuf) -> Result<(), Fault> {
        let (view, bytes_max) = (task.view(), self.core.limits.task_bytes_max);
        let (state, ended) = (view.status().state, view.status().state.is_terminal());
        if view.id().raw() != &*self.id {
            let text = "the agent answered with a different task";
            return Err(Fault::because(FaultKind::Internal, text));
        }
        if self.context_id.as_ref().is_some_and(|named| **named != *view.context_id().raw()) {
            return Err(FaultKind::TaskNotFound.into());
        }
        if task.task().heap_bytes() > bytes_max {
            return Err(Fault::at_limit("task_bytes_max"));
        }
        match self.wanted {
            Wanted::Cancel if ended && state != TaskState::Canceled => {
                Err(FaultKind::TaskNotCancelable.into())
            }
            Wanted::Subscribe if ended => Err(FaultKind::TaskTerminal.into()),
            Wanted::Get { .. } | Wanted::Cancel | Wanted::Subscribe => Ok(()),
        }
    }
}

impl LookupAnswer for Lookup {
    fn answer(mut self: Box<Self>, found: Result<TaskBuf, Fault>) {
        let checked = found.and_then(|task| self.check(&task).map(|()| task));
        let task = match checked {
            Ok(task) => Box::new(task),
            Err(fault) => return self.call.answer(LateAnswer::Fault(fault)),
        };
        let held_bytes = size_of::<TaskBuf>() + task.task().heap_bytes();
        let (core, permit) = (Arc::clone(&self.core), self.permit.take());
        match AnswerCharge::take(core, self.key, held_bytes, permit) {
            Ok(charge) => {
                self.call.answer_with(LateAnswer::Copy(task), Some(Box::new(charge)));
            }
            Err(refused) => self.call.answer(LateAnswer::Fault(refused.into())),
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.core.store.release_bytes(self.key, self.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::DeferredLookup, limits::DEFERRED_CALL_BYTES};

    #[test]
    fn deferred_lookup_uses_at_most_its_charged_memory() {
        let call = size_of::<LateCall>() + 2 * size_of::<usize>();
        let lookup = size_of::<Lookup>() + size_of::<DeferredLookup>();
        // Three blocks with the allocator's overhead.
        let bytes = call + lookup + size_of::<AnswerCharge>() + 3 * 16;
        assert!(bytes as u64 <= DEFERRED_CALL_BYTES, "{bytes}");
    }
}
