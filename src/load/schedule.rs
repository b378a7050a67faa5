//! The schedule of calls: their times, kinds and text lengths. It depends only on the seed and the
//! plan.

use std::sync::Arc;

use chacha20::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use rand_distr::{Distribution, Exp1, Gamma, StandardNormal};

use super::{Arrivals, LoadPace, LoadPlan, PayloadSize, RateSpan, RecordedCall};

/// A scheduled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueCall {
    /// The number of the call among the calls of its worker, from 0.
    pub number: u64,
    /// The due time, in nanoseconds since the start; `None`: as soon as a slot is free (closed
    /// loop).
    pub due_ns: Option<u64>,
    /// The index of the call in the plan.
    pub call: usize,
    /// Bytes of the message's text.
    pub payload_bytes: usize,
    /// Random bits for the content of the call.
    pub bits: u64,
}

/// The calls of one worker, in order.
pub(super) struct CallSchedule {
    random: ChaCha8Rng,
    source: CallTimesSource,
    next_number: u64,
    numbers_max: Option<u64>,
    end_ns: u64,
    /// The cumulative weights of the kinds of calls, as shares of 1.
    shares: Vec<f64>,
    payloads: Vec<PayloadSize>,
}

/// The source of call times.
enum CallTimesSource {
    /// The answers of earlier calls, in a closed loop.
    Answers,
    /// A rate.
    Rate { gaps: UnitGaps, pace: WorkerPace, units: f64 },
    /// A recording; every `step`th call belongs to this worker.
    Recorded { calls: Arc<[RecordedCall]>, next: usize, step: usize },
}

/// Times between calls with a mean of 1.
enum UnitGaps {
    Constant,
    Exponential,
    Gamma(Gamma<f64>),
}

/// Calls per second of one worker at the start, and the change of this rate per second.
#[derive(Clone, Copy)]
struct WorkerPace {
    from: f64,
    growth: f64,
}

