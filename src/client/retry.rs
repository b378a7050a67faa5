//! Decides which calls are repeated, and when.
//!
//! Invariant: a call is repeated only if that is safe: it changes nothing, or the specification
//! makes it idempotent, or no server can have handled it. A send qualifies only if the server
//! declares that it recognises a repeated message. A pause grows with each attempt and is drawn
//! from its whole range ("full jitter"), so that callers that failed together do not return
//! together. The client waits as long as the server requests by `Retry-After`, or by `RetryInfo` in
//! gRPC, within a limit. No clock, no random bits: both are arguments.

use crate::{
    fault::CanonicalCode,
    http::date,
    model::{Generation, Op},
    service::Now,
};

use super::TransportError;

/// The effect of a failure on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No server has handled the request: no connection, or a refusal before any work (429; 503
    /// with `Retry-After`; their gRPC counterparts with `RetryInfo`).
    Unhandled,
    /// A server may have handled the request: the connection broke, or an intermediary gave up.
    Unknown,
    /// The request would fail again: a certificate, a malformed response, any other status.
    Lasting,
}

impl Failure {
    /// The failure of a transport error.
    pub fn of_transport(error: &TransportError) -> Failure {
        match error {
            TransportError::Resolve(_) | TransportError::Connect(_) => Failure::Unhandled,
            TransportError::Timeout(what) if *what == "connection" => Failure::Unhandled,
            TransportError::Timeout(_)
            | TransportError::Closed { .. }
            | TransportError::Http2(_)
            | TransportError::Proxy(_)
            | TransportError::Io(_) => Failure::Unknown,
            TransportError::Refused(_)
            | TransportError::Tls(_)
            | TransportError::NoHttp2
            | TransportError::Malformed(_)
            | TransportError::TooLarge(_)
            | TransportError::Coding(_) => Failure::Lasting,
        }
    }

    /// The failure of a response's status (RFC 9110 §15, RFC 6585 §4).
    pub fn of_status(status: u16, has_retry_after: bool) -> Failure {
        match status {
            429 => Failure::Unhandled,
            503 if has_retry_after => Failure::Unhandled,
            408 | 502 | 503 | 504 => Failure::Unknown,
            _ => Failure::Lasting,
        }
    }

    /// The failure of a canonical status without an HTTP status, as in gRPC.
    ///
    /// Without `RetryInfo` even `RESOURCE_EXHAUSTED` may follow completed work: gRPC libraries send
    /// it if the answer exceeds their limit.
    pub fn of_canonical(code: Option<CanonicalCode>, has_retry_info: bool) -> Failure {
        match code {
            Some(CanonicalCode::ResourceExhausted | CanonicalCode::Unavailable) => {
                if has_retry_info { Failure::Unhandled } else { Failure::Unknown }
            }
            Some(
                CanonicalCode::InvalidArgument
                | CanonicalCode::NotFound
                | CanonicalCode::AlreadyExists
                | CanonicalCode::FailedPrecondition
                | CanonicalCode::DeadlineExceeded
                | CanonicalCode::Internal
                | CanonicalCode::Unauthenticated
                | CanonicalCode::PermissionDenied,
            )
            | None => Failure::Lasting,
        }
    }
}

/// Whether a call may be repeated after this failure.
///
/// `is_idempotent_send`: according to the card or the caller, the server handles a message once,
/// even if it arrives several times (A2A 1.0 §3.3.1 leaves this to servers).
pub fn is_repeatable(
    op: Op,
    generation: Generation,
    is_idempotent_send: bool,
    failure: Failure,
) -> bool {
    let is_harmless = match op {
        Op::Get | Op::List | Op::Subscribe | Op::PushGet | Op::PushList | Op::ExtendedCard => true,
        // A2A 1.0 §3.1.5, §3.1.10: both are idempotent; before 1.0 this is not specified.
        Op::Cancel | Op::PushDelete => generation == Generation::V1,
        Op::Send | Op::Stream => is_idempotent_send,
        // Without an id, each call creates another configuration.
        Op::PushSet => false,
    };
    match failure {
        Failure::Unhandled => true,
        Failure::Unknown => is_harmless,
        Failure::Lasting => false,
    }
}

/// The pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Maximum attempts, the first one included: 4.
    pub attempts_max: u32,
    /// Milliseconds of the range of the first pause: 200. The range doubles with each attempt.
    pub base_ms: u64,
    /// Milliseconds of the longest pause: 10 s.
    pub pause_ms_max: u64,
    /// Maximum milliseconds to wait for `Retry-After` or `RetryInfo`: 60 s. If a server requests
    /// more, the caller gets its error.
    pub retry_after_ms_max: u64,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { attempts_max: 4, base_ms: 200, pause_ms_max: 10_000, retry_after_ms_max: 60_000 }
    }
}

