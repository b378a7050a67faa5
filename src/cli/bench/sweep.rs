//! Several rates in one run: from one rate to another, or up to the highest that meets the
//! objectives.

use peregrine::load::{
    Arrivals, LoadPace, LoadPlan, Objective, RateSpan,
    report::{SweepPoint, TargetReport},
};

use super::{
    super::{eprint, failure::CommandFailure},
    BenchPlan, BenchTarget,
};

/// Maximum runs of a search.
const RUNS_MAX: usize = 36;
/// Maximum ratio of the lowest failed rate to the best rate at which a search ends.
const NEAR: f64 = 1.05;
/// Share of the wanted rate that a run must reach; otherwise it counts as failed.
const REACHED_SHARE: f64 = 0.95;

/// The rates to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sweep {
    /// A number of rates, from the first to the last in even steps.
    Steps {
        /// Calls a second.
        from: f64,
        /// Calls a second.
        to: f64,
        /// The number of rates, at least 2.
        steps: usize,
    },
    /// Increasing rates until an objective breaks, then a bisection.
    FindMax {
        /// Calls a second of the first run.
        from: f64,
    },
}

/// A search for the highest rate.
struct Search {
    rate: f64,
    /// The highest rate that met the objectives.
    best: Option<f64>,
    /// The lowest rate that did not meet the objectives.
    broken: Option<f64>,
    /// True: the rate has broken an objective once and is tried again.
    is_second: bool,
}

impl Search {
    /// The next rate; `None`: the search has ended. A rate that breaks an objective is tried once
    /// more, so that one stall of the machine does not end the search.
    fn next(&mut self, holds: bool) -> Option<f64> {
        self.is_second = !holds && !self.is_second;
        if self.is_second {
            return Some(self.rate);
        }
        match holds {
            true => self.best = Some(self.rate),
            false => self.broken = Some(self.rate),
        }
        self.rate = match (self.best, self.broken) {
            (Some(best), None) => best * 2.0,
            (None, Some(broken)) if broken < 1.0 => return None,
            (None, Some(broken)) => broken / 2.0,
            (Some(best), Some(broken)) if broken / best <= NEAR => return None,
            (Some(best), Some(broken)) => readable((best * broken).sqrt()),
            (None, None) => return None,
        };
        Some(self.rate)
    }
}

/// The rate without insignificant digits.
fn readable(rate: f64) -> f64 {
    if rate < 10.0 { (rate * 10.0).round() / 10.0 } else { rate.round() }
}

impl Sweep {
    /// Runs the plan at each rate. Returns the report of the highest rate that met the objectives,
    /// or else of the first rate; its sweep has all rates.
    ///
    /// # Errors
    /// A [`CommandFailure`].
    pub fn run(
        self,
        target: &BenchTarget<'_>,
        bench: &BenchPlan<'_>,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<TargetReport, CommandFailure> {
        let Some(plan) = bench.phases.first() else {
            return Err(CommandFailure::usage("nothing to do"));
        };
        let (mut points, mut best): (Vec<SweepPoint>, Option<TargetReport>) = (Vec::new(), None);
        let mut best_holds = false;
        let mut search = Search { rate: self.first(), best: None, broken: None, is_second: false };
        let mut rate = Some(search.rate);
        while let Some(wanted) = rate {
            let Some(loaded) = runtime.block_on(target.load(&at_rate(plan, wanted)))? else {
                break;
            };
            let report = TargetReport::of(&loaded);
            let broken = broken_objective(&report, &bench.objectives);
            points.push(point(wanted, &report));
            eprint(&line(wanted, &report, broken.as_deref()));
            let holds = broken.is_none();
            if best.is_none() || (holds && (!best_holds || is_better(&report, best.as_ref()))) {
                (best, best_holds) = (Some(report), holds);
            }
            rate = match self {
                _ if loaded.is_interrupted || points.len() >= RUNS_MAX.max(self.steps()) => None,
                Sweep::Steps { from, to, steps } => (points.len() < steps)
                    .then(|| from + (to - from) * points.len() as f64 / (steps - 1).max(1) as f64),
                Sweep::FindMax { .. } => search.next(holds),
            };
        }
        if let (Sweep::FindMax { .. }, Some(best)) = (self, &best) {
            eprint(&found(best, best_holds));
        }
        points.sort_by(|one, other| one.wanted.total_cmp(&other.wanted));
        let mut report = best.ok_or_else(|| CommandFailure::usage("no rate was tried"))?;
        report.sweep = points;
        Ok(report)
    }

