//! Objectives of a run, such as `p99<20ms` or `errors=0`.

use super::{
    CallLimits,
    report::{Quantiles, TargetReport},
};

/// One objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    text: String,
    metric: Metric,
    comparison: Comparison,
    /// Microseconds, calls per second, a number, or a share of 1; the unit depends on the metric.
    value: f64,
}

/// The compared figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Time(TimeOf, Quantile),
    /// Failed calls; their share if the objective has a percent sign.
    Errors {
        is_share: bool,
    },
    Reached,
    Goodput,
    NeverSent,
    HeldBack,
}

/// The compared time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TimeOf {
    Latency,
    Service,
    FirstByte,
    FirstEvent,
    SecondEvent,
    Gap,
    Spread,
    Delivery,
}

/// The compared value of the time's distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantile {
    Mean,
    P50,
    P90,
    P99,
    P999,
    P9999,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

/// The comparison operators; longer operators precede shorter ones.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::More),
    ("=", Comparison::Equal),
];

const TIMES: [(&str, TimeOf); 8] = [
    ("latency_", TimeOf::Latency),
    ("service_", TimeOf::Service),
    ("first_byte_", TimeOf::FirstByte),
    ("first_event_", TimeOf::FirstEvent),
    ("second_event_", TimeOf::SecondEvent),
    ("gap_", TimeOf::Gap),
    ("spread_", TimeOf::Spread),
    ("delivery_", TimeOf::Delivery),
];

impl Objective {
    /// Reads objectives, separated by commas.
    ///
    /// # Errors
    /// A sentence about the invalid objective.
    pub fn list(text: &str) -> Result<Vec<Objective>, String> {
        text.split(',').filter(|one| !one.trim().is_empty()).map(Objective::parse).collect()
    }

    /// Reads one objective.
    ///
    /// # Errors
    /// A sentence about the error.
    pub fn parse(text: &str) -> Result<Objective, String> {
        let text = text.trim();
        let wrong = |what: &str| {
            format!("{text:?} must be an objective such as p99<20ms or errors=0: {what}")
        };
        let found = COMPARISONS.iter().find_map(|(sign, comparison)| {
            let (name, value) = text.split_once(sign)?;
            Some((name.trim(), *comparison, value.trim()))
        });
        let Some((name, comparison, value)) = found else {
            return Err(wrong("a comparison is missing"));
        };
        let is_share = value.ends_with('%');
        let metric = match name {
            "errors" => Metric::Errors { is_share },
            "rate" | "reached" => Metric::Reached,
            "goodput" => Metric::Goodput,
            "never_sent" => Metric::NeverSent,
            "held_back" => Metric::HeldBack,
            _ => {
                let named =
                    TIMES.iter().find_map(|(prefix, of)| Some((name.strip_prefix(prefix)?, *of)));
                let (quantile, of) = named.unwrap_or((name, TimeOf::Latency));
                let quantile = Quantile::of(quantile).ok_or_else(|| {
                    wrong(
                        "use p50, p90, p99, p99.9, p99.99, max or mean, alone or after latency_, \
                         service_, first_byte_, first_event_, second_event_, gap_, spread_ or \
                         delivery_; or errors, rate, goodput, held_back, never_sent",
                    )
                })?;
                Metric::Time(of, quantile)
            }
        };
        let value = match metric {
            Metric::Time(..) => {
                microseconds(value).ok_or_else(|| wrong("a time such as 20ms is missing"))?
            }
            Metric::Errors { is_share: true } => {
                let percent = value.trim_end_matches('%').trim().parse::<f64>();
                percent.map_err(|_| wrong("its number is invalid"))? / 100.0
            }
            _ => value.parse::<f64>().map_err(|_| wrong("its number is invalid"))?,
        };
        if !value.is_finite() || value < 0.0 {
            return Err(wrong("its number must be 0 or more"));
        }
        Ok(Objective { text: text.to_owned(), metric, comparison, value })
    }

