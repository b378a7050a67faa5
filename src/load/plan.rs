//! What a run does: how many calls of which kinds, when, and how they are checked.

use std::time::Duration;

use super::LoadOperation;

/// When calls begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Open loop: calls are due at times that do not depend on the answers.
    Rate {
        /// Calls a second, of all workers together; above 0.
        rate: f64,
        /// How the times between them vary.
        arrivals: Arrivals,
    },
    /// Closed loop: so many calls at once, each followed by the next one as soon as it is answered.
    /// Latencies then leave out the time for which a slow server keeps calls from being made.
    Concurrency(usize),
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

/// What a run does.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The kinds of calls, and the weight of each.
    pub operations: Vec<(LoadOperation, f64)>,
    /// When calls begin.
    pub pace: LoadPace,
    /// Time at the beginning whose calls are made and not counted.
    pub warmup: Duration,
    /// Time in which calls begin and are counted.
    pub duration: Duration,
    /// Calls that are counted, at most; `None`: as many as the time allows.
    pub requests_max: Option<u64>,
    /// Calls of all workers that are unanswered at one time, at most. Beyond it calls wait, which
    /// is reported, and their latency counts on.
    pub in_flight_max: usize,
    /// Time for one call, or for one stream as a whole.
    pub call_timeout: Duration,
    /// Threads, each with connections and a part of the calls of its own.
    pub workers: usize,
    /// The same seed, with the same other values, makes the same calls at the same times.
    pub seed: u64,
    /// What is checked.
    pub check: CheckLevel,
    /// Bytes of the text of a message.
    pub payload_bytes: usize,
    /// Events of a stream, the first and the last included.
    pub stream_events: u64,
    /// True: the agent answers a text with the same text, which is then checked.
    pub echoes: bool,
}

impl LoadPlan {
    /// The calls at once of one worker, at most.
    pub(super) fn worker_in_flight_max(&self) -> usize {
        let all = match self.pace {
            LoadPace::Rate { .. } => self.in_flight_max,
            LoadPace::Concurrency(calls) => calls,
        };
        all.div_ceil(self.workers.max(1)).max(1)
    }

    /// When the last call is due, in nanoseconds since the beginning.
    pub(super) fn end_ns(&self) -> u64 {
        (self.warmup + self.duration).as_nanos() as u64
    }

    /// When calls begin to count, in nanoseconds since the beginning.
    pub(super) fn warmup_ns(&self) -> u64 {
        self.warmup.as_nanos() as u64
    }
}