impl Backoff {
    /// When to repeat the call, in ms of [`Now::mono_ms`]; `None`: never, because of the number of
    /// attempts, the server, or the deadline.
    ///
    /// `attempts`: the number of attempts so far, at least one; `retry_after_ms`: the result of
    /// [`retry_after_ms`]; `due_ms`: the deadline of the call.
    pub fn next_ms(
        &self,
        attempts: u32,
        retry_after_ms: Option<u64>,
        random: u128,
        now: Now,
        due_ms: Option<u64>,
    ) -> Option<u64> {
        if attempts >= self.attempts_max {
            return None;
        }
        let requested_ms = retry_after_ms.unwrap_or(0);
        if requested_ms > self.retry_after_ms_max {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(63);
        let window = self.base_ms.saturating_mul(1 << doublings).min(self.pause_ms_max);
        // The remainder's bias is below 2^-60: a window has fewer than 2^64 values of 2^128.
        let drawn = u64::try_from(random % (u128::from(window) + 1)).unwrap_or(window);
        let next = now.mono_ms.saturating_add(requested_ms).saturating_add(drawn);
        due_ms.is_none_or(|due_ms| next < due_ms).then_some(next)
    }
}

/// Milliseconds of a `Retry-After`: seconds, or a date (RFC 9110 §10.2.3), which may be past;
/// `None`: the value is neither. `unix_ms` is the current time.
pub fn retry_after_ms(field: &[u8], unix_ms: u64) -> Option<u64> {
    let text = field.trim_ascii();
    if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
        let add = |seconds: u64, digit: &u8| {
            seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        };
        return Some(text.iter().fold(0, add).saturating_mul(1_000));
    }
    let at_ms = date::parse(text)?.saturating_mul(1_000);
    Some(at_ms.saturating_sub(unix_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { mono_ms: 1_000, unix_ms: 784_111_777_000 };

    #[test]
    fn reads_are_retried_and_sends_only_if_unhandled() {
        use Failure::{Lasting, Unhandled, Unknown};
        let of = |op, failure| is_repeatable(op, Generation::V1, false, failure);
        let reads = [Op::Get, Op::List, Op::Subscribe, Op::PushGet, Op::PushList, Op::ExtendedCard];
        for op in reads {
            assert!(of(op, Unhandled) && of(op, Unknown) && !of(op, Lasting), "{op:?}");
        }
        for op in [Op::Send, Op::Stream, Op::PushSet] {
            assert!(of(op, Unhandled) && !of(op, Unknown) && !of(op, Lasting), "{op:?}");
        }
        for op in [Op::Cancel, Op::PushDelete] {
            assert!(of(op, Unknown));
            assert!(!is_repeatable(op, Generation::V03, false, Unknown), "{op:?}");
        }
        assert!(is_repeatable(Op::Send, Generation::V1, true, Unknown));
        assert!(!is_repeatable(Op::PushSet, Generation::V1, true, Unknown));
        assert!(!is_repeatable(Op::Send, Generation::V1, true, Lasting));
    }

    #[test]
    fn failures_are_classified_by_error_and_status() {
        use TransportError::{Closed, Connect, Http2, Malformed, Resolve, Timeout, Tls};
        for (error, failure) in [
            (Resolve(String::new()), Failure::Unhandled),
            (Connect(String::new()), Failure::Unhandled),
            (Timeout("connection"), Failure::Unhandled),
            (Timeout("response"), Failure::Unknown),
            (Closed { before_response: true }, Failure::Unknown),
            (Http2(String::new()), Failure::Unknown),
            (Tls(String::new()), Failure::Lasting),
            (Malformed(""), Failure::Lasting),
        ] {
            assert_eq!(Failure::of_transport(&error), failure, "{error:?}");
        }
        for (status, retry_after, failure) in [
            (429, false, Failure::Unhandled),
            (503, true, Failure::Unhandled),
            (503, false, Failure::Unknown),
            (502, true, Failure::Unknown),
            (504, false, Failure::Unknown),
            (408, false, Failure::Unknown),
            (500, true, Failure::Lasting),
            (404, false, Failure::Lasting),
            (200, false, Failure::Lasting),
        ] {
            assert_eq!(Failure::of_status(status, retry_after), failure, "{status}");
        }
        for code in [CanonicalCode::ResourceExhausted, CanonicalCode::Unavailable] {
            assert_eq!(Failure::of_canonical(Some(code), true), Failure::Unhandled);
            assert_eq!(Failure::of_canonical(Some(code), false), Failure::Unknown);
        }
        let lasting = [Some(CanonicalCode::Internal), Some(CanonicalCode::NotFound), None];
        for code in lasting {
            assert_eq!(Failure::of_canonical(code, true), Failure::Lasting);
        }
    }

    #[test]
    fn backoff_doubles_with_jitter_and_attempts_end() {
        let backoff = Backoff::default();
        let next = |attempts, random| backoff.next_ms(attempts, None, random, NOW, None);
        assert_eq!(next(1, 0), Some(1_000));
        assert_eq!(next(1, 200), Some(1_200));
        assert_eq!(next(1, 201), Some(1_000));
        assert_eq!(next(2, 400), Some(1_400));
        assert_eq!(next(3, 800), Some(1_800));
        assert_eq!(next(4, 0), None);
        let patient = Backoff { attempts_max: u32::MAX, ..backoff };
        for attempts in [7, 64, 65, u32::MAX - 1] {
            for random in [0, 1 << 70, u128::MAX] {
                let next = patient.next_ms(attempts, None, random, NOW, None);
                assert!((1_000..=11_000).contains(&next.unwrap_or(0)), "{attempts}");
            }
        }
    }

    #[test]
    fn retry_delay_obeys_retry_after_and_deadline() {
        let backoff = Backoff::default();
        let next = |retry_after_ms, due_ms| backoff.next_ms(1, retry_after_ms, 100, NOW, due_ms);
        assert_eq!(next(Some(2_000), None), Some(3_100));
        assert_eq!(next(Some(60_000), None), Some(61_100));
        assert_eq!(next(Some(60_001), None), None);
        assert_eq!(next(None, Some(1_101)), Some(1_100));
        assert_eq!(next(None, Some(1_100)), None);
        assert_eq!(next(Some(u64::MAX), None), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (field, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120_000)),
            ("99999999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", Some(3_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after_ms(field.as_bytes(), NOW.unix_ms), expected, "{field}");
        }
    }
}
