//! The share of a server that each caller takes: calls, bytes, streams and running tasks; and how
//! it hears that there is no more now.
//!
//! Law: a share is taken when a call is known and before it is made; what is refused has taken
//! nothing but the bytes that it sent.

use std::sync::Arc;

use crate::{
    auth::{CallerAccount, Quota, Rate, RateLeft, StreamPlace, UsedUp},
    binding::CallContext,
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    service::{Now, RunningShare},
};

/// What a caller may take who has a quota.
pub struct CallerShare {
    quota: Quota,
    account: Arc<CallerAccount>,
    running: Option<RunningShare>,
    /// What is left of its calls, once one was taken or refused.
    left: Option<Result<RateLeft, UsedUp>>,
}

impl CallerShare {
    /// How many of its tasks may run.
    pub fn running(&self) -> Option<&RunningShare> {
        self.running.as_ref()
    }

    /// A place among its streams, if those are counted.
    ///
    /// # Errors
    /// `RateLimited`.
    pub(super) fn stream_place(&self) -> Result<Option<StreamPlace>, Fault> {
        let Some(most) = self.quota.streams else { return Ok(None) };
        StreamPlace::take(&self.account, most).map(Some).ok_or_else(|| streams_taken(most))
    }

    fn rate(&self) -> Option<Rate> {
        self.quota.calls
    }

    /// What a refused caller is told beside the fault: RateLimit Fields for HTTP
    /// (draft-ietf-httpapi-ratelimit-headers-10 §2, §3).
    fn rate_fields(&self, fields: &mut FieldLinesBuf) {
        let (Some(rate), Some(left)) = (self.rate(), &self.left) else { return };
        let (remaining, reset_s) = match left {
            Ok(taken) => (taken.remaining, taken.reset_s),
            Err(used_up) => (0, used_up.retry_s),
        };
        fields.push("RateLimit-Policy", &format!("\"calls\";q={};w=60", rate.per_minute));
        fields.push("RateLimit", &format!("\"calls\";r={remaining};t={reset_s}"));
    }

    /// The same as a platform's clients read it (wire §8, Evo AI), beside every answer.
    fn platform_fields(&self, fields: &mut FieldLinesBuf, now: Now) {
        let (Some(rate), Some(left)) = (self.rate(), &self.left) else { return };
        let (remaining, reset_s) = match left {
            Ok(taken) => (taken.remaining, taken.reset_s),
            Err(used_up) => (0, used_up.retry_s),
        };
        let reset = now.unix_ms / 1000 + u64::from(reset_s);
        fields.push("X-RateLimit-Limit", &rate.per_minute.to_string());
        fields.push("X-RateLimit-Remaining", &remaining.to_string());
        fields.push("X-RateLimit-Reset", &reset.to_string());
    }
}

impl CallContext<'_> {
    /// Takes a call out of the caller's share.
    ///
    /// # Errors
    /// `RateLimited`.
    #[inline(never)]
    pub(super) fn take_share(&mut self) -> Result<(), Fault> {
        self.share = self.find_share().map(Box::new);
        let Some(share) = &mut self.share else { return Ok(()) };
        let kib = u32::try_from(self.request_bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        match share.account.take_call(&share.quota, kib, self.now) {
            Ok(left) => {
                self.request_bytes = 0;
                share.left = left.map(Ok);
                Ok(())
            }
            Err(used_up) => {
                share.left = Some(Err(used_up));
                Err(too_much(used_up))
            }
        }
    }

    /// Who takes, and how much may be taken: by what the principal names, else by what the
    /// platform's documentation says, else by the defaults.
    fn find_share(&self) -> Option<CallerShare> {
        let (accounts, dialect) = (&self.config.access.accounts, self.endpoint.dialect);
        let quotas = accounts.quotas();
        let of = |quota: Quota, account| {
            let running = quota.running_tasks.map(|most| RunningShare { most, account: None });
            Some(CallerShare { quota, account, running, left: None })
        };
        let Some(caller) = &self.admission else {
            if quotas.anonymous == Quota::default() {
                return None;
            }
            let account = accounts.of_address(self.origin_address()?, "", self.now);
            let mut share = of(quotas.anonymous, account)?;
            // Its tasks are nobody's, so they are counted by its address.
            share.running.iter_mut().for_each(|r| r.account = Some(Arc::clone(&share.account)));
            return Some(share);
        };
        let principal = &caller.principal;
        let name = principal.quota().filter(|name| quotas.named.contains_key(*name));
        let quota = quotas.of(name);
        match dialect.quirks.quota.filter(|_| name.is_none()) {
            None => of(quota, Arc::clone(caller.account())),
            Some(documented) => {
                let account = accounts.of_owner(principal.owner(), dialect.name, self.now);
                let calls = Some(Rate::per_minute(documented.calls_per_minute));
                let streams = Some(documented.streams);
                of(Quota { calls, streams, ..quota }, account)
            }
        }
    }

    /// Names what is left of the share beside an answer that is a call's own: where it is used up,
    /// and always where the platform's clients look for it.
    #[inline(always)]
    pub(super) fn name_share(&mut self) {
        if self.share.is_some() {
            self.name_share_left();
        }
    }

    #[cold]
    fn name_share_left(&mut self) {
        let (Some(share), fields) = (&self.share, &mut self.writer.fields) else { return };
        if self.endpoint.dialect.quirks.quota.is_some() {
            share.platform_fields(fields, self.now);
        }
        if let Some(Err(_)) = share.left {
            share.rate_fields(fields);
        }
    }
}

#[cold]
fn too_much(used_up: UsedUp) -> Fault {
    Fault { retry_s: Some(used_up.retry_s), ..FaultKind::RateLimited.into() }
}

#[cold]
fn streams_taken(most: u32) -> Fault {
    let detail = format!("as many streams of the caller are open as may be ({most})");
    Fault::because(FaultKind::RateLimited, detail)
}
