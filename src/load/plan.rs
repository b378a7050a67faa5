//! The plan of a run: the number and kinds of calls, their times, and their checks.

use std::{sync::Arc, time::Duration};

use super::LoadOperation;

/// When calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Open loop: calls are due at times that do not depend on the answers.
    Rate(RateSpan),
    /// Closed loop: the maximum number of calls is in flight, and each answer starts the next call.
    /// Then latencies do not include the time for which a slow server delays calls.
    Closed,
}

/// Calls per second of all workers together. The rate changes linearly from the first call to the
/// last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSpan {
    /// At the start; above 0.
    pub from: f64,
    /// At the end.
    pub to: f64,
    /// The distribution of the times between calls.
    pub arrivals: Arrivals,
}

impl RateSpan {
    /// Maximum calls per second.
    pub const RATE_MAX: f64 = 1e7;

    /// A constant rate.
    pub fn steady(rate: f64, arrivals: Arrivals) -> RateSpan {
        RateSpan { from: rate, to: rate, arrivals }
    }

    /// The rate after this share of the run, from 0 to 1.
    fn at(self, share: f64) -> f64 {
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }
}

/// The distribution of the times between calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// All times are equal.
    Constant,
    /// An exponential distribution, as of independent users.
    Poisson,
    /// A gamma distribution of this shape: 1 is Poisson, a smaller shape gives bursts, a larger
    /// shape is more regular.
    Gamma(f64),
}

/// The share of answers to check, in addition to the client's own checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckLevel {
    /// Every answer.
    #[default]
    Full,
    /// Every hundredth answer.
    Sample,
    /// No answer.
    Off,
}

impl CheckLevel {
    /// Whether the call with this number is checked.
    pub(super) fn holds(self, number: u64) -> bool {
        match self {
            CheckLevel::Full => true,
            CheckLevel::Sample => number.is_multiple_of(100),
            CheckLevel::Off => false,
        }
    }
}

/// The size of a message's text in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PayloadSize {
    /// A fixed number.
    Fixed(usize),
    /// Every number from the first to the second, with equal probability.
    Uniform(usize, usize),
    /// A log-normal distribution: most texts are near the median, few are much longer; the maximum
    /// is [`PayloadSize::BYTES_MAX`].
    LogNormal {
        /// The median: half of the texts are shorter.
        median: f64,
        /// The standard deviation of the logarithm. With 1, one text in a hundred is at least ten
        /// times as long as the median.
        sigma: f64,
    },
}

impl PayloadSize {
    /// Maximum bytes of a text: 64 MiB.
    pub const BYTES_MAX: usize = 64 << 20;
}

/// The kind of a message's single part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadShape {
    /// Text.
    #[default]
    Text,
    /// A JSON object with the text as a member.
    Data,
    /// A file with the text as its content.
    File,
}

/// One kind of call in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedCall {
    /// The operation.
    pub operation: LoadOperation,
    /// The share of the calls, relative to the weights of the other kinds; above 0.
    pub weight: f64,
    /// Bytes of the message's text.
    pub payload: PayloadSize,
    /// The kind of part that holds the text.
    pub shape: PayloadShape,
    /// Events of the stream, including the first and the last: the N of `stream:N`.
    pub events: u64,
    /// Minimum bytes of each chunk of the stream; 0: the agent decides.
    pub chunk_bytes: u64,
    /// The time for which the agent holds the task of a subscription, a resumed stream or a
    /// canceled task: the MS of `hold:MS:N`.
    pub hold: Duration,
    /// Streams that follow the task of one `subscribe`.
    pub subscribers: usize,
    /// Calls in one `batch`.
    pub batch: usize,
}

impl PlannedCall {
    /// Maximum subscribers of a task.
    pub const SUBSCRIBERS_MAX: usize = 10_000;
    /// Maximum calls in a batch.
    pub const BATCH_MAX: usize = 10_000;

    /// Calls of this operation with the defaults: a text of 64 bytes, streams of 22 events, 10
    /// subscribers after 200 ms, batches of 10.
    pub fn new(operation: LoadOperation) -> PlannedCall {
        PlannedCall {
            operation,
            weight: 1.0,
            payload: PayloadSize::Fixed(64),
            shape: PayloadShape::Text,
            events: 22,
            chunk_bytes: 0,
            hold: Duration::from_millis(200),
            subscribers: 10,
            batch: 10,
        }
    }
}

/// Limits of one call. A call without an error and within all limits counts as goodput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// From the due time to completion, in nanoseconds.
    pub latency_ns: Option<u64>,
    /// From sending to completion, in nanoseconds.
    pub service_ns: Option<u64>,
    /// From the due time to the head of the response, in nanoseconds.
    pub first_byte_ns: Option<u64>,
    /// From the due time to the first event, in nanoseconds.
    pub first_event_ns: Option<u64>,
    /// From the due time to the second event, in nanoseconds.
    pub second_event_ns: Option<u64>,
    /// Between two events, in nanoseconds.
    pub gap_ns: Option<u64>,
    /// Between the end of the first and the end of the last stream of a task, in nanoseconds.
    pub spread_ns: Option<u64>,
    /// From the end of a stream to its webhook, in nanoseconds.
    pub delivery_ns: Option<u64>,
}

