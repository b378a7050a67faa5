//! What a run does: how many calls of which kinds, when, and how they are checked.

use std::{sync::Arc, time::Duration};

use super::LoadOperation;

/// When calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Open loop: calls are due at times that do not depend on the answers.
    Rate(RateSpan),
    /// Closed loop: as many calls as may be unanswered are made at once, each followed by the next
    /// one as soon as it is answered. Latencies then leave out the time for which a slow server
    /// keeps calls from being made.
    Closed,
}

/// Calls a second, of all workers together, which change evenly from the first call to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSpan {
    /// At the beginning; above 0.
    pub from: f64,
    /// At the end.
    pub to: f64,
    /// How the times between calls vary.
    pub arrivals: Arrivals,
}

impl RateSpan {
    /// Calls a second, at most.
    pub const RATE_MAX: f64 = 1e7;

    /// A rate that does not change.
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
    /// Not at all.
    Constant,
    /// Exponentially, as independent users arrive.
    Poisson,
    /// By a gamma distribution of this shape: 1 is Poisson, less comes in bursts, more is more
    /// regular.
    Gamma(f64),
}

/// How much of the answers is checked, beyond what the client needs of them.
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

/// How many bytes the text of a message has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PayloadSize {
    /// So many.
    Fixed(usize),
    /// Any number between these two, each as often.
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
    /// Bytes of a text, at most: 64 MiB.
    pub const BYTES_MAX: usize = 64 << 20;
}

/// What the one part of a message is.
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
    /// What it does.
    pub operation: LoadOperation,
    /// Its share of the calls, beside the weights of the others; above 0.
    pub weight: f64,
    /// Bytes of the text of its message.
    pub payload: PayloadSize,
    /// What the message has the text as.
    pub shape: PayloadShape,
    /// Events of its stream, the first and the last included: the N of `stream:N`.
    pub events: u64,
    /// Bytes of each chunk of its stream, at least; 0: the agent decides.
    pub chunk_bytes: u64,
    /// Time that the task of a subscription, a cut stream or a cancelled task is held: the MS of
    /// `hold:MS:N`.
    pub hold: Duration,
    /// Streams that follow the task of one `subscribe`.
    pub subscribers: usize,
    /// Calls in one `batch`.
    pub batch: usize,
}

impl PlannedCall {
    /// Subscribers of a task, at most.
    pub const SUBSCRIBERS_MAX: usize = 10_000;
    /// Calls in a batch, at most.
    pub const BATCH_MAX: usize = 10_000;

    /// Calls of this operation with the usual numbers: a text of 64 bytes, streams of 22 events,
    /// 10 subscribers after 200 ms, batches of 10.
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

/// Limits of one call. A call that stays within all of them, and has no error, is goodput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// From due to over, in nanoseconds.
    pub latency_ns: Option<u64>,
    /// From sent to over, in nanoseconds.
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

/// A call at a time that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// When it is due, in nanoseconds since the beginning.
    pub due_ns: u64,
    /// Which of the calls of the plan.
    pub call: usize,
    /// Bytes of its text.
    pub payload_bytes: usize,
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// What it is called in reports: a phase of a workload, or the names of its operations.
    pub name: String,
    /// The version of the workload that it is a phase of; 0: of none.
    pub workload_version: u32,
    /// The kinds of calls.
    pub calls: Vec<PlannedCall>,
    /// When calls begin.
    pub pace: LoadPace,
    /// Calls that were recorded, to be made again at their times in place of the pace.
    pub replay: Option<Arc<[RecordedCall]>>,
    /// Time at the beginning whose calls are made and not counted.
    pub warmup: Duration,
    /// Time in which calls begin and are counted.
    pub duration: Duration,
    /// Calls that are made, at most, those of a warm-up included; `None`: as many as there is time
    /// for.
    pub requests_max: Option<u64>,
    /// Calls of all workers that are unanswered at one time: at most in an open loop, where calls
    /// beyond it wait, which is reported, and their latency counts on; always in a closed one.
    pub in_flight_max: usize,
    /// Clients of all workers, each with connections of its own: one connection each where calls
    /// share it (HTTP/2), else as many as there are calls at once.
    pub connections: usize,
    /// Time for one call, or for one stream as a whole.
    pub call_timeout: Duration,
    /// Threads, each with connections and a part of the calls of its own.
    pub workers: usize,
    /// The same seed, with the same other values, makes the same calls at the same times.
    pub seed: u64,
    /// What is checked.
    pub check: CheckLevel,
    /// What makes a call goodput.
    pub limits: CallLimits,
    /// What the agent was seen to do with texts.
    pub agent: AgentBehaviour,
}

/// What an agent does with texts of the load generator (docs/bench.md).
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

    /// These calls for so long, with the usual numbers: a second of warm-up, 1,000 unanswered calls
    /// and 30 s for each, one worker, seed 1, every answer checked, of an agent of which nothing is
    /// known.
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

    /// The same plan of these calls, named by their operations.
    #[must_use]
    pub fn with_calls(self, calls: Vec<PlannedCall>) -> LoadPlan {
        let names: Vec<&str> = calls.iter().map(|call| call.operation.name()).collect();
        LoadPlan { name: names.join(", "), calls, ..self }
    }

    /// Threads; one at least.
    pub(super) fn threads(&self) -> usize {
        self.workers.max(1)
    }

    /// The calls at once of one worker.
    pub(super) fn worker_in_flight_max(&self) -> usize {
        self.in_flight_max.div_ceil(self.threads()).max(1)
    }

    /// Whether calls are due at times.
    pub(super) fn is_open(&self) -> bool {
        self.replay.is_some() || self.pace != LoadPace::Closed
    }

    /// When the last call is due, in nanoseconds since the beginning.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warmup + self.duration).as_nanos() as u64
    }

    /// When calls begin to count, in nanoseconds since the beginning.
    pub(super) fn warmup_ns(&self) -> u64 {
        self.warmup.as_nanos() as u64
    }

    /// Calls a second that are due at this time since the beginning; `None`: as many as possible.
    pub fn rate_at(&self, since: Duration) -> Option<f64> {
        match (&self.replay, self.pace) {
            (None, LoadPace::Rate(span)) => Some(span.at(self.share_at(since))),
            (Some(_), _) | (None, LoadPace::Closed) => self.wanted_rate(),
        }
    }

    /// Calls a second that are wanted on average while calls count; `None`: as many as possible.
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

    /// The share of the whole run that is over at this time since the beginning.
    fn share_at(&self, since: Duration) -> f64 {
        since.as_secs_f64() / (self.warmup + self.duration).as_secs_f64().max(1e-9)
    }
}
