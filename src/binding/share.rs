//! The share of a server that each caller may use: calls, bytes, streams, running tasks and their
//! memory, and waiting calls; and the faults of callers that have used up their share.
//!
//! Invariant: the bytes and the first call of a request are charged before its body is decoded;
//! each further call is charged after decoding and before execution. So an invalid request is
//! charged, too, and a request beyond the share of bytes is not decoded. An agent with its own
//! quota has a separate account for each caller, which is charged as soon as the agent of the call
//! is known.

use std::sync::Arc;

use crate::{
    auth::{
        AccountOf, Accounts, CallerAccount, CallerPermit, NOWHERE, PermitKind, Quota, Quotas, Rate,
        RemainingRate, UsedUp,
    },
    binding::{CallContext, admission::Admitted},
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    service::{Now, RunningShare, TenantPermits},
};

/// The subjects of the fault texts.
const CALLER: &str = "the caller has";
const TENANT: &str = "the callers of the tenant together have";
const ANONYMOUS: &str = "anonymous callers together have";

/// The share of a caller with a quota.
pub struct CallerShare {
    /// The quota of the caller.
    quota: Quota,
    /// The concurrency limits of the caller with the called agent, which may be lower.
    permits: AgentConcurrency,
    /// The account of the caller's address; `None`: the account of the authenticated caller, which
    /// is not cloned, because all workers would write its reference count.
    of_address: Option<Arc<CallerAccount>>,
    running: Option<RunningShare>,
    /// The share of all callers of the tenant together. Boxed, because few calls have one, and
    /// `CallerShare` is moved with each call.
    tenant: Option<Box<TenantShare>>,
    /// KiB of the request that are not charged to the tenant yet.
    tenant_kib: u32,
    /// The rate of calls and its remaining calls, once a call was charged or refused.
    call_rate: Option<(Rate, Result<RemainingRate, UsedUp>)>,
    /// The rate of bytes that refused the last call, and when to retry.
    kib_used_up: Option<(Rate, UsedUp)>,
    /// KiB of the request that are not charged to the caller's account with the agent yet.
    kib: u32,
    /// True: the next call is charged already.
    is_ahead: bool,
}

/// Concurrency limits with an agent, as in [`Quota`]; `None`: unlimited. Has only the used fields
/// of the quota, because a share is moved with each call.
#[derive(Clone, Copy)]
struct AgentConcurrency {
    streams: Option<u32>,
    waiting_calls: Option<u32>,
}

impl AgentConcurrency {
    fn of(&Quota { streams, waiting_calls, .. }: &Quota) -> AgentConcurrency {
        AgentConcurrency { streams, waiting_calls }
    }

    fn most(self, kind: PermitKind) -> Option<u32> {
        match kind {
            PermitKind::Stream => self.streams,
            PermitKind::WaitingCall => self.waiting_calls,
        }
    }
}

/// The share of all callers of a tenant together.
struct TenantShare {
    quota: Quota,
    account: Arc<CallerAccount>,
}

impl CallerShare {
    /// The limits on running tasks and their memory.
    pub fn running(&self) -> Option<&RunningShare> {
        self.running.as_ref()
    }

    /// The account of the caller.
    fn account<'s>(&'s self, caller: &'s Admitted) -> Option<&'s Arc<CallerAccount>> {
        self.of_address.as_ref().or_else(|| Some(caller.as_ref()?.account()))
    }

    /// Takes a permit of this kind, if the kind is limited.
    ///
    /// # Errors
    /// `RateLimited`.
    fn permit(
        &self,
        kind: PermitKind,
        caller: &Admitted,
        accounts: &Accounts,
    ) -> Result<Option<CallerPermit>, Fault> {
        let own = self.own_permit(kind, caller, accounts)?;
        let Some(TenantShare { quota, account }) = self.tenant.as_deref() else { return Ok(own) };
        let Some(most) = kind.most(quota) else { return Ok(own) };
        let permit = match own {
            Some(permit) => permit.of_tenant(account, most),
            None => CallerPermit::take(kind, account, most),
        };
        permit.map(Some).ok_or_else(|| no_permit(kind, TENANT, most))
    }