    /// Adds the limit that this objective sets for one call to `limits`.
    pub fn limit_calls(&self, limits: &mut CallLimits) {
        let is_upper = matches!(self.comparison, Comparison::Less | Comparison::AtMost);
        let Metric::Time(of, quantile) = self.metric else { return };
        // Half of the calls may exceed a mean or a median, so neither limits a call.
        if matches!(quantile, Quantile::Mean | Quantile::P50) {
            return;
        }
        let limit = match of {
            TimeOf::Latency => &mut limits.latency_ns,
            TimeOf::Service => &mut limits.service_ns,
            TimeOf::FirstByte => &mut limits.first_byte_ns,
            TimeOf::FirstEvent => &mut limits.first_event_ns,
            TimeOf::SecondEvent => &mut limits.second_event_ns,
            TimeOf::Gap => &mut limits.gap_ns,
            TimeOf::Spread => &mut limits.spread_ns,
            TimeOf::Delivery => &mut limits.delivery_ns,
        };
        if is_upper {
            let ns = (self.value * 1e3) as u64;
            *limit = Some(limit.map_or(ns, |other| other.min(ns)));
        }
    }

    /// Checks the objective.
    ///
    /// # Errors
    /// A sentence with the measured value, or that nothing was measured.
    pub fn check(&self, target: &TargetReport) -> Result<(), String> {
        let measured = self.measured(target);
        let holds = measured.is_some_and(|measured| match self.comparison {
            Comparison::Less => measured < self.value,
            Comparison::AtMost => measured <= self.value,
            Comparison::Equal => (measured - self.value).abs() < 1e-9,
            Comparison::AtLeast => measured >= self.value,
            Comparison::More => measured > self.value,
        });
        match (holds, measured) {
            (true, _) => Ok(()),
            (false, None) => Err(format!("{}: this value was not measured", self.text)),
            (false, Some(measured)) => {
                let value = match self.metric {
                    Metric::Time(..) => format!("{:.3} ms", measured / 1e3),
                    Metric::Errors { is_share: true } => format!("{:.3} %", measured * 100.0),
                    _ => format!("{measured:.1}"),
                };
                Err(format!("{} is not met: measured {value}", self.text))
            }
        }
    }

    /// The measured value; `None`: nothing was measured.
    fn measured(&self, target: &TargetReport) -> Option<f64> {
        let failed: u64 = target.errors.values().sum();
        match self.metric {
            Metric::Errors { is_share: false } => Some(failed as f64),
            Metric::Errors { is_share: true } => {
                Some(failed as f64 / target.requests.max(1) as f64)
            }
            Metric::Reached => Some(target.rate.reached),
            Metric::Goodput => target.rate.goodput,
            Metric::NeverSent => Some(target.never_sent as f64),
            Metric::HeldBack => Some(target.held_back as f64),
            Metric::Time(of, quantile) => {
                let times = match of {
                    TimeOf::Latency => &target.latency_us,
                    TimeOf::Service => &target.service_us,
                    TimeOf::FirstByte => &target.first_byte_us,
                    TimeOf::FirstEvent => &target.first_event_us,
                    TimeOf::SecondEvent => &target.second_event_us,
                    TimeOf::Gap => &target.gap_us,
                    TimeOf::Spread => &target.spread_us,
                    TimeOf::Delivery => &target.delivery_us,
                };
                (times.count > 0).then(|| quantile.of_times(times))
            }
        }
    }
}

impl Quantile {
    fn of(name: &str) -> Option<Quantile> {
        Some(match name {
            "mean" => Quantile::Mean,
            "p50" | "median" => Quantile::P50,
            "p90" => Quantile::P90,
            "p99" => Quantile::P99,
            "p999" | "p99.9" => Quantile::P999,
            "p9999" | "p99.99" => Quantile::P9999,
            "max" => Quantile::Max,
            _ => return None,
        })
    }

    fn of_times(self, times: &Quantiles) -> f64 {
        match self {
            Quantile::Mean => times.mean,
            Quantile::P50 => times.p50,
            Quantile::P90 => times.p90,
            Quantile::P99 => times.p99,
            Quantile::P999 => times.p999,
            Quantile::P9999 => times.p9999,
            Quantile::Max => times.max,
        }
    }
}

/// Parses a time such as `20ms`, `1.5s` or `300us`, in microseconds.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("ms", 1e3), ("us", 1.0), ("µs", 1.0), ("s", 1e6)];
    let (digits, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    Some(digits.trim().parse::<f64>().ok()? * unit)
}