impl CallSchedule {
    /// The calls of the worker with this number.
    pub fn new(plan: &LoadPlan, worker: usize) -> CallSchedule {
        let workers = plan.threads();
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ (worker as u64) << 48);
        let source = match (&plan.replay, plan.pace) {
            (Some(calls), _) => {
                let calls = Arc::clone(calls);
                CallTimesSource::Recorded { calls, next: worker, step: workers }
            }
            (None, LoadPace::Closed) => CallTimesSource::Answers,
            (None, LoadPace::Rate(span)) => by_rate(span, plan, worker, &mut random),
        };
        let total: f64 = plan.calls.iter().map(|call| call.weight).sum();
        let mut sum = 0.0;
        let shares = plan.calls.iter().map(|call| {
            sum += call.weight / total;
            sum
        });
        let numbers_max = plan.requests_max.map(|all| {
            let (each, rest) = (all / workers as u64, all % workers as u64);
            each + u64::from((worker as u64) < rest)
        });
        CallSchedule {
            source,
            random,
            next_number: 0,
            numbers_max,
            end_ns: plan.end_ns(),
            shares: shares.collect(),
            payloads: plan.calls.iter().map(|call| call.payload).collect(),
        }
    }

    /// The next call; `None`: no call remains. `now_ns` is used only in a closed loop, to detect
    /// the end of the run.
    pub fn next(&mut self, now_ns: u64) -> Option<DueCall> {
        let is_enough = self.numbers_max.is_some_and(|most| self.next_number >= most);
        let (due_ns, recorded) = match &self.source {
            CallTimesSource::Answers => (None, None),
            CallTimesSource::Rate { pace, units, .. } => (Some(pace.due_ns(*units)), None),
            CallTimesSource::Recorded { calls, next, .. } => {
                let recorded = *calls.get(*next)?;
                (Some(recorded.due_ns), Some(recorded))
            }
        };
        if is_enough || due_ns.unwrap_or(now_ns) >= self.end_ns {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        match &mut self.source {
            CallTimesSource::Answers => {}
            CallTimesSource::Rate { gaps, units, .. } => *units += gaps.next(&mut self.random),
            CallTimesSource::Recorded { next, step, .. } => *next += *step,
        }
        let bits = self.random.next_u64();
        let (call, payload_bytes) = match recorded {
            Some(recorded) => (recorded.call, recorded.payload_bytes),
            None => {
                let call = self.draw();
                (call, self.payload_bytes(call))
            }
        };
        Some(DueCall { number, due_ns, call, payload_bytes, bits })
    }

    /// Skips all remaining calls and returns their number; for random times, the expected number.
    pub fn skip_all(&mut self) -> u64 {
        let end_ns = self.end_ns;
        let remaining = match &mut self.source {
            CallTimesSource::Answers => 0,
            CallTimesSource::Rate { pace, units, .. } => {
                let remaining = pace.calls_until(end_ns) - *units;
                *units = f64::MAX;
                remaining.max(0.0).ceil() as u64
            }
            CallTimesSource::Recorded { calls, next, step } => {
                let remaining = calls.len().saturating_sub(*next).div_ceil(*step);
                *next = calls.len();
                remaining as u64
            }
        };
        let allowed =
            self.numbers_max.map_or(u64::MAX, |most| most.saturating_sub(self.next_number));
        remaining.min(allowed)
    }

    fn draw(&mut self) -> usize {
        match self.shares.len() {
            0 | 1 => 0,
            many => {
                let drawn = self.share();
                self.shares.iter().position(|share| drawn < *share).unwrap_or(many - 1)
            }
        }
    }

    /// A random number between 0 and 1, excluding both.
    fn share(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn payload_bytes(&mut self, call: usize) -> usize {
        match self.payloads.get(call) {
            None => 1,
            Some(PayloadSize::Fixed(bytes)) => *bytes,
            Some(&PayloadSize::Uniform(least, most)) => {
                least + (self.share() * (most.saturating_sub(least) + 1) as f64) as usize
            }
            Some(&PayloadSize::LogNormal { median, sigma }) => {
                let normal: f64 = StandardNormal.sample(&mut self.random);
                let bytes = median * (normal * sigma).exp();
                (bytes as usize).clamp(1, PayloadSize::BYTES_MAX)
            }
        }
    }
}

fn by_rate(
    RateSpan { from, to, arrivals }: RateSpan,
    plan: &LoadPlan,
    worker: usize,
    random: &mut ChaCha8Rng,
) -> CallTimesSource {
    let gaps = match arrivals {
        Arrivals::Constant => UnitGaps::Constant,
        Arrivals::Poisson => UnitGaps::Exponential,
        // The command line rejects an invalid shape; here an invalid shape counts as Poisson.
        Arrivals::Gamma(shape) => match Gamma::new(shape, 1.0 / shape) {
            Ok(gamma) => UnitGaps::Gamma(gamma),
            Err(_) => UnitGaps::Exponential,
        },
    };
    let workers = plan.threads() as f64;
    let length = (plan.warmup + plan.duration).as_secs_f64().max(1e-9);
    let pace = WorkerPace { from: from / workers, growth: (to - from) / workers / length };
    let first = match gaps {
        // Calls of the workers alternate.
        UnitGaps::Constant => worker as f64 / workers,
        UnitGaps::Exponential | UnitGaps::Gamma(_) => gaps.next(random),
    };
    CallTimesSource::Rate { units: first, gaps, pace }
}

impl WorkerPace {
    /// The time at which this many calls have become due, in nanoseconds since the start.
    fn due_ns(self, calls: f64) -> u64 {
        let seconds = match self.growth {
            0.0 => calls / self.from,
            growth => {
                // from·t + growth·t²/2 = calls; after a falling rate has reached 0, no more calls
                // are due.
                let root = self.from * self.from + 2.0 * growth * calls;
                if root < 0.0 { f64::MAX } else { 2.0 * calls / (self.from + root.sqrt()) }
            }
        };
        (seconds * 1e9).round() as u64
    }

    /// The number of calls that become due until this time.
    fn calls_until(self, end_ns: u64) -> f64 {
        let seconds = end_ns as f64 / 1e9;
        self.from * seconds + self.growth * seconds * seconds / 2.0
    }
}

impl UnitGaps {
    fn next(&self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            UnitGaps::Constant => 1.0,
            UnitGaps::Exponential => Exp1.sample(random),
            UnitGaps::Gamma(gamma) => gamma.sample(random),
        }
    }
}