    /// Takes a permit of the caller, and of all anonymous callers together if the caller is
    /// anonymous.
    fn own_permit(
        &self,
        kind: PermitKind,
        caller: &Admitted,
        accounts: &Accounts,
    ) -> Result<Option<CallerPermit>, Fault> {
        let account = self.account(caller);
        let Some((account, most)) = account.zip(self.permits.most(kind)) else { return Ok(None) };
        let permit =
            CallerPermit::take(kind, account, most).ok_or_else(|| no_permit(kind, CALLER, most))?;
        let (all, of_all) = accounts.of_strangers();
        match kind.most(&of_all).filter(|_| self.of_address.is_some()) {
            None => Ok(Some(permit)),
            Some(most) => {
                let permit = permit.of_strangers(all, most);
                permit.map(Some).ok_or_else(|| no_permit(kind, ANONYMOUS, most))
            }
        }
    }

    /// Charges the KiB of the request.
    fn take_kib(&mut self, caller: &Admitted, now: Now) -> Result<(), UsedUp> {
        let Some(account) = self.account(caller) else { return Ok(()) };
        let charged = account.take_kib(&self.quota, self.kib, now);
        self.kib_used_up = self.quota.request_kib.zip(charged.err());
        charged
    }

    /// Charges a call, and records the remaining calls.
    fn take_call(&mut self, caller: &Admitted, now: Now) -> Result<(), UsedUp> {
        let Some(account) = self.account(caller) else { return Ok(()) };
        let charged = account.take_call(&self.quota, now);
        self.call_rate = self.quota.calls.zip(charged.transpose());
        charged.map(drop)
    }

    /// Charges a call and the bytes of the request to the caller's account with an agent that has
    /// this quota.
    fn take_with_agent(
        &mut self,
        of_agent: &Quota,
        account: &CallerAccount,
        now: Now,
    ) -> Result<(), UsedUp> {
        self.set_here(self.quota.permits_of(*of_agent));
        let charged = account.take_kib(of_agent, self.kib, now);
        self.kib_used_up = of_agent.request_kib.zip(charged.err());
        charged?;
        self.kib = 0;
        let charged = account.take_call(of_agent, now);
        if let (Some(rate), Err(used_up)) = (of_agent.calls, charged) {
            self.call_rate = Some((rate, Err(used_up)));
        }
        charged.map(drop)
    }

    /// Charges a call to the tenant, and once the bytes of the request.
    fn take_of_tenant(&mut self, now: Now) -> Result<(), UsedUp> {
        let Some(TenantShare { quota, account }) = self.tenant.as_deref() else { return Ok(()) };
        let charged = account.take_kib(quota, self.tenant_kib, now);
        self.kib_used_up = quota.request_kib.zip(charged.err());
        charged?;
        self.tenant_kib = 0;
        let charged = account.take_call(quota, now);
        if let (Some(rate), Err(used_up)) = (quota.calls, charged) {
            self.call_rate = Some((rate, Err(used_up)));
        }
        charged.map(drop)
    }

    /// Sets the concurrency limits with the called agent.
    #[inline]
    fn set_here(&mut self, here: Quota) {
        self.permits = AgentConcurrency::of(&here);
        self.running = self.quota.running(&here);
        if self.tenant.is_some() {
            self.set_tenant_permits();
        }
        if let (Some(running), Some(account)) = (&mut self.running, &self.of_address) {
            // The tasks of an anonymous caller have no owner, so its account counts them.
            running.account = Some(Arc::clone(account));
        }
    }

