//! The terms of a call in the head of its request, for every binding: idempotency key, deadline,
//! wait, and the number of agents and proxies that the call has passed.

use crate::{
    binding::{CallContext, RequestSource},
    fault::{Fault, FaultKind},
    http::{self, Field, Head},
    model::{Call, Get, TaskWait},
};

/// The terms of a call in its head.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTerms<'x> {
    /// `Idempotency-Key`, unparsed.
    pub idempotency_key: Option<&'x str>,
    /// Seconds that the answer may wait for new events of a task: `Prefer: wait=N` (RFC 7240 §4.3).
    pub wait_s: Option<u64>,
    /// The caller's timeout in milliseconds: `Request-Timeout`, which is in seconds, or
    /// `grpc-timeout`.
    pub timeout_ms: Option<u64>,
    /// The number of agents and proxies that the call has passed: the larger of `A2A-Hops` and the
    /// number of entries in `Via` (RFC 9110 §7.6.3).
    pub hops: u32,
}

impl<'x> CallTerms<'x> {
    /// The terms in this head.
    #[inline(always)] // Most heads have no terms.
    pub fn of(head: &'x Head<'x>) -> CallTerms<'x> {
        if head.has_terms() { CallTerms::read(head) } else { CallTerms::default() }
    }

    #[cold]
    fn read(head: &'x Head<'x>) -> CallTerms<'x> {
        let key = head.value(Field::IdempotencyKey);
        CallTerms {
            idempotency_key: key.and_then(|key| str::from_utf8(key).ok()),
            wait_s: head.value(Field::Prefer).and_then(|_| wait_s(head)),
            timeout_ms: head.value(Field::RequestTimeout).and_then(timeout_ms),
            hops: match (head.value(Field::A2aHops), head.value(Field::Via)) {
                (None, None) => 0,
                (None, Some(_)) => entries(head),
                // A hop may append a second field instead of replacing the first: the largest
                // number is used.
                (Some(_), _) => {
                    let hops = head.values("a2a-hops").flat_map(http::list).map(hops_of).max();
                    hops.unwrap_or(0).max(entries(head))
                }
            },
        }
    }
}

impl CallContext<'_> {
    /// Checks the deadline and the hops of a call.
    ///
    /// # Errors
    /// [`FaultKind::DeadlineExceeded`], [`FaultKind::LoopDetected`].
    #[inline(always)]
    pub(super) fn check_terms(&self) -> Result<(), Fault> {
        let CallTerms { timeout_ms, hops, .. } = self.source.terms();
        if timeout_ms == Some(0) {
            return Err(FaultKind::DeadlineExceeded.into());
        }
        if hops as usize > self.config.limits.hops_max {
            return Err(too_many_hops(hops));
        }
        Ok(())
    }

    /// The deadline in ms of the monotonic clock; `None` for a gRPC call: its exchange enforces the
    /// deadline.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match self.source {
            RequestSource::Http(head) => {
                CallTerms::of(head).timeout_ms.map(|ms| self.now.mono_ms.saturating_add(ms))
            }
            RequestSource::Grpc(_) | RequestSource::WebSocket { .. } => None,
        }
    }

    /// Adds the wait in the head to a read, unless the params have one. A HEAD request never waits,
    /// since its answer has no content.
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

    /// RFC 7240 §3: the answer lists the applied preference.
    #[inline(always)]
    pub(super) fn push_wait(&mut self, call: &Call<'_>) {
        if let Call::Get(Get { wait: Some(wait), .. }) = call
            && self.source.terms().wait_s.is_some()
        {
            let seconds = wait.wait_ms.min(self.config.limits.long_poll_ms_max) / 1000;
            self.writer.fields.push("Preference-Applied", &format!("wait={seconds}"));
        }
    }
}

/// RFC 7240 §2: of a repeated preference the first is used; unknown preferences are ignored.
#[cold]
fn wait_s(head: &Head<'_>) -> Option<u64> {
    let mut all = head.values("prefer").flat_map(http::list);
    all.find_map(|preference| {
        let first = preference.split(|byte| *byte == b';').next()?;
        let (name, value) = str::from_utf8(first).ok()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("wait").then(|| whole(value.as_bytes()))
    })?
}

/// `Request-Timeout` in milliseconds; its value is in seconds.
fn timeout_ms(value: &[u8]) -> Option<u64> {
    whole(value).map(|seconds| seconds.saturating_mul(1000))
}

/// A number of hops; an invalid value counts as 0.
fn hops_of(value: &[u8]) -> u32 {
    let hops = whole(value).unwrap_or(0);
    u32::try_from(hops).unwrap_or(u32::MAX)
}

/// The number of entries in all `Via` fields; a comma in a comment is not a separator (RFC 9110
/// §5.6.5).
#[cold]
fn entries(head: &Head<'_>) -> u32 {
    let mut count = 0;
    for value in head.values("via") {
        let (mut depth, mut is_inside) = (0u32, false);
        for byte in value {
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => is_inside = false,
                b' ' | b'\t' => {}
                _ if !is_inside => (is_inside, count) = (true, count + 1),
                _ => {}
            }
        }
    }
    count
}

#[cold]
fn too_many_hops(hops: u32) -> Fault {
    let kind = FaultKind::LoopDetected;
    Fault::because(kind, format!("{}: {hops} (hops_max)", kind.row().message)).of_limit("hops_max")
}

/// A non-negative integer, saturating.
fn whole(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    is_number.then(|| digits.iter().fold(0, add))
}
