//! The metrics of an agent's upstream: a remote agent, an HTTP function or programs.
//!
//! Invariants: each message, cancel, and stream after an answer has one outcome; a dropped call
//! counts as canceled. The gauges return to zero. All workers share the counters: an upstream call
//! costs a hundred times as much as these additions.

use std::{
    cell::OnceCell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::RequestFields;
#[cfg(feature = "metrics")]
use crate::histogram::Sums;
use crate::histogram::{Histogram, TIMES_NS};

/// The kind of an upstream call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamCallKind {
    /// Sending a message, until its answer begins.
    Message,
    /// Following the events of the answer.
    Stream,
    /// Canceling a task.
    Cancel,
}

impl UpstreamCallKind {
    /// All kinds, in order of their numbers.
    pub const ALL: [UpstreamCallKind; 3] =
        [UpstreamCallKind::Message, UpstreamCallKind::Stream, UpstreamCallKind::Cancel];

    /// The name in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            UpstreamCallKind::Message => "message",
            UpstreamCallKind::Stream => "stream",
            UpstreamCallKind::Cancel => "cancel",
        }
    }
}

/// The outcome of a message, a stream or a cancel at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamOutcome {
    /// The upstream answered, or the stream was followed to its end.
    Ok,
    /// The upstream answered with an error.
    Fault,
    /// The upstream rejects the server's credentials, or the server has none for it.
    Unauthorized,
    /// The connection failed or ended before the answer, or a program did not start.
    Unreachable,
    /// The answer did not begin in time, or stopped for too long.
    Timeout,
    /// The answer is invalid or incomplete.
    InvalidAnswer,
    /// The upstream's version, binding or card does not support the message; nothing was sent.
    Unsupported,
    /// A limit of this server rejected the message; nothing was sent.
    Limit,
    /// The caller disconnected, or the task ended in this server first.
    Canceled,
}

impl UpstreamOutcome {
    /// All outcomes, in order of their numbers.
    pub const ALL: [UpstreamOutcome; 9] = [
        UpstreamOutcome::Ok,
        UpstreamOutcome::Fault,
        UpstreamOutcome::Unauthorized,
        UpstreamOutcome::Unreachable,
        UpstreamOutcome::Timeout,
        UpstreamOutcome::InvalidAnswer,
        UpstreamOutcome::Unsupported,
        UpstreamOutcome::Limit,
        UpstreamOutcome::Canceled,
    ];

    /// The name in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            UpstreamOutcome::Ok => "ok",
            UpstreamOutcome::Fault => "fault",
            UpstreamOutcome::Unauthorized => "unauthorized",
            UpstreamOutcome::Unreachable => "unreachable",
            UpstreamOutcome::Timeout => "timeout",
            UpstreamOutcome::InvalidAnswer => "invalid_answer",
            UpstreamOutcome::Unsupported => "unsupported",
            UpstreamOutcome::Limit => "limit",
            UpstreamOutcome::Canceled => "canceled",
        }
    }

    /// Whether the upstream has answered.
    const fn is_answer(self) -> bool {
        match self {
            UpstreamOutcome::Ok | UpstreamOutcome::Fault | UpstreamOutcome::Unauthorized => true,
            UpstreamOutcome::Unreachable
            | UpstreamOutcome::Timeout
            | UpstreamOutcome::InvalidAnswer
            | UpstreamOutcome::Unsupported
            | UpstreamOutcome::Limit
            | UpstreamOutcome::Canceled => false,
        }
    }
}

type Outcomes = [AtomicU64; UpstreamOutcome::ALL.len()];

/// The metrics of one agent's upstream.
pub struct UpstreamMeter {
    origin: Option<Box<str>>,
    /// Nanoseconds on a monotonic clock.
    clock_ns: fn() -> u64,
    outcomes: [Outcomes; UpstreamCallKind::ALL.len()],
    answers: Histogram<21>,
    queued: AtomicU64,
    outstanding: AtomicU64,
    streams: AtomicU64,
    processes: AtomicU64,
}

/// The gauges of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamGauges {
    /// Messages that wait for a permit.
    pub queued: u64,
    /// Messages and cancels in flight, until their answer begins.
    pub outstanding: u64,
    /// Answers with events that are being followed.
    pub streams: u64,
}

