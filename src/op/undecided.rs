//! Cancels that wait for the decisions of their agents, by task.
//!
//! Law: of one task and one caller, as the agent is told of him, one cancel at a time has a place
//! among deferred calls. Later ones wait for the same decision, and are counted as bytes of the
//! store.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    agent::Headers,
    fault::Fault,
    op::{Core, defer::AnswerCharge},
    service::{CallLink, Caller, JoinedCalls, LateCall},
    store::TaskKey,
};

/// Bytes of a call that waits with another: it, its charge, and its place in a list.
const JOINED_CALL_BYTES: usize = size_of::<LateCall>() + size_of::<AnswerCharge>() + 48;

/// All that are undecided.
#[derive(Default)]
pub(super) struct UndecidedCancels(Mutex<ByTask>);

/// By place and check of the task.
type ByTask = BTreeMap<(u32, u32), Vec<Arc<UndecidedCancel>>>;

/// Cancels of one task that one program decides by one word.
pub(super) struct UndecidedCancel {
    pub calls: Arc<JoinedCalls>,
    /// Which of the agent's programs was asked.
    incarnation: u32,
    /// Who asked first: what the agent was told of him.
    identity: Option<Box<str>>,
    headers: Box<[(Box<str>, Box<str>)]>,
}

impl UndecidedCancel {
    /// A cancel that nobody has joined yet.
    pub fn new(
        caller: &Caller<'_>,
        headers: Headers<'_>,
        incarnation: u32,
    ) -> (CallLink, UndecidedCancel) {
        let (link, calls) = JoinedCalls::first();
        let (identity, headers) = (caller.identity.map(Into::into), headers.keep());
        (link, UndecidedCancel { calls, incarnation, identity, headers })
    }

    /// Bytes behind pointers.
    pub fn held_bytes(&self) -> usize {
        let pair = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len() + 32;
        let headers: usize = self.headers.iter().map(pair).sum();
        self.identity.as_ref().map_or(0, |identity| identity.len()) + headers
    }
}

impl UndecidedCancels {
    fn lock(&self) -> MutexGuard<'_, ByTask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on others may join.
    pub fn add(&self, key: TaskKey, cancel: Arc<UndecidedCancel>) {
        self.lock().entry((key.place, key.check)).or_default().push(cancel);
    }

    /// From now on nobody joins.
    pub fn remove(&self, key: TaskKey, cancel: &Arc<UndecidedCancel>) {
        let (mut all, key) = (self.lock(), (key.place, key.check));
        if let Some(of_task) = all.get_mut(&key) {
            of_task.retain(|one| !Arc::ptr_eq(one, cancel));
            if of_task.is_empty() {
                all.remove(&key);
            }
        }
    }

    /// One of the task's about which the agent would be told the same.
    fn find(
        &self,
        key: TaskKey,
        (caller, headers): (&Caller<'_>, Headers<'_>),
        incarnation: u32,
    ) -> Option<Arc<UndecidedCancel>> {
        let all = self.lock();
        let of_task = all.get(&(key.place, key.check))?;
        let headers = headers.keep();
        let is_same = |one: &&Arc<UndecidedCancel>| {
            one.incarnation == incarnation
                && one.identity.as_deref() == caller.identity
                && one.headers == headers
                && !one.calls.have_left()
        };
        of_task.iter().find(is_same).cloned()
    }
}

impl Core {
    /// Lets a cancel wait for the decision on another, if there is one about which the agent would
    /// be told the same.
    ///
    /// # Errors
    /// The store has no room for one more call that waits.
    pub(super) fn join_cancel(
        &self,
        key: TaskKey,
        of: (&Caller<'_>, Headers<'_>),
        incarnation: u32,
    ) -> Result<Option<CallLink>, Fault> {
        let Some(core) = self.this.upgrade() else { return Ok(None) };
        let Some(cancel) = self.undecided.find(key, of, incarnation) else { return Ok(None) };
        let charge = AnswerCharge::take((core, key), JOINED_CALL_BYTES, None)?;
        Ok(cancel.calls.join(Box::new(charge)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::DeferredCancel, limits::DEFERRED_CALL_BYTES, op::cancel::Deciding};

    #[test]
    fn a_deferred_cancel_takes_no_more_memory_than_is_counted_for_it() {
        let call = size_of::<LateCall>() + size_of::<JoinedCalls>() + size_of::<UndecidedCancel>();
        let agent = size_of::<DeferredCancel>() + size_of::<Deciding>();
        // Two lists of room for four, an entry of a map half full, and six blocks of an allocator
        // with what it keeps beside them.
        let lists = 2 * 4 * size_of::<usize>() + 2 * (8 + size_of::<Vec<()>>()) + 6 * 16;
        assert!((call + agent + lists) as u64 <= DEFERRED_CALL_BYTES, "{call} {agent} {lists}");
    }
}
