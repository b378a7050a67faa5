//! Calls that name a tenant or an owner: their scope is looked up once, and stays theirs until they
//! have ended.

use crate::{
    fault::Fault,
    model::Call,
    op::Core,
    service::{Answer, CallCx, Caller, Outcome},
    store::SpaceName,
};

impl Core {
    #[cold]
    pub(super) fn call_in_space(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Caller { scope, tenant, owner, worker, .. } = cx.caller;
        let named = SpaceName { scope, tenant, owner };
        let space = match call.may_make_task() {
            true => self.store.enter_space(worker, named, cx.now)?,
            false => self.store.find_space(worker, named),
        };
        cx.caller.scope = space.scope;
        let outcome = self.call_in_scope(cx, call, answer);
        // Another core would have other numbers.
        cx.caller.scope = scope;
        outcome
    }

    /// From now on no tenant has this name, which an agent will have; false: a tenant of this name
    /// has tasks, or a call that names it runs.
    pub fn claim_name(&self, name: &str) -> bool {
        self.store.claim_tenant(name)
    }

    /// From now on a tenant may have this name again, which no agent was given.
    pub fn unclaim_name(&self, name: &str) {
        self.store.unclaim_tenant(name);
    }
}