    /// Counts running tasks also for the tenant, if its quota limits them.
    #[cold]
    fn set_tenant_permits(&mut self) {
        if let Some(TenantShare { quota, account }) = self.tenant.as_deref()
            && let Some(most) = quota.running_tasks
        {
            let any = || RunningShare::of_owner(RunningShare::ANY);
            let running = self.running.get_or_insert_with(any);
            running.tenant = Some(Box::new(TenantPermits { account: Arc::clone(account), most }));
        }
    }

    /// The rate of calls, and its remaining calls.
    fn remaining_rate(&self) -> Option<(Rate, RemainingRate)> {
        let (rate, outcome) = self.call_rate?;
        Some((
            rate,
            outcome
                .unwrap_or_else(|used_up| RemainingRate { remaining: 0, reset_s: used_up.retry_s }),
        ))
    }

    /// Adds the header fields for a call that was refused by a rate: RateLimit Fields for HTTP
    /// (draft-ietf-httpapi-ratelimit-headers-10 §2, §3).
    fn rate_fields(&self, fields: &mut FieldLinesBuf) {
        if let Some((rate, UsedUp { retry_s })) = self.kib_used_up {
            let bytes = u64::from(rate.per_minute) * 1024;
            let policy = format!("\"bytes\";q={bytes};qu=\"content-bytes\";w=60");
            fields.push("RateLimit-Policy", &policy);
            fields.push("RateLimit", &format!("\"bytes\";r=0;t={retry_s}"));
        } else if let Some((rate, Err(UsedUp { retry_s }))) = self.call_rate {
            fields.push("RateLimit-Policy", &format!("\"calls\";q={};w=60", rate.per_minute));
            fields.push("RateLimit", &format!("\"calls\";r=0;t={retry_s}"));
        }
    }

    /// The fault of a call that was refused by a rate, with the key and the value of the quota.
    #[cold]
    fn too_much(&self, UsedUp { retry_s }: UsedUp) -> Fault {
        let detail = match (self.kib_used_up, self.call_rate) {
            (Some((rate, _)), _) => {
                let bytes = u64::from(rate.per_minute) * 1024;
                format!("too many bytes (request_bytes_per_minute = {bytes}); ")
            }
            (None, Some((rate, _))) => {
                format!("too many calls (calls_per_minute = {}); ", rate.per_minute)
            }
            (None, None) => String::new(),
        };
        let detail = format!("{detail}retry in {retry_s} s");
        let fault = Fault::because(FaultKind::RateLimited, detail).of_limit("quotas.calls");
        Fault { retry_s: Some(retry_s), ..fault }
    }

    /// Adds the header fields about the rate of calls for the clients of a platform (wire §8, Evo
    /// AI), in every answer.
    fn platform_fields(&self, fields: &mut FieldLinesBuf, now: Now) {
        let Some((rate, RemainingRate { remaining, reset_s })) = self.remaining_rate() else {
            return;
        };
        let reset = now.unix_ms / 1000 + u64::from(reset_s);
        fields.push("X-RateLimit-Limit", &rate.per_minute.to_string());
        fields.push("X-RateLimit-Remaining", &remaining.to_string());
        fields.push("X-RateLimit-Reset", &reset.to_string());
    }
}

