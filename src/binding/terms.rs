//! What the head of a request says of its call, whatever its binding: how it is named, and for how
//! long its caller waits.

use crate::{
    binding::CallContext,
    fault::Fault,
    http::{self, Field, Head},
    model::{Call, Get, TaskWait},
};

/// What a head says of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTerms<'x> {
    /// `Idempotency-Key`, as it came.
    pub idempotency_key: Option<&'x str>,
    /// Seconds that the answer may wait for news of a task: `Prefer: wait=N` (RFC 7240 §4.3).
    pub wait_s: Option<u64>,
}

impl<'x> CallTerms<'x> {
    /// What this head says.
    #[inline(always)] // Most say nothing.
    pub fn of(head: &'x Head<'x>) -> CallTerms<'x> {
        let key = head.value(Field::IdempotencyKey);
        CallTerms {
            idempotency_key: key.and_then(|key| str::from_utf8(key).ok()),
            wait_s: head.value(Field::Prefer).and_then(|_| wait_s(head)),
        }
    }
}

impl CallContext<'_> {
    /// Adds what the head says of how long a reader waits, unless the params say it. Behind HEAD
    /// nobody waits, who would see nothing of it.
    #[inline(always)]
    pub(super) fn add_wait(&self, decoded: &mut Result<Call<'_>, Fault>) {
        let Ok(Call::Get(get)) = decoded else { return };
        if self.writer.is_head {
            get.wait = None;
        } else if get.wait.is_none()
            && let Some(seconds) = self.source.terms().wait_s
        {
            let (wait_ms, after) = (seconds.saturating_mul(1000), self.source.last_event_id());
            get.wait = Some(TaskWait { wait_ms, after });
        }
    }

    /// RFC 7240 §3: the answer says which preference was followed.
    #[inline(always)]
    pub(super) fn say_wait(&mut self, call: &Call<'_>) {
        if let Call::Get(Get { wait: Some(wait), .. }) = call
            && self.source.terms().wait_s.is_some()
        {
            let seconds = wait.wait_ms.min(self.config.limits.long_poll_ms_max) / 1000;
            self.writer.fields.push("Preference-Applied", &format!("wait={seconds}"));
        }
    }
}

/// RFC 7240 §2: of a preference that is repeated the first counts; what it does not understand a
/// server ignores.
#[cold]
fn wait_s(head: &Head<'_>) -> Option<u64> {
    let mut all = head.values("prefer").flat_map(http::list);
    all.find_map(|preference| {
        let first = preference.split(|byte| *byte == b';').next()?;
        let (name, value) = str::from_utf8(first).ok()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("wait").then(|| seconds(value.as_bytes()))
    })?
}

/// A whole number of seconds; one that is too large is the largest.
fn seconds(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    is_number.then(|| digits.iter().fold(0, add))
}