impl UpstreamMeter {
    /// A meter with all counters at zero. `origin`: scheme, host and port of the upstream, if it
    /// has a URL; `clock_ns` returns nanoseconds on a monotonic clock.
    pub fn new(origin: Option<String>, clock_ns: fn() -> u64) -> Arc<UpstreamMeter> {
        Arc::new(UpstreamMeter {
            origin: origin.map(Into::into),
            clock_ns,
            outcomes: Default::default(),
            answers: Histogram::new(&TIMES_NS),
            queued: AtomicU64::default(),
            outstanding: AtomicU64::default(),
            streams: AtomicU64::default(),
            processes: AtomicU64::default(),
        })
    }

    /// Scheme, host and port of the upstream, without credentials; `None`: the upstream has no URL.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// The log data of a request for this upstream; `None`: the request is not logged.
    pub fn log(
        self: &Arc<UpstreamMeter>,
        fields: RequestFields<'_>,
    ) -> Option<Arc<LoggedUpstream>> {
        let logged = fields.upstream_log()?.get_or_init(|| {
            Arc::new(LoggedUpstream { meter: Arc::clone(self), answer_ns: AtomicU64::new(0) })
        });
        Some(Arc::clone(logged))
    }

    /// Counts a message that waits for a permit.
    pub fn message(self: &Arc<UpstreamMeter>) -> UpstreamCall {
        self.queued.fetch_add(1, Relaxed);
        let (meter, kind) = (Arc::clone(self), UpstreamCallKind::Message);
        UpstreamCall { meter, kind, stage: UpstreamStage::Queued, logged: None }
    }

    /// Counts a cancel that is sent now.
    pub fn cancel(self: &Arc<UpstreamMeter>) -> UpstreamCall {
        let mut call = self.message();
        call.kind = UpstreamCallKind::Cancel;
        call.send();
        call
    }

    /// Counts a stream that the previous program followed, and that this program continues to
    /// follow.
    pub fn resume(self: &Arc<UpstreamMeter>) -> UpstreamCall {
        self.streams.fetch_add(1, Relaxed);
        let (meter, kind) = (Arc::clone(self), UpstreamCallKind::Stream);
        UpstreamCall { meter, kind, stage: UpstreamStage::Followed, logged: None }
    }

    /// Counts a message that a limit of this server rejects.
    pub fn refuse(&self) {
        self.count(UpstreamCallKind::Message, UpstreamOutcome::Limit);
    }

    /// Counts a process that was started.
    pub fn start_process(&self) {
        self.processes.fetch_add(1, Relaxed);
    }

    /// The count of this outcome.
    pub fn outcomes(&self, kind: UpstreamCallKind, outcome: UpstreamOutcome) -> u64 {
        self.outcomes[kind as usize][outcome as usize].load(Relaxed)
    }

    /// The current gauges.
    pub fn gauges(&self) -> UpstreamGauges {
        UpstreamGauges {
            queued: self.queued.load(Relaxed),
            outstanding: self.outstanding.load(Relaxed),
            streams: self.streams.load(Relaxed),
        }
    }

    /// Processes that were started.
    pub fn processes(&self) -> u64 {
        self.processes.load(Relaxed)
    }

    /// Histogram of the times from the sending of a call until its answer began.
    #[cfg(feature = "metrics")]
    pub(crate) fn answers(&self) -> Sums {
        let mut sums = Sums::default();
        sums.add(&self.answers);
        sums
    }

    fn count(&self, kind: UpstreamCallKind, outcome: UpstreamOutcome) {
        self.outcomes[kind as usize][outcome as usize].fetch_add(1, Relaxed);
    }
}

/// The log data of an upstream call.
pub struct LoggedUpstream {
    meter: Arc<UpstreamMeter>,
    /// 0: the answer has not begun.
    answer_ns: AtomicU64,
}

/// Holds the log data of a request; empty until an agent forwards the request.
pub type UpstreamLog = OnceCell<Arc<LoggedUpstream>>;

impl LoggedUpstream {
    /// As [`UpstreamMeter::origin`].
    pub fn origin(&self) -> Option<&str> {
        self.meter.origin()
    }

    /// Microseconds from the sending of the call until its answer began; `None`: it has not begun.
    pub fn answer_us(&self) -> Option<u64> {
        let answer_ns = self.answer_ns.load(Relaxed);
        (answer_ns > 0).then_some(answer_ns / 1_000)
    }
}

impl fmt::Debug for LoggedUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedUpstream").field("origin", &self.origin()).finish_non_exhaustive()
    }
}