/// A recorded call with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The due time, in nanoseconds since the start.
    pub due_ns: u64,
    /// The index of the call in the plan.
    pub call: usize,
    /// Bytes of the message's text.
    pub payload_bytes: usize,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The name in reports: a phase of a workload, or the names of the operations.
    pub name: String,
    /// The version of the workload to which this phase belongs; 0: none.
    pub workload_version: u32,
    /// The kinds of calls.
    pub calls: Vec<PlannedCall>,
    /// When calls begin.
    pub pace: LoadPace,
    /// Recorded calls, which replace `pace`.
    pub replay: Option<Arc<[RecordedCall]>>,
    /// Time at the start during which calls are made but not counted.
    pub warmup: Duration,
    /// Time during which calls begin and are counted.
    pub duration: Duration,
    /// Maximum number of calls, the warm-up included; `None`: as many as the time allows.
    pub requests_max: Option<u64>,
    /// Maximum calls of all workers in flight. In an open loop further calls wait, which is
    /// reported, and their latency continues to count. In a closed loop this is the constant number
    /// of calls in flight.
    pub in_flight_max: usize,
    /// Clients of all workers, each with separate connections: one connection if calls share it
    /// (HTTP/2), otherwise one connection for each call in flight.
    pub connections: usize,
    /// Time limit of one call, including its whole stream.
    pub call_timeout: Duration,
    /// Threads, each with separate connections and a share of the calls.
    pub workers: usize,
    /// The seed. The same seed and the same other values make the same calls at the same times.
    pub seed: u64,
    /// The share of answers to check.
    pub check: CheckLevel,
    /// The limits of goodput.
    pub limits: CallLimits,
    /// The detected behaviour of the agent.
    pub agent: AgentBehaviour,
}

/// The behaviour of an agent with the texts of the load generator (docs/bench.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentBehaviour {
    /// The agent answers any other text with the same text; the answers are then checked.
    pub echoes: bool,
    /// The agent answers `stream:N` with N events; their number is then checked.
    pub counts: bool,
    /// The texts of the chunks of `stream:N` begin with `chunk 1`, `chunk 2` and so on; the numbers
    /// are then checked.
    pub numbers: bool,
    /// The agent holds a task for `hold:MS:N`.
    pub holds: bool,
}

impl LoadPlan {
    /// The longest duration, and the longest warm-up: a year.
    pub const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

    /// A plan of these calls with this duration and the defaults: a warm-up of a second, 1,000
    /// calls in flight, 30 s for each call, one worker, seed 1, every answer checked, unknown agent
    /// behaviour.
    pub fn new(calls: Vec<PlannedCall>, pace: LoadPace, duration: Duration) -> LoadPlan {
        let plan = LoadPlan {
            name: String::new(),
            workload_version: 0,
            calls: Vec::new(),
            pace,
            replay: None,
            warmup: Duration::from_secs(1),
            duration,
            requests_max: None,
            in_flight_max: 1_000,
            connections: 1,
            call_timeout: Duration::from_secs(30),
            workers: 1,
            seed: 1,
            check: CheckLevel::Full,
            limits: CallLimits::default(),
            agent: AgentBehaviour::default(),
        };
        plan.with_calls(calls)
    }

    /// The same plan with other calls, named by their operations.
    #[must_use]
    pub fn with_calls(self, calls: Vec<PlannedCall>) -> LoadPlan {
        let names: Vec<&str> = calls.iter().map(|call| call.operation.name()).collect();
        LoadPlan { name: names.join(", "), calls, ..self }
    }

    /// The number of threads, at least one.
    pub(super) fn threads(&self) -> usize {
        self.workers.max(1)
    }

    /// The maximum calls in flight of one worker.
    pub(super) fn worker_in_flight_max(&self) -> usize {
        self.in_flight_max.div_ceil(self.threads()).max(1)
    }

    /// Whether calls have due times.
    pub(super) fn is_open(&self) -> bool {
        self.replay.is_some() || self.pace != LoadPace::Closed
    }

    /// The end of the run, in nanoseconds since the start.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warmup + self.duration).as_nanos() as u64
    }

    /// The end of the warm-up, in nanoseconds since the start.
    pub(super) fn warmup_ns(&self) -> u64 {
        self.warmup.as_nanos() as u64
    }

    /// The rate of due calls at this time after the start; `None`: unlimited.
    pub fn rate_at(&self, since: Duration) -> Option<f64> {
        match (&self.replay, self.pace) {
            (None, LoadPace::Rate(span)) => Some(span.at(self.share_at(since))),
            (Some(_), _) | (None, LoadPace::Closed) => self.wanted_rate(),
        }
    }

    /// The wanted average rate while calls are counted; `None`: unlimited.
    pub fn wanted_rate(&self) -> Option<f64> {
        if let Some(calls) = &self.replay {
            let warmup_ns = self.warmup_ns();
            let counted = calls.iter().filter(|call| call.due_ns >= warmup_ns).count();
            return Some(counted as f64 / self.duration.as_secs_f64().max(1e-9));
        }
        match self.pace {
            LoadPace::Rate(span) => Some(span.at(self.share_at(self.warmup)).midpoint(span.to)),
            LoadPace::Closed => None,
        }
    }

    /// The elapsed share of the run at this time after the start.
    fn share_at(&self, since: Duration) -> f64 {
        since.as_secs_f64() / (self.warmup + self.duration).as_secs_f64().max(1e-9)
    }
}
