//! When calls are due, and of which kind each is. Only the seed and the plan decide.

use chacha20::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use rand_distr::{Distribution, Exp1, Gamma};

use super::{Arrivals, LoadPace, LoadPlan};

/// A call that the schedule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueCall {
    /// Its number among the calls of its worker, from 0.
    pub number: u64,
    /// When, in nanoseconds since the beginning; `None`: as soon as there is room (closed loop).
    pub due_ns: Option<u64>,
    /// Which of the plan's operations.
    pub operation: usize,
    /// Random bits for what the call contains.
    pub bits: u64,
}

/// The calls of one worker, in their order.
pub(super) struct CallSchedule {
    random: ChaCha8Rng,
    gaps: Gaps,
    next_ns: f64,
    next_number: u64,
    numbers_max: Option<u64>,
    end_ns: u64,
    /// The weights, summed up to each operation, as shares of 1.
    shares: Vec<f64>,
}

/// The times between calls, in nanoseconds.
enum Gaps {
    None,
    Constant(f64),
    Exponential(f64),
    Gamma(Gamma<f64>),
}

impl CallSchedule {
    /// The calls of worker number `worker` of the plan's.
    pub fn new(plan: &LoadPlan, worker: usize) -> CallSchedule {
        let workers = plan.workers.max(1);
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed ^ (worker as u64) << 48);
        let gaps = match plan.pace {
            LoadPace::Concurrency(_) => Gaps::None,
            LoadPace::Rate { rate, arrivals } => gaps(1e9 * workers as f64 / rate, arrivals),
        };
        let next_ns = match &gaps {
            // The workers take turns.
            Gaps::Constant(gap) => gap * worker as f64 / workers as f64,
            other => other.next(&mut random),
        };
        let total: f64 = plan.operations.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let shares = plan.operations.iter().map(|(_, weight)| {
            sum += weight / total;
            sum
        });
        let numbers_max = plan.requests_max.map(|all| {
            let (each, rest) = (all / workers as u64, all % workers as u64);
            each + u64::from((worker as u64) < rest)
        });
        let (shares, end_ns) = (shares.collect(), plan.end_ns());
        CallSchedule { random, gaps, next_ns, next_number: 0, numbers_max, end_ns, shares }
    }

    /// The next call; `None`: that was the last. `now_ns` decides only in a closed loop, and then
    /// only whether the time is over.
    pub fn next(&mut self, now_ns: u64) -> Option<DueCall> {
        let due_ns = match self.gaps {
            Gaps::None => None,
            _ => Some(self.next_ns as u64),
        };
        let is_enough = self.numbers_max.is_some_and(|most| self.next_number >= most);
        if is_enough || due_ns.unwrap_or(now_ns) >= self.end_ns {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.next_ns += self.gaps.next(&mut self.random);
        let bits = self.random.next_u64();
        let operation = match self.shares.len() {
            0 | 1 => 0,
            many => {
                let drawn = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                self.shares.iter().position(|share| drawn < *share).unwrap_or(many - 1)
            }
        };
        Some(DueCall { number, due_ns, operation, bits })
    }
}

fn gaps(mean_ns: f64, arrivals: Arrivals) -> Gaps {
    match arrivals {
        Arrivals::Constant => Gaps::Constant(mean_ns),
        Arrivals::Poisson => Gaps::Exponential(mean_ns),
        // A shape that is no distribution is as good as Poisson; the command line refuses it.
        Arrivals::Gamma(shape) => match Gamma::new(shape, mean_ns / shape) {
            Ok(gamma) => Gaps::Gamma(gamma),
            Err(_) => Gaps::Exponential(mean_ns),
        },
    }
}

impl Gaps {
    fn next(&self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Gaps::None => 0.0,
            Gaps::Constant(gap) => *gap,
            Gaps::Exponential(mean) => {
                let drawn: f64 = Exp1.sample(random);
                drawn * mean
            }
            Gaps::Gamma(gamma) => gamma.sample(random),
        }
    }
}
