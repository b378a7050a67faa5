//! The plan of a run: the number and kinds of calls, their times, and their checks.

use std::{sync::Arc, time::Duration};

use super::LoadOperation;

/// When calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Open loop: calls are due at times that do not depend on the answers.
    Rate(RateSpan),
    /// Closed loop: the maximum of calls is in flight, and each answer starts the next call.
    /// Latencies then leave out the time for which a slow server delays calls.
    Closed,
}

/// Calls per second, of all workers together; the rate changes evenly from the first call to the
/// last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSpan {
    /// At the start; above 0.
    pub from: f64,
    /// At the end.
    pub to: f64,
    /// How the times between calls vary.
    pub arrivals: Arrivals,
}

impl RateSpan {
    /// Maximum calls per second.
    pub const RATE_MAX: f64 = 1e7;

    /// A constant rate.
    pub fn steady(rate: f64, arrivals: Arrivals) -> RateSpan {
        RateSpan { from: rate, to: rate, arrivals }
    }

    /// The rate after this share of the time, from 0 to 1.
    fn at(self, share: f64) -> f64 {
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }
}

/// How the times between calls vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Equal times.
    Constant,
    /// Exponentially, as independent users arrive.
    Poisson,
    /// By a gamma distribution of this shape: 1 is Poisson, a smaller one gives bursts, a larger
    /// one is more regular.
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
    /// None.
    Off,
}

impl CheckLevel {
    /// Whether the call of this number is checked.
    pub(super) fn holds(self, number: u64) -> bool {
        match self {
            CheckLevel::Full => true,
            CheckLevel::Sample => number.is_multiple_of(100),
            CheckLevel::Off => false,
        }
    }
}

/// The bytes of a message's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PayloadSize {
    /// A fixed number.
    Fixed(usize),
    /// Every number between these two, with equal probability.
    Uniform(usize, usize),
    /// By a log-normal distribution: most are near the median, few are much longer; at most
    /// [`PayloadSize::BYTES_MAX`].
    LogNormal {
        /// Half of the texts are shorter.
        median: f64,
        /// The standard deviation of the logarithm; 1 makes one text of a hundred ten times as long
        /// as the median.
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

/// One kind of call of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedCall {
    /// Its operation.
    pub operation: LoadOperation,
    /// Its share of the calls, relative to the weights of the others; above 0.
    pub weight: f64,
    /// Bytes of the text of its message.
    pub payload: PayloadSize,
    /// The kind of part that holds the text.
    pub shape: PayloadShape,
    /// Events of its stream, the first and the last included: the N of `stream:N`.
    pub events: u64,
    /// Minimum bytes of each chunk of its stream; 0: the agent decides.
    pub chunk_bytes: u64,
    /// How long the agent holds the task of a subscription, a resumed stream or a canceled task:
    /// the MS of `hold:MS:N`.
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

/// Limits of one call. A call within all of them and without an error is goodput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// From due to completed, in nanoseconds.
    pub latency_ns: Option<u64>,
    /// From sent to completed, in nanoseconds.
    pub service_ns: Option<u64>,
    /// From due to the head of the response, in nanoseconds.
    pub first_byte_ns: Option<u64>,
    /// From due to the first event, in nanoseconds.
    pub first_event_ns: Option<u64>,
    /// From due to the second event, in nanoseconds.
    pub second_event_ns: Option<u64>,
    /// Between two events, in nanoseconds.
    pub gap_ns: Option<u64>,
    /// Between the ends of the first and of the last stream of a task, in nanoseconds.
    pub spread_ns: Option<u64>,
    /// From the end of a stream to its webhook, in nanoseconds.
    pub delivery_ns: Option<u64>,
}

