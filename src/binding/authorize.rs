//! Checks whether the caller of a request may execute each of its calls: after decoding, before
//! execution.

use crate::{
    auth::{AuthRefusal, ScopeSet, TenantGrant},
    binding::{
        CallContext,
        admission::{Access, is_anonymous},
        tenant,
    },
    fault::{Fault, FaultKind},
    model::Op,
    service::{AgentIndex, Service},
};

impl CallContext<'_> {
    /// Whether calls need any of these checks.
    #[inline(always)]
    pub(super) fn needs_checks(&self) -> bool {
        let Access { gate, accounts, .. } = &self.config.access;
        gate.is_some() || accounts.have_quotas() || self.source.has_terms()
    }

    /// Checks the deadline and hops of a call, the rights of its caller, and the caller's quotas.
    ///
    /// # Errors
    /// `DeadlineExceeded`, `LoopDetected`, and the errors of [`CallContext::authorize`].
    #[inline(never)]
    pub(super) fn check_call(&mut self, op: Op) -> Result<(), Fault> {
        self.check_terms()?;
        self.authorize(op)
    }

    /// Checks whether the caller may call this operation, and records the tenant that the call
    /// addresses.
    ///
    /// # Errors
    /// `Unauthenticated`, `PermissionDenied`, `RateLimited`.
    #[inline(always)]
    pub(super) fn authorize(&mut self, op: Op) -> Result<(), Fault> {
        let Access { gate, accounts, .. } = &self.config.access;
        if gate.is_none() && !accounts.have_quotas() {
            return Ok(());
        }
        if gate.is_some() {
            self.check_caller(op)?;
        }
        let has_rate = accounts.have_rates() || self.endpoint.dialect.quirks.quota.is_some();
        match has_rate || (accounts.have_quotas() && uses_permits(op)) {
            true => self.take_share(),
            false => Ok(()),
        }
    }

    #[inline(always)]
    fn check_caller(&mut self, op: Op) -> Result<(), Fault> {
        let Some(admission) = &self.admission else { return self.check_anonymous(op) };
        let principal = &admission.principal;
        let named = &mut self.scratch.tenant;
        match (named.is_empty(), principal.tenants()) {
            (true, TenantGrant::None | TenantGrant::Any) => {}
            (true, tenants) => named.push_str(tenants.home().unwrap_or_default()),
            (false, tenants) if tenants.allows(named) => {}
            (false, _) => return Err(tenant::not_granted(named)),
        }
        if self.config.access.requires_scopes {
            need(principal.scopes(), scope_of(op))?;
        }
        match self.service.has_own_scopes() {
            true => need_own(self.service, self.agent, principal.scopes()),
            false => Ok(()),
        }
    }

    /// Checks whether an anonymous caller may call this operation.
    #[cold]
    fn check_anonymous(&mut self, op: Op) -> Result<(), Fault> {
        if op != Op::ExtendedCard && is_anonymous(self.service, self.agent) {
            return Ok(());
        }
        self.challenge(&AuthRefusal::Missing);
        Err(FaultKind::Unauthenticated.into())
    }
}

/// Checks the scopes that an agent requires.
#[inline(never)]
fn need_own(service: &dyn Service, agent: AgentIndex, scopes: &ScopeSet) -> Result<(), Fault> {
    let Some(profile) = service.profile(agent) else { return Ok(()) };
    profile.scopes.iter().try_for_each(|scope| need(scopes, scope))
}

/// Checks for a scope.
fn need(scopes: &ScopeSet, scope: &str) -> Result<(), Fault> {
    match scopes.has(scope) {
        true => Ok(()),
        false => {
            let detail = format!("missing scope {scope:?}");
            Err(Fault::because(FaultKind::PermissionDenied, detail))
        }
    }
}

/// Whether an operation may open a stream or create a task.
const fn uses_permits(op: Op) -> bool {
    match op {
        Op::Send | Op::Stream | Op::Subscribe => true,
        Op::Get | Op::List | Op::Cancel | Op::ExtendedCard => false,
        Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete => false,
    }
}

/// The scope of an operation.
const fn scope_of(op: Op) -> &'static str {
    match op {
        Op::Get | Op::List | Op::Subscribe | Op::PushGet | Op::PushList | Op::ExtendedCard => {
            ScopeSet::READ
        }
        Op::Send | Op::Stream | Op::PushSet | Op::PushDelete => ScopeSet::SEND,
        Op::Cancel => ScopeSet::CANCEL,
    }
}