impl CallContext<'_> {
    /// Charges the bytes of a request and its first call; `body_bytes`: the length of the body as
    /// received.
    ///
    /// # Errors
    /// `RateLimited`: too many bytes. If the rate of calls is used up, the call itself gets the
    /// fault.
    #[inline(always)]
    pub(super) fn take_request(&mut self, body_bytes: usize) -> Result<(), Fault> {
        let is_counted = self.endpoint.dialect.quirks.quota.is_some();
        match is_counted || self.config.access.accounts.have_rates() {
            true => self.take_bytes(body_bytes),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn take_bytes(&mut self, body_bytes: usize) -> Result<(), Fault> {
        let bytes = body_bytes.saturating_add(self.source.head_bytes());
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let quotas = self.config.access.accounts.quotas();
        let is_limited = !quotas.tenants.is_empty() || self.agent_quota(&quotas).is_some();
        self.share = self.find_share(&quotas, is_limited);
        let Some(share) = &mut self.share else { return Ok(()) };
        (share.kib, share.tenant_kib) = (kib, kib);
        if let Err(used_up) = share.take_kib(&self.admission, self.now) {
            share.rate_fields(&mut self.writer.fields);
            return Err(share.too_much(used_up));
        }
        share.is_ahead = share.take_call(&self.admission, self.now).is_ok();
        Ok(())
    }

    /// Charges a call to the caller's share.
    ///
    /// # Errors
    /// `RateLimited`.
    #[inline(never)]
    pub(super) fn take_share(&mut self) -> Result<(), Fault> {
        let quotas = self.config.access.accounts.quotas();
        let of_agent = self.agent_quota(&quotas);
        let tenant = self.tenant_share(&quotas);
        if self.share.is_none() {
            self.share = self.find_share(&quotas, of_agent.is_some() || tenant.is_some());
        }
        drop(quotas);
        let with_agent = of_agent.map(|quota| (quota, self.account_with_agent()));
        let Some(share) = &mut self.share else { return Ok(()) };
        share.tenant = tenant;
        share.set_here(share.quota);
        if !std::mem::take(&mut share.is_ahead) {
            let charged = share.take_call(&self.admission, self.now);
            charged.map_err(|used_up| share.too_much(used_up))?;
        }
        share.kib_used_up = None;
        let charged = share.take_of_tenant(self.now);
        charged.map_err(|used_up| share.too_much(used_up))?;
        match with_agent {
            None => Ok(()),
            Some((quota, account)) => {
                let charged = share.take_with_agent(&quota, &account, self.now);
                charged.map_err(|used_up| share.too_much(used_up))
            }
        }
    }

    /// The quota that the called agent has for each caller.
    fn agent_quota(&self, quotas: &Quotas) -> Option<Quota> {
        if quotas.named.is_empty() {
            return None;
        }
        let profile = self.service.profile(self.agent)?;
        quotas.named.get(profile.quota.as_deref()?).copied()
    }

    /// The share of all callers of the call's tenant together.
    #[inline]
    fn tenant_share(&self, quotas: &Quotas) -> Option<Box<TenantShare>> {
        if quotas.tenants.is_empty() { None } else { self.named_tenant_share(quotas) }
    }

    #[cold]
    fn named_tenant_share(&self, quotas: &Quotas) -> Option<Box<TenantShare>> {
        let quota = *quotas.tenants.get(&self.scratch.tenant)?;
        let account = self.config.access.accounts.of_tenant(&self.scratch.tenant)?;
        Some(Box::new(TenantShare { quota, account }))
    }

    fn account_with_agent(&self) -> Arc<CallerAccount> {
        let caller = match &self.admission {
            Some(caller) => AccountOf::Owner(caller.principal.owner()),
            None => AccountOf::Address(self.origin_address().unwrap_or(NOWHERE)),
        };
        self.config.access.accounts.with_agent(caller, self.agent.0, self.now)
    }

    /// Takes a permit among the caller's streams, if they are limited.
    ///
    /// # Errors
    /// `RateLimited`.
    pub(super) fn stream_permit(&mut self) -> Result<Option<CallerPermit>, Fault> {
        let Some(share) = &self.share else { return Ok(None) };
        share.permit(PermitKind::Stream, &self.admission, &self.config.access.accounts)
    }

    /// Takes a permit among the caller's waiting calls. Most calls do not wait, so the share is
    /// looked up only here.
    ///
    /// # Errors
    /// `RateLimited`.
    pub(super) fn waiting_permit(&mut self) -> Result<Option<CallerPermit>, Fault> {
        if self.share.is_none() && self.config.access.accounts.have_quotas() {
            let quotas = self.config.access.accounts.quotas();
            let (of_agent, tenant) = (self.agent_quota(&quotas), self.tenant_share(&quotas));
            self.share = self.find_share(&quotas, of_agent.is_some() || tenant.is_some());
            if let Some(share) = &mut self.share {
                share.tenant = tenant;
                share.set_here(share.quota.permits_of(of_agent.unwrap_or_default()));
            }
        }
        let Some(share) = &self.share else { return Ok(None) };
        share.permit(PermitKind::WaitingCall, &self.admission, &self.config.access.accounts)
    }

    /// The share of the caller: the quota that its principal names, or else the default, reduced to
    /// the documented limit of the platform. `None`: unlimited. `is_limited`: the agent or the
    /// tenant has a quota, so anonymous callers are always counted.
    ///
    /// Call [`CallerShare::set_here`] before taking a permit.
    fn find_share(&self, quotas: &Quotas, is_limited: bool) -> Option<CallerShare> {
        let accounts = &self.config.access.accounts;
        let of = |quota: Quota, of_address| CallerShare {
            quota,
            permits: AgentConcurrency::of(&quota),
            of_address,
            running: None,
            tenant: None,
            tenant_kib: 0,
            call_rate: None,
            kib_used_up: None,
            kib: 0,
            is_ahead: false,
        };
        let Some(caller) = &self.admission else {
            if quotas.anonymous == Quota::default() && !is_limited {
                return None;
            }
            // Callers without an address, for example after a disconnect, share an account.
            let address = self.origin_address().unwrap_or(NOWHERE);
            let account = accounts.of_address(address, self.now);
            return Some(of(quotas.anonymous, Some(account)));
        };
        let mut quota = quotas.of(caller.principal.quota());
        if let Some(documented) = self.endpoint.dialect.quirks.quota {
            let calls = Rate::per_minute(documented.calls_per_minute);
            quota.calls = Some(quota.calls.map_or(calls, |own| own.at_most(calls)));
            quota.streams = Some(quota.streams.unwrap_or(u32::MAX).min(documented.streams));
        }
        Some(of(quota, None))
    }

    /// Adds the header fields about the share to the answer: if the share is used up, and always
    /// for platforms with clients that read them.
    #[inline(always)]
    pub(super) fn name_share(&mut self) {
        if self.share.is_some() {
            self.push_share_fields();
        }
    }

    #[cold]
    fn push_share_fields(&mut self) {
        let (Some(share), fields) = (&self.share, &mut self.writer.fields) else { return };
        if self.endpoint.dialect.quirks.quota.is_some() {
            share.platform_fields(fields, self.now);
        }
        share.rate_fields(fields);
    }
}

/// Adds the header fields for a caller without a free permit. A permit is freed when a call ends,
/// so the fields have no window and no time (`w` and `t` are OPTIONAL in the same draft).
#[cold]
fn permits_fields(fields: &mut FieldLinesBuf, name: &str, most: u32) {
    fields.push("RateLimit-Policy", &format!("\"{name}\";q={most};qu=\"concurrent-requests\""));
    fields.push("RateLimit", &format!("\"{name}\";r=0"));
}

/// Adds the header fields for a fault that states the size of the share.
pub(super) fn push_limit_fields(fields: &mut FieldLinesBuf, fault: &Fault) {
    let Some((limit, share)) = fault.limit.zip(fault.share) else { return };
    let name = limit.trim_start_matches("quotas.").replace('_', "-");
    if name.ends_with("bytes") {
        let bytes = u64::from(share.get()) * 1024;
        fields.push("RateLimit-Policy", &format!("\"{name}\";q={bytes};qu=\"content-bytes\""));
        fields.push("RateLimit", &format!("\"{name}\";r=0"));
    } else {
        permits_fields(fields, &name, share.get());
    }
}

#[cold]
fn no_permit(kind: PermitKind, holder: &str, most: u32) -> Fault {
    let (permits, limit) = match kind {
        PermitKind::Stream => ("open streams", "quotas.streams"),
        PermitKind::WaitingCall => ("waiting calls", "quotas.waiting_calls"),
    };
    Fault::share_used_up(limit, most, format!("{holder} too many {permits} ({most})"))
}