/// A call at a recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// When it is due, in nanoseconds since the start.
    pub due_ns: u64,
    /// The index of the call in the plan.
    pub call: usize,
    /// Bytes of its text.
    pub payload_bytes: usize,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Its name in reports: a phase of a workload, or the names of its operations.
    pub name: String,
    /// The version of the workload that it is a phase of; 0: none.
    pub workload_version: u32,
    /// The kinds of calls.
    pub calls: Vec<PlannedCall>,
    /// When calls begin.
    pub pace: LoadPace,
    /// Recorded calls, which are made at their times instead of the pace.
    pub replay: Option<Arc<[RecordedCall]>>,
    /// Time at the start during which calls are made but not counted.
    pub warmup: Duration,
    /// Time during which calls begin and are counted.
    pub duration: Duration,
    /// Maximum number of calls, the warm-up included; `None`: as many as the time allows.
    pub requests_max: Option<u64>,
    /// Calls of all workers in flight. In an open loop this is the maximum: further calls wait,
    /// which is reported, and their latency continues to count. In a closed loop it is the constant
    /// number.
    pub in_flight_max: usize,
    /// Clients of all workers, each with its own connections: one connection each if calls share it
    /// (HTTP/2), otherwise one for each call in flight.
    pub connections: usize,
    /// Time limit of one call, or of one whole stream.
    pub call_timeout: Duration,
    /// Threads, each with its own connections and its share of the calls.
    pub workers: usize,
    /// The same seed, with the same other values, makes the same calls at the same times.
    pub seed: u64,
    /// The share of answers to check.
    pub check: CheckLevel,
    /// The limits of goodput.
    pub limits: CallLimits,
    /// The detected behaviour of the agent.
    pub agent: AgentBehaviour,
}

/// The behaviour of an agent with texts of the load generator (docs/bench.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentBehaviour {
    /// It answers any other text with the same text, which is then checked.
    pub echoes: bool,
    /// It answers `stream:N` with N events, which is then checked.
    pub counts: bool,
    /// The texts of the chunks of `stream:N` begin with `chunk 1`, `chunk 2` and so on, which is
    /// then checked.
    pub numbers: bool,
    /// It holds a task for `hold:MS:N`.
    pub holds: bool,
}

impl LoadPlan {
    /// The longest duration, and the longest warm-up: a year.
    pub const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

    /// These calls for so long, with the defaults: a warm-up of a second, 1,000 calls in flight, 30
    /// s for each, one worker, seed 1, every answer checked, an agent of unknown behaviour.
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

    /// The same plan with these calls, named by their operations.
    #[must_use]
    pub fn with_calls(self, calls: Vec<PlannedCall>) -> LoadPlan {
        let names: Vec<&str> = calls.iter().map(|call| call.operation.name()).collect();
        LoadPlan { name: names.join(", "), calls, ..self }
    }

    /// Threads; at least one.
    pub(super) fn threads(&self) -> usize {
        self.workers.max(1)
    }

    /// The calls in flight of one worker.
    pub(super) fn worker_in_flight_max(&self) -> usize {
        self.in_flight_max.div_ceil(self.threads()).max(1)
    }

    /// Whether calls have due times.
    pub(super) fn is_open(&self) -> bool {
        self.replay.is_some() || self.pace != LoadPace::Closed
    }

    /// When the last call is due, in nanoseconds since the start.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warmup + self.duration).as_nanos() as u64
    }

    /// When calls begin to count, in nanoseconds since the start.
    pub(super) fn warmup_ns(&self) -> u64 {
        self.warmup.as_nanos() as u64
    }

    /// The rate of due calls at this time since the start; `None`: unlimited.
    pub fn rate_at(&self, since: Duration) -> Option<f64> {
        match (&self.replay, self.pace) {
            (None, LoadPace::Rate(span)) => Some(span.at(self.share_at(since))),
            (Some(_), _) | (None, LoadPace::Closed) => self.wanted_rate(),
        }
    }

    /// The wanted average rate while calls count; `None`: unlimited.
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

    /// The elapsed share of the whole run at this time since the start.
    fn share_at(&self, since: Duration) -> f64 {
        since.as_secs_f64() / (self.warmup + self.duration).as_secs_f64().max(1e-9)
    }
}
