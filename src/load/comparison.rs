//! Compares targets that were loaded in rounds: ratios with confidence intervals.

use chacha20::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::report::{ComparisonReport, TargetReport};

/// Number of samples that the bootstrap draws.
const DRAWS: usize = 2_000;
/// The share of the draws outside of the interval on each side: 2.5 %.
const TAIL_SHARE: f64 = 0.025;

/// A figure of one round; 0: the round has no such figure.
type RoundFigure = fn(&TargetReport) -> f64;

/// The compared figures: the name, and the value for one round.
const FIGURES: [(&str, RoundFigure); 6] = [
    ("latency p50", |round| round.latency_us.p50),
    ("latency p99", |round| round.latency_us.p99),
    ("first event p50", |round| round.first_event_us.p50),
    ("first event p99", |round| round.first_event_us.p99),
    ("calls/s", |round| round.rate.reached),
    ("CPU a call", |round| round.server.as_ref().map_or(0.0, |server| server.cpu_us_per_call)),
];

/// The ratios of a target to the baseline. In each round the target and the baseline ran one after
/// the other; the result is the geometric mean of the ratios of all rounds. The interval contains
/// 95 % of the means of resampled rounds (bootstrap). The draws are always the same.
pub fn compare(baseline: &[TargetReport], target: &[TargetReport]) -> Vec<ComparisonReport> {
    let (Some(first), Some(other)) = (baseline.first(), target.first()) else { return Vec::new() };
    let compared = FIGURES.iter().filter_map(|(name, figure)| {
        let logs: Vec<f64> = baseline
            .iter()
            .zip(target)
            .map(|(below, above)| (figure(above) / figure(below)).ln())
            .filter(|log| log.is_finite())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let (low, high) = interval(&logs);
        Some(ComparisonReport {
            phase: other.plan.name.clone(),
            url: other.url.clone(),
            baseline: first.url.clone(),
            figure: (*name).to_owned(),
            ratio: mean(&logs).exp(),
            low: low.exp(),
            high: high.exp(),
            rounds: logs.len(),
        })
    });
    compared.collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The interval that contains 95 % of the resampled means.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(values.len() as u64);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn = (0..values.len()).map(|_| {
                let index = random.next_u64() % values.len() as u64;
                values[index as usize]
            });
            drawn.sum::<f64>() / values.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let tail = (DRAWS as f64 * TAIL_SHARE) as usize;
    (means[tail], means[DRAWS - 1 - tail])
}