    fn first(self) -> f64 {
        match self {
            Sweep::Steps { from, .. } | Sweep::FindMax { from } => from,
        }
    }

    fn steps(self) -> usize {
        match self {
            Sweep::Steps { steps, .. } => steps,
            Sweep::FindMax { .. } => 0,
        }
    }
}

fn is_better(report: &TargetReport, than: Option<&TargetReport>) -> bool {
    than.is_none_or(|than| report.rate.wanted >= than.rate.wanted)
}

/// The plan at another rate, with the same arrivals.
fn at_rate(plan: &LoadPlan, rate: f64) -> LoadPlan {
    let arrivals = match plan.pace {
        LoadPace::Rate(span) => span.arrivals,
        LoadPace::Closed => Arrivals::Constant,
    };
    LoadPlan { pace: LoadPace::Rate(RateSpan::steady(rate, arrivals)), ..plan.clone() }
}

/// The first broken objective of a run; a rate that was not reached counts as broken.
fn broken_objective(report: &TargetReport, objectives: &[Objective]) -> Option<String> {
    let wanted = report.rate.wanted.unwrap_or_default();
    if report.never_sent > 0 || report.rate.reached < wanted * REACHED_SHARE {
        let reached = format!("reached {:.1} of {wanted:.1} calls/s", report.rate.reached);
        // More late calls than held-back calls: the generator was the bottleneck, not the agent.
        return Some(match report.late > report.held_back {
            true => format!("{reached}, because the generator was late"),
            false => reached,
        });
    }
    objectives.iter().find_map(|objective| objective.check(report).err())
}

fn point(wanted: f64, report: &TargetReport) -> SweepPoint {
    SweepPoint {
        wanted,
        reached: report.rate.reached,
        p50_us: report.latency_us.p50,
        p99_us: report.latency_us.p99,
        errors: report.errors.values().sum(),
    }
}

/// The result of a search, as a sentence.
fn found(best: &TargetReport, holds: bool) -> String {
    let wanted = best.rate.wanted.unwrap_or_default();
    match holds {
        true => format!("the highest rate that meets the objectives: {wanted:.1} calls/s\n"),
        false => format!("no rate meets the objectives; the report is for {wanted:.1} calls/s\n"),
    }
}

fn line(wanted: f64, report: &TargetReport, broken: Option<&str>) -> String {
    format!(
        "{wanted:>10.1} calls/s wanted, {:.1} reached, p50 {:.3} ms, p99 {:.3} ms{}\n",
        report.rate.reached,
        report.latency_us.p50 / 1e3,
        report.latency_us.p99 / 1e3,
        broken.map_or_else(String::new, |why| format!(": {why}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tried rates if rates up to `most` meet the objectives, except at the first try of the
    /// rates in `stalls_at`.
    fn tried(most: f64, stalls_at: &[f64]) -> Vec<f64> {
        let mut search = Search { rate: 100.0, best: None, broken: None, is_second: false };
        let (mut rates, mut stalled) = (vec![100.0], Vec::new());
        loop {
            let rate = *rates.last().unwrap();
            let stalls = stalls_at.contains(&rate) && !stalled.contains(&rate);
            if stalls {
                stalled.push(rate);
            }
            match search.next(rate <= most && !stalls) {
                Some(next) => rates.push(next),
                None => return rates,
            }
        }
    }

    #[test]
    fn single_stall_does_not_end_the_rate_search() {
        let calm = tried(1_000.0, &[]);
        assert_eq!(calm[..5], [100.0, 200.0, 400.0, 800.0, 1_600.0]);
        let best = |rates: &[f64]| {
            rates.iter().copied().filter(|rate| *rate <= 1_000.0).fold(0.0, f64::max)
        };
        assert!(best(&calm) > 1_000.0 / NEAR, "{calm:?}");
        assert_eq!(best(&tried(1_000.0, &[200.0, 800.0])), best(&calm));
        assert!(calm.iter().all(|rate| rate.fract() == 0.0), "{calm:?}");
        assert!(calm.len() < RUNS_MAX, "{calm:?}");
    }
}
