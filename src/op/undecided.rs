//! Undecided cancels, by task.
//!
//! Invariant: for each task and each caller identity that the agent sees, one cancel at a time asks
//! the agent. Cancels that arrive before its decision wait for it, and are charged as bytes of the
//! store. The cancel that asked also holds a permit for a deferred call while it waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    agent::{OwnedHeaders, RequestView},
    fault::{Fault, FaultKind},
    op::{Core, defer::AnswerCharge},
    service::{CallLink, JoinedCalls, LateAnswer, LateCall},
    store::TaskKey,
};

/// Bytes of a call that waits with another: the call, its charge, and its entry in a list.
pub(super) const JOINED_CALL_BYTES: usize = size_of::<LateCall>() + size_of::<AnswerCharge>() + 48;

/// All undecided cancels.
#[derive(Default)]
pub(super) struct UndecidedCancels(Mutex<ByTask>);

/// By position and check of the task.
type ByTask = BTreeMap<(u32, u32), Vec<Arc<UndecidedCancel>>>;

/// The cancels of one task that wait for the same answer of one program.
struct UndecidedCancel {
    calls: Arc<JoinedCalls>,
    /// The incarnation of the program that decides.
    incarnation: u32,
    /// The first caller's identity, as the agent sees it.
    identity: Option<Box<str>>,
    headers: OwnedHeaders,
}

impl UndecidedCancel {
    /// True if other cancels may join, and the agent would see `own` as equal.
    fn is_joined_by(&self, own: &UndecidedCancel) -> bool {
        self.incarnation == own.incarnation
            && self.identity == own.identity
            && self.headers == own.headers
            && !self.calls.all_disconnected()
    }
}

/// A cancel that has asked the agent. Others may join it until it is settled.
pub(super) struct OpenCancel {
    core: Arc<Core>,
    key: TaskKey,
    /// The link of the call that asked; taken when that call waits for the decision, too.
    pub link: CallLink,
    cancel: Arc<UndecidedCancel>,
}

impl OpenCancel {
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub fn key(&self) -> TaskKey {
        self.key
    }

    /// All calls that wait for the decision.
    pub fn calls(&self) -> &Arc<JoinedCalls> {
        &self.cancel.calls
    }

    /// The incarnation of the program that decides.
    pub fn incarnation(&self) -> u32 {
        self.cancel.incarnation
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        let identity = self.cancel.identity.as_ref().map_or(0, |identity| identity.len());
        identity + self.cancel.headers.held_bytes()
    }

    /// Answers all waiting callers: the task is canceled, or why it is not. The task has already
    /// changed, so a caller too late to join finds it canceled.
    pub fn settle(&self, done: &Result<(), Fault>) {
        self.core.undecided.remove(self.key, &self.cancel);
        self.cancel.calls.answer(|| match done {
            Ok(()) => LateAnswer::Task(self.key.handle()),
            Err(fault) => LateAnswer::Fault(fault.clone()),
        });
    }
}

impl Drop for OpenCancel {
    /// Fails the waiting calls of an agent that has panicked.
    fn drop(&mut self) {
        self.settle(&Err(FaultKind::Internal.into()));
    }
}

impl UndecidedCancels {
    fn lock(&self) -> MutexGuard<'_, ByTask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `own`, so that others may join it; returns false without adding if it could join
    /// another. Atomic.
    fn add(&self, key: TaskKey, own: &Arc<UndecidedCancel>) -> bool {
        let mut all = self.lock();
        let of_task = all.entry((key.position, key.check)).or_default();
        let is_alone = !of_task.iter().any(|one| one.is_joined_by(own));
        if is_alone {
            of_task.push(Arc::clone(own));
        }
        is_alone
    }

    /// Joins another cancel, or adds `own` so that others may join it. Atomic.
    fn join_or_add(
        &self,
        key: TaskKey,
        own: &Arc<UndecidedCancel>,
        charge: AnswerCharge,
    ) -> Option<CallLink> {
        let mut all = self.lock();
        let of_task = all.entry((key.position, key.check)).or_default();
        let other = of_task.iter().find(|one| one.is_joined_by(own));
        let joined = other.and_then(|one| one.calls.join(Box::new(charge)));
        if joined.is_none() {
            of_task.push(Arc::clone(own));
        }
        joined
    }

    /// Prevents further callers from joining.
    fn remove(&self, key: TaskKey, cancel: &Arc<UndecidedCancel>) {
        let (mut all, key) = (self.lock(), (key.position, key.check));
        if let Some(of_task) = all.get_mut(&key) {
            of_task.retain(|one| !Arc::ptr_eq(one, cancel));
            if of_task.is_empty() {
                all.remove(&key);
            }
        }
    }
}

/// The role of a cancel.
pub(super) enum CancelRole {
    /// This cancel asks the agent.
    First(OpenCancel),
    /// This cancel waits for the decision on another one.
    Joined(CallLink),
}

impl Core {
    /// Lets a cancel wait for the decision on another if the agent would see both as equal;
    /// otherwise this cancel asks the agent.
    ///
    /// # Errors
    /// The store has no memory for one more waiting call.
    pub(super) fn enter_cancel(
        &self,
        key: TaskKey,
        request: &RequestView<'_>,
        incarnation: u32,
    ) -> Result<CancelRole, Fault> {
        let core = self.this.upgrade().ok_or(FaultKind::ShuttingDown)?;
        let (link, calls) = JoinedCalls::first();
        let (identity, headers) = (request.identity.map(Into::into), request.headers.keep());
        let cancel = Arc::new(UndecidedCancel { calls, incarnation, identity, headers });
        if !self.undecided.add(key, &cancel) {
            // The memory is charged without the lock; the other cancel may be settled meanwhile.
            let charge = AnswerCharge::take(Arc::clone(&core), key, JOINED_CALL_BYTES, None)?;
            if let Some(joined) = self.undecided.join_or_add(key, &cancel, charge) {
                return Ok(CancelRole::Joined(joined));
            }
        }
        Ok(CancelRole::First(OpenCancel { core, key, link, cancel }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::DeferredCancel, limits::DEFERRED_CALL_BYTES, op::cancel::Deciding};

    #[test]
    fn deferred_cancel_uses_at_most_its_charged_memory() {
        let call = size_of::<LateCall>() + size_of::<JoinedCalls>() + size_of::<UndecidedCancel>();
        let agent = size_of::<DeferredCancel>() + size_of::<Deciding>();
        // Two lists of capacity four, an entry of a map half full, and six blocks with the
        // allocator's overhead.
        let lists = 2 * 4 * size_of::<usize>() + 2 * (8 + size_of::<Vec<()>>()) + 6 * 16;
        assert!((call + agent + lists) as u64 <= DEFERRED_CALL_BYTES, "{call} {agent} {lists}");
    }
}
