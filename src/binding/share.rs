//! The share of a server that each caller takes: calls, bytes, streams and running tasks; and how
//! it hears that there is no more now.
//!
//! Law: a request takes its bytes and one call before any of its body is read, and each further
//! call when that is known and before it is made. So what cannot be read has its price, too, and of
//! a request whose bytes are too many nothing is read.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use crate::{
    auth::{CallerAccount, Quota, Rate, RateLeft, StreamPlace, UsedUp},
    binding::CallContext,
    fault::{Fault, FaultKind},
    http::FieldLinesBuf,
    service::{Now, RunningShare},
};

/// Stands for an address that nobody knows.
const NOWHERE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// What a caller may take who has a quota.
pub struct CallerShare {
    quota: Quota,
    account: Arc<CallerAccount>,
    running: Option<RunningShare>,
    /// What is left of its calls, once one was taken or refused.
    left: Option<Result<RateLeft, UsedUp>>,
    /// True: a call was taken that is not known yet.
    is_ahead: bool,
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

    /// Takes a call, and notes what is left.
    fn take_call(&mut self, now: Now) -> Result<(), UsedUp> {
        let taken = self.account.take_call(&self.quota, now);
        self.left = taken.transpose();
        taken.map(drop)
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
    /// Takes the bytes of a request and its first call; its body is so long, and not read.
    ///
    /// # Errors
    /// `RateLimited`: its bytes are too many. That there is no call left is said to the call.
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
        self.share = self.find_share().map(Box::new);
        let Some(share) = &mut self.share else { return Ok(()) };
        share.account.take_kib(&share.quota, kib, self.now).map_err(too_much)?;
        share.is_ahead = share.take_call(self.now).is_ok();
        Ok(())
    }

    /// Takes a call out of the caller's share.
    ///
    /// # Errors
    /// `RateLimited`.
    #[inline(never)]
    pub(super) fn take_share(&mut self) -> Result<(), Fault> {
        if self.share.is_none() {
            self.share = self.find_share().map(Box::new);
        }
        let Some(share) = &mut self.share else { return Ok(()) };
        match std::mem::take(&mut share.is_ahead) {
            true => Ok(()),
            false => share.take_call(self.now).map_err(too_much),
        }
    }

    /// Who takes, and how much may be taken: by what the principal names, else by the defaults; and
    /// no more than the platform's documentation says.
    fn find_share(&self) -> Option<CallerShare> {
        let accounts = &self.config.access.accounts;
        let quotas = accounts.quotas();
        let of = |quota: Quota, account| {
            let running = quota.running_tasks.map(|most| RunningShare { most, account: None });
            Some(CallerShare { quota, account, running, left: None, is_ahead: false })
        };
        let Some(caller) = &self.admission else {
            if quotas.anonymous == Quota::default() {
                return None;
            }
            // Those of whom nobody knows where they are, as of one that has left already, share.
            let address = self.origin_address().unwrap_or(NOWHERE);
            let account = accounts.of_address(address, self.now);
            let mut share = of(quotas.anonymous, account)?;
            // Its tasks are nobody's, so they are counted by its address.
            share.running.iter_mut().for_each(|r| r.account = Some(Arc::clone(&share.account)));
            return Some(share);
        };
        let mut quota = quotas.of(caller.principal.quota());
        if let Some(documented) = self.endpoint.dialect.quirks.quota {
            let calls = Rate::per_minute(documented.calls_per_minute);
            quota.calls = Some(quota.calls.map_or(calls, |own| own.at_most(calls)));
            quota.streams = Some(quota.streams.unwrap_or(u32::MAX).min(documented.streams));
        }
        of(quota, Arc::clone(caller.account()))
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
