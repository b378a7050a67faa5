//! Calls that name a tenant or an owner: the scope is looked up once, and stays reserved until the
//! call has ended.

use crate::{
    fault::Fault,
    model::Call,
    op::{Core, handover::fail},
    service::{Answer, CallCx, Caller, NumberHint, Outcome},
    store::SpaceName,
};

/// The status text of the tasks of a tenant that the operator has ended.
const ENDED: &str = "the operator has ended the tenant before the task was done";

impl Core {
    /// Executes a call in the scope that it names. The owner's number is usually cached.
    #[inline(never)]
    pub(super) fn call_in_space(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let number = match cx.caller.tenant {
            None => self.store.recall_owner(cx.caller.worker, owner_hint(&cx.caller)),
            Some(_) => None,
        };
        let Some(number) = number else { return self.call_in_named_space(cx, call, answer) };
        let before = cx.caller.scope.owner;
        cx.caller.scope.owner = number.owner();
        let outcome = self.call_in_scope(cx, call, answer);
        // Another core has other numbers for the owners.
        cx.caller.scope.owner = before;
        outcome
    }

    #[cold]
    #[inline(never)]
    fn call_in_named_space(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Caller { scope, tenant, owner, worker, authenticates_callers, .. } = cx.caller;
        let owner_hint = owner_hint(&cx.caller);
        let named = SpaceName { scope, tenant, owner, owner_hint, authenticates_callers };
        let space = match call.may_make_task() {
            true => {
                let forget = |holder| self.sends.forget_all_of(holder);
                self.store.enter_space(worker, named, cx.now, &forget)?
            }
            false => self.store.find_space(worker, named),
        };
        cx.caller.scope = space.scope;
        let outcome = self.call_in_scope(cx, call, answer);
        cx.caller.scope = scope;
        outcome
    }

    /// Reserves this name for an agent, so that no tenant may use it from now on. False: a tenant
    /// of this name has tasks, or a call that names it is running.
    pub fn claim_name(&self, name: &str) -> bool {
        self.store.claim_tenant(name)
    }

    /// The number of tasks of this tenant, and how many are unfinished.
    pub fn tasks_of_tenant(&self, name: &str) -> (usize, usize) {
        self.store.tasks_of_tenant(name)
    }

    /// Fails the unfinished tasks of a tenant and rejects new ones; returns the number of tasks
    /// that are still stored.
    pub fn end_tenant(&self, name: &str) -> usize {
        let now = self.now();
        self.store.close_tenant(name, |key| {
            self.store.update(key, now, |edit| fail(edit, now, ENDED));
        });
        self.store.tasks_of_tenant(name).0
    }

    /// Allows tenants to use this name again, after `claim_name` if no agent got it.
    pub fn unclaim_name(&self, name: &str) {
        self.store.unclaim_tenant(name);
    }
}

/// The cached number of a call's owner.
#[inline(always)]
fn owner_hint<'c>(caller: &Caller<'c>) -> Option<&'c NumberHint> {
    caller.principal?.hint_of(caller.owner?)
}