/// An upstream call until its outcome is known; dropping an unfinished call counts it as canceled.
pub struct UpstreamCall {
    meter: Arc<UpstreamMeter>,
    kind: UpstreamCallKind,
    stage: UpstreamStage,
    logged: Option<Arc<LoggedUpstream>>,
}

#[derive(Clone, Copy)]
enum UpstreamStage {
    /// The call waits for a permit.
    Queued,
    /// The call was sent at this time.
    Sent { at_ns: u64 },
    /// The events of the answer are followed.
    Followed,
    /// The outcome is counted.
    Counted,
}

impl UpstreamCall {
    /// The same call; its times are logged.
    #[must_use]
    pub fn logged(mut self, logged: Option<Arc<LoggedUpstream>>) -> UpstreamCall {
        self.logged = logged;
        self
    }

    /// Notes that the call is sent now.
    pub fn send(&mut self) {
        if let UpstreamStage::Queued = self.stage {
            self.meter.queued.fetch_sub(1, Relaxed);
            self.meter.outstanding.fetch_add(1, Relaxed);
            self.stage = UpstreamStage::Sent { at_ns: (self.meter.clock_ns)() };
        }
    }

    /// Counts an answer that has begun.
    pub fn answered(&mut self) {
        self.end(UpstreamOutcome::Ok);
    }

    /// Counts the start of a stream after an answer.
    pub fn follow(&mut self) {
        if let UpstreamStage::Counted = self.stage {
            self.meter.streams.fetch_add(1, Relaxed);
            (self.kind, self.stage) = (UpstreamCallKind::Stream, UpstreamStage::Followed);
        }
    }

    /// Counts the outcome of the current stage; a second outcome of the stage is ignored.
    pub fn end(&mut self, outcome: UpstreamOutcome) {
        let meter = &self.meter;
        match self.stage {
            UpstreamStage::Queued => meter.queued.fetch_sub(1, Relaxed),
            UpstreamStage::Sent { at_ns } => {
                if outcome.is_answer() {
                    let answer_ns = (meter.clock_ns)().saturating_sub(at_ns);
                    meter.answers.count(answer_ns);
                    if let Some(logged) = &self.logged {
                        logged.answer_ns.store(answer_ns.max(1), Relaxed);
                    }
                }
                meter.outstanding.fetch_sub(1, Relaxed)
            }
            UpstreamStage::Followed => meter.streams.fetch_sub(1, Relaxed),
            UpstreamStage::Counted => return,
        };
        meter.count(self.kind, outcome);
        self.stage = UpstreamStage::Counted;
    }
}

impl Drop for UpstreamCall {
    fn drop(&mut self) {
        self.end(UpstreamOutcome::Canceled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(meter: &UpstreamMeter) -> Vec<(&'static str, &'static str, u64)> {
        let all = UpstreamCallKind::ALL.into_iter();
        let all = all.flat_map(|kind| UpstreamOutcome::ALL.map(|outcome| (kind, outcome)));
        let count = |(kind, outcome): (UpstreamCallKind, UpstreamOutcome)| {
            (kind.word(), outcome.word(), meter.outcomes(kind, outcome))
        };
        all.map(count).filter(|(_, _, count)| *count > 0).collect()
    }

    #[test]
    fn enum_indices_match_the_order_of_their_lists() {
        assert!(UpstreamCallKind::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
        assert!(UpstreamOutcome::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
    }

    #[test]
    fn each_call_is_counted_once_at_its_stage() {
        let meter = UpstreamMeter::new(None, || 0);
        let gauges = |queued, outstanding, streams| UpstreamGauges { queued, outstanding, streams };
        let (mut followed, mut failed, dropped) =
            (meter.message(), meter.message(), meter.message());
        assert_eq!(meter.gauges(), gauges(3, 0, 0));
        followed.send();
        failed.send();
        assert_eq!(meter.gauges(), gauges(1, 2, 0));
        followed.answered();
        followed.follow();
        failed.end(UpstreamOutcome::Timeout);
        assert_eq!(meter.gauges(), gauges(1, 0, 1));
        followed.end(UpstreamOutcome::Ok);
        drop((followed, failed, dropped, meter.cancel()));
        meter.refuse();
        assert_eq!(meter.gauges(), gauges(0, 0, 0));
        let expected = [
            ("message", "ok", 1),
            ("message", "timeout", 1),
            ("message", "limit", 1),
            ("message", "canceled", 1),
            ("stream", "ok", 1),
            ("cancel", "canceled", 1),
        ];
        assert_eq!(counted(&meter), expected);
    }
}
